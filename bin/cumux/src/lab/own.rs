//! The user's program among the workloads. docs/lab.md, "A program of yours", has what it and the
//! lab say to each other.
//!
//! One that says `ready` and gives a result is a workload like the lab's own. Any other runs once
//! and twice at a time, and is timed, or gives a rate.

use super::crowd::{Crowd, End, Finding, rate_of};
use super::ways::{MemoryMeter, Way};
use crate::demo::interrupt::Interrupt;
use anyhow::{Context as _, bail};
use cumux_lab::predict;
use cumux_lab::report::{Basis, Row, Source};
use cumux_planner::simulate::quantile;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Its name among the workloads.
pub const NAME: &str = "yours";
/// How much longer a round may take than those before.
const SLACK: Duration = Duration::from_secs(120);
/// Longest that the first round of the user's program may take.
const LONGEST: Duration = Duration::from_secs(900);
/// A crowd that needs longer to get ready is the largest one.
const LONGEST_START: Duration = Duration::from_secs(40);
/// Copies of a program that does not tell of its requests.
const MOST_SILENT: u32 = 2;
/// Rounds of a crowd. What else a machine does slows programs down and never speeds them up, so
/// each figure is that of the best round.
const ROUNDS: u32 = 2;
/// Few programs are as fast as the host lets them, which is slow for a minute now and then, and for
/// one process and not for another. So, on a card, crowds of at most so many are started once more
/// after the largest crowd, and then those of at most so many once again.
const MOST_AGAIN: [u32; 2] = [4, 2];
/// Not where the copies take longer to get ready: the lab would take more than eight minutes.
const LONGEST_AGAIN: Duration = Duration::from_secs(8);

/// What a crowd has shown.
#[derive(Debug)]
pub enum Shown {
    /// Each copy has told of its requests.
    Requests(Vec<Finding>),
    /// The copies ran. True if they gave results, and had not said that they are ready.
    Programs(Vec<End>, bool),
}

/// What copies have shown that ran at once.
struct Round {
    shown: Shown,
    /// How long they needed to get ready.
    start: Duration,
    /// The memory in use then.
    memory: Option<f64>,
}

/// Where it runs.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub way: &'a Way,
    pub memory: &'a MemoryMeter,
    pub libraries: &'a Path,
    pub software: bool,
    /// Small crowds are started again, until then.
    pub again_until: Option<Instant>,
    pub interrupt: &'a Interrupt,
}

/// The user's program.
#[derive(Debug)]
pub struct Own {
    pub command: Vec<OsString>,
    /// The longest that a round of it has taken.
    took: Option<Duration>,
}

