//! A predecessor that dies after any step, and what its successor finds.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cumux_device::Interrupted;
use proptest::prelude::*;

use super::layout::{BLOCK_WINDOW, COOPERATIVE, LAUNCHES, REPEATABLE, TRANSFER};
use super::undo::UndoLog;
use super::{KernelProgress, ProgressLog, layout, recover};
use crate::exec::interface::{Access, GlobalMemory};
use crate::mapping::Mapping;
use crate::mapping::files;
use crate::memory::client::ClientMemory;
use crate::memory::worker::WorkerMemory;
use cumux_ranges::AllowedRange;

const BASE: u64 = 0x40_0000;
const SIZE: u64 = 8192;
/// Where the client's memory begins in its page: lines may lie as in the client's addresses, or
/// not.
const SKEWS: [u64; 2] = [0, 16];

/// A client's memory, seen at [`BASE`], and its log file.
struct World {
    mapping: Mapping,
    memory: Arc<ClientMemory>,
    file: OwnedFd,
    skew: u64,
}

impl World {
    fn new() -> World {
        World::skewed(0)
    }

    fn skewed(skew: u64) -> World {
        let file = files::create("t", SIZE + 4096).unwrap();
        let mapping = Mapping::file(0, file.as_fd(), 0, SIZE + 4096).unwrap();
        let memory = Arc::new(ClientMemory::default());
        let range = AllowedRange { start: BASE, end: BASE + SIZE, writable: true, shift: (mapping.address() + skew).wrapping_sub(BASE) };
        memory.table.write().allow(range).unwrap();
        World { mapping, memory, file: files::create("m", layout::FILE_BYTES).unwrap(), skew }
    }

    fn log(&self) -> Arc<ProgressLog> {
        ProgressLog::open(self.file.as_fd()).unwrap()
    }

    fn worker(&self) -> WorkerMemory {
        let mut worker = WorkerMemory::default();
        worker.begin_slice(&self.memory, false);
        worker
    }

    fn contents(&self) -> Vec<u8> {
        let mut all = vec![0; SIZE as usize];
        assert!(self.mapping.read(self.skew, &mut all));
        all
    }

    fn recover(&self) -> Vec<Interrupted> {
        let mut worker = self.worker();
        recover::undo_half_done_blocks(&self.log(), &mut |address, bytes| worker.write(address, bytes).map_err(|(address, _)| address))
    }

    /// A logged store, or only its log entry.
    fn store(&self, worker: &mut WorkerMemory, address: u64, bytes: &[u8], really: bool) {
        let at = worker.access(address, bytes.len() as u64, Access::Store).unwrap();
        worker.before_store(address, at, bytes.len() as u32);
        if really {
            worker.write(address, bytes).unwrap();
        }
    }
}

/// One block's life: stores into its own part of the memory.
#[derive(Debug, Clone)]
struct Life {
    stores: Vec<(u64, Vec<u8>)>,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let store = (0u64..1000, proptest::collection::vec(any::<u8>(), 1..200)).prop_map(|(at, bytes)| (at.min(1024 - bytes.len() as u64), bytes));
    let life = proptest::collection::vec(store, 0..12).prop_map(|stores| Life { stores });
    proptest::collection::vec(life, 8)
}

