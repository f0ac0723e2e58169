//! The undo log of one running block: the old contents of every byte it overwrites, saved once,
//! before the block's first store there.
//!
//! Crash points, for one store: before the mask has the bits of the bytes, the memory still has its
//! old contents and nothing is undone. After that, undoing writes the old bytes, whether or not the
//! store happened. Release stores and a fence keep the compiler from changing the order; a killed
//! thread stops between two instructions, so program order is what a successor sees.
//!
//! When no chunk is free the kernel is flagged as overflowed *before* the first store that is not
//! saved. The block goes on; the kernel is no longer repeatable.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::layout::{E_LINE, E_MASK, E_OLD, ENTRIES, OVERFLOWED};
use super::{KernelProgress, layout};
use crate::mapping::line::{LINE_BYTES, OverwrittenLine};

/// What the log knows of a line of memory: where its entry is and which bytes it has.
#[derive(Debug, Clone, Copy, Default)]
struct LineCell {
    line: u64,
    mask: u64,
    /// Offset of the entry in the progress log.
    entry: u64,
    /// The cell is in use if this is the log's current stamp.
    stamp: u64,
    /// All bytes of the line are in the entry; the mask says which of them count.
    saved_whole: bool,
}

/// Whether stores are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saving {
    On,
    /// No chunk was free: nothing is saved any more.
    Overflowed,
}

/// Cells of a new log. The number doubles when half of them are in use.
const FIRST_CELLS: usize = 256;

/// The undo log of one block at a time. The buffers are used again for the next block.
#[derive(Debug)]
pub(crate) struct UndoLog {
    kernel: Arc<KernelProgress>,
    block: u64,
    chunks: Vec<u32>,
    /// Entries used in the last chunk.
    used: u64,
    /// A hash table of lines with open addressing; its length is a power of two.
    cells: Vec<LineCell>,
    cells_used: usize,
    /// Raised for each block, which empties the table.
    stamp: u64,
    /// Index of the cell used last.
    last: usize,
    saving: Saving,
}

impl UndoLog {
    /// A log for a block of a kernel.
    pub(crate) fn new(kernel: Arc<KernelProgress>, block: u64) -> Self {
        UndoLog {
            kernel,
            block,
            chunks: Vec::new(),
            used: ENTRIES,
            cells: vec![LineCell::default(); FIRST_CELLS],
            cells_used: 0,
            stamp: 1,
            last: 0,
            saving: Saving::On,
        }
    }

    /// Begins the log of another block. The log of the last one was discarded.
    pub(crate) fn restart(&mut self, kernel: Arc<KernelProgress>, block: u64) {
        debug_assert!(self.chunks.is_empty());
        self.kernel = kernel;
        self.block = block;
        self.forget_lines();
        self.saving = Saving::On;
    }

    /// Frees the log: the block is marked as done, or will never be repeated.
    pub(crate) fn discard(&mut self) {
        self.kernel.log.release_chunks(&mut self.chunks);
        self.forget_lines();
    }

    fn forget_lines(&mut self) {
        self.used = ENTRIES;
        self.cells_used = 0;
        self.stamp += 1;
    }

    /// Saves the bytes of a line that a store will overwrite. `line` is the client's address.
    /// [`UndoLog::order_before_store`] must follow before the store.
    #[inline]
    pub(crate) fn save_before_store(&mut self, line: u64, old: &OverwrittenLine) {
        if self.saving == Saving::Overflowed {
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
        if !cell.saved_whole {
            old.save_bytes(missing, &self.kernel.log.mapping, entry + E_OLD);
        }
        self.kernel.log.entry_word(entry, E_MASK).store(mask, Ordering::Release);
    }

    /// Keeps the compiler from moving a store before what was saved.
    #[inline(always)]
    pub(crate) fn order_before_store(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    /// Where the search for a line begins.
    #[inline]
    fn first_cell(&self, line: u64) -> usize {
        // 2^64 divided by the golden ratio: multiplying by it spreads neighbouring lines.
        let hash = (line / LINE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.cells.len() - 1)
    }

    /// Index of the line's cell, with an entry behind it; past the end if no chunk is free.
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
        // The whole line at once: bytes that this block does not write are never undone, and bytes
        // that it will write are written by nobody else meanwhile.
        let saved_whole = old.save_line(&self.kernel.log.mapping, entry + E_OLD);
        if self.cells_used * 2 >= self.cells.len() {
            let old_cells = std::mem::take(&mut self.cells);
            self.cells = vec![LineCell::default(); old_cells.len() * 2];
            for cell in old_cells.into_iter().filter(|cell| cell.stamp == self.stamp) {
                let at = self.free_cell(cell.line);
                self.cells[at] = cell;
            }
        }
        let at = self.free_cell(line);
        self.cells[at] = LineCell { line, mask: 0, entry, stamp: self.stamp, saved_whole };
        self.cells_used += 1;
        Some(at)
    }

    fn free_cell(&self, line: u64) -> usize {
        let mut at = self.first_cell(line);
        while self.cells[at].stamp == self.stamp {
            at = (at + 1) & (self.cells.len() - 1);
        }
        at
    }

    /// The offset of a fresh entry with an empty mask, counted in its chunk.
    fn reserve_entry(&mut self, line: u64) -> Option<u64> {
        let log = &*self.kernel.log;
        if self.used == ENTRIES {
            let Some(chunk) = log.reserve_chunk(self.kernel.record, self.block) else {
                self.kernel.add_flag(OVERFLOWED);
                compiler_fence(Ordering::SeqCst);
                self.saving = Saving::Overflowed;
                return None;
            };
            self.chunks.push(chunk);
            self.used = 0;
        }
        let chunk = *self.chunks.last()?;
        let entry = layout::entry_offset(chunk, self.used);
        log.entry_word(entry, E_MASK).store(0, Ordering::Relaxed);
        log.entry_word(entry, E_LINE).store(line, Ordering::Release);
        self.used += 1;
        log.set_owner(chunk, self.kernel.record, self.used);
        Some(entry)
    }
}
