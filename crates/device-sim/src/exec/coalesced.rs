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
//!   [`Pattern::SameOfEight`] the mask has all lanes, and `at` has their addresses as the pattern
//!   says.
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
use super::shape::{AddressShape, GROUP, Pattern};
use crate::simd::lanes::{LANES, PerLane64};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

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
    use crate::simd::lanes::PerLane;

    fn lanes(f: impl Fn(u64) -> u64) -> [u64; LANES] {
        std::array::from_fn(|lane| f(lane as u64))
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
}
