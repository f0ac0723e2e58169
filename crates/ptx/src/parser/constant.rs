//! Literals and constant expressions.
//!
//! Comparisons, shifts, `&&`, `||` and `?:` are read in parentheses only, where nothing else is
//! written with their signs.

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

/// What an expression is worth. Whole numbers are of type `.s64` or `.u64`, and that says how they
/// are divided, compared and shifted (PTX ISA, *Integer Constant Expression Evaluation*).
#[derive(Debug, Clone, Copy)]
struct Value {
    imm: Imm,
    unsigned: bool,
}

impl Value {
    fn signed(n: i64) -> Value {
        Value { imm: Imm::Int(n), unsigned: false }
    }

    /// A number as it is written: unsigned if it says so or would not fit otherwise.
    fn of_token(token: Token<'_>) -> Result<Value> {
        let imm = parse_number(token)?;
        Ok(Value { imm, unsigned: token.text.ends_with('U') || matches!(imm, Imm::Int(n) if n < 0) })
    }

    fn negated(self) -> Value {
        let imm = match self.imm {
            Imm::Int(n) => Imm::Int(n.wrapping_neg()),
            Imm::F32(bits) => Imm::F32(bits ^ 1 << 31),
            Imm::F64(bits) => Imm::F64(bits ^ 1 << 63),
        };
        Value { imm, ..self }
    }
}

/// An operator of two operands (PTX ISA, *Constant Expressions*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Either,
    Both,
    Or,
    Xor,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Left,
    Right,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// How tightly operators must bind outside of parentheses: all of them, those but for `|`, and
/// products.
const ALL: u32 = 3;
const NO_BAR: u32 = 4;
const PRODUCTS: u32 = 10;

impl Operator {
    /// How tightly it binds, as in C.
    fn precedence(self) -> u32 {
        match self {
            Operator::Either => 1,
            Operator::Both => 2,
            Operator::Or => 3,
            Operator::Xor => 4,
            Operator::And => 5,
            Operator::Equal | Operator::Unequal => 6,
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => 7,
            Operator::Left | Operator::Right => 8,
            Operator::Add | Operator::Subtract => 9,
            Operator::Multiply | Operator::Divide | Operator::Remainder => PRODUCTS,
        }
    }

    /// True of those that mean something else outside of parentheses: `<` and `>` stand around the
    /// number of registers.
    fn needs_parentheses(self) -> bool {
        matches!(self.precedence(), 1 | 2 | 6..=8)
    }

    fn apply(self, at: Token<'_>, left: Value, right: Value) -> Result<Value> {
        let (Imm::Int(a), Imm::Int(b)) = (left.imm, right.imm) else {
            return Err(Fail::new(at.pos, "constant expressions are of integers only"));
        };
        let unsigned = left.unsigned || right.unsigned;
        let (whole_a, whole_b) = (a.cast_unsigned(), b.cast_unsigned());
        let order = if unsigned { whole_a.cmp(&whole_b) } else { a.cmp(&b) };
        let told = |is: bool| Ok(Value::signed(i64::from(is)));
        let value = match self {
            Operator::Either => return told(a != 0 || b != 0),
            Operator::Both => return told(a != 0 && b != 0),
            Operator::Equal => return told(a == b),
            Operator::Unequal => return told(a != b),
            Operator::Less => return told(order.is_lt()),
            Operator::LessOrEqual => return told(order.is_le()),
            Operator::Greater => return told(order.is_gt()),
            Operator::GreaterOrEqual => return told(order.is_ge()),
            Operator::Left | Operator::Right => {
                if whole_b > 63 {
                    return Err(Fail::new(at.pos, "a shift in a constant is by 0 to 63 bits"));
                }
                let n = match (self, left.unsigned) {
                    (Operator::Left, _) => a << b,
                    (_, true) => (whole_a >> b).cast_signed(),
                    (_, false) => a >> b,
                };
                return Ok(Value { imm: Imm::Int(n), unsigned: left.unsigned });
            }
            Operator::Or => a | b,
            Operator::Xor => a ^ b,
            Operator::And => a & b,
            Operator::Add => a.wrapping_add(b),
            Operator::Subtract => a.wrapping_sub(b),
            Operator::Multiply => a.wrapping_mul(b),
            Operator::Divide | Operator::Remainder if b == 0 => {
                return Err(Fail::new(at.pos, "division by zero in a constant"));
            }
            Operator::Divide if unsigned => (whole_a / whole_b).cast_signed(),
            Operator::Divide => a.wrapping_div(b),
            Operator::Remainder => return Ok(Value { imm: Imm::Int((whole_a % whole_b).cast_signed()), unsigned: true }),
        };
        Ok(Value { imm: Imm::Int(value), unsigned })
    }
}

