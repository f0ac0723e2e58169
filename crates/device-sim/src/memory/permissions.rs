//! Which bytes a client may touch: its allocations, its window, its registered host memory.
//!
//! Pure bookkeeping on top of [`cumux_ranges::Permissions`]; each range says where its bytes lie in
//! this process. An access must lie in one range, as it must lie in one allocation on a card that
//! checks. The last [`FREED`] freed ranges are remembered, so that a fault can say that the memory
//! was freed.

use std::collections::VecDeque;

use cumux_ranges::{AllowError, AllowedRange};

use cumux_wire::layout::in_arena;

use super::maps::GRANULE;
use crate::exec::interface::{Access, MemoryFault};

/// Freed ranges that are remembered.
const FREED: usize = 1024;

/// The ranges of one client.
#[derive(Debug, Default)]
pub(crate) struct Permissions {
    ranges: cumux_ranges::Permissions,
    freed: VecDeque<(u64, u64)>,
}

impl Permissions {
    /// Adds a range. It replaces a range with the same start.
    pub(crate) fn allow(&mut self, range: AllowedRange) -> Result<(), AllowError> {
        let replaced = self.ranges.revoke(range.start);
        self.ranges.allow(range).inspect_err(|_| {
            if let Some(replaced) = replaced {
                let _ = self.ranges.allow(replaced);
            }
        })
    }

    /// Removes the range that begins at `start`.
    pub(crate) fn revoke(&mut self, start: u64) -> Option<AllowedRange> {
        let range = self.ranges.revoke(start)?;
        if self.freed.len() == FREED {
            self.freed.pop_front();
        }
        self.freed.push_back((range.start, range.end));
        Some(range)
    }

    /// The range that holds the byte at `address`.
    pub(crate) fn find(&self, address: u64) -> Option<AllowedRange> {
        self.ranges.find(address)
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

    /// The bytes of an access, if each granule of device memory that it touches has bytes of a
    /// range that allows it: what a card checks, which has pages of this size. Extents are
    /// granules, are one client's alone, and are mapped whole as long as a range lies in them.
    pub(crate) fn look_up_rounded(&self, address: u64, bytes: u64, access: Access) -> Option<AllowedRange> {
        let end = address.checked_add(bytes)?;
        if !in_arena(address) || !in_arena(end) {
            return None;
        }
        let mut granule = address / GRANULE * GRANULE;
        while granule < end {
            let range = self.ranges.overlapping(granule, granule + GRANULE)?;
            if range.shift != 0 || !in_arena(range.start) || access != Access::Load && !range.writable {
                return None;
            }
            granule += GRANULE;
        }
        Some(AllowedRange { start: address, end, writable: access != Access::Load, shift: 0 })
    }

    /// True if a range shares a byte with the addresses from `address` to `address + bytes` of this
    /// process.
    pub(crate) fn touches(&self, address: u64, bytes: u64) -> bool {
        self.ranges.touches(address, bytes)
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
    fn rounded_bounds_are_those_of_granules_with_memory_of_the_client() {
        let start = cumux_wire::layout::ARENA_BASE + 8 * GRANULE;
        let mut table = Permissions::default();
        table.allow(AllowedRange { start: start + 512, end: start + 600, writable: true, shift: 0 }).unwrap();
        table.allow(AllowedRange { start: start + 2 * GRANULE - 512, end: start + 2 * GRANULE, writable: false, shift: 0 }).unwrap();
        let rounded = |table: &Permissions, address, bytes, access| table.look_up_rounded(address, bytes, access).is_some();
        // Before, behind, and across to the next granule, which may only be read.
        assert!(rounded(&table, start, 8, Access::Store) && rounded(&table, start + GRANULE - 8, 8, Access::Atomic));
        assert!(rounded(&table, start + GRANULE - 8, 16, Access::Load) && !rounded(&table, start + GRANULE - 8, 16, Access::Store));
        assert!(rounded(&table, start + GRANULE, 4, Access::Load) && !rounded(&table, start + GRANULE, 4, Access::Store));
        for address in [start - 8, start + 2 * GRANULE, 0, u64::MAX - 4] {
            assert!(!rounded(&table, address, 8, Access::Load), "{address:#x}");
        }
        // What is freed is gone with its granule.
        table.revoke(start + 512).unwrap();
        assert!(!rounded(&table, start, 8, Access::Load));
        // Host memory has its own addresses, and no granules.
        table.allow(AllowedRange { start: 0x7000_0000, end: 0x7000_0100, writable: true, shift: 0 }).unwrap();
        assert!(!rounded(&table, 0x7000_0100, 8, Access::Load));
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
}
