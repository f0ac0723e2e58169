//! A session's device memory: allocations out of extents, and virtual memory management.
//!
//! Charging comes first: nothing is made before the client's limit allows it.

use crate::arena::{self, GRANULE};
use crate::error::ExecutorError;
pub(crate) use crate::extents::ExtentNote;
use crate::heap::Heap;
use crate::objects::{Change, Mapped, Objects, SharedPhysical};
use crate::session::{Inner, PreparedExtent, Session};
use crate::shared::{answer, is_memory, result_of};
use cumux_device::DeviceError;
use cumux_wire::cuda::MemoryAccess;
use cumux_wire::layout::{self, DeviceIndex};
use cumux_wire::record::Header;
use cumux_wire::result;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The access that a client can set for a mapping.
const ACCESS: [MemoryAccess; 3] =
    [MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_NONE, MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_READ, MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_READWRITE];

/// The first extent of a client; most small programs need no other.
const FIRST_EXTENT: u64 = 2 << 20;
/// Further extents have this part of what the client has already, but no less and no more than
/// these bytes: what is left over in the last one is memory that nobody has.
const EXTENT_PART: u64 = 64;
const LEAST_EXTENT: u64 = 4 << 20;
const MOST_EXTENT: u64 = 64 << 20;
/// Most bytes of a client's empty extents that are kept.
const MOST_SPARE: u64 = 64 << 20;
/// An allocation this large gets an extent of its own.
const OWN_EXTENT: u64 = 32 << 20;

/// A client may reserve one part of so many.
const RESERVABLE: u64 = 4;

/// What the keeper's keys of extents begin with.
pub(crate) const EXTENT_KEY: &str = "extent-";

/// Name of an extent in the keeper.
pub(crate) fn extent_key(address: u64) -> String {
    format!("{EXTENT_KEY}{address:x}")
}

/// What the keeper's keys of extents of others begin with.
pub(crate) const BORROWED_KEY: &str = "borrowed-";

/// Name in the keeper of another client's extent in which a client has something open.
pub(crate) fn borrowed_key(address: u64) -> String {
    format!("{BORROWED_KEY}{address:x}")
}

pub(crate) fn physical_key(handle: u32) -> String {
    format!("physical-{handle}")
}

/// The size of the extent that is made for an allocation of so many whole granules.
pub(crate) fn extent_size(inner: &Inner, device_index: DeviceIndex, exact: u64) -> u64 {
    let own = inner.memory.heap.bytes_in(&layout::arena_window(device_index));
    size_beside(own, exact)
}

/// The same for a client that has so many bytes in extents of this device.
fn size_beside(own: u64, exact: u64) -> u64 {
    match exact {
        e if e > OWN_EXTENT => e,
        e if e <= FIRST_EXTENT && own == 0 => FIRST_EXTENT,
        e => {
            let usual = (own / EXTENT_PART).next_multiple_of(GRANULE).clamp(LEAST_EXTENT, MOST_EXTENT);
            // A whole number of them: programs mostly allocate the same sizes again.
            (usual / e).max(1) * e
        }
    }
}

/// How many of these spare extents, the oldest first, make room for one of so many bytes.
fn count_oldest(spare: &[(u64, u64)], bytes: u64) -> usize {
    (0..spare.len()).find(|count| spare[*count..].iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes <= MOST_SPARE).unwrap_or(spare.len())
}

