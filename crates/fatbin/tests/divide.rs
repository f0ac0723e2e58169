//! Images that the compiler made, divided into an outline and excerpts. What the parts must hold is
//! read with another reader of ELF files.

mod dice;

use cumux_fatbin::cubin::{Division, Undivided};
use dice::Dice;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};

const CALLS: &[u8] = include_bytes!("data/calls.sm_90.cubin");
const FUNCTIONS: &[u8] = include_bytes!("data/functions.sm_90.cubin");
const HEAP: &[u8] = include_bytes!("data/heap.sm_90.cubin");
const VARIABLES: &[u8] = include_bytes!("data/variables.sm_90.cubin");
const SM_75: &[u8] = include_bytes!("data/sm_75.cubin");
const DIVISIBLE: [&[u8]; 5] = [CALLS, FUNCTIONS, HEAP, VARIABLES, SM_75];

type File<'a> = ElfFile64<'a, Endianness>;

fn parse(image: &[u8]) -> File<'_> {
    ElfFile64::parse(image).unwrap()
}

/// The sections with bytes, by name.
fn sections<'a>(file: &File<'a>) -> BTreeMap<String, &'a [u8]> {
    file.sections().map(|section| (section.name().unwrap().to_owned(), section.data().unwrap())).collect()
}

/// Attributes: number and value, without those that list places in the code.
fn describing(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    const OF_CODE: [u8; 12] = [0x0f, 0x1c, 0x28, 0x29, 0x2e, 0x31, 0x34, 0x39, 0x40, 0x44, 0x46, 0x55];
    let mut found = Vec::new();
    while let [format, number, low, high, ..] = bytes {
        let length = if *format == 4 { 4 + usize::from(u16::from_le_bytes([*low, *high])) } else { 4 };
        found.push((*number, &bytes[2..length]));
        bytes = &bytes[length..];
    }
    found.retain(|(number, _)| !OF_CODE.contains(number));
    found
}

/// Symbols by their numbers: name, section, value and size.
fn symbols(file: &File<'_>) -> BTreeMap<usize, (String, String, u64, u64)> {
    let section = |symbol: &object::read::elf::ElfSymbol64<'_, '_, Endianness>| {
        symbol.section_index().map_or(String::new(), |index| file.section_by_index(index).unwrap().name().unwrap().to_owned())
    };
    file.symbols().map(|symbol| (symbol.index().0, (symbol.name().unwrap().to_owned(), section(&symbol), symbol.address(), symbol.size()))).collect()
}

/// The numbers of functions that are not in the image: the driver has them.
fn drivers(file: &File<'_>) -> BTreeSet<usize> {
    file.symbols().filter(|symbol| symbol.is_undefined() && symbol.kind() == SymbolKind::Text).map(|symbol| symbol.index().0).collect()
}

/// Those that a kernel calls, as its attributes say.
fn called(mut info: &[u8]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    while let [format, number, low, high, ..] = info {
        let length = if *format == 4 { 4 + usize::from(u16::from_le_bytes([*low, *high])) } else { 4 };
        if *number == 0x0f {
            found.extend(info[4..length].chunks_exact(4).map(|word| u32::from_le_bytes(*word.first_chunk().unwrap()) as usize));
        }
        info = &info[length..];
    }
    found
}

/// The numbers of the symbols that a table of relocations with addends names.
fn named(table: &[u8]) -> Vec<usize> {
    table.chunks_exact(24).map(|entry| u32::from_le_bytes(*entry[12..].first_chunk().unwrap()) as usize).collect()
}

/// Where a segment's bytes are that are loaded from the file: the names of its sections.
fn segments(image: &[u8]) -> Vec<BTreeSet<String>> {
    use object::read::elf::{ProgramHeader as _, SectionHeader as _};
    let file = parse(image);
    let endian = Endianness::Little;
    let inside = |begin: u64, end: u64| {
        let headers = file.elf_section_table();
        let lies_in = |header: &&object::elf::SectionHeader64<Endianness>| {
            let (at, bytes) = (header.sh_offset(endian), header.sh_size(endian));
            header.sh_type(endian).0 != 8 && bytes > 0 && at >= begin && at + bytes <= end && header.sh_flags(endian).0 & 2 != 0
        };
        headers.iter().filter(lies_in).map(|header| String::from_utf8(headers.section_name(endian, header).unwrap().to_vec()).unwrap()).collect()
    };
    file.elf_program_headers().iter().map(|header| inside(header.p_offset(endian), header.p_offset(endian) + header.p_filesz(endian))).collect()
}

