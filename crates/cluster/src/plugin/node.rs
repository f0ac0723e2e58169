//! The plugin on its node: a socket for each resource in kubelet's folder, registered with kubelet
//! and registered again whenever kubelet was started again; the health of the cards; and the time
//! between allocations, in which groups of containers that have gone are removed.
//!
//! Invariant: whatever fails is tried again. Only the end that is asked for ends the plugin.

use super::ledger::{Ledger, now};
use super::messages::{Empty, RegisterRequest, VERSION};
use super::parts::Resource;
use super::pods;
use super::serve::{Endpoint, Ills, options_of};
use crate::rpc::{self, RpcClient};
use crate::service::{self, Service};
use crate::watch::Watch;
use cumux_artifacts::plugin::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// How long kubelet may take for a registration.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);
/// Time between two attempts, and two looks at the sockets where no event has come.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the plugin lives.
#[derive(Debug, Clone)]
pub struct Options {
    /// Kubelet's folder for device plugins.
    pub folder: PathBuf,
    /// Kubelet's socket in it.
    pub kubelet: PathBuf,
    /// Kubelet's pod-resources socket.
    pub pods: Option<PathBuf>,
    /// On which card a further container goes.
    pub policy: Policy,
    /// Time between two looks at the cards.
    pub health: Duration,
    /// Time between two looks at the pods; `None`: never.
    pub reconcile: Option<Duration>,
}

/// A plugin that runs. It ends when it is dropped; groups stay.
#[derive(Debug)]
pub struct Plugin(Service);

impl Plugin {
    /// Starts a plugin on a thread of its own.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made.
    pub fn start(options: Options, ledger: Arc<Ledger>) -> io::Result<Self> {
        let serve = |runtime: &Runtime, ended| runtime.block_on(live(options, ledger, ended));
        Service::start("device-plugin", service::runtime()?, serve).map(Self)
    }

    /// Ends the plugin and waits until its sockets have gone.
    pub fn stop(self) {
        drop(self.0);
    }
}

/// The socket of a resource in kubelet's folder.
#[must_use]
pub fn endpoint_of(resource: &str) -> String {
    format!("cumux-{}.sock", resource.replace('/', "_"))
}

async fn live(options: Options, ledger: Arc<Ledger>, ended: watch::Receiver<bool>) {
    let (health, ills) = watch::channel(Ills::default());
    let tasks = [
        tokio::spawn(watch_health(Arc::clone(&ledger), health, options.health)),
        tokio::spawn(reconcile(Arc::clone(&ledger), options.pods.clone(), options.reconcile)),
    ];
    while !*ended.borrow() {
        serve_until_a_change(&options, &ledger, &ills, &ended).await;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Waits until the plugin is to end.
async fn end_of(mut ended: watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Waits a moment, or for the end.
async fn pause(ended: &watch::Receiver<bool>) {
    tokio::select! {
        () = tokio::time::sleep(AGAIN) => {}
        () = end_of(ended.clone()) => {}
    }
}

/// What distinguishes a socket from another one at the same path.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Binds all sockets, registers them, and returns when a socket of ours or kubelet's has gone or is
/// another one, or when the plugin is to end.
async fn serve_until_a_change(options: &Options, ledger: &Arc<Ledger>, ills: &watch::Receiver<Ills>, ended: &watch::Receiver<bool>) {
    let (stop, stopped) = watch::channel(false);
    let mut servers = Vec::new();
    let mut sockets: Vec<(PathBuf, Option<_>)> = Vec::new();
    for resource in ledger.resources() {
        let path = options.folder.join(endpoint_of(&resource.name));
        let listener = match rpc::listen(&path) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!("cannot listen at {}: {error}. Is kubelet's folder mounted (--kubelet-socket)?", path.display());
                return pause(ended).await;
            }
        };
        sockets.push((path.clone(), identity(&path)));
        let endpoint =
            Endpoint { resource: resource.name.clone(), ledger: Arc::clone(ledger), ills: ills.clone(), policy: options.policy, pods: options.pods.clone() };
        servers.push(tokio::spawn(rpc::serve(listener, Arc::new(endpoint), end_of(stopped.clone()))));
    }
    // After our own sockets, which are no news, and before anything is asked of kubelet.
    let watched = match Watch::folder(&options.folder) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::warn!("cannot watch {}: {error}", options.folder.display());
            return pause(ended).await;
        }
    };
    // Read before the registration: a kubelet that is replaced meanwhile is a change.
    let kubelet = identity(&options.kubelet);
    let is_same = || identity(&options.kubelet) == kubelet && sockets.iter().all(|(path, known)| identity(path) == *known);
    let registered = register_all(options, ledger.resources());
    let is_registered = unless(ended, registered).await == Some(true);
    while !*ended.borrow() {
        tokio::select! {
            Ok(()) = watched.changed() => {}
            () = pause(ended) => {}
        }
        if !is_registered || !is_same() {
            break;
        }
    }
    let _ = stop.send(true);
    for (path, known) in &sockets {
        if known.is_some() && identity(path) == *known {
            let _ = fs::remove_file(path);
        }
    }
    // A kubelet that hangs keeps its streams open; nobody waits for it.
    for server in servers {
        server.abort();
    }
}

