//! The daemon's registry, fed with what clients and servers say in packets, with pretended
//! processes and a clock that the bytes move.
//!
//! Whatever happens: no client gets two answers, a deadline that has passed does not come again at
//! once, and after `quit` everybody is answered and the end is told, once.

use crate::bytes::Bytes;
use crate::messages::{self, CLIENTS, USERS};
use cumux_control::groups::Door;
use cumux_control::registry::{Duty, Effect, Event, Reach, Registry, Token};
use cumux_control::settings::Settings;
use cumux_wire::VERSION;
use cumux_wire::message::{FromServer, Hello};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Steps in one run.
const MOST: usize = 64;

struct World<'b, 'd> {
    bytes: &'b mut Bytes<'d>,
    registry: Registry,
    now: Instant,
    next_token: Token,
    /// Clients that wait for their answer.
    waiting: BTreeSet<Token>,
    /// Servers that live, and what they are there for.
    servers: BTreeMap<u32, Duty>,
    next_pid: u32,
    finished: u32,
}

/// # Panics
/// The registry does not do what it should.
pub fn run(bytes: &mut Bytes<'_>) {
    let mut registry = Registry::new(Settings::from_environment(|_| None));
    registry.multiuser = bytes.one_in(2);
    registry.devices = vec!["sim:h200".into()];
    if bytes.one_in(2) {
        registry.devices = vec!["cuda:0".into(), "cuda:1".into()];
        registry.cards.clone_from(&registry.devices);
        registry.facts = (0..2).map(|_| messages::device(bytes)).collect();
    }
    let mut world =
        World { bytes, registry, now: Instant::now(), next_token: 1, waiting: BTreeSet::new(), servers: BTreeMap::new(), next_pid: 100, finished: 0 };
    for _ in 0..MOST {
        if world.bytes.is_empty() || world.finished > 0 {
            break;
        }
        world.step();
    }
    world.end();
}

impl World<'_, '_> {
    fn step(&mut self) {
        match self.bytes.below(16) {
            12 => {
                if let Some(token) = self.waiting.iter().next().copied() {
                    // It has hung up: nobody is owed an answer.
                    self.waiting.remove(&token);
                    self.happen(Event::ClientGone { token });
                }
            }
            13 => {
                let pid = self.server();
                self.happen(Event::Unresponsive { pid, why: "stands still".into() });
            }
            14 => {
                // What an earlier daemon has left: a server that lives, or one that does not.
                let uid = self.bytes.pick(&USERS);
                let duty = Duty { uid, reach: self.bytes.pick(&[Reach::All, Reach::Card(0), Reach::Card(1), Reach::Card(7)]) };
                let pid = (!self.bytes.one_in(2)).then(|| self.launch(duty));
                self.happen(Event::Left { pid, duty });
            }
            0..=2 | 15 => self.client(),
            3 => self.server_hello(),
            4 | 5 => self.server_says(),
            6 => {
                let pid = self.server();
                self.happen(Event::Disconnected { pid });
            }
            7 => {
                let pid = self.server();
                self.server_ends(pid);
            }
            8 => {
                let uid = self.bytes.pick(&USERS);
                self.happen(Event::Wanted { uid });
            }
            9 => {
                let (pid, force) = (self.server(), self.bytes.one_in(2));
                self.happen(Event::Shutdown { pid, force });
            }
            10 => {
                let seconds = self.bytes.pick(&[0, 1, 5, 30, 3600]);
                self.pass(Duration::from_secs(seconds));
            }
            _ => {
                // Rarely: nothing starts after it.
                if self.bytes.one_in(4) {
                    let timeout = self.bytes.pick(&[None, Some(0), Some(5)]).map(Duration::from_secs);
                    self.happen(Event::Quit { timeout });
                }
            }
        }
    }

    /// A server that lives, mostly.
    fn server(&mut self) -> u32 {
        let all: Vec<u32> = self.servers.keys().copied().collect();
        if all.is_empty() || self.bytes.one_in(16) { self.bytes.word() } else { self.bytes.pick(&all) }
    }

    fn client(&mut self) {
        let hello = messages::client_hello(self.bytes);
        let packet = messages::packet(self.bytes, &hello);
        let Some((hello, _)) = messages::through::<Hello>(&packet, &[]) else { return };
        if !matches!(hello, Hello::Client { version: VERSION, .. }) {
            return;
        }
        let (token, pid, uid) = (self.next_token, self.bytes.pick(&CLIENTS), self.bytes.pick(&USERS));
        self.next_token += 1;
        self.waiting.insert(token);
        let door = Door { group: Some(self.bytes.text(&["", "", "pod"])).filter(|name| !name.is_empty()), cgroups: Vec::new() };
        self.happen(Event::Client { token, pid, uid, hello, door });
    }

