//! One round: a node, its clients, the blows, and the checks afterwards.
//!
//! Nothing here waits without a bound, and a round's failure is a sentence in
//! [`Played::complaints`], so that the next round can be played.
//!
//! One file, although long: the acts of a round and the checks after them are read in one order.

use crate::Node;
use crate::chaos::cast::{Actor, Alone, ClientPart, IDLE, START, Seen, VISIT, WAIT, WORK};
use crate::chaos::clock::{Clock, Instant};
use crate::chaos::plan::{Act, Due, HEARTBEAT, Kind, Moment, Plan, Role, Target};
use crate::chaos::rules::{self, Fate, Loss};
use cumux_link::Process;
use rustix::process::Signal;
use serde::Deserialize;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The second user.
pub const OTHER: u32 = 65534;
/// Longest wait of a client in fair time: for an answer or an error, to be served, for `quit`.
const BOUND: Duration = Duration::from_secs(5);
/// Time for a client's own work, in addition. Alone it takes less than half a second.
const WORKING: Duration = Duration::from_secs(10);
/// Longest wait before any blow, where the machine may be busy with everything else.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The last resort, should the harness itself hang.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The result of a round.
#[derive(Debug)]
pub struct Played {
    pub plan: Plan,
    /// What was done, with the milliseconds since the first blow.
    pub deeds: Vec<String>,
    pub seen: Vec<Seen>,
    /// The longest wait of a client, without a queue behind another user.
    pub longest: Duration,
    /// How long newcomers took to be served.
    pub newcomers: Vec<Duration>,
    pub quit: Option<Duration>,
    pub took: Duration,
    /// What was not as promised.
    pub complaints: Vec<String>,
    /// Logs and states of processes, where there are complaints.
    pub evidence: String,
    /// Kept where there are complaints.
    pub folder: Option<PathBuf>,
}

/// Plays a round to its end, whatever happens in it.
pub fn play(plan: Plan, clock: &Clock, alone: &Alone) -> Played {
    let begun = Instant::now();
    let mut played = Played {
        plan: plan.clone(),
        deeds: Vec::new(),
        seen: Vec::new(),
        longest: Duration::ZERO,
        newcomers: Vec::new(),
        quit: None,
        took: Duration::ZERO,
        complaints: Vec::new(),
        evidence: String::new(),
        folder: None,
    };
    let played_out = catch_unwind(AssertUnwindSafe(|| play_on_a_node(&plan, clock, alone, &mut played)));
    if let Err(panic) = played_out {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        played.complaints.push(format!("the round could not be played: {}", text.unwrap_or("a panic")));
    }
    played.took = begun.elapsed();
    played
}

fn play_on_a_node(plan: &Plan, clock: &Clock, alone: &Alone, played: &mut Played) {
    // Other users must be able to enter.
    let open: fn(&Path) = |folder| fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("our folder");
    let mut node = Node::with().patience(WATCHDOG).prepare(open).keep_folder();
    if let Some((name, value)) = plan.heartbeat() {
        node = node.env(name, &value);
    }
    let node = node.start();
    let folder = node.folder().to_owned();
    played.folder = Some(folder.clone());
    let mut round = Round {
        node: &node,
        plan,
        clock,
        bound: if plan.heartbeat().is_some() { BOUND + HEARTBEAT } else { BOUND },
        cast: Vec::new(),
        losses: Vec::new(),
        first_blow: None,
        first_executor: 0,
        daemon: None,
        quit: None,
        played,
    };
    if round.set_the_scene() && round.strike() && round.afterwards() {
        round.leave();
    }
    round.judge(alone);
    let is_right = round.played.complaints.is_empty();
    if !is_right {
        round.witness();
    }
    drop(round);
    drop(node);
    if is_right {
        played.folder = None;
        let _ = fs::remove_dir_all(folder);
    }
}

