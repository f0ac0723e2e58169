//! Handles: the opaque words a program holds for streams, events, modules and all the rest.
//!
//! A handle names an entry of a table and the entry's generation, never an address: whatever word a
//! program passes is looked up, and a freed or invented one is found out. Handles look like aligned
//! pointers into a part of the address space where nothing is mapped.

use crate::changes;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

/// Above everything cumux maps, below the end of user space.
const MARK: u64 = 0x6000_0000_0000;
const INDEX_BITS: u32 = 20;
/// Freed entries rest in a queue until this many have gathered, so that a stale handle stays
/// invalid for long.
const REST: usize = 64;

/// What a handle is for; part of the word, so that a stream is never taken for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    MipmappedArray = 0,
    Context = 1,
    Stream = 2,
    Event = 3,
    Module = 4,
    Function = 5,
    Library = 6,
    Kernel = 7,
    Pool = 8,
    Graph = 9,
    GraphNode = 10,
    GraphExec = 11,
    UserObject = 12,
    Memory = 13,
    Link = 14,
    Array = 15,
    GreenContext = 16,
    ResourceDescription = 17,
}

impl Kind {
    /// Threads remember what such a handle names ([`crate::changes`]).
    fn is_remembered(self) -> bool {
        matches!(self, Kind::Stream | Kind::Function | Kind::Kernel)
    }

    /// The kind a word claims to have.
    #[must_use]
    pub fn of(handle: u64) -> Option<u8> {
        (handle & !0x1FFF_FFFF_FFFF == MARK).then_some(((handle >> 40) & 0x1F) as u8)
    }
}

#[derive(Debug)]
struct HandleEntry<T> {
    generation: u16,
    value: Option<Arc<T>>,
}

#[derive(Debug)]
struct HandleEntries<T> {
    entries: Vec<HandleEntry<T>>,
    free: VecDeque<u32>,
}

/// All objects of one kind.
#[derive(Debug)]
pub struct Table<T> {
    kind: Kind,
    entries: RwLock<HandleEntries<T>>,
    _kind: PhantomData<T>,
}

impl<T> Table<T> {
    /// An empty table.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self { kind, entries: RwLock::new(HandleEntries { entries: Vec::new(), free: VecDeque::new() }), _kind: PhantomData }
    }

    /// Mints a handle and lets `make` build the object that knows it; `None` when a million are in
    /// use.
    pub fn insert(&self, make: impl FnOnce(u64) -> Arc<T>) -> Option<(u64, Arc<T>)> {
        let mut table = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let rested = table.free.len() > REST || table.entries.len() >> INDEX_BITS != 0;
        let index = match if rested { table.free.pop_front() } else { None } {
            Some(index) => index,
            None => {
                let index = u32::try_from(table.entries.len()).ok().filter(|index| index >> INDEX_BITS == 0)?;
                table.entries.push(HandleEntry { generation: 1, value: None });
                index
            }
        };
        let entry = table.entries.get_mut(index as usize)?;
        let handle = MARK | (self.kind as u64) << 40 | u64::from(entry.generation) << 24 | u64::from(index) << 4;
        let value = make(handle);
        entry.value = Some(Arc::clone(&value));
        Some((handle, value))
    }

    fn split_handle(&self, handle: u64) -> Option<(usize, u16)> {
        let ours = Kind::of(handle) == Some(self.kind as u8) && handle & 0xF == 0;
        ours.then_some(((handle >> 4) as usize & ((1 << INDEX_BITS) - 1), (handle >> 24) as u16))
    }

    /// The object a handle names.
    #[must_use]
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        let (index, generation) = self.split_handle(handle)?;
        let table = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        table.entries.get(index).filter(|entry| entry.generation == generation)?.value.clone()
    }

    /// Takes the object out; the handle is invalid from now on.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let (index, generation) = self.split_handle(handle)?;
        let mut table = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get_mut(index).filter(|entry| entry.generation == generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        table.free.push_back(index as u32);
        self.note();
        Some(value)
    }

    /// Something is not in the table any more.
    fn note(&self) {
        if self.kind.is_remembered() {
            changes::note();
        }
    }

    /// Takes out everything that `which` names.
    pub fn remove_all(&self, which: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        let mut table = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let HandleEntries { entries, free } = &mut *table;
        for (index, entry) in entries.iter_mut().enumerate() {
            if entry.value.as_deref().is_some_and(&which) {
                gone.extend(entry.value.take());
                entry.generation = entry.generation.wrapping_add(1).max(1);
                free.push_back(index as u32);
            }
        }
        if !gone.is_empty() {
            self.note();
        }
        gone
    }

    /// Everything that `which` names.
    #[must_use]
    pub fn all(&self, which: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let table = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        table.entries.iter().filter_map(|entry| entry.value.as_ref()).filter(|value| which(value)).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_stays_invalid_and_slots_are_used_again() {
        let table = Table::<u32>::new(Kind::Event);
        let (first, _) = table.insert(|_| Arc::new(1)).unwrap();
        assert_eq!(table.get(first).as_deref(), Some(&1));
        assert_eq!(table.remove(first).as_deref(), Some(&1));
        assert_eq!((table.get(first), table.remove(first)), (None, None));
        let mut seen = std::collections::HashSet::from([first]);
        for n in 0..1000 {
            let (handle, _) = table.insert(|_| Arc::new(n)).unwrap();
            assert!(seen.insert(handle), "handle {handle:#x} came twice");
            assert!(table.remove(handle).is_some());
        }
        assert!(table.entries.read().unwrap().entries.len() < 200, "entries are used again");
    }

    #[test]
    fn another_kind_and_garbage_are_refused() {
        let events = Table::<u32>::new(Kind::Event);
        let streams = Table::<u32>::new(Kind::Stream);
        let (event, _) = events.insert(|_| Arc::new(1)).unwrap();
        streams.insert(|_| Arc::new(2)).unwrap();
        assert_eq!(streams.get(event), None);
        for garbage in [0, 1, 2, u64::MAX, 0xdead_beef, event + 1, event + 16, event ^ (1 << 24), event | 1 << 63] {
            assert_eq!(events.get(garbage), None, "{garbage:#x}");
        }
    }

    #[test]
    fn all_of_one_owner_go_together() {
        let table = Table::<u32>::new(Kind::Stream);
        let handles: Vec<u64> = (0..10).map(|n| table.insert(|_| Arc::new(n)).unwrap().0).collect();
        assert_eq!(table.remove_all(|n| n % 2 == 0).len(), 5);
        assert_eq!(handles.iter().filter(|h| table.get(**h).is_some()).count(), 5);
        assert_eq!(table.all(|n| *n > 5).len(), 2);
    }
}
