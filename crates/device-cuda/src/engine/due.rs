//! The chains of all engines that are due. They are made together, because the card is stopped for
//! that.

use crate::context::ContextClient;
use crate::driver::{CardAddress, Stream};
use crate::issue::ChainOrder;
use parking_lot::Mutex;
use std::sync::Arc;

/// A chain to make.
pub(super) struct DueChain {
    /// The order.
    pub order: ChainOrder,
    /// The client whose stream it is for; `None` for a chain that is nobody's.
    pub client: Option<Arc<ContextClient>>,
    /// The engine that gets the chain.
    pub engine: usize,
    /// Where the card has the chain's word.
    pub address: CardAddress,
    /// The stream in which it is uploaded.
    pub stream: Stream,
}

/// The chains that are due. Lock 8 of the crate's order, held alone.
#[derive(Default)]
pub(crate) struct DueChains(Mutex<Vec<DueChain>>);

impl DueChains {
    /// Adds chains.
    pub(super) fn add(&self, due: impl Iterator<Item = DueChain>) {
        self.0.lock().extend(due);
    }

    /// True if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Takes all, urgent ones first.
    pub(super) fn take(&self) -> Vec<DueChain> {
        let mut due = std::mem::take(&mut *self.0.lock());
        due.sort_by_key(|due| !due.order.chain.is_urgent());
        due
    }
}
