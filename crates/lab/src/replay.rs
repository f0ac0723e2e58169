//! What a report of the lab has measured, predicted once more from the profiles beside it: for work
//! on the planner without a card.

use crate::predict::{Program, Trial, machine, pace, share};
use crate::report::Pair;
use cumux_planner::mode::Mode;
use cumux_planner::observe::noise::{Noise, Spread};
use cumux_planner::profile::{Duration, Profile};
use serde_json::Value;
use std::collections::BTreeMap;

/// Throughput and p99 of the programs that have a profile, by time-slicing, MPS and cumux, as a
/// report has them and as the model says now.
#[must_use]
pub fn pairs(report: &Value, profile_of: impl Fn(&str) -> Option<Profile>) -> Vec<Pair> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let host = report["launches"]["factor"].as_f64().unwrap_or(1.0);
    let processors = report["made"]["processors"].as_u64().unwrap_or(1) as u32;
    let memory = report["device"]["memory_mib"].as_u64().unwrap_or(0) as u32;
    let trial = Trial { requests: 100, host, processors };
    let measured = || report["sharing"].as_array().into_iter().flatten().filter(|row| row["source"] == "measured" && row["basis"] == "requests");
    let mode_of = |row: &Value| [Mode::TimeSliced, Mode::Mps, Mode::Cumux].into_iter().find(|mode| row["mode"] == mode.name());
    let mut paces = BTreeMap::new();
    let mut pairs = Vec::new();
    for row in measured() {
        let Some(mode) = mode_of(row) else { continue };
        let Some((workload, profile)) = row["workload"].as_str().and_then(|workload| Some((workload, profile_of(workload)?))) else { continue };
        let machine = machine(&profile.card, memory);
        let pace = *paces.entry(workload).or_insert_with(|| {
            let one = measured().filter(|row| row["workload"] == workload && row["clients"] == 1);
            let alone: Vec<(Mode, f64)> = one.filter_map(|row| Some((mode_of(row)?, number(&row["throughput"])))).collect();
            pace(&machine, &profile, trial, &alone)
        });
        let clients = row["clients"].as_u64().unwrap_or(1) as u32;
        let Some(predicted) = share(&machine, Program { name: workload, profile: &profile, pace }, mode, clients, trial) else { continue };
        for (figure, measured, predicted) in
            [("throughput", number(&row["throughput"]), predicted.throughput), ("p99_us", number(&row["p99_us"]), predicted.p99_us)]
        {
            pairs.push(Pair { workload: workload.to_owned(), mode: mode.name().to_owned(), clients, figure, measured, predicted });
        }
    }
    pairs
}

/// How far the p99 of the sum of two equal random waits is above its mean, in distances of its mean
/// from its 5th of a hundred.
const P99_ABOVE_MEAN: f64 = 2.82;

/// A profile of a recorder that did not take off yet what the host adds, nearly as one that does
/// would have made it. What such a profile lacks is each kernel's low time. It is made up from mean
/// and p99, as if the kernel were constant and the host added two random waits, one before it
/// begins and one until its end is seen.
#[must_use]
pub fn quieter(mut profile: Profile) -> Profile {
    let spread = |count: u64, duration: Duration| {
        let low_ns = duration.mean_ns - (duration.p99_ns - duration.mean_ns).max(0.0) / P99_ABOVE_MEAN;
        Spread { samples: count, low_ns: low_ns.max(0.0), duration }
    };
    let spreads: Vec<Spread> = profile.kernels.iter().map(|kernel| spread(kernel.count, kernel.duration)).collect();
    let noise = Noise::of(&spreads);
    for (kernel, spread) in profile.kernels.iter_mut().zip(&spreads) {
        kernel.duration = noise.without(spread);
    }
    for copy in &mut profile.copies {
        copy.duration = noise.without(&spread(copy.count, copy.duration));
    }
    profile
}
