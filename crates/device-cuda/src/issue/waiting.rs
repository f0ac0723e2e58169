//! Whether a queue waits for more work before it is served: together it needs fewer chains, and the
//! card does not notice while it has work of the stream, or of many others.

use super::chains::Chains;
use super::head::planning_ns;
use super::lengths::LONGEST_CHAIN;
use super::queue::StreamQueue;
use super::segments::SHORTEST_SEGMENT;
use super::streams::Streams;

/// While a stream has more than this many nanoseconds of work in flight, its queue is not served,
/// so that work gathers there for a longer chain.
pub(super) const GATHER_WHILE_BUSY_NS: u64 = 8_000;
/// Most nanoseconds for which work gathers. It also stops when the longest chain is full.
const GATHER_LIMIT_NS: u64 = 100_000;
/// While at least this many streams of the card have work in flight, the beginning of a segment
/// waits for the rest of it, also where its own stream has nothing in flight: the others keep the
/// card busy, and the engine has less to do.
const MANY_BUSY_STREAMS: usize = 4;
/// What is missing of the chain that came next the last time, or of what came together the last
/// times, is waited for while a stream has work in flight for longer than this, in nanoseconds: so
/// long it takes to launch a chain.
const LAUNCHING_NS: u64 = 6_000;
/// Where the stream has none in flight and many others have, a few kernels are waited for no longer
/// than this if as many came the last times.
const REST_LIMIT_NS: u64 = 5_000;
/// Work that waits for the rest of its segment is looked at again when so many pieces have come.
const MORE_PIECES: usize = 4;

/// True if more work is worth waiting for.
pub(super) fn is_worth_waiting(chains: &Chains, streams: &Streams, queue: &StreamQueue) -> bool {
    let now = streams.clock.now();
    if waits_for_segment(streams, queue, now) && (queue.is_short_rest(MORE_PIECES) || queue.is_short_beginning()) {
        return true;
    }
    let waited = now.saturating_sub(queue.since);
    if queue.in_flight == 0 {
        return waited < REST_LIMIT_NS && streams.tracker.busy_streams() >= MANY_BUSY_STREAMS && queue.misses_few();
    }
    // All that is expected has come: nothing is gained by waiting.
    let is_over = queue.repeats && queue.burst.is_over();
    let Some(slot) = queue.slot.filter(|_| !is_over && queue.work.len() < LONGEST_CHAIN && waited < GATHER_LIMIT_NS) else { return false };
    let misses_rest = misses_rest(chains, queue);
    let comes_soon = misses_rest || (queue.repeats && queue.burst.goes_on(1));
    let until = if comes_soon { LAUNCHING_NS } else { GATHER_WHILE_BUSY_NS };
    let until = until + if misses_rest { 0 } else { planning_ns(queue.work.len(), queue.repeats) };
    streams.tracker.slot(slot).remaining_ns(now) > until
}

/// True if the queue has some of the work of the chain that came next the last time, as far as can
/// be seen without comparing it, and the rest is expected to come.
pub(super) fn misses_rest(chains: &Chains, queue: &StreamQueue) -> bool {
    let next = queue.last.filter(|_| queue.repeats).and_then(|last| chains.next_of(last, queue.stream.id));
    let missing = next.and_then(|next| next.length.checked_sub(queue.work.len())).filter(|missing| *missing > 0);
    missing.is_some_and(|missing| queue.burst.goes_on(missing)) && queue.ends_with_node()
}

/// True if the beginning of a segment in this queue may wait for the rest of it, which is expected
/// to come.
pub(super) fn waits_for_segment(streams: &Streams, queue: &StreamQueue, now: u64) -> bool {
    queue.burst.goes_on(SHORTEST_SEGMENT)
        && streams.tracker.busy_streams() >= MANY_BUSY_STREAMS
        && now.saturating_sub(queue.since) < GATHER_LIMIT_NS
        && queue.makes_segments
        && queue.work.len() < LONGEST_CHAIN
}

/// True if what the queue has waited for has not come in time. `waits`: it may wait for the rest of
/// a segment.
pub(super) fn waited_in_vain(queue: &StreamQueue, waits: bool, now: u64) -> bool {
    let waited = now.saturating_sub(queue.since);
    let lacks_segment = !waits && waited >= GATHER_LIMIT_NS && (queue.left > 0 || queue.is_short_beginning());
    // Equal kernels were left to wait for more while others of the stream ran.
    let lacks_more = !waits && waited >= REST_LIMIT_NS && queue.position.is_endless() && queue.left > 0 && queue.work.len() <= queue.left;
    lacks_segment || lacks_more || (queue.in_flight == 0 && waited >= REST_LIMIT_NS && queue.misses_few())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{ClientStream, ContextClient, Urgency};
    use crate::issue::segments::Position;
    use cumux_device::{StreamId, Work};
    use std::sync::Arc;

    fn set() -> Work {
        Work::Set { target: 0, pitch: 0, value: 0, element: 4, width: 8, height: 1 }
    }

    /// A stream with equal kernels, of which twelve came at 0 and as many more are expected.
    fn queue() -> StreamQueue {
        let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
        let mut queue = StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client, 0, 0)));
        queue.position.go_on(&[7; 200]);
        (0..24).for_each(|token| _ = queue.push(token, set(), 0));
        queue.work.clear();
        (0..12).for_each(|token| _ = queue.push(token, set(), 0));
        queue
    }

    #[test]
    fn few_kernels_are_waited_for_once_and_only_if_they_are_expected() {
        let mut late = queue();
        assert!(late.misses_few() && !waited_in_vain(&late, false, REST_LIMIT_NS - 1));
        assert!(waited_in_vain(&late, false, REST_LIMIT_NS));
        late.burst.end();
        assert!(!late.misses_few() && !waited_in_vain(&late, false, REST_LIMIT_NS), "the client waits for these already");
        let mut copied = queue();
        copied.push(99, Work::Nop, 0);
        assert!(!copied.misses_few(), "other work ends it");
        let mut whole = queue();
        (0..4).for_each(|token| _ = whole.push(token, set(), 0));
        assert!(!whole.misses_few(), "that is a head");
        let mut busy = queue();
        busy.in_flight = 1;
        assert!(!waited_in_vain(&busy, false, REST_LIMIT_NS), "it has not waited for that");
    }

    #[test]
    fn a_rest_that_does_not_come_is_given_up_after_a_while() {
        let mut queue = queue();
        (queue.in_flight, queue.left) = (1, 12);
        assert!(!waited_in_vain(&queue, false, REST_LIMIT_NS - 1) && !waited_in_vain(&queue, true, GATHER_LIMIT_NS));
        assert!(waited_in_vain(&queue, false, REST_LIMIT_NS), "of equal kernels none has come while others ran");
        queue.push(99, set(), 0);
        assert!(!waited_in_vain(&queue, false, GATHER_LIMIT_NS - 1), "one has come");
        queue.position = Position::default();
        assert!(!waited_in_vain(&queue, true, GATHER_LIMIT_NS) && !waited_in_vain(&queue, false, GATHER_LIMIT_NS - 1));
        assert!(waited_in_vain(&queue, false, GATHER_LIMIT_NS));
    }
}