#[test]
fn an_outline_describes_every_kernel_and_has_the_code_of_none() {
    for image in DIVISIBLE {
        let division = Division::read(image).unwrap();
        let outline = division.outline(image).unwrap();
        let (whole, part) = (parse(image), parse(&outline));
        let (before, after) = (sections(&whole), sections(&part));
        let mut code = BTreeSet::new();
        for function in division.functions() {
            let (name, info) = (format!(".text.{function}"), format!(".nv.info.{function}"));
            assert_eq!(describing(after[&info]), describing(before[&info]), "{function}");
            assert_eq!(after[&format!(".nv.constant0.{function}")].len(), before[&format!(".nv.constant0.{function}")].len());
            code.insert(after[&name]);
        }
        assert_eq!(code.len(), 1, "all have the same code");
        let code = code.first().unwrap();
        assert_eq!((code.len(), u64::from_le_bytes(*code.first_chunk().unwrap()) & 0xfff), (128, 0x94d), "EXIT");
        assert_eq!(describing(after[".nv.info"]), describing(before[".nv.info"]));
        let (before, after) = (symbols(&whole), symbols(&part));
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        for (number, (name, section, value, size)) in &after {
            let (old_name, old_section, old_value, old_size) = &before[number];
            if *old_section == ".debug_frame" {
                continue;
            }
            if drivers(&whole).contains(number) {
                assert_eq!(name, "", "no code calls it");
                continue;
            }
            assert_eq!((name, section), (old_name, old_section));
            let is_function = whole.symbol_by_index(object::SymbolIndex(*number)).unwrap().kind() == SymbolKind::Text;
            let is_code = is_function && section.starts_with(".text.");
            assert_eq!((value, size), if is_code { (&0, &128) } else { (old_value, old_size) }, "{name}");
        }
        assert!(part.sections().all(|section| !section.name().unwrap().starts_with(".rela.text.") || section.size() == 0));
    }
}

#[test]
fn an_excerpt_has_one_kernel_as_it_is_in_the_image() {
    for image in DIVISIBLE {
        let division = Division::read(image).unwrap();
        for (number, function) in division.functions().iter().enumerate() {
            let excerpt = division.excerpt(image, number).unwrap();
            let (whole, part) = (parse(image), parse(&excerpt));
            let (before, after) = (sections(&whole), sections(&part));
            for (name, bytes) in &after {
                match name.as_str() {
                    ".shstrtab" | ".strtab" | ".symtab" | ".nv.info" | ".nv.callgraph" => {}
                    ".rela.nv.constant4" => {
                        let stays = |symbol: &usize| !drivers(&whole).contains(symbol) || called(before[&*format!(".nv.info.{function}")]).contains(symbol);
                        assert_eq!(named(bytes), named(before[name]).into_iter().filter(stays).collect::<Vec<_>>(), "{function}");
                    }
                    name => assert_eq!(*bytes, before[name], "{function}: {name}"),
                }
            }
            let code: Vec<&String> = after.keys().filter(|name| name.starts_with(".text.")).collect();
            assert_eq!(code, [&format!(".text.{function}")]);
            let left_out = |name: &str| {
                name.starts_with(".debug_frame")
                    || name.starts_with(".rel.debug_frame")
                    || name.starts_with(".rela.debug_frame")
                    || division.functions().iter().any(|other| other != function && name.ends_with(&format!(".{other}")))
            };
            let missing: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name) && !left_out(name)).collect();
            assert!(missing.is_empty(), "{function}: {missing:?}");
            let (old, new) = (symbols(&whole), symbols(&part));
            for (number, symbol) in &new {
                let is_others = drivers(&whole).contains(number) && !called(before[&*format!(".nv.info.{function}")]).contains(number);
                let gone = left_out(&old[number].1) || is_others;
                assert_eq!(*symbol, if gone { Default::default() } else { old[number].clone() }, "symbol {number} of {function}");
            }
            // Attributes of all functions: those of symbols that are there.
            let stays = |value: &[u8]| value.len() < 6 || !left_out(&old[&(u32::from_le_bytes(*value[2..].first_chunk().unwrap()) as usize)].1);
            let expected: Vec<_> = describing(before[".nv.info"]).into_iter().filter(|(_, value)| stays(value)).collect();
            assert_eq!(describing(after[".nv.info"]), expected);
            for (old, new) in segments(image).iter().zip(segments(&excerpt)) {
                assert_eq!(old.iter().filter(|name| after.contains_key(*name)).cloned().collect::<BTreeSet<_>>(), new, "{function}");
            }
            assert!(division.excerpt(image, division.functions().len()).is_err());
        }
    }
    // Two of the images have kernels that call different functions of the driver's.
    let differ = |image: &&&[u8]| {
        let file = parse(image);
        let sections = sections(&file);
        let calls: BTreeSet<_> = Division::read(image).unwrap().functions().iter().map(|name| called(sections[&format!(".nv.info.{name}")])).collect();
        calls.len() > 1
    };
    assert!(DIVISIBLE.iter().filter(differ).count() >= 2);
}

