//! Virtual memory: address ranges, physical memory, and the mapping of one into the other. The
//! executor does it; the shim keeps what queries need.
//!
//! Physical memory of the host is a piece of the window. Where it is mapped, this process has that
//! piece a second time, and devices with access to it know the address as another name of it.

use crate::connection::Connection;
use crate::ffi::{Try, error, get, list, put};
use crate::handle::{Kind, Table};
use crate::loan::{self, Kind as LoanKind, Token, Witness};
use crate::log::{because, unsupported};
use crate::memory::{self, Allocation, Sort};
use crate::sync::lock;
use crate::{context, device, host, process};
use core::ffi::{c_ulonglong, c_void};
use cumux_abi::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use cumux_wire::layout::{HOST_RANGE, in_arena, in_host_ranges};
use cumux_wire::record::Op;
use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, Mutex};

/// The access that a program can set for a mapping.
const ACCESS: [CUmemAccess_flags; 3] =
    [CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE];
const NO_ACCESS: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
/// Sizes and addresses are multiples of this.
const GRANULARITY: u64 = 2 << 20;

/// The kind of handle by which memory can be exported.
const DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// All physical memory that has a handle.
static PHYSICAL: Table<Physical> = Table::new(Kind::Memory);

/// What is reserved and mapped.
static RANGES: Mutex<Ranges> = Mutex::new(Ranges { reserved: BTreeMap::new(), mapped: BTreeMap::new(), asks_for_host: false });

/// Physical memory.
#[derive(Debug)]
pub struct Physical {
    handle: u64,
    number: u32,
    bytes: u64,
    place: Place,
    /// Handles the program holds (one from creation, one per retain, one per import).
    held: Mutex<u32>,
    /// It may be exported as a file descriptor.
    exportable: bool,
    /// Under which it is lent, or was opened.
    token: Mutex<Option<Token>>,
    /// Of the descriptors by which it was exported. The memory stays as long as one is open.
    exports: Mutex<Vec<Witness>>,
}

/// Where physical memory is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// On the device with this ordinal.
    Device(i32),
    /// In the window, from this address on. The program has asked for it at this location.
    Host { window: u64, location: CUmemLocation },
}

impl Place {
    /// The device, if it is on one.
    fn device(self) -> Option<i32> {
        match self {
            Place::Device(device) => Some(device),
            Place::Host { .. } => None,
        }
    }
}

/// Memory without handle and mapping that stays because a descriptor of it is open.
static LINGERING: Mutex<Vec<Arc<Physical>>> = Mutex::new(Vec::new());

impl Physical {
    /// Whether a descriptor of it is open in any process.
    fn is_exported(&self) -> bool {
        let mut exports = lock(&self.exports);
        exports.retain(Witness::is_open);
        !exports.is_empty()
    }
}

/// One mapping.
#[derive(Debug)]
struct Mapping {
    bytes: u64,
    physical: Arc<Physical>,
    /// Where it begins in the physical memory.
    offset: u64,
    /// Access from where the memory is: its device, or the host.
    access: CUmemAccess_flags,
    /// Access of other devices.
    peers: BTreeMap<i32, CUmemAccess_flags>,
}

/// A reserved range.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    /// What the program has asked for.
    bytes: u64,
    /// What it has got.
    claimed: u64,
}

/// Reserved ranges and mappings by their start.
#[derive(Debug, Default)]
pub struct Ranges {
    reserved: BTreeMap<u64, Reservation>,
    mapped: BTreeMap<u64, Mapping>,
    /// The program has asked for memory of the host that it can get: from then on each of its
    /// reservations is apart from those of all others, because it may map such memory there.
    asks_for_host: bool,
}

impl Ranges {
    fn is_reserved(&self, address: u64, bytes: u64) -> bool {
        let end = address.checked_add(bytes);
        self.reserved.range(..=address).next_back().is_some_and(|(start, known)| end.is_some_and(|end| end <= start + known.bytes))
    }

