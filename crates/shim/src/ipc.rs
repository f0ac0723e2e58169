//! Memory and events for other processes: the `cuIpc…` calls.

use crate::event::{self, Cell, EVENTS};
use crate::ffi::{Try, error, put};
use crate::loan::{self, HANDLE_BYTES, Kind};
use crate::log::because;
use crate::memory::{self, Allocation, Sort};
use crate::{capture, context, process};
use core::ffi::{c_char, c_uint};
use cumux_abi::{CUdeviceptr, CUevent, CUipcEventHandle, CUipcMem_flags, CUipcMemHandle};

/// Peers can reach each other's memory anyway.
const LAZY_PEERS: c_uint = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;

fn to_c(handle: [u8; HANDLE_BYTES]) -> [c_char; HANDLE_BYTES] {
    handle.map(|byte| byte as c_char)
}

fn from_c(handle: [c_char; HANDLE_BYTES]) -> [u8; HANDLE_BYTES] {
    handle.map(|byte| byte as u8)
}

pub unsafe fn cuIpcGetMemHandle(out: *mut CUipcMemHandle, address: CUdeviceptr) -> Try {
    let session = process::enter()?;
    context::current()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let known = memory::read_allocations().find(address).copied().ok_or(error::INVALID_VALUE)?;
    if known.sort != Sort::Device {
        return Err(because(
            error::INVALID_VALUE,
            "only memory of cuMemAlloc has such a handle: memory of pools is exported with cuMemPoolExportPointer, mapped memory with cuMemExportToShareableHandle",
        ));
    }
    let token = loan::lend(session, known.start, Kind::Memory)?;
    put!(out, CUipcMemHandle { reserved: to_c(loan::encode(Kind::Memory, token, [0; 16])) });
    Ok(())
}

pub unsafe fn cuIpcOpenMemHandle_v2(out: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() || flags & !LAZY_PEERS != 0 {
        return Err(error::INVALID_VALUE);
    }
    let not_ours = || because(error::INVALID_HANDLE, "the handle was not made by cuIpcGetMemHandle of a program that is served by cumux");
    let (token, _) = loan::decode(Kind::Memory, &from_c(handle.reserved)).ok_or_else(not_ours)?;
    // As an allocation.
    capture::refuse_unsafe_call()?;
    let place = loan::open(session, token, Kind::Memory)?;
    if place.is_first {
        let (start, bytes, sort) = (place.address, place.bytes, Sort::Borrowed);
        let (id, device) = (process::new_number(), place.device);
        memory::write_allocations().insert(Allocation { start, bytes, sort, context: context.id, device, id, sync_memops: false });
    }
    put!(out, place.address);
    Ok(())
}

pub unsafe fn cuIpcCloseMemHandle(address: CUdeviceptr) -> Try {
    let session = process::enter()?;
    let known = memory::read_allocations().at(address).copied().filter(|known| known.sort == Sort::Borrowed).ok_or(error::INVALID_VALUE)?;
    capture::refuse_unsafe_call()?;
    // As the driver: what may use the memory is over before it goes.
    context::drain_by_id(session, known.context)?;
    if loan::close(session, address)? {
        memory::write_allocations().remove(address);
    }
    Ok(())
}

pub unsafe fn cuIpcGetEventHandle(out: *mut CUipcEventHandle, event: CUevent) -> Try {
    let session = process::enter()?;
    let event = event::named(event)?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let Some(Cell::Own(address)) = event.shared else {
        // Warp takes a handle of zeros for the error, whose number it does not read.
        put!(out, CUipcEventHandle { reserved: [0; HANDLE_BYTES] });
        return Err(because(error::INVALID_HANDLE, "only an event made with CU_EVENT_INTERPROCESS in this program has such a handle"));
    };
    let token = loan::lend(session, address, Kind::Event)?;
    put!(out, CUipcEventHandle { reserved: to_c(loan::encode(Kind::Event, token, [0; 16])) });
    Ok(())
}

pub unsafe fn cuIpcOpenEventHandle(out: *mut CUevent, handle: CUipcEventHandle) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let not_ours = || because(error::INVALID_HANDLE, "the handle was not made by cuIpcGetEventHandle of a program that is served by cumux");
    let (token, _) = loan::decode(Kind::Event, &from_c(handle.reserved)).ok_or_else(not_ours)?;
    let place = loan::open(session, token, Kind::Event)?;
    let Some(opened) = event::make(&EVENTS, context.id, None, Some(Cell::Borrowed(place.address))) else {
        loan::close(session, place.address)?;
        return Err(error::OUT_OF_MEMORY);
    };
    put!(out, opened);
    Ok(())
}
