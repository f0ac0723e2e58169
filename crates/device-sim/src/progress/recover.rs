//! Recovery after a takeover: undoes the half-done blocks of a dead executor and says which kernels
//! may go on.

use std::sync::atomic::Ordering;

use cumux_device::{Interrupted, Resume};

use super::ProgressLog;
use super::layout::{
    self, C_BLOCK, C_OWNER, C_SEQUENCE, CHUNKS, COOPERATIVE, E_LINE, E_MASK, E_OLD, ENTRIES, H_CHUNKS, LAUNCHES, OPEN_WINDOW, OVERFLOWED, R_BLOCKS, R_FLAGS,
    R_LOW, R_TOKEN, REPEATABLE, SETTLED, TRANSFER, WORD_BLOCKS,
};
use crate::mapping::line::LINE_BYTES;

/// One record as the file has it.
struct FoundKernel {
    record: u32,
    token: u64,
    blocks: u64,
    low: u64,
    flags: u64,
    /// Done bits from `low` on.
    done: Vec<u64>,
    /// Blocks that have begun and are not done, in ascending order.
    half_done: Vec<u64>,
    why_lost: Option<String>,
}

/// A chunk of the undo log of a half-done block.
struct UndoChunk {
    index: u32,
    sequence: u64,
    used: u64,
    record: u32,
}

/// Writes bytes at an address of the client. The error is the address that the client may not
/// write.
pub(crate) type Write<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), u64>;

/// Undoes what was half done and reports on every kernel that had been in flight, oldest token
/// first. `write` changes the client's memory.
pub(crate) fn undo_half_done_blocks(log: &ProgressLog, write: Write<'_>) -> Vec<Interrupted> {
    let inherited = log.inherited.lock().clone();
    let mut found: Vec<FoundKernel> = inherited.iter().map(|record| read_record(log, *record)).collect();
    found.sort_by_key(|kernel| kernel.token);

    let chunks_used = u32::try_from(log.load(H_CHUNKS)).unwrap_or(CHUNKS).min(CHUNKS);
    let mut to_undo = Vec::new();
    for index in 0..chunks_used {
        let word = |field| log.chunk_word(index, field).load(Ordering::Acquire);
        let Some((record, used)) = layout::owner_of(word(C_OWNER)) else { continue };
        let Some(kernel) = found.iter_mut().find(|kernel| kernel.record == record) else { continue };
        if used > ENTRIES {
            kernel.why_lost = Some("its undo log is damaged".into());
        } else if kernel.why_lost.is_none() && kernel.half_done.binary_search(&word(C_BLOCK)).is_ok() {
            to_undo.push(UndoChunk { index, sequence: word(C_SEQUENCE), used, record });
        }
    }
    to_undo.sort_by_key(|chunk| std::cmp::Reverse(chunk.sequence));
    for chunk in &to_undo {
        if let Err(why) = undo_chunk(log, chunk, write)
            && let Some(kernel) = found.iter_mut().find(|kernel| kernel.record == chunk.record)
        {
            kernel.why_lost = Some(why);
        }
    }
    // Only now, with everything undone, may the begun bits and the chunks go: a successor of this
    // process that finds them undoes again.
    for kernel in found.iter().filter(|kernel| kernel.why_lost.is_none()) {
        for block in &kernel.half_done {
            let word = layout::begun_word_offset(layout::record_offset(kernel.record), *block);
            log.mapping.word(word).fetch_and(!layout::block_bit(*block), Ordering::SeqCst);
        }
    }
    let owned = |chunk: &u32| layout::owner_of(log.chunk_word(*chunk, C_OWNER).load(Ordering::Acquire)).is_some();
    let mut freed: Vec<u32> = (0..chunks_used).filter(owned).collect();
    log.release_chunks(&mut freed);
    found.into_iter().map(FoundKernel::into_report).collect()
}

