//! A kubelet that behaves as the real one does towards device plugins: it hands out devices, calls
//! a plugin, forgets every plugin when it is started again and keeps its pods.
//!
//! It differs from the real one in what it starts: a [`Pod`] is only what its container would get.

use cumux_cluster::plugin::messages::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, ContainerDevices, ContainerPreferredAllocationRequest,
    ContainerResources, Empty, HEALTHY, ListAndWatchResponse, ListPodResourcesResponse, Options, PodResources, PreStartContainerRequest,
    PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, VERSION,
};
use cumux_cluster::rpc::{self, Answer, Call, Calls, RpcClient, unary, unknown};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tonic::Status;

/// Limit of every wait.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// What a pod asks for: names of resources and how many of each.
pub type Wishes<'a> = &'a [(&'a str, usize)];

/// What a pod's container gets.
#[derive(Debug, Clone, Default)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its devices by resource.
    pub devices: BTreeMap<String, Vec<String>>,
    /// Its variables.
    pub environment: BTreeMap<String, String>,
    /// Paths on the node, by path in the container.
    pub mounts: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Endpoint {
    /// The registration that it came with.
    number: u64,
    client: RpcClient,
    options: Options,
    /// Whether each device is healthy.
    devices: BTreeMap<String, bool>,
}

#[derive(Debug, Default)]
struct State {
    endpoints: BTreeMap<String, Endpoint>,
    pods: BTreeMap<String, Pod>,
    registrations: u64,
    /// Registrations that are answered with an error.
    refusals: u64,
    /// How long a registration takes.
    delay: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().expect("no panic in here"));
        self.changed.notify_all();
        result
    }
}

#[derive(Debug)]
struct Life {
    end: watch::Sender<bool>,
    handle: Handle,
    thread: JoinHandle<()>,
}

/// The kubelet of one node.
#[derive(Debug)]
pub struct Kubelet {
    folder: PathBuf,
    shared: Arc<Shared>,
    life: Option<Life>,
}

struct Registration {
    folder: PathBuf,
    shared: Arc<Shared>,
}

impl Calls for Registration {
    fn call(self: Arc<Self>, method: &str, call: Call) -> Answer {
        if method != "Registration/Register" {
            return unknown(method);
        }
        unary(call, move |request: RegisterRequest| {
            let (delay, refused) = self.shared.update(|state| {
                state.registrations += 1;
                let refused = state.refusals > 0;
                state.refusals = state.refusals.saturating_sub(1);
                (state.delay, refused)
            });
            std::thread::sleep(delay);
            if refused {
                return Err(Status::unavailable("kubelet is not ready yet"));
            }
            if request.version != VERSION || request.endpoint.contains('/') || !request.resource_name.contains('/') {
                return Err(Status::invalid_argument(format!("this is no registration: {request:?}")));
            }
            let (socket, shared) = (self.folder.join("device-plugins").join(&request.endpoint), Arc::clone(&self.shared));
            // As the real one: the plugin is called after it has been answered.
            Handle::current().spawn(follow(shared, socket, request));
            Ok(Empty {})
        })
    }
}

async fn follow(shared: Arc<Shared>, socket: PathBuf, request: RegisterRequest) {
    let Ok(client) = RpcClient::connect(&socket).await else { return };
    let Ok(options) = client.call::<_, Options>("/v1beta1.DevicePlugin/GetDevicePluginOptions", Empty {}).await else { return };
    assert_eq!(Some(options), request.options, "the plugin says one thing and registers another");
    let Ok(mut lists) = client.watch::<_, ListAndWatchResponse>("/v1beta1.DevicePlugin/ListAndWatch", Empty {}).await else { return };
    let number = shared.update(|state| {
        let number = state.registrations;
        state.endpoints.insert(request.resource_name.clone(), Endpoint { number, client, options, devices: BTreeMap::new() });
        number
    });
    while let Ok(Some(list)) = lists.message().await {
        let devices: BTreeMap<String, bool> = list.devices.into_iter().map(|device| (device.id, device.health == HEALTHY)).collect();
        assert!(devices.keys().all(|id| id.len() <= 63), "{devices:?}");
        shared.update(|state| {
            if let Some(endpoint) = state.endpoints.get_mut(&request.resource_name).filter(|endpoint| endpoint.number == number) {
                endpoint.devices = devices;
            }
        });
    }
    // The plugin has gone: its devices count as unhealthy until it comes again.
    shared.update(|state| {
        if let Some(endpoint) = state.endpoints.get_mut(&request.resource_name).filter(|endpoint| endpoint.number == number) {
            endpoint.devices.values_mut().for_each(|healthy| *healthy = false);
        }
    });
}

struct Lister(Arc<Shared>);

impl Calls for Lister {
    fn call(self: Arc<Self>, method: &str, call: Call) -> Answer {
        if method != "PodResourcesLister/List" {
            return unknown(method);
        }
        unary(call, move |_: Empty| Ok(ListPodResourcesResponse { pod_resources: self.0.update(|state| state.pods.values().map(resources_of).collect()) }))
    }
}

