//! Tensor maps (`CUtensorMap`): what a kernel's copies of boxes of tensors are told.
//!
//! On a card the 128 bytes are opaque. Here they are the words below, each at its own place, so
//! that `tensormap.replace` is a store. Numbers are those of PTX (*tensormap.replace*). For types
//! they differ from the driver's. A map that a kernel has made of zeros and replaced fields is one,
//! too: it is checked when it is used.

use cumux_abi::CUtensorMapDataType as T;
use cumux_device::DeviceError;
use cumux_wire::record::TensorWish;

/// Bytes of a map.
pub(crate) const MAP_BYTES: usize = 128;
/// Dimensions of a tensor, at most.
pub(crate) const MOST_DIMENSIONS: usize = 5;

/// Bytes of a box, at most: more than any block's shared memory.
const MOST_BOX_BYTES: u64 = 1 << 20;

/// Where the fields of a map are.
pub(crate) mod place {
    pub const ADDRESS: usize = 0;
    /// Elements of each dimension, 32 bits each; 0 is 2^32.
    pub const DIMENSIONS: usize = 8;
    /// Dimensions less one.
    pub const RANK: usize = 28;
    /// Bytes from element to element of the dimensions after the first, 64 bits each.
    pub const STRIDES: usize = 32;
    /// Elements of the box.
    pub const BOX: usize = 64;
    /// Elements from one that is taken to the next.
    pub const STEPS: usize = 84;
    pub const TYPE: usize = 104;
    pub const INTERLEAVE: usize = 108;
    pub const SWIZZLE: usize = 112;
    pub const FILL: usize = 116;
}

/// A map whose fields were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorMap {
    pub address: u64,
    pub rank: usize,
    /// Elements of each dimension; 1 behind the last.
    pub dimensions: [u64; MOST_DIMENSIONS],
    /// Bytes from element to element of each dimension.
    pub strides: [u64; MOST_DIMENSIONS],
    /// Elements that a copy takes of each dimension; 1 behind the last.
    pub counts: [u32; MOST_DIMENSIONS],
    /// Elements from one that is taken to the next.
    pub steps: [u32; MOST_DIMENSIONS],
    /// Bytes of an element.
    pub bytes: u32,
    /// Bytes of a row of the swizzled pattern; 16 without.
    pub width: u32,
    /// The bits of an element outside of the tensor.
    pub outside: u64,
}

/// Bytes of an element by its type, and a NaN.
fn element(number: u32) -> Option<(u32, u64)> {
    Some(match number {
        0 => (1, 0),
        1 => (2, 0),
        2 | 3 => (4, 0),
        4 | 5 => (8, 0),
        6 | 10 => (2, 0x7fff),
        7 => (4, 0x7fff_ffff),
        9 => (8, 0x7fff_ffff_ffff_ffff),
        _ => return None,
    })
}

impl TensorMap {
    /// Reads a map; `None` for one that this device does not know, or that no card would take.
    pub fn read(bytes: &[u8; MAP_BYTES]) -> Option<TensorMap> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let rank = word(place::RANK) as usize + 1;
        let (size, nan) = element(word(place::TYPE))?;
        if rank > MOST_DIMENSIONS || word(place::INTERLEAVE) != 0 || !wide(place::ADDRESS).is_multiple_of(16) {
            return None;
        }
        let mut map = TensorMap {
            address: wide(place::ADDRESS),
            rank,
            dimensions: [1; MOST_DIMENSIONS],
            strides: [0; MOST_DIMENSIONS],
            counts: [1; MOST_DIMENSIONS],
            steps: [1; MOST_DIMENSIONS],
            bytes: size,
            width: [16, 32, 64, 128].get(word(place::SWIZZLE) as usize).copied()?,
            outside: [0, nan].get(word(place::FILL) as usize).copied()?,
        };
        for at in 0..rank {
            let elements = u64::from(word(place::DIMENSIONS + 4 * at));
            map.dimensions[at] = if elements == 0 { 1 << 32 } else { elements };
            map.strides[at] = if at == 0 { size.into() } else { wide(place::STRIDES + 8 * (at - 1)) };
            // The first dimension has no steps where rows are not interleaved.
            map.steps[at] = if at == 0 { 1 } else { word(place::STEPS + 4 * at) };
            let elements = word(place::BOX + 4 * at);
            if !(1..=256).contains(&elements) || !(1..=8).contains(&map.steps[at]) || at > 0 && !map.strides[at].is_multiple_of(16) {
                return None;
            }
            map.counts[at] = elements.div_ceil(map.steps[at]);
        }
        let (row, all) = (map.counts[0] * size, map.counts.iter().map(|count| u64::from(*count)).product::<u64>() * u64::from(size));
        (all <= MOST_BOX_BYTES && row.is_multiple_of(16) && (map.width == 16 || row <= map.width)).then_some(map)
    }

    /// Bytes of a box in shared memory.
    pub fn box_bytes(&self) -> u32 {
        self.counts.iter().product::<u32>() * self.bytes
    }

    /// Where a byte of a box lies in shared memory, given where it would lie without swizzling.
    pub fn swizzle(&self, at: u64) -> u64 {
        swizzle(at, 0, self.width)
    }
}

/// Where a byte of shared memory lies in a pattern with rows of `width` bytes: pieces of 16 bytes
/// change places with each 128 bytes, of which the pattern begins `base` late.
pub(crate) fn swizzle(at: u64, base: u64, width: u32) -> u64 {
    at ^ ((at >> 7).wrapping_sub(base) & u64::from(width / 16 - 1)) << 4
}