impl Session {
    /// An allocation of `bytes` bytes, charged and permitted. The caller commits it.
    ///
    /// # Errors
    /// A result code.
    pub(crate) fn allocate(&self, inner: &mut Inner, device: u32, bytes: u64, align: u64) -> Result<u64, u32> {
        // An alignment beyond the extents' own would need more memory than is charged.
        let is_ours = !inner.phase.is_closed() && !inner.phase.is_elsewhere();
        let device_index = self.device_index(device).filter(|_| bytes != 0 && align <= GRANULE && is_ours).ok_or(result::INVALID_VALUE)?;
        let part = layout::arena_window(device_index);
        let rounded = Heap::rounded(bytes).ok_or(result::OUT_OF_MEMORY)?;
        self.charge(device, rounded)?;
        let address = match inner.memory.heap.allocate(bytes, align, &part) {
            Some(address) => address,
            None => match self.extend(inner, device_index, rounded).map(|()| inner.memory.heap.allocate(bytes, align, &part)) {
                Ok(Some(address)) => address,
                Ok(None) => {
                    self.refund(device, rounded);
                    return Err(result::OUT_OF_MEMORY);
                }
                Err(error) => {
                    tracing::warn!("session {}: no memory for {bytes} bytes: {error}", self.config.id);
                    self.refund(device, rounded);
                    return Err(result_of(&error));
                }
            },
        };
        self.unspare(inner, address);
        self.shared.cards.allow(self.client(), address, bytes, true);
        Ok(address)
    }

    /// A spare extent is in use again if `address` is in it.
    fn unspare(&self, inner: &mut Inner, address: u64) {
        let used = |(at, bytes): &mut (u64, u64)| (*at..*at + *bytes).contains(&address);
        inner.memory.spare.extract_if(.., used).for_each(|(_, bytes)| self.shared.unspare(bytes));
    }

    /// What was prepared and not used is not needed.
    pub(crate) fn drop_prepared(&self) {
        let unused = self.prepared.lock().take();
        if let Some(PreparedExtent { device_index, file, .. }) = unused {
            self.shared.cards.forget_extent(device_index, file.as_fd());
        }
    }

    /// The extent that was prepared, if it is the right one; else one that is made now.
    fn take_extent(&self, device_index: DeviceIndex, bytes: u64) -> Result<OwnedFd, DeviceError> {
        let is_right = |prepared: &mut PreparedExtent| prepared.device_index == device_index && prepared.bytes == bytes;
        // A separate statement, so that the lock is released.
        let prepared = self.prepared.lock().take_if(is_right);
        prepared.map_or_else(|| self.shared.create_extent(device_index, bytes), |prepared| Ok(prepared.file))
    }

    /// A new extent with room for `bytes`.
    fn extend(&self, inner: &mut Inner, device_index: DeviceIndex, bytes: u64) -> Result<(), ExecutorError> {
        let exact = bytes.checked_next_multiple_of(GRANULE);
        let exact = exact.ok_or_else(|| DeviceError::OutOfMemory("more than there are addresses".into()))?;
        // What was prepared is taken: meanwhile others may have given memory back, so that another
        // size would be right now.
        let prepared = self.prepared.lock().as_ref().filter(|prepared| prepared.device_index == device_index && prepared.bytes >= exact).map(|one| one.bytes);
        let wanted = prepared.unwrap_or_else(|| extent_size(inner, device_index, exact));
        match self.extent(inner, device_index, wanted) {
            Err(error) if is_memory(&error) && wanted > exact => self.extent(inner, device_index, exact),
            other => other,
        }
    }

    fn extent(&self, inner: &mut Inner, device_index: DeviceIndex, bytes: u64) -> Result<(), ExecutorError> {
        let cards = &self.shared.cards;
        let file = self.take_extent(device_index, bytes)?;
        // Two extents at one address are not made in the same nanosecond.
        let note = ExtentNote { bytes, name: Some(cumux_link::recorder::now_ns()) };
        let Some(address) = self.shared.arena.lock().allocate(bytes, GRANULE, &layout::arena_window(device_index)) else {
            cards.forget_extent(device_index, file.as_fd());
            return Err(DeviceError::OutOfMemory("no address range is free".into()).into());
        };
        let made = self
            .shared
            .keep(self.config.id, &extent_key(address), &note.text(), &[file.as_fd()])
            .and_then(|()| Ok(cards.map(device_index, address, file.as_fd(), 0, bytes)?))
            .and_then(|()| {
                Ok(cards.share_extent(self.client(), device_index, address, file.as_fd(), bytes).inspect_err(|_| drop(cards.unmap(address, bytes)))?)
            });
        if let Err(error) = made {
            self.shared.drop_kept(self.config.id, &extent_key(address));
            self.shared.arena.lock().release(address, bytes);
            cards.forget_extent(device_index, file.as_fd());
            return Err(error);
        }
        let file = Arc::new(file);
        self.shared.extents.lock().add(address, note, file.clone(), None, self.client());
        inner.memory.heap.add_extent(address, bytes);
        inner.memory.extents.insert(address, (file, note));
        Ok(())
    }

