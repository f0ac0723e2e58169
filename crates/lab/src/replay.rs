//! What a report of the lab has measured, and what it has predicted, predicted once more from the
//! profiles beside it: for work on the planner without a card.

use crate::predict::{Program, REQUESTS, Trial, machine, pace, share};
use crate::report::{COMPARED, Pair};
use cumux_planner::mode::{Mode, ServedHost};
use cumux_planner::profile::Profile;
use serde_json::Value;
use std::collections::BTreeMap;

/// How a report's predictions are made: for its host.
fn trial(report: &Value) -> Trial {
    let host = report["launches"]["factor"].as_f64().unwrap_or(1.0);
    let made = |what: &str| report["made"][what].as_u64().map(|count| count as u32);
    // Reports of before had two engines and one intake thread on all hosts that are kept.
    let on = ServedHost { processors: made("processors").unwrap_or(1), engines: made("engines").unwrap_or(2), lanes: made("lanes").unwrap_or(1) };
    Trial { requests: REQUESTS, host, on }
}

/// The rows of a report from there, by requests.
fn rows<'a>(report: &'a Value, source: &str) -> impl Iterator<Item = &'a Value> {
    report["sharing"].as_array().into_iter().flatten().filter(move |row| row["source"] == source && row["basis"] == "requests")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn mode_of(row: &Value) -> Option<Mode> {
    COMPARED.into_iter().find(|mode| row["mode"] == mode.name())
}

/// Throughput and p99 of a row, beside what the model says now.
fn compare(report: &Value, row: &Value, program: Program<'_>, mode: Mode) -> Option<[Pair; 2]> {
    let machine = machine(&program.profile.card, report["device"]["memory_mib"].as_u64().unwrap_or(0) as u32);
    let clients = row["clients"].as_u64().unwrap_or(1) as u32;
    let predicted = share(&machine, program, mode, clients, trial(report))?;
    let figures = [("throughput", number(&row["throughput"]), predicted.throughput), ("p99_us", number(&row["p99_us"]), predicted.p99_us)];
    let pair = |(figure, measured, predicted)| Pair { workload: program.name.to_owned(), mode: mode.name().to_owned(), clients, figure, measured, predicted };
    Some(figures.map(pair))
}

/// Throughput and p99 of the programs that have a profile, by time-slicing, MPS and cumux, as a
/// report has them and as the model says now.
#[must_use]
pub fn pairs(report: &Value, profile_of: impl Fn(&str) -> Option<Profile>) -> Vec<Pair> {
    let memory = report["device"]["memory_mib"].as_u64().unwrap_or(0) as u32;
    let mut paces = BTreeMap::new();
    let mut pairs = Vec::new();
    for row in rows(report, "measured") {
        let Some(mode) = mode_of(row) else { continue };
        let Some((workload, profile)) = row["workload"].as_str().and_then(|workload| Some((workload, profile_of(workload)?))) else { continue };
        let pace = *paces.entry(workload).or_insert_with(|| {
            let one = rows(report, "measured").filter(|row| row["workload"] == workload && row["clients"] == 1);
            let alone: Vec<(Mode, f64)> = one.filter_map(|row| Some((mode_of(row)?, number(&row["throughput"])))).collect();
            pace(&machine(&profile.card, memory), &profile, trial(report), &alone)
        });
        pairs.extend(compare(report, row, Program { name: workload, profile: &profile, pace }, mode).into_iter().flatten());
    }
    pairs
}

/// The same of what a report has predicted: by this model, for the report's host and with its
/// paces, both figures of a pair are the same.
#[must_use]
pub fn predictions(report: &Value, profile_of: impl Fn(&str) -> Option<Profile>) -> Vec<Pair> {
    let paces = || report["model"]["paces"].as_array().into_iter().flatten();
    let mut pairs = Vec::new();
    for row in rows(report, "predicted") {
        let Some(mode) = mode_of(row) else { continue };
        let Some((workload, profile)) = row["workload"].as_str().and_then(|workload| Some((workload, profile_of(workload)?))) else { continue };
        let pace = paces().find(|pace| pace["workload"] == workload).map_or(1.0, |pace| number(&pace["factor"]));
        pairs.extend(compare(report, row, Program { name: workload, profile: &profile, pace }, mode).into_iter().flatten());
    }
    pairs
}
