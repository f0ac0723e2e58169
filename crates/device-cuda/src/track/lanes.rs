//! How many driver streams of a card may have work in flight at once, and whose turn it is. All
//! engines of the card count together. A *lane* (of the card, not of a
//! warp) is the place of one busy driver stream.
//!
//! A context has some queues, and the driver puts a stream's work into one that is free. Where more
//! streams are busy than there are queues, several share one, and wait for whatever is in front: if
//! a kernel there does not end, nothing behind it ever begins. Measured on an H100 with 16 queues,
//! beside such a kernel (`benches/cu/lanes.cu`): of 20 busy streams 5 stand still for good, of 40
//! streams 25, with copies or without, and none of 40 as long as 14 are busy at a time.
//!
//! Where a stream waits for a lane, those that have had theirs for [`TURN_NS`] get nothing more
//! until their work has ended, and an engine with more than its part of the lanes takes no further
//! one. A client leaves some lanes to others. Where kernels in all lanes wait for one that has
//! none, the limit is [lifted](Lanes::lift).
#![expect(clippy::disallowed_types, reason = "what the engines of a card share")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Queues that are left for streams which the engines do not count: the one in which memory is
/// scrubbed, and that in which a chain is uploaded. Each engine but one takes one more, because all
/// may take the last lane at the same time.
const SPARE_QUEUES: usize = 2;

/// How long a stream may keep its lane, in nanoseconds, if another one waits.
const TURN_NS: u64 = 2_000_000;

/// Lanes that one client leaves to others, where there are enough of them. Otherwise a program with
/// many streams of long kernels would keep everybody out for as long as those take.
const LEFT_TO_OTHERS: usize = 3;

#[derive(Debug, Default)]
struct Shared {
    busy: AtomicUsize,
    /// The engines with streams that wait for a lane, a bit for each.
    waiting: AtomicU64,
    /// When work of a stream with a lane was seen complete, while another one waited. In
    /// nanoseconds since the card was opened.
    progress: AtomicU64,
    /// The engine that took a lane last.
    last: AtomicUsize,
    lifted: AtomicBool,
}

/// The driver streams of a card with work in flight, and how many there may be.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    shared: Arc<Shared>,
    limit: usize,
    /// The lanes that each engine may have while streams of others wait.
    part: usize,
}

impl Lanes {
    /// Those of a context with so many queues, for so many engines.
    pub(crate) fn of_queues(queues: usize, engines: usize) -> Lanes {
        let limit = queues.saturating_sub(SPARE_QUEUES + engines.saturating_sub(1)).max(1);
        Lanes { shared: Arc::default(), limit, part: limit.div_ceil(engines.max(1)) }
    }

