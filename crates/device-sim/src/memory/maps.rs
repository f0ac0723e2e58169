//! Which extents of the card's memory exist, and where they are mapped.
//!
//! An extent counts against the card's memory from [`Mappings::create`], or from its first mapping
//! if a predecessor created it. It counts until its last mapping is removed, or, if it was never
//! mapped, until [`Mappings::forget`]. Only sizes are counted: pages appear when they are touched.
//! What counts against the card counts against the machine's memory, too ([`super::machine`]).

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use cumux_device::DeviceError;
use parking_lot::Mutex;

use super::machine::Budget;
use crate::mapping::Mapping;
use crate::mapping::files::{self, Identity};

/// Granularity of extents and mappings, in bytes.
pub(crate) const GRANULE: u64 = 2 << 20;

/// An extent that counts: its size in bytes, and its mappings.
#[derive(Debug)]
struct CountedExtent {
    bytes: u64,
    mappings: u32,
}

/// A mapping, and the extent of which it is a part; a window has none.
#[derive(Debug)]
struct MappedPart {
    mapping: Arc<Mapping>,
    extent: Option<Identity>,
}

/// What cards of this process have mapped, by address: windows, which the cards of one client
/// share, and extents, which a card may share with others.
static SHARED: Mutex<BTreeMap<u64, (Identity, Weak<Mapping>)>> = Mutex::new(BTreeMap::new());

/// The card's memory, as this process has mapped it.
#[derive(Debug)]
pub(crate) struct Mappings {
    total: u64,
    machine: Arc<Budget>,
    used: u64,
    extents: HashMap<Identity, CountedExtent>,
    /// By address. Windows are here too, without an extent.
    mapped: BTreeMap<u64, MappedPart>,
}

impl Mappings {
    /// A card of `total` bytes on a machine that has `machine`.
    pub(crate) fn new(total: u64, machine: Arc<Budget>) -> Self {
        Mappings { total, machine, used: 0, extents: HashMap::new(), mapped: BTreeMap::new() }
    }

    /// The most bytes of extents that this card can have, beside those that other cards of this
    /// process have.
    pub(crate) fn capacity(&self) -> u64 {
        self.total.min(self.machine.within_reach(self.used))
    }

    /// Takes an extent of `bytes` off both counts.
    fn uncount(&mut self, bytes: u64) {
        self.used -= bytes;
        self.machine.release(bytes);
    }