impl Own {
    /// Refuses a program that is not there, before anything has run.
    pub fn check(command: &[OsString]) -> anyhow::Result<()> {
        let Some(name) = command.first().map(Path::new) else { return Ok(()) };
        let is_program = |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        let found = match name.components().count() {
            1 => std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| is_program(&folder.join(name)))),
            _ => is_program(name),
        };
        if found { Ok(()) } else { bail!("there is no program {}: name one that can be started behind --", name.display()) }
    }

    pub fn new(command: &[OsString]) -> Self {
        Self { command: command.to_vec(), took: None }
    }

    /// The longest that a round may take: once one is known, others are not waited for much longer.
    pub fn limit(&self) -> Duration {
        self.took.map_or(LONGEST, |took| (SLACK + 4 * took).min(LONGEST))
    }

    /// Runs it with each of these numbers of copies, or with one and two, and hands on what each
    /// crowd has shown, with the memory that was in use. Returns what is to be said of it besides.
    pub fn share(&mut self, setting: Setting<'_>, crowds: &[u32], mut add: impl FnMut(&Shown, Option<f64>)) -> anyhow::Result<String> {
        let mut found = Vec::new();
        let done = self.share_each(setting, crowds, &mut found).and_then(|remark| {
            if let Some(until) = setting.again_until {
                let mut run = |clients| Ok(self.run(setting, clients, 1).with_context(|| at_once(clients))?.shown);
                repeat_small(&mut found, |clients| if Instant::now() < until { run(clients).map(Some) } else { Ok(None) })?;
            }
            Ok(remark)
        });
        for (_, round) in &found {
            add(&round.shown, round.memory);
        }
        done
    }

    /// Runs each of these crowds. Those before one that fails are in `found`.
    fn share_each(&mut self, setting: Setting<'_>, crowds: &[u32], found: &mut Vec<(u32, Round)>) -> anyhow::Result<String> {
        let mut remark = String::new();
        let mut tells = true;
        for clients in crowds {
            if !tells && *clients > MOST_SILENT {
                break;
            }
            let rounds = if setting.again_until.is_some() && *clients <= MOST_AGAIN[0] { 1 } else { ROUNDS };
            let round = self.run(setting, *clients, rounds).with_context(|| at_once(*clients))?;
            if let Shown::Programs(_, unready) = &round.shown {
                if tells && *clients > 1 {
                    bail!("{}: it gave no result, which it did alone", at_once(*clients));
                }
                tells = false;
                if *unready {
                    ". Your program gave a result without having said ready: it was measured as one that gives none".clone_into(&mut remark);
                }
            }
            let start = round.start;
            found.push((*clients, round));
            if tells && start > LONGEST_START {
                remark =
                    format!(". {clients} copies of your program needed {:.0} seconds to get ready: larger crowds of it were left out", start.as_secs_f64());
                break;
            }
        }
        Ok(remark)
    }

    /// So many copies at once, with at most so many rounds.
    fn run(&mut self, setting: Setting<'_>, clients: u32, rounds: u32) -> anyhow::Result<Round> {
        let Setting { way, memory, libraries, software, interrupt, again_until: _ } = setting;
        let commands = (0..clients).map(|number| way.command(&self.command, (number, clients), libraries, software)).collect::<Result<_, _>>()?;
        let mut crowd = Crowd::start(commands, interrupt, self.limit())?;
        let ready = crowd.wait_until_ready_or_ended()?;
        let start = crowd.elapsed();
        // Those that have not said ready may have ended.
        let memory = (ready == clients as usize).then(|| memory.in_use(way, clients)).flatten();
        let rounds = crowd.go_round(rounds)?;
        let ends = crowd.finish()?;
        let took = ends.iter().map(|end| end.took).max().unwrap_or_default();
        self.took = self.took.max(Some(took));
        let mut shown = shown(ends, ready)?;
        require_right(rounds.iter().flatten())?;
        if let Some(best) = rounds.into_iter().reduce(best_of) {
            // Those that were ready again and ended have shown what they could before.
            shown = Shown::Requests(if let Shown::Requests(last) = shown { best_of(best, last) } else { best });
        }
        Ok(Round { shown, start, memory })
    }
}

/// Runs small crowds again that have told of their requests, unless they take long to start, until
/// `run` has nothing.
fn repeat_small(found: &mut [(u32, Round)], mut run: impl FnMut(u32) -> anyhow::Result<Option<Shown>>) -> anyhow::Result<()> {
    for most in MOST_AGAIN {
        for (clients, round) in found.iter_mut().filter(|(clients, round)| *clients <= most && round.start <= LONGEST_AGAIN) {
            let Shown::Requests(best) = &mut round.shown else { continue };
            match run(*clients)? {
                None => return Ok(()),
                Some(Shown::Requests(other)) => *best = best_of(std::mem::take(best), other),
                Some(Shown::Programs(..)) => {}
            }
        }
    }
    Ok(())
}

/// A crowd, in words.
fn at_once(clients: u32) -> String {
    format!("your program, {clients} at once")
}

/// The round with more requests a second, with p99 of the calmer one.
fn best_of(first: Vec<Finding>, second: Vec<Finding>) -> Vec<Finding> {
    let slow = |round: &[Finding]| round.iter().map(|finding| finding.p99_us).fold(0.0, f64::max);
    let (mut fast, other) = if rate_of(&second) > rate_of(&first) { (second, first) } else { (first, second) };
    if slow(&other) < slow(&fast) {
        for (finding, calm) in fast.iter_mut().zip(other) {
            finding.p99_us = calm.p99_us.max(finding.p50_us);
        }
    }
    fast
}

