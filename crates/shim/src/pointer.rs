//! What an address is: answered from the mirror of the program's allocations.

use crate::ffi::{Try, error, get, list, put, put_if};
use crate::memory::{self, Allocation, Sort};
use crate::{context, host, pool, process, vmm};
use core::ffi::{c_int, c_uint, c_void};
use cumux_abi::{CUdeviceptr, CUmemorytype, CUpointer_attribute as A};

/// `CU_MEM_HANDLE_TYPE_NONE`.
const NO_HANDLES: c_int = 0;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTORS: c_int = 1;

/// Writes one attribute of an allocation.
///
/// # Safety
/// `out` points to room for the attribute's type.
unsafe fn answer(out: *mut c_void, attribute: A, address: u64, known: Option<&Allocation>) -> Try {
    // For memory the driver does not know, only these have an answer.
    let Some(known) = known else {
        match attribute {
            A::CU_POINTER_ATTRIBUTE_MAPPED | A::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => put!(out.cast::<c_int>(), 0),
            _ => return Err(error::INVALID_VALUE),
        }
        return Ok(());
    };
    let flag = |value: bool| c_int::from(value);
    match attribute {
        A::CU_POINTER_ATTRIBUTE_CONTEXT => {
            let handle = context::find_by_id(known.context).map_or(core::ptr::null_mut(), |context| context.as_c());
            put!(out.cast(), handle);
        }
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            put!(out.cast(), if known.on_host() { CUmemorytype::CU_MEMORYTYPE_HOST } else { CUmemorytype::CU_MEMORYTYPE_DEVICE });
        }
        A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put!(out.cast::<CUdeviceptr>(), host::kernel_address(process::enter()?, known, address)),
        A::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            if !known.on_host() && !known.is_managed() {
                return Err(error::INVALID_VALUE);
            }
            put!(out.cast::<u64>(), address);
        }
        A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => put!(out.cast(), flag(known.sync_memops)),
        A::CU_POINTER_ATTRIBUTE_BUFFER_ID => put!(out.cast::<u64>(), known.id),
        A::CU_POINTER_ATTRIBUTE_IS_MANAGED => put!(out.cast(), flag(known.is_managed())),
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put!(out.cast(), known.device.cast_signed()),
        A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => put!(out.cast(), flag(known.sort == Sort::Device)),
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => put!(out.cast::<CUdeviceptr>(), known.start),
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => put!(out.cast::<usize>(), known.bytes as usize),
        A::CU_POINTER_ATTRIBUTE_MAPPED => put!(out.cast(), 1_i32),
        A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            let exportable = match known.sort {
                Sort::Mapped => vmm::is_exportable(address),
                Sort::Pool(pool) => pool::is_exportable(pool),
                _ => false,
            };
            put!(out.cast(), if exportable { DESCRIPTORS } else { NO_HANDLES });
        }
        A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => put!(out.cast(), 0_i32),
        // Read and write.
        A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => put!(out.cast(), 3_i32),
        A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            let pool = if let Sort::Pool(pool) | Sort::BorrowedBlock(pool) = known.sort { pool } else { 0 };
            put!(out.cast::<u64>(), pool);
        }
        A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => put!(out.cast::<usize>(), known.bytes as usize),
        A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => put!(out.cast::<CUdeviceptr>(), known.start),
        A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put!(out.cast::<u64>(), known.id),
        A::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => put!(out.cast(), 0_i32),
        _ => return Err(error::INVALID_VALUE),
    }
    Ok(())
}

fn known(address: u64) -> Option<Allocation> {
    memory::read_allocations().find(address).copied()
}

pub unsafe fn cuPointerGetAttribute(out: *mut c_void, attribute: A, address: CUdeviceptr) -> Try {
    process::enter()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: the program vouches for the room behind `out`.
    unsafe { answer(out, attribute, address, known(address).as_ref()) }
}

pub unsafe fn cuPointerGetAttributes(count: c_uint, attributes: *mut A, out: *mut *mut c_void, address: CUdeviceptr) -> Try {
    process::enter()?;
    let known = known(address);
    let wanted = list!(attributes.cast_const(), count as usize).iter().zip(list!(out.cast_const(), count as usize));
    for (attribute, out) in wanted {
        if out.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: the program vouches for the room behind `out`.
        if unsafe { answer(*out, *attribute, address, known.as_ref()) }.is_err() {
            // As documented: what has no answer reads as null, and the call succeeds.
            // SAFETY: the program vouches for the room behind `out`.
            unsafe { nothing(*out, *attribute)? };
        }
    }
    Ok(())
}

/// Writes "nothing" for an attribute that has no answer.
///
/// # Safety
/// `out` points to room for the attribute's type.
unsafe fn nothing(out: *mut c_void, attribute: A) -> Try {
    match attribute {
        A::CU_POINTER_ATTRIBUTE_CONTEXT
        | A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER
        | A::CU_POINTER_ATTRIBUTE_HOST_POINTER
        | A::CU_POINTER_ATTRIBUTE_BUFFER_ID
        | A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
        | A::CU_POINTER_ATTRIBUTE_RANGE_SIZE
        | A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
        | A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
        | A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE
        | A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
        | A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put!(out.cast::<u64>(), 0),
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put!(out.cast::<c_int>(), -2),
        _ => put!(out.cast::<c_int>(), 0),
    }
    Ok(())
}

pub unsafe fn cuPointerSetAttribute(value: *const c_void, attribute: A, address: CUdeviceptr) -> Try {
    process::enter()?;
    if attribute != A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
        return Err(error::INVALID_VALUE);
    }
    let on = get!(value.cast::<c_uint>()) != 0;
    let mut allocations = memory::write_allocations();
    allocations.at_mut(address).ok_or(error::INVALID_VALUE)?.sync_memops = on;
    Ok(())
}

pub unsafe fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) -> Try {
    process::enter()?;
    let known = known(address).ok_or(error::NOT_FOUND)?;
    put_if!(base, known.start);
    put_if!(bytes, known.bytes as usize);
    Ok(())
}
