//! The tables of an ELF file, checked where they are read.

use super::Obstacle;
use crate::elf::{CLASS_64, Header, LITTLE_ENDIAN, MACHINE_CUDA, Section, Segment};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `ET_EXEC`.
const EXECUTABLE: u16 = 2;
/// `SHT_NOBITS`.
pub(super) const NO_BITS: u32 = 8;
/// `SHT_SYMTAB`.
pub(super) const SYMBOLS: u32 = 2;
/// `SHT_RELA` and `SHT_REL`.
const RELOCATIONS: [u32; 2] = [4, 9];
/// `SHF_ALLOC` and `SHF_EXECINSTR`.
const LOADED: u64 = 2;
const CODE: u64 = 4;
/// `STT_OBJECT` and `STT_FUNC`.
pub(super) const OBJECT: u8 = 1;
pub(super) const FUNCTION: u8 = 2;
/// The first reserved section number.
pub(super) const RESERVED: u16 = 0xff00;

/// `Elf64_Sym`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
pub(super) struct Symbol {
    name: U32,
    info: u8,
    pub(super) other: u8,
    section: U16,
    value: U64,
    size: U64,
}

impl Symbol {
    pub(super) fn kind(&self) -> u8 {
        self.info & 15
    }

    /// 0 if it is undefined; at least [`RESERVED`] if it has no section.
    pub(super) fn section(&self) -> u16 {
        self.section.get()
    }

    /// True for a `__managed__` variable.
    pub(super) fn is_managed(&self) -> bool {
        const MANAGED: u8 = 4;
        self.other & MANAGED != 0
    }

    pub(super) fn value(&self) -> u64 {
        self.value.get()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.size.get()
    }

    /// Gives it another place for its name, and its section another number.
    pub(super) fn relocate(&mut self, name: u32, section: u16) {
        self.name = U32::new(name);
        self.section = U16::new(section);
    }

    /// Gives it another place in its section, and another size.
    pub(super) fn resize(&mut self, value: u64, size: u64) {
        self.value = U64::new(value);
        self.size = U64::new(size);
    }
}

/// `Elf64_Rel`, the beginning of `Elf64_Rela`.
#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct Rel {
    offset: U64,
    kind: U32,
    symbol: U32,
}

/// A relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Relocation {
    /// Where its type is in the image.
    pub info_at: usize,
    /// Where the address is written, from the start of its section.
    pub offset: u64,
    pub kind: u32,
    pub symbol: u32,
    /// `None` if it is what is at the place.
    pub addend: Option<i64>,
}

/// An ELF file.
pub(super) struct Elf<'a> {
    image: &'a [u8],
    sections: Vec<Section>,
    names_index: usize,
    names: Option<Range<usize>>,
}

pub(super) fn damaged(what: &'static str, at: usize) -> Obstacle {
    Obstacle::Damaged { what, at: at as u64 }
}

fn is(section: &Section, flag: u64) -> bool {
    section.flags.get() & flag != 0
}

/// True if the section is in memory while the code runs.
pub(super) fn is_loaded(section: &Section) -> bool {
    is(section, LOADED)
}

pub(super) fn is_code(section: &Section) -> bool {
    is(section, CODE) && is_loaded(section)
}

pub(super) fn has_relocations(section: &Section) -> bool {
    RELOCATIONS.contains(&section.kind.get())
}

/// Bytes of a relocation in such a section.
pub(super) fn relocation_bytes(section: &Section) -> usize {
    let with_addend = section.kind.get() == RELOCATIONS[0];
    size_of::<Rel>() + if with_addend { size_of::<I64>() } else { 0 }
}

