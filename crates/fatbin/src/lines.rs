//! The source line of an instruction, by the line table of a compiled image (`.debug_line`, which
//! `nvcc -lineinfo` and `-G` write).
//!
//! The tables are those of DWARF, of version 2 in images of nvcc 13. Two things are NVIDIA's own:
//!
//! - Each function has a section of its own. In an image as the compiler made it, all functions
//!   begin at address 0, and a relocation of the table says which function a sequence of rows
//!   belongs to. In an image that the driver has relocated, such as those in a core dump, sections
//!   have addresses, and so do rows. Both are read.
//! - An extended opcode ([`INLINED_CALL`]) says that the rows that follow are those of a function
//!   that was inlined, and which row of the sequence calls it.
//!
//! Images are hostile: nothing panics, and a table that is longer than [`MOST_BYTES`] is not read,
//! because others wait while a fault is examined.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineRow, Reader as _, RelocateReader};
use object::LittleEndian;
use object::elf::{FileHeader64, SHT_REL, SHT_RELA};
use object::read::elf::{FileHeader as _, Rel as _, Rela as _, SectionHeader as _, SectionTable, Sym as _};
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;

/// Most bytes of tables that are read for one question.
const MOST_BYTES: usize = 32 << 20;
/// Most bytes of the header of a table, which has the names of its files.
const MOST_HEADER: usize = 256 << 10;
/// Most rows of a function that are looked at.
const MOST_ROWS: usize = 1 << 20;
/// Most characters of a file's name that are kept, the last ones.
const MOST_NAME: usize = 200;
/// The name of a function's code section, before the function's name.
const CODE_SECTION: &[u8] = b".text.";
/// `DW_LNE_NVIDIA_inlined_call`: the number of the calling row in its sequence, from 1 (0: what
/// follows is not inlined), and where the called function's name is.
const INLINED_CALL: u8 = 0x90;
/// Bytes of an address.
const ADDRESS_BYTES: u8 = 8;
/// Where rows of other functions lie.
const ELSEWHERE: u64 = 1 << 62;

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file, as the compiler was told of it. The beginning of a long name is left out.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
}

impl Line {
    /// A line of a file with this name, of which control characters are replaced and the beginning
    /// may be cut.
    #[must_use]
    pub fn new(file: &str, line: u64) -> Line {
        let skipped = file.char_indices().rev().nth(MOST_NAME - 1).map_or(0, |(at, _)| at);
        let mark = if skipped > 0 { "…" } else { "" };
        let shown = file[skipped..].chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
        Line { file: mark.chars().chain(shown).collect(), line }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Where an instruction comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The line.
    pub line: Line,
    /// If that line belongs to an inlined function: the line of the function that was not inlined,
    /// from which it was called, perhaps through others.
    pub called_from: Option<Line>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.called_from {
            None => write!(f, "{}", self.line),
            Some(caller) => write!(f, "{}, inlined at {caller}", self.line),
        }
    }
}

/// The source line of the instruction at byte `offset` of a function, if the image knows it.
#[must_use]
pub fn find(image: &[u8], function: &str, offset: u64) -> Option<Source> {
    let tables = Tables::read(image, function)?;
    let mut at = 0;
    while at < tables.lines.len() {
        let (source, next) = tables.search(at, offset)?;
        if source.is_some() {
            return source;
        }
        at = next;
    }
    None
}

/// Where the table ends that begins at this byte; `None` if its header is too long.
fn measure(reader: &Reader<'_>, begin: usize) -> Option<usize> {
    let mut reader = reader.clone();
    reader.skip(begin).ok()?;
    let whole = reader.len();
    let (length, format) = reader.read_initial_length().ok()?;
    let end = begin.checked_add(whole - reader.len())?.checked_add(length)?;
    // From version 5 on, the sizes of addresses and of selectors of segments come first.
    let sizes = if reader.read_u16().ok()? >= 5 { 2 } else { 0 };
    reader.skip(sizes).ok()?;
    let header = reader.read_length(format).ok()?;
    (header <= MOST_HEADER).then_some(end)
}

/// A relocation of the line table against the function: where, and the offset in the function that
/// is to be written there.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    at: usize,
    offset: u64,
}

/// How addresses in the line table become offsets in the function.
#[derive(Debug, Clone, Copy)]
struct Frame<'a> {
    /// Where the function lies; empty in an image that is not relocated.
    addresses: &'a Range<u64>,
    /// Sorted by place.
    anchors: &'a [Anchor],
}

