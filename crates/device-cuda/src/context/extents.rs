//! Device memory: extents behind descriptors, mapped at fixed addresses of the arena.
//!
//! Address space is reserved from the driver in pieces of [`RESERVATION`] bytes, when something is
//! first mapped in a piece. Addresses belong to the process, so its cards share the reservations. A
//! reservation that does not lie where it was asked for is an error.
//!
//! Where clients map memory of the host, the driver may have reserved nothing. There a piece is
//! given back as soon as nothing of the card is mapped in it.
//!
//! What is scrubbed, read and written outside of clients' streams goes through the
//! [`SideStream`].

use super::side_stream::{OnStuck, SideStream};
use crate::driver::{ArrayCopy, CardAddress, Driver, MemorySet};
use crate::fault::{CudaError, remedy};
use cumux_device::DeviceError;
use cumux_ranges::RangeMap;
use cumux_wire::layout::{ARENA_BASE, ARENA_BYTES, HOST_RANGE, in_host_ranges};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of address space in one reservation.
const RESERVATION: u64 = HOST_RANGE;
/// Bytes of one element when memory is scrubbed. A granule is a multiple of it.
const SCRUB_ELEMENT: u32 = 4;

/// The reservations of this process by their first address, with the number of cards that use each.
/// Lock 9 of the crate's order; the driver is called under it.
static RESERVATIONS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Where memory of the host is mapped in the arena, or not released yet. Lock 9 of the crate's
/// order: whoever holds it takes no other.
#[derive(Default)]
pub(crate) struct HostMappings(Mutex<RangeMap<()>>);

impl HostMappings {
    /// True if there is none in these bytes.
    pub(crate) fn spare(&self, address: CardAddress, bytes: u64) -> bool {
        self.0.lock().overlapping(address, address.saturating_add(bytes)).is_none()
    }

    /// One is about to be made. False if there is one.
    fn begin(&self, address: CardAddress, bytes: u64) -> bool {
        let mut all = self.0.lock();
        let is_free = all.overlapping(address, address.saturating_add(bytes)).is_none();
        if is_free {
            all.insert(address, bytes, ());
        }
        is_free
    }

    /// One is released.
    pub(crate) fn end(&self, address: CardAddress) {
        self.0.lock().remove(address);
    }
}

/// An extent that is mapped before it is needed.
struct ExpectedExtent {
    bytes: u64,
    /// No other extent ever had this name at this address.
    name: u64,
}

#[derive(Default)]
struct Maps {
    mapped: RangeMap<()>,
    /// Mapped ahead, by address; disjoint from `mapped`.
    expected: BTreeMap<u64, ExpectedExtent>,
    /// The first address of each reservation that this card uses.
    reserved: BTreeSet<u64>,
}

/// The kind of memory that is read or written outside of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// An extent. It must be mapped.
    Extent,
    /// A module's variable. It lies where the driver put it.
    Variable,
}

/// The extents of a card.
///
/// The driver is called under `maps` (lock 8).
pub(crate) struct Extents {
    driver: Arc<Driver>,
    granule: u64,
    maps: Mutex<Maps>,
    /// For scrubbing, reading and writing outside of clients' streams.
    side_stream: SideStream,
    hosts: Arc<HostMappings>,
    /// A granule from which arrays are scrubbed, once there is an array. Lock 8 of the crate's
    /// order, held alone.
    zeros: Mutex<Option<CardAddress>>,
}

/// The error for a call of the driver that failed with `error`. `what` names what was attempted.
pub(super) fn failure(driver: &Driver, what: &str, error: CudaError) -> DeviceError {
    let text = format!("{what}: {}", driver.describe_numbered(error));
    match error {
        CudaError::OUT_OF_MEMORY => DeviceError::OutOfMemory(text),
        CudaError::INVALID_VALUE => DeviceError::Invalid(text),
        CudaError::NOT_SUPPORTED => DeviceError::NotSupported(text),
        _ => remedy::refused_call(error, text, DeviceError::System),
    }
}

