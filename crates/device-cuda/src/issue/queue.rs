//! The queue of one client stream at its engine.
//!
//! ```text
//!       work comes           is served     no work is left
//! Idle ───────────▶ Ready ───────────────────────────────────▶ Idle
//!                     ▲  │
//!                     │  ├─ the quantum is used up ───────────▶ Ready
//!                     │  ├─ next is a long kernel, held back ─▶ HeldBack ─┐ long kernels may begin
//!                     │  ├─ memory or code is not there yet ──▶ Parked ───┤ it is there now
//!                     │  ├─ another client prints ────────────▶ Silent ───┤ it is its turn
//!                     │  └─ it leaves its driver stream ──────▶ Moving ───┤ nothing is in flight,
//!                     └───────────────────────────────────────────────────┘ or new work comes
//! ```
//!
//! A queue is in its engine's ready list exactly if it is `Ready` or `HeldBack`. While it is served
//! it is in no list, and `Idle`.

use super::names::ChainName;
use super::segments::Position;
use super::small_work::MOST_BYTES;
use crate::context::ClientStream;
use crate::track::{HeldReports, SlotIndex};
use cumux_device::{CopyExtent, Work};
use std::collections::VecDeque;
use std::sync::Arc;

/// From so many pieces of work on an idle stream's queue has a [head](super::head).
pub(super) const MUCH_WORK: usize = 16;

/// What a queue waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// It waits for work, or it is being served.
    Idle,
    /// It waits to be served.
    Ready,
    /// It waits to be served. Its next work is a long kernel, which may not begin while a thread
    /// waits for a quiet card.
    HeldBack,
    /// It waits until memory of the client's pinned window is registered, or the code of a kernel
    /// is loaded.
    Parked,
    /// It waits for the client's turn to print ([`crate::track::Printing`]).
    Silent,
    /// It waits until its work in flight is complete, because that lies in a driver stream that the
    /// stream leaves: the client has another partition now, or another engine serves it.
    Moving,
}

/// The queue of a client stream, and the stream's state at its engine.
pub(crate) struct StreamQueue {
    /// The client stream.
    pub stream: Arc<ClientStream>,
    /// Tokens and work that was not submitted to the driver yet, in order.
    pub work: VecDeque<(u64, Work)>,
    /// The slot to which the stream is bound, while it has work queued or in flight.
    pub slot: Option<SlotIndex>,
    /// The number of pieces of work in flight.
    pub in_flight: usize,
    /// Since when it has work in flight, if it has, in nanoseconds.
    pub busy_since: u64,
    /// What the queue waits for.
    pub state: QueueState,
    /// When the queue last became `Ready` with new work, or was last served, in nanoseconds.
    pub since: u64,
    /// Reports of completed work that wait for printed text.
    pub held: HeldReports,
    /// How far the kernels that were submitted are in their segment.
    pub position: Position,
    /// How much work was left in the queue when it was last served, if that waits for more.
    pub left: usize,
    /// The work that came since the stream last had none.
    pub burst: Burst,
    /// True if what was taken last of kernels, and of sets and copies that became some, is a node
    /// of a chain.
    pub makes_segments: bool,
    /// The chain that the stream has launched last.
    pub last: Option<ChainName>,
    /// True if that one had its kernels and their parameters already.
    pub repeats: bool,
    /// How often the queue was served by comparing it with chains.
    pub compared: u32,
    /// Whether the client's kernels come from this stream.
    pub lead: Lead,
    /// How many small copies have become nodes since the client's last kernel.
    pub copies: usize,
    /// True if the small copies that come may be nodes, as far as was seen last.
    pub takes_copies: bool,
}

/// Whether a client's kernels come from one stream alone.
///
/// ```text
///      brings a kernel         others have had none for a while, and have none now
/// None ───────────────▶ Since ─────────────────────────────────────────────────────▶ Alone
///  ▲ │                    │                                                            ▲ │
///  │ └────────────────────┼── brings the client's first kernel ───────────────────────┘ │
///  └──────────────────────┴── another stream brings one ◀───────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// The client's last kernel came in another stream.
    None,
    /// It came in this one, and others may still have some. Since then, in nanoseconds.
    Since(u64),
    /// No other stream of the client has any.
    Alone,
}

/// How much work comes until the client waits for its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Burst {
    /// The pieces of work that came since the stream last had none.
    pieces: usize,
    /// The number of pieces until it had none the last time. It falls by an eighth each time at
    /// most, rounded up, so that one pause of the client does not change much. What has not come
    /// in time is not expected any more ([`Burst::end`]).
    before: usize,
}

impl Burst {
    /// So many more pieces of work come.
    fn add(&mut self, pieces: usize, begins: bool) {
        if begins {
            self.before = self.pieces.max(self.before - self.before.div_ceil(8));
            self.pieces = 0;
        }
        self.pieces += pieces;
    }

    /// The client waits for the end of its work already.
    pub(super) fn end(&mut self) {
        self.before = self.pieces;
    }