fn resources_of(pod: &Pod) -> PodResources {
    let devices = pod.devices.iter().map(|(name, ids)| ContainerDevices { resource_name: name.clone(), device_ids: ids.clone() }).collect();
    PodResources { name: pod.name.clone(), namespace: "default".into(), containers: vec![ContainerResources { name: "main".into(), devices }] }
}

impl Kubelet {
    /// A kubelet with its folders below this one.
    ///
    /// # Panics
    /// It cannot start.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        let mut kubelet = Self { folder: folder.to_owned(), shared: Arc::default(), life: None };
        kubelet.live();
        kubelet
    }

    /// Its folder for device plugins.
    #[must_use]
    pub fn plugins(&self) -> PathBuf {
        self.folder.join("device-plugins")
    }

    /// Its socket there.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.plugins().join("kubelet.sock")
    }

    /// Its pod-resources socket.
    #[must_use]
    pub fn pods(&self) -> PathBuf {
        self.folder.join("pod-resources/kubelet.sock")
    }

    fn live(&mut self) {
        for folder in [self.plugins(), self.folder.join("pod-resources")] {
            fs::create_dir_all(&folder).expect("a folder for kubelet");
            // As the real one, which forgets every plugin when it starts.
            for entry in fs::read_dir(&folder).expect("its folder").flatten() {
                let _ = fs::remove_file(entry.path());
            }
        }
        self.shared.update(|state| state.endpoints.clear());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (end, ended) = watch::channel(false);
        let handle = runtime.handle().clone();
        let entered = runtime.enter();
        let listeners = [rpc::listen(&self.socket()).expect("kubelet's socket"), rpc::listen(&self.pods()).expect("its pods' socket")];
        drop(entered);
        let registration = Arc::new(Registration { folder: self.folder.clone(), shared: Arc::clone(&self.shared) });
        let lister = Arc::new(Lister(Arc::clone(&self.shared)));
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                let [first, second] = listeners;
                let mut ended = ended;
                let wait = async {
                    let _ = ended.wait_for(|ended| *ended).await;
                };
                tokio::select! {
                    _ = rpc::serve(first, registration, std::future::pending()) => {}
                    _ = rpc::serve(second, lister, std::future::pending()) => {}
                    () = wait => {}
                }
            });
            runtime.shutdown_background();
        });
        self.life = Some(Life { end, handle, thread });
    }

    /// Kubelet dies: its sockets stay, and nobody answers there.
    pub fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            let _ = life.end.send(true);
            let _ = life.thread.join();
        }
        self.shared.update(|state| state.endpoints.clear());
    }

    /// Kubelet is started again, with the pods that it had.
    pub fn restart(&mut self) {
        self.stop();
        self.live();
    }

    /// The next registrations are refused.
    pub fn refuse(&self, registrations: u64) {
        self.shared.update(|state| state.refusals = registrations);
    }

    /// Every registration takes so long.
    pub fn delay(&self, delay: Duration) {
        self.shared.update(|state| state.delay = delay);
    }

    /// Registrations that ever came.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        self.shared.update(|state| state.registrations)
    }

    /// Healthy devices of a resource.
    #[must_use]
    pub fn healthy(&self, resource: &str) -> usize {
        self.shared.update(|state| state.endpoints.get(resource).map_or(0, |endpoint| endpoint.devices.values().filter(|healthy| **healthy).count()))
    }

    /// Waits until a resource has so many healthy devices.
    ///
    /// # Panics
    /// It has not in time.
    pub fn wait_for(&self, resource: &str, healthy: usize) {
        self.wait_until(resource, &format!("{healthy}"), |now| now == healthy);
    }

    /// Waits until a resource has any healthy devices.
    ///
    /// # Panics
    /// It has not in time.
    pub fn wait_for_any(&self, resource: &str) {
        self.wait_until(resource, "one at least", |now| now > 0);
    }

    fn wait_until(&self, resource: &str, wanted: &str, is_enough: impl Fn(usize) -> bool) {
        let until = Instant::now() + WAIT_LIMIT;
        let mut state = self.shared.state.lock().expect("no panic in here");
        loop {
            let now = state.endpoints.get(resource).map_or(0, |endpoint| endpoint.devices.values().filter(|healthy| **healthy).count());
            if is_enough(now) {
                return;
            }
            assert!(Instant::now() < until, "{resource} has {now} healthy devices and not {wanted}");
            state = self.shared.changed.wait_timeout(state, Duration::from_millis(100)).expect("no panic in here").0;
        }
    }

    /// Admits a pod and starts its container.
    ///
    /// # Errors
    /// Why the pod is not admitted or its container does not start, as `kubectl describe pod` would
    /// show it. Its devices are free again then.
    pub fn run_pod(&self, name: &str, wishes: Wishes<'_>) -> Result<Pod, String> {
        self.run_pod_with(name, wishes, false)
    }

    /// As [`Kubelet::run_pod`]; `twice`: the first answer of every allocation is lost, and kubelet
    /// asks again.
    ///
    /// # Errors
    /// As there.
    pub fn run_pod_with(&self, name: &str, wishes: Wishes<'_>, twice: bool) -> Result<Pod, String> {
        let life = self.life.as_ref().ok_or("kubelet is not running")?;
        let mut pod = Pod { name: name.to_owned(), ..Pod::default() };
        for (resource, count) in wishes {
            let (client, options, available) = self.available(resource)?;
            if available.len() < *count {
                return Err(format!("Insufficient {resource}: {} of {count}", available.len()));
            }
            let preferred = life.handle.block_on(preferred(&client, options, &available, *count))?;
            let request = || AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids: preferred.clone() }] };
            let ask = || life.handle.block_on(client.call::<_, AllocateResponse>("/v1beta1.DevicePlugin/Allocate", request()));
            if twice {
                let _ = ask();
            }
            let response = ask().map_err(|status| format!("UnexpectedAdmissionError: Allocate failed due to {}", status.message()))?;
            let [container] = &response.container_responses[..] else { return Err(format!("one container was asked for: {response:?}")) };
            merge(&mut pod, container);
            pod.devices.insert((*resource).to_owned(), preferred);
        }
        self.shared.update(|state| state.pods.insert(name.to_owned(), pod.clone()));
        self.start_container(life, &pod).inspect_err(|_| self.end_pod(name))?;
        Ok(pod)
    }

    /// Starts the container of an admitted pod again, as after its crash.
    ///
    /// # Errors
    /// Why it does not start.
    pub fn restart_container(&self, pod: &Pod) -> Result<(), String> {
        self.start_container(self.life.as_ref().ok_or("kubelet is not running")?, pod)
    }

    fn start_container(&self, life: &Life, pod: &Pod) -> Result<(), String> {
        for (resource, ids) in &pod.devices {
            let Some((client, options)) = self.shared.update(|state| state.endpoints.get(resource).map(|e| (e.client.clone(), e.options))) else {
                return Err(format!("{resource} is not registered"));
            };
            if options.pre_start_required {
                let request = PreStartContainerRequest { devices_ids: ids.clone() };
                let asked = life.handle.block_on(client.call::<_, Empty>("/v1beta1.DevicePlugin/PreStartContainer", request));
                asked.map_err(|status| format!("PreStartContainer failed: {}", status.message()))?;
            }
        }
        Ok(())
    }

    fn available(&self, resource: &str) -> Result<(RpcClient, Options, Vec<String>), String> {
        self.shared.update(|state| {
            let used: BTreeSet<&String> = state.pods.values().filter_map(|pod| pod.devices.get(resource)).flatten().collect();
            let endpoint = state.endpoints.get(resource).ok_or_else(|| format!("Insufficient {resource}"))?;
            let free = endpoint.devices.iter().filter(|(id, healthy)| **healthy && !used.contains(id)).map(|(id, _)| id.clone()).collect();
            Ok((endpoint.client.clone(), endpoint.options, free))
        })
    }

    /// A pod has ended. Nobody is told.
    pub fn end_pod(&self, name: &str) {
        self.shared.update(|state| state.pods.remove(name));
    }

    /// The pods that hold devices.
    #[must_use]
    pub fn running(&self) -> Vec<Pod> {
        self.shared.update(|state| state.pods.values().cloned().collect())
    }

    /// What the pod-resources socket would answer now.
    #[must_use]
    pub fn pod_resources(&self) -> Vec<PodResources> {
        self.shared.update(|state| state.pods.values().map(resources_of).collect())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn preferred(client: &RpcClient, options: Options, available: &[String], count: usize) -> Result<Vec<String>, String> {
    let first = || available.iter().take(count).cloned().collect::<Vec<_>>();
    if !options.get_preferred_allocation_available {
        return Ok(first());
    }
    let one = ContainerPreferredAllocationRequest {
        available_device_ids: available.to_vec(),
        must_include_device_ids: Vec::new(),
        allocation_size: i32::try_from(count).expect("few devices"),
    };
    let request = PreferredAllocationRequest { container_requests: vec![one] };
    let answer: PreferredAllocationResponse = client
        .call("/v1beta1.DevicePlugin/GetPreferredAllocation", request)
        .await
        .map_err(|status| format!("UnexpectedAdmissionError: {}", status.message()))?;
    let chosen = answer.container_responses.into_iter().next().unwrap_or_default().device_ids;
    let distinct: BTreeSet<&String> = chosen.iter().collect();
    // The real one takes what is valid, and fills up the rest.
    Ok(if distinct.len() == count && distinct.iter().all(|id| available.contains(id)) { chosen } else { first() })
}

/// Adds a plugin's answer to a container; where two plugins name the same, the first one stands, as
/// with the real kubelet.
fn merge(pod: &mut Pod, response: &ContainerAllocateResponse) {
    for (name, value) in &response.envs {
        pod.environment.entry(name.clone()).or_insert_with(|| value.clone());
    }
    for mount in &response.mounts {
        pod.mounts.entry(mount.container_path.clone()).or_insert_with(|| mount.host_path.clone());
    }
}
