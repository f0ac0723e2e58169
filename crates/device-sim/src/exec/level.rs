//! Arithmetic instructions as function pointers, each compiled twice: for any x86-64 (or other) processor, and for one with AVX2 and FMA.
//!
//! The shape of an instruction (how many sources, predicate result, …) is a generic body; what it computes is a type that implements one of
//! the traits here. `lower` picks pointers when it lowers; they are called from one place, [`Alu::execute`].
#![allow(unsafe_code)]
// Lanes are numbered: several arrays and masks are indexed with the same lane.
#![allow(clippy::needless_range_loop)]

use super::lanes::{LANES, Lane, Lanes, NO_SLOT, Slot, V};
use super::ops::convert::Whole;
use std::sync::OnceLock;

/// An arithmetic instruction: no memory, no control flow, no faults.
#[derive(Debug, Clone, Copy)]
pub struct Alu {
    pub(crate) function: Function,
    pub d: Slot,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    /// Fourth source, second result, or the predicate that a comparison joins.
    pub e: Slot,
    /// Immediate of the instruction (a truth table, modes).
    pub x: u16,
}

/// How to execute an instruction: registers, operands, lanes. Made only by the constructors below.
pub type Raw = for<'a, 'b> unsafe fn(&'a mut Lanes<'b>, &'a Alu, u32);

#[derive(Debug, Clone, Copy)]
pub struct Function(Raw);

impl Alu {
    #[must_use]
    pub fn new(function: Function) -> Self {
        Alu { function, d: NO_SLOT, a: NO_SLOT, b: NO_SLOT, c: NO_SLOT, e: NO_SLOT, x: 0 }
    }

    #[inline(always)]
    pub fn execute(&self, lanes: &mut Lanes<'_>, mask: u32) {
        // SAFETY: a `Function` is made by `choose` alone, which gives the version with target features only where the processor has them;
        // the functions are otherwise safe.
        unsafe { (self.function.0)(lanes, self, mask) }
    }
}

/// Whether the fast versions may run here.
pub fn fast() -> bool {
    static FAST: OnceLock<bool> = OnceLock::new();
    *FAST.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> bool {
    // For tests and measurements of the other version.
    if std::env::var_os("CUMUX_SIM_BASELINE").is_some() {
        return false;
    }
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("popcnt")
        && std::is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> bool {
    false
}

fn choose(fast_version: Raw, plain: Raw) -> Function {
    Function(if fast() { fast_version } else { plain })
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident: $trait:ident => $body:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name<O: $trait>() -> Function {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            fn quick<O: $trait>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
                $body::<O, true>(lanes, alu, mask);
            }
            fn plain<O: $trait>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
                $body::<O, { cfg!(not(target_arch = "x86_64")) }>(lanes, alu, mask);
            }
            #[cfg(not(target_arch = "x86_64"))]
            use plain as quick;
            choose(quick::<O>, plain::<O>)
        }
    )*};
}

/// One source.
pub trait Op1 {
    type A: Lane;
    type R: Lane;
    fn f(a: Self::A) -> Self::R;
}

pub trait Op2 {
    type A: Lane;
    type B: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B) -> Self::R;
}

pub trait Op3 {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::R;
}

pub trait Op4 {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type E: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C, e: Self::E) -> Self::R;
}

/// Three sources and the immediate.
pub trait Op3x {
    type T: Lane;
    fn f(a: Self::T, b: Self::T, c: Self::T, x: u16) -> Self::T;
}

/// A test of one value.
pub trait Test1 {
    type A: Lane;
    fn f(a: Self::A) -> bool;
}

/// A comparison.
pub trait Test2 {
    type A: Lane;
    fn f(a: Self::A, b: Self::A) -> bool;
}

/// Sum of two values and a carry, with the carry out.
pub trait Carry {
    type T: Lane;
    fn f(a: Self::T, b: Self::T, carry: bool) -> (Self::T, bool);
}

/// A product and a sum with carry in and out.
pub trait MulCarry {
    type T: Lane;
    fn f(a: Self::T, b: Self::T, c: Self::T, carry: bool) -> (Self::T, bool);
}

shapes! {
    op1: Op1 => body1;
    op2: Op2 => body2;
    op3: Op3 => body3;
    op4: Op4 => body4;
    op3x: Op3x => body3x;
    test1: Test1 => body_test1;
    /// Predicate result in `d`.
    test2: Test2 => body_test2;
    /// `d = predicate c ? a : b`.
    select: Op0 => body_select;
    /// Carry in: predicate `c` (or none), carry out: predicate `e` (or none).
    carry: Carry => body_carry;
    /// `x` bit 0: use the carry in predicate `e`; bit 1: write it.
    mul_carry: MulCarry => body_mul_carry;
}

/// A type only.
pub trait Op0 {
    type T: Lane;
}
impl<T: Lane> Op0 for T {
    type T = T;
}

