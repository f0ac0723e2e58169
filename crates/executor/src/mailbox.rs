//! What goes from the device's threads to the intake thread, and from all threads to the server,
//! without anybody waiting.

use crate::assigned::Assigned;
use cumux_device::{ClientId, Report};
use cumux_ring::awake::{Awake, Count};
use cumux_wire::message::FromExecutor;
use parking_lot::{Condvar, Mutex};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// For each lane of the intake, whether its thread looks for work, and reports that it takes in
/// with its next look.
pub struct Mailboxes {
    lanes: Vec<IntakeLane>,
    assigned: Assigned,
}

/// Alone in its cache lines: what an engine leaves for one lane takes no time from another one's
/// looks.
#[derive(Default)]
#[repr(align(128))]
struct IntakeLane {
    awake: Awake,
    /// Grows with what is put into `reports`, so that looking costs no lock.
    arrived: Count,
    reports: Mutex<Vec<Report>>,
}

impl Mailboxes {
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        Self { lanes: (0..lanes.max(1)).map(|_| IntakeLane::default()).collect(), assigned: Assigned::new(lanes.max(1)) }
    }

    /// How many lanes there are.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Whether a lane is looking.
    #[must_use]
    pub fn lane_awake(&self, lane: usize) -> &Awake {
        &self.lanes[lane].awake
    }

    /// The lane that looks at the ring of this client, and takes in its reports.
    #[must_use]
    pub fn lane_of(&self, client: ClientId) -> usize {
        self.assigned.lane_of(client)
    }

    /// Gives a client to the lane with the fewest, before anything is done with it.
    pub fn assign(&self, client: ClientId) -> usize {
        self.assigned.assign(client)
    }

    /// The client is gone.
    pub fn release(&self, client: ClientId) {
        self.assigned.release(client);
    }

    /// Leaves reports to the threads of their clients' lanes, as far as those look. True if that is
    /// all of them; if not, the caller has the others still. There is a lane for each of the
    /// device's threads that submit ([`cumux_wire::threads::ServiceThreads`]), and those have more
    /// to do for each piece of work.
    pub fn leave_reports(&self, reports: &mut Vec<Report>) -> bool {
        for (number, lane) in self.lanes.iter().enumerate() {
            let is_own = |report: &Report| self.lane_of(report.client) == number;
            if !reports.iter().any(is_own) {
                continue;
            }
            {
                let mut left = lane.reports.lock();
                // Asked under the lock, which the lane takes before it sleeps ([`Mailboxes::has`]).
                // Nobody takes back what another engine has left here: that engine may have said
                // already that all of its work is reported.
                if !lane.awake.will_see() {
                    continue;
                }
                if reports.iter().all(is_own) {
                    left.append(reports);
                } else {
                    left.extend(reports.extract_if(.., |report| is_own(report)));
                }
            }
            lane.arrived.add();
        }
        reports.is_empty()
    }

    /// Takes what was left for a lane since `seen`, into an empty list. Whether there was anything.
    pub fn take_reports(&self, lane: usize, seen: &mut u64, into: &mut Vec<Report>) -> bool {
        let lane = &self.lanes[lane];
        let arrived = lane.arrived.get();
        if arrived == *seen {
            return false;
        }
        *seen = arrived;
        std::mem::swap(into, &mut lane.reports.lock());
        !into.is_empty()
    }

    /// Whether something was left for a lane; for the moment between announcing sleep and sleeping.
    #[must_use]
    pub fn has(&self, lane: usize) -> bool {
        !self.lanes[lane].reports.lock().is_empty()
    }

    /// Everything that was left, when nobody will look any more.
    #[must_use]
    pub fn rest(&self) -> Vec<Report> {
        self.lanes.iter().flat_map(|lane| std::mem::take(&mut *lane.reports.lock())).collect()
    }
}

/// A message for the server with its descriptors.
pub type Letter = (FromExecutor, Vec<Arc<OwnedFd>>);

/// Messages for the server.
pub struct Outbox {
    sender: Mutex<mpsc::Sender<Letter>>,
    waiting: Mutex<u64>,
    sent: Condvar,
}

