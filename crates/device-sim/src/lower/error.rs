//! Why a text or an instruction is not lowered.

use cumux_ptx::ast::Pos;

/// Why a text cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {text}")]
pub struct CompileError {
    pub line: u32,
    pub column: u32,
    pub text: String,
}

pub(super) fn error(pos: Pos, text: impl Into<String>) -> CompileError {
    CompileError { line: pos.line, column: pos.col, text: text.into() }
}

/// Why an instruction has no executable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Not executed by this device.
    Refused,
    /// The same, with a better name than the mnemonic.
    Named(String),
    /// Not PTX.
    Wrong(String),
}

pub(super) type Lowered<T = ()> = Result<T, Trouble>;

pub(super) fn wrong<T>(text: impl Into<String>) -> Lowered<T> {
    Err(Trouble::Wrong(text.into()))
}
