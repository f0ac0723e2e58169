//! What a card does for the clients of a dead predecessor: nothing. It keeps no marks.

use super::Card;
use crate::driver::first_queue;
use cumux_device::{ClientId, Interrupted, Takeover};

impl Takeover for Card {
    /// A card keeps no marks: it cannot tell which blocks of a kernel are done.
    fn marks_bytes(&self) -> usize {
        0
    }

    /// A card knows nothing of a predecessor's work.
    fn recover(&self, _client: ClientId) -> Vec<Interrupted> {
        Vec::new()
    }

    fn first_queue(&self) -> Option<u32> {
        first_queue()
    }

    fn spare_driver(&self, is_spared: bool) {
        self.shared.mailboxes.spare_driver(is_spared);
    }
}
