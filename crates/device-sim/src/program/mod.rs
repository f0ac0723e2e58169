//! A lowered module: what it offers, and its code.

pub(crate) mod code;
pub mod window;

use crate::simd::lanes::PerLane64;
use code::{Code, Inst, Origin};
use std::sync::Arc;

/// An instruction that this device does not execute. The module loads; kernels that can reach it are refused (NOT_SUPPORTED) when launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the software GPU does not execute {instruction} (PTX line {line})")]
pub struct Refusal {
    pub line: u32,
    pub instruction: String,
}

/// One kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub offset: u32,
    pub bytes: u32,
}

/// One `.entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub parameter_bytes: u32,
    pub static_shared: u32,
    /// Bytes of the module's constant variables (`cuFuncGetAttribute` reports them per kernel).
    pub constant_bytes: u32,
    /// Local memory of a thread: its frame and those of the functions it calls where that is known.
    pub local_bytes: u32,
    /// 32-bit registers of a thread after compaction, at least 16.
    pub registers: u32,
    /// `.maxntid` or `.reqntid` as a product, else 1024.
    pub max_threads: u32,
    /// `.reqntid`, all zero if none.
    pub required_block: [u32; 3],
    /// `.reqnctapercluster`, all zero if none.
    pub cluster: [u32; 3],
    /// A half-done block may be undone and run again: no global atomics, reductions, volatile or ordered accesses, printf, malloc.
    pub repeatable: bool,
    pub refused: Option<Refusal>,
    /// Index into the program's functions.
    pub(crate) function: u32,
    /// It calls functions whose depth is not known.
    pub(crate) calls: bool,
}

impl Kernel {
    /// Where dynamic shared memory begins.
    #[must_use]
    pub(crate) fn dynamic_base(&self) -> u32 {
        self.static_shared.next_multiple_of(16)
    }
}

/// What an initialiser points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelocationTarget {
    /// Index into [`Program::variables`].
    Variable(usize),
    Function(usize),
}

/// An address inside an initialiser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    pub offset: u64,
    pub bytes: u8,
    pub target: RelocationTarget,
    pub addend: i64,
    pub mask: Option<u64>,
}

/// One `.global` or `.const` variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub bytes: u64,
    pub align: u64,
    pub constant: bool,
    pub managed: bool,
    /// `.visible`, `.weak` or `.common`. The host finds the others by name too: nvcc 13 makes every `__device__` variable internal.
    pub visible: bool,
    /// Initial bytes, without trailing zeroes; use [`Image::initial`] for the resolved ones.
    pub initial: Vec<u8>,
    pub relocations: Vec<Relocation>,
}

/// A module in executable form, independent of addresses and clients.
#[derive(Debug)]
pub struct Program {
    pub kernels: Vec<Kernel>,
    pub variables: Vec<Variable>,
    /// `.version` as major * 10 + minor.
    pub ptx_version: u32,
    /// 90 for sm_90.
    pub target: u32,
    pub(crate) functions: Vec<Code>,
    pub(crate) code: Vec<Inst>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) mnemonics: Vec<String>,
    /// Targets of `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
}

impl Program {
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<usize> {
        self.kernels.iter().position(|kernel| kernel.name == name)
    }
}

/// A program bound to the addresses of its variables for one client.
#[derive(Debug)]
pub struct Image {
    program: Arc<Program>,
    addresses: Vec<u64>,
    /// For each function whose constants contain addresses: the constants with the addresses in.
    patched: Vec<Option<Vec<PerLane64>>>,
}

impl Image {
    /// `addresses[i]` is where `program.variables[i]` lies.
    #[must_use]
    pub fn new(program: Arc<Program>, addresses: Vec<u64>) -> Image {
        let patched = program
            .functions
            .iter()
            .map(|code| {
                if code.symbols.is_empty() {
                    return None;
                }
                let mut constants = code.constants64.clone();
                for (at, variable, addend) in &code.symbols {
                    let address = addresses.get(*variable as usize).copied().unwrap_or(0);
                    constants[*at as usize] = PerLane64::splat(address.wrapping_add_signed(*addend));
                }
                Some(constants)
            })
            .collect();
        Image { program, addresses, patched }
    }

    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    #[must_use]
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    pub(crate) fn constants64(&self, function: u32) -> &[PerLane64] {
        let function = function as usize;
        self.patched[function].as_deref().unwrap_or(&self.program.functions[function].constants64)
    }

    /// Initial bytes of a variable with all addresses filled in. Shorter than the variable: the rest is zero.
    #[must_use]
    pub fn initial(&self, variable: usize) -> Vec<u8> {
        let Some(variable) = self.program.variables.get(variable) else { return Vec::new() };
        let mut bytes = variable.initial.clone();
        for relocation in &variable.relocations {
            let base = match relocation.target {
                RelocationTarget::Variable(index) => self.addresses.get(index).copied().unwrap_or(0),
                RelocationTarget::Function(index) => window::function_pointer(index as u64),
            };
            let mut value = base.wrapping_add_signed(relocation.addend);
            if let Some(mask) = relocation.mask.filter(|mask| *mask != 0) {
                value = (value & mask) >> mask.trailing_zeros();
            }
            let (from, count) = (relocation.offset as usize, usize::from(relocation.bytes.min(8)));
            if bytes.len() < from + count {
                bytes.resize(from + count, 0);
            }
            bytes[from..from + count].copy_from_slice(&value.to_le_bytes()[..count]);
        }
        bytes
    }
}