/// What these copies have shown, of which so many had said that they are ready.
fn shown(ends: Vec<End>, ready: usize) -> anyhow::Result<Shown> {
    if let Some(end) = ends.iter().find(|end| !end.status.success()) {
        bail!("it ended with {}: {}", end.status, end.last_line());
    }
    let gives = ends.iter().any(|end| end.result_line().is_some());
    if ready == 0 || !gives {
        let unready = ends.iter().any(|end| end.finding().is_ok());
        return Ok(Shown::Programs(ends, unready));
    }
    if ready < ends.len() {
        bail!("{ready} of {} copies said ready", ends.len());
    }
    let findings = ends.iter().map(End::finding).collect::<Result<Vec<Finding>, _>>();
    let findings = findings.context("it said ready, and docs/lab.md says what result it has to give then")?;
    require_right(findings.iter())?;
    Ok(Shown::Requests(findings))
}

fn require_right<'a>(findings: impl Iterator<Item = &'a Finding>) -> anyhow::Result<()> {
    let (wrong, all) = findings.fold((0, 0), |(wrong, all), finding| (wrong + usize::from(!finding.right), all + 1));
    if wrong == 0 { Ok(()) } else { bail!("{wrong} of {all} results are wrong, as the copies themselves say") }
}

/// What copies have shown that do not tell of their requests: rates, or how long they took.
pub fn timed(mode: &str, ends: &[End]) -> Row {
    let rates: Option<Vec<f64>> = ends.iter().map(|end| end.said.iter().rev().find_map(|line| rate_in(line))).collect();
    let mut took: Vec<f64> = ends.iter().map(|end| end.took.as_secs_f64() * 1e6).collect();
    took.sort_by(f64::total_cmp);
    Row {
        mode: mode.to_owned(),
        workload: NAME.to_owned(),
        clients: ends.len() as u32,
        source: Source::Measured,
        basis: if rates.is_some() { Basis::Rate } else { Basis::Programs },
        throughput: rates.map_or_else(|| took.iter().map(|us| 1e6 / us.max(1e-3)).sum(), |rates| rates.iter().sum()),
        slowdown: 1.0,
        p50_us: quantile(&took, 0.5),
        p99_us: quantile(&took, 0.99),
        start_ms: None,
        latencies_us: predict::points(&took),
    }
}

