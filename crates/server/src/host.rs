//! The processes around a server: starting, watching and ending them. A trait, so that tests can
//! put threads in their place.

use cumux_link::pulse::{self, Motion};
use cumux_link::{Connection, Process};
use rustix::fs::MemfdFlags;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// What a process that this server starts is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Holds descriptors.
    Keeper,
    /// Serves, or stands by.
    Executor,
    /// An executor for this session alone.
    Own {
        /// That session.
        session: u32,
    },
}

/// How a client's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// By itself.
    Exited,
    /// By a signal.
    Killed,
}

/// The system as a server sees it.
pub trait Host: Send + Clone + 'static {
    /// Starts a process that will connect to this server's socket; its number.
    ///
    /// # Errors
    /// When the system cannot.
    fn start(&self, role: Role) -> io::Result<u32>;
    /// What is started from now on is this program. Returns the one before.
    fn use_program(&self, program: &Path) -> PathBuf;
    /// A handle that becomes readable when the process has ended.
    ///
    /// # Errors
    /// ESRCH when there is none.
    fn open(&self, pid: u32) -> rustix::io::Result<Process>;
    /// Ends a process at once.
    fn kill(&self, pid: u32, process: &Process);
    /// Whether a signal has stopped it.
    fn motion(&self, pid: u32) -> Motion;
    /// Stops a process until it is set going.
    fn stop(&self, process: &Process);
    /// Lets a stopped process go on.
    fn set_going(&self, process: &Process);
    /// To be called once a process has ended: frees its entry if it was our child, and says how it
    /// ended if that is known.
    fn reap(&self, pid: u32) -> Option<String>;
    /// How a client ended, as far as it can be seen.
    fn fate(&self, pid: u32) -> Option<Fate>;
    /// Whether somebody who connects to our socket may.
    fn admits(&self, connection: &Connection) -> bool;
    /// Whether this process is at the other end.
    fn vouches(&self, connection: &Connection, pid: u32) -> bool;
    /// Whether a process left by an earlier server is a keeper or executor of this server's socket,
    /// and no stranger with its old number.
    fn is_ours(&self, pid: u32) -> bool;
    /// Whether this process is of the program that is started now, as far as that can be seen.
    fn is_current(&self, pid: u32) -> bool;
}

/// The variable that names the file for notes about cards (`crates/device-cuda`).
const CARD_NOTES: &str = "CUMUX_CARD_NOTES";

/// The real one.
#[derive(Clone)]
pub struct System {
    inner: std::sync::Arc<Inner>,
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("socket", &self.inner.socket).finish_non_exhaustive()
    }
}

struct Inner {
    socket: PathBuf,
    /// In which executors note what they find out about cards, for those that come after them.
    _notes: Option<OwnedFd>,
    /// The program that is started.
    program: std::sync::Arc<std::sync::Mutex<PathBuf>>,
    command: Box<dyn Fn(Role) -> Command + Send + Sync>,
    children: std::sync::Mutex<BTreeMap<u32, Child>>,
}

