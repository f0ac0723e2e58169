//! Extents of clients of another executor, mapped before they are needed.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use super::maps::Mappings;

/// An extent that is mapped ahead.
#[derive(Debug)]
struct ExpectedExtent {
    bytes: u64,
    /// No other extent ever had this name at this address.
    name: u64,
}

/// What is mapped ahead, by address.
#[derive(Debug, Default)]
pub(crate) struct ExpectedExtents(BTreeMap<u64, ExpectedExtent>);

impl ExpectedExtents {
    /// True if this extent is mapped ahead.
    pub(crate) fn knows(&self, name: u64, address: u64, bytes: u64) -> bool {
        self.0.get(&address).is_some_and(|known| known.name == name && known.bytes == bytes)
    }

    /// Maps an extent ahead. What was mapped ahead there goes. False if something else is there.
    pub(crate) fn map(&mut self, maps: &mut Mappings, name: u64, address: u64, extent: BorrowedFd<'_>, bytes: u64) -> bool {
        self.forget(maps, |start, length| start < address.saturating_add(bytes) && address < start + length);
        let is_mapped = maps.map(address, extent, 0, bytes).is_ok();
        if is_mapped {
            self.0.insert(address, ExpectedExtent { bytes, name });
        }
        is_mapped
    }

    /// An extent that was mapped ahead is one like all others from now on. False if it was not.
    pub(crate) fn adopt(&mut self, name: u64, address: u64, bytes: u64) -> bool {
        self.knows(name, address, bytes) && self.0.remove(&address).is_some()
    }

    /// Unmaps what was mapped ahead, as far as `is_forgotten` says so of address and bytes.
    pub(crate) fn forget(&mut self, maps: &mut Mappings, is_forgotten: impl Fn(u64, u64) -> bool) {
        for (address, gone) in self.0.extract_if(.., |address, extent| is_forgotten(*address, extent.bytes)) {
            if let Err(error) = maps.unmap(address, gone.bytes) {
                tracing::warn!("{} bytes that were mapped ahead at {address:#x} are not unmapped: {error}", gone.bytes);
            }
        }
    }
}
