//! Operands.

use super::Parser;
use super::lookup::undeclared_error;
use super::names::Meaning;
use crate::ast::{AddressBase, Axis, Imm, Opcode, Operand, RegId, Selector, SpecialReg, SymbolRef};
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};

/// Braces and brackets inside one another; tensor copies need two.
const MAX_DEPTH: u32 = 4;

/// Elements of one `{…}`; `wgmma` needs 128.
const MAX_ELEMENTS: usize = 1024;

impl<'s> Parser<'s> {
    pub(super) fn parse_operand(&mut self, opcode: Opcode) -> Result<Operand> {
        self.parse_nested_operand(opcode, 0)
    }

    fn parse_nested_operand(&mut self, opcode: Opcode, depth: u32) -> Result<Operand> {
        let token = self.tokens.peek();
        if depth > MAX_DEPTH {
            return Err(Fail::new(token.pos, "operands are nested too deeply"));
        }
        match token.kind {
            Tok::Name => {
                let first = self.parse_named(opcode)?;
                if !self.eat(Tok::Bar) {
                    return Ok(first);
                }
                let second = self.parse_named(opcode)?;
                Ok(Operand::Pair(Box::new((first, second))))
            }
            Tok::OpenBrace => {
                self.bump();
                let mut elements = Vec::with_capacity(4);
                while !self.is_at(Tok::CloseBrace) {
                    if elements.len() >= MAX_ELEMENTS {
                        return Err(Fail::new(self.next_pos(), "too many elements in a vector"));
                    }
                    elements.push(self.parse_nested_operand(opcode, depth + 1)?);
                    if !self.eat(Tok::Comma) {
                        break;
                    }
                }
                self.expect(Tok::CloseBrace, "'}' or ','")?;
                // Triton writes braces around the one register that is loaded or stored.
                if depth == 0 && matches!(opcode, Opcode::Ld | Opcode::Ldu | Opcode::St) && elements.len() == 1 {
                    return elements.pop().ok_or_else(|| self.unexpected("an operand"));
                }
                Ok(Operand::Vector(elements))
            }
            Tok::OpenBracket => self.parse_bracket(opcode, depth),
            Tok::Bang if self.tokens.peek_next().kind == Tok::Name => {
                self.bump();
                let name = self.bump();
                Ok(Operand::NotReg(self.resolve_register(name)?))
            }
            Tok::Minus if self.tokens.peek_next().kind == Tok::Name && opcode.is_video() => {
                self.bump();
                let name = self.bump();
                let register = self.resolve_register(name)?;
                Ok(Operand::Selected { register, selector: self.parse_selector()?, negated: true })
            }
            _ => self.parse_literal().map(Operand::Imm).map_err(|fail| {
                // "a constant" would be too narrow where nothing readable was found.
                if self.tokens.peek().pos == token.pos { self.unexpected("an operand") } else { fail }
            }),
        }
    }

    /// An operand that begins with a name.
    fn parse_named(&mut self, opcode: Opcode) -> Result<Operand> {
        let name = self.expect_name("a register")?;
        match name.text {
            "_" => return Ok(Operand::Sink),
            "WARP_SZ" => return Ok(Operand::Imm(Imm::Int(32))),
            _ => {}
        }
        match self.names.find(name.text, &mut self.registers) {
            Some(Meaning::Register(register)) => {
                if matches!(self.tokens.peek().kind, Tok::Plus | Tok::Minus) {
                    return Ok(Operand::Sum { register, offset: self.parse_offset()? });
                }
                if !self.is_at(Tok::Dotted) {
                    return Ok(Operand::Reg(register));
                }
                if !opcode.is_video() {
                    return Err(self.unexpected("',' or ';'"));
                }
                Ok(Operand::Selected { register, selector: self.parse_selector()?, negated: false })
            }
            Some(Meaning::VectorRegister(first, width)) => self.parse_vector_register(first, width),
            Some(Meaning::Symbol(symbol)) => {
                let indexed = self.is_at(Tok::OpenBracket);
                let offset = self.parse_symbol_offset(symbol)?;
                // `ld.global.u32 %r1, array[3]` is an address without the usual brackets.
                if indexed && accesses_memory(opcode) {
                    let base = AddressBase::Symbol(symbol);
                    return Ok(Operand::Address { base, offset });
                }
                Ok(Operand::Symbol { symbol, offset })
            }
            Some(Meaning::BranchTable(table)) if opcode == Opcode::Brx => Ok(Operand::BranchTable(table)),
            Some(_) => Err(Fail::new(name.pos, format!("'{}' cannot be used here", name.text))),
            None => self.parse_special(name),
        }
    }

    /// `v.x`, or `v` for all components.
    fn parse_vector_register(&mut self, first: RegId, width: u8) -> Result<Operand> {
        let token = self.tokens.peek();
        if token.kind != Tok::Dotted {
            let all = (0..u32::from(width)).map(|n| Operand::Reg(RegId(first.0 + n)));
            return Ok(Operand::Vector(all.collect()));
        }
        let component = match token.text {
            ".x" | ".r" => 0,
            ".y" | ".g" => 1,
            ".z" | ".b" => 2,
            ".w" | ".a" => 3,
            _ => return Err(self.unexpected("'.x', '.y', '.z' or '.w'")),
        };
        if component >= u32::from(width) {
            let problem = format!("this vector has {width} components only");
            return Err(Fail::new(token.pos, problem));
        }
        self.bump();
        Ok(Operand::Reg(RegId(first.0 + component)))
    }

