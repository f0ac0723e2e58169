//! What each opcode's operands must be, as short patterns.
//!
//! One letter an operand; what follows `?` may be left out.
//!
//! | letter | operand |
//! |---|---|
//! | `D` / `s` | destination / source of the first type |
//! | `e` | source of the second type |
//! | `W` / `w` | destination / source of twice the first type's width |
//! | `U` / `u` | destination / source of 32 bits |
//! | `P` / `p` | destination / source predicate; `P` may be a pair |
//! | `Q` | `D`, or a pair of `D` and a predicate |
//! | `a` | address in brackets |
//! | `t` | a table of labels |
//! | `x` | anything |
//! | `*` | any number of anything |

use super::Check;
use crate::ast::{Instruction, Modifier, Opcode, Operand, ReduceOp, ScalarType, Scope, Word};
use crate::fail::Result;

pub(super) fn needs_type(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::Abs
            | O::Add
            | O::Addc
            | O::And
            | O::Atom
            | O::Bfe
            | O::Bfi
            | O::Bfind
            | O::Bmsk
            | O::Brev
            | O::Clz
            | O::Cnot
            | O::Copysign
            | O::Cos
            | O::Cvt
            | O::Cvta
            | O::Div
            | O::Dp2a
            | O::Dp4a
            | O::Ex2
            | O::Fma
            | O::Fns
            | O::Ld
            | O::Ldu
            | O::Lg2
            | O::Lop3
            | O::Mad
            | O::Mad24
            | O::Madc
            | O::Match
            | O::Max
            | O::Min
            | O::Mov
            | O::Mul
            | O::Mul24
            | O::Neg
            | O::Not
            | O::Or
            | O::Popc
            | O::Prmt
            | O::Rcp
            | O::Red
            | O::Redux
            | O::Rem
            | O::Rsqrt
            | O::Sad
            | O::Selp
            | O::Set
            | O::Setp
            | O::Shf
            | O::Shfl
            | O::Shl
            | O::Shr
            | O::Sin
            | O::Slct
            | O::Sqrt
            | O::St
            | O::Sub
            | O::Subc
            | O::Szext
            | O::Tanh
            | O::Testp
            | O::Xor
    )
}

pub(super) fn pattern_of(instruction: &Instruction) -> &'static str {
    use Opcode as O;
    let wide = instruction.has(Word::Wide);
    let sync = instruction.has(Word::Sync);
    let mixed = instruction.types().nth(1).is_some();
    match instruction.opcode {
        O::Add | O::Sub if mixed => "Des",
        O::Fma if mixed => "Dees",
        O::Mul if wide => "Wss",
        O::Mad if wide => "Wssw",
        O::Add | O::Sub | O::Mul | O::Addc | O::Subc | O::Mul24 | O::Div | O::Rem => "Dss",
        O::And | O::Or | O::Xor | O::Copysign => "Dss",
        O::Min | O::Max => "Dss?s",
        O::Mad | O::Madc | O::Mad24 | O::Fma | O::Sad => "Dsss",
        O::Abs | O::Neg | O::Not | O::Cnot | O::Brev => "Ds",
        O::Rcp | O::Sqrt | O::Rsqrt | O::Sin | O::Cos | O::Lg2 | O::Ex2 | O::Tanh => "Ds",
        O::Popc | O::Clz | O::Bfind => "Us",
        O::Bfe => "Dsuu",
        O::Bfi => "Dssuu",
        O::Bmsk => "Duu",
        O::Szext => "Dsu",
        O::Fns | O::Dp2a | O::Dp4a => "Uuuu",
        O::Shl | O::Shr => "Dsu",
        O::Shf | O::Prmt => "Dssu",
        O::Lop3 => "Qsssx?p",
        O::Selp => "Dssp",
        O::Slct => "Dsse",
        O::Set => "Dee?p",
        O::Setp => "Pss?p",
        O::Testp => "Ps",
        O::Isspacep => "Px",
        O::Cvta => "Ds",
        O::Vote if sync => match instruction.ty(0) {
            Some(ScalarType::Pred) => "Ppu",
            _ => "Upu",
        },
        O::Vote => match instruction.ty(0) {
            Some(ScalarType::Pred) => "Pp",
            _ => "Up",
        },
        O::Activemask => "U",
        O::Match => "xsu",
        O::Redux => "Dsu",
        O::Shfl if sync => "Qsuuu",
        O::Shfl => "Qsuu",
        O::Atom if instruction.vector() > 1 => with_policy(instruction, "xax", "xaxx"),
        O::Atom if instruction.reduce() == Some(ReduceOp::Cas) => with_policy(instruction, "Dass", "Dassx"),
        O::Atom => with_policy(instruction, "Das", "Dasx"),
        O::Red if instruction.vector() > 1 => with_policy(instruction, "ax", "axx"),
        O::Red => with_policy(instruction, "as", "asx"),
        O::Bar | O::Barrier if has_reduce(instruction) => "xxx?x",
        O::Bar | O::Barrier if instruction.has(Word::Warp) => "u",
        O::Barrier if instruction.scope() == Some(Scope::Cluster) => "",
        O::Bar | O::Barrier if instruction.has(Word::Arrive) => "uu",
        O::Bar | O::Barrier => "u?u",
        O::Membar | O::Ret | O::Exit | O::Trap | O::Brkpt => "",
        O::Brx => "ut",
        O::Bra => "x",
        O::Nanosleep => "u",
        O::Alloca => "Ds?x",
        O::Stacksave => "D",
        O::Stackrestore => "s",
        _ => "*",
    }
}

