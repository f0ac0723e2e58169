//! The sockets to which everybody may connect. Clients connect, say hello and wait here until they
//! are handed over, are refused, or go.
//!
//! One thread serves them all: a silent client keeps nobody else waiting. A waiting client is
//! watched by its socket and its pidfd, so that no server is started for one that has gone.

use crate::clean;
use crate::daemon::Daemon;
use crate::doors::{ConnectionPermit, Full};
use crate::group_doors::{GroupDoor, GroupDoors};
use crate::groups::{Door, read_cgroups};
use crate::guests::{DOOR, Guest, refuse};
use crate::ledger::Standing;
use crate::log::on_account_of;
use crate::registry::{Event, Token};
use crate::servers::Applicant;
use crate::ui;
use cumux_link::{Caller, Connection, LinkError, Listener, Peer, PeerError, Process};
use cumux_wire::VERSION;
use cumux_wire::message::Hello;
use cumux_wire::result;
use rustix::event::epoll;
use rustix::fs::Timespec;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take for its hello.
const HELLO: Duration = Duration::from_secs(5);
/// How long it may take to read a packet that has arrived.
const READ: Duration = Duration::from_millis(100);
/// Connections that are accepted before the clients inside are served again.
const BATCH: usize = 64;
/// How long no connection is accepted after the system ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two log lines on missing descriptors.
const TOLD: Duration = Duration::from_secs(10);

const NO_DESCRIPTORS: &str = "The control daemon has no descriptors left for another program: try again, or raise its limit (ulimit -n)";

/// A connection whose peer has not said hello yet.
struct Newcomer {
    connection: Connection,
    permit: ConnectionPermit,
    uid: u32,
    /// The group by whose socket it came.
    group: Option<String>,
    until: Instant,
}

/// A spare descriptor: it allows to accept one more connection and to refuse it with a sentence.
struct Spare {
    file: Option<File>,
    told: Option<Instant>,
}

impl Spare {
    fn new() -> Self {
        Self { file: File::open("/dev/null").ok(), told: None }
    }

    /// Opens the descriptor again if it was lost: before a connection is accepted that would take
    /// the last one.
    fn regain(&mut self) {
        if self.file.is_none() {
            self.file = File::open("/dev/null").ok();
        }
    }

    /// Accepts one connection, refuses it and closes it; false if even that is impossible.
    fn turn_away<C>(&mut self, accept: impl FnOnce() -> Option<C>, tell: impl FnOnce(C)) -> bool {
        drop(self.file.take());
        let done = accept().map(tell).is_some();
        self.regain();
        done
    }

    /// Whether the log should report it.
    fn is_news(&mut self) -> bool {
        let news = self.told.is_none_or(|at| at.elapsed() >= TOLD);
        if news {
            self.told = Some(Instant::now());
        }
        news
    }
}

/// What the lobby's thread alone knows.
struct Lobby {
    daemon: Arc<Daemon>,
    newcomers: BTreeMap<Token, Newcomer>,
    next: Token,
    spare: Spare,
    /// No connection is accepted before.
    closed_until: Option<Instant>,
}

impl Daemon {
    /// Serves the `cumux` socket as long as the process lives.
    pub(crate) fn receive_guests(self: &Arc<Self>, listener: &Listener) {
        let opened = rustix::io::ioctl_fionbio(listener, true)
            .and_then(|()| epoll::add(&self.watch.set, listener, epoll::EventData::new_u64(DOOR), epoll::EventFlags::IN));
        if let Err(errno) = opened {
            return self.note(&format!("Programs cannot be served: {errno}"));
        }
        Lobby { daemon: Arc::clone(self), newcomers: BTreeMap::new(), next: 1, spare: Spare::new(), closed_until: None }.serve(listener);
    }

