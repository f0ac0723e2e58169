//! The memory that a client may name in copies, sets and value writes: its allocations, its
//! variables, its pinned window, and its registered memory at the client's own addresses. Pure.

use super::ranges::RangeMap;
use crate::driver::CardAddress;

/// How a piece of work accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads the memory.
    Read,
    /// It writes the memory.
    Write,
}

/// How a client's work may access memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// It may read the memory.
    ReadOnly,
    /// It may read and write the memory.
    ReadWrite,
}

impl Permission {
    fn allows(self, access: Access) -> bool {
        self == Permission::ReadWrite || access == Access::Read
    }
}

#[derive(Debug)]
struct Allowed {
    permission: Permission,
    /// The card's address minus the client's, wrapping.
    shift: u64,
}

/// The memory that a client's work may access, by the client's addresses. Ranges do not overlap. An
/// access may cross from one range into the next if both have the same shift.
#[derive(Debug, Default)]
pub(crate) struct Permissions(RangeMap<Allowed>);

impl Permissions {
    /// Allows access to `bytes` from `start`, which the card has at `start + shift` (wrapping).
    /// Returns false, and changes nothing, if the range overlaps another, is empty, or wraps
    /// around.
    pub(crate) fn allow(&mut self, start: u64, bytes: u64, permission: Permission, shift: u64) -> bool {
        self.0.insert(start, bytes, Allowed { permission, shift })
    }

    /// Undoes [`Permissions::allow`] for the range that begins here. Returns false if none does.
    pub(crate) fn revoke(&mut self, start: u64) -> bool {
        self.0.remove(start)
    }

    /// The card's address for `bytes` from `address`, all of which may be accessed in this way.
    ///
    /// # Errors
    /// The first address that may not.
    pub(crate) fn translate(&self, address: u64, bytes: u64, access: Access) -> Result<CardAddress, u64> {
        let end = address.checked_add(bytes).ok_or(address)?;
        let mut at = address;
        let mut shift = None;
        for (range_end, allowed) in self.0.contiguous_from(address) {
            if !allowed.permission.allows(access) || *shift.get_or_insert(allowed.shift) != allowed.shift {
                return Err(at);
            }
            at = range_end;
            if at >= end {
                return Ok(address.wrapping_add(allowed.shift));
            }
        }
        Err(at)
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
                let permission = if writable { Permission::ReadWrite } else { Permission::ReadOnly };
                let free = bytes > 0 && model[start as usize..(start + bytes) as usize].iter().all(Option::is_none);
                prop_assert_eq!(permissions.allow(start, bytes, permission, shift), free);
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
}
