//! A kernel between its first and its last block.
//!
//! ```text
//!  not placed ──place──▶ placed ──a worker takes it──▶ running ──budget used──▶ ready ─┐
//!  (next..blocks)                                       │   ▲                          │
//!                                                       │   └── a worker takes it ─────┘
//!                                                       └── last instruction ──▶ done
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use cumux_device::Resume;

use super::family::Family;
use super::moment::Moment;
use super::placement::{Placement, Placements, SmSet};
use crate::exec::Block;
use crate::exec::interface::{BlockCoordinates, Launch};
use crate::memory::transfer::Transfer;
use crate::models::Capacity;
use crate::progress::KernelProgress;
use crate::progress::layout::{COOPERATIVE, REPEATABLE};
use crate::progress::undo::UndoLog;

/// Most blocks that a worker begins in one piece.
const MAX_BATCH_BLOCKS: u64 = 64;
/// Nanoseconds that a piece of fresh blocks should take, at most.
const MAX_BATCH_NS: u64 = 50_000;
/// After so many slices of older blocks without a fresh one, one more block is begun even if the
/// older ones seem to make progress.
const SLICES_BEFORE_NEXT_BLOCK: u32 = 8;

/// How the blocks of a kernel depend on one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coupling {
    /// No block can see another one work. Blocks run to their end in order, and a half-done block
    /// can be undone and run again ([`crate::program::Kernel::repeatable`]).
    Independent,
    /// Blocks may wait for each other (atomics, volatile accesses): those that have begun take
    /// turns.
    MayWait,
    /// All blocks are resident at the same time (a cooperative launch), and they take turns.
    Cooperative,
}

impl Coupling {
    /// As a record of the progress log has it.
    pub(super) fn flags(self) -> u64 {
        match self {
            Coupling::Independent => REPEATABLE,
            Coupling::MayWait => 0,
            Coupling::Cooperative => COOPERATIVE,
        }
    }

    /// Whether stores are saved in the undo log.
    pub(super) fn is_undoable(self) -> bool {
        self == Coupling::Independent
    }
}

/// What a block did in its last slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    Working,
    /// It looked at the same one or two addresses all the time: it seems to wait for another block.
    Waiting,
}

/// A block, or the blocks of a cluster, that have begun and are not done.
pub(super) struct ActiveBlock {
    /// Its number in the grid, x first; that of a cluster among the clusters.
    pub(super) index: u64,
    pub(super) placements: Placements,
    pub(super) block: Block,
    pub(super) log: Option<Box<UndoLog>>,
    pub(super) activity: Activity,
}

/// A block that is placed on an SM and has not begun; with clusters, the blocks of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedBlock {
    /// As [`ActiveBlock::index`].
    pub(super) index: u64,
    pub(super) placements: Placements,
}

/// What a worker runs next of a kernel.
pub(super) enum Piece {
    Continue(Box<ActiveBlock>),
    Begin(VecDeque<PlacedBlock>),
}

/// Work that a kernel has launched.
pub(super) enum Child {
    Kernel(Box<cumux_device::Kernel>),
    Transfer(Box<Transfer>),
}

/// A kernel at the head of a stream, or of a line of its parent's.
pub(super) struct RunningKernel {
    pub(super) launch: Arc<Launch>,
    /// The number of the client's set of SMs on which it runs, from its first block to its last.
    pub(super) sm_set: u32,
    /// What one block takes of an SM.
    pub(super) needs: Capacity,
    /// Blocks of the grid, or its clusters. What is said of blocks below is true of clusters then.
    blocks: u64,
    /// Blocks of a cluster.
    cluster: u32,
    /// The first block that is not placed yet.
    next: u64,
    /// Blocks that have begun and that no worker has.
    pub(super) ready: VecDeque<Box<ActiveBlock>>,
    /// Blocks that are placed and have not begun.
    pub(super) placed: VecDeque<PlacedBlock>,
    /// Pieces that workers have.
    pub(super) running: u32,
    pub(super) coupling: Coupling,
    pub(super) progress: Option<Arc<KernelProgress>>,
    /// What a predecessor has done of it.
    resume: Option<Resume>,
    pub(super) started: Option<Moment>,
    /// [`super::client::Client::freed`] when no SM had capacity for a block. Until that changes,
    /// another attempt is useless.
    full_at: Option<u64>,
    /// Estimated nanoseconds of a block; `None` before the first one is done.
    block_ns: Option<u64>,
    slices_since_begin: u32,
    /// What it has launched.
    pub(super) family: Family<Child>,
    /// It has work that may begin when less of its client's does.
    pub(super) is_held: bool,
}

