//! The client's end of a doorbell, under a number at which no file of its program ends up.
//!
//! Programs close descriptors that they do not know, and open files under the low numbers that
//! become free: what is written to the doorbell must not land there. So it gets a high number. The
//! kernel's table of descriptors grows for that, which takes 8 to 40 ms in a program with several
//! threads (decision 0134). There it gets the highest number that needs no other table first, and a
//! thread of its own moves it on.
//!
//! ```text
//! low number ── several threads ─▶ below the table's end ── a thread has moved it ─▶ high number
//!     │                                  │                                             ▲
//!     └── one thread, or a large table ──┼─────────────────────────────────────────────┘
//!                                        └── the program has closed it ─▶ nothing rings any more
//! ```

use std::fs::read_to_string;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Descriptors among which the doorbell's is in the middle, where the limit is higher. The kernel
/// has a table of all numbers up to the highest one, of 8 bytes each, and every child that the
/// program forks gets a copy.
const AMONG: u64 = 1 << 14;
/// Below the end of the table it has one of the last so many numbers.
const LAST: i32 = 8;

/// What rings an executor.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// Where it is until it has moved, if it has not moved at once. Never closed: the number may be
    /// a file's by then.
    first: Option<&'static OwnedFd>,
    /// Under its high number; `None` in it if the program has closed the first one meanwhile.
    high: Arc<OnceLock<Option<OwnedFd>>>,
}

/// The least of the high numbers.
fn high_number() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(AMONG);
    i32::try_from(limit.min(AMONG) / 2).unwrap_or(0)
}

/// The same doorbell under this number or a higher one.
fn move_to(doorbell: impl AsFd, number: i32) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(doorbell, number)
}

/// True if this process has one thread, as far as can be seen: a folder has a link for itself, one
/// from its parent, and one for each folder in it.
fn has_one_thread() -> bool {
    rustix::fs::stat("/proc/self/task").is_ok_and(|task| task.st_nlink == 3)
}

/// How many descriptors fit into the kernel's table of this process.
fn table_size() -> Option<i32> {
    let status = read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("FDSize:"))?.trim().parse().ok()
}

/// The kernel's number of an eventfd, whatever descriptor it has; `None` of other files, and where
/// it cannot be seen.
fn identify(descriptor: &OwnedFd) -> Option<String> {
    let about = read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).ok()?;
    about.lines().find(|line| line.starts_with("eventfd-id:")).map(str::to_owned)
}

impl Doorbell {
    /// The executor's eventfd. It has its high number when this returns, or soon.
    pub(crate) fn new(doorbell: OwnedFd) -> Doorbell {
        let (high, number) = (Arc::new(OnceLock::new()), high_number());
        let size = if has_one_thread() { None } else { table_size().filter(|size| *size <= number) };
        // Where there is no such number it keeps the one that it has.
        let Some(size) = size else {
            let _ = high.set(Some(move_to(&doorbell, number).unwrap_or(doorbell)));
            return Doorbell { first: None, high };
        };
        let first: &'static OwnedFd = Box::leak(Box::new(move_to(&doorbell, (size - LAST).max(0)).unwrap_or(doorbell)));
        let made = high.clone();
        let identity = identify(first);
        let moves = move || _ = made.set(move_on(first, number, identity.as_deref()));
        if std::thread::Builder::new().name("cumux-doorbell".into()).spawn(moves).is_err() {
            let _ = high.set(move_to(first, number).ok());
        }
        Doorbell { first: Some(first), high }
    }

    /// The descriptor that is written to now, if there is one.
    #[inline]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.high.get() {
            Some(high) => high.as_ref().map(AsFd::as_fd),
            None => self.first.map(AsFd::as_fd),
        }
    }
}

/// The doorbell under its high number; `None` if it is not the doorbell that has the first number
/// now: the program has closed that one, and may have opened a file there.
fn move_on(first: &OwnedFd, number: i32, identity: Option<&str>) -> Option<OwnedFd> {
    let moved = move_to(first, number).ok()?;
    (identify(&moved).as_deref() == identity).then_some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::fs::File;
    use std::time::{Duration, Instant};

    fn count(bell: &OwnedFd) -> Option<u64> {
        let mut count = [0; 8];
        rustix::io::read(bell, &mut count).ok().map(|_| u64::from_ne_bytes(count))
    }

    /// These tests have several threads, as most programs that use a card.
    #[test]
    fn it_moves_up_while_the_program_goes_on() {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let doorbell = Doorbell::new(bell.try_clone().unwrap());
        assert!(!has_one_thread());
        rustix::io::write(doorbell.descriptor().unwrap(), &1_u64.to_ne_bytes()).unwrap();
        let begun = Instant::now();
        while doorbell.descriptor().unwrap().as_raw_fd() < high_number() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not move");
            std::thread::yield_now();
        }
        rustix::io::write(doorbell.descriptor().unwrap(), &2_u64.to_ne_bytes()).unwrap();
        assert_eq!(count(&bell), Some(3));
        if let Some(first) = doorbell.first {
            drop(doorbell);
            rustix::io::write(first, &5_u64.to_ne_bytes()).unwrap();
            assert_eq!(count(&bell), Some(5), "what is behind the first number now is not ours to close");
        }
    }

    #[test]
    fn what_is_not_the_doorbell_any_more_is_not_moved() {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (identity, number) = (identify(&bell), high_number());
        assert!(identity.is_some(), "this kernel tells eventfds apart");
        assert!(move_on(&bell, number, identity.as_deref()).is_some_and(|moved| moved.as_raw_fd() >= number));
        for other in [OwnedFd::from(File::open("/dev/null").unwrap()), eventfd(0, EventfdFlags::NONBLOCK).unwrap()] {
            assert!(move_on(&other, number, identity.as_deref()).is_none(), "the program has opened it under that number");
        }
    }
}
