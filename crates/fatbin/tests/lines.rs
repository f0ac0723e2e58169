//! Source lines out of images that the compiler made (see data/lines.cu), as the compiler made them
//! and as a driver relocates them.

mod dice;

use cumux_fatbin::lines::{Line, find};
use dice::Dice;
use object::LittleEndian;
use object::elf::{FileHeader64, SHT_NULL, SHT_RELA};
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};
use std::mem::{offset_of, size_of};

const SM_90: &[u8] = include_bytes!("data/lines.sm_90.cubin");
const SM_100: &[u8] = include_bytes!("data/lines.sm_100.cubin");
const DEBUG: &[u8] = include_bytes!("data/lines.debug.cubin");
const LINKED: &[u8] = include_bytes!("data/lines.linked.cubin");
const WITHOUT: &[u8] = include_bytes!("data/variables.sm_90.cubin");
const ALL: [&[u8]; 5] = [SM_90, SM_100, DEBUG, LINKED, WITHOUT];

fn told(image: &[u8], function: &str, offset: u64) -> String {
    find(image, function, offset).map_or_else(|| "nothing".into(), |source| source.to_string())
}

/// What becomes of the relocations when an image is relocated.
#[derive(Clone, Copy, PartialEq)]
enum Relocations {
    Kept,
    Removed,
}

/// The image as a driver puts it on a card: functions have addresses, and the tables for debuggers
/// have them, too.
fn relocated(image: &[u8], relocations: Relocations) -> Vec<u8> {
    type Section = object::elf::SectionHeader64<LittleEndian>;
    type Symbol = object::elf::Sym64<LittleEndian>;
    let header = FileHeader64::<LittleEndian>::parse(image).unwrap();
    let sections = header.sections(LittleEndian, image).unwrap();
    let (symbols, symbols_at) = (sections.symbols(LittleEndian, image, object::elf::SHT_SYMTAB).unwrap(), {
        let table = sections.iter().find(|section| section.sh_type(LittleEndian) == object::elf::SHT_SYMTAB).unwrap();
        table.sh_offset(LittleEndian) as usize
    });
    let table = header.e_shoff(LittleEndian) as usize;
    let address = |index: usize| 0x7f12_3400_0000 + (index as u64) * 0x10_0000;
    let mut out = image.to_vec();
    let mut write = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    for (index, section) in sections.enumerate() {
        let here = table + index.0 * size_of::<Section>();
        let name = sections.section_name(LittleEndian, section).unwrap();
        if name.starts_with(b".text.") {
            write(here + offset_of!(Section, sh_addr), &address(index.0).to_le_bytes());
        }
        if section.sh_type(LittleEndian) != SHT_RELA || name != b".rela.debug_line" {
            continue;
        }
        let target = sections.section(object::SectionIndex(section.sh_info(LittleEndian) as usize)).unwrap();
        for rela in section.rela(LittleEndian, image).unwrap().unwrap().0 {
            let symbol = symbols.symbol(object::SymbolIndex(rela.r_sym(LittleEndian, false) as usize)).unwrap();
            let value = address(usize::from(symbol.st_shndx(LittleEndian).0)) + symbol.st_value(LittleEndian);
            write(
                (target.sh_offset(LittleEndian) + rela.r_offset(LittleEndian)) as usize,
                &value.wrapping_add_signed(rela.r_addend(LittleEndian)).to_le_bytes(),
            );
        }
        if relocations == Relocations::Removed {
            write(here + offset_of!(Section, sh_type), &SHT_NULL.0.to_le_bytes());
        }
    }
    for (index, symbol) in symbols.enumerate() {
        let section = usize::from(symbol.st_shndx(LittleEndian).0);
        if sections.section(object::SectionIndex(section)).is_ok_and(|section| section.sh_flags(LittleEndian).0 & 4 != 0) {
            let value = address(section) + symbol.st_value(LittleEndian);
            write(symbols_at + index.0 * size_of::<Symbol>() + offset_of!(Symbol, st_value), &value.to_le_bytes());
        }
    }
    out
}

/// Functions, offsets in them, and their lines, as `llvm-dwarfdump --debug-line` shows the rows.
const KNOWN: [(&[u8], &str, u64, &str); 17] = [
    (SM_90, "store", 0, "/mnt/lines.cu:11"),
    (SM_90, "store", 0x60, "/mnt/lines.cu:12"),
    (SM_90, "store", 0x17f, "/mnt/lines.cu:13"),
    (SM_90, "store", 0x180, "nothing"),
    (SM_90, "inlined", 0x20, "/mnt/lines.cu:16"),
    (SM_90, "inlined", 0x30, "/mnt/lines.cuh:3, inlined at /mnt/lines.cu:17"),
    (SM_90, "inlined", 0x50, "/mnt/lines.cu:16"),
    (SM_90, "inlined", 0x90, "/mnt/lines.cuh:3, inlined at /mnt/lines.cu:17"),
    (SM_90, "inlined", 0xa0, "/mnt/lines.cuh:7, inlined at /mnt/lines.cu:17"),
    (SM_90, "inlined", 0xb0, "/mnt/lines.cu:17"),
    (SM_100, "inlined", 0x70, "/mnt/lines.cuh:3, inlined at /mnt/lines.cu:17"),
    (DEBUG, "store", 0xe0, "/mnt/lines.cu:12"),
    (DEBUG, "inlined", 0x280, "/mnt/lines.cuh:3"),
    (LINKED, "store", 0x10, "/mnt/lines.cu:12"),
    (LINKED, "calls", 0x40, "/mnt/lines.cu:25"),
    (LINKED, "called$1", 0x40, "/mnt/lines.cu:21"),
    (WITHOUT, "count", 0x40, "nothing"),
];

