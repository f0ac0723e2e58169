//! Whether work in flight of any engine of a card stands still. Each engine sees its own work
//! alone, and what one does may wait for a kernel of another one's client: so they say it to each
//! other.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The engines of a card whose work stands still.
///
/// Lock 8 of the crate's order, held alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandingWork(Arc<Mutex<BTreeSet<usize>>>);

impl StandingWork {
    /// Notes whether the work of an engine stands still.
    pub(crate) fn note(&self, engine: usize, stands: bool) {
        let mut engines = self.0.lock();
        if stands {
            engines.insert(engine);
        } else {
            engines.remove(&engine);
        }
    }

    /// True if the work of any engine stands still.
    pub(crate) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_hears_of_the_others() {
        let (own, others) = (StandingWork::default(), StandingWork::default());
        let shared = own.clone();
        own.note(0, false);
        own.note(1, true);
        assert!(shared.any() && !others.any(), "another card's is another matter");
        own.note(0, true);
        shared.note(1, false);
        assert!(own.any());
        shared.note(0, false);
        assert!(!own.any());
    }
}