/// The number of lanes. Hidden from the optimiser in the plain versions, so that it makes a short loop instead of 32 copies.
#[inline(always)]
fn count<const WHOLE: bool>() -> usize {
    if WHOLE { LANES } else { std::hint::black_box(LANES).min(LANES) }
}

#[inline(always)]
fn body1<O: Op1, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(lanes, alu.a);
    let mut out = V([O::R::ZERO; LANES]);
    for lane in 0..count::<WHOLE>() {
        out.0[lane] = O::f(O::A::from_raw(a.0[lane])).raw();
    }
    O::R::write(lanes, alu.d, &out, mask);
}

#[inline(always)]
fn body2<O: Op2, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(lanes, alu.a);
    let b = O::B::read(lanes, alu.b);
    let mut out = V([O::R::ZERO; LANES]);
    for lane in 0..count::<WHOLE>() {
        out.0[lane] = O::f(O::A::from_raw(a.0[lane]), O::B::from_raw(b.0[lane])).raw();
    }
    O::R::write(lanes, alu.d, &out, mask);
}

#[inline(always)]
fn body3<O: Op3, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(lanes, alu.a);
    let b = O::B::read(lanes, alu.b);
    let c = O::C::read(lanes, alu.c);
    let mut out = V([O::R::ZERO; LANES]);
    for lane in 0..count::<WHOLE>() {
        out.0[lane] = O::f(O::A::from_raw(a.0[lane]), O::B::from_raw(b.0[lane]), O::C::from_raw(c.0[lane])).raw();
    }
    O::R::write(lanes, alu.d, &out, mask);
}

#[inline(always)]
fn body4<O: Op4, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(lanes, alu.a);
    let b = O::B::read(lanes, alu.b);
    let c = O::C::read(lanes, alu.c);
    let e = O::E::read(lanes, alu.e);
    let mut out = V([O::R::ZERO; LANES]);
    for lane in 0..count::<WHOLE>() {
        let (a, b) = (O::A::from_raw(a.0[lane]), O::B::from_raw(b.0[lane]));
        out.0[lane] = O::f(a, b, O::C::from_raw(c.0[lane]), O::E::from_raw(e.0[lane])).raw();
    }
    O::R::write(lanes, alu.d, &out, mask);
}

#[inline(always)]
fn body3x<O: Op3x, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::T::read(lanes, alu.a);
    let b = O::T::read(lanes, alu.b);
    let c = O::T::read(lanes, alu.c);
    let mut out = V([O::T::ZERO; LANES]);
    for lane in 0..count::<WHOLE>() {
        let (a, b, c) = (O::T::from_raw(a.0[lane]), O::T::from_raw(b.0[lane]), O::T::from_raw(c.0[lane]));
        out.0[lane] = O::f(a, b, c, alu.x).raw();
    }
    O::T::write(lanes, alu.d, &out, mask);
}

/// Packs one byte for each lane (0 or 1) into a mask; a shape that the compiler turns into one instruction. (Multiplying eight bytes at a time
/// is three times as slow.)
#[inline(always)]
fn pack(bits: [u8; LANES]) -> u32 {
    let mut mask = 0;
    for (lane, bit) in bits.iter().enumerate() {
        mask |= u32::from(*bit) << lane;
    }
    mask
}

#[inline(always)]
fn body_test1<O: Test1, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(lanes, alu.a);
    let mut bits = [0; LANES];
    for lane in 0..count::<WHOLE>() {
        bits[lane] = u8::from(O::f(O::A::from_raw(a.0[lane])));
    }
    lanes.set_predicate(alu.d, pack(bits), mask);
}

#[inline(always)]
fn body_test2<O: Test2, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = O::A::read(lanes, alu.a);
    let b = O::A::read(lanes, alu.b);
    let mut bits = [0; LANES];
    for lane in 0..count::<WHOLE>() {
        bits[lane] = u8::from(O::f(O::A::from_raw(a.0[lane]), O::A::from_raw(b.0[lane])));
    }
    lanes.set_predicate(alu.d, pack(bits), mask);
}

#[inline(always)]
fn body_select<O: Op0, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let chosen = lanes.predicate(alu.c);
    let a = O::T::read(lanes, alu.a);
    let b = O::T::read(lanes, alu.b);
    let mut out = V([O::T::ZERO; LANES]);
    for lane in 0..count::<WHOLE>() {
        out.0[lane] = if chosen >> lane & 1 != 0 { a.0[lane] } else { b.0[lane] };
    }
    O::T::write(lanes, alu.d, &out, mask);
}

#[inline(always)]
fn body_carry<O: Carry, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let carry = if alu.c == NO_SLOT { 0 } else { lanes.predicate(alu.c) };
    let a = O::T::read(lanes, alu.a);
    let b = O::T::read(lanes, alu.b);
    let mut out = V([O::T::ZERO; LANES]);
    let mut bits = [0; LANES];
    for lane in 0..count::<WHOLE>() {
        let (sum, overflow) = O::f(O::T::from_raw(a.0[lane]), O::T::from_raw(b.0[lane]), carry >> lane & 1 != 0);
        out.0[lane] = sum.raw();
        bits[lane] = u8::from(overflow);
    }
    O::T::write(lanes, alu.d, &out, mask);
    lanes.set_predicate(alu.e, pack(bits), mask);
}

