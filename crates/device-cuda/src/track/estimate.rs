//! How long work is expected to take: the one estimate, of kernels and of the rest. Times in
//! nanoseconds.

use crate::context::Kernel;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Of a kernel that was never seen.
const UNKNOWN_KERNEL_NS: u64 = 20_000;
/// A kernel of this length gains nothing in a chain, its neighbours in the chain would be reported
/// late, and it does not begin while somebody waits for a quiet card.
pub(crate) const LONG_KERNEL_NS: u64 = 60_000;
/// Slack added to a kernel's estimate for a measurement that is believed at once.
const BELIEVED_SLACK_NS: u64 = 20_000;
/// So many times the estimate is believed at once, besides the slack.
const BELIEVED_GROWTH: u64 = 4;
/// An estimate is the mean of so many parts of what was known and one part of what was measured.
const HISTORY: u64 = 7;

/// Of any piece of work that is no kernel, besides its bytes.
pub(crate) const TRANSFER_NS: u64 = 2_000;
/// Bytes that are copied or set inside of the card in a nanosecond: about 2 TB/s.
pub(crate) const COPY_BYTES_PER_NS: u64 = 2_000;

/// What is known of a kernel that was launched.
#[derive(Debug)]
struct Known {
    expected_ns: u64,
    name: Arc<str>,
    asserts: bool,
}

/// What is known of kernels, by their [`Kernel::id`].
#[derive(Debug, Default)]
pub(crate) struct Estimates(FxHashMap<u64, Known>);

impl Estimates {
    /// What a kernel is expected to take.
    pub(crate) fn kernel_ns(&self, kernel: &Kernel) -> u64 {
        self.0.get(&kernel.id).map_or(UNKNOWN_KERNEL_NS, |known| known.expected_ns)
    }

    /// Notes that a kernel is launched; returns what it is expected to take.
    pub(crate) fn note_launch(&mut self, kernel: &Kernel) -> u64 {
        let fresh = || Known { expected_ns: UNKNOWN_KERNEL_NS, name: kernel.name.clone(), asserts: kernel.asserts };
        self.0.entry(kernel.id).or_insert_with(fresh).expected_ns
    }

    /// Learns from a measurement. One that is far longer than expected counts in part: the kernel
    /// may have waited for something, which says nothing of it. A kernel that is longer shows again
    /// and again.
    pub(super) fn learn(&mut self, kernel: u64, measured_ns: u64) {
        if let Some(known) = self.0.get_mut(&kernel) {
            let believed = measured_ns.min(known.expected_ns * BELIEVED_GROWTH + BELIEVED_SLACK_NS);
            known.expected_ns = (known.expected_ns * HISTORY + believed) / (HISTORY + 1);
        }
    }

    /// Forgets a kernel that is unloaded.
    pub(crate) fn forget(&mut self, kernel: u64) {
        self.0.remove(&kernel);
    }

    /// The kernel's name, as far as it is known.
    pub(crate) fn name(&self, kernel: u64) -> &str {
        self.0.get(&kernel).map_or("a kernel", |known| &known.name)
    }

    /// True if the kernel may fail an assertion, or is not known.
    pub(crate) fn may_assert(&self, kernel: u64) -> bool {
        self.0.get(&kernel).is_none_or(|known| known.asserts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_wait_is_not_believed_and_many_are() {
        let mut estimates = Estimates::default();
        estimates.0.insert(3, Known { expected_ns: UNKNOWN_KERNEL_NS, name: "k".into(), asserts: false });
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
