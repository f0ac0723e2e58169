//! Headers of 64-bit little-endian ELF files: how long the file is, and for which architecture.
//!
//! Layouts and constants are those of the System V ABI ("Tool Interface Standard: ELF", chapter 1).
//! What the flags and the ABI version of a CUDA file mean was read from files that nvcc made.

use crate::error::{Error, Result};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `Elf64_Ehdr`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 4],
    pub(crate) class: u8,
    pub(crate) byte_order: u8,
    version: u8,
    os_abi: u8,
    abi_version: u8,
    padding: [u8; 7],
    pub(crate) kind: U16,
    pub(crate) machine: U16,
    file_version: U32,
    entry: U64,
    pub(crate) segments_at: U64,
    pub(crate) sections_at: U64,
    flags: U32,
    header_size: U16,
    pub(crate) segment_size: U16,
    pub(crate) segment_count: U16,
    pub(crate) section_size: U16,
    pub(crate) section_count: U16,
    pub(crate) names_section: U16,
}

/// `Elf64_Phdr`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) kind: U32,
    flags: U32,
    pub(crate) offset: U64,
    address: U64,
    physical: U64,
    pub(crate) file_size: U64,
    pub(crate) memory_size: U64,
    align: U64,
}

/// `Elf64_Shdr`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
pub(crate) struct Section {
    pub(crate) name: U32,
    pub(crate) kind: U32,
    pub(crate) flags: U64,
    pub(crate) address: U64,
    pub(crate) offset: U64,
    pub(crate) size: U64,
    pub(crate) link: U32,
    pub(crate) info: U32,
    pub(crate) align: U64,
    entry_size: U64,
}

impl Header {
    /// Says where the tables are in a file whose entries are of this crate's sizes.
    pub(crate) fn place_tables(&mut self, segments_at: u64, sections_at: u64, section_count: u16, names_section: u16) {
        self.segments_at = U64::new(segments_at);
        self.segment_size = U16::new(size_of::<Segment>() as u16);
        self.sections_at = U64::new(sections_at);
        self.section_size = U16::new(size_of::<Section>() as u16);
        self.section_count = U16::new(section_count);
        self.names_section = U16::new(names_section);
    }
}

/// Bytes of the file header.
pub(crate) const HEADER_SIZE: usize = size_of::<Header>();

/// `ELFCLASS64`.
pub(crate) const CLASS_64: u8 = 2;
/// `ELFDATA2LSB`.
pub(crate) const LITTLE_ENDIAN: u8 = 1;
/// `EM_CUDA`.
pub(crate) const MACHINE_CUDA: u16 = 190;
/// From this ABI version on, the architecture is in the second byte of the header's flags.
const ABI_MOVED_ARCH: u8 = 8;
/// `SHT_NULL` and `SHT_NOBITS`: sections without bytes in the file.
const NO_BYTES: [u32; 2] = [0, 8];

/// No image is larger; a table beyond this is a lie.
const MAX_LEN: u64 = 1 << 40;

fn read_header(prefix: &[u8]) -> Result<Header> {
    match Header::read_from_prefix(prefix) {
        Ok((header, _)) => Ok(header),
        Err(_) => Err(Error::Truncated { what: "ELF header", at: 0, needed: HEADER_SIZE as u64, have: prefix.len() as u64 }),
    }
}

/// The end of a table, or an error if it lies beyond anything sensible. `field`: where its offset
/// is written.
fn table_end(what: &'static str, field: usize, offset: u64, size: u64, count: u64) -> Result<u64> {
    let end = size.checked_mul(count).and_then(|bytes| offset.checked_add(bytes)).filter(|end| *end <= MAX_LEN);
    end.ok_or(Error::Corrupt { what, at: field as u64, found: offset, expected: "a place within a file of at most 1 TiB" })
}

/// Bytes from the start of the file that hold the header and both header tables. [`file_length`]
/// needs them.
///
/// # Errors
/// If `prefix` is shorter than [`HEADER_SIZE`], or is not a 64-bit little-endian file.
pub(crate) fn needed_prefix(prefix: &[u8]) -> Result<u64> {
    let header = read_header(prefix)?;
    if header.class != CLASS_64 || header.byte_order != LITTLE_ENDIAN {
        return Err(Error::Corrupt {
            what: "ELF class and byte order",
            at: offset_of!(Header, class) as u64,
            found: u64::from(header.class) << 8 | u64::from(header.byte_order),
            expected: "64 bits, little endian",
        });
    }
    let (segments_at, sections_at) = (offset_of!(Header, segments_at), offset_of!(Header, sections_at));
    let (segment_size, segment_count) = (u64::from(header.segment_size), u64::from(header.segment_count));
    let (section_size, section_count) = (u64::from(header.section_size), u64::from(header.section_count));
    let segments_end = table_end("ELF program headers", segments_at, header.segments_at.get(), segment_size, segment_count)?;
    let sections_end = table_end("ELF section headers", sections_at, header.sections_at.get(), section_size, section_count)?;
    let tables = [
        (segment_count, segment_size, size_of::<Segment>(), offset_of!(Header, segment_size)),
        (section_count, section_size, size_of::<Section>(), offset_of!(Header, section_size)),
    ];
    for (count, size, least, at) in tables {
        if count > 0 && size < least as u64 {
            return Err(Error::Corrupt { what: "ELF table entry size", at: at as u64, found: size, expected: "at least that of a 64-bit header" });
        }
    }
    Ok(segments_end.max(sections_end).max(HEADER_SIZE as u64))
}

/// The file's length: the largest end over both header tables and everything they point to.
/// Compilers put either table last, so the section table alone is not enough. `prefix` has at least
/// [`needed_prefix`] bytes.
///
/// # Errors
/// If something lies beyond 1 TiB, or the prefix is too short.
pub(crate) fn file_length(prefix: &[u8]) -> Result<u64> {
    let mut end = needed_prefix(prefix)?;
    let header = read_header(prefix)?;
    let entry = |table: u64, size: U16, n: u16| {
        let at = table + u64::from(n) * u64::from(size.get());
        let bytes = usize::try_from(at).ok().and_then(|at| prefix.get(at..)).unwrap_or_default();
        (at as usize, bytes)
    };
    for n in 0..header.segment_count.get() {
        let (at, bytes) = entry(header.segments_at.get(), header.segment_size, n);
        let Ok((segment, _)) = Segment::read_from_prefix(bytes) else { continue };
        end = end.max(table_end("ELF segment", at, segment.offset.get(), segment.file_size.get(), 1)?);
    }
    for n in 0..header.section_count.get() {
        let (at, bytes) = entry(header.sections_at.get(), header.section_size, n);
        let Ok((section, _)) = Section::read_from_prefix(bytes) else { continue };
        if !NO_BYTES.contains(&section.kind.get()) {
            end = end.max(table_end("ELF section", at, section.offset.get(), section.size.get(), 1)?);
        }
    }
    Ok(end)
}

/// The architecture in the header flags of a compiled image (90 for `sm_90`). 0 for other ELF
/// files.
///
/// # Errors
/// If the header is not complete.
pub(crate) fn read_arch(bytes: &[u8]) -> Result<u32> {
    let header = read_header(bytes)?;
    if header.machine.get() != MACHINE_CUDA {
        return Ok(0);
    }
    let flags = header.flags.get();
    Ok(if header.abi_version >= ABI_MOVED_ARCH { flags >> 8 & 0xff } else { flags & 0xff })
}