#[test]
fn lines_are_those_of_the_compiler() {
    for (image, function, offset, line) in KNOWN {
        assert_eq!(told(image, function, offset), line, "{function}+{offset:#x}");
        for relocations in [Relocations::Kept, Relocations::Removed] {
            assert_eq!(told(&relocated(image, relocations), function, offset), line, "{function}+{offset:#x}, relocated");
        }
        assert_eq!(told(image, "stor", offset), "nothing");
        assert_eq!(told(image, "", offset), "nothing");
    }
}

#[test]
fn names_of_files_are_shortened_at_their_beginning() {
    let long = Line::new(&format!("/{}/kernel\u{1b}[2J.cu", "folder/".repeat(1000)), 7).to_string();
    assert!(long.starts_with("…") && long.ends_with("/kernel\u{fffd}[2J.cu:7") && long.chars().count() < 210, "{long}");
    assert_eq!(Line::new("é.cu", 1).to_string(), "é.cu:1");
    assert_eq!(Line::new(&"x".repeat(200), 1).file, "x".repeat(200));
}

/// The bytes of a section in the image.
fn section(image: &[u8], name: &str) -> std::ops::Range<usize> {
    let header = FileHeader64::<LittleEndian>::parse(image).unwrap();
    let sections = header.sections(LittleEndian, image).unwrap();
    let (_, found) = sections.section_by_name(LittleEndian, name.as_bytes()).unwrap();
    let start = found.sh_offset(LittleEndian) as usize;
    start..start + found.sh_size(LittleEndian) as usize
}

#[test]
fn damaged_images_never_panic() {
    let mut dice = Dice(5);
    for image in ALL {
        let relocated = relocated(image, Relocations::Kept);
        let lines = if image == WITHOUT { 0..image.len() } else { section(image, ".debug_line") };
        for round in 0..3000 {
            let mut damaged = if round % 2 == 0 { image.to_vec() } else { relocated.clone() };
            // Half of the damage is in the line table, where it is most interesting.
            let part = if round % 4 < 2 { lines.clone() } else { 0..image.len() };
            for _ in 0..=dice.roll(4) {
                damaged[part.start + dice.roll(part.len())] = dice.roll(256) as u8;
            }
            if round % 8 == 7 {
                damaged.truncate(dice.roll(image.len()));
            }
            for function in ["store", "inlined", "calls"] {
                if let Some(source) = find(&damaged, function, dice.roll(0x200) as u64) {
                    assert!(source.to_string().chars().count() < 500 && source.line.line > 0, "{source}");
                }
            }
        }
    }
}

/// The image with another line table.
fn with_table(image: &[u8], table: &[u8]) -> Vec<u8> {
    let header = FileHeader64::<LittleEndian>::parse(image).unwrap();
    let sections = header.sections(LittleEndian, image).unwrap();
    let (index, _) = sections.section_by_name(LittleEndian, b".debug_line").unwrap();
    let entry = header.e_shoff(LittleEndian) as usize + index.0 * 64;
    let mut changed = [image, table].concat();
    changed[entry + 24..entry + 40].copy_from_slice(&[(image.len() as u64).to_le_bytes(), (table.len() as u64).to_le_bytes()].concat());
    changed
}

/// The table with this many more folders, which no file is in.
fn with_folders(table: &[u8], folders: usize) -> Vec<u8> {
    let end = table.windows(5).position(|bytes| bytes == b"/mnt\0").unwrap() + 5;
    let mut longer = [&table[..end], &b"a\0".repeat(folders), &table[end..]].concat();
    for at in [0, 6] {
        let length = u32::from_le_bytes(*table[at..].first_chunk().unwrap()) + 2 * folders as u32;
        longer[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
    longer
}

#[test]
fn tables_that_are_too_long_are_not_read() {
    let image = relocated(SM_90, Relocations::Removed);
    let table = &image[section(&image, ".debug_line")];
    for (folders, line) in [(0, "/mnt/lines.cu:12"), (1000, "/mnt/lines.cu:12"), (200_000, "nothing")] {
        assert_eq!(told(&with_table(&image, &with_folders(table, folders)), "store", 0x60), line, "{folders} folders");
    }
    for (bytes, line) in [(1 << 20, "/mnt/lines.cu:12"), (40 << 20, "nothing")] {
        let mut padded = table.to_vec();
        padded.resize(bytes, 0);
        assert_eq!(told(&with_table(&image, &padded), "store", 0x60), line, "{bytes} bytes");
    }
}
