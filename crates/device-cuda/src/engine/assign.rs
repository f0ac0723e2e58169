//! Which engine serves which client. Pure but for its lock.

use cumux_device::{ClientId, Lane};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The clients of each engine of a card.
pub(super) struct Assignments {
    engines: usize,
    /// Lock 8 of the crate's order, held alone.
    clients: Mutex<FxHashMap<ClientId, usize>>,
}

impl Assignments {
    /// For this many engines, none of which has a client.
    pub(super) fn new(engines: usize) -> Assignments {
        Assignments { engines, clients: Mutex::default() }
    }

    /// Gives a client to the engine that its lane may carry, or where there are fewer lanes than
    /// engines to the one with the fewest clients. Returns the engine's number. Numbers of clients
    /// tell nothing: a launcher and its workers may have every second one.
    pub(super) fn assign(&self, client: ClientId, lane: Option<Lane>) -> usize {
        let mut clients = self.clients.lock();
        let load = |engine: &usize| clients.values().filter(|of| *of == engine).count();
        let engine = match lane {
            Some(lane) if lane.of >= self.engines => lane.number % self.engines,
            _ => (0..self.engines).min_by_key(load).unwrap_or_default(),
        };
        clients.insert(client, engine);
        engine
    }

    /// The engine of a client; `None` if it has none.
    pub(super) fn engine_of(&self, client: ClientId) -> Option<usize> {
        self.clients.lock().get(&client).copied()
    }

    /// A client is closed.
    pub(super) fn release(&self, client: ClientId) {
        self.clients.lock().remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_whatever_their_numbers_are() {
        let assignments = Assignments::new(2);
        let engines: Vec<usize> = [2, 4, 6, 8].map(|client| assignments.assign(client, None)).to_vec();
        assert_eq!(engines, [0, 1, 0, 1]);
        assert_eq!((assignments.engine_of(6), assignments.engine_of(7)), (Some(0), None));
        for client in [2, 6] {
            assignments.release(client);
        }
        assert_eq!([10, 12, 14].map(|client| assignments.assign(client, None)), [0, 0, 0], "where two have gone");
        assert_eq!(assignments.engine_of(2), None);
    }

    #[test]
    fn the_engine_of_a_client_is_the_one_that_its_lane_may_carry() {
        let assignments = Assignments::new(2);
        let of = |number, of| Some(Lane { number, of });
        assert_eq!([(1, of(1, 2)), (2, of(1, 2)), (3, of(2, 3))].map(|(client, lane)| assignments.assign(client, lane)), [1, 1, 0]);
        assert_eq!([4, 5].map(|client| assignments.assign(client, of(0, 1))), [0, 0], "one lane for two engines: where fewest are");
        assert_eq!(assignments.assign(6, of(0, 1)), 1);
    }
}
