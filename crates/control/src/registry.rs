//! Which server serves whom: the registry of servers and the queue of users.
//!
//! A pure state machine: events in, effects out, time as an argument. As in MPS, at most one user's
//! server is active; a client of another user waits until the active server's clients are gone. In
//! multi-user mode every user has a server of its own and nobody waits: NVIDIA's puts all users
//! into one server, and here different users never share an executor. With a server for each card
//! (`duty.rs`) a user has several, and what is said here of a user's server is said of each.
//!
//! ```text
//!            awaited (of an earlier daemon)
//!               │  ╲── not connected within 5 s: forgotten
//!               ▼
//!            launched ──hello──▶ registered ──ready──▶ ready ──must go, no clients──▶ leaving
//!               │                    │                   │                              ▲  │
//!               └──────── exited: launched again, six times in all ◀────┘               │  ▼
//!                                                        └──────────── forced ──────────┘ (gone)
//! ```
//!
//! Invariants: a waiting client is handed over, refused, or has gone, never forgotten; a server
//! that was not asked to leave is launched again when it ends; after `Quit` nothing is launched.
//! How many clients a server has is the server's word alone: the registry adds those that it has
//! handed over and the server has not yet taken. What an earlier daemon has left is known here
//! before the first client is: nobody gets a server beside one that still lives.
//!
//! One file, because the state and what follows from each event are to be read together.

use crate::duty::View;
pub use crate::duty::{Duty, Reach};
pub use crate::event::{Effect, Event, Token};
use crate::groups::{Door, Group, Groups};
use crate::partitions::{Board, PARTITION_VARIABLE};
pub use crate::server::Server;
use crate::server::{Away, Phase};
use crate::settings::{self, Percentage, Settings};
use cumux_wire::message::{DeviceFacts, Grant, GroupGrant, Hello};
use cumux_wire::result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Starts of a server in a row before its clients are refused.
const ATTEMPTS: u32 = 6;
/// A server that lived this long started well.
const GOOD_START: Duration = Duration::from_secs(10);
/// How long a forced server may take to end before it is killed.
const FORCED: Duration = Duration::from_secs(5);
/// How long a server may take from its launch to its hello.
const LAUNCH: Duration = Duration::from_secs(30);
/// How long the daemon waits for a server of an earlier daemon. A living one looks for a daemon ten
/// times a second.
const AWAITED: Duration = Duration::from_secs(5);

/// Complaints that are kept.
const COMPLAINTS: usize = 32;

#[derive(Debug)]
struct Waiting {
    token: Token,
    pid: u32,
    /// Of the server that it waits for.
    duty: Duty,
    hello: Hello,
    door: Door,
    /// Its group, by its door.
    group: Option<String>,
}

/// The state of all servers and users.
#[derive(Debug)]
pub struct Registry {
    /// The defaults for new servers.
    pub defaults: Settings,
    /// `-M`: servers of several users are active at the same time.
    pub multiuser: bool,
    /// Static SM partitioning (`-S`).
    pub board: Option<Board>,
    /// Groups of clients.
    pub groups: Groups,
    /// Users whose servers have memory-locality partitions.
    pub mlopart: BTreeSet<u32>,
    /// The devices with which servers start, named as in `--device`.
    pub devices: Vec<String>,
    /// `--per-card`: the names by which each of them is found alone. Empty without that option.
    pub cards: Vec<String>,
    /// The devices, as far as they are known.
    pub facts: Vec<DeviceFacts>,
    /// Their memory-locality partitions; empty where there are none.
    pub localities: Vec<String>,
    /// Servers of an earlier daemon that died with clients of other devices, and those devices: the
    /// successor serves the clients there.
    inherited: BTreeMap<Duty, Vec<String>>,
    /// Settings that were ignored without a word to the program, newest last.
    pub complaints: VecDeque<String>,
    servers: Vec<Server>,
    waiting: VecDeque<Waiting>,
    /// Servers that are started though no client waits: by `start_server`, or because one died.
    wanted: VecDeque<Duty>,
    /// A launch was ordered, and nobody has said yet how it went.
    is_launching: bool,
    /// Servers of an earlier daemon that were lost.
    orphaned: BTreeSet<Duty>,
    /// Failed starts in a row, and when to try again.
    failures: u32,
    retry_at: Option<Instant>,
    quitting: Option<Quitting>,
    /// The user and the reason of the last failure to serve.
    last_failure: Option<(u32, String)>,
}

