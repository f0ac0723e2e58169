//! The executor: rings in, device calls out. One process, one fault domain, disposable.
//!
//! It owns a device and serves sessions that the server attaches. Everything it knows of a client
//! is in that client's journal and in the keeper, so that another executor can go on where this one
//! died. As a standby it holds the sessions' files and waits for `Activate`.
//!
//! Threads: one that talks to the server ([`run`]), a few for intake ([`intake`]), the device's
//! own, and one for each module that is being loaded.
//!
//! # Modules
//!
//! Each module uses only those below it.
//!
//! ```text
//! (this one)     the server's messages, the start of an executor and its activation
//! release        letting go of a session that goes on in another executor
//! open           opening a session: a new one, or one that a predecessor served
//! preload        modules that a standby loads before it is needed
//! intake         the threads that look at the rings of their sessions in turn
//! sink           where a device reports: finds the session
//! turn  orders   what the intake does with a session; what the server wants of it
//! control        records that belong to no stream, and barriers
//! textures       arrays and texture objects of the device's driver
//! background     slow requests, on threads of their own
//! lending        what clients lend each other
//! reports        what a device has reported, and the lock behind which that is delivered
//! drive          starts what can start
//! memory         a session's device memory
//! peering        a session's devices that reach each other's memory
//! session        a session's state, and what is written down of it (`session::commit`)
//! kept_images    the images of modules, as the keeper has them
//! shared         what all sessions share: cards, arena, keeper, accounts, the fair queue
//! ```
//!
//! Below them lie modules that know no session and use each other downward, too: `cards` (all
//! devices as one) and `together` (their sink), `files`, `objects` and `stream` (parts of a
//! session's state), `suspicion` and `replay_safety` (judgements), `arena`, `heap` and `extents`
//! (ranges of addresses), `loans` (what is lent to whom), `images`, `mailbox`, `assigned` and
//! `fair_queues` (messages, the lanes of clients and their turns), `workers`, `error`. `fuzzing`
//! drives them for the fuzz targets.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

mod arena;
mod assigned;
mod background;
mod cards;
mod chains_ahead;
mod control;
mod departures;
mod drive;
mod error;
mod extents;
mod fair_queues;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod heap;
mod images;
mod intake;
mod kept_images;
mod lending;
mod loans;
mod mailbox;
mod memory;
mod objects;
mod open;
mod orders;
mod peering;
mod preload;
mod recipes;
mod release;
mod replay_safety;
mod reports;
mod session;
mod shared;
mod sink;
#[cfg(test)]
mod stories;
mod stream;
mod suspicion;
mod textures;
mod together;
mod turn;
mod workers;

use crate::cards::Cards;
pub use crate::error::ExecutorError;
use crate::files::Files;
use crate::intake::Intake;
use crate::mailbox::{Letter, Mailboxes, Outbox};
use crate::open::Terms;
use crate::preload::Preloader;
use crate::session::{Session, Sessions};
use crate::shared::Shared;
use crate::sink::{Leaving, Reports};
use crate::suspicion::{Case, Ended, Ruling, Trials};
use cumux_device::{DeviceError, Fault};
use cumux_device::{Open, Sink};
use cumux_environment::steps::{self, Step};
use cumux_keeper::Hope;
use cumux_keeper::client::Keeper;
use cumux_link::{Connection, LinkError};
use cumux_wire::VERSION;
use cumux_wire::message::{CLIENTS_A_PACKET, ClientStatus, DeviceGrant, FromExecutor, Hello, Scope, SessionConfig, ToExecutor};
use cumux_wire::result;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How an executor is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's socket.
    pub server: PathBuf,
    /// Device names, in the order in which clients see them.
    pub devices: Vec<String>,
    /// Whom it is to serve.
    pub scope: Scope,
}

/// How long an executor that serves sessions waits for a new server.
const SERVER_RETURN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an executor that serves nobody yet waits for its server.
const FIRST_SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an executor that cannot serve waits until the server has heard why.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a server that is not there is looked for.
const RETRY: Duration = Duration::from_millis(20);

struct Executor {
    sink: Arc<Reports>,
    shared: Arc<Shared>,
    intake: Arc<Intake>,
    /// Attached while standby: opened when activated.
    waiting: BTreeMap<u32, (SessionConfig, Files)>,
    /// What an earlier server had told the standby, for a server that was made again and knows of
    /// nobody.
    remembered: BTreeMap<u32, (SessionConfig, Files)>,
    preloader: Preloader,
    /// 0 = standby.
    generation: u32,
    /// Whom it was started for.
    scope: Scope,
}

