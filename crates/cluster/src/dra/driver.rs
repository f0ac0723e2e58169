//! Preparing claims and taking that back.
//!
//! Invariants: the checkpoint names a claim before its group or its CDI file exists, and until both
//! have gone. A claim that is prepared again gets the same answer, and whatever is missing of it is
//! made again. What belongs to a claim that the checkpoint does not name is removed.

use super::api::{Api, ApiError};
use super::cdi;
use super::claim::{self, ClaimError, Given};
use super::messages::{Claim, Device, PrepareResponse, Prepared, UnprepareResponse, Unprepared};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::groups::{Group, Groups, GroupsError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The names of our groups begin so.
pub const PREFIX: &str = "dra-";

/// Why a claim is not prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The claim's UID is no UID.
    #[error("\"{0}\" is no UID of a claim")]
    Uid(String),
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// What the claim says.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The daemon.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The CDI file.
    #[error("cannot write the CDI file in {}: {cause}", folder.display())]
    Cdi {
        /// The folder.
        folder: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    namespace: String,
    name: String,
    given: Vec<Given>,
    group: Group,
    /// It is being unprepared: nothing of it is made again.
    ending: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Book {
    /// By UID.
    claims: BTreeMap<String, Entry>,
}

/// The driver of a node.
pub struct Driver {
    groups: Box<dyn Groups>,
    api: Api,
    cdi: PathBuf,
    library: Option<PathBuf>,
    checkpoint: Checkpoint,
    book: Mutex<Book>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("cdi", &self.cdi).field("checkpoint", &self.checkpoint).finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens the driver. `cdi` is the folder that the container runtime reads.
    ///
    /// # Errors
    /// The checkpoint cannot be read.
    pub fn open(groups: Box<dyn Groups>, api: Api, cdi: PathBuf, library: Option<PathBuf>, checkpoint: Checkpoint) -> Result<Self, CheckpointError> {
        let book = Mutex::new(checkpoint.load()?);
        Ok(Self { groups, api, cdi, library, checkpoint, book })
    }

    /// The node's daemon.
    #[must_use]
    pub fn groups(&self) -> &dyn Groups {
        &*self.groups
    }

    /// The API server.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    fn no_cdi(&self, cause: std::io::Error) -> DriverError {
        DriverError::Cdi { folder: self.cdi.clone(), cause }
    }

    /// Prepares claims; each has an answer of its own.
    pub fn prepare(&self, claims: &[Claim]) -> PrepareResponse {
        let one = |claim: &Claim| {
            let prepared = match self.prepare_one(claim) {
                Ok(devices) => Prepared { devices, error: String::new() },
                Err(error) => {
                    tracing::warn!("claim {}/{}: {error}", claim.namespace, claim.name);
                    Prepared { devices: Vec::new(), error: error.to_string() }
                }
            };
            (claim.uid.clone(), prepared)
        };
        PrepareResponse { claims: claims.iter().map(one).collect() }
    }

    fn prepare_one(&self, claim: &Claim) -> Result<Vec<Device>, DriverError> {
        check_uid(&claim.uid)?;
        // Held over the whole of it: a claim may be prepared and unprepared at the same time.
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match book.claims.get(&claim.uid).filter(|entry| !entry.ending) {
            Some(entry) => entry.clone(),
            None => {
                let object = self.api.claim(&claim.namespace, &claim.name)?;
                let (given, group) = claim::read(&object, &claim.uid, &self.groups.cards()?)?;
                let entry = Entry { namespace: claim.namespace.clone(), name: claim.name.clone(), given, group, ending: false };
                book.claims.insert(claim.uid.clone(), entry.clone());
                self.checkpoint.save(&*book)?;
                entry
            }
        };
        if let Err(error) = self.make(&claim.uid, &entry) {
            // kubelet asks again, perhaps after the claim was given other devices.
            if let Some(entry) = book.claims.get_mut(&claim.uid) {
                entry.ending = true;
            }
            self.checkpoint.save(&*book)?;
            return Err(error);
        }
        let device = |given: &Given| Device {
            request_names: vec![given.request.clone()],
            pool_name: given.pool.clone(),
            device_name: given.device.clone(),
            cdi_device_ids: vec![cdi::device_of(&claim.uid)],
            share_id: given.share.clone(),
        };
        Ok(entry.given.iter().map(device).collect())
    }

    /// Makes what is missing of a claim.
    fn make(&self, uid: &str, entry: &Entry) -> Result<(), DriverError> {
        let there = self.groups.list()?.into_iter().find(|group| group.name == entry.group.name);
        let is_new = there.is_none();
        let directory = match there {
            Some(group) => group.directory,
            None => self.groups.create(&entry.group)?,
        };
        if is_new || !cdi::exists(&self.cdi, uid) {
            cdi::write(&self.cdi, uid, &entry.group.name, &directory, self.library.as_deref()).map_err(|cause| self.no_cdi(cause))?;
        }
        Ok(())
    }

    /// Takes back what claims have; each has an answer of its own. A claim that was never prepared
    /// has nothing, and that is no error.
    pub fn unprepare(&self, claims: &[Claim]) -> UnprepareResponse {
        let one = |claim: &Claim| {
            let error = self.unprepare_one(&claim.uid).err().map_or_else(String::new, |error| error.to_string());
            if !error.is_empty() {
                tracing::warn!("claim {}/{}: {error}", claim.namespace, claim.name);
            }
            (claim.uid.clone(), Unprepared { error })
        };
        UnprepareResponse { claims: claims.iter().map(one).collect() }
    }

    fn unprepare_one(&self, uid: &str) -> Result<(), DriverError> {
        check_uid(uid)?;
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = book.claims.get_mut(uid) else { return Ok(()) };
        if !entry.ending {
            entry.ending = true;
            self.checkpoint.save(&*book)?;
        }
        self.unmake(uid)?;
        book.claims.remove(uid);
        self.checkpoint.save(&*book)?;
        Ok(())
    }

    fn unmake(&self, uid: &str) -> Result<(), DriverError> {
        // The file first: no container is set up with a group that is going.
        cdi::remove(&self.cdi, uid).map_err(|cause| self.no_cdi(cause))?;
        self.groups.remove(&format!("{PREFIX}{uid}"))?;
        Ok(())
    }

    /// Makes groups and CDI files those of the checkpoint.
    ///
    /// # Errors
    /// The first failure; what can be done is done.
    pub fn reconcile(&self) -> Result<(), DriverError> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known: BTreeSet<String> = cdi::claims(&self.cdi).map_err(|cause| self.no_cdi(cause))?.into_iter().collect();
        known.extend(self.groups.list()?.iter().filter_map(|group| group.name.strip_prefix(PREFIX).map(str::to_owned)));
        let mut first = Ok(());
        for uid in known.iter().filter(|uid| !book.claims.contains_key(*uid)) {
            first = first.and(self.unmake(uid));
        }
        // An entry that failed to be prepared has nothing now; kubelet has it prepared again, or
        // unprepares it.
        let ending: Vec<String> = book.claims.iter().filter(|(_, entry)| entry.ending).map(|(uid, _)| uid.clone()).collect();
        for uid in &ending {
            match self.unmake(uid) {
                Ok(()) => {
                    book.claims.remove(uid);
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        if !ending.is_empty() {
            self.checkpoint.save(&*book)?;
        }
        for (uid, entry) in book.claims.iter().filter(|(_, entry)| !entry.ending) {
            first = first.and(self.make(uid, entry));
        }
        first
    }
}

/// A UID is part of file names and of the name of a group.
fn check_uid(uid: &str) -> Result<(), DriverError> {
    let is_uid = (1..=60).contains(&uid.len()) && uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !uid.starts_with('-');
    if is_uid { Ok(()) } else { Err(DriverError::Uid(uid.to_owned())) }
}