impl<'s> Parser<'s> {
    /// A constant expression.
    pub(super) fn parse_constant(&mut self) -> Result<Imm> {
        self.parse_expression(ALL)
    }

    /// A constant operand: an expression, but a bare `|` is left for pairs.
    pub(super) fn parse_literal(&mut self) -> Result<Imm> {
        self.parse_expression(NO_BAR)
    }

    /// The operator that comes next, with how many tokens it has.
    fn peek_operator(&self) -> Option<(Operator, u32)> {
        let (first, next) = (self.tokens.peek(), self.tokens.peek_next());
        let joined = |kind: Tok| next.kind == kind && next.pos == first.end();
        Some(match first.kind {
            Tok::Bar if joined(Tok::Bar) => (Operator::Either, 2),
            Tok::Ampersand if joined(Tok::Ampersand) => (Operator::Both, 2),
            Tok::Equals if joined(Tok::Equals) => (Operator::Equal, 2),
            Tok::Bang if joined(Tok::Equals) => (Operator::Unequal, 2),
            Tok::Less if joined(Tok::Less) => (Operator::Left, 2),
            Tok::Greater if joined(Tok::Greater) => (Operator::Right, 2),
            Tok::Less if joined(Tok::Equals) => (Operator::LessOrEqual, 2),
            Tok::Greater if joined(Tok::Equals) => (Operator::GreaterOrEqual, 2),
            Tok::Less => (Operator::Less, 1),
            Tok::Greater => (Operator::Greater, 1),
            Tok::Bar => (Operator::Or, 1),
            Tok::Caret => (Operator::Xor, 1),
            Tok::Ampersand => (Operator::And, 1),
            Tok::Plus => (Operator::Add, 1),
            Tok::Minus => (Operator::Subtract, 1),
            Tok::Star => (Operator::Multiply, 1),
            Tok::Slash => (Operator::Divide, 1),
            Tok::Percent => (Operator::Remainder, 1),
            _ => return None,
        })
    }

    /// Operators that bind as tightly as `least` or more, outside of parentheses.
    fn parse_expression(&mut self, least: u32) -> Result<Imm> {
        self.parse_operators(least, 0, false).map(|value| value.imm)
    }

    fn parse_operators(&mut self, least: u32, depth: u32, in_parentheses: bool) -> Result<Value> {
        let mut value = self.parse_unary(depth)?;
        loop {
            let at = self.tokens.peek();
            let Some((operator, tokens)) = self.peek_operator() else { return Ok(value) };
            let bind = operator.precedence();
            if bind < least || (operator.needs_parentheses() && !in_parentheses) {
                return Ok(value);
            }
            (0..tokens).for_each(|_| _ = self.bump());
            let right = self.parse_operators(bind + 1, depth + 1, in_parentheses)?;
            value = operator.apply(at, value, right)?;
        }
    }

    /// All that may stand in parentheses, `a ? b : c` too.
    fn parse_choice(&mut self, depth: u32) -> Result<Value> {
        let value = self.parse_operators(0, depth, true)?;
        let at = self.tokens.peek();
        if !self.eat(Tok::Question) {
            return Ok(value);
        }
        let yes = self.parse_choice(depth + 1)?;
        self.expect(Tok::Colon, "':'")?;
        let no = self.parse_choice(depth + 1)?;
        let (Imm::Int(condition), Imm::Int(_), Imm::Int(_)) = (value.imm, yes.imm, no.imm) else {
            return Err(Fail::new(at.pos, "constant expressions are of integers only"));
        };
        Ok(Value { imm: if condition == 0 { no.imm } else { yes.imm }, unsigned: yes.unsigned || no.unsigned })
    }

