//! Peers: devices that reach each other's memory. A session has one address space, so a device reaches itself and nothing else is claimed.

use crate::client;
use crate::context;
use crate::ffi::{Try, error, put};
use core::ffi::{c_int, c_uint};
use cumux_abi::{CUatomicOperation, CUcontext, CUdevice, CUdevice_P2PAttribute, CUresult};

pub unsafe fn cuDeviceCanAccessPeer(out: *mut c_int, device: CUdevice, peer: CUdevice) -> Try {
    let session = client::look()?;
    session.device(device)?;
    session.device(peer)?;
    put!(out, 0);
    Ok(())
}

pub unsafe fn cuDeviceGetP2PAttribute(out: *mut c_int, _attribute: CUdevice_P2PAttribute, source: CUdevice, target: CUdevice) -> Try {
    let session = client::look()?;
    session.device(source)?;
    session.device(target)?;
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
    let session = client::look()?;
    session.device(source)?;
    session.device(target)?;
    if source == target {
        return Err(error::INVALID_DEVICE);
    }
    for index in 0..count as usize {
        put!(capabilities.wrapping_add(index), 0);
    }
    Ok(())
}

pub unsafe fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Try {
    let session = client::enter()?;
    context::current()?;
    session.context(peer.addr() as u64)?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
}

pub unsafe fn cuCtxDisablePeerAccess(peer: CUcontext) -> Try {
    let session = client::enter()?;
    context::current()?;
    session.context(peer.addr() as u64)?;
    Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
}
