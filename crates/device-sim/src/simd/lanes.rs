//! The registers of a warp as an instruction sees them: an array of 32 lanes for each register.
//!
//! Registers lie in three banks: slots of 32 bits (also for registers of 8 and 16 bits, whose upper
//! bits are zero), slots of 64 bits, and predicates (one bit for each lane). A slot with
//! [`CONSTANT`] set is an entry of the function's constant table instead, already repeated for all
//! lanes.
//!
//! Invariant: a write with the mask `u32::MAX` may overwrite lanes that no live thread owns; any
//! other mask is exact.

/// Lanes of a warp.
pub const LANES: usize = 32;
/// A register: its index in its frame's part of the bank that its type says.
pub type RegisterSlot = u16;
/// Marks a slot as an index into the constants.
pub const CONSTANT: RegisterSlot = 0x8000;
/// No register.
pub const NO_SLOT: RegisterSlot = 0xffff;

/// One value for each lane.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct PerLane<T>(pub [T; LANES]);

impl<T: Copy> PerLane<T> {
    #[inline(always)]
    pub fn splat(value: T) -> Self {
        PerLane([value; LANES])
    }
}

pub type PerLane32 = PerLane<u32>;
pub type PerLane64 = PerLane<u64>;

/// The registers and constants of the running frame.
#[derive(Debug)]
pub struct WarpRegisters<'a> {
    /// The bank of 32-bit slots.
    pub r32: &'a mut [PerLane32],
    /// The bank of 64-bit slots.
    pub r64: &'a mut [PerLane64],
    /// The predicates, one bit for each lane.
    pub p: &'a mut [u32],
    /// Constants of 32 bits.
    pub c32: &'a [PerLane32],
    /// Constants of 64 bits.
    pub c64: &'a [PerLane64],
}

impl WarpRegisters<'_> {
    #[inline(always)]
    pub fn get32(&self, slot: RegisterSlot) -> &PerLane32 {
        if slot & CONSTANT != 0 { &self.c32[(slot & !CONSTANT) as usize] } else { &self.r32[slot as usize] }
    }

    #[inline(always)]
    pub fn get64(&self, slot: RegisterSlot) -> &PerLane64 {
        if slot & CONSTANT != 0 { &self.c64[(slot & !CONSTANT) as usize] } else { &self.r64[slot as usize] }
    }

    #[inline(always)]
    pub fn set32(&mut self, slot: RegisterSlot, value: &PerLane32, mask: u32) {
        blend(&mut self.r32[slot as usize], value, mask);
    }

    #[inline(always)]
    pub fn set64(&mut self, slot: RegisterSlot, value: &PerLane64, mask: u32) {
        blend(&mut self.r64[slot as usize], value, mask);
    }

    /// A predicate; all ones for [`NO_SLOT`].
    #[inline(always)]
    pub fn predicate(&self, slot: RegisterSlot) -> u32 {
        self.p[slot as usize]
    }

    #[inline(always)]
    pub fn set_predicate(&mut self, slot: RegisterSlot, value: u32, mask: u32) {
        if slot != NO_SLOT {
            let p = &mut self.p[slot as usize];
            *p = (*p & !mask) | (value & mask);
        }
    }
}

/// The bits of a slot.
pub trait Bits: Copy {
    /// `yes` if the lowest bit of `choice` is set, else `no`. Made of logic: of a choice between
    /// two places in memory the compiler makes scalar code, lane by lane.
    fn pick(choice: u32, yes: Self, no: Self) -> Self;
    /// Overwrites the lanes of a mask that is not full.
    fn blend(into: &mut PerLane<Self>, value: &PerLane<Self>, mask: u32);
}

macro_rules! pick_by_logic {
    ($ty:ty) => {
        #[inline(always)]
        fn pick(choice: u32, yes: Self, no: Self) -> Self {
            let on = <$ty>::from(choice & 1).wrapping_neg();
            (yes & on) | (no & !on)
        }
    };
}

