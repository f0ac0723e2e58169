//! The bytes of one access of a warp: where its lanes' addresses lie, found and checked once, then read or written at full speed.
//!
//! Together with `raw` the only place that touches memory through raw pointers. Invariant of [`CoalescedAccess`], made by its constructors and relied on by
//! every `SAFETY` comment here: for for_each_lane lane of `mask`, the `bytes` bytes at `to + at[lane]` are valid for the current slice (for writes too
//! if made for a store); global memory is aligned as the access demands; for [`Pattern::Contiguous`] this holds for all 32 lanes.
//!
//! Programs under execution may race with for_each_lane other as on the card: single lanes are read and written as relaxed atomics, whole rows are copied
//! as the device's own copies are. Orders stronger than that are fences around the access.
#![allow(unsafe_code)]
// WarpRegisters are numbered: several arrays and masks are indexed with the same lane.
#![allow(clippy::needless_range_loop)]

use super::fault::for_each_lane;
use super::interface::{Access, GlobalMemory};
use crate::simd::lanes::{LANES, PerLane, PerLane64};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// How the addresses of an access lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All lanes name the same bytes.
    Broadcast,
    /// RegisterType after lane without gaps, and all 32 lanes' bytes may be touched.
    Contiguous,
    /// The same, but only lanes of the mask may be touched.
    ContiguousMasked,
    Scattered,
}

/// What the addresses of an access have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressShape {
    pub low: u64,
    pub high: u64,
    /// Has the bits that keep the addresses from being aligned.
    pub any: u64,
    /// Never [`Pattern::ContiguousMasked`].
    pub pattern: Pattern,
}

/// RegisterType numbers times 0, 1, 2, 4, 8, 16 and 32.
static RAMPS: [[u64; LANES]; 7] = {
    let mut ramps = [[0; LANES]; 7];
    let mut power = 0;
    while power < 6 {
        let mut lane = 0;
        while lane < LANES {
            ramps[power + 1][lane] = (lane as u64) << power;
            lane += 1;
        }
        power += 1;
    }
    ramps
};

/// The same for short addresses.
static SHORT_RAMPS: [[u32; LANES]; 7] = {
    let mut ramps = [[0; LANES]; 7];
    let mut at = 0;
    while at < 7 * LANES {
        ramps[at / LANES][at % LANES] = RAMPS[at / LANES][at % LANES] as u32;
        at += 1;
    }
    ramps
};

/// Combines all lanes, halves at a time: a shape that becomes vector instructions (a plain loop is unrolled first, and then does not).
#[inline(always)]
fn fold<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] = f(lanes[lane], lanes[lane + half]);
        }
    }
    lanes[0]
}

macro_rules! shape_of {
    ($(#[$doc:meta])* $name:ident, $ty:ty, $ramps:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(at: &PerLane<$ty>, mask: u32, step: u64) -> AddressShape {
            let (first, last) = ((mask.trailing_zeros() & 31) as usize, (31 - mask.leading_zeros()) as usize & 31);
            let (start, end) = (at.0[first], at.0[last]);
            let power = (step.trailing_zeros() as usize + 1).min($ramps.len() - 1);
            let mut on = [<$ty>::MAX; LANES];
            if mask != u32::MAX {
                for lane in 0..LANES {
                    on[lane] = (0 as $ty).wrapping_sub((mask >> lane & 1) as $ty);
                }
            }
            // All lanes or none make a row, or are the same: the outermost say which it could be.
            let power = if end == start { Some(0) } else if end.wrapping_sub(start) == $ramps[power][last - first] && end > start { Some(power) } else { None };
            if let Some(power) = power {
                let ramp = &$ramps[power];
                let base = start.wrapping_sub(ramp[first]);
                let mut bent = [0; LANES];
                for lane in 0..LANES {
                    bent[lane] = (at.0[lane].wrapping_sub(base) ^ ramp[lane]) & on[lane];
                }
                if fold(bent, |a, b| a | b) == 0 {
                    let pattern = if power == 0 { Pattern::Broadcast } else { Pattern::Contiguous };
                    return AddressShape { low: start.into(), high: end.into(), any: start.into(), pattern };
                }
            }
            let mut set = at.0;
            let mut low = at.0;
            if mask != u32::MAX {
                for lane in 0..LANES {
                    set[lane] &= on[lane];
                    low[lane] |= !on[lane];
                }
            }
            let (low, high, any) = (fold(low, |a, b| a.min(b)), fold(set, |a, b| a.max(b)), fold(set, |a, b| a | b));
            AddressShape { low: low.into(), high: high.into(), any: any.into(), pattern: Pattern::Scattered }
        }
    };
}

