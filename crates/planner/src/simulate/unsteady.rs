//! Hosts that are now fast and now slow: something else runs on them, their clocks change. Such a
//! time lasts longer than a request, and one request of fifty falls into one ([`RARE`]), so that
//! the 99th of a hundred is a typical request of a slow time.
//!
//! Programs have their slow times at different moments: where they take turns, the slow one misses
//! its turn. Throughput is that of the mean, which slow times are part of. What they change is the
//! longest requests.

use super::{Effort, Load, Outcome, Submission, TimeSlices, quantile, run_steady};
use crate::work::{Machine, Work};

/// Part of the requests that fall into a slow time.
const RARE: f64 = 0.02;
/// Requests of each client that are simulated there, at least.
const LEAST: u32 = 10;

/// Of so many kinds of programs each one is slow while all others are not. Of more, all are at the
/// same time: each kind costs a simulation.
const MOST_KINDS: usize = 8;

/// Simulates these programs on a machine.
#[must_use]
pub fn run(machine: &Machine, loads: &[Load<'_>], turns: TimeSlices, submission: Submission, effort: Effort) -> Outcome {
    let mut outcome = run_steady(machine, loads, turns, submission, effort);
    let effort = Effort { requests: (effort.requests / 4).max(LEAST), events: effort.events };
    let kinds = find_kinds(loads);
    let mut representatives: Vec<usize> = kinds.clone();
    representatives.sort_unstable();
    representatives.dedup();
    let groups = if representatives.len() > MOST_KINDS { vec![representatives] } else { representatives.into_iter().map(|one| vec![one]).collect() };
    for slow in groups {
        let slowest = slow.iter().filter_map(|at| loads.get(*at)).map(|load| load.work.unsteady).fold(1.0, f64::max);
        if slowest <= 1.0 {
            continue;
        }
        let works: Vec<Option<Work>> =
            loads.iter().enumerate().map(|(at, load)| slow.contains(&at).then(|| load.work.clone().on_host(load.work.unsteady))).collect();
        let slow_loads: Vec<Load<'_>> = loads.iter().zip(&works).map(|(load, work)| Load { work: work.as_ref().unwrap_or(load.work), ..*load }).collect();
        let found = run_steady(machine, &slow_loads, turns, submission.in_slow_time(slowest), effort);
        for ((fared, load), kind) in outcome.clients.iter_mut().zip(loads).zip(&kinds) {
            let Some(at_its_slowest) = found.clients.get(*kind).filter(|_| slow.contains(kind)) else { continue };
            if at_its_slowest.overloaded && !fared.overloaded {
                // Requests queue up while the host is slow, for as long as that lasts, which is not
                // known: each is taken to be longer by itself.
                let longer: Vec<f64> = fared.latencies.iter().map(|ns| ns * load.work.unsteady).collect();
                mix(&mut fared.latencies, &longer);
            } else {
                mix(&mut fared.latencies, &at_its_slowest.latencies);
            }
        }
        outcome.cut |= found.cut;
    }
    outcome
}

/// For each program the number of the first one that does the same in the same way.
fn find_kinds(loads: &[Load<'_>]) -> Vec<usize> {
    let is_same = |one: &Load<'_>, other: &Load<'_>| std::ptr::eq(one.work, other.work) && one.arrival == other.arrival && one.cap == other.cap;
    loads.iter().enumerate().map(|(at, load)| loads.iter().position(|first| is_same(first, load)).unwrap_or(at)).collect()
}

/// Puts so many of the slow requests among the others that they are their part of all.
fn mix(latencies: &mut Vec<f64>, slow: &[f64]) {
    if slow.is_empty() || latencies.is_empty() {
        return;
    }
    let count = (latencies.len() as f64 * RARE / (1.0 - RARE)).ceil();
    latencies.extend((0..count as usize).map(|number| quantile(slow, (number as f64 + 0.5) / count)));
    latencies.sort_by(f64::total_cmp);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Arrival;

    #[test]
    fn programs_of_a_kind_do_the_same_in_the_same_way() {
        let work = |unsteady| Work { kernels: Vec::new(), copies: Vec::new(), steps: Vec::new(), streams: 1, unsteady };
        let (one, other) = (work(1.5), work(1.5));
        let load = |work, cap| Load { work, arrival: Arrival::Closed, context: 0, cap };
        assert_eq!(find_kinds(&[load(&one, 8), load(&other, 8), load(&one, 8), load(&one, 4), load(&other, 8)]), [0, 1, 0, 3, 1]);
    }

    #[test]
    fn the_99th_of_a_hundred_is_a_typical_slow_one() {
        let slow: Vec<f64> = (0..25).map(|number| 200.0 + f64::from(number)).collect();
        for count in [20, 50, 100, 300, 1000] {
            let mut all = vec![100.0; count];
            mix(&mut all, &slow);
            assert!((200.0..=224.0).contains(&quantile(&all, 0.99)), "{count}: {}", quantile(&all, 0.99));
            assert!(quantile(&all, 0.95) == 100.0 || count < 50, "{count}");
        }
        let mut none = vec![100.0; 10];
        mix(&mut none, &[]);
        assert_eq!(none.len(), 10);
    }
}