    /// Frees an allocation the client made; an unknown address does nothing (the shim knows them,
    /// and a predecessor may have freed it). What others have open is kept for them.
    pub(crate) fn free(&self, inner: &mut Inner, address: u64) {
        let Some(bytes) = inner.objects.allocations.get(&address).copied() else { return };
        let token = inner.objects.lent.get(&address).map(|lent| lent.token);
        if token.is_some_and(|token| self.shared.loans.lock().free(token)) {
            self.shared.cards.revoke(self.client(), address);
            return self.commit(inner, Change::Keep { address }, 0, None);
        }
        self.give_back(inner, address, bytes);
        self.commit(inner, Change::Free { address }, 0, None);
    }

    /// Nobody has an allocation open any more that the client has freed.
    pub(crate) fn end_keeping(&self, inner: &mut Inner, address: u64) {
        if inner.phase.is_closed() || inner.phase.is_elsewhere() || !inner.objects.kept.contains_key(&address) {
            return;
        }
        self.commit(inner, Change::KeepGone { address }, 0, None);
        self.release_slice(inner, address);
        self.note_memory(inner);
    }

    /// Takes memory back from the client's use.
    pub(crate) fn give_back(&self, inner: &mut Inner, address: u64, _bytes: u64) {
        self.shared.cards.revoke(self.client(), address);
        self.release_slice(inner, address);
    }

    /// Memory that nobody may touch is free again; whole large extents go back to the card, but for
    /// some that are kept for the next allocations.
    fn release_slice(&self, inner: &mut Inner, address: u64) {
        let Some(rounded) = inner.memory.heap.release(address) else { return };
        self.shared.refund(self.config.id, layout::arena_device(address), rounded);
        // Given back, because others take their place.
        let mut evicted = Vec::new();
        while let Some((extent, bytes)) = inner.memory.heap.idle_extent(FIRST_EXTENT, &inner.memory.spare) {
            if bytes <= MOST_SPARE && !evicted.contains(&extent) {
                for (oldest, bytes) in inner.memory.spare.drain(..count_oldest(&inner.memory.spare, bytes)) {
                    self.shared.unspare(bytes);
                    evicted.push(oldest);
                }
                if self.shared.spare(bytes) {
                    inner.memory.heap.add_extent(extent, bytes);
                    inner.memory.spare.push((extent, bytes));
                    continue;
                }
            }
            let unmapped = self.shared.leave_extent(self.client(), extent, bytes);
            if let Err(error) = &unmapped {
                tracing::warn!("session {}: an extent could not be unmapped: {error}", self.config.id);
            }
            inner.memory.extents.remove(&extent);
            self.shared.note_released();
            // In this order: another client that gets the addresses has them kept at once, and a
            // successor that finds both in the keeper could restore only one of the two.
            self.shared.drop_kept(self.config.id, &extent_key(extent));
            if unmapped.unwrap_or(true) {
                self.shared.arena.lock().release(extent, bytes);
            }
        }
    }

