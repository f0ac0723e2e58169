//! The pipe directory: where daemon, servers and clients meet.
//!
//! Invariant: whoever holds the lock file's lock is the one daemon of the directory. Everything else found in it may be left over from a
//! daemon that died, and is reclaimed under the lock.

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Where NVIDIA's daemon keeps its pipes and logs if nothing is said.
pub const DEFAULT_PIPE: &str = "/tmp/nvidia-mps";
pub const DEFAULT_LOG: &str = "/var/log/nvidia-mps";
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
pub const LOG_VARIABLE: &str = "CUDA_MPS_LOG_DIRECTORY";

/// Bytes of a socket path that the kernel takes, without the closing zero.
pub const LONGEST_SOCKET_PATH: usize = 107;

/// What can be wrong with a directory; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("An instance of this daemon is already running")]
    AlreadyRunning,
    #[error("the socket path {} has {length} bytes, and the system allows {LONGEST_SOCKET_PATH}: set {PIPE_VARIABLE} to a shorter directory", path.display())]
    PathTooLong { path: PathBuf, length: usize },
    #[error("cannot make the pipe directory {}: {cause}. Make it yourself, or set {PIPE_VARIABLE} to a directory you may write", path.display())]
    CannotMake { path: PathBuf, cause: io::Error },
    #[error("cannot use the pipe directory {}: {cause}. It must be a directory that user {uid} may read, write and enter (chmod/chown it, or set {PIPE_VARIABLE} to another)", path.display())]
    CannotUse { path: PathBuf, uid: u32, cause: io::Error },
    #[error("cannot make the log directory {}: {cause}. Make it yourself, or set {LOG_VARIABLE} to a directory you may write", path.display())]
    CannotLog { path: PathBuf, cause: io::Error },
}

/// The directory named by the environment; empty counts as not set.
#[must_use]
pub fn pipe_directory(variable: Option<&str>) -> PathBuf {
    PathBuf::from(variable.filter(|text| !text.is_empty()).unwrap_or(DEFAULT_PIPE))
}

/// Files of one pipe directory.
#[derive(Debug, Clone)]
pub struct PipeDirectory {
    path: PathBuf,
}

impl PipeDirectory {
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Text commands (stream).
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    /// Clients and servers (packets).
    #[must_use]
    pub fn cumux(&self) -> PathBuf {
        self.path.join("cumux")
    }

    #[must_use]
    pub fn pid_file(&self) -> PathBuf {
        self.path.join("nvidia-cuda-mps-control.pid")
    }

    /// Held by the daemon. NVIDIA's file of that name may be written by everybody; nobody else could take the lock of this one.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("control_lock")
    }

    /// Where the server of a user listens for its keeper and executors.
    #[must_use]
    pub fn server(&self, uid: u32) -> PathBuf {
        self.path.join(format!("server-{uid}.sock"))
    }

    /// Fails if a socket in here could not be bound because its path is too long; the longest name is that of a server.
    ///
    /// # Errors
    /// [`DirectoryError::PathTooLong`].
    pub fn check_length(&self) -> Result<(), DirectoryError> {
        let path = self.server(u32::MAX);
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH { Err(DirectoryError::PathTooLong { path, length }) } else { Ok(()) }
    }

    /// Makes the directory if missing, takes the lock, reclaims what a dead daemon left, and writes the pid file.
    ///
    /// # Errors
    /// Another daemon serves it, or the system does not let us.
    pub fn claim(&self) -> Result<Claim, DirectoryError> {
        self.check_length()?;
        if self.daemon().is_some() {
            // Before the lock file: another user's daemon would not let us open it.
            return Err(DirectoryError::AlreadyRunning);
        }
        if !self.path.is_dir() {
            fs::create_dir_all(&self.path).map_err(|cause| DirectoryError::CannotMake { path: self.path.clone(), cause })?;
            // Others must be able to enter, whatever the umask: their programs are served from here.
            let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(0o755));
        }
        let cannot = |cause| DirectoryError::CannotUse { path: self.path.clone(), uid: rustix::process::geteuid().as_raw(), cause };
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.lock_file()).map_err(cannot)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DirectoryError::AlreadyRunning);
        }
        for stale in [self.control(), self.cumux()] {
            match fs::remove_file(&stale) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cannot(cause)),
                _ => {}
            }
        }
        // Without a line end, as NVIDIA's.
        fs::write(self.pid_file(), std::process::id().to_string()).map_err(cannot)?;
        let _ = fs::set_permissions(self.pid_file(), fs::Permissions::from_mode(0o644));
        Ok(Claim { directory: self.clone(), _lock: lock })
    }

    /// Whether a daemon listens here: its pid, as its pid file says (0 if that cannot be read).
    #[must_use]
    pub fn daemon(&self) -> Option<u32> {
        std::os::unix::net::UnixStream::connect(self.control()).ok()?;
        Some(fs::read_to_string(self.pid_file()).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }
}