impl Bits for u32 {
    pick_by_logic! { u32 }

    #[inline(always)]
    fn blend(into: &mut PerLane<Self>, value: &PerLane<Self>, mask: u32) {
        let mut on = PerLane([0; LANES]);
        for lane in 0..LANES {
            on.0[lane] = (mask >> lane & 1).wrapping_neg();
        }
        // The compiler would make masked stores of it, which take three times as long on some
        // processors.
        let on = std::hint::black_box(on);
        for lane in 0..LANES {
            into.0[lane] = (value.0[lane] & on.0[lane]) | (into.0[lane] & !on.0[lane]);
        }
    }
}

impl Bits for u64 {
    pick_by_logic! { u64 }

    #[inline(always)]
    fn blend(into: &mut PerLane<Self>, value: &PerLane<Self>, mask: u32) {
        for lane in 0..LANES {
            into.0[lane] = if mask >> lane & 1 != 0 { value.0[lane] } else { into.0[lane] };
        }
    }
}

/// Overwrites the lanes of a mask.
#[inline(always)]
fn blend<T: Bits>(into: &mut PerLane<T>, value: &PerLane<T>, mask: u32) {
    if mask == u32::MAX {
        *into = *value;
    } else {
        T::blend(into, value, mask);
    }
}

/// A type that a register can hold.
pub trait RegisterType: Copy {
    /// The integer that a slot holds.
    type Raw: Bits;
    /// Zero.
    const ZERO: Self::Raw;
    /// The value of a slot's bits; upper bits are ignored.
    fn from_raw(raw: Self::Raw) -> Self;
    /// The bits for a slot; upper bits are zero.
    fn raw(self) -> Self::Raw;
    /// A register of this type.
    fn read<'x>(registers: &'x WarpRegisters<'_>, slot: RegisterSlot) -> &'x PerLane<Self::Raw>;
    /// Writes a register of this type, for the lanes of a mask.
    fn write(registers: &mut WarpRegisters<'_>, slot: RegisterSlot, value: &PerLane<Self::Raw>, mask: u32);
}

macro_rules! lane {
    ($($ty:ty: $raw:ty, $get:ident, $set:ident, $from:expr, $to:expr;)*) => {$(
        impl RegisterType for $ty {
            type Raw = $raw;
            const ZERO: $raw = 0;
            #[inline(always)]
            fn from_raw(raw: $raw) -> Self {
                let from: fn($raw) -> $ty = $from;
                from(raw)
            }
            #[inline(always)]
            fn raw(self) -> $raw {
                let to: fn($ty) -> $raw = $to;
                to(self)
            }
            #[inline(always)]
            fn read<'x>(registers: &'x WarpRegisters<'_>, slot: RegisterSlot) -> &'x PerLane<$raw> {
                registers.$get(slot)
            }
            #[inline(always)]
            fn write(registers: &mut WarpRegisters<'_>, slot: RegisterSlot, value: &PerLane<$raw>, mask: u32) {
                registers.$set(slot, value, mask);
            }
        }
    )*};
}

lane! {
    u8: u32, get32, set32, |r| r as u8, |v| u32::from(v);
    i8: u32, get32, set32, |r| r as i8, |v| u32::from(v as u8);
    u16: u32, get32, set32, |r| r as u16, |v| u32::from(v);
    i16: u32, get32, set32, |r| r as i16, |v| u32::from(v as u16);
    u32: u32, get32, set32, |r| r, |v| v;
    i32: u32, get32, set32, |r| r as i32, |v| v as u32;
    f32: u32, get32, set32, f32::from_bits, f32::to_bits;
    u64: u64, get64, set64, |r| r, |v| v;
    i64: u64, get64, set64, |r| r as i64, |v| v as u64;
    f64: u64, get64, set64, f64::from_bits, f64::to_bits;
}