impl Extents {
    /// A card's memory without extents.
    ///
    /// # Errors
    /// The driver's error, as a sentence.
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Extents, DeviceError> {
        let granule = driver.granule().map_err(|error| failure(driver, "the granularity of device memory", error))?;
        let side_stream = SideStream::new(driver).map_err(|error| failure(driver, "a stream", error))?;
        Ok(Extents { driver: driver.clone(), granule, maps: Mutex::default(), side_stream, hosts: Arc::default(), zeros: Mutex::default() })
    }

    /// Sets what is done when something outside of clients' streams has not ended after this time.
    pub(crate) fn set_on_stuck(&self, patience: Duration, act: OnStuck) {
        self.side_stream.set_on_stuck(patience, act);
    }

    /// True if the context still works.
    pub(crate) fn context_works(&self) -> bool {
        self.side_stream.context_works()
    }

    /// Granularity of extents and mappings in bytes.
    pub(crate) fn granule(&self) -> u64 {
        self.granule
    }

    /// Creates an extent, not mapped. It is scrubbed, because memory from the driver may still hold
    /// an earlier owner's data.
    ///
    /// # Errors
    /// A sentence: `bytes` is no multiple of the granule, or there is no memory.
    pub(crate) fn create(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        if bytes == 0 || !bytes.is_multiple_of(self.granule) {
            return Err(DeviceError::Invalid(format!("an extent of {bytes} bytes: it must be a multiple of {}", self.granule)));
        }
        let fail = |error| failure(&self.driver, &format!("{bytes} bytes of device memory"), error);
        let memory = self.driver.create_memory(bytes).map_err(fail)?;
        let scratch = self.driver.reserve_addresses(0, bytes).map_err(fail)?;
        let zeros = MemorySet { target: scratch, pitch: 0, value: 0, element: SCRUB_ELEMENT, width: bytes / u64::from(SCRUB_ELEMENT), height: 1 };
        let scrubbed = self.driver.map(scratch, memory.as_fd(), 0, bytes).and_then(|()| {
            let set = self.side_stream.run(|stream| self.driver.set_memory(&zeros, stream));
            let unmapped = self.driver.unmap(scratch, bytes);
            set.and(unmapped)
        });
        self.driver.free_addresses(scratch, bytes);
        scrubbed.map_err(fail)?;
        Ok(memory)
    }

    /// Where memory of the host is mapped.
    pub(crate) fn hosts(&self) -> &Arc<HostMappings> {
        &self.hosts
    }

    /// Memory of the host is about to be mapped at addresses that a client has reserved for it.
    ///
    /// # Errors
    /// A sentence: the addresses are not for that, or memory of the card is mapped beside it.
    pub(crate) fn begin_host_mapping(&self, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        let maps = self.maps.lock();
        let last = address.saturating_add(bytes - 1);
        if !in_host_ranges(address) || !in_host_ranges(last) {
            return Err(DeviceError::NotSupported(format!("memory of the host at {address:#x}: such addresses are reserved apart")));
        }
        if maps.reserved.range(address / RESERVATION * RESERVATION..=last).next().is_some() {
            return Err(DeviceError::NotSupported("memory of the card and of the host in one reservation of addresses".into()));
        }
        if !self.hosts.begin(address, bytes) {
            return Err(DeviceError::Invalid(format!("memory of the host at {address:#x} is not released yet")));
        }
        Ok(())
    }

    /// Gives back the pieces around these bytes in which nothing is mapped any more, where memory
    /// of the host may come next.
    fn release(&self, maps: &mut Maps, address: CardAddress, bytes: u64) {
        let mut piece = address / RESERVATION * RESERVATION;
        while piece < address + bytes && in_host_ranges(piece) {
            let is_used = maps.mapped.overlapping(piece, piece + RESERVATION).is_some() || maps.expected.range(piece..piece + RESERVATION).next().is_some();
            if !is_used && maps.reserved.remove(&piece) {
                self.free_piece(piece);
            }
            piece += RESERVATION;
        }
    }

