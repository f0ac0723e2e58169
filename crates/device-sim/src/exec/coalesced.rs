//! The bytes of one access of a warp: found and checked once, then read or written at full speed.
//!
//! Hardware calls an access coalesced if few memory transactions serve all lanes. Here it means
//! that the lanes' bytes lie in one allocation, which is looked up and checked once for the whole
//! warp.
//!
//! This file and `raw` are the only ones that touch memory through raw pointers. They rely on
//! [`GlobalMemory`]'s promise about the pointers it returns.
//!
//! # Invariant of [`CoalescedAccess`]
//! Its constructors establish it, and every `SAFETY` comment below relies on it:
//! - For each lane of `mask`, the `bytes` bytes at the lane's address are valid for reads until the
//!   current slice ends, and for writes too if `writable`.
//! - For [`Pattern::Contiguous`] this holds for all 32 lanes. For [`Pattern::RowsOfEight`] and
//!   [`Pattern::SameOfEight`] the mask has all lanes, and `at` has their addresses as the pattern says.
//! - Global memory is aligned to `bytes`; slices (`OWN`) may be unaligned.
//! - Nothing in the process holds a reference to global memory; a slice is borrowed meanwhile.
//!
//! Programs under execution may race with each other as on the hardware. A single lane's bytes are
//! therefore read and written as relaxed atomics; rows of all lanes are copied, as the device's own
//! copies are. Stronger orders are fences around the access.
#![expect(clippy::disallowed_types, reason = "kernels of several threads use the same memory")]
#![allow(unsafe_code)]
// Several arrays and masks are indexed by the same lane.
#![allow(clippy::needless_range_loop)]

use super::fault::for_each_lane;
use super::interface::{Access, GlobalMemory};
use crate::simd::lanes::{LANES, PerLane, PerLane64};
use crate::simd::processor::{VectorCode, run_fastest};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// How the lanes' addresses lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All lanes have the same address.
    Broadcast,
    /// The lanes' bytes follow each other without gaps, a row; all 32 lanes' bytes may be touched.
    Contiguous,
    /// A row of which only the bytes of the mask's lanes may be touched.
    ContiguousMasked,
    /// Each eight neighbouring lanes are a row, as in blocks that are 8 or 16 threads wide. All 32
    /// lanes take part.
    RowsOfEight,
    /// Each eight neighbouring lanes have the same address. All 32 lanes take part.
    SameOfEight,
    /// Anything else.
    Scattered,
}

impl Pattern {
    /// Whether the addresses of single lanes are needed to find their bytes.
    #[inline(always)]
    pub fn needs_addresses(self) -> bool {
        matches!(self, Pattern::RowsOfEight | Pattern::SameOfEight | Pattern::Scattered)
    }
}

/// Lanes of a group in [`Pattern::RowsOfEight`] and [`Pattern::SameOfEight`].
const GROUP: usize = 8;

/// What the addresses of an access have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressShape {
    /// The lowest address.
    pub low: u64,
    /// The highest address.
    pub high: u64,
    /// A low bit that is set here keeps some address from being aligned.
    pub any: u64,
    /// Never [`Pattern::ContiguousMasked`].
    pub pattern: Pattern,
}

/// The lanes' numbers, times 0, 1, 2, 4, 8, 16 and 32.
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

/// As [`RAMPS`], for 32-bit addresses.
static SHORT_RAMPS: [[u32; LANES]; 7] = {
    let mut ramps = [[0; LANES]; 7];
    let mut at = 0;
    while at < 7 * LANES {
        ramps[at / LANES][at % LANES] = RAMPS[at / LANES][at % LANES] as u32;
        at += 1;
    }
    ramps
};

/// Combines all lanes. Halving makes the compiler use vector instructions; a plain loop is unrolled
/// and stays scalar.
#[inline(always)]
fn fold_lanes<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] = f(lanes[lane], lanes[lane + half]);
        }
    }
    lanes[0]
}