struct Round<'a> {
    node: &'a Node,
    plan: &'a Plan,
    clock: &'a Clock,
    bound: Duration,
    cast: Vec<Actor<'a>>,
    losses: Vec<Loss>,
    first_blow: Option<Instant>,
    /// Process id of the executor that served when the first blow fell.
    first_executor: u32,
    /// The daemon that was killed last.
    daemon: Option<Process>,
    quit: Option<Child>,
    played: &'a mut Played,
}

/// `server-<uid>.json`.
#[derive(Debug, Default, Clone, Deserialize)]
struct State {
    server: u32,
    keeper: u32,
    executor: u32,
    standby: u32,
}

impl<'a> Round<'a> {
    fn complain(&mut self, text: impl Into<String>) {
        self.witness();
        self.played.complaints.push(text.into());
    }

    /// Records the evidence at the first complaint.
    fn witness(&mut self) {
        if self.played.evidence.is_empty() {
            self.played.evidence = format!("{}{}", processes(self.node), self.node.logs());
        }
    }

    fn own(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    // Before the blows ----------------------------------------------------------------------------

    /// Starts the clients that are there when the first blow falls; false if the round ends here.
    fn set_the_scene(&mut self) -> bool {
        let own = self.own();
        let arriving = matches!(self.plan.moment, Moment::Arriving(_));
        match self.plan.moment {
            Moment::Empty { server: false } => {}
            Moment::Empty { server: true } | Moment::Changing(_) => self.start(Kind::Idle, own, VISIT),
            Moment::Settled | Moment::Arriving(_) => {
                for part in WORK {
                    self.start(Kind::Working, own, part);
                }
                self.start(Kind::Waiting, own, WAIT);
                self.start(Kind::Idle, own, IDLE);
            }
        }
        if !arriving && !self.cast.is_empty() && !self.is_settled() {
            return false;
        }
        if self.plan.two_users {
            self.start(Kind::Queueing, OTHER, START);
            self.start(Kind::Queueing, OTHER, VISIT);
            if !arriving && !self.are_queued() {
                return false;
            }
        }
        // A client that is to start during the blows comes with the script.
        if let Some(kind) = self.plan.victim
            && let Some(actor) = self.cast.iter_mut().find(|actor| actor.kind == kind)
        {
            actor.victim = true;
        }
        match self.plan.moment {
            Moment::Settled | Moment::Empty { server: false } => {}
            Moment::Arriving(ago) => thread::sleep(ago),
            Moment::Changing(ago) => {
                if !self.end_first() {
                    return false;
                }
                thread::sleep(ago);
            }
            Moment::Empty { server: true } => return self.end_first(),
        }
        true
    }

    fn end_first(&mut self) -> bool {
        self.cast[0].finish();
        let ended = self.clock.wait(START_LIMIT, || self.cast[0].has_ended().then_some(())).is_some();
        if !ended {
            self.complain("the first client does not end");
        }
        ended
    }

    fn start(&mut self, kind: Kind, uid: u32, part: ClientPart) {
        self.cast.push(Actor::start(self.node, kind, uid, part, self.plan.heartbeat().as_ref()));
    }

    /// Every client is served, and the service complete.
    fn is_settled(&mut self) -> bool {
        let ready = self.clock.wait(START_LIMIT, || self.cast.iter().all(Actor::is_ready).then_some(()));
        let complete = |state: State| [state.server, state.keeper, state.executor, state.standby].iter().all(|pid| *pid != 0);
        let whole = self.clock.wait(START_LIMIT, || self.state(self.own()).is_some_and(complete).then_some(()));
        if ready.is_none() || whole.is_none() {
            self.complain("before any blow the service does not get complete, or clients are not served");
        }
        ready.is_some() && whole.is_some()
    }

    /// Every client of the other user is in the daemon's queue.
    fn are_queued(&mut self) -> bool {
        let path = self.node.folder().join("log/control.log");
        let count = || fs::read_to_string(&path).unwrap_or_default().matches(&format!("from user {OTHER}: Server is not ready, push client")).count();
        let wanted = self.cast.iter().filter(|actor| actor.kind == Kind::Queueing).count();
        let queued = self.clock.wait(START_LIMIT, || (count() >= wanted).then_some(())).is_some();
        if !queued {
            self.complain("before any blow the other user's clients do not get into the queue");
        }
        queued
    }

    // The blows -----------------------------------------------------------------------------------

    /// Plays the script while clients start; false if the round ends here.
    fn strike(&mut self) -> bool {
        let begin = Instant::now();
        let (node, own) = (self.node, self.own());
        let (starts, heartbeat) = (self.plan.starts.clone(), self.plan.heartbeat());
        thread::scope(|scope| {
            let starter = scope.spawn(move || {
                let start = |at: Duration| {
                    thread::sleep(Instant::now().until(begin.plus(at)));
                    Actor::start(node, Kind::Starting, own, START, heartbeat.as_ref())
                };
                starts.into_iter().map(start).collect::<Vec<_>>()
            });
            let went_on = self.play_script(begin);
            match starter.join() {
                Ok(started) => self.cast.extend(started),
                Err(_) => self.complain("clients could not be started"),
            }
            went_on
        })
    }

    fn play_script(&mut self, begin: Instant) -> bool {
        let plan = self.plan;
        for (due, act) in &plan.script {
            match due {
                Due::At(time) => thread::sleep(Instant::now().until(begin.plus(*time))),
                Due::Next(time) => thread::sleep(*time),
                Due::AfterHello(time) => {
                    self.await_hello();
                    thread::sleep(*time);
                }
                Due::AfterSuccessor(time) => {
                    self.await_successor();
                    thread::sleep(*time);
                }
            }
            if !self.perform(*act) {
                return false;
            }
        }
        true
    }

    /// Carries out one act; false if the round ends here.
    fn perform(&mut self, act: Act) -> bool {
        if self.first_blow.is_none() {
            self.first_blow = Some(Instant::now());
            self.first_executor = self.state(self.own()).unwrap_or_default().executor;
            // From then on, a client in the queue may be served at any moment.
            let may_be_served = matches!(self.plan.moment, Moment::Changing(_) | Moment::Arriving(_));
            for actor in &mut self.cast {
                // A client that is not served yet is still starting, whatever it will do later.
                let is_late = if actor.kind == Kind::Queueing { may_be_served } else { !actor.is_ready() };
                if is_late {
                    actor.kind = Kind::Starting;
                }
            }
        }
        match act {
            Act::StartVictim => {
                let own = self.own();
                self.start(Kind::Starting, own, START);
                if let Some(actor) = self.cast.last_mut() {
                    actor.victim = true;
                }
                self.note("start victim");
            }
            Act::Kill(target) => self.signal(target, Signal::KILL, "kill"),
            Act::Stop(target) => self.signal(target, Signal::STOP, "stop"),
            Act::Continue(target) => self.signal(target, Signal::CONT, "continue"),
            Act::StartDaemon => return self.start_daemon(),
            Act::Ask => self.ask(),
            Act::Quit { seconds } => self.send_quit(seconds),
        }
        true
    }

    fn note(&mut self, deed: &str) {
        let after = self.first_blow.map_or(Duration::ZERO, Instant::elapsed);
        self.played.deeds.push(format!("{deed} {:+.1}", after.as_secs_f64() * 1e3));
    }

    /// Waits until the victim's hello has reached the server, or it is too late for that.
    fn await_hello(&mut self) {
        let Some(victim) = self.cast.iter().position(|actor| actor.victim) else { return };
        let wanted = format!("Received new client request for {{PID: {}, ", self.cast[victim].pid);
        let path = self.node.folder().join("log/server.log");
        let bound = self.bound;
        // With short pauses: the awaited state lasts less than a millisecond.
        let from = Instant::now();
        while self.clock.since(from) < bound && !fs::read_to_string(&path).unwrap_or_default().contains(&wanted) {
            thread::sleep(Duration::from_micros(20));
        }
    }

    fn await_successor(&mut self) {
        let first = self.first_executor;
        let found = self.clock.wait(self.bound, || self.state(self.own()).filter(|state| state.executor != 0 && state.executor != first));
        if found.is_none() {
            self.complain("nobody takes over from the executor");
        }
    }

    fn signal(&mut self, target: Target, signal: Signal, verb: &str) {
        match target {
            Target::Victim => {
                let Some(at) = self.cast.iter().position(|actor| actor.victim) else { return self.note(&format!("{verb} client (nobody)")) };
                let victim = &mut self.cast[at];
                if victim.has_ended() {
                    return self.note(&format!("{verb} client (has ended)"));
                }
                victim.killed |= signal == Signal::KILL;
                victim.paused |= signal == Signal::STOP;
                let (kind, process) = (victim.kind, Process::open(victim.pid));
                let _ = process.map(|process| process.signal(signal));
                self.note(&format!("{verb} {kind:?} client").to_lowercase());
            }
            Target::Service(role) => {
                let Some(process) = self.process(role) else { return self.note(&format!("{verb} {} (nobody)", role.name())) };
                let _ = process.signal(signal);
                self.note(&format!("{verb} {}", role.name()));
                let goes_on = self.plan.script.iter().any(|(_, act)| *act == Act::Continue(target));
                // No process replaces a daemon that stands still, but a client that says hello
                // meanwhile is refused with the reason.
                if signal == Signal::KILL || (signal == Signal::STOP && (role == Role::Daemon || !goes_on)) {
                    self.losses.push(Loss::Process(role));
                }
                if role == Role::Daemon && signal == Signal::KILL {
                    self.daemon = Some(process);
                }
            }
            Target::Everybody => {
                // Found first, so that all are stopped within a moment.
                let everybody: Vec<Process> = self.node.processes().into_iter().filter_map(|pid| Process::open(pid).ok()).collect();
                for process in &everybody {
                    let _ = process.signal(signal);
                }
                self.note(&format!("{verb} all {}", everybody.len()));
                // They stand still for longer than the heartbeat: programs that say hello meanwhile
                // are refused with the reason.
                if signal == Signal::STOP {
                    self.losses.push(Loss::Process(Role::Daemon));
                }
            }
        }
    }

    fn start_daemon(&mut self) -> bool {
        // The daemon's lock is free once it is gone, not once it was killed.
        if let Some(killed) = self.daemon.take() {
            let _ = killed.ended(Some(START_LIMIT));
        }
        let output = self.run(self.node.daemon_command());
        self.note("start daemon");
        match output {
            Some(output) if output.status.success() => true,
            Some(output) => {
                self.complain(format!("the daemon does not start again: {}", String::from_utf8_lossy(&output.stderr).trim()));
                false
            }
            None => {
                self.complain("the daemon is not ready in time");
                false
            }
        }
    }

    /// Runs a command that must end within the bound; otherwise kills it.
    fn run(&self, mut command: Command) -> Option<Output> {
        let mut child = command.spawn().expect("cumux starts");
        let ended = self.clock.wait(self.bound, || child.try_wait().expect("our child"));
        if ended.is_none() {
            let _ = child.kill();
        }
        let output = child.wait_with_output().expect("our child");
        ended.map(|_| output)
    }

    /// Runs a front end of a stopped daemon.
    fn ask(&mut self) {
        let mut command = self.node.cumux(&["control", "get_server_list"]);
        command.envs(self.plan.heartbeat());
        let output = self.run(command);
        self.note("asked");
        match output {
            None => self.complain("a front end of a stopped daemon waits without end"),
            Some(output) if output.status.success() => self.complain("a front end of a stopped daemon pretends success"),
            Some(output) if output.stderr.trim_ascii().is_empty() => self.complain("a front end of a stopped daemon says nothing"),
            Some(_) => {}
        }
    }

    fn send_quit(&mut self, seconds: Option<u32>) {
        let seconds_text = seconds.map(|seconds| seconds.to_string());
        let mut words = vec!["control", "quit"];
        words.extend(seconds_text.iter().flat_map(|text| ["-t", text.as_str()]));
        let mut command = self.node.cumux(&words);
        self.quit = Some(command.stdin(Stdio::null()).spawn().expect("cumux starts"));
        self.losses.push(if seconds.is_some() { Loss::QuitNow } else { Loss::Quit });
        if seconds.is_some() {
            self.losses.push(Loss::Quit);
        }
        self.note(&words[1..].join(" "));
    }

    // After the blows -----------------------------------------------------------------------------

    /// A newcomer, more work for the idle, everybody's end, and another newcomer. False if the
    /// round ends here.
    fn afterwards(&mut self) -> bool {
        let own = self.own();
        let quitting = self.quit.is_some();
        if matches!(self.plan.moment, Moment::Empty { .. }) {
            return self.await_ends();
        }
        self.start(if quitting { Kind::Starting } else { Kind::Newcomer }, own, VISIT);
        if quitting {
            return self.await_ends();
        }
        if !self.await_ends() {
            return false;
        }
        self.start(Kind::Newcomer, own, VISIT);
        if !self.await_ends() {
            return false;
        }
        if self.clock.wait(self.bound, || holdings(self.node).is_empty().then_some(())).is_none() {
            let held = holdings(self.node).join("\n    ");
            self.complain(format!("what clients had is still held though all of them have ended:\n    {held}"));
        }
        true
    }

    fn await_ends(&mut self) -> bool {
        for actor in &mut self.cast {
            actor.finish();
        }
        let (clock, bound) = (self.clock, self.bound + WORKING);
        // All are checked each time, so that the end of each is noted when it comes.
        let running = |cast: &mut [Actor<'_>]| cast.iter_mut().map(|actor| usize::from(!actor.has_ended())).sum::<usize>();
        let all_ended = clock.wait(bound, || (running(&mut self.cast) == 0).then_some(())).is_some();
        if !all_ended {
            self.complain("clients wait without end");
        }
        all_ended
    }

    /// Sends `quit` and checks that nothing is left.
    fn leave(&mut self) {
        let begun = Instant::now();
        let mut child = match self.quit.take() {
            Some(child) => child,
            None => self.node.cumux(&["control", "quit"]).stdin(Stdio::null()).spawn().expect("cumux starts"),
        };
        let status = self.clock.wait(self.bound, || child.try_wait().expect("our child"));
        if status.is_none() {
            let _ = child.kill();
        }
        let output = child.wait_with_output().expect("our child");
        match status {
            None => return self.complain("`quit` does not return"),
            Some(status) if !status.success() || !output.stdout.is_empty() => {
                let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned()).join(" ");
                self.complain(format!("`quit` ended with {status}: {said}"));
            }
            Some(_) => self.played.quit = Some(begun.elapsed()),
        }
        if self.clock.wait(self.bound, || self.node.processes().is_empty().then_some(())).is_none() {
            self.complain("processes are left after `quit`");
        }
        let entries = fs::read_dir(self.node.pipe()).into_iter().flatten().flatten();
        let left: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name != "control_lock").collect();
        if !left.is_empty() {
            self.complain(format!("files are left after `quit`: {}", left.join(", ")));
        }
    }

