//! Records of the ring: one fixed header, then the fields of the operation, all 8-byte aligned, no
//! pointers into the client's private memory.
//!
//! [`encode`] is used by the shim, [`decode`] by the executor on a private copy. `decode` is the
//! one checked constructor: whatever it returns has a known operation, sizes that fit the record, a
//! stream index below [`crate::layout::STREAMS`], an answer slot below [`crate::layout::ANSWERS`]
//! and dimension products that do not overflow. It says nothing about handles and addresses: those
//! the executor looks up.

mod array;
mod fields;
mod launch;
mod lending;
mod op;
mod tensor;

pub use array::{ARRAY_FLAGS, ArrayWish, CopyEnd, ObjectWish, Resource, TextureWish, ViewWish};
pub use launch::{Launch, LaunchFields, Parameters};
pub use lending::{event_cell, lent};
pub use op::Op;
pub use tensor::TensorWish;

use crate::layout::{ANSWERS, STREAMS};
use fields::{Field, Reader};

/// Stream field of a record that belongs to no stream.
pub const NO_STREAM: u32 = u32::MAX;
/// Answer field of a record that wants no answer.
pub const NO_ANSWER: u32 = u32::MAX;
/// Bytes of the header in front of every record.
pub const HEADER_BYTES: usize = 32;
/// Longest record: a launch with the largest parameter block (32,764 bytes, CUDA 12.1 and later)
/// and its fields.
pub const MAX_BYTES: usize = 33 * 1024;
/// Largest kernel parameter block in bytes.
pub const MAX_PARAMETERS: usize = 32_764;

/// What every record says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Stream index, or [`NO_STREAM`].
    pub stream: u32,
    /// Answer slot, or [`NO_ANSWER`].
    pub answer: u32,
    /// Position in its stream (1, 2, 3 …); for records without a stream the request number that the
    /// answer repeats.
    pub seq: u64,
    /// Request number of an answered record that is also in a stream; else 0.
    pub request: u64,
}

impl Header {
    /// The number that the answer to this record repeats.
    #[must_use]
    pub const fn request_number(&self) -> u64 {
        if self.stream == NO_STREAM { self.seq } else { self.request }
    }
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where the record belongs and how it is answered.
    pub header: Header,
    /// What it asks for.
    pub op: Op,
}