impl gimli::Relocate<usize> for Frame<'_> {
    fn relocate_address(&self, at: usize, value: u64) -> gimli::Result<u64> {
        if self.addresses.contains(&value) {
            return Ok(value - self.addresses.start);
        }
        let anchor = self.anchors.binary_search_by_key(&at, |anchor| anchor.at).ok().map(|found| self.anchors[found].offset);
        Ok(anchor.unwrap_or(ELSEWHERE))
    }

    fn relocate_offset(&self, _: usize, value: usize) -> gimli::Result<usize> {
        Ok(value)
    }
}

type Reader<'a> = RelocateReader<EndianSlice<'a, gimli::LittleEndian>, Frame<'a>>;
type Header<'a> = gimli::LineProgramHeader<Reader<'a>>;

/// What an image has for the lines of one function.
struct Tables<'a> {
    lines: &'a [u8],
    /// Texts to which newer versions of the table refer.
    line_texts: &'a [u8],
    texts: &'a [u8],
    addresses: Range<u64>,
    anchors: Vec<Anchor>,
}

/// True if the section has this name. The time does not depend on what the names are.
fn is_named(names: &[u8], at: u32, name: &[&[u8]]) -> bool {
    let mut rest = names.get(at as usize..);
    for piece in name {
        rest = rest.and_then(|rest| rest.strip_prefix(*piece));
    }
    rest.is_some_and(|rest| rest.first() == Some(&0))
}

impl<'a> Tables<'a> {
    /// Finds the tables. `None` if there is no such function, or nothing is known of its lines.
    fn read(image: &'a [u8], function: &str) -> Option<Tables<'a>> {
        let header = FileHeader64::<LittleEndian>::parse(image).ok()?;
        let sections = header.sections(LittleEndian, image).ok()?;
        let names = sections.section(header.section_strings_index(LittleEndian, image).ok()?).ok()?.data(LittleEndian, image).ok()?;
        let find = |name: &[&[u8]]| sections.enumerate().find(|(_, section)| is_named(names, section.sh_name.get(LittleEndian), name));
        let data = |name: &[u8]| find(&[name]).and_then(|(_, section)| section.data(LittleEndian, image).ok()).unwrap_or_default();
        let (lines_index, lines) = find(&[b".debug_line"])?;
        let (code_index, code) = find(&[CODE_SECTION, function.as_bytes()])?;
        let start = code.sh_addr.get(LittleEndian);
        let end = if start == 0 { 0 } else { start.saturating_add(code.sh_size.get(LittleEndian)) };
        let mut tables = Tables {
            lines: lines.data(LittleEndian, image).ok()?,
            line_texts: data(b".debug_line_str"),
            texts: data(b".debug_str"),
            addresses: start..end,
            anchors: Vec::new(),
        };
        if tables.lines.len() > MOST_BYTES {
            return None;
        }
        tables.read_anchors(image, &sections, lines_index.0, code_index.0);
        Some(tables)
    }

    /// Reads which sequences of rows belong to the function. Nothing, if these tables are too long.
    fn read_anchors(&mut self, image: &[u8], sections: &SectionTable<'_, FileHeader64<LittleEndian>>, lines: usize, code: usize) {
        let mut budget = MOST_BYTES;
        for section in sections.iter() {
            let kind = section.sh_type.get(LittleEndian);
            if section.sh_info.get(LittleEndian) as usize != lines || (kind != SHT_RELA && kind != SHT_REL) {
                continue;
            }
            let bytes = usize::try_from(section.sh_size.get(LittleEndian)).unwrap_or(usize::MAX);
            let Some(left) = budget.checked_sub(bytes) else { return };
            budget = left;
            let symbols = sections.symbol_table_by_index(LittleEndian, image, object::SectionIndex(section.sh_link.get(LittleEndian) as usize));
            let Ok(symbols) = symbols else { continue };
            let mut add = |at: u64, symbol: u32, addend: i64| {
                let Ok(symbol) = symbols.symbol(object::SymbolIndex(symbol as usize)) else { return };
                let Ok(at) = usize::try_from(at) else { return };
                if usize::from(symbol.st_shndx(LittleEndian).0) != code {
                    return;
                }
                let value = symbol.st_value(LittleEndian);
                let value = if self.addresses.contains(&value) { value - self.addresses.start } else { value };
                self.anchors.push(Anchor { at, offset: value.wrapping_add_signed(addend) });
            };
            if let Ok(Some((entries, _))) = section.rela(LittleEndian, image) {
                entries.iter().for_each(|entry| add(entry.r_offset(LittleEndian), entry.r_sym(LittleEndian, false), entry.r_addend(LittleEndian)));
            } else if let Ok(Some((entries, _))) = section.rel(LittleEndian, image) {
                entries.iter().for_each(|entry| add(entry.r_offset(LittleEndian), entry.r_sym(LittleEndian), 0));
            }
        }
        self.anchors.sort_by_key(|anchor| anchor.at);
    }

    /// Looks into the table that begins at this byte. Returns what it has found, and where the next
    /// table begins; `None` if it cannot be read.
    fn search(&self, begin: usize, offset: u64) -> Option<(Option<Source>, usize)> {
        let frame = Frame { addresses: &self.addresses, anchors: &self.anchors };
        let reader: Reader<'_> = RelocateReader::new(EndianSlice::new(self.lines, gimli::LittleEndian), frame);
        let next = measure(&reader, begin)?;
        let mut program = DebugLine::from(reader).program(DebugLineOffset(begin), ADDRESS_BYTES, None, None).ok()?;
        let header = program.header();
        let mut instructions = header.instructions();
        let mut row = LineRow::new(program.header());
        let mut rows = Rows::default();
        // Instructions that are not known end the table: what follows may mean anything.
        while let Ok(Some(instruction)) = instructions.next_instruction(program.header()) {
            if let LineInstruction::UnknownExtended(opcode, mut operands) = instruction {
                if opcode.0 == INLINED_CALL {
                    rows.caller = operands.read_uleb128().ok().and_then(|row| usize::try_from(row).ok()).unwrap_or(0);
                }
                continue;
            }
            if let LineInstruction::DefineFile(_) = instruction {
                // No compiler does that. Names take memory.
                continue;
            }
            match row.execute(instruction, &mut program) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => break,
            }
            if let Some(found) = rows.add(&row, offset) {
                return Some((rows.source(found, |file| self.file(program.header(), file)), next));
            }
            row.reset(program.header());
        }
        Some((None, next))
    }

