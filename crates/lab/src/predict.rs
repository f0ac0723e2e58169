//! What the planner's simulation says of so many copies of a recorded program.

use crate::report::{Basis, Row, Source};
use cumux_planner::card::{Capacity, CardModel};
use cumux_planner::mode::{Mode, ServedHost};
use cumux_planner::profile::{CardFacts, Profile};
use cumux_planner::simulate::{Arrival, Effort, Load, Submission, quantile, run};
use cumux_planner::work::{Machine, Work};

/// Requests of each client in a prediction.
pub const REQUESTS: u32 = 100;
/// Most events of one simulation: seconds, for sixteen copies of a large model.
const MOST_EVENTS: u64 = 4_000_000;
/// Launches of one simulation, as long as each copy has this many requests.
const MOST_LAUNCHES: u32 = 50_000;
const LEAST_REQUESTS: u32 = 20;
/// Points of a distribution.
const POINTS: usize = 20;

/// A prediction that is asked for.
#[derive(Debug, Clone)]
pub enum Question<'a> {
    /// So many copies in one way ([`share`]).
    Share(Machine, Mode, u32),
    /// One in each instance of a geometry ([`instances`]).
    Instances(&'static CardModel, &'a str),
}

impl Question<'_> {
    /// The answer for a program, if it runs there.
    #[must_use]
    pub fn ask(&self, program: Program<'_>, trial: Trial) -> Option<Row> {
        match self {
            Self::Share(machine, mode, clients) => share(machine, program, *mode, *clients, trial),
            Self::Instances(card, geometry) => instances(card, geometry, program, trial),
        }
    }

    /// Copies of which it is.
    fn clients(&self) -> u32 {
        match self {
            Self::Share(_, _, clients) => *clients,
            Self::Instances(..) => 1,
        }
    }
}

/// Answers questions about programs, on several threads, in their order. `go_on` says whether it is
/// still wanted.
pub fn ask_all(questions: &[(Question<'_>, Program<'_>)], trial: Trial, threads: usize, go_on: impl Fn() -> bool + Sync) -> Vec<Row> {
    // Those with the most copies take longest: they are spread over the threads first.
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(questions[*number].0.clients()));
    let threads = threads.clamp(1, questions.len().max(1));
    let part = |thread: usize| {
        let of_thread = order.iter().skip(thread).step_by(threads).take_while(|_| go_on());
        let answer = |number: &usize| {
            let (question, program) = &questions[*number];
            Some((*number, question.ask(*program, trial)?))
        };
        of_thread.filter_map(answer).collect::<Vec<(usize, Row)>>()
    };
    let part = &part;
    let mut rows: Vec<(usize, Row)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    rows.sort_by_key(|(number, _)| *number);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The machine on which a profile was recorded.
#[must_use]
pub fn machine(facts: &CardFacts, memory_mib: u32) -> Machine {
    Machine {
        multiprocessors: facts.multiprocessors,
        each: Capacity { threads: facts.threads, blocks: facts.blocks, registers: facts.registers, shared: facts.shared },
        clock_khz: facts.clock_khz,
        bandwidth: facts.bandwidth as f64 / 1e9,
        cache: facts.cache,
        memory_mib,
        major: 9,
    }
}

/// Times at every twentieth part of a sorted list.
#[must_use]
pub fn points(sorted: &[f64]) -> Vec<f64> {
    if sorted.is_empty() {
        return Vec::new();
    }
    (1..=POINTS).map(|point| quantile(sorted, point as f64 / POINTS as f64)).collect()
}

/// How much is simulated, and on what host.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Requests of each copy.
    pub requests: u32,
    /// How many times as long as on the planner's host a launch takes on this one.
    pub host: f64,
    /// Its processors, and what serves clients there.
    pub on: ServedHost,
}

