//! One client stream: accepted work in order, what has been started, what is done. Pure.
//!
//! Invariants: sequences and tokens in the queue grow; work is started in order; `done` is the
//! sequence before the first unfinished piece.

use cumux_device::StreamId;
use cumux_wire::record::Op;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Waiting,
    /// The device has it.
    Submitted,
    Done,
}

#[derive(Debug)]
pub struct Pending {
    /// Its name in the journal and at the device.
    pub token: u64,
    pub seq: u64,
    pub op: Op,
    pub state: State,
    /// Expected device time in nanoseconds, as the scheduler was told.
    pub estimate: u64,
}

#[derive(Debug)]
pub struct Stream {
    pub device: StreamId,
    queue: VecDeque<Pending>,
    /// Index in the queue of the first piece that was not started.
    next: usize,
    /// Index behind the piece that the device has finished last: it reports in order.
    expected: usize,
    /// Pieces the device has.
    pub in_flight: u32,
    last: u64,
    done: u64,
}

impl Stream {
    /// A stream whose work up to `done` is over.
    #[must_use]
    pub fn new(device: StreamId, done: u64) -> Self {
        Self { device, queue: VecDeque::new(), next: 0, expected: 0, in_flight: 0, last: done, done }
    }

    /// Sequence of the last accepted piece.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Sequence up to which everything is over.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Token and sequence of the oldest piece that is not over.
    #[must_use]
    pub fn oldest(&self) -> Option<(u64, u64)> {
        self.queue.front().map(|pending| (pending.token, pending.seq))
    }

    /// The sequence of an unfinished piece.
    #[must_use]
    pub fn sequence_of(&self, token: u64) -> Option<u64> {
        self.queue.iter().find(|pending| pending.token == token).map(|pending| pending.seq)
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn push(&mut self, token: u64, seq: u64, op: Op) {
        self.last = self.last.max(seq);
        self.queue.push_back(Pending { token, seq, op, state: State::Waiting, estimate: 0 });
    }

    /// The next piece to start, and whether everything before it is over.
    pub fn upcoming(&mut self) -> Option<(&mut Pending, bool)> {
        let first = self.next == 0;
        self.queue.get_mut(self.next).map(|pending| (pending, first))
    }

    /// The piece that [`Stream::upcoming`] gave was started at the device.
    pub fn started(&mut self, estimate: u64) {
        if let Some(pending) = self.queue.get_mut(self.next) {
            pending.state = State::Submitted;
            pending.estimate = estimate;
            self.next += 1;
            self.in_flight += 1;
        }
    }

    /// The piece that [`Stream::upcoming`] gave is over without the device.
    pub fn passed(&mut self) {
        if let Some(pending) = self.queue.get_mut(self.next) {
            pending.state = State::Done;
            self.next += 1;
        }
    }

    /// The device has finished `token`. Returns its piece, or `None` if it is not one of ours any
    /// more.
    pub fn finished(&mut self, token: u64) -> Option<&mut Pending> {
        // Tokens grow, and most reports are about the one behind the last.
        let is_next = self.queue.get(self.expected).is_some_and(|p| p.token == token);
        let at = if is_next { self.expected } else { self.queue.partition_point(|p| p.token < token) };
        let pending = self.queue.get_mut(at).filter(|p| at < self.next && p.token == token && p.state == State::Submitted)?;
        pending.state = State::Done;
        (self.in_flight, self.expected) = (self.in_flight - 1, at + 1);
        Some(pending)
    }

    /// Adds the tokens of everything that is over, in order; `done` has moved after that.
    pub fn retire(&mut self, tokens: &mut Vec<u64>) {
        let over = self.queue.iter().take_while(|p| p.state == State::Done).count();
        tokens.extend(self.queue.iter().take(over).map(|p| p.token));
        if let Some(last) = over.checked_sub(1).and_then(|last| self.queue.get(last)) {
            self.done = last.seq;
        }
        // In their places: pieces are large.
        self.queue.drain(..over);
        (self.next, self.expected) = (self.next - over, self.expected.saturating_sub(over));
    }

    /// Drops everything (the client is in error); returns the tokens. Reports for them are no
    /// longer ours.
    pub fn abandon(&mut self) -> Vec<u64> {
        self.done = self.last;
        (self.next, self.expected) = (0, 0);
        self.in_flight = 0;
        self.queue.drain(..).map(|p| p.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the device's reports and the passed pieces do, completion moves in order and
        /// never past unfinished work.
        #[test]
        fn completion_is_in_order(actions in proptest::collection::vec(0_u8..4, 1..200)) {
            let mut stream = Stream::new(StreamId(1), 10);
            let (mut pushed, mut open, mut passed, mut retired) = (10_u64, std::collections::VecDeque::new(), Vec::new(), Vec::new());
            for action in actions {
                match action {
                    0 => {
                        pushed += 1;
                        stream.push(pushed * 100, pushed, Op::Nop);
                    }
                    1 => {
                        if let Some((piece, _)) = stream.upcoming() {
                            let token = piece.token;
                            stream.started(0);
                            open.push_back(token);
                        }
                    }
                    2 => {
                        if let Some((piece, _)) = stream.upcoming() {
                            passed.push(piece.seq);
                            stream.passed();
                        }
                    }
                    _ => {
                        if let Some(token) = open.pop_front() {
                            prop_assert!(stream.finished(token).is_some());
                            prop_assert!(stream.finished(token).is_none(), "reported once");
                        }
                    }
                }
                stream.retire(&mut retired);
                let expected: Vec<u64> = (11..=stream.done()).map(|s| s * 100).collect();
                prop_assert_eq!(&retired, &expected, "in order, each once");
                prop_assert!(open.front().is_none_or(|t| t / 100 > stream.done()));
                prop_assert_eq!(stream.in_flight as usize, open.len());
            }
        }
    }
}