macro_rules! shape_of {
    ($(#[$doc:meta])* $name:ident, $ty:ty, $ramps:expr, $rest:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(at: &PerLane<$ty>, mask: u32, step: u64) -> AddressShape {
            let (first, last) = ((mask.trailing_zeros() & 31) as usize, (31 - mask.leading_zeros()) as usize & 31);
            let (start, end) = (at.0[first], at.0[last]);
            let power_of_row = (step.trailing_zeros() as usize + 1).min($ramps.len() - 1);
            let power = power_of_row;
            let mut on = [<$ty>::MAX; LANES];
            if mask != u32::MAX {
                for lane in 0..LANES {
                    on[lane] = (0 as $ty).wrapping_sub((mask >> lane & 1) as $ty);
                }
            }
            // The outermost lanes tell which pattern it can be: if they have one address, a
            // broadcast, and if they are as far apart as in a row, a row.
            let power = if end == start { Some(0) } else if end.wrapping_sub(start) == $ramps[power][last - first] && end > start { Some(power) } else { None };
            if let Some(power) = power {
                let ramp = &$ramps[power];
                let base = start.wrapping_sub(ramp[first]);
                let mut bent = [0; LANES];
                for lane in 0..LANES {
                    bent[lane] = (at.0[lane].wrapping_sub(base) ^ ramp[lane]) & on[lane];
                }
                if fold_lanes(bent, |a, b| a | b) == 0 {
                    let pattern = if power == 0 { Pattern::Broadcast } else { Pattern::Contiguous };
                    return AddressShape { low: start.into(), high: end.into(), any: start.into(), pattern };
                }
            }
            run_fastest($rest { at, mask, power_of_row })
        }
    };
}

/// The shape of addresses that are no row and not the same: code of its own, so that the usual
/// cases stay short.
macro_rules! rest_of_shape {
    ($rest:ident, $ty:ty, $ramps:expr) => {
        struct $rest<'a> {
            at: &'a PerLane<$ty>,
            mask: u32,
            power_of_row: usize,
        }

        impl VectorCode for $rest<'_> {
            type Out = AddressShape;

            #[inline(always)]
            fn run(self) -> AddressShape {
                let $rest { at, mask, power_of_row } = self;
                let start = at.0[0];
                if mask == u32::MAX {
                    // The same question for groups of eight lanes; the first group tells which pattern
                    // it can be.
                    let apart = at.0[GROUP - 1].wrapping_sub(start);
                    let power = if apart == 0 {
                        Some(0)
                    } else if apart == $ramps[power_of_row][GROUP - 1] {
                        Some(power_of_row)
                    } else {
                        None
                    };
                    if let Some(power) = power {
                        let ramp = &$ramps[power];
                        let (mut bent, mut any) = ([0; GROUP], 0);
                        let (mut low, mut high) = (start, start);
                        let mut wraps = false;
                        for from in (0..LANES).step_by(GROUP) {
                            let (first, last) = (at.0[from], at.0[from + GROUP - 1]);
                            for lane in 0..GROUP {
                                bent[lane] |= at.0[from + lane].wrapping_sub(first) ^ ramp[lane];
                            }
                            wraps |= last < first;
                            any |= first;
                            low = low.min(first);
                            high = high.max(last);
                        }
                        let mut all = 0;
                        for lane in 0..GROUP {
                            all |= bent[lane];
                        }
                        if all == 0 && !wraps {
                            let pattern = if power == 0 { Pattern::SameOfEight } else { Pattern::RowsOfEight };
                            return AddressShape { low: low.into(), high: high.into(), any: any.into(), pattern };
                        }
                    }
                }
                let mut set = at.0;
                let mut low = at.0;
                if mask != u32::MAX {
                    for lane in 0..LANES {
                        let on = (0 as $ty).wrapping_sub((mask >> lane & 1) as $ty);
                        set[lane] &= on;
                        low[lane] |= !on;
                    }
                }
                let (low, high, any) = (fold_lanes(low, |a, b| a.min(b)), fold_lanes(set, |a, b| a.max(b)), fold_lanes(set, |a, b| a | b));
                AddressShape { low: low.into(), high: high.into(), any: any.into(), pattern: Pattern::Scattered }
            }
        }
    };
}
rest_of_shape! { RestOfShape, u64, RAMPS }
rest_of_shape! { RestOfShortShape, u32, SHORT_RAMPS }

impl AddressShape {
    shape_of! {
        /// The shape of the addresses of the lanes in `mask` (not zero). Each lane has `step`
        /// bytes, a power of two of at most 32.
        of_addresses, u64, RAMPS, RestOfShape
    }
    shape_of! {
        /// As [`of_addresses`](Self::of_addresses), for 32-bit addresses.
        of_short_addresses, u32, SHORT_RAMPS, RestOfShortShape
    }

