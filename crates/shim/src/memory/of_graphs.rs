//! Memory that graphs allocate, and who has it now.
//!
//! Its address is fixed when the node is made, and stays this graph's as long as a graph or an
//! executable names it: a launch allocates it, and a free node or the program frees it for the next
//! launch. What is allocated when the last of them ends is the program's, until it frees it (CUDA
//! C++ Programming Guide, *Graph Memory Nodes*).

use super::{Sort, allocate_as, read_allocations, release, write_allocations};
use crate::connection::Connection;
use crate::ffi::{Try, error};
use crate::process;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What has become of a piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No launch has allocated it yet.
    Fresh,
    /// A launch has allocated it, and nobody has freed it since.
    Allocated,
    /// It was freed; the next launch allocates it again.
    Freed,
    /// It is allocated, and its graph is gone.
    Left,
}

#[derive(Debug)]
struct Piece {
    bytes: u64,
    device: u32,
    /// Id of the allocation.
    id: u64,
    state: State,
}

/// The most there was since the program has last asked to count anew.
#[derive(Debug, Default, Clone, Copy)]
struct Marks {
    used: u64,
    reserved: u64,
}

#[derive(Debug)]
struct Book {
    pieces: BTreeMap<u64, Piece>,
    marks: BTreeMap<u32, Marks>,
}

static BOOK: Mutex<Book> = Mutex::new(Book { pieces: BTreeMap::new(), marks: BTreeMap::new() });

impl Book {
    /// Bytes that a device's graphs use, and bytes that are kept for them.
    fn sums(&self, device: u32) -> Marks {
        let mut sums = Marks::default();
        for piece in self.pieces.values().filter(|piece| piece.device == device && piece.state != State::Fresh) {
            sums.reserved += piece.bytes;
            sums.used += if piece.state == State::Freed { 0 } else { piece.bytes };
        }
        sums
    }
}

/// What a device's graphs hold: used now and at most, reserved now and at most.
#[must_use]
pub(crate) fn footprint(device: u32) -> [u64; 4] {
    let book = lock(&BOOK);
    let (now, high) = (book.sums(device), book.marks.get(&device).copied().unwrap_or_default());
    [now.used, high.used, now.reserved, high.reserved]
}

/// Counts a high mark anew: that of the reserved or of the used memory.
pub(crate) fn reset_mark(device: u32, reserved: bool) {
    let mut book = lock(&BOOK);
    let now = book.sums(device);
    let marks = book.marks.entry(device).or_default();
    if reserved {
        marks.reserved = now.reserved;
    } else {
        marks.used = now.used;
    }
}

/// Whether a launch has allocated the memory and nobody has freed it since.
#[must_use]
pub(crate) fn is_allocated(address: u64) -> bool {
    lock(&BOOK).pieces.get(&address).is_some_and(|piece| matches!(piece.state, State::Allocated | State::Left))
}

/// A launch reaches the node that allocates this.
pub(crate) fn note_allocated(address: u64) {
    let mut book = lock(&BOOK);
    let Some(piece) = book.pieces.get_mut(&address) else { return };
    piece.state = State::Allocated;
    let device = piece.device;
    let now = book.sums(device);
    let marks = book.marks.entry(device).or_default();
    *marks = Marks { used: marks.used.max(now.used), reserved: marks.reserved.max(now.reserved) };
}

/// What is to be done with memory that is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freed {
    /// Nothing: its graph keeps it.
    Kept,
    /// It goes back to the device.
    Gone,
}

/// Frees memory, by a free node or by the program.
///
/// # Errors
/// INVALID_VALUE if it is not allocated.
pub(crate) fn note_freed(address: u64) -> Try<Freed> {
    let mut book = lock(&BOOK);
    let piece = book.pieces.get_mut(&address).ok_or(error::INVALID_VALUE)?;
    match piece.state {
        State::Fresh | State::Freed => Err(error::INVALID_VALUE),
        State::Allocated => {
            piece.state = State::Freed;
            Ok(Freed::Kept)
        }
        State::Left => {
            book.pieces.remove(&address);
            Ok(Freed::Gone)
        }
    }
}

/// The memory has gone with its context.
pub(super) fn forget(address: u64) {
    lock(&BOOK).pieces.remove(&address);
}

/// A graph's memory; the last of its graphs and executables ends it.
#[derive(Debug)]
pub struct Owned {
    /// Where the memory lies.
    pub address: u64,
    /// How much it is.
    pub bytes: u64,
    /// Ordinal of its device.
    pub device: u32,
    /// Id of the allocation.
    id: u64,
}

impl Owned {
    /// Finds a place for the context with this id.
    ///
    /// # Errors
    /// As allocating.
    pub fn new(session: &Connection, context: u64, device: u32, bytes: u64) -> Try<Arc<Self>> {
        let address = allocate_as(session, context, device, bytes, Sort::Graph)?;
        let id = read_allocations().at(address).map_or(0, |known| known.id);
        lock(&BOOK).pieces.insert(address, Piece { bytes, device, id, state: State::Fresh });
        Ok(Arc::new(Self { address, bytes, device, id }))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        {
            let mut book = lock(&BOOK);
            match book.pieces.get_mut(&self.address).filter(|piece| piece.id == self.id) {
                Some(piece) if piece.state == State::Allocated => return piece.state = State::Left,
                Some(_) => drop(book.pieces.remove(&self.address)),
                None => return,
            }
        }
        let Ok(session) = process::find_connection() else { return };
        let ours = read_allocations().at(self.address).is_some_and(|known| known.id == self.id);
        if ours && let Some(gone) = write_allocations().remove(self.address) {
            // A session that is lost has nothing left to give back.
            let _ = release(session, &gone);
        }
    }
}
