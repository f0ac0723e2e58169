//! PTX: text in, a resolved tree or diagnostics with line and column out.
//!
//! [`parse`] reads PTX as nvcc 13 emits it (`.version` up to 9.x). It never panics, takes time
//! linear in the text, and bounds nesting. Instructions that nobody here can run (textures, tensor
//! cores, asynchronous copies) are parsed all the same: the one who runs the module refuses them by
//! name and line. [`link::link`] makes one text of several.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod ast;
mod check;
mod diagnostic;
mod fail;
mod lexer;
pub mod link;
mod parser;

pub use ast::Module;
pub use diagnostic::{Diagnostic, MAX_DIAGNOSTICS, ParseError};

/// Reads a module from text.
pub fn parse(source: &str) -> Result<Module, ParseError> {
    parser::parse(source)
}

/// Reads a module from bytes as a program hands them over: zero bytes at the end are ignored.
pub fn parse_bytes(source: &[u8]) -> Result<Module, ParseError> {
    let end = source.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    match std::str::from_utf8(&source[..end]) {
        Ok(text) => parse(text),
        Err(error) => Err(diagnostic::not_text_error(source, error.valid_up_to())),
    }
}
