//! Estimates of how long work takes, in nanoseconds. All parts of the crate use these.
//!
//! They are not the scheduler's estimates (`cumux_scheduler::estimate`), which learn what a kernel
//! costs its client. Here a measurement ends with a fence that several pieces of work share, so it
//! may include waiting: it is trusted only in part, and a kernel that nobody has measured is not
//! taken for a free one.

use crate::context::Kernel;
use crate::fault::{KnownKernel, Launchers};
use cumux_device::ClientId;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// The estimate for a kernel that was never launched.
const UNKNOWN_KERNEL_NS: u64 = 20_000;
/// A kernel is long if its estimate is at least this. A long kernel is not put into a chain: it
/// would gain nothing, and the other kernels of the chain would be reported late. It does not begin
/// while a thread waits for a quiet card, nor does one that has never ended.
pub(crate) const LONG_KERNEL_NS: u64 = 60_000;
/// A measurement counts only up to a limit, which is the estimate times [`TRUSTED_GROWTH`] plus
/// this slack.
const TRUSTED_SLACK_NS: u64 = 20_000;
/// A measurement counts only up to the estimate times this, plus [`TRUSTED_SLACK_NS`].
const TRUSTED_GROWTH: u64 = 4;
/// A new estimate is the weighted mean of the old one, with this weight, and the measurement, with
/// weight 1.
const HISTORY_WEIGHT: u64 = 7;

/// The estimate for a copy, a set or a value write, besides the time for its bytes.
pub(crate) const TRANSFER_NS: u64 = 2_000;
/// Bytes that the card copies or sets in a nanosecond, about 2 TB/s.
pub(crate) const COPY_BYTES_PER_NS: u64 = 2_000;

/// What is known of a kernel that was launched at least once.
#[derive(Debug)]
struct Known {
    expected_ns: u64,
    /// True if it has ended at least once.
    measured: bool,
    kernel: KnownKernel,
}

/// What is known of kernels, by [`Kernel::id`].
#[derive(Debug, Default)]
pub(crate) struct Estimates(FxHashMap<u64, Known>);

impl Estimates {
    /// How long a kernel is expected to take.
    #[inline]
    pub(crate) fn kernel_ns(&self, kernel: &Kernel) -> u64 {
        self.0.get(&kernel.id).map_or(UNKNOWN_KERNEL_NS, |known| known.expected_ns)
    }

    /// True if the kernel has ended at least once. One that has not may be one that never ends.
    #[inline]
    pub(crate) fn is_measured(&self, kernel: &Kernel) -> bool {
        self.0.get(&kernel.id).is_some_and(|known| known.measured)
    }

    /// True if the kernel is expected to be long, or nobody knows how long it is.
    #[inline]
    pub(crate) fn may_be_long(&self, kernel: &Kernel) -> bool {
        self.0.get(&kernel.id).is_none_or(|known| !known.measured || known.expected_ns >= LONG_KERNEL_NS)
    }

    /// Remembers a kernel that a client launches. Returns how long it is expected to take, and
    /// whether it has ended before.
    #[inline]
    pub(crate) fn note_launch(&mut self, kernel: &Kernel, client: ClientId) -> (u64, bool) {
        let fresh = || Known {
            expected_ns: UNKNOWN_KERNEL_NS,
            measured: false,
            kernel: KnownKernel {
                name: kernel.name.clone(),
                handle: kernel.code().map_or(0, |code| code.handle.number()),
                module: kernel.code().map_or(0, |code| code.module.number()),
                asserts: kernel.asserts,
                launchers: Launchers::One(client),
            },
        };
        let known = self.0.entry(kernel.id).or_insert_with(fresh);
        if known.kernel.launchers != Launchers::One(client) {
            known.kernel.launchers = Launchers::Several;
        }
        (known.expected_ns, known.measured)
    }

    /// What is known of a kernel that was launched.
    pub(crate) fn kernel(&self, id: u64) -> Option<&KnownKernel> {
        self.0.get(&id).map(|known| &known.kernel)
    }

    /// All kernels that were launched.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &KnownKernel> {
        self.0.values().map(|known| &known.kernel)
    }

    /// Updates a kernel's estimate with a measurement. A measurement far above the estimate counts
    /// only in part, because the kernel may have waited for something else. A kernel that really
    /// takes longer is measured again and again.
    #[inline]
    pub(super) fn learn(&mut self, kernel: u64, measured_ns: u64) {
        if let Some(known) = self.0.get_mut(&kernel) {
            let trusted = measured_ns.min(known.expected_ns * TRUSTED_GROWTH + TRUSTED_SLACK_NS);
            known.expected_ns = (known.expected_ns * HISTORY_WEIGHT + trusted) / (HISTORY_WEIGHT + 1);
            known.measured = true;
        }
    }

    /// Takes in what another engine knows, of other clients.
    pub(super) fn absorb(&mut self, other: Estimates) {
        for (id, theirs) in other.0 {
            match self.0.entry(id) {
                Entry::Vacant(free) => drop(free.insert(theirs)),
                Entry::Occupied(mut known) => known.get_mut().kernel.launchers = Launchers::Several,
            }
        }
    }

    /// Forgets a kernel that will be unloaded.
    pub(crate) fn forget(&mut self, kernel: u64) {
        self.0.remove(&kernel);
    }

    /// The kernel's name, or "a kernel" if it is not known.
    pub(crate) fn name(&self, kernel: u64) -> &str {
        self.0.get(&kernel).map_or("a kernel", |known| &known.kernel.name)
    }

    /// True if the kernel may fail an assertion, or if it is not known.
    pub(crate) fn may_assert(&self, kernel: u64) -> bool {
        self.0.get(&kernel).is_none_or(|known| known.kernel.asserts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(by: ClientId) -> Known {
        let launchers = Launchers::One(by);
        Known { expected_ns: UNKNOWN_KERNEL_NS, measured: false, kernel: KnownKernel { name: "k".into(), handle: 1, module: 2, asserts: false, launchers } }
    }

    #[test]
    fn a_kernel_that_two_engines_know_was_launched_by_several() {
        let (mut one, mut other) = (Estimates::default(), Estimates::default());
        one.0.insert(3, launched(1));
        one.0.insert(4, launched(1));
        other.0.insert(4, launched(2));
        other.0.insert(5, launched(2));
        one.absorb(other);
        let launchers = |id| one.kernel(id).expect("known").launchers;
        assert_eq!((launchers(3), launchers(4), launchers(5)), (Launchers::One(1), Launchers::Several, Launchers::One(2)));
    }

    #[test]
    fn one_long_wait_is_not_believed_and_many_are() {
        let mut estimates = Estimates::default();
        estimates.0.insert(3, launched(1));
        estimates.learn(3, 1_000_000_000);
        assert_eq!(estimates.0[&3].expected_ns, (20_000 * 7 + 100_000) / 8);
        for _ in 0..100 {
            estimates.learn(3, 1_000_000);
        }
        assert!(estimates.0[&3].expected_ns.abs_diff(1_000_000) < 10);
        estimates.learn(4, 1);
        assert_eq!((estimates.name(3), estimates.name(4)), ("k", "a kernel"));
        assert!(!estimates.may_assert(3) && estimates.may_assert(4));
        estimates.forget(3);
        assert!(estimates.may_assert(3));
    }
}
