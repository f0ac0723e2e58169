//! Who owns which part of the window: pinned memory, images, staging. Pure bookkeeping over an address range; pages given back are punched
//! out of the file by the caller.

use std::collections::BTreeMap;

/// Smallest piece, and alignment of every piece.
pub const GRAIN: u64 = 4096;

/// First-fit allocator of address ranges.
#[derive(Debug)]
pub struct Heap {
    /// Free ranges: start and length. No two touch.
    free: BTreeMap<u64, u64>,
    /// Used ranges: start and length.
    used: BTreeMap<u64, u64>,
}

impl Heap {
    #[must_use]
    pub fn new(base: u64, bytes: u64) -> Self {
        Self { free: BTreeMap::from([(base, bytes)]), used: BTreeMap::new() }
    }

    /// An unused range of at least `bytes` bytes, aligned to `align` (a power of two, at least [`GRAIN`] is taken).
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(GRAIN)?;
        let align = align.max(GRAIN);
        let fits = |start: u64, length: u64| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= start + length).then_some(at)
        };
        let (start, length, at) = self.free.iter().find_map(|(start, length)| fits(*start, *length).map(|at| (*start, *length, at)))?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        let end = start + length;
        if end > at + bytes {
            self.free.insert(at + bytes, end - at - bytes);
        }
        self.used.insert(at, bytes);
        Some(at)
    }

    /// Gives a range back; returns its length, or `None` when no range starts there.
    pub fn give(&mut self, at: u64) -> Option<u64> {
        let bytes = self.used.remove(&at)?;
        let (mut start, mut length) = (at, bytes);
        if let Some((&before, &l)) = self.free.range(..at).next_back()
            && before + l == start
        {
            self.free.remove(&before);
            start = before;
            length += l;
        }
        if let Some(&l) = self.free.get(&(at + bytes)) {
            self.free.remove(&(at + bytes));
            length += l;
        }
        self.free.insert(start, length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_all_comes_back() {
        let mut heap = Heap::new(0x10_0000, 0x10_0000);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for n in 0_u64..40 {
            let align = GRAIN << (n % 5);
            let at = heap.take(1 + n * 700, align).expect("room");
            assert!(at.is_multiple_of(align));
            let bytes = (1 + n * 700).next_multiple_of(GRAIN);
            assert!(taken.iter().all(|(a, l)| at + bytes <= *a || *a + *l <= at), "overlap at {at:#x}");
            taken.push((at, bytes));
        }
        // In an order that needs joining on both sides.
        for (n, (at, bytes)) in taken.iter().enumerate().filter(|(n, _)| n % 2 == 0).chain(taken.iter().enumerate().filter(|(n, _)| n % 2 == 1)) {
            assert_eq!(heap.give(*at), Some(*bytes), "piece {n}");
        }
        assert_eq!(heap.give(0x10_0000), None);
        assert_eq!(heap.take(0x10_0000, GRAIN), Some(0x10_0000), "one free range again");
        assert_eq!(heap.take(1, GRAIN), None);
    }
}
