//! Images that the compiler made (see data/variables.cu), with their variables at other places.
//!
//! What a rewritten image must hold is computed a second time, with another reader of ELF files.

mod dice;

use cumux_fatbin::cubin::{Cubin, Home, Literals, Obstacle, is_literal};
use dice::Dice;
use object::read::elf::{ElfFile64, Rel as _, Rela as _, SectionHeader as _};
use object::{Endianness, LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolIndex};
use std::collections::BTreeMap;

const SM_90: &[u8] = include_bytes!("data/variables.sm_90.cubin");
const SM_80: &[u8] = include_bytes!("data/variables.sm_80.cubin");
const DEBUG: &[u8] = include_bytes!("data/variables.debug.cubin");
const LINKED: &[u8] = include_bytes!("data/variables.linked.cubin");
const SM_100: &[u8] = include_bytes!("data/variables.sm_100.cubin");
const FUNCTIONS: &[u8] = include_bytes!("data/functions.sm_90.cubin");
const FUNCTIONS_DEBUG: &[u8] = include_bytes!("data/functions.debug.cubin");
const HEAP: &[u8] = include_bytes!("data/heap.sm_90.cubin");
const TABLE: &[u8] = include_bytes!("data/table.linked.cubin");
const MANAGED: &[u8] = include_bytes!("data/managed.sm_90.cubin");
const PLAIN: &[u8] = include_bytes!("data/sm_75.cubin");
const ALL: [&[u8]; 11] = [SM_90, SM_80, DEBUG, LINKED, SM_100, FUNCTIONS, FUNCTIONS_DEBUG, HEAP, MANAGED, TABLE, PLAIN];

/// Addresses for the blocks: different in every byte, and far from one another.
const BASES: [u64; 2] = [0x1a2b_3c4d_5e00, 0x2132_4354_6500];

/// The address of a variable of the image at [`BASES`].
fn address(cubin: &Cubin, name: &str) -> u64 {
    let variable = cubin.variables.iter().find(|variable| variable.name == name).unwrap_or_else(|| panic!("no variable {name}"));
    match variable.home {
        Home::Block(block) => BASES[block] + variable.offset,
        Home::Constants => panic!("{name} is constant"),
    }
}

/// A rewritten copy of the image, and what was known of it.
fn placed(image: &[u8], literals: Literals) -> (Cubin, Vec<u8>) {
    let cubin = Cubin::read(image).unwrap();
    let mut copy = image.to_vec();
    cubin.place(&mut copy, &BASES[..cubin.blocks.len()], literals).unwrap();
    (cubin, copy)
}

/// The bytes that must have changed, by their places: for each relocation against a variable its
/// type and the address.
fn expected(image: &[u8], cubin: &Cubin, literals: Literals) -> BTreeMap<usize, u8> {
    let file = ElfFile64::<Endianness>::parse(image).unwrap();
    let endian = Endianness::Little;
    let sections = file.elf_section_table();
    let mut bytes = BTreeMap::new();
    for header in sections.iter() {
        let rela: Vec<(u64, u32, u32, i64, usize)> = match header.sh_type(endian).0 {
            4 => {
                let (entries, _) = header.rela(endian, image).unwrap().unwrap();
                let at = header.sh_offset(endian) as usize;
                let entry = |(n, r): (usize, &object::elf::Rela64<Endianness>)| {
                    (r.r_offset(endian), r.r_type(endian, false).0, r.r_sym(endian, false), r.r_addend(endian), at + 24 * n + 8)
                };
                entries.iter().enumerate().map(entry).collect()
            }
            9 => {
                let (entries, _) = header.rel(endian, image).unwrap().unwrap();
                let at = header.sh_offset(endian) as usize;
                let entry = |(n, r): (usize, &object::elf::Rel64<Endianness>)| (r.r_offset(endian), r.r_type(endian).0, r.r_sym(endian), 0, at + 16 * n + 8);
                entries.iter().enumerate().map(entry).collect()
            }
            _ => continue,
        };
        let target = file.section_by_index(object::SectionIndex(header.sh_info(endian) as usize)).unwrap();
        let name = target.name().unwrap().to_owned();
        if name.contains("debug") {
            continue;
        }
        for (offset, kind, symbol, addend, info_at) in rela {
            let symbol = file.symbol_by_index(SymbolIndex(symbol as usize)).unwrap();
            let home = symbol.section_index().and_then(|index| file.section_by_index(index).ok()).map(|s| s.name().unwrap().to_owned());
            let Some(block) = cubin.blocks.iter().position(|block| Some(&block.name) == home.as_ref()) else { continue };
            let is_code = name.starts_with(".text") || name.starts_with(".nv.constant");
            if literals == Literals::LeftToDriver && is_code && is_literal(symbol.name_bytes().unwrap()) {
                continue;
            }
            let value = (BASES[block] + symbol.address()).wrapping_add_signed(addend).to_le_bytes();
            let at = target.file_range().unwrap().0 as usize + offset as usize;
            let field: Vec<(usize, u8)> = match kind {
                2 | 4 => (0..8).map(|n| (at + n, value[n])).collect(),
                56 => (0..4).map(|n| (at + 4 + n, value[n])).collect(),
                57 => (0..4).map(|n| (at + 4 + n, value[4 + n])).collect(),
                84..=91 => vec![(at, value[kind as usize - 84])],
                other => panic!("a relocation of type {other} in {name}"),
            };
            bytes.extend(field);
            bytes.extend((0..4).map(|n| (info_at + n, 0)));
        }
    }
    bytes
}

