//! One text, taken apart: which names it declares and defines, and which bytes say so.
//!
//! The text has been parsed before, so only what the linker needs is read here, token by token. All
//! places are offsets in bytes; bodies are never rewritten, but for single names and numbers.

use crate::ast::Linkage;
use crate::lexer::{Tok, Token, Tokens};
use std::collections::HashMap;
use std::ops::Range;

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kernel,
    Function,
    Variable,
}

/// A declaration or definition at module level.
#[derive(Debug)]
pub(super) struct Item<'s> {
    pub(super) kind: Kind,
    pub(super) name: &'s str,
    pub(super) linkage: Linkage,
    /// It has a body, or it is a variable that is not `.extern`.
    pub(super) defines: bool,
    /// The pieces of the text, in order, that say it.
    pub(super) text: Vec<Range<usize>>,
    /// The pieces that say what it is, without linkage, body and initial value.
    pub(super) head: Vec<Range<usize>>,
    /// `.shared`, which may be `.extern` and defined nowhere.
    pub(super) shared: bool,
}

/// A text, taken apart.
#[derive(Debug)]
pub(super) struct LinkInput<'s> {
    pub(super) source: &'s str,
    pub(super) items: Vec<Item<'s>>,
    /// `.alias` lines: the name that each defines, and its text.
    pub(super) aliases: Vec<(&'s str, Range<usize>)>,
    pub(super) pragmas: Vec<Range<usize>>,
    /// `.file` lines: the number, and what stands behind it.
    pub(super) files: Vec<(&'s str, Range<usize>)>,
    /// What is inside `.section .debug_str`, to which `.loc` lines refer.
    pub(super) strings: Vec<Range<usize>>,
    /// Names that the strings are known by.
    pub(super) labels: Vec<&'s str>,
    /// Where each name stands that is no register.
    pub(super) mentions: HashMap<&'s str, Vec<usize>>,
    /// Where a `.loc` line names a file: the number.
    pub(super) file_numbers: Vec<(usize, &'s str)>,
}

/// The place of a token in the text.
pub(super) fn range_of(source: &str, token: &Token<'_>) -> Range<usize> {
    let start = match token.kind {
        Tok::End => source.len(),
        _ => token.text.as_ptr().addr() - source.as_ptr().addr(),
    };
    start..start + token.text.len()
}

/// Takes a text apart that [`crate::parse`] accepts.
pub(super) fn scan(source: &str) -> LinkInput<'_> {
    let part = LinkInput {
        source,
        items: Vec::new(),
        aliases: Vec::new(),
        pragmas: Vec::new(),
        files: Vec::new(),
        strings: Vec::new(),
        labels: Vec::new(),
        mentions: HashMap::new(),
        file_numbers: Vec::new(),
    };
    let mut scanner = Scanner { tokens: Tokens::new(source), part, end: 0 };
    scanner.skip_header();
    while !scanner.is_at(Tok::End) {
        scanner.scan_statement();
    }
    scanner.part
}

struct Scanner<'s> {
    tokens: Tokens<'s>,
    part: LinkInput<'s>,
    /// The end of the last token.
    end: usize,
}

impl<'s> Scanner<'s> {
    fn is_at(&self, kind: Tok) -> bool {
        self.tokens.peek().kind == kind
    }

    fn start(&self) -> usize {
        range_of(self.part.source, &self.tokens.peek()).start
    }

