//! Which kernels of a compiled image may use stack of which the compiler's figures say nothing,
//! because they move the stack pointer by an amount that is data (`alloca`). Kernels that call
//! themselves are [unbounded](crate::calls), and need not be among them.
//!
//! The stack pointer is register 1, and code keeps it where it has a stack. As measured with nvcc
//! 13.0 for compute capabilities 8.0 to 10.0, it is loaded from a constant, moved by immediate
//! numbers, and aligned; `alloca` adds a register to it. Whatever else writes it counts, so that a
//! kernel may be among these that uses no stack: that costs memory of the card alone.
//!
//! Images are hostile: nothing panics, and the time is linear in the image's size.

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _};
use std::collections::BTreeSet;

/// Bytes of an instruction, since compute capability 7.0.
const INSTRUCTION: usize = 16;
/// The opcode is in these bits of the first word.
const OPCODE: u64 = 0xfff;
/// The register to which an instruction writes, and the first one that it reads, begin at these
/// bits.
const TARGET: u32 = 16;
const FIRST_SOURCE: u32 = 24;
const STACK_POINTER: u8 = 1;
/// Loads of a constant: `LDC`, `MOV` and `IMAD.MOV`.
const LOADS: [u64; 3] = [0xb82, 0xa02, 0x624];
/// Additions and logic with an immediate number: `VIADD`, `IADD3` and `LOP3`.
const IMMEDIATE: [u64; 3] = [0x836, 0x810, 0x812];
/// Instructions with the number of a barrier, or of a register that all lanes share, where others
/// have a target: `BSSY`, `BSYNC`, `BREAK`, `BMOV`, `S2UR`, `R2UR` and `REDUX`.
const NO_TARGET: [u64; 9] = [0x945, 0x941, 0x942, 0x355, 0x356, 0x9c3, 0x3c2, 0x2ca, 0x3c4];

/// True for instructions that write to a register that all lanes share.
fn is_uniform(opcode: u64) -> bool {
    matches!(opcode >> 8, 0x2 | 0x4 | 0x6 | 0x8 | 0xa) && matches!(opcode & 0xff, 0x82..=0xbf)
}

/// True if an instruction may move the stack pointer by what is in a register.
fn moves_stack(word: u64) -> bool {
    let register = |at: u32| (word >> at) as u8;
    let opcode = word & OPCODE;
    let is_known = LOADS.contains(&opcode) || (IMMEDIATE.contains(&opcode) && register(FIRST_SOURCE) == STACK_POINTER);
    register(TARGET) == STACK_POINTER && !is_known && !NO_TARGET.contains(&opcode) && !is_uniform(opcode)
}

/// The kernels of a linked image that may. `None` if that cannot be told: the image cannot be read,
/// or has functions apart from its kernels that do so, for which any kernel may call them.
#[must_use]
pub fn find_moving_stacks(image: &[u8]) -> Option<BTreeSet<String>> {
    if crate::elf::read_arch(image).ok()? < 70 {
        return None;
    }
    let file = ElfFile64::<Endianness>::parse(image).ok()?;
    let mut found = BTreeSet::new();
    for section in file.sections() {
        let Some(function) = section.name().ok()?.strip_prefix(".text.") else { continue };
        let moves = |code: &[u8]| code.chunks_exact(INSTRUCTION).any(|code| code.first_chunk().is_some_and(|word| moves_stack(u64::from_le_bytes(*word))));
        if moves(section.data().ok()?) {
            // Only kernels have parameters.
            file.section_by_name(&format!(".nv.constant0.{function}"))?;
            found.insert(function.to_owned());
        }
    }
    Some(found)
}
