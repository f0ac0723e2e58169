//! What kubelet calls the containers of the plugin's groups.
//!
//! The checkpoint says which parts a group has, kubelet's pod-resources socket which container has
//! these parts. Both together name the group's container, without the control group of a process.
//!
//! Invariants: nobody but root, or this user, is believed at the socket. A name that no object of
//! Kubernetes can have is none. A group whose parts changed hands while kubelet was asked gets no
//! name, so no container gets another one's.

use super::ledger::{self, Parts};
use super::messages::PodResources;
use super::pods;
use crate::checkpoint::Checkpoint;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Most containers that are looked at. Kubelet's default limit is 110 pods a node.
const MOST: usize = 20_000;
/// Longest name of a pod: a DNS subdomain.
const LONGEST_POD: usize = 253;
/// Longest name of a namespace or a container: a DNS label.
const LONGEST_LABEL: usize = 63;

/// What a container is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerName {
    /// Its pod.
    pub pod: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The container in the pod.
    pub container: String,
}

/// Why there are no names.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// Nobody listens at the socket.
    #[error("kubelet's pod-resources socket {path} cannot be used: {cause}")]
    Socket {
        /// The socket.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
    /// Somebody else listens there.
    #[error("{path} belongs to a process of user {uid}, who is not believed: kubelet is root's")]
    Foreign {
        /// The socket.
        path: String,
        /// Whose process answers there.
        uid: u32,
    },
    /// Kubelet's answer.
    #[error("{0}")]
    Kubelet(String),
    /// The checkpoint.
    #[error("{0}")]
    Checkpoint(String),
}

/// The containers of the plugin's groups, by the group's name. It takes at most `limit` in all.
///
/// # Errors
/// [`NamesError`].
pub fn containers(socket: &Path, state: &Checkpoint, limit: Duration) -> Result<BTreeMap<String, ContainerName>, NamesError> {
    let read = || ledger::parts_of_groups(state).map_err(|error| NamesError::Checkpoint(error.to_string()));
    let before = read()?;
    check_owner(socket)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| NamesError::Kubelet(error.to_string()))?;
    let listed = runtime.block_on(async { tokio::time::timeout(limit, pods::list(socket)).await });
    runtime.shutdown_background();
    let pods = match listed {
        Ok(answer) => answer.map_err(|status| NamesError::Kubelet(status.message().to_owned()))?,
        Err(_) => return Err(NamesError::Kubelet(format!("{} does not answer within {} s", socket.display(), limit.as_secs_f32()))),
    };
    // Parts are in the checkpoint under their next group before kubelet names their next container.
    // So a group that is the same before and after is named right, whatever happened between.
    let mut stable = before;
    let after = read()?;
    stable.retain(|group, parts| after.get(group) == Some(parts));
    Ok(name(&stable, &pods))
}

/// Refuses a socket at which neither root nor this user listens.
fn check_owner(socket: &Path) -> Result<(), NamesError> {
    let path = || socket.display().to_string();
    let stream = UnixStream::connect(socket).map_err(|cause| NamesError::Socket { path: path(), cause })?;
    let peer = socket_peercred(&stream).map_err(|cause| NamesError::Socket { path: path(), cause: cause.into() })?;
    if peer.uid.is_root() || peer.uid == geteuid() { Ok(()) } else { Err(NamesError::Foreign { path: path(), uid: peer.uid.as_raw() }) }
}