    /// Judges every client by the table and the bound.
    fn judge(&mut self, alone: &Alone) {
        let seen: Vec<Seen> = self.cast.iter().map(|actor| actor.seen(alone)).collect();
        for (actor, client) in self.cast.iter().zip(&seen) {
            let name = format!("{:?} client {} of user {}", client.kind, actor.pid, client.uid);
            let complaint = rules::complaint(&self.losses, client.kind, &client.fate);
            self.played.complaints.extend(complaint.map(|complaint| format!("{name} {complaint}")));
            if client.paused || client.fate == Fate::Killed {
                continue;
            }
            // A client may have to wait until those of the other user have gone.
            let let_in = |(at, took): (Instant, Duration)| {
                let end = at.plus(took);
                let others = seen.iter().filter(|other| other.uid != client.uid).filter_map(|other| other.ended).filter(|ended| *ended < end);
                (others.max().map_or(at, |ended| ended.max(at)), end)
            };
            let first = client.first.map(let_in);
            let longest = client.longest.map(|(at, took)| (at, at.plus(took)));
            for (what, (from, to)) in [("to be served", first), ("for a call", longest)].into_iter().filter_map(|(what, span)| Some((what, span?))) {
                self.played.longest = self.played.longest.max(from.until(to));
                let fair = self.clock.fair(from, to);
                if fair > self.bound {
                    self.played.complaints.push(format!("{name} waited {:.1} s {what}", fair.as_secs_f64()));
                }
            }
            if client.kind == Kind::Newcomer && client.fate == Fate::WentOn {
                self.played.newcomers.extend(first.map(|(from, to)| from.until(to)));
            }
        }
        self.played.seen = seen;
    }

