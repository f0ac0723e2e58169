//! Which types an opcode takes.
//!
//! A wrong type is refused here, so that whoever runs the module meets only combinations that mean
//! something.

use super::Check;
use crate::ast::{Opcode, ReduceOp, ScalarType, TypeKind, Word};
use crate::fail::Result;

impl Check<'_> {
    pub(super) fn check_type(&self) -> Result<()> {
        let Some(ty) = self.instruction.ty(0) else {
            return Ok(());
        };
        if self.takes(ty) {
            return Ok(());
        }
        let problem = format!("'{}' does not take the type {ty}", self.instruction.mnemonic());
        Err(self.fail(problem))
    }

    fn takes(&self, ty: ScalarType) -> bool {
        use Opcode as O;
        let i = self.instruction;
        let bits = ty.bits();
        let plain_bits = ty.kind() == TypeKind::Bits;
        let integer = matches!(ty.kind(), TypeKind::Unsigned | TypeKind::Signed) && matches!(bits, 16 | 32 | 64) && !is_packed(ty);
        let half = matches!(ty, ScalarType::F16 | ScalarType::F16x2 | ScalarType::Bf16 | ScalarType::Bf16x2);
        let single_or_double = matches!(ty, ScalarType::F32 | ScalarType::F64);
        let float = half || single_or_double || ty == ScalarType::F32x2;
        match i.opcode {
            O::Add | O::Sub | O::Min | O::Max => integer || is_packed(ty) || float,
            O::Mul => integer || float,
            O::Mad => integer || single_or_double,
            O::Fma => float,
            O::Div => integer || single_or_double,
            O::Rem | O::Sad => integer,
            O::Addc | O::Subc | O::Madc => integer && bits >= 32,
            O::Mul24 | O::Mad24 => integer && bits == 32,
            O::Neg if ty == ScalarType::S8x4 => true,
            O::Abs | O::Neg => integer && ty.is_signed() || half || single_or_double,
            O::And | O::Or | O::Xor | O::Not => ty == ScalarType::Pred || plain_bits && matches!(bits, 16 | 32 | 64),
            O::Cnot | O::Shl => plain_bits && matches!(bits, 16 | 32 | 64),
            O::Shr => integer || plain_bits && matches!(bits, 16 | 32 | 64),
            O::Popc | O::Clz | O::Brev | O::Bfi => plain_bits && matches!(bits, 32 | 64),
            O::Bfe | O::Bfind => integer && bits >= 32,
            O::Prmt | O::Lop3 | O::Shf | O::Fns | O::Bmsk | O::Shfl | O::Activemask => ty == ScalarType::B32,
            O::Szext | O::Dp2a | O::Dp4a => integer && bits == 32,
            O::Rcp | O::Sqrt | O::Rsqrt | O::Testp | O::Copysign => single_or_double,
            O::Sin | O::Cos | O::Lg2 => ty == ScalarType::F32,
            O::Ex2 | O::Tanh => ty == ScalarType::F32 || half,
            O::Setp => integer || half || single_or_double || plain_bits && self.is_equality() && matches!(bits, 16 | 32 | 64),
            O::Selp | O::Slct => integer || single_or_double || plain_bits && bits >= 16,
            O::Mov => ty == ScalarType::Pred || !half && bits >= 16,
            O::Match => plain_bits && matches!(bits, 32 | 64),
            O::Vote => matches!(ty, ScalarType::Pred | ScalarType::B32),
            O::Ld | O::Ldu | O::St if !i.has(Word::Async) && !i.has(Word::Bulk) => {
                plain_bits && bits >= 8 || matches!(ty.kind(), TypeKind::Unsigned | TypeKind::Signed) && !is_packed(ty) || single_or_double
            }
            O::Atom | O::Red if !i.has(Word::Async) => self.reduces(ty),
            _ => true,
        }
    }

    fn is_equality(&self) -> bool {
        use crate::ast::CmpOp;
        matches!(self.instruction.cmp(), Some(CmpOp::Eq | CmpOp::Ne))
    }

    /// The types of atom and red, by operation.
    fn reduces(&self, ty: ScalarType) -> bool {
        use ScalarType as T;
        let word = matches!(ty, T::U32 | T::S32 | T::U64 | T::S64);
        let half = matches!(ty, T::F16 | T::F16x2 | T::Bf16 | T::Bf16x2);
        match self.instruction.reduce() {
            Some(ReduceOp::And | ReduceOp::Or | ReduceOp::Xor) => matches!(ty, T::B32 | T::B64),
            Some(ReduceOp::Exch) => matches!(ty, T::B32 | T::B64 | T::B128),
            Some(ReduceOp::Cas) => matches!(ty, T::B16 | T::B32 | T::B64 | T::B128),
            Some(ReduceOp::Inc | ReduceOp::Dec) => ty == T::U32,
            Some(ReduceOp::Add) => word || half || matches!(ty, T::F32 | T::F64),
            Some(ReduceOp::Min | ReduceOp::Max) => word || half || ty == T::F32,
            Some(ReduceOp::Popc) | None => true,
        }
    }
}

fn is_packed(ty: ScalarType) -> bool {
    matches!(ty, ScalarType::U16x2 | ScalarType::S16x2 | ScalarType::U8x4 | ScalarType::S8x4)
}