    /// The shape of lanes that all have the address `at`.
    #[inline(always)]
    pub fn broadcast(at: u64) -> AddressShape {
        AddressShape { low: at, high: at, any: at, pattern: Pattern::Broadcast }
    }
}

/// An integer that memory holds.
pub(super) trait Word: Copy {
    /// Reads a value.
    ///
    /// # Safety
    /// `at` is valid for reads of this type, and aligned unless the memory is a slice (`OWN`). No
    /// Rust reference to the bytes of global memory exists.
    unsafe fn read<const OWN: bool>(at: *mut u8) -> Self;
    /// Writes a value.
    ///
    /// # Safety
    /// `at` is valid for writes of this type, and aligned unless the memory is a slice (`OWN`). No
    /// Rust reference to the bytes of global memory exists.
    unsafe fn write<const OWN: bool>(at: *mut u8, value: Self);
}

macro_rules! word {
    ($($ty:ty: $atomic:ty;)*) => {$(
        impl Word for $ty {
            #[inline(always)]
            unsafe fn read<const OWN: bool>(at: *mut u8) -> Self {
                // SAFETY: the caller promises that `at` is valid, and aligned for the atomic read;
                // global memory is never touched through references.
                unsafe { if OWN { at.cast::<Self>().read_unaligned() } else { <$atomic>::from_ptr(at.cast()).load(Ordering::Relaxed) } }
            }
            #[inline(always)]
            unsafe fn write<const OWN: bool>(at: *mut u8, value: Self) {
                // SAFETY: the caller promises that `at` is valid for writes, and aligned for the
                // atomic write; global memory is never touched through references.
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
    /// One access on x86-64: processors with AVX read and write 16 aligned bytes whole (Intel's
    /// manual, volume 3, *Guaranteed atomic operations*). Elsewhere two accesses of 8 bytes.
    #[inline(always)]
    unsafe fn read<const OWN: bool>(at: *mut u8) -> Self {
        // SAFETY: the caller promises that 16 bytes at `at` are valid for reads, and aligned unless
        // `OWN`. The two types of the transmute have the same size, and any bytes are valid for
        // both.
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
        // SAFETY: the caller promises that 16 bytes at `at` are valid for writes, and aligned
        // unless `OWN`. The two types of the transmute have the same size, and any bytes are valid
        // for both.
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

/// One access of a warp. With `OWN`, the memory is a slice; without, it is global memory, which
/// others may touch at the same time.
pub(super) struct CoalescedAccess<'a, const OWN: bool> {
    /// The lanes that take part.
    pub mask: u32,
    /// Bytes of each lane.
    bytes: u64,
    /// Where the bytes of a broadcast lie; for a row, those of lane 0.
    start: *mut u8,
    /// How the lanes' bytes lie.
    pub pattern: Pattern,
    writable: bool,
    /// For [`Pattern::Scattered`]: the addresses, and where address 0 would lie.
    at: &'a PerLane64,
    to: *mut u8,
    /// A slice stays borrowed.
    memory: PhantomData<&'a mut [u8]>,
}

/// Bytes between the lowest and the highest address, from which on lanes are looked up one by one.
const WIDEST_SPAN: u64 = 1 << 30;

impl<'a> CoalescedAccess<'a, false> {
    /// Finds the bytes in global memory. `shape` is the shape of the addresses `at`. `None` if they
    /// do not lie in one allocation, are not aligned, or must not be accessed. Before a store, the
    /// memory is told which bytes will be overwritten.
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
            // The bytes of lanes outside the mask may lie outside the allocation.
            if access != Access::Load || memory.access(low.wrapping_sub(ahead), LANES as u64 * bytes, access).is_err() {
                pattern = Pattern::ContiguousMasked;
            }
        }
        if access == Access::Store {
            match pattern {
                Pattern::Contiguous => memory.before_store(low, found, LANES as u32 * bytes as u32),
                Pattern::Broadcast => memory.before_store(low, found, bytes as u32),
                Pattern::RowsOfEight => {
                    for from in (0..LANES).step_by(GROUP) {
                        memory.before_store(at.0[from], to.wrapping_add(at.0[from] as usize), GROUP as u32 * bytes as u32);
                    }
                }
                Pattern::ContiguousMasked | Pattern::SameOfEight | Pattern::Scattered => memory.before_stores(&at.0, mask, to, bytes as u32),
            }
        }
        Some(CoalescedAccess { mask, bytes, start: found.wrapping_sub(ahead as usize), pattern, writable: access != Access::Load, at, to, memory: PhantomData })
    }
}

macro_rules! cells {
    ($($update:ident $($add:ident)?: $ty:ty, $atomic:ty;)*) => {
        /// Atomic operations on the bytes of a lane of the mask.
        impl CoalescedAccess<'_, false> {$(
            /// Atomically replaces the value by a function of it. Returns the old value.
            #[inline(always)]
            pub fn $update(&self, lane: usize, f: impl Fn($ty) -> $ty) -> $ty {
                let cell = self.cell::<$ty>(lane);
                // SAFETY: by the invariant the bytes are valid for writes and aligned; `cell` has
                // checked that the lane is in the mask and the memory writable.
                unsafe { <$atomic>::from_ptr(cell) }.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
            }
            $(
                /// Atomically adds to the value. Returns the old value.
                #[inline(always)]
                pub fn $add(&self, lane: usize, value: $ty) -> $ty {
                    let cell = self.cell::<$ty>(lane);
                    // SAFETY: by the invariant the bytes are valid for writes and aligned; `cell`
                    // has checked that the lane is in the mask and the memory writable.
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
    /// Replaces a lane's value by a function of it. Returns the old value.
    #[inline(always)]
    pub fn replace_value<W: Word>(&self, lane: usize, f: impl Fn(W) -> W) -> W {
        let cell = self.cell::<W>(lane);
        // SAFETY: by the invariant the bytes are valid for writes; `cell` has checked that the lane
        // is in the mask and the slice writable.
        unsafe {
            let old = cell.read_unaligned();
            cell.write_unaligned(f(old));
            old
        }
    }

    /// Finds bytes of the slice of `length` bytes at `from`; addresses are offsets into it. `None`
    /// if they do not lie in it.
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

    /// Finds bytes of a slice to read. `None` if they do not lie in it.
    #[inline(always)]
    pub fn in_slice(slice: &'a [u8], at: &'a PerLane64, mask: u32, shape: &AddressShape, bytes: u64) -> Option<Self> {
        CoalescedAccess::in_bytes(slice.as_ptr().cast_mut(), slice.len(), at, mask, shape, bytes, false)
    }

    /// Finds bytes of a slice to write. `None` if they do not lie in it.
    #[inline(always)]
    pub fn in_slice_mut(slice: &'a mut [u8], at: &'a PerLane64, mask: u32, shape: &AddressShape, bytes: u64) -> Option<Self> {
        CoalescedAccess::in_bytes(slice.as_mut_ptr(), slice.len(), at, mask, shape, bytes, true)
    }
}

impl<const OWN: bool> CoalescedAccess<'_, OWN> {
    /// Where a lane's bytes lie, to write them. Panics if the lane is not in the mask or the memory
    /// not writable.
    #[inline(always)]
    fn cell<W>(&self, lane: usize) -> *mut W {
        assert!(self.writable && self.mask >> lane & 1 != 0);
        self.pointer::<W>(lane, 0).cast()
    }

    /// Where the value `offset` bytes behind a lane's address lies. Panics if it is not inside the
    /// access.
    #[inline(always)]
    fn pointer<W>(&self, lane: usize, offset: usize) -> *mut u8 {
        assert!((offset + size_of::<W>()) as u64 <= self.bytes);
        let at = match self.pattern {
            Pattern::Broadcast => self.start,
            Pattern::Contiguous | Pattern::ContiguousMasked => self.start.wrapping_add(lane * self.bytes as usize),
            Pattern::RowsOfEight | Pattern::SameOfEight | Pattern::Scattered => self.to.wrapping_add(self.at.0[lane] as usize),
        };
        at.wrapping_add(offset)
    }

    /// Whether the lanes are rows of eight of this type. Not for larger types, which may stand for
    /// vectors: those must be read and written whole.
    #[inline(always)]
    fn is_row_of_words<W>(&self) -> bool {
        self.pattern == Pattern::RowsOfEight && size_of::<W>() as u64 == self.bytes && size_of::<W>() <= 4
    }

    /// Reads the value `offset` bytes behind each lane's address. Not inlined: it has many
    /// instances, and the call costs little beside the loop.
    #[inline(never)]
    pub fn gather<W: Word + Default, T: Copy>(&self, offset: usize, into: &mut [T; LANES], widen: impl Fn(W) -> T) {
        if self.is_row_of_words::<W>() {
            assert!(offset == 0);
            for from in (0..LANES).step_by(GROUP) {
                let mut row = [W::default(); GROUP];
                // SAFETY: by the invariant the bytes of all 32 lanes are valid for reads; those of
                // eight lanes follow each other, and `row` is as large as they are. It is not
                // memory of programs, so it does not overlap with them.
                unsafe { row.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(self.to.wrapping_add(self.at.0[from] as usize), size_of_val(&row)) };
                for lane in 0..GROUP {
                    into[from + lane] = widen(row[lane]);
                }
            }
            return;
        }
        if self.pattern == Pattern::SameOfEight {
            let to = self.to.wrapping_add(offset);
            assert!((offset + size_of::<W>()) as u64 <= self.bytes);
            for from in (0..LANES).step_by(GROUP) {
                // SAFETY: by the invariant the bytes of the lane are valid for reads and aligned;
                // the value lies inside them, as checked.
                let value = widen(unsafe { W::read::<OWN>(to.wrapping_add(self.at.0[from] as usize)) });
                for lane in 0..GROUP {
                    into[from + lane] = value;
                }
            }
            return;
        }
        if self.pattern.needs_addresses() {
            // Without `pointer`, so that the loop of the usual case has no branches.
            let to = self.to.wrapping_add(offset);
            assert!((offset + size_of::<W>()) as u64 <= self.bytes);
            // SAFETY: by the invariant the bytes of the mask's lanes are valid for reads and
            // aligned; the value lies inside them, as checked.
            return for_each_lane(self.mask, |lane| into[lane] = widen(unsafe { W::read::<OWN>(to.wrapping_add(self.at.0[lane] as usize)) }));
        }
        // SAFETY: by the invariant the bytes of the mask's lanes are valid for reads and aligned;
        // `pointer` checks that the value lies inside them.
        for_each_lane(self.mask, |lane| into[lane] = widen(unsafe { W::read::<OWN>(self.pointer::<W>(lane, offset)) }));
    }

    /// Writes each lane's value `offset` bytes behind its address.
    #[inline(never)]
    pub fn scatter<W: Word + Default, T: Copy>(&self, offset: usize, from: &[T; LANES], cut: impl Fn(T) -> W) {
        assert!(self.writable);
        if self.is_row_of_words::<W>() {
            assert!(offset == 0);
            for at in (0..LANES).step_by(GROUP) {
                let mut row = [W::default(); GROUP];
                for lane in 0..GROUP {
                    row[lane] = cut(from[at + lane]);
                }
                // SAFETY: by the invariant the bytes of all 32 lanes are valid for writes; those of
                // eight lanes follow each other, and `row` is as large as they are. It is not
                // memory of programs, so it does not overlap with them.
                unsafe { self.to.wrapping_add(self.at.0[at] as usize).copy_from_nonoverlapping(row.as_ptr().cast::<u8>(), size_of_val(&row)) };
            }
            return;
        }
        if self.pattern.needs_addresses() {
            let to = self.to.wrapping_add(offset);
            assert!((offset + size_of::<W>()) as u64 <= self.bytes);
            // SAFETY: by the invariant the bytes of the mask's lanes are valid for writes and
            // aligned; the value lies inside them, as checked.
            return for_each_lane(self.mask, |lane| unsafe { W::write::<OWN>(to.wrapping_add(self.at.0[lane] as usize), cut(from[lane])) });
        }
        // SAFETY: by the invariant the bytes of the mask's lanes are valid for writes and aligned;
        // `pointer` checks that the value lies inside them.
        for_each_lane(self.mask, |lane| unsafe { W::write::<OWN>(self.pointer::<W>(lane, offset), cut(from[lane])) });
    }

    /// The value `offset` bytes behind the address of the lowest lane.
    #[inline(always)]
    pub fn read_broadcast<W: Word>(&self, offset: usize) -> W {
        // SAFETY: by the invariant the bytes of the mask's lowest lane are valid for reads and
        // aligned; `pointer` checks that the value lies inside them.
        unsafe { W::read::<OWN>(self.pointer::<W>((self.mask.trailing_zeros() & 31) as usize, offset)) }
    }

    /// Reads a row: `N` words of each of 32 lanes. The bytes of one lane are read in one access, up
    /// to 16 of them, because programs rely on a status and a value in one vector being written
    /// together.
    #[inline(always)]
    pub fn read_row<W: Word + Default, const N: usize>(&self) -> [[W; N]; LANES] {
        let mut out = [[W::default(); N]; LANES];
        assert!(self.pattern == Pattern::Contiguous && self.bytes == size_of::<[W; N]>() as u64);
        let into = out.as_mut_ptr().cast::<u8>();
        // SAFETY: by the invariant the bytes of all 32 lanes of a row are valid for reads and
        // aligned; the check above makes `out` as large as they are, and integers may have any
        // bytes.
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

    /// Reads a row of one word a lane.
    #[inline(always)]
    pub fn read_row_into<W: Word>(&self, into: &mut [W; LANES]) {
        assert!(self.pattern == Pattern::Contiguous && self.bytes == size_of::<W>() as u64);
        // SAFETY: by the invariant the bytes of all 32 lanes of a row are valid for reads; the
        // check above makes `into` as large as they are. Registers are not memory of programs, so
        // they do not overlap.
        unsafe { into.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(self.start, size_of_val(into)) };
    }

    /// Writes a row, as [`read_row`](Self::read_row) reads it.
    #[inline(always)]
    pub fn write_row<W: Word, const N: usize>(&self, from: &[[W; N]; LANES]) {
        assert!(self.pattern == Pattern::Contiguous && self.bytes == size_of::<[W; N]>() as u64 && self.writable);
        let bytes = from.as_ptr().cast::<u8>();
        // SAFETY: by the invariant the bytes of all 32 lanes of a row are valid for writes and
        // aligned; the check above makes `from` as large as they are.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of 64-bit addresses and of the same as 32-bit addresses.
    fn both_shapes(at: [u64; LANES], mask: u32, step: u64) -> AddressShape {
        let wide = AddressShape::of_addresses(&PerLane(at), mask, step);
        let short = AddressShape::of_short_addresses(&PerLane(at.map(|at| at as u32)), mask, step);
        assert_eq!((wide.low, wide.high, wide.any, wide.pattern), (short.low, short.high, short.any, short.pattern), "{at:?} {mask:#x} {step}");
        wide
    }

    fn lanes(f: impl Fn(u64) -> u64) -> [u64; LANES] {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn rows_and_single_addresses_are_recognised() {
        for step in [1, 2, 4, 8, 16, 32] {
            for mask in [u32::MAX, 1, 0x8000_0000, 0xf0f0, 0x8000_0001] {
                let (first, last) = (u64::from(mask.trailing_zeros()), u64::from(31 - mask.leading_zeros()));
                // Lanes outside of the mask may have any address.
                let on = |lane: u64, at: u64| if mask >> lane & 1 == 0 { 0xdead } else { at };
                let row = both_shapes(lanes(|lane: u64| on(lane, 0x1000 + step * lane)), mask, step);
                assert_eq!((row.low, row.high), (0x1000 + step * first, 0x1000 + step * last), "{mask:#x} {step}");
                assert_eq!(row.pattern, if first == last { Pattern::Broadcast } else { Pattern::Contiguous }, "{mask:#x} {step}");
                assert_eq!(row.any & (step - 1), 0, "it is aligned");
                let one = both_shapes(lanes(|lane| on(lane, 0x1230)), mask, step);
                assert_eq!((one.low, one.high, one.any, one.pattern), (0x1230, 0x1230, 0x1230, Pattern::Broadcast));
            }
        }
    }

    #[test]
    fn rows_of_eight_lanes_are_recognised() {
        for step in [1, 2, 4, 8, 16, 32] {
            let starts = [0x4000, 0x1000, 0x1000 + 8 * step, 0x9000];
            let rows = lanes(|lane| starts[lane as usize / 8] + step * (lane % 8));
            let found = both_shapes(rows, u32::MAX, step);
            assert_eq!((found.low, found.high, found.pattern), (0x1000, 0x9000 + 7 * step, Pattern::RowsOfEight), "{step}");
            assert_eq!(found.any & (step - 1), 0, "it is aligned");
            let same = both_shapes(lanes(|lane| starts[lane as usize / 8]), u32::MAX, step);
            assert_eq!((same.low, same.high, same.pattern), (0x1000, 0x9000, Pattern::SameOfEight), "{step}");
            // One lane is elsewhere, or does not take part.
            let bent = lanes(|lane| rows[lane as usize] + if lane == 21 { step } else { 0 });
            assert_eq!((both_shapes(bent, u32::MAX, step).pattern, both_shapes(rows, !1, step).pattern), (Pattern::Scattered, Pattern::Scattered));
        }
        let misaligned = both_shapes(lanes(|lane| 0x1000 + 0x100 * (lane / 8) + 4 * (lane % 8) + lane / 24), u32::MAX, 4);
        assert_eq!((misaligned.pattern, misaligned.any & 3), (Pattern::RowsOfEight, 1));
        // A row that wraps around is none.
        let wraps = lanes(|lane| if lane < 8 { 4 * lane } else { 0xffff_ffff_ffff_fff0_u64.wrapping_add(4 * (lane % 8)) });
        assert_eq!(AddressShape::of_addresses(&PerLane(wraps), u32::MAX, 4).pattern, Pattern::Scattered);
    }

    #[test]
    fn rows_of_eight_lanes_have_the_bytes_of_their_lanes() {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(1024).collect();
        let starts = [512, 40, 36, 96];
        for same in [false, true] {
            let at = PerLane(lanes(|lane| starts[lane as usize / 8] + if same { 0 } else { 4 * (lane % 8) }));
            let shape = AddressShape::of_addresses(&at, u32::MAX, 4);
            let word = |bytes: &[u8], at: u64| u32::from_le_bytes(bytes[at as usize..at as usize + 4].try_into().unwrap());
            let mut got = [0; LANES];
            CoalescedAccess::in_slice(&bytes, &at, u32::MAX, &shape, 4).unwrap().gather(0, &mut got, |word: u32| word);
            assert_eq!(got, at.0.map(|at| word(&bytes, at)), "{:?}", shape.pattern);
            // The second row lies above the third by a word: of two lanes with one place, the later
            // one wins.
            let mut expected = bytes.clone();
            let values: [u32; LANES] = std::array::from_fn(|lane| 0x0101_0101 * lane as u32);
            for (at, value) in at.0.iter().zip(values) {
                expected[*at as usize..*at as usize + 4].copy_from_slice(&value.to_le_bytes());
            }
            CoalescedAccess::in_slice_mut(&mut bytes, &at, u32::MAX, &shape, 4).unwrap().scatter(0, &values, |word| word);
            assert_eq!(bytes, expected, "{:?}", shape.pattern);
        }
        let at = PerLane(lanes(|lane| 1024 - 32 - 32 * (lane / 8) + 4 * (lane % 8) + 4));
        let shape = AddressShape::of_addresses(&at, u32::MAX, 4);
        assert_eq!(shape.pattern, Pattern::RowsOfEight);
        assert!(CoalescedAccess::in_slice(&bytes, &at, u32::MAX, &shape, 4).is_none(), "its last word lies behind the end");
    }

    #[test]
    fn other_addresses_are_scattered() {
        let shape = |f: &dyn Fn(u64) -> u64| both_shapes(lanes(f), u32::MAX, 4);
        let others: [&dyn Fn(u64) -> u64; 4] =
            [&|lane: u64| 0x1000 + 8 * lane, &|lane: u64| 0x1000 + 2 * lane, &|lane: u64| 0x2000 - 4 * lane, &|lane: u64| 0x1000 + 4 * (lane ^ 1)];
        for f in others {
            let found = shape(f);
            let all = lanes(f);
            let wanted = (all.iter().min().copied(), all.iter().max().copied(), all.iter().fold(0, |any, at| any | at));
            assert_eq!((Some(found.low), Some(found.high), found.any, found.pattern), (wanted.0, wanted.1, wanted.2, Pattern::Scattered));
        }
        // The outermost lanes are as in a row, and one in the middle is not.
        let bent = shape(&|lane: u64| 0x1000 + 4 * lane + u64::from(lane == 7));
        assert_eq!((bent.pattern, bent.any & 3), (Pattern::Scattered, 1), "and one is not aligned");
    }
}
