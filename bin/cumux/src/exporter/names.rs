//! Names of the device plugin's pods, from kubelet itself.
//!
//! A group's container never changes, and no group gets the name of an earlier one. So kubelet is
//! asked for groups that have no name yet, and never twice within [`AGAIN`]: not for one that has
//! none, and not while it does not answer.

use crate::say;
use cumux_cluster::checkpoint::Checkpoint;
use cumux_cluster::plugin::names::{ContainerName, NamesError, containers};
use cumux_exporter::pods::{LogLinks, Name, Names, PodPlace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long kubelet may take: a scraper waits meanwhile.
const LIMIT: Duration = Duration::from_secs(2);
/// Time between two questions.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Known {
    asked: Option<Instant>,
    names: BTreeMap<String, ContainerName>,
    /// What went wrong, so that it is said once.
    complaint: String,
}

/// Kubelet, and where it has no name, its links.
#[derive(Debug)]
pub struct Kubelet {
    socket: PathBuf,
    state: Checkpoint,
    links: LogLinks,
    known: Mutex<Known>,
}

impl Kubelet {
    /// Asks at `socket` for the groups in the plugin's file `state`.
    pub fn of(socket: &Path, state: &Path, links: LogLinks) -> Self {
        Self { socket: socket.to_owned(), state: Checkpoint::at(state.to_owned()), links, known: Mutex::default() }
    }

    fn of_group(&self, group: &str) -> Option<Name> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.names.contains_key(group) && known.asked.is_none_or(|asked| asked.elapsed() >= AGAIN) && self.socket.exists() {
            match containers(&self.socket, &self.state, LIMIT) {
                Ok(names) => {
                    known.names = names;
                    known.complaint.clear();
                }
                Err(error) => known.complain(&error),
            }
            known.asked = Some(Instant::now());
        }
        let name = known.names.get(group)?;
        Some(Name { pod: name.pod.clone(), namespace: name.namespace.clone(), container: name.container.clone() })
    }
}

impl Known {
    fn complain(&mut self, error: &NamesError) {
        let text = error.to_string();
        if text != self.complaint {
            say::complain(format_args!("cumux: pods have no names from kubelet: {text}"));
            self.complaint = text;
        }
    }
}

impl Names for Kubelet {
    fn name(&self, place: &PodPlace, group: &str) -> Option<Name> {
        let of_group = if group.is_empty() { None } else { self.of_group(group) };
        of_group.or_else(|| self.links.name(place, group))
    }
}