    /// True if the reservation of this address has whole ranges to itself.
    fn is_apart(&self, address: u64) -> bool {
        let reservation = self.reserved.range(..=address).next_back();
        reservation.is_some_and(|(start, known)| in_host_ranges(*start) && start.is_multiple_of(HOST_RANGE) && known.claimed.is_multiple_of(HOST_RANGE))
    }

    /// True if memory of the other kind, of a device or of the host, is mapped in the reservation
    /// of this address.
    fn has_other_kind(&self, address: u64, of_host: bool) -> bool {
        let Some((start, known)) = self.reserved.range(..=address).next_back() else { return false };
        self.mapped.range(*start..start + known.bytes).any(|(_, mapping)| mapping.window().is_some() != of_host)
    }

    /// Starts of the mappings that lie in a range; `None` unless they fill it exactly.
    fn filling(&self, address: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = address.checked_add(bytes)?;
        let mut at = address;
        let mut starts = Vec::new();
        while at < end {
            let mapping = self.mapped.get(&at)?;
            starts.push(at);
            at += mapping.bytes;
        }
        (at == end).then_some(starts)
    }

    fn at(&self, address: u64) -> Option<&Mapping> {
        let (start, mapping) = self.mapped.range(..=address).next_back()?;
        (address < start + mapping.bytes).then_some(mapping)
    }
}

impl Mapping {
    /// What a device may do with it.
    fn access_of(&self, device: i32) -> CUmemAccess_flags {
        if self.physical.place.device() == Some(device) { self.access } else { self.peers.get(&device).copied().unwrap_or(NO_ACCESS) }
    }

    /// The part of the window that is mapped, if it is memory of the host.
    fn window(&self) -> Option<u64> {
        match self.physical.place {
            Place::Device(_) => None,
            Place::Host { window, .. } => Some(window + self.offset),
        }
    }

    /// True if a device may access memory of the host here.
    fn is_known_to_devices(&self) -> bool {
        self.peers.values().any(|access| *access != NO_ACCESS)
    }
}

/// Whether a device may write what is mapped here.
pub(crate) fn is_open_to(address: u64, device: u32) -> bool {
    let ranges = lock(&RANGES);
    ranges.at(address).is_some_and(|mapping| mapping.access_of(device.cast_signed()) == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
}

fn whole(value: u64) -> Try {
    if value == 0 || !value.is_multiple_of(GRANULARITY) { Err(error::INVALID_VALUE) } else { Ok(()) }
}

pub unsafe fn cuMemGetAllocationGranularity(out: *mut usize, properties: *const CUmemAllocationProp, _option: CUmemAllocationGranularity_flags) -> Try {
    let session = process::enter()?;
    check(session, &get!(properties))?;
    put!(out, GRANULARITY as usize);
    Ok(())
}

/// Whether memory of this kind can be had. True if it is the host's: of which of its nodes is left
/// to the system.
fn check(session: &Connection, properties: &CUmemAllocationProp) -> Try<bool> {
    if properties.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(error::INVALID_VALUE);
    }
    match properties.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => device::named(session, properties.location.id).map(|_| false),
        kind if is_host(kind) => {
            // NCCL asks whether descriptors of it can be had, and does without it if not.
            if properties.requestedHandleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE {
                lock(&RANGES).asks_for_host = true;
            }
            Ok(true)
        }
        _ => Err(error::INVALID_VALUE),
    }
}

fn is_host(kind: CUmemLocationType) -> bool {
    [CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT]
        .contains(&kind)
}

