//! Dividing a compiled image: an *outline* that describes all of its kernels and has the code of
//! none, and for each kernel an *excerpt* that has the code of this one alone.
//!
//! Libraries bring images with hundreds of kernels, of which a program launches a few. The driver
//! spends time and memory in proportion to what is loaded: on an H200, 48 MB of PyTorch's images
//! take 96 ms to load and their outlines 22 ms, and a fault is announced 210 ms after it with the
//! images and 65 ms with outlines (decision 0119).
//!
//! - **All or nothing.** An image is divided only if the part of each section in it is known, and
//!   if no kernel needs the code of another section. Else [`Undivided`] says why.
//! - Symbols keep their numbers, because attributes of kernels name symbols by them. Symbols of
//!   kernels that are left out have no name and no section, nor have functions of the driver's that
//!   only those call. Sections are numbered anew.
//! - The kernels of an outline keep their order, their attributes and their parameters. Their code
//!   is one `EXIT`. It must not be launched.
//! - What a debugger reads (`.debug_frame`) is left out.
//! - Images are hostile: nothing panics, and every place is checked before it is used. The time is
//!   linear in the size of the image.

use super::Obstacle;
use super::tables::{self, Elf, FUNCTION, NO_BITS, RESERVED, SYMBOLS, Symbol, damaged};
use crate::elf::{Header, Section, Segment};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes, little_endian as le};

/// Why an image is not divided, as a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undivided {
    /// The image cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Obstacle),
    /// It has a section of which nothing is known.
    #[error("nothing is known of its section {section}")]
    Section {
        /// The section's name.
        section: String,
    },
    /// A kernel has an attribute of which nothing is known.
    #[error("{section} has an attribute of which nothing is known ({attribute:#x})")]
    Attribute {
        /// The section's name.
        section: String,
        /// The attribute's number.
        attribute: u8,
    },
    /// Code or data names code in another section.
    #[error("{section} names {function}, whose code is elsewhere in the image")]
    NamesCode {
        /// The section that names it.
        section: String,
        /// The function.
        function: String,
    },
    /// The instructions are of an architecture before compute capability 7.0.
    #[error("its code is for compute capability {major}.{minor}")]
    Architecture {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
}

/// `SHT_CUDA_INFO`.
const INFO: u32 = 0x7000_0000;
/// `SHF_INFO_LINK`.
const INFO_LINK: u64 = 0x40;
/// `PT_PHDR`.
const OWN_TABLE: u32 = 6;
/// The architecture with the first instructions of 16 bytes.
const FIRST_ARCH: u32 = 70;

/// The code of a kernel that has none: `EXIT`, a jump to itself, and `NOP` up to the alignment of
/// code. The same for all architectures with instructions of 16 bytes.
const NO_CODE: [u64; 16] = {
    const NOP: [u64; 2] = [0x7918, 0x000f_c000_0000_0000];
    let mut code = [0; 16];
    (code[0], code[1]) = (0x794d, 0x000f_ea00_0380_0000);
    (code[2], code[3]) = (0xffff_fff0_0000_7947, 0x000f_c000_0383_ffff);
    let mut at = 4;
    while at < code.len() {
        (code[at], code[at + 1]) = (NOP[0], NOP[1]);
        at += 2;
    }
    code
};

/// Attributes in `.nv.info.KERNEL` that say nothing of places in the code: limits, parameters,
/// symbols, features. Read from 50,128 kernels of PyTorch's and NVIDIA's libraries.
const DESCRIBING: [u8; 21] = [0x05, 0x0a, 0x10, 0x17, 0x19, 0x1b, 0x1e, 0x2b, 0x36, 0x37, 0x38, 0x3d, 0x3e, 0x3f, 0x4c, 0x50, 0x54, 0x5f, 0x66, 0x6b, 0x6d];
/// Attributes that list places in the code (its ends, jumps, calls of the driver, instructions with
/// a special need), and the functions of the driver's that it calls.
const OF_CODE: [u8; 12] = [0x0f, 0x1c, 0x28, 0x29, 0x2e, 0x31, 0x34, 0x39, 0x40, 0x44, 0x46, 0x55];
/// The attribute that lists those functions.
const CALLED: u8 = 0x0f;
/// The format of an attribute whose value has a size of its own; the value of others is in the
/// header.
const SIZED: u8 = 4;
/// Bytes of an attribute's header: format, number, and size or value.
const ATTRIBUTE_HEADER: usize = 4;

