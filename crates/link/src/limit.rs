//! The limit of open descriptors, and the kernel's table of them.
//!
//! The table grows when a descriptor does not fit. In a process with several threads that waits
//! until every processor has passed through the scheduler: 8 to 40 ms each time (measured), in
//! which a server serves nobody. So it is made large once, before there are threads.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;

/// Descriptors for which a process of ours has room from the beginning: those of some 400 clients,
/// in 32 KiB of the kernel's memory.
const ROOM: u64 = 4096;

/// Raises this process's limit of open descriptors to the highest that it may have, since every
/// client costs several, makes room for many of them, and returns the limit in force. A refusal is
/// no error here: the process then meets its old limit later, or waits when the table grows. To be
/// called before the process has a second thread.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    make_room(limit.min(ROOM));
    limit
}

/// Has the kernel's table hold so many descriptors. It never shrinks.
fn make_room(descriptors: u64) {
    let last = i32::try_from(descriptors.saturating_sub(1)).unwrap_or(i32::MAX);
    if let Ok(any) = File::open("/") {
        drop(fcntl_dupfd_cloexec(&any, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many descriptors fit into the kernel's table of this process.
    fn room() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        size.trim().parse().unwrap()
    }

    #[test]
    fn there_is_room_for_many_descriptors_at_once() {
        let limit = raise();
        assert!(room() >= limit.min(ROOM), "{} of {limit}", room());
    }
}
