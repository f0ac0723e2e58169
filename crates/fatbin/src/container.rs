//! Containers and their entries.
//!
//! A container is a header of at least 16 bytes and a payload; the payload is entries back to back,
//! each a header of at least 64 bytes and its data. Header lengths are in the headers, so that
//! newer compilers can add to them; we read what we know and step over the rest.

use crate::error::{Error, Result};
use crate::format::CONTAINER_MAGIC;
use crate::image::{Image, ImageKind, Variant};
use crate::unpack::Compression;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ContainerHeader {
    magic: U32,
    version: U16,
    header_size: U16,
    payload_size: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct EntryHeader {
    kind: U16,
    version: U16,
    header_size: U32,
    /// With padding, up to the next entry.
    payload_size: U64,
    /// Without padding; 0 if the data is not compressed.
    compressed_size: U32,
    options_offset: U32,
    minor: U16,
    major: U16,
    arch: U32,
    name_offset: U32,
    name_size: U32,
    flags: U64,
    reserved: U64,
    uncompressed_size: U64,
}

/// Bytes of the header as it is today; the header itself says how long it is.
pub(crate) const HEADER_SIZE: usize = size_of::<ContainerHeader>();

/// The kind of an entry that is PTX text, and its version as nvcc 13.0 writes it.
const PTX: u16 = 1;
const PTX_VERSION: u16 = 0x0101;

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// Code for this architecture only (`sm_90a`).
const FLAG_EXACT_ARCH: u64 = 0x10_0000;
/// Code for this family of architectures (`sm_100f`).
const FLAG_FAMILY: u64 = 0x20_0000;

/// Entries are aligned to this; what is between is zero.
const ALIGNMENT: usize = 8;

/// Header and payload of the container that begins at `at`, checked against what is there.
fn read_container(bytes: &[u8], at: usize) -> Result<&[u8]> {
    let rest = &bytes[at..];
    let length = container_len(rest, at as u64)?;
    usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or(Error::Truncated {
        what: "fatbin container",
        at: at as u64,
        needed: length,
        have: rest.len() as u64,
    })
}

/// A container with one PTX text and what its compiler is told (`-O0 --fmad=false`), for a compute
/// capability.
///
/// # Errors
/// With options that do not fit into a header.
pub fn write_text(text: &[u8], arch: u32, options: &str) -> Result<Vec<u8>> {
    // Behind the header as it is read: the place of the options, then these.
    let place = size_of::<EntryHeader>();
    let start = place + 8;
    let header_size = (start + options.len() + 1).next_multiple_of(ALIGNMENT);
    let number = |size: usize| u32::try_from(size).map_err(|_| Error::Corrupt { what: "options", at: 0, found: size as u64, expected: "fewer bytes" });
    let payload_size = text.len().next_multiple_of(ALIGNMENT);
    let header = EntryHeader {
        kind: U16::new(PTX),
        version: U16::new(PTX_VERSION),
        header_size: U32::new(number(header_size)?),
        payload_size: U64::new(payload_size as u64),
        compressed_size: U32::ZERO,
        options_offset: U32::new(number(place)?),
        minor: U16::ZERO,
        major: U16::ZERO,
        arch: U32::new(arch),
        name_offset: U32::ZERO,
        name_size: U32::ZERO,
        flags: U64::ZERO,
        reserved: U64::ZERO,
        uncompressed_size: U64::ZERO,
    };
    let whole = ContainerHeader {
        magic: U32::new(CONTAINER_MAGIC),
        version: U16::new(1),
        header_size: U16::new(HEADER_SIZE as u16),
        payload_size: U64::new((header_size + payload_size) as u64),
    };
    let mut out = whole.as_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&number(start)?.to_le_bytes());
    out.extend_from_slice(&number(options.len())?.to_le_bytes());
    out.extend_from_slice(options.as_bytes());
    out.resize(HEADER_SIZE + header_size, 0);
    out.extend_from_slice(text);
    out.resize(HEADER_SIZE + header_size + payload_size, 0);
    Ok(out)
}

/// Bytes of the container whose header `prefix` begins with.
pub(crate) fn container_len(prefix: &[u8], at: u64) -> Result<u64> {
    let header = read_header(prefix, at)?;
    u64::from(header.header_size.get()).checked_add(header.payload_size.get()).ok_or(Error::Corrupt {
        what: "fatbin payload size",
        at: at + 8,
        found: header.payload_size.get(),
        expected: "a size that can exist",
    })
}