/// A recorded program of which something is predicted.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Its name among the workloads.
    pub name: &'a str,
    /// Its recording.
    pub profile: &'a Profile,
    /// How many times as long as in its recording its host takes ([`pace`]).
    pub pace: f64,
}

/// How far a host is taken to be from what it was in a recording.
const PACES: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// Each trial of a pace brings its prediction nearer to what was measured.
const PACE_TRIALS: u32 = 6;

/// How many times as long as in its recording a program's host takes, by what one copy of it has
/// shown: so that the predictions for one copy by each of these ways agree in the mean with its
/// measured requests a second. 1 where nothing was measured.
///
/// A machine's processors are fast and slow for minutes: one ResNet-50 by one way has done 240 and
/// 390 passes a second on the same machine.
#[must_use]
pub fn pace(machine: &Machine, profile: &Profile, trial: Trial, alone: &[(Mode, f64)]) -> f64 {
    let mut pace = 1.0_f64;
    for _ in 0..PACE_TRIALS {
        let program = Program { name: "", profile, pace };
        let too_fast = |(mode, measured): &(Mode, f64)| {
            let predicted = share(machine, program, *mode, 1, trial)?.throughput;
            Some((predicted / measured).ln()).filter(|off| off.is_finite())
        };
        let off: Vec<f64> = alone.iter().filter_map(too_fast).collect();
        if off.is_empty() {
            break;
        }
        let mean = off.iter().sum::<f64>() / off.len() as f64;
        pace = (pace * mean.exp()).clamp(*PACES.start(), *PACES.end());
    }
    pace
}

/// Copies of a program on a machine, each request after the other. `None` if a kernel of it does
/// not run there.
#[must_use]
pub fn share(machine: &Machine, program: Program<'_>, mode: Mode, clients: u32, trial: Trial) -> Option<Row> {
    share_beside(machine, program, (mode, clients), clients, trial)
}

/// So many copies on a machine, of `on_host` on its host.
fn share_beside(machine: &Machine, program: Program<'_>, (mode, clients): (Mode, u32), on_host: u32, trial: Trial) -> Option<Row> {
    let busy = mode.crowding(on_host, trial.on);
    // Programs are recorded alone, through cumux.
    let crowding = busy / Mode::Cumux.crowding(1, trial.on);
    let mut work = Work::on(program.profile, machine).ok()?.on_host(crowding * program.pace);
    work.unsteady = work.unsteady.max(mode.unsteadiness(on_host, trial.on));
    // Many kernels of many programs cut each other into small groups, and each is an event.
    let launches = (work.steps.len() as u32).saturating_mul(clients).max(1);
    let trial = Trial { requests: trial.requests.min((MOST_LAUNCHES / launches).max(LEAST_REQUESTS)), ..trial };
    let load = |client: usize| Load { work: &work, arrival: Arrival::Closed, context: mode.context(client), cap: machine.multiprocessors };
    let loads: Vec<Load<'_>> = (0..clients as usize).map(load).collect();
    let submission = mode.submission(trial.on).on_host(trial.host * busy * program.pace);
    let submission = Submission { slowest: mode.slowest_submission(on_host, trial.on), ..submission };
    row(machine, &loads, mode, program.name, submission, trial.requests)
}

/// One copy of a program in each instance of a geometry.
#[must_use]
pub fn instances(card: &'static CardModel, geometry: &str, program: Program<'_>, trial: Trial) -> Option<Row> {
    let table = card.mig.as_ref()?;
    let placed = table.place(geometry.split(',')).ok()?;
    let mut latencies = Vec::new();
    let (mut throughput, mut p99, mut clients) = (0.0, 0.0_f64, 0);
    for instance in &placed.instances {
        let machine = Machine::instance(card, table, instance);
        let row = share_beside(&machine, program, (Mode::Exclusive, 1), placed.instances.len() as u32, trial)?;
        throughput += row.throughput;
        p99 = p99.max(row.p99_us);
        latencies.extend(row.latencies_us);
        clients += 1;
    }
    latencies.sort_by(f64::total_cmp);
    let p50_us = quantile(&latencies, 0.5);
    Some(Row {
        mode: "mig".to_owned(),
        workload: program.name.to_owned(),
        clients,
        source: Source::Predicted,
        basis: Basis::Requests,
        throughput,
        slowdown: 1.0,
        p50_us,
        p99_us: p99,
        start_ms: None,
        latencies_us: points(&latencies),
    })
}

