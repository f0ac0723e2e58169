//! A kernel between its first and its last block.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use cumux_device::Resume;

use super::placement::{Placement, SmSet};
use crate::exec::Block;
use crate::exec::interface::{BlockCoordinates, Launch};
use crate::models::Capacity;
use crate::progress::KernelProgress;
use crate::progress::undo::UndoLog;

/// Most fresh blocks that a worker takes at once.
const BATCH: u64 = 64;
/// Nanoseconds that a worker's batch should take, at most.
const BATCH_NS: u64 = 50_000;
/// After so many slices in which older blocks made no visible progress one more block is begun all the same.
const SLICES_BEFORE_NEXT_BLOCK: u32 = 8;

/// A block that has begun and is not done.
pub(crate) struct ActiveBlock {
    pub(crate) index: u64,
    pub(crate) seat: Placement,
    pub(crate) block: Block,
    pub(crate) log: Option<Box<UndoLog>>,
    /// Its last slice looked like waiting for another block.
    pub(crate) waits: bool,
}

/// A block that has a place and has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacedBlock {
    pub(crate) index: u64,
    pub(crate) seat: Placement,
}

/// What a worker is to run next of a kernel.
pub(crate) enum Piece {
    Continue(Box<ActiveBlock>),
    Begin(VecDeque<PlacedBlock>),
}

/// A kernel at the head of a stream.
pub(crate) struct RunningKernel {
    pub(crate) launch: Arc<Launch>,
    /// Number of the client's table of SMs on which it runs, from its first block to its last.
    pub(crate) sm_set: u32,
    pub(crate) need: Capacity,
    pub(crate) blocks: u64,
    /// The first block that has no place yet.
    next: u64,
    pub(crate) ready: VecDeque<Box<ActiveBlock>>,
    /// Placed, not begun.
    pub(crate) placed: VecDeque<PlacedBlock>,
    /// Pieces that workers have.
    pub(crate) running: u32,
    pub(crate) repeatable: bool,
    cooperative: bool,
    pub(crate) progress: Option<Arc<KernelProgress>>,
    /// What a predecessor has done.
    resume: Option<Resume>,
    pub(crate) started: Option<Instant>,
    /// The client's count of freed places when there was no room; no use trying again before it changes.
    full_at: Option<u64>,
    /// RunningTask average of a block's time.
    block_ns: u64,
    since_begin: u32,
}

impl RunningKernel {
    pub(crate) fn new(launch: Launch, sm_set: u32, need: Capacity, cooperative: bool, progress: Option<Arc<KernelProgress>>, resume: Option<Resume>) -> Self {
        let kernel = &launch.image.program().kernels[launch.kernel];
        let blocks = launch.grid.iter().map(|d| u64::from(*d)).fold(1, u64::saturating_mul);
        RunningKernel {
            repeatable: kernel.repeatable,
            launch: Arc::new(launch),
            sm_set,
            need,
            blocks,
            next: 0,
            ready: VecDeque::new(),
            placed: VecDeque::new(),
            running: 0,
            cooperative,
            progress,
            resume,
            started: None,
            full_at: None,
            block_ns: 0,
            since_begin: 0,
        }
    }

    /// Whether [`RunningKernel::next_piece`] may have something.
    pub(crate) fn is_runnable(&self, freed: u64) -> bool {
        !self.ready.is_empty() || !self.placed.is_empty() || (self.next < self.blocks && self.full_at != Some(freed) && self.window_open())
    }

