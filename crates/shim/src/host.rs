//! Pinned host memory: pieces of the window, at the same address here and in the executor, so that
//! a host pointer is the device pointer too.
//!
//! Registering the program's own memory replaces its pages by pages of the window: contents are
//! copied over, then the mapping is swapped in one step. The first and last page may hold
//! neighbours' bytes; they move along. A neighbour written by another thread between copy and swap
//! would lose that write, so those two pages are copied last; stacks and mappings that are not
//! private are refused.

use crate::connection::Connection;
use crate::ffi::{Try, error, forward, put};
use crate::log::unsupported;
use crate::memory::{self, Allocation, PAGE, Sort, copy_pages, pointer};
use crate::process;
use crate::{context, device};
use core::ffi::{c_uint, c_void};
use cumux_abi::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED, CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY,
    CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY, CUdevice_attribute, CUdeviceptr,
};
use cumux_wire::record::Op;
use rustix::mm::{MapFlags, ProtFlags};

/// Flags of memory that is allocated.
const ALLOCATION_FLAGS: c_uint = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
/// Flags of memory that is registered.
const REGISTRATION_FLAGS: c_uint = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

/// Takes a piece of the window that devices can use.
pub(crate) fn take_piece(session: &Connection, bytes: u64) -> Try<u64> {
    // Large pieces start at a large page's boundary.
    let align = if bytes >= 1 << 21 { 1 << 21 } else { PAGE };
    let start = session.window.take_piece(bytes, align)?;
    if let Err(code) = session.announce_window(start + bytes) {
        session.window.return_piece(start);
        return Err(code);
    }
    Ok(start)
}

/// Takes a piece of the window and remembers it as an allocation.
pub(crate) fn allocate(session: &Connection, bytes: u64, sort: Sort, context: u64, device: u32) -> Try<u64> {
    let start = take_piece(session, bytes)?;
    let id = process::new_number();
    memory::write_allocations().insert(Allocation { start, bytes, sort, context, device, id, sync_memops: false });
    Ok(start)
}

pub unsafe fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() || bytes == 0 || flags & !ALLOCATION_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    put!(out, pointer(allocate(session, bytes as u64, Sort::Host(flags), context.id, context.device)?));
    Ok(())
}

pub unsafe fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> Try {
    forward!(cuMemHostAlloc(out, bytes, 0))
}

pub unsafe fn cuMemAllocHost(out: *mut *mut c_void, bytes: c_uint) -> Try {
    forward!(cuMemHostAlloc(out, bytes as usize, 0))
}

pub unsafe fn cuMemFreeHost(address: *mut c_void) -> Try {
    let session = process::enter()?;
    if address.is_null() {
        return Ok(());
    }
    let start = address.expose_provenance() as u64;
    let known = memory::read_allocations().at(start).copied().filter(|known| matches!(known.sort, Sort::Host(_))).ok_or(error::INVALID_VALUE)?;
    // Work under way may still use it.
    context::drain_by_id(session, known.context)?;
    let gone = memory::write_allocations().remove(start).ok_or(error::INVALID_VALUE)?;
    memory::release(session, &gone)
}

/// A host allocation that contains an address.
fn known_host(address: *mut c_void) -> Try<Allocation> {
    let address = address.expose_provenance() as u64;
    let found = memory::read_allocations().find(address).copied();
    found.filter(|known| known.on_host() || known.is_managed()).ok_or(error::INVALID_VALUE)
}

pub unsafe fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, address: *mut c_void, flags: c_uint) -> Try {
    let session = process::enter()?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let known = known_host(address)?;
    put!(out, kernel_address(session, &known, address.expose_provenance() as u64));
    Ok(())
}

/// The address by which kernels know a byte of this allocation. Some devices have memory that was
/// registered at the window's address alone.
pub(crate) fn kernel_address(session: &Connection, known: &Allocation, address: u64) -> u64 {
    match known.sort {
        Sort::Registered { .. } if !has_own_addresses(session) => known.wire_address(address),
        _ => address,
    }
}

/// True if kernels have registered memory at the program's own addresses.
fn has_own_addresses(session: &Connection) -> bool {
    const OWN: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    device::all(session).iter().all(|device| device.attribute(OWN) != Some(0))
}

pub unsafe fn cuMemHostGetFlags(out: *mut c_uint, address: *mut c_void) -> Try {
    process::enter()?;
    let flags = match known_host(address)?.sort {
        // All pinned memory is mapped where addresses are unified.
        Sort::Host(flags) | Sort::Registered { flags, .. } => flags | CU_MEMHOSTALLOC_DEVICEMAP,
        _ => return Err(error::INVALID_VALUE),
    };
    put!(out, flags);
    Ok(())
}

