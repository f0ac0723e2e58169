//! A queue of messages from many threads for one. Sending never waits for the reader.
#![expect(clippy::disallowed_types, reason = "a queue between threads of this process; looking at it costs no lock")]

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The messages for one thread.
///
/// `waiting` mirrors the queue's length: a reader that polls takes the lock only if there is a
/// message. The reader sets `sleeping`, checks the queue once more, and sleeps. The sender that
/// clears the flag wakes the reader. It is alone in its cache lines, because engines poll.
#[repr(align(128))]
pub(crate) struct Mailbox<M> {
    /// Lock 9 of the crate's order, the last: no thread takes another lock while holding it.
    queue: Mutex<Vec<M>>,
    waiting: AtomicUsize,
    sleeping: AtomicBool,
    reader: OnceLock<Thread>,
}

impl<M> Default for Mailbox<M> {
    fn default() -> Self {
        Mailbox { queue: Mutex::default(), waiting: AtomicUsize::new(0), sleeping: AtomicBool::new(false), reader: OnceLock::new() }
    }
}

impl<M> Mailbox<M> {
    /// Makes the calling thread the reader.
    pub(crate) fn set_reader(&self) {
        let _ = self.reader.set(std::thread::current());
    }

    /// Adds a message.
    pub(crate) fn send(&self, message: M) {
        self.send_all([message]);
    }

    /// Adds messages in order, with no other sender's message between them.
    pub(crate) fn send_all(&self, messages: impl IntoIterator<Item = M>) {
        {
            let mut queue = self.queue.lock();
            queue.extend(messages);
            self.waiting.store(queue.len(), Ordering::Release);
        }
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Moves all messages into an empty list.
    pub(crate) fn take_all(&self, into: &mut Vec<M>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut queue = self.queue.lock();
        std::mem::swap(&mut *queue, into);
        self.waiting.store(0, Ordering::Release);
    }

    /// From now on senders wake nobody: another thread than the reader takes the messages.
    pub(crate) fn mute(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// From now on a sender wakes the reader again, which sleeps or is about to. Wakes it now if
    /// there is a message.
    pub(crate) fn unmute(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
        // A sender that did not see the flag has put its message into the queue before this check.
        if !self.queue.lock().is_empty() {
            self.wake();
        }
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }

    /// Sleeps until a message comes, but no longer than `longest`.
    pub(crate) fn sleep(&self, longest: Option<Duration>) {
        self.sleeping.store(true, Ordering::SeqCst);
        // A sender that did not see the flag has put its message into the queue before this check.
        if self.queue.lock().is_empty() {
            match longest {
                Some(longest) => std::thread::park_timeout(longest),
                None => std::thread::park(),
            }
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }
}
