//! Accesses of one lane to one value, in any state space: for rare instructions.

use super::access::{NearMemory, near_bytes};
use super::fault::{LaneFault, LaneResult};
use super::interface::{Access, FaultKind, GlobalMemory};
use super::raw::DeviceBytes;
use crate::program::code::{Order, Space};
use crate::program::window;

/// The space of an address, and the address in that space.
pub(super) fn resolve(near: &NearMemory<'_>, space: Space, address: u64) -> (Space, u64) {
    match space {
        Space::Generic if window::SHARED.contains(address) => (Space::Shared, address - window::SHARED.start),
        Space::Generic if window::LOCAL.contains(address) => (Space::Local, address - window::LOCAL.start),
        Space::Generic if window::PARAM.contains(address) => (Space::Param, address - window::PARAM.start),
        Space::Generic => (Space::Global, address),
        Space::Frame => (Space::Local, address.wrapping_add(near.frame.into())),
        _ => (space, address),
    }
}

/// Reads a value of 1, 2, 4 or 8 bytes.
pub(super) fn load<M: GlobalMemory>(near: &mut NearMemory<'_>, memory: &mut M, space: Space, address: u64, bytes: u64, lane: usize) -> LaneResult<u64> {
    let (space, at) = resolve(near, space, address);
    if at & (bytes - 1) != 0 {
        return Err(LaneFault::access(FaultKind::Misaligned, lane, address, bytes as u32));
    }
    let slice = match space {
        Space::Global | Space::Generic => {
            let range = DeviceBytes::find(memory, at, bytes, Access::Load).map_err(|fault| LaneFault::memory(fault, lane, at, bytes as u32))?;
            return Ok(match bytes {
                1 => range.load8(0, Order::Weak).into(),
                2 => range.load16(0, Order::Weak).into(),
                4 => range.load32(0, Order::Weak).into(),
                _ => range.load64(0, Order::Weak),
            });
        }
        Space::Param => {
            let from = usize::try_from(at).ok().and_then(|at| near.parameters.get(at..)?.get(..bytes as usize));
            from.ok_or_else(|| LaneFault::access(FaultKind::ParamOutOfBounds, lane, address, bytes as u32))?
        }
        _ => near_bytes(near, space, at, bytes, lane)?,
    };
    let mut all = [0; 8];
    all[..slice.len()].copy_from_slice(slice);
    Ok(u64::from_le_bytes(all))
}

/// Writes a value of 1, 2, 4 or 8 bytes.
pub(super) fn store<M: GlobalMemory>(
    near: &mut NearMemory<'_>,
    memory: &mut M,
    space: Space,
    address: u64,
    bytes: u64,
    value: u64,
    lane: usize,
) -> LaneResult<()> {
    let (space, at) = resolve(near, space, address);
    if at & (bytes - 1) != 0 {
        return Err(LaneFault::access(FaultKind::Misaligned, lane, address, bytes as u32));
    }
    match space {
        Space::Global | Space::Generic => {
            let range = DeviceBytes::find(memory, at, bytes, Access::Store).map_err(|fault| LaneFault::memory(fault, lane, at, bytes as u32))?;
            memory.before_store(at, range.pointer(0), bytes as u32);
            match bytes {
                1 => range.store8(0, value as u8, Order::Weak),
                2 => range.store16(0, value as u16, Order::Weak),
                4 => range.store32(0, value as u32, Order::Weak),
                _ => range.store64(0, value, Order::Weak),
            }
        }
        Space::Param => return Err(LaneFault::access(FaultKind::ParamOutOfBounds, lane, address, bytes as u32)),
        _ => near_bytes(near, space, at, bytes, lane)?.copy_from_slice(&value.to_le_bytes()[..bytes as usize]),
    }
    Ok(())
}
