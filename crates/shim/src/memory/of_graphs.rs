//! Memory that graphs allocate, and who has it now.
//!
//! Its address is fixed when the node is made, and stays this graph's as long as a graph or an
//! executable names it: a launch allocates it, and a free node or the program frees it for the next
//! launch. What is allocated when the last of them ends is the program's, until it frees it (CUDA
//! C++ Programming Guide, *Graph Memory Nodes*).
//!
//! Large pieces are reservations: they have physical memory from the first launch until the program
//! frees them or memory runs out while they are free. Small ones keep theirs.

use super::{Allocation, Sort, allocate_as, read_allocations, request_memory, write_allocations};
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error};
use crate::process;
use crate::sync::lock;
use cumux_abi::CUmemAccess_flags;
use cumux_wire::record::Op;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Reservations and physical memory are multiples of this. Smaller pieces are none.
const GRANULARITY: u64 = 2 << 20;

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

/// What lies at the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backing {
    /// Memory like any other.
    Plain,
    /// A reservation of this many bytes without physical memory.
    Reserved(u64),
    /// A reservation with the physical memory of this handle in it.
    Mapped(u64, u32),
}

#[derive(Debug)]
struct Piece {
    bytes: u64,
    device: u32,
    /// Id of the allocation.
    id: u64,
    state: State,
    backing: Backing,
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
            sums.reserved += if matches!(piece.backing, Backing::Reserved(_)) { 0 } else { piece.bytes };
            sums.used += if piece.state == State::Freed { 0 } else { piece.bytes };
        }
        sums
    }

    /// Raises the high marks to what is there now.
    fn mark(&mut self) {
        let devices: Vec<u32> = self.pieces.values().map(|piece| piece.device).collect();
        for device in devices {
            let now = self.sums(device);
            let marks = self.marks.entry(device).or_default();
            *marks = Marks { used: marks.used.max(now.used), reserved: marks.reserved.max(now.reserved) };
        }
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

/// Allocates for a launch, before anything of it is sent.
///
/// # Errors
/// OUT_OF_MEMORY; then nothing is allocated.
pub(crate) fn allocate_for_launch(session: &Connection, addresses: &[u64]) -> Try {
    let mut before = Vec::with_capacity(addresses.len());
    {
        // What is allocated is not reclaimed while the rest gets its memory.
        let mut book = lock(&BOOK);
        for address in addresses {
            let Some(piece) = book.pieces.get_mut(address) else { continue };
            before.push((*address, std::mem::replace(&mut piece.state, State::Allocated)));
        }
    }
    let outcome = addresses.iter().try_for_each(|address| map(session, *address));
    let mut book = lock(&BOOK);
    if outcome.is_err() {
        for (address, state) in before {
            if let Some(piece) = book.pieces.get_mut(&address) {
                piece.state = state;
            }
        }
    }
    book.mark();
    outcome
}

/// A launch reaches the node that allocates this.
pub(crate) fn note_allocated(address: u64) {
    let mut book = lock(&BOOK);
    if let Some(piece) = book.pieces.get_mut(&address) {
        piece.state = State::Allocated;
    }
    book.mark();
}

/// Gives a reservation physical memory, if it has none.
fn map(session: &Connection, address: u64) -> Try {
    let wanted = lock(&BOOK).pieces.get(&address).and_then(|piece| match piece.backing {
        Backing::Reserved(bytes) => Some((bytes, piece.device)),
        Backing::Plain | Backing::Mapped(..) => None,
    });
    let Some((bytes, device)) = wanted else { return Ok(()) };
    let handle = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
    request_memory(session, &Op::VmmCreate { handle, device, bytes })?;
    let access = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;
    let mapped = session.call(&Op::VmmMap { address, bytes, handle, offset: 0 });
    if let Err(code) = mapped.and_then(|_| session.call(&Op::VmmAccess { address, bytes, access })) {
        if mapped.is_ok() {
            session.call(&Op::VmmUnmap { address, bytes })?;
        }
        session.control(&Op::VmmRelease { handle })?;
        return Err(code);
    }
    if let Some(piece) = lock(&BOOK).pieces.get_mut(&address) {
        piece.backing = Backing::Mapped(bytes, handle);
    }
    Ok(())
}

/// Takes the physical memory out of a reservation. Nothing under way uses it any more.
fn unmap(session: &Connection, address: u64) -> Try {
    let mapped = lock(&BOOK).pieces.get_mut(&address).and_then(|piece| match piece.backing {
        Backing::Mapped(bytes, handle) => {
            piece.backing = Backing::Reserved(bytes);
            Some((bytes, handle))
        }
        Backing::Plain | Backing::Reserved(_) => None,
    });
    let Some((bytes, handle)) = mapped else { return Ok(()) };
    session.call(&Op::VmmUnmap { address, bytes })?;
    session.control(&Op::VmmRelease { handle })
}

/// Memory has run out: what no graph uses at the moment goes back to the device. Whether there was
/// any.
pub(crate) fn reclaim(session: &Connection) -> bool {
    let idle = |piece: &Piece| piece.state == State::Freed && matches!(piece.backing, Backing::Mapped(..));
    let idle: Vec<u64> = lock(&BOOK).pieces.iter().filter(|(_, piece)| idle(piece)).map(|(address, _)| *address).collect();
    // A launch that has freed it may still be under way. A session in trouble reports it by itself.
    !idle.is_empty() && session.drain_all().is_ok() && idle.iter().all(|address| unmap(session, *address).is_ok())
}

/// Marks memory as free. The piece if its graph is gone: then it is the program's no more.
fn note_freed(address: u64) -> Try<Option<Piece>> {
    let mut book = lock(&BOOK);
    let piece = book.pieces.get_mut(&address).ok_or(error::INVALID_VALUE)?;
    match piece.state {
        State::Fresh | State::Freed => Err(error::INVALID_VALUE),
        State::Allocated => {
            piece.state = State::Freed;
            Ok(None)
        }
        State::Left => Ok(book.pieces.remove(&address)),
    }
}

/// Frees memory that nothing under way uses.
///
/// # Errors
/// INVALID_VALUE if it is not allocated.
pub(crate) fn free(session: &Connection, address: u64) -> Try {
    match note_freed(address)? {
        None => unmap(session, address),
        Some(piece) => {
            write_allocations().remove(address);
            give_back(session, address, &piece)
        }
    }
}

/// Frees memory where a stream is. Its graph keeps it mapped for the next launch.
///
/// # Errors
/// As [`free`].
pub(crate) fn free_in_stream(session: &Connection, timeline: TimelineId, address: u64) -> Try {
    let Some(piece) = note_freed(address)? else { return Ok(()) };
    write_allocations().remove(address);
    if piece.backing == Backing::Plain {
        return session.push(timeline, &Op::FreeInStream { address }).map(drop);
    }
    session.drain_timeline(timeline)?;
    give_back(session, address, &piece)
}

/// Gives everything back to the device. Plain memory goes after everything pushed so far, the rest
/// at once.
fn give_back(session: &Connection, address: u64, piece: &Piece) -> Try {
    let bytes = match piece.backing {
        Backing::Plain => return session.control(&Op::MemFree { address }),
        Backing::Reserved(bytes) => bytes,
        Backing::Mapped(bytes, handle) => {
            session.call(&Op::VmmUnmap { address, bytes })?;
            session.control(&Op::VmmRelease { handle })?;
            bytes
        }
    };
    session.control(&Op::VmmUnreserve { address, bytes })
}

/// The memory goes with its context.
pub(super) fn end(session: &Connection, address: u64) -> Try {
    let piece = lock(&BOOK).pieces.remove(&address);
    piece.map_or(Ok(()), |piece| give_back(session, address, &piece))
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
        if bytes < GRANULARITY {
            let address = allocate_as(session, context, device, bytes, Sort::Graph)?;
            let id = read_allocations().at(address).map_or(0, |known| known.id);
            lock(&BOOK).pieces.insert(address, Piece { bytes, device, id, state: State::Fresh, backing: Backing::Plain });
            return Ok(Arc::new(Self { address, bytes, device, id }));
        }
        let room = bytes.checked_next_multiple_of(GRANULARITY).ok_or(error::OUT_OF_MEMORY)?;
        let [address, ..] = session.call(&Op::VmmReserve { bytes: room, align: GRANULARITY, fixed: 0 })?;
        // The program's own mappings keep away from it. Something there already is no reason to
        // fail.
        let _ = cumux_ring::window::reserve(address, room);
        let id = process::new_number();
        write_allocations().insert(Allocation { start: address, bytes, sort: Sort::Graph, context, device, id, sync_memops: false });
        lock(&BOOK).pieces.insert(address, Piece { bytes, device, id, state: State::Fresh, backing: Backing::Reserved(room) });
        Ok(Arc::new(Self { address, bytes, device, id }))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let gone = {
            let mut book = lock(&BOOK);
            match book.pieces.get_mut(&self.address).filter(|piece| piece.id == self.id) {
                Some(piece) if piece.state == State::Allocated => return piece.state = State::Left,
                Some(_) => book.pieces.remove(&self.address),
                None => None,
            }
        };
        let (Some(piece), Ok(session)) = (gone, process::find_connection()) else { return };
        write_allocations().remove(self.address);
        // A launch may still be under way. A session that is lost has nothing left to give back.
        if matches!(piece.backing, Backing::Mapped(..)) {
            let _ = session.drain_all();
        }
        let _ = give_back(session, self.address, &piece);
    }
}
