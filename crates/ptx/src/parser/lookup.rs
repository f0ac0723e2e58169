//! What a name means, and what is said of one that means nothing here.

use super::Parser;
use super::names::Meaning;
use crate::ast::{Pos, RegId, SymbolRef};
use crate::fail::{Fail, Result};
use crate::lexer::Token;

impl<'s> Parser<'s> {
    pub(super) fn resolve_name(&mut self, name: Token<'s>) -> Result<Meaning> {
        self.names.find(name.text, &mut self.registers).ok_or_else(|| undeclared_error(name))
    }

    pub(super) fn resolve_register(&mut self, name: Token<'s>) -> Result<RegId> {
        match self.resolve_name(name)? {
            Meaning::Register(id) => Ok(id),
            _ => Err(Fail::new(name.pos, format!("'{}' is not a register", name.text))),
        }
    }

    /// A symbol that must be known by now.
    pub(super) fn resolve_symbol(&mut self, name: Token<'s>) -> Result<SymbolRef> {
        match self.names.find(name.text, &mut self.registers) {
            Some(Meaning::Symbol(symbol)) => Ok(symbol),
            Some(_) => Err(Fail::new(name.pos, format!("'{}' has no address", name.text))),
            None => Err(undeclared_error(name)),
        }
    }
}

pub(super) fn taken_error(name: Token<'_>, first: Pos) -> Fail {
    Fail::new(name.pos, format!("'{}' is already declared at {first}", name.text))
}

pub(super) fn undeclared_error(name: Token<'_>) -> Fail {
    let fail = Fail::new(name.pos, format!("'{}' is not declared", name.text));
    if name.text.starts_with('%') {
        fail.with_help("declare it with .reg, or raise the count in its range")
    } else {
        fail.with_help("declare it before it is used")
    }
}
