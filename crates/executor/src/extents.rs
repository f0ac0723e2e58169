//! Who has which mapped extent. Pure bookkeeping.
//!
//! An extent belongs to the client that made it, and to each that has opened an allocation in it.
//! It is unmapped when the last of them lets go. Addresses are used again, so an extent in which
//! something was lent has a random mark: a client that comes back after a takeover joins an extent
//! at its address only if the marks are the same.

use crate::loans::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What is written beside an extent in the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtentNote {
    pub(crate) bytes: u64,
    /// Its own, for as long as anybody knows its address; executors of earlier programs gave none.
    pub(crate) name: Option<u64>,
}

impl ExtentNote {
    pub(crate) fn read(note: &str) -> ExtentNote {
        let mut words = note.split(' ').map(|word| word.parse::<u64>().ok());
        ExtentNote { bytes: words.next().flatten().unwrap_or(0), name: words.next().flatten() }
    }

    pub(crate) fn text(self) -> String {
        self.name.map_or_else(|| self.bytes.to_string(), |name| format!("{} {name}", self.bytes))
    }
}

struct Extent {
    note: ExtentNote,
    file: Arc<OwnedFd>,
    mark: Option<Token>,
    holders: BTreeSet<u32>,
}

#[derive(Default)]
pub struct Extents {
    by_address: BTreeMap<u64, Extent>,
}

impl Extents {
    /// A client has mapped it.
    pub fn add(&mut self, address: u64, note: ExtentNote, file: Arc<OwnedFd>, mark: Option<Token>, holder: u32) {
        self.by_address.insert(address, Extent { note, file, mark, holders: BTreeSet::from([holder]) });
    }

    /// The mark of an extent, which gets this one if it has none.
    pub fn mark(&mut self, address: u64, fresh: Token) -> Option<Token> {
        Some(*self.by_address.get_mut(&address)?.mark.get_or_insert(fresh))
    }

    /// One more client has it, if it is mapped with this mark. Returns its file, and what is known
    /// of it.
    pub fn join(&mut self, address: u64, bytes: u64, mark: Token, holder: u32) -> Option<(Arc<OwnedFd>, ExtentNote)> {
        let extent = self.by_address.get_mut(&address).filter(|extent| extent.note.bytes == bytes && extent.mark == Some(mark))?;
        extent.holders.insert(holder);
        Some((extent.file.clone(), extent.note))
    }

    /// A client lets go of it. Whether nobody has it now.
    pub fn leave(&mut self, address: u64, holder: u32) -> bool {
        let Some(extent) = self.by_address.get_mut(&address) else { return true };
        extent.holders.remove(&holder);
        let is_idle = extent.holders.is_empty();
        if is_idle {
            self.by_address.remove(&address);
        }
        is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_joined_by_its_mark_and_goes_with_the_last() {
        let file = || Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
        let mut extents = Extents::default();
        extents.add(64, ExtentNote { bytes: 8, name: None }, file(), None, 1);
        assert!(extents.join(64, 8, [1, 2], 2).is_none(), "nothing in it was lent");
        assert_eq!((extents.mark(64, [1, 2]), extents.mark(64, [3, 4]), extents.mark(65, [3, 4])), (Some([1, 2]), Some([1, 2]), None));
        assert!(extents.join(64, 8, [3, 4], 2).is_none() && extents.join(64, 4, [1, 2], 2).is_none());
        assert!(extents.join(64, 8, [1, 2], 2).is_some());
        assert!(!extents.leave(64, 1) && extents.leave(64, 2) && extents.leave(64, 2));
    }
}
