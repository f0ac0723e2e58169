//! How many bytes belong to a pointer.
//!
//! The driver's module calls take a pointer without a length. [`total_len`] computes it from the
//! first bytes, and says how many it needs if those given are too few.

use crate::{Error, Format, Result, container, identify};

/// What [`total_len`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The data has this many bytes.
    Known(u64),
    /// Ask again with this many bytes from the start.
    NeedPrefix(u64),
    /// Text: it ends at its first zero byte.
    ToZeroByte,
}

/// Bytes of an ELF header for 64-bit machines.
const ELF_HEADER: usize = 64;

/// No image is larger; a table beyond this is a lie.
const MAX_LEN: u64 = 1 << 40;

/// Length of the module data that begins with `prefix`. A container's is that of the first one.
pub fn total_len(prefix: &[u8]) -> Result<Length> {
    if prefix.len() < 4 {
        return Ok(Length::NeedPrefix(4));
    }
    match identify(prefix)? {
        Format::Container if prefix.len() < 16 => Ok(Length::NeedPrefix(16)),
        Format::Container => container::container_len(prefix, 0).map(Length::Known),
        Format::Elf => elf_len(prefix),
        Format::Ptx => Ok(Length::ToZeroByte),
        Format::Wrapper => Err(Error::IsWrapper),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

fn too_long(what: &'static str, at: u64, found: u64) -> Error {
    Error::Corrupt { what, at, found, expected: "a place within a file of at most 1 TiB" }
}

/// The end of a table, or an error if it lies beyond anything sensible.
fn table_end(what: &'static str, field: u64, offset: u64, size: u64, count: u64) -> Result<u64> {
    size.checked_mul(count).and_then(|bytes| offset.checked_add(bytes)).filter(|end| *end <= MAX_LEN).ok_or_else(|| too_long(what, field, offset))
}

/// The largest end over both header tables and everything they point to. Compilers put either
/// table last, so looking at the section table alone is not enough.
fn elf_len(prefix: &[u8]) -> Result<Length> {
    if prefix.len() < ELF_HEADER {
        return Ok(Length::NeedPrefix(ELF_HEADER as u64));
    }
    if prefix[4] != 2 || prefix[5] != 1 {
        return Err(Error::Corrupt {
            what: "ELF class and byte order",
            at: 4,
            found: u64::from(prefix[4]) << 8 | u64::from(prefix[5]),
            expected: "64 bits, little endian",
        });
    }
    let header = |at| u64_at(prefix, at).unwrap_or(0);
    let half = |at| u64::from(u16_at(prefix, at).unwrap_or(0));
    let (segments_at, sections_at) = (header(32), header(40));
    let (segment_size, segment_count) = (half(54), half(56));
    let (section_size, section_count) = (half(58), half(60));
    let segments_end = table_end("ELF program headers", 32, segments_at, segment_size, segment_count)?;
    let sections_end = table_end("ELF section headers", 40, sections_at, section_size, section_count)?;
    for (count, size, least, at) in [(segment_count, segment_size, 56, 54), (section_count, section_size, 64, 58)] {
        if count > 0 && size < least {
            return Err(Error::Corrupt { what: "ELF table entry size", at, found: size, expected: "at least that of a 64-bit header" });
        }
    }
    let tables_end = segments_end.max(sections_end).max(ELF_HEADER as u64);
    if (prefix.len() as u64) < tables_end {
        return Ok(Length::NeedPrefix(tables_end));
    }
    let mut end = tables_end;
    // Both tables lie within the prefix, so the indices below fit.
    for n in 0..segment_count {
        let at = (segments_at + n * segment_size) as usize;
        let offset = u64_at(prefix, at + 8).unwrap_or(0);
        let size = u64_at(prefix, at + 32).unwrap_or(0);
        end = end.max(table_end("ELF segment", at as u64, offset, size, 1)?);
    }
    for n in 0..section_count {
        const NO_BITS: u32 = 8;
        let at = (sections_at + n * section_size) as usize;
        if matches!(u32_at(prefix, at + 4), Some(0 | NO_BITS)) {
            continue;
        }
        let offset = u64_at(prefix, at + 24).unwrap_or(0);
        let size = u64_at(prefix, at + 32).unwrap_or(0);
        end = end.max(table_end("ELF section", at as u64, offset, size, 1)?);
    }
    Ok(Length::Known(end))
}

/// The architecture in the header flags of a compiled image; 0 for other ELF files.
pub(crate) fn elf_arch(bytes: &[u8]) -> Result<u32> {
    const MACHINE_CUDA: u16 = 190;
    let truncated = Error::Truncated { what: "ELF header", at: 0, needed: ELF_HEADER as u64, have: bytes.len() as u64 };
    let header = bytes.get(..ELF_HEADER).ok_or(truncated)?;
    if u16_at(header, 18) != Some(MACHINE_CUDA) {
        return Ok(0);
    }
    let flags = u32_at(header, 48).unwrap_or(0);
    // The second ABI version moved the number up by one byte.
    let abi_version = header[8];
    Ok(if abi_version >= 8 { flags >> 8 & 0xff } else { flags & 0xff })
}
