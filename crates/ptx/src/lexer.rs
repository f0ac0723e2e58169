//! Text to tokens, with line and column.
//!
//! The lexer knows nothing of PTX's grammar: `ld.param.u64` is one name and two dotted words. What
//! it cannot read becomes [`Tok::Unknown`], never a panic. Time is linear in the text.

use crate::ast::Pos;
use logos::{Lexer, Logos, Skip};

/// Where the current line began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lines {
    line: u32,
    start: usize,
}

fn count_line(lex: &mut Lexer<'_, Tok>) -> Skip {
    lex.extras.line += 1;
    lex.extras.start = lex.span().end;
    Skip
}

fn skip_block_comment(lex: &mut Lexer<'_, Tok>) -> Result<Skip, ()> {
    let Some(length) = lex.remainder().find("*/") else {
        lex.bump(lex.remainder().len());
        return Err(());
    };
    let start = lex.span().end;
    let text = &lex.remainder().as_bytes()[..length];
    for (at, _) in text.iter().enumerate().filter(|(_, b)| **b == b'\n') {
        lex.extras.line += 1;
        lex.extras.start = start + at + 1;
    }
    lex.bump(length + 2);
    Ok(Skip)
}

#[derive(Logos, Debug, Clone, Copy, PartialEq, Eq)]
#[logos(extras = Lines)]
#[logos(skip r"[ \t\r\f]+")]
pub(crate) enum Tok {
    #[token("\n", count_line)]
    #[regex(r"//[^\n]*", |_| Skip, allow_greedy = true)]
    // Line markers of the C preprocessor, and DWARF as very old compilers wrote it.
    #[regex(r"#[^\n]*", |_| Skip, allow_greedy = true)]
    #[regex(r"@@[^\n]*", |_| Skip, allow_greedy = true)]
    #[token("/*", skip_block_comment)]
    Unknown,

    /// A name, a register (`%r1`), or `_`.
    #[regex(r"[A-Za-z_$][A-Za-z0-9_$]*|%[A-Za-z0-9_$]+")]
    Name,
    /// `.param`, `.shared::cta`, `.2d`, `.sp::2:4`; the text includes the dot.
    #[regex(r"\.[A-Za-z0-9_]+(::[A-Za-z0-9_]+)*(::[0-9]:[0-9])?")]
    Dotted,
    /// Anything that begins with a digit; read by `number`.
    #[regex(r"[0-9][0-9A-Za-z_]*")]
    #[regex(r"[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-][0-9]+")]
    Number,
    #[regex(r#""([^"\\\n]|\\[^\n])*""#)]
    Text,

    #[token(",")]
    Comma,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("=")]
    Equals,
    #[token("?")]
    Question,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("%")]
    Percent,
    #[token("!")]
    Bang,
    #[token("~")]
    Tilde,
    #[token("&")]
    Ampersand,
    #[token("|")]
    Bar,
    #[token("^")]
    Caret,
    #[token("@")]
    At,

    End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Tok,
    pub(crate) text: &'s str,
    pub(crate) pos: Pos,
}

impl Token<'_> {
    /// The place just behind this token, which never spans lines.
    pub(crate) fn end(&self) -> Pos {
        let length = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        Pos { line: self.pos.line, col: self.pos.col.saturating_add(length) }
    }

    /// How a complaint names this token.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            Tok::End => "the end of the text".to_owned(),
            _ if self.text.chars().count() > 40 => {
                let head: String = self.text.chars().take(37).collect();
                format!("'{head}...'")
            }
            _ => format!("'{}'", self.text),
        }
    }
}

/// Tokens with one token of look-ahead beyond the current one.
pub(crate) struct Tokens<'s> {
    lexer: Lexer<'s, Tok>,
    current: Token<'s>,
    next: Token<'s>,
}

impl<'s> Tokens<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        let start = Lines { line: 1, start: 0 };
        let mut lexer = Tok::lexer_with_extras(source, start);
        let current = read_token(&mut lexer);
        let next = read_token(&mut lexer);
        Self { lexer, current, next }
    }

    pub(crate) fn peek(&self) -> Token<'s> {
        self.current
    }

    pub(crate) fn peek_next(&self) -> Token<'s> {
        self.next
    }

    pub(crate) fn bump(&mut self) -> Token<'s> {
        let token = self.current;
        self.current = self.next;
        self.next = read_token(&mut self.lexer);
        token
    }
}

fn read_token<'s>(lexer: &mut Lexer<'s, Tok>) -> Token<'s> {
    let result = lexer.next();
    let kind = match result {
        Some(Ok(kind)) => kind,
        Some(Err(())) => Tok::Unknown,
        None => Tok::End,
    };
    let (text, at) = match kind {
        Tok::End => ("", lexer.source().len()),
        _ => (lexer.slice(), lexer.span().start),
    };
    let column = at.saturating_sub(lexer.extras.start) + 1;
    let pos = Pos { line: lexer.extras.line, col: u32::try_from(column).unwrap_or(u32::MAX) };
    Token { kind, text, pos }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(source: &str) -> Vec<(Tok, &str, u32, u32)> {
        let mut tokens = Tokens::new(source);
        let mut out = Vec::new();
        loop {
            let token = tokens.bump();
            if token.kind == Tok::End {
                return out;
            }
            out.push((token.kind, token.text, token.pos.line, token.pos.col));
        }
    }

    #[test]
    fn positions_survive_comments_and_strings() {
        let got = read_all("a /* x\n y */ b // c\n\t\"s;\" %r1.x");
        let want = [(Tok::Name, "a", 1, 1), (Tok::Name, "b", 2, 7), (Tok::Text, "\"s;\"", 3, 2), (Tok::Name, "%r1", 3, 7), (Tok::Dotted, ".x", 3, 10)];
        assert_eq!(got, want);
    }

    #[test]
    fn numbers_and_dotted_words_do_not_run_into_each_other() {
        let kinds = |source| read_all(source).into_iter().map(|t| t.1).collect::<Vec<_>>();
        assert_eq!(kinds("ld.global.L2::128B.v4 9.0 1e-5"), ["ld", ".global", ".L2::128B", ".v4", "9.0", "1e-5"]);
        assert_eq!(kinds("tex.2d.v4"), ["tex", ".2d", ".v4"]);
        assert_eq!(kinds("[%rd1+-8]"), ["[", "%rd1", "+", "-", "8", "]"]);
    }

    #[test]
    fn open_comments_and_odd_letters_are_tokens_not_panics() {
        assert_eq!(read_all("a /* b")[1].0, Tok::Unknown);
        assert!(read_all("é ☃ \" \u{0}").iter().all(|t| t.0 == Tok::Unknown));
    }
}
