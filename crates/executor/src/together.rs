//! Several devices of one executor, as the executor's sink sees them: which device a report comes
//! from, and what the others do when one of them is lost.
//!
//! A device that is lost cannot be mended in its process, so the process ends and all clients go on
//! in the next executor. Clients that have work on the other devices must not suffer from that:
//!
//! 1. The others begin nothing more of any client, and what they have begun goes on to its end.
//! 2. Clients whose work there does not end soon stay, with this process, until it has ended. All
//!    others go on in the next executor at once ([`Sink::let_go`]).
//! 3. When nothing is under way any more, the process ends ([`Sink::lost`]), and those who stayed
//!    go on, too.
//!
//! So it is, too, where work of some clients on one device does not end, and all others leave
//! ([`Sink::occupied`]): then the process stays with those.
//!
//! In doubt is what the lost device says of its own work, and nothing else.

use cumux_device::{Begun, Channel, ClientId, Device, Fault, InDoubt, Outcome, Report, Sink, StreamId};
use cumux_wire::layout::DeviceIndex;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Bits of a stream number that are the device's own.
pub const OWN_BITS: u32 = 28;
/// The greatest stream number of a device.
pub const OWN: u32 = (1 << OWN_BITS) - 1;

/// How long work on the other devices may take before its clients stay behind, in milliseconds.
const SOON_MS: u64 = 250;
/// The variable for that, which holds for long kernels everywhere.
const SOON_VARIABLE: &str = "CUMUX_LONG_KERNEL_MS";
/// How long the work of clients that cannot leave is waited for.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// How often it is looked whether those who stayed have nothing under way any more.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A stream number of all devices together.
#[must_use]
pub fn tag(device_index: DeviceIndex, stream: StreamId) -> StreamId {
    StreamId(device_index << OWN_BITS | stream.0 & OWN)
}

/// The devices of an executor with several.
pub struct Together {
    reports: Arc<dyn Sink>,
    devices: OnceLock<Vec<Weak<dyn Device>>>,
    /// The lost devices, with what may have been begun there.
    lost: Mutex<Vec<(DeviceIndex, Begun)>>,
}

/// Tells the executor from which device a report comes.
struct Tagged {
    device_index: DeviceIndex,
    together: Arc<Together>,
}

impl Together {
    /// Devices that report here. [`Together::set_devices`] follows when they are open.
    #[must_use]
    pub fn new(reports: Arc<dyn Sink>) -> Arc<Self> {
        Arc::new(Self { reports, devices: OnceLock::new(), lost: Mutex::default() })
    }

    /// Where a device reports.
    #[must_use]
    pub fn sink_of(self: &Arc<Self>, device_index: DeviceIndex) -> Arc<dyn Sink> {
        Arc::new(Tagged { device_index, together: self.clone() })
    }

    /// The devices, in their order.
    pub fn set_devices(&self, devices: &[Arc<dyn Device>]) {
        let _ = self.devices.set(devices.iter().map(Arc::downgrade).collect());
    }

    /// The devices that are not lost begin nothing more of any client but these. Returns what may
    /// have been begun there after this time.
    fn leave_others(&self, staying: &BTreeSet<ClientId>, patience: Duration) -> Begun {
        let lost: BTreeSet<DeviceIndex> = self.lost.lock().iter().map(|(device_index, _)| *device_index).collect();
        let devices = self.devices.get().into_iter().flatten().filter_map(Weak::upgrade);
        let others: Vec<_> = (0..).zip(devices).filter(|(device_index, _)| !lost.contains(device_index)).collect();
        std::thread::scope(|scope| {
            let ask = |(device_index, device): &(DeviceIndex, Arc<dyn Device>)| tag_all(*device_index, device.leave(staying, patience));
            let threads: Vec<_> = others.iter().map(|other| std::thread::Builder::new().spawn_scoped(scope, move || ask(other))).collect();
            threads.into_iter().map(|thread| thread.ok().and_then(|thread| thread.join().ok()).unwrap_or(Begun::Unknown)).fold(Begun::Only(Vec::new()), both)
        })
    }

    /// What may have been begun on the lost devices.
    fn begun_on_the_lost(&self) -> Begun {
        self.lost.lock().iter().map(|(_, begun)| begun.clone()).fold(Begun::Only(Vec::new()), both)
    }