    fn server_hello(&mut self) {
        let known: Vec<u32> = self.servers.keys().copied().collect();
        let hello = messages::hello(self.bytes, &known);
        let packet = messages::packet(self.bytes, &hello);
        let Some((Hello::Server { version: VERSION, pid, uid, devices }, _)) = messages::through::<Hello>(&packet, &[]) else { return };
        // The kernel knows the pid, so it is that of a process that lives; one server has one duty.
        let duty = *self.servers.entry(pid).or_insert(Duty::of_all(uid));
        self.happen(Event::Registered { pid, duty, devices });
    }

    fn server_says(&mut self) {
        let pid = self.server();
        let message = messages::from_server(self.bytes);
        let packet = messages::packet(self.bytes, &message);
        let Some((message, _)) = messages::through::<FromServer>(&packet, &[]) else { return };
        match message {
            FromServer::Ready { devices } => self.happen(Event::Ready { pid, devices }),
            FromServer::Failed { why } => self.happen(Event::Failed { pid, why }),
            FromServer::Clients { count, taken } => self.happen(Event::Clients { pid, count, taken }),
            FromServer::Note { .. }
            | FromServer::Status { .. }
            | FromServer::Terminated { .. }
            | FromServer::Shared { .. }
            | FromServer::Moved { .. }
            | FromServer::Regrouped { .. }
            | FromServer::Upgraded { .. }
            | FromServer::Pong { .. } => {}
        }
    }

    fn launch(&mut self, duty: Duty) -> u32 {
        self.next_pid += 1;
        self.servers.insert(self.next_pid, duty);
        self.next_pid
    }

    fn server_ends(&mut self, pid: u32) {
        self.servers.remove(&pid);
        let status = self.bytes.pick(&[Some(0), Some(1), None]);
        self.happen(Event::Exited { pid, status });
    }

    /// Time passes, and what is due happens.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        let due = |registry: &Registry, now| registry.deadline().is_some_and(|deadline| deadline <= now);
        for _ in 0..8 {
            if !due(&self.registry, self.now) {
                return;
            }
            self.happen(Event::Tick);
        }
        assert!(!due(&self.registry, self.now), "a deadline that has passed comes again and again");
    }

    fn happen(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            assert!(self.next_pid < 10_000, "servers are started without end");
            for effect in self.registry.handle(self.now, event) {
                self.carry_out(effect, &mut events);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::Launch { duty } => {
                if self.bytes.one_in(4) {
                    let again = self.bytes.one_in(2);
                    events.push_back(Event::LaunchFailed { duty, why: "no process".into(), again });
                } else {
                    let pid = self.launch(duty);
                    events.push_back(Event::Launched { pid, duty });
                }
            }
            Effect::Hand { token, server, pid, uid, hello, .. } => {
                assert!(self.waiting.contains(&token), "a client that does not wait is handed over");
                assert!(self.registry.server(server).is_some(), "to nobody");
                // A server that has just died: its client comes again.
                if self.bytes.one_in(8) {
                    events.push_back(Event::Disconnected { pid: server });
                    events.push_back(Event::Client { token, pid, uid, hello, door: Door::default() });
                } else {
                    self.waiting.remove(&token);
                }
            }
            Effect::Refuse { token, why, .. } => {
                assert!(self.waiting.remove(&token), "a client that does not wait is refused");
                assert!(!why.is_empty(), "a refusal says why");
            }
            Effect::Finished { .. } => self.finished += 1,
            Effect::Shutdown { .. } | Effect::Kill { .. } | Effect::Log(_) | Effect::Launched { .. } => {}
        }
    }

    /// `quit`, and every server ends in its time.
    fn end(mut self) {
        self.happen(Event::Quit { timeout: Some(Duration::ZERO) });
        while let Some(pid) = self.servers.keys().next().copied() {
            self.pass(Duration::from_secs(40));
            self.server_ends(pid);
        }
        self.pass(Duration::from_secs(40));
        assert!(self.waiting.is_empty(), "clients wait for ever: {:?}", self.waiting);
        assert_eq!(self.finished, 1, "the end is told once");
    }
}
