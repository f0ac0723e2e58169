//! Orders of chains that wait until what runs has ended. Pure.
//!
//! Making a chain may wait for kernels that run, whatever stream they are in: instantiating a graph
//! does so now and then (decision 0123). The driver holds the context's lock meanwhile, so that
//! everybody waits. A kernel that nobody expects to be long is the worst: a program runs one twice,
//! the second time for seconds, and that second time is when a chain is ordered for it.
//!
//! So an order waits until all that any engine of the card had in flight has ended. There is one
//! order at a time for each engine. An order has a number, because one that is taken back may still
//! be answered.
//!
//! ```text
//! ordered ── AskPast to all engines ──▶ each answers Past when its work has ended ──▶ due
//! ```
//!
//! A chain that is due is made if the card can be stopped for it (`quiet/gate.rs`).

use crate::track::SlotIndex;

/// An order that waits.
struct Waiting<T> {
    order: T,
    number: u64,
    /// The engines whose work has not ended.
    missing: usize,
}

/// What an engine had in flight when another one asked.
struct Asked {
    /// The last fence of each driver stream that had work.
    fences: Vec<(SlotIndex, u64)>,
    /// The engine that asked, and the number of its order.
    asker: (usize, u64),
}

/// The waiting order of an engine, and those of which it was asked.
pub(super) struct Orders<T> {
    waiting: Option<Waiting<T>>,
    asked: Vec<Asked>,
    /// The number of the last order.
    last: u64,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Orders { waiting: None, asked: Vec::new(), last: 0 }
    }
}

impl<T> Orders<T> {
    /// True if nothing waits here.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.asked.is_empty()
    }

    /// An order that so many engines are asked about. Returns its number.
    pub(super) fn order(&mut self, order: T, engines: usize) -> u64 {
        self.last += 1;
        self.waiting = Some(Waiting { order, number: self.last, missing: engines });
        self.last
    }

    /// An engine asks, for its order of this number, when these fences are reached.
    pub(super) fn ask(&mut self, engine: usize, number: u64, fences: Vec<(SlotIndex, u64)>) {
        self.asked.push(Asked { fences, asker: (engine, number) });
    }

    /// The engines whose question is answered now, and the numbers of their orders.
    pub(super) fn answered(&mut self, mut is_reached: impl FnMut(SlotIndex, u64) -> bool) -> Vec<(usize, u64)> {
        let is_over = |asked: &mut Asked| asked.fences.iter().all(|(slot, fence)| is_reached(*slot, *fence));
        self.asked.extract_if(.., is_over).map(|asked| asked.asker).collect()
    }

    /// The work of an engine has ended that was in flight when this one asked for that order.
    pub(super) fn note_answer(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.number == number) {
            waiting.missing = waiting.missing.saturating_sub(1);
        }
    }

    /// True if no engine is missing for the order.
    pub(super) fn is_due(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.missing == 0)
    }

    /// Takes the order, if `is_wanted` holds for it.
    pub(super) fn take_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        self.waiting.take_if(|waiting| is_wanted(&waiting.order)).map(|waiting| waiting.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_waits_for_the_work_of_all_engines() {
        let (mut first, mut second) = (Orders::default(), Orders::<()>::default());
        assert_eq!(first.order("chain", 2), 1);
        first.ask(0, 1, vec![(3, 7), (4, 1)]);
        second.ask(0, 1, Vec::new());
        assert_eq!(second.answered(|_, _| false), [(0, 1)], "it had nothing in flight");
        first.note_answer(1);
        assert!(first.answered(|slot, _| slot == 4).is_empty() && !first.is_due(), "one stream still runs");
        assert_eq!(first.answered(|slot, fence| slot == 4 || fence <= 7), [(0, 1)]);
        assert!(!first.is_due());
        first.note_answer(1);
        assert!(first.is_due() && !first.is_empty());
        assert_eq!((first.take_if(|_| false), first.take_if(|_| true)), (None, Some("chain")));
        assert!(first.is_empty() && !first.is_due());
    }

    #[test]
    fn answers_to_an_order_that_was_taken_back_count_for_no_other() {
        let mut orders = Orders::default();
        let old = orders.order("old", 1);
        assert_eq!(orders.take_if(|order| *order == "old"), Some("old"));
        let new = orders.order("new", 1);
        orders.note_answer(old);
        assert!(!orders.is_due());
        orders.note_answer(new);
        assert!(orders.is_due());
    }
}
