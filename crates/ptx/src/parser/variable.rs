//! Variables and their initialisers, of modules and of bodies.

use super::Parser;
use super::lookup::{taken_error, undeclared_error};
use crate::ast::{GlobalId, Imm, InitEntry, InitValue, Linkage, ScalarType, StateSpace, SymbolRef, Variable};
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};

/// Where a declaration stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    InModule,
    InBody,
}

/// A symbol in an initialiser; its declaration may come later.
pub(super) struct LateSymbol<'s> {
    variable: GlobalId,
    entry: usize,
    name: Token<'s>,
}

/// Type, vector width and alignment, as they stand before a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct TypeHead {
    pub(super) ty: ScalarType,
    pub(super) vector: u8,
    pub(super) align: u32,
    pub(super) managed: bool,
    /// `.ptr`, with space and alignment of what it points to.
    pub(super) pointer: Option<(Option<StateSpace>, u32)>,
}

/// A variable larger than this is refused: no GPU has the memory.
const MAX_SIZE: u64 = 1 << 48;

/// The largest alignment accepted; the hardware's is far smaller.
const MAX_ALIGN: u64 = 1 << 20;

/// Everything an initialiser needs to know of its variable.
struct Shape {
    ty: ScalarType,
    /// Dimensions from the outside in, a vector's width last.
    dims: Vec<u64>,
    /// Elements in all; `u64::MAX` while an open dimension is counted.
    total: u64,
}

impl<'s> Parser<'s> {
    /// `.align 8 .v2 .f32`, `.attribute(…)` and, for parameters, `.ptr .global .align 4`.
    pub(super) fn parse_type_head(&mut self) -> Result<TypeHead> {
        let mut align = None;
        let mut vector = 1u8;
        let mut managed = false;
        let mut ty = None;
        let mut pointer = None;
        loop {
            let token = self.tokens.peek();
            if token.kind != Tok::Dotted {
                break;
            }
            match token.text {
                ".align" => {
                    self.bump();
                    let at = self.tokens.peek().pos;
                    let value = self.parse_unsigned("an alignment")?;
                    if !value.is_power_of_two() || value > MAX_ALIGN {
                        return Err(Fail::new(at, "an alignment must be a power of two").with_help("1, 2, 4, … up to 1048576"));
                    }
                    match &mut pointer {
                        Some((_, pointee)) => *pointee = value as u32,
                        None => align = Some(value as u32),
                    }
                }
                ".attribute" => {
                    self.bump();
                    self.expect(Tok::OpenParen, "'('")?;
                    while !self.is_at(Tok::CloseParen) {
                        match self.tokens.peek() {
                            token if token.kind == Tok::Dotted => {
                                managed |= token.text == ".managed";
                                self.bump();
                            }
                            token if token.kind == Tok::OpenParen => self.skip_parens()?,
                            token if token.kind == Tok::Comma => {
                                self.bump();
                            }
                            _ => return Err(self.unexpected("')'")),
                        }
                    }
                    self.bump();
                }
                ".ptr" => {
                    self.bump();
                    pointer = Some((None, 4));
                }
                ".v2" => {
                    self.bump();
                    vector = 2;
                }
                ".v4" => {
                    self.bump();
                    vector = 4;
                }
                ".v8" => {
                    self.bump();
                    vector = 8;
                }
                text => {
                    let word = text.get(1..).unwrap_or_default();
                    if let Some(found) = ScalarType::from_name(word) {
                        self.bump();
                        ty = Some(found);
                    } else if let (Some((space, _)), Some(found)) = (&mut pointer, StateSpace::from_name(word)) {
                        *space = Some(found);
                        self.bump();
                    } else {
                        return Err(self.unexpected("a type such as .u32"));
                    }
                }
            }
        }
        let Some(ty) = ty else {
            return Err(self.unexpected("a type such as .u32"));
        };
        let natural = ty.bytes() * u32::from(vector);
        Ok(TypeHead { ty, vector, align: align.unwrap_or(natural.next_power_of_two()), managed, pointer })
    }

    /// `[3][4]` or `[]` behind a name; an empty first dimension is 0.
    pub(super) fn parse_dimensions(&mut self) -> Result<Vec<u64>> {
        let mut dims = Vec::new();
        while self.is_at(Tok::OpenBracket) {
            let open = self.bump();
            if dims.len() >= 16 {
                return Err(Fail::new(open.pos, "an array has at most 16 dimensions"));
            }
            if self.is_at(Tok::CloseBracket) && dims.is_empty() {
                dims.push(0);
            } else {
                dims.push(self.parse_unsigned("an array dimension")?);
            }
            self.expect(Tok::CloseBracket, "']'")?;
        }
        Ok(dims)
    }

