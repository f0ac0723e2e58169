//! The undo log of one running block: the old contents of every byte it overwrites, saved once, before its first store there.
//!
//! Crash points, for one store: before the mask has the bytes' bits, the memory is still old and nothing is undone; after that, undoing writes
//! the old bytes, whether or not the store happened. The compiler keeps the order (release stores and a fence); a killed thread stops
//! between two instructions, so program order is what a successor sees.
//! When the log is full the kernel is marked as overflowed *before* the first store that is not logged, and goes on: it is then no longer repeatable.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::layout::{E_LINE, E_MASK, E_OLD, ENTRIES, OVERFLOWED};
use super::{KernelProgress, layout};
use crate::mapping::line::{LINE_BYTES, OverwrittenLine};

/// A line of memory that was seen: where its entry is and which bytes it has.
#[derive(Debug, Clone, Copy, Default)]
struct LineCell {
    line: u64,
    mask: u64,
    /// Offset of the entry in the marks file.
    entry: u64,
    /// The cell is in use if this is the log's current stamp.
    stamp: u64,
    /// All bytes of the line are in the entry; the mask says which count.
    whole: bool,
}

/// Log of one block at a time; the buffers are used again for the next.
#[derive(Debug)]
pub(crate) struct UndoLog {
    kernel: Arc<KernelProgress>,
    block: u64,
    chunks: Vec<u32>,
    /// Entries used in the last chunk.
    used: u64,
    /// Open addressing, a power of two.
    cells: Vec<LineCell>,
    filled: usize,
    stamp: u64,
    /// The cell used last.
    last: usize,
    /// Nothing is logged any more.
    full: bool,
}

impl UndoLog {
    pub(crate) fn new(kernel: Arc<KernelProgress>, block: u64) -> Self {
        UndoLog { kernel, block, chunks: Vec::new(), used: ENTRIES, cells: vec![LineCell::default(); 256], filled: 0, stamp: 1, last: 0, full: false }
    }

    /// Begins the log of another block. The last one was discarded.
    pub(crate) fn restart(&mut self, kernel: Arc<KernelProgress>, block: u64) {
        debug_assert!(self.chunks.is_empty());
        self.kernel = kernel;
        self.block = block;
        self.used = ENTRIES;
        self.filled = 0;
        self.stamp += 1;
        self.full = false;
    }

    /// The block is done (and marked so) or will never be repeated.
    pub(crate) fn discard(&mut self) {
        self.kernel.log.release_chunks(&mut self.chunks);
        self.used = ENTRIES;
        self.filled = 0;
        self.stamp += 1;
    }

    /// Saves the bytes of a line that a store will overwrite. [`UndoLog::order_before_store`] must follow before the store.
    #[inline]
    pub(crate) fn save_before_store(&mut self, line: u64, old: &OverwrittenLine) {
        if self.full {
            return;
        }
        let known = &self.cells[self.last];
        let at = if known.line == line && known.stamp == self.stamp { self.last } else { self.find_cell(line, old) };
        let Some(cell) = self.cells.get_mut(at) else { return };
        self.last = at;
        let missing = old.bits() & !cell.mask;
        if missing == 0 {
            return;
        }
        cell.mask |= missing;
        let (mask, entry) = (cell.mask, cell.entry);
        let mapping = &self.kernel.log.mapping;
        if !cell.whole {
            old.save_bytes(missing, mapping, entry + E_OLD);
        }
        mapping.word(entry + E_MASK).store(mask, Ordering::Release);
    }

    /// What was recorded is in the log before anything that follows.
    #[inline(always)]
    pub(crate) fn order_before_store(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn first_cell(&self, line: u64) -> usize {
        let hash = (line / LINE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.cells.len() - 1)
    }

    /// Index of the line's cell, with an entry behind it; past the end if the log is full.
    #[inline]
    fn find_cell(&mut self, line: u64, old: &OverwrittenLine) -> usize {
        let mut at = self.first_cell(line);
        while self.cells[at].stamp == self.stamp {
            if self.cells[at].line == line {
                return at;
            }
            at = (at + 1) & (self.cells.len() - 1);
        }
        self.add_cell(line, old).unwrap_or(usize::MAX)
    }

    #[cold]
    #[inline(never)]
    fn add_cell(&mut self, line: u64, old: &OverwrittenLine) -> Option<usize> {
        let entry = self.reserve_entry(line)?;
        // The whole line at once: bytes that this block does not write are never undone, and those it will write nobody else writes meanwhile.
        let whole = old.save_line(&self.kernel.log.mapping, entry + E_OLD);
        if self.filled * 2 >= self.cells.len() {
            let old = std::mem::take(&mut self.cells);
            self.cells = vec![LineCell::default(); old.len() * 2];
            for cell in old.into_iter().filter(|cell| cell.stamp == self.stamp) {
                let at = self.free_cell(cell.line);
                self.cells[at] = cell;
            }
        }
        let at = self.free_cell(line);
        self.cells[at] = LineCell { line, mask: 0, entry, stamp: self.stamp, whole };
        self.filled += 1;
        Some(at)
    }

    fn free_cell(&self, line: u64) -> usize {
        let mut at = self.first_cell(line);
        while self.cells[at].stamp == self.stamp {
            at = (at + 1) & (self.cells.len() - 1);
        }
        at
    }

    /// A fresh entry with an empty mask, counted in its chunk.
    fn reserve_entry(&mut self, line: u64) -> Option<u64> {
        let log = &*self.kernel.log;
        if self.used == ENTRIES {
            let Some(chunk) = log.reserve_chunk(self.kernel.record, self.block) else {
                self.kernel.add_flag(OVERFLOWED);
                compiler_fence(Ordering::SeqCst);
                self.full = true;
                return None;
            };
            self.chunks.push(chunk);
            self.used = 0;
        }
        let chunk = *self.chunks.last()?;
        let entry = layout::entry(chunk, self.used);
        log.mapping.word(entry + E_MASK).store(0, Ordering::Relaxed);
        log.mapping.word(entry + E_LINE).store(line, Ordering::Release);
        self.used += 1;
        log.set_owner(chunk, self.kernel.record, self.used);
        Some(entry)
    }
}
