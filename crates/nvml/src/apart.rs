//! Runs something in a child process that ends behind it, and gives what it has said.
//!
//! The child is a copy of this process with the calling thread alone. It never returns to the
//! program: it asks, says the answer through a pipe, and ends without any function of `atexit`. No
//! signal reaches it but the one at its parent's end. What another thread held when it was made is
//! held in it for ever, and a service may not answer: so it is waited for until a limit
//! and then killed. Another thread may start a program at the same moment, which then has the pipe
//! open: so the answer has a mark at its end.

use crate::NvmlError;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// An answer is far shorter.
const MOST_BYTES: usize = 1 << 20;
/// What stands behind an answer.
const END: u8 = 0;

/// Runs `ask` in a child process, for this long at most.
///
/// # Errors
/// DriverNotLoaded if it gives no answer in time, or none at all; Unknown if there can be no child.
pub(crate) fn in_a_child(limit: Duration, ask: impl FnOnce() -> Result<String, NvmlError>) -> Result<String, NvmlError> {
    let (reader, writer) = std::io::pipe().map_err(|_| NvmlError::Unknown)?;
    let parent = std::process::id();
    let blocked = block_signals();
    // SAFETY: the child uses what it has copied, and ends here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        answer(parent, writer, ask);
    }
    // SAFETY: the set was given by the same call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, core::ptr::null_mut()) };
    if child < 0 {
        return Err(NvmlError::Unknown);
    }
    drop(writer);
    let said = read_until(reader, Instant::now() + limit);
    end(child, said.is_some());
    said.filter(|said| !said.is_empty()).ok_or(NvmlError::DriverNotLoaded)
}

/// What the child does.
fn answer(parent: u32, mut writer: std::io::PipeWriter, ask: impl FnOnce() -> Result<String, NvmlError>) -> ! {
    // SAFETY: it takes numbers. Who has lost its parent before that has it already.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if std::os::unix::process::parent_id() == parent
        && let Ok(Ok(said)) = catch_unwind(AssertUnwindSafe(ask))
    {
        let _ = writer.write_all(said.as_bytes()).and_then(|()| writer.write_all(&[END]));
    }
    // SAFETY: it ends this process.
    unsafe { libc::_exit(0) }
}

/// Blocks all signals for this thread. Returns those that were blocked before.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the place is valid for a write.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set is filled, and the second place valid for a write. It cannot fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: it was written.
    unsafe { before.assume_init() }
}

/// All that is written before the mark, if that comes in time.
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
            Ok(0) => return None,
            Ok(bytes) => said.extend_from_slice(&room[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        if said.pop_if(|last| *last == END).is_some() {
            return String::from_utf8(said).ok();
        }
        if said.len() > MOST_BYTES {
            return None;
        }
    }
}

/// Waits for the child's end, and brings it about unless the child has answered. The program may
/// have waited for it before: then its number may be another process's.
fn end(child: libc::pid_t, has_answered: bool) {
    let wait = |options| {
        let mut status = 0;
        loop {
            // SAFETY: the place for the status is valid for a write.
            let waited = unsafe { libc::waitpid(child, &raw mut status, options) };
            if waited >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return waited;
            }
        }
    };
    if !has_answered {
        if wait(libc::WNOHANG) != 0 {
            return;
        }
        // SAFETY: it is our child, and nobody has waited for it.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    wait(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_child_answers_and_what_it_does_stays_there() {
        let mut number = 7;
        let told = in_a_child(LONG, || {
            number += 1;
            Ok(format!("{number} {}", std::process::id()))
        });
        let told = told.expect("it answers");
        assert!(number == 7 && told.starts_with("8 ") && !told.ends_with(&std::process::id().to_string()), "{told}");
        let long = "x".repeat(300_000);
        assert_eq!(in_a_child(LONG, || Ok(long.clone())), Ok(long));
    }

    #[test]
    fn a_child_that_fails_panics_or_says_too_much_is_an_error_at_once() {
        let begun = Instant::now();
        assert_eq!(in_a_child(LONG, || Err(NvmlError::NotFound)), Err(NvmlError::DriverNotLoaded));
        assert_eq!(in_a_child(LONG, || panic!("on purpose")), Err(NvmlError::DriverNotLoaded));
        assert_eq!(in_a_child(LONG, || Ok(String::new())), Err(NvmlError::DriverNotLoaded));
        assert_eq!(in_a_child(LONG, || Ok("x".repeat(2 * MOST_BYTES))), Err(NvmlError::DriverNotLoaded));
        assert!(begun.elapsed() < LONG, "nobody has waited for the limit");
    }

    #[test]
    fn a_child_that_never_answers_is_killed() {
        let never = || loop {
            std::thread::park();
        };
        assert_eq!(in_a_child(Duration::from_millis(50), never), Err(NvmlError::DriverNotLoaded));
    }

    #[test]
    fn the_answer_ends_where_it_says_though_another_has_the_pipe() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"said\0").expect("there is room");
        assert_eq!(read_until(reader, Instant::now() + LONG), Some("said".to_owned()));
    }
}
