//! Arithmetic instructions as function pointers. Each is compiled twice: for any processor, and for
//! one with AVX2 and FMA.
//!
//! A generic function is the shape of an instruction: how many sources it has, whether its result
//! is a predicate, and so on. A type that implements one of the traits here says what the
//! instruction computes for one lane. `lower` picks the pointers; [`Alu::execute`] is the one place
//! that calls them.
#![allow(unsafe_code)]
// Several arrays and masks are indexed by the same lane.
#![allow(clippy::needless_range_loop)]

use super::lanes::{Bits, LANES, NO_SLOT, PerLane, RegisterSlot, RegisterType, WarpRegisters};
use super::processor;

/// An arithmetic instruction: no memory, no control flow, no faults.
#[derive(Debug, Clone, Copy)]
pub struct Alu {
    /// How to execute it.
    pub(crate) function: AluFunction,
    /// Destination.
    pub d: RegisterSlot,
    /// First source.
    pub a: RegisterSlot,
    /// Second source.
    pub b: RegisterSlot,
    /// Third source.
    pub c: RegisterSlot,
    /// Fourth source, second result, or the predicate that a comparison combines its result with.
    pub e: RegisterSlot,
    /// The instruction's immediate: a truth table, or flags that its function defines.
    pub x: u16,
}

/// Executes an instruction on a warp's registers, for the lanes of a mask.
type Raw = for<'a, 'b> unsafe fn(&'a mut WarpRegisters<'b>, &'a Alu, u32);

/// A function that this processor can run. Only the constructors below make values.
#[derive(Debug, Clone, Copy)]
pub struct AluFunction(Raw);

impl AluFunction {
    /// A function that needs no feature of the processor.
    #[must_use]
    pub fn portable(function: for<'a, 'b> fn(&'a mut WarpRegisters<'b>, &'a Alu, u32)) -> Self {
        AluFunction(function)
    }
}

impl Alu {
    /// An instruction without operands.
    #[must_use]
    pub fn new(function: AluFunction) -> Self {
        Alu { function, d: NO_SLOT, a: NO_SLOT, b: NO_SLOT, c: NO_SLOT, e: NO_SLOT, x: 0 }
    }

    /// Executes the instruction for the lanes of `mask`; all ones if other lanes may be
    /// overwritten.
    #[inline(always)]
    pub fn execute(&self, registers: &mut WarpRegisters<'_>, mask: u32) {
        // SAFETY: calling such a function needs the processor features that it was compiled for.
        // `choose` takes the version with features only if the processor has them, and `portable`
        // takes functions without.
        unsafe { (self.function.0)(registers, self, mask) }
    }
}

/// The version of a function for this processor.
fn choose(fast_version: Raw, plain: Raw) -> AluFunction {
    AluFunction(if processor::is_fast() { fast_version } else { plain })
}

/// Functions that return an instruction of a shape, for the type that says what it computes.
macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident: $trait:ident => $body:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name<O: $trait>() -> AluFunction {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            fn run_fast<O: $trait>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
                $body::<O, true>(registers, alu, mask);
            }
            fn run_plain<O: $trait>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
                $body::<O, { cfg!(not(target_arch = "x86_64")) }>(registers, alu, mask);
            }
            #[cfg(not(target_arch = "x86_64"))]
            use run_plain as run_fast;
            choose(run_fast::<O>, run_plain::<O>)
        }
    )*};
}

/// One source.
pub trait Op1 {
    type A: RegisterType;
    type R: RegisterType;
    fn compute(a: Self::A) -> Self::R;
}

/// Two sources.
pub trait Op2 {
    type A: RegisterType;
    type B: RegisterType;
    type R: RegisterType;
    fn compute(a: Self::A, b: Self::B) -> Self::R;
}

/// Three sources.
pub trait Op3 {
    type A: RegisterType;
    type B: RegisterType;
    type C: RegisterType;
    type R: RegisterType;
    fn compute(a: Self::A, b: Self::B, c: Self::C) -> Self::R;
}

/// Four sources.
pub trait Op4 {
    type A: RegisterType;
    type B: RegisterType;
    type C: RegisterType;
    type E: RegisterType;
    type R: RegisterType;
    fn compute(a: Self::A, b: Self::B, c: Self::C, e: Self::E) -> Self::R;
}

