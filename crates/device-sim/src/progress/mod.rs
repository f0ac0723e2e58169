//! The progress log: a file in which a client's running kernels leave what a successor needs to go
//! on with them.
//!
//! For each kernel in flight the file says which blocks have begun and which are done, and for each
//! running block of a repeatable kernel what its stores overwrote ([`undo`]). After a SIGKILL the
//! successor maps the same file, undoes the half-done blocks ([`recover`]) and runs only the blocks
//! that are not done.
//!
//! Crash points, and what a successor makes of them:
//! - *before the begun bit*: the block has touched nothing. The successor runs it.
//! - *between begun bit and done bit*: the successor undoes the block by its undo log and runs it
//!   again. This includes the moment after the block's last store.
//! - *after the done bit, before the undo log is discarded*: undo logs of done blocks are ignored.
//! - *between the last done bit and the report to the executor*: every block is done. The successor
//!   runs nothing and reports the kernel at once. A record is released only after the report has
//!   returned, and nothing later in the stream begins before that.
//! - *while the successor undoes blocks*: the next successor undoes again, with the same bytes.
//!
//! Why this is right: a repeatable kernel ([`crate::program::Kernel::repeatable`]) has no atomics,
//! no ordered or volatile accesses and no visible side effects but stores. In a program without
//! data races no other thread reads or writes a byte that a running block writes. Undo logs of
//! several half-done blocks are undone last chunk first, which also restores most races on one
//! flag.
//!
//! A kernel that is not repeatable is lost if one of its blocks was half done, a cooperative one if
//! any block had begun, and likewise one that may launch others: those have no records.
#![expect(clippy::disallowed_types, reason = "a successor reads these words, also of a process that died while it wrote")]

pub(crate) mod layout;
pub(crate) mod recover;
#[cfg(test)]
mod tests;
pub(crate) mod undo;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cumux_device::{DeviceError, Resume};
use parking_lot::Mutex;

use crate::mapping::Mapping;
use crate::mapping::files;
use layout::{
    BLOCK_WINDOW, C_BLOCK, C_OWNER, C_SEQUENCE, CHUNKS, FREE, H_CHUNKS, H_MAGIC, H_RECORDS, H_VERSION, MAGIC, OPEN_WINDOW, R_BLOCKS, R_FLAGS, R_LOW, R_STATE,
    R_TOKEN, RECORDS, USED, VERSION, WORD_BLOCKS,
};

/// One client's progress log.
#[derive(Debug)]
pub(crate) struct ProgressLog {
    mapping: Mapping,
    free_records: Mutex<Vec<u32>>,
    /// Records that a predecessor left in use. Those of lost kernels, and of work that the
    /// predecessor had reported, stay here until the client goes.
    inherited: Mutex<Vec<u32>>,
    free_chunks: Mutex<Vec<u32>>,
    /// The sequence number of the next chunk.
    sequence: AtomicU64,
}

impl ProgressLog {
    /// Maps a progress log: a fresh file, or a predecessor's.
    ///
    /// # Errors
    /// [`DeviceError::System`] if the file is too small, can shrink, or is of another version.
    pub(crate) fn open(file: BorrowedFd<'_>) -> Result<Arc<ProgressLog>, DeviceError> {
        files::check(file, 0, layout::FILE_BYTES)?;
        let mapping = Mapping::file(0, file, 0, layout::FILE_BYTES)?;
        let load = |offset| mapping.word(offset).load(Ordering::Acquire);
        match (load(H_MAGIC), load(H_VERSION)) {
            (0, _) => {
                mapping.word(H_VERSION).store(VERSION, Ordering::Relaxed);
                mapping.word(H_MAGIC).store(MAGIC, Ordering::Release);
            }
            (MAGIC, VERSION) => {}
            (magic, version) => {
                return Err(DeviceError::System(format!(
                    "the progress log is not of this version (magic {magic:#x}, version {version}); both executors must be of the same cumux version"
                )));
            }
        }
        let records_used = u32::try_from(load(H_RECORDS)).unwrap_or(RECORDS).min(RECORDS);
        let chunks_used = u32::try_from(load(H_CHUNKS)).unwrap_or(CHUNKS).min(CHUNKS);
        let in_use = |record: u32| record < records_used && load(layout::record_offset(record) + R_STATE) != FREE;
        let (inherited, free_records) = (0..RECORDS).rev().partition(|record| in_use(*record));
        let mut last = 0;
        let free_chunks = (0..CHUNKS)
            .rev()
            .filter(|chunk| {
                if *chunk >= chunks_used {
                    return true;
                }
                last = last.max(load(layout::chunk_offset(*chunk) + C_SEQUENCE));
                layout::owner_of(load(layout::chunk_offset(*chunk) + C_OWNER)).is_none()
            })
            .collect();
        Ok(Arc::new(ProgressLog {
            mapping,
            free_records: Mutex::new(free_records),
            inherited: Mutex::new(inherited),
            free_chunks: Mutex::new(free_chunks),
            sequence: AtomicU64::new(last.wrapping_add(1)),
        }))
    }