    /// Gives a reservation back, unless another card of this process uses it.
    fn free_piece(&self, piece: CardAddress) {
        let mut reservations = RESERVATIONS.lock();
        let Some(cards) = reservations.get_mut(&piece) else { return };
        *cards -= 1;
        if *cards == 0 {
            reservations.remove(&piece);
            self.driver.free_addresses(piece, RESERVATION);
        }
    }

    /// Reserves the pieces around these bytes that are not reserved yet.
    fn reserve(&self, maps: &mut Maps, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        let mut piece = address / RESERVATION * RESERVATION;
        if in_host_ranges(address) && !self.hosts.spare(piece, address + bytes - piece) {
            return Err(DeviceError::NotSupported("memory of the card and of the host in one reservation of addresses".into()));
        }
        while piece < address + bytes {
            if !maps.reserved.contains(&piece) {
                self.reserve_piece(piece)?;
                maps.reserved.insert(piece);
            }
            piece += RESERVATION;
        }
        Ok(())
    }

    /// Reserves a piece, unless another card of this process has.
    fn reserve_piece(&self, piece: CardAddress) -> Result<(), DeviceError> {
        let mut reservations = RESERVATIONS.lock();
        if let Some(cards) = reservations.get_mut(&piece) {
            *cards += 1;
            return Ok(());
        }
        let got = self.driver.reserve_addresses(piece, RESERVATION).map_err(|error| failure(&self.driver, &format!("address space at {piece:#x}"), error))?;
        if got != piece {
            self.driver.free_addresses(got, RESERVATION);
            return Err(DeviceError::System(format!("the address space at {piece:#x} is taken in this process: nothing else may be mapped in the arena")));
        }
        reservations.insert(piece, 1);
        Ok(())
    }

    /// Maps `bytes` of an extent from `offset` at `address`. What was mapped ahead there goes.
    ///
    /// # Errors
    /// A sentence: the range is not in the arena or not in granules, something is mapped there, or
    /// the driver refuses.
    pub(crate) fn map(&self, address: CardAddress, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut maps = self.maps.lock();
        self.map_free(&mut maps, address, extent, offset, bytes)?;
        maps.mapped.insert(address, bytes, ());
        Ok(())
    }