/// Three sources and the immediate.
pub trait Op3x {
    type T: RegisterType;
    fn compute(a: Self::T, b: Self::T, c: Self::T, x: u16) -> Self::T;
}

/// A test of one value.
pub trait Test1 {
    type A: RegisterType;
    fn compute(a: Self::A) -> bool;
}

/// A comparison.
pub trait Test2 {
    type A: RegisterType;
    fn compute(a: Self::A, b: Self::A) -> bool;
}

/// Sum of two values and a carry, with the carry out.
pub trait Carry {
    type T: RegisterType;
    fn compute(a: Self::T, b: Self::T, carry: bool) -> (Self::T, bool);
}

/// In the immediate of a [`mul_carry`]: add the carry of predicate `e`.
pub const CARRY_IN: u16 = 1;
/// In the immediate of a [`mul_carry`]: write the carry to predicate `e`.
pub const CARRY_OUT: u16 = 2;

/// A product and a sum, with carry in and out.
pub trait MulCarry {
    type T: RegisterType;
    fn compute(a: Self::T, b: Self::T, c: Self::T, carry: bool) -> (Self::T, bool);
}

shapes! {
    op1: Op1 => execute1;
    op2: Op2 => execute2;
    op3: Op3 => execute3;
    op4: Op4 => execute4;
    op3x: Op3x => execute3x;
    test1: Test1 => execute_test1;
    /// The result is predicate `d`.
    test2: Test2 => execute_test2;
    /// `d = predicate c ? a : b`.
    select: Op0 => execute_select;
    /// Carry in: predicate `c` (or none), carry out: predicate `e` (or none).
    carry: Carry => execute_carry;
    /// [`CARRY_IN`] and [`CARRY_OUT`] in the immediate.
    mul_carry: MulCarry => execute_mul_carry;
}

/// Nothing but a type.
pub trait Op0 {
    type T: RegisterType;
}
impl<T: RegisterType> Op0 for T {
    type T = T;
}

/// The number of lanes. The plain versions hide it from the optimiser, which then makes a short
/// loop instead of 32 copies.
#[inline(always)]
fn lane_count<const WHOLE: bool>() -> usize {
    if WHOLE { LANES } else { std::hint::black_box(LANES).min(LANES) }
}

#[inline(always)]
fn execute1<O: Op1, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(registers, alu.a);
    let mut out = PerLane([O::R::ZERO; LANES]);
    for lane in 0..lane_count::<WHOLE>() {
        out.0[lane] = O::compute(O::A::from_raw(a.0[lane])).raw();
    }
    O::R::write(registers, alu.d, &out, mask);
}

#[inline(always)]
fn execute2<O: Op2, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(registers, alu.a);
    let b = O::B::read(registers, alu.b);
    let mut out = PerLane([O::R::ZERO; LANES]);
    for lane in 0..lane_count::<WHOLE>() {
        out.0[lane] = O::compute(O::A::from_raw(a.0[lane]), O::B::from_raw(b.0[lane])).raw();
    }
    O::R::write(registers, alu.d, &out, mask);
}

#[inline(always)]
fn execute3<O: Op3, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(registers, alu.a);
    let b = O::B::read(registers, alu.b);
    let c = O::C::read(registers, alu.c);
    let mut out = PerLane([O::R::ZERO; LANES]);
    for lane in 0..lane_count::<WHOLE>() {
        out.0[lane] = O::compute(O::A::from_raw(a.0[lane]), O::B::from_raw(b.0[lane]), O::C::from_raw(c.0[lane])).raw();
    }
    O::R::write(registers, alu.d, &out, mask);
}

#[inline(always)]
fn execute4<O: Op4, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(registers, alu.a);
    let b = O::B::read(registers, alu.b);
    let c = O::C::read(registers, alu.c);
    let e = O::E::read(registers, alu.e);
    let mut out = PerLane([O::R::ZERO; LANES]);
    for lane in 0..lane_count::<WHOLE>() {
        let (a, b) = (O::A::from_raw(a.0[lane]), O::B::from_raw(b.0[lane]));
        out.0[lane] = O::compute(a, b, O::C::from_raw(c.0[lane]), O::E::from_raw(e.0[lane])).raw();
    }
    O::R::write(registers, alu.d, &out, mask);
}

