//! Runs something in a child process that ends behind it, and gives what it has said.
//!
//! The child is a copy of this process with the calling thread alone. It never returns to the
//! program: it asks, says the answer through a pipe, and ends without any function of `atexit`.
//! What another thread held when it was made is held in it for ever, and a service may not answer:
//! so it is waited for until [`LONGEST`] and then killed.

use crate::NvmlError;
use core::ffi::c_int;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A service that starts with this question takes a second or two.
const LONGEST: Duration = Duration::from_secs(30);
/// An answer is far shorter.
const MOST_BYTES: usize = 1 << 20;

/// Runs `ask` in a child process.
///
/// # Errors
/// DriverNotLoaded if it gives no answer in time, or none at all; Unknown if there can be no child.
pub(crate) fn in_a_child(ask: impl FnOnce() -> Result<String, NvmlError>) -> Result<String, NvmlError> {
    let (reader, mut writer) = std::io::pipe().map_err(|_| NvmlError::Unknown)?;
    // SAFETY: the child uses what it has copied, and ends here.
    let child = unsafe { libc::fork() };
    match child {
        ..0 => Err(NvmlError::Unknown),
        0 => {
            let said = catch_unwind(AssertUnwindSafe(ask)).unwrap_or(Err(NvmlError::Unknown)).is_ok_and(|said| writer.write_all(said.as_bytes()).is_ok());
            // SAFETY: it ends this process.
            unsafe { libc::_exit(c_int::from(!said)) }
        }
        1.. => {
            drop(writer);
            let said = read_until(reader, Instant::now() + LONGEST);
            if said.is_none() {
                // SAFETY: it is our child, and nobody has waited for it.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            let is_good = has_ended_well(child);
            said.filter(|said| is_good && !said.is_empty()).ok_or(NvmlError::DriverNotLoaded)
        }
    }
}

/// All that is written, if its end comes in time.
fn read_until(mut reader: PipeReader, until: Instant) -> Option<String> {
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut wanted = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: it is one valid entry. A signal ends the wait: then it begins again.
        let ready = unsafe { libc::poll(&raw mut wanted, 1, milliseconds) };
        if ready == 0 || left.is_zero() {
            return None;
        }
        if ready < 0 {
            continue;
        }
        let mut room = [0; 4096];
        match reader.read(&mut room) {
            Ok(0) => return String::from_utf8(said).ok(),
            Ok(bytes) if said.len() + bytes <= MOST_BYTES => said.extend_from_slice(&room[..bytes]),
            Ok(_) => return None,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Waits for the child. True if it has said everything; also where the program takes no notice of
/// its children, whose end nobody sees then.
fn has_ended_well(child: libc::pid_t) -> bool {
    let mut status = 0;
    loop {
        // SAFETY: the place for the status is valid for a write.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child {
            return status == 0;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_answers_and_what_it_does_stays_there() {
        let mut number = 7;
        let told = in_a_child(|| {
            number += 1;
            Ok(format!("{number} {}", std::process::id()))
        });
        let told = told.expect("it answers");
        assert!(number == 7 && told.starts_with("8 ") && !told.ends_with(&std::process::id().to_string()), "{told}");
        let long = "x".repeat(300_000);
        assert_eq!(in_a_child(|| Ok(long.clone())), Ok(long));
    }

    #[test]
    fn a_child_that_fails_panics_or_says_too_much_is_an_error() {
        assert_eq!(in_a_child(|| Err(NvmlError::NotFound)), Err(NvmlError::DriverNotLoaded));
        assert_eq!(in_a_child(|| panic!("on purpose")), Err(NvmlError::DriverNotLoaded));
        assert_eq!(in_a_child(|| Ok(String::new())), Err(NvmlError::DriverNotLoaded));
        assert_eq!(in_a_child(|| Ok("x".repeat(2 * MOST_BYTES))), Err(NvmlError::DriverNotLoaded));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        assert_eq!(read_until(reader, Instant::now()), None);
        drop(writer);
    }
}