/// The map of a wish (CUDA driver API, *Tensor Map Object Managment*).
///
/// # Errors
/// Arguments that no card takes, and kinds of tensors that this device has not.
pub(crate) fn encode(wish: &TensorWish) -> Result<[u8; MAP_BYTES], DeviceError> {
    let lacks = |what: &str| Err(DeviceError::NotSupported(format!("tensor maps {what}")));
    if wish.im2col {
        return lacks("of images (im2col)");
    }
    if wish.interleave != 0 {
        return lacks("with interleaved layouts");
    }
    if wish.swizzle > 3 {
        return lacks("with swizzled pieces of 32 or 64 bytes");
    }
    let number = match T(wish.data_type) {
        T::CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => 9,
        T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => 10,
        T(same @ 0..=7) => same,
        T(10..=15) => return lacks("of elements that a copy changes (tf32, flushed, packed)"),
        _ => return Err(DeviceError::Invalid(format!("{} is no type of a tensor's elements", wish.data_type))),
    };
    let rank = wish.rank as usize;
    let mut map = [0; MAP_BYTES];
    let mut put = |at: usize, word: u32| map[at..at + 4].copy_from_slice(&word.to_le_bytes());
    put(place::RANK, wish.rank.wrapping_sub(1));
    put(place::TYPE, number);
    put(place::SWIZZLE, wish.swizzle);
    put(place::FILL, wish.fill);
    for at in 0..rank.min(MOST_DIMENSIONS) {
        if !(1..=1 << 32).contains(&wish.dimensions[at]) {
            return Err(DeviceError::Invalid(format!("a tensor cannot have {} elements in dimension {at}", wish.dimensions[at])));
        }
        put(place::DIMENSIONS + 4 * at, wish.dimensions[at] as u32);
        put(place::BOX + 4 * at, wish.first[at]);
        put(place::STEPS + 4 * at, wish.element_strides[at]);
    }
    map[place::ADDRESS..place::ADDRESS + 8].copy_from_slice(&wish.address.to_le_bytes());
    for (at, stride) in wish.strides.iter().enumerate().take(rank.saturating_sub(1)) {
        map[place::STRIDES + 8 * at..place::STRIDES + 8 * at + 8].copy_from_slice(&stride.to_le_bytes());
    }
    // Whatever a copy would not take is refused here.
    if TensorMap::read(&map).is_none() {
        return Err(DeviceError::Invalid(format!(
            "no copy takes this tensor: its address and strides are multiples of 16, a box has 1 to 256 elements in each dimension and rows of multiples of 16 bytes, \
             not longer than the swizzled pattern: {wish:?}"
        )));
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> TensorWish {
        TensorWish {
            data_type: T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16.0,
            rank: 2,
            address: 0x1000,
            dimensions: [100, 1 << 32, 0, 0, 0],
            strides: [256, 0, 0, 0],
            first: [64, 8, 0, 0, 0],
            element_strides: [1, 2, 0, 0, 0],
            swizzle: 3,
            fill: 1,
            ..TensorWish::default()
        }
    }

    #[test]
    fn a_map_tells_what_was_wished() {
        let map = TensorMap::read(&encode(&wish()).unwrap()).unwrap();
        assert_eq!((map.address, map.rank, map.bytes, map.width, map.outside), (0x1000, 2, 2, 128, 0x7fff));
        assert_eq!((map.dimensions[..2].to_vec(), map.strides[..2].to_vec()), (vec![100, 1 << 32], vec![2, 256]));
        assert_eq!((map.counts, map.steps, map.box_bytes()), ([64, 4, 1, 1, 1], [1, 2, 1, 1, 1], 512));
        assert_eq!([0, 128 + 16, 7 * 128].map(|at| map.swizzle(at)), [0, 128, 7 * 128 + 7 * 16]);
    }

    #[test]
    fn what_no_card_takes_is_refused() {
        let spoil = |change: &dyn Fn(&mut TensorWish)| {
            let mut spoiled = wish();
            change(&mut spoiled);
            encode(&spoiled).unwrap_err()
        };
        for change in [
            (&|wish: &mut TensorWish| wish.address = 0x1008) as &dyn Fn(&mut TensorWish),
            &|wish| wish.strides[0] = 250,
            &|wish| wish.first[1] = 257,
            &|wish| wish.first[0] = 0,
            &|wish| wish.first[0] = 4,
            &|wish| wish.first[0] = 128,
            &|wish| (wish.rank, wish.first, wish.dimensions, wish.element_strides) = (5, [64, 256, 256, 256, 256], [1; 5], [1; 5]),
            &|wish| wish.dimensions[0] = 0,
            &|wish| wish.dimensions[0] = (1 << 32) + 1,
            &|wish| wish.element_strides[1] = 9,
            &|wish| wish.fill = 2,
            &|wish| wish.data_type = 16,
        ] {
            assert!(matches!(spoil(change), DeviceError::Invalid(_)));
        }
        for change in
            [(&|wish: &mut TensorWish| wish.im2col = true) as &dyn Fn(&mut TensorWish), &|wish| wish.interleave = 1, &|wish| wish.swizzle = 4, &|wish| {
                wish.data_type = T::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32.0
            }]
        {
            assert!(matches!(spoil(change), DeviceError::NotSupported(_)));
        }
    }
}
