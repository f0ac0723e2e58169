//! The connections to servers: which processes are accepted as servers, the questions to them,
//! their answers.
//!
//! A server runs as the user whom it serves, and that user can control it like any process of its
//! own. So nothing that it sends is shown or kept before it was made harmless, and it cannot speak
//! for another server or another user.

use crate::clean;
use crate::daemon::{Daemon, Question};
use crate::doors::ConnectionPermit;
use crate::duty::{Duty, Reach};
use crate::heartbeat::Servers;
use crate::launch;
use crate::ledger::Standing;
use crate::log::on_account_of;
use crate::registry::Event;
use cumux_link::pulse::Standstill;
use cumux_link::{Connection, LinkError, Peer, Process, escape_foreign, peer};
use cumux_wire::message::{DeviceFacts, FromServer, GroupGrant, ServerStatus, ToServer};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to answer a question.
const ANSWER: Duration = Duration::from_secs(5);
/// Lines that a server may write into the log at once, and the time after which it may write
/// another one.
const LINES: u32 = 100;
const LINE: Duration = Duration::from_millis(100);
/// Refused processes that the log does not report again.
const STRANGERS: usize = 64;

/// A server's allowance of lines in our log.
struct Lines {
    left: u32,
    since: Instant,
    dropped: u64,
}

impl Lines {
    fn new(now: Instant) -> Self {
        Self { left: LINES, since: now, dropped: 0 }
    }

