//! A line of memory just before a store overwrites a part of it.
#![allow(unsafe_code)]

use super::Mapping;

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;

/// Bytes of one line that are about to be overwritten: what the undo log reads.
///
/// Invariant: every byte whose bit is set is mapped and may be read as long as the value lives.
pub(crate) struct OverwrittenLine {
    /// Where the line begins in this process. Bytes without a bit need not be mapped.
    line: *const u8,
    /// Bit i: byte i.
    bits: u64,
}

impl OverwrittenLine {
    /// The bytes `bits` of the line that begins at `line`.
    ///
    /// # Safety
    /// The bytes whose bits are set are mapped and may be read as long as the value lives.
    #[inline(always)]
    pub(crate) unsafe fn new(line: *const u8, bits: u64) -> Self {
        OverwrittenLine { line, bits }
    }

    /// Which bytes of the line will be overwritten.
    #[inline(always)]
    pub(crate) fn bits(&self) -> u64 {
        self.bits
    }

    /// Copies the bytes `bits`, all of them among those to be overwritten, to their places in a
    /// line at `offset` of a mapping.
    pub(crate) fn save_bytes(&self, bits: u64, into: &Mapping, offset: u64) {
        assert!(bits & !self.bits == 0);
        for at in (0..LINE_BYTES).filter(|at| bits >> at & 1 != 0) {
            // SAFETY: the byte may be read by the invariant, since its bit is set; `pointer`
            // checked that the target byte is mapped.
            unsafe { into.pointer(offset + at, 1).copy_from(self.line.wrapping_add(at as usize), 1) };
        }
    }

    /// Copies the whole line to `offset` of a mapping. False if it does not lie in one line of this
    /// process's memory as well.
    #[inline]
    pub(crate) fn save_line(&self, into: &Mapping, offset: u64) -> bool {
        assert!(self.bits != 0);
        if !(self.line.addr()).is_multiple_of(LINE_BYTES as usize) {
            return false;
        }
        // SAFETY: a byte of the line is mapped by the invariant, and so is its page. The line is
        // aligned, therefore all of it lies in that page. `pointer` checked that the target is
        // mapped.
        unsafe { into.pointer(offset, LINE_BYTES).copy_from_nonoverlapping(self.line, LINE_BYTES as usize) };
        true
    }
}