/// A rectangle of bytes: `depth` slices of `height` rows of `width` bytes. The strides beside it
/// are in bytes; a stride may be 0 where its count is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyExtent {
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Field for CopyExtent {
    fn write(&self, out: &mut Vec<u8>) {
        [self.width, self.height, self.depth].write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [width, height, depth] = Field::read(reader)?;
        Ok(Self { width, height, depth })
    }
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The record's length field does not fit the bytes.
    #[error("a record claims {claimed} bytes where {available} are there")]
    Length {
        /// Bytes that the record says it has.
        claimed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// The record ends within the fields of its operation.
    #[error("a record of {bytes} bytes ends before byte {needed}, where a field of its operation ends")]
    Short {
        /// Bytes of the record.
        bytes: usize,
        /// Bytes up to the end of the field that is cut.
        needed: usize,
    },
    /// No operation of this version has this number.
    #[error("unknown operation {0}; client and service must be of the same cumux version")]
    Operation(u32),
    /// The field of this name has a value that it may not have.
    #[error("field {0} is out of range")]
    Field(&'static str),
}

/// Words of a launch's record in front of the parameter block.
const LAUNCH_WORDS: usize = HEADER_BYTES / 4 + 14;

/// [`encode`] for a launch whose parameter block of `length` bytes is not gathered yet: `fill`
/// writes it to its place in the record. It must write every byte, because `out` is used again and
/// again. The record is at the beginning of `out`, which grows if it is too short; returns how
/// long the record is.
#[inline]
pub fn encode_launch(header: &Header, fields: &LaunchFields, length: usize, fill: impl FnOnce(&mut [u8]), out: &mut Vec<u8>) -> usize {
    const START: usize = LAUNCH_WORDS * 4;
    let bytes = (START + length).next_multiple_of(8);
    if out.len() < bytes {
        out.resize(bytes, 0);
    }
    let record = &mut out[..bytes];
    // The padding; what lies in front of it in this word is written below.
    record[bytes - 8..].copy_from_slice(&[0; 8]);
    let (head, rest) = record.split_at_mut(START);
    let words = launch_words(bytes as u32, header, &fields.words(length as u32));
    head.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
    fill(&mut rest[..length]);
    bytes
}

/// Header and fields of a launch whose record has so many bytes.
#[inline]
fn launch_words(bytes: u32, header: &Header, fields: &[u32; 14]) -> [u32; LAUNCH_WORDS] {
    let mut words = [0; LAUNCH_WORDS];
    let (head, rest) = words.split_at_mut(HEADER_BYTES / 4);
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let ([seq, seq_high], [request, request_high]) = (halves(header.seq), halves(header.request));
    head.copy_from_slice(&[bytes, op::LAUNCH, header.stream, header.answer, seq, seq_high, request, request_high]);
    rest.copy_from_slice(fields);
    words
}

/// Appends the record to `out`: header, fields, zero padding to a multiple of 8.
pub fn encode(header: &Header, op: &Op, out: &mut Vec<u8>) {
    let start = out.len();
    [0, op.code(), header.stream, header.answer].write(out);
    [header.seq, header.request].write(out);
    op.write(out);
    let end = out.len().next_multiple_of(8);
    out.extend_from_slice(&[0; 8][..end - out.len()]);
    let bytes = (end - start) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// Length in bytes that the first eight bytes of a record claim, and whether it is a pad. Checked
/// to be a multiple of 8, at least 8, at most `available`, and for anything but a pad between
/// [`HEADER_BYTES`] and [`MAX_BYTES`].
///
/// # Errors
/// [`DecodeError::Length`] when the claim cannot be true.
pub fn length(first: [u8; 8], available: usize) -> Result<(usize, bool), DecodeError> {
    let [a, b, c, d, e, f, g, h] = first;
    let claimed = u32::from_le_bytes([a, b, c, d]) as usize;
    let pad = u32::from_le_bytes([e, f, g, h]) == Op::Pad.code();
    let fits = claimed >= 8 && claimed.is_multiple_of(8) && claimed <= available;
    if fits && (pad || (HEADER_BYTES..=MAX_BYTES).contains(&claimed)) { Ok((claimed, pad)) } else { Err(DecodeError::Length { claimed, available }) }
}

/// The beginning of a pad: a record of `bytes` bytes (a multiple of 8) that nobody acts upon.
#[must_use]
pub fn pad(bytes: u32) -> [u8; 8] {
    let mut first = [0; 8];
    let (length, code) = first.split_at_mut(4);
    length.copy_from_slice(&bytes.to_le_bytes());
    code.copy_from_slice(&Op::Pad.code().to_le_bytes());
    first
}

/// Decodes a private copy of one record.
///
/// # Errors
/// [`DecodeError`] when the bytes are not a record that may be acted upon.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut reader = Reader::new(bytes);
    let [claimed, code, stream, answer] = Field::read(&mut reader)?;
    let [seq, request] = Field::read(&mut reader)?;
    if claimed as usize != bytes.len() {
        return Err(DecodeError::Length { claimed: claimed as usize, available: bytes.len() });
    }
    let header = Header { stream, answer, seq, request };
    if header.answer != NO_ANSWER && header.answer as usize >= ANSWERS {
        return Err(DecodeError::Field("answer slot"));
    }
    let op = Op::read(code, &mut reader)?;
    if op.in_stream() != (header.stream != NO_STREAM) || (op.in_stream() && header.stream as usize >= STREAMS) {
        return Err(DecodeError::Field("stream"));
    }
    Ok(Record { header, op })
}

/// Bytes from `base` to the end of a rectangle with these strides, or `None` where that overflows
/// 64 bits.
#[must_use]
pub fn span(base: u64, pitch: u64, slice: u64, extent: CopyExtent) -> Option<u64> {
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Some(0);
    }
    let rows = (extent.height - 1).checked_mul(pitch)?;
    let slices = (extent.depth - 1).checked_mul(slice)?;
    let bytes = rows.checked_add(slices)?.checked_add(extent.width)?;
    base.checked_add(bytes)?;
    Some(bytes)
}
