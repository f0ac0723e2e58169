//! Who has which parts: a group for each container, from its allocation until it is certain that
//! the container has gone.
//!
//! kubelet says when a container gets parts, and never when it gives them back. The rules:
//!
//! 1. Parts that are allocated anew have been given back: the group that had any of them is removed
//!    before the new one is made.
//! 2. Where kubelet's pod-resources socket is at hand, a group is removed when no container has its
//!    parts for [`Rules::grace`], counted from its allocation at the earliest.
//! 3. Without that socket a group stays until rule 1 applies. There are never more groups than
//!    parts.
//! 4. A group that the daemon does not know and that the ledger has is made anew: the container may
//!    be started again without a further allocation.
//! 5. A group of ours that the ledger does not have is removed when it has no clients.
//!
//! Invariants: the checkpoint names a group before the daemon has it. No two groups of the ledger
//! have a part in common.

use super::messages::{ContainerAllocateResponse, Mount, PodResources};
use super::parts::{Kind, Resource};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::groups::{Group, Groups, GroupsError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The names of our groups begin so.
pub const PREFIX: &str = "k8s-";
/// The pipe directory in a container.
pub const PIPE_IN_CONTAINER: &str = "/run/cumux";
/// The library's folder in a container.
pub const LIBRARY_IN_CONTAINER: &str = "/usr/local/cumux/lib";
/// Folders in which images for NVIDIA's runtime search libraries.
const NVIDIAS_FOLDERS: &str = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64";

/// What the operator has decided.
#[derive(Debug, Clone)]
pub struct Rules {
    /// A container that asks for more than one replica is refused.
    pub fail_above_one: bool,
    /// How long a group's container must be missing before the group is removed.
    pub grace: Duration,
    /// The folder with `libcuda.so.1` on the node; `None` if images bring it.
    pub library: Option<PathBuf>,
}

/// Why an allocation is refused. The text is what `kubectl describe pod` shows.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Nothing was asked for.
    #[error("the allocation names no device")]
    Nothing,
    /// No such part.
    #[error("{resource} has no device \"{id}\" on this node: restart kubelet if its list is stale")]
    NoSuchDevice {
        /// The resource.
        resource: String,
        /// The part.
        id: String,
    },
    /// NVIDIA's words, because users look for them.
    #[error("invalid request: maximum request size for shared resources is 1; found {0}. Set failRequestsGreaterThanOne: false to give a pod several replicas")]
    AboveOne(usize),
    /// Memory of several cards.
    #[error("{asked} of {resource} are not free on one card, and a container's memory lies on one card: the most that is free together is less. Ask for less")]
    SeveralCards {
        /// The resource.
        resource: String,
        /// Units asked for.
        asked: usize,
    },
    /// Percent without memory.
    #[error(
        "container {container} of pod {pod} asks for {percent} without {memory}: percent apply to the card on which the container has memory, so ask for both"
    )]
    PercentAlone {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// The resource of percent.
        percent: String,
        /// The resource of memory.
        memory: String,
    },
    /// Nobody knows whose the percent are.
    #[error("kubelet does not name the container that has these devices of {0}: is its pod-resources socket mounted into the plugin (--pod-resources)?")]
    Ownerless(String),
    /// More than a card.
    #[error("{0} percent of a card's multiprocessors are asked for: at most 100 are there")]
    AboveCard(u32),
    /// The daemon.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// One container's parts of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Allocation {
    resource: String,
    devices: BTreeSet<String>,
    group: Group,
    /// Seconds since 1970.
    made: u64,
    /// Since when no container has its parts.
    missing_since: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Book {
    /// Number of the next group. Numbers are never used again, so an answer that was lost belongs
    /// to nobody else.
    next: u64,
    /// By the group's name.
    allocations: BTreeMap<String, Allocation>,
    /// Groups that must go and may still exist.
    ending: BTreeSet<String>,
}

