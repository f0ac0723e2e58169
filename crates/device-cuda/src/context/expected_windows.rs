//! Windows of clients that another executor has, mapped and pinned before they are needed: a
//! successor takes them over without a call of the driver, which may wait while the driver tears
//! down the context that was broken.

use super::PinnedWindow;
use crate::driver::{CardAddress, Driver};
use cumux_device::DeviceError;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Which file a window is: device and inode.
type FileIdentity = (u64, u64);

fn identify(file: BorrowedFd<'_>) -> Option<FileIdentity> {
    rustix::fs::fstat(file).ok().map(|status| (status.st_dev, status.st_ino))
}

/// A window that was mapped ahead.
struct ExpectedWindow {
    file: FileIdentity,
    window: Arc<PinnedWindow>,
}

/// The windows that were mapped ahead, by address.
///
/// The lock (4 of the crate's order) is held while a window is mapped, so that nobody maps another
/// one at its address meanwhile.
#[derive(Default)]
pub(crate) struct ExpectedWindows(Mutex<BTreeMap<CardAddress, ExpectedWindow>>);

impl ExpectedWindows {
    /// Maps a window ahead, and pins `used` in it, unless that is done.
    ///
    /// # Errors
    /// A sentence: the address is in use, or there is not enough memory to pin.
    pub(crate) fn expect(&self, driver: &Arc<Driver>, file: BorrowedFd<'_>, address: CardAddress, bytes: u64, used: &[(u64, u64)]) -> Result<(), DeviceError> {
        let identity = identify(file).ok_or_else(|| DeviceError::System("a window has no identity".into()))?;
        let mut windows = self.0.lock();
        let window = match windows.remove(&address) {
            Some(known) if known.file == identity && known.window.bytes() == bytes => known.window,
            other => {
                if let Some(other) = other {
                    PinnedWindow::close(other.window);
                }
                PinnedWindow::map(driver, file, address, bytes)?
            }
        };
        let pinned = used.iter().try_for_each(|(at, length)| window.register(*at, *length));
        windows.insert(address, ExpectedWindow { file: identity, window });
        pinned
    }

    /// Takes the window that was mapped ahead from this file. Another one at this address goes.
    pub(crate) fn adopt(&self, file: BorrowedFd<'_>, address: CardAddress, bytes: u64) -> Option<Arc<PinnedWindow>> {
        let known = self.0.lock().remove(&address)?;
        if Some(known.file) == identify(file) && known.window.bytes() == bytes {
            return Some(known.window);
        }
        PinnedWindow::close(known.window);
        None
    }

    /// True if there are windows at these addresses.
    pub(crate) fn holds(&self, is_forgotten: &dyn Fn(u64) -> bool) -> bool {
        self.0.lock().keys().any(|address| is_forgotten(*address))
    }

    /// Unmaps the windows at these addresses. Their client may come all the same, at the same
    /// moment: [`ExpectedWindows::adopt`] waits until they are unmapped, which takes long while the
    /// driver is busy.
    pub(crate) fn forget(&self, is_forgotten: &dyn Fn(u64) -> bool) {
        let mut windows = self.0.lock();
        let gone: Vec<ExpectedWindow> = windows.extract_if(.., |address, _| is_forgotten(*address)).map(|(_, window)| window).collect();
        gone.into_iter().for_each(|expected| PinnedWindow::close(expected.window));
    }
}
