//! Clients: arriving, being told apart by their processes, leaving, and what is said of them.

use crate::Addresses;
use crate::core::{Arrival, Core, Ending, Subject};
use crate::fault_log::LONGEST_TEXT;
use crate::host::{Fate, Host};
use crate::session::{ClientSession, Files, Keeping, Seat, parts, shortened};
use cumux_link::connection::exactly;
use cumux_link::{Connection, escape_foreign};
use cumux_wire::VERSION;
use cumux_wire::cuda::{ComputeMode, DeviceAttribute};
use cumux_wire::facts::uuid_text;
use cumux_wire::layout::WINDOWS;
use cumux_wire::message::{self, ClientStatus, DeviceFacts, Grant, Hello, Place, Reply, ToExecutor};
use cumux_wire::result;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How many clients that have gone are remembered.
const GONE: usize = 64;
/// How long a client that was promised a welcome may take to accept the packet.
const WELCOME_TIMEOUT: Duration = Duration::from_millis(100);

impl<H: Host> Core<H> {
    /// The daemon hands a client over.
    pub(crate) fn arrive(&mut self, descriptors: Vec<OwnedFd>, hello: Hello, pid: u32, uid: u32, grant: Grant) {
        let Ok([socket, process]) = exactly::<2>(descriptors) else {
            return self.log.line("A client came without its socket and the handle of its process; it will try again");
        };
        let connection = socket.into();
        let Hello::Client { version, program, .. } = hello else {
            return refuse(&connection, result::MPS_CONNECTION_FAILED, "this is no client's hello");
        };
        self.log.line(&format!("Received new client request for {{PID: {pid}, Context ID: 0}}"));
        let refusal = if version != VERSION {
            Some((
                result::SYSTEM_DRIVER_MISMATCH,
                format!(
                    "this program's libcuda.so.1 speaks version {version} of the cumux protocol and the server {VERSION}; install one version of cumux and start the daemon again"
                ),
            ))
        } else if let Some(why) = &self.broken {
            Some((result::MPS_SERVER_NOT_READY, why.clone()))
        } else if self.ending != Ending::No {
            Some((result::MPS_SERVER_NOT_READY, "the server is shutting down; start the program again".to_owned()))
        } else {
            None
        };
        if let Some((result, why)) = refusal {
            self.turned_away(pid, result, &why);
            return refuse(&connection, result, &why);
        }
        self.clients.arrivals.push_back(Arrival { connection, process: process.into(), pid, uid, program: shortened(&program), grant });
    }

    /// A client that cannot be served, as NVIDIA's server writes it and with the reason.
    fn turned_away(&mut self, pid: u32, result: u32, why: &str) {
        self.log.line(&format!("Failed to accept client {{PID: {pid}, Context ID: 0}} with status {result}"));
        self.log.line(&format!("Client process {pid} was refused: {why}"));
    }

    pub(crate) fn refuse_arrivals(&mut self, result: u32, why: &str) {
        let waited = !self.clients.arrivals.is_empty();
        for arrival in self.clients.arrivals.drain(..) {
            refuse(&arrival.connection, result, why);
        }
        if waited {
            self.count_clients();
        }
    }

    /// Makes sessions of those who wait, once a device is known and the keeper can keep.
    pub(crate) fn admit_arrivals(&mut self) {
        while !self.executors.devices.is_empty() && self.keeper.is_up() {
            let Some(arrival) = self.clients.arrivals.pop_front() else { return };
            self.admit(arrival);
            // Also of one that did not become a client: the daemon has counted it.
            self.count_clients();
        }
    }