    /// The rest of a variable declaration, behind its state space, to its semicolon.
    pub(super) fn parse_variables(&mut self, space: StateSpace, linkage: Linkage, declared: Declared) -> Result<()> {
        let space = if space == StateSpace::Const && self.eat(Tok::OpenBracket) {
            let at = self.tokens.peek().pos;
            let bank = self.parse_unsigned("a constant bank")?;
            self.expect(Tok::CloseBracket, "']'")?;
            let bank = u8::try_from(bank).ok().filter(|bank| *bank <= 10).ok_or_else(|| Fail::new(at, "constant banks are numbered 0 to 10"))?;
            StateSpace::ConstBank(bank)
        } else {
            space
        };
        let head = self.parse_type_head()?;
        if head.ty == ScalarType::Pred {
            return Err(Fail::new(self.last_end, "predicates live in registers only"));
        }
        loop {
            self.parse_variable(space, linkage, declared, head)?;
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect_semicolon()
    }

    fn parse_variable(&mut self, space: StateSpace, linkage: Linkage, declared: Declared, head: TypeHead) -> Result<()> {
        let name = self.expect_name("the name of a variable")?;
        let mut dims = self.parse_dimensions()?;
        let mut init = Vec::new();
        let mut late = Vec::new();
        let open = dims.first() == Some(&0);
        if self.eat(Tok::Equals) {
            let mut shape = Shape { ty: head.ty, total: 0, dims: dims.clone() };
            if head.vector > 1 {
                shape.dims.push(u64::from(head.vector));
            }
            shape.total = if open { u64::MAX } else { checked_product(&shape.dims).unwrap_or(u64::MAX) };
            let count = self.parse_initialiser(&shape, &mut init, &mut late)?;
            if open {
                let inner = checked_product(&shape.dims[1..]).unwrap_or(1).max(1);
                dims[0] = count.div_ceil(inner);
            }
        }
        let unsized_array = dims.first() == Some(&0);
        let element = u64::from(head.ty.bytes()) * u64::from(head.vector);
        let size = checked_product(&dims)
            .and_then(|count| count.checked_mul(element))
            .filter(|size| *size <= MAX_SIZE)
            .ok_or_else(|| Fail::new(name.pos, format!("'{}' is too large for any GPU", name.text)))?;
        let variable = Variable {
            pos: name.pos,
            name: name.text.into(),
            unique_name: name.text.into(),
            linkage,
            space,
            ty: head.ty,
            vector: head.vector,
            align: head.align,
            dims,
            unsized_array,
            size,
            init,
            managed: head.managed,
        };
        match declared {
            Declared::InModule => self.declare_global(name, variable, late),
            Declared::InBody => self.declare_local(name, variable, late),
        }
    }

    /// A variable of a body, as the shared declaration code hands it over.
    pub(super) fn declare_local(&mut self, name: Token<'s>, mut variable: Variable, late: Vec<(usize, Token<'s>)>) -> Result<()> {
        for (entry, symbol_name) in late {
            let found = self.resolve_symbol(symbol_name)?;
            if let InitValue::Address { symbol, .. } = &mut variable.init[entry].value {
                *symbol = found;
            }
        }
        self.pending_locals.push((name, variable));
        Ok(())
    }

