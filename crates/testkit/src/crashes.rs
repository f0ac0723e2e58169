//! Crashes at named steps of the fault path and of a move ([`cumux_environment::steps`]), on a
//! software GPU that breaks like a card.
//!
//! A round has clients that work and check themselves, one that is idle, and an event: a fault, a
//! killed executor, a client that is moved there and back, a kernel beside which all others leave.
//! Before the event a step is chosen, at
//! which whoever comes there is killed or stopped. Promised, and checked after each round:
//!
//! - Nobody has a wrong result: a client prints what it prints alone, or is told of an error.
//! - An error is honest: only a client that may have had work with an executor that was killed is
//!   told one (decision 0111). Where no work was under way in it, all innocents succeed.
//! - Who has no work under way goes on, whatever happens. A newcomer is served.
//! - A culprit's wait never succeeds.
//! - Nobody waits for ever.
//!
//! All choices follow from the round's seed; how the system interleaves the processes does not.

use crate::{Client, Node, Outcome};
use cumux_environment::steps::{self, Step};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const CARD: &str = "sim:h200:card";
/// The last resort, should a round itself hang.
const WATCHDOG: Duration = Duration::from_secs(300);
/// Who has not ended by then, on the busiest machine, waits for ever.
const FOR_EVER: Duration = Duration::from_secs(90);
/// Rounds of the clients that work.
const WORK: u32 = 25;
const WORKERS: u32 = 3;
/// Clients beside an executor that is killed from outside.
const EIGHT: u32 = 8;

/// What happens in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A client's kernel faults.
    Fault,
    /// The executor is killed from outside.
    Kill,
    /// A client that works is moved to an executor of its own and back.
    Move,
    /// A kernel runs on and on, and all others leave its executor.
    Occupy,
}

/// A round before it is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Decides all else.
    pub seed: u64,
    event: Event,
    step: Step,
    /// Whoever comes there is stopped, and not killed.
    stops: bool,
    /// Passes that are let through before.
    passes: u32,
}

impl Plan {
    /// The round of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let rng = &mut fastrand::Rng::with_seed(seed);
        // Every event with each of its steps comes once before one repeats.
        let all: Vec<(Event, Step)> = Event::ALL.into_iter().flat_map(|event| event.steps().iter().map(move |step| (event, *step))).collect();
        // A step that has no common divisor with most lengths, so that neighbours differ.
        let (event, step) = all[usize::try_from(seed.wrapping_mul(7) % all.len() as u64).unwrap_or(0)];
        Self { seed, event, step, stops: rng.u8(0..5) == 0, passes: rng.u32(0..times(event, step)) }
    }
}

/// How often somebody comes to a step in a round, at least.
fn times(event: Event, step: Step) -> u32 {
    use Step::{JournalRead, MemoryRestored, ModulesRestored, WorkRestored, WorkRetired};
    let is_opening = matches!(step, JournalRead | MemoryRestored | ModulesRestored | WorkRestored);
    match (event, step) {
        (_, WorkRetired) => 20,
        // All clients that live are taken over.
        (Event::Fault | Event::Kill | Event::Occupy, _) if is_opening => WORKERS + 1,
        // There and back.
        (Event::Move, step) if is_opening || step.name().starts_with("executor-move") || step.name().starts_with("server") => 2,
        _ => 1,
    }
}

/// Whether a crash at this step may cost clients their work that was under way (decision 0111).
/// After a fault nothing of innocents is under way any more from the moment at which they have
/// departed until the successor begins it.
fn may_cost(event: Event, step: Step) -> bool {
    use Step::{JournalRead, LossDeparted, LossTold, MemoryRestored, ModulesRestored, TakeoverBegun, TakeoverOpened, WorkRestored};
    let nothing_runs = matches!(step, LossDeparted | LossTold | TakeoverBegun | JournalRead | MemoryRestored | ModulesRestored | WorkRestored | TakeoverOpened);
    !(step.name().starts_with("server") || matches!(event, Event::Fault | Event::Occupy) && nothing_runs)
}

