//! Tensor maps: descriptions of tensors for the card's copy engine.

use super::context::Driver;
use crate::fault::{Call, CudaError};
use core::ptr::with_exposed_provenance_mut;
use cumux_abi::types as t;
use cumux_device::TensorWish;

/// Bytes of a `CUtensorMap`.
const TENSOR_MAP_BYTES: usize = size_of::<t::CUtensorMap>();

impl Driver {
    /// Encodes a `CUtensorMap`; returns its bytes.
    ///
    /// # Errors
    /// The driver's, for a tensor that cannot be described.
    pub(crate) fn encode_tensor(&self, wish: &TensorWish) -> Call<[u8; TENSOR_MAP_BYTES]> {
        let table = self.table()?;
        if wish.rank as usize > wish.dimensions.len() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut map = t::CUtensorMap::default();
        let address = with_exposed_provenance_mut(wish.address as usize);
        let (kind, interleave) = (t::CUtensorMapDataType(wish.data_type), t::CUtensorMapInterleave(wish.interleave));
        let (swizzle, l2, fill) = (t::CUtensorMapSwizzle(wish.swizzle), t::CUtensorMapL2promotion(wish.l2), t::CUtensorMapFloatOOBfill(wish.fill));
        let (dimensions, strides, elements) = (wish.dimensions.as_ptr(), wish.strides.as_ptr(), wish.element_strides.as_ptr());
        // For im2col, the words of `first` are the lower corner (3, signed), channels and pixels.
        let (lower, upper) = (wish.first.map(u32::cast_signed), wish.upper.map(u32::cast_signed));
        let [.., channels, pixels] = wish.first;
        // SAFETY: both calls read at most as many entries of each array as the rank says. The rank
        // is at most the arrays' length, which was checked above. Both write one map, a local, and
        // treat the tensor's address as a number.
        let encoded = unsafe {
            if wish.im2col {
                (table.cuTensorMapEncodeIm2col)(
                    &raw mut map,
                    kind,
                    wish.rank,
                    address,
                    dimensions,
                    strides,
                    lower.as_ptr(),
                    upper.as_ptr(),
                    channels,
                    pixels,
                    elements,
                    interleave,
                    swizzle,
                    l2,
                    fill,
                )
            } else {
                (table.cuTensorMapEncodeTiled)(
                    &raw mut map,
                    kind,
                    wish.rank,
                    address,
                    dimensions,
                    strides,
                    wish.first.as_ptr(),
                    elements,
                    interleave,
                    swizzle,
                    l2,
                    fill,
                )
            }
        };
        CudaError::check(encoded)?;
        let mut bytes = [0; TENSOR_MAP_BYTES];
        for (target, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(map.opaque) {
            target.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}