pub unsafe fn cuMemAddressReserve(out: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong) -> Try {
    let session = process::enter()?;
    let bytes = bytes as u64;
    whole(bytes)?;
    if out.is_null() || flags != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
        return Err(error::INVALID_VALUE);
    }
    // What will be mapped there is not known yet. Where no range apart is left, it gets one beside
    // others, which is good for memory of devices.
    let apart = if lock(&RANGES).asks_for_host { bytes.checked_next_multiple_of(HOST_RANGE) } else { None };
    let answer = apart.and_then(|claimed| {
        let align = HOST_RANGE.max(alignment as u64);
        session.call(&Op::VmmReserve { bytes: claimed, align, fixed: 0 }).ok().map(|[address, ..]| (address, claimed))
    });
    let (address, claimed) = match answer {
        Some(apart) => apart,
        None => (reserve_beside_others(session, bytes, GRANULARITY.max(alignment as u64), wish)?, bytes),
    };
    // The program's own mappings keep away from it, as from the other places of device memory.
    // Something there already is no reason to fail.
    let _ = cumux_ring::window::reserve(address, bytes);
    lock(&RANGES).reserved.insert(address, Reservation { bytes, claimed });
    put!(out, address);
    Ok(())
}

/// Reserves addresses that may lie beside those of other clients.
fn reserve_beside_others(session: &Connection, bytes: u64, align: u64, wish: u64) -> Try<u64> {
    // A wish is only a wish: one outside the device's addresses, or one already taken, is answered
    // with another place.
    let fixed = if wish != 0 && wish.is_multiple_of(align) && in_arena(wish) && in_arena(wish.saturating_add(bytes - 1)) { wish } else { 0 };
    let answer = match session.call(&Op::VmmReserve { bytes, align, fixed }) {
        Err(_) if fixed != 0 => session.call(&Op::VmmReserve { bytes, align, fixed: 0 }),
        other => other,
    };
    answer.map(|[address, ..]| address)
}

pub unsafe fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> Try {
    let session = process::enter()?;
    let mut ranges = lock(&RANGES);
    let bytes = bytes as u64;
    let busy = ranges.mapped.range(address..address.saturating_add(bytes)).next().is_some();
    let Some(Reservation { claimed, .. }) = ranges.reserved.get(&address).copied().filter(|known| known.bytes == bytes && !busy) else {
        return Err(error::INVALID_VALUE);
    };
    ranges.reserved.remove(&address);
    session.control(&Op::VmmUnreserve { address, bytes: claimed })
}

pub unsafe fn cuMemCreate(out: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong) -> Try {
    let session = process::enter()?;
    let properties = get!(properties);
    let of_host = check(session, &properties)?;
    let bytes = bytes as u64;
    whole(bytes)?;
    if out.is_null() || flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    if properties.requestedHandleTypes.0 & !DESCRIPTOR.0 != 0 {
        return Err(unsupported(format!("physical memory with handles of type {:#x}", properties.requestedHandleTypes.0)));
    }
    let exportable = properties.requestedHandleTypes == DESCRIPTOR;
    if of_host && exportable {
        return Err(unsupported("descriptors of physical memory of the host"));
    }
    settle_lingering(session, &lock(&RANGES))?;
    let number = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
    let place = if of_host {
        Place::Host { window: host::take_piece(session, bytes)?, location: properties.location }
    } else {
        memory::request_memory(session, &Op::VmmCreate { handle: number, device: properties.location.id.cast_unsigned(), bytes })?;
        Place::Device(properties.location.id)
    };
    let (token, exports) = (Mutex::new(None), Mutex::default());
    let make = |handle| Arc::new(Physical { handle, number, bytes, place, held: Mutex::new(1), exportable, token, exports });
    let (handle, _) = PHYSICAL.insert(make).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, handle);
    Ok(())
}

fn named(handle: CUmemGenericAllocationHandle) -> Try<Arc<Physical>> {
    PHYSICAL.get(handle).ok_or(error::INVALID_VALUE)
}

/// Tells the executor when neither a handle nor a mapping nor a descriptor is left.
fn settle(session: &Connection, ranges: &Ranges, physical: &Arc<Physical>) -> Try {
    if *lock(&physical.held) != 0 || ranges.mapped.values().any(|mapping| mapping.physical.number == physical.number) {
        return Ok(());
    }
    if physical.is_exported() {
        let mut lingering = lock(&LINGERING);
        if !lingering.iter().any(|other| other.number == physical.number) {
            lingering.push(Arc::clone(physical));
        }
        return Ok(());
    }
    // It may have been imported again since, and still be among those that linger.
    if PHYSICAL.remove(physical.handle).is_none() {
        return Ok(());
    }
    match physical.place {
        Place::Device(_) => session.control(&Op::VmmRelease { handle: physical.number }),
        Place::Host { window, .. } => {
            session.window.return_piece(window);
            Ok(())
        }
    }
}

