//! Heartbeat check: whether a living process still does its work. Each process of the service
//! watches those it depends on with a [`Pulse`].
//!
//! - A process that a signal has stopped (SIGSTOP, ctrl-Z) counts as dead after the time of
//!   `CUMUX_HEARTBEAT_MS`: `/proc/PID/stat` says so for certain.
//! - A process that runs, but with a thread that makes no progress, counts as dead only after
//!   [`STUCK`] times as long: the machine may be under heavy load.
//! - A process under a debugger is left alone: its user stopped it on purpose.
//! - A watcher that did not run itself (the machine was suspended, a container was frozen) starts
//!   all its counts anew.
//!
//! [`Pulse`] is pure: the time and the observations are arguments.

use std::fs;
use std::time::{Duration, Instant};

/// The variable with the heartbeat limit: milliseconds that a process of the service may stand
/// still; 0 = for ever.
pub const VARIABLE: &str = "CUMUX_HEARTBEAT_MS";
const DEFAULT: Duration = Duration::from_secs(5);
/// The lowest limit: with less, a busy machine would look like a dead process.
const SHORTEST: Duration = Duration::from_millis(100);
/// Factor on the limit for a process that runs but makes no progress.
pub const STUCK: u32 = 6;
/// Checks within one limit.
const CHECKS: u32 = 4;

/// The heartbeat limit of the environment; `None` = for ever. A value that is no number counts as
/// not set.
#[must_use]
pub fn limit() -> Option<Duration> {
    limit_of(cumux_environment::number_or_none(VARIABLE))
}

fn limit_of(milliseconds: Option<u64>) -> Option<Duration> {
    match milliseconds {
        None => Some(DEFAULT),
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms).max(SHORTEST)),
    }
}

/// Time between two checks under this limit.
#[must_use]
pub fn interval(limit: Duration) -> Duration {
    limit / CHECKS
}

/// The state of a process, according to `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    /// It runs or sleeps, or cannot be seen from here.
    Runs,
    /// A signal has stopped it.
    Stopped,
    /// A debugger has stopped it.
    Traced,
}

/// Reads the state of a process.
#[must_use]
pub fn motion(pid: u32) -> Motion {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(Motion::Runs, |stat| motion_of(&stat))
}

/// Parses the text of `/proc/PID/stat`. The name, in brackets, may contain anything.
fn motion_of(stat: &str) -> Motion {
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_ascii_whitespace().next());
    match state {
        Some("T") => Motion::Stopped,
        Some("t") => Motion::Traced,
        _ => Motion::Runs,
    }
}

/// What a check concludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It makes progress.
    Well,
    /// It stands still, but not yet for as long as the limit.
    Silent,
    /// It has stood still for too long.
    Dead(Standstill),
}

/// How a process stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// A signal has stopped it.
    Stopped,
    /// It runs, and one of its threads makes no progress.
    Stuck,
}

impl std::fmt::Display for Standstill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Standstill::Stopped => "was stopped by a signal",
            Standstill::Stuck => "runs and does not answer",
        })
    }
}

/// One watched process.
#[derive(Debug, Clone)]
pub struct Pulse {
    limit: Duration,
    observed_at: Instant,
    stopped_since: Option<Instant>,
    /// Last count of each of its threads, and when that count was first seen.
    beats: Vec<(u64, Instant)>,
}

