//! Orders of chains that wait until what runs has ended. Pure.
//!
//! Making a chain may wait for kernels that run, whatever stream they are in: instantiating a graph
//! does so now and then (decision 0123). The driver holds the context's lock meanwhile, so that
//! everybody waits. A kernel that nobody expects to be long is the worst: a program runs one twice,
//! the second time for seconds, and that second time is when a chain is ordered for it.
//!
//! So an order waits until all that any engine of the card had in flight has ended. The card is
//! stopped then, which costs everybody more than the making of one chain does. So orders are
//! gathered while those before are made and for a while after that, and an engine asks for all of
//! them together. The time that this takes is a small part of all, with what was saved before;
//! urgent orders may borrow some. A question has a number, because orders that are taken back may
//! still be answered.
//!
//! ```text
//! gathered ── AskPast to all engines ──▶ waiting ── all answer Past: their work has ended ──▶ due
//!     ▲                                                                                       │
//!     └────────────── all are made, and a while has passed ◀── in the making ◀────────────────┘
//! ```
//!
//! Chains that are due are made if the card can be stopped for them (`quiet/gate.rs`).

use crate::track::SlotIndex;
use cumux_device::ClientId;
use rustc_hash::FxHashSet;

/// An engine does not ask for so long after its last chains were made, in nanoseconds. Stopping the
/// card and making them takes 5 to 10 ms beside eight busy programs.
const GATHERS_NS: u64 = 2_000_000;
/// Chains are in the making for one part in so many of an engine's time. A stop costs twice as much
/// as it takes, because everything begins anew behind it. What a program needs is made with what
/// was saved; what comes later takes the places of others.
const PART_OF_TIME: u64 = 400;
/// Most time for that which is saved, in nanoseconds, and most that urgent orders borrow: together
/// what one needs who has just begun.
const MOST_SAVED_NS: i64 = 120_000_000;
const MOST_BORROWED_NS: i64 = 30_000_000;
/// What a client that has just come adds to what is saved, in nanoseconds; a debt of those before
/// is forgiven. Without it, those that come when others have used up everything would have no
/// chains for seconds.
const NEWCOMERS_NS: u64 = 8_000_000;
/// Orders that are not urgent are gathered until there are so many, or for so long, in nanoseconds:
/// a stop for one chain costs nearly as much as one for many.
const WORTH_A_STOP: usize = 16;
const GATHERS_RARE_NS: u64 = 20_000_000;

/// Orders that wait for answers.
struct Waiting<T> {
    orders: Vec<T>,
    number: u64,
    /// The engines whose work has not ended.
    missing: usize,
}

/// What an engine had in flight when another one asked.
struct Asked {
    /// The last fence of each driver stream that had work.
    fences: Vec<(SlotIndex, u64)>,
    /// The engine that asked, and the number of its question.
    asker: (usize, u64),
}

/// The orders of an engine, and the questions that others have asked it.
pub(super) struct Orders<T> {
    gathered: Vec<T>,
    /// True if one of them is urgent.
    is_urgent: bool,
    /// Since when there are some.
    since_ns: u64,
    waiting: Option<Waiting<T>>,
    /// How many are in the making.
    making: usize,
    /// When they were taken, and when the last ones were made.
    taken_ns: u64,
    made_ns: u64,
    /// The time for making chains that is left, or how much was borrowed, and until when it is
    /// counted. Without any, only urgent orders are made.
    saved_ns: i64,
    counted_ns: u64,
    asked: Vec<Asked>,
    /// The clients that are here.
    clients: FxHashSet<ClientId>,
    /// The number of the last question.
    last: u64,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Orders {
            gathered: Vec::new(),
            is_urgent: false,
            since_ns: 0,
            waiting: None,
            making: 0,
            taken_ns: 0,
            made_ns: 0,
            saved_ns: MOST_SAVED_NS,
            counted_ns: 0,
            asked: Vec::new(),
            clients: FxHashSet::default(),
            last: 0,
        }
    }
}

