//! The pipe directory: where daemon, servers and clients meet.
//!
//! Invariants: whoever holds the lock file's lock is the one daemon of the directory. Everything
//! else found in it may be left over from a daemon that died, and is reclaimed under the lock.
//! Nobody but the daemon's user and root can write it (or it is sticky), nor exchange it: else it
//! is not used ([`Folder`]).

use cumux_link::folder::Rule;
use cumux_link::{Folder, FolderError, Peer, reach, trust};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where NVIDIA's daemon keeps its pipes and logs if nothing is said.
pub const DEFAULT_PIPE: &str = "/tmp/nvidia-mps";
pub const DEFAULT_LOG: &str = "/var/log/nvidia-mps";
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
pub const LOG_VARIABLE: &str = "CUDA_MPS_LOG_DIRECTORY";

/// Text commands (stream).
const CONTROL: &str = "control";
/// Clients and servers (packets).
pub(crate) const CUMUX: &str = "cumux";
const PID: &str = "nvidia-cuda-mps-control.pid";
/// Held by the daemon. NVIDIA's file of that name may be written by everybody; nobody else could take the lock of this one.
pub const LOCK: &str = "control_lock";

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
    #[error("the {what} directory is not safe: {cause}. What to do: {}", advice(cause, variable))]
    Unsafe { what: &'static str, variable: &'static str, cause: FolderError },
}

impl DirectoryError {
    fn pipe(cause: FolderError) -> Self {
        Self::Unsafe { what: "pipe", variable: PIPE_VARIABLE, cause }
    }

    pub(crate) fn log(cause: FolderError) -> Self {
        Self::Unsafe { what: "log", variable: LOG_VARIABLE, cause }
    }
}

/// What to do about a directory that is not safe.
#[must_use]
pub fn advice(cause: &FolderError, variable: &str) -> String {
    let other = format!("set {variable} to a directory that only user {} can write, such as {}", trust::own(), safe_place());
    let remedy = cause.remedy();
    if remedy.is_empty() { other } else { format!("{remedy}; or {other}") }
}

/// A place for the directories of this user that nobody else can get at.
fn safe_place() -> String {
    match std::env::var("XDG_RUNTIME_DIR") {
        _ if trust::own() == 0 => "/run/cumux".to_owned(),
        Ok(folder) if folder.starts_with('/') => format!("{folder}/cumux"),
        _ => "a new folder in your home (mkdir -m 700)".to_owned(),
    }
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
        self.path.join(CONTROL)
    }

    /// Clients and servers (packets).
    #[must_use]
    pub fn cumux(&self) -> PathBuf {
        self.path.join(CUMUX)
    }

    #[must_use]
    pub fn pid_file(&self) -> PathBuf {
        self.path.join(PID)
    }

    /// The names of what the daemon keeps in it.
    #[must_use]
    pub fn files() -> [&'static str; 4] {
        [PID, LOCK, "partitions.json", "servers.json"]
    }

    /// Fails if programs could not find the daemon's sockets because the path is too long; the
    /// longest name is `control`, as in NVIDIA's.
    ///
    /// # Errors
    /// [`DirectoryError::PathTooLong`].
    pub fn check_length(&self) -> Result<(), DirectoryError> {
        let path = self.control();
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH { Err(DirectoryError::PathTooLong { path, length }) } else { Ok(()) }
    }

    /// Makes the directory if missing, takes the lock, reclaims what a dead daemon left, and writes the pid file.
    ///
    /// # Errors
    /// Another daemon serves it, it is not safe, or the system does not let us.
    pub fn claim(&self) -> Result<Claim, DirectoryError> {
        self.check_length()?;
        // Others must be able to enter, whatever the umask: their programs are served from here.
        let folder = Folder::make(&self.path, 0o755, Rule::Service).map_err(|cause| match cause {
            cause if cause.is_danger() => DirectoryError::pipe(cause),
            cause => DirectoryError::CannotMake { path: self.path.clone(), cause: cause.into_io() },
        })?;
        if self.daemon().is_some() {
            // Before the lock file: another user's daemon would not let us open it.
            return Err(DirectoryError::AlreadyRunning);
        }
        let cannot = |cause| DirectoryError::CannotUse { path: self.path.clone(), uid: trust::own(), cause };
        let refused = |cause: FolderError| if cause.is_danger() { DirectoryError::pipe(cause) } else { cannot(cause.into_io()) };
        let Some(lock) = folder.lock(LOCK).map_err(refused)? else { return Err(DirectoryError::AlreadyRunning) };
        for stale in [CONTROL, CUMUX] {
            folder.remove(stale).map_err(cannot)?;
        }
        // Without a line end, as NVIDIA's.
        folder.replace(PID, std::process::id().to_string().as_bytes(), 0o644).map_err(refused)?;
        Ok(Claim { directory: self.clone(), folder, _lock: lock })
    }

    /// Whether a daemon that we trust listens here: its pid, 0 if it has none in our PID namespace.
    #[must_use]
    pub fn daemon(&self) -> Option<u32> {
        let stream = reach::stream(&self.control(), None).ok()?;
        Some(Peer::of(&stream).ok().and_then(|listener| listener.pid).unwrap_or(0))
    }
}