    fn admit(&mut self, arrival: Arrival) {
        let Arrival { connection, process: client, pid, uid, program, grant } = arrival;
        // One process has one session: an older one is left from a hello that was given up, or from
        // before an exec.
        let older: Vec<u32> = self.clients.sessions.values().filter(|s| s.about.pid == pid && !s.is_leaving()).map(|s| s.about.id).collect();
        for session in older {
            self.leave(session, Fate::Exited);
        }
        let parts = parts(&self.executors.devices, &grant);
        if parts.is_empty() {
            return refuse(&connection, result::NO_DEVICE, "none of the devices that this program sees is served");
        }
        if let Some(why) = self.why_no_own(grant.home) {
            self.turned_away(pid, result::NOT_SUPPORTED, &why);
            return refuse(&connection, result::NOT_SUPPORTED, &why);
        }
        // Nobody has anything of one that has failed, but for the client itself.
        let taken: BTreeSet<u32> = self.clients.sessions.values().filter(|s| !s.has_failed()).map(|s| s.about.window_slot).collect();
        let first = if self.limits.addresses == Addresses::Upper { WINDOWS / 2 } else { 0 };
        let slot = (first..WINDOWS).find(|slot| !taken.contains(slot));
        // An executor may take long to let go of one that has gone: it keeps its window, and nobody
        // out.
        let served = self.clients.sessions.values().filter(|s| s.is_served()).count();
        let (Some(window_slot), true) = (slot, served < self.limits.clients) else {
            let why = format!("{} clients are connected already; end some, or start the daemon with a larger CUMUX_MAX_CLIENTS (at most {WINDOWS})", served);
            self.turned_away(pid, result::MPS_MAX_CLIENTS_REACHED, &why);
            return refuse(&connection, result::MPS_MAX_CLIENTS_REACHED, &why);
        };
        if !client.is_alive() || has_hung_up(&connection) {
            return self.log.line(&format!("Client process {pid} was gone before it could be served"));
        }
        let full = grant.group.as_ref().filter(|group| group.clients != 0 && self.clients.count_members(&group.name) >= group.clients);
        if let Some(group) = full {
            let why = format!(
                "group {} has {} clients, and no more are allowed: end some, or raise the number (cumux group set {} clients=NUMBER)",
                group.name, group.clients, group.name
            );
            self.turned_away(pid, result::MPS_MAX_CLIENTS_REACHED, &why);
            return refuse(&connection, result::MPS_MAX_CLIENTS_REACHED, &why);
        }
        let id = self.clients.next_session;
        let made = Files::create(client.into())
            .map_err(|error| error.to_string())
            .and_then(|files| {
                let group = grant.group.as_ref().map(|group| self.clients.groups.join(group, window_slot)).transpose()?;
                Ok(Files { group, ..files })
            })
            .and_then(|files| files.name_server(self.pid).map(|()| files).map_err(|error| error.to_string()))
            .and_then(|files| self.processes.watch(&files.client, Subject::Client(id)).map(|token| (files, token)).map_err(|errno| errno.to_string()));
        let (files, token) = match made {
            Ok(made) => made,
            Err(error) => {
                let why = format!("the server cannot make this client's files: {error}");
                self.log.line(&why);
                return refuse(&connection, result::OUT_OF_MEMORY, &why);
            }
        };
        self.clients.next_session = self.clients.next_session.wrapping_add(1).max(1);
        let about = message::SessionConfig {
            id,
            pid,
            uid,
            program,
            window_slot,
            priority: grant.priority,
            parts,
            sms: grant.sms,
            home: grant.home,
            may_run_unbounded: false,
            group: grant.group.map(|group| message::Membership { group: group.name, one_part: group.share.is_some() }),
        };
        let mut session = ClientSession::new(about, files, token);
        session.greeting = Some(connection);
        // The process has the number 0 in NVIDIA's log, its context 1.
        self.log.line(&format!("Client {{PID: {pid}, Context ID: 0}} connected"));
        self.clients.sessions.insert(id, session);
        self.keep(id);
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        if session.wants_own() {
            return;
        }
        // One apart would take it for its own.
        for (number, worker) in self.executors.workers.iter().filter(|(_, worker)| worker.is_shared() && worker.is_briefed() && !worker.is_dismissed()) {
            if let Some(files) = &session.files {
                worker.send_with(session.attach(), files.share());
                if self.executors.service.active() == Some(*number) {
                    session.seat = Seat::Asked;
                }
            }
        }
    }

