//! Comparisons chosen at run time.

// NaN makes the negated comparisons true: this is how unordered comparisons work.
#![allow(clippy::neg_cmp_op_on_partial_ord, clippy::nonminimal_bool)]

/// A comparison of PTX (PTX ISA, "Comparison and Selection Instructions"). The ordered ones are
/// false if an operand is NaN, the unordered ones are true then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Neither operand is NaN.
    Numbers,
    /// An operand is NaN.
    Nan,
    EqualUnordered,
    NotEqualUnordered,
    LessUnordered,
    LessOrEqualUnordered,
    GreaterUnordered,
    GreaterOrEqualUnordered,
}

use Comparison as C;

const ALL: [Comparison; 14] = [
    C::Equal,
    C::NotEqual,
    C::Less,
    C::LessOrEqual,
    C::Greater,
    C::GreaterOrEqual,
    C::Numbers,
    C::Nan,
    C::EqualUnordered,
    C::NotEqualUnordered,
    C::LessUnordered,
    C::LessOrEqualUnordered,
    C::GreaterUnordered,
    C::GreaterOrEqualUnordered,
];

/// Bits that [`Comparison::encode`] needs.
pub const BITS: u16 = 0xf;

impl Comparison {
    /// A number below 16, for an instruction's immediate.
    #[must_use]
    pub const fn encode(self) -> u16 {
        self as u16
    }

    /// Undoes [`Comparison::encode`]; uses the low four bits only.
    #[must_use]
    pub fn decode(code: u16) -> Self {
        ALL[usize::from(code & BITS).min(ALL.len() - 1)]
    }

    /// True if the comparison holds between two floating-point numbers.
    #[inline(always)]
    #[must_use]
    pub fn holds(self, a: f64, b: f64) -> bool {
        match self {
            C::Equal => a == b,
            C::NotEqual => (a < b) | (a > b),
            C::Less => a < b,
            C::LessOrEqual => a <= b,
            C::Greater => a > b,
            C::GreaterOrEqual => a >= b,
            C::Numbers => !(a.is_nan() | b.is_nan()),
            C::Nan => a.is_nan() | b.is_nan(),
            C::EqualUnordered => !((a < b) | (a > b)),
            C::NotEqualUnordered => a != b,
            C::LessUnordered => !(a >= b),
            C::LessOrEqualUnordered => !(a > b),
            C::GreaterUnordered => !(a <= b),
            C::GreaterOrEqualUnordered => !(a < b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back() {
        for comparison in ALL {
            assert_eq!(Comparison::decode(comparison.encode() | 0x30), comparison);
        }
    }

    #[test]
    fn only_unordered_comparisons_hold_with_nan() {
        for comparison in ALL {
            let unordered = comparison as u8 >= C::Nan as u8;
            assert_eq!(comparison.holds(f64::NAN, 1.0), unordered, "{comparison:?}");
        }
    }

    #[test]
    fn comparisons_hold_as_their_names_say() {
        for comparison in ALL {
            // With a greater, an equal and a lesser number.
            let expected = match comparison {
                C::Equal | C::EqualUnordered => [false, true, false],
                C::NotEqual | C::NotEqualUnordered => [true, false, true],
                C::Less | C::LessUnordered => [true, false, false],
                C::LessOrEqual | C::LessOrEqualUnordered => [true, true, false],
                C::Greater | C::GreaterUnordered => [false, false, true],
                C::GreaterOrEqual | C::GreaterOrEqualUnordered => [false, true, true],
                C::Numbers => [true; 3],
                C::Nan => [false; 3],
            };
            assert_eq!([1.0, 0.0, -1.0].map(|other| comparison.holds(0.0, other)), expected, "{comparison:?}");
        }
    }
}