    /// Accepts text connections as long as the process lives.
    pub(crate) fn accept_texts(self: &Arc<Self>, listener: &UnixListener) {
        let mut spare = Spare::new();
        // The refusal fits into the socket's buffer, or is not sent.
        let too_many = |stream: &UnixStream| {
            let _ = stream.set_nonblocking(true);
            ui::say(stream, ui::TOO_MANY, 1, false);
        };
        loop {
            spare.regain();
            let error = match listener.accept() {
                Ok((stream, _)) => {
                    let Ok(peer) = Peer::of(&stream) else { continue };
                    if is_ourselves(&peer) {
                        continue;
                    }
                    let _account = on_account_of(peer.uid);
                    let permit = match self.texts.enter(peer.uid) {
                        Ok(permit) => permit,
                        Err(full) => {
                            self.note_full("text connections", peer.uid, &full);
                            too_many(&stream);
                            continue;
                        }
                    };
                    self.note("Accepting connection...");
                    let daemon = Arc::clone(self);
                    let serve = move || {
                        ui::serve(&daemon, &stream, peer.uid);
                        // Under the lock: a thread that waits for the last permit must not check
                        // just before and sleep just after.
                        let core = daemon.core();
                        drop((stream, permit));
                        drop(core);
                        daemon.changed.notify_all();
                    };
                    // Without a thread the connection closes.
                    match thread::Builder::new().name("text".into()).spawn(serve) {
                        Ok(_) => continue,
                        Err(error) => error,
                    }
                }
                Err(error) if lacks_descriptors(error.raw_os_error()) => {
                    let accept = || listener.accept().ok();
                    let refused = spare.turn_away(accept, |(stream, _)| too_many(&stream));
                    if spare.is_news() {
                        self.note(NO_DESCRIPTORS);
                    }
                    if refused {
                        continue;
                    }
                    error
                }
                Err(error) => error,
            };
            // Only the end of other connections helps; a busy loop would not.
            if spare.is_news() {
                self.note(&format!("Cannot accept a connection: {error}"));
            }
            thread::sleep(PAUSE);
        }
    }

    fn note_full(&self, what: &str, uid: u32, full: &Full) {
        if full.new {
            self.note(&format!("User {uid} has {} {what} open, and more are turned away", full.has));
        }
    }
}

