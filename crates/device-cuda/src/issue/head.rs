//! The head of a queue: the first kernels of much work that waits in a stream without work in
//! flight. They are submitted before the rest is planned, so that the card works meanwhile:
//! planning a hundred kernels takes 50 µs. Pure.

use super::queue::StreamQueue;
use super::segments::{Position, SHORTEST_SEGMENT};

/// From so many pieces of work on a queue has a head.
const MUCH_WORK: usize = 24;

/// Kernels of a queue on the way to the end of its head.
pub(super) struct Head {
    kernels: usize,
    position: Position,
}

impl Head {
    /// `None` if there is too little work, or the card has some of the stream's already.
    pub(super) fn of_queue(queue: &StreamQueue) -> Option<Head> {
        let is_long = queue.in_flight == 0 && queue.work.len() >= MUCH_WORK;
        is_long.then_some(Head { kernels: 0, position: queue.position })
    }

    /// One more kernel, of this shape. True if the head ends with it: with a segment, for which
    /// there is a chain, or anywhere in a stream that has none.
    pub(super) fn ends_with(&mut self, shape: u64) -> bool {
        self.kernels += 1;
        let ends_segment = self.position.pass(shape);
        ends_segment || (self.position.is_endless() && self.kernels >= SHORTEST_SEGMENT)
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

    /// How many of equal kernels, or of kernels of these shapes, are submitted first.
    fn head_of(queue: &StreamQueue, mut shapes: impl Iterator<Item = u64>) -> Option<usize> {
        let mut head = Head::of_queue(queue)?;
        shapes.position(|shape| head.ends_with(shape)).map(|at| at + 1)
    }

    #[test]
    fn an_idle_stream_with_much_work_begins_with_some_of_it() {
        let endless = {
            let mut position = Position::default();
            position.go_on(&[7; 200]);
            position
        };
        let equal = || std::iter::repeat_n(7, 100);
        assert_eq!(head_of(&queue(100, endless), equal()), Some(SHORTEST_SEGMENT));
        assert_eq!(head_of(&queue(23, endless), equal()), None, "little is planned soon");
        assert_eq!(head_of(&StreamQueue { in_flight: 1, ..queue(100, endless) }, equal()), None, "the card has some of it");
        // Where segments end there are chains for them: nothing else is cut off.
        let different = || 0..100;
        let segment = Position::default().find_end(&different().collect::<Vec<_>>());
        assert!(segment.is_some_and(|length| length > SHORTEST_SEGMENT));
        assert_eq!(head_of(&queue(100, Position::default()), different()), segment);
    }
}
