//! Capturing what the driver prints. It writes the text of device printf to standard output, when a
//! stream is synchronised.

use core::ptr::null_mut;
use parking_lot::Mutex;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

/// Held while standard output is redirected, because a process has only one.
/// Lock 8 of the crate's order, held alone.
static REDIRECTION: Mutex<()> = Mutex::new(());

/// The redirection of standard output into a file. Dropping it ends the redirection, after a panic
/// too.
struct Redirection {
    /// A duplicate of the original. Negative if standard output was not open; then it is not
    /// redirected.
    saved: libc::c_int,
}

impl Redirection {
    /// Redirects standard output to the end of `file`.
    fn new(file: &OwnedFd) -> Redirection {
        // SAFETY: flushes all of C's streams, which is always allowed.
        unsafe { libc::fflush(null_mut()) };
        // SAFETY: duplicates descriptors, and accesses no memory.
        let saved = unsafe { libc::dup(libc::STDOUT_FILENO) };
        // SAFETY: moves the offset of a file that only this module uses, and accesses no memory.
        unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
        if saved >= 0 {
            // SAFETY: replaces a descriptor, which `drop` restores, and accesses no memory.
            unsafe { libc::dup2(file.as_raw_fd(), libc::STDOUT_FILENO) };
        }
        Redirection { saved }
    }
}

impl Drop for Redirection {
    fn drop(&mut self) {
        // SAFETY: flushes all of C's streams, which is always allowed.
        unsafe { libc::fflush(null_mut()) };
        if self.saved >= 0 {
            // SAFETY: restores the descriptor, and accesses no memory.
            unsafe { libc::dup2(self.saved, libc::STDOUT_FILENO) };
            // SAFETY: the duplicate that `new` made; its last use.
            unsafe { libc::close(self.saved) };
        }
    }
}

/// Runs `act` while standard output of the whole process is redirected. Returns the
/// result of `act`, and what was written.
pub(crate) fn capture_output<T>(act: impl FnOnce() -> T) -> (T, Vec<u8>) {
    static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let file = FILE.get_or_init(|| rustix::fs::memfd_create("cumux-printf", rustix::fs::MemfdFlags::CLOEXEC).ok());
    let _one_at_a_time = REDIRECTION.lock();
    let Some(file) = file else { return (act(), Vec::new()) };
    let redirection = Redirection::new(file);
    let result = act();
    drop(redirection);
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = rustix::io::pread(file, &mut chunk, text.len() as u64) {
        text.extend_from_slice(&chunk[..count]);
    }
    let _ = rustix::fs::ftruncate(file, 0);
    (result, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identifies the file that standard output is.
    fn identity() -> (u64, u64) {
        let status = rustix::fs::fstat(std::io::stdout()).expect("standard output is open");
        (status.st_dev, status.st_ino)
    }

    #[test]
    fn output_is_caught_and_comes_back_even_after_a_panic() {
        let before = identity();
        let (inside, text) = capture_output(|| {
            let inside = identity();
            rustix::io::write(std::io::stdout(), b"number 5\n").expect("written");
            inside
        });
        assert!(inside != before && identity() == before);
        assert!(String::from_utf8_lossy(&text).contains("number 5\n"));
        let panicked = std::panic::catch_unwind(|| capture_output(|| panic!("in the middle")));
        assert!(panicked.is_err());
        assert_eq!(identity(), before, "output goes where it went before");
    }
}
