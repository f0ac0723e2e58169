//! Unpacking, bounded.
//!
//! A few bytes can announce, or really unpack to, gigabytes. So the announced size is held against
//! the caller's limit first, memory is taken only as data appears (zstd) or where the input can
//! fill it (LZ4), and data that yields more or less than announced is an error.

use crate::error::{Error, Result};
use std::borrow::Cow;
use std::io::Read;

/// One byte of LZ4 yields at most this many.
const LZ4_MAX_RATIO: u64 = 255;

/// One byte of packed machine code becomes some 4 to 20.
const ZSTD_USUAL_RATIO: usize = 24;

/// How the data of an entry is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// One LZ4 block.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

/// Packed data, and what its entry says of it.
pub(crate) struct Packed<'a> {
    /// Where the entry begins in the data, for messages.
    pub(crate) at: u64,
    pub(crate) compression: Compression,
    pub(crate) stored: &'a [u8],
    /// Bytes after unpacking, as announced.
    pub(crate) size: u64,
}

pub(crate) fn unpack<'a>(packed: &Packed<'a>, limit: u64) -> Result<Cow<'a, [u8]>> {
    if packed.size > limit {
        return Err(Error::TooLarge { at: packed.at, size: packed.size, limit });
    }
    match packed.compression {
        Compression::None => Ok(Cow::Borrowed(packed.stored)),
        Compression::Lz4 => unpack_lz4(packed).map(Cow::Owned),
        Compression::Zstd => unpack_zstd(packed).map(Cow::Owned),
    }
}

fn unpack_error(packed: &Packed<'_>, algorithm: &'static str, reason: impl ToString) -> Error {
    Error::Unpack { at: packed.at, algorithm, reason: reason.to_string() }
}

fn size_error(packed: &Packed<'_>, algorithm: &'static str, found: u64) -> Error {
    let reason = format!("{} bytes were announced, {found} came out", packed.size);
    unpack_error(packed, algorithm, reason)
}

fn unpack_lz4(packed: &Packed<'_>) -> Result<Vec<u8>> {
    let possible = (packed.stored.len() as u64).saturating_mul(LZ4_MAX_RATIO);
    if packed.size > possible {
        return Err(unpack_error(packed, "LZ4", format!("{} bytes cannot become the announced {}", packed.stored.len(), packed.size)));
    }
    let size = usize::try_from(packed.size).map_err(|error| unpack_error(packed, "LZ4", error))?;
    let mut out = vec![0; size];
    let written = lz4_flex::block::decompress_into(packed.stored, &mut out).map_err(|error| unpack_error(packed, "LZ4", error))?;
    if written != size {
        return Err(size_error(packed, "LZ4", written as u64));
    }
    Ok(out)
}

fn unpack_zstd(packed: &Packed<'_>) -> Result<Vec<u8>> {
    let fail = |error: &dyn std::fmt::Display| unpack_error(packed, "zstd", error);
    let decoder = zstd::stream::read::Decoder::with_buffer(packed.stored).map_err(|error| fail(&error))?.single_frame();
    // As much as code usually becomes; more is taken as data appears.
    let mut out = Vec::with_capacity(usize::try_from(packed.size).unwrap_or(usize::MAX).min(packed.stored.len().saturating_mul(ZSTD_USUAL_RATIO)));
    // One byte more than announced shows that there is more.
    decoder.take(packed.size.saturating_add(1)).read_to_end(&mut out).map_err(|error| fail(&error))?;
    if out.len() as u64 != packed.size {
        return Err(size_error(packed, "zstd", out.len() as u64));
    }
    Ok(out)
}