fn read_header(prefix: &[u8], at: u64) -> Result<ContainerHeader> {
    let Ok((header, _)) = ContainerHeader::read_from_prefix(prefix) else {
        return Err(Error::Truncated { what: "fatbin header", at, needed: size_of::<ContainerHeader>() as u64, have: prefix.len() as u64 });
    };
    if header.magic.get() != CONTAINER_MAGIC {
        return Err(Error::Corrupt { what: "fatbin magic", at, found: u64::from(header.magic.get()), expected: "0xBA55ED50" });
    }
    if header.version.get() != 1 {
        return Err(Error::Corrupt { what: "fatbin version", at: at + 4, found: u64::from(header.version.get()), expected: "1" });
    }
    if usize::from(header.header_size.get()) < size_of::<ContainerHeader>() {
        return Err(Error::Corrupt { what: "fatbin header size", at: at + 6, found: u64::from(header.header_size.get()), expected: "at least 16" });
    }
    Ok(header)
}

/// All entries of one container or of several back to back; zeros between and behind are padding.
pub(crate) fn read_images(bytes: &[u8]) -> Result<Vec<Image<'_>>> {
    let mut images = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let whole = read_container(bytes, at)?;
        read_entries(whole, at, &mut images)?;
        at += whole.len();
        at += bytes[at..].iter().take_while(|byte| **byte == 0).count();
    }
    Ok(images)
}

fn read_entries<'a>(whole: &'a [u8], base: usize, images: &mut Vec<Image<'a>>) -> Result<()> {
    let header_size = usize::from(read_header(whole, base as u64)?.header_size.get());
    let mut at = header_size;
    while at < whole.len() {
        let rest = &whole[at..];
        // A padded end is no entry.
        if rest.len() < ALIGNMENT && rest.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        at += read_entry(rest, (base + at) as u64, images)?;
    }
    Ok(())
}

/// Reads the entry that `rest` begins with and says how long it is.
fn read_entry<'a>(rest: &'a [u8], at: u64, images: &mut Vec<Image<'a>>) -> Result<usize> {
    let truncated = |what, needed| Error::Truncated { what, at, needed, have: rest.len() as u64 };
    let least = size_of::<EntryHeader>() as u64;
    let (header, _) = EntryHeader::read_from_prefix(rest).map_err(|_| truncated("fatbin entry header", least))?;
    let header_size = u64::from(header.header_size.get());
    if header_size < least {
        return Err(Error::Corrupt { what: "fatbin entry header size", at: at + 4, found: header_size, expected: "at least 64" });
    }
    let payload_size = header.payload_size.get();
    let length = header_size.checked_add(payload_size).ok_or(Error::Corrupt {
        what: "fatbin entry payload size",
        at: at + 8,
        found: payload_size,
        expected: "a size that can exist",
    })?;
    let whole = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(|| truncated("fatbin entry", length))?;
    let (head, payload) = whole.split_at(header_size as usize);
    let flags = header.flags.get();
    let compression = match (flags & FLAG_LZ4 != 0, flags & FLAG_ZSTD != 0) {
        (false, false) => Compression::None,
        (true, false) => Compression::Lz4,
        (false, true) => Compression::Zstd,
        (true, true) => {
            return Err(Error::Corrupt { what: "fatbin entry flags", at: at + 40, found: flags, expected: "at most one kind of compression" });
        }
    };
    let (stored, size) = match compression {
        Compression::None => (payload, payload_size),
        _ => {
            let compressed = u64::from(header.compressed_size.get());
            if compressed > payload_size {
                return Err(Error::Corrupt { what: "fatbin entry compressed size", at: at + 16, found: compressed, expected: "at most the payload size" });
            }
            // At most the payload's length, so it fits an index.
            (&payload[..compressed as usize], header.uncompressed_size.get())
        }
    };
    let variant = match (flags & FLAG_EXACT_ARCH != 0, flags & FLAG_FAMILY != 0) {
        (true, _) => Variant::Exact,
        (false, true) => Variant::Family,
        (false, false) => Variant::Any,
    };
    images.push(Image {
        kind: ImageKind::from_number(header.kind.get()),
        arch: header.arch.get(),
        variant,
        version: (header.major.get(), header.minor.get()),
        flags,
        compression,
        size,
        name: read_name(head, header.name_offset.get(), header.name_size.get()),
        options: read_options(head, header.options_offset.get()),
        at,
        stored,
    });
    Ok(whole.len())
}

/// The compiler options in an entry's header: a place there has their own place and length. Those
/// that are no text are none.
fn read_options(head: &[u8], at: u32) -> &str {
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let at = at as usize;
    let place = word(at).zip(at.checked_add(4).and_then(word)).filter(|_| at != 0);
    place.and_then(|(offset, size)| read_name(head, offset, size)).unwrap_or_default().trim_end_matches('\0')
}

/// A string inside an entry's header, if it is one.
fn read_name(head: &[u8], offset: u32, size: u32) -> Option<&str> {
    if size == 0 {
        return None;
    }
    let start = offset as usize;
    let bytes = head.get(start..start.checked_add(size as usize)?)?;
    std::str::from_utf8(bytes).ok()
}
