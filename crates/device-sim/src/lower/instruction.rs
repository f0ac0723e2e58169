//! Which file lowers which instruction.

use super::body::{Lowerer, refuse_other_modifiers};
use super::error::{Lowered, Trouble};
use super::{arithmetic, compare, control, convert, copy, floating, matrix, memory, texture, video, warp};
use cumux_ptx::ast::{Instruction, Opcode as O, Word};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let float = i.types().next().is_some_and(|ty| ty.is_float());
    match i.opcode {
        O::Prefetch | O::Prefetchu | O::Discard | O::Applypriority | O::Fence | O::Griddepcontrol | O::Setmaxnreg | O::Elect | O::Mbarrier => {}
        // These look at all their modifiers themselves.
        O::Createpolicy => return memory::lower(lowerer, i),
        O::Mma | O::Wmma | O::Wgmma | O::Ldmatrix | O::Stmatrix | O::Movmatrix => return matrix::lower(lowerer, i),
        O::Cp => return copy::lower(lowerer, i),
        O::Tensormap => return copy::lower_map(lowerer, i),
        O::St | O::Red if i.has(Word::Async) => return memory::lower_asynchronous(lowerer, i),
        O::St if i.has(Word::Bulk) => return Err(Trouble::Refused),
        O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq => return texture::lower(lowerer, i),
        _ => refuse_other_modifiers(i)?,
    }
    match i.opcode {
        O::Add | O::Sub | O::Mul | O::Mad | O::Fma | O::Div | O::Min | O::Max | O::Abs | O::Neg if float => floating::lower(lowerer, i),
        O::Rcp | O::Sqrt | O::Rsqrt | O::Sin | O::Cos | O::Ex2 | O::Lg2 | O::Tanh | O::Copysign | O::Testp => floating::lower(lowerer, i),
        O::Fma => floating::lower(lowerer, i),
        O::Set | O::Setp | O::Selp | O::Slct => compare::lower(lowerer, i),
        O::Cvt | O::Cvta => convert::lower(lowerer, i),
        O::Mov => convert::lower_mov(lowerer, i),
        O::Ld | O::Ldu | O::St | O::Atom | O::Red | O::Isspacep | O::Mbarrier => memory::lower(lowerer, i),
        O::Prefetch | O::Prefetchu | O::Discard | O::Applypriority | O::Fence | O::Membar => memory::lower(lowerer, i),
        O::Bra | O::Brx | O::Call | O::Ret | O::Exit | O::Trap | O::Brkpt => control::lower(lowerer, i),
        O::Nanosleep | O::Pmevent | O::Griddepcontrol | O::Setmaxnreg => control::lower(lowerer, i),
        O::Mapa | O::Getctarank => warp::lower_cluster_address(lowerer, i),
        O::Bar | O::Barrier | O::Vote | O::Shfl | O::Match | O::Redux | O::Activemask | O::Elect => warp::lower(lowerer, i),
        O::Add | O::Sub | O::Mul | O::Mad | O::Div | O::Rem | O::Min | O::Max | O::Abs | O::Neg => arithmetic::lower(lowerer, i),
        O::Addc | O::Subc | O::Madc | O::Mul24 | O::Mad24 | O::Sad | O::Dp4a | O::Dp2a => arithmetic::lower(lowerer, i),
        O::And | O::Or | O::Xor | O::Not | O::Cnot | O::Shl | O::Shr | O::Shf | O::Lop3 | O::Prmt => arithmetic::lower(lowerer, i),
        O::Bfe | O::Bfi | O::Bfind | O::Brev | O::Popc | O::Clz | O::Fns | O::Bmsk | O::Szext => arithmetic::lower(lowerer, i),
        opcode if opcode.is_video() => video::lower(lowerer, i),
        _ => Err(Trouble::Refused),
    }
}
