//! Copies. Memory that the executor knows (device, pinned, registered, managed) is one record; the program's private memory travels through
//! staging slices, in bands of rows that fit a slice.
//!
//! A copy from private memory may return when the last band is staged; a copy to private memory returns when the bytes are there.

use crate::bands::{Band, bands, pieces};
use crate::client::{self, Session, pipe::LaneId, staging::Taken};
use crate::context;
use crate::ffi::{Try, error, get, list, put};
use crate::log::unsupported;
use crate::memory;
use crate::stream::Stream;
use core::ffi::c_void;
use cumux_abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUmemcpyAttributes, CUmemorytype, CUstream};
use cumux_wire::layout::in_arena;
use cumux_wire::record::{Extent, Op, span};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bands of a copy to private memory that are under way at once.
const AHEAD: usize = 4;
/// Largest pitch (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: u64 = i32::MAX as u64;

/// One side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    pub address: u64,
    pub pitch: u64,
    pub slice: u64,
    /// The program's private memory; else an address the executor knows.
    pub private: bool,
}

/// A copy, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    pub target: Side,
    pub source: Side,
    pub extent: Extent,
}

/// What the program says about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Host,
    Device,
    Unified,
}

/// Finds out where an address leads and whether all of the rectangle is there.
fn side(session: &Session, claim: Claim, address: u64, pitch: u64, slice: u64, extent: Extent) -> Try<Side> {
    let bytes = span(address, pitch, slice, extent).ok_or(error::INVALID_VALUE)?;
    let allocations = memory::read(session);
    let known = allocations.find(address);
    let whole = |allocation: &memory::Allocation| address.checked_add(bytes).is_some_and(|end| end <= allocation.end());
    match known {
        Some(allocation) if whole(allocation) => Ok(Side { address: allocation.wire_address(address), pitch, slice, private: false }),
        Some(allocation) if allocation.on_host() => Ok(Side { address, pitch, slice, private: true }),
        Some(_) if allocations.covers(address, bytes) => Ok(Side { address, pitch, slice, private: false }),
        None if claim != Claim::Device && !in_arena(address) && address != 0 => Ok(Side { address, pitch, slice, private: true }),
        _ => Err(error::INVALID_VALUE),
    }
}

impl Transfer {
    /// Rows that follow one another without a gap are one row.
    fn flattened(mut self) -> Self {
        let Extent { width, height, depth } = self.extent;
        let dense = |side: &Side| (height == 1 || side.pitch == width) && (depth == 1 || side.slice == width * height);
        if dense(&self.target) && dense(&self.source) {
            self.extent = Extent { width: width * height * depth, height: 1, depth: 1 };
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.extent.width == 0 || self.extent.height == 0 || self.extent.depth == 0
    }

    pub(crate) fn record(target: Side, source: Side, extent: Extent) -> Op {
        Op::Copy {
            target: target.address,
            target_pitch: target.pitch,
            target_slice: target.slice,
            source: source.address,
            source_pitch: source.pitch,
            source_slice: source.slice,
            extent,
        }
    }

    /// Runs the copy in a stream. Returns when the program may change or read its private memory.
    ///
    /// # Safety
    /// A private side is readable (source) or writable (target) memory of the program.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub unsafe fn run(&self, session: &Session, lane: LaneId) -> Try {
        let this = self.flattened();
        match (this.source.private, this.target.private) {
            (false, false) => pieces(this.extent)
                .try_for_each(|(z, y, extent)| session.push(lane, &Self::record(this.target.at(z, y), this.source.at(z, y), extent)).map(drop)),
            // SAFETY: the caller's promise.
            (true, false) => unsafe { this.send(session, lane) },
            // SAFETY: the caller's promise.
            (false, true) => unsafe { this.fetch(session, lane) },
            (true, true) => {
                session.drain_lane(lane)?;
                for band in bands(this.extent) {
                    // SAFETY: the caller's promise, for both sides.
                    unsafe { rows(band.at(&this.source), this.source.pitch, band.at(&this.target), this.target.pitch, band) };
                }
                Ok(())
            }
        }
    }

    /// From private memory.
    unsafe fn send(&self, session: &Session, lane: LaneId) -> Try {
        for band in bands(self.extent) {
            let slice = session.take_slice(band.bytes())?;
            // SAFETY: the caller's promise; the slice is ours and long enough.
            unsafe { rows(band.at(&self.source), self.source.pitch, slice.address, band.width, band) };
            let (target, source) = (part(&self.target, band), staged(slice, band));
            let sent = session.push(lane, &Self::record(target, source, Extent { width: band.width, height: band.rows, depth: 1 }));
            session.slice_until(slice, sent.as_ref().ok().map(|seq| (lane, *seq)));
            sent?;
        }
        Ok(())
    }