/// Runs all blocks in turns and dies after `steps` steps. Returns which were done.
fn live_and_die(world: &World, kernel: &Arc<KernelProgress>, lives: &[Life], turns: &[usize], steps: usize) -> Vec<bool> {
    let mut worker = world.worker();
    let mut at = vec![0usize; lives.len()];
    let mut logs: Vec<Option<Box<UndoLog>>> = lives.iter().map(|_| None).collect();
    let mut done = vec![false; lives.len()];
    let mut steps = steps;
    for turn in turns {
        let block = turn % lives.len();
        let life = &lives[block];
        // Steps of a block: begun, (logged, stored) for each store, done, discarded.
        let last = 1 + 2 * life.stores.len();
        if at[block] > last + 1 {
            continue;
        }
        if steps == 0 {
            return done;
        }
        steps -= 1;
        match at[block] {
            0 => {
                kernel.mark_begun(block as u64);
                logs[block] = Some(Box::new(UndoLog::new(kernel.clone(), block as u64)));
            }
            now if now < last => {
                let (offset, bytes) = &life.stores[(now - 1) / 2];
                worker.log = logs[block].take();
                world.store(&mut worker, BASE + block as u64 * 1024 + offset, bytes, now % 2 == 0);
                logs[block] = worker.log.take();
            }
            now if now == last => {
                kernel.mark_done(block as u64);
                done[block] = true;
            }
            _ => logs[block].as_mut().unwrap().discard(),
        }
        at[block] += 1;
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn half_done_blocks_leave_no_trace_and_done_ones_stay(
        lives in lives(), turns in proptest::collection::vec(0usize..8, 0..300), steps in 0usize..300, twice: bool,
        skew in 0usize..2,
    ) {
        let world = World::skewed(SKEWS[skew]);
        let old: Vec<u8> = (0..SIZE).map(|i| (i * 13 + i / 97) as u8).collect();
        prop_assert!(world.mapping.write(world.skew, &old));
        let kernel = world.log().start_kernel(5, 8, REPEATABLE, None).unwrap();
        let done = live_and_die(&world, &kernel, &lives, &turns, steps);
        let mut expected = old.clone();
        for (block, life) in lives.iter().enumerate().filter(|(block, _)| done[*block]) {
            for (offset, bytes) in &life.stores {
                let start = block * 1024 + *offset as usize;
                expected[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
        let found = world.recover();
        prop_assert_eq!(world.contents(), expected.clone());
        let bits = (0..8).filter(|b| done[*b]).fold(0u64, |bits, b| bits | 1 << b);
        let Some(Interrupted::Resume { stream_token: 5, resume }) = found.first() else { panic!("{found:?}") };
        prop_assert_eq!(&resume.done, &vec![bits]);
        if twice {
            // The successor dies before it does anything: the next one finds the same.
            prop_assert_eq!(world.recover(), found.clone());
            prop_assert_eq!(world.contents(), expected);
        }
        // Going on: the same kernel, and what it then leaves behind includes what was done before.
        let again = world.log().start_kernel(5, 8, REPEATABLE, Some(resume)).unwrap();
        for block in (0..8).filter(|b| !done[*b as usize]) {
            again.mark_begun(block);
            again.mark_done(block);
        }
        prop_assert_eq!(world.recover(), vec![Interrupted::Resume { stream_token: 5, resume: cumux_device::Resume { done: vec![0xff] } }]);
        again.release();
        prop_assert!(world.recover().is_empty());
    }

    #[test]
    fn the_window_moves_over_done_blocks(order in proptest::collection::vec(0u64..40, 0..400)) {
        // Blocks are done in a slightly shuffled order, far beyond the ring.
        let world = World::new();
        let blocks = BLOCK_WINDOW * 2 + 1000;
        let kernel = world.log().start_kernel(1, blocks, REPEATABLE, None).unwrap();
        let mut next = 0;
        let mut waiting: Vec<u64> = Vec::new();
        let mut done = 0;
        for gap in order.iter().cycle().take(if order.is_empty() { 0 } else { 70_000 }) {
            while next < blocks && waiting.len() as u64 <= *gap && kernel.may_begin(next) {
                kernel.mark_begun(next);
                waiting.push(next);
                next += 1;
            }
            if let Some(at) = waiting.len().checked_sub(1) {
                kernel.mark_done(waiting.swap_remove((*gap as usize).min(at)));
                done += 1;
            }
        }
        for block in waiting {
            kernel.mark_done(block);
            done += 1;
        }
        let found = world.recover();
        let Some(Interrupted::Resume { resume, .. }) = found.first() else { panic!("{found:?}") };
        prop_assert_eq!(resume.done.iter().map(|w| u64::from(w.count_ones())).sum::<u64>(), done);
        prop_assert!((0..done).all(|b| resume.done[(b / 64) as usize] & (1 << (b % 64)) != 0));
    }
}

#[test]
fn blocks_beyond_the_window_have_to_wait() {
    let world = World::new();
    let kernel = world.log().start_kernel(1, 10 * BLOCK_WINDOW, REPEATABLE, None).unwrap();
    assert!(kernel.may_begin(BLOCK_WINDOW - 65) && !kernel.may_begin(BLOCK_WINDOW - 64));
    for block in (0..64).rev() {
        assert!(!kernel.may_begin(BLOCK_WINDOW - 64));
        kernel.mark_begun(block);
        kernel.mark_done(block);
    }
    assert!(kernel.may_begin(BLOCK_WINDOW - 1) && !kernel.may_begin(BLOCK_WINDOW));
}

#[test]
fn what_a_warp_overwrites_is_undone_and_nothing_else() {
    // Addresses of lanes by pattern: a row, strides, backwards, two lines in turns, the same bytes
    // twice; with and without lanes that are off.
    type Pattern = fn(u64) -> u64;
    let patterns: [Pattern; 5] = [|lane| lane * 8, |lane| lane * 40, |lane| 1024 - lane * 8, |lane| lane % 2 * 512 + lane / 2 * 8, |lane| lane / 3 * 8];
    for (skew, bytes, pattern) in [0, 16].into_iter().flat_map(|skew| [1, 2, 4, 8].into_iter().flat_map(move |b| patterns.map(|p| (skew, b, p)))) {
        for mask in [u32::MAX, 0xffff, 0x8421_1248, 1 << 31] {
            let world = World::skewed(skew);
            let kernel = world.log().start_kernel(1, 1, REPEATABLE, None).unwrap();
            let mut worker = world.worker();
            kernel.mark_begun(0);
            worker.log = Some(Box::new(UndoLog::new(kernel.clone(), 0)));
            let addresses: [u64; 32] = std::array::from_fn(|lane| BASE + pattern(lane as u64));
            let to = worker.access(BASE, SIZE, Access::Store).unwrap().wrapping_sub(BASE as usize);
            let before: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
            worker.write(BASE, &before).unwrap();
            worker.before_stores(&addresses, mask, to, bytes);
            // Everything changes; what the warp did not announce was another's doing and stays.
            worker.write(BASE, &vec![255; SIZE as usize]).unwrap();
            assert!(matches!(world.recover().as_slice(), [Interrupted::Resume { .. }]));
            let mut expected = vec![255; SIZE as usize];
            for lane in (0..32).filter(|lane| mask >> lane & 1 != 0) {
                let at = (addresses[lane] - BASE) as usize;
                expected[at..at + bytes as usize].copy_from_slice(&before[at..at + bytes as usize]);
            }
            assert_eq!(world.contents(), expected, "skew {skew}, {bytes} bytes, mask {mask:#x}");
        }
    }
}

/// What a block copies is announced as a row of bytes.
#[test]
fn what_a_row_of_bytes_overwrites_is_undone_and_nothing_else() {
    for (skew, from, bytes) in SKEWS.into_iter().flat_map(|skew| [(skew, 0, 64), (skew, 5, 3), (skew, 60, 8), (skew, 100, 333)]) {
        let world = World::skewed(skew);
        let kernel = world.log().start_kernel(1, 1, REPEATABLE, None).unwrap();
        let mut worker = world.worker();
        kernel.mark_begun(0);
        let before: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        worker.write(BASE, &before).unwrap();
        worker.log = Some(Box::new(UndoLog::new(kernel.clone(), 0)));
        world.store(&mut worker, BASE + from, &vec![0; bytes], false);
        worker.write(BASE, &vec![255; SIZE as usize]).unwrap();
        assert!(matches!(world.recover().as_slice(), [Interrupted::Resume { .. }]));
        let mut expected = vec![255; SIZE as usize];
        let range = from as usize..from as usize + bytes;
        expected[range.clone()].copy_from_slice(&before[range]);
        assert_eq!(world.contents(), expected, "skew {skew}, {bytes} bytes from {from}");
    }
}

/// Its report was on the way when its process died.
#[test]
fn a_kernel_that_has_ended_is_found_whole() {
    for blocks in [1, 64, 128] {
        let world = World::new();
        let kernel = world.log().start_kernel(9, blocks, REPEATABLE, None).unwrap();
        for block in 0..blocks {
            kernel.mark_begun(block);
            kernel.mark_done(block);
        }
        let found = world.recover();
        let done = |resume: &cumux_device::Resume| resume.done.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        assert!(matches!(found.as_slice(), [Interrupted::Resume { resume, .. }] if done(resume) == blocks), "{found:?}");
    }
}

#[test]
fn what_cannot_be_repeated_is_lost_with_a_reason_if_it_had_begun() {
    for (flags, word) in [(0, "atomics"), (COOPERATIVE, "cooperative"), (TRANSFER, "overlapping")] {
        let world = World::new();
        let kernel = world.log().start_kernel(9, 4, flags, None).unwrap();
        assert!(matches!(world.recover().as_slice(), [Interrupted::Resume { resume, .. }] if resume.done == [0]), "nothing had begun");
        kernel.mark_begun(0);
        let found = world.recover();
        assert!(matches!(found.as_slice(), [Interrupted::Lost { stream_token: 9, why }] if why.contains(word)), "{found:?}");
        kernel.mark_done(0);
        let found = world.recover();
        let lost = matches!(found.as_slice(), [Interrupted::Lost { .. }]);
        assert_eq!(lost, flags == COOPERATIVE, "one of four blocks done: {found:?}");
    }
}

#[test]
fn a_kernel_that_launches_others_is_over_when_these_are() {
    let world = World::new();
    let kernel = world.log().start_kernel(9, 1, LAUNCHES, None).unwrap();
    assert!(matches!(world.recover().as_slice(), [Interrupted::Resume { .. }]), "nothing had begun");
    kernel.mark_begun(0);
    kernel.mark_done(0);
    let found = world.recover();
    assert!(matches!(found.as_slice(), [Interrupted::Lost { stream_token: 9, why }] if why.contains("launches kernels")), "{found:?}");
    kernel.mark_settled();
    assert!(matches!(world.recover().as_slice(), [Interrupted::Resume { resume, .. }] if resume.done == [1]), "only its report was missing");
}

#[test]
fn a_full_log_makes_the_kernel_lost_and_not_wrong() {
    let world = World::new();
    let log = world.log();
    let kernel = log.start_kernel(1, 2, REPEATABLE, None).unwrap();
    let mut all = Vec::new();
    while let Some(chunk) = log.reserve_chunk(kernel.record, 1) {
        all.push(chunk);
    }
    let mut worker = world.worker();
    kernel.mark_begun(0);
    worker.log = Some(Box::new(UndoLog::new(kernel.clone(), 0)));
    world.store(&mut worker, BASE, &[1, 2, 3], true);
    let found = world.recover();
    assert!(matches!(found.as_slice(), [Interrupted::Lost { why, .. }] if why.contains("undo log")), "{found:?}");
    assert_eq!(world.contents()[..3], [1, 2, 3]);
    log.release_chunks(&mut all);
}

#[test]
fn several_kernels_and_stale_slots_are_kept_apart() {
    let world = World::new();
    let log = world.log();
    let (first, second) = (log.start_kernel(1, 1, REPEATABLE, None).unwrap(), log.start_kernel(2, 1, REPEATABLE, None).unwrap());
    let mut worker = world.worker();
    for (kernel, at) in [(&first, 0u64), (&second, 64)] {
        kernel.mark_begun(0);
        let mut log = Box::new(UndoLog::new(kernel.clone(), 0));
        worker.log = Some(log);
        world.store(&mut worker, BASE + at, &[7; 8], true);
        log = worker.log.take().unwrap();
        drop(log);
    }
    second.mark_done(0);
    let found = world.recover();
    assert_eq!(found.len(), 2);
    assert_eq!((world.contents()[0], world.contents()[64]), (0, 7));
    // The successor submits the second token afresh: its old log do not count.
    let next = world.log();
    let fresh = next.start_kernel(2, 1, REPEATABLE, None).unwrap();
    assert!(matches!(world.recover().as_slice(), [_, Interrupted::Resume { stream_token: 2, resume }] if resume.done == [0]));
    fresh.release();
}

#[test]
fn damaged_marks_are_reported_and_nothing_is_written() {
    let world = World::new();
    let kernel = world.log().start_kernel(3, 64, REPEATABLE, None).unwrap();
    kernel.mark_begun(1);
    let raw = Mapping::file(0, world.file.as_fd(), 0, layout::FILE_BYTES).unwrap();
    assert!(raw.write(layout::record_offset(kernel.record) + layout::R_LOW, &7u64.to_le_bytes()));
    let found = world.recover();
    assert!(matches!(found.as_slice(), [Interrupted::Lost { why, .. }] if why.contains("damaged")), "{found:?}");
    assert!(raw.write(layout::H_VERSION, &9u64.to_le_bytes()));
    assert!(ProgressLog::open(world.file.as_fd()).unwrap_err().to_string().contains("version"));
    assert!(ProgressLog::open(files::create("s", 4096).unwrap().as_fd()).is_err(), "too small");
}