impl AddressShape {
    shape_of! {
        /// The shape of the lanes of `mask` (not zero), for_each_lane with `step` bytes, a power of two of at most 32.
        of_addresses, u64, RAMPS
    }
    shape_of! {
        /// The same for short addresses.
        of_short_addresses, u32, SHORT_RAMPS
    }

    /// All lanes at one address.
    #[inline(always)]
    pub fn broadcast(at: u64) -> AddressShape {
        AddressShape { low: at, high: at, any: at, pattern: Pattern::Broadcast }
    }
}

/// A value that memory holds.
pub(super) trait Word: Copy {
    /// # Safety
    /// `at` is valid for reads of this type, and aligned unless the memory is our `OWN`.
    unsafe fn read<const OWN: bool>(at: *mut u8) -> Self;
    /// # Safety
    /// `at` is valid for writes of this type, and aligned unless the memory is our `OWN`.
    unsafe fn write<const OWN: bool>(at: *mut u8, value: Self);
}

macro_rules! word {
    ($($ty:ty: $atomic:ty;)*) => {$(
        impl Word for $ty {
            #[inline(always)]
            unsafe fn read<const OWN: bool>(at: *mut u8) -> Self {
                // SAFETY: the caller's promise; memory of programs is never touched by references.
                unsafe { if OWN { at.cast::<Self>().read_unaligned() } else { <$atomic>::from_ptr(at.cast()).load(Ordering::Relaxed) } }
            }
            #[inline(always)]
            unsafe fn write<const OWN: bool>(at: *mut u8, value: Self) {
                // SAFETY: as above.
                unsafe {
                    if OWN {
                        at.cast::<Self>().write_unaligned(value);
                    } else {
                        <$atomic>::from_ptr(at.cast()).store(value, Ordering::Relaxed);
                    }
                }
            }
        }
    )*};
}

word! {
    u8: AtomicU8;
    u16: AtomicU16;
    u32: AtomicU32;
    u64: AtomicU64;
}

impl Word for u128 {
    /// One access, where the processor has such: aligned 16 bytes are read and written whole by every x86-64 with AVX.
    #[inline(always)]
    unsafe fn read<const OWN: bool>(at: *mut u8) -> Self {
        // SAFETY: the caller's promise; the size is right.
        unsafe {
            if OWN {
                return at.cast::<u128>().read_unaligned();
            }
            #[cfg(target_arch = "x86_64")]
            return std::mem::transmute::<std::arch::x86_64::__m128i, u128>(at.cast::<std::arch::x86_64::__m128i>().read_volatile());
            #[cfg(not(target_arch = "x86_64"))]
            return u128::from(u64::read::<false>(at)) | u128::from(u64::read::<false>(at.add(8))) << 64;
        }
    }

    #[inline(always)]
    unsafe fn write<const OWN: bool>(at: *mut u8, value: Self) {
        // SAFETY: as in `read`.
        unsafe {
            if OWN {
                return at.cast::<u128>().write_unaligned(value);
            }
            #[cfg(target_arch = "x86_64")]
            at.cast::<std::arch::x86_64::__m128i>().write_volatile(std::mem::transmute::<u128, std::arch::x86_64::__m128i>(value));
            #[cfg(not(target_arch = "x86_64"))]
            {
                u64::write::<false>(at, value as u64);
                u64::write::<false>(at.add(8), (value >> 64) as u64);
            }
        }
    }
}

