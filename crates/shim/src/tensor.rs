//! Descriptions of tensors for the device's copy engine (`CUtensorMap`, 128 opaque bytes).
//!
//! Only the real driver knows the encoding, so the executor asks it. Libraries encode the same few
//! tensors before every launch: what was encoded once is remembered.

use crate::ffi::{Try, error};
use crate::log::unsupported;
use crate::process;
use crate::sync::lock;
use core::ffi::{c_int, c_void};
use cumux_abi as t;
use cumux_wire::record::{Op, TensorWish};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// Remembered descriptions; with more, remembering starts anew.
const REMEMBERED: usize = 4096;
/// Bytes of a map.
const BYTES: u64 = 128;

type Bytes = [u8; BYTES as usize];

/// By wish; and the wish behind each map that was handed out, for [`cuTensorMapReplaceAddress`].
#[derive(Default)]
struct Known {
    maps: HashMap<TensorWish, Bytes>,
    wishes: HashMap<Bytes, TensorWish>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn encode(out: *mut t::CUtensorMap, wish: TensorWish) -> Try {
    let session = process::enter()?;
    if out.is_null() || !out.is_aligned() {
        return Err(error::INVALID_VALUE);
    }
    let known = lock(&KNOWN).maps.get(&wish).copied();
    let bytes = match known {
        Some(bytes) => bytes,
        None => {
            let at = session.window.take_piece(BYTES, BYTES)?;
            let device = crate::context::top().map_or(0, |context| context.device);
            let asked = session.ask(&Op::TensorMap { device, out: at, wish }).map_err(|(code, _)| match code {
                error::NOT_SUPPORTED => unsupported("tensor maps of this kind, which this device has not"),
                other => other,
            });
            let bytes = session.window.read(at, BYTES).and_then(|read| Bytes::try_from(read).ok());
            session.window.return_piece(at);
            asked?;
            let bytes = bytes.ok_or(error::UNKNOWN)?;
            let mut known = lock(&KNOWN);
            if known.maps.len() >= REMEMBERED {
                *known = Known::default();
            }
            known.maps.insert(wish, bytes);
            known.wishes.insert(bytes, wish);
            bytes
        }
    };
    // SAFETY: not null, aligned, and a map of 128 bytes as the caller promises.
    unsafe { out.cast::<Bytes>().write(bytes) };
    Ok(())
}

/// # Safety
/// `from` is null or has `count` values.
unsafe fn list<T: Copy, const N: usize>(from: *const T, count: usize, zero: T) -> Try<[T; N]> {
    let mut values = [zero; N];
    if from.is_null() && count > 0 {
        return Err(error::INVALID_VALUE);
    }
    for (index, place) in values.iter_mut().enumerate().take(count) {
        // SAFETY: the caller promises `count` readable elements.
        *place = unsafe { from.add(index).read() };
    }
    Ok(values)
}

/// What both kinds of map have in common.
///
/// # Safety
/// As the manual says: `dimensions` and `element_strides` have a value for each dimension,
/// `strides` one less.
#[expect(clippy::too_many_arguments, reason = "the driver's own list")]
unsafe fn common(
    data_type: t::CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    element_strides: *const u32,
    interleave: t::CUtensorMapInterleave,
    swizzle: t::CUtensorMapSwizzle,
    l2: t::CUtensorMapL2promotion,
    fill: t::CUtensorMapFloatOOBfill,
) -> Try<TensorWish> {
    if !(1..=5).contains(&rank) {
        return Err(error::INVALID_VALUE);
    }
    let count = rank as usize;
    // SAFETY: the caller promises arrays of these lengths.
    let (dimensions, strides, element_strides) = unsafe { (list(dimensions, count, 0)?, list(strides, count - 1, 0)?, list(element_strides, count, 0)?) };
    Ok(TensorWish {
        data_type: data_type.0,
        rank,
        address: address.addr() as u64,
        dimensions,
        strides,
        element_strides,
        interleave: interleave.0,
        swizzle: swizzle.0,
        l2: l2.0,
        fill: fill.0,
        ..TensorWish::default()
    })
}

#[expect(clippy::too_many_arguments, reason = "the driver's own list")]
pub unsafe fn cuTensorMapEncodeTiled(
    out: *mut t::CUtensorMap,
    data_type: t::CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    tile: *const u32,
    element_strides: *const u32,
    interleave: t::CUtensorMapInterleave,
    swizzle: t::CUtensorMapSwizzle,
    l2: t::CUtensorMapL2promotion,
    fill: t::CUtensorMapFloatOOBfill,
) -> Try {
    // SAFETY: the manual's lengths.
    let (wish, first) = unsafe {
        let wish = common(data_type, rank, address, dimensions, strides, element_strides, interleave, swizzle, l2, fill)?;
        (wish, list(tile, rank as usize, 0)?)
    };
    encode(out, TensorWish { first, ..wish })
}

#[expect(clippy::too_many_arguments, reason = "the driver's own list")]
pub unsafe fn cuTensorMapEncodeIm2col(
    out: *mut t::CUtensorMap,
    data_type: t::CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    lower: *const c_int,
    upper: *const c_int,
    channels: u32,
    pixels: u32,
    element_strides: *const u32,
    interleave: t::CUtensorMapInterleave,
    swizzle: t::CUtensorMapSwizzle,
    l2: t::CUtensorMapL2promotion,
    fill: t::CUtensorMapFloatOOBfill,
) -> Try {
    // SAFETY: the manual's lengths; corners have two values less than there are dimensions.
    let (wish, lower, upper) = unsafe {
        let wish = common(data_type, rank, address, dimensions, strides, element_strides, interleave, swizzle, l2, fill)?;
        let corner = (rank as usize).checked_sub(2).filter(|corner| *corner > 0).ok_or(error::INVALID_VALUE)?;
        (wish, list(lower, corner, 0)?, list(upper, corner, 0)?)
    };
    let [x, y, z] = lower.map(c_int::cast_unsigned);
    encode(out, TensorWish { im2col: true, first: [x, y, z, channels, pixels], upper: upper.map(c_int::cast_unsigned), ..wish })
}

/// A map that this process encoded, for another address.
pub unsafe fn cuTensorMapReplaceAddress(map: *mut t::CUtensorMap, address: *mut c_void) -> Try {
    if map.is_null() || !map.is_aligned() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, aligned, and a map as the caller promises.
    let bytes = unsafe { map.cast::<Bytes>().read() };
    let wish = lock(&KNOWN).wishes.get(&bytes).copied().ok_or(error::INVALID_VALUE)?;
    encode(map, TensorWish { address: address.addr() as u64, ..wish })
}
