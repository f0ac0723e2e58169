//! Copies. Memory that the executor knows (device, pinned, registered, managed) is one record; the
//! program's private memory travels through staging slices, in bands of rows that fit a slice.
//!
//! A copy from private memory may return when the last band is staged; a copy to private memory
//! returns when the bytes are there.

use crate::array;
use crate::bands::Side;
use crate::connection::Connection;
use crate::context;
use crate::ffi::{Try, error, forward, get, list, put};
use crate::log::because;
use crate::memory;
use crate::process;
use crate::stream::Stream;
use crate::transfer::Transfer;
use core::ffi::{c_ulonglong, c_void};
use cumux_abi::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr, CUextent3D, CUmemcpy3DOperand,
    CUmemcpy3DOperandType, CUmemcpyAttributes, CUmemorytype, CUstream,
};
use cumux_wire::layout::{in_arena, in_host_ranges};
use cumux_wire::record::{CopyExtent, span};
use std::sync::Arc;

/// Largest pitch (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: u64 = i32::MAX as u64;

/// What the program says about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Host,
    Device,
    Unified,
}

/// Finds out where an address leads and whether all of the rectangle is there.
fn side(claim: Claim, address: u64, pitch: u64, slice: u64, extent: CopyExtent) -> Try<Side> {
    let bytes = span(address, pitch, slice, extent).ok_or(error::INVALID_VALUE)?;
    let allocations = memory::read_allocations();
    let known = allocations.find(address);
    let whole = |allocation: &memory::Allocation| address.checked_add(bytes).is_some_and(|end| end <= allocation.end());
    if allocations.bytes_in_one(address, bytes) < bytes {
        let why = "a copy of several rows, of an array or in a graph goes over the border of two mappings of host memory: copy the parts one by one";
        return Err(because(error::INVALID_VALUE, why));
    }
    match known {
        Some(allocation) if whole(allocation) => Ok(Side::known(allocation.wire_address(address), pitch, slice)),
        Some(allocation) if allocation.on_host() => Ok(Side::own(address, pitch, slice)),
        Some(_) if allocations.covers(address, bytes) => Ok(Side::known(address, pitch, slice)),
        None if claim != Claim::Device && !in_arena(address) && address != 0 => Ok(Side::own(address, pitch, slice)),
        _ => Err(error::INVALID_VALUE),
    }
}

/// Whether the call waits for the copy to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It does, as the driver's synchronous copies with a host side do.
    Done,
    /// It does not, unless memory of another device is involved: such a copy comes after all work
    /// of the contexts whose memory it is.
    Peers,
    /// It does not.
    No,
}

/// Checks a copy and runs it, or takes it into a capture.
unsafe fn transfer(session: &'static Connection, stream: &Arc<Stream>, transfer: &Transfer, wait: Wait) -> Try {
    if transfer.is_empty() {
        return Ok(());
    }
    let sides = [&transfer.target, &transfer.source];
    let wait = match wait {
        Wait::Peers if crate::peer::is_foreign(session, stream.device, &sides) => {
            crate::capture::refuse_while_capturing(stream)?;
            crate::peer::drain_owners(session, &sides)?;
            Wait::Done
        }
        Wait::Peers => Wait::No,
        other => other,
    };
    if crate::peer::crosses(session, stream.device, &sides) {
        crate::capture::refuse_while_capturing(stream)?;
        // SAFETY: private sides are what the program passed as such.
        unsafe { crate::peer::copy(session, stream, transfer)? };
        return if wait == Wait::Done { session.drain_timeline(stream.timeline) } else { Ok(()) };
    }
    if wait == Wait::Done {
        crate::capture::refuse_while_capturing(stream)?;
    } else if crate::capture::capture_copy(stream, transfer)? {
        return Ok(());
    }
    // SAFETY: private sides are what the program passed as such.
    unsafe { transfer.run(session, stream.timeline)? };
    if wait == Wait::Done { session.drain_timeline(stream.timeline) } else { Ok(()) }
}

fn line(target: (Claim, u64), source: (Claim, u64), bytes: usize) -> Try<Transfer> {
    let extent = CopyExtent { width: bytes as u64, height: 1, depth: 1 };
    if bytes == 0 {
        let nothing = Side::known(0, 0, 0);
        return Ok(Transfer { target: nothing, source: nothing, extent });
    }
    Ok(Transfer { target: side(target.0, target.1, 0, 0, extent)?, source: side(source.0, source.1, 0, 0, extent)?, extent })
}

