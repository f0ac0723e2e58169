//! Free ranges of an address space. Pure bookkeeping.
//!
//! Invariant: ranges do not overlap, none is empty, and a range that is released is merged with its
//! neighbours as far as its caller allows.

use std::collections::BTreeMap;
use std::ops::Range;

/// Length by address.
#[derive(Debug, Default)]
pub struct FreeRanges(BTreeMap<u64, u64>);

impl FreeRanges {
    /// A range that nobody has had before.
    pub fn add(&mut self, address: u64, bytes: u64) {
        self.0.insert(address, bytes);
    }

    /// Address and length, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(address, bytes)| (*address, *bytes))
    }

    /// The lowest address in `within`, a multiple of `align`, at which `bytes` bytes are free in
    /// one range and lie inside `within`. Nothing is reserved.
    #[must_use]
    pub fn first_fit(&self, bytes: u64, align: u64, within: &Range<u64>) -> Option<u64> {
        self.0.iter().find_map(|(start, length)| {
            let at = (*start).max(within.start).checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= (start + length).min(within.end)).then_some(at)
        })
    }

    /// Whether exactly this range is free and ends on both sides there.
    #[must_use]
    pub fn is_whole(&self, address: u64, bytes: u64) -> bool {
        self.0.get(&address) == Some(&bytes)
    }

    /// Forgets a free range that begins here.
    pub fn remove(&mut self, address: u64) {
        self.0.remove(&address);
    }

    /// Reserves exactly this range; false if any of it is not free.
    #[must_use]
    pub fn reserve(&mut self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let Some((start, length)) = self.0.range(..=address).next_back().map(|(start, length)| (*start, *length)) else { return false };
        if bytes == 0 || end > start + length {
            return false;
        }
        self.0.remove(&start);
        if address > start {
            self.0.insert(start, address - start);
        }
        if start + length > end {
            self.0.insert(end, start + length - end);
        }
        true
    }

    /// Releases a reserved range; merges it with its free neighbours inside `within`.
    pub fn release(&mut self, address: u64, bytes: u64, within: &Range<u64>) {
        let (mut start, mut end) = (address, address + bytes);
        if let Some((before, length)) = self.0.range(..start).next_back().map(|(before, length)| (*before, *length))
            && before >= within.start
            && before + length == start
        {
            self.0.remove(&before);
            start = before;
        }
        if end < within.end
            && let Some(length) = self.0.remove(&end)
        {
            end += length;
        }
        self.0.insert(start, end - start);
    }
}