/// The right to serve a directory; its files go when this is dropped.
#[derive(Debug)]
pub struct Claim {
    directory: PipeDirectory,
    folder: Folder,
    _lock: File,
}

impl Claim {
    #[must_use]
    pub fn directory(&self) -> &PipeDirectory {
        &self.directory
    }

    /// Everybody may connect to our sockets: who they are is asked of the kernel.
    ///
    /// # Errors
    /// There are none, or the system does not let us.
    pub fn open_to_all(&self) -> Result<(), FolderError> {
        [CONTROL, CUMUX].iter().try_for_each(|name| self.folder.open_socket_to_all(name))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for name in [CONTROL, CUMUX, PID] {
            let _ = self.folder.remove(name);
        }
        tidy(&self.folder);
    }
}

/// Names that are looked at in one folder.
const MOST_NAMES: usize = 10_000;

/// Takes away the locks of servers that have ended, and the folders of other users that are empty then. A server that still runs holds its lock.
fn tidy(folder: &Folder) {
    for name in folder.names(MOST_NAMES).unwrap_or_default() {
        let is_user = name.to_str().and_then(|name| name.strip_prefix("user-")).is_some_and(|uid| uid.parse::<u32>().is_ok());
        if !is_user {
            tidy_lock(folder, &name);
        } else if let Ok(theirs) = folder.given(&name) {
            // What lies in there is another user's: only names are looked at, and nothing is
            // followed.
            for inner in theirs.names(MOST_NAMES).unwrap_or_default() {
                tidy_lock(&theirs, &inner);
            }
            if theirs.names(2).is_ok_and(|names| names.iter().all(|name| name == CUMUX)) {
                let _ = theirs.remove(CUMUX).and_then(|()| folder.remove_folder(&name));
            }
        }
    }
}

fn tidy_lock(folder: &Folder, name: &OsStr) {
    let is_lock = name.to_str().is_some_and(|name| name.starts_with("server-") && name.ends_with(".lock"));
    if is_lock && folder.is_unlocked(name) {
        let _ = folder.remove(name);
    }
}