#[derive(Debug)]
struct Quitting {
    force_at: Option<Instant>,
    clean: bool,
    finished: bool,
}

impl Registry {
    /// A registry without servers.
    #[must_use]
    pub fn new(defaults: Settings) -> Self {
        Self {
            defaults,
            multiuser: false,
            board: None,
            groups: Groups::default(),
            mlopart: BTreeSet::new(),
            devices: Vec::new(),
            cards: Vec::new(),
            facts: Vec::new(),
            localities: Vec::new(),
            inherited: BTreeMap::new(),
            complaints: VecDeque::new(),
            servers: Vec::new(),
            waiting: VecDeque::new(),
            wanted: VecDeque::new(),
            is_launching: false,
            orphaned: BTreeSet::new(),
            failures: 0,
            retry_at: None,
            quitting: None,
            last_failure: None,
        }
    }

    /// All servers, oldest first.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server with this process id.
    #[must_use]
    pub fn server(&self, pid: u32) -> Option<&Server> {
        self.servers.iter().find(|server| server.pid == pid)
    }

    /// As [`Registry::server`], to change its settings.
    pub fn server_mut(&mut self, pid: u32) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.pid == pid)
    }

    /// Whether a server of this user is starting.
    #[must_use]
    pub fn is_starting(&self, uid: u32) -> bool {
        self.quitting.is_none()
            && (self.wanted.iter().any(|wanted| wanted.uid == uid)
                || self.servers.iter().any(|s| s.uid == uid && matches!(s.phase, Phase::Awaited | Phase::Launched | Phase::Registered)))
    }

    /// Keeps a complaint for `cumux doctor`, each text once; false if it is known already.
    pub fn complain(&mut self, text: String) -> bool {
        if self.complaints.contains(&text) {
            return false;
        }
        if self.complaints.len() >= COMPLAINTS {
            self.complaints.pop_front();
        }
        self.complaints.push_back(text);
        true
    }

    /// Why the last attempt to serve this user failed.
    #[must_use]
    pub fn failure(&self, uid: u32) -> Option<&str> {
        self.last_failure.as_ref().filter(|(user, _)| *user == uid).map(|(_, why)| why.as_str())
    }

    /// The devices with which the next server with this duty starts, named as in `--device`.
    #[must_use]
    pub fn devices_for(&self, duty: Duty) -> Vec<String> {
        match self.inherited.get(&duty) {
            Some(devices) => devices.clone(),
            None if self.mlopart.contains(&duty.uid) => self.localities.clone(),
            None => self.usual_devices(duty.reach),
        }
    }

    /// Of a server of this daemon. A card that this daemon has no servers for has no name.
    fn usual_devices(&self, reach: Reach) -> Vec<String> {
        match reach {
            Reach::All => self.devices.clone(),
            Reach::Card(_) => reach.among(&self.cards),
        }
    }

    /// The limits of a group for a server with these devices, in its numbers.
    #[must_use]
    pub fn group_limits(&self, name: &str, group: &Group, reach: Reach, devices: &[DeviceFacts]) -> GroupGrant {
        let View { counted, reach } = View::of(reach, &self.facts, devices);
        let mut limits = group.limits(name, counted);
        reach.narrow_group(&mut limits);
        limits
    }

    /// The server for a program. One of a group has the server of the group's cards, whatever it
    /// sees of them: a server counts what all clients of a group use together.
    fn duty_of(&self, uid: u32, hello: &Hello, group: Option<&str>) -> Duty {
        if !self.has_servers_of_cards(uid) {
            return Duty::of_all(uid);
        }
        let reach = match group.and_then(|name| self.groups.get(name)) {
            Some(group) => match group.places(&self.facts).as_slice() {
                [place] => Reach::Card(*place),
                _ => Reach::All,
            },
            None => Reach::of_program(&self.defaults.for_client(environment_of(hello), &self.facts).devices),
        };
        Duty { uid, reach }
    }

    /// Whether a user has a server for each card. Where localities or static partitions are
    /// devices, a card is none.
    fn has_servers_of_cards(&self, uid: u32) -> bool {
        self.cards.len() > 1 && self.facts.len() == self.cards.len() && self.board.is_none() && !self.mlopart.contains(&uid)
    }

    /// The servers that `start_server` starts for a user.
    fn duties(&self, uid: u32) -> Vec<Duty> {
        if self.has_servers_of_cards(uid) {
            (0..self.cards.len()).map(|place| Duty { uid, reach: Reach::Card(place) }).collect()
        } else {
            vec![Duty::of_all(uid)]
        }
    }

    /// Why a server ends when its clients have gone, as a text for people; empty where it stays.
    #[must_use]
    pub fn leaving(&self, pid: u32) -> String {
        let Some(server) = self.server(pid) else { return String::new() };
        match server.away {
            None | Some(Away::Heir) => String::new(),
            Some(Away::OtherUser) => "another user waits".into(),
            Some(Away::OtherDevices) => other_devices(&server.device_names, &self.devices_of_this_daemon(server.reach)),
            Some(Away::Command) => "it was told to (shutdown_server)".into(),
            Some(Away::Quit) => "the control daemon ends then (quit)".into(),
        }
    }

    /// When `Tick` is due at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let kills = self.servers.iter().filter_map(|server| server.kill_at.or((server.phase == Phase::Awaited).then(|| server.since + AWAITED)));
        let quit = self.quitting.as_ref().and_then(|q| q.force_at);
        kills.chain(quit).chain(self.retry_at).min()
    }

    /// Processes one event and returns the orders that follow from it.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if matches!(event, Event::Launched { .. } | Event::LaunchFailed { .. }) {
            self.is_launching = false;
        }
        match event {
            Event::Client { token, pid, uid, hello, door } => {
                self.client(Waiting { token, pid, duty: Duty::of_all(uid), hello, door, group: None }, &mut effects);
            }
            Event::ClientGone { token } => {
                if let Some(at) = self.waiting.iter().position(|client| client.token == token)
                    && let Some(client) = self.waiting.remove(at)
                {
                    effects.push(Effect::Log(format!("Client {} of user {} has gone while it waited", client.pid, client.duty.uid)));
                }
            }
            Event::Wanted { uid } => {
                self.last_failure = None;
                self.failures = 0;
                self.retry_at = None;
                for duty in self.duties(uid) {
                    if !self.servers.iter().any(|s| s.duty() == duty && s.phase != Phase::Leaving) {
                        self.want(duty);
                    }
                }
            }
            Event::Left { pid: Some(pid), duty } => self.add(now, pid, duty, Phase::Awaited),
            Event::Left { pid: None, duty } => {
                let Duty { uid, .. } = duty;
                let which = duty.of_card();
                effects
                    .push(Effect::Log(format!("The server{which} of user {uid} was lost with an earlier control daemon: a new one looks after its clients")));
                self.orphaned.insert(duty);
                self.want(duty);
            }
            Event::LaunchFailed { duty, why, again: true } => self.failed_start(now, duty, &why, &mut effects),
            Event::LaunchFailed { duty, why, again: false } => self.give_up(duty, &why, &mut effects),
            Event::Disconnected { pid } => {
                if let Some(server) = self.server_mut(pid).filter(|server| matches!(server.phase, Phase::Registered | Phase::Ready)) {
                    server.phase = Phase::Launched;
                    server.kill_at = Some(now + LAUNCH);
                }
            }
            Event::Launched { pid, duty } => {
                effects.push(Effect::Launched { pid, text: format!("Starting new server {pid}{} for user {}", duty.of_card(), duty.uid) });
                let inherited = self.inherited.get(&duty).cloned();
                self.add(now, pid, duty, Phase::Launched);
                let served_again = self.orphaned.remove(&duty) && !self.waiting.iter().any(|client| client.duty == duty);
                if let Some(server) = self.server_mut(pid) {
                    if let Some(devices) = inherited {
                        server.device_names = devices;
                        server.away = server.away.or(Some(Away::OtherDevices));
                    } else if served_again {
                        server.away = server.away.or(Some(Away::Heir));
                    }
                }
            }
            Event::Registered { pid, duty, devices } => self.registered(now, pid, duty, devices, &mut effects),
            Event::Ready { pid, devices } => {
                if let Some(server) = self.server_mut(pid) {
                    server.devices = devices;
                    server.counted.get_or_insert(0);
                    if matches!(server.phase, Phase::Launched | Phase::Registered) {
                        server.phase = Phase::Ready;
                        server.since = now;
                        let duty = server.duty();
                        effects.push(Effect::Log(format!("NEW SERVER {pid}: Ready")));
                        self.wanted.retain(|wanted| *wanted != duty);
                        self.last_failure = None;
                    }
                }
            }
            Event::Failed { pid, why } => {
                if let Some(server) = self.server_mut(pid) {
                    server.phase = Phase::Leaving;
                    server.kill_at = Some(now + FORCED);
                    let duty = server.duty();
                    effects.push(Effect::Log(format!("Server {pid} cannot serve: {why}")));
                    self.give_up(duty, &why, &mut effects);
                }
            }
            Event::Clients { pid, count, taken } => {
                if let Some(server) = self.server_mut(pid) {
                    server.counted = Some(count);
                    server.taken = taken;
                }
            }
            Event::Unresponsive { pid, why } => {
                if self.server(pid).is_some() {
                    effects.push(Effect::Log(format!("Server {pid} {why}; it is killed, and the next one goes on with its clients")));
                    effects.push(Effect::Kill { server: pid });
                }
            }
            Event::Exited { pid, status } => self.exited(now, pid, status, &mut effects),
            Event::Shutdown { pid, force } => {
                if let Some(server) = self.server_mut(pid) {
                    server.away = server.away.filter(|away| *away == Away::OtherDevices).or(Some(Away::Command));
                    server.log_shutdown("disabled", &mut effects);
                    if force {
                        Self::force(now, server, &mut effects);
                    }
                }
            }
            Event::Quit { timeout } => self.quit(now, timeout, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
        }
        self.advance(now, &mut effects);
        effects
    }

    /// A server has connected: one that we launched, one that connects again, or one of an earlier
    /// daemon.
    fn registered(&mut self, now: Instant, pid: u32, duty: Duty, devices: Vec<String>, effects: &mut Vec<Effect>) {
        match self.server_mut(pid) {
            Some(server) if server.phase == Phase::Leaving => {
                // It was not connected when the order to end came.
                effects.push(Effect::Shutdown { server: pid, force: server.kill_at.is_some() });
                return;
            }
            Some(server) => {
                let phase = server.phase;
                server.kill_at = None;
                server.device_names.clone_from(&devices);
                server.forget_counts();
                if matches!(phase, Phase::Awaited | Phase::Launched) {
                    server.phase = Phase::Registered;
                }
                if phase != Phase::Awaited {
                    return;
                }
            }
            None => self.add(now, pid, duty, Phase::Registered),
        }
        let Duty { uid, reach } = duty;
        effects.push(Effect::Log(format!("Server {pid} of user {uid} is adopted")));
        let parts = !self.localities.is_empty() && devices == self.localities;
        if parts {
            self.mlopart.insert(uid);
        }
        let other = !parts && devices != self.usual_devices(reach);
        let why = other.then(|| other_devices(&devices, &self.devices_of_this_daemon(reach)));
        let Some(server) = self.server_mut(pid) else { return };
        server.device_names = devices;
        if let Some(why) = why {
            server.away = server.away.or(Some(Away::OtherDevices));
            effects.push(Effect::Log(format!("Server {pid} of user {uid} goes when its clients have gone: {why}")));
        }
    }

    /// As [`Registry::usual_devices`]; all of them where the daemon has no servers for one card.
    fn devices_of_this_daemon(&self, reach: Reach) -> Vec<String> {
        let usual = self.usual_devices(reach);
        if usual.is_empty() { self.devices.clone() } else { usual }
    }

    fn add(&mut self, now: Instant, pid: u32, duty: Duty, phase: Phase) {
        let away = self.quitting.as_ref().map(|_| Away::Quit);
        let kill_at = (phase == Phase::Launched).then(|| now + LAUNCH);
        let settings = self.defaults.clone();
        self.servers.push(Server {
            pid,
            uid: duty.uid,
            reach: duty.reach,
            settings,
            devices: Vec::new(),
            device_names: Vec::new(),
            phase,
            away,
            counted: None,
            handed: 0,
            taken: 0,
            since: now,
            kill_at,
        });
    }

    fn client(&mut self, mut client: Waiting, effects: &mut Vec<Effect>) {
        let (pid, uid) = (client.pid, client.duty.uid);
        if self.quitting.is_some() {
            let why = "The control daemon is shutting down: start it again (cumux control -d)".to_owned();
            effects.push(Effect::Refuse { token: client.token, result: result::MPS_SERVER_NOT_READY, why });
            return;
        }
        match self.groups.group_of(&client.door, pid, uid) {
            Ok(group) => client.group = group,
            Err(why) => return effects.push(Effect::Refuse { token: client.token, result: result::NOT_PERMITTED, why }),
        }
        client.duty = self.duty_of(uid, &client.hello, client.group.as_deref());
        let duty = client.duty;
        let state = if self.servers.iter().any(|s| s.duty() == duty && s.takes_clients()) {
            "Server already exists"
        } else {
            "Server is not ready, push client to pending list"
        };
        effects.push(Effect::Log(format!("NEW CLIENT {pid} from user {uid}: {state}")));
        if self.waiting.is_empty() && self.servers.is_empty() {
            // A new reason to try: the failures for earlier clients do not count against this one.
            self.failures = 0;
            self.retry_at = None;
        }
        for server in self.servers.iter_mut().filter(|server| server.duty() == duty && server.away == Some(Away::Heir)) {
            server.away = None;
        }
        self.waiting.push_back(client);
    }

    fn exited(&mut self, now: Instant, pid: u32, status: Option<i32>, effects: &mut Vec<Effect>) {
        let Some(at) = self.servers.iter().position(|s| s.pid == pid) else { return };
        let server = self.servers.remove(at);
        effects.push(Effect::Log(match status {
            Some(status) => format!("Server {pid} exited with status {status}"),
            None => format!("Server {pid} exited"),
        }));
        if let Some(quitting) = self.quitting.as_mut() {
            quitting.clean &= status.is_none_or(|status| status == 0);
            return;
        }
        let duty = server.duty();
        if self.servers.iter().any(|other| other.duty() == duty) {
            // While we were starting this server, a running one with the same duty connected; the
            // new one noticed that and ended.
            return;
        }
        self.inherited.remove(&duty);
        if server.away == Some(Away::OtherDevices) && server.phase != Phase::Leaving {
            self.inherited.insert(duty, server.device_names);
        }
        match server.phase {
            Phase::Leaving => {}
            Phase::Ready if now.duration_since(server.since) >= GOOD_START => {
                self.failures = 0;
                self.want(duty);
            }
            // Its clients may still live.
            Phase::Awaited => {
                self.orphaned.insert(duty);
                self.want(duty);
            }
            Phase::Launched | Phase::Registered | Phase::Ready => {
                let why = "the server ended while starting; see server.log in the log directory";
                self.failed_start(now, duty, why, effects);
                if self.retry_at.is_some() {
                    self.want(duty);
                }
            }
        }
    }

    fn failed_start(&mut self, now: Instant, duty: Duty, why: &str, effects: &mut Vec<Effect>) {
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            self.give_up(duty, why, effects);
            return;
        }
        // 0, 50, 100, 200, 400 ms: a single crash costs no time, and a loop of crashes does not
        // burn a core.
        let wait = if self.failures == 1 { Duration::ZERO } else { Duration::from_millis(25 << (self.failures - 1)) };
        self.retry_at = Some(now + wait);
        self.want(duty);
    }

    fn want(&mut self, duty: Duty) {
        if !self.wanted.contains(&duty) {
            self.wanted.push_back(duty);
        }
    }

    /// No server with this duty: every client that waits for it is refused with the reason.
    fn give_up(&mut self, duty: Duty, why: &str, effects: &mut Vec<Effect>) {
        let uid = duty.uid;
        self.failures = 0;
        self.retry_at = None;
        self.inherited.remove(&duty);
        self.wanted.retain(|wanted| *wanted != duty);
        self.last_failure = Some((uid, why.to_owned()));
        for client in std::mem::take(&mut self.waiting) {
            if client.duty == duty {
                effects.push(Effect::Refuse { token: client.token, result: result::MPS_CONNECTION_FAILED, why: format!("No server for user {uid}: {why}") });
            } else {
                self.waiting.push_back(client);
            }
        }
    }

    fn quit(&mut self, now: Instant, timeout: Option<Duration>, effects: &mut Vec<Effect>) {
        if let Some(timeout) = timeout {
            effects.push(Effect::Log(format!("quit command issued with timeout of {}", timeout.as_secs())));
        }
        let force_at = timeout.map(|timeout| now + timeout);
        match self.quitting.as_mut() {
            // A second `quit` can only make the end come sooner.
            Some(quitting) => quitting.force_at = quitting.force_at.into_iter().chain(force_at).min(),
            None => self.quitting = Some(Quitting { force_at, clean: true, finished: false }),
        }
        self.wanted.clear();
        self.retry_at = None;
        for client in self.waiting.drain(..) {
            let why = "The control daemon is shutting down: start it again (cumux control -d)".to_owned();
            effects.push(Effect::Refuse { token: client.token, result: result::MPS_SERVER_NOT_READY, why });
        }
        for server in &mut self.servers {
            server.away = Some(Away::Quit);
            server.log_shutdown("disabled", effects);
        }
        self.tick(now, effects);
    }

    fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        let force = self.quitting.as_ref().is_some_and(|q| q.force_at.is_some_and(|at| at <= now));
        if force {
            if let Some(quitting) = self.quitting.as_mut() {
                quitting.force_at = None;
            }
            for server in &mut self.servers {
                Self::force(now, server, effects);
            }
        }
        self.servers.retain(|server| {
            let is_late = server.phase == Phase::Awaited && server.kill_at.is_none() && server.since + AWAITED <= now;
            if is_late {
                let (pid, seconds) = (server.pid, AWAITED.as_secs());
                effects.push(Effect::Log(format!(
                    "Server {pid} of an earlier control daemon lives, and has not connected within {seconds} s: it is not waited for"
                )));
            }
            !is_late
        });
        for server in &mut self.servers {
            if server.kill_at.is_some_and(|at| at <= now) {
                server.kill_at = None;
                effects.push(Effect::Log(format!("Server {} does not answer and is killed", server.pid)));
                effects.push(Effect::Kill { server: server.pid });
            }
        }
    }

    fn force(now: Instant, server: &mut Server, effects: &mut Vec<Effect>) {
        effects.push(Effect::Log(format!("Force shutting down server {}", server.pid)));
        if server.is_connected() {
            effects.push(Effect::Shutdown { server: server.pid, force: true });
        }
        // A server without connection gets the order when it connects: killed, it would leave its
        // keeper and executors behind.
        server.kill_at = Some(now + FORCED);
        server.phase = Phase::Leaving;
    }

    /// Derives orders from the state, whatever the event was.
    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.hand_over(effects);
        self.make_room(effects);
        self.send_away(now, effects);
        if let Some(duty) = self.next_launch().filter(|_| !self.is_launching && self.quitting.is_none() && self.retry_at.is_none()) {
            self.is_launching = true;
            self.wanted.retain(|wanted| *wanted != duty);
            effects.push(Effect::Launch { duty });
        }
        if let Some(quitting) = self.quitting.as_mut().filter(|q| self.servers.is_empty() && !q.finished) {
            quitting.finished = true;
            effects.push(Effect::Finished { clean: quitting.clean });
        }
    }

    /// The next server to be launched: one at a time, even with several active servers. The event
    /// of this launch triggers the next. Without multi-user mode a user comes after the servers of
    /// all others have gone.
    fn next_launch(&self) -> Option<Duty> {
        let mut next = self.wanted.iter().copied().chain(self.waiting.iter().map(|client| client.duty)).peekable();
        let first = next.peek()?.uid;
        if !self.multiuser && self.servers.iter().any(|server| server.uid != first) {
            return None;
        }
        next.filter(|duty| self.multiuser || duty.uid == first).find(|duty| !self.servers.iter().any(|server| server.duty() == *duty))
    }

    fn hand_over(&mut self, effects: &mut Vec<Effect>) {
        for mut client in std::mem::take(&mut self.waiting) {
            // The devices may have become known, or those of its group may be others.
            client.duty = self.duty_of(client.duty.uid, &client.hello, client.group.as_deref());
            let Some(server) = self.servers.iter_mut().find(|s| s.duty() == client.duty && s.takes_clients()) else {
                self.waiting.push_back(client);
                continue;
            };
            let View { counted, reach } = View::of(server.reach, &self.facts, &server.devices);
            let environment = environment_of(&client.hello);
            // Default priority and isolation apply to every new client, also of a running server.
            server.settings.priority = self.defaults.priority;
            server.settings.isolation = self.defaults.isolation;
            let group = client.group.as_ref().map(|name| (name, self.groups.get(name)));
            let passed_over = group.and_then(|(name, group)| group?.complaint(name, environment));
            for text in settings::complaints(environment, counted).into_iter().chain(passed_over) {
                let text = format!("Process {}: {text}", client.pid);
                effects.push(Effect::Log(text.clone()));
                self.complaints.retain(|known| *known != text);
                self.complaints.push_back(text);
            }
            while self.complaints.len() > COMPLAINTS {
                self.complaints.pop_front();
            }
            let mut grant = match group {
                Some((name, Some(group))) => group.grant(name, &server.settings, environment, counted),
                Some((name, None)) => {
                    let why = format!("group {name} was removed while process {} waited", client.pid);
                    effects.push(Effect::Refuse { token: client.token, result: result::NOT_PERMITTED, why });
                    continue;
                }
                None => server.settings.for_client(environment, counted),
            };
            reach.narrow(&mut grant);
            if let Some(board) = &mut self.board {
                let named = environment.iter().find(|(name, _)| name == PARTITION_VARIABLE).map(|(_, value)| value.as_str());
                match board.assign(named, client.pid) {
                    Ok(parts) => confine(&mut grant, parts),
                    Err(error) => {
                        let why = error.to_string();
                        effects.push(Effect::Refuse { token: client.token, result: result::INVALID_RESOURCE_CONFIGURATION, why });
                        continue;
                    }
                }
            }
            if grant.devices.is_empty() && !counted.is_empty() {
                let why =
                    format!("CUDA_VISIBLE_DEVICES of process {} names none of the {} devices that are served, or one of them twice", client.pid, counted.len());
                effects.push(Effect::Refuse { token: client.token, result: result::NO_DEVICE, why });
                continue;
            }
            server.handed += 1;
            effects.push(Effect::Hand {
                token: client.token,
                server: server.pid,
                pid: client.pid,
                uid: client.duty.uid,
                hello: client.hello,
                grant: Box::new(grant),
                door: client.door,
            });
        }
    }

    /// If a user waits behind another user's server, that server ends when its clients have gone.
    fn make_room(&mut self, effects: &mut Vec<Effect>) {
        if self.multiuser {
            return;
        }
        let Self { servers, waiting, wanted, .. } = self;
        let awaited = |own: u32| wanted.iter().map(|duty| duty.uid).chain(waiting.iter().map(|client| client.duty.uid)).any(|uid| uid != own);
        for server in servers.iter_mut().filter(|s| s.away == Some(Away::OtherUser) && s.phase != Phase::Leaving && !awaited(s.uid)) {
            // The client that waited has gone.
            server.away = None;
        }
        let Some(uid) = self.wanted.front().copied().or_else(|| self.waiting.front().map(|client| client.duty)).map(|duty| duty.uid) else { return };
        for server in self.servers.iter_mut().filter(|s| s.uid != uid && matches!(s.away, None | Some(Away::Heir))) {
            server.away = Some(Away::OtherUser);
            server.log_shutdown("enabled", effects);
        }
    }

    fn send_away(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for server in self.servers.iter_mut().filter(|s| s.away.is_some() && s.is_empty()) {
            match server.phase {
                Phase::Ready | Phase::Registered => {
                    effects.push(Effect::Shutdown { server: server.pid, force: false });
                    server.phase = Phase::Leaving;
                    // Between this message and its end the server may receive one more client that
                    // was on its way: no deadline.
                }
                // It gets the order when it connects: killed, it would leave its keeper and
                // executors behind.
                Phase::Launched if server.away == Some(Away::Quit) => server.kill_at = server.kill_at.into_iter().chain([now + FORCED]).min(),
                Phase::Awaited | Phase::Launched | Phase::Leaving => {}
            }
        }
    }
}

/// What a client's environment says, as far as it concerns us.
fn environment_of(hello: &Hello) -> &[(String, String)] {
    match hello {
        Hello::Client { environment, .. } => environment,
        _ => &[],
    }
}

/// Why a server of an earlier daemon gets no further clients.
fn other_devices(its: &[String], ours: &[String]) -> String {
    format!("it serves {}, this daemon was started with {}, and programs that come now wait for a server on that", its.join(", "), ours.join(", "))
}

/// Static partitioning: the client has its partitions and nothing else, and percentages mean
/// nothing. It sees the devices on which it has a partition.
fn confine(grant: &mut Grant, parts: Vec<(usize, Vec<u32>)>) {
    grant.share = Percentage::ALL;
    let of = |place: u32| parts.iter().find(|(at, _)| u32::try_from(*at) == Ok(place)).map(|(_, sms)| sms.clone());
    grant.devices.retain(|(place, _)| of(*place).is_some());
    grant.sms = grant.devices.iter().filter_map(|(place, _)| of(*place)).collect();
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "registry_cards.rs"]
mod cards;