    /// Tells a client that it is served, once keeper and executor have what they need.
    pub(crate) fn welcome(&mut self, id: u32) {
        let (Some(session), Some(keeper)) = (self.clients.sessions.get_mut(&id), self.keeper.process()) else { return };
        if session.keeping != Keeping::Kept || !matches!(session.seat, Seat::Taken | Seat::Apart { .. }) {
            return;
        }
        let Some(files) = &session.files else { return };
        let Some(connection) = session.greeting.take() else { return };
        let parts = session.about.parts.iter();
        let limit = |device| session.group().and_then(|group| self.clients.groups.limit(group, device));
        let seen: Vec<&DeviceFacts> = session.about.parts.iter().filter_map(|part| self.executors.devices.get(part.device as usize)).collect();
        let reply = Reply::Welcome {
            version: VERSION,
            session: id,
            window_slot: session.about.window_slot,
            devices: parts.filter_map(|part| Some(as_seen(self.executors.devices.get(part.device as usize)?, limit(part.device)))).collect(),
            parts: session.about.parts.clone(),
            fixed: !session.about.sms.is_empty(),
        };
        let descriptors = [files.ring.as_fd(), files.page.as_fd(), files.window.as_fd(), files.doorbell.as_fd(), self.own.as_fd(), keeper.as_fd()];
        let welcomed = connection.set_timeout(Some(WELCOME_TIMEOUT)).and_then(|()| connection.send(&reply, &descriptors));
        let name = session.name();
        if let Err(error) = welcomed {
            // The program may live on, not served: its process handle alone would keep the session.
            self.log.line(&format!("Client {name} could not be welcomed: {error}"));
            return self.leave(id, Fate::Exited);
        }
        self.log.line(&format!("Client {name} connected"));
        for device in seen {
            self.log.line(&format!("Device {} (uuid {}) is associated", device.name, uuid_text(device.uuid)));
        }
        self.log.line(&format!("Status of client {name} is ACTIVE"));
    }

    /// A client that waits for its welcome gets a sentence instead, and its session ends.
    pub(crate) fn refuse_greeting(&mut self, id: u32, result: u32, why: &str) {
        let Some(connection) = self.clients.sessions.get_mut(&id).and_then(|session| session.greeting.take()) else { return };
        refuse(&connection, result, why);
        self.leave(id, Fate::Exited);
    }

    /// The active executor cannot serve a session: its client is told at once.
    pub(crate) fn not_taken(&mut self, id: u32, why: &str) {
        if self.turn_back(id, why) {
            return;
        }
        let Some(session) = self.clients.sessions.get(&id).filter(|session| !session.is_leaving()) else { return };
        if session.greeting.is_some() {
            self.log.line(&format!("Client {} cannot be served: {why}", session.name()));
            self.refuse_greeting(id, result::MPS_SERVER_NOT_READY, &format!("the executor cannot serve this program ({why}); start it again"));
        } else {
            self.log.line(&format!("Client {} could not go on: {why}", session.name()));
            self.fail_session(id, result::MPS_RPC_FAILURE, why);
        }
    }

    pub(crate) fn client_gone(&mut self, id: u32) {
        let Some(session) = self.clients.sessions.get(&id) else { return };
        let fate = self.host.fate(session.about.pid).unwrap_or(Fate::Exited);
        self.leave(id, fate);
    }