#[test]
fn what_is_not_known_is_not_divided_and_it_is_said_why() {
    let why = |image: &[u8]| Division::read(image).unwrap_err().to_string();
    assert_eq!(why(include_bytes!("data/calls.debug.cubin")), "nothing is known of its section .debug_line");
    assert_eq!(why(include_bytes!("data/calls.linked.cubin")), "nothing is known of its section .nv.prototype");
    assert_eq!(why(include_bytes!("data/calls.sm_100.cubin")), "nothing is known of its section .nv.capmerc.text.by_table");
    assert_eq!(why(include_bytes!("data/calls.sm_80.cubin")), ".nv.info.by_table has an attribute of which nothing is known (0x35)");
    assert!(matches!(Division::read(b"\x7fELF"), Err(Undivided::Unreadable(_))));
    // Code that another section has is missing in an excerpt: a call between sections.
    let file = parse(CALLS);
    let graph = file.section_by_name(".nv.callgraph").unwrap();
    let number = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name) && !symbol.is_undefined()).unwrap().index().0 as u32;
    let names = Division::read(CALLS).unwrap().functions().to_vec();
    let (at, _) = graph.file_range().unwrap();
    let pair = [number(&names[0]).to_le_bytes(), number(&names[1]).to_le_bytes()].concat();
    let mut changed = CALLS.to_vec();
    changed[at as usize + 8..at as usize + 16].copy_from_slice(&pair);
    assert_eq!(why(&changed), format!(".nv.callgraph names {}, whose code is elsewhere in the image", names[1]));
    let mut old = SM_75.to_vec();
    old[48..52].copy_from_slice(&(61_u32 << 8).to_le_bytes());
    assert_eq!(why(&old), "its code is for compute capability 6.1");
}

#[test]
fn damaged_images_never_panic_and_give_no_large_parts() {
    let mut dice = Dice(7);
    for image in DIVISIBLE {
        // Section headers and symbols stay, and each name is written once.
        for _ in 0..3000 {
            let mut changed = image.to_vec();
            for _ in 0..1 + dice.roll(4) {
                let at = dice.roll(changed.len());
                changed[at] = [0, 1, 0xff, changed[at] ^ 1, dice.roll(256) as u8][dice.roll(5)];
            }
            if dice.roll(4) == 0 {
                changed.truncate(dice.roll(changed.len()));
            }
            let Ok(division) = Division::read(&changed) else { continue };
            let most = 3 * changed.len() + 4096;
            assert!(division.outline(&changed).is_ok_and(|part| part.len() < most) || division.outline(&changed).is_err());
            for function in 0..division.functions().len().min(3) {
                assert!(division.excerpt(&changed, function).map_or(0, |part| part.len()) < most);
            }
            // It is another image's.
            let _ = division.outline(image);
        }
    }
}
