//! What the driver has announced of a fault. A process has one fault: it ends after it.
//!
//! ```text
//!        the driver begins to handle a fault       its core dump was read
//! Calm ────────────────────────────────────▶ Begun ──────────────────────▶ Dumped
//!                                              └── it cannot be read ─────▶ Undumped
//! ```

use super::dump::{Dump, DumpError};
use super::message::DriverMessage;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Most failed assertions that are kept: one for each thread of a block at most.
const MOST_ASSERTIONS: usize = 1024;

/// What the receiver of a message has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing.
    Nothing,
    /// Notify the sink: the driver looks at a fault.
    FaultNoticed,
    /// Notify the engines: a fault has begun.
    FaultBegins,
    /// Read the core dump, and give it to [`Watch::set_dump`].
    ReadDump,
    /// Write this line into the log.
    Log(String),
}

/// What is known of the core dump.
#[derive(Debug, Clone)]
pub(crate) enum DumpState {
    /// It is not written yet.
    Pending,
    /// It was read.
    Read(Arc<Dump>),
    /// It cannot be read.
    Unreadable,
}

#[derive(Debug, Default)]
struct Seen {
    assertions: Vec<String>,
    dump: Option<Result<Arc<Dump>, DumpError>>,
}

/// What the driver has announced.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    begun: OnceLock<Instant>,
    /// Lock 8 of the crate's order, held alone.
    seen: Mutex<Seen>,
}

impl Watch {
    /// Takes in one message of the driver.
    pub(crate) fn note(&self, message: DriverMessage) -> Notice {
        match message {
            DriverMessage::FaultBegins => match self.begun.set(Instant::now()) {
                Ok(()) => return Notice::FaultBegins,
                Err(_) => return Notice::Nothing,
            },
            DriverMessage::FaultNoticed => return Notice::FaultNoticed,
            DriverMessage::DumpWritten => return Notice::ReadDump,
            DriverMessage::Other(line) => return Notice::Log(line),
            DriverMessage::Exception(kind) => return Notice::Log(format!("the card has found an exception: {kind}")),
            DriverMessage::Function(name) => return Notice::Log(format!("the exception occurred in {name}")),
            DriverMessage::Assertion(line) => {
                let mut seen = self.seen.lock();
                if seen.assertions.len() < MOST_ASSERTIONS {
                    seen.assertions.push(line);
                }
            }
            DriverMessage::Progress => {}
        }
        Notice::Nothing
    }

    /// When the driver began to handle a fault; `None` before.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun.get().copied()
    }

    /// Keeps what the core dump says.
    pub(crate) fn set_dump(&self, dump: Result<Arc<Dump>, DumpError>) {
        self.seen.lock().dump = Some(dump);
    }

    /// What is known of the core dump.
    pub(crate) fn dump(&self) -> DumpState {
        match &self.seen.lock().dump {
            None => DumpState::Pending,
            Some(Ok(dump)) => DumpState::Read(dump.clone()),
            Some(Err(_)) => DumpState::Unreadable,
        }
    }

    /// True if an assertion has failed.
    pub(crate) fn has_assertions(&self) -> bool {
        !self.seen.lock().assertions.is_empty()
    }

    /// The failed assertions, as the driver has printed them.
    pub(crate) fn take_assertions(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().assertions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_begins_once_and_its_dump_is_read_once() {
        let watch = Watch::default();
        assert!(watch.begun().is_none() && matches!(watch.dump(), DumpState::Pending));
        assert_eq!(watch.note(DriverMessage::FaultBegins), Notice::FaultBegins);
        assert_eq!(watch.note(DriverMessage::FaultBegins), Notice::Nothing);
        assert!(watch.begun().is_some());
        watch.note(DriverMessage::Assertion("a.cu:1: failed.".into()));
        assert_eq!((watch.has_assertions(), watch.take_assertions().len(), watch.has_assertions()), (true, 1, false));
        assert_eq!(watch.note(DriverMessage::DumpWritten), Notice::ReadDump);
        watch.set_dump(super::super::dump::read(b"nonsense").map(Arc::new));
        assert!(matches!(watch.dump(), DumpState::Unreadable));
        assert_eq!(watch.note(DriverMessage::Other("x".into())), Notice::Log("x".into()));
    }
}
