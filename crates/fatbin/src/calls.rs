//! Which kernels of a compiled image are *unbounded*: they can use more stack than the compiler
//! knows, because a function calls itself through others or directly; or they can jump to an
//! address that is data, because they call through one.
//!
//! On a card both end all work of the context at once when they go wrong, also that of others. So
//! a service keeps such kernels apart.
//!
//! Calls are read from three places, as measured with nvcc 13.0 for compute capability 9.0:
//!
//! - The instructions of a section (of 16 bytes, since compute capability 7.0). Functions that the
//!   compiler has not put into sections of their own lie behind their kernel, once for each kernel;
//!   a call of one is relative (opcode 0x944), through an address it is 0x344.
//! - The first part of `.nv.callgraph`: pairs of symbols, caller and callee. It has the calls
//!   between sections (debug code, relocatable code).
//! - The third part: the functions that call through an address.
//!
//! Images are hostile: nothing panics, and the time is linear in the image's size. What cannot be
//! read counts as bounded, because the device's own checks come after this one.

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of an instruction.
const INSTRUCTION: usize = 16;
/// The opcode is in these bits of the first word.
const OPCODE: u64 = 0xfff;
/// A call of the function at a distance from the next instruction.
const CALL_RELATIVE: u64 = 0x944;
/// A call of the function at an address in a register.
const CALL_ADDRESS: u64 = 0x344;
/// What separates the parts of the call graph: pairs of 0 and one of these.
const CALLS: u32 = -1_i32 as u32;
const CALLS_THROUGH_ADDRESSES: u32 = -3_i32 as u32;
const PARTS: std::ops::RangeInclusive<u32> = -4_i32 as u32..=CALLS;

/// Why a kernel is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unbounded {
    /// A function calls itself, directly or through others.
    Recursion,
    /// It calls a function through an address.
    Address,
}

/// A function of the image: the section and the offset at which it begins.
type Function = (usize, u64);

/// The calls of an image.
#[derive(Debug, Default)]
struct Calls {
    /// The functions that a function calls.
    callees: BTreeMap<Function, BTreeSet<Function>>,
    /// The functions that call through an address.
    through_addresses: BTreeSet<Function>,
}

/// The functions of a linked image that are unbounded, by their names. Kernels are among them, and
/// functions that are not: whoever asks knows the kernels.
#[must_use]
pub fn find_unbounded(image: &[u8]) -> BTreeMap<String, Unbounded> {
    let Ok(file) = ElfFile64::<Endianness>::parse(image) else { return BTreeMap::new() };
    let mut functions: BTreeMap<usize, Vec<Symbol<'_>>> = BTreeMap::new();
    let mut by_index = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined()) {
        if let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name()) {
            by_index.insert(symbol.index().0, (section.0, symbol.address()));
            functions.entry(section.0).or_default().push(Symbol { begin: symbol.address(), bytes: symbol.size(), name });
        }
    }
    let mut calls = Calls::default();
    for (section, symbols) in &mut functions {
        // Of several that begin at one place the largest comes first.
        symbols.sort_by_key(|symbol| (symbol.begin, u64::MAX - symbol.bytes));
        let code = file.section_by_index(object::SectionIndex(*section)).and_then(|section| section.data());
        calls.add_instructions(*section, symbols, code.unwrap_or(&[]));
    }
    let graph = file.section_by_name(".nv.callgraph").and_then(|section| section.data().ok()).unwrap_or(&[]);
    calls.add_graph(graph, &by_index);
    let unbounded = calls.find_unbounded();
    let named = functions.iter().flat_map(|(section, symbols)| symbols.iter().map(|symbol| ((*section, symbol.begin), symbol.name)));
    named.filter_map(|(function, name)| Some((name.to_owned(), *unbounded.get(&function)?))).collect()
}

#[derive(Debug, Clone, Copy)]
struct Symbol<'a> {
    begin: u64,
    bytes: u64,
    name: &'a str,
}

