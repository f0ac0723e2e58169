//! What a successor may believe of a session's journal.

use crate::objects::{Change, Logged, Objects};
use cumux_ring::journal::{Journal, JournalError};

/// Whether the log of objects tells everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ObjectLog {
    #[default]
    Whole,
    /// The client had too many objects for it, and it says so: no successor restores this client.
    Overflowed,
}

/// What the marks of submission mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Submissions {
    /// What is marked was given to the device and may have been begun.
    #[default]
    Marked,
    /// The device is lost and has told whose work it had begun: what it is given now is never
    /// begun, and is not marked.
    NeverBegun,
}

/// The condition of a journal. What depends on it is written through here.
#[derive(Debug, Default)]
pub struct Condition {
    objects: ObjectLog,
    submissions: Submissions,
}

impl Condition {
    /// Writes a change into the log of objects. Once it has overflowed, nothing more is written: a
    /// successor must not take a part for the whole.
    ///
    /// # Errors
    /// When the change did not fit. The log says so then, unless not even that fitted: then the
    /// next change tries again.
    pub fn log_change(&mut self, journal: &mut Journal, logged: &Logged, objects: &Objects) -> Result<(), JournalError> {
        if self.objects == ObjectLog::Overflowed {
            return Ok(());
        }
        let snapshot = || objects.snapshot().into_iter().map(|change| Logged::plain(change).encode()).collect();
        let written = journal.append_object(&logged.encode(), snapshot);
        // Not tried again: each time would write the whole log anew.
        if written.is_err() && journal.append_object(&Logged::plain(Change::Unlogged).encode(), Vec::new).is_ok() {
            self.objects = ObjectLog::Overflowed;
        }
        written.map(|_| ())
    }

    /// Whether a successor finds all objects in the log.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.objects == ObjectLog::Whole
    }

    /// Marks the work of a stream up to this number as given to the device.
    pub fn mark_submitted(&self, journal: &Journal, stream: u32, seq: u64) {
        if self.submissions == Submissions::Marked {
            journal.set_submitted(stream, seq);
        }
    }

    /// What was given to the device up to this number of a stream may have been begun, whatever
    /// [`Condition::forget_submissions`] has said of the stream.
    pub fn keep_in_doubt(&self, journal: &Journal, stream: u32, seq: u64) {
        if journal.submitted(stream) < seq {
            journal.set_submitted(stream, seq);
        }
    }

    /// From now on nothing that is given to the device is begun, and what was marked of these
    /// streams can be done again.
    pub fn forget_submissions(&mut self, journal: &Journal, streams: impl Iterator<Item = u32>) {
        self.submissions = Submissions::NeverBegun;
        streams.for_each(|stream| journal.set_submitted(stream, 0));
    }
}
