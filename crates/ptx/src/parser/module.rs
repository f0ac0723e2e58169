//! The directives at the top of a module.

use super::Parser;
use super::variable::Declared;
use crate::ast::{FuncId, FunctionKind, Linkage, StateSpace, SymbolRef, Target};
use crate::fail::{Fail, Result};
use crate::lexer::Tok;

/// The newest major number of `.version` whose rules we know. Minor numbers add instructions and
/// modifiers; one that is not known is refused by its name, whatever the version.
const NEWEST_VERSION: u32 = 9;

impl<'s> Parser<'s> {
    pub(super) fn parse_module(&mut self) {
        let mut aliases = Vec::new();
        if let Err(fail) = self.parse_header() {
            self.complain(fail);
            // Without a header this is likely no PTX at all: one complaint is enough.
            return;
        }
        while !self.is_at(Tok::End) && !self.has_given_up() {
            if let Err(fail) = self.parse_top_level(&mut aliases) {
                self.complain(fail);
                self.skip_top_level();
            }
        }
        if self.diagnostics.is_empty() {
            for (name, target) in aliases {
                if let Err(fail) = self.resolve_alias(name, target) {
                    self.complain(fail);
                }
            }
            self.resolve_late_symbols();
        }
    }

    fn parse_header(&mut self) -> Result<()> {
        if !self.eat_dotted(".version") {
            return Err(self.unexpected("'.version'").with_help("a PTX module begins with .version, .target and .address_size"));
        }
        let token = self.expect(Tok::Number, "a version such as 9.0")?;
        self.module.version = token
            .text
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .ok_or_else(|| Fail::new(token.pos, format!("'{}' is not a PTX version", token.text)).with_help("write major and minor number, as in 9.0"))?;
        if self.module.version.0 > NEWEST_VERSION {
            let problem = format!("PTX version {} is newer than {NEWEST_VERSION}.x", token.text);
            return Err(Fail::new(token.pos, problem).with_help("compile with CUDA 13 or older"));
        }
        if !self.eat_dotted(".target") {
            return Err(self.unexpected("'.target'"));
        }
        let first = self.expect_name("a target such as sm_90")?;
        self.module.target = parse_target(first.text)
            .ok_or_else(|| Fail::new(first.pos, format!("'{}' is not a target", first.text)).with_help("targets are named sm_75, sm_90a and the like"))?;
        while self.eat(Tok::Comma) {
            let option = self.expect_name("a target option")?;
            self.module.target.options.push(option.text.into());
        }
        if self.eat_dotted(".address_size") {
            let at = self.tokens.peek().pos;
            self.module.address_size = match self.parse_unsigned("the address size")? {
                32 => 32,
                64 => 64,
                _ => return Err(Fail::new(at, "the address size must be 32 or 64")),
            };
        }
        Ok(())
    }

    fn parse_top_level(&mut self, aliases: &mut Vec<(super::Token<'s>, super::Token<'s>)>) -> Result<()> {
        let token = self.tokens.peek();
        if token.kind == Tok::Semicolon {
            self.bump();
            return Ok(());
        }
        if token.kind != Tok::Dotted {
            return Err(self.unexpected("a directive such as .visible, .global or .func"));
        }
        match token.text {
            ".file" => {
                self.bump();
                return self.parse_file();
            }
            ".section" => {
                self.bump();
                while !matches!(self.tokens.peek().kind, Tok::OpenBrace | Tok::End) {
                    self.bump();
                }
                if self.is_at(Tok::End) {
                    return Err(self.unexpected("'{' of the section"));
                }
                self.skip_block();
                return Ok(());
            }
            ".pragma" => {
                self.bump();
                let texts = self.parse_pragma()?;
                self.module.pragmas.extend(texts);
                return Ok(());
            }
            ".alias" => {
                self.bump();
                let name = self.expect_name("the name of the alias")?;
                self.expect(Tok::Comma, "','")?;
                let target = self.expect_name("the function it stands for")?;
                self.expect_semicolon()?;
                aliases.push((name, target));
                return Ok(());
            }
            _ => {}
        }
        let linkage = self.parse_linkage();
        let token = self.tokens.peek();
        match token.text {
            ".entry" if token.kind == Tok::Dotted => {
                self.bump();
                self.parse_function(FunctionKind::Entry, linkage)
            }
            ".func" if token.kind == Tok::Dotted => {
                self.bump();
                self.parse_function(FunctionKind::Func, linkage)
            }
            text if token.kind == Tok::Dotted => match StateSpace::from_name(text.get(1..).unwrap_or_default()) {
                Some(space @ (StateSpace::Global | StateSpace::Const | StateSpace::Shared | StateSpace::Local | StateSpace::Tex)) => {
                    self.bump();
                    self.parse_variables(space, linkage, Declared::InModule)
                }
                _ => Err(self.unexpected("a directive such as .entry, .func or .global")),
            },
            _ => Err(self.unexpected("a directive such as .entry, .func or .global")),
        }
    }

    pub(super) fn parse_linkage(&mut self) -> Linkage {
        let mut linkage = Linkage::Internal;
        loop {
            linkage = match self.tokens.peek() {
                token if token.kind != Tok::Dotted => return linkage,
                token => match token.text {
                    ".visible" => Linkage::Visible,
                    ".extern" => Linkage::Extern,
                    ".weak" => Linkage::Weak,
                    ".common" => Linkage::Common,
                    _ => return linkage,
                },
            };
            self.bump();
        }
    }

    /// `.file 1 "name"`, perhaps with time and size.
    fn parse_file(&mut self) -> Result<()> {
        let number = self.parse_u32("the file number")?;
        let name = self.expect(Tok::Text, "the file name in quotes")?;
        while self.eat(Tok::Comma) {
            self.parse_unsigned("a time or size")?;
        }
        let name = name.text.trim_matches('"').into();
        self.module.files.push((number, name));
        Ok(())
    }

    fn resolve_alias(&mut self, name: super::Token<'s>, target: super::Token<'s>) -> Result<()> {
        let function = |token: super::Token<'s>| -> Result<FuncId> {
            match self.names.find_symbol(token.text) {
                Some(SymbolRef::Function(id)) => Ok(id),
                _ => Err(Fail::new(token.pos, format!("no function is named '{}'", token.text))),
            }
        };
        let pair = (function(name)?, function(target)?);
        self.module.aliases.push(pair);
        Ok(())
    }

    /// After a complaint at module level: to the next directive that begins something.
    fn skip_top_level(&mut self) {
        self.leave_all_scopes();
        loop {
            let token = self.tokens.peek();
            match token.kind {
                Tok::End => return,
                Tok::OpenBrace => {
                    self.skip_block();
                    return;
                }
                Tok::Semicolon => {
                    self.bump();
                    return;
                }
                _ => {
                    self.bump();
                }
            }
            let next = self.tokens.peek();
            let begins = matches!(next.text, ".visible" | ".extern" | ".weak" | ".entry" | ".func" | ".global" | ".const");
            if next.kind == Tok::Dotted && begins {
                return;
            }
        }
    }

    fn leave_all_scopes(&mut self) {
        while self.names.depth() > 0 {
            self.names.leave_scope();
        }
    }
}

fn parse_target(text: &str) -> Option<Target> {
    let number = text.strip_prefix("sm_")?;
    let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let suffix = match &number[digits.len()..] {
        "" => None,
        "a" => Some('a'),
        "f" => Some('f'),
        _ => return None,
    };
    Some(Target { name: text.into(), arch: digits.parse().ok()?, suffix, options: Vec::new() })
}
