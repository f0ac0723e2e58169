//! The window: memory that lies at the same address here and in the executor, and who has which
//! part of it.
//!
//! [`FirstFit`] keeps the books. [`PinnedWindow`] has the memory, and gives the pages of a returned
//! piece back to the system.

use crate::ffi::{Try, error};
use crate::log;
use crate::sync::lock;
use cumux_ranges::FirstFit;
use cumux_ring::window::Window;
use cumux_wire::layout::{WINDOW_BYTES, WINDOW_FIRST_BYTES, WINDOW_MANAGED_BYTES, window_address, window_piece_end};
use rustix::mm::Advice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// Smallest piece, and alignment of every piece.
pub const GRAIN: u64 = 4096;

/// The window of this program.
#[derive(Debug)]
pub struct PinnedWindow {
    memory: Window,
    file: OwnedFd,
    heap: Mutex<FirstFit>,
    /// End of what the device was told of.
    announced: Mutex<u64>,
    /// A device pins the window's memory ([`Capabilities::pins_windows`]): it reaches only what it
    /// was told of, and keeps pages that were given back.
    ///
    /// [`Capabilities::pins_windows`]: cumux_wire::facts::Capabilities::pins_windows
    is_pinned: bool,
}

impl PinnedWindow {
    /// Maps the window file of a welcome. Its first `staged` bytes are not handed out.
    ///
    /// # Errors
    /// A sentence that says why the file cannot be mapped.
    pub fn map(file: OwnedFd, slot: u32, staged: u64, is_pinned: bool) -> Result<Self, String> {
        let address = window_address(slot);
        let memory = Window::map(file.as_fd(), address, WINDOW_BYTES).map_err(|error| error.to_string())?;
        let staged = staged.next_multiple_of(GRAIN);
        // The end of the window is the executor's, for managed variables.
        let mut heap = FirstFit::new(GRAIN);
        heap.add(address + staged, WINDOW_BYTES - WINDOW_MANAGED_BYTES - staged);
        Ok(Self { memory, file, heap: Mutex::new(heap), announced: Mutex::new(address + WINDOW_FIRST_BYTES), is_pinned })
    }

    /// Where the window begins.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The file behind the window, for mapping pieces of it elsewhere.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// A copy of bytes in the window; `None` where they do not lie in it.
    #[must_use]
    pub fn read(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        self.memory.read(address, bytes)
    }

    /// Copies bytes into the window; false where they do not fit in it.
    #[must_use]
    pub fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.memory.write(address, bytes)
    }

    /// A piece of the window.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when there is none of that size.
    pub fn take_piece(&self, bytes: u64, align: u64) -> Try<u64> {
        lock(&self.heap).allocate(bytes, align).ok_or_else(|| {
            let why =
                format!("no piece of {bytes} bytes is free in the window of this program: {} GiB for pinned and managed memory and images", WINDOW_BYTES >> 30);
            log::because(error::OUT_OF_MEMORY, why)
        })
    }

    /// Gives a piece of the window back, and its pages to the system.
    pub fn return_piece(&self, address: u64) {
        let mut heap = lock(&self.heap);
        if let Some(bytes) = heap.release(address) {
            // Under the lock: the next owner of the range must not lose what it writes.
            // A device that has pinned them would keep the old pages: there they stay.
            if !self.is_pinned {
                drop_pages(address, bytes);
            }
        }
    }

    /// Tells the device of the window up to `end`, piece by piece: `tell` gets the address and the
    /// bytes of each.
    ///
    /// # Errors
    /// What `tell` answers.
    pub fn announce(&self, end: u64, mut tell: impl FnMut(u64, u64) -> Try) -> Try {
        if !self.is_pinned {
            return Ok(());
        }
        let most = self.address() + WINDOW_BYTES - WINDOW_MANAGED_BYTES;
        let mut announced = lock(&self.announced);
        while end > *announced {
            let next = (self.address() + window_piece_end(*announced + 1 - self.address())).min(most);
            tell(*announced, next - *announced)?;
            *announced = next;
        }
        Ok(())
    }
}

/// Gives the pages of a piece of the window back to the system; they read as zero afterwards.
fn drop_pages(address: u64, bytes: u64) {
    let start = core::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: a range of the window that nobody owns any more. What is not given back stays
    // charged, nothing worse.
    let _ = unsafe { rustix::mm::madvise(start, bytes as usize, Advice::LinuxRemove) };
}