    /// Takes one line from the allowance: the number of lines dropped before it, or `None` if
    /// nothing is left.
    fn take_line(&mut self, now: Instant) -> Option<u64> {
        let more = now.duration_since(self.since).as_millis() / LINE.as_millis();
        if more > 0 {
            self.left = self.left.saturating_add(u32::try_from(more).unwrap_or(LINES)).min(LINES);
            self.since = now;
        }
        if self.left == 0 {
            self.dropped += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

/// A connection of a process that claims to be a server.
pub(crate) struct Applicant {
    pub(crate) connection: Connection,
    /// Kept as long as the connection: a user's servers have a bounded number of permits.
    pub(crate) permit: ConnectionPermit,
    /// The read end of the server's standard error, if it runs as another user.
    pub(crate) words: Option<OwnedFd>,
}

impl Daemon {
    /// Sends a numbered question to a server and waits for the answer.
    pub(crate) fn ask(&self, server: u32, question: impl FnOnce(u64) -> ToServer) -> Option<FromServer> {
        self.ask_within(server, ANSWER, question)
    }

    /// As [`Daemon::ask`], for what takes longer.
    pub(crate) fn ask_within(&self, server: u32, limit: Duration, question: impl FnOnce(u64) -> ToServer) -> Option<FromServer> {
        let mut core = self.core();
        let link = Arc::clone(core.links.get(&server)?);
        let request = core.next_request;
        core.next_request += 1;
        core.questions.insert(request, Question { server, whole: None, answer: None });
        drop(core);
        let sent = link.send(&question(request), &[]).is_ok();
        let until = Instant::now() + limit;
        let mut core = self.core();
        loop {
            let answered = core.questions.get(&request).is_none_or(|question| question.answer.is_some());
            let rest = until.checked_duration_since(Instant::now());
            let connected = core.links.get(&server).is_some_and(|current| Arc::ptr_eq(current, &link));
            match rest {
                Some(rest) if sent && connected && !answered => {
                    core = self.changed.wait_timeout(core, rest).unwrap_or_else(PoisonError::into_inner).0;
                }
                // A question without a waiting thread is dropped.
                _ => return core.questions.remove(&request)?.answer,
            }
        }
    }

    /// Why a server has not answered a question within this time.
    pub(crate) fn silence_of(&self, server: u32, wait: Duration) -> String {
        if self.core().links.contains_key(&server) {
            format!("server {server} has not answered within {} s", wait.as_secs())
        } else {
            format!("server {server} has gone before it answered")
        }
    }

    /// Sends a numbered message to a server; no thread waits for the answer.
    pub(crate) fn tell(&self, server: u32, message: impl FnOnce(u64) -> ToServer) {
        let mut core = self.core();
        let Some(link) = core.links.get(&server).map(Arc::clone) else { return };
        let request = core.next_request;
        core.next_request += 1;
        drop(core);
        let _ = link.send(&message(request), &[]);
    }

    /// Tells a server the limits of its user's groups: they may have been changed while it was
    /// away.
    fn tell_groups(&self, server: u32, Duty { uid, reach }: Duty, devices: &[DeviceFacts]) {
        let limits: Vec<GroupGrant> = self.registry(|registry| {
            let own = registry.groups.iter().filter(|(_, group)| group.user() == Some(uid));
            own.map(|(name, group)| registry.group_limits(name, group, reach, devices)).collect()
        });
        for group in limits {
            self.tell(server, |request| ToServer::SetGroup { request, group });
        }
    }

    /// Which cards a server serves.
    pub(crate) fn reach_of(&self, server: u32) -> Reach {
        self.registry(|registry| registry.server(server).map_or(Reach::All, |server| server.reach))
    }

    /// Messages received from a server so far.
    pub(crate) fn words_of(&self, server: u32) -> u64 {
        self.core().words.get(&server).copied().unwrap_or(0)
    }

    /// Status of one server; only what the daemon itself knows if the server does not answer.
    pub(crate) fn status(&self, server: u32) -> Option<ServerStatus> {
        let (uid, state, leaving) = self.registry(|registry| {
            let found = registry.server(server)?;
            Some((found.uid, if found.is_ready() { "UNRESPONSIVE" } else { "INITIALIZING" }, registry.leaving(server)))
        })?;
        let told = match self.ask(server, |request| ToServer::Status { request }) {
            Some(FromServer::Status { server, .. }) => server,
            _ => ServerStatus { state: state.to_owned(), ..ServerStatus::default() },
        };
        Some(ServerStatus { pid: server, uid, leaving, ..told })
    }

    /// A process claims to be a server. Only a process that a daemon of this directory has started
    /// is accepted.
    pub(crate) fn admit_server(self: &Arc<Self>, applicant: Applicant, uid: u32, serves: u32, devices: Vec<String>) {
        let connection = &applicant.connection;
        let own = rustix::process::geteuid().as_raw();
        let Ok(Peer { pid: Some(pid), .. }) = connection.peer() else { return self.note("A server of another PID namespace connected: refused") };
        if serves != uid || (own != 0 && uid != own) {
            return self.note(&format!("Process {pid} of user {uid} says it serves user {serves}: refused"));
        }
        let mut core = self.core();
        let standing = core.ledger.standing(pid, uid);
        if let Standing::Unknown(error) = standing {
            drop(core);
            // It may well be ours: it gets no order to end, and connects again.
            return self.note(&format!("Cannot check whether process {pid} is a server ({error}); it can connect again"));
        }
        if matches!(standing, Standing::Stranger) {
            let new = !core.strangers.contains(&pid);
            if new {
                core.strangers.push_back(pid);
                if core.strangers.len() > STRANGERS {
                    core.strangers.pop_front();
                }
            }
            drop(core);
            if new {
                self.note(&format!("Process {pid} of user {uid} says it is a server, and no control daemon of this directory has started it: refused"));
            }
            // A server whose ledger entry was lost ends when its clients have gone, and a new one
            // can start.
            let _ = connection.set_timeout(Some(Duration::from_millis(200))).and_then(|()| connection.send(&ToServer::Shutdown { force: false }, &[]));
            return;
        }
        drop(core);
        let daemon = Arc::clone(self);
        let listen = move || daemon.listen_to_server(pid, uid, clean::names(devices), applicant);
        if let Err(error) = thread::Builder::new().name("server".into()).spawn(listen) {
            self.note(&format!("No thread for server {pid} ({error}); it will connect again"));
        }
    }

    /// Serves the connection of a server until it ends. A server has one connection: a new one
    /// closes the one before.
    fn listen_to_server(self: &Arc<Self>, pid: u32, uid: u32, devices: Vec<String>, applicant: Applicant) {
        let Applicant { connection, permit, words } = applicant;
        let _account = on_account_of(uid);
        // A server that does not read must not stop the daemon.
        let _ = set_socket_timeout(connection.as_fd(), Timeout::Send, Some(Duration::from_secs(1)));
        let process = peer::process_of(&connection).or_else(|| Process::open(pid).ok());
        let link = Arc::new(connection);
        let mut core = self.core();
        if core.registry.server(pid).is_none()
            && let Err(error) = self.forget_at_its_end(pid, process)
        {
            drop(core);
            return self.note(&format!("No thread to watch server {pid} ({error}); it can connect again"));
        }
        if let Some(old) = core.links.insert(pid, Arc::clone(&link)) {
            // Its thread ends, and its permit is free again.
            let _ = shutdown(old.as_fd(), Shutdown::Both);
        }
        let duty = Duty { uid, reach: core.ledger.reach_of(pid) };
        self.feed_locked(&mut core, Event::Registered { pid, duty, devices });
        let words = words.filter(|_| core.read.insert(pid));
        drop(core);
        self.changed.notify_all();
        if let Some(words) = words {
            match launch::start_reader(&self.log, uid) {
                Ok(reader) => drop(reader.send((pid, words))),
                Err(error) => {
                    self.core().read.remove(&pid);
                    self.note(&format!("No thread for what server {pid} writes ({error}): it is read when the server connects again"));
                }
            }
        }
        let mut lines = Lines::new(Instant::now());
        loop {
            match link.receive::<FromServer>() {
                Ok((message, _)) => self.handle_message(pid, uid, message, &mut lines),
                Err(LinkError::Format(error)) => self.note_of(pid, &format!("what is no message: {error}"), &mut lines),
                Err(_) => break,
            }
        }
        let mut core = self.core();
        if core.links.get(&pid).is_some_and(|current| Arc::ptr_eq(current, &link)) {
            core.links.remove(&pid);
            if !core.ended.contains(&pid) {
                self.feed_locked(&mut core, Event::Disconnected { pid });
            }
        }
        // Under the lock: who sees the permit free sees the connection gone.
        drop(permit);
        drop(core);
        self.changed.notify_all();
    }

    /// Logs a line of a server within its allowance.
    fn note_of(&self, pid: u32, text: &str, lines: &mut Lines) {
        match lines.take_line(Instant::now()) {
            None => {}
            Some(dropped) => {
                if dropped > 0 {
                    self.note(&format!("Server {pid} said too much at once: {dropped} lines are not here"));
                }
                self.note(&format!("Server {pid}: {}", escape_foreign(text, clean::SENTENCE)));
            }
        }
    }

    fn handle_message(self: &Arc<Self>, pid: u32, uid: u32, message: FromServer, lines: &mut Lines) {
        *self.core().words.entry(pid).or_default() += 1;
        match message {
            FromServer::Pong { .. } => {}
            FromServer::Ready { devices } => {
                let devices = clean::devices(devices);
                let mut core = self.core();
                let reach = core.ledger.reach_of(pid);
                // Facts for all users are not learned from a process that another user controls,
                // and not from one that does not serve all devices.
                if uid == rustix::process::geteuid().as_raw() && reach == Reach::All && devices.len() == core.registry.devices.len() {
                    core.learn_devices(&devices);
                }
                drop(core);
                self.tell_groups(pid, Duty { uid, reach }, &devices);
                self.feed(Event::Ready { pid, devices });
            }
            FromServer::Failed { why } => self.feed(Event::Failed { pid, why: escape_foreign(&why, clean::SENTENCE) }),
            FromServer::Clients { count, taken } => self.feed(Event::Clients { pid, count, taken }),
            // The server has written it into server.log already.
            FromServer::Note { text } => self.note_of(pid, &text, lines),
            FromServer::Status { request, server, more } => {
                let server = clean::status(server);
                self.answer(pid, request, |question| {
                    let whole = match question.whole.take() {
                        Some(mut whole) => {
                            clean::append(&mut whole, server);
                            whole
                        }
                        None => server,
                    };
                    if more {
                        question.whole = Some(whole);
                    } else {
                        question.answer = Some(FromServer::Status { request, server: whole, more: false });
                    }
                });
            }
            FromServer::Terminated { request, found, error } => {
                let error = escape_foreign(&error, clean::SENTENCE);
                self.answer(pid, request, |question| question.answer = Some(FromServer::Terminated { request, found, error }));
            }
            FromServer::Shared { request, before, now, error } => {
                let error = escape_foreign(&error, clean::SENTENCE);
                self.answer(pid, request, |question| question.answer = Some(FromServer::Shared { request, before, now, error }));
            }
            FromServer::Regrouped { request, error } => {
                let error = escape_foreign(&error, clean::SENTENCE);
                self.answer(pid, request, |question| question.answer = Some(FromServer::Regrouped { request, error }));
            }
            FromServer::Upgraded { request, mut staying, error } => {
                let error = escape_foreign(&error, clean::SENTENCE);
                staying.truncate(clean::MOST_STAYING);
                staying.iter_mut().for_each(|(_, why)| *why = escape_foreign(why, clean::SENTENCE));
                self.answer(pid, request, |question| question.answer = Some(FromServer::Upgraded { request, staying, error }));
            }
            FromServer::Moved { request, found, executor, error } => {
                let error = escape_foreign(&error, clean::SENTENCE);
                self.answer(pid, request, |question| question.answer = Some(FromServer::Moved { request, found, executor, error }));
            }
        }
    }

    /// Applies an answer to the question it belongs to; an answer without a question is ignored.
    fn answer(&self, pid: u32, request: u64, take: impl FnOnce(&mut Question)) {
        let mut core = self.core();
        if let Some(question) = core.questions.get_mut(&request).filter(|question| question.server == pid && question.answer.is_none()) {
            take(question);
        }
        drop(core);
        self.changed.notify_all();
    }
}

impl Servers for Daemon {
    fn message_counts(&self) -> Vec<(u32, Option<u64>)> {
        let servers: Vec<(u32, bool)> = self.registry(|registry| registry.servers().iter().map(|server| (server.pid, server.is_connected())).collect());
        servers.into_iter().map(|(pid, connected)| (pid, connected.then(|| self.words_of(pid)))).collect()
    }

    fn ping(&self, pid: u32) {
        self.tell(pid, |request| ToServer::Ping { request });
    }

    fn report_standstill(self: &Arc<Self>, pid: u32, standstill: Standstill) {
        self.feed(Event::Unresponsive { pid, why: standstill.to_string() });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::settings::Settings;

    /// A daemon without sockets.
    fn daemon() -> (tempfile::TempDir, Arc<Daemon>) {
        daemon_with(|_| ())
    }

    /// The same with other options.
    pub(crate) fn daemon_with(change: impl FnOnce(&mut crate::Options)) -> (tempfile::TempDir, Arc<Daemon>) {
        let folder = tempfile::tempdir().unwrap();
        let mut options = crate::Options {
            pipe: folder.path().to_owned(),
            log: folder.path().to_owned(),
            device: "cuda:0".into(),
            devices: Vec::new(),
            ready_devices: false,
            settings: Settings::from_environment(|_| None),
            program: "/nonexistent".into(),
            echo: false,
            multiuser: false,
            static_partitions: false,
            cards: Vec::new(),
            localities: Vec::new(),
        };
        change(&mut options);
        let daemon = Daemon::new(options).unwrap();
        (folder, daemon)
    }

    fn status_of(pid: u32, request: u64, more: bool) -> FromServer {
        FromServer::Status { request, server: ServerStatus { pid, uid: 5, ..ServerStatus::default() }, more }
    }

    #[test]
    fn a_server_says_nothing_that_it_was_not_asked_and_nothing_for_another() {
        let (_folder, daemon) = daemon();
        let mut lines = Lines::new(Instant::now());
        for request in (0..1000).chain(u64::MAX - 1000..=u64::MAX) {
            for message in [status_of(50, request, true), status_of(50, request, false), FromServer::Terminated { request, found: true, error: String::new() }]
            {
                daemon.handle_message(50, 5, message, &mut lines);
            }
        }
        assert!(daemon.core().questions.is_empty(), "nothing is kept");
        let (ours, theirs) = Connection::pair().unwrap();
        daemon.core().links.insert(50, Arc::new(ours));
        let asked = Arc::clone(&daemon);
        let asking = thread::spawn(move || asked.ask(50, |request| ToServer::Status { request }));
        let Ok((ToServer::Status { request }, _)) = theirs.receive::<ToServer>() else { panic!("no question") };
        // Another server answers first.
        daemon.handle_message(51, 5, status_of(51, request, false), &mut lines);
        daemon.handle_message(50, 5, status_of(50, request, true), &mut lines);
        daemon.handle_message(50, 5, status_of(50, request, false), &mut lines);
        assert_eq!(asking.join().unwrap(), Some(status_of(50, request, false)));
        assert!(daemon.core().questions.is_empty());
    }

    /// A server that hands over answers and ends: its end may be seen before its answer is read.
    #[test]
    fn what_a_server_has_said_before_its_end_counts() {
        let (_folder, daemon) = daemon();
        let (own, pid) = (rustix::process::geteuid().as_raw(), std::process::id());
        for _ in 0..20 {
            assert_eq!(daemon.core().ledger.add(pid, Duty::of_all(own)), None);
            let (ours, theirs) = Connection::pair().unwrap();
            let asked = Arc::clone(&daemon);
            let applicant = Applicant { connection: ours, permit: daemon.clients.enter(own).unwrap(), words: None };
            let reading = thread::spawn(move || asked.admit_server(applicant, own, own, vec!["cuda:0".into()]));
            let until = Instant::now() + Duration::from_secs(60);
            while !daemon.core().links.contains_key(&pid) {
                assert!(Instant::now() < until, "it never connects");
                thread::yield_now();
            }
            let asked = Arc::clone(&daemon);
            let asking = thread::spawn(move || asked.ask(pid, |request| ToServer::Terminate { request, pid: 7 }));
            let request = loop {
                match theirs.receive::<ToServer>() {
                    Ok((ToServer::Terminate { request, .. }, _)) => break request,
                    Ok(_) => {}
                    Err(error) => panic!("no question: {error}"),
                }
            };
            let answer = || FromServer::Terminated { request, found: true, error: String::new() };
            // There is much to read before the answer.
            for _ in 0..50 {
                theirs.send(&FromServer::Note { text: "a line".into() }, &[]).unwrap();
            }
            theirs.send(&answer(), &[]).unwrap();
            drop(theirs);
            daemon.forget(pid, Some(0));
            assert_eq!(asking.join().unwrap(), Some(answer()));
            reading.join().unwrap();
            assert!(daemon.core().ended.is_empty() && daemon.core().links.is_empty());
        }
    }

    /// As a server that connects again and again without end: its connections do not add up.
    #[test]
    fn a_server_has_one_connection_and_it_takes_a_permit() {
        let (_folder, daemon) = daemon();
        let (own, pid) = (rustix::process::geteuid().as_raw(), std::process::id());
        assert_eq!(daemon.core().ledger.add(pid, Duty::of_all(own)), None);
        let connect = || {
            let (ours, theirs) = Connection::pair().unwrap();
            let applicant = Applicant { connection: ours, permit: daemon.clients.enter(own).unwrap(), words: None };
            daemon.admit_server(applicant, own, own, vec!["cuda:0".into()]);
            theirs
        };
        let wait = |what: &dyn Fn() -> bool| {
            let until = Instant::now() + Duration::from_secs(60);
            while !what() {
                assert!(Instant::now() < until, "it never comes");
                thread::sleep(Duration::from_millis(5));
            }
        };
        let mut last = connect();
        wait(&|| daemon.core().links.contains_key(&pid));
        for _ in 0..20 {
            let before = daemon.core().links.get(&pid).map(Arc::clone).unwrap();
            let next = connect();
            wait(&|| daemon.core().links.get(&pid).is_some_and(|link| !Arc::ptr_eq(link, &before)));
            drop(before);
            last.set_timeout(Some(Duration::from_secs(60))).unwrap();
            while let Ok(_question) = last.receive::<ToServer>() {}
            wait(&|| daemon.clients.taken() == 1);
            last = next;
        }
        assert_eq!(daemon.clients.taken(), 1, "the connection that is left holds a permit");
        drop(last);
        wait(&|| daemon.clients.taken() == 0);
    }

    #[test]
    fn what_is_true_for_all_is_not_learned_from_a_process_of_another_user() {
        let (_folder, daemon) = daemon();
        let own = rustix::process::geteuid().as_raw();
        let facts = cumux_wire::message::DeviceFacts {
            id: "cuda:0".into(),
            name: "\u{1b}[2J".into(),
            uuid: [0; 16],
            pci: [0; 3],
            memory: 0,
            attributes: cumux_wire::facts::Attributes::default(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        };
        let mut lines = Lines::new(Instant::now());
        daemon.handle_message(50, own + 1, FromServer::Ready { devices: vec![facts.clone()] }, &mut lines);
        assert!(daemon.devices().is_empty());
        daemon.handle_message(50, own, FromServer::Ready { devices: vec![facts] }, &mut lines);
        assert_eq!(daemon.devices()[0].name, "\\u{1b}[2J");
    }

    #[test]
    fn a_server_that_talks_without_end_does_not_fill_the_log() {
        let begin = Instant::now();
        let mut lines = Lines::new(begin);
        assert_eq!((0..1000).filter(|_| lines.take_line(begin).is_some()).count(), 100);
        assert_eq!(lines.take_line(begin + LINE), Some(900), "the next line tells how many are missing");
        assert_eq!(lines.take_line(begin + LINE), None);
        let later = begin + Duration::from_secs(3600);
        assert_eq!((0..1000).filter(|_| lines.take_line(later).is_some()).count(), 100, "silence is not saved up");
    }
}