    fn parse_unary(&mut self, depth: u32) -> Result<Value> {
        let token = self.tokens.peek();
        if depth > MAX_DEPTH {
            return Err(Fail::new(token.pos, "this constant is nested too deeply"));
        }
        match token.kind {
            Tok::Number => {
                self.bump();
                Value::of_token(token)
            }
            Tok::Name if token.text == "WARP_SZ" => {
                self.bump();
                Ok(Value::signed(32))
            }
            Tok::Minus => {
                self.bump();
                Ok(self.parse_unary(depth + 1)?.negated())
            }
            Tok::Plus => {
                self.bump();
                self.parse_unary(depth + 1)
            }
            Tok::Tilde | Tok::Bang => {
                self.bump();
                match self.parse_unary(depth + 1)?.imm {
                    Imm::Int(n) if token.kind == Tok::Tilde => Ok(Value { imm: Imm::Int(!n), unsigned: true }),
                    Imm::Int(n) => Ok(Value::signed(i64::from(n == 0))),
                    _ => Err(Fail::new(token.pos, "this operator is for integers only")),
                }
            }
            Tok::OpenParen => {
                self.bump();
                for (cast, unsigned) in [(".s64", false), (".u64", true)] {
                    if self.eat_dotted(cast) {
                        self.expect(Tok::CloseParen, "')'")?;
                        let value = self.parse_unary(depth + 1)?;
                        let Imm::Int(_) = value.imm else {
                            return Err(Fail::new(token.pos, "this operator is for integers only"));
                        };
                        return Ok(Value { unsigned, ..value });
                    }
                }
                let value = self.parse_choice(depth + 1)?;
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
            let Imm::Int(step) = self.parse_expression(PRODUCTS)? else {
                return Err(Fail::new(sign.pos, "an offset must be a whole number"));
            };
            offset = if sign.kind == Tok::Plus { offset.wrapping_add(step) } else { offset.wrapping_sub(step) };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ast::Imm;

    /// What an operand is worth.
    fn value_of(expression: &str) -> Result<Imm, String> {
        let source = format!(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() {{ .reg .b64 %r<2>; mov.b64 %r1, {expression}; ret; }}");
        let module = crate::parse(&source).map_err(|fail| fail.to_string())?;
        let body = module.functions[0].body.as_ref().expect("a body");
        let found = body.instructions.iter().find_map(|instruction| match instruction.operands.get(1) {
            Some(crate::ast::Operand::Imm(imm)) => Some(imm),
            _ => None,
        });
        Ok(*found.expect("a constant"))
    }

    #[test]
    fn expressions_are_worth_what_they_are_in_c() {
        let expected = [
            ("(1<<5)", 32),
            ("(256 >> 3)", 32),
            ("(-8 >> 1)", -4),
            ("(0xFFFFFFFFFFFFFFFF >> 60)", 15),
            ("((.u64)(-8) >> 60)", 15),
            ("((.s64)0xFFFFFFFFFFFFFFF8 >> 1)", -4),
            ("(.s64)(0-1)", -1),
            ("(5>3?7:9)", 7),
            ("(0 ? 1 : 0 ? 2 : 3)", 3),
            ("(6&&0)", 0),
            ("(0||4)", 1),
            ("(3==3)", 1),
            ("(3!=3)", 0),
            ("(2<=1)", 0),
            ("(2>=1)", 1),
            ("(-1 < 1)", 1),
            ("(-1 < 1U)", 0),
            ("(1 + 2 << 3 | 1)", 25),
            ("(6 & 3 == 3)", 0),
            ("-7 / 2", -3),
            ("(-1 / 2U)", i64::MAX),
            ("(-1 % 10)", 5),
            ("~0 / 2", i64::MAX),
            ("!0 + 2 * 3", 7),
        ];
        for (expression, value) in expected {
            assert_eq!(value_of(expression), Ok(Imm::Int(value)), "{expression}");
        }
    }

    #[test]
    fn expressions_that_cannot_be_are_refused_with_their_place() {
        for (expression, words) in [
            ("(1 << 64)", "0 to 63 bits"),
            ("(1 << -1)", "0 to 63 bits"),
            ("(1 % 0)", "division by zero"),
            ("(1 ? 2)", "':'"),
            ("(1 ? 2.0 : 3)", "integers only"),
            ("(.u64)1.0", "integers only"),
            (&"(1?".repeat(100), "too deeply"),
        ] {
            let said = value_of(expression).expect_err(expression);
            assert!(said.contains(words) && said.contains("line 4"), "{expression}: {said}");
        }
    }
}
