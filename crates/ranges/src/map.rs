//! Ranges of addresses that do not overlap, each with a value. Pure.

use std::collections::BTreeMap;

/// Ranges by their first addresses. A range has at least one byte and does not wrap around.
#[derive(Debug)]
pub struct RangeMap<T>(BTreeMap<u64, Range<T>>);

#[derive(Debug)]
struct Range<T> {
    /// One past the last address.
    end: u64,
    value: T,
}

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        RangeMap(BTreeMap::new())
    }
}

impl<T> RangeMap<T> {
    /// Adds a range. Returns false, and adds nothing, if the range is empty, wraps around, or
    /// overlaps another.
    pub fn insert(&mut self, start: u64, bytes: u64, value: T) -> bool {
        let Some(end) = start.checked_add(bytes).filter(|_| bytes > 0) else { return false };
        if self.overlapping(start, end).is_some() {
            return false;
        }
        self.0.insert(start, Range { end, value });
        true
    }

    /// Removes the range that begins here. Returns its end and its value.
    pub fn remove(&mut self, start: u64) -> Option<(u64, T)> {
        self.0.remove(&start).map(|range| (range.end, range.value))
    }

    /// The range that contains this address: its start, its end, its value.
    #[must_use]
    pub fn containing(&self, address: u64) -> Option<(u64, u64, &T)> {
        let (start, range) = self.0.range(..=address).next_back().filter(|(_, range)| range.end > address)?;
        Some((*start, range.end, &range.value))
    }

    /// The first address of the first range that shares an address with `[start, end)`.
    #[must_use]
    pub fn first_overlapping(&self, start: u64, end: u64) -> Option<u64> {
        let before = self.containing(start).map(|(first, ..)| first);
        before.or_else(|| self.0.range(start..end).next().map(|(first, _)| *first))
    }

    /// The first address and the bytes of a range that overlaps `[start, end)`: the last such
    /// range.
    #[must_use]
    pub fn overlapping(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (first, range) = self.0.range(..end).next_back().filter(|(_, range)| range.end > start)?;
        Some((*first, range.end - first))
    }

    /// The bytes of the range that begins here.
    #[must_use]
    pub fn bytes_at(&self, start: u64) -> Option<u64> {
        self.0.get(&start).map(|range| range.end - start)
    }

    /// The ends and values of the range that contains `at` and of those that follow it without a
    /// gap.
    pub fn contiguous_from(&self, mut at: u64) -> impl Iterator<Item = (u64, &T)> {
        std::iter::from_fn(move || {
            let (_, range) = self.0.range(..=at).next_back().filter(|(_, range)| range.end > at)?;
            at = range.end;
            Some((range.end, &range.value))
        })
    }

    /// True if each of these bytes is in a range.
    #[must_use]
    pub fn covers(&self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        bytes == 0 || self.contiguous_from(start).any(|(covered, _)| covered >= end)
    }

    /// The gaps in `[start, end)`, in order: the start and the end of each.
    #[must_use]
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = self.0.range(..=start).next_back().map_or(start, |(_, range)| start.max(range.end));
        for (first, range) in self.0.range(start..end) {
            if *first > at {
                gaps.push((at, *first));
            }
            at = at.max(range.end);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// First address and bytes of each range, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(start, range)| (*start, range.end - start))
    }

    /// First address, end and value of each range, in order.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64, &T)> + '_ {
        self.0.iter().map(|(start, range)| (*start, range.end, &range.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a model that has one entry for each byte.
        #[test]
        fn gaps_and_ranges_make_the_whole(pieces in proptest::collection::vec((0_u64..20, 0_u64..6), 0..12)) {
            let mut ranges = RangeMap::default();
            let mut model = [false; 32];
            for (start, length) in pieces {
                for (s, e) in ranges.gaps(start, start + length) {
                    prop_assert!(s < e);
                    prop_assert!(model[s as usize..e as usize].iter().all(|b| !b));
                    prop_assert!(!ranges.covers(s, e - s) && ranges.overlapping(s, e).is_none());
                    model[s as usize..e as usize].fill(true);
                    prop_assert!(ranges.insert(s, e - s, ()));
                }
                prop_assert!(model[start as usize..(start + length) as usize].iter().all(|b| *b));
                prop_assert!(ranges.covers(start, length));
            }
            for at in 0..31 {
                prop_assert_eq!(ranges.contiguous_from(at).next().is_some(), model[at as usize]);
                prop_assert_eq!(ranges.covers(at, 1), model[at as usize]);
                prop_assert_eq!(ranges.insert(at, 1, ()) && ranges.remove(at).is_some(), !model[at as usize]);
            }
        }
    }

    #[test]
    fn ranges_are_not_empty_and_do_not_wrap() {
        let mut ranges = RangeMap::default();
        assert!(!ranges.insert(5, 0, ()) && !ranges.insert(u64::MAX, 2, ()));
        assert!(ranges.insert(10, 10, ()) && ranges.insert(20, 5, ()));
        assert_eq!(ranges.overlapping(12, 13), Some((10, 10)));
        assert_eq!((ranges.bytes_at(20), ranges.bytes_at(21)), (Some(5), None));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 10), (20, 5)]);
        assert!(ranges.covers(11, 14) && !ranges.covers(11, 15) && !ranges.covers(11, u64::MAX));
        assert!(ranges.covers(90, 0), "nothing is always covered");
    }
}
