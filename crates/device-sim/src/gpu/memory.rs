//! The memory of a software GPU.

use std::os::fd::{BorrowedFd, OwnedFd};

use cumux_device::{ClientId, DeviceError, Memory};

use super::SoftwareGpu;
use crate::memory::maps::GRANULE;
use crate::modules;
use crate::schedule::{HostWindow, not_open};
use cumux_ranges::AllowedRange;

/// Host memory and the window that it stands for are aligned alike, to this many bytes, so that
/// aligned accesses stay aligned.
const ALIAS_ALIGN: u64 = 16;

impl SoftwareGpu {
    fn revoke_range(&self, client: ClientId, address: u64) {
        let Some(memory) = self.client_memory(client) else { return };
        if memory.table.write().revoke(address).is_none() {
            tracing::warn!(client, address, "nothing to revoke");
            return;
        }
        memory.note_change();
        self.card.wait_for_slices(client);
    }
}

impl Memory for SoftwareGpu {
    fn capacity(&self) -> u64 {
        self.card.maps.read().capacity()
    }

    fn granule(&self) -> u64 {
        GRANULE
    }

    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        self.card.require_working()?;
        self.card.maps.write().create(bytes)
    }

    fn forget_extent(&self, extent: BorrowedFd<'_>) {
        self.card.maps.write().forget(extent);
    }

    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.card.require_working()?;
        let mut expected = self.expected.lock();
        let mut maps = self.card.maps.write();
        expected.forget(&mut maps, |start, length| start < address.saturating_add(bytes) && address < start + length);
        maps.map(address, extent, offset, bytes)
    }

    fn maps_ahead(&self) -> bool {
        true
    }

    fn expect_extent(&self, name: u64, address: u64, extent: BorrowedFd<'_>, bytes: u64) -> Result<bool, DeviceError> {
        self.card.require_working()?;
        let mut expected = self.expected.lock();
        let mut maps = self.card.maps.write();
        Ok(expected.knows(name, address, bytes) || expected.map(&mut maps, name, address, extent, bytes))
    }

    fn adopt_extent(&self, name: u64, address: u64, bytes: u64) -> bool {
        self.expected.lock().adopt(name, address, bytes)
    }

    fn forget_expected(&self, is_forgotten: &dyn Fn(u64) -> bool) {
        self.expected.lock().forget(&mut self.card.maps.write(), |address, _| is_forgotten(address));
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        let mut maps = self.card.maps.write();
        if let Some((client, _)) = scheduler.clients.iter().find(|(_, c)| c.memory.table.read().touches(address, bytes)) {
            return Err(DeviceError::Invalid(format!("client {client} may still touch the {bytes} bytes at {address:#x}; revoke its allocations first")));
        }
        maps.unmap(address, bytes)
    }

    fn map_peer(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.card.require_working()?;
        self.card.maps.write().map_of_another(address, extent, offset, bytes)
    }

    fn unmap_peer(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.card.maps.write().unmap(address, bytes)
    }

    fn use_window(&self, _: ClientId, _: u64, _: u64) -> Result<(), DeviceError> {
        self.card.require_working()
    }

    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        if owner.window.is_some() {
            return Err(DeviceError::Invalid(format!("client {client} has a window already")));
        }
        self.card.maps.write().map_window(address, window, bytes)?;
        owner.window = Some(HostWindow { address, bytes });
        let range = AllowedRange { start: address, end: address + bytes, writable: true, shift: 0 };
        owner.memory.table.write().allow(range).map_err(|error| DeviceError::Invalid(format!("the window at {address:#x}: {error}")))
    }

    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        let owner = scheduler.clients.get(&client).ok_or_else(|| not_open(client))?;
        if !owner.window.is_some_and(|mapped| mapped.contains(window, bytes)) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {window:#x} are not in the window of client {client}")));
        }
        let shift = window.wrapping_sub(user);
        if !shift.is_multiple_of(ALIAS_ALIGN) {
            return Err(DeviceError::Invalid(format!("{user:#x} and {window:#x} must be equally aligned (to {ALIAS_ALIGN} bytes)")));
        }
        let end = user.checked_add(bytes).ok_or_else(|| DeviceError::Invalid(format!("{bytes} bytes at {user:#x} wrap around")))?;
        let mut table = owner.memory.table.write();
        if table.find(user).is_some() {
            return Err(DeviceError::Invalid(format!("{user:#x} belongs to another range of client {client}")));
        }
        table
            .allow(AllowedRange { start: user, end, writable: true, shift })
            .map_err(|error| DeviceError::Invalid(format!("host memory at {user:#x}: {error}")))
    }

    fn unalias(&self, client: ClientId, user: u64) {
        self.revoke_range(client, user);
    }

    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool) {
        let Some(memory) = self.client_memory(client) else { return };
        // Under the lock of the mappings, so that none of them goes away in between.
        let maps = self.card.maps.read();
        let allowed = maps.for_each_mapping(address, bytes, |_, _, _| {}).map_err(|error| error.to_string()).and_then(|()| {
            let range = AllowedRange { start: address, end: address.saturating_add(bytes), writable, shift: 0 };
            memory.table.write().allow(range).map_err(|error| error.to_string())
        });
        memory.note_change();
        if let Err(why) = allowed {
            tracing::error!(client, address, bytes, why, "an allocation cannot be allowed");
        }
    }

    fn revoke(&self, client: ClientId, address: u64) {
        self.revoke_range(client, address);
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.card.require_working()?;
        modules::write(&self.card.maps, address, bytes)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.card.require_working()?;
        self.card.maps.read().for_each_mapping(address, into.len() as u64, |mapping, offset, part| {
            mapping.read(offset, &mut into[part]);
        })
    }
}
