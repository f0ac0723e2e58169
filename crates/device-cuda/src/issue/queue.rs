//! The queue of one client stream at its engine.
//!
//! ```text
//!                work comes                          a turn begins
//! Idle ────────────────────────────▶ Ready ───────────────────────────▶ Idle, while it lasts
//!                                      ▲                                   │
//!                                      ├─────────── work is left ──────────┤
//!                                      │                                   │
//!                                      ├── HeldBack ◀── long, held back ───┤
//!                                      │                                   │
//!                                      ├── Parked ◀── memory is missing ───┤
//!                                      │   (memory is registered)          │
//!                                      └── Moving ◀── another partition ───┘
//!                                          (nothing in flight any more, or new work)
//! ```
//!
//! A queue is in its engine's ready list exactly if it is `Ready` or `HeldBack`.

use crate::context::ClientStream;
use crate::track::{HeldReports, SlotIndex};
use cumux_device::Work;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a queue waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// For work, unless it has its turn just now.
    Idle,
    /// For its turn.
    Ready,
    /// For its turn. The next piece is a long kernel, which does not begin while somebody waits for
    /// a quiet card.
    HeldBack,
    /// For memory of its client's window to be registered.
    Parked,
    /// For what is in flight to end: the client has another partition now, and the stream goes on
    /// there.
    Moving,
}

/// A client stream as its engine has it.
pub(crate) struct StreamQueue {
    /// The stream.
    pub stream: Arc<ClientStream>,
    /// Tokens and work that the driver has not been given, in order.
    pub work: VecDeque<(u64, Work)>,
    /// The driver stream that it is bound to, while it has work in flight.
    pub slot: Option<SlotIndex>,
    /// Pieces of work in flight.
    pub in_flight: usize,
    /// What it waits for.
    pub state: QueueState,
    /// When the oldest work in the queue came, or last had a turn, in nanoseconds.
    pub since: u64,
    /// What is over and waits for printed text.
    pub held: HeldReports,
}

impl StreamQueue {
    /// An empty queue.
    pub(crate) fn new(stream: Arc<ClientStream>) -> StreamQueue {
        StreamQueue { stream, work: VecDeque::new(), slot: None, in_flight: 0, state: QueueState::Idle, since: 0, held: HeldReports::default() }
    }

    /// Adds work. Returns true if the queue is `Ready` because of it, and was not before.
    pub(crate) fn push(&mut self, token: u64, work: Work, now: u64) -> bool {
        self.work.push_back((token, work));
        let was_waiting = matches!(self.state, QueueState::Idle | QueueState::Moving);
        if was_waiting {
            self.state = QueueState::Ready;
            self.since = now;
        }
        was_waiting
    }

    /// True if nothing is queued, in flight, or held.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.work.is_empty() && self.held.is_empty()
    }
}