#[inline(always)]
fn body_mul_carry<O: MulCarry, const WHOLE: bool>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let carry = if alu.x & 1 == 0 { 0 } else { lanes.predicate(alu.e) };
    let a = O::T::read(lanes, alu.a);
    let b = O::T::read(lanes, alu.b);
    let c = O::T::read(lanes, alu.c);
    let mut out = V([O::T::ZERO; LANES]);
    let mut bits = [0; LANES];
    for lane in 0..count::<WHOLE>() {
        let (a, b, c) = (O::T::from_raw(a.0[lane]), O::T::from_raw(b.0[lane]), O::T::from_raw(c.0[lane]));
        let (sum, overflow) = O::f(a, b, c, carry >> lane & 1 != 0);
        out.0[lane] = sum.raw();
        bits[lane] = u8::from(overflow);
    }
    O::T::write(lanes, alu.d, &out, mask);
    if alu.x & 2 != 0 {
        lanes.set_predicate(alu.e, pack(bits), mask);
    }
}

/// Work that gains from the fast processor's instructions. `run` should be `#[inline(always)]`.
pub trait Body {
    type Out;
    fn run(self) -> Self::Out;
}

/// Does the work, in a version for this processor.
#[inline(always)]
pub fn quickly<B: Body>(body: B) -> B::Out {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
        fn quick<B: Body>(body: B) -> B::Out {
            body.run()
        }
        if fast() {
            // SAFETY: `fast` says that the processor has the features.
            return unsafe { quick(body) };
        }
    }
    #[inline(never)]
    fn plain<B: Body>(body: B) -> B::Out {
        body.run()
    }
    plain(body)
}

/// Rare operations have one version: three sources and the immediate.
#[must_use]
pub fn rare3x<O: Op3x>() -> Function {
    Function(body3x::<O, false>)
}

/// A conversion described by `x`; whether source and result are in 64-bit slots.
#[must_use]
pub fn convert(from_wide: bool, to_wide: bool) -> Function {
    let raw: Raw = match (from_wide, to_wide) {
        (false, false) => convert_body::<u32, u32> as Raw,
        (false, true) => convert_body::<u32, u64> as Raw,
        (true, false) => convert_body::<u64, u32> as Raw,
        (true, true) => convert_body::<u64, u64> as Raw,
    };
    Function(raw)
}

fn convert_body<A: Whole, R: Whole>(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    let a = A::read(lanes, alu.a);
    let mut out = V([R::ZERO; LANES]);
    for lane in 0..LANES {
        if mask >> lane & 1 != 0 {
            out.0[lane] = R::cut(super::ops::convert::any(A::from_raw(a.0[lane]).extended() as u64, alu.x) as i64).raw();
        }
    }
    R::write(lanes, alu.d, &out, mask);
}

/// A comparison of halves; `x` as `ops::half::test` says, plus 32 for bfloat16.
#[must_use]
pub fn compare_half() -> Function {
    Function(compare_half_body)
}

fn compare_half_body(lanes: &mut Lanes<'_>, alu: &Alu, mask: u32) {
    use super::ops::half::{B, H, test};
    let (a, b) = (lanes.get32(alu.a), lanes.get32(alu.b));
    let mut result = 0;
    for lane in 0..LANES {
        let (a, b) = (a.0[lane], b.0[lane]);
        let holds = if alu.x & 32 != 0 { test::<B>(a, b, alu.x) } else { test::<H>(a, b, alu.x) };
        result |= u32::from(holds) << lane;
    }
    lanes.set_predicate(alu.d, result, mask);
}

/// `lop3`: common tables as one operation, others by the truth table in `x`.
#[must_use]
pub fn lop3(table: u16) -> Function {
    use super::ops::bits::{Lop3, Lop3Fixed};
    match table {
        0xc0 => op3::<Lop3Fixed<0xc0>>(),
        0xfc => op3::<Lop3Fixed<0xfc>>(),
        0x3c => op3::<Lop3Fixed<0x3c>>(),
        0x80 => op3::<Lop3Fixed<0x80>>(),
        0xfe => op3::<Lop3Fixed<0xfe>>(),
        0x96 => op3::<Lop3Fixed<0x96>>(),
        0x78 => op3::<Lop3Fixed<0x78>>(),
        0xf8 => op3::<Lop3Fixed<0xf8>>(),
        0xca => op3::<Lop3Fixed<0xca>>(),
        0xe8 => op3::<Lop3Fixed<0xe8>>(),
        _ => op3x::<Lop3>(),
    }
}