impl Executor {
    /// Whom it serves now.
    fn scope(&self) -> Scope {
        if self.sink.is_apart() { Scope::Rest } else { self.scope }
    }
}

/// Opens the device, connects to the server and serves until told to quit or left alone.
///
/// # Errors
/// [`ExecutorError`] when the device cannot be opened or the server never answers.
pub fn run(options: &Options, opener: &dyn Open) -> Result<(), ExecutorError> {
    steps::heed(&options.devices);
    let mut hope = Hope::of(&options.server);
    let sessions = Sessions::default();
    let (outbox, outgoing) = Outbox::new();
    let (outbox, mailboxes) = (Arc::new(outbox), Arc::new(Mailboxes::new(intake::lanes())));
    let sink = Arc::new(Reports::new(sessions.clone(), mailboxes.clone(), outbox.clone()));
    let reports: Arc<dyn Sink> = sink.clone();
    let begun = Instant::now();
    let cards = match Cards::open(&options.devices, opener, &reports) {
        Ok(cards) => cards,
        Err(error) => {
            report_failure(options, &mut hope, &error.to_string());
            return Err(error.into());
        }
    };
    tracing::debug!(took = ?begun.elapsed(), "the devices are open");
    let facts = cards.all_facts();
    let shared = Arc::new(Shared::new(cards, mailboxes, outbox.clone())?);
    let intake = Intake::new(sessions, shared.clone())?;
    intake.start()?;
    let leaving = if shared.cards.capabilities().exclusive.is_none() { Leaving::Possible } else { Leaving::Impossible };
    sink.set_lanes(intake.clone(), leaving);
    sink.set_shared(&shared);
    let line: Arc<Mutex<Option<Connection>>> = Arc::default();
    let (sender, beating) = (line.clone(), intake.clone());
    std::thread::Builder::new()
        .name("reports".into())
        .spawn(move || send_reports(&outgoing, &outbox, &sender, &beating))
        .map_err(|_| rustix::io::Errno::AGAIN)?;
    let (waiting, remembered, preloader) = (BTreeMap::new(), BTreeMap::new(), Preloader::default());
    let mut executor = Executor { sink, shared, intake, waiting, remembered, preloader, generation: 0, scope: options.scope };
    loop {
        // What a standby has to open is the server's to say; the next server says it all again.
        executor.remembered.append(&mut executor.waiting);
        let connection = connect(&options.server, &mut hope, executor.generation > 0)?;
        let hello = Hello::Executor {
            version: VERSION,
            pid: std::process::id(),
            generation: executor.generation,
            serving: executor.generation > 0,
            devices: facts.clone(),
            scope: executor.scope(),
            stripe: executor.shared.arena.lock().stripe(),
            first_queue: executor.shared.cards.first_queue(),
        };
        if connection.send(&hello, &[]).is_err() {
            // That server has just gone, too.
            std::thread::sleep(RETRY);
            continue;
        }
        *line.lock() = Some(connection.try_clone()?);
        match executor.serve(&connection) {
            Err(ExecutorError::Link(LinkError::Closed | LinkError::System(_))) => *line.lock() = None,
            other => return other,
        }
    }
}

/// Tells the server why this process ends, so that its clients hear more than that nobody serves
/// them.
fn report_failure(options: &Options, hope: &mut Hope, why: &str) {
    let (version, pid, scope) = (VERSION, std::process::id(), options.scope);
    let hello = Hello::Executor { version, pid, generation: 0, serving: false, devices: Vec::new(), scope, stripe: 0, first_queue: 0 };
    if let Ok(connection) = connect(&options.server, hope, false)
        && connection.send(&hello, &[]).is_ok()
        && connection.send(&FromExecutor::Failed { why: why.to_owned() }, &[]).is_ok()
        && connection.set_timeout(Some(LAST_WORD_TIMEOUT)).is_ok()
    {
        // A process that is seen to end before its hello was read would not be asked why. The
        // server says quit when it has heard it.
        while connection.receive::<ToExecutor>().is_ok_and(|(message, _)| message != ToExecutor::Quit) {}
    }
}

