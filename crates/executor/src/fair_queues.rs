//! Whose turn it is: a queue for each lane of the intake, because a lane looks at the rings of its
//! own clients alone. With one queue for all, three lanes spent a tenth of their time on its lock.

use crate::mailbox::Mailboxes;
use cumux_device::ClientId;
use cumux_scheduler::FairQueue;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// The accounts of all clients.
pub struct FairQueues {
    mailboxes: Arc<Mailboxes>,
    of_lanes: Vec<OfLane>,
    /// Held while it is found out whose priority is the most urgent.
    changing: Mutex<()>,
}

/// Alone in its cache lines: other lanes lock theirs all the time.
#[derive(Default)]
#[repr(align(128))]
struct OfLane(Mutex<FairQueue>);

impl FairQueues {
    /// None for any client yet. `mailboxes` knows the clients' lanes.
    #[must_use]
    pub fn new(mailboxes: Arc<Mailboxes>) -> Self {
        let of_lanes = (0..mailboxes.lanes()).map(|_| OfLane::default()).collect();
        Self { mailboxes, of_lanes, changing: Mutex::default() }
    }

    /// The queue in which a client is.
    pub fn of(&self, client: ClientId) -> MutexGuard<'_, FairQueue> {
        self.of_lanes[self.mailboxes.lane_of(client)].0.lock()
    }

    /// Adds a client, which has its lane already, as [`FairQueue::add`].
    pub fn add(&self, client: ClientId, priority: u32, share: u32) {
        let _alone = self.changing.lock();
        self.of(client).add(client, priority, share);
        self.tell_urgent();
    }

    /// Removes a client. Its lane may be another's by now.
    pub fn remove(&self, client: ClientId) {
        let _alone = self.changing.lock();
        self.of_lanes.iter().for_each(|queue| queue.0.lock().remove(client));
        self.tell_urgent();
    }

    /// The clients of a lane in the order in which their rings should be read.
    #[must_use]
    pub fn order(&self, lane: usize) -> Vec<ClientId> {
        self.of_lanes[lane].0.lock().order()
    }

    /// Whether a client has its turn, in any lane.
    #[cfg(any(test, feature = "fuzzing"))]
    #[must_use]
    pub fn has(&self, client: ClientId) -> bool {
        (0..self.of_lanes.len()).any(|lane| self.order(lane).contains(&client))
    }

    fn tell_urgent(&self) {
        let urgent = self.of_lanes.iter().filter_map(|queue| queue.0.lock().most_urgent()).min();
        self.of_lanes.iter().for_each(|queue| queue.0.lock().set_urgent(urgent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_way_does_so_for_clients_of_other_lanes_too() {
        let mailboxes = Arc::new(Mailboxes::new(2));
        let queues = FairQueues::new(mailboxes.clone());
        let add = |client, priority| {
            mailboxes.assign(client);
            queues.add(client, priority, 100);
            queues.of(client).submitted_all(client, 1, 1_000_000);
            queues.of(client).budget(client).has_rest(1)
        };
        assert!(add(1, 1), "alone it fills the device");
        assert!(add(2, 0) && !queues.of(1).budget(1).has_rest(1));
        assert_eq!((queues.order(0), queues.order(1)), (vec![1], vec![2]));
        queues.remove(2);
        assert!(queues.of(1).budget(1).has_rest(1) && !queues.has(2));
    }
}