    fn parse_special(&mut self, name: Token<'s>) -> Result<Operand> {
        if let Some(make) = name.text.strip_prefix('%').and_then(SpecialReg::vector) {
            let token = self.tokens.peek();
            if token.kind != Tok::Dotted {
                let all = Axis::ALL.map(|axis| Operand::Special(make(axis)));
                return Ok(Operand::Vector(all.into()));
            }
            return match Axis::from_name(&token.text[1..]) {
                Some(axis) => {
                    self.bump();
                    Ok(Operand::Special(make(axis)))
                }
                None => Err(self.unexpected("'.x', '.y' or '.z'")),
            };
        }
        SpecialReg::from_name(name.text).map(Operand::Special).ok_or_else(|| undeclared_error(name))
    }

    /// `.b0`, `.h1`, `.b3210`, `.h10` behind a register.
    fn parse_selector(&mut self) -> Result<Option<Selector>> {
        let token = self.tokens.peek();
        if token.kind != Tok::Dotted {
            return Ok(None);
        }
        let mut parts = [0u8; 4];
        let bytes = token.text.as_bytes();
        let digits = bytes.get(2..).unwrap_or_default();
        let limit = match (bytes.get(1), digits.len()) {
            (Some(b'b'), 1) => 4,
            (Some(b'h'), 1) => 2,
            (Some(b'b'), 4) => 8,
            (Some(b'h'), 2) => 4,
            _ => return Err(self.unexpected("a selector such as '.b0' or '.h1'")),
        };
        for (part, digit) in parts.iter_mut().zip(digits) {
            *part = digit.wrapping_sub(b'0');
            if *part >= limit {
                return Err(self.unexpected("a selector such as '.b0' or '.h1'"));
            }
        }
        self.bump();
        Ok(Some(match limit {
            4 if digits.len() == 1 => Selector::Byte(parts[0]),
            2 => Selector::Half(parts[0]),
            4 => Selector::Halves([parts[0], parts[1]]),
            _ => Selector::Bytes(parts),
        }))
    }

    /// What follows a symbol used as a value: `+8`, or `[3]` counted in elements.
    fn parse_symbol_offset(&mut self, symbol: SymbolRef) -> Result<i64> {
        if !self.is_at(Tok::OpenBracket) {
            return self.parse_offset();
        }
        let open = self.bump();
        let index = self.parse_unsigned("an array index")?;
        self.expect(Tok::CloseBracket, "']'")?;
        let element = match symbol {
            SymbolRef::Global(id) => self.module.global(id).element_size(),
            SymbolRef::Local(id) => self.local_elements[id.index()],
            _ => 0,
        };
        if element == 0 {
            return Err(Fail::new(open.pos, "this name is no array").with_help("write the offset in bytes, as in name+16"));
        }
        Ok(index.wrapping_mul(element).cast_signed())
    }

    /// `[base+offset]`, or the list of a texture or tensor instruction.
    fn parse_bracket(&mut self, opcode: Opcode, depth: u32) -> Result<Operand> {
        self.bump();
        let address = self.parse_address()?;
        if self.eat(Tok::CloseBracket) {
            let (base, offset) = address;
            return Ok(Operand::Address { base, offset });
        }
        let first = match address {
            (AddressBase::Reg(register), 0) => Operand::Reg(register),
            (AddressBase::Symbol(symbol), offset) => Operand::Symbol { symbol, offset },
            (base, offset) => Operand::Address { base, offset },
        };
        let mut parts = vec![first];
        while self.eat(Tok::Comma) {
            if parts.len() >= MAX_ELEMENTS {
                return Err(Fail::new(self.next_pos(), "too many operands in brackets"));
            }
            parts.push(self.parse_nested_operand(opcode, depth + 1)?);
        }
        self.expect(Tok::CloseBracket, "']'")?;
        Ok(Operand::Bracket(parts))
    }

    fn parse_address(&mut self) -> Result<(AddressBase, i64)> {
        let token = self.tokens.peek();
        if token.kind != Tok::Name || token.text == "WARP_SZ" {
            return match self.parse_constant()? {
                Imm::Int(address) => Ok((AddressBase::Absolute(address as u64), 0)),
                _ => Err(Fail::new(token.pos, "an address must be a whole number")),
            };
        }
        self.bump();
        let base = match self.resolve_name(token)? {
            Meaning::Register(register) => AddressBase::Reg(register),
            Meaning::Symbol(symbol) => {
                if self.is_at(Tok::OpenBracket) {
                    let offset = self.parse_symbol_offset(symbol)?;
                    return Ok((AddressBase::Symbol(symbol), offset));
                }
                AddressBase::Symbol(symbol)
            }
            _ => {
                let problem = format!("'{}' has no address", token.text);
                return Err(Fail::new(token.pos, problem));
            }
        };
        Ok((base, self.parse_offset()?))
    }
}

fn accesses_memory(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Ld | Opcode::Ldu | Opcode::St | Opcode::Atom | Opcode::Red)
}
