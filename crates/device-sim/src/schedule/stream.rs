//! A stream: a queue of submissions, of which at most one is at work.
//!
//! ```text
//!              submit
//!    ┌──────┐ ───────────────────────────────────────▶ ┌──────┐
//!    │ Idle │                                          │ Busy │ a task or a report is in flight
//!    └──────┘ ◀─────────────────────────────────────── └──────┘
//!        ▲      the sink has taken the report              │
//!        │                                                 │ the progress log has no free record
//!        │      a report of the client was taken           ▼
//!        └────────────────────────────────────── ┌──────────────┐
//!               (and the stream tries again)     │ AwaitsRecord │
//!                                                └──────────────┘
//! ```

use std::collections::VecDeque;

use cumux_device::{ClientId, Work};

/// What the head of a stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    /// Nothing is in flight. The queue is empty, or the next submission is started at once.
    Idle,
    /// A task or a report is in flight.
    Busy,
    /// The kernel at the head waits for a free record in the client's progress log.
    AwaitsRecord,
}

/// Whether a stream accepts work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    Open,
    /// It ends when its last submission is reported.
    Destroyed,
}

/// One stream of a client.
pub(super) struct Stream {
    pub(super) client: ClientId,
    /// As CUDA numbers it: lower is more urgent.
    pub(super) priority: i32,
    /// The partition of the client's share on which its kernels run.
    pub(super) partition: u32,
    /// Submissions that have not started: token and work.
    pub(super) queue: VecDeque<(u64, Work)>,
    pub(super) state: StreamState,
    pub(super) lifetime: Lifetime,
}

impl Stream {
    pub(super) fn new(client: ClientId, partition: u32, priority: i32) -> Self {
        Stream { client, priority, partition, queue: VecDeque::new(), state: StreamState::Idle, lifetime: Lifetime::Open }
    }
}