    fn declare_global(&mut self, name: Token<'s>, variable: Variable, late: Vec<(usize, Token<'s>)>) -> Result<()> {
        let new_id = GlobalId(self.module.globals.len() as u32);
        let id = match self.names.find_symbol(name.text) {
            Some(SymbolRef::Global(old_id)) => {
                let old = &self.module.globals[old_id.index()];
                let same = old.space == variable.space && old.ty == variable.ty && old.vector == variable.vector;
                if !same {
                    return Err(Fail::new(name.pos, format!("'{}' was declared differently at {}", name.text, old.pos)));
                }
                if variable.linkage == Linkage::Extern {
                    return Ok(());
                }
                if old.linkage != Linkage::Extern && old.linkage != Linkage::Common {
                    return Err(taken_error(name, old.pos));
                }
                self.module.globals[old_id.index()] = variable;
                old_id
            }
            _ => {
                self.names.declare(name.text, new_id.into(), name.pos).map_err(|first| taken_error(name, first))?;
                self.module.globals.push(variable);
                new_id
            }
        };
        let late = late.into_iter().map(|(entry, name)| LateSymbol { variable: id, entry, name });
        self.late.extend(late);
        Ok(())
    }

    /// Symbols that were unknown when an initialiser mentioned them, now that all are known.
    pub(super) fn resolve_late_symbols(&mut self) {
        for late in std::mem::take(&mut self.late) {
            let Some(found) = self.names.find_symbol(late.name.text) else {
                let name = late.name;
                self.complain(undeclared_error(name));
                continue;
            };
            let entry = &mut self.module.globals[late.variable.index()].init[late.entry];
            if let InitValue::Address { symbol, .. } = &mut entry.value {
                *symbol = found;
            }
        }
    }

    /// What stands behind `=`; says how many elements it covers.
    fn parse_initialiser(&mut self, shape: &Shape, init: &mut Vec<InitEntry>, late: &mut Vec<(usize, Token<'s>)>) -> Result<u64> {
        if !self.is_at(Tok::OpenBrace) {
            if !shape.dims.is_empty() {
                return Err(self.unexpected("'{' of the initialiser"));
            }
            self.parse_init_element(shape, 0, init, late)?;
            return Ok(1);
        }
        if shape.dims.is_empty() {
            return Err(self.unexpected("one value: this variable is no array"));
        }
        let mut next = 0u64;
        let reached = self.parse_init_list(shape, 0, &mut next, init, late)?;
        Ok(reached)
    }

    /// `{ … }` for the sub-array at `level` that starts at element `next`.
    fn parse_init_list(&mut self, shape: &Shape, level: usize, next: &mut u64, init: &mut Vec<InitEntry>, late: &mut Vec<(usize, Token<'s>)>) -> Result<u64> {
        self.expect(Tok::OpenBrace, "'{'")?;
        let inner = checked_product(&shape.dims[level + 1..]).unwrap_or(u64::MAX);
        let start = *next;
        let end = match shape.dims[level] {
            // Only the first dimension can be open.
            0 => u64::MAX,
            n => start.saturating_add(n.saturating_mul(inner)),
        };
        let end = end.min(shape.total);
        let mut reached = start;
        while !self.is_at(Tok::CloseBrace) {
            let token = self.tokens.peek();
            if *next >= end {
                return Err(Fail::new(token.pos, "more values than the array has elements"));
            }
            if token.kind == Tok::OpenBrace {
                if level + 1 >= shape.dims.len() {
                    return Err(Fail::new(token.pos, "more braces than the array has dimensions"));
                }
                let sub_start = *next;
                let sub = self.parse_init_list(shape, level + 1, next, init, late)?;
                reached = reached.max(sub);
                *next = sub_start.saturating_add(inner);
            } else {
                self.parse_init_element(shape, *next, init, late)?;
                *next += 1;
                reached = reached.max(*next);
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::CloseBrace, "'}' or ','")?;
        Ok(reached)
    }

    fn parse_init_element(&mut self, shape: &Shape, index: u64, init: &mut Vec<InitEntry>, late: &mut Vec<(usize, Token<'s>)>) -> Result<()> {
        let size = shape.ty.bytes() as u8;
        let offset = index.saturating_mul(u64::from(size));
        let value = match self.tokens.peek() {
            token if token.kind == Tok::Name && token.text != "WARP_SZ" => self.parse_init_symbol(None, init.len(), late)?,
            _ => match self.parse_constant()? {
                Imm::Int(mask) if self.is_at(Tok::OpenParen) => {
                    self.bump();
                    let value = self.parse_init_symbol(Some(mask as u64), init.len(), late)?;
                    self.expect(Tok::CloseParen, "')'")?;
                    value
                }
                number if size <= 8 => InitValue::Bits(number.bits(shape.ty)),
                // The upper half of a wide element is zero.
                Imm::Int(number) => InitValue::Bits(number as u64),
                _ => return Err(Fail::new(self.last_end, "this value does not fit the type")),
            },
        };
        let is_address = matches!(value, InitValue::Address { mask: None, .. });
        if is_address && size < 4 {
            return Err(Fail::new(self.last_end, "an address does not fit this type").with_help("select bytes with a mask, as in 0xff(name)"));
        }
        // Zeros need no entry: what no entry covers is zero.
        if value != InitValue::Bits(0) {
            init.push(InitEntry { offset, size: size.min(8), value });
        }
        Ok(())
    }

    /// `name+8`, `generic(name)`, `generic(name)+8`, `generic(name+8)`.
    fn parse_init_symbol(&mut self, mask: Option<u64>, entry: usize, late: &mut Vec<(usize, Token<'s>)>) -> Result<InitValue> {
        let mut name = self.expect_name("a name")?;
        let mut offset = 0i64;
        let generic = name.text == "generic" && self.is_at(Tok::OpenParen);
        if generic {
            self.bump();
            name = self.expect_name("a name")?;
            offset = self.parse_offset()?;
            self.expect(Tok::CloseParen, "')'")?;
        }
        offset = offset.wrapping_add(self.parse_offset()?);
        late.push((entry, name));
        Ok(InitValue::Address { symbol: SymbolRef::Global(GlobalId(u32::MAX)), offset, generic, mask })
    }
}

pub(super) fn checked_product(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1u64, |a, b| a.checked_mul(*b))
}