/// See the module. `OWN`: the memory is a slice, else global memory that others may touch at the same time.
pub(super) struct CoalescedAccess<'a, const OWN: bool> {
    pub mask: u32,
    bytes: u64,
    /// The bytes of [`Pattern::Broadcast`]; those of lane 0 of a row.
    start: *mut u8,
    pub pattern: Pattern,
    writable: bool,
    /// For [`Pattern::Scattered`]: addresses, and the place of address 0.
    at: &'a PerLane64,
    to: *mut u8,
    /// The memory may be a slice that is borrowed.
    memory: PhantomData<&'a mut [u8]>,
}

/// Spans wider than this are not asked for as a whole.
const WIDEST_SPAN: u64 = 1 << 30;

impl<'a> CoalescedAccess<'a, false> {
    /// Finds the bytes in global memory. `None` if they do not lie in one allocation, or must not be accessed, or are not aligned. `at` gives
    /// the addresses (of which `shape` is the shape) and is asked only if they are needed. Before a store the memory is told what will be overwritten.
    #[inline(always)]
    pub fn in_global<M: GlobalMemory>(memory: &mut M, at: &'a PerLane64, mask: u32, shape: &AddressShape, bytes: u64, access: Access) -> Option<Self> {
        let AddressShape { low, high, any, mut pattern } = *shape;
        if high - low >= WIDEST_SPAN || any & (bytes - 1) != 0 {
            return None;
        }
        let found = memory.access(low, high - low + bytes, access).ok()?;
        let to = found.wrapping_sub(low as usize);
        let ahead = if pattern == Pattern::Contiguous { u64::from(mask.trailing_zeros()) * bytes } else { 0 };
        if pattern == Pattern::Contiguous && mask != u32::MAX {
            // WarpRegisters that are off may lie outside.
            if access != Access::Load || memory.access(low.wrapping_sub(ahead), LANES as u64 * bytes, access).is_err() {
                pattern = Pattern::ContiguousMasked;
            }
        }
        if access == Access::Store {
            match pattern {
                Pattern::Contiguous => memory.before_store(low, found, LANES as u32 * bytes as u32),
                Pattern::Broadcast => memory.before_store(low, found, bytes as u32),
                Pattern::ContiguousMasked | Pattern::Scattered => memory.before_stores(&at.0, mask, to, bytes as u32),
            }
        }
        Some(CoalescedAccess { mask, bytes, start: found.wrapping_sub(ahead as usize), pattern, writable: access != Access::Load, at, to, memory: PhantomData })
    }
}

macro_rules! cells {
    ($($update:ident $($add:ident)?: $ty:ty, $atomic:ty;)*) => {
        /// Atomic operations on the cell of a lane of the mask.
        impl CoalescedAccess<'_, false> {$(
            /// Replaces the value by a function of it, at once. Gives the old value.
            #[inline(always)]
            pub fn $update(&self, lane: usize, f: impl Fn($ty) -> $ty) -> $ty {
                let cell = self.cell::<$ty>(lane);
                // SAFETY: the invariant; the memory may be written and is aligned.
                unsafe { <$atomic>::from_ptr(cell) }.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
            }
            $(
                #[inline(always)]
                pub fn $add(&self, lane: usize, value: $ty) -> $ty {
                    let cell = self.cell::<$ty>(lane);
                    // SAFETY: as above.
                    unsafe { <$atomic>::from_ptr(cell) }.fetch_add(value, Ordering::SeqCst)
                }
            )?
        )*}
    };
}

cells! {
    update16: u16, AtomicU16;
    update32 add32: u32, AtomicU32;
    update64 add64: u64, AtomicU64;
}