fn read_record(log: &ProgressLog, record: u32) -> FoundKernel {
    let word = |field| log.record_word(record, field).load(Ordering::Acquire);
    let (token, blocks, low, flags) = (word(R_TOKEN), word(R_BLOCKS), word(R_LOW), word(R_FLAGS));
    let mut found = FoundKernel { record, token, blocks, low, flags, done: Vec::new(), half_done: Vec::new(), why_lost: None };
    if low > blocks || !low.is_multiple_of(WORD_BLOCKS) {
        found.why_lost = Some("its progress record is damaged".into());
        return found;
    }
    let at = layout::record_offset(record);
    let end = blocks.min(low.saturating_add(OPEN_WINDOW));
    for first in (low..end).step_by(WORD_BLOCKS as usize) {
        let inside = if end - first >= WORD_BLOCKS { u64::MAX } else { layout::block_bit(end - first) - 1 };
        let done = log.load(layout::done_word_offset(at, first)) & inside;
        let half_done = log.load(layout::begun_word_offset(at, first)) & inside & !done;
        found.done.push(done);
        found.half_done.extend((0..WORD_BLOCKS).filter(|bit| half_done >> bit & 1 != 0).map(|bit| first + bit));
    }
    found.why_lost = found.reason_lost();
    found
}

impl FoundKernel {
    /// Why the kernel cannot go on, if so.
    fn reason_lost(&self) -> Option<String> {
        let half = self.half_done.len();
        let finished = self.low + self.done.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        if self.flags & TRANSFER != 0 && half > 0 {
            Some("a copy between overlapping ranges was half done".into())
        } else if self.flags & COOPERATIVE != 0 && (half > 0 || (finished > 0 && finished < self.blocks)) {
            Some(format!("a cooperative kernel was running: {finished} of {} blocks done, {half} half done", self.blocks))
        } else if self.flags & LAUNCHES != 0 && self.flags & SETTLED == 0 && half as u64 + finished > 0 {
            Some(format!(
                "a kernel that launches kernels was running, with {finished} of {} blocks done; what it had launched cannot be continued",
                self.blocks
            ))
        } else if half > 0 && self.flags & REPEATABLE == 0 {
            Some(format!(
                "{half} of {} blocks were half done, and the kernel uses atomics, ordered or volatile accesses, printf or malloc, which cannot be undone",
                self.blocks
            ))
        } else if half > 0 && self.flags & OVERFLOWED != 0 {
            Some(format!("{half} of {} blocks were half done, and they had overwritten more than the undo log holds", self.blocks))
        } else {
            None
        }
    }

    fn into_report(self) -> Interrupted {
        match self.why_lost {
            Some(why) => Interrupted::Lost { stream_token: self.token, why },
            None => {
                let mut done = vec![u64::MAX; (self.low / WORD_BLOCKS) as usize];
                done.extend(self.done);
                Interrupted::Resume { stream_token: self.token, resume: Resume { done } }
            }
        }
    }
}

/// Writes back what one chunk saved, its last entry first.
fn undo_chunk(log: &ProgressLog, chunk: &UndoChunk, write: Write<'_>) -> Result<(), String> {
    for index in (0..chunk.used).rev() {
        let at = layout::entry_offset(chunk.index, index);
        let (line, mask) = (log.entry_word(at, E_LINE).load(Ordering::Acquire), log.entry_word(at, E_MASK).load(Ordering::Acquire));
        let mut old = [0; LINE_BYTES as usize];
        if !line.is_multiple_of(LINE_BYTES) || !log.mapping.read(at + E_OLD, &mut old) {
            return Err("its undo log is damaged".into());
        }
        let mut rest = mask;
        while rest != 0 {
            let start = rest.trailing_zeros() as usize;
            let run = (rest >> start).trailing_ones() as usize;
            write(line + start as u64, &old[start..start + run])
                .map_err(|address| format!("memory it had written at {address:#x} is not the client's any more"))?;
            rest &= !((u64::MAX >> (64 - run)) << start);
        }
    }
    Ok(())
}