    /// A driver stream has work in flight now.
    #[inline]
    pub(super) fn add(&self) {
        self.shared.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// A driver stream has none any more.
    #[inline]
    pub(super) fn end(&self) {
        self.shared.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many driver streams of the card have work in flight.
    #[inline]
    pub(super) fn busy(&self) -> usize {
        self.shared.busy.load(Ordering::Relaxed)
    }

    /// True if more driver streams are busy than these of one engine.
    pub(super) fn has_others(&self, own: usize) -> bool {
        self.shared.busy.load(Ordering::Relaxed) > own
    }

    /// Work of streams with lanes is complete: who waits will have one.
    #[inline]
    pub(super) fn note_progress(&self, now: u64) {
        if self.shared.waiting.load(Ordering::Relaxed) != 0 {
            self.shared.progress.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// When work of a stream with a lane was seen complete last, while another one waited.
    pub(super) fn progress(&self) -> u64 {
        self.shared.progress.load(Ordering::Relaxed)
    }

    fn are_full(&self) -> bool {
        self.shared.busy.load(Ordering::Relaxed) >= self.limit
    }

    /// True if a stream of this engine may take a lane, where so many of its streams have one.
    #[inline]
    pub(super) fn may_take(&self, engine: usize, own: usize) -> bool {
        let others_wait = || self.shared.waiting.load(Ordering::Relaxed) & !bit(engine) != 0;
        // With one lane for each engine, or fewer, whoever has had one would be the first to see it
        // free again.
        let had_the_last = || self.part == 1 && self.shared.last.load(Ordering::Relaxed) == engine;
        (!self.are_full() && (!others_wait() || (own < self.part && !had_the_last()))) || self.is_lifted()
    }

    /// An engine has taken a lane.
    #[inline]
    pub(super) fn note_taken(&self, engine: usize) {
        // Who took it last matters nowhere else, and a store here would be one for each launch.
        if self.part == 1 {
            self.shared.last.store(engine, Ordering::Relaxed);
        }
    }

    /// True if a client leaves enough to others with one lane more than it has, which `own` counts.
    #[inline]
    pub(super) fn leaves_some(&self, own: impl FnOnce() -> usize) -> bool {
        let has_room = self.shared.busy.load(Ordering::Relaxed) + LEFT_TO_OTHERS < self.limit;
        has_room || own() < self.limit.saturating_sub(LEFT_TO_OTHERS).max(1) || self.is_lifted()
    }

    /// True if a stream that has been busy since then gives its lane back now: it gets nothing more
    /// until its work has ended. A stream whose client never waits would keep it for ever.
    #[inline]
    pub(super) fn is_turn_over(&self, busy_since: u64, now: u64) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) != 0 && now.saturating_sub(busy_since) > TURN_NS && !self.is_lifted()
    }

    /// Streams of this engine wait for a lane, or none does any more.
    pub(super) fn note_waiting(&self, engine: usize, waits: bool) {
        if waits {
            self.shared.waiting.fetch_or(bit(engine), Ordering::Relaxed);
        } else {
            self.shared.waiting.fetch_and(!bit(engine), Ordering::Relaxed);
            self.end_lift();
        }
    }

    /// The limit holds again once nobody waits. Streams that are too many by then go on, and the
    /// next ones have to wait: under load there would never be fewer.
    fn end_lift(&self) {
        if self.is_lifted() && self.shared.waiting.load(Ordering::Relaxed) == 0 {
            self.shared.lifted.store(false, Ordering::Relaxed);
        }
    }

    /// As many streams as want may be busy, until none waits: those that are there wait for one
    /// another, or for a kernel that does not end, and nobody else is there.
    pub(crate) fn lift(&self) {
        if !self.shared.lifted.swap(true, Ordering::Relaxed) {
            tracing::debug!(lanes = self.limit, "more streams are busy than there are queues of the card: those in the lanes wait for others");
        }
    }

    fn is_lifted(&self) -> bool {
        self.shared.lifted.load(Ordering::Relaxed)
    }
}

/// Engines are few: more than 64 would share bits, and only wait for one another a little longer.
fn bit(engine: usize) -> u64 {
    1 << (engine % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_fill_them_together() {
        let lanes = Lanes::of_queues(5, 2);
        let other = lanes.clone();
        lanes.add();
        assert!(lanes.may_take(0, 1) && other.may_take(1, 0));
        other.add();
        assert!(!lanes.may_take(0, 1) && !other.may_take(1, 1));
        lanes.end();
        assert!(other.may_take(1, 1));
    }

    #[test]
    fn who_has_more_than_its_part_gives_way() {
        let lanes = Lanes::of_queues(13, 2);
        assert_eq!((lanes.limit, lanes.part), (10, 5));
        (0..7).for_each(|_| lanes.add());
        assert!(lanes.may_take(0, 7));
        lanes.note_waiting(1, true);
        assert!(!lanes.may_take(0, 7) && lanes.may_take(0, 4) && lanes.may_take(1, 0));
        lanes.note_waiting(1, false);
        assert!(lanes.may_take(0, 7));
    }

    #[test]
    fn engines_take_turns_where_there_are_too_few_for_all() {
        let lanes = Lanes::of_queues(4, 2);
        assert_eq!((lanes.limit, lanes.part), (1, 1));
        lanes.note_taken(0);
        assert!(lanes.may_take(0, 0), "nobody else wants it");
        lanes.note_waiting(1, true);
        assert!(!lanes.may_take(0, 0) && lanes.may_take(1, 0));
        lanes.note_taken(1);
        assert!(lanes.may_take(0, 0));
    }

    #[test]
    fn a_turn_is_over_only_if_others_wait() {
        let lanes = Lanes::of_queues(13, 2);
        assert!(!lanes.is_turn_over(5, 5 + 10 * TURN_NS), "nobody waits");
        lanes.note_waiting(1, true);
        assert!(!lanes.is_turn_over(5, 5 + TURN_NS) && lanes.is_turn_over(5, 6 + TURN_NS));
        assert!(!lanes.is_turn_over(6, 5), "clocks of two engines differ");
        lanes.note_waiting(1, false);
        assert!(!lanes.is_turn_over(5, 6 + TURN_NS));
    }

    #[test]
    fn a_lifted_limit_comes_back_when_nobody_waits() {
        let lanes = Lanes::of_queues(4, 1);
        lanes.add();
        lanes.add();
        lanes.note_waiting(0, true);
        assert!(!lanes.may_take(0, 2));
        lanes.lift();
        assert!(lanes.may_take(0, 2) && !lanes.is_turn_over(0, 2 * TURN_NS));
        lanes.add();
        lanes.note_waiting(0, false);
        assert!(!lanes.may_take(0, 3), "more are busy than may be, and it holds for the next ones");
        (0..3).for_each(|_| lanes.end());
        assert!(lanes.may_take(0, 0));
    }

    #[test]
    fn a_client_leaves_some_lanes_to_others() {
        let lanes = Lanes::of_queues(16, 1);
        assert_eq!(lanes.limit, 14);
        (0..10).for_each(|_| lanes.add());
        assert!(lanes.leaves_some(|| panic!("there is room")));
        lanes.add();
        assert!(lanes.leaves_some(|| 10) && !lanes.leaves_some(|| 11));
        lanes.lift();
        assert!(lanes.leaves_some(|| 11));
        let one = Lanes::of_queues(3, 1);
        assert!(one.leaves_some(|| 0) && !one.leaves_some(|| 1), "with one lane each has it in turn");
    }

    #[test]
    fn progress_is_seen_where_somebody_waits() {
        let lanes = Lanes::of_queues(4, 2);
        let other = lanes.clone();
        lanes.note_progress(7);
        assert_eq!(other.progress(), 0, "nobody waits");
        other.note_waiting(1, true);
        lanes.note_progress(9);
        other.note_progress(8);
        assert_eq!(other.progress(), 9, "clocks of two engines differ");
    }

    #[test]
    fn with_few_queues_one_stream_works_at_a_time() {
        for (queues, engines) in [(0, 1), (1, 2), (3, 1), (4, 2), (4, 16)] {
            let lanes = Lanes::of_queues(queues, engines);
            assert!(lanes.may_take(0, 0));
            lanes.add();
            assert!(!lanes.may_take(0, 1));
        }
    }
}