impl Pulse {
    /// Starts to watch, with the limit for a stopped process.
    #[must_use]
    pub fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, observed_at: now, stopped_since: None, beats: Vec::new() }
    }

    /// Takes one observation. `beats` holds a counter for each thread of the process; a counter
    /// grows while its thread makes progress. Empty for a process without such counters.
    pub fn observe(&mut self, now: Instant, motion: Motion, beats: &[u64]) -> Verdict {
        let absent = now.saturating_duration_since(self.observed_at) > self.limit;
        self.observed_at = now;
        if absent || motion == Motion::Traced {
            self.stopped_since = None;
            self.beats = beats.iter().map(|beat| (*beat, now)).collect();
            return Verdict::Well;
        }
        if self.beats.len() != beats.len() {
            self.beats = beats.iter().map(|beat| (*beat, now)).collect();
        }
        for ((last, since), beat) in self.beats.iter_mut().zip(beats).filter(|((last, _), beat)| last != *beat) {
            (*last, *since) = (*beat, now);
        }
        if motion == Motion::Stopped {
            let since = *self.stopped_since.get_or_insert(now);
            let over = now.saturating_duration_since(since) >= self.limit;
            return if over { Verdict::Dead(Standstill::Stopped) } else { Verdict::Silent };
        }
        self.stopped_since = None;
        let longest = self.beats.iter().map(|(_, since)| now.saturating_duration_since(*since)).max().unwrap_or_default();
        if longest >= self.limit.saturating_mul(STUCK) {
            Verdict::Dead(Standstill::Stuck)
        } else if longest >= self.limit {
            Verdict::Silent
        } else {
            Verdict::Well
        }
    }

    /// When the next check is due.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.observed_at + interval(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use rustix::process::Signal;

    const LIMIT: Duration = Duration::from_secs(4);

    /// Looks once a second.
    fn looks(seconds: std::ops::RangeInclusive<u64>, pulse: &mut Pulse, start: Instant, motion: Motion, beat: impl Fn(u64) -> u64) -> Vec<Verdict> {
        seconds.map(|s| pulse.observe(start + Duration::from_secs(s), motion, &[7 + s, beat(s)])).collect()
    }

    #[test]
    fn a_stopped_process_is_dead_after_the_time_and_a_stuck_one_much_later() {
        let start = Instant::now();
        let mut pulse = Pulse::new(LIMIT, start);
        assert_eq!(looks(1..=3, &mut pulse, start, Motion::Runs, |s| s), [Verdict::Well; 3]);
        assert_eq!(looks(4..=7, &mut pulse, start, Motion::Stopped, |_| 3), [Verdict::Silent; 4]);
        assert_eq!(looks(8..=8, &mut pulse, start, Motion::Stopped, |_| 3), [Verdict::Dead(Standstill::Stopped)]);
        let mut pulse = Pulse::new(LIMIT, start);
        let all = looks(1..=25, &mut pulse, start, Motion::Runs, |_| 3);
        assert_eq!((all[3], all[4], all[23], all[24]), (Verdict::Well, Verdict::Silent, Verdict::Silent, Verdict::Dead(Standstill::Stuck)));
        assert_eq!(looks(26..=26, &mut pulse, start, Motion::Runs, |_| 4), [Verdict::Well], "it comes round again");
    }

    #[test]
    fn a_debugger_and_a_watcher_that_did_not_run_excuse() {
        let start = Instant::now();
        let mut pulse = Pulse::new(LIMIT, start);
        assert_eq!(looks(1..=100, &mut pulse, start, Motion::Traced, |_| 3), vec![Verdict::Well; 100]);
        assert_eq!(looks(101..=103, &mut pulse, start, Motion::Stopped, |_| 3), [Verdict::Silent; 3]);
        // The machine slept for an hour.
        assert_eq!(looks(3700..=3700, &mut pulse, start, Motion::Stopped, |_| 3), [Verdict::Well]);
        assert_eq!(looks(3701..=3704, &mut pulse, start, Motion::Stopped, |_| 3), [Verdict::Silent; 4]);
    }

    #[test]
    fn without_beats_only_a_stop_counts() {
        let start = Instant::now();
        let mut pulse = Pulse::new(LIMIT, start);
        assert!((1..200).all(|s| pulse.observe(start + Duration::from_secs(s), Motion::Runs, &[]) == Verdict::Well));
    }

    #[test]
    fn the_time_is_read_and_what_is_no_number_changes_nothing() {
        assert_eq!((limit_of(None), limit_of(Some(250))), (Some(DEFAULT), Some(Duration::from_millis(250))));
        assert_eq!((limit_of(Some(0)), limit_of(Some(1))), (None, Some(SHORTEST)));
    }

    #[test]
    fn the_system_tells_who_is_stopped() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert_eq!(motion(child.id()), Motion::Runs);
        process.signal(Signal::STOP).unwrap();
        while motion(child.id()) != Motion::Stopped {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(motion(child.id()), Motion::Runs, "nobody is not stopped");
        assert_eq!((motion_of("12 (a) T b) S 1"), motion_of("12 (x) t 1"), motion_of("")), (Motion::Runs, Motion::Traced, Motion::Runs));
    }
}
