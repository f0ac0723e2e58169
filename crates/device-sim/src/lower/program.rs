//! A lowered module: what it offers, and its code.

use std::sync::Arc;

/// Why a text cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {text}")]
pub struct CompileError {
    pub line: u32,
    pub column: u32,
    pub text: String,
}

/// An instruction that this device does not execute. The module loads; kernels that can reach it are refused (NOT_SUPPORTED) when fetched or launched.
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
    /// `.visible`, `.weak` or `.common`: found by name by the host. Others need memory all the same.
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
}

impl Program {
    /// Lowers a PTX text. The caller caches by content.
    ///
    /// # Errors
    /// With line and column, when the text is not PTX or names what does not exist.
    pub fn compile(text: &str) -> Result<Arc<Program>, CompileError> {
        let _ = text;
        Err(CompileError { line: 0, column: 0, text: "the compiler is being written".into() })
    }

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
}

impl Image {
    /// `addresses[i]` is where `program.variables[i]` lies.
    #[must_use]
    pub fn new(program: Arc<Program>, addresses: Vec<u64>) -> Image {
        Image { program, addresses }
    }

    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    #[must_use]
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Initial bytes of a variable with all addresses filled in (full length for variables with contents, empty for all-zero ones).
    #[must_use]
    pub fn initial(&self, variable: usize) -> Vec<u8> {
        self.program.variables.get(variable).map(|v| v.initial.clone()).unwrap_or_default()
    }
}