#[test]
fn exactly_the_references_to_variables_are_rewritten() {
    for (n, image) in [SM_90, SM_80, DEBUG, LINKED, FUNCTIONS, HEAP].into_iter().enumerate() {
        for literals in [Literals::Placed, Literals::LeftToDriver] {
            let (cubin, copy) = placed(image, literals);
            let expected = expected(image, &cubin, literals);
            assert!(expected.len() > 150, "image {n}: {}", expected.len());
            for (at, (before, after)) in image.iter().zip(&copy).enumerate() {
                assert_eq!(after, expected.get(&at).unwrap_or(before), "image {n}, byte {at:#x}");
            }
            // A second reading finds nothing left to be done: what code needs of the blocks is
            // there.
            let again = Cubin::read(&copy).unwrap();
            let mut twice = copy.clone();
            again.place(&mut twice, &[0; 2], Literals::LeftToDriver).unwrap();
            assert_eq!(twice, copy, "image {n}");
        }
    }
}

#[test]
fn initial_values_and_pointers_in_them_are_right() {
    for image in [SM_90, SM_80, DEBUG, LINKED] {
        let (cubin, copy) = placed(image, Literals::LeftToDriver);
        let initial = |name: &str, bytes: usize| {
            let variable = cubin.variables.iter().find(|variable| variable.name == name).unwrap();
            let Home::Block(block) = variable.home else { panic!("{name} is constant") };
            let at = variable.offset as usize;
            cubin.blocks[block].contents(&copy).unwrap()[at..at + bytes].to_vec()
        };
        assert_eq!(initial("counters", 16), [1, 2, 3, 4].map(i32::to_le_bytes).concat());
        assert_eq!(initial("pointer", 8), (address(&cubin, "counters") + 8).to_le_bytes());
        assert_eq!(initial("into_zeroed", 8), (address(&cubin, "zeroed") + 20).to_le_bytes());
        let pointer_in_packed = &initial("packed", 9)[1..];
        assert_eq!(pointer_in_packed, (address(&cubin, "counters") + 4).to_le_bytes(), "one byte at a time");
        // Pointers in variables point to the copy of a text, also where code uses the driver's.
        let words = initial("words", 16);
        let word = u64::from_le_bytes(*words.first_chunk().unwrap());
        let texts = cubin.variables.iter().filter(|variable| variable.literal && matches!(variable.home, Home::Block(_)));
        let Some(text) = texts.into_iter().find(|text| address(&cubin, &text.name) == word) else { panic!("{word:#x} is no text") };
        assert_eq!(initial(&text.name, 4), b"one\0");
    }
}

