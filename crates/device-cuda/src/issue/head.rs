//! The head of a queue: the first kernels of much work that waits in a stream without work in
//! flight, or with so little that it ends before all is planned. They are submitted before the rest
//! is planned, so that the card works meanwhile: planning a hundred kernels takes 40 µs. Pure.
//!
//! Where a stream's kernels fall into no segments, heads have two lengths only: so few that there
//! are soon chains for them.

use super::queue::{MUCH_WORK, StreamQueue};
use super::segments::{Position, SHORTEST_SEGMENT};

/// The length of a head behind another one, or behind work in flight.
const NEXT_HEAD: usize = 2 * SHORTEST_SEGMENT;
/// How many nanoseconds planning a kernel takes, and comparing it with one of a chain.
const PLANNING_NS: u64 = 400;
const COMPARING_NS: u64 = 60;
/// Work in flight that takes longer than planning so many kernels leaves time enough for any.
const MOST_PLANNED_BEFORE: usize = 64;

/// How many nanoseconds before the work in flight ends planning this queue should begin. `repeats`:
/// its work is expected to be that of chains.
pub(super) fn planning_ns(pieces: usize, repeats: bool) -> u64 {
    let each_ns = if repeats { COMPARING_NS } else { PLANNING_NS };
    if pieces < NEXT_HEAD { 0 } else { pieces.min(MOST_PLANNED_BEFORE) as u64 * each_ns }
}

/// Kernels of a queue on the way to the end of its head.
pub(super) struct Head {
    kernels: usize,
    length: usize,
    position: Position,
}

impl Head {
    /// `None` if there is too little work, or the card has enough of the stream's already: what is
    /// in flight takes `remaining_ns`. `waits`: the end of the queue would wait for what comes.
    pub(super) fn of_queue(queue: &StreamQueue, remaining_ns: u64, waits: bool) -> Option<Head> {
        let pieces = queue.work.len();
        let length = if queue.in_flight == 0 {
            (pieces >= MUCH_WORK).then_some(SHORTEST_SEGMENT)
        } else {
            let comes_late = || waits || remaining_ns < pieces as u64 * PLANNING_NS;
            (!queue.repeats && queue.position.is_endless() && pieces >= NEXT_HEAD && comes_late()).then_some(NEXT_HEAD)
        };
        Some(Head { kernels: 0, length: length?, position: queue.position })
    }

    /// One more kernel, of this shape. True if the head ends with it: with a segment, for which
    /// there is a chain, or anywhere in a stream that has none.
    pub(super) fn ends_with(&mut self, shape: u64) -> bool {
        self.kernels += 1;
        let ends_segment = self.position.pass(shape);
        ends_segment || (self.position.is_endless() && self.kernels >= self.length)
    }

    /// The head of what comes behind this one, which has ended; `left` pieces do. `None` if that
    /// is all submitted together.
    pub(super) fn next(self, left: usize) -> Option<Head> {
        let is_long = self.length < NEXT_HEAD && left >= NEXT_HEAD + SHORTEST_SEGMENT && self.position.is_endless();
        is_long.then_some(Head { kernels: 0, length: NEXT_HEAD, position: self.position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{ClientStream, ContextClient, Urgency};
    use cumux_device::{StreamId, Work};
    use std::sync::Arc;

    fn queue(pieces: u64, position: Position) -> StreamQueue {
        let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
        let mut queue = StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client, 0, 0)));
        (0..pieces).for_each(|token| _ = queue.push(token, Work::Nop, 0));
        StreamQueue { position, ..queue }
    }

    fn endless() -> Position {
        let mut position = Position::default();
        position.go_on(&[7; 200]);
        position
    }

    /// Into which heads kernels of these shapes are cut.
    fn heads(first: Option<Head>, shapes: &[u64]) -> Vec<usize> {
        let (mut head, mut lengths, mut begun) = (first, Vec::new(), 0);
        for (at, shape) in shapes.iter().enumerate() {
            if head.as_mut().is_some_and(|head| head.ends_with(*shape)) {
                lengths.push(at + 1 - begun);
                begun = at + 1;
                head = head.and_then(|head| head.next(shapes.len() - begun));
            }
        }
        lengths
    }

    #[test]
    fn an_idle_stream_with_much_work_begins_with_some_of_it() {
        let idle = |pieces: u64, position, shapes: &[u64]| heads(Head::of_queue(&queue(pieces, position), 0, false), shapes);
        assert_eq!(idle(100, endless(), &[7; 100]), [16, 32], "the rest is planned while these run");
        assert_eq!(idle(60, endless(), &[7; 60]), [16], "little is left");
        assert_eq!(idle(15, endless(), &[7; 15]), [0_usize; 0], "little is planned soon");
        // Where segments end there are chains for them: nothing else is cut off.
        let different: Vec<u64> = (0..100).collect();
        let segment = Position::default().find_end(&different);
        assert!(segment.is_some_and(|length| length > SHORTEST_SEGMENT));
        assert_eq!(idle(100, Position::default(), &different), [segment.unwrap_or_default()]);
    }

    #[test]
    fn a_stream_whose_work_ends_before_all_is_planned_gets_some_of_it() {
        let busy = |pieces: u64, position, remaining_ns, waits| {
            let queue = StreamQueue { in_flight: 1, ..queue(pieces, position) };
            heads(Head::of_queue(&queue, remaining_ns, waits), &vec![7; queue.work.len()])
        };
        assert_eq!(busy(84, endless(), 20_000, false), [32]);
        assert_eq!(busy(84, endless(), 40_000, false), [0_usize; 0], "there is time enough for all");
        assert_eq!(busy(40, endless(), 40_000, true), [32], "what waits for more would leave the card without work");
        assert_eq!(busy(31, endless(), 0, true), [0_usize; 0]);
        assert_eq!(busy(84, Position::default(), 0, true), [0_usize; 0], "segments are chains already");
    }

    #[test]
    fn planning_begins_sooner_where_there_is_much_to_plan() {
        assert_eq!([31, 32, 64, 128].map(|pieces| planning_ns(pieces, false)), [0, 12_800, 25_600, 25_600]);
        assert_eq!(planning_ns(64, true), 3_840, "what is known already takes little");
    }
}
