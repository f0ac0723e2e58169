//! Clients: arriving, being told apart by their processes, leaving, and what is said of them.

use crate::core::{Arrival, Core, Ending, Question, Subject, Wish, refuse};
use crate::host::{Fate, Host};
use crate::session::{Files, Keeping, Seat, Session, parts, shortened};
use cumux_link::connection::exactly;
use cumux_wire::VERSION;
use cumux_wire::cuda::{ComputeMode, DeviceAttribute};
use cumux_wire::layout::WINDOWS;
use cumux_wire::message::{self, CLIENTS_A_PACKET, ClientStatus, DeviceFacts, FromServer, Grant, Hello, Reply, ServedDevice, ServerStatus, ToExecutor};
use cumux_wire::result;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

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
        self.arrivals.push_back(Arrival { connection, process: process.into(), pid, uid, program: shortened(&program), grant });
    }

    /// A client that cannot be served, as NVIDIA's server writes it and with the reason.
    fn turned_away(&mut self, pid: u32, result: u32, why: &str) {
        self.log.line(&format!("Failed to accept client {{PID: {pid}, Context ID: 0}} with status {result}"));
        self.log.line(&format!("Client process {pid} was refused: {why}"));
    }

    pub(crate) fn refuse_arrivals(&mut self, result: u32, why: &str) {
        let waited = !self.arrivals.is_empty();
        for arrival in self.arrivals.drain(..) {
            refuse(&arrival.connection, result, why);
        }
        if waited {
            self.count_clients();
        }
    }

    /// Makes sessions of those who wait, once a device is known and the keeper can keep.
    pub(crate) fn admit_arrivals(&mut self) {
        while !self.devices.is_empty() && self.keeper.is_up() {
            let Some(arrival) = self.arrivals.pop_front() else { return };
            self.admit(arrival);
            // Also of one that did not become a client: the daemon has counted it.
            self.count_clients();
        }
    }

    fn admit(&mut self, arrival: Arrival) {
        let Arrival { connection, process: client, pid, uid, program, grant } = arrival;
        // One process has one session: an older one is left from a hello that was given up, or from
        // before an exec.
        let older: Vec<u32> = self.sessions.values().filter(|s| s.about.pid == pid && !s.is_leaving()).map(|s| s.about.id).collect();
        for session in older {
            self.leave(session, Fate::Exited);
        }
        let parts = parts(&self.devices, &grant);
        if parts.is_empty() {
            return refuse(&connection, result::NO_DEVICE, "none of the devices that this program sees is served");
        }
        // Nobody has anything of one that has failed, but for the client itself.
        let taken: BTreeSet<u32> = self.sessions.values().filter(|s| !s.has_failed()).map(|s| s.about.window_slot).collect();
        let slot = (0..WINDOWS).find(|slot| !taken.contains(slot));
        // An executor may take long to let go of one that has gone: it keeps its window, and nobody
        // out.
        let served = self.sessions.values().filter(|s| s.is_served()).count();
        let (Some(window_slot), true) = (slot, served < self.limits.clients) else {
            let why = format!("{} clients are connected already; end some, or start the daemon with a larger CUMUX_MAX_CLIENTS (at most {WINDOWS})", served);
            self.turned_away(pid, result::MPS_MAX_CLIENTS_REACHED, &why);
            return refuse(&connection, result::MPS_MAX_CLIENTS_REACHED, &why);
        };
        if !client.is_alive() || has_hung_up(&connection) {
            return self.log.line(&format!("Client process {pid} was gone before it could be served"));
        }
        let id = self.next_session;
        let made = Files::create(client.into())
            .map_err(|error| error.to_string())
            .and_then(|files| files.name_server(self.pid).map(|()| files).map_err(|error| error.to_string()))
            .and_then(|files| self.watcher.watch(&files.client).map(|token| (files, token)).map_err(|errno| errno.to_string()));
        let (files, token) = match made {
            Ok(made) => made,
            Err(error) => {
                let why = format!("the server cannot make this client's files: {error}");
                self.log.line(&why);
                return refuse(&connection, result::OUT_OF_MEMORY, &why);
            }
        };
        self.next_session = self.next_session.wrapping_add(1).max(1);
        let about = message::SessionConfig { id, pid, uid, program, window_slot, priority: grant.priority, parts, sms: grant.sms };
        let mut session = Session::new(about, files, token);
        session.greeting = Some(connection);
        // The process has the number 0 in NVIDIA's log, its context 1.
        self.log.line(&format!("Client {{PID: {pid}, Context ID: 0}} connected"));
        self.subjects.insert(token, Subject::Client(id));
        self.sessions.insert(id, session);
        self.keep(id);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        for (number, worker) in self.workers.iter().filter(|(_, worker)| worker.briefed) {
            if let (Some(link), Some(files)) = (&worker.link, &session.files) {
                link.send(ToExecutor::Attach { session: session.about.clone() }, files.share());
                if self.service.active() == Some(*number) {
                    session.seat = Seat::Asked;
                }
            }
        }
    }

    /// The active executor has a session, or could not take it.
    pub(crate) fn attached(&mut self, id: u32, error: &str) {
        if !error.is_empty() {
            return self.not_taken(id, error);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.seat = Seat::Taken;
        let terminated = session.awaits_termination();
        self.welcome(id);
        if terminated {
            self.end_what_was_terminated();
        }
    }

    /// Tells a client that it is served, once keeper and executor have what they need.
    pub(crate) fn welcome(&mut self, id: u32) {
        let (Some(session), Some(keeper)) = (self.sessions.get_mut(&id), self.keeper.process()) else { return };
        if session.keeping != Keeping::Kept || session.seat != Seat::Taken {
            return;
        }
        let Some(files) = &session.files else { return };
        let Some(connection) = session.greeting.take() else { return };
        let seen: Vec<&DeviceFacts> = session.about.parts.iter().filter_map(|part| self.devices.get(part.device as usize)).collect();
        let reply = Reply::Welcome {
            version: VERSION,
            session: id,
            window_slot: session.about.window_slot,
            devices: seen.iter().map(|facts| shared(facts)).collect(),
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
            self.log.line(&format!("Device {} (uuid {}) is associated", device.name, uuid(device.uuid)));
        }
        self.log.line(&format!("Status of client {name} is ACTIVE"));
    }

    /// A client that waits for its welcome gets a sentence instead, and its session ends.
    pub(crate) fn refuse_greeting(&mut self, id: u32, result: u32, why: &str) {
        let Some(connection) = self.sessions.get_mut(&id).and_then(|session| session.greeting.take()) else { return };
        refuse(&connection, result, why);
        self.leave(id, Fate::Exited);
    }

    pub(crate) fn client_gone(&mut self, id: u32) {
        let Some(session) = self.sessions.get(&id) else { return };
        let fate = self.host.fate(session.about.pid).unwrap_or(Fate::Exited);
        self.leave(id, fate);
    }

    /// Ends a session: executors let go of it first.
    fn leave(&mut self, id: u32, fate: Fate) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (name, failed) = (session.name(), session.has_failed());
        if !session.leave(fate) {
            return;
        }
        let left = self.sessions.values().filter(|s| !s.is_leaving()).count();
        // NVIDIA's spelling, which log readers look for.
        self.log.line(&format!("Server failed to recevie command with status 806, assuming client {name} exit"));
        self.log.line(&format!("Client {name} exiting. Number of active client contexts is {left}."));
        for worker in self.workers.values().filter(|worker| worker.briefed) {
            worker.send(ToExecutor::Detach { session: id });
        }
        self.count_clients();
        // Without an active executor nobody has anything of it, and nobody would answer.
        if failed || self.service.active().is_none() {
            self.finish(id, None);
        }
    }

    /// Nothing of the session is left in any executor.
    pub(crate) fn finish(&mut self, id: u32, status: Option<ClientStatus>) {
        if !self.sessions.get(&id).is_some_and(Session::is_leaving) {
            return;
        }
        let Some(mut session) = self.sessions.remove(&id) else { return };
        if let Some(status) = status {
            session.update(status);
        }
        self.watcher.forget(&session.process);
        self.subjects.remove(&session.token);
        self.keeper.drop_session(id);
        self.log.line(&format!("Client process {} disconnected", session.about.pid));
        self.gone.push_back(session.status);
        while self.gone.len() > GONE {
            self.gone.pop_front();
        }
    }

    pub(crate) fn count_clients(&self) {
        let count = self.sessions.values().filter(|s| !s.is_leaving()).count() + self.arrivals.len();
        self.tell(FromServer::Clients { count: u32::try_from(count).unwrap_or(u32::MAX), taken: self.taken });
    }

    /// Only while no executor lives: gives everybody who waits for work an error instead.
    pub(crate) fn fail_sessions(&mut self, result: u32) {
        let ids: Vec<u32> = self.sessions.values().filter(|s| !s.has_failed()).map(|s| s.about.id).collect();
        for id in ids {
            let why = self.broken.clone().unwrap_or_else(|| "the server is shutting down".to_owned());
            self.refuse_greeting(id, cumux_wire::result::MPS_SERVER_NOT_READY, &why);
            self.fail_session(id, result, &why);
        }
    }

    /// Ends a session that no executor has: its client and everybody who waits there are told, and
    /// all that was its is given back.
    pub(crate) fn fail_session(&mut self, id: u32, code: u32, why: &str) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(result) = session.fail(code) else { return };
        session.seat = Seat::No;
        session.status.error = result;
        session.status.fault = shortened(why);
        if let Some(Err(error)) = session.files.take().map(|files| files.fail(result, why)) {
            let text = format!("Client {} cannot be told of its end: {error}", session.name());
            self.log.line(&text);
        }
        for worker in self.workers.values().filter(|worker| worker.briefed) {
            worker.send(ToExecutor::Detach { session: id });
        }
        self.keeper.drop_session(id);
    }

    pub(crate) fn fault(&mut self, id: u32, result: u32, text: &str) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.status.error = result;
        session.status.fault = shortened(text);
        let pid = session.about.pid;
        let parts = session.about.parts.clone();
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
        self.note(&format!("Client process {pid}: error {result}: {text}"));
    }

    /// Ends the work of a process. The daemon is answered when it has ended, or when it cannot be
    /// ended now.
    pub(crate) fn terminate(&mut self, request: u64, pid: u32) {
        let mut found = false;
        for session in self.sessions.values_mut().filter(|s| s.about.pid == pid && !s.is_leaving()) {
            found = true;
            session.terminate();
            let text = format!("MPS server requesting client {} to exit", session.name());
            self.log.line(&text);
        }
        if !found {
            return self.tell(FromServer::Terminated { request, found, error: String::new() });
        }
        self.questions.insert(self.next_question, Question { request, until: Instant::now() + self.limits.terminate, wish: Wish::End });
        self.next_question += 1;
        self.end_what_was_terminated();
        if self.service.active().is_none() {
            self.answer_questions_now();
        }
    }

    /// Ends clients that an administrator wants to end. An executor that serves does it; one that
    /// takes over does it then; where there is none, nobody else writes into the page, and it is
    /// done here.
    pub(crate) fn end_what_was_terminated(&mut self) {
        let ids: Vec<u32> = self.sessions.values().filter(|s| s.awaits_termination()).map(|s| s.about.id).collect();
        let Some(active) = self.service.active() else {
            for id in ids {
                self.refuse_greeting(id, result::MPS_CLIENT_TERMINATED, "this program was terminated by the administrator");
                self.fail_session(id, result::MPS_CLIENT_TERMINATED, "the client was terminated by the administrator");
            }
            return;
        };
        let Some(worker) = self.workers.get(&active).filter(|_| self.service.is_given()) else { return };
        for id in ids {
            worker.send(ToExecutor::Terminate { session: id, result: result::MPS_CLIENT_TERMINATED });
        }
        // What the executor answers after the request it has carried out before.
        for (number, _) in self.questions.iter().filter(|(_, question)| question.wish == Wish::End) {
            worker.send(ToExecutor::Metrics { request: *number });
        }
    }

    /// The executor adds its figures if it answers in time.
    pub(crate) fn ask_status(&mut self, request: u64) {
        let number = self.next_question;
        self.next_question += 1;
        match self.service.serving().and_then(|id| self.workers.get(&id)) {
            Some(worker) => {
                self.questions.insert(number, Question { request, until: Instant::now() + self.limits.metrics, wish: Wish::Status });
                worker.send(ToExecutor::Metrics { request: number });
            }
            None => self.send_status(request),
        }
    }

    pub(crate) fn answer_status(&mut self, number: u64, clients: Vec<ClientStatus>, more: bool) {
        for told in clients {
            if let Some(session) = self.sessions.get_mut(&told.session) {
                session.update(told);
            }
        }
        if !more && let Some(question) = self.questions.remove(&number) {
            self.answer_question(&question, "");
        }
    }

    pub(crate) fn answer_late_questions(&mut self, now: Instant) {
        let late: Vec<u64> = self.questions.iter().filter(|(_, question)| question.until <= now).map(|(number, _)| *number).collect();
        for number in late {
            if let Some(question) = self.questions.remove(&number) {
                self.answer_question(&question, "the executor does not answer at the moment; the client is ended as soon as one does");
            }
        }
    }

    /// Nobody is left who could add anything.
    pub(crate) fn answer_questions_now(&mut self) {
        for (_, question) in std::mem::take(&mut self.questions) {
            self.answer_question(&question, "");
        }
    }

    /// `error`: why it is not done, for those that want something done.
    fn answer_question(&mut self, question: &Question, error: &str) {
        match question.wish {
            Wish::Status => self.send_status(question.request),
            Wish::End => {
                self.log.line(if error.is_empty() { "Client termination succeeded." } else { "Client termination failed." });
                self.tell(FromServer::Terminated { request: question.request, found: true, error: error.to_owned() });
            }
        }
    }

    fn send_status(&self, request: u64) {
        let mut server = ServerStatus {
            pid: self.pid,
            uid: self.options.uid,
            state: self.state_word().to_owned(),
            executor: self.active_pid(),
            standby: self.ready_standby_pid(),
            keeper: self.keeper.pid(),
            takeovers: self.takeovers,
            generation: self.generation,
            no_standby: self.no_standby.clone().unwrap_or_default(),
            leaving: String::new(),
            devices: self.options.devices.clone(),
            cards: self.devices.iter().map(card).collect(),
            clients: self.sessions.values().filter(|s| !s.is_leaving()).map(|s| s.status.clone()).collect(),
            gone: Vec::new(),
        };
        // Those that have gone come last, and as many in a packet as of those that run.
        while server.clients.len() > CLIENTS_A_PACKET {
            let rest = server.clients.split_off(CLIENTS_A_PACKET);
            self.tell(FromServer::Status { request, server: server.clone(), more: true });
            server.clients = rest;
        }
        let gone: Vec<ClientStatus> = self.gone.iter().cloned().collect();
        if server.clients.len() + gone.len() > CLIENTS_A_PACKET {
            self.tell(FromServer::Status { request, server: server.clone(), more: true });
            server.clients.clear();
        }
        server.gone = gone;
        self.tell(FromServer::Status { request, server, more: false });
    }
}

/// A device as a status tells it.
fn card(facts: &DeviceFacts) -> ServedDevice {
    ServedDevice { id: facts.id.clone(), name: facts.name.clone(), multiprocessors: facts.multiprocessors(), memory: facts.memory }
}

/// A device as a client of the service sees it: its context is shared, and everybody may use it. The
/// card's own compute mode is between the card and its executor.
fn shared(facts: &DeviceFacts) -> DeviceFacts {
    let mut facts = facts.clone();
    facts.attributes.set(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, ComputeMode::CU_COMPUTEMODE_DEFAULT.0.cast_signed());
    facts.attributes.set(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 1);
    facts.capabilities.exclusive = None;
    facts
}

fn has_hung_up(connection: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::empty())];
    let zero = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&zero)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// As MPS writes it: `GPU-fb1811f5-c08f-9654-f7be-16483392e3ca`.
fn uuid(bytes: [u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("GPU-{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16))
}