/// Names groups by the containers that have all of their parts. Parts that two containers claim
/// name nobody.
fn name(groups: &BTreeMap<String, Parts>, pods: &[PodResources]) -> BTreeMap<String, ContainerName> {
    let mut owners: BTreeMap<(&str, &str), Option<&str>> = BTreeMap::new();
    for (group, parts) in groups {
        for device in &parts.devices {
            owners.entry((parts.resource.as_str(), device.as_str())).and_modify(|owner| *owner = None).or_insert(Some(group));
        }
    }
    let mut named: BTreeMap<&str, Vec<ContainerName>> = BTreeMap::new();
    let containers = pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    for (pod, container) in containers.take(MOST) {
        if !is_subdomain(&pod.name) || !is_label(&pod.namespace) || !is_label(&container.name) {
            continue;
        }
        let parts = container.devices.iter().flat_map(|list| list.device_ids.iter().map(|device| (list.resource_name.as_str(), device.as_str())));
        let groups: BTreeSet<&str> = parts.filter_map(|part| owners.get(&part).copied().flatten()).collect();
        for group in groups {
            let name = ContainerName { pod: pod.name.clone(), namespace: pod.namespace.clone(), container: container.name.clone() };
            named.entry(group).or_default().push(name);
        }
    }
    let only = |(group, mut names): (&str, Vec<ContainerName>)| (names.len() == 1).then(|| names.pop().map(|name| (group.to_owned(), name))).flatten();
    named.into_iter().filter_map(only).collect()
}

fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_part(text)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_POD && text.split('.').all(is_part)
}

/// One part of a DNS name.
fn is_part(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c != '-');
    let allowed = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    allowed && is_end(text.chars().next()) && is_end(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::super::messages::{ContainerDevices, ContainerResources};
    use super::*;

    fn pod(name: &str, namespace: &str, container: &str, devices: &[&str]) -> PodResources {
        let devices = vec![ContainerDevices { resource_name: "r/gpu".into(), device_ids: devices.iter().map(|id| (*id).to_owned()).collect() }];
        PodResources { name: name.into(), namespace: namespace.into(), containers: vec![ContainerResources { name: container.into(), devices }] }
    }

    fn groups(list: &[(&str, &[&str])]) -> BTreeMap<String, Parts> {
        let parts = |devices: &[&str]| Parts { resource: "r/gpu".into(), devices: devices.iter().map(|id| (*id).to_owned()).collect() };
        list.iter().map(|(group, devices)| ((*group).to_owned(), parts(devices))).collect()
    }

    #[test]
    fn a_group_is_named_by_who_has_its_parts() {
        let pods = [pod("web-0.a", "shop", "main", &["a", "b"]), pod("batch", "night", "c", &["z"])];
        let named = name(&groups(&[("one", &["a", "b"]), ("two", &["c"])]), &pods);
        assert_eq!(named.len(), 1);
        assert_eq!(named["one"], ContainerName { pod: "web-0.a".into(), namespace: "shop".into(), container: "main".into() });
        // Of another resource: the same device is another part.
        let mut other = groups(&[("one", &["a"])]);
        other.get_mut("one").unwrap().resource = "r/other".into();
        assert!(name(&other, &pods).is_empty());
    }

    #[test]
    fn what_two_claim_names_nobody() {
        let pods = [pod("one", "shop", "main", &["a"]), pod("two", "shop", "main", &["a"])];
        assert!(name(&groups(&[("g", &["a"])]), &pods).is_empty());
        assert!(name(&groups(&[("g", &["a"]), ("h", &["a"])]), &pods[..1]).is_empty());
    }

    #[test]
    fn names_that_cannot_be_are_none() {
        let long = "a".repeat(64);
        for (name_, namespace, container) in [
            ("web\n", "shop", "main"),
            ("web", "shop\"} 1", "main"),
            ("web", "shop", "Main"),
            ("web", "", "main"),
            ("", "shop", "main"),
            ("-web", "shop", "main"),
            ("web..x", "shop", "main"),
            ("web", "shop", long.as_str()),
            ("web", "shop.x", "main"),
            ("w\u{e9}b", "shop", "main"),
        ] {
            assert!(name(&groups(&[("g", &["a"])]), &[pod(name_, namespace, container, &["a"])]).is_empty(), "{name_:?} {namespace:?} {container:?}");
        }
        assert!(is_subdomain(&["a".repeat(60).as_str(); 4].join(".")) && !is_subdomain(&["a".repeat(63).as_str(); 5].join(".")));
    }
}
