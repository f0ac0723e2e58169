//! The sixteen barriers of a block.
//!
//! Threads arrive one by one; a warp all of whose living threads have arrived counts in full, and threads that have exited count as arrived.

/// One barrier.
#[derive(Debug, Default, Clone)]
pub(super) struct Barrier {
    /// WarpRegisters that have arrived, by warp.
    arrived: Vec<u32>,
    any: bool,
    /// Warps all of whose lanes that lived then have arrived.
    whole: usize,
    /// Threads to wait for; 0 = the whole block.
    threads: u32,
    /// Reduction of the predicates of those who arrived.
    pub count: u32,
    pub all: bool,
    pub some: bool,
}

impl Barrier {
    /// `lanes` of a warp of which `alive` live arrive.
    pub fn arrive(&mut self, warps: usize, warp: usize, lanes: u32, alive: u32, threads: u32, votes: u32) {
        if !self.any {
            self.arrived.clear();
            self.arrived.resize(warps, 0);
            self.any = true;
            self.whole = 0;
            self.threads = threads;
            self.count = 0;
            self.all = true;
            self.some = false;
        }
        let before = self.arrived[warp];
        self.arrived[warp] |= lanes;
        self.whole += usize::from(alive & !before != 0 && alive & !self.arrived[warp] == 0);
        self.count += (votes & lanes).count_ones();
        self.all &= votes & lanes == lanes;
        self.some |= votes & lanes != 0;
    }

    /// Whether it is worth asking for [`is_complete`](Self::is_complete) after an arrival, with so many warps alive.
    pub fn may_be_complete(&self, living: usize) -> bool {
        self.threads != 0 || self.whole >= living
    }

    /// Whether all that must come have come; `alive` gives the living lanes of each warp.
    pub fn is_complete(&self, alive: impl Iterator<Item = u32>) -> bool {
        if !self.any {
            return false;
        }
        let mut present = 0;
        let mut all = true;
        for (arrived, alive) in self.arrived.iter().zip(alive) {
            let missing = alive & !arrived;
            all &= missing == 0;
            present += if missing == 0 && *arrived != 0 { 32 } else { (arrived & alive).count_ones() };
        }
        if self.threads == 0 { all } else { present >= self.threads || all }
    }

    pub fn reset(&mut self) {
        self.any = false;
    }
}
