//! Signals (Ctrl-C and the like) during the demo: the demo checks for one between two steps, so
//! that everything begun is cleaned up. A second signal ends it at once.
#![expect(clippy::disallowed_types, reason = "a signal handler writes here")]

use crate::error::Interrupted;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Remembers whether a signal has asked the demo to end.
#[derive(Debug, Clone)]
pub struct Interrupt {
    /// The last signal; 0 before the first.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Starts to watch for signals.
    pub fn watch() -> io::Result<Self> {
        let (signal, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for number in [SIGHUP, SIGINT, SIGTERM] {
            // In this order: the first signal finds `again` false.
            flag::register_conditional_default(number, Arc::clone(&again))?;
            flag::register(number, Arc::clone(&again))?;
            flag::register_usize(number, Arc::clone(&signal), number.unsigned_abs() as usize)?;
        }
        Ok(Self { signal })
    }

    /// Fails once a signal has come.
    pub fn check(&self) -> Result<(), Interrupted> {
        match i32::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(0) | Err(_) => Ok(()),
            Ok(signal) => Err(Interrupted(signal)),
        }
    }
}
