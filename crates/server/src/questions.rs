//! What the daemon wants to know of the clients, or to have done with them, and the executor has to
//! answer.

use crate::core::{Core, Question, Wish};
use crate::host::Host;
use crate::session::ClientSession;
use crate::worker::Worker;
use cumux_wire::facts::uuid_text;
use cumux_wire::message::{CLIENTS_A_PACKET, ClientStatus, DeviceFacts, FromServer, ServedDevice, ServerStatus, ToExecutor};
use cumux_wire::result;
use std::time::Instant;

impl<H: Host> Core<H> {
    /// Ends the work of a process. The daemon is answered when it has ended, or when it cannot be
    /// ended now.
    pub(crate) fn terminate(&mut self, request: u64, pid: u32) {
        let (mut found, mut worker) = (false, None);
        for session in self.clients.sessions.values_mut().filter(|s| s.about.pid == pid && !s.is_leaving()) {
            found = true;
            worker = session.seat.elsewhere();
            session.terminate();
            let text = format!("MPS server requesting client {} to exit", session.name());
            self.log.line(&text);
        }
        if !found {
            return self.tell(FromServer::Terminated { request, found, error: String::new() });
        }
        let number = self.questions.number();
        self.questions.open.insert(number, Question { request, until: Instant::now() + self.limits.terminate, wish: Wish::End { worker } });
        self.end_what_was_terminated();
        if worker.is_none() && self.executors.service.active().is_none() {
            self.answer_questions_now();
        }
    }

    /// Ends clients that an administrator wants to end. An executor that serves does it; one that
    /// takes over does it then; where there is none, nobody else writes into the page, and it is
    /// done here.
    pub(crate) fn end_what_was_terminated(&mut self) {
        let (apart, rest): (Vec<_>, Vec<_>) =
            self.clients.sessions.values().filter(|s| s.awaits_termination()).map(|s| (s.about.id, s.seat)).partition(|(_, seat)| seat.elsewhere().is_some());
        for (id, seat) in apart {
            if let Some((number, worker)) = seat.elsewhere().and_then(|number| Some((number, self.executors.workers.get(&number)?))) {
                worker.send(ToExecutor::Terminate { session: id, result: result::MPS_CLIENT_TERMINATED });
                self.ask_for_ends(Some(number), worker);
            }
        }
        let Some(active) = self.executors.service.active() else {
            for (id, _) in rest {
                self.refuse_greeting(id, result::MPS_CLIENT_TERMINATED, "this program was terminated by the administrator");
                self.fail_session(id, result::MPS_CLIENT_TERMINATED, "the client was terminated by the administrator");
            }
            return;
        };
        let Some(worker) = self.executors.workers.get(&active).filter(|_| self.executors.service.is_given()) else { return };
        for (id, _) in rest {
            worker.send(ToExecutor::Terminate { session: id, result: result::MPS_CLIENT_TERMINATED });
        }
        self.ask_for_ends(None, worker);
    }

    /// What an executor answers after the request it has carried out before.
    fn ask_for_ends(&self, number: Option<u64>, worker: &Worker) {
        for (request, _) in self.questions.open.iter().filter(|(_, question)| question.wish == Wish::End { worker: number }) {
            worker.send(ToExecutor::Metrics { request: *request });
        }
    }

    /// The executor adds its figures if it answers in time.
    pub(crate) fn ask_status(&mut self, request: u64) {
        let number = self.questions.number();
        match self.executors.serving() {
            Some(worker) => {
                self.questions.open.insert(number, Question { request, until: Instant::now() + self.limits.metrics, wish: Wish::Status });
                self.executors_apart().for_each(|apart| apart.send(ToExecutor::Metrics { request: number }));
                worker.send(ToExecutor::Metrics { request: number });
            }
            None => self.send_status(request),
        }
    }

    pub(crate) fn answer_status(&mut self, number: u64, clients: Vec<ClientStatus>, more: bool) {
        for told in clients {
            if let Some(session) = self.clients.sessions.get_mut(&told.session) {
                session.update(told);
            }
        }
        if !more {
            self.answer_question_number(number);
        }
    }

