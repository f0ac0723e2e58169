//! One block of a grid: its warps, shared memory and barriers, run in slices.

use super::interface::{GlobalMemory, Launch, Place, Services, Status};
use std::sync::Arc;

/// A block between its first and its last instruction. All its state is here.
#[derive(Debug)]
pub struct Block {
    launch: Arc<Launch>,
    place: Place,
}

impl Block {
    #[must_use]
    pub fn new(launch: Arc<Launch>, place: Place) -> Self {
        Block { launch, place }
    }

    /// Makes this value another block of the same or another launch, keeping its buffers.
    pub fn restart(&mut self, launch: Arc<Launch>, place: Place) {
        *self = Block::new(launch, place);
    }

    /// Runs about `budget` warp instructions. After anything but [`Status::Running`] the block must not be run again (it answers the same).
    pub fn run<M: GlobalMemory, S: Services>(&mut self, budget: u64, memory: &mut M, services: &mut S) -> Status {
        let _ = (budget, memory, services, &self.launch);
        Status::Done
    }

    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Warp instructions executed since the start.
    #[must_use]
    pub fn executed(&self) -> u64 {
        0
    }
}
