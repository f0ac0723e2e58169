//! A client's pinned window: host memory that the card reaches at its host address once it is
//! registered with the driver.
//!
//! Registering pins pages, so a window of 64 GiB cannot be registered as a whole. It is registered
//! in pieces ([`window_piece_end`]): the first when the window is mapped, any other when the client
//! announces that it uses it, or when the client's work names it. An engine thread never registers,
//! because that delays launches (measured: 0.4 ms for the neighbours' launches, 20 ms while a 20 ms
//! kernel runs).
//!
//! The cards of a process share a client's window: it is mapped once, and what is registered is
//! registered for the contexts of all of them.
//!
//! A registered page belongs to the card until the window is closed. **If a process punches a hole
//! into the file under it, client and card see different memory.**

use crate::driver::{CardAddress, Driver};
use crate::fault::remedy;
use cumux_device::DeviceError;
use cumux_ranges::RangeMap;
use cumux_ring::window::Window;
use cumux_wire::layout::{WINDOW_FIRST_BYTES, window_piece_end, window_piece_start};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Device and inode of a window's file.
type Identity = (u64, u64);

/// A window that cards of this process use.
struct SharedWindow {
    file: Identity,
    window: Weak<PinnedWindow>,
    /// The cards that have not closed it.
    cards: usize,
}

/// The windows of this process, by address. Lock 8 of the crate's order, held alone.
static WINDOWS: Mutex<BTreeMap<CardAddress, SharedWindow>> = Mutex::new(BTreeMap::new());

/// A client's pinned window.
///
/// Lock order: `registration` (5), then `registered` (6). The driver is called under `registration`
/// alone, because engine threads take `registered`.
pub(crate) struct PinnedWindow {
    driver: Arc<Driver>,
    window: Window,
    /// Its file, for further names of its parts.
    file: OwnedFd,
    /// Those names, which the cards of a process share. Lock 8 of the crate's order; the driver is
    /// called under it.
    aliases: Mutex<BTreeMap<CardAddress, Weak<WindowAlias>>>,
    registered: Mutex<RangeMap<()>>,
    /// Held by the thread that registers: two threads that need the same piece register it once.
    registration: Mutex<()>,
}

impl PinnedWindow {
    /// Maps the window, unless another card of this process has it mapped, and registers its
    /// beginning.
    ///
    /// # Errors
    /// A sentence: the address is in use, or there is not enough memory to pin.
    pub(crate) fn map(driver: &Arc<Driver>, file: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<Arc<PinnedWindow>, DeviceError> {
        let status = rustix::fs::fstat(file).map_err(|error| DeviceError::System(format!("the window's file cannot be looked at: {error}")))?;
        let identity = (status.st_dev, status.st_ino);
        let window = {
            let mut windows = WINDOWS.lock();
            let known = windows.get_mut(&address).filter(|shared| shared.file == identity);
            match known.and_then(|shared| Some((shared.window.upgrade().filter(|window| window.bytes() == bytes)?, shared))) {
                Some((window, shared)) => {
                    shared.cards += 1;
                    window
                }
                None => {
                    let mapped = Window::map(file, address, bytes)
                        .map_err(|error| DeviceError::System(format!("the window cannot be mapped at {address:#x}: {error}")))?;
                    let file = file.try_clone_to_owned().map_err(|error| DeviceError::System(format!("the window's file cannot be kept: {error}")))?;
                    let window = PinnedWindow {
                        driver: driver.clone(),
                        window: mapped,
                        file,
                        aliases: Mutex::default(),
                        registered: Mutex::default(),
                        registration: Mutex::default(),
                    };
                    let window = Arc::new(window);
                    windows.insert(address, SharedWindow { file: identity, window: Arc::downgrade(&window), cards: 1 });
                    window
                }
            }
        };
        match window.register_missing(address, bytes.min(WINDOW_FIRST_BYTES)) {
            Ok(()) => Ok(window),
            Err(error) => {
                PinnedWindow::close(window);
                Err(error)
            }
        }
    }

    /// The window's first address, on the host and on the card.
    pub(crate) fn address(&self) -> CardAddress {
        self.window.address()
    }

    /// Bytes of the whole window, registered or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.window.bytes()
    }

    /// True if all of these bytes lie in the window.
    pub(crate) fn contains(&self, address: CardAddress, bytes: u64) -> bool {
        self.window.contains(address, bytes)
    }

    /// True if the card can access all of these bytes now.
    pub(crate) fn is_registered(&self, address: CardAddress, bytes: u64) -> bool {
        self.registered.lock().covers(address, bytes)
    }

    /// Bytes from `address` to the end of its registered piece, if it lies in one. The driver
    /// refuses a copy that crosses that end.
    pub(crate) fn bytes_to_piece_end(&self, address: CardAddress) -> Option<u64> {
        self.registered.lock().contiguous_from(address).next().map(|(end, ())| end - address)
    }