    /// What an executor apart says of its clients. A question for all figures is answered by the
    /// one that serves.
    pub(crate) fn note_figures(&mut self, id: u64, number: u64, clients: Vec<ClientStatus>, more: bool) {
        for told in clients {
            if let Some(session) = self.clients.sessions.get_mut(&told.session).filter(|session| session.seat.elsewhere() == Some(id)) {
                session.update(told);
            }
        }
        if !more && self.questions.open.get(&number).is_some_and(|question| question.wish == Wish::End { worker: Some(id) }) {
            self.answer_question_number(number);
        }
    }

    /// An executor has said what was asked for with this number.
    fn answer_question_number(&mut self, number: u64) {
        if let Some(question) = self.questions.open.remove(&number) {
            self.answer_question(&question, "");
        }
    }

    pub(crate) fn answer_late_questions(&mut self, now: Instant) {
        let late: Vec<u64> = self.questions.open.iter().filter(|(_, question)| question.until <= now).map(|(number, _)| *number).collect();
        for number in late {
            if let Some(question) = self.questions.open.remove(&number) {
                self.answer_question(&question, "the executor does not answer at the moment; the client is ended as soon as one does");
            }
        }
    }

    /// Nobody is left who could add anything.
    pub(crate) fn answer_questions_now(&mut self) {
        for (_, question) in std::mem::take(&mut self.questions.open) {
            self.answer_question(&question, "");
        }
    }

    /// `error`: why it is not done, for those that want something done.
    fn answer_question(&mut self, question: &Question, error: &str) {
        match question.wish {
            Wish::Status => self.send_status(question.request),
            Wish::End { .. } => {
                self.log.line(if error.is_empty() { "Client termination succeeded." } else { "Client termination failed." });
                self.tell(FromServer::Terminated { request: question.request, found: true, error: error.to_owned() });
            }
        }
    }

    /// What is known of a client, with where it is.
    fn status_of(&self, session: &ClientSession) -> ClientStatus {
        let (place, executor, place_why) = self.place_of(session.about.id);
        ClientStatus { place, executor, place_why, ..session.status.clone() }
    }

    fn send_status(&self, request: u64) {
        let mut server = ServerStatus {
            pid: self.pid,
            uid: self.options.uid,
            state: self.state_word().to_owned(),
            executor: self.executors.active_pid(),
            standby: self.executors.ready_standby_pid(),
            keeper: self.keeper.pid(),
            takeovers: self.executors.takeovers,
            generation: self.executors.generation,
            no_standby: self.executors.no_standby.clone().unwrap_or_default(),
            leaving: String::new(),
            devices: self.options.devices.clone(),
            cards: self.executors.devices.iter().map(card).collect(),
            groups: Vec::new(),
            clients: self.clients.sessions.values().filter(|s| !s.is_leaving()).map(|s| self.status_of(s)).collect(),
            gone: Vec::new(),
        };
        // Those that have gone come last, and as many in a packet as of those that run.
        while server.clients.len() > CLIENTS_A_PACKET {
            let rest = server.clients.split_off(CLIENTS_A_PACKET);
            self.tell(FromServer::Status { request, server: server.clone(), more: true });
            server.clients = rest;
        }
        let gone: Vec<ClientStatus> = self.clients.gone.iter().cloned().collect();
        if server.clients.len() + gone.len() > CLIENTS_A_PACKET {
            self.tell(FromServer::Status { request, server: server.clone(), more: true });
            server.clients.clear();
        }
        server.gone = gone;
        server.groups = self.clients.groups.status(self.executors.devices.len(), |name| self.clients.count_members(name));
        self.tell(FromServer::Status { request, server, more: false });
    }
}

/// A device as a status tells it.
fn card(facts: &DeviceFacts) -> ServedDevice {
    ServedDevice {
        id: facts.id.clone(),
        name: facts.name.clone(),
        multiprocessors: facts.multiprocessors(),
        memory: facts.memory,
        uuid: uuid_text(facts.uuid),
        unavailable: facts.capabilities.unavailable.clone().unwrap_or_default(),
    }
}