    /// True if the client is expected to wait for the end of what has come: it is as much as the
    /// last time.
    pub(super) fn is_over(self) -> bool {
        self.pieces == self.before
    }

    /// How many pieces came the last times until the client waited for their end.
    pub(super) fn expected(self) -> usize {
        self.before
    }

    /// True if at least this much more work is expected before the client waits for its end.
    pub(super) fn goes_on(self, more: usize) -> bool {
        self.pieces + more <= self.before
    }
}

/// True if this work may be a node of a chain. A queue that ends with such work may wait for more.
fn may_be_node((_, work): &(u64, Work)) -> bool {
    matches!(work, Work::Kernel(_) | Work::Set { .. })
}

/// True if this work is a small copy.
fn is_small_copy((_, work): &(u64, Work)) -> bool {
    matches!(work, Work::Copy { extent: CopyExtent { width: ..=MOST_BYTES, height: 1, depth: 1 }, .. })
}

impl StreamQueue {
    /// An empty queue.
    pub(crate) fn new(stream: Arc<ClientStream>) -> StreamQueue {
        StreamQueue {
            stream,
            work: VecDeque::new(),
            slot: None,
            in_flight: 0,
            busy_since: 0,
            state: QueueState::Idle,
            since: 0,
            held: HeldReports::default(),
            position: Position::default(),
            left: 0,
            burst: Burst::default(),
            makes_segments: false,
            last: None,
            repeats: false,
            compared: 0,
            lead: Lead::None,
            copies: 0,
            takes_copies: false,
        }
    }

