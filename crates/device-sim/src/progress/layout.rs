//! The marks file of one client: what it would take to go on after the executor was killed.
//!
//! All words are 64 bits and written whole. Only the device writes the file; a reader checks every number before it uses it.
//!
//! ```text
//! 0            header: magic, version, slots ever used, chunks ever used
//! 4096         RECORDS slots, one for each kernel (or overlapping copy) in flight:
//!                state, token, blocks, low, flags | bitmap of begun blocks | bitmap of done blocks
//! LOG          CHUNKS chunks of the undo log, each belongs to one block of one slot:
//!                block, slot + 1 and entries used, sequence | entries: line address, mask, 64 old bytes
//! ```
//!
//! The bitmaps are rings over the blocks `[low, low + BLOCK_WINDOW - 64)`; every block before `low` is done. No block at or past the end of that
//! range begins. The ring's last word is the one being cleared when `low` moves, so a reader never trusts it.

use crate::mapping::line::LINE_BYTES;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"cumuxmrk");
/// Raised with every change of this layout.
pub(super) const VERSION: u64 = 1;

pub(super) const H_MAGIC: u64 = 0;
pub(super) const H_VERSION: u64 = 8;
/// Slots with a number below this were used at least once; pages of the others do not exist yet.
pub(super) const H_RECORDS: u64 = 16;
pub(super) const H_CHUNKS: u64 = 24;

/// Kernels of one client that can be in flight at once; more wait.
pub(super) const RECORDS: u32 = 512;
/// Blocks whose state is known one by one; a multiple of 64, more than fit on any card at once.
pub(super) const BLOCK_WINDOW: u64 = 32_768;
const BITMAP_BYTES: u64 = BLOCK_WINDOW / 8;
const RECORD_BASE: u64 = 4096;
pub(super) const RECORD_BYTES: u64 = 4096 + 2 * BITMAP_BYTES;

pub(super) const R_STATE: u64 = 0;
pub(super) const R_TOKEN: u64 = 8;
pub(super) const R_BLOCKS: u64 = 16;
pub(super) const R_LOW: u64 = 24;
pub(super) const R_FLAGS: u64 = 32;

pub(super) const FREE: u64 = 0;
pub(super) const USED: u64 = 1;

/// A half-done block may be undone and run again.
pub(crate) const REPEATABLE: u64 = 1;
/// The blocks talk to one another: all or none.
pub(crate) const COOPERATIVE: u64 = 2;
/// Some stores were not logged: the log was full.
pub(crate) const OVERFLOWED: u64 = 4;
/// Not a kernel but an overlapping copy.
pub(crate) const TRANSFER: u64 = 8;

pub(super) const LOG: u64 = RECORD_BASE + RECORDS as u64 * RECORD_BYTES;
pub(super) const CHUNK_BYTES: u64 = 4096;
/// 64 MiB of log a client.
pub(super) const CHUNKS: u32 = 16_384;

pub(super) const C_BLOCK: u64 = 0;
/// Low half: slot + 1, 0 if free. High half: entries used.
pub(super) const C_OWNER: u64 = 8;
pub(super) const C_SEQUENCE: u64 = 16;
const C_ENTRIES: u64 = 24;

pub(super) const E_LINE: u64 = 0;
/// Bit i: byte i was saved.
pub(super) const E_MASK: u64 = 8;
pub(super) const E_OLD: u64 = 16;
const ENTRY_BYTES: u64 = E_OLD + LINE_BYTES;
pub(super) const ENTRIES: u64 = (CHUNK_BYTES - C_ENTRIES) / ENTRY_BYTES;

pub(crate) const FILE_BYTES: u64 = LOG + CHUNKS as u64 * CHUNK_BYTES;

pub(super) const fn record(index: u32) -> u64 {
    RECORD_BASE + index as u64 * RECORD_BYTES
}

/// Offset of the word with the begun bit of `block`.
pub(super) const fn begun(record_at: u64, block: u64) -> u64 {
    record_at + 4096 + block % BLOCK_WINDOW / 64 * 8
}

/// Offset of the word with the done bit of `block`.
pub(super) const fn done(record_at: u64, block: u64) -> u64 {
    begun(record_at, block) + BITMAP_BYTES
}

pub(super) const fn chunk(index: u32) -> u64 {
    LOG + index as u64 * CHUNK_BYTES
}

pub(super) const fn entry(chunk: u32, index: u64) -> u64 {
    self::chunk(chunk) + C_ENTRIES + index * ENTRY_BYTES
}

const _: () = {
    assert!(BLOCK_WINDOW.is_multiple_of(64) && BITMAP_BYTES.is_multiple_of(8) && LOG.is_multiple_of(4096));
    assert!(ENTRIES >= 1 && C_ENTRIES + ENTRIES * ENTRY_BYTES <= CHUNK_BYTES);
};