impl<T> Orders<T> {
    /// True if nothing waits here.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.waiting.is_none() && self.asked.is_empty()
    }

    /// A client has a stream: if it has just come, it will need chains.
    pub(super) fn welcome_client(&mut self, client: ClientId) {
        if self.clients.insert(client) {
            self.saved_ns = self.saved_ns.max(0).saturating_add_unsigned(NEWCOMERS_NS).min(MOST_SAVED_NS);
        }
    }

    /// A client has gone.
    pub(super) fn forget_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Adds an order.
    pub(super) fn add(&mut self, order: T, is_urgent: bool, now: u64) {
        if self.gathered.is_empty() {
            self.since_ns = now;
        }
        self.gathered.push(order);
        self.is_urgent |= is_urgent;
    }

    /// The number of the next question to so many engines, if orders wait for it and it is time to
    /// ask.
    pub(super) fn ask_next(&mut self, now: u64, engines: usize) -> Option<u64> {
        // What is too little to count stays for the next time: rounds may be shorter than a part.
        let earned = now.saturating_sub(self.counted_ns) / PART_OF_TIME;
        self.counted_ns += earned * PART_OF_TIME;
        self.saved_ns = self.saved_ns.saturating_add_unsigned(earned).min(MOST_SAVED_NS);
        let is_time = now.saturating_sub(self.made_ns) >= GATHERS_NS && self.saved_ns > if self.is_urgent { -MOST_BORROWED_NS } else { 0 };
        let are_enough = self.is_urgent || self.gathered.len() >= WORTH_A_STOP || now.saturating_sub(self.since_ns) >= GATHERS_RARE_NS;
        if !is_time || !are_enough || self.gathered.is_empty() || self.waiting.is_some() || self.making > 0 {
            return None;
        }
        self.last += 1;
        self.is_urgent = false;
        self.waiting = Some(Waiting { orders: std::mem::take(&mut self.gathered), number: self.last, missing: engines });
        Some(self.last)
    }

    /// An engine asks, with this number, when these fences are reached.
    pub(super) fn ask(&mut self, engine: usize, number: u64, fences: Vec<(SlotIndex, u64)>) {
        self.asked.push(Asked { fences, asker: (engine, number) });
    }

    /// The engines whose question is answered now, with its number.
    pub(super) fn answered(&mut self, mut is_reached: impl FnMut(SlotIndex, u64) -> bool) -> Vec<(usize, u64)> {
        let is_over = |asked: &mut Asked| asked.fences.iter().all(|(slot, fence)| is_reached(*slot, *fence));
        self.asked.extract_if(.., is_over).map(|asked| asked.asker).collect()
    }

    /// The work of an engine has ended that was in flight when this one asked with that number.
    pub(super) fn note_answer(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.number == number) {
            waiting.missing = waiting.missing.saturating_sub(1);
        }
    }

    /// True if orders wait for no engine.
    pub(super) fn is_due(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.missing == 0)
    }

    /// Takes the orders that are due. They are in the making until [`Orders::note_made`].
    pub(super) fn take_due(&mut self, now: u64) -> Vec<T> {
        let due = self.waiting.take_if(|waiting| waiting.missing == 0).map_or_else(Vec::new, |waiting| waiting.orders);
        self.making += due.len();
        self.taken_ns = now;
        due
    }

    /// One that was in the making was made, or will not be.
    pub(super) fn note_made(&mut self, now: u64) {
        self.making = self.making.saturating_sub(1);
        self.made_ns = now;
        if self.making == 0 {
            self.saved_ns = self.saved_ns.saturating_sub_unsigned(now.saturating_sub(self.taken_ns)).max(-2 * MOST_BORROWED_NS);
        }
    }

    /// Adds one again that was in the making and was not made.
    pub(super) fn return_unmade(&mut self, order: T, is_urgent: bool, now: u64) {
        self.note_made(now);
        self.add(order, is_urgent, now);
    }

    /// Takes back the orders that wait and for which `is_gone` holds.
    pub(super) fn take_back(&mut self, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken: Vec<T> = self.gathered.extract_if(.., |order| is_gone(order)).collect();
        if let Some(waiting) = &mut self.waiting {
            taken.extend(waiting.orders.extract_if(.., |order| is_gone(order)));
            self.waiting.take_if(|waiting| waiting.orders.is_empty());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_wait_for_the_work_of_all_engines() {
        let (mut first, mut second) = (Orders::default(), Orders::<()>::default());
        first.add("chain", true, 0);
        assert_eq!(first.ask_next(GATHERS_NS, 2), Some(1));
        first.ask(0, 1, vec![(3, 7), (4, 1)]);
        second.ask(0, 1, Vec::new());
        assert_eq!(second.answered(|_, _| false), [(0, 1)], "it had nothing in flight");
        first.note_answer(1);
        assert!(first.answered(|slot, _| slot == 4).is_empty() && !first.is_due(), "one stream still runs");
        assert!(first.take_due(GATHERS_NS).is_empty());
        assert_eq!(first.answered(|slot, fence| slot == 4 || fence <= 7), [(0, 1)]);
        first.note_answer(1);
        assert!(first.is_due() && !first.is_empty());
        assert_eq!(first.take_due(GATHERS_NS), ["chain"]);
        assert!(first.is_empty() && !first.is_due());
    }

    #[test]
    fn answers_for_orders_that_were_taken_back_count_for_no_others() {
        let mut orders = Orders::default();
        orders.add("old", true, 0);
        let old = orders.ask_next(GATHERS_NS, 1).expect("it is time");
        assert_eq!(orders.take_back(|order| *order == "old"), ["old"]);
        orders.add("new", true, 0);
        let new = orders.ask_next(GATHERS_NS, 1).expect("nothing else waits");
        orders.note_answer(old);
        assert!(!orders.is_due());
        orders.note_answer(new);
        assert!(orders.is_due());
    }

    #[test]
    fn orders_are_gathered_while_others_are_made_and_for_a_while_after_that() {
        let (mut orders, begun) = (Orders::default(), 1_000 * GATHERS_NS);
        orders.add(1, true, begun);
        let number = orders.ask_next(begun, 1).expect("the last ones were made long ago");
        orders.add(2, true, begun);
        assert_eq!(orders.ask_next(begun + GATHERS_NS, 1), None, "a question is open");
        orders.note_answer(number);
        assert_eq!(orders.take_due(begun), [1]);
        orders.add(3, false, begun);
        assert_eq!(orders.ask_next(begun + GATHERS_NS, 1), None, "one is in the making");
        orders.note_made(begun);
        assert_eq!(orders.ask_next(begun + GATHERS_NS - 1, 1), None);
        assert!(!orders.is_empty());
        assert_eq!(orders.take_back(|order| *order == 2), [2]);
        let number = orders.ask_next(begun + GATHERS_NS, 1).expect("a while has passed");
        orders.note_answer(number);
        assert_eq!(orders.take_due(begun + GATHERS_NS), [3]);
    }

    #[test]
    fn what_was_not_made_is_asked_for_again() {
        let mut orders = Orders::default();
        (1..=2).for_each(|order| orders.add(order, true, 0));
        let number = orders.ask_next(GATHERS_NS, 1).expect("it is time");
        orders.note_answer(number);
        assert_eq!(orders.take_due(GATHERS_NS), [1, 2]);
        orders.note_made(GATHERS_NS);
        orders.return_unmade(2, true, GATHERS_NS);
        assert!(orders.ask_next(2 * GATHERS_NS, 1).is_some(), "none is in the making any more");
        assert_eq!(orders.take_back(|_| true), [2]);
    }

    #[test]
    fn time_is_saved_in_short_rounds_too() {
        let (mut orders, begun) = (Orders::<()>::default(), 1_000 * GATHERS_NS);
        (orders.saved_ns, orders.counted_ns) = (0, begun);
        (0..100 * PART_OF_TIME).for_each(|round| assert_eq!(orders.ask_next(begun + round, 1), None, "nothing is ordered"));
        assert_eq!(orders.saved_ns, 99);
    }

    /// Has an order made that takes so long. When it was made.
    fn make(orders: &mut Orders<()>, begun: u64, takes: u64) -> Option<u64> {
        let number = orders.ask_next(begun, 1)?;
        orders.note_answer(number);
        orders.take_due(begun).iter().for_each(|()| orders.note_made(begun + takes));
        Some(begun + takes)
    }

    #[test]
    fn chains_are_made_for_a_small_part_of_the_time_but_urgent_ones_at_once() {
        const TAKES: u64 = 5_000_000;
        let (mut orders, mut now, mut made) = (Orders::default(), 1_000 * GATHERS_NS, 0);
        let most_saved = MOST_SAVED_NS.unsigned_abs();
        let end = now + 20 * most_saved;
        while now < end {
            if orders.gathered.is_empty() {
                (0..WORTH_A_STOP).for_each(|_| orders.add((), false, now));
            }
            now = make(&mut orders, now, TAKES).inspect(|_| made += 1).unwrap_or(now + GATHERS_NS);
        }
        let (saved, later) = (most_saved / TAKES, 20 * most_saved / PART_OF_TIME / TAKES);
        assert!((saved..=saved + later + 2).contains(&made), "{made} were made, {saved} with what was saved");
        orders.saved_ns = -MOST_BORROWED_NS / 2;
        assert_eq!(make(&mut orders, now, TAKES), None);
        orders.add((), true, now);
        assert!(make(&mut orders, now + GATHERS_NS, TAKES).is_some(), "an urgent one");
        orders.saved_ns = -2 * MOST_BORROWED_NS;
        orders.add((), true, now);
        assert_eq!(make(&mut orders, now + 3 * GATHERS_NS, TAKES), None, "too much is borrowed");
    }

    #[test]
    fn orders_that_are_not_urgent_wait_until_there_are_many_or_for_a_while() {
        let (mut orders, begun) = (Orders::default(), 1_000 * GATHERS_NS);
        (1..WORTH_A_STOP).for_each(|order| orders.add(order, false, begun));
        assert_eq!(orders.ask_next(begun + GATHERS_RARE_NS - 1, 1), None);
        let number = orders.ask_next(begun + GATHERS_RARE_NS, 1).expect("they have waited for a while");
        orders.note_answer(number);
        let later = begun + 2 * GATHERS_RARE_NS;
        orders.take_due(begun).iter().for_each(|_| orders.note_made(begun));
        (1..WORTH_A_STOP).for_each(|order| orders.add(order, false, later));
        assert_eq!(orders.ask_next(later, 1), None);
        orders.add(WORTH_A_STOP, false, later);
        assert!(orders.ask_next(later, 1).is_some(), "they are many");
    }

    #[test]
    fn who_comes_when_everything_is_used_up_has_chains_made() {
        let (mut orders, begun) = (Orders::default(), 1_000 * GATHERS_NS);
        (orders.saved_ns, orders.counted_ns) = (-2 * MOST_BORROWED_NS, begun);
        (0..WORTH_A_STOP).for_each(|_| orders.add((), false, begun));
        assert_eq!(make(&mut orders, begun, 1), None);
        orders.welcome_client(7);
        assert!(make(&mut orders, begun, 1).is_some());
        orders.saved_ns = -1;
        orders.welcome_client(7);
        assert_eq!(orders.saved_ns, -1, "another stream of the same client");
        orders.forget_client(7);
        (7..1_000).for_each(|client| orders.welcome_client(client));
        assert_eq!(orders.saved_ns, MOST_SAVED_NS);
    }
}
