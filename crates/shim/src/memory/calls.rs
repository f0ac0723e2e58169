//! The calls for plain device memory.

use super::{Allocation, Sort, allocate, close_block, of_graphs, read_allocations, release, write_allocations};
use crate::connection::Connection;
use crate::ffi::{Try, error, put, put_if};
use crate::{capture, context, pool, process};
use core::ffi::c_uint;
use cumux_abi::CUdeviceptr;
use cumux_wire::record::Op;

/// Row alignment of pitched memory.
const PITCH: u64 = 512;

/// `cuMemFree` of memory from a pool: the block stays with the pool.
fn free_pool_memory(session: &Connection, pool: u64, known: &Allocation) -> Try {
    context::drain_by_id(session, known.context)?;
    write_allocations().remove(known.start).ok_or(error::INVALID_VALUE)?;
    pool::put_back(pool, known.start);
    pool::settle(session);
    Ok(())
}

pub unsafe fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() || bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    capture::refuse_unsafe_call()?;
    put!(out, allocate(session, context.id, context.device, bytes as u64)?);
    Ok(())
}

pub unsafe fn cuMemAllocPitch_v2(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() || pitch.is_null() || width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(error::INVALID_VALUE);
    }
    let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(error::INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(error::OUT_OF_MEMORY)?;
    capture::refuse_unsafe_call()?;
    put!(out, allocate(session, context.id, context.device, bytes)?);
    put!(pitch, row as usize);
    Ok(())
}

pub unsafe fn cuMemFree_v2(address: CUdeviceptr) -> Try {
    let session = process::enter()?;
    if address == 0 {
        return Ok(());
    }
    let known = read_allocations().at(address).copied().ok_or(error::INVALID_VALUE)?;
    if !matches!(known.sort, Sort::Device | Sort::Pool(_) | Sort::Graph | Sort::Managed(_) | Sort::BorrowedBlock(_)) {
        return Err(error::INVALID_VALUE);
    }
    capture::refuse_unsafe_call()?;
    if let Sort::Pool(pool) = known.sort {
        return free_pool_memory(session, pool, &known);
    }
    // As the driver: free waits for the work of the context, which may use the memory. Managed
    // memory is gone at once for the host.
    context::drain_by_id(session, known.context)?;
    if known.sort == Sort::Graph {
        return of_graphs::free(session, address);
    }
    if matches!(known.sort, Sort::BorrowedBlock(_)) {
        return close_block(session, address);
    }
    let gone = write_allocations().remove(address).ok_or(error::INVALID_VALUE)?;
    release(session, &gone)
}

pub unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    let [left, all, ..] = session.call(&Op::MemInfo { device: context.device })?;
    put_if!(free, left as usize);
    put_if!(total, all as usize);
    Ok(())
}

/// The 32-bit form that this name had before CUDA 3.2.
pub unsafe fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) -> Try {
    let (mut left, mut all) = (0, 0);
    // SAFETY: our own two words.
    unsafe { cuMemGetInfo_v2(&raw mut left, &raw mut all)? };
    put_if!(free, c_uint::try_from(left).unwrap_or(c_uint::MAX));
    put_if!(total, c_uint::try_from(all).unwrap_or(c_uint::MAX));
    Ok(())
}