impl Event {
    const ALL: [Self; 4] = [Self::Fault, Self::Kill, Self::Move, Self::Occupy];

    /// The steps that lie on its way.
    fn steps(self) -> &'static [Step] {
        use Step::*;
        match self {
            Self::Fault => &[
                CardAnnounced,
                CardSettled,
                CardReported,
                CardJudged,
                FaultShown,
                FaultWritten,
                WorkRetired,
                LossHeard,
                LossDeparted,
                LossTold,
                ServerHeardOfLoss,
                ServerActivated,
                TakeoverBegun,
                JournalRead,
                MemoryRestored,
                ModulesRestored,
                WorkRestored,
                TakeoverOpened,
                TakeoverDone,
                ServerHeardOfTakeover,
            ],
            Self::Kill => &[
                ServerHeardOfLoss,
                ServerActivated,
                TakeoverBegun,
                JournalRead,
                MemoryRestored,
                ModulesRestored,
                WorkRestored,
                TakeoverOpened,
                TakeoverDone,
                ServerHeardOfTakeover,
            ],
            Self::Move => &[
                ServerAskedToLetGo,
                MovePaused,
                MoveLeft,
                MoveClosed,
                MoveTold,
                ServerHeardOfRelease,
                ServerGave,
                JournalRead,
                MemoryRestored,
                ModulesRestored,
                WorkRestored,
                TakeoverBegun,
                TakeoverOpened,
                TakeoverDone,
                AttachBegun,
                AttachDone,
                ServerHeardOfArrival,
            ],
            Self::Occupy => {
                &[EvacuationBegun, EvacuationDone, ServerHeardOfLoss, ServerActivated, TakeoverBegun, TakeoverOpened, TakeoverDone, ServerHeardOfTakeover]
            }
        }
    }
}

/// What a run consists of.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many rounds with a crash at a step.
    pub steps: usize,
    /// How many rounds in which an executor with eight busy clients is killed from outside.
    pub killed: usize,
    /// Seed of the first round; each next round has the next seed.
    pub seed: u64,
    /// Rounds at the same time.
    pub lanes: usize,
}

/// How a run went.
#[derive(Debug, Default)]
pub struct Figures {
    /// Rounds that were played.
    pub rounds: usize,
    /// Rounds in which somebody came to the step, or the executor was killed.
    pub struck: usize,
    /// Clients that were told of an error, as decision 0111 has it.
    pub told: usize,
    /// What was not as promised, with the plan of the round and the logs.
    pub complaints: Vec<String>,
}

/// Plays all rounds, and prints a line for each.
///
/// # Panics
/// The clients do not even succeed on a quiet node.
#[must_use]
pub fn run(options: &Options) -> Figures {
    let (few, eight) = (Node::workers_alone(WORK, WORKERS), if options.killed > 0 { Node::workers_alone(WORK, EIGHT) } else { Vec::new() });
    let work = Mutex::new((0..options.steps + options.killed, Figures::default()));
    let next = || work.lock().expect("no panic in here").0.next();
    thread::scope(|scope| {
        for _ in 0..options.lanes.max(1) {
            scope.spawn(|| {
                while let Some(number) = next() {
                    let seed = options.seed.wrapping_add(number as u64);
                    let begun = Instant::now();
                    let mut round = Round::default();
                    let name = if number < options.steps { format!("{:?}", Plan::new(seed)) } else { format!("executor killed, seed {seed}") };
                    let played =
                        catch_unwind(AssertUnwindSafe(|| if number < options.steps { round.play(&Plan::new(seed), &few) } else { round.kill(seed, &eight) }));
                    if played.is_err() {
                        round.complaints.push("the round could not be played: the panic is above".to_owned());
                    }
                    let mut work = work.lock().expect("no panic in here");
                    let figures = &mut work.1;
                    figures.rounds += 1;
                    figures.struck += usize::from(round.struck);
                    figures.told += round.told;
                    let outcome = if round.complaints.is_empty() { "as promised" } else { "FAILED" };
                    println!("{:>4} {name}: struck {}, told {}, {outcome}, {} ms", figures.rounds, round.struck, round.told, begun.elapsed().as_millis());
                    figures.complaints.extend(round.complaints.iter().map(|complaint| format!("{name}: {complaint}")));
                }
            });
        }
    });
    work.into_inner().expect("no panic in here").1
}

