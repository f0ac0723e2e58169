//! The pipe directory: where daemon, servers and clients meet.
//!
//! Invariants: the process that holds the lock on the lock file is the one daemon of the directory.
//! Everything else found in it may be left over from a daemon that died, and is reclaimed under the
//! lock. Only the daemon's user and root can write or exchange the directory (or it is sticky); any
//! other directory is refused ([`Folder`]).

use crate::duty::Duty;
use cumux_link::folder::Rule;
use cumux_link::{Folder, FolderError, Peer, Process, peer, reach, trust};
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// NVIDIA's pipe directory where the environment names none.
pub const DEFAULT_PIPE: &str = "/tmp/nvidia-mps";
/// NVIDIA's log directory where the environment names none.
pub const DEFAULT_LOG: &str = "/var/log/nvidia-mps";
/// The variable with the pipe directory.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The variable with the log directory.
pub const LOG_VARIABLE: &str = "CUDA_MPS_LOG_DIRECTORY";

/// The socket for text commands (stream).
const CONTROL: &str = "control";
/// The socket for clients and servers (packets).
pub(crate) const CUMUX: &str = "cumux";
const SOCKETS: [&str; 2] = [CONTROL, CUMUX];
const PID: &str = "nvidia-cuda-mps-control.pid";
/// The file on which the daemon holds a lock. NVIDIA's file of that name is writable for everybody;
/// ours is the daemon's user's, so that nobody else can take the lock.
pub const LOCK: &str = "control_lock";

/// Bytes of a socket path that the kernel accepts, without the closing zero.
pub const LONGEST_SOCKET_PATH: usize = 107;

