//! The program's own pages, replaced by pages of the window, and how they are given back.

use crate::connection::Connection;
use crate::ffi::{Try, error};
use core::ffi::c_void;
use cumux_wire::record::Op;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// An address as a pointer of this process.
pub(crate) fn pointer(address: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// Copies bytes within this process.
///
/// # Safety
/// Both ranges are valid.
unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: the caller promises that both ranges are valid.
    unsafe { core::ptr::copy_nonoverlapping(pointer(from).cast::<u8>().cast_const(), pointer(to).cast::<u8>(), bytes as usize) };
}

/// Copies whole pages, the first and the last one last.
///
/// # Safety
/// Both ranges are valid.
pub(crate) unsafe fn copy_pages(from: u64, to: u64, bytes: u64) {
    let inner = bytes.saturating_sub(2 * PAGE);
    // SAFETY: the caller promises that both ranges are valid; the three parts are the whole.
    unsafe {
        if inner > 0 {
            copy(from + PAGE, to + PAGE, inner);
        }
        if bytes > PAGE {
            copy(from + bytes - PAGE, to + bytes - PAGE, PAGE);
        }
        copy(from, to, PAGE);
    }
}

/// Maps a part of the window at an address that this process has kept free.
///
/// # Errors
/// The system's.
pub(crate) fn show(session: &Connection, address: u64, window: u64, bytes: u64, writes: bool) -> Try {
    let protection = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: the program has reserved the range by `cuMemAddressReserve`, and has nothing of its
    // own there.
    let mapped = unsafe {
        rustix::mm::mmap(
            pointer(address),
            bytes as usize,
            protection,
            MapFlags::SHARED | MapFlags::FIXED,
            session.window.file(),
            window - session.window.address(),
        )
    };
    mapped.map(drop).map_err(|_| error::OUT_OF_MEMORY)
}

/// Undoes [`show`]: the range is kept free again.
///
/// # Errors
/// The system's.
pub(crate) fn hide(address: u64, bytes: u64) -> Try {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: as for `show`.
    let hidden = unsafe { rustix::mm::mmap_anonymous(pointer(address), bytes as usize, ProtFlags::empty(), flags) };
    hidden.map(drop).map_err(|_| error::OUT_OF_MEMORY)
}

/// Gives registered pages back to the program as private memory.
pub(super) fn unregister(session: &Connection, user: u64, bytes: u64, window: u64) -> Try {
    let told = session.control(&Op::HostUnregister { user });
    let start = user / PAGE * PAGE;
    let end = (user + bytes).next_multiple_of(PAGE);
    let base = window - (user - start);
    // SAFETY: a fresh private mapping is filled with the pages' contents and moved over them in one
    // step; nobody else knows it before.
    let moved = unsafe {
        let length = (end - start) as usize;
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).and_then(|fresh| {
            copy_pages(base, fresh.expose_provenance() as u64, end - start);
            let flags = rustix::mm::MremapFlags::MAYMOVE;
            rustix::mm::mremap_fixed(fresh, length, length, flags, pointer(start))
        })
    };
    if moved.is_err() {
        // The pages stay shared with the window, which keeps them.
        return Err(error::OPERATING_SYSTEM);
    }
    session.window.return_piece(base);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_copied_completely() {
        for pages in 1..5_usize {
            let from: Vec<u8> = (0..pages * PAGE as usize).map(|n| (n / 7) as u8).collect();
            let mut to = vec![0; from.len()];
            // SAFETY: two buffers of that length.
            unsafe { copy_pages(from.as_ptr().expose_provenance() as u64, to.as_mut_ptr().expose_provenance() as u64, from.len() as u64) };
            assert!(from == to, "{pages} pages");
        }
    }
}