async fn unless<T>(ended: &watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = end_of(ended.clone()) => None,
    }
}

/// Registers every resource; false if kubelet did not take one.
async fn register_all(options: &Options, resources: &[Resource]) -> bool {
    for resource in resources {
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: endpoint_of(&resource.name),
            resource_name: resource.name.clone(),
            options: Some(options_of(resource)),
        };
        let ask = async {
            let kubelet = RpcClient::connect(&options.kubelet).await?;
            kubelet.call::<_, Empty>("/v1beta1.Registration/Register", request).await
        };
        let why = match tokio::time::timeout(REGISTER_LIMIT, ask).await {
            Ok(Ok(Empty {})) => {
                tracing::info!("kubelet has {} with {} devices", resource.name, resource.devices().count());
                continue;
            }
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("no answer within {} s", REGISTER_LIMIT.as_secs()),
        };
        tracing::warn!("kubelet does not take {}: {why}. It is tried again", resource.name);
        return false;
    }
    true
}

/// Asks the daemon for its cards again and again, and publishes who is ill.
async fn watch_health(ledger: Arc<Ledger>, health: watch::Sender<Ills>, interval: Duration) {
    let mut known_extra = false;
    loop {
        let asked = Arc::clone(&ledger);
        let cards = tokio::task::spawn_blocking(move || asked.groups().cards()).await;
        let uuids: BTreeSet<&String> = ledger.resources().iter().flat_map(|resource| &resource.cards).map(|share| &share.uuid).collect();
        let ills: BTreeMap<String, String> = match cards {
            Ok(Ok(cards)) => {
                if !known_extra && cards.iter().any(|card| !uuids.contains(&card.uuid)) {
                    known_extra = true;
                    tracing::warn!("the daemon has cards that it did not have before: start the plugin again to offer them");
                }
                let ill = |uuid: &&String| match cards.iter().find(|card| card.uuid == **uuid) {
                    None => Some(((*uuid).clone(), "the daemon has lost the card".to_owned())),
                    Some(card) => card.ill.clone().map(|why| ((*uuid).clone(), why)),
                };
                uuids.iter().filter_map(ill).collect()
            }
            Ok(Err(error)) => uuids.iter().map(|uuid| ((*uuid).clone(), error.to_string())).collect(),
            Err(_) => return,
        };
        health.send_if_modified(|before| {
            if **before == ills {
                return false;
            }
            for (uuid, why) in &ills {
                tracing::warn!("card {uuid} is unhealthy: {why}");
            }
            for uuid in before.keys().filter(|uuid| !ills.contains_key(*uuid)) {
                tracing::info!("card {uuid} is healthy again");
            }
            *before = Arc::new(ills);
            true
        });
        tokio::time::sleep(interval).await;
    }
}

/// Makes the daemon's groups those of the ledger, again and again.
async fn reconcile(ledger: Arc<Ledger>, socket: Option<PathBuf>, interval: Option<Duration>) {
    let Some(interval) = interval else { return };
    loop {
        let pods = match &socket {
            Some(socket) => pods::list(socket).await.inspect_err(|status| tracing::warn!("kubelet does not tell of its pods: {}", status.message())).ok(),
            None => None,
        };
        let asked = Arc::clone(&ledger);
        match tokio::task::spawn_blocking(move || asked.reconcile(pods.as_deref(), now())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("{error}"),
            Err(_) => return,
        }
        tokio::time::sleep(interval).await;
    }
}