    /// To private memory.
    unsafe fn fetch(&self, session: &Session, lane: LaneId) -> Try {
        let mut under_way: VecDeque<(Band, Taken, u64)> = VecDeque::with_capacity(AHEAD);
        let finish = |(band, slice, seq): (Band, Taken, u64)| {
            session.wait(|| session.is_done(lane, seq))?;
            // SAFETY: the caller's promise; the slice is ours and has been filled.
            unsafe { rows(slice.address, band.width, band.at(&self.target), self.target.pitch, band) };
            session.slice_until(slice, None);
            Ok(())
        };
        for band in bands(self.extent) {
            if under_way.len() == AHEAD
                && let Some(oldest) = under_way.pop_front()
            {
                finish(oldest)?;
            }
            let slice = session.take_slice(band.bytes())?;
            let (target, source) = (staged(slice, band), part(&self.source, band));
            match session.push(lane, &Self::record(target, source, Extent { width: band.width, height: band.rows, depth: 1 })) {
                Ok(seq) => under_way.push_back((band, slice, seq)),
                Err(code) => {
                    session.slice_until(slice, None);
                    return Err(code);
                }
            }
        }
        under_way.into_iter().try_for_each(finish)
    }
}

pub(crate) fn part(side: &Side, band: Band) -> Side {
    Side { address: band.at(side), slice: 0, ..*side }
}

pub(crate) fn staged(slice: Taken, band: Band) -> Side {
    Side { address: slice.address, pitch: band.width, slice: 0, private: false }
}

/// Copies the rows of a band between two places of this process.
///
/// # Safety
/// All bytes of both rectangles are valid memory; they may overlap.
unsafe fn rows(source: u64, source_pitch: u64, target: u64, target_pitch: u64, band: Band) {
    for row in 0..band.rows {
        let from = core::ptr::with_exposed_provenance::<u8>((source + row * source_pitch) as usize);
        let to = core::ptr::with_exposed_provenance_mut::<u8>((target + row * target_pitch) as usize);
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy(from, to, band.width as usize) };
    }
}

/// Whether the call waits for the copy to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It does, as the driver's synchronous copies with a host side do.
    Done,
    /// It does not.
    No,
}

/// Checks a copy and runs it, or takes it into a capture.
unsafe fn transfer(session: &'static Session, stream: &Arc<Stream>, transfer: &Transfer, wait: Wait) -> Try {
    if transfer.is_empty() {
        return Ok(());
    }
    if crate::peer::crosses(session, stream.device, &[&transfer.target, &transfer.source]) {
        crate::capture::refuse_while_capturing(session, stream)?;
        // SAFETY: private sides are what the program passed as such.
        return unsafe { crate::peer::copy(session, stream, transfer) };
    }
    if wait == Wait::Done {
        crate::capture::refuse_while_capturing(session, stream)?;
    } else if crate::capture::copy(session, stream, transfer)? {
        return Ok(());
    }
    // SAFETY: private sides are what the program passed as such.
    unsafe { transfer.run(session, stream.lane)? };
    if wait == Wait::Done { session.drain_lane(stream.lane) } else { Ok(()) }
}

fn line(session: &Session, target: (Claim, u64), source: (Claim, u64), bytes: usize) -> Try<Transfer> {
    let extent = Extent { width: bytes as u64, height: 1, depth: 1 };
    if bytes == 0 {
        let nothing = Side { address: 0, pitch: 0, slice: 0, private: false };
        return Ok(Transfer { target: nothing, source: nothing, extent });
    }
    Ok(Transfer { target: side(session, target.0, target.1, 0, 0, extent)?, source: side(session, source.0, source.1, 0, 0, extent)?, extent })
}

/// One-dimensional copies of all kinds.
unsafe fn flat(target: (Claim, u64), source: (Claim, u64), bytes: usize, stream: CUstream, wait: Wait) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    let plan = line(session, target, source, bytes)?;
    // SAFETY: the program vouches for its own memory.
    unsafe { transfer(session, &stream, &plan, wait) }
}

fn host(pointer: *const c_void) -> (Claim, u64) {
    (Claim::Host, pointer.expose_provenance() as u64)
}

