//! Headers of kernels and functions, and call prototypes.

use super::Parser;
use super::lookup::taken_error;
use super::names::{Meaning, add_register};
use super::signature::split_params;
use crate::ast::{Directives, FuncId, Function, FunctionKind, Linkage, Param, SymbolRef};
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};

impl<'s> Parser<'s> {
    /// A kernel or function, behind `.entry` or `.func`.
    pub(super) fn parse_function(&mut self, kind: FunctionKind, linkage: Linkage) -> Result<()> {
        let mut directives = Directives::default();
        // `.func .attribute(.unified(…)) (…) name`, `.func .noreturn (…) name`
        self.parse_directives(&mut directives)?;
        let returns = if kind == FunctionKind::Func && self.is_at(Tok::OpenParen) { self.parse_param_list()? } else { Vec::new() };
        let name = self.expect_name("the name of a function")?;
        let params = if self.is_at(Tok::OpenParen) { self.parse_param_list()? } else { Vec::new() };
        self.parse_directives(&mut directives)?;
        let defined = match self.tokens.peek().kind {
            Tok::OpenBrace => true,
            Tok::Semicolon => {
                self.bump();
                false
            }
            _ => return Err(self.unexpected("'{' of the body, or ';'")),
        };
        let id = self.declare_function(name, kind, defined)?;
        let (returns, return_names) = split_params(returns);
        let (params, param_names) = split_params(params);
        let function = Function {
            pos: name.pos,
            kind,
            linkage,
            name: name.text.into(),
            returns,
            params_size: params.last().map_or(0, |last| last.offset + last.size),
            params,
            directives,
            body: None,
        };
        self.place_function(id, function, defined)?;
        if defined {
            self.define_body(id, &return_names, &param_names);
        }
        Ok(())
    }

    /// The id of a function: a new one, or that of its earlier declaration.
    fn declare_function(&mut self, name: Token<'s>, kind: FunctionKind, defined: bool) -> Result<FuncId> {
        if let Some(SymbolRef::Function(id)) = self.names.find_symbol(name.text) {
            let old = &self.module.functions[id.index()];
            if old.kind != kind {
                let problem = format!("'{}' was declared differently at {}", name.text, old.pos);
                return Err(Fail::new(name.pos, problem));
            }
            if defined && old.body.is_some() {
                return Err(taken_error(name, old.pos));
            }
            return Ok(id);
        }
        let id = FuncId(self.module.functions.len() as u32);
        self.names.declare(name.text, id.into(), name.pos).map_err(|first| taken_error(name, first))?;
        Ok(id)
    }

    fn place_function(&mut self, id: FuncId, function: Function, defined: bool) -> Result<()> {
        let Some(old) = self.module.functions.get_mut(id.index()) else {
            self.module.functions.push(function);
            return Ok(());
        };
        let same = have_same_params(&old.params, &function.params) && have_same_params(&old.returns, &function.returns);
        if !same {
            let problem = format!("'{}' has other parameters than declared at {}", function.name, old.pos);
            return Err(Fail::new(function.pos, problem));
        }
        if defined {
            let was = std::mem::replace(old, function);
            if old.linkage == Linkage::Internal && was.linkage != Linkage::Extern {
                old.linkage = was.linkage;
            }
            old.directives.noreturn |= was.directives.noreturn;
        }
        Ok(())
    }

    /// Reads the body of function `id`; complaints inside do not end the function.
    fn define_body(&mut self, id: FuncId, returns: &[Option<Token<'s>>], params: &[Option<Token<'s>>]) {
        self.registers = Vec::new();
        self.names.enter_scope();
        for (list, is_return) in [(returns, true), (params, false)] {
            for (at, name) in list.iter().enumerate() {
                let Some(name) = *name else { continue };
                let function = &mut self.module.functions[id.index()];
                let param = if is_return { &mut function.returns[at] } else { &mut function.params[at] };
                let meaning = if param.in_register {
                    let register = add_register(&mut self.registers, name.text, param.ty, param.vector);
                    param.register = Some(register);
                    Meaning::of_register(register, param.vector)
                } else if is_return {
                    Meaning::Symbol(SymbolRef::ReturnParam(at as u32))
                } else {
                    Meaning::Symbol(SymbolRef::Param(at as u32))
                };
                if let Err(first) = self.names.declare(name.text, meaning, name.pos) {
                    self.complain(taken_error(name, first));
                }
            }
        }
        let body = self.parse_body(id);
        self.names.leave_scope();
        self.module.functions[id.index()].body = Some(body);
    }
}

/// Do two declarations agree? Names and pointer hints may differ.
fn have_same_params(a: &[Param], b: &[Param]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.size, a.ty.bits()) == (b.size, b.ty.bits()))
}