impl<'a> CoalescedAccess<'a, true> {
    /// Replaces a lane's value by a function of it. Gives the old value.
    #[inline(always)]
    pub fn replace_value<W: Word>(&self, lane: usize, f: impl Fn(W) -> W) -> W {
        let cell = self.cell::<W>(lane);
        // SAFETY: the invariant; the slice is borrowed for writing.
        unsafe {
            let old = cell.read_unaligned();
            cell.write_unaligned(f(old));
            old
        }
    }

    /// The addresses are offsets into a slice. `None` if they do not lie in it.
    #[inline(always)]
    fn in_bytes(from: *mut u8, length: usize, at: &'a PerLane64, mask: u32, shape: &AddressShape, bytes: u64, writable: bool) -> Option<Self> {
        let length = length as u64;
        if bytes > length || shape.high > length - bytes {
            return None;
        }
        let row = shape.pattern == Pattern::Contiguous;
        let first = shape.low.wrapping_sub(if row { u64::from(mask.trailing_zeros()) * bytes } else { 0 });
        let whole = mask == u32::MAX || (!writable && first <= length && LANES as u64 * bytes <= length - first);
        let pattern = if row && !whole { Pattern::ContiguousMasked } else { shape.pattern };
        Some(CoalescedAccess { mask, bytes, start: from.wrapping_add(first as usize), pattern, writable, at, to: from, memory: PhantomData })
    }

    #[inline(always)]
    pub fn in_slice(slice: &'a [u8], at: &'a PerLane64, mask: u32, shape: &AddressShape, bytes: u64) -> Option<Self> {
        CoalescedAccess::in_bytes(slice.as_ptr().cast_mut(), slice.len(), at, mask, shape, bytes, false)
    }

    #[inline(always)]
    pub fn in_slice_mut(slice: &'a mut [u8], at: &'a PerLane64, mask: u32, shape: &AddressShape, bytes: u64) -> Option<Self> {
        CoalescedAccess::in_bytes(slice.as_mut_ptr(), slice.len(), at, mask, shape, bytes, true)
    }
}