    /// Notes that a kernel of `blocks` blocks is about to begin. `None` if no record is free.
    ///
    /// With `resume` the predecessor's record of this token goes on; without, it starts afresh.
    pub(crate) fn start_kernel(self: &Arc<ProgressLog>, token: u64, blocks: u64, flags: u64, resume: Option<&Resume>) -> Option<Arc<KernelProgress>> {
        let inherited = {
            let mut inherited = self.inherited.lock();
            let found = inherited.iter().position(|record| self.record_word(*record, R_TOKEN).load(Ordering::Acquire) == token);
            found.map(|at| inherited.swap_remove(at))
        };
        if let (Some(record), Some(_)) = (inherited, resume)
            && self.record_word(record, R_BLOCKS).load(Ordering::Acquire) == blocks
        {
            let low = self.record_word(record, R_LOW).load(Ordering::Acquire);
            return Some(Arc::new(KernelProgress::new(self.clone(), record, low)));
        }
        let record = match inherited {
            Some(record) => record,
            None => self.reserve_record()?,
        };
        self.record_word(record, R_STATE).store(FREE, Ordering::Release);
        let at = layout::record_offset(record);
        for block in (0..blocks.min(BLOCK_WINDOW)).step_by(WORD_BLOCKS as usize) {
            self.mapping.word(layout::begun_word_offset(at, block)).store(0, Ordering::Relaxed);
            self.mapping.word(layout::done_word_offset(at, block)).store(0, Ordering::Relaxed);
        }
        for (field, value) in [(R_TOKEN, token), (R_BLOCKS, blocks), (R_LOW, 0), (R_FLAGS, flags)] {
            self.record_word(record, field).store(value, Ordering::Relaxed);
        }
        self.record_word(record, R_STATE).store(USED, Ordering::Release);
        let progress = KernelProgress::new(self.clone(), record, 0);
        if let Some(resume) = resume {
            progress.adopt_done_blocks(resume);
        }
        Some(Arc::new(progress))
    }

    fn load(&self, offset: u64) -> u64 {
        self.mapping.word(offset).load(Ordering::Acquire)
    }

    fn record_word(&self, record: u32, field: u64) -> &AtomicU64 {
        self.mapping.word(layout::record_offset(record) + field)
    }

    fn chunk_word(&self, chunk: u32, field: u64) -> &AtomicU64 {
        self.mapping.word(layout::chunk_offset(chunk) + field)
    }

    fn entry_word(&self, entry: u64, field: u64) -> &AtomicU64 {
        self.mapping.word(entry + field)
    }

    fn reserve_record(&self) -> Option<u32> {
        let mut free = self.free_records.lock();
        let record = free.pop()?;
        if u64::from(record) >= self.load(H_RECORDS) {
            self.mapping.word(H_RECORDS).store(u64::from(record) + 1, Ordering::Release);
        }
        Some(record)
    }