impl Lobby {
    fn serve(mut self, listener: &Listener) {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(BATCH);
        loop {
            let now = Instant::now();
            let next = [self.closed_until, self.newcomers.values().next().map(|newcomer| newcomer.until)].into_iter().flatten().min();
            // One millisecond more, so that the deadline has passed on waking.
            let rest = next.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1)).and_then(|rest| Timespec::try_from(rest).ok());
            match epoll::wait(&self.daemon.watch.set, rustix::buffer::spare_capacity(&mut ready), rest.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return self.daemon.note(&format!("Programs cannot be served any more: {errno}")),
            }
            for event in ready.drain(..) {
                let token = event.data.u64();
                // A panic over one client must not close the door for all.
                let done = catch_unwind(AssertUnwindSafe(|| self.handle(token, listener)));
                if done.is_err() {
                    self.daemon.note("Internal error with a program that connected; it is in standard error");
                }
            }
            self.expire(listener);
        }
    }

    fn handle(&mut self, token: Token, listener: &Listener) {
        if token == DOOR {
            return self.accept(listener, token, None);
        }
        if !GroupDoors::is_one(token) {
            return self.handle_event(token);
        }
        let door = self.daemon.core().doors.get(token);
        if let Some(GroupDoor { group, listener }) = door {
            self.accept(&listener, token, Some(&group));
        }
    }

    fn accept(&mut self, listener: &Listener, door: Token, group: Option<&str>) {
        for _ in 0..BATCH {
            self.spare.regain();
            let error = match listener.accept() {
                Ok(connection) => {
                    self.let_in(connection, group);
                    continue;
                }
                // No further connection waits.
                Err(LinkError::Timeout) => return,
                Err(LinkError::System(Errno::CONNABORTED)) => continue,
                Err(LinkError::System(errno)) if lacks_descriptors(Some(errno.raw_os_error())) => {
                    let accept = || listener.accept().ok();
                    let refused = self.spare.turn_away(accept, |connection| refuse(&connection, result::MPS_MAX_CLIENTS_REACHED, NO_DESCRIPTORS.into()));
                    if self.spare.is_news() {
                        self.daemon.note(NO_DESCRIPTORS);
                    }
                    if refused {
                        continue;
                    }
                    LinkError::System(errno)
                }
                Err(error) => error,
            };
            if self.spare.is_news() {
                self.daemon.note(&format!("Cannot accept a connection: {error}"));
            }
            // The listening socket stays readable: without this the loop would spin.
            if self.daemon.watch.door(listener, door, false).is_ok() {
                self.closed_until = Some(Instant::now() + PAUSE);
            }
            return;
        }
    }

    fn let_in(&mut self, connection: Connection, group: Option<&str>) {
        let Ok(peer) = connection.peer() else { return };
        if is_ourselves(&peer) {
            return;
        }
        let Peer { uid, pid, .. } = peer;
        let _account = on_account_of(uid);
        let is_server = pid.is_some_and(|pid| matches!(self.daemon.core().ledger.standing(pid, uid), Standing::Ours));
        let quota = if is_server { &self.daemon.servers } else { &self.daemon.clients };
        let permit = match quota.enter(uid) {
            Ok(permit) => permit,
            Err(full) => {
                self.daemon.note_full("programs that wait", uid, &full);
                let why =
                    format!("{} programs of user {uid} wait to be served already, and there is no place for another: try again when some have ended", full.has);
                return refuse(&connection, result::MPS_MAX_CLIENTS_REACHED, why);
            }
        };
        self.daemon.note("Accepting connection...");
        let token = self.next;
        self.next += 1;
        match self.daemon.watch.newcomer(&connection, token) {
            Ok(()) => drop(self.newcomers.insert(token, Newcomer { connection, permit, uid, group: group.map(str::to_owned), until: Instant::now() + HELLO })),
            Err(errno) => refuse(&connection, result::MPS_CONNECTION_FAILED, format!("The control daemon cannot watch another program: {errno}")),
        }
    }

    /// Handles an event on one descriptor.
    fn handle_event(&mut self, token: Token) {
        if let Some(newcomer) = self.newcomers.remove(&token) {
            return self.greet(newcomer, token);
        }
        let mut core = self.daemon.core();
        // A client that was handed over a moment ago belongs to its server.
        if self.daemon.remove_guest(&mut core, token).is_some() {
            self.daemon.feed_locked(&mut core, Event::ClientGone { token });
            drop(core);
            self.daemon.changed.notify_all();
        }
    }

    /// Handles the first packet of a newcomer, or its end.
    fn greet(&self, newcomer: Newcomer, token: Token) {
        let Newcomer { connection, permit, uid, group, .. } = newcomer;
        let _account = on_account_of(uid);
        let daemon = &self.daemon;
        let hello = connection.set_timeout(Some(READ)).and_then(|()| connection.receive::<Hello>());
        // The timeout belongs to the socket, and the socket goes to the server.
        let (hello, descriptors) = match (hello, connection.set_timeout(None)) {
            (Ok(hello), Ok(())) => hello,
            (Err(LinkError::Format(_)), _) => {
                daemon.note("User did not send a hello of this version");
                return refuse(&connection, result::MPS_CONNECTION_FAILED, other_version(None));
            }
            // Our library looks who listens before it says hello.
            (Err(LinkError::Closed), _) => return,
            _ => return daemon.note("User did not send valid credentials"),
        };
        match hello {
            Hello::Client { version, .. } | Hello::Server { version, .. } if version != VERSION => {
                let why = other_version(Some(version));
                daemon.note(&why);
                refuse(&connection, result::MPS_CONNECTION_FAILED, why);
            }
            Hello::Client { .. } => match Caller::of(&connection, descriptors.into_iter().next()) {
                Ok(Caller { number, process }) => {
                    let door = Door { cgroups: self.cgroups_of(&connection, &process), group };
                    self.welcome(
                        Guest { connection, process, _permit: permit },
                        token,
                        Event::Client { token, pid: number, uid, hello: clean::hello(hello), door },
                    );
                }
                Err(PeerError::Ended) => daemon.note("A program has ended before it could be served"),
                Err(error) => {
                    daemon.note("User did not send valid credentials");
                    refuse(&connection, result::MPS_CONNECTION_FAILED, error.to_string());
                }
            },
            Hello::Server { .. } if group.is_some() => daemon.note("A server connected by the socket of a group: refused"),
            Hello::Server { uid: serves, devices, .. } => {
                daemon.admit_server(Applicant { connection, permit, words: descriptors.into_iter().next() }, uid, serves, devices);
            }
            Hello::Keeper { .. } | Hello::Executor { .. } => daemon.note("A keeper or executor connected here instead of to its server: refused"),
        }
    }

    /// The control groups of a client, if they matter. None of a process that cannot be looked at
    /// from here, or that has ended: its number may be another's by now.
    fn cgroups_of(&self, connection: &Connection, process: &Process) -> Vec<String> {
        if !self.daemon.registry(|registry| registry.groups.ask_for_cgroups()) {
            return Vec::new();
        }
        let Ok(Peer { pid: Some(pid), .. }) = connection.peer() else { return Vec::new() };
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if process.is_alive() { read_cgroups(&text) } else { Vec::new() }
    }

    fn welcome(&self, guest: Guest, token: Token, arrival: Event) {
        let mut core = self.daemon.core();
        if let Err(errno) = self.daemon.watch.guest(&guest, token) {
            return refuse(&guest.connection, result::MPS_CONNECTION_FAILED, format!("The control daemon cannot watch another program: {errno}"));
        }
        core.guests.insert(token, guest);
        self.daemon.feed_locked(&mut core, arrival);
        drop(core);
        self.daemon.changed.notify_all();
    }

    /// Drops newcomers that have been silent for too long, and opens the door again.
    fn expire(&mut self, listener: &Listener) {
        let now = Instant::now();
        while let Some(first) = self.newcomers.first_entry().filter(|first| first.get().until <= now) {
            drop(first.remove());
            self.daemon.note("User did not send valid credentials");
        }
        if self.closed_until.is_some_and(|until| until <= now) && self.daemon.watch.door(listener, DOOR, true).is_ok() {
            self.closed_until = None;
            let core = self.daemon.core();
            for (token, door) in core.doors.iter() {
                let _ = self.daemon.watch.door(&door.listener, *token, true);
            }
        }
    }
}

