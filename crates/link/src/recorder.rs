//! The sending side of a recording ([`cumux_wire::recording`]), for a program's library and for
//! executors.
//!
//! Nothing here fails loudly: a recorder that is gone or stands still ends the recording, and never
//! the program. Moments are gathered, and sent when a packet is full or the last one was sent
//! [`FLUSH_NS`] ago.

use crate::connection::Connection;
use crate::trust;
use cumux_wire::recording::{Fact, Moment, VARIABLE};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Moments wait at most this long for others of their packet, while any come.
const FLUSH_NS: u64 = 5_000_000;
/// A recorder that takes nothing for so long is given up.
const HELPER_WAIT_LIMIT: Duration = Duration::from_secs(10);

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A connection to a recorder.
#[derive(Debug)]
pub struct Recorder {
    gathered: Mutex<Gathered>,
    /// A forked child has a copy of what its parent has gathered.
    process: u32,
}

#[derive(Debug)]
struct Gathered {
    /// `None` once the recorder is given up.
    connection: Option<Connection>,
    packet: Vec<u8>,
    sent: u64,
}

impl Recorder {
    /// Connects to the recorder that the environment names, and says who this is. `None` if none is
    /// named or it cannot be reached.
    #[must_use]
    pub fn of_environment(who: impl FnOnce() -> Fact) -> Option<Self> {
        let path = trust::variable(VARIABLE).filter(|path| !path.is_empty())?;
        let connection = Connection::connect(Path::new(&path)).ok()?;
        connection.set_timeout(Some(HELPER_WAIT_LIMIT)).ok()?;
        let gathered = Gathered { connection: Some(connection), packet: Vec::new(), sent: 0 };
        let recorder = Self { gathered: Mutex::new(gathered), process: std::process::id() };
        recorder.tell(&who());
        Some(recorder)
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something at once, after what was gathered.
    pub fn tell(&self, fact: &Fact) {
        let mut gathered = self.lock();
        gathered.flush();
        if let Ok(packet) = serde_json::to_vec(fact) {
            gathered.send(&packet);
        }
    }

    /// Adds a moment; `now` is the present time.
    pub fn put(&self, moment: &Moment, now: u64) {
        let mut gathered = self.lock();
        if moment.append(&mut gathered.packet) || now.saturating_sub(gathered.sent) > FLUSH_NS {
            gathered.flush();
            gathered.sent = now;
        }
    }

    /// Sends what was gathered, unless this is a forked child.
    pub fn flush(&self) {
        if self.process == std::process::id() {
            self.lock().flush();
        }
    }
}

impl Gathered {
    fn flush(&mut self) {
        if !self.packet.is_empty() {
            let packet = std::mem::take(&mut self.packet);
            self.send(&packet);
            self.packet = packet;
            self.packet.clear();
        }
    }

    fn send(&mut self, packet: &[u8]) {
        if self.connection.as_ref().is_some_and(|connection| connection.send_bytes(packet).is_err()) {
            self.connection = None;
        }
    }
}