/// One-dimensional copies of all kinds.
unsafe fn flat(target: (Claim, u64), source: (Claim, u64), bytes: usize, stream: CUstream, wait: Wait) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    let (mut at, all) = (0, bytes as u64);
    loop {
        let part = part(target.1 + at, source.1 + at, all - at);
        let plan = line((target.0, target.1 + at), (source.0, source.1 + at), part as usize)?;
        // SAFETY: the program vouches for its own memory.
        unsafe { transfer(session, &stream, &plan, wait)? };
        at += part;
        if at >= all {
            return Ok(());
        }
    }
}

/// How many bytes of a one-dimensional copy, from the first on, are one record.
fn part(target: u64, source: u64, bytes: u64) -> u64 {
    let allocations = memory::read_allocations();
    allocations.bytes_in_one(target, bytes).min(allocations.bytes_in_one(source, bytes))
}

fn host(pointer: *const c_void) -> (Claim, u64) {
    (Claim::Host, pointer.expose_provenance() as u64)
}

const NULL: CUstream = core::ptr::null_mut();

pub unsafe fn cuMemcpyHtoD_v2(target: CUdeviceptr, source: *const c_void, bytes: usize) -> Try {
    forward!(flat((Claim::Device, target), host(source), bytes, NULL, Wait::Done))
}

pub unsafe fn cuMemcpyDtoH_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize) -> Try {
    forward!(flat(host(target), (Claim::Device, source), bytes, NULL, Wait::Done))
}

pub unsafe fn cuMemcpyDtoD_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> Try {
    forward!(flat((Claim::Device, target), (Claim::Device, source), bytes, NULL, Wait::Peers))
}

pub unsafe fn cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream) -> Try {
    forward!(flat((Claim::Device, target), host(source), bytes, stream, Wait::No))
}

pub unsafe fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    forward!(flat(host(target), (Claim::Device, source), bytes, stream, Wait::No))
}

pub unsafe fn cuMemcpyDtoDAsync_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    forward!(flat((Claim::Device, target), (Claim::Device, source), bytes, stream, Wait::No))
}

