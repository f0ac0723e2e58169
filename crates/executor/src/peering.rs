//! A session's devices that reach each other's memory.
//!
//! Allocations: a device of the client reaches all of them on another one, or none (that is what
//! `cuCtxEnablePeerAccess` means). Extents are mapped for both, and each allocation is permitted on
//! both. Memory that the client maps itself says for each mapping who reaches it.

use crate::objects::{Change, Mapped};
use crate::session::{Inner, Session};
use cumux_device::DeviceError;
use cumux_wire::cuda::MemoryAccess;
use cumux_wire::layout::{self, DeviceIndex};
use cumux_wire::result;
use std::os::fd::{AsFd as _, BorrowedFd};

/// The access that a client can set for a mapping.
const NONE: u32 = MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_NONE.0;
const READ: u32 = MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_READ.0;
const READ_WRITE: u32 = MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;

impl Session {
    /// From now on work on a device reaches the client's allocations on another one, or reaches
    /// them no more. The caller commits the change.
    pub(crate) fn set_peer_access(&self, inner: &mut Inner, device: u32, peer: u32, on: bool) -> (Change, u32) {
        let (Some(own), Some(owner)) = (self.device_index(device), self.device_index(peer)) else { return (Change::Nothing, result::INVALID_VALUE) };
        if own == owner {
            return (Change::Nothing, result::INVALID_VALUE);
        }
        if !self.shared.cards.reaches(own, owner) {
            return (Change::Nothing, result::PEER_ACCESS_UNSUPPORTED);
        }
        if inner.objects.peers.contains(&(device, peer)) == on {
            return (Change::Nothing, result::SUCCESS);
        }
        if on {
            match self.open_extents(inner, own, owner) {
                Ok(()) => (Change::Peer { device, peer }, result::SUCCESS),
                Err(error) => (Change::Nothing, error.result()),
            }
        } else {
            self.close_extents(inner, own, owner);
            (Change::PeerGone { device, peer }, result::SUCCESS)
        }
    }

    /// The client's allocations and variables on a device.
    fn allocations_on(&self, inner: &Inner, owner: DeviceIndex) -> Vec<(u64, u64)> {
        let variables = inner.objects.modules.values().flat_map(|module| &module.variables).map(|(_, address, bytes)| (*address, *bytes));
        let borrowed = inner.objects.borrowed.iter().map(|(address, borrowed)| (*address, borrowed.bytes));
        let all = inner.objects.allocations.iter().map(|(address, bytes)| (*address, *bytes)).chain(variables).chain(borrowed);
        all.filter(|(address, _)| layout::in_arena(*address) && layout::arena_device(*address) == owner).collect()
    }

    fn open_extents(&self, inner: &Inner, own: DeviceIndex, owner: DeviceIndex) -> Result<(), DeviceError> {
        let cards = &self.shared.cards;
        let mut opened = Vec::new();
        let own_extents = inner.memory.extents.iter().map(|(address, (file, note))| (*address, note.bytes, file));
        let borrowed = inner.memory.borrowed.iter().map(|(address, (file, note, _))| (*address, note.bytes, file));
        for (address, bytes, file) in own_extents.chain(borrowed).filter(|(address, ..)| layout::arena_device(*address) == owner) {
            if let Err(error) = cards.open_peer(own, address, file.as_fd(), 0, bytes) {
                opened.into_iter().for_each(|address| cards.close_peer(own, address));
                return Err(error);
            }
            opened.push(address);
        }
        cards.link(self.client(), own, owner);
        for (address, bytes) in self.allocations_on(inner, owner) {
            cards.allow_at(own, self.client(), address, bytes.max(1), true);
        }
        Ok(())
    }