    /// Maps where nothing is mapped but what was mapped ahead.
    fn map_free(&self, maps: &mut Maps, address: CardAddress, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let aligned = [address, offset, bytes].iter().all(|n| n.is_multiple_of(self.granule)) && bytes > 0;
        let end = address.checked_add(bytes).filter(|end| address >= ARENA_BASE && *end <= ARENA_BASE + ARENA_BYTES && aligned);
        let Some(end) = end else {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {address:#x} (offset {offset}) are no granules of {} in the arena", self.granule)));
        };
        if let Some((start, length)) = maps.mapped.overlapping(address, end) {
            return Err(DeviceError::Invalid(format!("{length} bytes are mapped at {start:#x} already")));
        }
        self.forget(maps, |start, length| start < end && address < start + length);
        self.reserve(maps, address, bytes)?;
        self.driver
            .map(address, extent, offset, bytes)
            .map_err(|error| failure(&self.driver, &format!("mapping {bytes} bytes (offset {offset}) at {address:#x}"), error))
    }

    /// Unmaps what was mapped ahead, as far as `is_forgotten` says so of address and bytes.
    fn forget(&self, maps: &mut Maps, is_forgotten: impl Fn(u64, u64) -> bool) {
        for (address, gone) in maps.expected.extract_if(.., |address, extent| is_forgotten(*address, extent.bytes)) {
            if let Err(error) = self.driver.unmap(address, gone.bytes) {
                tracing::warn!("{} bytes that were mapped ahead at {address:#x} are not unmapped: {}", gone.bytes, self.driver.describe_numbered(error));
            }
        }
    }

    /// Maps a whole extent ahead. False if something is mapped there.
    ///
    /// # Errors
    /// As [`Extents::map`].
    pub(crate) fn expect(&self, name: u64, address: CardAddress, extent: BorrowedFd<'_>, bytes: u64) -> Result<bool, DeviceError> {
        let mut maps = self.maps.lock();
        let is_known = maps.expected.get(&address).is_some_and(|known| known.name == name && known.bytes == bytes);
        if is_known || maps.mapped.overlapping(address, address.saturating_add(bytes)).is_some() {
            return Ok(is_known);
        }
        self.map_free(&mut maps, address, extent, 0, bytes)?;
        maps.expected.insert(address, ExpectedExtent { bytes, name });
        Ok(true)
    }

    /// Makes an extent that was mapped ahead one that is mapped. False if it was not.
    pub(crate) fn adopt(&self, name: u64, address: CardAddress, bytes: u64) -> bool {
        let mut maps = self.maps.lock();
        if maps.expected.get(&address).is_none_or(|known| known.name != name || known.bytes != bytes) {
            return false;
        }
        maps.expected.remove(&address);
        maps.mapped.insert(address, bytes, ());
        true
    }

    /// Unmaps what was mapped ahead at these addresses.
    pub(crate) fn forget_expected(&self, is_forgotten: &dyn Fn(u64) -> bool) {
        self.forget(&mut self.maps.lock(), |address, _| is_forgotten(address));
    }

    /// Undoes [`Extents::map`] for exactly these bytes.
    ///
    /// # Errors
    /// A sentence: there is no such mapping, or the driver refuses.
    pub(crate) fn unmap(&self, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        let mut maps = self.maps.lock();
        if maps.mapped.bytes_at(address) != Some(bytes) {
            return Err(DeviceError::Invalid(format!("no mapping of exactly {bytes} bytes at {address:#x}")));
        }
        self.driver.unmap(address, bytes).map_err(|error| failure(&self.driver, &format!("unmapping {address:#x}"), error))?;
        maps.mapped.remove(address);
        self.release(&mut maps, address, bytes);
        Ok(())
    }

    /// Lets this card reach what another card of this process has mapped at `address`, or not any
    /// more.
    ///
    /// # Errors
    /// The driver's, as a sentence.
    pub(crate) fn set_peer_access(&self, address: CardAddress, bytes: u64, allowed: bool) -> Result<(), DeviceError> {
        self.driver
            .set_peer_access(address, bytes, allowed)
            .map_err(|error| failure(&self.driver, &format!("access to {bytes} bytes of another card at {address:#x}"), error))
    }

    fn require_mapped(&self, address: CardAddress, bytes: u64, kind: MemoryKind) -> Result<(), DeviceError> {
        if kind == MemoryKind::Variable || self.maps.lock().mapped.covers(address, bytes) {
            return Ok(());
        }
        Err(DeviceError::Invalid(format!("{bytes} bytes at {address:#x} are not mapped")))
    }

    /// Reads memory outside of clients' streams.
    ///
    /// # Errors
    /// A sentence: the memory is not mapped, or the driver refuses.
    pub(crate) fn read(&self, address: CardAddress, into: &mut [u8], kind: MemoryKind) -> Result<(), DeviceError> {
        self.require_mapped(address, into.len() as u64, kind)?;
        if into.is_empty() {
            return Ok(());
        }
        let read = self.side_stream.read(address, into);
        read.map_err(|error| failure(&self.driver, &format!("reading {address:#x}"), error))
    }

    /// Writes memory outside of clients' streams.
    ///
    /// # Errors
    /// A sentence: the memory is not mapped, or the driver refuses.
    pub(crate) fn write(&self, address: CardAddress, bytes: &[u8], kind: MemoryKind) -> Result<(), DeviceError> {
        self.require_mapped(address, bytes.len() as u64, kind)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.side_stream.write(address, bytes);
        written.map_err(|error| failure(&self.driver, &format!("writing {address:#x}"), error))
    }
}

impl Extents {
    /// Sets memory to zero, outside of clients' streams.
    ///
    /// # Errors
    /// A sentence: the memory is not mapped, or the driver refuses.
    pub(crate) fn clear(&self, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        self.require_mapped(address, bytes, MemoryKind::Extent)?;
        if bytes == 0 {
            return Ok(());
        }
        let zeros = MemorySet { target: address, pitch: 0, value: 0, element: 1, width: bytes, height: 1 };
        let set = self.side_stream.run(|stream| self.driver.set_memory(&zeros, stream));
        set.map_err(|error| failure(&self.driver, &format!("clearing {address:#x}"), error))
    }