impl<'a> Elf<'a> {
    pub(super) fn read(image: &'a [u8]) -> Result<Elf<'a>, Obstacle> {
        let (header, _) = Header::read_from_prefix(image).map_err(|_| damaged("the header", 0))?;
        let linked = header.class == CLASS_64 && header.byte_order == LITTLE_ENDIAN && header.machine.get() == MACHINE_CUDA && header.kind.get() == EXECUTABLE;
        if !linked {
            return Err(Obstacle::NotLinked);
        }
        let (size, count) = (usize::from(header.section_size.get()), usize::from(header.section_count.get()));
        let at = usize::try_from(header.sections_at.get()).unwrap_or(usize::MAX);
        // A file with more sections than the header can count says so with a 0.
        if size < size_of::<Section>() || count == 0 {
            return Err(damaged("the section table", offset_of!(Header, section_count)));
        }
        let table = at.checked_add(size * count).and_then(|end| image.get(at..end)).ok_or_else(|| damaged("the section table", at))?;
        let sections = table.chunks_exact(size).filter_map(|bytes| Section::read_from_prefix(bytes).ok().map(|(section, _)| section)).collect();
        let mut elf = Elf { image, sections, names_index: usize::from(header.names_section.get()), names: None };
        elf.names = elf.sections.get(elf.names_index).map(|names| elf.bytes(names)).transpose()?;
        Ok(elf)
    }

    /// The index of the section with the names of sections. There need not be one.
    pub(super) fn names_index(&self) -> usize {
        self.names_index
    }

    /// What the loader of the file is to put into memory.
    pub(super) fn segments(&self) -> Result<Vec<Segment>, Obstacle> {
        let (header, _) = Header::read_from_prefix(self.image).map_err(|_| damaged("the header", 0))?;
        let (at, size) = (usize::try_from(header.segments_at.get()).unwrap_or(usize::MAX), usize::from(header.segment_size.get()));
        let count = usize::from(header.segment_count.get());
        if count == 0 {
            return Ok(Vec::new());
        }
        let table = at.checked_add(size * count).and_then(|end| self.image.get(at..end)).filter(|_| size >= size_of::<Segment>());
        let table = table.ok_or_else(|| damaged("the segment table", at))?;
        Ok(table.chunks_exact(size).filter_map(|bytes| Segment::read_from_prefix(bytes).ok().map(|(segment, _)| segment)).collect())
    }

    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Where the section's bytes are in the image.
    pub(super) fn bytes(&self, section: &Section) -> Result<Range<usize>, Obstacle> {
        let start = usize::try_from(section.offset.get()).unwrap_or(usize::MAX);
        let size = usize::try_from(section.size.get()).unwrap_or(usize::MAX);
        let end = start.checked_add(size).filter(|end| *end <= self.image.len() && section.kind.get() != NO_BITS);
        end.map(|end| start..end).ok_or_else(|| damaged("a section", start))
    }

    /// A text that ends with a zero, without it. Empty where there is none.
    fn text(&self, table: Option<&Range<usize>>, at: u32) -> &'a [u8] {
        self.onwards(table, at).split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    fn onwards(&self, table: Option<&Range<usize>>, at: u32) -> &'a [u8] {
        table.and_then(|table| self.image.get(table.clone())?.get(at as usize..)).unwrap_or(&[])
    }

    pub(super) fn name(&self, section: &Section) -> &'a [u8] {
        self.text(self.names.as_ref(), section.name.get())
    }

    /// The table of symbols in a section, or the one that a section of relocations refers to.
    pub(super) fn symbols(&self, section: &Section) -> Result<Symbols<'a, '_>, Obstacle> {
        let table = self.bytes(section)?;
        let names = self.sections.get(section.link.get() as usize).map(|names| self.bytes(names)).transpose()?;
        Ok(Symbols { elf: self, table, names })
    }

    /// All relocations of a section.
    pub(super) fn relocations(&self, section: &Section) -> Result<impl Iterator<Item = Relocation> + '_, Obstacle> {
        let range = self.bytes(section)?;
        let size = relocation_bytes(section);
        let start = range.start;
        if !range.len().is_multiple_of(size) {
            return Err(damaged("a table of relocations", start));
        }
        Ok(self.image[range].chunks_exact(size).enumerate().filter_map(move |(n, bytes)| {
            let (rel, rest) = Rel::read_from_prefix(bytes).ok()?;
            let addend = I64::read_from_prefix(rest).ok().map(|(addend, _)| addend.get());
            let info_at = start + n * size + offset_of!(Rel, kind);
            Some(Relocation { info_at, offset: rel.offset.get(), kind: rel.kind.get(), symbol: rel.symbol.get(), addend })
        }))
    }
}

/// A table of symbols.
pub(super) struct Symbols<'a, 'e> {
    elf: &'e Elf<'a>,
    table: Range<usize>,
    names: Option<Range<usize>>,
}

impl<'a> Symbols<'a, '_> {
    pub(super) fn get(&self, index: u32) -> Result<Symbol, Obstacle> {
        let at = (index as usize).checked_mul(size_of::<Symbol>());
        let bytes = at.and_then(|at| self.elf.image[self.table.clone()].get(at..)).unwrap_or(&[]);
        let symbol = Symbol::read_from_prefix(bytes).map_err(|_| damaged("a symbol", self.table.start))?;
        Ok(symbol.0)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Symbol> + '_ {
        let table = &self.elf.image[self.table.clone()];
        table.chunks_exact(size_of::<Symbol>()).filter_map(|bytes| Symbol::read_from_bytes(bytes).ok())
    }

    pub(super) fn name(&self, symbol: &Symbol) -> &'a [u8] {
        self.elf.text(self.names.as_ref(), symbol.name.get())
    }

    /// The name and whatever follows it. Unlike [`Symbols::name`], this takes no time.
    pub(super) fn name_onwards(&self, symbol: &Symbol) -> &'a [u8] {
        self.elf.onwards(self.names.as_ref(), symbol.name.get())
    }
}
