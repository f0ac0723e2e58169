//! Why a module or an instruction is not lowered.

use cumux_ptx::ast::Pos;

/// Why a text cannot be loaded, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {text}")]
pub struct CompileError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong, as a sentence without a full stop.
    pub text: String,
}

/// An error at a position of the text.
pub(super) fn compile_error(pos: Pos, text: impl Into<String>) -> CompileError {
    CompileError { line: pos.line, column: pos.col, text: text.into() }
}

/// Why an instruction has no executable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// This device does not execute it.
    Refused,
    /// This device does not execute it. The text says more than the instruction's name.
    Named(String),
    /// It is not PTX.
    Wrong(String),
}

/// A value, or trouble with an instruction.
pub(super) type Lowered<T = ()> = Result<T, Trouble>;

/// Trouble: the instruction is not PTX.
pub(super) fn reject<T>(text: impl Into<String>) -> Lowered<T> {
    Err(Trouble::Wrong(text.into()))
}