/// Whether this process has connected itself, to see who listens (`inherited.rs`).
fn is_ourselves(peer: &Peer) -> bool {
    peer.pid == Some(std::process::id())
}

/// Whether the process or the system has no descriptor or memory left.
fn lacks_descriptors(errno: Option<i32>) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|lack| errno == Some(lack.raw_os_error()))
}

fn other_version(version: Option<u32>) -> String {
    let theirs = version.map_or_else(|| "another version of cumux's protocol".to_owned(), |version| format!("version {version} of cumux's protocol"));
    format!("The program speaks {theirs}, this control daemon version {VERSION}: use libcuda.so.1 and cumux of the same release")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_without_descriptors_says_so_once_in_a_while() {
        let mut spare = Spare::new();
        assert!(spare.is_news(), "the first time");
        assert!(!spare.is_news() && !spare.is_news(), "and then not for each connection");
        spare.told = Instant::now().checked_sub(TOLD);
        assert!(spare.is_news(), "after a while again");
    }

    /// The spare descriptor makes place for one connection, and is there again afterwards.
    #[test]
    fn the_spare_descriptor_serves_again_and_again() {
        let mut spare = Spare::new();
        let mut told = Vec::new();
        for client in [Some(1), None, Some(2)] {
            assert_eq!(spare.turn_away(|| client, |client| told.push(client)), client.is_some());
            assert!(spare.file.is_some());
        }
        assert_eq!(told, [1, 2]);
        spare.file = None;
        spare.regain();
        assert!(spare.file.is_some());
    }
}
