//! What a layout achieves: each machine of it simulated, each distinct one once.

use super::{Fares, Program};
use crate::mode::{Mode, USUAL_HOST};
use crate::simulate::{Arrival, Effort, Load, Outcome, quantile, run};
use crate::work::{DoesNotFit, Machine, Work};
use cumux_wire::share::Grain;
use std::collections::HashMap;

/// Events of one simulation.
const EVENTS: u64 = 1_500_000;

/// One machine with its programs: how many of each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Site {
    pub(super) machine: Machine,
    pub(super) mode: Mode,
    pub(super) programs: Vec<u32>,
}

/// What one machine achieves.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// For each program that is there.
    pub(super) fares: Vec<Option<Fares>>,
    pub(super) occupied: f64,
    pub(super) active: f64,
    pub(super) cut: bool,
}

/// Multiprocessors, memory, mode and programs of a machine, by which results are kept.
type Key = (u32, u32, Mode, Vec<u32>);

/// Simulates, and remembers.
#[derive(Debug)]
pub(super) struct Measurer<'a> {
    programs: &'a [Program],
    /// Requests that a simulation collects at least, over all its clients.
    samples: u32,
    known: HashMap<Key, Result<Measured, DoesNotFit>>,
}

impl<'a> Measurer<'a> {
    pub(super) fn new(programs: &'a [Program], samples: u32) -> Self {
        Self { programs, samples, known: HashMap::new() }
    }

    /// What the programs of a site achieve.
    pub(super) fn measure(&mut self, site: &Site) -> Result<Measured, DoesNotFit> {
        let key = (site.machine.multiprocessors, site.machine.memory_mib, site.mode, site.programs.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let result = simulate(self.programs, site, self.samples);
        self.known.insert(key, result.clone());
        result
    }
}

fn simulate(programs: &[Program], site: &Site, samples: u32) -> Result<Measured, DoesNotFit> {
    let works = programs.iter().map(|program| Work::on(&program.profile, &site.machine)).collect::<Vec<_>>();
    // Copies of different programs take turns in the order, as they would come.
    let mut kinds = Vec::new();
    for round in 0..site.programs.iter().copied().max().unwrap_or(0) {
        kinds.extend((0..programs.len()).filter(|kind| site.programs[*kind] > round));
    }
    if kinds.is_empty() {
        return Ok(Measured { fares: vec![None; programs.len()], occupied: 0.0, active: 0.0, cut: false });
    }
    let mut loads = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        let work = works[*kind].as_ref().map_err(Clone::clone)?;
        let arrival = programs[*kind].rate.map_or(Arrival::Closed, Arrival::Rate);
        loads.push(Load { work, arrival, context: site.mode.context(number), cap: cap(&programs[*kind], site) });
    }
    let requests = (samples / loads.len() as u32).clamp(10, 300);
    let effort = Effort { requests, events: EVENTS };
    let outcome = run(&site.machine, &loads, site.mode.turns(), site.mode.submission(USUAL_HOST), effort);
    Ok(by_program(programs, &kinds, &outcome))
}

/// Multiprocessors that a program may use on a site.
fn cap(program: &Program, site: &Site) -> u32 {
    let all = site.machine.multiprocessors;
    let limits = matches!(site.mode, Mode::Mps | Mode::Cumux | Mode::CumuxOwn);
    program.share.filter(|_| limits).map_or(all, |share| share.multiprocessors(Grain::new(all, site.machine.major)))
}

/// Puts the clients of each program together.
fn by_program(programs: &[Program], kinds: &[usize], outcome: &Outcome) -> Measured {
    let of = |kind: usize| {
        let clients: Vec<_> = kinds.iter().zip(&outcome.clients).filter(|(its, _)| **its == kind).map(|(_, client)| client).collect();
        if clients.is_empty() {
            return None;
        }
        let mut all: Vec<f64> = clients.iter().flat_map(|client| client.latencies.iter().copied()).collect();
        all.sort_by(f64::total_cmp);
        let overloaded = clients.iter().any(|client| client.overloaded) || all.is_empty();
        let done: f64 = clients.iter().map(|client| client.throughput).sum();
        // What comes is done, unless it is too much: the few requests of a simulation come by
        // chance a little faster or slower.
        let throughput = match programs[kind].rate {
            Some(rate) if !overloaded => rate * clients.len() as f64,
            _ => done,
        };
        Some(Fares { throughput, p50_ns: quantile(&all, 0.5), p99_ns: quantile(&all, 0.99), overloaded })
    };
    Measured { fares: (0..programs.len()).map(of).collect(), occupied: outcome.occupied, active: outcome.active, cut: outcome.cut }
}
