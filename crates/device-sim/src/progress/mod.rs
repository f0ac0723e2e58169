//! ProgressLog: a file in which a client's running kernels leave behind what a successor needs to go on with them.
//!
//! For each kernel in flight the file says which blocks have begun and which are done, and for each running block of a repeatable kernel what its
//! stores overwrote ([`undo`]). After a SIGKILL the successor maps the same file, undoes the half-done blocks ([`recover`]) and runs only what is not done.
//!
//! Crash points and what a successor makes of them:
//! - *before the begun bit*: the block has touched nothing; it is run.
//! - *between begun bit and done bit*: the block's log is undone, it is run again. This includes the moment after its last store.
//! - *after the done bit, before the log is given back*: done blocks' logs are ignored.
//! - *between the last done bit and the report to the executor*: every block is done; running it again runs nothing and reports at once. The slot is freed
//!   only after the report has returned, and nothing later in the stream begins before that.
//! - *while undoing*: undoing again writes the same bytes.
//!
//! Why undoing in this way is right: a repeatable kernel ([`crate::program::Kernel::repeatable`]) has no atomics, no ordered or volatile accesses and no
//! visible side effects but stores, so a program without data races has no other thread that reads or writes a byte which a running block
//! writes. Logs of several half-done blocks are undone last chunk first, which also restores most races on one flag.
//! Kernels that are not repeatable are lost if one of their blocks was half done; cooperative ones if any had begun.

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
    BLOCK_WINDOW, C_BLOCK, C_OWNER, C_SEQUENCE, CHUNKS, FREE, H_CHUNKS, H_MAGIC, H_RECORDS, H_VERSION, MAGIC, R_BLOCKS, R_FLAGS, R_LOW, R_STATE, R_TOKEN,
    RECORDS, USED, VERSION,
};

/// One client's marks file.
#[derive(Debug)]
pub(crate) struct ProgressLog {
    mapping: Mapping,
    free_records: Mutex<Vec<u32>>,
    /// Slots that a predecessor left in use. Lost ones and those of work that was reported stay here until the client goes.
    inherited: Mutex<Vec<u32>>,
    free_chunks: Mutex<Vec<u32>>,
    /// Order in which chunks were taken.
    sequence: AtomicU64,
}

impl ProgressLog {
    /// Mappings a marks file: a fresh one, or a predecessor's.
    ///
    /// # Errors
    /// [`DeviceError::System`] if it is too small, can shrink, or is of another version.
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
                    "the marks file is not of this version (magic {magic:#x}, version {version}); both executors must be of the same cumux version"
                )));
            }
        }
        let records_used = u32::try_from(load(H_RECORDS)).unwrap_or(RECORDS).min(RECORDS);
        let chunks_used = u32::try_from(load(H_CHUNKS)).unwrap_or(CHUNKS).min(CHUNKS);
        let (inherited, free_records) = (0..RECORDS).rev().partition(|s| *s < records_used && load(layout::record(*s) + R_STATE) != FREE);
        let mut last = 0;
        let free_chunks = (0..CHUNKS)
            .rev()
            .filter(|c| {
                if *c >= chunks_used {
                    return true;
                }
                last = last.max(load(layout::chunk(*c) + C_SEQUENCE));
                load(layout::chunk(*c) + C_OWNER) & 0xffff_ffff == 0
            })
            .collect();
        let sequence = AtomicU64::new(last.wrapping_add(1));
        Ok(Arc::new(ProgressLog {
            mapping,
            free_records: Mutex::new(free_records),
            inherited: Mutex::new(inherited),
            free_chunks: Mutex::new(free_chunks),
            sequence,
        }))
    }

    /// Notes that a kernel of `blocks` blocks is about to begin. `None` if too many are in flight.
    ///
    /// With `resume`, the predecessor's slot for this token goes on; without, it starts afresh.
    pub(crate) fn start_kernel(self: &Arc<ProgressLog>, token: u64, blocks: u64, flags: u64, resume: Option<&Resume>) -> Option<Arc<KernelProgress>> {
        let left = {
            let mut inherited = self.inherited.lock();
            let found = inherited.iter().position(|s| self.record_word(*s, R_TOKEN) == token);
            found.map(|at| inherited.swap_remove(at))
        };
        if let (Some(index), Some(_)) = (left, resume)
            && self.record_word(index, R_BLOCKS) == blocks
        {
            let low = self.record_word(index, R_LOW);
            return Some(Arc::new(KernelProgress { log: self.clone(), record: index, low: Mutex::new(low), limit: AtomicU64::new(low + BLOCK_WINDOW - 64) }));
        }
        let index = match left {
            Some(index) => index,
            None => {
                let mut free = self.free_records.lock();
                let index = free.pop()?;
                if u64::from(index) >= self.load(H_RECORDS) {
                    self.mapping.word(H_RECORDS).store(u64::from(index) + 1, Ordering::Release);
                }
                index
            }
        };
        let at = layout::record(index);
        self.mapping.word(at + R_STATE).store(FREE, Ordering::Release);
        for block in (0..blocks.min(BLOCK_WINDOW)).step_by(64) {
            self.mapping.word(layout::begun(at, block)).store(0, Ordering::Relaxed);
            self.mapping.word(layout::done(at, block)).store(0, Ordering::Relaxed);
        }
        for (field, value) in [(R_TOKEN, token), (R_BLOCKS, blocks), (R_LOW, 0), (R_FLAGS, flags)] {
            self.mapping.word(at + field).store(value, Ordering::Relaxed);
        }
        self.mapping.word(at + R_STATE).store(USED, Ordering::Release);
        let progress = KernelProgress { log: self.clone(), record: index, low: Mutex::new(0), limit: AtomicU64::new(BLOCK_WINDOW - 64) };
        if let Some(resume) = resume {
            progress.adopt_done_blocks(resume);
        }
        Some(Arc::new(progress))
    }

    fn load(&self, offset: u64) -> u64 {
        self.mapping.word(offset).load(Ordering::Acquire)
    }

    fn record_word(&self, record: u32, field: u64) -> u64 {
        self.load(layout::record(record) + field)
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
        let at = layout::chunk(chunk);
        self.mapping.word(at + C_BLOCK).store(block, Ordering::Relaxed);
        self.mapping.word(at + C_SEQUENCE).store(self.sequence.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.set_owner(chunk, record, 0);
        Some(chunk)
    }

    fn set_owner(&self, chunk: u32, record: u32, used: u64) {
        self.mapping.word(layout::chunk(chunk) + C_OWNER).store((used << 32) | (u64::from(record) + 1), Ordering::Release);
    }

    fn release_chunks(&self, chunks: &mut Vec<u32>) {
        if chunks.is_empty() {
            return;
        }
        for chunk in &*chunks {
            self.mapping.word(layout::chunk(*chunk) + C_OWNER).store(0, Ordering::Release);
        }
        let mut free = self.free_chunks.lock();
        free.extend(chunks.drain(..).rev());
    }
}

