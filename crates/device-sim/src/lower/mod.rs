//! Lowers the PTX tree to executable form.

mod arithmetic;
mod body;
mod by_type;
mod compare;
mod contract;
mod control;
mod convert;
mod copy;
mod error;
mod floating;
mod instruction;
mod library;
mod matrix;
mod memory;
mod module;
mod plan;
mod registers;
mod texture;
mod video;
mod warp;

use crate::program::Program;
pub use error::CompileError;
use std::sync::Arc;

/// Lowers a PTX text. The caller caches programs by their text.
///
/// # Errors
/// The position and the reason if the text is not PTX, or uses a name that it does not declare.
pub fn compile(text: &str) -> Result<Arc<Program>, CompileError> {
    compile_with(text, Options::default())
}

/// What a compiler is told besides the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `-maxrregcount`: the most registers of a thread of a kernel that does not say itself.
    pub most_registers: Option<u32>,
    /// Products and sums become fused multiply-adds. Not without optimisation (`-O0`).
    pub contracts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { most_registers: None, contracts: true }
    }
}

/// As [`compile`], with options.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(text: &str, options: Options) -> Result<Arc<Program>, CompileError> {
    module::lower(text, options).map(Arc::new)
}