#[inline(always)]
fn execute3x<O: Op3x, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::T::read(registers, alu.a);
    let b = O::T::read(registers, alu.b);
    let c = O::T::read(registers, alu.c);
    let mut out = PerLane([O::T::ZERO; LANES]);
    for lane in 0..lane_count::<WHOLE>() {
        let (a, b, c) = (O::T::from_raw(a.0[lane]), O::T::from_raw(b.0[lane]), O::T::from_raw(c.0[lane]));
        out.0[lane] = O::compute(a, b, c, alu.x).raw();
    }
    O::T::write(registers, alu.d, &out, mask);
}

/// Packs one byte for each lane (0 or 1) into a mask. The compiler turns this shape into one
/// instruction; multiplying eight bytes at a time takes three times as long.
#[inline(always)]
fn pack_bits(bits: [u8; LANES]) -> u32 {
    let mut mask = 0;
    for (lane, bit) in bits.iter().enumerate() {
        mask |= u32::from(*bit) << lane;
    }
    mask
}

#[inline(always)]
fn execute_test1<O: Test1, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(registers, alu.a);
    let mut bits = [0; LANES];
    for lane in 0..lane_count::<WHOLE>() {
        bits[lane] = u8::from(O::compute(O::A::from_raw(a.0[lane])));
    }
    registers.set_predicate(alu.d, pack_bits(bits), mask);
}

#[inline(always)]
fn execute_test2<O: Test2, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(registers, alu.a);
    let b = O::A::read(registers, alu.b);
    let mut bits = [0; LANES];
    for lane in 0..lane_count::<WHOLE>() {
        bits[lane] = u8::from(O::compute(O::A::from_raw(a.0[lane]), O::A::from_raw(b.0[lane])));
    }
    registers.set_predicate(alu.d, pack_bits(bits), mask);
}

#[inline(always)]
fn execute_select<O: Op0, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let chosen = registers.predicate(alu.c);
    let a = O::T::read(registers, alu.a);
    let b = O::T::read(registers, alu.b);
    let mut out = PerLane([O::T::ZERO; LANES]);
    for lane in 0..lane_count::<WHOLE>() {
        out.0[lane] = Bits::pick(chosen >> lane, a.0[lane], b.0[lane]);
    }
    O::T::write(registers, alu.d, &out, mask);
}

#[inline(always)]
fn execute_carry<O: Carry, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let carry = if alu.c == NO_SLOT { 0 } else { registers.predicate(alu.c) };
    let a = O::T::read(registers, alu.a);
    let b = O::T::read(registers, alu.b);
    let mut out = PerLane([O::T::ZERO; LANES]);
    let mut bits = [0; LANES];
    for lane in 0..lane_count::<WHOLE>() {
        let (sum, overflow) = O::compute(O::T::from_raw(a.0[lane]), O::T::from_raw(b.0[lane]), carry >> lane & 1 != 0);
        out.0[lane] = sum.raw();
        bits[lane] = u8::from(overflow);
    }
    O::T::write(registers, alu.d, &out, mask);
    registers.set_predicate(alu.e, pack_bits(bits), mask);
}

#[inline(always)]
fn execute_mul_carry<O: MulCarry, const WHOLE: bool>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let carry = if alu.x & CARRY_IN == 0 { 0 } else { registers.predicate(alu.e) };
    let a = O::T::read(registers, alu.a);
    let b = O::T::read(registers, alu.b);
    let c = O::T::read(registers, alu.c);
    let mut out = PerLane([O::T::ZERO; LANES]);
    let mut bits = [0; LANES];
    for lane in 0..lane_count::<WHOLE>() {
        let (a, b, c) = (O::T::from_raw(a.0[lane]), O::T::from_raw(b.0[lane]), O::T::from_raw(c.0[lane]));
        let (sum, overflow) = O::compute(a, b, c, carry >> lane & 1 != 0);
        out.0[lane] = sum.raw();
        bits[lane] = u8::from(overflow);
    }
    O::T::write(registers, alu.d, &out, mask);
    if alu.x & CARRY_OUT != 0 {
        registers.set_predicate(alu.e, pack_bits(bits), mask);
    }
}

/// Three sources and the immediate, compiled once: for rare instructions.
#[must_use]
pub fn rare3x<O: Op3x>() -> AluFunction {
    AluFunction::portable(execute3x::<O, false>)
}