fn row(machine: &Machine, loads: &[Load<'_>], mode: Mode, workload: &str, submission: Submission, requests: u32) -> Option<Row> {
    let outcome = run(machine, loads, mode.turns(), submission, Effort { requests, events: MOST_EVENTS });
    let mut all: Vec<f64> = outcome.clients.iter().flat_map(|client| client.latencies.iter().map(|ns| ns / 1e3)).collect();
    if all.is_empty() {
        return None;
    }
    all.sort_by(f64::total_cmp);
    let p99_us = outcome.clients.iter().map(|client| quantile(&client.latencies, 0.99) / 1e3).fold(0.0, f64::max);
    Some(Row {
        mode: mode.name().to_owned(),
        workload: workload.to_owned(),
        clients: loads.len() as u32,
        source: Source::Predicted,
        basis: Basis::Requests,
        throughput: outcome.clients.iter().map(|client| client.throughput).sum(),
        slowdown: 1.0,
        p50_us: quantile(&all, 0.5),
        p99_us,
        start_ms: None,
        latencies_us: points(&all),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_planner::card;
    use cumux_planner::profile::{Duration, FORMAT, Host, Kernel, Step, VERSION};

    /// A pass of so many kernels that a host launches one after the other.
    fn model(kernels: u64) -> Profile {
        let facts = cumux_planner::profile::by_hand::facts(card::find("h200").expect("a card"));
        let duration = Duration { mean_ns: 4000.0, p99_ns: 4000.0 };
        let kernel = Kernel { name: "layer".into(), count: 1, blocks: 98, threads: 256, registers: 64, shared: 0, duration, traffic: None, issue: None };
        let launch = Step::Launch { kernel: 0, stream: 0, gap_ns: 3000 };
        Profile {
            format: FORMAT.into(),
            version: VERSION,
            program: "model".into(),
            recorded: None,
            card: facts,
            kernels: vec![kernel],
            copies: vec![],
            request: vec![Step::Repeat { times: kernels, steps: vec![launch] }, Step::Wait { stream: None, gap_ns: 0 }],
            requests: 1,
            memory: vec![],
            host: None,
            notes: vec![],
        }
    }

    fn program(profile: &Profile) -> Program<'_> {
        Program { name: "model", profile, pace: 1.0 }
    }

    /// A machine that was slow while a program was recorded, and not when one copy was measured.
    #[test]
    fn a_programs_pace_is_what_one_copy_has_shown() {
        let mut profile = model(8);
        // What the host does besides takes most of a request's time.
        profile.request.insert(0, Step::Wait { stream: None, gap_ns: 500_000 });
        let machine = machine(&profile.card, 1024);
        let trial = Trial { requests: 20, host: 1.0, on: ServedHost::with(32) };
        for wanted in [0.7, 1.0, 1.4] {
            let truly = Program { pace: wanted, ..program(&profile) };
            let alone = [Mode::TimeSliced, Mode::Mps, Mode::Cumux].map(|mode| (mode, share(&machine, truly, mode, 1, trial).expect("a row").throughput));
            let found = pace(&machine, &profile, trial, &alone);
            assert!((found / wanted - 1.0).abs() < 0.02, "{found} in place of {wanted}");
            // Ways that disagree: in the mean.
            let [mut first, mut second, _] = alone;
            (first.1, second.1) = (first.1 * 1.1, second.1 / 1.1);
            let found = pace(&machine, &profile, trial, &[first, second]);
            assert!((found / wanted - 1.0).abs() < 0.1, "{found} in place of {wanted}");
        }
        assert_eq!(pace(&machine, &profile, trial, &[]), 1.0, "nothing was measured");
        for (rate, most) in [(1e-9, *PACES.end()), (1e12, *PACES.start()), (0.0, 1.0)] {
            assert_eq!(pace(&machine, &profile, trial, &[(Mode::Mps, rate)]), most);
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let profile = model(8);
        let machine = machine(&profile.card, 1024);
        let ways = [Mode::TimeSliced, Mode::Cumux].map(|mode| [1, 16, 2].map(|clients| Question::Share(machine.clone(), mode, clients)));
        let questions: Vec<_> = ways.into_iter().flatten().map(|question| (question, program(&profile))).collect();
        let trial = Trial { requests: 10, host: 1.0, on: ServedHost::with(32) };
        let found: Vec<String> = ask_all(&questions, trial, 3, || true).iter().map(|row| format!("{row:?}")).collect();
        let alone: Vec<String> = questions.iter().filter_map(|(question, program)| question.ask(*program, trial)).map(|row| format!("{row:?}")).collect();
        assert_eq!((found.len(), found), (6, alone));
        assert!(ask_all(&questions, trial, 3, || false).is_empty(), "nobody wants them any more");
    }

    /// Sixteen programs whose passes have 160 kernels: events must not run out before there is a
    /// figure.
    #[test]
    fn many_copies_of_a_large_model_have_a_prediction() {
        let profile = model(160);
        let machine = machine(&profile.card, 1024);
        let trial = Trial { requests: 100, host: 1.0, on: ServedHost::with(32) };
        let row = share(&machine, program(&profile), Mode::Cumux, 16, trial).expect("a row");
        let alone = share(&machine, program(&profile), Mode::Cumux, 1, trial).expect("a row");
        assert!(row.throughput > 1.5 * alone.throughput && row.p99_us > alone.p99_us, "{} {}", row.throughput, alone.throughput);
        // On a slower host fewer are done.
        let slower = share(&machine, program(&profile), Mode::TimeSliced, 1, Trial { host: 2.0, ..trial }).expect("a row");
        let native = share(&machine, program(&profile), Mode::TimeSliced, 1, trial).expect("a row");
        assert!(slower.throughput < 0.8 * native.throughput, "{} {}", slower.throughput, native.throughput);
        // And where processors are few.
        let crowded = share(&machine, program(&profile), Mode::Cumux, 16, Trial { on: ServedHost::with(4), ..trial }).expect("a row");
        assert!(crowded.throughput < 0.8 * row.throughput, "{} {}", crowded.throughput, row.throughput);
    }

    /// A host that is slow once in a while has longer longest passes, and as many of them.
    #[test]
    fn an_unsteady_host_shows_in_the_longest_passes() {
        let steady = model(160);
        let mut unsteady = steady.clone();
        let request = Some(Duration { mean_ns: 500_000.0, p99_ns: 1_000_000.0 });
        let launch_gap = Duration { mean_ns: 3000.0, p99_ns: 3000.0 };
        unsteady.host = Some(Host { launches: 160, launching_ns: 1, launch_gap, request, waits: 1, waiting_ns: 1, waits_after: vec![] });
        let machine = machine(&steady.card, 1024);
        let trial = Trial { requests: 100, host: 1.0, on: ServedHost::with(32) };
        let [steady, unsteady] = [&steady, &unsteady].map(|profile| share(&machine, program(profile), Mode::Cumux, 1, trial).expect("a row"));
        assert!((unsteady.throughput / steady.throughput - 1.0).abs() < 0.01, "{} {}", unsteady.throughput, steady.throughput);
        let longer = unsteady.p99_us / steady.p99_us;
        assert!((1.5..2.2).contains(&longer) && unsteady.p50_us < 1.1 * steady.p50_us, "{longer}");
    }
}
