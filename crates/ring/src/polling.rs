//! How long a thread that waits for another process polls before it sleeps: one policy for the
//! threads of the service and for those of its clients. Pure.
//!
//! To wake a thread on an idle virtual core costs 0.1 to 0.25 ms (docs/performance.md). Polling
//! saves that where a core is to spare, and takes the core from others where none is.

use cumux_wire::threads::ServiceThreads;
use std::time::Duration;

/// A machine with at least this many cores has one to spare for each thread of the service that
/// polls.
const CORES_TO_SPARE: usize = 8;
/// How long a thread of the service polls where it has a core to itself, and nothing is under way.
const SERVICE_LIMIT: Duration = Duration::from_micros(1500);
/// How long it polls for the end of something, and how long a thread of a client does: so long that
/// being woken is 2 % of it. CUDA's own rule for `CU_CTX_SCHED_AUTO` has a client poll for ever.
const WORK_LIMIT: Duration = Duration::from_millis(5);
/// Threads of executor and server need so many cores at least.
const LEAST_SERVICE_THREADS: usize = 3;
/// Some checks take less time than going to sleep and being woken, where nobody else needs the core
/// meanwhile: a check with its pause takes up to 60 ns.
const CHECKS: u32 = 2000;
/// The same on a small machine, and in a crowd: where threads of clients and of the service need
/// many more cores than there are, each check takes a core from one that has something to do, which
/// the system may let wait for milliseconds.
const FEW_CHECKS: u32 = 50;
/// Threads are no crowd yet if this part of a machine's cores, one in so many, are missing.
const MISSING_CORES: usize = 8;
/// The most cores of a small machine.
const SMALL_MACHINE: usize = 4;

/// The cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How long a thread of the service polls after its last progress; `crowded` is the answer for a
/// machine without a core to spare.
#[must_use]
pub fn service_limit(cores: usize, crowded: Duration) -> Duration {
    if cores >= CORES_TO_SPARE { SERVICE_LIMIT } else { crowded }
}

/// As [`service_limit`], while work of clients is under way that will end.
#[must_use]
pub fn service_limit_with_work(cores: usize, crowded: Duration) -> Duration {
    if cores >= CORES_TO_SPARE { WORK_LIMIT } else { crowded }
}

/// How a thread of a client polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientPolling {
    /// Checks after which it sleeps where it has no core to itself.
    pub few_checks: u32,
    /// Whether it has a core to itself.
    pub has_core: bool,
    /// How long it polls where it has one.
    pub limit: Duration,
}

/// How a thread of a client polls on a machine with so many cores. `clients` is how many clients
/// the device has; 0 where the device needs all cores itself, or where that is not known.
#[must_use]
pub fn client(cores: usize, clients: usize) -> ClientPolling {
    let threads = ServiceThreads::on(u32::try_from(cores).unwrap_or(u32::MAX));
    let service = (threads.polling() as usize).max(LEAST_SERVICE_THREADS);
    let threads = clients + service;
    let may_check = cores > SMALL_MACHINE && threads <= cores + cores / MISSING_CORES;
    ClientPolling { few_checks: if may_check { CHECKS } else { FEW_CHECKS }, has_core: clients > 0 && threads <= cores, limit: WORK_LIMIT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_core_to_itself_sleeps() {
        let crowded = Duration::from_micros(80);
        assert_eq!((service_limit(7, crowded), service_limit(8, crowded)), (crowded, SERVICE_LIMIT));
        assert_eq!((service_limit_with_work(7, crowded), service_limit_with_work(8, crowded)), (crowded, WORK_LIMIT));
        assert_eq!([0, 1, 5, 6].map(|clients| client(8, clients).has_core), [false, true, true, false]);
        assert_eq!([11, 12].map(|clients| client(16, clients).has_core), [true, false]);
        assert_eq!((client(4, 1).few_checks, client(5, 1).few_checks), (50, 2000));
        assert_eq!([0, 13, 14, 128].map(|clients| client(16, clients).few_checks), [2000, 2000, 50, 50]);
    }
}
