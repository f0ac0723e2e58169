//! What is wrong with a PTX text, and where.

use crate::ast::Pos;
use std::fmt;

/// One complaint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub pos: Pos,
    /// What is wrong.
    pub message: String,
    /// What to do about it, or what was expected.
    pub help: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pos, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// Longer source lines are cut in renderings.
const RENDERED_LINE: usize = 160;

impl Diagnostic {
    /// The complaint with its source line and a caret under the place.
    pub fn render(&self, source: &str) -> String {
        let mut out = format!("{}: {}\n", self.pos, self.message);
        let wanted = (self.pos.line as usize).saturating_sub(1);
        if let Some(line) = source.split('\n').nth(wanted) {
            let column = (self.pos.col as usize).saturating_sub(1).min(line.len());
            let before: String = String::from_utf8_lossy(&line.as_bytes()[..column]).into_owned();
            let skip = before.chars().count().saturating_sub(RENDERED_LINE / 2);
            let shown: String = line.trim_end().chars().skip(skip).take(RENDERED_LINE).collect();
            // Tabs stay tabs so that the caret lands under its column.
            let pad: String = before.chars().skip(skip).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let number = self.pos.line.to_string();
            let gutter = " ".repeat(number.len());
            out.push_str(&format!("{gutter} |\n{number} | {shown}\n{gutter} | {pad}^\n"));
        }
        if let Some(help) = &self.help {
            out.push_str(&format!("  help: {help}\n"));
        }
        out
    }
}

/// At most this many complaints are collected.
pub const MAX_DIAGNOSTICS: usize = 20;

/// Why a text is not a module: at least one complaint, in source order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The complaints.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.diagnostics.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl ParseError {
    /// All complaints with their source lines.
    pub fn render(&self, source: &str) -> String {
        self.diagnostics.iter().map(|diagnostic| diagnostic.render(source)).collect::<Vec<_>>().join("\n")
    }
}

/// The complaint about bytes that are no text: `valid` bytes of them are.
pub(crate) fn not_text_error(source: &[u8], valid: usize) -> ParseError {
    let before = &source[..valid.min(source.len())];
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines = before.iter().filter(|b| **b == b'\n').count();
    let pos = Pos { line: u32::try_from(lines + 1).unwrap_or(u32::MAX), col: u32::try_from(before.len() - line_start + 1).unwrap_or(u32::MAX) };
    ParseError {
        diagnostics: vec![Diagnostic { pos, message: "this is not text".to_owned(), help: Some("PTX is ASCII; is this a compiled image?".to_owned()) }],
    }
}
