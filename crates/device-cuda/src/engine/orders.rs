//! Orders of chains that wait until what runs has ended. Pure.
//!
//! Making a chain may wait for kernels that run: of graphs that are instantiated beside one, one in
//! forty does, whatever stream the kernel is in, because the driver gets more memory for graphs
//! (measured: `benches/cu/upload.cu`). It holds the context's lock meanwhile, so that everybody
//! waits. A kernel that nobody expects to be long is the worst: a program runs one twice, the
//! second time for seconds, and that second time is when a chain is ordered for it.
//!
//! So an order waits until all that any engine of the card had in flight has ended. There is one
//! order at a time for each engine.
//!
//! ```text
//! ordered ── AskPast to all engines ──▶ each answers Past when its work has ended ──▶ made
//! ```

use crate::track::SlotIndex;

/// An order that waits.
struct Waiting<T> {
    order: T,
    /// The engines whose work has not ended.
    missing: usize,
}

/// What an engine had in flight when another one asked.
struct Asked {
    /// The last fence of each driver stream that had work.
    fences: Vec<(SlotIndex, u64)>,
    /// The engine that asked.
    asker: usize,
}

/// The waiting order of an engine, and those of which it was asked.
pub(super) struct Orders<T> {
    waiting: Option<Waiting<T>>,
    asked: Vec<Asked>,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Orders { waiting: None, asked: Vec::new() }
    }
}

impl<T> Orders<T> {
    /// True if nothing waits here.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.asked.is_empty()
    }

    /// An order that so many engines are asked about.
    pub(super) fn order(&mut self, order: T, engines: usize) {
        self.waiting = Some(Waiting { order, missing: engines });
    }

    /// An engine asks when these fences are reached.
    pub(super) fn ask(&mut self, asker: usize, fences: Vec<(SlotIndex, u64)>) {
        self.asked.push(Asked { fences, asker });
    }

    /// The engines whose question is answered now.
    pub(super) fn answered(&mut self, mut is_reached: impl FnMut(SlotIndex, u64) -> bool) -> Vec<usize> {
        let is_over = |asked: &mut Asked| asked.fences.iter().all(|(slot, fence)| is_reached(*slot, *fence));
        self.asked.extract_if(.., is_over).map(|asked| asked.asker).collect()
    }

    /// The work of an engine has ended that was in flight when this one asked.
    pub(super) fn note_answer(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.missing = waiting.missing.saturating_sub(1);
        }
    }

    /// True if no engine is missing for the order.
    pub(super) fn is_due(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.missing == 0)
    }

    /// Takes the order.
    pub(super) fn take(&mut self) -> Option<T> {
        self.waiting.take().map(|waiting| waiting.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_waits_for_the_work_of_all_engines() {
        let (mut first, mut second) = (Orders::default(), Orders::<()>::default());
        first.order("chain", 2);
        first.ask(0, vec![(3, 7), (4, 1)]);
        second.ask(0, Vec::new());
        assert_eq!(second.answered(|_, _| false), [0], "it had nothing in flight");
        first.note_answer();
        assert!(first.answered(|slot, _| slot == 4).is_empty() && !first.is_due(), "one stream still runs");
        assert_eq!(first.answered(|slot, fence| slot == 4 || fence <= 7), [0]);
        assert!(!first.is_due());
        first.note_answer();
        assert!(first.is_due() && !first.is_empty());
        assert_eq!(first.take(), Some("chain"));
        assert!(first.is_empty() && !first.is_due());
        // One that comes late is about nothing.
        first.note_answer();
        assert_eq!(first.take(), None);
    }
}