#[test]
fn blocks_and_variables_are_described() {
    let cubin = Cubin::read(SM_90).unwrap();
    let blocks: Vec<_> = cubin.blocks.iter().map(|block| (block.name.as_str(), block.bytes, block.align, block.contents(SM_90).is_some())).collect();
    assert_eq!(blocks, [(".nv.global.init", 81, 8, true), (".nv.global", 32, 4, false)]);
    assert_eq!(cubin.constant_bytes, 24);
    let variable = |name: &str| cubin.variables.iter().find(|variable| variable.name == name).map(|v| (v.home, v.bytes, v.literal)).unwrap();
    assert_eq!(variable("zeroed"), (Home::Block(1), 32, false));
    assert_eq!(variable("counters"), (Home::Block(0), 16, false));
    assert_eq!(variable("factors"), (Home::Constants, 16, false));
    assert!(cubin.variables.iter().any(|variable| variable.literal));
    assert!(!cubin.allocates && cubin.address_taken.is_none() && cubin.obstacle.is_none());
    let plain = Cubin::read(PLAIN).unwrap();
    assert!(plain.blocks.is_empty() && plain.variables.is_empty() && plain.constant_bytes == 0);
}

#[test]
fn managed_variables_have_blocks_of_their_own() {
    let cubin = Cubin::read(MANAGED).unwrap();
    let managed = |name: &str| {
        let variable = cubin.variables.iter().find(|variable| variable.name == name).unwrap_or_else(|| panic!("no variable {name}"));
        let Home::Block(block) = variable.home else { panic!("{name} is constant") };
        cubin.blocks[block].managed.then(|| {
            assert_eq!((variable.offset, variable.bytes), (0, cubin.blocks[block].bytes));
            (block, cubin.blocks[block].contents(MANAGED).map(<[u8]>::to_vec))
        })
    };
    assert_eq!((managed("beside"), managed("zero_beside")), (None, None));
    assert_eq!(managed("managed_count").unwrap().1, Some(5_i32.to_le_bytes().to_vec()));
    assert_eq!(managed("managed_table").unwrap().1, Some([1_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()));
    assert_eq!(managed("managed_zero").unwrap().1, None);
    assert!(cubin.blocks.iter().all(|block| block.bytes > 0), "each section has other variables, too");
    let names: std::collections::BTreeSet<&str> = cubin.blocks.iter().map(|block| block.name.as_str()).collect();
    assert_eq!(names.len(), cubin.blocks.len());

    let bases: Vec<u64> = (1..=cubin.blocks.len() as u64).map(|n| n * 0x1_0203_0400).collect();
    let mut copy = MANAGED.to_vec();
    cubin.place(&mut copy, &bases, Literals::Placed).unwrap();
    // Code has the addresses in a table, one for each variable and for each end that it compares.
    let file = ElfFile64::<Endianness>::parse(MANAGED).unwrap();
    let endian = Endianness::Little;
    let mut checked = std::collections::BTreeSet::new();
    for header in file.elf_section_table().iter().filter(|header| header.sh_type(endian).0 == 4) {
        let target = file.section_by_index(object::SectionIndex(header.sh_info(endian) as usize)).unwrap();
        if !target.name().unwrap().starts_with(".nv.constant4") {
            continue;
        }
        let (entries, _) = header.rela(endian, MANAGED).unwrap().unwrap();
        for entry in entries {
            let symbol = file.symbol_by_index(SymbolIndex(entry.r_sym(endian, false) as usize)).unwrap();
            let (name, addend) = (symbol.name().unwrap(), entry.r_addend(endian));
            if !cubin.variables.iter().any(|variable| variable.name == name) {
                continue; // A function of the driver's.
            }
            let base = match managed(name) {
                Some((block, _)) => bases[block],
                None => {
                    let variable = cubin.variables.iter().find(|variable| variable.name == name).unwrap();
                    let Home::Block(block) = variable.home else { panic!("{name} is constant") };
                    bases[block] + symbol.address()
                }
            };
            let at = target.file_range().unwrap().0 as usize + entry.r_offset(endian) as usize;
            assert_eq!(copy[at..at + 8], base.wrapping_add_signed(addend).to_le_bytes(), "{name} + {addend}");
            checked.insert(name.to_owned());
        }
    }
    for name in ["managed_count", "managed_table", "managed_zero", "beside", "zero_beside"] {
        assert!(checked.contains(name), "{name}: {checked:?}");
    }
}

/// Each is a block of its own, that others have to deal with one by one.
#[test]
fn more_managed_variables_than_a_program_has_are_not_placed() {
    let file = ElfFile64::<Endianness>::parse(MANAGED).unwrap();
    let table = file.section_by_name(".symtab").unwrap();
    let (start, bytes) = table.file_range().map(|(start, bytes)| (start as usize, bytes as usize)).unwrap();
    let variable = file.symbols().find(|symbol| symbol.name() == Ok("managed_zero")).unwrap();
    let home = variable.section_index().unwrap().0;
    let entry = &MANAGED[start + 24 * variable.index().0..][..24];
    let sections_at = u64::from_le_bytes(*MANAGED[40..].first_chunk().unwrap()) as usize;
    let header = |n: usize| sections_at + 64 * n;
    let with = |count: u64, size: u64| {
        let mut image = MANAGED.to_vec();
        let at = image.len() as u64;
        let symbol = |n: u64| [&entry[..8], &((1 << 20) + n * 16).to_le_bytes()[..], &size.to_le_bytes()].concat();
        let symbols = [&MANAGED[start..start + bytes], &(0..count).flat_map(symbol).collect::<Vec<u8>>()].concat();
        image.extend_from_slice(&symbols);
        // Names count each time that they are read, and no more may be read than there is.
        image.resize(image.len() + (1 << 20), 0);
        image[header(table.index().0) + 24..header(table.index().0) + 32].copy_from_slice(&at.to_le_bytes());
        image[header(table.index().0) + 32..header(table.index().0) + 40].copy_from_slice(&(symbols.len() as u64).to_le_bytes());
        // Their section takes no place in the file.
        image[header(home) + 32..header(home) + 40].copy_from_slice(&(1_u64 << 24).to_le_bytes());
        Cubin::read(&image).unwrap()
    };
    let (few, many, empty) = (with(1000, 4), with(5000, 4), with(5000, 0));
    assert_eq!((few.blocks.iter().filter(|block| block.managed).count(), few.obstacle), (1003, None));
    assert_eq!(many.obstacle, Some(Obstacle::Managed { most: 4096 }));
    assert!(many.blocks.len() < 4200);
    assert_eq!((empty.blocks.iter().filter(|block| block.managed).count(), empty.obstacle), (3, None), "they hold nothing");
}

/// As in NCCL: the driver's copy of the table serves, and everything else is placed.
#[test]
fn tables_that_are_only_called_are_left_to_the_driver() {
    let cubin = Cubin::read(TABLE).unwrap();
    assert_eq!((&cubin.obstacle, &cubin.address_taken), (&None, &None));
    assert!(!cubin.variables.iter().any(|variable| variable.name.contains("ncclDevFuncTable")), "only code sees it");
    let bases: Vec<u64> = (1..=cubin.blocks.len() as u64).map(|n| n * 0x1_0203_0400).collect();
    let mut copy = TABLE.to_vec();
    cubin.place(&mut copy, &bases, Literals::Placed).unwrap();
    let file = ElfFile64::<Endianness>::parse(TABLE).unwrap();
    let endian = Endianness::Little;
    let (mut placed, mut called, mut functions) = (0, 0, 0);
    for header in file.elf_section_table().iter() {
        let start = header.sh_offset(endian) as usize;
        let entries: Vec<(u32, usize)> = match header.sh_type(endian).0 {
            4 => header.rela(endian, TABLE).unwrap().unwrap().0.iter().enumerate().map(|(n, r)| (r.r_sym(endian, false), start + 24 * n + 8)).collect(),
            9 => header.rel(endian, TABLE).unwrap().unwrap().0.iter().enumerate().map(|(n, r)| (r.r_sym(endian), start + 16 * n + 8)).collect(),
            _ => continue,
        };
        for (symbol, info_at) in entries {
            let symbol = file.symbol_by_index(SymbolIndex(symbol as usize)).unwrap();
            let is_kept = copy[info_at..info_at + 8] == TABLE[info_at..info_at + 8];
            match symbol.name().unwrap() {
                "times" => {
                    assert!(!is_kept);
                    placed += 1;
                }
                name if name.contains("ncclDevFuncTable") => {
                    assert!(is_kept);
                    called += 1;
                }
                name if name.contains("_it") => {
                    assert!(is_kept);
                    functions += 1;
                }
                _ => {}
            }
        }
    }
    // Halves of addresses in code, words in the table, and two for debuggers.
    assert_eq!((placed, called, functions), (2, 2, 4));
}

#[test]
fn what_cannot_be_placed_is_said() {
    let second = Cubin::read(SM_100).unwrap();
    assert!(matches!(&second.obstacle, Some(Obstacle::SecondForm { section }) if section.starts_with(".nv.")), "{:?}", second.obstacle);
    let code = Cubin::read(FUNCTIONS_DEBUG).unwrap();
    assert!(matches!(&code.obstacle, Some(Obstacle::CodeAddress { function }) if function == "twice" || function == "thrice"), "{:?}", code.obstacle);
    let mut copy = FUNCTIONS_DEBUG.to_vec();
    assert_eq!(code.place(&mut copy, &BASES, Literals::Placed).err(), code.obstacle);
    assert_eq!(copy, FUNCTIONS_DEBUG, "nothing is written");
    assert!(code.address_taken.is_some(), "a kernel stores it, too");
    assert_eq!(Cubin::read(FUNCTIONS).unwrap().address_taken, None, "these are offsets that the compiler knows");
    assert!(Cubin::read(HEAP).unwrap().allocates);
    assert_eq!(Cubin::read(b"\x7fELF"), Err(Obstacle::Damaged { what: "the header", at: 0 }));
    // A relocation of a type that nobody knows.
    let changed = with_kind(SM_90, 2, 1);
    let text = Cubin::read(&changed).unwrap().obstacle.unwrap().to_string();
    assert!(text.contains("by a relocation of type 1, which is not known") && text.starts_with(".nv.constant4 refers to the variable "), "{text}");
    // An addend both in the relocation and at its place: nobody knows which counts.
    let expected = expected(SM_90, &Cubin::read(SM_90).unwrap(), Literals::Placed);
    let field = expected.iter().find(|(_, byte)| **byte != 0).map(|(at, _)| *at).unwrap();
    let mut changed = SM_90.to_vec();
    changed[field] = 1;
    assert!(Cubin::read(&changed).unwrap().obstacle.is_some());
}

/// The image with the first relocation of type `from` changed to type `to`.
fn with_kind(image: &[u8], from: u32, to: u32) -> Vec<u8> {
    let file = ElfFile64::<LittleEndian>::parse(image).unwrap();
    let section = file.section_by_name(".rela.nv.constant4").unwrap();
    let (start, bytes) = section.file_range().unwrap();
    let mut changed = image.to_vec();
    let places = (start as usize..(start + bytes) as usize).step_by(24).map(|entry| entry + 8);
    let at = places.into_iter().find(|at| changed[*at..*at + 4] == from.to_le_bytes() && symbol_is_variable(&file, image, *at)).unwrap();
    changed[at..at + 4].copy_from_slice(&to.to_le_bytes());
    changed
}

fn symbol_is_variable(file: &ElfFile64<'_, LittleEndian>, image: &[u8], info_at: usize) -> bool {
    let index = u32::from_le_bytes(*image[info_at + 4..].first_chunk().unwrap());
    file.symbol_by_index(SymbolIndex(index as usize)).is_ok_and(|symbol| symbol.name() == Ok("counters"))
}

/// Each of these bytes alone says that it is another kind of file: 32 bits, big-endian, not yet
/// linked, code for another machine.
#[test]
fn only_linked_code_for_this_kind_of_machine_is_read() {
    for (at, byte) in [(4, 1), (5, 2), (16, 1), (18, 62)] {
        let mut image = SM_90.to_vec();
        assert_ne!(image[at], byte);
        image[at] = byte;
        assert_eq!(Cubin::read(&image), Err(Obstacle::NotLinked), "byte {at} is {byte}");
    }
}

/// Many variables that all have the same long name: a small file that would make a large table.
#[test]
fn names_that_are_longer_than_the_file_are_refused() {
    let file = ElfFile64::<Endianness>::parse(SM_90).unwrap();
    let table = file.section_by_name(".symtab").unwrap();
    let (start, bytes) = table.file_range().map(|(start, bytes)| (start as usize, bytes as usize)).unwrap();
    let variable = file.symbols().find(|symbol| symbol.name() == Ok("zeroed")).unwrap();
    let entry = &SM_90[start + 24 * variable.index().0..][..24];
    let sections_at = u64::from_le_bytes(*SM_90[40..].first_chunk().unwrap()) as usize;
    let header = |n: usize| sections_at + 64 * n;
    let strings = u32::from_le_bytes(*SM_90[header(table.index().0) + 40..].first_chunk().unwrap()) as usize;
    let names = file.section_by_index(object::SectionIndex(strings)).unwrap().data().unwrap();
    // A table with this one symbol so many times, and a name of so many bytes, behind the rest.
    let with = |symbols: usize, name: usize| {
        let mut image = SM_90.to_vec();
        let mut append = |section: usize, contents: &[u8]| {
            let at = image.len() as u64;
            image.extend_from_slice(contents);
            image[header(section) + 24..header(section) + 32].copy_from_slice(&at.to_le_bytes());
            image[header(section) + 32..header(section) + 40].copy_from_slice(&(contents.len() as u64).to_le_bytes());
        };
        append(strings, &[names, &b"n".repeat(name), &[0]].concat());
        let symbol = [&(names.len() as u32).to_le_bytes()[..], &entry[4..]].concat();
        append(table.index().0, &[&SM_90[start..start + bytes], &symbol.repeat(symbols)].concat());
        Cubin::read(&image)
    };
    let long = SM_90.len();
    assert!(with(1, long).is_ok_and(|cubin| cubin.variables.iter().any(|variable| variable.name.len() == long)), "one is no harm");
    let refused = with(200, long).unwrap_err().to_string();
    assert!(refused.contains("longer than the file"), "{refused}");
}

#[test]
fn tables_that_overlap_take_no_time() {
    let at = u64::from_le_bytes(*LINKED[40..].first_chunk().unwrap()) as usize;
    let sections = u16::from_le_bytes(*LINKED[60..].first_chunk().unwrap()) as usize;
    let header = |n: usize| &LINKED[at + 64 * n..at + 64 * (n + 1)];
    let relocations = (0..sections).find(|n| header(*n)[4..8] == 4_u32.to_le_bytes() && header(*n)[32] > 24).unwrap();
    let with_tables = |count: usize| {
        // The section headers once more behind the rest, and then one table so many times.
        let mut image = [LINKED, &LINKED[at..at + 64 * sections], &header(relocations).repeat(count)].concat();
        image[40..48].copy_from_slice(&(LINKED.len() as u64).to_le_bytes());
        image[60..62].copy_from_slice(&((sections + count) as u16).to_le_bytes());
        Cubin::read(&image)
    };
    assert!(with_tables(1).is_ok_and(|cubin| cubin.blocks.len() == 2), "a few are no harm");
    let refused = with_tables(1000).unwrap_err().to_string();
    assert!(refused.contains("longer than the file"), "{refused}");
}

#[test]
fn damaged_images_never_panic_and_keep_their_length() {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let interesting = [0_u8, 1, 2, 4, 8, 9, 56, 57, 84, 0x7f, 0x80, 0xff];
    let (mut refused, mut done) = (0, 0);
    for round in 0..12_000 {
        let source = ALL[round % ALL.len()];
        // The section table is where most can go wrong; it is behind everything else, like the
        // tables of symbols and relocations are in front.
        let sections_at = u64::from_le_bytes(*source[40..].first_chunk().unwrap()) as usize;
        let mut image = source.to_vec();
        for _ in 0..=dice.roll(4) {
            let at = match dice.roll(4) {
                0 => dice.roll(64),
                1 => sections_at + dice.roll(source.len() - sections_at),
                _ => dice.roll(source.len()),
            };
            image[at.min(source.len() - 1)] = match dice.roll(3) {
                0 => dice.roll(256) as u8,
                _ => interesting[dice.roll(interesting.len())],
            };
        }
        if dice.roll(10) == 0 {
            image.truncate(dice.roll(image.len() + 1));
        }
        let length = image.len();
        match Cubin::read(&image) {
            Ok(cubin) => {
                let bases: Vec<u64> = cubin.blocks.iter().map(|_| dice.roll(usize::MAX) as u64).collect();
                for block in &cubin.blocks {
                    assert!(block.align.is_power_of_two() && block.contents(&image).is_none_or(|bytes| bytes.len() as u64 == block.bytes));
                }
                match cubin.place(&mut image, &bases, Literals::Placed) {
                    Ok(()) => done += 1,
                    Err(_) => refused += 1,
                }
                assert_eq!(image.len(), length);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 500 && done > 500, "the changes are too harmless or too harmful: {refused} {done}");
}
