//! A device that could not be opened is tried again: it may have been put back, or its compute mode
//! changed. What opens it is a further standby, because a process whose driver has lost a card
//! never finds it again.
//!
//! ```text
//!                 a device is absent            the wait is over
//!   AllPresent ----------------------> Waiting -----------------> Trying
//!       ^                                 ^   no device more       |  |
//!       |                                 +------------------------+  |
//!       |        that standby serves, and clients move to it          |
//!       +-------------------------------------------------------------+
//! ```
//!
//! Invariant: nobody is moved for a standby that cannot open more than the executor that serves.
//! The waits double, because on a real card a further context disturbs everybody for some 100 ms.

use crate::core::{Core, Ending, Return, Upgrade};
use crate::host::Host;
use crate::worker::Worker;
use cumux_wire::message::DeviceFacts;
use std::time::{Duration, Instant};

/// The wait grows up to so many times the first one.
const LONGEST_WAIT: u32 = 64;

/// For each device whether it could not be opened.
fn find_absent(devices: &[DeviceFacts]) -> Vec<bool> {
    devices.iter().map(|device| device.capabilities.unavailable.is_some()).collect()
}

impl<H: Host> Core<H> {
    /// Looks whether devices that could not be opened can be now, and moves all clients to an
    /// executor that has them.
    pub(crate) fn bring_devices_back(&mut self, now: Instant) {
        let absent = self.executors.devices.iter().filter(|device| device.capabilities.unavailable.is_some()).count();
        let is_calm = self.upgrade == Upgrade::No && self.ending == Ending::No && self.broken.is_none() && self.executors.no_standby.is_none();
        let first_wait = match self.limits.device_retry {
            Some(wait) if absent > 0 && is_calm => wait,
            _ => return self.executors.coming_back = Return::AllPresent,
        };
        match self.executors.coming_back {
            Return::AllPresent => self.wait_for_devices(now, first_wait),
            Return::Waiting { until, wait } => {
                if now >= until && self.executors.service.is_given() {
                    self.executors.coming_back = Return::Trying { first: self.executors.next, until: now + self.limits.waits.start, wait };
                    self.mend_workers(now);
                }
            }
            Return::Trying { first, until, wait } => {
                let found = self.executors.workers.iter().find(|(id, worker)| **id >= first && worker.is_shared() && worker.can_serve());
                let has_more = |worker: &Worker| opens_more(&find_absent(&self.executors.devices), &find_absent(worker.devices()));
                match found.map(|(id, worker)| (*id, has_more(worker))) {
                    Some((id, true)) => self.move_all_to(id, now),
                    None if now < until => {}
                    Some((_, false)) | None => {
                        let next = (wait * 2).min(first_wait * LONGEST_WAIT);
                        self.log.line(&format!("{absent} of the devices still cannot be opened; the next try is in {} s", next.as_secs()));
                        self.wait_for_devices(now, next);
                    }
                }
            }
        }
    }

    fn wait_for_devices(&mut self, now: Instant, wait: Duration) {
        self.executors.coming_back = Return::Waiting { until: now + wait, wait };
    }

    /// This executor serves instead of the one before, whose clients come to it one by one: as in
    /// an upgrade, but the program is the same.
    fn move_all_to(&mut self, id: u64, now: Instant) {
        let before = self.executors.service.serving();
        if let Some(worker) = self.executors.workers.get_mut(&id).filter(|worker| worker.build == self.executors.build) {
            self.executors.build += 1;
            worker.build = self.executors.build;
            let (pid, back) = (worker.pid, named_again(&self.executors.devices, worker.devices()));
            self.note(&format!("{back} can be used again: executor {pid} has opened it and is the next to serve"));
        }
        self.retire_active();
        // A session that is on its way to the one that serves is waited for.
        if self.executors.service.serving() != before {
            self.replace_standbys();
            self.executors.coming_back = Return::AllPresent;
            self.mend_workers(now);
        }
    }
}

/// Whether devices that were absent are there now, and none that was there is absent.
fn opens_more(absent_before: &[bool], absent_now: &[bool]) -> bool {
    let loses = |(before, now): (&bool, &bool)| *now && !*before;
    absent_before.len() == absent_now.len() && absent_before != absent_now && !absent_before.iter().zip(absent_now).any(loses)
}

/// The names of devices that were absent and are there now.
fn named_again(before: &[DeviceFacts], now: &[DeviceFacts]) -> String {
    let (mut names, pairs) = (Vec::new(), before.iter().zip(now).enumerate());
    for (ordinal, (before, now)) in pairs {
        if before.capabilities.unavailable.is_some() && now.capabilities.unavailable.is_none() {
            names.push(format!("device {ordinal} ({})", now.name));
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_loses_a_device_for_another() {
        let before = [true, true, false];
        for (now, expected) in [
            ([false, true, false], true),
            ([false, false, false], true),
            ([true, true, false], false),
            ([false, false, true], false),
            ([true, true, true], false),
        ] {
            assert_eq!(opens_more(&before, &now), expected, "{now:?}");
        }
    }
}
