//! Headers of kernels and functions, and call prototypes.

use super::Parser;
use super::names::Meaning;
use super::variable::{TypeHead, checked_product, taken_error};
use crate::ast::{CallPrototype, Directives, FuncId, Function, FunctionKind, Linkage, Param, RegId, Register, StateSpace, SymbolRef};
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};

/// Parameters of one function; far above what any compiler makes.
const MAX_PARAMS: usize = 1 << 16;

/// A parameter as read, before it has a place in a body.
struct ReadParam<'s> {
    name: Option<Token<'s>>,
    param: Param,
}

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
                    let register = RegId(self.registers.len() as u32);
                    self.registers.push(Register { name: name.text.into(), ty: param.ty });
                    param.register = Some(register);
                    Meaning::Register(register)
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

    /// `(.param .u64 a, .param .u32 b)`
    fn parse_param_list(&mut self) -> Result<Vec<ReadParam<'s>>> {
        self.expect(Tok::OpenParen, "'('")?;
        let mut params = Vec::new();
        let mut end = 0u64;
        while !self.is_at(Tok::CloseParen) {
            if params.len() >= MAX_PARAMS {
                return Err(Fail::new(self.last_end, "too many parameters"));
            }
            let mut read = self.parse_param()?;
            let align = u64::from(read.param.align.max(1));
            read.param.offset = end.next_multiple_of(align);
            end = read.param.offset.saturating_add(read.param.size);
            params.push(read);
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::CloseParen, "')' or ','")?;
        if end > u64::from(u32::MAX) {
            return Err(Fail::new(self.last_end, "these parameters are too large"));
        }
        Ok(params)
    }

    fn parse_param(&mut self) -> Result<ReadParam<'s>> {
        let start = self.tokens.peek();
        let in_register = match start.text {
            ".param" => false,
            ".reg" => true,
            _ => return Err(self.unexpected("'.param' or '.reg'")),
        };
        self.bump();
        let head = self.parse_type_head()?;
        let name = if self.is_at(Tok::Name) { Some(self.bump()) } else { None };
        let dims = self.parse_dimensions()?;
        let TypeHead { ty, vector, align, .. } = head;
        let array = if dims.is_empty() { None } else { checked_product(&dims) };
        let element = u64::from(ty.bytes()) * u64::from(vector);
        let size = array
            .unwrap_or(1)
            .checked_mul(element)
            .filter(|size| *size <= u64::from(u32::MAX) && (dims.is_empty() || array.is_some()))
            .ok_or_else(|| Fail::new(start.pos, "this parameter is too large"))?;
        let param = Param {
            pos: name.map_or(start.pos, |name| name.pos),
            name: name.map_or("_", |name| name.text).into(),
            ty,
            vector,
            align,
            array,
            size,
            offset: 0,
            pointer: head.pointer,
            register: None,
            in_register,
        };
        let name = name.filter(|name| name.text != "_");
        Ok(ReadParam { name, param })
    }

    /// Performance directives between a header and its body.
    fn parse_directives(&mut self, into: &mut Directives) -> Result<()> {
        while self.is_at(Tok::Dotted) {
            let token = self.tokens.peek();
            match token.text {
                ".maxntid" | ".reqntid" | ".reqnctapercluster" => {
                    self.bump();
                    let value = Some(self.parse_triple()?);
                    match token.text {
                        ".maxntid" => into.maxntid = value,
                        ".reqntid" => into.reqntid = value,
                        _ => into.reqnctapercluster = value,
                    }
                }
                ".minnctapersm" | ".maxnctapersm" | ".maxnreg" | ".maxclusterrank" | ".abi_preserve" | ".abi_preserve_control" => {
                    self.bump();
                    let value = Some(self.parse_u32("this number")?);
                    match token.text {
                        ".minnctapersm" => into.minnctapersm = value,
                        ".maxnctapersm" => into.maxnctapersm = value,
                        ".maxnreg" => into.maxnreg = value,
                        ".maxclusterrank" => into.maxclusterrank = value,
                        // Which registers a callee keeps: means nothing without a machine.
                        _ => {}
                    }
                }
                ".explicitcluster" => {
                    self.bump();
                    into.explicit_cluster = true;
                }
                ".blocksareclusters" => {
                    self.bump();
                    into.blocks_are_clusters = true;
                }
                ".noreturn" => {
                    self.bump();
                    into.noreturn = true;
                }
                ".unified" => {
                    self.bump();
                }
                ".attribute" => {
                    self.bump();
                    self.skip_parens()?;
                }
                ".pragma" => {
                    self.bump();
                    into.pragmas.extend(self.parse_pragma()?);
                }
                _ => return Err(self.unexpected("a performance directive, '{' or ';'")),
            }
        }
        Ok(())
    }

    /// One to three numbers; missing ones are 1.
    fn parse_triple(&mut self) -> Result<[u32; 3]> {
        let mut dims = [1; 3];
        for (at, dim) in dims.iter_mut().enumerate() {
            if at > 0 && !self.eat(Tok::Comma) {
                break;
            }
            *dim = self.parse_u32("a dimension")?;
        }
        Ok(dims)
    }

    /// `.callprototype (.param .b32 _) _ (.param .b64 _);` behind the directive's name.
    pub(super) fn parse_call_prototype(&mut self, name: Token<'s>) -> Result<CallPrototype> {
        let returns = if self.is_at(Tok::OpenParen) { split_params(self.parse_param_list()?).0 } else { Vec::new() };
        self.expect_name("'_'")?;
        let params = if self.is_at(Tok::OpenParen) { split_params(self.parse_param_list()?).0 } else { Vec::new() };
        let mut directives = Directives::default();
        self.parse_directives(&mut directives)?;
        self.expect_semicolon()?;
        Ok(CallPrototype { name: name.text.into(), returns, params, noreturn: directives.noreturn })
    }

    /// Whether a state space may be declared inside a body.
    pub(super) fn space_of_body(text: &str) -> Option<StateSpace> {
        match StateSpace::from_name(text)? {
            space @ (StateSpace::Local | StateSpace::Shared | StateSpace::Param | StateSpace::Global | StateSpace::Const) => Some(space),
            _ => None,
        }
    }
}

fn split_params<'s>(read: Vec<ReadParam<'s>>) -> (Vec<Param>, Vec<Option<Token<'s>>>) {
    read.into_iter().map(|r| (r.param, r.name)).unzip()
}

/// Do two declarations agree? Names and pointer hints may differ.
fn have_same_params(a: &[Param], b: &[Param]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.size, a.ty.bits()) == (b.size, b.ty.bits()))
}
