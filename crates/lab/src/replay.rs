//! What a report of the lab has measured, and what it has predicted, predicted once more from the
//! profiles beside it: for work on the planner without a card.

use crate::predict::{Program, REQUESTS, Trial, machine, pace, share};
use crate::report::{COMPARED, Pair};
use cumux_planner::mode::{Mode, ServedHost};
use cumux_planner::profile::Profile;
use cumux_planner::work::Machine;
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

/// A row of a report, by requests, of a program that has a profile.
struct Told<'a> {
    row: &'a Value,
    workload: &'a str,
    profile: Profile,
    mode: Mode,
}

/// The rows that come from there.
fn told<'a>(report: &'a Value, source: &str, profile_of: impl Fn(&str) -> Option<Profile>) -> impl Iterator<Item = Told<'a>> {
    let rows = report["sharing"].as_array().into_iter().flatten().filter(move |row| row["source"] == source && row["basis"] == "requests");
    rows.filter_map(move |row| {
        let (mode, workload) = (mode_of(row)?, row["workload"].as_str()?);
        Some(Told { row, workload, profile: profile_of(workload)?, mode })
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn mode_of(row: &Value) -> Option<Mode> {
    COMPARED.into_iter().find(|mode| row["mode"] == mode.name())
}

/// The machine of the report, as a profile tells of it.
fn machine_of(report: &Value, profile: &Profile) -> Machine {
    machine(&profile.card, report["device"]["memory_mib"].as_u64().unwrap_or(0) as u32)
}

/// Throughput and p99 of a row, beside what the model says now.
fn compare(report: &Value, told: &Told<'_>, pace: f64) -> Option<[Pair; 2]> {
    let Told { row, workload, profile, mode } = told;
    let clients = row["clients"].as_u64().unwrap_or(1) as u32;
    let predicted = share(&machine_of(report, profile), Program { name: workload, profile, pace }, *mode, clients, trial(report))?;
    let figures = [("throughput", number(&row["throughput"]), predicted.throughput), ("p99_us", number(&row["p99_us"]), predicted.p99_us)];
    let pair = |(figure, measured, predicted)| Pair { workload: (*workload).to_owned(), mode: mode.name().to_owned(), clients, figure, measured, predicted };
    Some(figures.map(pair))
}

/// Throughput and p99 of the programs that have a profile, by time-slicing, MPS and cumux, as a
/// report has them and as the model says now.
#[must_use]
pub fn pairs(report: &Value, profile_of: impl Fn(&str) -> Option<Profile>) -> Vec<Pair> {
    let all: Vec<Told<'_>> = told(report, "measured", profile_of).collect();
    let mut paces = BTreeMap::new();
    let mut pairs = Vec::new();
    for told in &all {
        let pace = *paces.entry(told.workload).or_insert_with(|| {
            let one = all.iter().filter(|other| other.workload == told.workload && other.row["clients"] == 1);
            let alone: Vec<(Mode, f64)> = one.map(|other| (other.mode, number(&other.row["throughput"]))).collect();
            pace(&machine_of(report, &told.profile), &told.profile, trial(report), &alone)
        });
        pairs.extend(compare(report, told, pace).into_iter().flatten());
    }
    pairs
}

/// The same of what a report has predicted: by this model, for the report's host and with its
/// paces, both figures of a pair are the same.
#[must_use]
pub fn predictions(report: &Value, profile_of: impl Fn(&str) -> Option<Profile>) -> Vec<Pair> {
    let paces = || report["model"]["paces"].as_array().into_iter().flatten();
    let pace_of = |workload: &str| paces().find(|pace| pace["workload"] == workload).map_or(1.0, |pace| number(&pace["factor"]));
    told(report, "predicted", profile_of).filter_map(|told| compare(report, &told, pace_of(told.workload))).flatten().collect()
}
