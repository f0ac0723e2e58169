//! What a client wants to know of a tensor map, as words of a record.

use super::DecodeError;
use super::fields::Reader;

/// The arguments of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`, in their order. Dimensions and strides of unused ranks are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TensorWish {
    pub im2col: bool,
    pub data_type: u32,
    /// At most 5.
    pub rank: u32,
    pub address: u64,
    pub dimensions: [u64; 5],
    /// Bytes from element to element of the dimensions after the first.
    pub strides: [u64; 4],
    /// Tiled: the box. Im2col: lower corner (3, as two's complement), channels, pixels.
    pub first: [u32; 5],
    /// Im2col: upper corner.
    pub upper: [u32; 3],
    pub element_strides: [u32; 5],
    pub interleave: u32,
    pub swizzle: u32,
    pub l2: u32,
    pub fill: u32,
}

impl TensorWish {
    const WORDS: usize = 34;

    pub(super) fn words(&self) -> [u64; Self::WORDS] {
        let small = |values: &[u32]| values.iter().map(|v| u64::from(*v)).collect::<Vec<_>>();
        let mut words = vec![u64::from(self.im2col), u64::from(self.data_type), u64::from(self.rank), self.address];
        words.extend(self.dimensions);
        words.extend(self.strides);
        words.extend(small(&self.first));
        words.extend(small(&self.upper));
        words.extend(small(&self.element_strides));
        words.extend(small(&[self.interleave, self.swizzle, self.l2, self.fill]));
        let mut out = [0; Self::WORDS];
        out.iter_mut().zip(words).for_each(|(place, word)| *place = word);
        out
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bad = |_| DecodeError::Field("tensor");
        let small = |r: &mut Reader<'_>| r.u64().and_then(|word| u32::try_from(word).map_err(bad));
        let (im2col, data_type, rank) = (small(r)? != 0, small(r)?, small(r)?);
        if rank == 0 || rank > 5 {
            return Err(DecodeError::Field("tensor rank"));
        }
        let address = r.u64()?;
        let (mut dimensions, mut strides) = ([0; 5], [0; 4]);
        for word in dimensions.iter_mut().chain(&mut strides) {
            *word = r.u64()?;
        }
        let (mut first, mut upper, mut element_strides, mut last) = ([0; 5], [0; 3], [0; 5], [0; 4]);
        for word in first.iter_mut().chain(&mut upper).chain(&mut element_strides).chain(&mut last) {
            *word = small(r)?;
        }
        let [interleave, swizzle, l2, fill] = last;
        Ok(Self { im2col, data_type, rank, address, dimensions, strides, first, upper, element_strides, interleave, swizzle, l2, fill })
    }
}
