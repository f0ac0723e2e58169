//! What a report of the lab has measured, predicted once more from the profiles beside it: for work
//! on the planner without a card.

use crate::predict::{Program, Trial, machine, pace, share};
use crate::report::{COMPARED, Pair};
use cumux_planner::mode::{Mode, ServedHost};
use cumux_planner::profile::Profile;
use serde_json::Value;
use std::collections::BTreeMap;

/// Throughput and p99 of the programs that have a profile, by time-slicing, MPS and cumux, as a
/// report has them and as the model says now.
#[must_use]
pub fn pairs(report: &Value, profile_of: impl Fn(&str) -> Option<Profile>) -> Vec<Pair> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let host = report["launches"]["factor"].as_f64().unwrap_or(1.0);
    let made = |what: &str| report["made"][what].as_u64().map(|count| count as u32);
    // Reports of before had two engines and one intake thread on all hosts that are kept.
    let on = ServedHost { processors: made("processors").unwrap_or(1), engines: made("engines").unwrap_or(2), lanes: made("lanes").unwrap_or(1) };
    let memory = report["device"]["memory_mib"].as_u64().unwrap_or(0) as u32;
    let trial = Trial { requests: 100, host, on };
    let measured = || report["sharing"].as_array().into_iter().flatten().filter(|row| row["source"] == "measured" && row["basis"] == "requests");
    let mode_of = |row: &Value| COMPARED.into_iter().find(|mode| row["mode"] == mode.name());
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
