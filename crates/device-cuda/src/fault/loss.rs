//! The loss of a card's context: that it happened, why, and whether all engines have notified their
//! clients.
//!
//! ```text
//!           an engine's call fails            every engine has notified its clients
//! Working ─────────────────────────▶ Broken ─────────────────────────────────────▶ sink notified
//!    │                                                                                   ▲
//!    └── a closed client's kernel does not end ▶ Given up, no client notified ───────────┘
//! ```
//!
//! The first cause is kept; later ones are ignored.

use super::CudaError;
use super::blame::Suspects;
use cumux_device::InDoubt;
use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long an engine waits for the suspects of the other engines. One of those may be blocked in a
/// call of the driver.
const SUSPECTS_WAIT_LIMIT: Duration = Duration::from_millis(500);

/// Why the context is lost.
#[derive(Debug)]
struct Cause {
    error: CudaError,
    why: String,
}

/// What the engines have collected about a broken context.
#[derive(Debug, Default)]
struct Inquest {
    /// Engines that have added their suspects.
    arrived: usize,
    /// Engines that have notified their clients.
    finished: usize,
    suspects: Suspects,
    in_doubt: Vec<InDoubt>,
}

/// Whether a card's context still works.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    cause: OnceLock<Cause>,
    /// Lock 8 of the crate's order, held alone.
    inquest: Mutex<Inquest>,
    arrival: Condvar,
}

impl Loss {
    /// Why the context is lost; `None` while it works.
    pub(crate) fn why(&self) -> Option<&str> {
        self.cause.get().map(|cause| cause.why.as_str())
    }

    /// The error that ended the context; `None` while it works.
    pub(crate) fn error(&self) -> Option<CudaError> {
        self.cause.get().map(|cause| cause.error)
    }

    /// Declares the loss. Returns true for the first declaration.
    pub(crate) fn declare(&self, error: CudaError, why: String) -> bool {
        self.cause.set(Cause { error, why }).is_ok()
    }

    /// Adds the suspects of so many engines, and waits until all engines have added theirs or the
    /// time is over. Returns all suspects that were added.
    pub(crate) fn gather_suspects(&self, suspects: Suspects, of: usize, engines: usize) -> Suspects {
        let until = Instant::now() + SUSPECTS_WAIT_LIMIT;
        let mut inquest = self.inquest.lock();
        inquest.suspects.extend(suspects);
        inquest.arrived += of;
        self.arrival.notify_all();
        while inquest.arrived < engines {
            if self.arrival.wait_until(&mut inquest, until).timed_out() {
                break;
            }
        }
        inquest.suspects.clone()
    }

    /// Notes that the clients of so many engines were notified, and which of their work is in
    /// doubt. Returns what is in doubt at all engines for the last one.
    pub(crate) fn finish_engines(&self, of: usize, engines: usize, in_doubt: Vec<InDoubt>) -> Option<Vec<InDoubt>> {
        let mut inquest = self.inquest.lock();
        let were_all = inquest.finished >= engines;
        inquest.finished += of;
        inquest.in_doubt.extend(in_doubt);
        (!were_all && inquest.finished >= engines).then(|| std::mem::take(&mut inquest.in_doubt))
    }

    /// Stops waiting for the other engines. Returns false if all had finished.
    pub(crate) fn finish_without_all(&self, engines: usize) -> bool {
        let mut inquest = self.inquest.lock();
        let were_all = inquest.finished >= engines;
        inquest.finished = engines;
        !were_all
    }
}

#[cfg(test)]
mod tests {
    use super::super::blame::Blame;
    use super::*;
    use cumux_device::StreamId;

    #[test]
    fn the_first_cause_stays() {
        let loss = Loss::default();
        assert!(loss.why().is_none() && loss.error().is_none());
        assert!(loss.declare(CudaError::ILLEGAL_ADDRESS, "a kernel".into()));
        assert!(!loss.declare(CudaError::LAUNCH_TIMEOUT, "later".into()));
        assert_eq!((loss.why(), loss.error()), (Some("a kernel"), Some(CudaError::ILLEGAL_ADDRESS)));
    }

    #[test]
    fn suspects_of_all_engines_come_together() {
        let loss = Loss::default();
        let brought = |client| {
            let mut suspects = Suspects::default();
            suspects.entry(client).or_default().add_kernel("k", Blame::Possible);
            loss.gather_suspects(suspects, 1, 2).len()
        };
        let counts = std::thread::scope(|scope| {
            let threads = [1, 2].map(|client| scope.spawn(move || brought(client)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(counts, [2, 2]);
        let doubt = InDoubt { client: 1, stream: StreamId(1), token: 1 };
        assert_eq!((loss.finish_engines(2, 3, vec![doubt]), loss.finish_engines(1, 3, Vec::new())), (None, Some(vec![doubt])));
        assert!(!loss.finish_without_all(3), "it was told already");
        let silent = Loss::default();
        assert!(silent.finish_without_all(2) && silent.finish_engines(1, 2, Vec::new()).is_none(), "the latecomer tells nothing");
    }
}
