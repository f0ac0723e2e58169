//! Peers: devices that reach each other's memory. A session has one address space, but each device
//! reaches only its own part of it: kernels never, copies by way of the window, done when the call
//! returns.

use crate::bands::{Side, bands};
use crate::connection::Connection;
use crate::ffi::{Try, error, put};
use crate::stream::Stream;
use crate::transfer::{Transfer, part, staged};
use crate::{context, device, memory, process};
use core::ffi::{c_int, c_uint};
use cumux_abi::{CUatomicOperation, CUcontext, CUdevice, CUdevice_P2PAttribute, CUresult};
use cumux_wire::layout::in_arena;
use cumux_wire::record::CopyExtent;
use std::sync::Arc;

/// The device whose memory a side of a copy is; none for host memory.
fn device_of(side: &Side) -> Option<u32> {
    if side.private || !in_arena(side.address) {
        return None;
    }
    memory::read_allocations().find(side.address).map(|known| known.device)
}

/// Whether a copy in a stream of this device touches memory of another.
pub(crate) fn crosses(session: &Connection, device: u32, sides: &[&Side]) -> bool {
    device::all(session).len() > 1 && sides.iter().any(|side| device_of(side).is_some_and(|own| own != device))
}

/// A stream of a device, for the service's own copies.
pub(crate) fn stream_of(session: &'static Connection, device: u32) -> Try<Arc<Stream>> {
    let ordinal = device.cast_signed();
    context::primary(session, ordinal)?.legacy(session)
}

/// A copy that involves other devices than that of its stream: after everything in the stream, and
/// done when this returns.
///
/// # Safety
/// A private side is readable (source) or writable (target) memory of the program.
///
/// # Errors
/// As [`Connection::wait`].
pub(crate) unsafe fn copy(session: &'static Connection, stream: &Stream, transfer: &Transfer) -> Try {
    session.drain_timeline(stream.timeline)?;
    let (source, target) = (device_of(&transfer.source), device_of(&transfer.target));
    let (Some(from), Some(to)) = (source, target) else {
        let timeline = stream_of(session, source.or(target).unwrap_or(stream.device))?.timeline;
        // SAFETY: the caller vouches for private sides.
        unsafe { transfer.run(session, timeline)? };
        return session.drain_timeline(timeline);
    };
    let (from, to) = (stream_of(session, from)?.timeline, stream_of(session, to)?.timeline);
    for band in bands(transfer.extent) {
        let slice = session.take_slice(band.bytes())?;
        let (between, extent) = (staged(slice, band), CopyExtent { width: band.width, height: band.rows, depth: 1 });
        let done = session
            .push(from, &Transfer::record(between, part(&transfer.source, band), extent))
            .and_then(|_| session.drain_timeline(from))
            .and_then(|()| session.push(to, &Transfer::record(part(&transfer.target, band), between, extent)))
            .and_then(|_| session.drain_timeline(to));
        session.hold_slice_until(slice, None);
        done?;
    }
    Ok(())
}

pub unsafe fn cuDeviceCanAccessPeer(out: *mut c_int, device: CUdevice, peer: CUdevice) -> Try {
    let session = process::find_connection()?;
    device::named(session, device)?;
    device::named(session, peer)?;
    put!(out, 0);
    Ok(())
}

pub unsafe fn cuDeviceGetP2PAttribute(out: *mut c_int, _attribute: CUdevice_P2PAttribute, source: CUdevice, target: CUdevice) -> Try {
    let session = process::find_connection()?;
    device::named(session, source)?;
    device::named(session, target)?;
    if source == target {
        return Err(error::INVALID_DEVICE);
    }
    put!(out, 0);
    Ok(())
}

pub unsafe fn cuDeviceGetP2PAtomicCapabilities(
    capabilities: *mut c_uint,
    _operations: *const CUatomicOperation,
    count: c_uint,
    source: CUdevice,
    target: CUdevice,
) -> Try {
    let session = process::find_connection()?;
    device::named(session, source)?;
    device::named(session, target)?;
    if source == target {
        return Err(error::INVALID_DEVICE);
    }
    for index in 0..count as usize {
        put!(capabilities.wrapping_add(index), 0);
    }
    Ok(())
}

pub unsafe fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Try {
    process::enter()?;
    context::current()?;
    context::find(peer.addr() as u64)?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
}

pub unsafe fn cuCtxDisablePeerAccess(peer: CUcontext) -> Try {
    process::enter()?;
    context::current()?;
    context::find(peer.addr() as u64)?;
    Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
}