/// The process that a daemon forks to start a server has the daemon's lock and sockets until it
/// becomes the server. If the daemon is killed meanwhile, the next one waits for that, so long.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is wrong with a directory. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another daemon serves the directory.
    #[error("An instance of this daemon is already running")]
    AlreadyRunning,
    /// Programs could not find the sockets: their path is too long.
    #[error("the socket path {} has {length} bytes, and the system allows {LONGEST_SOCKET_PATH}: set {PIPE_VARIABLE} to a shorter directory", path.display())]
    PathTooLong {
        /// The path that is meant.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The pipe directory is missing and cannot be made.
    #[error("cannot make the pipe directory {}: {cause}. Make it yourself, or set {PIPE_VARIABLE} to a directory you may write", path.display())]
    CannotMake {
        /// The path that is meant.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The pipe directory cannot be written or entered.
    #[error("cannot use the pipe directory {}: {cause}. It must be a directory that user {uid} may read, write and enter (chmod/chown it, or set {PIPE_VARIABLE} to another)", path.display())]
    CannotUse {
        /// The path that is meant.
        path: PathBuf,
        /// The user who cannot use it.
        uid: u32,
        /// The reason.
        cause: io::Error,
    },
    /// The log directory cannot be made or written.
    #[error("cannot make the log directory {}: {cause}. Make it yourself, or set {LOG_VARIABLE} to a directory you may write", path.display())]
    CannotLog {
        /// The path that is meant.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// Another user could tamper with the directory.
    #[error("the {what} directory is not safe: {cause}. What to do: {}", advice(cause, variable))]
    Unsafe {
        /// `pipe` or `log`.
        what: &'static str,
        /// The variable that names another.
        variable: &'static str,
        /// The reason.
        cause: FolderError,
    },
}

impl DirectoryError {
    fn pipe(cause: FolderError) -> Self {
        Self::Unsafe { what: "pipe", variable: PIPE_VARIABLE, cause }
    }

    pub(crate) fn log(cause: FolderError) -> Self {
        Self::Unsafe { what: "log", variable: LOG_VARIABLE, cause }
    }
}

/// The rest of a sentence on an unsafe directory: what to do about it. `variable` is the one that
/// names it.
#[must_use]
pub fn advice(cause: &FolderError, variable: &str) -> String {
    let other = format!("set {variable} to a directory that only user {} can write, such as {}", trust::own(), safe_place());
    let remedy = cause.remedy();
    if remedy.is_empty() { other } else { format!("{remedy}; or {other}") }
}

/// A place for this user's directories that other users cannot write.
fn safe_place() -> String {
    match std::env::var("XDG_RUNTIME_DIR") {
        _ if trust::own() == 0 => "/run/cumux".to_owned(),
        Ok(folder) if folder.starts_with('/') => format!("{folder}/cumux"),
        _ => "a new folder in your home (mkdir -m 700)".to_owned(),
    }
}

/// The directory that a variable of the environment names, of whatever bytes; an empty value counts
/// as none.
#[must_use]
pub fn named_directory(variable: &str) -> Option<PathBuf> {
    directory_of(std::env::var_os(variable))
}

fn directory_of(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The pipe directory that [`PIPE_VARIABLE`] names, or the usual one.
#[must_use]
pub fn pipe_directory() -> PathBuf {
    named_directory(PIPE_VARIABLE).unwrap_or_else(|| PathBuf::from(DEFAULT_PIPE))
}

/// The paths in one pipe directory.
#[derive(Debug, Clone)]
pub struct PipeDirectory {
    path: PathBuf,
}

impl PipeDirectory {
    /// The files of the pipe directory at `path`; nothing is opened.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket for text commands (stream).
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.path.join(CONTROL)
    }

    /// The socket for clients and servers (packets).
    #[must_use]
    pub fn cumux(&self) -> PathBuf {
        self.path.join(CUMUX)
    }

    /// The file with the daemon's process id.
    #[must_use]
    pub fn pid_file(&self) -> PathBuf {
        self.path.join(PID)
    }

    /// The names of the daemon's files in it.
    #[must_use]
    pub fn files() -> [&'static str; 4] {
        [PID, LOCK, "partitions.json", "servers.json"]
    }

    /// Refuses a directory whose sockets programs could not find, because their paths are too long.
    /// The longest name is `control`, as in NVIDIA's daemon.
    ///
    /// # Errors
    /// [`DirectoryError::PathTooLong`].
    pub fn check_length(&self) -> Result<(), DirectoryError> {
        let path = self.control();
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH { Err(DirectoryError::PathTooLong { path, length }) } else { Ok(()) }
    }

    /// Makes the directory if it is missing, takes the lock, reclaims what a dead daemon left, and
    /// writes the pid file.
    ///
    /// # Errors
    /// Another daemon serves the directory, it is not safe, or the system refuses.
    pub fn claim(&self) -> Result<Claim, DirectoryError> {
        self.claim_with(true)
    }

    /// As [`PipeDirectory::claim`], but the files of the sockets are another's (`inherited.rs`):
    /// they stay now and when the claim is dropped.
    pub(crate) fn claim_beside_sockets(&self) -> Result<Claim, DirectoryError> {
        self.claim_with(false)
    }

    fn claim_with(&self, owns_sockets: bool) -> Result<Claim, DirectoryError> {
        self.check_length()?;
        // Other users must be able to enter, whatever the umask: their programs are served from
        // here.
        let folder = Folder::make(&self.path, 0o755, Rule::Service).map_err(|cause| match cause {
            cause if cause.is_danger() => DirectoryError::pipe(cause),
            cause => DirectoryError::CannotMake { path: self.path.clone(), cause: cause.into_io() },
        })?;
        let until = Instant::now() + LAST_BREATH;
        while owns_sockets && let Some(daemon) = self.daemon() {
            // Checked before the lock file, which another user's daemon would not let us open.
            if !Process::has_ended(daemon) || Instant::now() >= until {
                return Err(DirectoryError::AlreadyRunning);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let cannot = |cause| DirectoryError::CannotUse { path: self.path.clone(), uid: trust::own(), cause };
        let refused = |cause: FolderError| if cause.is_danger() { DirectoryError::pipe(cause) } else { cannot(cause.into_io()) };
        let lock = loop {
            if let Some(lock) = folder.lock(LOCK).map_err(refused)? {
                break lock;
            }
            if !self.named_daemon().is_some_and(Process::has_ended) || Instant::now() >= until {
                return Err(DirectoryError::AlreadyRunning);
            }
            std::thread::sleep(LOOK_EVERY);
        };
        for stale in SOCKETS.iter().filter(|_| owns_sockets) {
            folder.remove(stale).map_err(cannot)?;
        }
        // Without a line end, as NVIDIA's daemon writes it.
        folder.replace(PID, std::process::id().to_string().as_bytes(), 0o644).map_err(refused)?;
        Ok(Claim { directory: self.clone(), folder, owns_sockets, _lock: lock })
    }

    /// Whether the process that listens here (`pid`) is the daemon, as the pid file says. If not, a
    /// supervisor of services listens that starts the daemon, or it starts just now.
    #[must_use]
    pub fn is_daemon(&self, pid: u32) -> bool {
        // The kernel goes on naming a daemon that was killed, until the next one listens. The
        // daemon has written its number as it sees it.
        !Process::has_ended(pid) && self.named_daemon() == Some(peer::innermost_number(pid).unwrap_or(pid))
    }

    /// The process number in the pid file.
    fn named_daemon(&self) -> Option<u32> {
        let read = || -> io::Result<String> {
            // Nobody has checked who made the directory: a pipe under that name must not block us.
            let file = rustix::fs::open(self.pid_file(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
            let mut text = String::new();
            File::from(file).take(32).read_to_string(&mut text)?;
            Ok(text)
        };
        read().ok().and_then(|text| text.trim().parse().ok())
    }

    /// Whether a daemon serves this directory, as far as can be told without claiming it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.daemon().is_some_and(|daemon| !Process::has_ended(daemon))
    }

    /// Process id of the trusted process that listens here: `None` if none does, 0 if it has no
    /// process id in our PID namespace.
    #[must_use]
    pub fn daemon(&self) -> Option<u32> {
        let stream = reach::stream(&self.control(), None).ok()?;
        Some(Peer::of(&stream).ok().and_then(|listener| listener.pid).unwrap_or(0))
    }
}

/// The right to serve a directory. Dropping it removes the daemon's files.
#[derive(Debug)]
pub struct Claim {
    directory: PipeDirectory,
    folder: Folder,
    owns_sockets: bool,
    _lock: File,
}

impl Claim {
    /// The directory that is served.
    #[must_use]
    pub fn directory(&self) -> &PipeDirectory {
        &self.directory
    }

    /// Lets every user connect to the sockets: the kernel says who they are.
    ///
    /// # Errors
    /// There are no sockets, or the system refuses.
    pub fn open_to_all(&self) -> Result<(), FolderError> {
        SOCKETS.iter().try_for_each(|name| self.folder.open_socket_to_all(name))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for name in SOCKETS.iter().filter(|_| self.owns_sockets).chain([&PID]) {
            let _ = self.folder.remove(name);
        }
        tidy(&self.folder);
    }
}

/// Most names that are read in one folder.
const MOST_NAMES: usize = 10_000;

/// Removes the locks of servers that have ended, and their folders that are then empty. A server
/// that still runs holds its lock.
fn tidy(folder: &Folder) {
    for name in folder.names(MOST_NAMES).unwrap_or_default() {
        let is_folder = name.to_str().is_some_and(|name| Duty::of_folder(name, trust::own()).is_some());
        if !is_folder {
            tidy_lock(folder, &name);
        } else if let Ok(theirs) = folder.given(&name) {
            // The contents are another user's: only names are read, and no link is followed.
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

/// The log directory: the wished one, made if it is missing. Without a wish the usual one, or the
/// pipe directory where that cannot be used. Root gets an error if the usual one is not safe.
///
/// # Errors
/// The wished directory cannot be made or written, or is not safe.
pub fn log_directory(asked: Option<PathBuf>, pipe: &Path) -> Result<PathBuf, DirectoryError> {
    let is_wish = asked.is_some();
    let path = asked.unwrap_or_else(|| PathBuf::from(DEFAULT_LOG));
    match Folder::make(&path, 0o755, Rule::Service) {
        Ok(_) if writable(&path).is_ok() => Ok(path),
        Err(cause) if cause.is_danger() && (is_wish || trust::own() == 0) => Err(DirectoryError::log(cause)),
        _ if !is_wish => Ok(pipe.to_owned()),
        Ok(_) => Err(DirectoryError::CannotLog { cause: io::ErrorKind::PermissionDenied.into(), path }),
        Err(cause) => Err(DirectoryError::CannotLog { path, cause: cause.into_io() }),
    }
}

/// A full disk counts as writable: it may become empty again.
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

    /// The process that it had just forked to start a server has its lock for some milliseconds.
    #[test]
    fn a_daemon_that_was_killed_while_it_started_a_server_is_followed_by_the_next() {
        let path = fresh("last-breath");
        let directory = PipeDirectory::at(&path);
        drop(directory.claim().unwrap());
        let lock = Folder::make(&path, 0o755, Rule::Service).unwrap().lock(LOCK).unwrap().expect("nobody has it");
        let mut killed = std::process::Command::new("true").spawn().unwrap();
        fs::write(directory.pid_file(), killed.id().to_string()).unwrap();
        killed.wait().unwrap();
        assert!(!directory.is_served());
        let becomes_the_server = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(lock);
        });
        drop(directory.claim().expect("it waits for that"));
        becomes_the_server.join().unwrap();
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
        assert!(directory.is_daemon(std::process::id()) && !directory.is_daemon(std::process::id() + 1));
        drop(listener);
        assert_eq!(directory.daemon(), None, "nobody listens any more");
        drop(claim);
        assert!(!directory.pid_file().exists() && !directory.is_daemon(std::process::id()));
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

    /// Where NVIDIA's own socket fits, all our paths fit.
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
            let error = log_directory(Some(path.clone()), Path::new("/tmp")).unwrap_err().to_string();
            assert!(error.contains(remedy) && error.contains(LOG_VARIABLE), "{error}");
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        }
    }

    /// Found out when the daemon starts, not when the first line is written.
    #[test]
    fn a_log_directory_that_cannot_be_written_is_refused() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = base.path().join("log");
        fs::create_dir(&path).unwrap();
        assert_eq!(log_directory(Some(path.clone()), Path::new("/tmp")).unwrap(), path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
        let asked = path.clone();
        let refused = std::thread::spawn(move || {
            // Root may write everywhere. This thread alone goes on as another user.
            if rustix::process::getuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            log_directory(Some(asked), Path::new("/tmp")).unwrap_err().to_string()
        });
        let refused = refused.join().unwrap();
        assert!(refused.contains("permission denied") && refused.contains(path.to_str().unwrap()), "{refused}");
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

    /// Whatever another user puts into a folder of its own: tidying follows no link, waits for
    /// nothing and enters no directory in it.
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
        let error = log_directory(Some(path.clone()), Path::new("/tmp")).unwrap_err().to_string();
        assert!(error.contains(LOG_VARIABLE), "{error}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_empty_variable_is_no_variable() {
        use std::os::unix::ffi::OsStringExt as _;
        assert_eq!(directory_of(Some(OsString::new())), None);
        assert_eq!(directory_of(None), None);
        for path in [&b"/x"[..], b"/x\xff"] {
            let path = OsString::from_vec(path.to_vec());
            assert_eq!(directory_of(Some(path.clone())), Some(PathBuf::from(path)));
        }
    }
}
