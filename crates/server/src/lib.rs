//! The server of one user: sessions, liveness, and the processes that do the work. It owns no
//! device, so no fault of a device can end it.
//!
//! Invariants:
//! - One thread owns all state ([`core`]); everything else only forwards [`event::Event`]s. It
//!   never waits for a client, an executor, the keeper or the daemon.
//! - What a session needs to live on is in the keeper before the client hears of it, so a new
//!   server can be made from the keeper; the executors can name their sessions, too ([`rebuild`]).
//! - A client's process is known by its process handle. A window slot is given out again only when
//!   no executor can use it any more.
//! - Two executors never serve the same session: one takes over when its predecessor's process has
//!   ended, or has said that it touches the session no more: because its device is lost, because
//!   the session has left beside work that does not end ([`executors`]), or because it is moved
//!   ([`moving`]).
//! - Nobody waits for ever: a session that the executor does not take gets a sticky error in its
//!   page at once. Keeper and executors that stand still are replaced.
//!
//! # Modules
//!
//! Each module uses only those below it.
//!
//! ```text
//! (this one)  options and limits; starting a server
//! serve       the loop: one event at a time, then every step that is due
//! returning   devices that could not be opened are tried again
//! upgrade     all processes are replaced by those of another program
//! rebuild     going on with what an earlier server left
//! keeping     the keeper is started, given what it has to keep, and replaced
//! executors   executors are started, told of sessions, and take over from one another
//! own         executors of one session alone
//! moving      a session goes from one executor to another
//! ending      the way to the end
//! shares      another share for a client that runs
//! questions   what the daemon wants to know of clients, or to have done with them
//! clients     clients arrive, are welcomed, and leave
//! confine     unbounded kernels begin in executors of their own
//! home        where sessions are to be
//! apart       executors that serve some sessions alone
//! trial       a new program of which no executor has served yet
//! core        all state, and what every module above may do with it
//! event       what can happen, and the threads that only say so
//! worker      one executor, as a state machine
//! keeper      the keeper, and how it is asked
//! session     one client and its files
//! groups      the accounts of groups
//! host        processes: starting, watching and ending them
//! ```
//!
//! Any of them may use the small modules `watch` (ends of processes), `outbox` (sending without
//! waiting), `come_back` (for how long a client stays apart), `log`, `fault_log` and `state_file`.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

mod apart;
mod calm;
mod clients;
mod come_back;
mod confine;
mod core;
mod ending;
mod event;
mod executors;
mod fault_log;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod home;
pub mod host;
mod keeper;
mod keeping;
mod log;
mod moving;
mod outbox;
mod own;
mod questions;
mod rebuild;
mod returning;
mod serve;
mod session;
mod shares;
mod state_file;
mod trial;
mod upgrade;
mod watch;
mod worker;

use cumux_link::waits::Waits;
use cumux_link::{Folder, FolderError, LinkError, Listener};
use event::Event;
use host::{Host, System};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// What a server is told when it is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The pipe directory.
    pub pipe: PathBuf,
    /// The log directory; without one, lines go to standard error.
    pub log: Option<PathBuf>,
    /// As in `--device`, in order: `sim:h200`.
    pub devices: Vec<String>,
    /// Whose programs it serves.
    pub uid: u32,
}

impl Options {
    /// Where keeper and executors meet this server.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.pipe.join(format!("server-{}.sock", self.uid))
    }

    /// Where the faults of the user's clients are written down.
    #[must_use]
    pub fn fault_file(&self) -> PathBuf {
        self.pipe.join(format!("faults-{}.json", self.uid))
    }

    fn state_file(&self) -> PathBuf {
        self.pipe.join(format!("server-{}.json", self.uid))
    }
}

/// Limits that tests make smaller.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Clients at once; `CUMUX_MAX_CLIENTS`.
    pub clients: usize,
    /// Without daemon and clients for so long: nobody needs this server.
    pub lonely: Duration,
    /// How long an executor may take to answer for its metrics.
    pub metrics: Duration,
    /// How long the end of a client may take. The daemon waits a little longer.
    pub terminate: Duration,
    /// How long a process may stand still; none = for ever. `CUMUX_HEARTBEAT_MS`.
    pub heartbeat: Option<Duration>,
    /// Executors that stand by at most, where faults follow each other quickly; `CUMUX_STANDBYS`.
    /// Each has a context on the card.
    pub standbys: usize,
    /// Whether clients with unbounded kernels get executors of their own; no with
    /// `CUMUX_UNBOUNDED_KERNELS=shared`.
    pub confines: bool,
    /// Which addresses clients get; [`Addresses::Upper`] with `CUMUX_BENEATH=1`.
    pub addresses: Addresses,
    /// How long after an executor began to serve without one of its devices that is tried again,
    /// for the first time; none = never. `CUMUX_DEVICE_RETRY_MS`, 0 = never.
    pub device_retry: Option<Duration>,
    /// How long processes may take to come up, and moves and upgrades altogether.
    pub waits: Waits,
    /// How long an executor may live after its connection ended, and processes after they were told
    /// to quit.
    pub quit: Duration,
    /// A standby has loaded the modules of its clients by then, usually: those of eight ResNet-50
    /// workers take 0.55 s on an H200.
    pub prepares: Duration,
    /// A fault is handled by then, or takes too long for an executor that comes up to wait.
    pub calm: Duration,
    /// If so many executors die within [`Limits::storm_time`] the server gives up.
    pub storm: usize,
    /// See [`Limits::storm`].
    pub storm_time: Duration,
}

