//! The daemon from its start to its end: directory, sockets, threads, and the time.
//!
//! Threads: one serves the clients that connect, say hello and wait (`lobby.rs`); one accepts text
//! connections; one serves each text connection and one each server connection (`servers.rs`), all
//! bounded (`doors.rs`); one waits for each server process, one for signals; the caller's thread
//! keeps the time. All of them meet under one lock in [`Daemon::feed`].

use crate::daemon::Daemon;
use crate::directory::{Claim, PipeDirectory};
use crate::doors::LEAST;
use crate::heartbeat;
use crate::inherited::{self, Inherited, Sockets};
use crate::ledger::Standing;
use crate::leftovers;
use crate::log;
use crate::options::{DaemonError, Options};
use crate::registry::Event;
use cumux_link::{FolderError, Listener, Process};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A look at a daemon that runs, for a supervisor that asks for signs of life.
#[derive(Clone)]
pub struct Alive(Arc<Daemon>);

impl std::fmt::Debug for Alive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alive")
    }
}

impl Alive {
    /// Comes back when the daemon makes progress: no thread keeps the lock under which everything
    /// happens. Of a daemon that is stuck it never comes back.
    pub fn check(&self) {
        drop(self.0.core());
    }
}

/// Serves one pipe directory until `quit` or a signal, on sockets of its own or, if there are any,
/// on the inherited ones. Calls `ready` when clients can connect. Returns true if every server
/// ended well.
///
/// # Errors
/// The directory belongs to another daemon or cannot be used. Nothing is left behind then.
pub fn run(options: Options, inherited: Vec<Inherited>, ready: impl FnOnce(Alive)) -> Result<bool, DaemonError> {
    if options.multiuser && !rustix::process::geteuid().is_root() {
        return Err(DaemonError::NotRoot);
    }
    if options.static_partitions && !options.cards.is_empty() {
        return Err(DaemonError::PartitionsPerCard);
    }
    let limit = cumux_link::limit::raise();
    if limit < LEAST {
        return Err(DaemonError::TooFewDescriptors { limit, least: LEAST });
    }
    let directory = PipeDirectory::at(&options.pipe);
    let (claim, sockets) = if inherited.is_empty() {
        (directory.claim()?, None)
    } else {
        let claim = directory.claim_beside_sockets()?;
        // At once: until then the kernel names another process to programs that connect.
        let sockets = inherited::take_over(&claim, inherited)?;
        (claim, Some(sockets))
    };
    log::check(&options.log)?;
    let daemon = Daemon::new(options)?;
    let result = daemon.serve(&claim, sockets, ready);
    drop(claim);
    result
}

/// Makes the sockets in the pipe directory.
fn listen(claim: &Claim) -> Result<Sockets, DaemonError> {
    let directory = claim.directory();
    let failed = |path: PathBuf| move |cause| DaemonError::Listen { path, cause };
    let text = UnixListener::bind(directory.control()).map_err(failed(directory.control()))?;
    let packets = Listener::bind(&directory.cumux()).map_err(io::Error::other).map_err(failed(directory.cumux()))?;
    claim.open_to_all().map_err(FolderError::into_io).map_err(failed(directory.path().to_owned()))?;
    Ok(Sockets { text, packets })
}

impl Daemon {
    fn serve(self: &Arc<Self>, claim: &Claim, inherited: Option<Sockets>, ready: impl FnOnce(Alive)) -> Result<bool, DaemonError> {
        let directory = claim.directory();
        let is_inherited = inherited.is_some();
        let Sockets { text, packets } = match inherited {
            Some(sockets) => sockets,
            None => listen(claim)?,
        };
        self.watch_signals()?;
        heartbeat::watch(self)?;
        self.note_environment();
        self.note(&format!("Starting control daemon using socket {}", directory.control().display()));
        if is_inherited {
            self.note("The sockets were opened by the supervisor that has started this daemon, and stay when it ends");
        }
        self.note(&format!("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}", self.options.pipe.display()));
        self.note("CUDA MPS Control binary version: 13000");
        if self.options.ready_devices || self.options.static_partitions || !self.options.cards.is_empty() {
            // A failure is in the log, and in the answer to `device_query`. The daemon can still
            // serve once the cause has gone.
            let _ = self.known_devices();
        }
        // Before the first client: it must not get a second server beside one that still lives.
        self.await_earlier_servers()?;
        self.open_groups();
        let daemon = Arc::clone(self);
        thread::Builder::new().name("texts".into()).spawn(move || daemon.accept_texts(&text))?;
        let daemon = Arc::clone(self);
        thread::Builder::new().name("lobby".into()).spawn(move || daemon.receive_guests(&packets))?;
        ready(Alive(Arc::clone(self)));
        let clean = self.keep_time();
        for pid in leftovers::end(&self.options.pipe) {
            self.note(&format!("Process {pid} of a server that had ended before was ended"));
        }
        let core = self.core();
        core.holders.forget();
        core.ledger.forget();
        drop(core);
        self.core().doors.end();
        self.log.finish(&format!("Exit with status {}", i32::from(!clean)));
        Ok(clean)
    }

    /// Waits for the registry's deadlines until the daemon is done, then until the last text answer
    /// has been sent.
    fn keep_time(self: &Arc<Self>) -> bool {
        let mut core = self.core();
        let clean = loop {
            if let Some(clean) = core.finished {
                break clean;
            }
            let now = Instant::now();
            match core.registry.deadline() {
                Some(at) if at <= now => {
                    self.feed_locked(&mut core, Event::Tick);
                    self.changed.notify_all();
                }
                Some(at) => core = self.changed.wait_timeout(core, at - now).unwrap_or_else(PoisonError::into_inner).0,
                None => core = self.changed.wait(core).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let until = Instant::now() + Duration::from_secs(1);
        while self.texts.taken() > 0 {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
            core = self.changed.wait_timeout(core, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        clean
    }

    /// Expects the servers of an earlier daemon, which will connect. A lost server gets a
    /// successor, because its processes and clients would otherwise wait in vain.
    fn await_earlier_servers(self: &Arc<Self>) -> io::Result<()> {
        let left = self.core().ledger.left();
        for (pid, duty) in left {
            self.feed(Event::Left { pid, duty });
            let Some(pid) = pid else { continue };
            let process = Process::open(pid).ok();
            // Checked again: the pidfd now refers to the process that the ledger means.
            let process = process.filter(|_| !matches!(self.core().ledger.standing(pid, duty.uid), Standing::Stranger));
            self.forget_at_its_end(pid, process)?;
        }
        Ok(())
    }

    fn watch_signals(self: &Arc<Self>) -> Result<(), DaemonError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(DaemonError::Signals)?;
        let daemon = Arc::clone(self);
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                daemon.note(&format!("Signal {signal}: shutting down"));
                daemon.feed(Event::Quit { timeout: Some(Duration::ZERO) });
            }
        })?;
        Ok(())
    }
}
