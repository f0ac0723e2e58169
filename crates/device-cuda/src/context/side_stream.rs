//! A driver stream of our own, beside those of clients: memory is scrubbed, read and written in it,
//! by one thread at a time, which waits for the end.
//!
//! Beside a kernel that does not end, this work may not end either (decision 0124 has the causes
//! that are known): in four of eight runs on H100s all who needed memory waited for ever. So nobody
//! waits without a limit. When the patience is over, all others leave the clients whose kernels run
//! for long ([`crate::quiet::Gate::leave_where_stuck`]). The thread waits on. Its client is
//! elsewhere then, and what it finds at last is dropped.
//!
//! The stream has a priority that few client streams have, so that it is served before them.

use crate::driver::{CardAddress, Driver, Stream, is_fault_announced};
use crate::fault::{Call, CudaError};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a thread looks without sleeping, and the pause between two looks: each takes a lock of
/// the driver that launches need.
const SPIN: Duration = Duration::from_micros(300);
const LOOK_EVERY: Duration = Duration::from_micros(4);
/// How long it sleeps between two looks after that, and once its patience was over.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_millis(1);

/// What to do when the stream does not end. Returns true if all have left that can.
pub(crate) type OnStuck = Box<dyn Fn() -> bool + Send + Sync>;

/// The stream. No lock is held while a thread waits for its work.
pub(super) struct SideStream {
    driver: Arc<Driver>,
    stream: Stream,
    /// True while a thread has its turn. A lock that is held alone.
    taken: Mutex<bool>,
    freed: Condvar,
    on_stuck: OnceLock<(Duration, OnStuck)>,
}

/// A thread's turn. It ends when this is dropped.
struct Turn<'a>(&'a SideStream);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.freed.notify_one();
    }
}

impl SideStream {
    /// # Errors
    /// The driver's.
    pub(super) fn new(driver: &Arc<Driver>) -> Call<SideStream> {
        let (least, greatest) = driver.priorities();
        // The greatest is that of fence kernels, and of clients that choose one.
        let priority = (greatest + 1).min(least);
        let stream = driver.create_stream(priority)?;
        Ok(SideStream { driver: driver.clone(), stream, taken: Mutex::new(false), freed: Condvar::new(), on_stuck: OnceLock::new() })
    }

    /// Sets what is done when work has not ended after this time.
    pub(super) fn set_on_stuck(&self, patience: Duration, act: OnStuck) {
        let _ = self.on_stuck.set((patience, act));
    }

    /// True if the context still works.
    pub(super) fn context_works(&self) -> bool {
        !self.driver.is_idle(self.stream).is_err_and(CudaError::is_fatal)
    }

    /// Submits work on the card's memory, and waits until it has ended.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn run(&self, submit: impl FnOnce(Stream) -> Call<()>) -> Call<()> {
        let _turn = self.take_turn();
        let submitted = submit(self.stream);
        // Something may have begun all the same.
        self.wait().and(submitted)
    }

    /// Reads the card's memory.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn read(&self, address: CardAddress, into: &mut [u8]) -> Call<()> {
        let _turn = self.take_turn();
        self.driver.read(address, into, self.stream, || self.wait())
    }

    /// Writes the card's memory.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn write(&self, address: CardAddress, bytes: &[u8]) -> Call<()> {
        let _turn = self.take_turn();
        self.driver.write(address, bytes, self.stream, || self.wait())
    }

    fn wait(&self) -> Call<()> {
        wait_for(|| self.driver.is_idle(self.stream), self.on_stuck.get().map(|(patience, act)| (*patience, act)))
    }

    fn take_turn(&self) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            self.freed.wait(&mut taken);
        }
        *taken = true;
        Turn(self)
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        self.driver.destroy_stream(self.stream);
    }
}

/// Waits until the stream is idle. Each time that its patience is over and nobody has left yet, it
/// acts; not while a fault is handled, because then the whole card stands still.
fn wait_for(mut is_idle: impl FnMut() -> Call<bool>, on_stuck: Option<(Duration, &OnStuck)>) -> Call<()> {
    let begun = Instant::now();
    let mut acts_at = on_stuck.map(|(patience, _)| begun + patience);
    while !is_idle()? {
        let now = Instant::now();
        if let Some((patience, act)) = on_stuck
            && acts_at.is_some_and(|at| now >= at)
        {
            let is_over = !is_fault_announced() && act();
            acts_at = (!is_over).then(|| Instant::now() + patience);
        }
        if now < begun + SPIN {
            let until = now + LOOK_EVERY;
            while Instant::now() < until {
                core::hint::spin_loop();
            }
        } else {
            std::thread::sleep(if on_stuck.is_some_and(|(patience, _)| now >= begun + patience) { LONG_NAP } else { NAP });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_acts_until_all_have_left_and_waits_on() {
        let acts: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let noted = acts.clone();
        // The first time nobody can leave.
        let act: OnStuck = Box::new(move || {
            let mut acts = noted.lock();
            acts.push(Instant::now());
            acts.len() > 1
        });
        let patience = Duration::from_millis(3);
        // It is idle long after the second time.
        let is_idle = || Ok(acts.lock().get(1).is_some_and(|at| at.elapsed() > patience * 5));
        assert_eq!(wait_for(is_idle, Some((patience, &act))), Ok(()));
        assert_eq!(acts.lock().len(), 2, "there is no third time");
        assert_eq!(wait_for(|| Ok(true), None), Ok(()));
        assert_eq!(wait_for(|| Err(CudaError::INVALID_VALUE), None), Err(CudaError::INVALID_VALUE));
    }
}