    // Processes -----------------------------------------------------------------------------------

    /// The state file of a user's server.
    fn state(&self, uid: u32) -> Option<State> {
        let pipe = self.node.pipe();
        let folder = if uid == self.own() { pipe } else { pipe.join(format!("user-{uid}")) };
        serde_json::from_slice(&fs::read(folder.join(format!("server-{uid}.json"))).ok()?).ok()
    }

    /// The living process of this role: of the first user's server, or of the other's.
    fn process(&self, role: Role) -> Option<Process> {
        let pids: Vec<u32> = match role {
            Role::Client => Vec::new(),
            Role::Daemon => {
                let text = fs::read_to_string(self.node.pipe().join("nvidia-cuda-mps-control.pid")).unwrap_or_default();
                text.trim().parse().into_iter().collect()
            }
            Role::Server | Role::Keeper | Role::Executor | Role::Standby => {
                let of = |state: State| match role {
                    Role::Server => state.server,
                    Role::Keeper => state.keeper,
                    Role::Executor => state.executor,
                    _ => state.standby,
                };
                let mut users = [self.own(), OTHER];
                if matches!(self.plan.moment, Moment::Changing(_)) {
                    users.reverse();
                }
                users.into_iter().filter_map(|uid| self.state(uid)).map(of).collect()
            }
        };
        pids.into_iter().filter(|pid| *pid != 0 && self.node.owns(*pid)).find_map(|pid| Process::open(pid).ok())
    }
}