impl Outbox {
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Letter>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender: Mutex::new(sender), waiting: Mutex::new(0), sent: Condvar::new() }, receiver)
    }

    pub fn put(&self, message: FromExecutor) {
        self.put_with(message, Vec::new());
    }

    pub fn put_with(&self, message: FromExecutor, descriptors: Vec<Arc<OwnedFd>>) {
        *self.waiting.lock() += 1;
        // The receiver lives as long as the process.
        let _ = self.sender.lock().send((message, descriptors));
    }

    /// The receiver has sent one more.
    pub fn sent(&self) {
        let mut waiting = self.waiting.lock();
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 {
            self.sent.notify_all();
        }
    }

    /// Waits until everything is sent, but no longer than this.
    pub fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut waiting = self.waiting.lock();
        while *waiting > 0 && !self.sent.wait_until(&mut waiting, until).timed_out() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_device::{Outcome, StreamId};

    fn report(token: u64) -> Report {
        Report { client: 1, stream: StreamId(1), token, outcome: Outcome::Done { device_ns: 0 } }
    }

    #[test]
    fn reports_are_left_only_to_who_looks() {
        let boxes = Mailboxes::new(1);
        let (mut seen, mut taken) = (0, Vec::new());
        let mut reports = vec![report(1)];
        assert!(!boxes.leave_reports(&mut reports) && reports.len() == 1, "nobody looks: the caller has them");
        boxes.lane_awake(0).set(true);
        assert!(boxes.leave_reports(&mut reports) && reports.is_empty() && boxes.has(0));
        reports.push(report(2));
        assert!(boxes.leave_reports(&mut reports));
        assert!(boxes.take_reports(0, &mut seen, &mut taken));
        assert_eq!(taken.iter().map(|r| r.token).collect::<Vec<_>>(), [1, 2]);
        taken.clear();
        assert!(!boxes.take_reports(0, &mut seen, &mut taken) && !boxes.has(0));
        reports.extend((0..100).map(report));
        assert!(boxes.leave_reports(&mut reports), "many, too");
        assert_eq!(boxes.rest().len(), 100);
    }

    #[test]
    fn each_lane_is_left_what_its_clients_wait_for() {
        let boxes = Mailboxes::new(2);
        assert_eq!([2, 3, 4, 5].map(|client| boxes.assign(client)), [0, 1, 0, 1]);
        let of = |client: u32, token: u64| Report { client, ..report(token) };
        let taken = |lane: usize, seen: &mut u64| {
            let mut taken = Vec::new();
            boxes.take_reports(lane, seen, &mut taken);
            taken.iter().map(|report| report.token).collect::<Vec<_>>()
        };
        let mut seen = [0, 0];
        boxes.lane_awake(0).set(true);
        let mut reports = vec![of(2, 1), of(3, 2), of(4, 3)];
        assert!(!boxes.leave_reports(&mut reports), "the second one sleeps");
        assert_eq!((reports, boxes.has(1), taken(0, &mut seen[0])), (vec![of(3, 2)], false, vec![1, 3]));
        boxes.lane_awake(1).set(true);
        let mut reports = vec![of(3, 4), of(5, 5), of(2, 6)];
        assert!(boxes.leave_reports(&mut reports) && reports.is_empty());
        assert_eq!((taken(0, &mut seen[0]), taken(1, &mut seen[1])), (vec![6], vec![4, 5]));
        assert!(boxes.leave_reports(&mut Vec::new()) && !boxes.has(0) && !boxes.has(1));
    }

    #[test]
    fn flushing_waits_for_what_was_put() {
        let (outbox, receiver) = Outbox::new();
        outbox.flush(Duration::from_secs(60));
        outbox.put(FromExecutor::Failed { why: "one".into() });
        std::thread::scope(|scope| {
            let outbox = &outbox;
            scope.spawn(move || {
                assert!(receiver.recv().is_ok());
                outbox.sent();
            });
            outbox.flush(Duration::from_secs(60));
        });
        assert_eq!(*outbox.waiting.lock(), 0);
    }
}