    /// Copies memory of the card, outside of clients' streams. The two may not overlap, and either
    /// may be a variable that the driver has placed.
    ///
    /// # Errors
    /// The driver's, as a sentence.
    pub(crate) fn copy(&self, target: CardAddress, source: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let copied = self.side_stream.run(|stream| self.driver.copy_row(target, source, bytes, stream));
        copied.map_err(|error| failure(&self.driver, &format!("copying {source:#x} to {target:#x}"), error))
    }

    /// Copies zeros into arrays, outside of clients' streams. `copies` gets the address of a
    /// granule of zeros.
    ///
    /// # Errors
    /// A sentence: there is no memory for the zeros, or the driver refuses.
    pub(crate) fn copy_zeros(&self, copies: impl FnOnce(CardAddress) -> Vec<ArrayCopy>) -> Result<(), DeviceError> {
        let zeros = self.find_zeros()?;
        // A kernel that goes astray may have written there.
        let set = MemorySet { target: zeros, pitch: 0, value: 0, element: SCRUB_ELEMENT, width: self.granule / u64::from(SCRUB_ELEMENT), height: 1 };
        let copied = self.side_stream.run(|stream| {
            self.driver.set_memory(&set, stream)?;
            copies(zeros).iter().try_for_each(|copy| self.driver.copy_array(copy, stream))
        });
        copied.map_err(|error| failure(&self.driver, "scrubbing an array", error))
    }

    /// Finds the granule of zeros, or maps it.
    fn find_zeros(&self) -> Result<CardAddress, DeviceError> {
        if let Some(zeros) = *self.zeros.lock() {
            return Ok(zeros);
        }
        let fail = |error| failure(&self.driver, "memory to scrub arrays from", error);
        let memory = self.create(self.granule)?;
        let address = self.driver.reserve_addresses(0, self.granule).map_err(fail)?;
        if let Err(error) = self.driver.map(address, memory.as_fd(), 0, self.granule) {
            self.driver.free_addresses(address, self.granule);
            return Err(fail(error));
        }
        let first = *self.zeros.lock().get_or_insert(address);
        if first != address {
            // Another thread was faster.
            self.unmap_zeros(address);
        }
        Ok(first)
    }

    fn unmap_zeros(&self, address: CardAddress) {
        let _ = self.driver.unmap(address, self.granule);
        self.driver.free_addresses(address, self.granule);
    }

    /// The error for a call of the driver that failed. `what` names what was attempted.
    pub(crate) fn describe_failure(&self, what: &str, error: CudaError) -> DeviceError {
        failure(&self.driver, what, error)
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        if let Some(zeros) = self.zeros.get_mut().take() {
            self.unmap_zeros(zeros);
        }
        let maps = self.maps.get_mut();
        for (address, bytes) in maps.mapped.iter().chain(maps.expected.iter().map(|(address, extent)| (*address, extent.bytes))) {
            let _ = self.driver.unmap(address, bytes);
        }
        let mut reservations = RESERVATIONS.lock();
        for piece in &maps.reserved {
            let Some(cards) = reservations.get_mut(piece) else { continue };
            *cards -= 1;
            if *cards == 0 {
                reservations.remove(piece);
                self.driver.free_addresses(*piece, RESERVATION);
            }
        }
    }
}