impl<const OWN: bool> CoalescedAccess<'_, OWN> {
    /// The place that a lane of the mask writes to.
    #[inline(always)]
    fn cell<W>(&self, lane: usize) -> *mut W {
        assert!(self.writable && self.mask >> lane & 1 != 0);
        self.place::<W>(lane, 0).cast()
    }

    #[inline(always)]
    fn place<W>(&self, lane: usize, offset: usize) -> *mut u8 {
        assert!((offset + size_of::<W>()) as u64 <= self.bytes);
        let at = match self.pattern {
            Pattern::Broadcast => self.start,
            Pattern::Contiguous | Pattern::ContiguousMasked => self.start.wrapping_add(lane * self.bytes as usize),
            Pattern::Scattered => self.to.wrapping_add(self.at.0[lane] as usize),
        };
        at.wrapping_add(offset)
    }

    /// Each lane's value `offset` bytes behind its address. A function of its own: there are many cases of it, and the loop is what costs.
    #[inline(never)]
    pub fn gather<W: Word, T>(&self, offset: usize, into: &mut [T; LANES], widen: impl Fn(W) -> T) {
        if self.pattern == Pattern::Scattered {
            // Said twice so that the usual case is a loop without branches.
            let to = self.to.wrapping_add(offset);
            assert!((offset + size_of::<W>()) as u64 <= self.bytes);
            // SAFETY: the invariant; lanes are those of the mask and the offset is inside the access.
            return for_each_lane(self.mask, |lane| into[lane] = widen(unsafe { W::read::<OWN>(to.wrapping_add(self.at.0[lane] as usize)) }));
        }
        // SAFETY: as above (`place`).
        for_each_lane(self.mask, |lane| into[lane] = widen(unsafe { W::read::<OWN>(self.place::<W>(lane, offset)) }));
    }

    /// Writes for_each_lane lane's value.
    #[inline(never)]
    pub fn scatter<W: Word, T: Copy>(&self, offset: usize, from: &[T; LANES], cut: impl Fn(T) -> W) {
        assert!(self.writable);
        if self.pattern == Pattern::Scattered {
            let to = self.to.wrapping_add(offset);
            assert!((offset + size_of::<W>()) as u64 <= self.bytes);
            // SAFETY: as in `gather`; the memory may be written.
            return for_each_lane(self.mask, |lane| unsafe { W::write::<OWN>(to.wrapping_add(self.at.0[lane] as usize), cut(from[lane])) });
        }
        // SAFETY: as above.
        for_each_lane(self.mask, |lane| unsafe { W::write::<OWN>(self.place::<W>(lane, offset), cut(from[lane])) });
    }

    /// The value that all lanes name.
    #[inline(always)]
    pub fn read_broadcast<W: Word>(&self, offset: usize) -> W {
        // SAFETY: as in `gather`, for the first lane of the mask.
        unsafe { W::read::<OWN>(self.place::<W>((self.mask.trailing_zeros() & 31) as usize, offset)) }
    }

    /// All lanes' bytes of a row: `N` words of for_each_lane of 32 lanes. A lane's bytes are read at once, up to 16 of them: programs rely on a status and
    /// a value in one vector being of one time.
    #[inline(always)]
    pub fn read_row<W: Word + Default, const N: usize>(&self) -> [[W; N]; LANES] {
        let mut out = [[W::default(); N]; LANES];
        assert!(self.pattern == Pattern::Contiguous && self.bytes == size_of::<[W; N]>() as u64);
        let into = out.as_mut_ptr().cast::<u8>();
        // SAFETY: the invariant of rows and the check above; `into` has the size of 32 lanes, and integers may have any bytes.
        unsafe {
            match size_of::<[W; N]>() {
                8 if N > 1 => {
                    for lane in 0..LANES {
                        into.add(8 * lane).cast::<u64>().write_unaligned(u64::read::<OWN>(self.start.add(8 * lane)));
                    }
                }
                16 => {
                    for lane in 0..LANES {
                        into.add(16 * lane).cast::<u128>().write_unaligned(u128::read::<OWN>(self.start.add(16 * lane)));
                    }
                }
                _ => into.copy_from_nonoverlapping(self.start, size_of_val(&out)),
            }
        }
        out
    }

    /// One word of for_each_lane lane of a row.
    #[inline(always)]
    pub fn read_row_into<W: Word>(&self, into: &mut [W; LANES]) {
        assert!(self.pattern == Pattern::Contiguous && self.bytes == size_of::<W>() as u64);
        // SAFETY: as in `row`; registers are not memory of programs.
        unsafe { into.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(self.start, size_of_val(into)) };
    }

    /// Writes all lanes' bytes of a row, as [`read_row`](Self::read_row) reads them.
    #[inline(always)]
    pub fn write_row<W: Word, const N: usize>(&self, from: &[[W; N]; LANES]) {
        assert!(self.pattern == Pattern::Contiguous && self.bytes == size_of::<[W; N]>() as u64 && self.writable);
        let bytes = from.as_ptr().cast::<u8>();
        // SAFETY: the invariant of rows and the check above.
        unsafe {
            match size_of::<[W; N]>() {
                8 if N > 1 => {
                    for lane in 0..LANES {
                        u64::write::<OWN>(self.start.add(8 * lane), bytes.add(8 * lane).cast::<u64>().read_unaligned());
                    }
                }
                16 => {
                    for lane in 0..LANES {
                        u128::write::<OWN>(self.start.add(16 * lane), bytes.add(16 * lane).cast::<u128>().read_unaligned());
                    }
                }
                _ => self.start.copy_from_nonoverlapping(bytes, size_of_val(from)),
            }
        }
    }
}
