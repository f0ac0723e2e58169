//! Which bytes a client may touch: its allocations, its window, its registered host memory.
//!
//! Pure bookkeeping. Ranges never overlap; each says where its bytes lie in this process. The last
//! [`FREED`] freed ranges are remembered, so that a fault can say that the memory was freed.

use std::collections::{BTreeMap, VecDeque};

use crate::exec::interface::{Access, MemoryFault};

/// Freed ranges that are remembered.
const FREED: usize = 1024;

/// An allocation, a window, or registered host memory: the client's addresses from `start` up to
/// `end`, which is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AllowedRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) writable: bool,
    /// Added (wrapping) to an address of the client, it gives the address in this process.
    pub(crate) shift: u64,
}

impl AllowedRange {
    /// True if all bytes from `address` to `address + bytes` are inside.
    #[inline(always)]
    pub(crate) fn covers(&self, address: u64, bytes: u64) -> bool {
        address >= self.start && address < self.end && bytes <= self.end - address
    }
}

/// Why a range cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllowError {
    #[error("the range is empty or wraps around the address space")]
    Shape,
    #[error("it overlaps another allocation of the client at {0:#x}")]
    Overlap(u64),
}

/// The ranges of one client.
#[derive(Debug, Default)]
pub(crate) struct Permissions {
    ranges: BTreeMap<u64, AllowedRange>,
    freed: VecDeque<(u64, u64)>,
}

impl Permissions {
    /// Adds a range. It replaces a range with the same start.
    pub(crate) fn allow(&mut self, range: AllowedRange) -> Result<(), AllowError> {
        if range.end <= range.start {
            return Err(AllowError::Shape);
        }
        let before = self.ranges.range(..range.start).next_back().map(|(_, r)| *r).filter(|r| r.end > range.start);
        let inside = self.ranges.range(range.start..range.end).map(|(_, r)| *r).find(|r| r.start != range.start);
        if let Some(other) = before.or(inside) {
            return Err(AllowError::Overlap(other.start));
        }
        self.ranges.insert(range.start, range);
        Ok(())
    }

    /// Removes the range that begins at `start`.
    pub(crate) fn revoke(&mut self, start: u64) -> Option<AllowedRange> {
        let range = self.ranges.remove(&start)?;
        if self.freed.len() == FREED {
            self.freed.pop_front();
        }
        self.freed.push_back((range.start, range.end));
        Some(range)
    }

    /// The range that holds the byte at `address`.
    pub(crate) fn find(&self, address: u64) -> Option<AllowedRange> {
        self.ranges.range(..=address).next_back().map(|(_, range)| *range).filter(|range| address < range.end)
    }

    /// The range that allows an access.
    ///
    /// # Errors
    /// Why no range allows it.
    pub(crate) fn look_up(&self, address: u64, bytes: u64, access: Access) -> Result<AllowedRange, MemoryFault> {
        match self.find(address) {
            Some(range) if !range.covers(address, bytes) => Err(MemoryFault::OutOfBounds),
            Some(range) if access != Access::Load && !range.writable => Err(MemoryFault::ReadOnly),
            Some(range) => Ok(range),
            None if self.freed.iter().any(|(start, end)| (*start..*end).contains(&address)) => Err(MemoryFault::Freed),
            None => Err(MemoryFault::OutOfBounds),
        }
    }

    /// True if a range shares a byte with the addresses from `address` to `address + bytes` of this
    /// process.
    pub(crate) fn touches(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.ranges.values().any(|r| r.start.wrapping_add(r.shift) < end && r.end.wrapping_add(r.shift) > address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Allow { start: u64, bytes: u64, writable: bool },
        Revoke { start: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u64..200, 0u64..40, any::<bool>()).prop_map(|(start, bytes, writable)| Step::Allow { start, bytes, writable }),
            1 => (0u64..200).prop_map(|start| Step::Revoke { start }),
        ];
        proptest::collection::vec(step, 0..60)
    }

