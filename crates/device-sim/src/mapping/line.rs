//! A line of memory just before a store overwrites a part of it.
#![allow(unsafe_code)]

use super::Mapping;

/// The bytes `bits` of one line of 64 bytes are about to be overwritten: what the undo log reads.
pub(crate) struct Overwritten {
    /// Where the line begins; only its bytes `bits` need be mapped.
    pub(crate) line: *const u8,
    pub(crate) bits: u64,
}

impl Overwritten {
    /// Copies the bytes `bits`, all of them among those to be overwritten, to their places in a line at `offset` of a mapping.
    pub(crate) fn save(&self, bits: u64, into: &Mapping, offset: u64) {
        assert!(bits & !self.bits == 0);
        for at in (0..64).filter(|at| bits >> at & 1 != 0) {
            // SAFETY: the byte is one that `before_store` was called with (P); the target by M.
            unsafe { into.at(offset + at, 1).copy_from(self.line.wrapping_add(at as usize), 1) };
        }
    }

    /// Copies the whole line. False if it does not lie in one line of this process's memory as well.
    #[inline]
    pub(crate) fn save_line(&self, into: &Mapping, offset: u64) -> bool {
        assert!(self.bits != 0);
        if !(self.line.addr()).is_multiple_of(64) {
            return false;
        }
        // SAFETY: a byte of the line is mapped (P), so is its page, and by the check above the line is an aligned part of that page; the target by M.
        unsafe { into.at(offset, 64).copy_from_nonoverlapping(self.line, 64) };
        true
    }
}