    /// Registers the pieces around these bytes that are not registered yet. Slow: an engine thread
    /// must not call this.
    ///
    /// # Errors
    /// A sentence: the bytes are not in the window, or there is not enough memory to pin.
    pub(crate) fn register(&self, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        if !self.contains(address, bytes) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {address:#x} are not in the window")));
        }
        let (start, end) = (self.window.address(), self.window.address() + self.window.bytes());
        let from = start + window_piece_start(address - start);
        let to = (start + window_piece_end(address + bytes - start)).min(end);
        self.register_missing(from, to - from)
    }

    fn register_missing(&self, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        let _guard = self.registration.lock();
        let missing = self.registered.lock().gaps(address, address + bytes);
        for (from, to) in missing {
            self.driver.register_host(from, to - from).map_err(|error| {
                let why = self.driver.describe_numbered(error);
                let text = format!("{} bytes of host memory at {from:#x} cannot be pinned: {why}; is there enough memory?", to - from);
                remedy::refused_call(error, text, DeviceError::System)
            })?;
            self.registered.lock().insert(from, to - from, ());
        }
        Ok(())
    }

    /// Gives these bytes, whole pages, another address, on the host and on the card. Slow: an
    /// engine thread must not call this.
    ///
    /// # Errors
    /// A sentence: the bytes are not in the window, the address is in use, or there is not enough
    /// memory to pin.
    pub(crate) fn alias(&self, address: CardAddress, window: CardAddress, bytes: u64) -> Result<Arc<WindowAlias>, DeviceError> {
        if !self.contains(window, bytes) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {window:#x} are not in the window")));
        }
        let mut aliases = self.aliases.lock();
        let known = aliases.get(&address).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.window == window && known.mapped.bytes() == bytes) {
            return Ok(known);
        }
        let mapped = Window::map_part(self.file.as_fd(), self.window.bytes(), window - self.window.address(), address, bytes)
            .map_err(|error| DeviceError::System(format!("a part of the window cannot be mapped at {address:#x}: {error}")))?;
        self.driver.register_host(address, bytes).map_err(|error| {
            let why = self.driver.describe_numbered(error);
            let text = format!("{bytes} bytes of host memory at {address:#x} cannot be pinned: {why}; is there enough memory?");
            remedy::refused_call(error, text, DeviceError::System)
        })?;
        let alias = Arc::new(WindowAlias { driver: self.driver.clone(), mapped, window });
        aliases.retain(|_, known| known.strong_count() > 0);
        aliases.insert(address, Arc::downgrade(&alias));
        Ok(alias)
    }

    /// A card closes the window. With the last one it is unregistered and unmapped before this
    /// returns, because another client may get its address next. It waits for a thread that is
    /// registering a piece of the window.
    pub(crate) fn close(mut window: Arc<PinnedWindow>) {
        {
            let mut windows = WINDOWS.lock();
            if let Some(shared) = windows.get_mut(&window.address()).filter(|shared| std::ptr::eq(shared.window.as_ptr(), Arc::as_ptr(&window))) {
                shared.cards -= 1;
                if shared.cards > 0 {
                    return;
                }
                windows.remove(&window.address());
            }
        }
        while let Err(held) = Arc::try_unwrap(window) {
            drop(held.registration.lock());
            std::thread::yield_now();
            window = held;
        }
    }

    /// Copies bytes out of the window. Returns false if they do not lie in it.
    pub(crate) fn read(&self, address: CardAddress, into: &mut [u8]) -> bool {
        let found = self.window.read(address, into.len() as u64);
        found.map(|bytes| into.copy_from_slice(&bytes)).is_some()
    }

    /// Copies bytes into whichever window of this process they lie in. Returns false if they lie in
    /// none.
    pub(crate) fn write_any(address: CardAddress, bytes: &[u8]) -> bool {
        let window = WINDOWS.lock().range(..=address).next_back().and_then(|(_, shared)| shared.window.upgrade());
        window.is_some_and(|window| window.write(address, bytes))
    }

    /// Copies bytes into the window. Returns false if they do not fit in it.
    pub(crate) fn write(&self, address: CardAddress, bytes: &[u8]) -> bool {
        self.window.write(address, bytes)
    }
}

/// Another address of a part of a client's window, on the host and on the card, until it is
/// dropped. Releasing it waits for running kernels, as for the window.
pub(crate) struct WindowAlias {
    driver: Arc<Driver>,
    mapped: Window,
    /// The address of the same bytes in the window.
    window: CardAddress,
}

impl Drop for WindowAlias {
    fn drop(&mut self) {
        self.driver.unregister_host(self.mapped.address());
    }
}

impl Drop for PinnedWindow {
    fn drop(&mut self) {
        for (start, _) in self.registered.get_mut().iter() {
            self.driver.unregister_host(start);
        }
    }
}
