//! What a client may name in copies, sets and value writes: its allocations, its variables, its window, and its registered memory under the
//! client's own addresses. Pure.
//!
//! Invariant: ranges do not overlap. A span may cross from one range into the next where both translate alike.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    end: u64,
    writable: bool,
    /// Added (wrapping) to an address to get the card's address.
    shift: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, Range>);

impl Ranges {
    /// False if something is there already, or the range wraps around.
    pub(crate) fn add(&mut self, start: u64, bytes: u64, writable: bool, shift: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let clash = self.0.range(..end).next_back().is_some_and(|(_, range)| range.end > start);
        if clash || bytes == 0 {
            return false;
        }
        self.0.insert(start, Range { end, writable, shift });
        true
    }

    /// False if no range starts there.
    pub(crate) fn remove(&mut self, start: u64) -> bool {
        self.0.remove(&start).is_some()
    }

    /// The card's address for all of `bytes` from `address`, or the first address that may not be touched.
    pub(crate) fn translate(&self, address: u64, bytes: u64, write: bool) -> Result<u64, u64> {
        let last = address.checked_add(bytes).ok_or(address)?;
        let mut at = address;
        let mut shift = None;
        loop {
            let found = self.0.range(..=at).next_back().filter(|(_, range)| range.end > at && (range.writable || !write));
            let Some((_, range)) = found else { return Err(at) };
            if *shift.get_or_insert(range.shift) != range.shift {
                return Err(at);
            }
            at = range.end;
            if at >= last {
                return Ok(address.wrapping_add(range.shift));
            }
        }
    }
}

/// Ranges of whole pieces that something was done to (registered, reserved): start and end.
#[derive(Debug, Default)]
pub(crate) struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// What of `[start, end)` is not covered yet, in order.
    pub(crate) fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut at = self.0.range(..=start).next_back().map_or(start, |(_, e)| start.max(*e));
        for (s, e) in self.0.range(start..end) {
            if *s > at {
                holes.push((at, *s));
            }
            at = at.max(*e);
        }
        if at < end {
            holes.push((at, end));
        }
        holes
    }

    pub(crate) fn add(&mut self, start: u64, end: u64) {
        self.0.insert(start, end);
    }

    /// Where the piece that contains `at` ends.
    pub(crate) fn end_of(&self, at: u64) -> Option<u64> {
        self.0.range(..=at).next_back().map(|(_, e)| *e).filter(|e| *e > at)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(s, e)| (*s, *e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a model: one entry a byte.
        #[test]
        fn a_span_is_allowed_where_each_byte_is(adds in proptest::collection::vec((0_u64..200, 0_u64..40, any::<bool>(), 0_u64..2), 0..20), spans in proptest::collection::vec((0_u64..240, 1_u64..60, any::<bool>()), 1..40)) {
            let mut ranges = Ranges::default();
            let mut model: Vec<Option<(bool, u64)>> = vec![None; 400];
            for (start, bytes, writable, shift) in adds {
                let shift = shift * 1000;
                let free = bytes > 0 && model[start as usize..(start + bytes) as usize].iter().all(Option::is_none);
                prop_assert_eq!(ranges.add(start, bytes, writable, shift), free);
                if free {
                    model[start as usize..(start + bytes) as usize].fill(Some((writable, shift)));
                }
            }
            for (start, bytes, write) in spans {
                let first = model[start as usize];
                let bad = (start..start + bytes).find(|a| match model[*a as usize] {
                    Some((writable, shift)) => (write && !writable) || Some(shift) != first.map(|f| f.1),
                    None => true,
                });
                prop_assert_eq!(ranges.translate(start, bytes, write), bad.map_or_else(|| Ok(start + first.map_or(0, |f| f.1)), Err));
            }
        }

        #[test]
        fn what_is_missing_and_what_is_covered_make_the_whole(pieces in proptest::collection::vec((0_u64..20, 0_u64..6), 0..12)) {
            let mut covered = Covered::default();
            let mut model = [false; 32];
            for (start, length) in pieces {
                for (s, e) in covered.missing(start, start + length) {
                    prop_assert!(s < e);
                    prop_assert!(model[s as usize..e as usize].iter().all(|b| !b));
                    model[s as usize..e as usize].fill(true);
                    covered.add(s, e);
                }
                prop_assert!(model[start as usize..(start + length) as usize].iter().all(|b| *b));
            }
            for at in 0..31 {
                prop_assert_eq!(covered.end_of(at).is_some(), model[at as usize]);
            }
        }
    }
}