    /// Work of some clients on a device does not end, and all others leave it: they leave the
    /// others, too. Clients whose work there does not end soon stay until it has.
    fn let_go(self: &Arc<Self>, device_index: DeviceIndex, staying: &BTreeSet<ClientId>, begun: Begun) {
        let begun = tag_all(device_index, begun);
        let rest = self.leave_others(staying, soon());
        let late: BTreeSet<ClientId> = match &rest {
            Begun::Only(pieces) => pieces.iter().map(|piece| piece.client).collect(),
            Begun::Unknown => return self.reports.let_go(staying, Begun::Unknown),
        };
        self.reports.let_go(&staying.union(&late).copied().collect(), begun.clone());
        if late.is_empty() {
            return;
        }
        let (own, staying) = (self.clone(), staying.clone());
        let follow = move || {
            while own.leave_others(&staying, LOOK_EVERY) != Begun::Only(Vec::new()) {}
            own.reports.let_go(&staying, begun);
        };
        if std::thread::Builder::new().name("latecomers".into()).spawn(follow).is_err() {
            tracing::warn!("no thread for clients {late:?}: they go on elsewhere when this executor ends");
        }
    }

    /// A device is lost. The first one's thread sees to the rest.
    fn lose(&self, device_index: DeviceIndex, why: &str, begun: Begun) {
        let is_first = {
            let mut lost = self.lost.lock();
            lost.push((device_index, tag_all(device_index, begun)));
            lost.len() == 1
        };
        if !is_first {
            return;
        }
        let nobody = BTreeSet::new();
        let mut rest = self.leave_others(&nobody, soon());
        if rest == Begun::Unknown {
            // A device that has just found out that the fault is not its own answers late.
            rest = self.leave_others(&nobody, LAST_WAIT);
        }
        let staying: BTreeSet<ClientId> = match &rest {
            Begun::Only(pieces) => pieces.iter().map(|piece| piece.client).collect(),
            Begun::Unknown => BTreeSet::new(),
        };
        if !staying.is_empty() {
            if self.reports.occupied(&nobody) {
                self.reports.let_go(&staying, self.begun_on_the_lost());
                while self.leave_others(&nobody, LOOK_EVERY) != Begun::Only(Vec::new()) {}
                rest = Begun::Only(Vec::new());
            } else {
                rest = self.leave_others(&nobody, LAST_WAIT);
            }
        }
        self.reports.lost(&format!("device {device_index}: {why}"), both(self.begun_on_the_lost(), rest));
    }
}

/// How long work on the other devices may take before its clients stay behind.
fn soon() -> Duration {
    Duration::from_millis(cumux_environment::number(SOON_VARIABLE).ok().flatten().unwrap_or(SOON_MS))
}

/// With the numbers that the streams have among those of all devices.
fn tag_all(device_index: DeviceIndex, begun: Begun) -> Begun {
    match begun {
        Begun::Unknown => Begun::Unknown,
        Begun::Only(pieces) => Begun::Only(pieces.into_iter().map(|piece| InDoubt { stream: tag(device_index, piece.stream), ..piece }).collect()),
    }
}

fn both(one: Begun, other: Begun) -> Begun {
    match (one, other) {
        (Begun::Only(mut one), Begun::Only(mut other)) => {
            one.append(&mut other);
            Begun::Only(one)
        }
        _ => Begun::Unknown,
    }
}

impl Sink for Tagged {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        self.together.reports.retired(client, tag(self.device_index, stream), token, outcome);
    }

    fn retired_all(&self, reports: &mut Vec<Report>) {
        for report in &mut *reports {
            report.stream = tag(self.device_index, report.stream);
        }
        self.together.reports.retired_all(reports);
    }

    fn text(&self, client: ClientId, channel: Channel, text: &[u8]) {
        self.together.reports.text(client, channel, text);
    }

    fn fault_noticed(&self) {
        self.together.reports.fault_noticed();
    }

    fn faulted(&self, client: ClientId, fault: &Fault) {
        self.together.reports.faulted(client, fault);
    }

    fn dumped(&self, clients: &[ClientId], dump: OwnedFd) {
        self.together.reports.dumped(clients, dump);
    }

    fn occupied(&self, by: &BTreeSet<ClientId>) -> bool {
        self.together.reports.occupied(by)
    }

    fn let_go(&self, staying: &BTreeSet<ClientId>, begun: Begun) {
        self.together.let_go(self.device_index, staying, begun);
    }

    fn lost(&self, why: &str, begun: Begun) {
        self.together.lose(self.device_index, why, begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_of_all_devices_come_together() {
        let piece = |stream| InDoubt { client: 1, stream: StreamId(stream), token: 7 };
        let first = tag_all(0, Begun::Only(vec![piece(3)]));
        let second = tag_all(1, Begun::Only(vec![piece(3)]));
        assert_eq!(both(first.clone(), second), Begun::Only(vec![piece(3), piece(1 << OWN_BITS | 3)]));
        assert_eq!(both(first, Begun::Unknown), Begun::Unknown);
        assert_eq!(tag_all(1, Begun::Unknown), Begun::Unknown);
    }
}
