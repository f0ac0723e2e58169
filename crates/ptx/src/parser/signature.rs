//! What functions and call prototypes have in common: parameters and performance directives.

use super::Parser;
use super::variable::{TypeHead, checked_product};
use crate::ast::{CallPrototype, Directives, Param, StateSpace};
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};

/// Parameters of one function; far above what any compiler makes.
const MAX_PARAMS: usize = 1 << 16;

/// A parameter as read, before it has a place in a body.
pub(super) struct ReadParam<'s> {
    pub(super) name: Option<Token<'s>>,
    pub(super) param: Param,
}

impl<'s> Parser<'s> {
    /// `(.param .u64 a, .param .u32 b)`
    pub(super) fn parse_param_list(&mut self) -> Result<Vec<ReadParam<'s>>> {
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
    pub(super) fn parse_directives(&mut self, into: &mut Directives) -> Result<()> {
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

    /// The strings of a `.pragma`, to its semicolon.
    pub(super) fn parse_pragma(&mut self) -> Result<Vec<Box<str>>> {
        let mut texts = Vec::new();
        loop {
            let text = self.expect(Tok::Text, "a string")?;
            texts.push(text.text.trim_matches('"').into());
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect_semicolon()?;
        Ok(texts)
    }
}

pub(super) fn split_params<'s>(read: Vec<ReadParam<'s>>) -> (Vec<Param>, Vec<Option<Token<'s>>>) {
    read.into_iter().map(|r| (r.param, r.name)).unzip()
}