    /// Addresses without memory. They lie behind the parts of the arena in which the executor's
    /// devices have their extents, and a client gets a [`RESERVABLE`]th of them at most: whatever
    /// one client reserves, others can allocate and reserve.
    /// `leaving` ones count, too.
    pub(crate) fn reserve(&self, objects: &Objects, leaving: &[(u64, u64)], bytes: u64, align: u64, fixed: u64) -> (Change, u32, u64) {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return (Change::Nothing, result::INVALID_VALUE, 0);
        }
        let first = self.shared.cards.count().min(layout::DEVICES - 1) as u32;
        let part = layout::arena_window(first).start..arena::ALL.end;
        // Whole ranges are for memory of the host, where nobody else has anything. They are at most
        // half of what a client may have, so that small ones are left when no whole one is.
        let is_apart = align >= layout::HOST_RANGE && bytes.is_multiple_of(layout::HOST_RANGE);
        let all = || objects.reservations.iter().map(|(address, bytes)| (*address, *bytes)).chain(leaving.iter().copied());
        let own: u64 = all().map(|(_, bytes)| bytes).sum();
        let apart: u64 = all().filter(|(address, _)| is_apart && layout::in_host_ranges(*address)).map(|(_, bytes)| bytes).sum();
        let share = (part.end - part.start) / RESERVABLE;
        if own.checked_add(bytes).is_none_or(|sum| sum > share) || (apart != 0 && apart.saturating_add(bytes) > share / 2) {
            return (Change::Nothing, result::OUT_OF_MEMORY, 0);
        }
        let mut arena = self.shared.arena.lock();
        // With CUMUX_BENEATH=1 a program may reserve what else is for devices' memory: it gives
        // these addresses to clients of its own. For tests.
        let lowest = if cumux_environment::number_or_none("CUMUX_BENEATH") == Some(1) { arena::ALL.start } else { part.start };
        let wished = fixed >= lowest && arena.claim(fixed, bytes);
        let middle = layout::HOST_RANGES.start.clamp(part.start, part.end);
        let address = match wished {
            true => Some(fixed),
            false if is_apart => arena.allocate(bytes, align, &(middle..part.end)),
            false => arena.allocate(bytes, align, &(part.start..middle)).or_else(|| arena.allocate(bytes, align, &part)),
        };
        match address {
            Some(address) => (Change::Reserve { address, bytes }, result::SUCCESS, address),
            None => (Change::Nothing, result::OUT_OF_MEMORY, 0),
        }
    }

    pub(crate) fn physical_create(&self, inner: &mut Inner, handle: u32, device: u32, bytes: u64) -> (Change, u32) {
        let Some(device_index) = self.device_index(device) else { return (Change::Nothing, result::INVALID_VALUE) };
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) || inner.objects.physical.contains_key(&handle) {
            return (Change::Nothing, result::INVALID_VALUE);
        }
        if let Err(code) = self.charge(device, bytes) {
            return (Change::Nothing, code);
        }
        let made = self.take_extent(device_index, bytes).map_err(ExecutorError::from).and_then(|file| {
            let kept = self.shared.keep(self.config.id, &physical_key(handle), &bytes.to_string(), &[file.as_fd()]);
            kept.inspect_err(|_| self.shared.cards.forget_extent(device_index, file.as_fd()))?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                inner.memory.physical.insert(handle, Arc::new(file));
                (Change::Physical { handle, device, bytes }, result::SUCCESS)
            }
            Err(error) => {
                self.refund(device, bytes);
                (Change::Nothing, result_of(&error))
            }
        }
    }

    pub(crate) fn physical_gone(&self, inner: &mut Inner, handle: u32) {
        if let Some((device, bytes)) = inner.objects.physical.get(&handle).copied() {
            let shared = inner.objects.shared_physical.get(&handle).copied();
            self.forget_physical(inner, handle, device);
            self.shared.drop_kept(self.config.id, &physical_key(handle));
            if !shared.is_some_and(|shared| shared.borrowed) {
                self.refund(device, bytes);
            }
            if let Some(SharedPhysical { token, .. }) = shared {
                let consequences = self.shared.loans.lock().leave(token, self.client());
                self.shared.settle_loans(consequences);
            }
            self.commit(inner, Change::PhysicalGone { handle }, 0, None);
        }
    }

    /// The session lets go of a file of physical memory, which others may have.
    pub(crate) fn forget_physical(&self, inner: &mut Inner, handle: u32, device: u32) {
        let token = inner.objects.shared_physical.get(&handle).map(|shared| shared.token);
        let is_shared = token.is_some_and(|token| self.shared.loans.lock().is_shared(token, self.client()));
        if let (Some(file), Some(device_index)) = (inner.memory.physical.remove(&handle), self.device_index(device))
            && !is_shared
        {
            self.shared.cards.forget_extent(device_index, file.as_fd());
        }
    }

    pub(crate) fn map(&self, inner: &mut Inner, address: u64, bytes: u64, handle: u32, offset: u64) -> (Change, u32) {
        let Some(end) = address.checked_add(bytes) else { return (Change::Nothing, result::INVALID_VALUE) };
        let reserved = inner.objects.reservations.range(..=address).next_back().is_some_and(|(a, b)| end <= a + b);
        let before = inner.objects.mappings.range(..end).next_back().is_none_or(|(a, m)| a + m.bytes <= address);
        let whole = offset.checked_add(bytes).is_some_and(|e| inner.objects.physical.get(&handle).is_some_and(|(_, have)| e <= *have));
        let aligned = bytes != 0 && address.is_multiple_of(GRANULE) && bytes.is_multiple_of(GRANULE) && offset.is_multiple_of(GRANULE);
        if !(reserved && before && whole && aligned) || inner.objects.released.contains(&handle) {
            return (Change::Nothing, result::INVALID_VALUE);
        }
        let Some(file) = inner.memory.physical.get(&handle) else { return (Change::Nothing, result::INVALID_VALUE) };
        let device_index = inner.objects.physical.get(&handle).and_then(|(device, _)| self.device_index(*device)).unwrap_or(0);
        match self.shared.cards.map(device_index, address, file.as_fd(), offset, bytes) {
            Ok(()) => (Change::Map { address, mapped: Mapped { bytes, handle, offset, access: 0, peers: 0 } }, result::SUCCESS),
            Err(error) => (Change::Nothing, error.result()),
        }
    }

    /// Sets the access of all mappings in the range, which must be covered exactly.
    pub(crate) fn access(&self, inner: &mut Inner, end: u64, header: &Header, address: u64, bytes: u64, access: u32) {
        let Some(to) = address.checked_add(bytes) else {
            return self.commit(inner, Change::Nothing, end, Some((header, answer(result::INVALID_VALUE))));
        };
        let covered: Vec<(u64, Mapped)> = inner.objects.mappings.range(address..to).map(|(a, m)| (*a, *m)).collect();
        let exact = covered.iter().map(|(_, m)| m.bytes).sum::<u64>() == bytes && !covered.is_empty();
        if !exact || !ACCESS.contains(&MemoryAccess(access)) {
            return self.commit(inner, Change::Nothing, end, Some((header, answer(result::INVALID_VALUE))));
        }
        for (at, mapped) in covered {
            if MemoryAccess(mapped.access) != MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_NONE {
                self.shared.cards.revoke_own(self.client(), at);
            }
            if MemoryAccess(access) != MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_NONE {
                self.shared.cards.allow_own(self.client(), at, mapped.bytes, MemoryAccess(access) == MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            }
            self.commit(inner, Change::Access { address: at, access }, 0, None);
        }
        self.commit(inner, Change::Nothing, end, Some((header, answer(result::SUCCESS))));
    }

    /// Unmaps all mappings in the range, which must be covered exactly.
    pub(crate) fn unmap(&self, inner: &mut Inner, address: u64, bytes: u64) -> u32 {
        let Some(to) = address.checked_add(bytes) else { return result::INVALID_VALUE };
        let covered: Vec<(u64, Mapped)> = inner.objects.mappings.range(address..to).map(|(a, m)| (*a, *m)).collect();
        if covered.is_empty() || covered.iter().map(|(_, m)| m.bytes).sum::<u64>() != bytes {
            return result::INVALID_VALUE;
        }
        for (at, mapped) in covered {
            if MemoryAccess(mapped.access) != MemoryAccess::CU_MEM_ACCESS_FLAGS_PROT_NONE {
                self.shared.cards.revoke_own(self.client(), at);
            }
            self.revoke_peers(&mapped, at);
            if let Err(error) = self.shared.cards.unmap(at, mapped.bytes) {
                tracing::warn!("session {}: unmapping {at:#x} failed: {error}", self.config.id);
                return error.result();
            }
            self.commit(inner, Change::Unmap { address: at }, 0, None);
            let unused = !inner.objects.mappings.values().any(|m| m.handle == mapped.handle);
            if unused && inner.objects.released.contains(&mapped.handle) {
                self.physical_gone(inner, mapped.handle);
            }
        }
        result::SUCCESS
    }

    /// Whether the executor may read these bytes for the client.
    pub(crate) fn may_touch(&self, objects: &Objects, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let window = layout::window_address(self.config.window_slot);
        (address >= window && end <= window + layout::WINDOW_BYTES)
            || objects.allocations.range(..=address).next_back().is_some_and(|(a, b)| end <= a + b)
            || objects.mappings.range(..=address).next_back().is_some_and(|(a, m)| (m.access | m.peers) != 0 && end <= a + m.bytes)
            || objects.borrowed.range(..=address).next_back().is_some_and(|(a, borrowed)| end <= a + borrowed.bytes)
            || objects.modules.values().flat_map(|m| &m.variables).any(|(_, a, b)| address >= *a && end <= a + b)
    }

    /// Managed variables live at the end of the client's window, where both sides see them.
    pub(crate) fn managed(&self, inner: &mut Inner, device: u32, bytes: u64, align: u64) -> Result<u64, DeviceError> {
        let full = || DeviceError::OutOfMemory("managed variables take more than their part of the window".into());
        let at = inner.memory.managed.checked_next_multiple_of(align.max(16)).ok_or_else(full)?;
        let end = at.checked_add(bytes).filter(|end| *end <= layout::WINDOW_MANAGED_BYTES).ok_or_else(full)?;
        // It is never given back before the client ends: charged once and for all.
        self.charge(device, end - inner.memory.managed).map_err(|_| DeviceError::OutOfMemory(format!("{bytes} bytes for a managed variable")))?;
        inner.memory.managed = end;
        Ok(layout::window_address(self.config.window_slot) + layout::WINDOW_BYTES - layout::WINDOW_MANAGED_BYTES + at)
    }

    pub(crate) fn in_window(&self, address: u64, bytes: u64) -> bool {
        let base = layout::window_address(self.config.window_slot);
        address >= base && address.checked_add(bytes).is_some_and(|end| end <= base + layout::WINDOW_BYTES)
    }

    /// Places what was allocated before a takeover: its range is taken and permitted again. What
    /// lies in the window, a managed variable, is charged as memory of `device`.
    pub(crate) fn restore_range(&self, inner: &mut Inner, device: u32, address: u64, bytes: u64) -> bool {
        if !self.restore_slice(inner, device, address, bytes) {
            return false;
        }
        if !self.in_window(address, bytes) {
            self.shared.cards.allow(self.client(), address, bytes.max(1), true);
        }
        true
    }

    /// As [`Session::restore_range`], for memory that the client may not touch.
    pub(crate) fn restore_slice(&self, inner: &mut Inner, device: u32, address: u64, bytes: u64) -> bool {
        if self.in_window(address, bytes) {
            let base = layout::window_address(self.config.window_slot) + layout::WINDOW_BYTES - layout::WINDOW_MANAGED_BYTES;
            let end = inner.memory.managed.max((address + bytes).saturating_sub(base));
            self.charge_again(self.device_index(device).unwrap_or(0), end - inner.memory.managed);
            inner.memory.managed = end;
            return true;
        }
        if !inner.memory.heap.place(address, bytes.max(1)) {
            return false;
        }
        self.charge_again(layout::arena_device(address), Heap::rounded(bytes).unwrap_or(0));
        true
    }

    /// Gives a new keeper everything that belongs to this session's memory.
    ///
    /// # Errors
    /// When it does not take it.
    pub(crate) fn keep_memory(&self, inner: &Inner) -> Result<(), ExecutorError> {
        for (address, (file, note)) in &inner.memory.extents {
            self.shared.keep(self.config.id, &extent_key(*address), &note.text(), &[file.as_fd()])?;
        }
        for (address, (file, note, _)) in &inner.memory.borrowed {
            self.shared.keep(self.config.id, &borrowed_key(*address), &note.text(), &[file.as_fd()])?;
        }
        for (handle, file) in &inner.memory.physical {
            let bytes = inner.objects.physical.get(handle).map_or(0, |(_, bytes)| *bytes);
            self.shared.keep(self.config.id, &physical_key(*handle), &bytes.to_string(), &[file.as_fd()])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn extents_grow_with_what_a_client_has() {
        const M: u64 = 1 << 20;
        let sizes = [(0, 2), (0, 4), (2, 2), (2, 6), (2, 20), (300, 2), (1000, 20), (1000, 40), (4096, 2), (4096, 100)];
        assert_eq!(sizes.map(|(own, exact)| size_beside(own * M, exact * M) / M), [2, 4, 4, 6, 20, 6, 20, 40, 64, 100]);
    }

    #[test]
    fn the_oldest_spare_extents_make_room() {
        let spare: Vec<(u64, u64)> = [20, 20, 20].iter().map(|mib| (0, mib << 20)).collect();
        assert_eq!([4_u64, 5, 24, 25, 44, 64].map(|mib| count_oldest(&spare, mib << 20)), [0, 1, 1, 2, 2, 3]);
        assert_eq!(count_oldest(&[], 64 << 20), 0);
    }

    /// Allocates so many granules each; what is left over is little, and there are not too many
    /// extents.
    fn look_at_extents(sizes: &[u64]) -> Result<(), TestCaseError> {
        let (mut heap, mut end) = (Heap::default(), GRANULE);
        for size in sizes {
            let bytes = size * GRANULE;
            if heap.allocate(bytes, 1, &(0..u64::MAX)).is_none() {
                let extent = size_beside(heap.bytes_in(&(0..u64::MAX)), bytes);
                heap.add_extent(end, extent);
                // Apart, so that none is merged with the next one.
                end += extent + GRANULE;
                prop_assert!(heap.allocate(bytes, 1, &(0..u64::MAX)).is_some());
            }
        }
        let (used, all) = (heap.used(), heap.bytes_in(&(0..u64::MAX)));
        prop_assert!(all - used <= 64 << 20, "{used} of {all}");
        prop_assert!(heap.extents().len() as u64 <= 40 + used / (8 << 20), "{} for {used}", heap.extents().len());
        Ok(())
    }

    #[test]
    fn a_program_with_small_allocations_has_few_extents() {
        for count in [1, 10, 100, 400, 2000] {
            look_at_extents(&vec![1; count]).unwrap();
        }
    }

    proptest! {
        #[test]
        fn little_is_left_over_in_few_extents(sizes in prop::collection::vec(prop::sample::select(vec![1_u64, 10, 20]), 1..400)) {
            look_at_extents(&sizes)?;
        }
    }
}