    /// Creates an extent.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if the card has less free memory, [`DeviceError::Invalid`] if
    /// `bytes` is not a multiple of [`GRANULE`].
    pub(crate) fn create(&mut self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(DeviceError::Invalid(format!("an extent of {bytes} bytes is not a multiple of {GRANULE}")));
        }
        if bytes > self.total - self.used.min(self.total) {
            return Err(DeviceError::OutOfMemory(format!("{bytes} bytes wanted, {} of {} in use", self.used, self.total)));
        }
        self.machine.reserve(bytes)?;
        let made = files::create("cumux-extent", bytes).and_then(|file| files::check(file.as_fd(), 0, bytes).map(|(identity, _)| (file, identity)));
        let (file, identity) = made.inspect_err(|_| self.machine.release(bytes))?;
        self.used += bytes;
        // The inode of an extent that was never mapped and whose file is gone may belong to a new
        // file.
        if let Some(gone) = self.extents.insert(identity, CountedExtent { bytes, mappings: 0 }) {
            self.uncount(gone.bytes);
        }
        Ok(file)
    }

    /// The owner of an extent closes it. A mapped extent counts until it is no longer mapped.
    pub(crate) fn forget(&mut self, extent: BorrowedFd<'_>) {
        if let Ok((identity, _)) = files::check(extent, 0, 0)
            && self.extents.get(&identity).is_some_and(|counted| counted.mappings == 0)
            && let Some(counted) = self.extents.remove(&identity)
        {
            self.uncount(counted.bytes);
        }
    }

    /// Maps a part of an extent at a client's address.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if a number is not a multiple of [`GRANULE`] or the addresses are
    /// in use, [`DeviceError::System`] for a file that is not an extent.
    pub(crate) fn map(&mut self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 || [address, offset, bytes].iter().any(|value| !value.is_multiple_of(GRANULE)) {
            return Err(DeviceError::Invalid(format!("mapping {bytes} bytes from {offset} at {address:#x}: all must be multiples of {GRANULE}")));
        }
        let (identity, size) = files::check(extent, offset, bytes)?;
        self.insert(address, extent, offset, bytes, Some(identity))?;
        if let Some(mapped) = self.mapped.get(&address) {
            SHARED.lock().insert(address, (identity, Arc::downgrade(&mapped.mapping)));
        }
        let counted = self.extents.entry(identity).or_insert_with(|| {
            self.used += size;
            self.machine.inherit(size, files::resident(extent));
            CountedExtent { bytes: size, mappings: 0 }
        });
        counted.mappings += 1;
        Ok(())
    }

    /// Maps a part of another card's extent. It counts against that card's memory alone.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub(crate) fn map_of_another(&mut self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 || [address, offset, bytes].iter().any(|value| !value.is_multiple_of(GRANULE)) {
            return Err(DeviceError::Invalid(format!("mapping {bytes} bytes from {offset} at {address:#x}: all must be multiples of {GRANULE}")));
        }
        let (identity, _) = files::check(extent, offset, bytes)?;
        let known = SHARED.lock().get(&address).filter(|(file, _)| *file == identity).and_then(|(_, mapping)| mapping.upgrade());
        match known.filter(|mapping| mapping.bytes() == bytes && !self.mapped.contains_key(&address)) {
            Some(mapping) => {
                self.mapped.insert(address, MappedPart { mapping, extent: None });
                Ok(())
            }
            None => Err(DeviceError::Invalid(format!("no other card has the {bytes} bytes at {address:#x} of this extent"))),
        }
    }

    /// Maps a client's window at its address. Cards of one process share the mapping.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub(crate) fn map_window(&mut self, address: u64, window: BorrowedFd<'_>, bytes: u64) -> Result<(), DeviceError> {
        let (identity, _) = files::check(window, 0, bytes)?;
        let mut windows = SHARED.lock();
        windows.retain(|_, (_, mapping)| mapping.strong_count() > 0);
        let known = windows.get(&address).filter(|(file, _)| *file == identity).and_then(|(_, mapping)| mapping.upgrade());
        match known.filter(|mapping| mapping.bytes() == bytes && !self.mapped.contains_key(&address)) {
            Some(mapping) => {
                self.mapped.insert(address, MappedPart { mapping, extent: None });
            }
            None => {
                self.insert(address, window, 0, bytes, None)?;
                if let Some(mapped) = self.mapped.get(&address) {
                    windows.insert(address, (identity, Arc::downgrade(&mapped.mapping)));
                }
            }
        }
        Ok(())
    }

    /// Maps a file, which has been checked.
    fn insert(&mut self, address: u64, file: BorrowedFd<'_>, offset: u64, bytes: u64, extent: Option<Identity>) -> Result<(), DeviceError> {
        if address == 0 || address.checked_add(bytes).is_none() || !address.is_multiple_of(4096) || bytes == 0 || !bytes.is_multiple_of(4096) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes cannot be mapped at {address:#x}")));
        }
        let mapping = Arc::new(Mapping::file(address, file, offset, bytes)?);
        self.mapped.insert(address, MappedPart { mapping, extent });
        Ok(())
    }

    /// Removes a mapping of exactly this range.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if there is no such mapping.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        if self.mapped.get(&address).is_none_or(|mapped| mapped.mapping.bytes() != bytes) {
            return Err(DeviceError::Invalid(format!("no mapping of {bytes} bytes begins at {address:#x}")));
        }
        let extent = self.mapped.remove(&address).and_then(|mapped| mapped.extent);
        if let Some(identity) = extent
            && let Some(counted) = self.extents.get_mut(&identity)
        {
            counted.mappings -= 1;
            if counted.mappings == 0
                && let Some(counted) = self.extents.remove(&identity)
            {
                self.uncount(counted.bytes);
            }
        }
        Ok(())
    }

    /// Calls `each` with the mappings that cover a range, in order of their addresses: the mapping,
    /// the offset in it, and the part of the range that lies there.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if a byte of the range is not mapped.
    pub(crate) fn for_each_mapping(&self, address: u64, bytes: u64, mut each: impl FnMut(&Mapping, u64, std::ops::Range<usize>)) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < bytes {
            let at = address.wrapping_add(done);
            let found = self.mapped.range(..=at).next_back().map(|(_, mapped)| &*mapped.mapping).filter(|m| at - m.address() < m.bytes());
            let Some(mapping) = found else {
                return Err(DeviceError::Invalid(format!("address {at:#x} is not mapped")));
            };
            let offset = at - mapping.address();
            let now = (bytes - done).min(mapping.bytes() - offset);
            each(mapping, offset, done as usize..(done + now) as usize);
            done += now;
        }
        Ok(())
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        self.machine.release(self.used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a card on a machine that has enough.
    fn maps(total: u64) -> Mappings {
        Mappings::new(total, Budget::new(Some(u64::MAX)))
    }

    // Tests of one process share its address space. Each test has addresses of its own.
    const BASE: u64 = 0x0800_0000_0000;

    #[test]
    fn an_extent_counts_until_its_last_mapping_is_undone() {
        let mut maps = maps(4 * GRANULE);
        let file = maps.create(3 * GRANULE).unwrap();
        assert!(matches!(maps.create(2 * GRANULE), Err(DeviceError::OutOfMemory(_))));
        maps.map(BASE, file.as_fd(), 0, GRANULE).unwrap();
        maps.map(BASE + 4 * GRANULE, file.as_fd(), GRANULE, GRANULE).unwrap();
        maps.unmap(BASE, GRANULE).unwrap();
        assert!(maps.create(2 * GRANULE).is_err());
        maps.unmap(BASE + 4 * GRANULE, GRANULE).unwrap();
        assert!(maps.create(4 * GRANULE).is_ok());
    }

    #[test]
    fn an_extent_that_was_never_mapped_counts_until_it_is_forgotten() {
        let mut maps = maps(4 * GRANULE);
        let file = maps.create(4 * GRANULE).unwrap();
        assert!(maps.create(GRANULE).is_err());
        maps.forget(file.as_fd());
        maps.forget(file.as_fd());
        let file = maps.create(4 * GRANULE).unwrap();
        maps.map(BASE + 0x6000_0000, file.as_fd(), 0, GRANULE).unwrap();
        maps.forget(file.as_fd());
        assert!(maps.create(GRANULE).is_err(), "it is mapped");
        maps.unmap(BASE + 0x6000_0000, GRANULE).unwrap();
        assert!(maps.create(4 * GRANULE).is_ok());
    }

    #[test]
    fn cards_of_one_process_share_a_clients_window() {
        let (mut first, mut second) = (maps(GRANULE), maps(GRANULE));
        let (window, other) = (files::create("window", GRANULE).unwrap(), files::create("window", GRANULE).unwrap());
        let at = BASE + 0x8000_0000;
        first.map_window(at, window.as_fd(), GRANULE).unwrap();
        second.map_window(at, window.as_fd(), GRANULE).unwrap();
        assert!(first.map_window(at, window.as_fd(), GRANULE).is_err(), "once a card");
        assert!(maps(GRANULE).map_window(at, other.as_fd(), GRANULE).is_err(), "another file is no such window");
        first.unmap(at, GRANULE).unwrap();
        second.for_each_mapping(at, 8, |mapping, offset, _| assert!(mapping.write(offset, &[1; 8]))).unwrap();
        second.unmap(at, GRANULE).unwrap();
        maps(GRANULE).map_window(at, other.as_fd(), GRANULE).unwrap();
    }

    #[test]
    fn memory_of_another_card_is_seen_and_counts_there_alone() {
        let (mut owner, mut other) = (maps(2 * GRANULE), maps(2 * GRANULE));
        let file = owner.create(2 * GRANULE).unwrap();
        let at = BASE + 0x5000_0000;
        owner.map(at, file.as_fd(), 0, 2 * GRANULE).unwrap();
        assert!(other.map_of_another(at + GRANULE, file.as_fd(), 0, GRANULE).is_err(), "as it is mapped there, or not at all");
        other.map_of_another(at, file.as_fd(), 0, 2 * GRANULE).unwrap();
        owner.for_each_mapping(at + 5, 1, |mapping, offset, _| assert!(mapping.write(offset, &[7]))).unwrap();
        let mut seen = [0];
        other
            .for_each_mapping(at + 5, 1, |mapping, offset, _| {
                mapping.read(offset, &mut seen);
            })
            .unwrap();
        assert_eq!(seen, [7]);
        assert!(other.create(2 * GRANULE).is_ok() && owner.create(GRANULE).is_err());
        other.unmap(at, 2 * GRANULE).unwrap();
        owner.unmap(at, 2 * GRANULE).unwrap();
    }

    #[test]
    fn a_predecessors_extent_counts_from_its_first_mapping() {
        let (mut first, mut second) = (maps(8 * GRANULE), maps(8 * GRANULE));
        let file = first.create(6 * GRANULE).unwrap();
        second.map(BASE + 0x1000_0000, file.as_fd(), 0, GRANULE).unwrap();
        assert!(second.create(3 * GRANULE).is_err());
        assert!(second.create(2 * GRANULE).is_ok());
    }

    #[test]
    fn mappings_exclude_each_other_and_are_undone_exactly() {
        let mut maps = maps(8 * GRANULE);
        let file = maps.create(2 * GRANULE).unwrap();
        let at = BASE + 0x2000_0000;
        maps.map(at, file.as_fd(), 0, 2 * GRANULE).unwrap();
        assert!(matches!(maps.map(at + GRANULE, file.as_fd(), 0, GRANULE), Err(DeviceError::Invalid(_))));
        assert!(maps.unmap(at, GRANULE).is_err() && maps.unmap(at + GRANULE, GRANULE).is_err());
        assert!(maps.map(at + 1, file.as_fd(), 0, GRANULE).is_err());
        assert!(maps.map(at + 4 * GRANULE, file.as_fd(), GRANULE, 2 * GRANULE).is_err(), "past the end of the file");
        maps.unmap(at, 2 * GRANULE).unwrap();
        maps.map(at + GRANULE, file.as_fd(), 0, GRANULE).unwrap();
    }

    #[test]
    fn walking_crosses_mappings_and_stops_at_holes() {
        let mut maps = maps(8 * GRANULE);
        let file = maps.create(3 * GRANULE).unwrap();
        let at = BASE + 0x4000_0000;
        maps.map(at, file.as_fd(), 0, GRANULE).unwrap();
        maps.map(at + GRANULE, file.as_fd(), 2 * GRANULE, GRANULE).unwrap();
        let mut parts = Vec::new();
        maps.for_each_mapping(at + GRANULE - 8, 24, |mapping, offset, part| parts.push((mapping.address(), offset, part))).unwrap();
        assert_eq!(parts, vec![(at, GRANULE - 8, 0..8), (at + GRANULE, 0, 8..24)]);
        assert!(maps.for_each_mapping(at + 2 * GRANULE - 8, 24, |_, _, _| {}).is_err());
    }

    #[test]
    fn cards_of_one_machine_share_its_memory() {
        let machine = Budget::new(Some(5 * GRANULE));
        let (mut first, mut second) = (Mappings::new(4 * GRANULE, machine.clone()), Mappings::new(4 * GRANULE, machine.clone()));
        let file = first.create(3 * GRANULE).unwrap();
        assert_eq!((first.capacity(), second.capacity()), (4 * GRANULE, 2 * GRANULE));
        let refused = second.create(3 * GRANULE).unwrap_err();
        assert!(matches!(&refused, DeviceError::OutOfMemory(text) if text.contains("CUMUX_SIM_MEMORY_BYTES")), "{refused}");
        // A successor takes over what there is, and no more can be had.
        second.map(BASE + 0xa000_0000, file.as_fd(), 0, 3 * GRANULE).unwrap();
        assert!(second.create(GRANULE).is_err());
        drop(first);
        second.create(GRANULE).unwrap();
        second.unmap(BASE + 0xa000_0000, 3 * GRANULE).unwrap();
        assert_eq!(second.capacity(), 4 * GRANULE);
    }
}