    fn bump(&mut self) -> Token<'s> {
        let token = self.tokens.bump();
        let range = range_of(self.part.source, &token);
        self.end = range.end;
        if token.kind == Tok::Name && !token.text.starts_with('%') {
            self.part.mentions.entry(token.text).or_default().push(range.start);
        }
        token
    }

    /// The next token, which is the word of an instruction or of the text's grammar, and no name.
    fn bump_word(&mut self) -> Token<'s> {
        let token = self.tokens.bump();
        self.end = range_of(self.part.source, &token).end;
        token
    }

    fn skip_header(&mut self) {
        for word in [".version", ".target", ".address_size"] {
            if self.tokens.peek().text != word {
                continue;
            }
            self.bump();
            self.bump();
            while self.is_at(Tok::Comma) {
                self.bump();
                self.bump();
            }
        }
        // What the header names is no name of the module.
        self.part.mentions.clear();
    }

    /// To the closing bracket of the one that is next.
    fn skip_brackets(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.bump().kind {
                Tok::OpenBrace | Tok::OpenParen | Tok::OpenBracket => depth += 1,
                Tok::CloseBrace | Tok::CloseParen | Tok::CloseBracket => depth = depth.saturating_sub(1),
                Tok::End => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// To the end of the statement, semicolon included.
    fn skip_statement(&mut self) {
        while !matches!(self.bump().kind, Tok::Semicolon | Tok::End) {}
    }

    fn scan_statement(&mut self) {
        let start = self.start();
        match self.tokens.peek().text {
            ".file" => {
                self.bump();
                let number = self.bump();
                let rest = self.start();
                self.bump();
                while self.is_at(Tok::Comma) {
                    self.bump();
                    self.bump();
                }
                self.part.files.push((number.text, rest..self.end));
            }
            ".section" => self.scan_section(),
            ".pragma" => {
                self.skip_statement();
                self.part.pragmas.push(start..self.end);
            }
            ".alias" => {
                self.bump();
                let name = self.bump();
                self.skip_statement();
                self.part.aliases.push((name.text, start..self.end));
            }
            _ => self.scan_declaration(),
        }
    }

    /// Sections are for debuggers. Only the strings are read, for `.loc` lines name them.
    fn scan_section(&mut self) {
        self.bump();
        let strings = self.tokens.peek().text == ".debug_str";
        while !matches!(self.tokens.peek().kind, Tok::OpenBrace | Tok::End) {
            self.bump();
        }
        if !strings {
            // Their labels are no names of the linked text.
            let mut depth = 0usize;
            loop {
                match self.bump_word().kind {
                    Tok::OpenBrace => depth += 1,
                    Tok::CloseBrace => depth = depth.saturating_sub(1),
                    Tok::End => return,
                    _ => {}
                }
                if depth == 0 {
                    return;
                }
            }
        }
        self.bump();
        let start = self.start();
        let mut end = start;
        while !matches!(self.tokens.peek().kind, Tok::CloseBrace | Tok::End) {
            let token = self.bump();
            if token.kind == Tok::Name && self.is_at(Tok::Colon) {
                self.part.labels.push(token.text);
            }
            end = self.end;
        }
        self.bump();
        self.part.strings.push(start..end);
    }

    fn scan_declaration(&mut self) {
        let start = self.start();
        let mut linkage = Linkage::Internal;
        loop {
            linkage = match self.tokens.peek().text {
                ".visible" => Linkage::Visible,
                ".extern" => Linkage::Extern,
                ".weak" => Linkage::Weak,
                ".common" => Linkage::Common,
                _ => break,
            };
            self.bump();
        }
        match self.tokens.peek().text {
            ".func" => self.scan_function(start, linkage, Kind::Function),
            ".entry" => self.scan_function(start, linkage, Kind::Kernel),
            text if text.starts_with('.') => self.scan_variables(start, linkage),
            // A lone semicolon, or what the parser did not complain about.
            _ => {
                self.bump();
            }
        }
    }

    fn scan_function(&mut self, start: usize, linkage: Linkage, kind: Kind) {
        let head = self.start();
        self.bump();
        // `.noreturn` and `.attribute(…)` before the results.
        loop {
            match self.tokens.peek().kind {
                Tok::Dotted => {
                    let is_attribute = self.bump().text == ".attribute";
                    if is_attribute && self.is_at(Tok::OpenParen) {
                        self.skip_brackets();
                    }
                }
                Tok::OpenParen => self.skip_brackets(),
                _ => break,
            }
        }
        let name = self.bump();
        if self.is_at(Tok::OpenParen) {
            self.skip_brackets();
        }
        let mut heads: Vec<Range<usize>> = std::iter::once(head..self.end).collect();
        while !matches!(self.tokens.peek().kind, Tok::OpenBrace | Tok::Semicolon | Tok::End) {
            let token = self.bump();
            if token.text == ".noreturn" {
                heads.push(range_of(self.part.source, &token));
            }
            // `.pragma "…";` between head and body ends with a semicolon of its own.
            if token.text == ".pragma" {
                self.skip_statement();
            }
        }
        let defines = self.is_at(Tok::OpenBrace);
        if defines {
            self.scan_body();
        } else {
            self.bump();
        }
        let text: Vec<Range<usize>> = std::iter::once(start..self.end).collect();
        self.part.items.push(Item { kind, name: name.text, linkage, defines, text, head: heads, shared: false });
    }

    /// A body in its braces. What begins a statement is an instruction, though a function may be
    /// called `add`, too.
    fn scan_body(&mut self) {
        self.bump();
        let (mut scopes, mut vectors) = (1usize, 0usize);
        let mut begins = true;
        while scopes > 0 && !self.is_at(Tok::End) {
            match self.tokens.peek().kind {
                Tok::Dotted if begins && self.tokens.peek().text == ".loc" => self.scan_loc(),
                Tok::Name if begins => {
                    // Labels are names.
                    begins = self.tokens.peek_next().kind == Tok::Colon;
                    if begins {
                        self.bump();
                        self.bump();
                    } else {
                        self.bump_word();
                    }
                }
                Tok::At if begins => {
                    self.bump();
                    if self.is_at(Tok::Bang) {
                        self.bump();
                    }
                    self.bump();
                }
                kind => {
                    self.bump();
                    match kind {
                        Tok::Semicolon => begins = true,
                        Tok::OpenBrace if begins => scopes += 1,
                        Tok::OpenBrace => vectors += 1,
                        Tok::CloseBrace if vectors > 0 => vectors -= 1,
                        Tok::CloseBrace => scopes -= 1,
                        _ => begins = false,
                    }
                }
            }
        }
    }

    /// `.loc 1 2 3`, perhaps `, function_name $L__info_string0+8, inlined_at 1 4 5`.
    fn scan_loc(&mut self) {
        self.bump_word();
        loop {
            let number = self.tokens.peek();
            if number.kind == Tok::Number {
                self.part.file_numbers.push((range_of(self.part.source, &number).start, number.text));
            }
            while self.is_at(Tok::Number) {
                self.bump();
            }
            if !self.is_at(Tok::Comma) {
                return;
            }
            self.bump();
            // `function_name` or `inlined_at`.
            let word = self.bump_word();
            if word.text == "function_name" {
                self.bump();
                while matches!(self.tokens.peek().kind, Tok::Plus | Tok::Number) {
                    self.bump();
                }
                if self.is_at(Tok::Comma) {
                    self.bump();
                    self.bump_word();
                }
            }
        }
    }

    /// `.global .align 4 .u32 a, b[2] = {1, 2};`: an item for each name.
    fn scan_variables(&mut self, start: usize, linkage: Linkage) {
        let head = self.start();
        let shared = self.tokens.peek().text.starts_with(".shared");
        loop {
            match self.tokens.peek().kind {
                Tok::Dotted | Tok::Number => {
                    self.bump();
                }
                // `.const[2]`, `.attribute(.managed)`
                Tok::OpenBracket | Tok::OpenParen => self.skip_brackets(),
                _ => break,
            }
        }
        let before = self.end;
        loop {
            let name_at = self.start();
            let name = self.bump();
            if name.kind != Tok::Name {
                return;
            }
            while self.is_at(Tok::OpenBracket) {
                self.skip_brackets();
            }
            let head = Vec::from([head..before, name_at..self.end]);
            while !matches!(self.tokens.peek().kind, Tok::Comma | Tok::Semicolon | Tok::End) {
                match self.tokens.peek().kind {
                    Tok::OpenBrace | Tok::OpenParen => self.skip_brackets(),
                    _ => {
                        self.bump();
                    }
                }
            }
            let text = Vec::from([start..before, name_at..self.end]);
            let defines = linkage != Linkage::Extern;
            self.part.items.push(Item { kind: Kind::Variable, name: name.text, linkage, defines, text, head, shared });
            if self.bump().kind != Tok::Comma {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_apart() {
        let text = "\
.version 8.0
.target sm_80, debug
.address_size 64
.file 1 \"a.cu\", 7, 8
.extern .func (.param .b32 r) outside (.param .b32 x) ;
.global .align 4 .u32 a, b[2] = {1, 2};
.const[2] .align 8 .v2 .f32 c = {0f00000000, 0f3F800000};
.extern .shared .align 16 .b8 dynamic[];
.weak .entry kernel(.param .u64 p) .maxntid 32, 1, 1 .pragma \"nounroll\"; {
    .loc 1 2 3, function_name $L__info_string0, inlined_at 1 5 6
    @!p add.s32 %r1, %r2, add;
    mov.b64 %rd1, {%r1, %r2};
    add: ret;
    call.uni outside, ();
}
.func .noreturn trap() .noreturn;
.section .debug_str
{
$L__info_string0:
.b8 102, 0
}
.section .debug_abbrev { .b8 1 hidden: }
.pragma \"unroll\";
.alias other, trap;
";
        let part = scan(text);
        let shown: Vec<String> = part
            .items
            .iter()
            .map(|item| {
                let head: Vec<&str> = item.head.iter().map(|range| &text[range.clone()]).collect();
                format!("{:?} {} {:?} {} | {}", item.kind, item.name, item.linkage, item.defines, head.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "Function outside Extern false | .func (.param .b32 r) outside (.param .b32 x)",
                "Variable a Internal true | .global .align 4 .u32 a",
                "Variable b Internal true | .global .align 4 .u32 b[2]",
                "Variable c Internal true | .const[2] .align 8 .v2 .f32 c",
                "Variable dynamic Extern false | .shared .align 16 .b8 dynamic[]",
                "Kernel kernel Weak true | .entry kernel(.param .u64 p)",
                "Function trap Internal false | .func .noreturn trap() .noreturn",
            ]
        );
        assert_eq!(part.files.iter().map(|(number, rest)| (*number, &text[rest.clone()])).collect::<Vec<_>>(), [("1", "\"a.cu\", 7, 8")]);
        assert_eq!(part.file_numbers.iter().map(|(_, number)| *number).collect::<Vec<_>>(), ["1", "1"]);
        assert_eq!((part.labels.as_slice(), part.strings.len(), part.pragmas.len(), part.aliases.len()), (&["$L__info_string0"][..], 1, 1, 1));
        assert_eq!(part.mentions["add"].len(), 2, "an operand and a label, not the instruction");
        assert!(!part.mentions.contains_key("ret") && !part.mentions.contains_key("inlined_at"));
        assert_eq!((part.mentions["outside"].len(), part.mentions.contains_key("hidden"), part.mentions.contains_key("debug")), (2, false, false));
        assert_eq!(part.items[5].text.iter().map(|range| &text[range.clone()]).collect::<String>().lines().count(), 7);
    }
}