/// `.L2::cache_hint` brings a policy operand with it.
fn with_policy(instruction: &Instruction, without: &'static str, with: &'static str) -> &'static str {
    let hinted = instruction.modifiers.iter().any(|m| matches!(m, Modifier::Hint(hint) if &**hint == "L2::cache_hint"));
    if hinted { with } else { without }
}

fn has_reduce(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().any(|m| matches!(m, Modifier::Reduce(_) | Modifier::Word(Word::Red)))
}

/// The integer type of twice the width.
fn doubled(ty: ScalarType) -> ScalarType {
    match ty.bits() {
        16 => ScalarType::B32,
        32 => ScalarType::B64,
        _ => ScalarType::B128,
    }
}

impl Check<'_> {
    pub(super) fn check_pattern(&self, pattern: &str) -> Result<()> {
        if pattern == "*" {
            return Ok(());
        }
        let (needed, optional) = pattern.split_once('?').unwrap_or((pattern, ""));
        self.check_count(needed.len(), needed.len() + optional.len())?;
        let ty = self.instruction.ty(0).unwrap_or(ScalarType::B32);
        let second = self.instruction.ty(1).unwrap_or(ty);
        let letters = needed.bytes().chain(optional.bytes());
        for (at, letter) in (0..self.instruction.operands.len()).zip(letters) {
            self.check_operand(at, letter, ty, second)?;
        }
        Ok(())
    }

    fn check_operand(&self, at: usize, letter: u8, ty: ScalarType, second: ScalarType) -> Result<()> {
        let operand = &self.instruction.operands[at];
        let source = |ty: ScalarType| {
            if self.is_source(operand, ty) { Ok(()) } else { self.fail_operand(at, &format!("a {ty} value")) }
        };
        let destination = |operand: &Operand, ty: ScalarType| {
            if self.is_destination(operand, ty) { Ok(()) } else { self.fail_operand(at, &format!("a {ty} register")) }
        };
        match letter {
            b'D' => destination(operand, ty),
            b's' => source(ty),
            b'e' => source(second),
            b'W' => destination(operand, doubled(ty)),
            b'w' => source(doubled(ty)),
            b'U' => destination(operand, ScalarType::B32),
            b'u' => source(ScalarType::B32),
            b'P' => match operand {
                Operand::Pair(pair) => {
                    destination(&pair.0, ScalarType::Pred)?;
                    destination(&pair.1, ScalarType::Pred)
                }
                _ => destination(operand, ScalarType::Pred),
            },
            b'p' => source(ScalarType::Pred),
            b'Q' => match operand {
                Operand::Pair(pair) => {
                    destination(&pair.0, ty)?;
                    destination(&pair.1, ScalarType::Pred)
                }
                _ => destination(operand, ty),
            },
            b'a' => self.check_address(at),
            b't' => match operand {
                Operand::BranchTable(_) => Ok(()),
                _ => self.fail_operand(at, "a name declared with .branchtargets"),
            },
            _ => Ok(()),
        }
    }
}