    /// Ends a session: executors let go of it first.
    fn leave(&mut self, id: u32, fate: Fate) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        let (name, failed, seat) = (session.name(), session.has_failed(), session.seat);
        if !session.leave(fate) {
            return;
        }
        let left = self.clients.sessions.values().filter(|s| !s.is_leaving()).count();
        // NVIDIA's spelling, which log readers look for.
        self.log.line(&format!("Server failed to recevie command with status 806, assuming client {name} exit"));
        self.log.line(&format!("Client {name} exiting. Number of active client contexts is {left}."));
        self.answer_movers(id, "its client has gone");
        // Also those that do not have it: they may keep addresses for it.
        for worker in self.executors.workers.values().filter(|worker| worker.is_briefed()) {
            worker.send(ToExecutor::Detach { session: id, comes_later: false });
        }
        if let Some(worker) = seat.elsewhere() {
            // With its last client it ends, and with it what still runs there.
            self.end_if_empty(worker);
            return self.count_clients();
        }
        self.count_clients();
        // Without an active executor nobody has anything of it, and nobody would answer.
        if failed || self.executors.service.active().is_none() {
            self.finish(id, None);
        }
    }

    /// Nothing of the session is left in any executor.
    pub(crate) fn finish(&mut self, id: u32, status: Option<ClientStatus>) {
        if !self.clients.sessions.get(&id).is_some_and(ClientSession::is_leaving) {
            return;
        }
        self.find_unreported_fault(id);
        let Some(mut session) = self.clients.sessions.remove(&id) else { return };
        if let Some(status) = status {
            session.update(status);
        }
        self.processes.watcher.forget(&session.process);
        self.processes.ended(session.token);
        self.keeper.drop_session(id);
        // One that has failed gave its line back then.
        if session.files.take().is_some() {
            self.clients.leave_group(&session.about);
        }
        self.log.line(&format!("Client process {} disconnected", session.about.pid));
        self.clients.gone.push_back(ClientStatus { place: Place::Nowhere, ..session.status });
        while self.clients.gone.len() > GONE {
            self.clients.gone.pop_front();
        }
    }

    /// An executor shows a client its error before it reports it. It may have ended in between,
    /// because its last client has gone with that error. Then the error is in the page alone. A
    /// client that writes there itself accuses nobody else.
    fn find_unreported_fault(&mut self, id: u32) {
        let Some(session) = self.clients.sessions.get_mut(&id).filter(|session| session.status.error == 0) else { return };
        let Some((result, text)) = session.files.as_ref().and_then(Files::fault) else { return };
        // An earlier server may have heard of it.
        if self.faults.has(id, session.about.pid) {
            (session.status.error, session.status.fault) = (result, shortened(&text));
        } else {
            self.fault(id, result, &text);
        }
    }

    /// Only while no executor lives: gives everybody who waits for work an error instead.
    pub(crate) fn fail_sessions(&mut self, result: u32) {
        let ids: Vec<u32> = self.clients.sessions.values().filter(|s| !s.has_failed()).map(|s| s.about.id).collect();
        for id in ids {
            let why = self.broken.clone().unwrap_or_else(|| "the server is shutting down".to_owned());
            self.refuse_greeting(id, cumux_wire::result::MPS_SERVER_NOT_READY, &why);
            self.fail_session(id, result, &why);
        }
    }

    /// Ends a session that no executor has: its client and everybody who waits there are told, and
    /// all that was its is given back.
    pub(crate) fn fail_session(&mut self, id: u32, code: u32, why: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        let Some(result) = session.fail(code) else { return };
        let had_it = session.seat.elsewhere();
        session.leave_seat();
        session.status.error = result;
        session.status.fault = shortened(why);
        if let Some(Err(error)) = session.files.take().map(|files| files.fail(result, why)) {
            let text = format!("Client {} cannot be told of its end: {error}", session.name());
            self.log.line(&text);
        }
        for worker in self.executors.workers.values().filter(|worker| worker.is_briefed()) {
            worker.send(ToExecutor::Detach { session: id, comes_later: false });
        }
        let about = session.about.clone();
        self.clients.leave_group(&about);
        self.keeper.drop_session(id);
        self.answer_movers(id, why);
        if let Some(worker) = had_it {
            self.end_if_empty(worker);
        }
    }

    pub(crate) fn fault(&mut self, id: u32, result: u32, text: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        session.status.error = result;
        session.status.fault = shortened(text);
        let pid = session.about.pid;
        let parts = session.about.parts.clone();
        if let Err(error) = self.faults.add(id, pid, &session.about.program, result, text) {
            self.log.line(&format!("The fault cannot be written down for `cumux faults`: {error}"));
        }
        self.log.line(&format!("Client {{PID: {pid}, Context: 1}} encountered a fatal GPU error."));
        self.log.line("Server is handling a fatal GPU error.");
        for part in parts {
            self.log.line(&format!("Client {{PID: {pid}, Context ID: 1}} on device {} to be torn down", part.device));
        }
        // NVIDIA's spelling. No device is reset, and nobody else is told: the fault is its maker's
        // alone.
        self.log.line(&format!("All clients belonging to error trigging process {pid} will be torn down"));
        self.log.line("The following client process have a sticky error set:");
        self.log.line(&pid.to_string());
        self.note(&format!("Client process {pid}: error {result}: {}", escape_foreign(text, LONGEST_TEXT)));
    }
}

/// A device as a client of the service sees it: its context is shared, and everybody may use it.
/// The card's own compute mode is between the card and its executor.
/// To a client of a group it has the memory that the group may have.
fn as_seen(facts: &DeviceFacts, group_limit: Option<u64>) -> DeviceFacts {
    let mut facts = facts.clone();
    facts.memory = group_limit.map_or(facts.memory, |limit| limit.min(facts.memory));
    facts.attributes.set(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, ComputeMode::CU_COMPUTEMODE_DEFAULT.0.cast_signed());
    facts.attributes.set(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 1);
    facts.capabilities.exclusive = None;
    facts
}

/// Answers a hello with a sentence.
pub(crate) fn refuse(connection: &Connection, result: u32, why: &str) {
    let _ = connection.set_timeout(Some(Duration::from_millis(100)));
    let _ = connection.send(&Reply::Refused { result, why: why.to_owned() }, &[]);
}

fn has_hung_up(connection: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::empty())];
    let zero = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&zero)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