impl System {
    /// Processes for the server that listens at `socket`; what they write to standard error goes
    /// where this server's does: the daemon has seen to it.
    #[must_use]
    pub fn new(socket: PathBuf, devices: Vec<String>) -> Self {
        // The link itself still names the program when the file was replaced by a newer one.
        let program = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        let server = socket.clone();
        let program = std::sync::Arc::new(std::sync::Mutex::new(program));
        let chosen = program.clone();
        // Without it each executor finds out everything itself.
        let notes = rustix::fs::memfd_create("card-notes", MemfdFlags::CLOEXEC).ok();
        let notes_path = notes.as_ref().map(|notes| format!("/proc/{}/fd/{}", std::process::id(), notes.as_raw_fd()));
        let start = move |role| {
            let mut command = Command::new(&*chosen.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            // Named so that no drop-in name of our own program decides what it does.
            command.arg0("cumux");
            match role {
                Role::Keeper => command.arg("keeper").arg("--server").arg(&server),
                Role::Executor | Role::Own { .. } => command.arg("executor").arg("--server").arg(&server).args(devices.iter().flat_map(|id| ["--device", id])),
            };
            if let Role::Own { session } = role {
                command.arg("--own").arg(session.to_string());
            }
            if let Some(path) = &notes_path {
                command.env(CARD_NOTES, path);
            }
            command
        };
        Self { inner: std::sync::Arc::new(Inner { socket, _notes: notes, program, command: Box::new(start), children: std::sync::Mutex::default() }) }
    }

    /// With other programs as keeper and executor. Their command lines must have the socket as a
    /// word of its own.
    #[must_use]
    pub fn starting(socket: PathBuf, command: impl Fn(Role) -> Command + Send + Sync + 'static) -> Self {
        let program = std::sync::Arc::default();
        Self { inner: std::sync::Arc::new(Inner { socket, _notes: None, program, command: Box::new(command), children: std::sync::Mutex::default() }) }
    }

    fn children(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Child>> {
        self.inner.children.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Host for System {
    fn start(&self, role: Role) -> io::Result<u32> {
        let mut command = (self.inner.command)(role);
        // A group of their own: a ^C at the daemon's terminal must not take the keeper away.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn()?;
        let pid = child.id();
        self.children().insert(pid, child);
        Ok(pid)
    }

    fn use_program(&self, program: &Path) -> PathBuf {
        std::mem::replace(&mut *self.inner.program.lock().unwrap_or_else(std::sync::PoisonError::into_inner), program.to_owned())
    }

    fn open(&self, pid: u32) -> rustix::io::Result<Process> {
        Process::open(pid)
    }

    fn kill(&self, _pid: u32, process: &Process) {
        let _ = process.signal(Signal::KILL);
    }

    fn motion(&self, pid: u32) -> Motion {
        pulse::motion(pid)
    }

    fn stop(&self, process: &Process) {
        let _ = process.signal(Signal::STOP);
    }

    fn set_going(&self, process: &Process) {
        let _ = process.signal(Signal::CONT);
    }

    fn reap(&self, pid: u32) -> Option<String> {
        let mut child = self.children().remove(&pid)?;
        let status = child.try_wait().ok().flatten()?;
        Some(describe(status))
    }

    fn fate(&self, pid: u32) -> Option<Fate> {
        fate(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn admits(&self, connection: &Connection) -> bool {
        connection.peer().is_ok_and(|peer| peer.uid == rustix::process::geteuid().as_raw() || peer.uid == 0)
    }

    fn vouches(&self, connection: &Connection, pid: u32) -> bool {
        connection.peer().is_ok_and(|peer| peer.pid == Some(pid))
    }

    fn is_current(&self, pid: u32) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        // Also of a file that was replaced or removed: this is its file, not its name.
        let file_of = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let program = self.inner.program.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let (started, its) = (file_of(&program), file_of(Path::new(&format!("/proc/{pid}/exe"))));
        started.zip(its).is_none_or(|(started, its)| started == its)
    }

    fn is_ours(&self, pid: u32) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let socket = self.inner.socket.as_os_str().as_bytes();
        // A process that has just been started has no command line for a moment; one that has ended
        // has none for ever.
        let Ok(process) = Process::open(pid) else { return false };
        for _ in 0..100 {
            if !process.is_alive() {
                return false;
            }
            match fs::read(format!("/proc/{pid}/cmdline")) {
                Ok(line) if line.is_empty() => std::thread::sleep(Duration::from_millis(1)),
                Ok(line) => return line.split(|byte| *byte == 0).any(|word| word == socket),
                Err(_) => return false,
            }
        }
        false
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Reads `/proc/PID/stat` of a process that has ended and was not yet waited for by its parent;
/// `None` for any other. The last field is the wait status: its low seven bits are the signal.
fn fate(stat: &str) -> Option<Fate> {
    // The name, in brackets, may contain anything.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    if fields.next()? != "Z" {
        return None;
    }
    let status: u32 = fields.next_back()?.parse().ok()?;
    Some(if status & 0x7f == 0 { Fate::Exited } else { Fate::Killed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_tells_how_it_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert_eq!(fate(&stat()), None, "it lives");
        process.signal(Signal::KILL).unwrap();
        assert!(process.ended(None));
        assert_eq!(fate(&stat()), Some(Fate::Killed));
        child.wait().unwrap();

        let mut child = Command::new("false").spawn().unwrap();
        assert!(Process::open(child.id()).unwrap().ended(None));
        assert_eq!(fate(&fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap()), Some(Fate::Exited));
        child.wait().unwrap();
        assert_eq!(fate("12 (a) Z b) R 1 2 9"), None);
    }

    #[test]
    fn our_processes_are_known_by_the_socket_in_their_command_line() {
        let system = System::new("/run/x/server-1.sock".into(), Vec::new());
        let mut child = Command::new("cat").args(["-", "/run/x/server-1.sock"]).stdin(Stdio::piped()).spawn().unwrap();
        assert!(system.is_ours(child.id()));
        assert!(!system.is_ours(std::process::id()));
        assert!(system.is_current(std::process::id()), "who asks is what is started");
        assert!(!system.is_current(child.id()), "another program");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