/// Which addresses clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// All, the lower ones first.
    Lower,
    /// The last stripe of the arena and the upper half of the windows: another cumux, which is a
    /// client of this one, has the others for clients of its own. For tests.
    Upper,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            lonely: Duration::from_secs(10),
            metrics: Duration::from_secs(1),
            terminate: Duration::from_secs(4),
            heartbeat: Some(Duration::from_secs(5)),
            standbys: 3,
            confines: true,
            addresses: Addresses::Lower,
            device_retry: Some(Duration::from_secs(10)),
            waits: Waits::default(),
            quit: Duration::from_secs(2),
            prepares: Duration::from_millis(600),
            calm: Duration::from_millis(1_500),
            storm: 5,
            storm_time: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// As the environment says.
    #[must_use]
    pub fn from_environment() -> Self {
        let clients = cumux_environment::number_or_none("CUMUX_MAX_CLIENTS").and_then(|count| count.try_into().ok()).filter(|count| *count > 0);
        let standbys = cumux_environment::number_or_none("CUMUX_STANDBYS").and_then(|count| count.try_into().ok()).filter(|count| *count > 0);
        let default = Self::default();
        let (clients, standbys) = (clients.unwrap_or(default.clients), standbys.unwrap_or(default.standbys));
        let retry = cumux_environment::number_or_none("CUMUX_DEVICE_RETRY_MS");
        let device_retry = retry.map_or(default.device_retry, |ms| (ms > 0).then(|| Duration::from_millis(ms)));
        let confines = std::env::var("CUMUX_UNBOUNDED_KERNELS").as_deref() != Ok("shared");
        let beneath = cumux_environment::number_or_none("CUMUX_BENEATH") == Some(1);
        let addresses = if beneath { Addresses::Upper } else { Addresses::Lower };
        Self { clients, standbys, confines, addresses, device_retry, heartbeat: cumux_link::pulse::limit(), waits: Waits::from_environment(), ..default }
    }
}

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another process has the lock.
    #[error("another server of user {uid} already serves {}; it will meet the daemon by itself", pipe.display())]
    AlreadyRunning {
        /// Whose programs it serves.
        uid: u32,
        /// The pipe directory.
        pipe: PathBuf,
    },
    /// The pipe directory cannot be trusted or used.
    #[error("cannot use the pipe directory: {cause}. It must belong to the user whose programs are served, and be closed to others")]
    Directory {
        /// What is wrong with it.
        cause: FolderError,
    },
    /// The socket for keeper and executors cannot be made.
    #[error("cannot listen at {}: {cause}", path.display())]
    Listen {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        cause: LinkError,
    },
    /// Threads or descriptors are used up.
    #[error("the system gives no threads or descriptors ({0}); look at the limits of this user (ulimit -u, ulimit -n)")]
    System(#[from] std::io::Error),
}

/// Serves until told to stop, or until nobody needs it.
///
/// # Errors
/// [`ServerError`].
pub fn run(options: Options) -> Result<(), ServerError> {
    cumux_environment::steps::heed(&options.devices);
    let host = System::new(options.socket(), options.devices.clone());
    run_on(options, Limits::from_environment(), host, |events| {
        let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                if !events.stop() {
                    return;
                }
            }
        })?;
        Ok(())
    })
}

/// Lets other threads stop a server.
#[derive(Debug, Clone)]
pub struct Stopper {
    events: Sender<Event>,
}

impl Stopper {
    /// Ends the server and its clients; false if it has ended already.
    #[must_use]
    pub fn stop(&self) -> bool {
        self.events.send(Event::Stop).is_ok()
    }
}

/// [`run`] with everything around it named.
///
/// # Errors
/// [`ServerError`].
pub fn run_on<H: Host>(options: Options, limits: Limits, host: H, with: impl FnOnce(Stopper) -> std::io::Result<()>) -> Result<(), ServerError> {
    cumux_link::limit::raise();
    let folder = Folder::open(&options.pipe).map_err(|cause| ServerError::Directory { cause })?;
    let lock = folder.lock(format!("server-{}.lock", options.uid)).map_err(|cause| ServerError::Directory { cause })?;
    let Some(lock) = lock else { return Err(ServerError::AlreadyRunning { uid: options.uid, pipe: options.pipe }) };
    let socket = options.socket();
    let listener = Arc::new(Listener::bind(&socket).map_err(|cause| ServerError::Listen { path: socket, cause })?);
    let (events, inbox) = channel();
    with(Stopper { events: events.clone() })?;
    let mut core = core::Core::start(options, limits, host.clone(), events.clone())?;
    event::meet_daemon(core.options.pipe.join("cumux"), core.pid, core.options.uid, core.options.devices.clone(), events.clone())?;
    {
        let listener = Arc::clone(&listener);
        std::thread::Builder::new().name("accept".into()).spawn(move || event::accept(&listener, &host, &events))?;
    }
    core.serve(&inbox);
    let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
    let state = core.options.state_file();
    // The next server needs it.
    let over = (core.ending != core::Ending::HandOver).then_some(state.as_path());
    for path in [listener.path()].into_iter().chain(over) {
        let _ = path.file_name().map(|name| folder.remove(name));
    }
    drop(lock);
    Ok(())
}
