//! The sixteen barriers of a block, and the barrier of a cluster (PTX ISA, *barrier*,
//! *barrier.cluster*).
//!
//! ```text
//!  Empty ──the first lanes arrive──▶ Filling ──all that must come have arrived──▶ Empty
//! ```
//!
//! Lanes arrive one warp at a time, or a part of a warp at a time. A warp whose living lanes have
//! all arrived counts in full, and lanes that have exited count as arrived.

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum BarrierPhase {
    /// No lane has arrived; all other fields are out of date.
    #[default]
    Empty,
    Filling,
}

/// The reduction of the predicates of all lanes that arrived (`barrier.red`).
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Votes {
    /// How many were true.
    pub count: u32,
    /// Whether all were true.
    pub all: bool,
    /// Whether one was true.
    pub any: bool,
}

/// One barrier.
#[derive(Debug, Default, Clone)]
pub(super) struct Barrier {
    phase: BarrierPhase,
    /// Lanes that have arrived, by warp.
    arrived: Vec<u32>,
    /// Warps whose lanes have all arrived, of those lanes that lived then.
    complete_warps: usize,
    /// Threads to wait for; 0 = the whole block.
    threads: u32,
    /// Threads that have arrived again, without having waited: they count again.
    again: u32,
    votes: Votes,
}

impl Barrier {
    /// Notes that `lanes` of a warp arrive, of which the lanes `alive` live. `warps`: of the block.
    /// `threads`: to wait for, 0 = the whole block. `votes`: the lanes' predicates.
    pub fn arrive(&mut self, warps: usize, warp: usize, lanes: u32, alive: u32, threads: u32, votes: u32) {
        if self.phase == BarrierPhase::Empty {
            self.arrived.clear();
            self.arrived.resize(warps, 0);
            self.phase = BarrierPhase::Filling;
            self.complete_warps = 0;
            self.threads = threads;
            self.again = 0;
            self.votes = Votes { count: 0, all: true, any: false };
        }
        let before = self.arrived[warp];
        let again = before & lanes;
        self.again += if again != 0 && alive & !again == 0 { 32 } else { again.count_ones() };
        self.arrived[warp] |= lanes;
        self.complete_warps += usize::from(alive & !before != 0 && alive & !self.arrived[warp] == 0);
        self.votes.count += (votes & lanes).count_ones();
        self.votes.all &= votes & lanes == lanes;
        self.votes.any |= votes & lanes != 0;
    }

    /// Whether [`is_complete`](Self::is_complete) can hold after an arrival. A cheap test that
    /// spares most of the dear ones. `living`: warps with living lanes.
    pub fn may_be_complete(&self, living: usize) -> bool {
        self.threads != 0 || self.complete_warps >= living
    }

    /// Whether all lanes that must come have arrived; `alive` gives the living lanes of each warp.
    pub fn is_complete(&self, alive: impl Iterator<Item = u32>) -> bool {
        if self.phase == BarrierPhase::Empty {
            return false;
        }
        let mut present = 0;
        let mut all = true;
        for (arrived, alive) in self.arrived.iter().zip(alive) {
            let missing = alive & !arrived;
            all &= missing == 0;
            present += if missing == 0 && *arrived != 0 { 32 } else { (arrived & alive).count_ones() };
        }
        if self.threads == 0 { all } else { present + self.again >= self.threads || all }
    }

    /// Whether some of these lanes of a warp have arrived and must wait for others.
    pub fn holds(&self, warp: usize, lanes: u32) -> bool {
        self.phase == BarrierPhase::Filling && self.arrived.get(warp).is_some_and(|arrived| arrived & lanes != 0)
    }

    /// The votes of the lanes that have arrived.
    pub fn votes(&self) -> Votes {
        self.votes
    }

    /// Empties the barrier for its next use.
    pub fn reset(&mut self) {
        self.phase = BarrierPhase::Empty;
    }
}