impl Calls {
    /// Adds the calls in the code of one section. `symbols`: its functions in their order.
    fn add_instructions(&mut self, section: usize, symbols: &[Symbol<'_>], code: &[u8]) {
        let word = |bytes: &[u8], at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word));
        // The functions that the present place is in, the innermost last.
        let (mut inside, mut next): (Vec<Symbol<'_>>, usize) = (Vec::new(), 0);
        for (at, instruction) in (0_u64..).step_by(INSTRUCTION).zip(code.chunks_exact(INSTRUCTION)) {
            while let Some(symbol) = symbols.get(next).filter(|symbol| symbol.begin <= at) {
                inside.push(*symbol);
                next += 1;
            }
            let (low, high) = (word(instruction, 0), word(instruction, 8));
            if !matches!(low & OPCODE, CALL_RELATIVE | CALL_ADDRESS) {
                continue;
            }
            inside.retain(|symbol| at - symbol.begin < symbol.bytes);
            let Some(caller) = inside.last().map(|symbol| (section, symbol.begin)) else { continue };
            if low & OPCODE == CALL_ADDRESS {
                self.through_addresses.insert(caller);
            } else {
                // Which form it is shows where it leads: a function begins there.
                let next = at + INSTRUCTION as u64;
                let ways = [distance_in_words(low, high), distance_in_bytes(low, high)].map(|distance| next.wrapping_add_signed(distance));
                let callee = ways.into_iter().find(|callee| symbols.binary_search_by_key(callee, |symbol| symbol.begin).is_ok());
                self.callees.entry(caller).or_default().extend(callee.map(|callee| (section, callee)));
            }
        }
    }

    /// Adds the calls of the call graph.
    fn add_graph(&mut self, graph: &[u8], functions: &HashMap<usize, Function>) {
        let word = |pair: &[u8], at: usize| pair.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word));
        let mut part = 0;
        for pair in graph.chunks_exact(8) {
            let (caller, callee) = (word(pair, 0), word(pair, 4));
            if caller == 0 && PARTS.contains(&callee) {
                part = callee;
                continue;
            }
            let Some(caller) = functions.get(&(caller as usize)) else { continue };
            if part == CALLS_THROUGH_ADDRESSES {
                self.through_addresses.insert(*caller);
            } else if part == CALLS
                && let Some(callee) = functions.get(&(callee as usize))
            {
                self.callees.entry(*caller).or_default().insert(*callee);
            }
        }
    }

    /// All functions from which a circle of calls can be reached, or a call through an address.
    fn find_unbounded(&self) -> BTreeMap<Function, Unbounded> {
        let mut callers: BTreeMap<Function, Vec<Function>> = BTreeMap::new();
        let mut open: BTreeMap<Function, usize> = BTreeMap::new();
        for (caller, callees) in &self.callees {
            open.insert(*caller, callees.len());
            callees.iter().for_each(|callee| callers.entry(*callee).or_default().push(*caller));
        }
        // Functions all of whose callees end are taken away until none is left: what stays reaches
        // a circle.
        let mut ending: Vec<Function> = callers.keys().filter(|function| !open.contains_key(function)).copied().collect();
        while let Some(function) = ending.pop() {
            for caller in callers.get(&function).into_iter().flatten() {
                if let Some(left) = open.get_mut(caller) {
                    *left -= 1;
                    if *left == 0 {
                        open.remove(caller);
                        ending.push(*caller);
                    }
                }
            }
        }
        let mut found: BTreeMap<Function, Unbounded> = BTreeMap::new();
        let mut next: Vec<Function> = self.through_addresses.iter().copied().collect();
        while let Some(function) = next.pop() {
            if found.insert(function, Unbounded::Address).is_none() {
                next.extend(callers.get(&function).into_iter().flatten());
            }
        }
        found.extend(open.into_keys().map(|function| (function, Unbounded::Recursion)));
        found
    }
}

/// The distance in a relative call, in bytes from the next instruction, as compute capability 9.0
/// and later write it: its lowest 8 bits are bits 16 to 23 of the instruction, the other 48 are
/// bits 34 to 81; the unit is 4 bytes.
fn distance_in_words(low: u64, high: u64) -> i64 {
    let upper = ((high << 30) | (low >> 34)) & ((1 << 48) - 1);
    let units = (upper << 8) | ((low >> 16) & 0xff);
    // Its sign is bit 55.
    (units << 8).cast_signed() / 64
}

