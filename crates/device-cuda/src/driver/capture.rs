//! Keeping what the driver prints. It writes the text of device printf to standard output, when a
//! stream is synchronised, by whatever thread, and at some other calls. So standard output is a
//! file of ours from the first open card on, and [`take_output`] says what came since it last did.

use core::ptr::null_mut;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};

/// The text of the kernel by which a context makes what printing needs. Nobody gets it.
pub(super) const FIRST_TEXT: &[u8] = b"\x01cumux: the first text";

/// Takes the text out that nobody gets, wherever it is.
fn drop_first_texts(text: &mut Vec<u8>) {
    while let Some(at) = text.windows(FIRST_TEXT.len()).position(|part| part == FIRST_TEXT) {
        text.drain(at..at + FIRST_TEXT.len());
    }
}

/// The redirection of standard output, because a process has only one. Lock 8 of the crate's order,
/// held alone.
static REDIRECTION: Mutex<Option<Redirection>> = Mutex::new(None);

/// The redirection of standard output into a file of ours.
struct Redirection {
    file: OwnedFd,
    /// How many bytes of the file were taken.
    taken: u64,
    /// A duplicate of the original. Negative if standard output was not open.
    saved: libc::c_int,
    /// How many [`CapturedOutput`] there are.
    users: usize,
}

impl Redirection {
    /// Redirects standard output, for one user. `None` if no file can be made.
    fn begin() -> Option<Redirection> {
        let file = rustix::fs::memfd_create("cumux-printf", MemfdFlags::CLOEXEC).ok()?;
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND).ok()?;
        flush();
        // SAFETY: duplicates a descriptor, and accesses no memory.
        let saved = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: replaces a descriptor, which `end` restores, and accesses no memory.
        unsafe { libc::dup2(file.as_raw_fd(), libc::STDOUT_FILENO) };
        Some(Redirection { file, taken: 0, saved, users: 1 })
    }

    /// What was written since the last call.
    fn take_bytes(&mut self) -> Vec<u8> {
        flush();
        let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = rustix::io::pread(&self.file, &mut chunk, self.taken + text.len() as u64) {
            text.extend_from_slice(&chunk[..count]);
        }
        self.taken += text.len() as u64;
        // The memory of what was taken is given back. If that fails, it is only memory.
        if !text.is_empty() {
            let _ = rustix::fs::fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, self.taken);
        }
        drop_first_texts(&mut text);
        text
    }

    /// Standard output goes where it went before.
    fn end(self) {
        flush();
        if self.saved >= 0 {
            // SAFETY: restores the descriptor, and accesses no memory.
            unsafe { libc::dup2(self.saved, libc::STDOUT_FILENO) };
            // SAFETY: the duplicate that `begin` made; its last use.
            unsafe { libc::close(self.saved) };
        }
    }
}

fn flush() {
    // SAFETY: flushes all of C's streams, which is always allowed.
    unsafe { libc::fflush(null_mut()) };
}

/// Keeps what the process writes to standard output, as long as there is one of these.
#[derive(Debug)]
pub(crate) struct CapturedOutput(());

impl CapturedOutput {
    /// Begins to keep it. If no file can be made for it, it goes where it went before.
    pub(crate) fn begin() -> CapturedOutput {
        let mut redirection = REDIRECTION.lock();
        match &mut *redirection {
            Some(redirection) => redirection.users += 1,
            None => *redirection = Redirection::begin(),
        }
        CapturedOutput(())
    }
}

impl Drop for CapturedOutput {
    fn drop(&mut self) {
        let mut redirection = REDIRECTION.lock();
        if let Some(active) = &mut *redirection {
            active.users -= 1;
            if active.users == 0
                && let Some(last) = redirection.take()
            {
                last.end();
            }
        }
    }
}

/// What was written to standard output since the last call.
pub(crate) fn take_output() -> Vec<u8> {
    REDIRECTION.lock().as_mut().map(Redirection::take_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identifies the file that standard output is.
    fn identity() -> (u64, u64) {
        let status = rustix::fs::fstat(std::io::stdout()).expect("standard output is open");
        (status.st_dev, status.st_ino)
    }

    fn write(text: &str) {
        rustix::io::write(std::io::stdout(), text.as_bytes()).expect("written");
    }

    #[test]
    fn the_first_text_is_nobodys() {
        let mut text = [FIRST_TEXT, b"a\x01b", FIRST_TEXT, b"c"].concat();
        drop_first_texts(&mut text);
        assert_eq!(text, b"a\x01bc");
    }

    #[test]
    fn output_is_kept_and_comes_back_even_after_a_panic() {
        let before = identity();
        let first = CapturedOutput::begin();
        let inside = identity();
        let panicked = std::panic::catch_unwind(|| {
            let _second = CapturedOutput::begin();
            write("number 5\n");
            panic!("in the middle");
        });
        assert!(panicked.is_err() && inside != before && identity() == inside, "one user is left");
        assert!(String::from_utf8_lossy(&take_output()).contains("number 5\n"));
        write("number 6\n");
        let next = String::from_utf8_lossy(&take_output()).into_owned();
        assert!(next.contains("number 6\n") && !next.contains("number 5\n"), "{next}");
        drop(first);
        assert_eq!(identity(), before, "output goes where it went before");
    }
}