/// The largest alignment that is kept in the file. That of code is 128.
const MOST_PADDING: usize = 256;

/// What a section is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The names of the sections.
    SectionNames,
    Symbols,
    /// The names of the symbols.
    SymbolNames,
    /// The code of the function with this index.
    Code(usize),
    /// Attributes of that function.
    Attributes(usize),
    /// Relocations of its code.
    CodeRelocations(usize),
    /// What else belongs to that function alone.
    Part(usize),
    /// Attributes of all functions, by symbol.
    AllAttributes,
    /// Who calls whom, by symbol.
    Calls,
    /// What all functions share.
    Shared,
    /// What is left out.
    LeftOut,
}

impl Role {
    fn function(self) -> Option<usize> {
        match self {
            Role::Code(function) | Role::Attributes(function) | Role::CodeRelocations(function) | Role::Part(function) => Some(function),
            _ => None,
        }
    }
}

/// Which code a part of the image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Outline,
    Only(usize),
}

impl Choice {
    fn has(self, role: Role) -> bool {
        role != Role::LeftOut && role.function().is_none_or(|function| self == Choice::Outline || self == Choice::Only(function))
    }
}

/// How an image is divided. Made by [`Division::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// One for each section; [`Role::LeftOut`] for the first, which is empty.
    roles: Vec<Role>,
    /// The names of the functions.
    functions: Vec<String>,
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The first four bytes as a number, 0 if they are not there.
fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// Cuts attributes into pieces, each with its header; `None` for the rest if it is damaged.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let length = match bytes {
            [SIZED, _, low, high, ..] => ATTRIBUTE_HEADER + usize::from(u16::from_le_bytes([*low, *high])),
            _ => ATTRIBUTE_HEADER,
        };
        let piece = bytes.get(..length);
        bytes = bytes.get(length..).unwrap_or(&[]);
        Some(piece)
    })
}

