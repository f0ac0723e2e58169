//! Who runs an engine: its own thread, or a lane of the executor's intake, which *carries* it
//! (decision 0132).
//!
//! ```text
//!                  rest                      board
//! own thread runs ─────▶ nobody, both may ─────────▶ a lane runs
//!      ▲                  │            ▲                 │
//!      └── its time is ───┘            └── put_down ─────┘
//!          over, or a message
//! ```
//!
//! Where nobody runs it, the engine's thread sleeps, and a message wakes it. While a lane runs it,
//! nobody wakes the thread. A lane that puts down an engine with work wakes it.
#![expect(clippy::disallowed_types, reason = "what one thread of this process asks of another")]

use crate::mailbox::Mailbox;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The place where what runs an engine (`R`) is while nobody runs it.
pub(crate) struct Seat<R> {
    /// Lock 8 of the crate's order, held alone.
    free: Mutex<Option<Box<R>>>,
    /// A lane would run the engine.
    wanted: AtomicBool,
}

/// What becomes of an engine that a lane puts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It has work: its own thread runs it at once.
    GoesOn,
    /// It has none: its own thread runs it when a message comes.
    Sleeps,
}

impl<R> Default for Seat<R> {
    fn default() -> Seat<R> {
        Seat { free: Mutex::default(), wanted: AtomicBool::new(false) }
    }
}

impl<R> Seat<R> {
    /// The engine's own thread sleeps until a message comes, but no longer than `longest`, or as
    /// long as a lane runs the engine.
    pub(super) fn rest<M>(&self, runner: Box<R>, mailbox: &Mailbox<M>, longest: Option<Duration>) -> Box<R> {
        *self.free.lock() = Some(runner);
        mailbox.sleep(longest);
        loop {
            // A separate statement, so that the lock is released before the thread sleeps.
            let runner = self.free.lock().take();
            match runner {
                Some(runner) => return runner,
                None => std::thread::park(),
            }
        }
    }

    /// True if a lane would run the engine.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// A lane takes the engine, if nobody runs it; else its own thread lets go of it soon.
    pub(super) fn board<M>(&self, mailbox: &Mailbox<M>) -> Option<Box<R>> {
        let runner = self.free.try_lock().and_then(|mut free| free.take());
        self.wanted.store(runner.is_none(), Ordering::Relaxed);
        if runner.is_some() {
            mailbox.mute();
        }
        runner
    }

    /// The lane that has taken the engine gives it back.
    pub(super) fn put_down<M>(&self, runner: Box<R>, mailbox: &Mailbox<M>, after: After) {
        *self.free.lock() = Some(runner);
        match after {
            After::GoesOn => mailbox.wake(),
            After::Sleeps => mailbox.unmute(),
        }
    }

    /// No lane would run the engine any more.
    pub(super) fn forgo(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// What the threads of the test run: it counts the messages that it has read.
    #[derive(Default)]
    struct Reader {
        read: usize,
    }

    fn read(reader: &mut Reader, mailbox: &Mailbox<usize>, seen: &AtomicUsize) {
        let mut messages = Vec::new();
        mailbox.take_all(&mut messages);
        reader.read += messages.len();
        seen.store(reader.read, Ordering::SeqCst);
    }

    /// A sender, the engine's own thread and a lane that takes the engine and puts it down again
    /// and again, with and without work: each message is read, whoever runs the engine then. A
    /// message that nobody was woken for would leave the sender waiting for ever.
    #[test]
    fn each_message_is_read_whoever_runs_the_engine() {
        const MESSAGES: usize = 20_000;
        const LAST: usize = usize::MAX;
        let (seat, mailbox, seen) = (Seat::<Reader>::default(), Mailbox::<usize>::default(), AtomicUsize::new(0));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                mailbox.set_reader();
                let mut reader = Box::new(Reader::default());
                while seen.load(Ordering::SeqCst) < MESSAGES {
                    read(&mut reader, &mailbox, &seen);
                    let longest = (reader.read % 3 == 0).then_some(Duration::from_micros(20));
                    if seen.load(Ordering::SeqCst) < MESSAGES {
                        reader = seat.rest(reader, &mailbox, longest);
                    }
                }
                over.store(true, Ordering::SeqCst);
                // The lane may wait for it.
                *seat.free.lock() = Some(reader);
            });
            scope.spawn(|| {
                let mut round = 0_usize;
                while !over.load(Ordering::SeqCst) {
                    round += 1;
                    let Some(mut runner) = seat.board(&mailbox) else {
                        std::thread::yield_now();
                        continue;
                    };
                    for _ in 0..round % 5 {
                        read(&mut runner, &mailbox, &seen);
                    }
                    let is_over = seen.load(Ordering::SeqCst) >= MESSAGES;
                    seat.put_down(runner, &mailbox, if is_over || round.is_multiple_of(3) { After::GoesOn } else { After::Sleeps });
                }
            });
            for message in 0..MESSAGES {
                mailbox.send(message);
                // Each of a few is waited for, as by a client that waits for its work.
                while message % 16 == 0 && seen.load(Ordering::SeqCst) <= message {
                    std::thread::yield_now();
                }
            }
            mailbox.send(LAST);
        });
        assert!(seen.load(Ordering::SeqCst) >= MESSAGES);
    }

    #[test]
    fn an_engine_that_its_own_thread_runs_is_asked_for() {
        let (seat, mailbox) = (Seat::<Reader>::default(), Mailbox::<usize>::default());
        assert!(seat.board(&mailbox).is_none() && seat.is_wanted());
        seat.put_down(Box::default(), &mailbox, After::Sleeps);
        assert!(seat.board(&mailbox).is_some() && !seat.is_wanted() && seat.board(&mailbox).is_none());
        seat.forgo();
        assert!(!seat.is_wanted());
    }
}
