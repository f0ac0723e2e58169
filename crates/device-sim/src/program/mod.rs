//! A lowered module: the kernels and variables that it offers, and its code.
//!
//! A [`Program`] depends neither on addresses nor on a client, so all clients share it. An
//! [`LinkedProgram`] links it with the addresses that its variables have for one client.

pub(crate) mod code;
pub(crate) mod source;
pub(crate) mod tensor;
pub mod window;

use crate::simd::lanes::PerLane64;
use code::{Code, Inst, Origin};
use cumux_wire::module::Unbounded;
use source::SourceLines;
use std::sync::Arc;

/// An instruction that this device does not execute. The module loads, but kernels that can reach
/// the instruction are refused with `CUDA_ERROR_NOT_SUPPORTED` when they are launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the software GPU does not execute {instruction} (PTX line {line})")]
pub struct Refusal {
    /// Line of the PTX text.
    pub line: u32,
    /// The instruction as the PTX text has it.
    pub instruction: String,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Where it begins in the parameter memory, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub bytes: u32,
}

/// A kernel, `.entry` in PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters, in their order.
    pub parameters: Vec<Parameter>,
    /// Bytes of the parameter memory.
    pub parameter_bytes: u32,
    /// Static shared memory of a block, in bytes.
    pub static_shared: u32,
    /// Bytes of the module's constant variables. `cuFuncGetAttribute` reports them for each kernel.
    pub constant_bytes: u32,
    /// Local memory of a thread in bytes: the kernel's frame, and those of the functions it calls
    /// where they are known.
    pub local_bytes: u32,
    /// 32-bit registers of a thread after allocation, at least 16.
    pub registers: u32,
    /// Most threads of a block: the product of `.maxntid` or `.reqntid`, else 1,024.
    pub max_threads: u32,
    /// Threads of a block along x, y and z as `.reqntid` says; all zero without it.
    pub required_block: [u32; 3],
    /// Blocks of a cluster along x, y and z as `.reqnctapercluster` says; all zero without it.
    pub cluster: [u32; 3],
    /// True if a half-done block can be undone and run again: the kernel has no global atomics or
    /// reductions, no volatile or ordered accesses, and does not call `printf` or `malloc`. A call
    /// of `cudaGraphSetConditional` is a store.
    pub repeatable: bool,
    /// True if it can start work that goes on when its blocks are done: grids, copies.
    pub starts_work: bool,
    /// The first instruction that keeps the kernel from running.
    pub refused: Option<Refusal>,
    /// Where shared variables of functions lie, in bytes of shared memory, if other kernels have
    /// them elsewhere.
    pub(crate) shared_table: Vec<u32>,
    /// Index in [`Program::functions`].
    pub(crate) function: u32,
    /// Why the depth of its calls is unknown, if it is.
    pub(crate) unbounded: Option<Unbounded>,
}

impl Kernel {
    /// Where dynamic shared memory begins, in bytes of shared memory.
    #[must_use]
    pub(crate) fn dynamic_base(&self) -> u32 {
        self.static_shared.next_multiple_of(16)
    }
}

/// What an initialiser points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelocationTarget {
    /// A variable: its index in [`Program::variables`].
    Variable(usize),
    /// A function: its index in the module.
    Function(usize),
}

/// An address inside an initialiser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// Where it lies in the variable, in bytes.
    pub offset: u64,
    /// Its size in bytes, at most 8.
    pub bytes: u8,
    /// What it is the address of.
    pub target: RelocationTarget,
    /// Bytes added to the target's address.
    pub addend: i64,
    /// `mask(address)` in PTX: the bits of the address that are stored, shifted down.
    pub mask: Option<u64>,
}

/// A variable of the module, `.global` or `.const` in PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// True for `.const`.
    pub constant: bool,
    /// True for `.attribute(.managed)`.
    pub managed: bool,
    /// True for `.visible`, `.weak` and `.common`. The host finds other variables by name too,
    /// because nvcc 13 makes every `__device__` variable internal.
    pub visible: bool,
    /// Initial bytes, without trailing zeros and without addresses. [`LinkedProgram::initial`] has
    /// them complete.
    pub initial: Vec<u8>,
    /// The addresses among the initial bytes.
    pub relocations: Vec<Relocation>,
}

/// A module in executable form.
#[derive(Debug)]
pub struct Program {
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// Its variables.
    pub variables: Vec<Variable>,
    /// `.target`: 90 for `sm_90`.
    pub target: u32,
    /// True if it names `malloc` or `free`: kernels may have memory that ends with the process.
    pub allocates: bool,
    /// Its functions, kernels included.
    pub(crate) functions: Vec<Code>,
    /// The instructions of all functions.
    pub(crate) code: Vec<Inst>,
    /// Where each instruction comes from.
    pub(crate) origins: Vec<Origin>,
    /// Names of instructions, for [`Origin::mnemonic`].
    pub(crate) mnemonics: Vec<String>,
    /// The source lines of the instructions, as far as the text says.
    pub(crate) sources: SourceLines,
    /// Branch tables, for `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
}

impl Program {
    /// The index of a kernel in [`kernels`](Self::kernels), by name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<usize> {
        self.kernels.iter().position(|kernel| kernel.name == name)
    }
}

/// A program linked with the addresses of its variables for one client.
#[derive(Debug)]
pub struct LinkedProgram {
    program: Arc<Program>,
    addresses: Vec<u64>,
    /// For each function whose constants contain addresses: its constants, complete.
    patched: Vec<Option<Vec<PerLane64>>>,
}

impl LinkedProgram {
    /// Links a program. `addresses[i]` is the address of `program.variables[i]`.
    #[must_use]
    pub fn new(program: Arc<Program>, addresses: Vec<u64>) -> LinkedProgram {
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
        LinkedProgram { program, addresses, patched }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The address of each variable.
    #[must_use]
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// The 64-bit constants of a function.
    pub(crate) fn constants64(&self, function: u32) -> &[PerLane64] {
        let function = function as usize;
        self.patched[function].as_deref().unwrap_or(&self.program.functions[function].constants64)
    }

    /// The initial bytes of a variable, with all addresses filled in. The rest of the variable is
    /// zero.
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
