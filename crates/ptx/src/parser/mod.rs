//! Tokens to a resolved tree, by descent.
//!
//! Each file reads one part, and uses only those below it:
//!
//! ```text
//! module       the directives at the top
//! function     kernels and functions
//! body         statements
//! signature    parameters, performance directives and call prototypes
//! instruction  what runs
//! operand      its operands
//! variable     variables with their initialisers
//! lookup       what a name means
//! ```
//!
//! `constant`, `labels` and `names` know no parser or no statement.
//! A complaint ends a statement, not the parse: up to [`MAX_DIAGNOSTICS`] are collected. Every loop
//! consumes at least one token a turn, and everything that nests has a limit.

mod body;
mod constant;
mod function;
mod instruction;
mod labels;
mod lookup;
mod module;
mod names;
mod operand;
mod signature;
mod variable;

use crate::ast::{Function, Module, Pos, Register, Target, Variable};
use crate::diagnostic::{Diagnostic, MAX_DIAGNOSTICS, ParseError};
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token, Tokens};
use names::Names;

pub(crate) struct Parser<'s> {
    tokens: Tokens<'s>,
    names: Names<'s>,
    /// Registers of the body being read.
    registers: Vec<Register>,
    module: Module,
    /// Initialisers whose symbols may be declared later: which variable's, and what was written.
    late: Vec<variable::LateSymbol<'s>>,
    diagnostics: Vec<Diagnostic>,
    /// Bytes of an element of each variable of the body being read.
    local_elements: Vec<u64>,
    /// Variables of the body that one declaration has named so far.
    pending_locals: Vec<(Token<'s>, Variable)>,
    /// End of the token read last: where a missing `;` belongs.
    last_end: Pos,
    last_kind: Tok,
    /// Tokens read so far, to see whether a statement got anywhere.
    consumed: u64,
}

/// Reads a whole module.
pub(crate) fn parse(source: &str) -> std::result::Result<Module, ParseError> {
    if u32::try_from(source.len()).is_err() {
        let diagnostic = Diagnostic { pos: Pos { line: 1, col: 1 }, message: "PTX of 4 GiB or more is not supported".to_owned(), help: None };
        return Err(ParseError { diagnostics: vec![diagnostic] });
    }
    let mut parser = Parser {
        tokens: Tokens::new(source),
        names: Names::default(),
        registers: Vec::new(),
        module: Module {
            version: (0, 0),
            target: Target::default(),
            address_size: 64,
            files: Vec::new(),
            globals: Vec::<Variable>::new(),
            functions: Vec::<Function>::new(),
            aliases: Vec::new(),
            pragmas: Vec::new(),
        },
        late: Vec::new(),
        local_elements: Vec::new(),
        pending_locals: Vec::new(),
        diagnostics: Vec::new(),
        last_end: Pos { line: 1, col: 1 },
        last_kind: Tok::End,
        consumed: 0,
    };
    parser.parse_module();
    if parser.diagnostics.is_empty() {
        return Ok(parser.module);
    }
    parser.diagnostics.sort_by_key(|diagnostic| diagnostic.pos);
    Err(ParseError { diagnostics: parser.diagnostics })
}

impl<'s> Parser<'s> {
    fn bump(&mut self) -> Token<'s> {
        let token = self.tokens.bump();
        self.last_end = token.end();
        self.last_kind = token.kind;
        self.consumed += 1;
        token
    }

    fn is_at(&self, kind: Tok) -> bool {
        self.tokens.peek().kind == kind
    }

    /// Is the next token this dotted word?
    fn is_at_dotted(&self, text: &str) -> bool {
        let token = self.tokens.peek();
        token.kind == Tok::Dotted && token.text == text
    }

    /// Where the next token is.
    fn next_pos(&self) -> Pos {
        self.tokens.peek().pos
    }

    fn eat(&mut self, kind: Tok) -> bool {
        let found = self.is_at(kind);
        if found {
            self.bump();
        }
        found
    }

    fn eat_dotted(&mut self, text: &str) -> bool {
        let found = self.is_at_dotted(text);
        if found {
            self.bump();
        }
        found
    }

    fn unexpected(&self, wanted: &str) -> Fail {
        let token = self.tokens.peek();
        match token.kind {
            Tok::Unknown if token.text.starts_with("/*") => Fail::new(token.pos, "this comment is never closed").with_help("close it with '*/'"),
            Tok::Unknown if token.text.starts_with('"') => Fail::new(token.pos, "this string is never closed"),
            _ => Fail::new(token.pos, format!("expected {wanted}, found {}", token.describe())),
        }
    }

    fn expect(&mut self, kind: Tok, wanted: &str) -> Result<Token<'s>> {
        if self.is_at(kind) { Ok(self.bump()) } else { Err(self.unexpected(wanted)) }
    }

    /// The `;` that ends a statement; a missing one is reported where it belongs.
    fn expect_semicolon(&mut self) -> Result<()> {
        if self.eat(Tok::Semicolon) {
            return Ok(());
        }
        let found = self.tokens.peek();
        if found.kind == Tok::Unknown || found.pos.line == self.last_end.line {
            return Err(self.unexpected("';'"));
        }
        Err(Fail::new(self.last_end, "expected ';' here").with_help(format!("the next thing is {}", found.describe())))
    }

    fn expect_name(&mut self, wanted: &str) -> Result<Token<'s>> {
        self.expect(Tok::Name, wanted)
    }

    fn complain(&mut self, fail: Fail) {
        if !self.has_given_up() {
            self.diagnostics.push(fail.into_diagnostic());
        }
    }

    /// Enough complaints: stop reading.
    fn has_given_up(&self) -> bool {
        self.diagnostics.len() >= MAX_DIAGNOSTICS
    }

    /// Skips to behind the next `;`, or to a brace or the end of the text.
    fn skip_statement(&mut self) {
        loop {
            match self.tokens.peek().kind {
                Tok::Semicolon => {
                    self.bump();
                    return;
                }
                Tok::OpenBrace | Tok::CloseBrace | Tok::End => return,
                _ => self.bump(),
            };
        }
    }

    /// Skips a `{ … }` with everything inside; the current token is the opening brace.
    fn skip_block(&mut self) {
        let mut depth = 0u64;
        loop {
            match self.bump().kind {
                Tok::OpenBrace => depth += 1,
                Tok::CloseBrace => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                Tok::End => return,
                _ => {}
            }
        }
    }

    /// `(…)` skipped; the current token is the opening parenthesis.
    fn skip_parens(&mut self) -> Result<()> {
        self.expect(Tok::OpenParen, "'('")?;
        let mut depth = 1u64;
        while depth > 0 {
            match self.tokens.peek().kind {
                Tok::OpenParen => depth += 1,
                Tok::CloseParen => depth -= 1,
                Tok::End | Tok::Semicolon | Tok::OpenBrace | Tok::CloseBrace => {
                    return Err(self.unexpected("')'"));
                }
                _ => {}
            }
            self.bump();
        }
        Ok(())
    }
}
