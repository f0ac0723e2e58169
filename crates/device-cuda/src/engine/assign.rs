//! Which engine serves which client. Pure but for its lock.

use cumux_device::ClientId;
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

    /// Gives a client to the engine with the fewest, and returns its number. Numbers of clients
    /// tell nothing: a launcher and its workers may have every second one.
    pub(super) fn assign(&self, client: ClientId) -> usize {
        let mut clients = self.clients.lock();
        let load = |engine: &usize| clients.values().filter(|of| *of == engine).count();
        let engine = (0..self.engines).min_by_key(load).unwrap_or_default();
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
        let engines: Vec<usize> = [2, 4, 6, 8].map(|client| assignments.assign(client)).to_vec();
        assert_eq!(engines, [0, 1, 0, 1]);
        assert_eq!((assignments.engine_of(6), assignments.engine_of(7)), (Some(0), None));
        for client in [2, 6] {
            assignments.release(client);
        }
        assert_eq!([10, 12, 14].map(|client| assignments.assign(client)), [0, 0, 0], "where two have gone");
        assert_eq!(assignments.engine_of(2), None);
    }
}
