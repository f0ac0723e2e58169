//! What the planner's simulation says of so many copies of a recorded program.

use crate::report::{Basis, Row, Source};
use cumux_planner::card::{Capacity, CardModel};
use cumux_planner::mode::Mode;
use cumux_planner::profile::{CardFacts, Profile};
use cumux_planner::simulate::{Arrival, Effort, Load, quantile, run};
use cumux_planner::work::{Machine, Work};

/// Points of a distribution.
const POINTS: usize = 20;

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

/// Copies of a program on a machine, each request after the other. `None` if a kernel of it does
/// not run there.
#[must_use]
pub fn share(machine: &Machine, profile: &Profile, workload: &str, mode: Mode, clients: u32, requests: u32) -> Option<Row> {
    let work = Work::on(profile, machine).ok()?;
    let load = |client: usize| Load { work: &work, arrival: Arrival::Closed, context: mode.context(client), cap: machine.multiprocessors };
    let loads: Vec<Load<'_>> = (0..clients as usize).map(load).collect();
    row(machine, &loads, mode, mode.name(), workload, requests)
}

/// One copy of a program in each instance of a geometry.
#[must_use]
pub fn instances(card: &'static CardModel, geometry: &str, profile: &Profile, workload: &str, requests: u32) -> Option<Row> {
    let table = card.mig.as_ref()?;
    let placed = table.place(geometry.split(',')).ok()?;
    let mut latencies = Vec::new();
    let (mut throughput, mut p99, mut clients) = (0.0, 0.0_f64, 0);
    for instance in &placed.instances {
        let machine = Machine::instance(card, table, instance);
        let row = share(&machine, profile, workload, Mode::Exclusive, 1, requests)?;
        throughput += row.throughput;
        p99 = p99.max(row.p99_us);
        latencies.extend(row.latencies_us);
        clients += 1;
    }
    latencies.sort_by(f64::total_cmp);
    let p50_us = quantile(&latencies, 0.5);
    Some(Row {
        mode: "mig".to_owned(),
        workload: workload.to_owned(),
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

fn row(machine: &Machine, loads: &[Load<'_>], mode: Mode, name: &str, workload: &str, requests: u32) -> Option<Row> {
    let effort = Effort { requests, events: 400_000 };
    let outcome = run(machine, loads, mode.turns(), mode.submission(), effort);
    let mut all: Vec<f64> = outcome.clients.iter().flat_map(|client| client.latencies.iter().map(|ns| ns / 1e3)).collect();
    if all.is_empty() {
        return None;
    }
    all.sort_by(f64::total_cmp);
    let p99_us = outcome.clients.iter().map(|client| quantile(&client.latencies, 0.99) / 1e3).fold(0.0, f64::max);
    Some(Row {
        mode: name.to_owned(),
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
