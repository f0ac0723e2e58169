//! Profiles of programs that nobody has recorded: what a person knows of them.

use super::{CardFacts, Duration, FORMAT, Kernel, MemoryAt, Profile, Step, VERSION};
use crate::card::CardModel;

/// What a person knows of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct ByHand {
    /// Its name.
    pub name: String,
    /// Device memory in bytes, without the context's own.
    pub memory: u64,
    /// How long the device works for one request, alone on the card.
    pub busy_ns: f64,
    /// How long the host works for one request, while the device waits.
    pub host_ns: f64,
    /// Kernels of one request.
    pub kernels: u32,
    /// Part of the card's multiprocessors that its kernels fill, above 0 to 1.
    pub fill: f64,
    /// Part of the card's memory bandwidth that its kernels draw, 0 to 1.
    pub bandwidth: f64,
}

impl Default for ByHand {
    fn default() -> Self {
        Self { name: String::new(), memory: 0, busy_ns: 0.0, host_ns: 0.0, kernels: 50, fill: 0.25, bandwidth: 0.1 }
    }
}

/// The facts of a card, as a profile has them.
#[must_use]
pub fn facts(card: &CardModel) -> CardFacts {
    CardFacts {
        name: card.name.to_owned(),
        multiprocessors: card.multiprocessors,
        clock_khz: card.clock_khz,
        bandwidth: card.bandwidth,
        cache: card.cache,
        threads: card.each.threads,
        blocks: card.each.blocks,
        registers: card.each.registers,
        shared: card.each.shared,
    }
}

impl ByHand {
    /// A profile of such a program on `card`: kernels of equal length, each block of which has a
    /// multiprocessor for itself, launched one after the other; the host works first and waits
    /// once, at the end.
    #[must_use]
    pub fn profile(&self, card: &CardModel) -> Profile {
        let blocks = (self.fill * f64::from(card.multiprocessors)).round().max(1.0) as u32;
        let kernels = self.kernels.max(1);
        let each_ns = self.busy_ns / f64::from(kernels);
        let kernel = Kernel {
            name: "by hand".to_owned(),
            count: u64::from(kernels),
            blocks,
            threads: 512,
            registers: 32,
            shared: card.each.shared,
            duration: Duration { mean_ns: each_ns, p99_ns: each_ns },
            traffic: Some((self.bandwidth * card.bandwidth as f64 * each_ns / 1e9) as u64),
            issue: None,
        };
        let launch = Step::Launch { kernel: 0, stream: 0, gap_ns: 0 };
        let first = Step::Launch { kernel: 0, stream: 0, gap_ns: self.host_ns as u64 };
        let mut request = vec![first];
        if kernels > 1 {
            request.push(Step::Repeat { times: u64::from(kernels - 1), steps: vec![launch] });
        }
        request.push(Step::Wait { stream: None, gap_ns: 0 });
        Profile {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: self.name.clone(),
            recorded: None,
            card: facts(card),
            kernels: vec![kernel],
            copies: Vec::new(),
            request,
            requests: 1,
            memory: vec![MemoryAt { at_ns: 0, bytes: self.memory }],
            host: None,
            notes: Vec::new(),
        }
    }
}
