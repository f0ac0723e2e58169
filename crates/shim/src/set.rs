//! Sets: device memory filled with a value of one, two or four bytes, in lines and rectangles.

use crate::connection::Connection;
use crate::context;
use crate::ffi::{Try, error};
use crate::memory;
use crate::process;
use core::ffi::{c_uchar, c_uint, c_ushort};
use cumux_abi::{CUdeviceptr, CUstream};
use cumux_wire::layout::{WINDOW_BYTES, window_piece_end};
use cumux_wire::record::{CopyExtent, Op, span};

const NULL: CUstream = core::ptr::null_mut();

/// Whose memory may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// This program's.
    Known,
    /// Whatever the address says: it is checked when it is set. Stream capture takes any address,
    /// and cuDNN captures sets of a workspace that is not there yet (seen with driver 580).
    Any,
}

/// The operation that fills `height` rows of `width` elements, checked; `None` when there is
/// nothing to fill.
pub(crate) fn plan(target: u64, pitch: usize, value: u32, element: u32, width: usize, height: usize) -> Try<Option<Op>> {
    plan_at(target, Target::Known, pitch, value, element, width, height)
}

fn plan_at(target: u64, whose: Target, pitch: usize, value: u32, element: u32, width: usize, height: usize) -> Try<Option<Op>> {
    if !matches!(element, 1 | 2 | 4) {
        return Err(error::INVALID_VALUE);
    }
    if width == 0 || height == 0 {
        return Ok(None);
    }
    let row = (width as u64).checked_mul(u64::from(element)).ok_or(error::INVALID_VALUE)?;
    let pitch = if height == 1 { 0 } else { pitch as u64 };
    if !target.is_multiple_of(u64::from(element)) || !pitch.is_multiple_of(u64::from(element)) || (height > 1 && pitch < row) {
        return Err(error::INVALID_VALUE);
    }
    let bytes = span(target, pitch, 0, CopyExtent { width: row, height: height as u64, depth: 1 }).ok_or(error::INVALID_VALUE)?;
    let target = {
        let allocations = memory::read_allocations();
        if allocations.bytes_in_one(target, bytes) < bytes {
            let why = "a set of several rows or in a graph goes over the border of two mappings of host memory: set the parts one by one";
            return Err(crate::log::because(error::INVALID_VALUE, why));
        }
        let known = allocations.find(target).filter(|_| allocations.covers(target, bytes));
        match known {
            Some(known) => known.wire_address(target),
            None if whose == Target::Any => target,
            None => {
                crate::log::line(format_args!("a set of {bytes} bytes at {target:#x}: not all of them are memory of this process"));
                return Err(error::INVALID_VALUE);
            }
        }
    };
    Ok(Some(Op::Set { target, value, element, width: width as u64, height: height as u64, pitch }))
}

/// Whether the call waits until the bytes are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// If the host can see the memory: pinned, registered or managed (CUDA Driver API, *API
    /// synchronization behavior*).
    IfHostSees,
    /// It does not.
    No,
}

/// Whether the host can see what lies at an address.
fn host_sees(address: u64) -> bool {
    memory::read_allocations().find(address).is_some_and(|known| known.on_host() || known.is_managed())
}

/// How many of these bytes, from the first on, a device sets at once: a card's driver refuses more
/// than one piece of the window.
fn in_one_piece(session: &Connection, target: u64, bytes: u64) -> u64 {
    let allocations = memory::read_allocations();
    let wire = allocations.find(target).map_or(target, |known| known.wire_address(target));
    let offset = wire.wrapping_sub(session.window.address());
    let piece = if offset < WINDOW_BYTES { window_piece_end(offset + 1) - offset } else { bytes };
    allocations.bytes_in_one(target, bytes).min(piece)
}