pub unsafe fn cuMemcpy(target: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> Try {
    // Between two places of the device the driver does not wait.
    let on_device = |address: u64| in_arena(address) && !in_host_ranges(address);
    let wait = if on_device(target) && on_device(source) { Wait::Peers } else { Wait::Done };
    forward!(flat((Claim::Unified, target), (Claim::Unified, source), bytes, NULL, wait))
}

pub unsafe fn cuMemcpyAsync(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    forward!(flat((Claim::Unified, target), (Claim::Unified, source), bytes, stream, Wait::No))
}

pub unsafe fn cuMemcpyPeer(target: CUdeviceptr, target_context: CUcontext, source: CUdeviceptr, source_context: CUcontext, bytes: usize) -> Try {
    process::enter()?;
    context::named(target_context)?;
    context::named(source_context)?;
    forward!(flat((Claim::Device, target), (Claim::Device, source), bytes, NULL, Wait::Peers))
}

pub unsafe fn cuMemcpyPeerAsync(
    target: CUdeviceptr,
    target_context: CUcontext,
    source: CUdeviceptr,
    source_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Try {
    process::enter()?;
    context::named(target_context)?;
    context::named(source_context)?;
    forward!(flat((Claim::Device, target), (Claim::Device, source), bytes, stream, Wait::No))
}

// ---- arrays of one dimension

/// One side of a flat copy.
enum End {
    /// An array, and a byte in it.
    Array(CUarray, usize),
    Memory(Claim, u64),
}

impl End {
    fn side(&self, bytes: usize) -> Try<Side> {
        match self {
            End::Array(handle, offset) => array::find(*handle)?.line(*offset as u64, bytes as u64),
            End::Memory(claim, address) => side(*claim, *address, 0, 0, CopyExtent { width: bytes as u64, height: 1, depth: 1 }),
        }
    }
}

unsafe fn flat_array(target: End, source: End, bytes: usize, stream: CUstream, wait: Wait) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    if bytes == 0 {
        return Ok(());
    }
    let extent = CopyExtent { width: bytes as u64, height: 1, depth: 1 };
    let plan = Transfer { target: target.side(bytes)?, source: source.side(bytes)?, extent };
    // SAFETY: the program vouches for its own memory.
    unsafe { transfer(session, &stream, &plan, wait) }
}

fn host_end(pointer: *const c_void) -> End {
    End::Memory(Claim::Host, address(pointer))
}

pub unsafe fn cuMemcpyHtoA_v2(target: CUarray, offset: usize, source: *const c_void, bytes: usize) -> Try {
    forward!(flat_array(End::Array(target, offset), host_end(source), bytes, NULL, Wait::Done))
}

pub unsafe fn cuMemcpyHtoAAsync_v2(target: CUarray, offset: usize, source: *const c_void, bytes: usize, stream: CUstream) -> Try {
    forward!(flat_array(End::Array(target, offset), host_end(source), bytes, stream, Wait::No))
}

pub unsafe fn cuMemcpyAtoH_v2(target: *mut c_void, source: CUarray, offset: usize, bytes: usize) -> Try {
    forward!(flat_array(host_end(target), End::Array(source, offset), bytes, NULL, Wait::Done))
}

pub unsafe fn cuMemcpyAtoHAsync_v2(target: *mut c_void, source: CUarray, offset: usize, bytes: usize, stream: CUstream) -> Try {
    forward!(flat_array(host_end(target), End::Array(source, offset), bytes, stream, Wait::No))
}

pub unsafe fn cuMemcpyDtoA_v2(target: CUarray, offset: usize, source: CUdeviceptr, bytes: usize) -> Try {
    forward!(flat_array(End::Array(target, offset), End::Memory(Claim::Device, source), bytes, NULL, Wait::No))
}

pub unsafe fn cuMemcpyAtoD_v2(target: CUdeviceptr, source: CUarray, offset: usize, bytes: usize) -> Try {
    forward!(flat_array(End::Memory(Claim::Device, target), End::Array(source, offset), bytes, NULL, Wait::No))
}

pub unsafe fn cuMemcpyAtoA_v2(target: CUarray, target_offset: usize, source: CUarray, source_offset: usize, bytes: usize) -> Try {
    forward!(flat_array(End::Array(target, target_offset), End::Array(source, source_offset), bytes, NULL, Wait::No))
}

// ---- rectangles and boxes

/// One side of a two- or three-dimensional copy as the structures have it.
struct Corner {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Corner {
    fn side(&self, extent: CopyExtent) -> Try<Side> {
        let (claim, base) = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (Claim::Host, self.host),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (Claim::Device, self.device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (Claim::Unified, self.device),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return array::find(self.array)?.side([self.x as u64, self.y as u64, self.z as u64], extent),
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
        side(claim, address, pitch, slice, extent)
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Both sides and the extent of a three-dimensional copy.
pub(crate) fn plan(copy: &CUDA_MEMCPY3D) -> Try<Transfer> {
    let extent = CopyExtent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: copy.Depth as u64 };
    let source = Corner {
        kind: copy.srcMemoryType,
        host: address(copy.srcHost),
        device: copy.srcDevice,
        array: copy.srcArray,
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
        array: copy.dstArray,
        x: copy.dstXInBytes,
        y: copy.dstY,
        z: copy.dstZ,
        pitch: copy.dstPitch,
        height: copy.dstHeight,
    };
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        let nothing = Side::known(0, 0, 0);
        return Ok(Transfer { target: nothing, source: nothing, extent });
    }
    Ok(Transfer { target: target.side(extent)?, source: source.side(extent)?, extent })
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
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    let plan = plan(copy)?;
    // Between two places of the device the driver does not wait.
    let device = |side: &Side| side.array.is_some() || !side.private && in_arena(side.address);
    let wait = match wait {
        Wait::Done if device(&plan.source) && device(&plan.target) => Wait::Peers,
        other => other,
    };
    // SAFETY: the program vouches for its own memory.
    unsafe { transfer(session, &stream, &plan, wait) }
}

pub unsafe fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) -> Try {
    let copy = widened(&get!(copy));
    forward!(solid(&copy, NULL, Wait::Done))
}

pub unsafe fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) -> Try {
    forward!(cuMemcpy2D_v2(copy))
}

pub unsafe fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Try {
    let copy = widened(&get!(copy));
    forward!(solid(&copy, stream, Wait::No))
}

pub unsafe fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) -> Try {
    let copy = get!(copy);
    forward!(solid(&copy, NULL, Wait::Done))
}