    /// For each byte its owner (start and `writable`), and whether it was freed: what the table
    /// must agree with.
    #[derive(Clone)]
    struct Model {
        owner: Vec<Option<(u64, bool)>>,
        freed: Vec<bool>,
    }

    impl Model {
        fn apply(&mut self, step: &Step) -> bool {
            match *step {
                Step::Allow { start, bytes, writable } => {
                    let (from, to) = (start as usize, (start + bytes) as usize);
                    let clean = self.owner[from..to].iter().all(|o| o.is_none_or(|(s, _)| s == start));
                    if bytes == 0 || !clean {
                        return false;
                    }
                    self.clear(start);
                    self.owner[from..to].fill(Some((start, writable)));
                    true
                }
                Step::Revoke { start } => {
                    let found: Vec<usize> = self.clear(start);
                    for at in &found {
                        self.freed[*at] = true;
                    }
                    !found.is_empty()
                }
            }
        }
        fn clear(&mut self, start: u64) -> Vec<usize> {
            let all: Vec<usize> = (0..self.owner.len()).filter(|at| self.owner[*at].is_some_and(|(s, _)| s == start)).collect();
            for at in &all {
                self.owner[*at] = None;
            }
            all
        }
        fn look_up(&self, address: usize, bytes: usize, store: bool) -> Result<(), MemoryFault> {
            match self.owner[address] {
                None if self.freed[address] => Err(MemoryFault::Freed),
                None => Err(MemoryFault::OutOfBounds),
                Some((start, writable)) => {
                    let whole = (address..address + bytes).all(|at| self.owner.get(at).copied().flatten().is_some_and(|(s, _)| s == start));
                    match (whole, store && !writable) {
                        (false, _) => Err(MemoryFault::OutOfBounds),
                        (true, true) => Err(MemoryFault::ReadOnly),
                        (true, false) => Ok(()),
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_one_owner_a_byte(steps in steps()) {
            let mut model = Model { owner: vec![None; 260], freed: vec![false; 260] };
            let mut table = Permissions::default();
            for step in &steps {
                let expected = model.apply(step);
                let got = match *step {
                    Step::Allow { start, bytes, writable } => table.allow(AllowedRange { start, end: start + bytes, writable, shift: 0 }).is_ok(),
                    Step::Revoke { start } => table.revoke(start).is_some(),
                };
                prop_assert_eq!(got, expected, "{:?}", step);
            }
            for address in 0..250usize {
                for bytes in [1usize, 2, 4, 8] {
                    for access in [Access::Load, Access::Store, Access::Atomic] {
                        let got = table.look_up(address as u64, bytes as u64, access).map(|_| ());
                        prop_assert_eq!(got, model.look_up(address, bytes, access != Access::Load), "{} {}", address, bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn one_byte_past_the_end_is_outside_and_lengths_do_not_wrap() {
        let mut table = Permissions::default();
        table.allow(AllowedRange { start: 0x1000, end: 0x1003, writable: true, shift: 0 }).unwrap();
        assert!(table.look_up(0x1002, 1, Access::Store).is_ok());
        assert_eq!(table.look_up(0x1002, 2, Access::Load), Err(MemoryFault::OutOfBounds));
        assert_eq!(table.look_up(0x1000, u64::MAX, Access::Load), Err(MemoryFault::OutOfBounds));
        assert_eq!(table.look_up(u64::MAX, 8, Access::Load), Err(MemoryFault::OutOfBounds));
    }

    #[test]
    fn touches_speaks_of_addresses_in_this_process() {
        let mut table = Permissions::default();
        table.allow(AllowedRange { start: 0x7000, end: 0x8000, writable: true, shift: 0x1000u64.wrapping_sub(0x7000) }).unwrap();
        assert!(table.touches(0x1fff, 1) && table.touches(0, 0x1001));
        assert!(!table.touches(0x2000, 0x1000) && !table.touches(0x7000, 0x1000));
    }
}