    /// The name of a file.
    fn file(&self, header: &Header<'_>, number: u64) -> Option<String> {
        let entry = header.file(number)?;
        let name = self.text(entry.path_name())?;
        let folder = entry.directory(header).filter(|_| !name.starts_with('/')).and_then(|folder| self.text(folder));
        Some(match folder.filter(|folder| !folder.is_empty()) {
            Some(folder) => format!("{}/{name}", folder.trim_end_matches('/')),
            None => name,
        })
    }

    fn text(&self, value: AttributeValue<Reader<'_>>) -> Option<String> {
        let ended = |texts: &[u8], at: usize| texts.get(at..)?.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
        let bytes = match value {
            AttributeValue::String(text) => text.to_slice().ok()?.into_owned(),
            AttributeValue::DebugLineStrRef(at) => ended(self.line_texts, at.0)?,
            AttributeValue::DebugStrRef(at) => ended(self.texts, at.0)?,
            _ => return None,
        };
        Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| !text.is_empty())
    }
}

/// A row of the function.
#[derive(Debug, Clone, Copy)]
struct Row {
    offset: u64,
    file: u64,
    line: Option<NonZeroU64>,
    /// The number of the row that calls the inlined function, from 1; 0 if it is none.
    caller: usize,
}

/// The rows of a sequence, as far as they belong to the function.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<Row>,
    /// The row that calls the function whose rows follow.
    caller: usize,
    /// True once rows of the sequence were left out: there are too many.
    is_full: bool,
}

impl Rows {
    /// Adds a row. Returns the index of the row before it if the instruction at `wanted` is
    /// between the two.
    fn add(&mut self, row: &LineRow, wanted: u64) -> Option<usize> {
        let offset = row.address();
        let before = !self.is_full && self.rows.last().is_some_and(|last| (last.offset..offset).contains(&wanted));
        if before && offset < ELSEWHERE {
            return Some(self.rows.len() - 1);
        }
        if row.end_sequence() {
            *self = Rows::default();
        } else if self.rows.len() >= MOST_ROWS {
            self.is_full = true;
        } else if offset < ELSEWHERE {
            self.rows.push(Row { offset, file: row.file_index(), line: row.line(), caller: self.caller });
        }
        None
    }

    /// What a row says, and where its outermost caller is.
    fn source(&self, index: usize, name: impl Fn(u64) -> Option<String>) -> Option<Source> {
        let line_of = |row: &Row| Some(Line::new(&name(row.file)?, row.line?.get()));
        let found = self.rows.get(index)?;
        let (mut at, mut caller) = (index, None);
        // A caller's row is before that of what it calls.
        while let Some(next) = self.rows.get(at).and_then(|row| row.caller.checked_sub(1)).filter(|next| *next < at) {
            at = next;
            caller = self.rows.get(at);
        }
        Some(Source { line: line_of(found)?, called_from: caller.and_then(line_of) })
    }
}
