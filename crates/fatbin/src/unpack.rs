//! Unpacking, bounded.
//!
//! A few bytes can announce, or really unpack to, gigabytes. So the announced size is held against
//! the caller's limit first, memory is taken only as data appears (zstd) or where the input can
//! fill it (LZ4), and data that yields more or less than announced is an error.

use crate::image::{Compression, Image};
use crate::{Error, Result};
use std::borrow::Cow;
use std::io::Read;

/// One byte of LZ4 yields at most this many.
const LZ4_MAX_RATIO: u64 = 255;

pub(crate) fn unpack<'a>(image: &Image<'a>, limit: u64) -> Result<Cow<'a, [u8]>> {
    if image.size > limit {
        return Err(Error::TooLarge { at: image.at, size: image.size, limit });
    }
    match image.compression {
        Compression::None => Ok(Cow::Borrowed(image.stored)),
        Compression::Lz4 => lz4(image).map(Cow::Owned),
        Compression::Zstd => zstd(image).map(Cow::Owned),
    }
}

fn failed(image: &Image<'_>, algorithm: &'static str, reason: impl ToString) -> Error {
    Error::Unpack { at: image.at, algorithm, reason: reason.to_string() }
}

fn announced(image: &Image<'_>, algorithm: &'static str, found: u64) -> Error {
    let reason = format!("{} bytes were announced, {found} came out", image.size);
    failed(image, algorithm, reason)
}

fn lz4(image: &Image<'_>) -> Result<Vec<u8>> {
    let possible = (image.stored.len() as u64).saturating_mul(LZ4_MAX_RATIO);
    if image.size > possible {
        return Err(failed(image, "LZ4", format!("{} bytes cannot become the announced {}", image.stored.len(), image.size)));
    }
    let size = usize::try_from(image.size).map_err(|error| failed(image, "LZ4", error))?;
    let mut out = vec![0; size];
    let written = lz4_flex::block::decompress_into(image.stored, &mut out).map_err(|error| failed(image, "LZ4", error))?;
    if written != size {
        return Err(announced(image, "LZ4", written as u64));
    }
    Ok(out)
}

fn zstd(image: &Image<'_>) -> Result<Vec<u8>> {
    let fail = |error: &dyn std::fmt::Display| failed(image, "zstd", error);
    let decoder = ruzstd::decoding::StreamingDecoder::new(image.stored).map_err(|error| fail(&error))?;
    let mut out = Vec::new();
    // One byte more than announced shows that there is more.
    decoder.take(image.size.saturating_add(1)).read_to_end(&mut out).map_err(|error| fail(&error))?;
    if out.len() as u64 != image.size {
        return Err(announced(image, "zstd", out.len() as u64));
    }
    Ok(out)
}