/// The ledger.
pub struct Ledger {
    rules: Rules,
    resources: Vec<Resource>,
    groups: Box<dyn Groups>,
    checkpoint: Checkpoint,
    book: Mutex<Book>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("checkpoint", &self.checkpoint).field("resources", &self.resources).finish_non_exhaustive()
    }
}

/// A group's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The name of the resource.
    pub resource: String,
    /// The devices.
    pub devices: BTreeSet<String>,
}

/// What a plugin's checkpoint says: the parts of each group. For others than the plugin: nothing is
/// changed.
///
/// # Errors
/// The checkpoint cannot be read.
pub fn parts_of_groups(checkpoint: &Checkpoint) -> Result<BTreeMap<String, Parts>, CheckpointError> {
    let book: Book = checkpoint.peek()?;
    let parts = |allocation: Allocation| Parts { resource: allocation.resource, devices: allocation.devices };
    Ok(book.allocations.into_iter().map(|(group, allocation)| (group, parts(allocation))).collect())
}

/// The time now in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Ledger {
    /// Opens the ledger of a node.
    ///
    /// # Errors
    /// The checkpoint cannot be read.
    pub fn open(rules: Rules, resources: Vec<Resource>, groups: Box<dyn Groups>, checkpoint: Checkpoint) -> Result<Self, CheckpointError> {
        let book = Mutex::new(checkpoint.load()?);
        Ok(Self { rules, resources, groups, checkpoint, book })
    }

    /// The resources of the node.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The node's daemon.
    #[must_use]
    pub fn groups(&self) -> &dyn Groups {
        &*self.groups
    }

    fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.name == name)
    }

    fn memory_resource(&self) -> &str {
        self.resources.iter().find(|resource| resource.kind == Kind::Memory).map_or("", |resource| &resource.name)
    }

    /// Gives a container these parts, and returns what it needs to use them.
    ///
    /// # Errors
    /// [`LedgerError`]; no group is left then.
    pub fn allocate(&self, resource: &Resource, ids: &[String]) -> Result<ContainerAllocateResponse, LedgerError> {
        let wanted = self.group_for(resource, ids)?;
        let Some(mut group) = wanted else {
            // Percent: the container's memory makes the group, and `pre_start` brings them
            // together.
            return Ok(ContainerAllocateResponse::default());
        };
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let devices: BTreeSet<String> = ids.iter().cloned().collect();
        // Rule 1.
        let over = |allocation: &Allocation| allocation.resource == resource.name && !allocation.devices.is_disjoint(&devices);
        let ended: Vec<String> = book.allocations.iter().filter(|(_, allocation)| over(allocation)).map(|(name, _)| name.clone()).collect();
        for name in ended {
            book.allocations.remove(&name);
            book.ending.insert(name);
        }
        group.name = format!("{PREFIX}{:08}", book.next);
        book.next += 1;
        let allocation = Allocation { resource: resource.name.clone(), devices, group: group.clone(), made: now(), missing_since: None };
        book.allocations.insert(group.name.clone(), allocation);
        self.checkpoint.save(&*book)?;
        let made = self.end(&mut book).and_then(|()| self.groups.create(&group));
        match made {
            Ok(directory) => Ok(self.answer(&group, &directory)),
            Err(error) => {
                book.allocations.remove(&group.name);
                book.ending.insert(group.name);
                self.checkpoint.save(&*book)?;
                Err(error.into())
            }
        }
    }

    /// The limits of a container with these parts; `None` for parts that make no group.
    fn group_for(&self, resource: &Resource, ids: &[String]) -> Result<Option<Group>, LedgerError> {
        if ids.is_empty() {
            return Err(LedgerError::Nothing);
        }
        let mut memory: BTreeMap<String, u64> = BTreeMap::new();
        let mut parts = 0;
        for id in ids {
            let Some(share) = resource.card_of(id) else {
                return Err(LedgerError::NoSuchDevice { resource: resource.name.clone(), id: id.clone() });
            };
            *memory.entry(share.uuid.clone()).or_default() += share.part_mib;
            parts = parts.max(share.parts);
        }
        match resource.kind {
            Kind::Percent(unit) => {
                let percent = unit.saturating_mul(u32::try_from(ids.len()).unwrap_or(u32::MAX));
                return if percent > 100 { Err(LedgerError::AboveCard(percent)) } else { Ok(None) };
            }
            Kind::Memory if memory.len() > 1 => return Err(LedgerError::SeveralCards { resource: resource.name.clone(), asked: ids.len() }),
            Kind::Replicas if ids.len() > 1 && parts > 1 && self.rules.fail_above_one => return Err(LedgerError::AboveOne(ids.len())),
            Kind::Memory | Kind::Replicas => {}
        }
        let devices: Vec<String> = resource.cards.iter().map(|share| share.uuid.clone()).filter(|uuid| memory.contains_key(uuid)).collect();
        // A whole card has its own limit.
        memory.retain(|uuid, _| resource.cards.iter().any(|share| share.uuid == *uuid && share.parts > 1));
        // The container's percentage is that of the card of which it has the greatest part.
        let part = |uuid: &String| {
            let share = resource.cards.iter().find(|share| share.uuid == *uuid)?;
            let count = ids.iter().filter(|id| resource.card_of(id).is_some_and(|of| of.uuid == *uuid)).count();
            Some(u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(100) / share.parts)
        };
        let percentage = match resource.kind {
            Kind::Replicas if parts > 1 => devices.iter().filter_map(part).max().map(|percent| percent.clamp(1, 100)),
            _ => None,
        };
        Ok(Some(Group { memory, percentage, devices, ..Group::default() }))
    }

    fn answer(&self, group: &Group, directory: &std::path::Path) -> ContainerAllocateResponse {
        let mut response = ContainerAllocateResponse::default();
        let mut set = |name: &str, value: String| response.envs.insert(name.to_owned(), value);
        set("CUDA_MPS_PIPE_DIRECTORY", PIPE_IN_CONTAINER.to_owned());
        set("CUMUX_GROUP", group.name.clone());
        // The container reaches cards through its group alone: NVIDIA's runtime is to add no
        // device.
        set("NVIDIA_VISIBLE_DEVICES", "void".to_owned());
        let mount = |host: &std::path::Path, container: &str| Mount {
            container_path: container.to_owned(),
            host_path: host.to_string_lossy().into_owned(),
            read_only: true,
        };
        response.mounts.push(mount(directory, PIPE_IN_CONTAINER));
        if let Some(library) = &self.rules.library {
            response.envs.insert("LD_LIBRARY_PATH".to_owned(), format!("{LIBRARY_IN_CONTAINER}:{NVIDIAS_FOLDERS}"));
            response.mounts.push(mount(library, LIBRARY_IN_CONTAINER));
        }
        response
    }

    /// Removes the groups that must go.
    fn end(&self, book: &mut Book) -> Result<(), GroupsError> {
        while let Some(name) = book.ending.first().cloned() {
            self.groups.remove(&name)?;
            book.ending.remove(&name);
        }
        Ok(())
    }

    /// Applies a container's percent to its group, before the container starts. `pods` is what
    /// kubelet tells of all pods.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn pre_start(&self, resource: &Resource, ids: &[String], pods: Option<&[PodResources]>) -> Result<(), LedgerError> {
        let Kind::Percent(unit) = resource.kind else { return Ok(()) };
        let percent = unit.saturating_mul(u32::try_from(ids.len()).unwrap_or(u32::MAX));
        let owns = |container: &&super::messages::ContainerResources| {
            container.devices.iter().any(|devices| devices.resource_name == resource.name && devices.device_ids.iter().any(|id| ids.contains(id)))
        };
        let found = pods.into_iter().flatten().find_map(|pod| pod.containers.iter().find(owns).map(|container| (pod, container)));
        let Some((pod, container)) = found else { return Err(LedgerError::Ownerless(resource.name.clone())) };
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let is_its = |allocation: &Allocation| {
            container
                .devices
                .iter()
                .any(|devices| devices.resource_name == allocation.resource && devices.device_ids.iter().any(|id| allocation.devices.contains(id)))
        };
        let name = book.allocations.iter().find(|(_, allocation)| is_its(allocation)).map(|(name, _)| name.clone());
        let Some(allocation) = name.and_then(|name| book.allocations.get_mut(&name)) else {
            return Err(LedgerError::PercentAlone {
                pod: format!("{}/{}", pod.namespace, pod.name),
                container: container.name.clone(),
                percent: resource.name.clone(),
                memory: self.memory_resource().to_owned(),
            });
        };
        allocation.group.percentage = Some(percent);
        let group = allocation.group.clone();
        self.checkpoint.save(&*book)?;
        self.groups.set(&group)?;
        Ok(())
    }

    /// Makes the daemon's groups those that the rules want. `pods`: what kubelet tells of all pods;
    /// `None` if it does not.
    ///
    /// # Errors
    /// The daemon or the checkpoint. What can be done is done.
    pub fn reconcile(&self, pods: Option<&[PodResources]>, now: u64) -> Result<(), LedgerError> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let before = serde_json::to_value(&*book).ok();
        if let Some(pods) = pods {
            let held: BTreeSet<(&str, &str)> = pods
                .iter()
                .flat_map(|pod| &pod.containers)
                .flat_map(|container| &container.devices)
                .flat_map(|devices| devices.device_ids.iter().map(|id| (devices.resource_name.as_str(), id.as_str())))
                .collect();
            let grace = self.rules.grace.as_secs();
            let mut gone = Vec::new();
            for (name, allocation) in &mut book.allocations {
                if allocation.devices.iter().any(|id| held.contains(&(allocation.resource.as_str(), id.as_str()))) {
                    allocation.missing_since = None;
                    continue;
                }
                let since = *allocation.missing_since.get_or_insert(now);
                if now.saturating_sub(since) >= grace && now.saturating_sub(allocation.made) >= grace {
                    gone.push(name.clone());
                }
            }
            for name in gone {
                book.allocations.remove(&name);
                book.ending.insert(name);
            }
        }
        let resources: BTreeSet<&str> = self.resources.iter().map(|resource| resource.name.as_str()).collect();
        // Resources that a new configuration has not any more: kubelet starts no container with
        // them.
        let orphaned: Vec<String> =
            book.allocations.iter().filter(|(_, allocation)| !resources.contains(allocation.resource.as_str())).map(|(name, _)| name.clone()).collect();
        let listed = self.groups.list()?;
        for name in orphaned {
            if !listed.iter().any(|group| group.name == name && group.clients > 0) {
                book.allocations.remove(&name);
                book.ending.insert(name);
            }
        }
        for group in listed.iter().filter(|group| group.name.starts_with(PREFIX) && group.clients == 0) {
            if !book.allocations.contains_key(&group.name) {
                book.ending.insert(group.name.clone());
            }
        }
        // A ledger that lost its count must not use a name again that a container has.
        let highest = listed.iter().filter_map(|group| group.name.strip_prefix(PREFIX)?.parse::<u64>().ok()).max();
        book.next = book.next.max(highest.map_or(0, |highest| highest + 1));
        let ended = self.end(&mut book);
        if before != serde_json::to_value(&*book).ok() {
            self.checkpoint.save(&*book)?;
        }
        ended?;
        let mut first = Ok(());
        for allocation in book.allocations.values() {
            if listed.iter().any(|group| group.name == allocation.group.name) {
                continue;
            }
            if let Err(error) = self.groups.create(&allocation.group) {
                first = first.and(Err(error.into()));
            }
        }
        first
    }

    /// The groups that the ledger has, each with its parts.
    #[must_use]
    pub fn held(&self) -> Vec<(Group, BTreeSet<String>)> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.allocations.values().map(|allocation| (allocation.group.clone(), allocation.devices.clone())).collect()
    }

    /// The resource of a name.
    #[must_use]
    pub fn resource_named(&self, name: &str) -> Option<&Resource> {
        self.resource(name)
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