/// What the service holds of clients: their files, and device memory. Images are shared by all and
/// stay.
fn holdings(node: &Node) -> Vec<String> {
    let mut held = Vec::new();
    for pid in node.processes() {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let open = entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()));
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        // An executor keeps the small files of its last client mapped until the next one comes.
        let mapped = maps.lines().filter(|line| ["memfd:cumux-window", "memfd:cumux-extent"].iter().any(|name| line.contains(name)));
        let of_clients = |name: &str| name.contains("memfd:cumux-") && !name.contains("memfd:cumux-image");
        let names = open.filter(|name| of_clients(name)).chain(mapped.map(str::to_owned));
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        held.extend(names.map(|name| format!("{name} by {pid} ({})", command.split(" --").next().unwrap_or_default())));
    }
    held
}

/// The node's processes with the state of each thread, to find a cause.
fn processes(node: &Node) -> String {
    let mut text = String::new();
    for pid in node.processes() {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let command = read("cmdline").replace('\0', " ");
        text.push_str(&format!("process {pid}: {command}\n"));
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let state = read("status").lines().find_map(|line| line.strip_prefix("State:").map(|state| state.trim().to_owned())).unwrap_or_default();
            text.push_str(&format!("    {} {state} {}\n", read("comm").trim(), read("wchan").trim()));
        }
    }
    text
}