#[derive(Default)]
struct Round {
    struck: bool,
    told: usize,
    complaints: Vec<String>,
}

impl Round {
    /// A round with a crash at a step.
    fn play(&mut self, plan: &Plan, alone: &[String]) {
        let node = Node::with().device(CARD).patience(WATCHDOG).env("CUMUX_HEARTBEAT_MS", "1000");
        let long_kernel = if plan.event == Event::Occupy { "50" } else { "600000" };
        let node = node.env("CUMUX_FAULT_WAIT_MS", "60000").env("CUMUX_LONG_KERNEL_MS", long_kernel).folder_in(steps::VARIABLE, "steps").start();
        let idle = node.test_client("idle").start();
        idle.wait_for_line("ready");
        let mut culprit = (plan.event == Event::Fault).then(|| {
            let culprit = node.test_client("faulty").args(&[if plan.seed.is_multiple_of(2) { "store" } else { "trap" }]).start();
            culprit.wait_for_line("ready");
            culprit
        });
        let mut held = (plan.event == Event::Occupy).then(|| {
            let held = node.test_client("held").start();
            held.wait_for_line("ready");
            held
        });
        let clients = node.workers(WORK, WORKERS);
        let before = node.server();
        let file = node.folder().join("steps").join(plan.step.name());
        fs::write(&file, format!("{} {}", if plan.stops { "stop" } else { "kill" }, plan.passes)).expect("our folder");
        match plan.event {
            Event::Fault => {
                if let Some(culprit) = &mut culprit {
                    culprit.tell("");
                }
            }
            Event::Kill => node.kill(before.executor),
            Event::Occupy => {}
            Event::Move => {
                for place in ["--own", "--back"] {
                    let mut command = node.cumux(&["move", &clients[0].pid().to_string(), place]);
                    // It may fail: its client has gone, or who was asked.
                    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
                }
            }
        }
        if let Some(mut held) = held.take() {
            held.tell("hold");
            held.wait_for_line("round 1 running");
            self.crowd_out(&node, plan, before.executor);
            // Where its executor was killed it has its error, and may have ended.
            held.try_tell("go");
            if let Some(outcome) = self.end(&node, held, "the client whose kernel ran on")
                && !(outcome.out.contains("round 1 right") || outcome.out.contains("round 1: cudaErrorLaunchFailure") && may_cost(plan.event, plan.step))
            {
                self.complain(&node, &format!("its kernel was not done once: {outcome:?}"));
            }
        }
        if let Some(culprit) = culprit
            && let Some(outcome) = self.end(&node, culprit, "the culprit")
            && (outcome.out.contains("wait: cudaSuccess") || !outcome.out.contains("wait: cudaError"))
        {
            self.complain(&node, &format!("the culprit was not told of its fault: {outcome:?}"));
        }
        let outcomes: Vec<Option<Outcome>> = clients.into_iter().map(|client| self.end(&node, client, "a client")).collect();
        self.struck = node.folder().join("steps").join(format!("{}.{}", plan.step.name(), steps::TAKEN)).exists();
        let may_be_told = plan.event == Event::Kill || self.struck && may_cost(plan.event, plan.step);
        self.judge(&node, outcomes, alone, may_be_told);
        self.afterwards(&node, idle);
    }