/// The same as earlier ones write it: bytes, in bits 32 to 81.
fn distance_in_bytes(low: u64, high: u64) -> i64 {
    let bytes = ((high << 32) | (low >> 32)) & ((1 << 50) - 1);
    // Its sign is bit 49.
    (bytes << 14).cast_signed() >> 14
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Function = (1, 0);
    const HELPER: Function = (1, 0xa0);
    const OTHER: Function = (2, 0);

    fn symbol(begin: u64, bytes: u64) -> Symbol<'static> {
        Symbol { begin, bytes, name: "" }
    }

    /// A section with these instructions at these offsets.
    fn section(bytes: usize, instructions: &[(usize, u64, u64)]) -> Vec<u8> {
        let mut code = vec![0; bytes];
        for (at, low, high) in instructions {
            code[*at..at + 8].copy_from_slice(&low.to_le_bytes());
            code[at + 8..at + 16].copy_from_slice(&high.to_le_bytes());
        }
        code
    }

    /// Instructions as nvcc 13.0 writes them for a kernel that calls a function which calls itself
    /// twice: at 0x60, and at 0x220 and 0x270.
    #[test]
    fn a_function_that_calls_itself_makes_its_kernel_unbounded() {
        let code = section(
            0x400,
            &[
                (0x60, 0xc7944, 0x022f_ea00_03c0_0000),
                (0x220, 0xffff_fffc_009c_7944, 0x02fe_a000_03c3_ffff),
                (0x270, 0xffff_fffc_0088_7944, 0x000f_ea00_03c3_ffff),
            ],
        );
        let mut calls = Calls::default();
        calls.add_instructions(1, &[symbol(0, 0x400), symbol(0xa0, 0x360)], &code);
        assert_eq!(calls.callees, BTreeMap::from([(KERNEL, BTreeSet::from([HELPER])), (HELPER, BTreeSet::from([HELPER]))]));
        assert_eq!(calls.find_unbounded(), BTreeMap::from([(KERNEL, Unbounded::Recursion), (HELPER, Unbounded::Recursion)]));
        let mut calls = Calls::default();
        calls.add_instructions(1, &[symbol(0, 0x400), symbol(0xa0, 0x360)], &code[..0x200]);
        assert!(calls.find_unbounded().is_empty(), "a function that returns");
        let mut calls = Calls::default();
        calls.add_instructions(1, &[symbol(0, 0x400), symbol(0xa0, 0x100)], &code);
        assert!(calls.find_unbounded().is_empty(), "code behind the function is the kernel's, which nobody calls");
    }

    #[test]
    fn a_call_through_an_address_makes_all_its_callers_unbounded() {
        let mut calls = Calls::default();
        calls.add_instructions(1, &[symbol(0, 0x100)], &section(0x100, &[(0x60, 0xffff_fffc_02dc_7344, 0x022f_ea00_03c3_ffff)]));
        calls.callees.insert(OTHER, BTreeSet::from([KERNEL]));
        assert_eq!(calls.find_unbounded(), BTreeMap::from([(KERNEL, Unbounded::Address), (OTHER, Unbounded::Address)]));
    }

    #[test]
    fn the_call_graph_has_calls_between_sections() {
        let functions = HashMap::from([(5, KERNEL), (6, OTHER), (7, HELPER)]);
        let graph = |pairs: &[(u32, u32)]| pairs.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat()).collect::<Vec<u8>>();
        let find = |pairs: &[(u32, u32)]| {
            let mut calls = Calls::default();
            calls.add_graph(&graph(pairs), &functions);
            calls.find_unbounded()
        };
        let minus = |n: u32| n.wrapping_neg();
        assert_eq!(find(&[(0, minus(1)), (5, 6), (6, 7), (7, 6)]).keys().copied().collect::<Vec<_>>(), [KERNEL, HELPER, OTHER]);
        assert!(find(&[(0, minus(1)), (5, 6), (5, 7), (6, 7), (5, 99), (99, 5)]).is_empty(), "nothing is called in a circle, and 99 is no function");
        assert_eq!(
            find(&[(0, minus(1)), (5, 6), (0, minus(2)), (7, 7), (0, minus(3)), (6, 1)]),
            BTreeMap::from([(KERNEL, Unbounded::Address), (OTHER, Unbounded::Address)])
        );
    }

    #[test]
    fn damaged_images_say_nothing() {
        assert!(find_unbounded(b"\x7fELF and no more").is_empty());
        let mut calls = Calls::default();
        calls.add_instructions(1, &[symbol(u64::MAX - 1, 9), symbol(0, u64::MAX)], &section(32, &[(0, !OPCODE | CALL_RELATIVE, u64::MAX)]));
        calls.add_graph(&[1, 2, 3], &HashMap::new());
        assert_eq!(calls.find_unbounded().len(), 0);
    }
}