    /// True if there is a kernel in this work, and the client's last one came in another stream.
    #[inline]
    pub(crate) fn would_lead_with<'a>(&self, mut work: impl Iterator<Item = &'a Work>) -> bool {
        self.lead == Lead::None && work.any(|work| matches!(work, Work::Kernel(_)))
    }

    /// Adds work. Returns true if this makes the queue `Ready`, so that the caller puts it into the
    /// ready list.
    #[inline]
    pub(crate) fn push(&mut self, token: u64, work: Work, now: u64) -> bool {
        self.note_pieces(1);
        self.work.push_back((token, work));
        self.make_ready(now)
    }

    /// As [`StreamQueue::push`], for all of a list.
    pub(crate) fn push_all(&mut self, work: Vec<(u64, Work)>, now: u64) -> bool {
        self.note_pieces(work.len());
        self.work.extend(work);
        self.make_ready(now)
    }

    #[inline]
    fn note_pieces(&mut self, pieces: usize) {
        self.burst.add(pieces, self.in_flight == 0 && self.work.is_empty());
    }

    /// Makes the queue `Ready`, if its new work does. Returns true if it has.
    #[inline]
    fn make_ready(&mut self, now: u64) -> bool {
        let was_waiting = matches!(self.state, QueueState::Idle | QueueState::Moving);
        if was_waiting {
            self.state = QueueState::Ready;
            self.since = now;
        }
        was_waiting
    }

    /// True if what is queued cannot end a segment, or is no head of a stream without segments, and
    /// no other work does.
    pub(super) fn is_short_beginning(&self) -> bool {
        let is_short = self.position.is_within(self.work.len()) || (self.position.is_endless() && self.work.len() < MUCH_WORK);
        let is_inner = |piece: &(u64, Work)| may_be_node(piece) || (self.takes_copies && is_small_copy(piece));
        is_short && self.work.back().is_none_or(may_be_node) && self.work.iter().all(is_inner)
    }

    /// True if what came last may be a node of a chain: a client waits for other work, or brings
    /// more.
    pub(super) fn ends_with_node(&self) -> bool {
        self.work.back().is_some_and(may_be_node)
    }

    /// True if an idle stream with equal kernels has fewer than came the last times, and than a
    /// head has.
    pub(super) fn misses_few(&self) -> bool {
        self.position.is_endless() && self.work.len() < self.burst.expected().min(MUCH_WORK) && self.burst.goes_on(1) && self.ends_with_node()
    }

    /// True if fewer than `more` pieces have come since work was left to wait for more. Equal
    /// kernels wait no longer than those before them run.
    pub(super) fn is_short_rest(&self, more: usize) -> bool {
        self.left > 0 && (self.in_flight > 0 || !self.position.is_endless()) && self.work.len() < self.left + more
    }

    /// True if the stream has nothing queued, in flight, or held.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.work.is_empty() && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{ContextClient, Urgency};
    use cumux_device::{Rows, StreamId};

    #[test]
    fn a_burst_is_expected_to_be_as_long_as_those_before() {
        let mut burst = Burst::default();
        let come = |burst: &mut Burst, pieces: usize| (0..pieces).for_each(|at| burst.add(1, at == 0));
        come(&mut burst, 231);
        assert!(!burst.goes_on(1), "nobody knows how long the first one is");
        come(&mut burst, 215);
        assert!(burst.goes_on(16) && !burst.goes_on(17) && !burst.is_over());
        burst.add(16, false);
        assert!(burst.is_over() && burst.expected() == 231, "as much as the last time");
        burst.add(1, false);
        assert!(!burst.is_over(), "nobody knows how much more comes");
        come(&mut burst, 215);
        // A client that waits in between changes little, one that has changed its ways is believed.
        come(&mut burst, 3);
        come(&mut burst, 3);
        assert!(burst.goes_on(150));
        (0..60).for_each(|_| come(&mut burst, 1));
        assert!(!burst.goes_on(1) && burst.expected() == 1, "nothing is left of what came before");
    }

    #[test]
    fn only_kernels_that_cannot_end_a_segment_are_a_short_beginning() {
        let set = || Work::Set { target: 0, pitch: 0, value: 0, element: 4, width: 8, height: 1 };
        let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
        let mut queue = StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client, 0, 0)));
        for _ in 0..15 {
            queue.push(1, set(), 0);
        }
        assert!(queue.is_short_beginning() && !queue.is_short_rest(4), "nothing was left to wait");
        queue.push(1, set(), 0);
        assert!(!queue.is_short_beginning(), "sixteen may end it");
        queue.left = queue.work.len();
        assert!(queue.is_short_rest(4) && !queue.is_short_rest(0));
        queue.work.truncate(1);
        queue.push(1, Work::Nop, 0);
        assert!(!queue.is_short_beginning(), "other work ends it");
    }

    #[test]
    fn small_copies_belong_to_a_beginning_but_do_not_wait_themselves() {
        let set = || Work::Set { target: 0, pitch: 0, value: 0, element: 4, width: 8, height: 1 };
        let rows = |address| Rows { address, pitch: 0, slice: 0 };
        let copy = |width| Work::Copy { target: rows(0), source: rows(1 << 20), extent: CopyExtent { width, height: 1, depth: 1 } };
        let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
        let queue_of = |work: Vec<Work>, takes_copies| {
            let mut queue = StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client.clone(), 0, 0)));
            queue.takes_copies = takes_copies;
            work.into_iter().for_each(|work| _ = queue.push(1, work, 0));
            queue.is_short_beginning()
        };
        assert!(queue_of(vec![copy(MOST_BYTES), set()], true) && !queue_of(vec![copy(8), set()], false), "it is a node or cuts");
        assert!(!queue_of(vec![copy(MOST_BYTES + 1), set()], true), "it is too long");
        assert!(!queue_of(vec![set(), copy(8)], true), "a client may wait for it");
    }

    #[test]
    fn equal_kernels_wait_until_they_have_a_head() {
        let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
        let mut queue = StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client, 0, 0)));
        queue.position.go_on(&[7; 200]);
        (1..MUCH_WORK).for_each(|_| _ = queue.push(1, Work::Set { target: 0, pitch: 0, value: 0, element: 4, width: 8, height: 1 }, 0));
        assert!(queue.is_short_beginning());
        queue.push(1, Work::Set { target: 0, pitch: 0, value: 0, element: 4, width: 8, height: 1 }, 0);
        assert!(!queue.is_short_beginning());
    }

    #[test]
    fn a_list_is_queued_as_its_pieces_are() {
        let queue = || {
            let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
            StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client, 0, 0)))
        };
        let (mut one_by_one, mut at_once) = (queue(), queue());
        for (lengths, now) in [([40, 30], 5), ([3, 1], 9)] {
            for length in lengths {
                let list: Vec<_> = (0..length).map(|token| (token, Work::WriteValue { address: token, value: 0, bytes: 8 })).collect();
                let makes_ready = list.iter().fold(false, |ready, (token, work)| one_by_one.push(*token, work.clone(), now) || ready);
                assert_eq!(at_once.push_all(list, now), makes_ready);
            }
            let state = |queue: &StreamQueue| (queue.work.clone(), queue.state, queue.since, queue.burst.pieces, queue.burst.before);
            assert_eq!(state(&one_by_one), state(&at_once));
            [&mut one_by_one, &mut at_once].into_iter().for_each(|queue| queue.work.clear());
        }
        assert_eq!(at_once.burst.before, 70, "the second list begins a burst");
    }

    #[test]
    fn new_work_makes_a_queue_ready_unless_it_is_or_must_wait() {
        let client = Arc::new(ContextClient::new(1, 0, Urgency::Normal, None));
        let mut queue = StreamQueue::new(Arc::new(ClientStream::new(StreamId(1), client, 0, 0)));
        assert!(queue.is_drained());
        for (state, becomes_ready) in [
            (QueueState::Idle, true),
            (QueueState::Moving, true),
            (QueueState::Ready, false),
            (QueueState::HeldBack, false),
            (QueueState::Parked, false),
            (QueueState::Silent, false),
        ] {
            queue.state = state;
            assert_eq!(queue.push(7, Work::Nop, 5), becomes_ready, "{state:?}");
            assert_eq!(queue.state, if becomes_ready { QueueState::Ready } else { state });
        }
        assert_eq!((queue.work.len(), queue.since), (6, 5));
        assert!(!queue.is_drained());
    }
}
