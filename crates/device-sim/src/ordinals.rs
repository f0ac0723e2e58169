//! Numbers of cards of one kind in this process.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

/// Ordinals in use, by kind of card.
static IN_USE: Mutex<Option<HashMap<String, BTreeSet<u32>>>> = Mutex::new(None);

/// The number of an open card among those of its kind. It is free again when the value is dropped.
#[derive(Debug)]
pub(crate) struct Ordinal {
    kind: String,
    number: u32,
}

impl Ordinal {
    /// Takes the lowest number that no open card of this kind has.
    pub(crate) fn lowest_free(kind: &str) -> Self {
        let mut in_use = IN_USE.lock();
        let used = in_use.get_or_insert_default().entry(kind.to_owned()).or_default();
        let number = (0..).find(|number| !used.contains(number)).unwrap_or(0);
        used.insert(number);
        Ordinal { kind: kind.to_owned(), number }
    }

    /// Takes this number; `None` if an open card of this kind has it.
    pub(crate) fn certain(kind: &str, number: u32) -> Option<Self> {
        let mut in_use = IN_USE.lock();
        let is_free = in_use.get_or_insert_default().entry(kind.to_owned()).or_default().insert(number);
        is_free.then(|| Ordinal { kind: kind.to_owned(), number })
    }

    /// From 0.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Ordinal {
    fn drop(&mut self) {
        if let Some(used) = IN_USE.lock().as_mut().and_then(|all| all.get_mut(&self.kind)) {
            used.remove(&self.number);
        }
    }
}
