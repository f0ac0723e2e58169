//! The memory that a client may name: its allocations, its variables, its window, and its
//! registered memory at the client's own addresses.

use crate::map::RangeMap;

/// How a piece of work accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads the memory.
    Read,
    /// It writes the memory.
    Write,
}

/// Memory that a client may touch: its addresses from `start` up to `end`, which is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllowedRange {
    /// The client's first address.
    pub start: u64,
    /// One past the client's last address.
    pub end: u64,
    /// Whether it may be written; it may be read in any case.
    pub writable: bool,
    /// Added (wrapping) to an address of the client, it gives the address of the memory itself.
    pub shift: u64,
}

impl AllowedRange {
    /// `bytes` bytes from `start`.
    #[must_use]
    pub fn new(start: u64, bytes: u64, writable: bool, shift: u64) -> Self {
        Self { start, end: start.wrapping_add(bytes), writable, shift }
    }

    /// True if all bytes from `address` to `address + bytes` are inside.
    #[inline(always)]
    #[must_use]
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        address >= self.start && address < self.end && bytes <= self.end - address
    }
}

/// Why a range cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// It has no bytes, or its end is not an address.
    #[error("the range is empty or wraps around the address space")]
    Shape,
    /// The first address of the range that is in the way.
    #[error("it overlaps another allocation of the client at {0:#x}")]
    Overlap(u64),
}

#[derive(Debug, Clone, Copy)]
struct Allowed {
    writable: bool,
    shift: u64,
}

/// The memory that a client's work may access, by the client's addresses. Ranges do not overlap.
#[derive(Debug, Default)]
pub struct Permissions(RangeMap<Allowed>);

fn range(start: u64, end: u64, allowed: Allowed) -> AllowedRange {
    AllowedRange { start, end, writable: allowed.writable, shift: allowed.shift }
}

impl Permissions {
    /// Adds a range.
    ///
    /// # Errors
    /// The range is empty, wraps around, or overlaps another. Nothing is changed then.
    pub fn allow(&mut self, range: AllowedRange) -> Result<(), AllowError> {
        if range.end <= range.start {
            return Err(AllowError::Shape);
        }
        if let Some(other) = self.0.first_overlapping(range.start, range.end) {
            return Err(AllowError::Overlap(other));
        }
        self.0.insert(range.start, range.end - range.start, Allowed { writable: range.writable, shift: range.shift });
        Ok(())
    }

    /// Removes the range that begins at `start`.
    pub fn revoke(&mut self, start: u64) -> Option<AllowedRange> {
        self.0.remove(start).map(|(end, allowed)| range(start, end, allowed))
    }

    /// The range that holds the byte at `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<AllowedRange> {
        self.0.containing(address).map(|(start, end, allowed)| range(start, end, *allowed))
    }

    /// A range that has bytes from `start` up to `end`, which is not included.
    #[must_use]
    pub fn overlapping(&self, start: u64, end: u64) -> Option<AllowedRange> {
        self.0.first_overlapping(start, end).and_then(|first| self.find(first.max(start)))
    }

    /// Where `bytes` from `address` lie, all of which may be accessed in this way. The bytes may
    /// cross from one range into the next if both have the same shift.
    ///
    /// # Errors
    /// The first address that may not be accessed.
    pub fn translate(&self, address: u64, bytes: u64, access: Access) -> Result<u64, u64> {
        let end = address.checked_add(bytes).ok_or(address)?;
        let mut at = address;
        let mut shift = None;
        for (range_end, allowed) in self.0.contiguous_from(address) {
            let permitted = allowed.writable || access == Access::Read;
            if !permitted || *shift.get_or_insert(allowed.shift) != allowed.shift {
                return Err(at);
            }
            at = range_end;
            if at >= end {
                return Ok(address.wrapping_add(allowed.shift));
            }
        }
        Err(at)
    }

    /// True if memory of a range lies in the `bytes` bytes from `address`, which is an address of
    /// the memory itself and not the client's.
    #[must_use]
    pub fn touches(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.0.values().any(|(first, last, allowed)| first.wrapping_add(allowed.shift) < end && last.wrapping_add(allowed.shift) > address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a model that has one entry for each byte.
        #[test]
        fn a_span_is_allowed_where_each_byte_is(adds in proptest::collection::vec((0_u64..200, 0_u64..40, any::<bool>(), 0_u64..2), 0..20), spans in proptest::collection::vec((0_u64..240, 1_u64..60, any::<bool>()), 1..40)) {
            let mut permissions = Permissions::default();
            let mut model: Vec<Option<(bool, u64)>> = vec![None; 400];
            for (start, bytes, writable, shift) in adds {
                let shift = shift * 1000;
                let free = bytes > 0 && model[start as usize..(start + bytes) as usize].iter().all(Option::is_none);
                prop_assert_eq!(permissions.allow(AllowedRange::new(start, bytes, writable, shift)).is_ok(), free);
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
                let access = if write { Access::Write } else { Access::Read };
                prop_assert_eq!(permissions.translate(start, bytes, access), bad.map_or_else(|| Ok(start + first.map_or(0, |f| f.1)), Err));
            }
        }
    }

    #[test]
    fn a_refused_range_names_the_first_that_is_in_its_way() {
        let mut permissions = Permissions::default();
        let range = |start, bytes| AllowedRange::new(start, bytes, true, 0);
        permissions.allow(range(0x100, 0x10)).unwrap();
        permissions.allow(range(0x200, 0x10)).unwrap();
        assert_eq!(permissions.allow(range(0x108, 0x200)), Err(AllowError::Overlap(0x100)));
        assert_eq!(permissions.allow(range(0x110, 0x200)), Err(AllowError::Overlap(0x200)));
        assert_eq!((permissions.allow(range(0x300, 0)), permissions.allow(range(u64::MAX, 2))), (Err(AllowError::Shape), Err(AllowError::Shape)));
        assert_eq!(permissions.revoke(0x100), Some(range(0x100, 0x10)));
        assert_eq!((permissions.revoke(0x100), permissions.find(0x20f), permissions.find(0x210)), (None, Some(range(0x200, 0x10)), None));
    }

    #[test]
    fn touches_speaks_of_shifted_addresses() {
        let mut permissions = Permissions::default();
        permissions.allow(AllowedRange::new(0x7000, 0x1000, true, 0x1000_u64.wrapping_sub(0x7000))).unwrap();
        assert!(permissions.touches(0x1fff, 1) && permissions.touches(0, 0x1001));
        assert!(!permissions.touches(0x2000, 0x1000) && !permissions.touches(0x7000, 0x1000));
    }
}
