//! Long kernels that occupy every SM. All engines of a card count them together: the kernels of one
//! keep those of the others from beginning, too.
#![expect(clippy::disallowed_types, reason = "a counter that the engines of a card share")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of long kernels in flight on a card that occupy every SM.
#[derive(Debug, Clone, Default)]
pub(crate) struct FillingKernels(Arc<AtomicUsize>);

impl FillingKernels {
    /// One more is in flight.
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them has ended.
    pub(super) fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if any is in flight.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_count_them_together() {
        let (first, second) = (FillingKernels::default(), FillingKernels::default());
        let shared = first.clone();
        first.add();
        assert!(shared.any() && !second.any());
        shared.end();
        assert!(!first.any());
    }
}