    fn close_extents(&self, inner: &Inner, own: DeviceIndex, owner: DeviceIndex) {
        let cards = &self.shared.cards;
        for (address, _) in self.allocations_on(inner, owner) {
            cards.revoke_at(own, self.client(), address);
        }
        cards.unlink(self.client(), own, owner);
        let borrowed = inner.memory.borrowed.keys().copied();
        for address in inner.memory.heap.extents().into_iter().map(|(address, _)| address).chain(borrowed) {
            if layout::arena_device(address) == owner {
                cards.close_peer(own, address);
            }
        }
    }

    /// Sets the access of a device to all mappings in the range, which must be covered exactly. The
    /// memory is another device's.
    pub(crate) fn set_mapping_access(&self, inner: &mut Inner, (address, bytes): (u64, u64), device: u32, access: u32) -> u32 {
        let (Some(end), Some(own)) = (address.checked_add(bytes), self.device_index(device)) else { return result::INVALID_VALUE };
        let covered: Vec<(u64, Mapped)> = inner.objects.mappings.range(address..end).map(|(at, mapped)| (*at, *mapped)).collect();
        if covered.is_empty() || covered.iter().map(|(_, mapped)| mapped.bytes).sum::<u64>() != bytes || ![NONE, READ, READ_WRITE].contains(&access) {
            return result::INVALID_VALUE;
        }
        for (at, mapped) in covered {
            let owner = inner.objects.physical.get(&mapped.handle).and_then(|(owner, _)| self.device_index(*owner));
            let Some(owner) = owner.filter(|owner| *owner != own) else { return result::INVALID_VALUE };
            if !self.shared.cards.reaches(own, owner) {
                return result::PEER_ACCESS_UNSUPPORTED;
            }
            if let Err(error) = self.change_mapping(inner, own, at, &mapped, (mapped.peer_access(device), access)) {
                return error.result();
            }
            self.commit(inner, Change::PeersOfMapping { address: at, peers: mapped.with_peer_access(device, access) }, 0, None);
        }
        result::SUCCESS
    }

    fn change_mapping(&self, inner: &Inner, own: DeviceIndex, at: u64, mapped: &Mapped, (before, access): (u32, u32)) -> Result<(), DeviceError> {
        let cards = &self.shared.cards;
        if before == NONE && access != NONE {
            let Some(file) = inner.memory.physical.get(&mapped.handle) else { return Err(DeviceError::Invalid(format!("nothing is mapped at {at:#x}"))) };
            cards.open_peer(own, at, file.as_fd(), mapped.offset, mapped.bytes)?;
        }
        if before != NONE {
            cards.revoke_at(own, self.client(), at);
        }
        if access != NONE {
            cards.allow_at(own, self.client(), at, mapped.bytes, access == READ_WRITE);
        } else if before != NONE {
            cards.close_peer(own, at);
        }
        Ok(())
    }

    /// A mapping goes: no other device may touch it.
    pub(crate) fn revoke_peers(&self, mapped: &Mapped, at: u64) {
        for (device, part) in (0..).zip(&self.config.parts) {
            if mapped.peer_access(device) != NONE {
                self.shared.cards.revoke_at(part.device, self.client(), at);
            }
        }
    }

    /// What a predecessor had opened to other devices of the client is opened again.
    pub(crate) fn restore_links(&self, inner: &Inner) {
        for (device, peer) in &inner.objects.peers {
            if let (Some(own), Some(owner)) = (self.device_index(*device), self.device_index(*peer)) {
                self.shared.cards.link(self.client(), own, owner);
            }
        }
    }

    /// As [`Session::restore_links`], for a mapping.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn restore_peers_of(&self, mapped: &Mapped, at: u64, file: BorrowedFd<'_>) -> Result<(), DeviceError> {
        for (device, part) in (0..).zip(&self.config.parts) {
            let access = mapped.peer_access(device);
            if access != NONE {
                self.shared.cards.open_peer(part.device, at, file, mapped.offset, mapped.bytes)?;
                self.shared.cards.allow_at(part.device, self.client(), at, mapped.bytes, access == READ_WRITE);
            }
        }
        Ok(())
    }
}