/// The right to serve a directory; its files go when this is dropped.
#[derive(Debug)]
pub struct Claim {
    directory: PipeDirectory,
    _lock: File,
}

impl Claim {
    #[must_use]
    pub fn directory(&self) -> &PipeDirectory {
        &self.directory
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for path in [self.directory.control(), self.directory.cumux(), self.directory.pid_file()] {
            let _ = fs::remove_file(path);
        }
        tidy(self.directory.path());
    }
}

/// Takes away the locks of servers that have ended, and the folders of other users that are empty then. A server that still runs holds its lock.
fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && name.starts_with("user-") {
            tidy(&path);
            let running = fs::read_dir(&path).map_or(true, |entries| entries.flatten().any(|entry| entry.file_name() != "cumux"));
            if !running {
                let _ = fs::remove_file(path.join("cumux"));
                let _ = fs::remove_dir(&path);
            }
        } else if name.starts_with("server-") && name.ends_with(".lock") {
            // The folder may be another user's: what lies there under this name must neither lead elsewhere nor make us wait.
            let lock = rustix::fs::open(&path, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
            if lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// The log directory: as asked, made if missing. Without a wish the usual one, or the pipe directory where that cannot be written.
///
/// # Errors
/// A directory that was asked for cannot be made or written.
pub fn log_directory(asked: Option<&str>, pipe: &Path) -> Result<PathBuf, DirectoryError> {
    let asked = asked.filter(|text| !text.is_empty());
    let path = PathBuf::from(asked.unwrap_or(DEFAULT_LOG));
    match fs::create_dir_all(&path).and_then(|()| writable(&path)) {
        Ok(()) => Ok(path),
        Err(_) if asked.is_none() => Ok(pipe.to_owned()),
        Err(cause) => Err(DirectoryError::CannotLog { path, cause }),
    }
}

/// A full disk is writable: it may empty again.
fn writable(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("cumux-dir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn one_daemon_a_directory_and_leftovers_are_reclaimed() {
        let path = fresh("claim");
        let directory = PipeDirectory::at(&path);
        assert_eq!(directory.daemon(), None);
        let claim = directory.claim().unwrap();
        assert!(matches!(directory.claim(), Err(DirectoryError::AlreadyRunning)), "the lock is held");
        let listener = std::os::unix::net::UnixListener::bind(directory.control()).unwrap();
        assert_eq!(directory.daemon(), Some(std::process::id()));
        drop(listener);
        assert_eq!(directory.daemon(), None, "nobody listens any more");
        drop(claim);
        assert!(!directory.pid_file().exists());
        // A daemon that was killed leaves its files without the lock.
        fs::write(directory.pid_file(), "1\n").unwrap();
        fs::write(directory.control(), "").unwrap();
        drop(directory.claim().unwrap());
        assert!(!directory.control().exists());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn long_paths_are_named_and_measured() {
        let path = fresh("long").join("x".repeat(100));
        let error = PipeDirectory::at(&path).claim().unwrap_err().to_string();
        assert!(error.contains("107") && error.contains("shorter directory"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_directory_is_refused_with_a_remedy() {
        let path = fresh("file");
        fs::write(&path, "").unwrap();
        let error = PipeDirectory::at(&path).claim().unwrap_err().to_string();
        assert!(error.contains(PIPE_VARIABLE), "{error}");
        let error = log_directory(path.to_str(), Path::new("/tmp")).unwrap_err().to_string();
        assert!(error.contains(LOG_VARIABLE), "{error}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_empty_variable_is_no_variable() {
        assert_eq!(pipe_directory(Some("")), PathBuf::from(DEFAULT_PIPE));
        assert_eq!(pipe_directory(None), PathBuf::from(DEFAULT_PIPE));
        assert_eq!(pipe_directory(Some("/x")), PathBuf::from("/x"));
    }
}