/// The log directory: as asked, made if missing. Without a wish the usual one, or the pipe
/// directory where that cannot be used. Root is told of a usual one that is not safe.
///
/// # Errors
/// A directory that was asked for cannot be made or written, or is not safe.
pub fn log_directory(asked: Option<&str>, pipe: &Path) -> Result<PathBuf, DirectoryError> {
    let asked = asked.filter(|text| !text.is_empty());
    let path = PathBuf::from(asked.unwrap_or(DEFAULT_LOG));
    let is_wish = asked.is_some();
    match Folder::make(&path, 0o755, Rule::Service) {
        Ok(_) if writable(&path).is_ok() => Ok(path),
        Err(cause) if cause.is_danger() && (is_wish || trust::own() == 0) => Err(DirectoryError::log(cause)),
        _ if !is_wish => Ok(pipe.to_owned()),
        Ok(_) => Err(DirectoryError::CannotLog { cause: io::ErrorKind::PermissionDenied.into(), path }),
        Err(cause) => Err(DirectoryError::CannotLog { path, cause: cause.into_io() }),
    }
}

/// A full disk is writable: it may empty again.
fn writable(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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

    /// Where NVIDIA's own socket fits, everything of ours does.
    #[test]
    fn every_directory_in_which_control_fits_can_be_claimed() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("x".repeat(LONGEST_SOCKET_PATH - "/control".len() - base.path().as_os_str().len() - 1));
        let directory = PipeDirectory::at(&path);
        assert_eq!(directory.control().as_os_str().len(), LONGEST_SOCKET_PATH);
        let claim = directory.claim().unwrap();
        let _text = std::os::unix::net::UnixListener::bind(directory.control()).unwrap();
        let _packets = cumux_link::Listener::bind(&directory.cumux()).unwrap();
        claim.open_to_all().unwrap();
        assert_eq!(directory.daemon(), Some(std::process::id()));
        assert!(cumux_link::Listener::bind(&path.join("user-4294967295/server-4294967295.sock")).is_err(), "there is no such folder");
        assert!(cumux_link::Listener::bind(&path.join("server-4294967295.sock")).is_ok());
    }

    #[test]
    fn what_others_can_write_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        for (mode, remedy) in [(0o777, "chmod go-w"), (0o775, "chmod g-w")] {
            let path = base.path().join(format!("{mode:o}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = PipeDirectory::at(&path).claim().unwrap_err().to_string();
            assert!(error.contains(remedy) && error.contains(PIPE_VARIABLE) && error.contains(path.to_str().unwrap()), "{error}");
            let error = log_directory(path.to_str(), Path::new("/tmp")).unwrap_err().to_string();
            assert!(error.contains(remedy) && error.contains(LOG_VARIABLE), "{error}");
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        }
    }

    #[test]
    fn links_in_it_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("pipe");
        fs::create_dir(&path).unwrap();
        let victim = base.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let directory = PipeDirectory::at(&path);
        symlink(&victim, directory.pid_file()).unwrap();
        drop(directory.claim().unwrap());
        fs::remove_file(path.join(LOCK)).unwrap();
        symlink(&victim, path.join(LOCK)).unwrap();
        let error = directory.claim().unwrap_err().to_string();
        assert!(error.contains("control_lock is a link") && error.contains("remove it"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }

    /// What another user may put into the folder that is its own: nothing of it is followed, waited
    /// for or gone into.
    #[test]
    fn tidying_looks_at_names_only() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("server-1.lock"), "").unwrap();
        let path = base.path().join("pipe");
        let directory = PipeDirectory::at(&path);
        let claim = directory.claim().unwrap();
        let theirs = path.join("user-65534");
        fs::create_dir(&theirs).unwrap();
        symlink("../cumux", theirs.join(CUMUX)).unwrap();
        fs::write(theirs.join("server-65534.lock"), "").unwrap();
        symlink(&outside, path.join("user-1")).unwrap();
        let deep = path.join("user-2/user-3");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("server-1.lock"), "").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path.join("user-2/server-2.lock"), rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o666), 0).unwrap();
        symlink(outside.join("server-1.lock"), path.join("user-2/server-3.lock")).unwrap();
        drop(claim);
        assert!(!theirs.exists(), "an empty folder goes");
        assert!(outside.join("server-1.lock").exists() && deep.join("server-1.lock").exists());
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
