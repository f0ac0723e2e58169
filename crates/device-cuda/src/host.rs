//! A client's window: host memory that the card reaches at its host address once it is registered.
//!
//! Registering pins pages, so the 64 GiB of a window cannot be registered as a whole: it happens in pieces of [`PIECE`], the first when the window
//! is mapped, the others when the client says that it uses them or when its work names them, always on a thread that dispatches nothing
//! (measured: 0.4 ms for the neighbours' launches, 20 ms while a 20 ms kernel runs). A registered page belongs to the card until the window goes:
//! **whoever punches holes into the file under it makes client and card see different memory.**

use crate::driver::Driver;
use crate::fault::remedy;
use crate::ranges::Covered;
use cumux_device::DeviceError;
use cumux_ring::window::Window;
use parking_lot::Mutex;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Unit of registration.
pub(crate) const PIECE: u64 = 32 << 20;
/// Registered from the start: staging, images and small pinned allocations lie there.
const FIRST: u64 = 16 << 20;

pub(crate) struct HostWindow {
    driver: Arc<Driver>,
    window: Window,
    registered: Mutex<Covered>,
    /// One registers at a time: two that want the same piece register it once.
    turn: Mutex<()>,
}

impl HostWindow {
    pub(crate) fn map(driver: &Arc<Driver>, file: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<HostWindow, DeviceError> {
        let window = Window::map(file, address, bytes).map_err(|error| DeviceError::System(format!("the window cannot be mapped at {address:#x}: {error}")))?;
        let mapped = HostWindow { driver: driver.clone(), window, registered: Mutex::default(), turn: Mutex::default() };
        mapped.register(address, bytes.min(FIRST))?;
        Ok(mapped)
    }

    pub(crate) fn address(&self) -> u64 {
        self.window.address()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.window.bytes()
    }

    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        self.window.contains(address, bytes)
    }

    /// Whether the card may touch all of these bytes now.
    pub(crate) fn ready(&self, address: u64, bytes: u64) -> bool {
        self.registered.lock().missing(address, address + bytes).is_empty()
    }

    /// Bytes from `address` to the end of its registered piece: a copy may not cross that.
    pub(crate) fn run(&self, address: u64) -> Option<u64> {
        self.registered.lock().end_of(address).map(|end| end - address)
    }

    /// Registers what is missing of the pieces around these bytes. Slow: not for a dispatch thread.
    pub(crate) fn use_bytes(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        if !self.contains(address, bytes) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {address:#x} are not in the window")));
        }
        let (start, end) = (self.window.address(), self.window.address() + self.window.bytes());
        let from = start + (address - start) / PIECE * PIECE;
        let to = (start + (address + bytes - start).next_multiple_of(PIECE)).min(end);
        self.register(from, to - from)
    }

    fn register(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let _turn = self.turn.lock();
        // Not held while the driver works: the engine looks here.
        let missing = self.registered.lock().missing(address, address + bytes);
        for (from, to) in missing {
            self.driver.register_host(from, to - from).map_err(|code| {
                let why = self.driver.describe_numbered(code);
                let text = format!("{} bytes of host memory at {from:#x} cannot be pinned: {why}; is there enough memory?", to - from);
                remedy::refused_call(code, text, DeviceError::System)
            })?;
            self.registered.lock().add(from, to);
        }
        Ok(())
    }

    /// Unregisters and unmaps it now: another client may get its address. Who registers a piece of it at the moment is waited for.
    pub(crate) fn close(mut window: Arc<HostWindow>) {
        while let Err(held) = Arc::try_unwrap(window) {
            drop(held.turn.lock());
            std::thread::yield_now();
            window = held;
        }
    }

    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let found = self.window.read(address, into.len() as u64);
        found.map(|bytes| into.copy_from_slice(&bytes)).is_some()
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.window.write(address, bytes)
    }
}

impl Drop for HostWindow {
    fn drop(&mut self) {
        for (start, _) in self.registered.get_mut().all() {
            self.driver.unregister_host(start);
        }
    }
}