    /// Newcomers load modules, for which the card would have to be quiet, until another executor
    /// serves.
    fn crowd_out(&mut self, node: &Node, plan: &Plan, executor: u32) {
        let begun = Instant::now();
        while !node.servers().iter().any(|server| server.state == "ACTIVE" && server.executor != executor) {
            if begun.elapsed() > FOR_EVER {
                return self.complain(node, "nobody else serves beside a kernel that runs on");
            }
            let newcomer = node.client("vector_add").args(&["1"]).start();
            if let Some(outcome) = self.end(node, newcomer, "a newcomer")
                && !(outcome.status.success() || may_cost(plan.event, plan.step))
            {
                self.complain(node, &format!("a newcomer is not served: {outcome:?}"));
            }
        }
    }

    /// An executor with eight busy clients is killed from outside.
    fn kill(&mut self, seed: u64, alone: &[String]) {
        let node = Node::with().device(CARD).patience(WATCHDOG).start();
        let idle = node.test_client("idle").start();
        idle.wait_for_line("ready");
        let clients = node.workers(WORK, EIGHT);
        let executor = node.server().executor;
        // Somewhere in the middle of their work.
        thread::sleep(Duration::from_micros(fastrand::Rng::with_seed(seed).u64(0..20_000)));
        node.kill(executor);
        self.struck = true;
        let outcomes = clients.into_iter().map(|client| self.end(&node, client, "a client")).collect();
        self.judge(&node, outcomes, alone, true);
        self.afterwards(&node, idle);
    }

    fn complain(&mut self, node: &Node, text: &str) {
        self.complaints.push(format!("{text}\n{}", node.logs()));
    }

    /// Waits for a client's end, but not for ever.
    fn end(&mut self, node: &Node, mut client: Client<'_>, name: &str) -> Option<Outcome> {
        client.close_input();
        let begun = Instant::now();
        loop {
            if let Some(outcome) = client.try_wait() {
                return Some(outcome);
            }
            if begun.elapsed() > FOR_EVER {
                self.complain(node, &format!("{name} (process {}) does not end", client.pid()));
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn judge(&mut self, node: &Node, outcomes: Vec<Option<Outcome>>, alone: &[String], may_be_told: bool) {
        for (outcome, alone) in outcomes.into_iter().zip(alone) {
            let Some(outcome) = outcome else { continue };
            if outcome.status.success() && outcome.out == *alone {
                continue;
            }
            let was_told = !outcome.status.success() && outcome.out.contains("unspecified launch failure") && !outcome.out.contains("verified");
            if was_told && may_be_told {
                self.told += 1;
            } else {
                self.complain(node, &format!("not as alone ({alone}): {outcome:?}"));
            }
        }
    }

    /// Who had no work under way goes on, and a newcomer is served.
    fn afterwards(&mut self, node: &Node, mut idle: Client<'_>) {
        idle.tell("");
        if let Some(outcome) = self.end(node, idle, "the idle client")
            && !(outcome.status.success() && outcome.out.contains("round 1 right"))
        {
            self.complain(node, &format!("the idle client had nothing under way: {outcome:?}"));
        }
        let newcomer = node.client("vector_add").args(&["1"]).start();
        if let Some(outcome) = self.end(node, newcomer, "a newcomer")
            && !outcome.status.success()
        {
            self.complain(node, &format!("a newcomer is not served: {outcome:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_step_comes_with_its_event() {
        let count = Event::ALL.iter().map(|event| event.steps().len()).sum::<usize>();
        let plans: Vec<Plan> = (0..count as u64).map(Plan::new).collect();
        let pairs: BTreeSet<(String, Step)> = plans.iter().map(|plan| (format!("{:?}", plan.event), plan.step)).collect();
        assert_eq!(pairs.len(), count, "each once before one repeats");
        assert_eq!(Plan::new(9), Plan::new(9));
        let planned: BTreeSet<Step> = plans.iter().map(|plan| plan.step).collect();
        assert!(Step::ALL.iter().all(|step| planned.contains(step)), "{planned:?}");
    }
}