#[expect(clippy::too_many_arguments, reason = "the driver's arguments, and one of ours")]
fn fill(target: u64, pitch: usize, value: u32, element: u32, width: usize, height: usize, stream: CUstream, wait: Wait) -> Try {
    let session = process::enter()?;
    let row = (width as u64).saturating_mul(u64::from(element));
    let in_one = if height == 1 { in_one_piece(session, target, row) } else { row };
    if in_one < row && in_one.is_multiple_of(u64::from(element)) {
        let first = (in_one / u64::from(element)) as usize;
        fill(target, pitch, value, element, first, 1, stream, wait)?;
        return fill(target + in_one, pitch, value, element, width - first, 1, stream, wait);
    }
    let stream = context::stream(session, stream)?;
    let whose = if crate::capture::is_capturing(&stream) { Target::Any } else { Target::Known };
    let Some(op) = plan_at(target, whose, pitch, value, element, width, height)? else { return crate::capture::refuse_invalid(&stream) };
    let owner = memory::read_allocations().find(target).map_or(stream.device, |known| known.device);
    if owner != stream.device && cumux_wire::layout::in_arena(target) {
        // Memory of another device: there, after everything in this stream, and done when this
        // returns.
        crate::capture::refuse_while_capturing(&stream)?;
        session.drain_timeline(stream.timeline)?;
        let timeline = crate::peer::stream_of(session, owner)?.timeline;
        session.push(timeline, &op)?;
        return session.drain_timeline(timeline);
    }
    if wait == Wait::IfHostSees && host_sees(target) {
        crate::capture::refuse_while_capturing(&stream)?;
        session.push(stream.timeline, &op)?;
        return session.drain_timeline(stream.timeline);
    }
    if crate::capture::capture_op(&stream, &op)? {
        return Ok(());
    }
    session.push(stream.timeline, &op).map(drop)
}

pub unsafe fn cuMemsetD8_v2(target: CUdeviceptr, value: c_uchar, count: usize) -> Try {
    fill(target, 0, u32::from(value), 1, count, 1, NULL, Wait::IfHostSees)
}

pub unsafe fn cuMemsetD8Async(target: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) -> Try {
    fill(target, 0, u32::from(value), 1, count, 1, stream, Wait::No)
}

pub unsafe fn cuMemsetD2D8_v2(target: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize) -> Try {
    fill(target, pitch, u32::from(value), 1, width, height, NULL, Wait::IfHostSees)
}

pub unsafe fn cuMemsetD2D8Async(target: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream) -> Try {
    fill(target, pitch, u32::from(value), 1, width, height, stream, Wait::No)
}

pub unsafe fn cuMemsetD16_v2(target: CUdeviceptr, value: c_ushort, count: usize) -> Try {
    fill(target, 0, u32::from(value), 2, count, 1, NULL, Wait::IfHostSees)
}

pub unsafe fn cuMemsetD16Async(target: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) -> Try {
    fill(target, 0, u32::from(value), 2, count, 1, stream, Wait::No)
}

pub unsafe fn cuMemsetD2D16_v2(target: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) -> Try {
    fill(target, pitch, u32::from(value), 2, width, height, NULL, Wait::IfHostSees)
}

pub unsafe fn cuMemsetD2D16Async(target: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream) -> Try {
    fill(target, pitch, u32::from(value), 2, width, height, stream, Wait::No)
}

pub unsafe fn cuMemsetD32_v2(target: CUdeviceptr, value: c_uint, count: usize) -> Try {
    fill(target, 0, value, 4, count, 1, NULL, Wait::IfHostSees)
}

pub unsafe fn cuMemsetD32Async(target: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> Try {
    fill(target, 0, value, 4, count, 1, stream, Wait::No)
}

pub unsafe fn cuMemsetD2D32_v2(target: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) -> Try {
    fill(target, pitch, value, 4, width, height, NULL, Wait::IfHostSees)
}

pub unsafe fn cuMemsetD2D32Async(target: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream) -> Try {
    fill(target, pitch, value, 4, width, height, stream, Wait::No)
}
