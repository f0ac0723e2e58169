//! Which lane of the intake looks after which client.
//!
//! A client is given to the lane with the fewest: numbers of clients tell nothing, a launcher and
//! its workers may have every second one. Engines look a client's lane up with every report, so
//! that takes no lock. Clients whose numbers share a cell share its lane.

use cumux_device::ClientId;
use cumux_ring::awake::Number;
use parking_lot::Mutex;

/// Clients with different numbers modulo this have lanes of their own.
const CELLS: usize = 1024;

/// The lanes of clients.
pub struct Assigned {
    /// The lane of each cell.
    lanes: Vec<Number>,
    held: Mutex<Held>,
}

struct Held {
    /// The clients of each cell.
    of_cell: Vec<u32>,
    /// The clients of each lane.
    of_lane: Vec<u32>,
}

const fn cell(client: ClientId) -> usize {
    client as usize % CELLS
}

impl Assigned {
    /// For so many lanes, none of which has a client.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        let held = Held { of_cell: vec![0; CELLS], of_lane: vec![0; lanes] };
        Self { lanes: (0..CELLS).map(|_| Number::default()).collect(), held: Mutex::new(held) }
    }

    /// Gives a client a lane, which it keeps until it is released.
    pub fn assign(&self, client: ClientId) -> usize {
        let mut held = self.held.lock();
        if held.of_cell[cell(client)] == 0 {
            let fewest = held.of_lane.iter().enumerate().min_by_key(|(_, clients)| **clients).map_or(0, |(lane, _)| lane);
            self.lanes[cell(client)].set(fewest as u64);
        }
        let lane = self.lane_of(client);
        held.of_cell[cell(client)] += 1;
        held.of_lane[lane] += 1;
        lane
    }

    /// The lane of a client that has one.
    #[must_use]
    pub fn lane_of(&self, client: ClientId) -> usize {
        self.lanes[cell(client)].get() as usize
    }

    /// A client that was given a lane is gone.
    pub fn release(&self, client: ClientId) {
        let mut held = self.held.lock();
        let lane = self.lane_of(client);
        held.of_cell[cell(client)] = held.of_cell[cell(client)].saturating_sub(1);
        held.of_lane[lane] = held.of_lane[lane].saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_whatever_their_numbers_are() {
        let assigned = Assigned::new(3);
        assert_eq!([3, 6, 9, 12].map(|client| assigned.assign(client)), [0, 1, 2, 0]);
        assigned.release(6);
        assert_eq!((assigned.assign(15), assigned.assign(18)), (1, 1), "one has gone, and two have one each");
        assert_eq!([3, 15, 9].map(|client| assigned.lane_of(client)), [0, 1, 2]);
    }

    #[test]
    fn clients_of_one_cell_share_its_lane() {
        let assigned = Assigned::new(2);
        assert_eq!([1, 2].map(|client| assigned.assign(client)), [0, 1]);
        let other = 2 + CELLS as ClientId;
        assert_eq!(assigned.assign(other), 1, "though both have as many");
        assigned.release(2);
        assert_eq!((assigned.lane_of(other), assigned.assign(2)), (1, 1), "it keeps its lane while it is there");
    }
}