/// Lets go of memory whose last descriptor was closed. Nobody says when that happens, so it is
/// looked at when memory is made.
fn settle_lingering(session: &Connection, ranges: &Ranges) -> Try {
    let lingering = core::mem::take(&mut *lock(&LINGERING));
    lingering.iter().try_for_each(|physical| settle(session, ranges, physical))
}

pub unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Try {
    let session = process::enter()?;
    let physical = named(handle)?;
    {
        let mut held = lock(&physical.held);
        *held = held.checked_sub(1).ok_or(error::INVALID_VALUE)?;
    }
    settle(session, &lock(&RANGES), &physical)
}

pub unsafe fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) -> Try {
    let session = process::enter()?;
    let physical = named(handle)?;
    let (bytes, offset) = (bytes as u64, offset as u64);
    whole(bytes)?;
    let mut ranges = lock(&RANGES);
    let fits = offset.is_multiple_of(GRANULARITY) && offset.checked_add(bytes).is_some_and(|end| end <= physical.bytes);
    if flags != 0 || !fits || !address.is_multiple_of(GRANULARITY) || !ranges.is_reserved(address, bytes) {
        return Err(error::INVALID_VALUE);
    }
    if memory::read_allocations().touches(address, address + bytes) {
        return Err(error::INVALID_VALUE);
    }
    // A card's driver reserves addresses for one kind alone, and never those apart.
    if physical.place.device().is_none() && !ranges.is_apart(address) {
        return Err(unsupported(
            "memory of the host at addresses that were reserved before the program asked for such memory, or when no whole range was left",
        ));
    }
    if ranges.has_other_kind(address, physical.place.device().is_none()) {
        return Err(unsupported("memory of a device and of the host in one reservation of addresses"));
    }
    let context = context::top().map_or(0, |context| context.id);
    let (sort, device) = match physical.place {
        Place::Device(device) => {
            session.call(&Op::VmmMap { address, bytes, handle: physical.number, offset })?;
            (Sort::Mapped, device.cast_unsigned())
        }
        // Whoever gets access knows it from then on.
        Place::Host { window, .. } => (Sort::MappedHost { window: window + offset }, 0),
    };
    let allocation = Allocation { start: address, bytes, sort, context, device, id: process::new_number(), sync_memops: false };
    memory::write_allocations().insert(allocation);
    ranges.mapped.insert(address, Mapping { bytes, physical, offset, access: NO_ACCESS, peers: BTreeMap::new() });
    Ok(())
}

pub unsafe fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> Try {
    let session = process::enter()?;
    let mut ranges = lock(&RANGES);
    let starts = ranges.filling(address, bytes as u64).filter(|starts| !starts.is_empty()).ok_or(error::INVALID_VALUE)?;
    for start in starts {
        let Some(mapping) = ranges.mapped.remove(&start) else { continue };
        memory::write_allocations().remove(start);
        if mapping.window().is_none() {
            session.call(&Op::VmmUnmap { address: start, bytes: mapping.bytes })?;
        } else {
            // Copies use the window, whoever has access.
            session.drain_all()?;
            if mapping.is_known_to_devices() {
                session.call(&Op::HostUnregister { user: start })?;
            }
            memory::hide(start, mapping.bytes)?;
        }
        settle(session, &ranges, &mapping.physical)?;
    }
    Ok(())
}