    fn reserve_chunk(&self, record: u32, block: u64) -> Option<u32> {
        let chunk = {
            let mut free = self.free_chunks.lock();
            let chunk = free.pop()?;
            if u64::from(chunk) >= self.load(H_CHUNKS) {
                // The page is fresh, or at least free: its owner word is 0.
                self.mapping.word(H_CHUNKS).store(u64::from(chunk) + 1, Ordering::Release);
            }
            chunk
        };
        self.chunk_word(chunk, C_BLOCK).store(block, Ordering::Relaxed);
        self.chunk_word(chunk, C_SEQUENCE).store(self.sequence.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.set_owner(chunk, record, 0);
        Some(chunk)
    }

    fn set_owner(&self, chunk: u32, record: u32, used: u64) {
        self.chunk_word(chunk, C_OWNER).store(layout::owner_word(record, used), Ordering::Release);
    }

    /// Frees chunks, and leaves the list empty.
    fn release_chunks(&self, chunks: &mut Vec<u32>) {
        if chunks.is_empty() {
            return;
        }
        for chunk in &*chunks {
            self.chunk_word(*chunk, C_OWNER).store(0, Ordering::Release);
        }
        let mut free = self.free_chunks.lock();
        free.extend(chunks.drain(..).rev());
    }
}

/// The record of one kernel in flight.
#[derive(Debug)]
pub(crate) struct KernelProgress {
    log: Arc<ProgressLog>,
    record: u32,
    /// The low-water mark, as in the file; locked while it moves.
    low: Mutex<u64>,
    /// The first block that may not begin yet.
    limit: AtomicU64,
}

impl KernelProgress {
    fn new(log: Arc<ProgressLog>, record: u32, low: u64) -> Self {
        KernelProgress { log, record, low: Mutex::new(low), limit: AtomicU64::new(low + OPEN_WINDOW) }
    }

    /// The offset of the record.
    fn at(&self) -> u64 {
        layout::record_offset(self.record)
    }

    /// Whether the bitmaps reach to the block. If not, earlier blocks must be done first.
    pub(crate) fn may_begin(&self, block: u64) -> bool {
        block < self.limit.load(Ordering::Acquire)
    }

    /// Called before the block runs its first instruction.
    pub(crate) fn mark_begun(&self, block: u64) {
        self.log.mapping.word(layout::begun_word_offset(self.at(), block)).fetch_or(layout::block_bit(block), Ordering::SeqCst);
    }

    /// Called after the block has run its last instruction. Its undo log may be discarded
    /// afterwards.
    pub(crate) fn mark_done(&self, block: u64) {
        let bit = layout::block_bit(block);
        let old = self.log.mapping.word(layout::done_word_offset(self.at(), block)).fetch_or(bit, Ordering::SeqCst);
        if old | bit == u64::MAX {
            self.advance_window();
        }
    }

    /// Moves the low-water mark over full words. The order matters to a successor: first the mark
    /// moves, then the word is cleared, then later blocks may use it.
    fn advance_window(&self) {
        let mut low = self.low.lock();
        let word = |offset| self.log.mapping.word(offset);
        while word(layout::done_word_offset(self.at(), *low)).load(Ordering::Acquire) == u64::MAX {
            let full = *low;
            *low += WORD_BLOCKS;
            self.log.record_word(self.record, R_LOW).store(*low, Ordering::SeqCst);
            word(layout::begun_word_offset(self.at(), full)).store(0, Ordering::SeqCst);
            word(layout::done_word_offset(self.at(), full)).store(0, Ordering::SeqCst);
            self.limit.store(*low + OPEN_WINDOW, Ordering::Release);
        }
    }

    /// The kernel and all that it has launched are over.
    pub(crate) fn mark_settled(&self) {
        self.add_flag(layout::SETTLED);
    }

    fn add_flag(&self, flag: u64) {
        self.log.record_word(self.record, R_FLAGS).fetch_or(flag, Ordering::SeqCst);
    }

    /// Marks the blocks as done that `resume` says, in a record that is not the predecessor's own.
    fn adopt_done_blocks(&self, resume: &Resume) {
        for (word, bits) in (0u64..).zip(&resume.done) {
            for block in (0..WORD_BLOCKS).filter(|bit| bits >> bit & 1 != 0).map(|bit| word * WORD_BLOCKS + bit) {
                if self.may_begin(block) {
                    self.mark_done(block);
                }
            }
        }
    }

    /// Frees the record: the kernel is reported, or its client is gone.
    pub(crate) fn release(&self) {
        self.log.record_word(self.record, R_STATE).store(FREE, Ordering::Release);
        self.log.free_records.lock().push(self.record);
    }
}