    fn window_open(&self) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.may_begin(self.next))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.running == 0 && self.ready.is_empty() && self.placed.is_empty() && self.next >= self.blocks
    }

    /// A cooperative kernel that waits until all its blocks fit.
    pub(crate) fn waits_for_all(&self) -> bool {
        self.cooperative && self.next == 0
    }

    /// There is no use in trying to place blocks before a place becomes free.
    pub(crate) fn wait_for_freed(&mut self, freed: u64) {
        self.full_at = Some(freed);
    }

    /// The next piece, earlier blocks first: blocks that have begun before others begin, unless they wait for others.
    /// `may_place` is false while a cooperative kernel gathers room.
    pub(crate) fn next_piece(&mut self, sms: &mut SmSet, freed: u64, workers: u64, may_place: bool) -> Option<Piece> {
        let all_wait = self.ready.front().is_some_and(|active| active.waits) || self.since_begin >= SLICES_BEFORE_NEXT_BLOCK;
        let begin_first = self.ready.is_empty() || (!self.repeatable && all_wait);
        if begin_first {
            if may_place {
                self.place_blocks(sms, freed, workers);
            }
            if let Some(batch) = self.take_batch(workers) {
                self.since_begin = 0;
                self.running += 1;
                self.started.get_or_insert_with(Instant::now);
                return Some(Piece::Begin(batch));
            }
        }
        let active = self.ready.pop_front()?;
        self.since_begin = self.since_begin.saturating_add(1);
        self.running += 1;
        Some(Piece::Continue(active))
    }

    /// Places blocks, so many as a worker may take at once.
    fn place_blocks(&mut self, sms: &mut SmSet, freed: u64, workers: u64) {
        if self.cooperative && self.next == 0 && self.blocks > sms.free_capacity(self.need) {
            self.full_at = Some(freed);
            return;
        }
        let wanted = if self.cooperative { self.blocks } else { self.batch_size(workers) };
        while (self.placed.len() as u64) < wanted && self.next < self.blocks && self.window_open() {
            if self.resume.as_ref().is_some_and(|resume| bit_is_set(&resume.done, self.next)) {
                self.next += 1;
                continue;
            }
            let Some(seat) = sms.place_block(self.need) else {
                self.full_at = Some(freed);
                return;
            };
            self.placed.push_back(PlacedBlock { index: self.next, seat });
            self.next += 1;
        }
    }

    fn batch_size(&self, workers: u64) -> u64 {
        if self.block_ns == 0 || !self.repeatable && self.since_begin > 0 {
            return 1;
        }
        let left = (self.blocks - self.next) / (2 * workers) + 1;
        (BATCH_NS / self.block_ns).clamp(1, BATCH).min(left)
    }

    fn take_batch(&mut self, workers: u64) -> Option<VecDeque<PlacedBlock>> {
        let count = (self.batch_size(workers) as usize).min(self.placed.len());
        (count > 0).then(|| self.placed.drain(..count).collect())
    }

    /// Notes that `count` blocks were done in this time.
    pub(crate) fn note_block_time(&mut self, count: u64, ns: u64) {
        if let Some(each) = ns.checked_div(count) {
            let each = each.max(1);
            self.block_ns = if self.block_ns == 0 { each } else { (self.block_ns * 3 + each) / 4 };
        }
    }

    /// Gives up everything that no worker has. Returns the places that are free now.
    pub(crate) fn abandon_blocks(&mut self) -> Vec<Placement> {
        self.next = self.blocks;
        let mut seats: Vec<Placement> = self.placed.drain(..).map(|fresh| fresh.seat).collect();
        for mut active in self.ready.drain(..) {
            if let Some(log) = &mut active.log {
                log.discard();
            }
            seats.push(active.seat);
        }
        seats
    }
}

/// Where block `index` (x first) is in its grid.
pub(crate) fn coordinates_of(launch: &Launch, fresh: PlacedBlock) -> BlockCoordinates {
    let [x, y, _] = launch.grid.map(|d| u64::from(d.max(1)));
    let ctaid = [fresh.index % x, fresh.index / x % y, fresh.index / x / y].map(|d| d as u32);
    BlockCoordinates { ctaid, multiprocessor: fresh.seat.multiprocessor, first_warp: fresh.seat.first_warp }
}

fn bit_is_set(bits: &[u64], index: u64) -> bool {
    usize::try_from(index / 64).ok().and_then(|word| bits.get(word)).is_some_and(|word| word & (1 << (index % 64)) != 0)
}
