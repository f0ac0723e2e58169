//! Memory of clients that have ended is on its way back.
//!
//! Between the end of a client's process and the moment at which its memory is free lie a few
//! milliseconds, more on a busy machine: the server notices the end, the executor closes the
//! session, the keeper drops its descriptors. A program that is started when another has ended must
//! not be told that there is no memory because of that. So an allocation that finds none is tried
//! again as long as clients are on their way out.

use cumux_link::Process;
use cumux_wire::result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an allocation waits for memory of clients that have ended.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long after the end of a session the keeper may still hold its memory.
const KEEPER_DROPS_WITHIN: Duration = Duration::from_millis(200);
/// How often it is looked whether the memory is there.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The clients that are here, and when one last left.
#[derive(Debug, Default)]
pub struct Departures(Mutex<Presence>);

#[derive(Debug, Default)]
struct Presence {
    /// The processes, by session.
    processes: HashMap<u32, u32>,
    last_left: Option<Instant>,
}

impl Departures {
    /// A client's session is opened.
    pub fn note_arrival(&self, session: u32, pid: u32) {
        self.0.lock().processes.insert(session, pid);
    }

    /// A session has given its memory back.
    pub fn note_departure(&self, session: u32) {
        let mut presence = self.0.lock();
        if presence.processes.remove(&session).is_some() {
            presence.last_left = Some(Instant::now());
        }
    }

    /// Makes the attempt; again if it finds no memory and memory is on its way back. The attempt
    /// holds no lock while it does not run.
    ///
    /// # Errors
    /// Those of the last attempt: a result code.
    pub fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T, u32>) -> Result<T, u32> {
        let until = Instant::now() + LONGEST_WAIT;
        loop {
            match attempt() {
                // What left during the attempt has left within the last moments: it counts.
                Err(result::OUT_OF_MEMORY) if Instant::now() < until && self.is_memory_coming_back() => std::thread::sleep(LOOK_EVERY),
                outcome => return outcome,
            }
        }
    }

    fn is_memory_coming_back(&self) -> bool {
        let presence = self.0.lock();
        presence.last_left.is_some_and(|at| at.elapsed() < KEEPER_DROPS_WITHIN) || presence.processes.values().any(|pid| Process::has_ended(*pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_waits_for_the_memory_of_who_has_ended_and_for_nobody_else() {
        let departures = Departures::default();
        departures.note_arrival(1, std::process::id());
        let mut attempts = 0;
        let refused = departures.retry(|| -> Result<(), u32> {
            attempts += 1;
            Err(result::OUT_OF_MEMORY)
        });
        assert_eq!((refused, attempts), (Err(result::OUT_OF_MEMORY), 1), "its client lives: nothing comes back");
        let mut child = std::process::Command::new("true").spawn().expect("a program");
        departures.note_arrival(2, child.id());
        child.wait().expect("its end");
        let mut attempts = 0;
        let given = departures.retry(|| {
            attempts += 1;
            match attempts {
                3 => departures.note_departure(2),
                4 => return Ok(attempts),
                _ => {}
            }
            Err(result::OUT_OF_MEMORY)
        });
        assert_eq!(given, Ok(4), "the session left in the third attempt, the keeper let go after it");
        assert_eq!(departures.retry(|| -> Result<(), u32> { Err(result::INVALID_VALUE) }), Err(result::INVALID_VALUE), "no question of memory");
    }
}
