//! Literals and constant expressions.

use super::Parser;
use crate::ast::Imm;
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};

/// Parentheses and signs inside one another.
const MAX_DEPTH: u32 = 32;

/// Reads a token that begins with a digit.
pub(super) fn parse_number(token: Token<'_>) -> Result<Imm> {
    let text = token.text;
    let bad = |what: &str| Fail::new(token.pos, format!("'{text}' is not {what}"));
    let radix = |digits: &str, radix: u32, what: &str| {
        let digits = digits.strip_suffix('U').unwrap_or(digits);
        u64::from_str_radix(digits, radix).map(|value| Imm::Int(value.cast_signed())).map_err(|_| bad(what))
    };
    if text.contains('.') || (text.contains(['e', 'E']) && text.as_bytes()[0] != b'0') {
        let value: f64 = text.parse().map_err(|_| bad("a decimal number"))?;
        return Ok(Imm::F64(value.to_bits()));
    }
    let (head, tail) = text.split_at(text.len().min(2));
    match head {
        "0f" | "0F" if tail.len() == 8 => u32::from_str_radix(tail, 16).map(Imm::F32).map_err(|_| bad("a single: '0f' and eight hexadecimal digits")),
        "0f" | "0F" => Err(bad("a single: '0f' and eight hexadecimal digits")),
        "0d" | "0D" if tail.len() == 16 => u64::from_str_radix(tail, 16).map(Imm::F64).map_err(|_| bad("a double: '0d' and sixteen hexadecimal digits")),
        "0d" | "0D" => Err(bad("a double: '0d' and sixteen hexadecimal digits")),
        "0x" | "0X" => radix(tail, 16, "a hexadecimal number of at most 64 bits"),
        "0b" | "0B" => radix(tail, 2, "a binary number of at most 64 bits"),
        "0U" if tail.is_empty() => Ok(Imm::Int(0)),
        _ if text.len() > 1 && text.starts_with('0') => radix(&text[1..], 8, "an octal number of at most 64 bits"),
        _ => radix(text, 10, "a number of at most 64 bits"),
    }
}

fn negate(value: Imm) -> Imm {
    match value {
        Imm::Int(n) => Imm::Int(n.wrapping_neg()),
        Imm::F32(bits) => Imm::F32(bits ^ 1 << 31),
        Imm::F64(bits) => Imm::F64(bits ^ 1 << 63),
    }
}

/// How tightly an operator binds; 0 is none.
fn precedence(kind: Tok) -> u32 {
    match kind {
        Tok::Bar => 1,
        Tok::Caret => 2,
        Tok::Ampersand => 3,
        Tok::Plus | Tok::Minus => 5,
        Tok::Star | Tok::Slash | Tok::Percent => 6,
        _ => 0,
    }
}

fn apply_operator(operator: Token<'_>, a: Imm, b: Imm) -> Result<Imm> {
    let (Imm::Int(a), Imm::Int(b)) = (a, b) else {
        return Err(Fail::new(operator.pos, "constant expressions are of integers only"));
    };
    let value = match operator.kind {
        Tok::Bar => a | b,
        Tok::Caret => a ^ b,
        Tok::Ampersand => a & b,
        Tok::Plus => a.wrapping_add(b),
        Tok::Minus => a.wrapping_sub(b),
        Tok::Star => a.wrapping_mul(b),
        Tok::Slash | Tok::Percent if b == 0 => {
            return Err(Fail::new(operator.pos, "division by zero in a constant"));
        }
        Tok::Slash => a.wrapping_div(b),
        _ => a.wrapping_rem(b),
    };
    Ok(Imm::Int(value))
}

impl<'s> Parser<'s> {
    /// A constant expression.
    pub(super) fn parse_constant(&mut self) -> Result<Imm> {
        self.parse_expression(1, 0)
    }

    /// A constant operand: an expression, but a bare `|` is left for pairs.
    pub(super) fn parse_literal(&mut self) -> Result<Imm> {
        self.parse_expression(2, 0)
    }

    fn parse_expression(&mut self, least: u32, depth: u32) -> Result<Imm> {
        let mut value = self.parse_unary(depth)?;
        loop {
            let operator = self.tokens.peek();
            let bind = precedence(operator.kind);
            if bind == 0 || bind < least {
                return Ok(value);
            }
            self.bump();
            let right = self.parse_expression(bind + 1, depth + 1)?;
            value = apply_operator(operator, value, right)?;
        }
    }

    fn parse_unary(&mut self, depth: u32) -> Result<Imm> {
        let token = self.tokens.peek();
        if depth > MAX_DEPTH {
            return Err(Fail::new(token.pos, "this constant is nested too deeply"));
        }
        match token.kind {
            Tok::Number => {
                self.bump();
                parse_number(token)
            }
            Tok::Name if token.text == "WARP_SZ" => {
                self.bump();
                Ok(Imm::Int(32))
            }
            Tok::Minus => {
                self.bump();
                Ok(negate(self.parse_unary(depth + 1)?))
            }
            Tok::Plus => {
                self.bump();
                self.parse_unary(depth + 1)
            }
            Tok::Tilde | Tok::Bang => {
                self.bump();
                match self.parse_unary(depth + 1)? {
                    Imm::Int(n) if token.kind == Tok::Tilde => Ok(Imm::Int(!n)),
                    Imm::Int(n) => Ok(Imm::Int(i64::from(n == 0))),
                    _ => Err(Fail::new(token.pos, "this operator is for integers only")),
                }
            }
            Tok::OpenParen => {
                self.bump();
                let value = self.parse_expression(1, depth + 1)?;
                self.expect(Tok::CloseParen, "')'")?;
                Ok(value)
            }
            _ => Err(self.unexpected("a constant")),
        }
    }

    /// A whole number that is not negative.
    pub(super) fn parse_unsigned(&mut self, what: &str) -> Result<u64> {
        let token = self.tokens.peek();
        match self.parse_constant()? {
            Imm::Int(n) if n >= 0 => Ok(n as u64),
            _ => Err(Fail::new(token.pos, format!("{what} must be a whole number, not negative"))),
        }
    }

    pub(super) fn parse_u32(&mut self, what: &str) -> Result<u32> {
        let token = self.tokens.peek();
        let value = self.parse_unsigned(what)?;
        u32::try_from(value).map_err(|_| Fail::new(token.pos, format!("{what} must be less than 2^32")))
    }

    /// `+ 8`, `+-8`, `- 8 + 4`, or nothing: the offset behind the base of an address.
    pub(super) fn parse_offset(&mut self) -> Result<i64> {
        let mut offset = 0i64;
        loop {
            let sign = self.tokens.peek();
            if !matches!(sign.kind, Tok::Plus | Tok::Minus) {
                return Ok(offset);
            }
            self.bump();
            // Products bind tighter than the sum that is being read here.
            let Imm::Int(step) = self.parse_expression(6, 0)? else {
                return Err(Fail::new(sign.pos, "an offset must be a whole number"));
            };
            offset = if sign.kind == Tok::Plus { offset.wrapping_add(step) } else { offset.wrapping_sub(step) };
        }
    }
}
