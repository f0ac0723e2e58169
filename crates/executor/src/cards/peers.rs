//! Devices that reach each other's memory.

use super::Cards;
use cumux_device::{ClientId, DeviceError, DeviceFacts};
use cumux_wire::layout::{self, DeviceIndex};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// A mapping that other devices reach.
#[derive(Debug)]
pub(super) struct Opened {
    bytes: u64,
    /// Those devices, and for how many it was opened on each: clients may share an extent.
    devices: BTreeMap<DeviceIndex, u32>,
}

impl Cards {
    /// Facts of all devices, with the others that each reaches.
    #[must_use]
    pub fn all_facts(&self) -> Vec<DeviceFacts> {
        let with_peers = |(own, device): (usize, &std::sync::Arc<dyn cumux_device::Device>)| {
            let mut facts = device.facts().clone();
            let others = self.all.iter().enumerate().filter(|(other, _)| *other != own);
            facts.capabilities.peers = others.filter_map(|(_, other)| device.reach(other.facts())).collect();
            facts
        };
        self.all.iter().enumerate().map(with_peers).collect()
    }

    /// Whether one device reaches the memory of another.
    #[must_use]
    pub fn reaches(&self, own: DeviceIndex, owner: DeviceIndex) -> bool {
        match (self.card(own), self.card(owner)) {
            (Ok(own), Ok(owner)) => own.reach(owner.facts()).is_some(),
            _ => false,
        }
    }

    /// From now on a client's work on one device reaches its allocations on another.
    pub fn link(&self, client: ClientId, own: DeviceIndex, owner: DeviceIndex) {
        self.links.write().entry(client).or_default().insert((own, owner));
    }

    /// Undoes [`Cards::link`].
    pub fn unlink(&self, client: ClientId, own: DeviceIndex, owner: DeviceIndex) {
        if let Some(links) = self.links.write().get_mut(&client) {
            links.remove(&(own, owner));
        }
    }

    /// The devices on which a client's work reaches its allocations on this one.
    pub(super) fn linked_with(&self, client: ClientId, owner: DeviceIndex) -> Vec<DeviceIndex> {
        if self.single() {
            return Vec::new();
        }
        self.links.read().get(&client).into_iter().flatten().filter(|(_, of)| *of == owner).map(|(own, _)| *own).collect()
    }

    /// Lets a device reach what another has mapped at `address`, until that unmaps it or
    /// [`Cards::close_peer`].
    ///
    /// # Errors
    /// As [`cumux_device::Memory::map_peer`].
    pub fn open_peer(&self, own: DeviceIndex, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut opened = self.opened.write();
        let entry = opened.entry(address).or_insert_with(|| Opened { bytes, devices: BTreeMap::new() });
        let users = entry.devices.get(&own).copied().unwrap_or(0);
        let mapped = if users == 0 { self.card(own).and_then(|card| card.map_peer(address, extent, offset, bytes)) } else { Ok(()) };
        match mapped {
            Ok(()) => {
                entry.devices.insert(own, users + 1);
            }
            Err(_) if entry.devices.is_empty() => {
                opened.remove(&address);
            }
            Err(_) => {}
        }
        mapped
    }

    /// Undoes [`Cards::open_peer`].
    pub fn close_peer(&self, own: DeviceIndex, address: u64) {
        let bytes = {
            let mut opened = self.opened.write();
            let Some(entry) = opened.get_mut(&address) else { return };
            let Some(users) = entry.devices.get_mut(&own) else { return };
            *users -= 1;
            if *users > 0 {
                return;
            }
            entry.devices.remove(&own);
            let bytes = entry.bytes;
            if entry.devices.is_empty() {
                opened.remove(&address);
            }
            bytes
        };
        self.close(own, address, bytes);
    }

    /// No other device reaches what is mapped here any more.
    pub(super) fn close_peers(&self, address: u64) {
        if self.single() {
            return;
        }
        let opened = self.opened.write().remove(&address);
        if let Some(Opened { bytes, devices }) = opened {
            devices.into_keys().for_each(|own| self.close(own, address, bytes));
        }
    }

    fn close(&self, own: DeviceIndex, address: u64, bytes: u64) {
        if let Err(error) = self.card(own).and_then(|card| card.unmap_peer(address, bytes)) {
            tracing::warn!("device {own} has not let go of memory of another at {address:#x}: {error}");
        }
    }

    /// A new extent of a client: the devices that reach its allocations there reach it, too.
    ///
    /// # Errors
    /// As [`Cards::open_peer`]; then none reaches it.
    pub fn share_extent(&self, client: ClientId, owner: DeviceIndex, address: u64, extent: BorrowedFd<'_>, bytes: u64) -> Result<(), DeviceError> {
        let shared = self.linked_with(client, owner).into_iter().try_for_each(|own| self.open_peer(own, address, extent, 0, bytes));
        shared.inspect_err(|_| self.close_peers(address))
    }

    /// Undoes [`Cards::share_extent`], for an extent that others go on using.
    pub fn unshare_extent(&self, client: ClientId, address: u64) {
        for own in self.linked_with(client, layout::arena_device(address)) {
            self.close_peer(own, address);
        }
    }

    /// As [`cumux_device::Memory::allow`], on this device alone.
    pub fn allow_at(&self, device_index: DeviceIndex, client: ClientId, address: u64, bytes: u64, writable: bool) {
        if let Ok(device) = self.card(device_index) {
            device.allow(client, address, bytes, writable);
        }
    }

    /// As [`cumux_device::Memory::revoke`], on this device alone.
    pub fn revoke_at(&self, device_index: DeviceIndex, client: ClientId, address: u64) {
        if let Ok(device) = self.card(device_index) {
            device.revoke(client, address);
        }
    }
}