/// The marks of one kernel in flight.
#[derive(Debug)]
pub(crate) struct KernelProgress {
    log: Arc<ProgressLog>,
    record: u32,
    /// As in the file; held while it moves.
    low: Mutex<u64>,
    /// First block that may not begin yet.
    limit: AtomicU64,
}

impl KernelProgress {
    fn at(&self) -> u64 {
        layout::record(self.record)
    }

    /// Whether the window has room for the block.
    pub(crate) fn may_begin(&self, block: u64) -> bool {
        block < self.limit.load(Ordering::Acquire)
    }

    /// The block runs its first instruction next.
    pub(crate) fn mark_begun(&self, block: u64) {
        self.log.mapping.word(layout::begun(self.at(), block)).fetch_or(1 << (block % 64), Ordering::SeqCst);
    }

    /// The block has run its last instruction. Its log may be discarded afterwards.
    pub(crate) fn mark_done(&self, block: u64) {
        let mask = 1 << (block % 64);
        let old = self.log.mapping.word(layout::done(self.at(), block)).fetch_or(mask, Ordering::SeqCst);
        if old | mask == u64::MAX {
            self.advance_window();
        }
    }

    /// Moves `low` over full words: first `low`, then the word is cleared, then later blocks may use it.
    fn advance_window(&self) {
        let mut low = self.low.lock();
        let word = |offset| self.log.mapping.word(offset);
        while word(layout::done(self.at(), *low)).load(Ordering::Acquire) == u64::MAX {
            let full = *low;
            *low += 64;
            word(self.at() + R_LOW).store(*low, Ordering::SeqCst);
            word(layout::begun(self.at(), full)).store(0, Ordering::SeqCst);
            word(layout::done(self.at(), full)).store(0, Ordering::SeqCst);
            self.limit.store(*low + BLOCK_WINDOW - 64, Ordering::Release);
        }
    }

    fn add_flag(&self, flag: u64) {
        self.log.mapping.word(self.at() + R_FLAGS).fetch_or(flag, Ordering::SeqCst);
    }

    /// ProgressLog as done what `resume` says (for a slot that is not the predecessor's own).
    fn adopt_done_blocks(&self, resume: &Resume) {
        for (word, bits) in (0u64..).zip(&resume.done) {
            for bit in (0..64).filter(|bit| bits & (1 << bit) != 0) {
                let block = word * 64 + bit;
                if self.may_begin(block) {
                    self.mark_done(block);
                }
            }
        }
    }

    /// The kernel is reported (or its client is gone).
    pub(crate) fn release(&self) {
        self.log.mapping.word(self.at() + R_STATE).store(FREE, Ordering::Release);
        self.log.free_records.lock().push(self.record);
    }
}