impl RunningKernel {
    pub(super) fn new(launch: Launch, sm_set: u32, needs: Capacity, coupling: Coupling, progress: Option<Arc<KernelProgress>>, resume: Option<Resume>) -> Self {
        let blocks = clusters_of(&launch).iter().map(|d| u64::from(*d)).fold(1, u64::saturating_mul);
        let cluster = launch.cluster.iter().product();
        RunningKernel {
            launch: Arc::new(launch),
            sm_set,
            needs,
            blocks,
            cluster,
            next: 0,
            ready: VecDeque::new(),
            placed: VecDeque::new(),
            running: 0,
            coupling,
            progress,
            resume,
            started: None,
            full_at: None,
            block_ns: None,
            slices_since_begin: 0,
            family: Family::default(),
            is_held: false,
        }
    }

    /// The kernel's name in its module.
    pub(super) fn name(&self) -> &str {
        &self.launch.linked.program().kernels[self.launch.kernel].name
    }

    /// Whether [`RunningKernel::next_piece`] may have something.
    pub(super) fn is_runnable(&self, freed: u64) -> bool {
        !self.ready.is_empty() || !self.placed.is_empty() || (self.next < self.blocks && self.full_at != Some(freed) && self.log_has_room())
    }

    /// Whether the progress log can note that the next block begins.
    fn log_has_room(&self) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.may_begin(self.next))
    }

    /// Whether all blocks are done, and all that they have launched.
    pub(super) fn is_finished(&self) -> bool {
        self.blocks_done() && self.family.is_over()
    }

    /// Whether all blocks are done.
    pub(super) fn blocks_done(&self) -> bool {
        self.running == 0 && self.ready.is_empty() && self.placed.is_empty() && self.next >= self.blocks
    }

    /// Whether it is a cooperative kernel that waits until all its blocks fit.
    pub(super) fn waits_for_all(&self) -> bool {
        self.coupling == Coupling::Cooperative && self.next == 0
    }

    /// Places no more blocks before capacity becomes free.
    pub(super) fn wait_for_freed(&mut self, freed: u64) {
        self.full_at = Some(freed);
    }

    /// The next piece. Blocks that have begun go before fresh ones, unless they wait for others;
    /// among equals the earlier block goes first. `may_place` is false while a cooperative kernel
    /// of the client waits until all its blocks fit.
    pub(super) fn next_piece(&mut self, sms: &mut SmSet, freed: u64, workers: u64, may_place: bool) -> Option<Piece> {
        let waiting = self.ready.front().is_some_and(|active| active.activity == Activity::Waiting);
        let others_wait = waiting || self.slices_since_begin >= SLICES_BEFORE_NEXT_BLOCK;
        let begin_first = self.ready.is_empty() || (self.coupling != Coupling::Independent && others_wait);
        if begin_first {
            if may_place {
                self.place_blocks(sms, freed, workers);
            }
            if let Some(batch) = self.take_batch(workers) {
                self.slices_since_begin = 0;
                self.running += 1;
                self.started.get_or_insert_with(Moment::now);
                return Some(Piece::Begin(batch));
            }
        }
        let active = self.ready.pop_front()?;
        self.slices_since_begin = self.slices_since_begin.saturating_add(1);
        self.running += 1;
        Some(Piece::Continue(active))
    }

    /// Places as many blocks as a worker may take in one piece; of a cooperative kernel all or
    /// none.
    fn place_blocks(&mut self, sms: &mut SmSet, freed: u64, workers: u64) {
        if self.waits_for_all() && self.blocks.saturating_mul(self.cluster.into()) > sms.free_capacity(self.needs) {
            self.full_at = Some(freed);
            return;
        }
        let wanted = if self.coupling == Coupling::Cooperative { self.blocks } else { self.batch_size(workers) };
        while (self.placed.len() as u64) < wanted && self.next < self.blocks && self.log_has_room() {
            if self.resume.as_ref().is_some_and(|resume| bit_is_set(&resume.done, self.next)) {
                self.next += 1;
                continue;
            }
            let Some(placements) = sms.place_cluster(self.needs, self.cluster) else {
                self.full_at = Some(freed);
                return;
            };
            self.placed.push_back(PlacedBlock { index: self.next, placements });
            self.next += 1;
        }
    }

    fn batch_size(&self, workers: u64) -> u64 {
        let Some(block_ns) = self.block_ns else { return 1 };
        if self.coupling != Coupling::Independent && self.slices_since_begin > 0 {
            return 1;
        }
        let left = (self.blocks - self.next) / (2 * workers) + 1;
        (MAX_BATCH_NS / block_ns).clamp(1, MAX_BATCH_BLOCKS).min(left)
    }

    fn take_batch(&mut self, workers: u64) -> Option<VecDeque<PlacedBlock>> {
        let count = (self.batch_size(workers) as usize).min(self.placed.len());
        (count > 0).then(|| self.placed.drain(..count).collect())
    }

    /// Notes that `count` blocks were done in this time.
    pub(super) fn note_block_time(&mut self, count: u64, ns: u64) {
        if let Some(each) = ns.checked_div(count) {
            self.block_ns = Some(cumux_scheduler::estimate(self.block_ns, each.max(1)).max(1));
        }
    }

    /// Gives up every block that no worker has. Returns the placements that are free now.
    pub(super) fn abandon_blocks(&mut self) -> Vec<Placement> {
        self.next = self.blocks;
        let mut placements: Vec<Placement> = self.placed.drain(..).flat_map(|placed| placed.placements.iter().collect::<Vec<_>>()).collect();
        for mut active in self.ready.drain(..) {
            if let Some(log) = &mut active.log {
                log.discard();
            }
            placements.extend(active.placements.iter());
        }
        placements
    }
}

/// The grid in clusters: without clusters, the grid.
fn clusters_of(launch: &Launch) -> [u32; 3] {
    [0, 1, 2].map(|n| launch.grid[n] / launch.cluster[n].max(1))
}

/// Writes to `out` where the blocks of a cluster are in the grid and on the card, by rank.
pub(super) fn locate_blocks(launch: &Launch, placed: &PlacedBlock, out: &mut Vec<BlockCoordinates>) {
    let [x, y, _] = clusters_of(launch).map(|d| u64::from(d.max(1)));
    let at = [placed.index % x, placed.index / x % y, placed.index / x / y].map(|d| d as u32);
    let size = launch.cluster;
    out.clear();
    out.extend((0u32..).zip(placed.placements.iter()).map(|(rank, placement)| {
        let within = [rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]];
        let ctaid = [0, 1, 2].map(|n| at[n] * size[n] + within[n]);
        BlockCoordinates { ctaid, multiprocessor: placement.multiprocessor, first_warp: placement.first_warp }
    }));
}

fn bit_is_set(bits: &[u64], index: u64) -> bool {
    usize::try_from(index / 64).ok().and_then(|word| bits.get(word)).is_some_and(|word| word & (1 << (index % 64)) != 0)
}