pub unsafe fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Try {
    let copy = get!(copy);
    forward!(solid(&copy, stream, Wait::No))
}

pub unsafe fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) -> Try {
    let copy = of_peers(&get!(copy));
    forward!(solid(&copy, NULL, Wait::Done))
}

pub unsafe fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Try {
    let copy = of_peers(&get!(copy));
    forward!(solid(&copy, stream, Wait::No))
}

// ---- batches: one copy after the other

/// One side of a copy in a batch.
enum Operand {
    /// An address, and bytes of a row and rows of a layer.
    Pointer(CUdeviceptr, usize, usize),
    /// An array, the bytes of its elements, and where in it.
    Array(CUarray, usize, [usize; 3]),
}

impl Operand {
    fn of(given: &CUmemcpy3DOperand) -> Try<Self> {
        // SAFETY: the type says which member of the union is set; both are plain data.
        unsafe {
            match given.type_ {
                CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER => Ok(Self::Pointer(given.op.ptr.ptr, given.op.ptr.rowLength, given.op.ptr.layerHeight)),
                CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY => {
                    let (array, at) = (given.op.array.array, given.op.array.offset);
                    Ok(Self::Array(array, array::find(array)?.texel() as usize, [at.x, at.y, at.z]))
                }
                _ => Err(error::INVALID_VALUE),
            }
        }
    }

    fn element(&self) -> usize {
        if let Self::Array(_, bytes, _) = self { *bytes } else { 1 }
    }
}

/// A copy of a batch as one by itself. Extents and rows are counted in elements: those of the array
/// that has a part in it, or bytes.
fn of_batch(op: &CUDA_MEMCPY3D_BATCH_OP) -> Try<CUDA_MEMCPY3D> {
    let (source, target) = (Operand::of(&op.src)?, Operand::of(&op.dst)?);
    let element = source.element().max(target.element());
    let CUextent3D { width, height, depth } = op.extent;
    let bytes = |count: usize| count.checked_mul(element).ok_or(error::INVALID_VALUE);
    let row = |length: usize| bytes(if length == 0 { width } else { length });
    let rows = |of_layer: usize| if of_layer == 0 { height } else { of_layer };
    let mut copy = CUDA_MEMCPY3D { WidthInBytes: bytes(width)?, Height: height, Depth: depth, ..CUDA_MEMCPY3D::default() };
    match source {
        Operand::Pointer(address, length, layer) => {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            (copy.srcDevice, copy.srcPitch, copy.srcHeight) = (address, row(length)?, rows(layer));
        }
        Operand::Array(array, _, [x, y, z]) => {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
            (copy.srcArray, copy.srcXInBytes, copy.srcY, copy.srcZ) = (array, bytes(x)?, y, z);
        }
    }
    match target {
        Operand::Pointer(address, length, layer) => {
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            (copy.dstDevice, copy.dstPitch, copy.dstHeight) = (address, row(length)?, rows(layer));
        }
        Operand::Array(array, _, [x, y, z]) => {
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
            (copy.dstArray, copy.dstXInBytes, copy.dstY, copy.dstZ) = (array, bytes(x)?, y, z);
        }
    }
    Ok(copy)
}

pub unsafe fn cuMemcpy3DBatchAsync(count: usize, ops: *mut CUDA_MEMCPY3D_BATCH_OP, failed: *mut usize, flags: c_ulonglong, stream: CUstream) -> Try {
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    for (index, op) in list!(ops.cast_const(), count).iter().enumerate() {
        let one = || -> Try {
            let copy = of_batch(op)?;
            forward!(solid(&copy, stream, Wait::No))
        };
        if let Err(code) = one() {
            if !failed.is_null() {
                put!(failed, index);
            }
            return Err(code);
        }
    }
    Ok(())
}

pub unsafe fn cuMemcpy3DBatchAsync_v2(count: usize, ops: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream) -> Try {
    forward!(cuMemcpy3DBatchAsync(count, ops, core::ptr::null_mut(), flags, stream))
}

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
        // SAFETY: the C caller vouches for the addresses in its arrays.
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
    forward!(cuMemcpyBatchAsync(targets, sources, sizes, count, attributes, indices, kinds, core::ptr::null_mut(), stream))
}