const NULL: CUstream = core::ptr::null_mut();

pub unsafe fn cuMemcpyHtoD_v2(target: CUdeviceptr, source: *const c_void, bytes: usize) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat((Claim::Device, target), host(source), bytes, NULL, Wait::Done) }
}

pub unsafe fn cuMemcpyDtoH_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat(host(target), (Claim::Device, source), bytes, NULL, Wait::Done) }
}

pub unsafe fn cuMemcpyDtoD_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat((Claim::Device, target), (Claim::Device, source), bytes, NULL, Wait::No) }
}

pub unsafe fn cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat((Claim::Device, target), host(source), bytes, stream, Wait::No) }
}

pub unsafe fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat(host(target), (Claim::Device, source), bytes, stream, Wait::No) }
}

pub unsafe fn cuMemcpyDtoDAsync_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat((Claim::Device, target), (Claim::Device, source), bytes, stream, Wait::No) }
}

pub unsafe fn cuMemcpy(target: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, NULL)?;
    let plan = line(session, (Claim::Unified, target), (Claim::Unified, source), bytes)?;
    // Between two places of the device the driver does not wait.
    let wait = if in_arena(target) && in_arena(source) { Wait::No } else { Wait::Done };
    // SAFETY: the program vouches for its own memory.
    unsafe { transfer(session, &stream, &plan, wait) }
}

pub unsafe fn cuMemcpyAsync(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { flat((Claim::Unified, target), (Claim::Unified, source), bytes, stream, Wait::No) }
}

pub unsafe fn cuMemcpyPeer(target: CUdeviceptr, target_context: CUcontext, source: CUdeviceptr, source_context: CUcontext, bytes: usize) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { cuMemcpyPeerAsync(target, target_context, source, source_context, bytes, NULL) }
}

pub unsafe fn cuMemcpyPeerAsync(
    target: CUdeviceptr,
    target_context: CUcontext,
    source: CUdeviceptr,
    source_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Try {
    let session = client::enter()?;
    context::named(session, target_context)?;
    context::named(session, source_context)?;
    // SAFETY: the same promise of the same caller.
    unsafe { flat((Claim::Device, target), (Claim::Device, source), bytes, stream, Wait::No) }
}

// ---- rectangles and boxes

/// One side of a two- or three-dimensional copy as the structures have it.
struct Corner {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Corner {
    fn side(&self, session: &Session, extent: Extent) -> Try<Side> {
        let (claim, base) = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (Claim::Host, self.host),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (Claim::Device, self.device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (Claim::Unified, self.device),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(unsupported("copies from or to arrays")),
            _ => return Err(error::INVALID_VALUE),
        };
        let (x, y, z, pitch, height) = (self.x as u64, self.y as u64, self.z as u64, self.pitch as u64, self.height as u64);
        let row = x.checked_add(extent.width).ok_or(error::INVALID_VALUE)?;
        let many = extent.height > 1 || y > 0 || extent.depth > 1 || z > 0;
        if pitch > MAX_PITCH || (many && pitch < row && pitch != 0) {
            return Err(error::INVALID_VALUE);
        }
        let pitch = if pitch == 0 { row } else { pitch };
        let rows = if height == 0 { y + extent.height } else { height };
        if (extent.depth > 1 || z > 0) && rows < y + extent.height {
            return Err(error::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(rows).ok_or(error::INVALID_VALUE)?;
        let skip = z.checked_mul(slice).and_then(|skip| skip.checked_add(y.checked_mul(pitch)?)).and_then(|skip| skip.checked_add(x));
        let address = skip.and_then(|skip| base.checked_add(skip)).ok_or(error::INVALID_VALUE)?;
        side(session, claim, address, pitch, slice, extent)
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Both sides and the extent of a three-dimensional copy.
pub(crate) fn plan(session: &Session, copy: &CUDA_MEMCPY3D) -> Try<Transfer> {
    let extent = Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: copy.Depth as u64 };
    let source = Corner {
        kind: copy.srcMemoryType,
        host: address(copy.srcHost),
        device: copy.srcDevice,
        x: copy.srcXInBytes,
        y: copy.srcY,
        z: copy.srcZ,
        pitch: copy.srcPitch,
        height: copy.srcHeight,
    };
    let target = Corner {
        kind: copy.dstMemoryType,
        host: address(copy.dstHost),
        device: copy.dstDevice,
        x: copy.dstXInBytes,
        y: copy.dstY,
        z: copy.dstZ,
        pitch: copy.dstPitch,
        height: copy.dstHeight,
    };
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        let nothing = Side { address: 0, pitch: 0, slice: 0, private: false };
        return Ok(Transfer { target: nothing, source: nothing, extent });
    }
    Ok(Transfer { target: target.side(session, extent)?, source: source.side(session, extent)?, extent })
}

fn widened(copy: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
}

fn of_peers(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..CUDA_MEMCPY3D::default()
    }
}

unsafe fn solid(copy: &CUDA_MEMCPY3D, stream: CUstream, wait: Wait) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    let plan = plan(session, copy)?;
    // Between two places of the device the driver does not wait.
    let device = |side: &Side| !side.private && in_arena(side.address);
    let wait = if device(&plan.source) && device(&plan.target) { Wait::No } else { wait };
    // SAFETY: the program vouches for its own memory.
    unsafe { transfer(session, &stream, &plan, wait) }
}

pub unsafe fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) -> Try {
    let copy = widened(&get!(copy));
    // SAFETY: the same promise of the same caller.
    unsafe { solid(&copy, NULL, Wait::Done) }
}

pub unsafe fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { cuMemcpy2D_v2(copy) }
}

