//! How many threads of an executor serve the clients of a card. One rule for the executor, for the
//! engine of real cards, and for the planner, which foresees what they do. Pure.

/// The threads with which an executor of one card serves its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceThreads {
    /// Those that submit work to the card, if it is a real one.
    pub engines: u32,
    /// Those that take in the work of clients: lanes of the intake. As many as engines, because a
    /// lane carries an engine (decision 0132).
    pub lanes: u32,
}

impl ServiceThreads {
    /// Those on a machine with so many cores. Each polls while there is work, and clients want
    /// cores of their own (decision 0122; docs/performance.md has the tables).
    #[must_use]
    pub const fn on(cores: u32) -> ServiceThreads {
        let (engines, lanes) = match cores {
            16.. => (3, 3),
            8.. => (2, 2),
            _ => (1, 1),
        };
        ServiceThreads { engines, lanes }
    }

    /// How many of them poll while clients have work. Where each engine has a lane that may carry
    /// it, one of their threads is likely to sleep.
    #[must_use]
    pub const fn polling(self) -> u32 {
        let sleeping = if self.engines > 1 && self.lanes >= self.engines { 1 } else { 0 };
        self.engines + self.lanes - sleeping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_cores_of_their_own() {
        let on = |cores| {
            let ServiceThreads { engines, lanes } = ServiceThreads::on(cores);
            (engines, lanes)
        };
        assert_eq!([1, 7, 8, 15, 16, 64].map(on), [(1, 1), (1, 1), (2, 2), (2, 2), (3, 3), (3, 3)]);
        assert_eq!([1, 8, 16].map(|cores| ServiceThreads::on(cores).polling()), [2, 3, 5]);
        assert_eq!(ServiceThreads { engines: 2, lanes: 1 }.polling(), 3, "a host that was measured before");
    }
}
