//! The ring itself: one producer, one consumer, records of whole 8-byte words that never wrap.
//!
//! `head` is in the ring file (client-written), `taken` in the page (executor-written). Both count
//! bytes for ever; modulo the data size they are offsets. The producer fills the rest of the data
//! area with a pad record when a record does not fit before its end.

use crate::memory::{Memory, Ordering};
use cumux_wire::layout;
use cumux_wire::record::{self, DecodeError};

/// Where the data area lies and how long it is (a power of two). The shipped one is
/// [`Shape::SESSION`]; models use small ones.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Offset of the data area in the ring file.
    pub data: usize,
    /// Length of the data area.
    pub data_bytes: usize,
}

impl Shape {
    /// The shape of every session's ring.
    pub const SESSION: Shape = Shape { data: layout::ring::DATA, data_bytes: layout::ring::DATA_BYTES };
}

/// The client's end. Calls are serialised by the client's lock.
#[derive(Debug)]
pub struct Producer {
    shape: Shape,
    head: u64,
    /// The last value of `taken` that was read; it is read again only when there seems to be no
    /// room.
    taken: u64,
}

impl Producer {
    /// The producer of an empty ring.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { shape, head: 0, taken: 0 }
    }

    /// Pushes one record if there is room; false if the executor must release space first.
    pub fn try_push(&mut self, ring: &impl Memory, page: &impl Memory, bytes: &[u8]) -> bool {
        let size = self.shape.data_bytes as u64;
        let offset = (self.head & (size - 1)) as usize;
        let to_end = self.shape.data_bytes - offset;
        let pad = if bytes.len() > to_end { to_end } else { 0 };
        let needed = (pad + bytes.len()) as u64;
        if size - (self.head - self.taken) < needed {
            self.taken = page.load64(layout::page::TAKEN, Ordering::Acquire).min(self.head);
            if size - (self.head - self.taken) < needed {
                return false;
            }
        }
        let at = if pad > 0 {
            ring.write(self.shape.data + offset, &record::pad(pad as u32));
            0
        } else {
            offset
        };
        ring.write(self.shape.data + at, bytes);
        self.head += needed;
        ring.store64(layout::ring::HEAD, self.head, Ordering::Release);
        true
    }
}

/// The executor's end.
#[derive(Debug)]
pub struct Consumer {
    shape: Shape,
    taken: u64,
    /// Bytes in the ring when it was last read.
    filled: u64,
}

/// What is next in the ring.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The client has pushed no further record.
    Empty,
    /// A private copy of a record is in the buffer. [`Consumer::release`] with this position
    /// releases its space.
    Record {
        /// Ring position behind the record.
        end: u64,
    },
}

impl Consumer {
    /// A consumer that begins at ring position `taken` (0 for a new session).
    #[must_use]
    pub fn new(shape: Shape, taken: u64) -> Self {
        Self { shape, taken, filled: 0 }
    }

    /// Ring position of the next record.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Copies the next record into `buffer` and skips pads.
    ///
    /// # Errors
    /// [`DecodeError`] when positions or lengths are impossible: the client lies or its memory is
    /// damaged.
    pub fn peek(&mut self, ring: &impl Memory, buffer: &mut Vec<u8>) -> Result<Next, DecodeError> {
        loop {
            let head = ring.load64(layout::ring::HEAD, Ordering::Acquire);
            let filled = head.wrapping_sub(self.taken);
            self.filled = filled;
            if filled == 0 {
                return Ok(Next::Empty);
            }
            if filled > self.shape.data_bytes as u64 || !filled.is_multiple_of(8) {
                return Err(DecodeError::Field("ring head"));
            }
            let (offset, filled) = ((self.taken & (self.shape.data_bytes as u64 - 1)) as usize, filled as usize);
            let available = filled.min(self.shape.data_bytes - offset);
            if available < 8 {
                return Err(DecodeError::Field("ring head"));
            }
            let mut first = [0; 8];
            ring.read(self.shape.data + offset, &mut first);
            let (length, pad) = record::length(first, available)?;
            if pad {
                self.taken += length as u64;
                continue;
            }
            buffer.clear();
            buffer.resize(length, 0);
            ring.read(self.shape.data + offset, buffer);
            // The length was decided on the first copy; the client cannot change it any more.
            buffer[..8].copy_from_slice(&first);
            return Ok(Next::Record { end: self.taken + length as u64 });
        }
    }

    /// Whether the ring was more than half full when it was last read. Only then can the client be
    /// waiting for room, because no record is longer than the other half.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.filled > self.shape.data_bytes as u64 / 2
    }

    /// Moves on to `end`. The client gets the space back with [`Consumer::release`].
    pub fn advance(&mut self, end: u64) {
        self.taken = end;
    }

    /// Releases the space up to `end` to the client.
    pub fn release(&mut self, page: &impl Memory, end: u64) {
        self.taken = end;
        page.store64(layout::page::TAKEN, end, Ordering::Release);
    }
}
