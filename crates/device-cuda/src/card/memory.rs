//! The memory of a card.

use super::Card;
use crate::context::{ContextClient, PinnedWindow, WindowAlias};
use cumux_device::{ClientId, DeviceError, Memory};
use cumux_ranges::AllowedRange;
use cumux_wire::layout::in_arena;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often, and with which pause, windows that were mapped ahead for nothing are tried to be
/// unmapped.
const FORGET_ATTEMPTS: u32 = 60;
const FORGET_AGAIN: Duration = Duration::from_secs(1);

/// How long an address is waited for that the client has had for something else a moment ago.
const ADDRESS_COMES_FREE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl Card {
    /// Gives a part of the client's window another address, for its kernels too, and ends that
    /// address's mapping if it cannot.
    fn alias_window(&self, owner: &ContextClient, user: u64, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // Who closes the client waits until nobody has its window.
        let window = owner.window.read().clone();
        let window = window.ok_or_else(|| DeviceError::Invalid(format!("client {} has no window", owner.id)));
        let made = window.and_then(|window| window.alias(user, address, bytes));
        let mut alias = Some(made.inspect_err(|_| self.extents.hosts().end(user))?);
        if let Some(aliases) = &mut *owner.aliases.lock() {
            aliases.extend(alias.take().map(|alias| (user, alias)));
        }
        match alias {
            None => Ok(()),
            Some(alias) => {
                self.release_alias(user, alias);
                Err(DeviceError::LetGo(format!("client {} is closed", owner.id)))
            }
        }
    }

    /// Has a helper release a part of the window that had another address: that waits for running
    /// kernels. Beside some that do not end, or in a broken context, it stays until this process
    /// ends.
    fn release_alias(&self, user: u64, alias: Arc<WindowAlias>) {
        let (gate, hosts) = (self.shared.gate.clone(), self.extents.hosts().clone());
        self.shared.helpers.run(move || {
            let mut alias = Some(alias);
            if gate.run_quietly(None, || drop(alias.take())).is_ok() {
                hosts.end(user);
            } else {
                std::mem::forget(alias);
            }
        });
    }

    /// Waits until what was at an address of the arena is released, for a while.
    fn begin_host_mapping(&self, user: u64, bytes: u64) -> Result<(), DeviceError> {
        let begun = Instant::now();
        while !self.extents.hosts().spare(user, bytes) && begun.elapsed() < ADDRESS_COMES_FREE {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.extents.begin_host_mapping(user, bytes)
    }
}

impl Memory for Card {
    fn capacity(&self) -> u64 {
        self.facts.memory
    }

    fn granule(&self) -> u64 {
        self.extents.granule()
    }

    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        // The driver makes memory beside a broken context, too.
        self.require_context()?;
        match self.check_loss(self.extents.create(bytes)) {
            // Arrays that nobody uses any more may have the memory.
            Err(DeviceError::OutOfMemory(_)) if self.discards.destroy_quietly() => self.check_loss(self.extents.create(bytes)),
            outcome => outcome,
        }
    }

    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_loss(self.extents.map(address, extent, offset, bytes))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_loss(self.extents.unmap(address, bytes))
    }

    fn map_peer(&self, address: u64, _extent: BorrowedFd<'_>, _offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_loss(self.extents.set_peer_access(address, bytes, true))
    }

    fn unmap_peer(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_loss(self.extents.set_peer_access(address, bytes, false))
    }

    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let client = self.client(client)?;
        let expected = self.expected_windows.adopt(window, address, bytes);
        let mut entry = client.window.write();
        if entry.is_some() {
            return Err(DeviceError::Invalid(format!("client {} has a window already", client.id)));
        }
        let mapped = match expected {
            Some(mapped) => mapped,
            None => self.check_loss(PinnedWindow::map(&self.shared.driver, window, address, bytes))?,
        };
        let allowed = client.permissions.write().allow(AllowedRange::new(address, bytes, true, 0));
        if allowed.is_err() {
            PinnedWindow::close(mapped);
            return Err(DeviceError::Invalid(format!("the window at {address:#x} overlaps memory of client {}", client.id)));
        }
        *entry = Some(mapped);
        Ok(())
    }

    fn maps_ahead(&self) -> bool {
        true
    }

    fn expect_extent(&self, name: u64, address: u64, extent: BorrowedFd<'_>, bytes: u64) -> Result<bool, DeviceError> {
        self.check_loss(self.extents.expect(name, address, extent, bytes))
    }

    fn adopt_extent(&self, name: u64, address: u64, bytes: u64) -> bool {
        self.extents.adopt(name, address, bytes)
    }

    fn expect_window(&self, window: BorrowedFd<'_>, address: u64, bytes: u64, used: &[(u64, u64)]) -> Result<bool, DeviceError> {
        self.check_loss(self.expected_windows.expect(&self.shared.driver, window, address, bytes, used)).map(|()| true)
    }

    /// The driver waits for every kernel that runs before it unpins memory, and nobody submits
    /// anything meanwhile. So this is done while none runs that may not end, and tried for a while.
    /// What remains then is found by its client, or goes with the process.
    fn forget_expected(&self, is_forgotten: &dyn Fn(u64) -> bool) {
        self.extents.forget_expected(is_forgotten);
        for _ in 0..FORGET_ATTEMPTS {
            if !self.expected_windows.holds(is_forgotten) || self.shared.gate.run_if_quiet(|| self.expected_windows.forget(is_forgotten)).is_some() {
                return;
            }
            std::thread::sleep(FORGET_AGAIN);
        }
        tracing::debug!("windows that were mapped ahead stay: kernels run all the time");
    }

    fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let window = self.client(client)?.window.read().clone();
        let window = window.ok_or_else(|| DeviceError::Invalid(format!("client {client} has no window")))?;
        self.check_loss(window.register(address, bytes))
    }

    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let owner = self.client(client)?;
        let is_inside = owner.window.read().as_ref().is_some_and(|w| w.contains(window, bytes));
        if !is_inside {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {window:#x} are not in the window of client {client}")));
        }
        if owner.permissions.write().allow(AllowedRange::new(user, bytes, true, window.wrapping_sub(user))).is_err() {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {user:#x} overlap other memory of client {client}")));
        }
        // Addresses of the arena are one client's alone, so its kernels may have them. At those of
        // the client's own another client may have something else.
        if !in_arena(user) {
            return Ok(());
        }
        let aliased = self.begin_host_mapping(user, bytes).and_then(|()| self.alias_window(&owner, user, window, bytes));
        if aliased.is_err() {
            self.revoke(client, user);
        }
        self.check_loss(aliased)
    }

    fn unalias(&self, client: ClientId, user: u64) {
        self.revoke(client, user);
        let Ok(owner) = self.client(client) else { return };
        let alias = owner.aliases.lock().as_mut().and_then(|aliases| aliases.remove(&user));
        if let Some(alias) = alias {
            self.release_alias(user, alias);
        }
    }

    fn is_range_spare(&self, address: u64, bytes: u64) -> bool {
        self.extents.hosts().spare(address, bytes)
    }

    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool) {
        let Ok(owner) = self.client(client) else { return };
        if owner.permissions.write().allow(AllowedRange::new(address, bytes, writable, 0)).is_err() {
            tracing::error!(client, address, bytes, "an allocation cannot be allowed: it overlaps another");
        }
    }

    /// Copies and sets are refused from now on. Kernels are not isolated on a card, so the caller
    /// has to know that no running kernel uses the memory.
    fn revoke(&self, client: ClientId, address: u64) {
        let Ok(owner) = self.client(client) else { return };
        if owner.permissions.write().revoke(address).is_none() {
            tracing::warn!(client, address, "nothing to revoke");
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        match self.window_at(address, length) {
            Some(window) if window.write(address, bytes) => Ok(()),
            _ => {
                let written = self.extents.write(address, bytes, self.kind_of_memory(address, length));
                self.check_loss(written.and_then(|()| self.forward_constants(address, length)))
            }
        }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let length = into.len() as u64;
        match self.window_at(address, length) {
            Some(window) if window.read(address, into) => Ok(()),
            _ => self.check_loss(self.extents.read(address, into, self.kind_of_memory(address, length))),
        }
    }
}