/// Reports go out in order, and wait for the next server where there is none. Between them the
/// server hears how often the intake has come round.
fn send_reports(outgoing: &mpsc::Receiver<Letter>, outbox: &Outbox, line: &Mutex<Option<Connection>>, intake: &Intake) {
    let every = intake.beat_every();
    let mut told = Instant::now();
    let mut beats = intake::Beats::default();
    loop {
        let next = match every {
            Some(every) => outgoing.recv_timeout((told + every).saturating_duration_since(Instant::now())),
            None => outgoing.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
        };
        match next {
            Ok((message, descriptors)) => {
                let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                loop {
                    let sent = line.lock().as_ref().map(|connection| connection.send(&message, &descriptors));
                    match sent {
                        Some(Ok(()) | Err(LinkError::TooLong(_) | LinkError::Format(_))) => break,
                        _ => std::thread::sleep(RETRY),
                    }
                }
                outbox.sent();
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        if every.is_some_and(|every| told.elapsed() >= every) {
            told = Instant::now();
            // Without a server nobody wants to know.
            let beat = FromExecutor::Beat { lanes: beats.of(intake) };
            let _ = line.lock().as_ref().map(|connection| connection.send(&beat, &[]));
        }
    }
}

fn connect(path: &Path, hope: &mut Hope, serving: bool) -> Result<Connection, ExecutorError> {
    let until = Instant::now() + if serving { SERVER_RETURN_TIMEOUT } else { FIRST_SERVER_TIMEOUT };
    loop {
        match Connection::connect(path) {
            Ok(connection) => return Ok(connection),
            Err(error @ LinkError::Foreign(_)) => return Err(error.into()),
            Err(error) if Instant::now() >= until || hope.is_lost(Instant::now()) => return Err(error.into()),
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

impl Executor {
    fn serve(&mut self, connection: &Connection) -> Result<(), ExecutorError> {
        // A server that died with unread messages resets the connection once; what it had sent is
        // still there behind that.
        let mut resets = 0;
        loop {
            let (message, descriptors) = match connection.receive::<ToExecutor>() {
                Err(LinkError::Closed) if resets == 0 => {
                    resets = 1;
                    continue;
                }
                other => other?,
            };
            match message {
                ToExecutor::Keeper { number } => self.keeper(number, descriptors)?,
                ToExecutor::Attach { session, unexplained_after_ms } => self.attach(session, descriptors, how_ended(unexplained_after_ms)),
                ToExecutor::Detach { session, comes_later } => self.detach(session, comes_later),
                ToExecutor::Terminate { session, result } => self.terminate(session, result),
                ToExecutor::Sessions { request } => self.name_sessions(request),
                ToExecutor::Activate { generation, unexplained_after_ms, stripe } => {
                    self.shared.arena.lock().set_stripe(stripe);
                    self.activate(generation, how_ended(unexplained_after_ms));
                }
                ToExecutor::Release { session, wait_ms, unless_still } => {
                    self.release(session, release::Terms { wait: Duration::from_millis(wait_ms), unless_still });
                }
                ToExecutor::SpareDriver { spare } if self.generation == 0 => self.preloader.rest(spare),
                ToExecutor::SpareDriver { spare } => self.shared.cards.spare_driver(spare),
                ToExecutor::Unconfine { session } => self.unconfine(session),
                ToExecutor::Share { request, session, parts } => self.share(request, session, parts),
                ToExecutor::Metrics { request } => self.metrics(request),
                ToExecutor::Server { pid } => {
                    // The server has told a standby of every session that it knows.
                    if self.generation == 0 {
                        self.remembered.clear();
                        self.preloader.retain(&self.waiting);
                    }
                    for session in self.intake_sessions() {
                        session.service.set_server(pid);
                        session.service.notify();
                    }
                }
                ToExecutor::Retire => self.sink.retire(),
                ToExecutor::Quit if self.sink.has_lost_device() => sink::end_at_once(),
                ToExecutor::Quit => return Ok(()),
            }
        }
    }

    /// In packets of a size that a socket takes.
    fn metrics(&self, request: u64) {
        let mut clients: Vec<_> = self.intake_sessions().iter().map(|s| s.status()).collect();
        while clients.len() > CLIENTS_A_PACKET {
            let rest = clients.split_off(CLIENTS_A_PACKET);
            self.shared.report(FromExecutor::Metrics { request, clients, more: true });
            clients = rest;
        }
        self.shared.report(FromExecutor::Metrics { request, clients, more: false });
    }

    fn intake_sessions(&self) -> Vec<Arc<Session>> {
        self.intake.sessions()
    }

    /// Names all sessions that it serves, or that it would have had to serve, with their files.
    fn name_sessions(&self, request: u64) {
        let name = |config: SessionConfig, files: &Files| self.shared.report_with(FromExecutor::Serves { request, session: Box::new(config) }, files.share());
        for session in self.intake_sessions() {
            name(session.present_config(), &session.files);
        }
        for (config, files) in self.remembered.values() {
            name(config.clone(), files);
        }
        self.shared.report(FromExecutor::ServesEnd { request });
        self.intake_sessions().iter().for_each(|session| session.ask_again());
    }

    fn keeper(&self, number: u64, descriptors: Vec<OwnedFd>) -> Result<(), ExecutorError> {
        let [socket] = cumux_link::connection::exactly(descriptors)?;
        self.shared.set_keeper(number, Keeper::over(socket).map_err(|e| ExecutorError::Keeper(e.to_string()))?);
        // A keeper that was replaced knows nothing yet. Should it go too, the server sends the next
        // one.
        let sessions = self.intake_sessions();
        let kept = self.shared.rekeep_images().and_then(|()| sessions.iter().try_for_each(|session| session.rekeep()));
        self.shared.keep_recipes(sessions.iter().map(|session| session.client()), |id| self.intake_sessions().iter().any(|session| session.client() == id));
        if let Err(error) = kept {
            tracing::warn!("the new keeper did not take everything: {error}");
        }
        Ok(())
    }

    fn attach(&mut self, config: SessionConfig, descriptors: Vec<OwnedFd>, ended: Ended) {
        let id = config.id;
        self.remembered.remove(&id);
        let outcome = Files::new(descriptors, config.group.is_some()).and_then(|files| {
            if self.generation == 0 {
                self.preloader.expect(&self.shared, &config, &files);
                self.waiting.insert(id, (config, files));
                return Ok(());
            }
            // The server repeats Attach to whoever it is not sure about.
            if self.intake.has(id) {
                return Ok(());
            }
            // Said before the server had heard that others have left.
            if !self.sink.begin_opening(id) {
                return Ok(());
            }
            steps::pass(Step::AttachBegun);
            // It comes back.
            self.shared.free_addresses(id);
            // Trials are for takeovers: what it had under way is begun again at once.
            let terms = Terms { generation: self.generation, ended, on_hold: false };
            let opened = open::open(&self.shared, &self.intake, config, files, &terms);
            self.sink.end_opening(id);
            opened?;
            steps::pass(Step::AttachDone);
            self.no_longer_expected(id);
            self.shared.drop_unused_images(&HashSet::new());
            Ok(())
        });
        if outcome.as_ref().is_err_and(|error| self.is_the_next_ones(error)) {
            // It is the next executor's, which the server hears next.
            return;
        }
        let again = matches!(outcome, Err(ExecutorError::Keeper(_)));
        let error = outcome.err().map(|e| e.to_string()).unwrap_or_default();
        if self.generation > 0 || !error.is_empty() {
            self.shared.report(FromExecutor::Attached { session: id, error, again });
        }
    }

    /// Whether what could not be opened here can be in the next executor: the device is lost, or
    /// all leave. The server hears that.
    fn is_the_next_ones(&self, error: &ExecutorError) -> bool {
        self.sink.is_apart() || matches!(error, ExecutorError::Device(DeviceError::Lost(_) | DeviceError::LetGo(_)))
    }

    /// A client has gone, or has come: no modules wait for it any more.
    fn no_longer_expected(&mut self, id: u32) {
        if self.preloader.forget(id) && self.generation > 0 {
            self.preloader.clear(&self.shared);
        }
    }

    fn detach(&mut self, id: u32, comes_later: bool) {
        self.waiting.remove(&id);
        if !comes_later {
            self.no_longer_expected(id);
        }
        self.remembered.remove(&id);
        self.shared.free_addresses(id);
        if let Some(session) = self.intake.remove(id) {
            let closed = session.close();
            if let Some(recorder) = &self.shared.recorder {
                recorder.flush();
            }
            match closed {
                Ok(status) => self.shared.report(FromExecutor::Detached { status: Box::new(status) }),
                Err(error) => {
                    tracing::error!("session {id} did not close cleanly: {error}");
                    self.shared.report(FromExecutor::Detached { status: Box::new(session.status()) });
                }
            }
        } else if self.generation > 0 {
            self.shared.report(FromExecutor::Detached { status: Box::new(cumux_wire::message::ClientStatus { session: id, ..Default::default() }) });
        }
    }

    /// Lets go of a session, on another thread: that waits until its streams are empty.
    fn release(&self, id: u32, terms: release::Terms) {
        let refused = |why: &str| {
            let status = Box::new(ClientStatus { session: id, ..ClientStatus::default() });
            self.shared.report(FromExecutor::Released { error: why.to_owned(), status, paused_us: 0, lasting: false });
        };
        let Some(session) = self.intake_sessions().into_iter().find(|s| s.client() == id) else {
            return refused("its executor does not have it at the moment");
        };
        let (shared, intake) = (self.shared.clone(), self.intake.clone());
        if !self.shared.workers.run_soon(move || release::release(&shared, &intake, &session, &terms)) {
            refused("the system has no thread for it; look at the limits of this user (ulimit -u)");
        }
    }

    fn unconfine(&self, id: u32) {
        if let Some(session) = self.intake_sessions().into_iter().find(|s| s.client() == id) {
            session.unconfine();
        }
    }

    fn terminate(&self, id: u32, result: u32) {
        if let Some(session) = self.intake_sessions().into_iter().find(|s| s.client() == id) {
            let fault = cumux_device::Fault { result, text: "the client was terminated by the administrator".into() };
            session.lock_then_deliver(|inner| session.fault(inner, &fault));
        }
    }

    fn share(&mut self, request: u64, id: u32, parts: Vec<DeviceGrant>) {
        if let Some((config, _)) = self.waiting.get_mut(&id) {
            config.parts = parts;
            return;
        }
        let error = match self.intake_sessions().into_iter().find(|s| s.client() == id) {
            Some(session) => session.set_parts(&parts).err().map(|e| e.to_string()).unwrap_or_default(),
            None if self.generation > 0 => "its executor does not have it at the moment; try again".to_owned(),
            None => return,
        };
        self.shared.report(FromExecutor::Shared { request, session: id, error });
    }

    fn activate(&mut self, generation: u32, ended: Ended) {
        let begun = Instant::now();
        steps::pass(Step::TakeoverBegun);
        self.generation = generation;
        self.remembered.clear();
        self.preloader.end();
        let terms = Terms { generation, ended, on_hold: true };
        let (mut cases, mut lost) = (BTreeMap::new(), Vec::new());
        for (id, (config, files)) in std::mem::take(&mut self.waiting) {
            self.preloader.forget(id);
            // All may have left already, beside the kernel of one that was opened first.
            if !self.sink.begin_opening(id) {
                continue;
            }
            let opened = open::open(&self.shared, &self.intake, config, files, &terms);
            self.sink.end_opening(id);
            match opened {
                Ok(case) => {
                    cases.insert(id, case);
                }
                // It is the next executor's.
                Err(error) if self.is_the_next_ones(&error) => {}
                Err(error) => lost.push((id, error.to_string())),
            }
        }
        let consequences = self.shared.loans.lock().settle(true);
        self.shared.settle_loans(consequences);
        steps::pass(Step::TakeoverOpened);
        let suspects = self.judge(&cases, ended);
        steps::pass(Step::TakeoverDone);
        tracing::info!("active as generation {generation} after {:?}: {} sessions, {} lost", begun.elapsed(), cases.len(), lost.len());
        self.shared.report(FromExecutor::Active { generation, resumed: cases.into_keys().collect(), lost, suspects });
        self.shared.drop_unused_images(&HashSet::new());
        self.preloader.clear(&self.shared);
    }

    /// Lets all sessions go on but those whose work may have been the end of the executors before.
    /// Returns whom it suspects.
    fn judge(&self, cases: &BTreeMap<u32, Case>, ended: Ended) -> Vec<u32> {
        let Ruling { guilty, trials, acquitted } = suspicion::judge(cases, ended);
        for session in self.intake_sessions() {
            let id = session.client();
            let Some(case) = cases.get(&id) else { continue };
            if guilty.contains(&id) {
                let text = format!(
                    "the service ended {} times while this client's work was under way, and it is not done again: it may need more memory than the machine has; \
                     server.log says how the executors ended",
                    case.deaths()
                );
                session.lock_then_deliver(|inner| session.fault(inner, &Fault { result: result::LAUNCH_FAILED, text }));
            }
            if acquitted.contains(&id) {
                session.lock_then_deliver(|inner| suspicion::acquit(&inner.journal));
            }
            if !trials.contains(&id) {
                session.end_hold(Vec::new());
            }
        }
        if !trials.is_empty() {
            tracing::warn!("{} clients had work under way when executors ended; they are tried one at a time", trials.len());
            let leads = trials.iter().map(|id| (*id, cases.get(id).map(Case::leads).unwrap_or_default()));
            *self.shared.trials.lock() = Trials::new(leads, ended);
            trials.iter().for_each(|client| self.shared.wake_intake(*client));
        }
        guilty.into_iter().chain(trials).collect()
    }
}

/// How the executor before ended, as the server says it.
fn how_ended(unexplained_after_ms: Option<u64>) -> Ended {
    unexplained_after_ms.map_or(Ended::Explained, |ms| Ended::Unexplained { after: Duration::from_millis(ms) })
}