pub unsafe fn cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize) -> Try {
    let session = process::enter()?;
    let mut ranges = lock(&RANGES);
    let starts = ranges.filling(address, bytes as u64).filter(|starts| !starts.is_empty()).ok_or(error::INVALID_VALUE)?;
    for entry in list!(access, count) {
        let from_host = is_host(entry.location.type_);
        if !from_host {
            if entry.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
                return Err(error::INVALID_VALUE);
            }
            device::named(session, entry.location.id)?;
        }
        if !ACCESS.contains(&entry.flags) {
            return Err(error::INVALID_VALUE);
        }
        for start in &starts {
            let Some(mapping) = ranges.mapped.get_mut(start) else { continue };
            let (address, bytes, access) = (*start, mapping.bytes, entry.flags.0);
            if let Some(window) = mapping.window() {
                set_access_to_host(session, address, mapping, window, entry)?;
            } else if from_host {
                return Err(unsupported("access from the host to memory of a device"));
            } else if mapping.physical.place.device() == Some(entry.location.id) {
                session.call(&Op::VmmAccess { address, bytes, access })?;
                mapping.access = entry.flags;
            } else {
                session.call(&Op::VmmPeerAccess { address, bytes, device: entry.location.id.cast_unsigned(), access })?;
                mapping.peers.insert(entry.location.id, entry.flags);
            }
        }
    }
    Ok(())
}

/// Sets who may access memory of the host that is mapped here, from this part of the window.
fn set_access_to_host(session: &Connection, address: u64, mapping: &mut Mapping, window: u64, entry: &CUmemAccessDesc) -> Try {
    if is_host(entry.location.type_) {
        let writes = entry.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if entry.flags == NO_ACCESS {
            memory::hide(address, mapping.bytes)?;
        } else {
            memory::show(session, address, window, mapping.bytes, writes)?;
        }
        mapping.access = entry.flags;
        return Ok(());
    }
    if entry.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ {
        return Err(unsupported("memory of the host that a device may only read"));
    }
    let was_known = mapping.is_known_to_devices();
    let before = mapping.peers.insert(entry.location.id, entry.flags);
    // All devices of the program know it, or none.
    let told = match (was_known, mapping.is_known_to_devices()) {
        (false, true) => session.call(&Op::HostRegister { user: address, window, bytes: mapping.bytes }).map(drop),
        (true, false) => session.call(&Op::HostUnregister { user: address }).map(drop),
        _ => Ok(()),
    };
    if told.is_err() {
        mapping.peers.insert(entry.location.id, before.unwrap_or(NO_ACCESS));
    }
    told
}

pub unsafe fn cuMemGetAccess(out: *mut c_ulonglong, location: *const CUmemLocation, address: CUdeviceptr) -> Try {
    process::enter()?;
    let place = get!(location);
    let ranges = lock(&RANGES);
    let mapping = ranges.at(address).ok_or(error::INVALID_VALUE)?;
    let access = match place.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => mapping.access_of(place.id),
        _ if mapping.window().is_some() => mapping.access,
        _ => NO_ACCESS,
    };
    put!(out, c_ulonglong::from(access.0));
    Ok(())
}

pub unsafe fn cuMemRetainAllocationHandle(out: *mut CUmemGenericAllocationHandle, address: *mut c_void) -> Try {
    process::enter()?;
    let ranges = lock(&RANGES);
    let mapping = ranges.at(address.addr() as u64).ok_or(error::INVALID_VALUE)?;
    put!(out, mapping.physical.handle);
    *lock(&mapping.physical.held) += 1;
    Ok(())
}

pub unsafe fn cuMemGetAllocationPropertiesFromHandle(out: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) -> Try {
    process::enter()?;
    let physical = named(handle)?;
    let location = match physical.place {
        Place::Device(id) => CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id },
        Place::Host { location, .. } => location,
    };
    let requestedHandleTypes = if physical.exportable { DESCRIPTOR } else { CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE };
    let type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    put!(out, CUmemAllocationProp { type_, requestedHandleTypes, location, ..CUmemAllocationProp::default() });
    Ok(())
}

/// Whether what is mapped at an address may be exported.
pub(crate) fn is_exportable(address: u64) -> bool {
    lock(&RANGES).at(address).is_some_and(|mapping| mapping.physical.exportable)
}

