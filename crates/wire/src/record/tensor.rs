//! The description of a tensor for the device's copy engine, as words of a record.

use super::DecodeError;
use super::fields::{Field, Reader};

/// The arguments of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`, in their order.
/// Dimensions and strides of unused ranks are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TensorWish {
    /// `cuTensorMapEncodeIm2col` if true, else `cuTensorMapEncodeTiled`.
    pub im2col: bool,
    /// A `CUtensorMapDataType`.
    pub data_type: u32,
    /// Dimensions of the tensor: 1 to 5.
    pub rank: u32,
    /// `globalAddress`, in the arena.
    pub address: u64,
    /// `globalDim`: elements of each dimension.
    pub dimensions: [u64; 5],
    /// Bytes from element to element of the dimensions after the first.
    pub strides: [u64; 4],
    /// Tiled: the box. Im2col: lower corner (3, as two's complement), channels, pixels.
    pub first: [u32; 5],
    /// Im2col: upper corner.
    pub upper: [u32; 3],
    /// `elementStrides`: elements from one taken element to the next, for each dimension.
    pub element_strides: [u32; 5],
    /// A `CUtensorMapInterleave`.
    pub interleave: u32,
    /// A `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// A `CUtensorMapL2promotion`.
    pub l2: u32,
    /// A `CUtensorMapFloatOOBfill`.
    pub fill: u32,
}

impl Field for TensorWish {
    fn write(&self, out: &mut Vec<u8>) {
        self.im2col.write(out);
        [self.data_type, self.rank].write(out);
        self.address.write(out);
        self.dimensions.write(out);
        self.strides.write(out);
        self.first.write(out);
        self.upper.write(out);
        self.element_strides.write(out);
        [self.interleave, self.swizzle, self.l2, self.fill].write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let im2col = Field::read(reader)?;
        let [data_type, rank] = Field::read(reader)?;
        if !(1..=5).contains(&rank) {
            return Err(DecodeError::Field("tensor rank"));
        }
        let address = Field::read(reader)?;
        let (dimensions, strides) = (Field::read(reader)?, Field::read(reader)?);
        let (first, upper, element_strides) = (Field::read(reader)?, Field::read(reader)?, Field::read(reader)?);
        let [interleave, swizzle, l2, fill] = Field::read(reader)?;
        Ok(Self { im2col, data_type, rank, address, dimensions, strides, first, upper, element_strides, interleave, swizzle, l2, fill })
    }
}
