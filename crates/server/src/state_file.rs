//! `server-<uid>.json` in the pipe directory: which processes belong to this server, for its
//! successor and for people.

use cumux_link::{Folder, FolderError};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Some numbers take less.
const LONGEST: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct StateFile {
    pub(crate) server: u32,
    /// 0 = none, here and below.
    pub(crate) keeper: u32,
    pub(crate) executor: u32,
    pub(crate) standby: u32,
    /// Of the executor that serves.
    pub(crate) generation: u32,
    /// Every session number below this one may have been given out.
    pub(crate) next_session: u32,
    pub(crate) takeovers: u32,
    /// Executors of single sessions, those that all others have left, and further standbys.
    #[serde(default)]
    pub(crate) others: Vec<u32>,
}

impl StateFile {
    /// What an earlier server left; an empty one where there is none or it makes no sense.
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = Folder::of(path).and_then(|(folder, name)| folder.read(name, LONGEST)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Replaces the file in one step.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        Folder::of(path).and_then(|(folder, name)| folder.replace(name, &bytes, 0o644)).map_err(FolderError::into_io)
    }
}