pub unsafe fn cuMemExportToShareableHandle(out: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: c_ulonglong) -> Try {
    let session = process::enter()?;
    if out.is_null() || flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let physical = named(handle)?;
    if kind != DESCRIPTOR {
        return Err(unsupported(format!("handles of type {:#x} for memory: only file descriptors (1) can be had", kind.0)));
    }
    if !physical.exportable {
        return Err(because(error::INVALID_VALUE, "the memory was made without requestedHandleTypes, or is another program's"));
    }
    let [first, second, ..] = session.call(&Op::VmmLend { handle: physical.number })?;
    *lock(&physical.token) = Some([first, second]);
    let descriptor = loan::export(&loan::encode(LoanKind::Physical, [first, second], [0; 16]))?;
    let mut exports = lock(&physical.exports);
    exports.retain(Witness::is_open);
    exports.push(Witness::of(&descriptor)?);
    put!(out.cast::<i32>(), descriptor.into_raw_fd());
    Ok(())
}

pub unsafe fn cuMemImportFromShareableHandle(out: *mut CUmemGenericAllocationHandle, descriptor: *mut c_void, kind: CUmemAllocationHandleType) -> Try {
    let session = process::enter()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    if kind != DESCRIPTOR {
        return Err(unsupported(format!("handles of type {:#x} for memory: only file descriptors (1) can be had", kind.0)));
    }
    let content = loan::import(descriptor.addr() as i32)?;
    let (token, _) = loan::decode(LoanKind::Physical, &content).ok_or_else(|| because(error::INVALID_VALUE, "the descriptor is not one of memory"))?;
    // One at a time, so that two threads that import the same memory get the same handle.
    let _ranges = lock(&RANGES);
    if let Some(known) = PHYSICAL.all(|physical| *lock(&physical.token) == Some(token)).into_iter().next() {
        *lock(&known.held) += 1;
        put!(out, known.handle);
        return Ok(());
    }
    let number = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
    let [bytes, device, ..] = session.call(&Op::VmmBorrow { handle: number, token }).map_err(loan::explain)?;
    let place = Place::Device(i32::try_from(device).unwrap_or(0));
    let make = |handle| {
        Arc::new(Physical { handle, number, bytes, place, held: Mutex::new(1), exportable: false, token: Mutex::new(Some(token)), exports: Mutex::default() })
    };
    let Some((handle, _)) = PHYSICAL.insert(make) else {
        session.control(&Op::VmmRelease { handle: number })?;
        return Err(error::OUT_OF_MEMORY);
    };
    put!(out, handle);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_exact() {
        let (held, token) = (Mutex::new(1), Mutex::new(None));
        let exports = Mutex::default();
        let physical = Arc::new(Physical { handle: 1, number: 1, bytes: 4 * GRANULARITY, place: Place::Device(0), held, exportable: false, token, exports });
        let mapping = || Mapping { bytes: GRANULARITY, physical: Arc::clone(&physical), offset: 0, access: NO_ACCESS, peers: BTreeMap::new() };
        let base = 8 * GRANULARITY;
        let mut ranges = Ranges::default();
        ranges.reserved.insert(base, Reservation { bytes: 4 * GRANULARITY, claimed: 4 * GRANULARITY });
        ranges.mapped.insert(base, mapping());
        ranges.mapped.insert(base + GRANULARITY, mapping());
        assert!(ranges.is_reserved(base + GRANULARITY, 3 * GRANULARITY));
        assert!(!ranges.is_reserved(base + GRANULARITY, 4 * GRANULARITY) && !ranges.is_reserved(base - 1, 1));
        assert_eq!(ranges.filling(base, 2 * GRANULARITY).map(|starts| starts.len()), Some(2));
        assert_eq!(ranges.filling(base, 3 * GRANULARITY), None);
        assert_eq!(ranges.filling(base + 4096, GRANULARITY), None);
        assert!(ranges.at(base + GRANULARITY + 5).is_some() && ranges.at(base + 2 * GRANULARITY).is_none());
    }
}
