//! A file that survives the process and the machine's crash: what a plugin has promised to others.
//!
//! Invariants: the file is the state of before or of after a call of [`Checkpoint::save`], never a
//! part of one. A file that cannot be read is put aside under another name and reported, never
//! taken for an empty one.

use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The form of the files that this program writes.
const VERSION: u32 = 1;

/// Longest checkpoint that is looked into from outside.
const LONGEST: u64 = 16 << 20;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be written or read.
    #[error("cannot use the checkpoint {}: {cause}. Let this user write its folder, or name another one (--state)", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file is no checkpoint of this program.
    #[error("the checkpoint {} is damaged or of another version ({why}). It was moved to {}: look into it, then start again", path.display(), aside.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another program's checkpoint cannot be looked into.
    #[error("cannot look into the checkpoint {}: {why}", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
struct Stored<T> {
    version: u32,
    state: T,
}

#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    state: &'a T,
}

/// One file.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    path: PathBuf,
}

impl Checkpoint {
    /// The file of this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self, cause: io::Error) -> CheckpointError {
        CheckpointError::Io { path: self.path.clone(), cause }
    }

    /// Reads the state; the default one if there is no file.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn load<T: DeserializeOwned + Default>(&self) -> Result<T, CheckpointError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(cause) => return Err(self.io(cause)),
        };
        let why = match serde_json::from_slice::<Stored<T>>(&bytes) {
            Ok(read) if read.version == VERSION => return Ok(read.state),
            Ok(read) => format!("version {}", read.version),
            Err(error) => error.to_string(),
        };
        let aside = self.path.with_extension("damaged");
        fs::rename(&self.path, &aside).map_err(|cause| self.io(cause))?;
        Err(CheckpointError::Damaged { path: self.path.clone(), aside, why })
    }

    /// Looks into the checkpoint of another program, which may be writing it. Nothing is put aside.
    /// The default state if there is no file.
    ///
    /// # Errors
    /// [`CheckpointError`]; so is a file that is neither root's nor this user's, or too long.
    pub fn peek<T: DeserializeOwned + Default>(&self) -> Result<T, CheckpointError> {
        let strange = |why: String| CheckpointError::Strange { path: self.path.clone(), why };
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(cause) => return Err(strange(cause.to_string())),
        };
        let metadata = file.metadata().map_err(|cause| strange(cause.to_string()))?;
        if !metadata.is_file() || metadata.len() > LONGEST {
            return Err(strange(format!("it is no file of at most {} MiB", LONGEST >> 20)));
        }
        if metadata.uid() != 0 && metadata.uid() != geteuid().as_raw() {
            return Err(strange(format!("it belongs to user {}", metadata.uid())));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).map_err(|cause| strange(cause.to_string()))?;
        match serde_json::from_slice::<Stored<T>>(&bytes) {
            Ok(read) if read.version == VERSION => Ok(read.state),
            Ok(read) => Err(strange(format!("version {}", read.version))),
            Err(error) => Err(strange(error.to_string())),
        }
    }

    /// Writes the state. After this returns, it survives a crash of the machine.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]; the file is then as it was.
    pub fn save<T: Serialize>(&self, state: &T) -> Result<(), CheckpointError> {
        let bytes = serde_json::to_vec(&Written { version: VERSION, state }).map_err(|error| self.io(error.into()))?;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|cause| self.io(cause))?;
        let next = self.path.with_extension("next");
        let write = || {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&next, &self.path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|cause| self.io(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded_and_damage_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = Checkpoint::at(folder.path().join("deeper/state.json"));
        assert_eq!(file.load::<Vec<u32>>().unwrap(), [0; 0]);
        file.save(&vec![1, 2]).unwrap();
        assert_eq!(file.load::<Vec<u32>>().unwrap(), [1, 2]);
        for damage in ["", "{\"version\":1,\"state\":", "{\"version\":9,\"state\":[]}", "[]"] {
            fs::write(file.path(), damage).unwrap();
            let text = file.load::<Vec<u32>>().unwrap_err().to_string();
            assert!(text.contains("damaged") && !file.path().exists(), "{text}");
            assert_eq!(fs::read_to_string(folder.path().join("deeper/state.damaged")).unwrap(), damage);
        }
    }

    #[test]
    fn looking_into_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = Checkpoint::at(folder.path().join("state.json"));
        assert_eq!(file.peek::<Vec<u32>>().unwrap(), [0; 0]);
        file.save(&vec![1, 2]).unwrap();
        assert_eq!(file.peek::<Vec<u32>>().unwrap(), [1, 2]);
        fs::write(file.path(), "{\"version\":9,\"state\":[]}").unwrap();
        assert!(file.peek::<Vec<u32>>().unwrap_err().to_string().ends_with("version 9") && file.path().exists());
        File::options().write(true).open(file.path()).unwrap().set_len(LONGEST + 1).unwrap();
        assert!(file.peek::<Vec<u32>>().unwrap_err().to_string().contains("at most 16 MiB"));
        if geteuid().is_root() {
            file.save(&vec![3]).unwrap();
            std::os::unix::fs::chown(file.path(), Some(65_534), None).unwrap();
            assert!(file.peek::<Vec<u32>>().unwrap_err().to_string().ends_with("belongs to user 65534"));
        }
    }
}
