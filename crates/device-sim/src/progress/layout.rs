//! The progress log of one client as it lies in its file: what a successor needs to go on after the
//! executor was killed.
//!
//! All words have 64 bits and are written whole. Only the device writes the file; a reader checks
//! every number before it uses it.
//!
//! ```text
//! 0            header: magic, version, records ever used, chunks ever used
//! 4096         RECORDS records, one for each kernel (or overlapping copy) in flight:
//!                state, token, blocks, low, flags | bitmap of begun blocks | bitmap of done blocks
//! UNDO         CHUNKS chunks of the undo logs; each belongs to one block of one record:
//!                block, record + 1 and entries used, sequence
//!                | entries: line address, mask, 64 old bytes
//! ```
//!
//! `low` is a low-water mark: every block before it is done. The bitmaps are rings over the blocks
//! `[low, low + BLOCK_WINDOW - 64)`, and no block at or past the end of that range begins. The
//! ring's last word is the one that is being cleared while `low` moves, so a reader never trusts
//! it.

use crate::mapping::line::LINE_BYTES;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"cumuxmrk");
/// Raised with every change of this layout.
pub(super) const VERSION: u64 = 1;

// Words of the header, by offset.
pub(super) const H_MAGIC: u64 = 0;
pub(super) const H_VERSION: u64 = 8;
/// Records with a number below this were used at least once; pages of the others do not exist yet.
pub(super) const H_RECORDS: u64 = 16;
/// The same for chunks.
pub(super) const H_CHUNKS: u64 = 24;

/// Kernels of one client that can be in flight at the same time; further ones wait.
pub(super) const RECORDS: u32 = 512;
/// Bits of a bitmap word: `low` moves by as many blocks.
pub(super) const WORD_BLOCKS: u64 = 64;
/// Blocks whose state is known one by one; a multiple of 64, more than fit on any card at once.
pub(super) const BLOCK_WINDOW: u64 = 32_768;
/// Blocks behind `low` from which on no block may begin.
pub(super) const OPEN_WINDOW: u64 = BLOCK_WINDOW - WORD_BLOCKS;
const BITMAP_BYTES: u64 = BLOCK_WINDOW / 8;
const RECORD_BASE: u64 = 4096;
/// Bytes of a record before its bitmaps.
const RECORD_HEAD: u64 = 4096;
pub(super) const RECORD_BYTES: u64 = RECORD_HEAD + 2 * BITMAP_BYTES;

// Words of a record, by offset from its beginning.
/// [`FREE`] or [`USED`].
pub(super) const R_STATE: u64 = 0;
/// The submission's token.
pub(super) const R_TOKEN: u64 = 8;
/// Blocks of the grid.
pub(super) const R_BLOCKS: u64 = 16;
/// The low-water mark, a multiple of 64.
pub(super) const R_LOW: u64 = 24;
/// [`REPEATABLE`], [`COOPERATIVE`], [`OVERFLOWED`], [`TRANSFER`], [`LAUNCHES`], [`SETTLED`].
pub(super) const R_FLAGS: u64 = 32;

pub(super) const FREE: u64 = 0;
pub(super) const USED: u64 = 1;

/// A half-done block may be undone and run again.
pub(crate) const REPEATABLE: u64 = 1;
/// The blocks depend on one another: all or none.
pub(crate) const COOPERATIVE: u64 = 2;
/// Some stores are not in the undo log: it was full.
pub(crate) const OVERFLOWED: u64 = 4;
/// Not a kernel but an overlapping copy.
pub(crate) const TRANSFER: u64 = 8;
/// The kernel may launch others, of which there are no records: when its blocks are done it need
/// not be over.
pub(crate) const LAUNCHES: u64 = 16;
/// A kernel that may launch others, and these, are over.
pub(super) const SETTLED: u64 = 32;

/// Where the chunks of the undo logs begin.
pub(super) const UNDO: u64 = RECORD_BASE + RECORDS as u64 * RECORD_BYTES;
pub(super) const CHUNK_BYTES: u64 = 4096;
/// Chunks of a client: 64 MiB of undo log.
pub(super) const CHUNKS: u32 = 16_384;

// Words of a chunk, by offset from its beginning.
/// The block whose stores the chunk undoes.
pub(super) const C_BLOCK: u64 = 0;
/// Low half: record + 1, 0 if the chunk is free. High half: entries used.
pub(super) const C_OWNER: u64 = 8;
/// Chunks are numbered in the order in which they were reserved.
pub(super) const C_SEQUENCE: u64 = 16;
const C_ENTRIES: u64 = 24;

// Words of an entry, by offset from its beginning.
/// The client's address of the line.
pub(super) const E_LINE: u64 = 0;
/// Bit i: byte i was saved.
pub(super) const E_MASK: u64 = 8;
/// The saved bytes, each at its place in the line.
pub(super) const E_OLD: u64 = 16;
const ENTRY_BYTES: u64 = E_OLD + LINE_BYTES;
/// Entries of a chunk.
pub(super) const ENTRIES: u64 = (CHUNK_BYTES - C_ENTRIES) / ENTRY_BYTES;

/// Bytes of the whole file.
pub(crate) const FILE_BYTES: u64 = UNDO + CHUNKS as u64 * CHUNK_BYTES;

/// Offset of a record.
pub(super) const fn record_offset(index: u32) -> u64 {
    RECORD_BASE + index as u64 * RECORD_BYTES
}

/// Offset of the word with the begun bit of `block`.
pub(super) const fn begun_word_offset(record_at: u64, block: u64) -> u64 {
    record_at + RECORD_HEAD + block % BLOCK_WINDOW / WORD_BLOCKS * 8
}

/// Offset of the word with the done bit of `block`.
pub(super) const fn done_word_offset(record_at: u64, block: u64) -> u64 {
    begun_word_offset(record_at, block) + BITMAP_BYTES
}

/// The bit of `block` in its word.
pub(super) const fn block_bit(block: u64) -> u64 {
    1 << (block % WORD_BLOCKS)
}

/// The owner word of a chunk with `used` entries.
pub(super) const fn owner_word(record: u32, used: u64) -> u64 {
    used << 32 | (record as u64 + 1)
}

/// The record to which a chunk belongs, and how many entries it has used: the inverse of
/// [`owner_word`]. `None` for a free chunk.
pub(super) const fn owner_of(word: u64) -> Option<(u32, u64)> {
    match (word as u32).checked_sub(1) {
        Some(record) => Some((record, word >> 32)),
        None => None,
    }
}

/// Offset of a chunk.
pub(super) const fn chunk_offset(index: u32) -> u64 {
    UNDO + index as u64 * CHUNK_BYTES
}

/// Offset of an entry of a chunk.
pub(super) const fn entry_offset(chunk: u32, index: u64) -> u64 {
    chunk_offset(chunk) + C_ENTRIES + index * ENTRY_BYTES
}

const _: () = {
    assert!(BLOCK_WINDOW.is_multiple_of(WORD_BLOCKS) && BITMAP_BYTES.is_multiple_of(8) && UNDO.is_multiple_of(4096));
    assert!(ENTRIES >= 1 && C_ENTRIES + ENTRIES * ENTRY_BYTES <= CHUNK_BYTES);
};
