//! The driver on its node: a socket for registration, which kubelet finds by itself, one for its
//! calls, and the node's ResourceSlice, which follows the health of the cards.

use super::DRIVER;
use super::driver::Driver;
use super::messages::{InfoRequest, PluginInfo, PrepareRequest, RegistrationStatus, RegistrationStatusResponse, UnprepareRequest, VERSIONS};
use super::slice;
use crate::rpc::{self, Answer, Call, Calls, unary, unknown};
use crate::service::{self, Service};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Time between two attempts.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the driver lives.
#[derive(Debug, Clone)]
pub struct Options {
    /// The node's name in the cluster.
    pub node: String,
    /// Kubelet's folder for registrations.
    pub registry: PathBuf,
    /// The driver's own folder, for kubelet's calls.
    pub plugin: PathBuf,
    /// Time between two looks at the cards.
    pub interval: Duration,
}

impl Options {
    /// The socket that kubelet finds.
    #[must_use]
    pub fn registration(&self) -> PathBuf {
        self.registry.join(format!("{DRIVER}-reg.sock"))
    }

    /// The socket that kubelet calls.
    #[must_use]
    pub fn endpoint(&self) -> PathBuf {
        self.plugin.join("dra.sock")
    }
}

struct Registration(PathBuf);

impl Calls for Registration {
    fn call(self: Arc<Self>, method: &str, call: Call) -> Answer {
        match method {
            "Registration/GetInfo" => unary(call, move |_: InfoRequest| {
                Ok(PluginInfo {
                    kind: "DRAPlugin".to_owned(),
                    name: DRIVER.to_owned(),
                    endpoint: self.0.to_string_lossy().into_owned(),
                    supported_versions: VERSIONS.map(str::to_owned).to_vec(),
                })
            }),
            "Registration/NotifyRegistrationStatus" => unary(call, move |status: RegistrationStatus| {
                if status.plugin_registered {
                    tracing::info!("kubelet has registered {DRIVER}");
                } else {
                    tracing::warn!("kubelet does not register {DRIVER}: {}", status.error);
                }
                Ok(RegistrationStatusResponse {})
            }),
            _ => unknown(method),
        }
    }
}

struct Node(Arc<Driver>);

impl Calls for Node {
    fn call(self: Arc<Self>, method: &str, call: Call) -> Answer {
        match method {
            "DRAPlugin/NodePrepareResources" => unary(call, move |request: PrepareRequest| Ok(self.0.prepare(&request.claims))),
            "DRAPlugin/NodeUnprepareResources" => unary(call, move |request: UnprepareRequest| Ok(self.0.unprepare(&request.claims))),
            _ => unknown(method),
        }
    }
}

/// A driver that runs. It ends when it is dropped; groups and CDI files stay.
#[derive(Debug)]
pub struct Running(Service);

impl Running {
    /// Starts a driver on a thread of its own.
    ///
    /// # Errors
    /// The thread, its runtime or its sockets cannot be made.
    pub fn start(options: Options, driver: Arc<Driver>) -> io::Result<Self> {
        let named = |path: PathBuf, option: &'static str| {
            move |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}. Is kubelet's folder mounted there ({option})?", path.display()))
        };
        let runtime = service::runtime()?;
        fs::create_dir_all(&options.plugin).map_err(named(options.plugin.clone(), "--plugin"))?;
        let entered = runtime.enter();
        // First the socket that the other one names.
        let calls = rpc::listen(&options.endpoint()).map_err(named(options.endpoint(), "--plugin"))?;
        let registration = rpc::listen(&options.registration()).map_err(named(options.registration(), "--registry"))?;
        drop(entered);
        let serve = move |runtime: &Runtime, mut ended: watch::Receiver<bool>| {
            runtime.block_on(async {
                let publishing = tokio::spawn(publish(options.clone(), Arc::clone(&driver)));
                tokio::select! {
                    _ = rpc::serve(registration, Arc::new(Registration(options.endpoint())), std::future::pending()) => {}
                    _ = rpc::serve(calls, Arc::new(Node(driver)), std::future::pending()) => {}
                    _ = ended.wait_for(|ended| *ended) => {}
                }
                publishing.abort();
            });
            for socket in [options.registration(), options.endpoint()] {
                let _ = fs::remove_file(socket);
            }
        };
        Service::start("dra", runtime, serve).map(Self)
    }

    /// Ends the driver and waits until its sockets have gone.
    pub fn stop(self) {
        drop(self.0);
    }
}

/// Publishes the node's slice whenever it has changed, and repairs groups and files.
async fn publish(options: Options, driver: Arc<Driver>) {
    let mut node_uid = None;
    let mut last = String::new();
    loop {
        let (asked, node, uid) = (Arc::clone(&driver), options.node.clone(), node_uid.clone());
        let done = tokio::task::spawn_blocking(move || {
            let uid = match uid {
                Some(uid) => Some(uid),
                // A node that cannot be read costs the slice its owner only.
                None => asked.api().node_uid(&node).ok().filter(|uid| !uid.is_empty()),
            };
            let repaired = asked.reconcile().map_err(|error| error.to_string());
            let published = match asked.groups().cards() {
                Ok(cards) => asked.api().publish(&slice::name_of(&node), |generation| slice::slice(&node, uid.as_deref(), &cards, generation)),
                // Without a daemon no card can be used. That there is none is `repaired`'s error.
                Err(_) => asked.api().publish(&slice::name_of(&node), |generation| slice::slice(&node, uid.as_deref(), &[], generation)),
            };
            (uid, published.map_err(|error| error.to_string()).and_then(|written| repaired.map(|()| written)))
        });
        let Ok((uid, outcome)) = done.await else { return };
        node_uid = uid;
        match outcome {
            Ok(written) => {
                if written {
                    tracing::info!("the ResourceSlice {} is published", slice::name_of(&options.node));
                }
                last.clear();
                tokio::time::sleep(options.interval).await;
            }
            Err(why) => {
                if why != last {
                    tracing::warn!("{why}. It is tried again");
                    last = why;
                }
                tokio::time::sleep(options.interval.min(AGAIN)).await;
            }
        }
    }
}