// ---- the program's own memory

/// Whether every page of a range is private, readable and writable, and no stack, by the lines of
/// `/proc/self/maps`.
fn replaceable(maps: &str, start: u64, end: u64) -> bool {
    let mut at = start;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let Some((from, to)) = range.and_then(|(from, to)| Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))) else {
            continue;
        };
        if to <= at {
            continue;
        }
        let rights = words.next().unwrap_or("");
        let name = words.nth(3).unwrap_or("");
        if from > at || !rights.starts_with("rw") || !rights.ends_with('p') || name.starts_with("[stack") {
            return false;
        }
        at = to;
        if at >= end {
            return true;
        }
    }
    false
}

pub unsafe fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if address.is_null() || bytes == 0 || flags & !REGISTRATION_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        return Err(unsupported("memory of other devices (CU_MEMHOSTREGISTER_IOMEMORY)"));
    }
    let user = address.expose_provenance() as u64;
    let bytes = bytes as u64;
    let end = user.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(error::INVALID_VALUE)?;
    let start = user / PAGE * PAGE;
    // The lock is held to the end: two registrations of neighbouring memory must not swap the same
    // page.
    let mut allocations = memory::write_allocations();
    if allocations.touches(user, user + bytes) {
        return Err(error::ALREADY_REGISTERED);
    }
    if allocations.touches(start, end) {
        return Err(unsupported(format!("the memory at {user:#x} shares a page with other registered memory; align such buffers to pages")));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| error::OPERATING_SYSTEM)?;
    if !replaceable(&maps, start, end) {
        return Err(unsupported(format!("the memory at {user:#x} cannot be registered: only private, writable memory outside stacks can")));
    }
    // Kernels may have any of its bytes as soon as they know where it is.
    let window = take_piece(session, end - start)?;
    // SAFETY: the pages are private and writable (checked); the program asks for them to be pinned,
    // so it keeps them mapped; the piece of the window is ours and as long. From the swap on both
    // addresses are the same memory.
    let swapped = unsafe {
        copy_pages(start, window, end - start);
        let kind = MapFlags::SHARED | MapFlags::FIXED;
        rustix::mm::mmap(
            pointer(start),
            (end - start) as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            kind,
            session.window.file(),
            window - session.window.address(),
        )
    };
    if swapped.is_err() {
        session.window.return_piece(window);
        return Err(error::OUT_OF_MEMORY);
    }
    let at = window + (user - start);
    let id = process::new_number();
    let sort = Sort::Registered { window: at, flags };
    allocations.insert(Allocation { start: user, bytes, sort, context: context.id, device: context.device, id, sync_memops: false });
    if !has_own_addresses(session) {
        let sort = Sort::OtherName;
        allocations.insert(Allocation { start: at, bytes, sort, context: context.id, device: context.device, id, sync_memops: false });
    }
    session.control(&Op::HostRegister { user, window: at, bytes })
}

pub unsafe fn cuMemHostUnregister(address: *mut c_void) -> Try {
    let session = process::enter()?;
    let user = address.expose_provenance() as u64;
    let known = memory::read_allocations().at(user).copied();
    let known = known.filter(|known| matches!(known.sort, Sort::Registered { .. })).ok_or(error::NOT_REGISTERED)?;
    context::drain_by_id(session, known.context)?;
    let gone = memory::write_allocations().remove(user).ok_or(error::NOT_REGISTERED)?;
    memory::release(session, &gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_writable_pages_outside_stacks_can_be_replaced() {
        let maps = "1000-3000 rw-p 00000000 00:00 0    [heap]\n3000-4000 rw-p 00000000 08:01 7 /bin/x\n4000-5000 r--p 00000000 00:00 0\n\
                    6000-7000 rw-s 00000000 00:00 9 /dev/shm/x\n8000-9000 rw-p 00000000 00:00 0 [stack]\n";
        assert!(replaceable(maps, 0x1000, 0x4000));
        assert!(replaceable(maps, 0x2000, 0x3000));
        for (start, end) in [(0x3000, 0x5000), (0x4000, 0x5000), (0x5000, 0x6000), (0x6000, 0x7000), (0x8000, 0x9000), (0x9000, 0xa000), (0x0, 0x2000)] {
            assert!(!replaceable(maps, start, end), "{start:#x}");
        }
    }
}
