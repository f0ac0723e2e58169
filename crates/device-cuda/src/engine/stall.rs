//! Engines that do not come back from a call of the driver.
//!
//! Some calls wait for kernels, and the kernel may never end. Then nobody's work goes on, also not
//! that of clients who have nothing to do with it. So a thread asks each engine from time to time.
//! If one does not answer for long, the device is given up: its process ends, and all clients go on
//! in the next one, or get an error where nobody knows what has run. Without that they would wait
//! for ever.

use super::message::{Mailboxes, Message};
use super::shared::Shared;
use crate::driver::is_fault_announced;
use cumux_device::Begun;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often engines are asked.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How often a thread that waits for an answer looks whether it is still wanted.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// Starts the thread, which ends with the card, or after a fault: the process ends then in any
/// case.
///
/// # Errors
/// The operating system's.
pub(crate) fn watch_engines(shared: &Arc<Shared>, ordinal: u32, limit: Duration) -> std::io::Result<()> {
    let (mailboxes, shared) = (shared.mailboxes.clone(), Arc::downgrade(shared));
    let watch = move || {
        loop {
            std::thread::park_timeout(ASK_EVERY.min(limit));
            if is_over(&shared) {
                return;
            }
            if !all_answer(&mailboxes, limit, || is_over(&shared))
                && let Some(shared) = shared.upgrade()
            {
                let why = format!("an engine has not come back from a call of the driver for {:.0} s", limit.as_secs_f64());
                return shared.give_up(why, Begun::Unknown);
            }
        }
    };
    std::thread::Builder::new().name(format!("cuda-{ordinal}-stall")).spawn(watch).map(drop)
}

fn is_over(shared: &Weak<Shared>) -> bool {
    is_fault_announced() || shared.upgrade().is_none_or(|shared| shared.loss.why().is_some())
}

/// Asks all engines. False if one does not answer while this thread has waited for `limit`; true at
/// once if nobody wants to know any more. What counts is the time waited, and not what a clock
/// says: a process that was stopped and goes on has engines that answer soon.
fn all_answer(mailboxes: &Mailboxes, limit: Duration, is_over: impl Fn() -> bool) -> bool {
    let look = LOOK_AROUND.min(limit / 4).max(Duration::from_millis(1));
    let (answer, answers) = crossbeam_channel::bounded(mailboxes.len());
    mailboxes.iter().for_each(|mailbox| mailbox.send(Message::Ping(answer.clone())));
    let (mut missing, mut waited) = (mailboxes.len(), Duration::ZERO);
    while missing > 0 && waited < limit {
        if is_over() {
            return true;
        }
        match answers.recv_timeout(look) {
            Ok(()) => missing -= 1,
            Err(_) => waited += look,
        }
    }
    missing == 0 || is_over()
}