pub unsafe fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Try {
    let copy = widened(&get!(copy));
    // SAFETY: the same promise of the same caller.
    unsafe { solid(&copy, stream, Wait::No) }
}

pub unsafe fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) -> Try {
    let copy = get!(copy);
    // SAFETY: the same promise of the same caller.
    unsafe { solid(&copy, NULL, Wait::Done) }
}

pub unsafe fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Try {
    let copy = get!(copy);
    // SAFETY: the same promise of the same caller.
    unsafe { solid(&copy, stream, Wait::No) }
}

pub unsafe fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) -> Try {
    let copy = of_peers(&get!(copy));
    // SAFETY: the same promise of the same caller.
    unsafe { solid(&copy, NULL, Wait::Done) }
}

pub unsafe fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Try {
    let copy = of_peers(&get!(copy));
    // SAFETY: the same promise of the same caller.
    unsafe { solid(&copy, stream, Wait::No) }
}

// ---- batches: one copy after the other

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuMemcpyBatchAsync(
    targets: *mut CUdeviceptr,
    sources: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    _attributes: *mut CUmemcpyAttributes,
    _indices: *mut usize,
    _kinds: usize,
    failed: *mut usize,
    stream: CUstream,
) -> Try {
    let (targets, sources) = (list!(targets.cast_const(), count), list!(sources.cast_const(), count));
    let copies = targets.iter().zip(sources).zip(list!(sizes.cast_const(), count));
    for (index, ((target, source), bytes)) in copies.enumerate() {
        // SAFETY: the same promise of the same caller.
        if let Err(code) = unsafe { cuMemcpyAsync(*target, *source, *bytes, stream) } {
            if !failed.is_null() {
                put!(failed, index);
            }
            return Err(code);
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuMemcpyBatchAsync_v2(
    targets: *mut CUdeviceptr,
    sources: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    kinds: usize,
    stream: CUstream,
) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { cuMemcpyBatchAsync(targets, sources, sizes, count, attributes, indices, kinds, core::ptr::null_mut(), stream) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_rectangles_become_one_line() {
        let side = |pitch, slice| Side { address: 4096, pitch, slice, private: false };
        let of = |source, target| Transfer { target, source, extent: Extent { width: 10, height: 4, depth: 2 } }.flattened().extent;
        assert_eq!(of(side(10, 40), side(10, 40)), Extent { width: 80, height: 1, depth: 1 });
        assert_eq!(of(side(16, 64), side(10, 40)).height, 4);
        assert_eq!(of(side(10, 48), side(10, 40)).height, 4);
    }

    #[test]
    fn rows_are_copied_with_their_strides() {
        let source: Vec<u8> = (0..64).collect();
        let mut target = vec![0_u8; 64];
        let band = Band { x: 0, y: 0, z: 0, width: 3, rows: 2 };
        // SAFETY: both rectangles lie in the buffers.
        unsafe { rows(source.as_ptr().expose_provenance() as u64, 16, target.as_mut_ptr().expose_provenance() as u64, 8, band) };
        assert_eq!((&target[..3], &target[8..11], target[3]), (&[0, 1, 2][..], &[16, 17, 18][..], 0));
    }
}
