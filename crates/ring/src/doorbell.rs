//! The client's end of a doorbell, under a number at which no file of its program ends up.
//!
//! Programs close descriptors that they do not know, and open files under the low numbers that
//! become free: what is written to the doorbell must not land there. So it gets a high number. The
//! kernel's table of descriptors grows for that, which takes 8 to 40 ms in a program with several
//! threads (decision 0134): there a thread of its own makes it, and the doorbell is rung under its
//! first number until then. The first number is never closed: it may be a file's by then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Descriptors among which the doorbell's is in the middle, where the limit is higher. The kernel
/// has a table of all numbers up to the highest one, of 8 bytes each, and every child that the
/// program forks gets a copy.
const AMONG: u64 = 1 << 14;

/// What rings an executor.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// Under the number that it came with, if it has not moved at once.
    first: Option<&'static OwnedFd>,
    /// Under its high number.
    high: Arc<OnceLock<OwnedFd>>,
}

/// The same doorbell under a high number.
fn move_up(doorbell: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(AMONG);
    let half = i32::try_from(limit.min(AMONG) / 2).unwrap_or(0);
    rustix::io::fcntl_dupfd_cloexec(doorbell, half)
}

/// True if this process has one thread, as far as can be seen: a folder has a link for itself, one
/// from its parent, and one for each folder in it.
fn has_one_thread() -> bool {
    rustix::fs::stat("/proc/self/task").is_ok_and(|task| task.st_nlink == 3)
}

impl Doorbell {
    /// The executor's eventfd. It has its high number when this returns, or soon.
    pub(crate) fn new(doorbell: OwnedFd) -> Doorbell {
        let high = Arc::new(OnceLock::new());
        if has_one_thread()
            && let Ok(moved) = move_up(&doorbell)
        {
            let _ = high.set(moved);
            return Doorbell { first: None, high };
        }
        let first: &'static OwnedFd = Box::leak(Box::new(doorbell));
        let made = high.clone();
        let moves = move || {
            if let Ok(moved) = move_up(first) {
                let _ = made.set(moved);
            }
        };
        // Without a thread, or without such a number, it keeps the one that it has.
        let _ = std::thread::Builder::new().name("cumux-doorbell".into()).spawn(moves);
        Doorbell { first: Some(first), high }
    }

    /// The descriptor that is written to now.
    #[inline]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.high.get().or(self.first).map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsRawFd as _;
    use std::time::{Duration, Instant};

    /// These tests have several threads, as most programs that use a card.
    #[test]
    fn it_moves_up_while_the_program_goes_on() {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let first = bell.as_raw_fd();
        let doorbell = Doorbell::new(bell.try_clone().unwrap());
        assert!(!has_one_thread() && doorbell.descriptor().is_some(), "it can be rung at once");
        let begun = Instant::now();
        while doorbell.descriptor().unwrap().as_raw_fd() < first + 1000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not move");
            std::thread::yield_now();
        }
        rustix::io::write(doorbell.descriptor().unwrap(), &3_u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&bell, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 3);
    }

    #[test]
    fn its_first_number_is_not_closed_later() {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let doorbell = Doorbell::new(bell.try_clone().unwrap());
        let first = doorbell.first.unwrap().as_raw_fd();
        while doorbell.high.get().is_none() {
            std::thread::yield_now();
        }
        drop(doorbell);
        assert!(std::fs::exists(format!("/proc/self/fd/{first}")).unwrap(), "it may be a file's by now");
    }
}
