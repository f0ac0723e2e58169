//! Instructions: guard, mnemonic, operands.

use super::Parser;
use super::labels::Labels;
use super::names::Meaning;
use crate::ast::{Body, Call, CallTarget, CallVia, Guard, Instruction, Modifier, Opcode, Operand, SymbolRef, Word, modifier_from_name};
use crate::fail::{Fail, Result};
use crate::lexer::Tok;
use std::collections::HashMap;

/// Operands of one instruction; `wgmma` needs about 130.
const MAX_OPERANDS: usize = 1024;

/// What is collected while a body is read.
pub(super) struct BodyBuilder<'s> {
    pub(super) body: Body,
    pub(super) labels: Labels<'s>,
    /// The name of the function.
    pub(super) function: Box<str>,
    /// How often a variable's name was used, to make unique names.
    pub(super) name_uses: HashMap<&'s str, u32>,
}

impl<'s> Parser<'s> {
    pub(super) fn parse_instruction(&mut self, builder: &mut BodyBuilder<'s>) -> Result<Instruction> {
        let pos = self.tokens.peek().pos;
        let guard = if self.eat(Tok::At) {
            let negated = self.eat(Tok::Bang);
            let name = self.expect_name("a predicate register")?;
            let register = self.resolve_register(name)?;
            Some(Guard { register, negated })
        } else {
            None
        };
        let name = self.expect_name("an instruction")?;
        let Some(opcode) = Opcode::from_name(name.text) else {
            return Err(Fail::new(name.pos, format!("unknown instruction '{}'", name.text)).with_help("instructions up to PTX 9.2 are known"));
        };
        let modifiers = self.parse_modifiers(opcode)?;
        let operands = match opcode {
            Opcode::Call => vec![Operand::Call(Box::new(self.parse_call()?))],
            Opcode::Bra => {
                let label = self.expect_name("a label")?;
                vec![Operand::Label(builder.labels.mention(label.text, label.pos))]
            }
            _ => self.parse_operands(opcode)?,
        };
        self.expect_semicolon()?;
        Ok(Instruction { pos, guard, opcode, modifiers, operands })
    }

    fn parse_modifiers(&mut self, opcode: Opcode) -> Result<Vec<Modifier>> {
        let mut modifiers = Vec::with_capacity(4);
        while self.is_at(Tok::Dotted) {
            let token = self.bump();
            let text = &token.text[1..];
            let found = modifier_from_name(opcode, text).or_else(|| {
                let asynchronous = modifiers.contains(&Modifier::Word(Word::Async));
                (opcode.keeps_unknown_modifiers() || asynchronous).then(|| Modifier::Other(text.into()))
            });
            let Some(modifier) = found else {
                let problem = format!("unknown modifier '{}' of '{opcode}'", token.text);
                return Err(Fail::new(token.pos, problem));
            };
            modifiers.push(modifier);
        }
        Ok(modifiers)
    }

    fn parse_operands(&mut self, opcode: Opcode) -> Result<Vec<Operand>> {
        let mut operands = Vec::with_capacity(4);
        if self.is_at(Tok::Semicolon) {
            return Ok(operands);
        }
        loop {
            if operands.len() >= MAX_OPERANDS {
                return Err(Fail::new(self.next_pos(), "too many operands"));
            }
            operands.push(self.parse_operand(opcode)?);
            if !self.eat(Tok::Comma) {
                return Ok(operands);
            }
        }
    }

    /// `(ret), target, (args), prototype`
    fn parse_call(&mut self) -> Result<Call> {
        let returns = if self.is_at(Tok::OpenParen) {
            let list = self.parse_call_list()?;
            self.expect(Tok::Comma, "',' and the function")?;
            list
        } else {
            Vec::new()
        };
        let name = self.expect_name("a function, or a register with its address")?;
        let target = match self.resolve_name(name)? {
            Meaning::Register(id) => CallTarget::Register(id),
            Meaning::Symbol(SymbolRef::Function(id)) => CallTarget::Function(id),
            _ => {
                let problem = format!("'{}' is not a function", name.text);
                return Err(Fail::new(name.pos, problem));
            }
        };
        let mut args = Vec::new();
        let mut via = None;
        if self.eat(Tok::Comma) {
            let listed = self.is_at(Tok::OpenParen);
            if listed {
                args = self.parse_call_list()?;
            }
            if !listed || self.eat(Tok::Comma) {
                let table = self.expect_name("a prototype or a list of targets")?;
                via = Some(match self.resolve_name(table)? {
                    Meaning::CallPrototype(id) => CallVia::Prototype(id),
                    Meaning::CallTable(id) => CallVia::Targets(id),
                    _ => {
                        let problem = format!("'{}' is not a call prototype", table.text);
                        return Err(Fail::new(table.pos, problem));
                    }
                });
            }
        }
        if matches!(target, CallTarget::Register(_)) && via.is_none() {
            return Err(
                Fail::new(name.pos, "a call through a register needs a prototype").with_help("name a .callprototype or .calltargets behind the arguments")
            );
        }
        Ok(Call { returns, target, args, via })
    }

    fn parse_call_list(&mut self) -> Result<Vec<Operand>> {
        self.expect(Tok::OpenParen, "'('")?;
        let mut list = Vec::new();
        while !self.is_at(Tok::CloseParen) {
            if list.len() >= MAX_OPERANDS {
                return Err(Fail::new(self.next_pos(), "too many arguments"));
            }
            list.push(self.parse_operand(Opcode::Call)?);
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::CloseParen, "')' or ','")?;
        Ok(list)
    }
}
