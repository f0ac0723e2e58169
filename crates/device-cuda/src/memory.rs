//! Device memory: extents behind descriptors, mapped at fixed addresses of the arena.
//!
//! Address space is reserved from the driver in pieces of [`PIECE`] when something is first mapped there, and must land exactly where it was asked for.

use crate::driver::{Driver, MemorySet, Stream};
use crate::fault::{CudaError, remedy};
use cumux_device::DeviceError;
use cumux_wire::layout::{ARENA_BASE, ARENA_BYTES};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Address space per reservation.
const PIECE: u64 = 64 << 30;

#[derive(Default)]
struct Maps {
    /// Start and bytes.
    mapped: BTreeMap<u64, u64>,
    reserved: BTreeSet<u64>,
}

pub(crate) struct Memory {
    driver: Arc<Driver>,
    granule: u64,
    maps: Mutex<Maps>,
    /// For scrubbing, reading and writing outside clients' streams; one user at a time.
    side: Mutex<Stream>,
}

fn sentence(driver: &Driver, what: &str, code: CudaError) -> DeviceError {
    let text = format!("{what}: {}", driver.describe_numbered(code));
    match code {
        CudaError::OUT_OF_MEMORY => DeviceError::OutOfMemory(text),
        CudaError::INVALID_VALUE => DeviceError::Invalid(text),
        CudaError::NOT_SUPPORTED => DeviceError::NotSupported(text),
        _ => remedy::refused_call(code, text, DeviceError::System),
    }
}

impl Memory {
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Memory, DeviceError> {
        let granule = driver.granule().map_err(|code| sentence(driver, "the granularity of device memory", code))?;
        let side = driver.create_stream(0).map_err(|code| sentence(driver, "a stream", code))?;
        Ok(Memory { driver: driver.clone(), granule, maps: Mutex::default(), side: Mutex::new(side) })
    }

    /// Whether the context still works.
    pub(crate) fn works(&self) -> bool {
        !self.driver.is_idle(*self.side.lock()).is_err_and(CudaError::is_fatal)
    }

    pub(crate) fn granule(&self) -> u64 {
        self.granule
    }

    /// Zeroed memory: what the driver hands out may hold what an earlier owner left.
    pub(crate) fn create(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        use std::os::fd::AsFd as _;
        if bytes == 0 || !bytes.is_multiple_of(self.granule) {
            return Err(DeviceError::Invalid(format!("an extent of {bytes} bytes: it must be a multiple of {}", self.granule)));
        }
        let fail = |code| sentence(&self.driver, &format!("{bytes} bytes of device memory"), code);
        let memory = self.driver.create_memory(bytes).map_err(fail)?;
        let scratch = self.driver.reserve_addresses(0, bytes).map_err(fail)?;
        let scrubbed = self.driver.map(scratch, memory.as_fd(), 0, bytes).and_then(|()| {
            let stream = self.side.lock();
            let set = self.driver.set_memory(&MemorySet { target: scratch, pitch: 0, value: 0, element: 4, width: bytes / 4, height: 1 }, *stream);
            let done = self.driver.synchronize(*stream);
            let unmapped = self.driver.unmap(scratch, bytes);
            set.and(done).and(unmapped)
        });
        self.driver.free_addresses(scratch, bytes);
        scrubbed.map_err(fail)?;
        Ok(memory)
    }

    fn reserve(&self, maps: &mut Maps, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut piece = address / PIECE * PIECE;
        while piece < address + bytes {
            if !maps.reserved.contains(&piece) {
                let got = self.driver.reserve_addresses(piece, PIECE).map_err(|code| sentence(&self.driver, &format!("address space at {piece:#x}"), code))?;
                if got != piece {
                    self.driver.free_addresses(got, PIECE);
                    return Err(DeviceError::System(format!(
                        "the address space at {piece:#x} is taken in this process: nothing else may be mapped in the arena"
                    )));
                }
                maps.reserved.insert(piece);
            }
            piece += PIECE;
        }
        Ok(())
    }

    pub(crate) fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let aligned = [address, offset, bytes].iter().all(|n| n.is_multiple_of(self.granule)) && bytes > 0;
        let end = address.checked_add(bytes).filter(|end| address >= ARENA_BASE && *end <= ARENA_BASE + ARENA_BYTES && aligned);
        let Some(end) = end else {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {address:#x} (offset {offset}) are no granules of {} in the arena", self.granule)));
        };
        let mut maps = self.maps.lock();
        if let Some((start, length)) = maps.mapped.range(..end).next_back().filter(|(s, b)| **s + **b > address) {
            return Err(DeviceError::Invalid(format!("{length} bytes are mapped at {start:#x} already")));
        }
        self.reserve(&mut maps, address, bytes)?;
        self.driver
            .map(address, extent, offset, bytes)
            .map_err(|code| sentence(&self.driver, &format!("mapping {bytes} bytes (offset {offset}) at {address:#x}"), code))?;
        maps.mapped.insert(address, bytes);
        Ok(())
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut maps = self.maps.lock();
        if maps.mapped.get(&address) != Some(&bytes) {
            return Err(DeviceError::Invalid(format!("no mapping of exactly {bytes} bytes at {address:#x}")));
        }
        self.driver.unmap(address, bytes).map_err(|code| sentence(&self.driver, &format!("unmapping {address:#x}"), code))?;
        maps.mapped.remove(&address);
        Ok(())
    }

    /// Whether all of these bytes are mapped; mappings may follow one another.
    fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        let maps = self.maps.lock();
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut at = address;
        while at < end {
            match maps.mapped.range(..=at).next_back() {
                Some((start, length)) if start + length > at => at = start + length,
                _ => return false,
            }
        }
        true
    }

    fn mapped(&self, address: u64, bytes: u64, known: bool) -> Result<(), DeviceError> {
        if known || self.is_mapped(address, bytes) { Ok(()) } else { Err(DeviceError::Invalid(format!("{bytes} bytes at {address:#x} are not mapped"))) }
    }

    /// `known`: a module's variable, which lies where the driver put it.
    pub(crate) fn read(&self, address: u64, into: &mut [u8], known: bool) -> Result<(), DeviceError> {
        self.mapped(address, into.len() as u64, known)?;
        if into.is_empty() {
            return Ok(());
        }
        let stream = self.side.lock();
        self.driver.read(address, into, *stream).map_err(|code| sentence(&self.driver, &format!("reading {address:#x}"), code))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8], known: bool) -> Result<(), DeviceError> {
        self.mapped(address, bytes.len() as u64, known)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let stream = self.side.lock();
        self.driver.write(address, bytes, *stream).map_err(|code| sentence(&self.driver, &format!("writing {address:#x}"), code))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let maps = self.maps.get_mut();
        for (address, bytes) in &maps.mapped {
            let _ = self.driver.unmap(*address, *bytes);
        }
        for piece in &maps.reserved {
            self.driver.free_addresses(*piece, PIECE);
        }
        self.driver.destroy_stream(*self.side.get_mut());
    }
}