impl Division {
    /// Finds out how a linked image can be divided.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn read(image: &[u8]) -> Result<Division, Undivided> {
        let arch = crate::elf::read_arch(image).unwrap_or(0);
        let elf = Elf::read(image)?;
        if arch < FIRST_ARCH {
            return Err(Undivided::Architecture { major: arch / 10, minor: arch % 10 });
        }
        // Sections and names that overlap would take time and memory that the image does not show.
        let (mut left, mut left_of_names) = (image.len(), image.len());
        for section in elf.sections() {
            left_of_names = left_of_names.checked_sub(elf.name(section).len()).ok_or_else(|| damaged("the names of sections", 0))?;
        }
        for section in elf.sections().iter().skip(1).filter(|section| section.kind.get() != NO_BITS) {
            left = left.checked_sub(elf.bytes(section)?.len()).ok_or_else(|| damaged("sections that overlap", 0))?;
        }
        let mut division = Division { roles: vec![Role::LeftOut; elf.sections().len()], functions: Vec::new() };
        let mut code = BTreeMap::new();
        for (index, section) in elf.sections().iter().enumerate() {
            if let Some(function) = elf.name(section).strip_prefix(b".text.")
                && tables::is_code(section)
            {
                division.roles[index] = Role::Code(division.functions.len());
                code.insert(index, division.functions.len());
                division.functions.push(text(function));
            }
        }
        for index in 1..division.roles.len() {
            if !code.contains_key(&index) {
                division.roles[index] = division.role(&elf, index, &code)?;
            }
        }
        let symbols = division.only(Role::Symbols).ok_or_else(|| damaged("the table of symbols", 0))?;
        let names = elf.sections()[symbols].link.get() as usize;
        if division.roles.get(names) != Some(&Role::Shared) || elf.sections()[names].kind.get() == NO_BITS {
            return Err(damaged("the names of symbols", names).into());
        }
        division.roles[names] = Role::SymbolNames;
        division.check(&elf, image, symbols)?;
        Ok(division)
    }

    /// The section with this role, if there is exactly one.
    fn only(&self, role: Role) -> Option<usize> {
        let mut found = (0..self.roles.len()).filter(|index| self.roles[*index] == role);
        found.next().filter(|_| found.next().is_none())
    }

    /// What a section is for that has no code. `code`: the sections with code, and their functions.
    fn role(&self, elf: &Elf<'_>, index: usize, code: &BTreeMap<usize, usize>) -> Result<Role, Undivided> {
        let section = &elf.sections()[index];
        let name = elf.name(section);
        let unknown = || Undivided::Section { section: text(name) };
        if index == elf.names_index() {
            return Ok(Role::SectionNames);
        }
        if tables::has_relocations(section) {
            let target = section.info.get() as usize;
            return match (code.get(&target), elf.sections().get(target)) {
                (Some(function), _) => Ok(Role::CodeRelocations(*function)),
                (None, Some(target)) if elf.name(target) == b".debug_frame" => Ok(Role::LeftOut),
                (None, Some(target)) => Ok(owner(target, code).map_or(Role::Shared, Role::Part)),
                (None, None) => Err(unknown()),
            };
        }
        let starts = |prefix: &[u8]| name.starts_with(prefix);
        match name {
            _ if section.kind.get() == SYMBOLS => Ok(Role::Symbols),
            b".nv.info" => Ok(Role::AllAttributes),
            b".nv.callgraph" => Ok(Role::Calls),
            b".debug_frame" => Ok(Role::LeftOut),
            b".strtab" | b".nv.compat" | b".nv.constant3" | b".nv.constant4" | b".nv.global" | b".nv.global.init" | b".nv.rel.action" => Ok(Role::Shared),
            _ if starts(b".note.") || starts(b".nv.shared.reserved.") => Ok(Role::Shared),
            _ if starts(b".nv.info.") && section.kind.get() == INFO => {
                code.get(&(section.info.get() as usize)).copied().map(Role::Attributes).ok_or_else(unknown)
            }
            _ if starts(b".nv.constant0.") || starts(b".nv.constant2.") || starts(b".nv.shared.") => owner(section, code).map(Role::Part).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }

    /// Checks all that a part of the image would take for granted.
    fn check(&self, elf: &Elf<'_>, image: &[u8], symbols: usize) -> Result<(), Undivided> {
        let table = elf.symbols(&elf.sections()[symbols])?;
        let name = |index: usize| text(elf.name(&elf.sections()[index]));
        // The function in whose code a symbol lies.
        let place = |symbol: &Symbol| self.roles.get(usize::from(symbol.section())).copied().and_then(Role::function);
        for (index, section) in elf.sections().iter().enumerate().skip(1) {
            let role = self.roles[index];
            if role == Role::LeftOut || section.kind.get() == NO_BITS {
                continue;
            }
            let bytes = &image[elf.bytes(section)?];
            match role {
                Role::Attributes(_) | Role::AllAttributes => {
                    for attribute in attributes(bytes) {
                        let [format, number, ..] = attribute.ok_or_else(|| damaged("an attribute", index))? else { continue };
                        let by_symbol = role == Role::AllAttributes && *format == SIZED;
                        let known =
                            if by_symbol { matches!(number, 0x11 | 0x12 | 0x23 | 0x2f) } else { DESCRIBING.contains(number) || OF_CODE.contains(number) };
                        if !known {
                            return Err(Undivided::Attribute { section: name(index), attribute: *number });
                        }
                    }
                }
                Role::Calls => {
                    let mut pairs = bytes.chunks_exact(8).map(|pair| (word(pair), word(&pair[4..])));
                    let crossing = pairs.try_fold(None, |found, (caller, callee)| {
                        // Pairs of 0 and a negative number begin the parts.
                        if found.is_some() || caller == 0 {
                            return Ok::<_, Obstacle>(found);
                        }
                        let (caller, called) = (table.get(caller)?, table.get(callee)?);
                        Ok(place(&called).filter(|function| place(&caller) != Some(*function)).map(|_| text(table.name(&called))))
                    })?;
                    if let Some(function) = crossing {
                        return Err(Undivided::NamesCode { section: name(index), function });
                    }
                }
                _ if tables::has_relocations(section) => {
                    for relocation in elf.relocations(section)? {
                        let symbol = table.get(relocation.symbol)?;
                        if place(&symbol).is_some_and(|function| role.function() != Some(function)) {
                            return Err(Undivided::NamesCode { section: name(index), function: text(table.name(&symbol)) });
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The names of the functions that have code of their own: the kernels.
    #[must_use]
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// An image with all kernels and no code.
    ///
    /// # Errors
    /// [`Undivided::Unreadable`] if `image` is not the one that `self` was read from.
    pub fn outline(&self, image: &[u8]) -> Result<Vec<u8>, Undivided> {
        self.assemble(image, Choice::Outline)
    }

    /// An image with the code of one function, by its index in [`Division::functions`].
    ///
    /// # Errors
    /// [`Undivided::Unreadable`] if there is no such function, or `image` is not the one that
    /// `self` was read from.
    pub fn excerpt(&self, image: &[u8], function: usize) -> Result<Vec<u8>, Undivided> {
        if function >= self.functions.len() {
            return Err(damaged("a function", function).into());
        }
        self.assemble(image, Choice::Only(function))
    }

    fn assemble(&self, image: &[u8], choice: Choice) -> Result<Vec<u8>, Undivided> {
        let elf = Elf::read(image)?;
        if elf.sections().len() != self.roles.len() {
            return Err(damaged("the section table", 0).into());
        }
        let has = |index: usize| index == 0 || self.roles.get(index).is_some_and(|role| choice.has(*role));
        let kept: Vec<usize> = (0..self.roles.len()).filter(|index| has(*index)).collect();
        let numbers: BTreeMap<usize, u32> = kept.iter().zip(0..).map(|(index, number)| (*index, number)).collect();
        let number = |index: usize| numbers.get(&index).copied().ok_or_else(|| damaged("the number of a section", index));
        let symbols = self.only(Role::Symbols).ok_or_else(|| damaged("the table of symbols", 0))?;
        let called = self.called(&elf, image, symbols, choice)?;
        let Symbolic { table, names, absent } = self.write_symbols(&elf, image, symbols, choice, &numbers, &called)?;

        let mut file = Assembly { bytes: vec![0; size_of::<Header>()] };
        let mut section_names = vec![0];
        let mut heads: Vec<Section> = Vec::with_capacity(kept.len());
        for index in &kept {
            let original = &elf.sections()[*index];
            let mut head = *original;
            let name = elf.name(original);
            head.name = le::U32::new(if name.is_empty() { 0 } else { append_text(&mut section_names, name) });
            if *index == 0 {
                heads.push(head);
                continue;
            }
            let role = self.roles[*index];
            let contents = || Ok::<_, Undivided>(&image[elf.bytes(original)?]);
            let bytes = match role {
                // Its contents are complete when all names are known.
                Role::SectionNames => Vec::new(),
                _ if original.kind.get() == NO_BITS => Vec::new(),
                Role::Symbols => table.clone(),
                Role::SymbolNames => names.clone(),
                Role::AllAttributes => {
                    let stays = |piece: &[u8]| piece.first() != Some(&SIZED) || !absent.contains(&word(&piece[ATTRIBUTE_HEADER..]));
                    attributes(contents()?).flatten().filter(|piece| stays(piece)).flatten().copied().collect()
                }
                Role::Attributes(_) if choice == Choice::Outline => attributes(contents()?)
                    .flatten()
                    .filter(|piece| piece.get(1).is_some_and(|number| DESCRIBING.contains(number)))
                    .flatten()
                    .copied()
                    .collect(),
                Role::Calls => {
                    let stays = |pair: &&[u8]| !absent.contains(&word(pair)) && !absent.contains(&word(&pair[4..]));
                    contents()?.chunks_exact(8).filter(stays).flatten().copied().collect()
                }
                Role::Code(_) if choice == Choice::Outline => NO_CODE.as_bytes().to_vec(),
                Role::CodeRelocations(_) if choice == Choice::Outline => Vec::new(),
                Role::Shared if tables::has_relocations(original) => {
                    let (bytes, relocations) = (contents()?, elf.relocations(original)?);
                    let entries = bytes.chunks_exact(tables::relocation_bytes(original));
                    entries.zip(relocations).filter(|(_, relocation)| !absent.contains(&relocation.symbol)).flat_map(|(entry, _)| entry).copied().collect()
                }
                _ => contents()?.to_vec(),
            };
            head.offset = le::U64::new(file.append(&bytes, original.align.get()));
            if original.kind.get() != NO_BITS {
                head.size = le::U64::new(bytes.len() as u64);
            }
            self.renumber(&mut head, role, number)?;
            heads.push(head);
        }
        let names_number = number(elf.names_index())?;
        let names_head = &mut heads[names_number as usize];
        names_head.offset = le::U64::new(file.append(&section_names, 1));
        names_head.size = le::U64::new(section_names.len() as u64);
        file.finish(&elf, image, &kept, &heads, names_number)
    }

    /// Gives a section's references to sections their new numbers.
    fn renumber(&self, head: &mut Section, role: Role, number: impl Fn(usize) -> Result<u32, Obstacle>) -> Result<(), Obstacle> {
        let renumbered = |old: le::U32| number(old.get() as usize).map(le::U32::new);
        if head.link.get() != 0 {
            head.link = renumbered(head.link)?;
        }
        // For symbols it is the number of local ones, and for code a symbol and its registers.
        let names_section = match role {
            Role::Symbols | Role::Code(_) => false,
            Role::Attributes(_) | Role::CodeRelocations(_) | Role::Part(_) => true,
            _ => head.flags.get() & INFO_LINK != 0 || tables::has_relocations(head),
        };
        if names_section && head.info.get() != 0 {
            head.info = renumbered(head.info)?;
        }
        Ok(())
    }

    /// The driver's functions that the code of a part calls, by the numbers of their symbols: as
    /// its attributes, the table of calls and its relocations say. The tables of addresses that all
    /// kernels share name those that others call, too. Where the driver finds one it keeps memory
    /// of the card for it: 92 MiB of an H200 for `__assertfail` (decision 0135).
    fn called(&self, elf: &Elf<'_>, image: &[u8], symbols: usize, choice: Choice) -> Result<HashSet<u32>, Undivided> {
        let Choice::Only(function) = choice else { return Ok(HashSet::new()) };
        let table = elf.symbols(&elf.sections()[symbols])?;
        let is_in_it = |number: u32| {
            let symbol = table.get(number);
            symbol.is_ok_and(|symbol| self.roles.get(usize::from(symbol.section())).copied().and_then(Role::function) == Some(function))
        };
        let mut called = HashSet::new();
        for (section, role) in elf.sections().iter().zip(&self.roles) {
            match role {
                Role::Attributes(owner) if *owner == function => {
                    let listed = attributes(&image[elf.bytes(section)?]).flatten().filter(|piece| piece.get(1) == Some(&CALLED));
                    called.extend(listed.flat_map(|piece| piece[ATTRIBUTE_HEADER..].chunks_exact(4).map(word).collect::<Vec<_>>()));
                }
                Role::Calls => {
                    let pairs = image[elf.bytes(section)?].chunks_exact(8).map(|pair| (word(pair), word(&pair[4..])));
                    called.extend(pairs.filter(|(caller, _)| *caller != 0 && is_in_it(*caller)).map(|(_, callee)| callee));
                }
                Role::CodeRelocations(owner) | Role::Part(owner) if *owner == function && tables::has_relocations(section) => {
                    called.extend(elf.relocations(section)?.map(|relocation| relocation.symbol));
                }
                _ => {}
            }
        }
        Ok(called)
    }

    /// The symbols of a part, by their old numbers. Of functions of the driver's it has those that
    /// are `called`.
    fn write_symbols(
        &self,
        elf: &Elf<'_>,
        image: &[u8],
        section: usize,
        choice: Choice,
        numbers: &BTreeMap<usize, u32>,
        called: &HashSet<u32>,
    ) -> Result<Symbolic, Undivided> {
        let all = elf.symbols(&elf.sections()[section])?;
        let mut written = Symbolic { table: Vec::with_capacity(elf.bytes(&elf.sections()[section])?.len()), names: vec![0], absent: HashSet::new() };
        // Names that overlap would make the table longer than the image.
        let mut budget = image.len();
        for (number, mut symbol) in (0_u32..).zip(all.all()) {
            let home = usize::from(symbol.section());
            let is_in_section = home != 0 && symbol.section() < RESERVED;
            let is_drivers = home == 0 && symbol.kind() == FUNCTION;
            if (is_in_section && !numbers.contains_key(&home)) || (is_drivers && !called.contains(&number)) {
                written.table.extend([0; size_of::<Symbol>()]);
                written.absent.insert(number);
                continue;
            }
            let name = all.name(&symbol);
            budget = budget.checked_sub(name.len()).ok_or_else(|| damaged("the names of symbols", section))?;
            let at = if name.is_empty() { 0 } else { append_text(&mut written.names, name) };
            let new = if is_in_section { numbers.get(&home).copied().unwrap_or(0) } else { home as u32 };
            symbol.relocate(at, u16::try_from(new).map_err(|_| damaged("the number of a section", home))?);
            let is_code = matches!(self.roles.get(home), Some(Role::Code(_)));
            if is_in_section && is_code && choice == Choice::Outline && symbol.kind() == FUNCTION {
                symbol.resize(0, size_of_val(&NO_CODE) as u64);
            }
            written.table.extend(symbol.as_bytes());
        }
        Ok(written)
    }
}

/// The function to which a section belongs that names its code.
fn owner(section: &Section, code: &BTreeMap<usize, usize>) -> Option<usize> {
    code.get(&(section.info.get() as usize)).copied()
}

/// Appends a text that ends with a zero, and says where.
fn append_text(table: &mut Vec<u8>, text: &[u8]) -> u32 {
    let at = table.len();
    table.extend(text);
    table.push(0);
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The symbols of a part of an image.
struct Symbolic {
    table: Vec<u8>,
    names: Vec<u8>,
    /// The numbers of those that are left out.
    absent: HashSet<u32>,
}

/// A part of an image while it is written.
struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// Appends bytes at a multiple of `align`, and says where.
    fn append(&mut self, bytes: &[u8], align: u64) -> u64 {
        let align = usize::try_from(align).ok().filter(|align| *align <= MOST_PADDING).unwrap_or(1).max(1);
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        let at = self.bytes.len() as u64;
        self.bytes.extend(bytes);
        at
    }

    /// Writes the tables and the header.
    fn finish(mut self, elf: &Elf<'_>, image: &[u8], kept: &[usize], heads: &[Section], names: u32) -> Result<Vec<u8>, Undivided> {
        let (mut header, _) = Header::read_from_prefix(image).map_err(|_| damaged("the header", 0))?;
        let sections_at = self.append(heads.as_bytes(), 8);
        let segments = elf.segments()?;
        let old_at = header.segments_at.get();
        let segments_at = self.append(&[], 8);
        for mut segment in segments {
            let table = (size_of::<Segment>() * usize::from(header.segment_count.get())) as u64;
            let (at, bytes) = if segment.kind.get() == OWN_TABLE || segment.offset.get() == old_at {
                (segments_at, table)
            } else {
                let span = span(elf, kept, heads, &segment);
                (span.start, span.end - span.start)
            };
            let without_bytes = segment.memory_size.get().saturating_sub(segment.file_size.get());
            segment.offset = le::U64::new(at);
            segment.file_size = le::U64::new(bytes);
            segment.memory_size = le::U64::new(bytes.saturating_add(without_bytes));
            self.append(segment.as_bytes(), 1);
        }
        let too_many = || damaged("the section table", 0);
        header.place_tables(
            if segments_at == self.bytes.len() as u64 { 0 } else { segments_at },
            sections_at,
            u16::try_from(heads.len()).map_err(|_| too_many())?,
            u16::try_from(names).map_err(|_| too_many())?,
        );
        self.bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        Ok(self.bytes)
    }
}

/// Where in the new file the sections are that were in a segment; empty if none of them is there.
fn span(elf: &Elf<'_>, kept: &[usize], heads: &[Section], segment: &Segment) -> Range<u64> {
    let old = segment.offset.get()..segment.offset.get().saturating_add(segment.file_size.get());
    let mut found = 0..0;
    for (index, head) in kept.iter().zip(heads) {
        let section = &elf.sections()[*index];
        let is_inside = tables::is_loaded(section)
            && section.kind.get() != NO_BITS
            && section.size.get() > 0
            && section.offset.get() >= old.start
            && section.offset.get().checked_add(section.size.get()).is_some_and(|end| end <= old.end);
        if is_inside {
            let begin = head.offset.get();
            let start = if found.is_empty() { begin } else { found.start };
            found = start..begin.saturating_add(head.size.get()).max(start);
        }
    }
    found
}