/// The rate that a line names: the number before `/s`, or before words that end in `per second`.
fn rate_in(line: &str) -> Option<f64> {
    let line = line.to_lowercase();
    let at = line.find("/s").or_else(|| line.find("per second"))?;
    let number = line[..at].split_whitespace().rev().find_map(|word| word.trim_matches(|c: char| !c.is_ascii_digit()).replace(',', "").parse::<f64>().ok())?;
    (number.is_finite() && number > 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    fn end(said: &[&str]) -> End {
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        End { status: ExitStatus::from_raw(0), took: Duration::from_secs(2), said }
    }

    const RESULT: &str = r#"{"requests": 8, "seconds": 2.0, "p50_us": 10, "p99_us": 20}"#;

    #[test]
    fn a_program_that_is_ready_and_gives_a_result_is_a_workload() {
        let of = |said: &[&[&str]], ready| shown(said.iter().map(|lines| end(lines)).collect(), ready);
        assert!(matches!(of(&[&["loading", RESULT, "4 passes/s"], &[RESULT]], 2).expect("two results"), Shown::Requests(two) if two.len() == 2));
        // Without `ready` the copies were not in step; without a result nothing can be compared.
        assert!(matches!(of(&[&[RESULT]], 0).expect("a program"), Shown::Programs(_, true)));
        assert!(matches!(of(&[&["4 passes/s"]], 1).expect("a program"), Shown::Programs(_, false)));
        assert!(matches!(of(&[&["{}"]], 0).expect("a program that writes JSON"), Shown::Programs(_, false)));
        for (said, ready, says) in [
            (vec![["{}"].as_slice()], 1, "missing field `requests`"),
            (vec![&[RESULT], &[RESULT]], 1, "1 of 2 copies said ready"),
            (vec![&[RESULT], &["killed"]], 2, "a program said: killed"),
            (
                vec![&[r#"{"requests": 8, "seconds": 2, "p50_us": 1, "p99_us": 2, "right": false}"#]],
                1,
                "1 of 1 results are wrong, as the copies themselves say",
            ),
        ] {
            let said = format!("{:#}", of(&said, ready).expect_err("no workload"));
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn each_figure_is_that_of_the_best_round() {
        let round = |requests: [u32; 2], p99: u32| {
            let of = |requests: u32| Finding::parse(&RESULT.replace('8', &requests.to_string()).replace("20", &p99.to_string())).expect("a result");
            requests.map(of).to_vec()
        };
        // Each copy has taken two seconds.
        for (second, rate) in [([9, 6], 8.0), ([7, 10], 8.5)] {
            for (first_p99, second_p99, p99) in [(20, 30, 20.0), (30, 20, 20.0), (11, 20, 11.0)] {
                let best = best_of(round([8, 8], first_p99), round(second, second_p99));
                assert_eq!((rate_of(&best), best[0].p99_us, best[1].p99_us), (rate, p99, p99));
            }
        }
    }

    #[test]
    fn small_crowds_that_start_soon_run_again_while_there_is_time() {
        let of = |requests: usize| Shown::Requests(vec![Finding::parse(&RESULT.replace('8', &requests.to_string())).expect("a result")]);
        let round = |clients: u32, shown: Shown, start: Duration| (clients, Round { shown, start, memory: None });
        let late = LONGEST_AGAIN + Duration::from_secs(1);
        let [more, fewer] = MOST_AGAIN;
        let found = || {
            vec![
                round(1, of(8), LONGEST_AGAIN),
                round(fewer, of(8), late),
                round(3, Shown::Programs(Vec::new(), false), Duration::ZERO),
                round(more, of(8), Duration::ZERO),
                round(more + 1, of(8), Duration::ZERO),
            ]
        };
        // Each has taken two seconds.
        let rates = |found: &[(u32, Round)]| -> Vec<f64> {
            found.iter().filter_map(|(_, round)| if let Shown::Requests(findings) = &round.shown { Some(rate_of(findings)) } else { None }).collect()
        };
        for (most, expected, first) in [(9, &[1, more, 1][..], 14), (2, &[1, more], 12), (0, &[], 8)] {
            let (mut found, mut again) = (found(), Vec::new());
            repeat_small(&mut found, |clients| {
                if again.len() == most {
                    return Ok(None);
                }
                again.push(clients);
                // Each time that one copy starts it is faster, and larger crowds are slower.
                Ok(Some(of(if clients == 1 { 11 + again.len() } else { 4 })))
            })
            .expect("they run");
            assert_eq!((&again[..], rates(&found)), (expected, vec![f64::from(first) / 2.0, 4.0, 4.0, 4.0]));
        }
        assert!(repeat_small(&mut found(), |_| bail!("it ended")).is_err());
    }

    #[test]
    fn a_program_that_gives_no_result_is_timed_or_gives_a_rate() {
        let named = timed("cumux", &[end(&["10 images/s"]), end(&["12 images/s", "done"])]);
        assert_eq!((named.basis, named.throughput, named.clients), (Basis::Rate, 22.0, 2));
        // One rate of two is none.
        let timed = timed("cumux", &[end(&["10 images/s"]), end(&["done"])]);
        assert_eq!((timed.basis, timed.throughput, timed.p99_us), (Basis::Programs, 1.0, 2e6));
    }

    #[test]
    fn rates_are_found_in_what_programs_print() {
        assert_eq!(rate_in("throughput: 1234.5 images/s"), Some(1234.5));
        assert_eq!(rate_in("1,200 requests per second (p99 3 ms)"), Some(1200.0));
        assert_eq!(rate_in("Rate = 17 it/s"), Some(17.0));
        for none in ["done", "images/s", "0 images/s", "took 3 seconds", "see /srv/model"] {
            assert_eq!(rate_in(none), None, "{none}");
        }
    }
}
