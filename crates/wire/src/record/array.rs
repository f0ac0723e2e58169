//! Arrays, and texture and surface objects, where the device's driver makes them: what a client
//! asks for, as words of a record. The numbers in it are CUDA's.
//!
//! A client names an array by a number that it has minted, and a level of a mipmapped array by the
//! array's number and the level. It names an object by the handle that the driver gave.

use super::fields::{Field, Reader};
use super::{CopyExtent, DecodeError, span};
use crate::texture::{Channel, MOST_LEVELS};
use cumux_abi::{
    CUDA_ARRAY3D_COLOR_ATTACHMENT, CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST, CUDA_ARRAY3D_TEXTURE_GATHER, CUarray_format,
};

/// The flags of arrays that are served. The last one is for other graphics interfaces and means
/// nothing here.
pub const ARRAY_FLAGS: u32 =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT;

/// No dimension of an array has so many texels on any card.
const MOST_TEXELS: u64 = 1 << 18;

/// Bytes, rows and slices of the tiles in which a card may store an array, and what it allocates at
/// least. A card chooses smaller tiles for smaller arrays.
const TILE_BYTES: u64 = 64;
const TILE_ROWS: [u64; 2] = [8, 128];
const TILE_SLICES: u64 = 32;
const PAGE: u64 = 64 << 10;

/// An array, as `cuArray3DCreate` and `cuMipmappedArrayCreate` describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArrayWish {
    /// Width, height and depth in texels. A height or depth of 0 is a dimension that is not there.
    pub size: [u64; 3],
    /// A `CUarray_format`.
    pub format: u32,
    /// Channels of a texel: 1, 2 or 4.
    pub channels: u32,
    /// Some of [`ARRAY_FLAGS`].
    pub flags: u32,
    /// Levels of a mipmapped array; 0 for an array that is none.
    pub levels: u32,
}

/// The smallest multiple of a tile's side that holds so many. The tile is at most `most` long, and
/// no longer than what it holds needs.
fn in_tiles(count: u64, most: u64) -> u64 {
    count.next_multiple_of(count.next_power_of_two().min(most))
}

impl ArrayWish {
    /// Bytes of a texel.
    #[must_use]
    pub fn texel(&self) -> u64 {
        Channel::of(CUarray_format(self.format)).map_or(0, |channel| u64::from(channel.bytes()) * u64::from(self.channels))
    }

    /// How many levels it has: one without mipmaps.
    #[must_use]
    pub fn level_count(&self) -> u32 {
        self.levels.max(1)
    }

    /// True if its third dimension counts layers or faces, of which every level has all.
    fn is_layered(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
    }

    /// Bytes of a row, rows, and slices or layers of a level, as copies count them.
    #[must_use]
    pub fn level_bytes(&self, level: u32) -> [u64; 3] {
        let halved = |count: u64| (count >> level.min(u64::BITS - 1)).max(1);
        let [width, height, depth] = self.size;
        [halved(width) * self.texel(), halved(height), if self.is_layered() { depth.max(1) } else { halved(depth) }]
    }

    /// What a client is charged for it: more than a card's tiles take. The driver says the size
    /// only of arrays that are made without memory.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        let of_level = |level| {
            let [row, rows, slices] = self.level_bytes(level);
            let slices = if self.is_layered() { slices } else { in_tiles(slices, TILE_SLICES) };
            row.next_multiple_of(TILE_BYTES) * in_tiles(rows.max(TILE_ROWS[0]), TILE_ROWS[1]) * slices
        };
        (0..self.level_count()).map(of_level).sum::<u64>().next_multiple_of(PAGE)
    }

    /// True if a copy of this extent from this byte of a row, this row and this slice of a level
    /// stays inside, and begins and ends between texels.
    #[must_use]
    pub fn holds(&self, level: u32, at: [u64; 3], extent: CopyExtent) -> bool {
        let fits = |from: u64, count: u64, limit: u64| from.checked_add(count).is_some_and(|end| end <= limit);
        let [row, rows, slices] = self.level_bytes(level);
        let [x, y, z] = at;
        let is_inside = fits(x, extent.width, row) && fits(y, extent.height, rows) && fits(z, extent.depth, slices);
        let texel = self.texel().max(1);
        level < self.level_count() && is_inside && x.is_multiple_of(texel) && extent.width.is_multiple_of(texel)
    }
}

impl Field for ArrayWish {
    fn write(&self, out: &mut Vec<u8>) {
        self.size.write(out);
        [self.format, self.channels, self.flags, self.levels].write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let size: [u64; 3] = Field::read(reader)?;
        let [format, channels, flags, levels] = Field::read(reader)?;
        if size[0] == 0 || size.iter().any(|count| *count >= MOST_TEXELS) {
            return Err(DecodeError::Field("array size"));
        }
        let is_known = Channel::of(CUarray_format(format)).is_some() && matches!(channels, 1 | 2 | 4) && flags & !ARRAY_FLAGS == 0;
        if !is_known || levels as usize > MOST_LEVELS {
            return Err(DecodeError::Field("array format"));
        }
        Ok(Self { size, format, channels, flags, levels })
    }
}

/// One end of a copy that an array takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnd {
    /// Memory in the arena or in the client's window.
    Memory {
        /// Address of the first byte.
        address: u64,
        /// Bytes from row to row.
        pitch: u64,
        /// Bytes from slice to slice.
        slice: u64,
    },
    /// A level of an array.
    Array {
        /// The array's number; not 0.
        array: u32,
        /// The level; 0 for an array without mipmaps.
        level: u32,
        /// The first byte of a row, the first row, and the first slice or layer.
        at: [u64; 3],
    },
}

impl CopyEnd {
    /// The address; `None` for an array.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        match self {
            CopyEnd::Memory { address, .. } => Some(*address),
            CopyEnd::Array { .. } => None,
        }
    }
}

impl Field for CopyEnd {
    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            CopyEnd::Memory { address, pitch, slice } => {
                [0_u32, 0].write(out);
                [address, pitch, slice].write(out);
            }
            CopyEnd::Array { array, level, at } => {
                [array, level].write(out);
                at.write(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [array, level]: [u32; 2] = Field::read(reader)?;
        let at: [u64; 3] = Field::read(reader)?;
        let [address, pitch, slice] = at;
        match (array, level) {
            (0, 0) => Ok(CopyEnd::Memory { address, pitch, slice }),
            (0, _) => Err(DecodeError::Field("array of a copy")),
            _ => Ok(CopyEnd::Array { array, level, at }),
        }
    }
}

/// Refuses a copy between two places in memory, which has a record of its own, and rectangles that
/// do not fit 64 bits.
pub(super) fn check_ends(target: &CopyEnd, source: &CopyEnd, extent: CopyExtent) -> Result<(), DecodeError> {
    if target.address().is_some() && source.address().is_some() {
        return Err(DecodeError::Field("ends of a copy"));
    }
    let fits = |end: &CopyEnd| match *end {
        CopyEnd::Memory { address, pitch, slice } => span(address, pitch, slice, extent).is_some(),
        CopyEnd::Array { .. } => true,
    };
    if fits(target) && fits(source) { Ok(()) } else { Err(DecodeError::Field("copy extent")) }
}

/// What a texture or surface object shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A level of an array.
    Array {
        /// The array's number.
        array: u32,
        /// The level; 0 for an array without mipmaps.
        level: u32,
    },
    /// All levels of a mipmapped array.
    Mipmapped {
        /// The array's number.
        array: u32,
    },
    /// Memory, one texel after the other.
    Linear {
        /// Address of the first texel.
        address: u64,
        /// A `CUarray_format`.
        format: u32,
        /// Channels of a texel.
        channels: u32,
        /// Bytes of all texels.
        bytes: u64,
    },
    /// Rows of texels in memory.
    Pitched {
        /// Address of the first texel.
        address: u64,
        /// A `CUarray_format`.
        format: u32,
        /// Channels of a texel.
        channels: u32,
        /// Texels of a row, rows, and bytes from row to row.
        size: [u64; 3],
    },
}

impl Field for Resource {
    fn write(&self, out: &mut Vec<u8>) {
        let (words, numbers) = match *self {
            Resource::Array { array, level } => ([0, array, level, 0], [0; 4]),
            Resource::Mipmapped { array } => ([1, array, 0, 0], [0; 4]),
            Resource::Linear { address, format, channels, bytes } => ([2, 0, format, channels], [address, bytes, 0, 0]),
            Resource::Pitched { address, format, channels, size: [width, height, pitch] } => ([3, 0, format, channels], [address, width, height, pitch]),
        };
        words.write(out);
        numbers.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [kind, array, first, second]: [u32; 4] = Field::read(reader)?;
        let [address, one, two, three]: [u64; 4] = Field::read(reader)?;
        Ok(match kind {
            0 => Resource::Array { array, level: first },
            1 => Resource::Mipmapped { array },
            2 => Resource::Linear { address, format: first, channels: second, bytes: one },
            3 => Resource::Pitched { address, format: first, channels: second, size: [one, two, three] },
            _ => return Err(DecodeError::Field("resource")),
        })
    }
}

/// `CUDA_TEXTURE_DESC`. Real numbers are their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextureWish {
    /// A `CUaddress_mode` for each dimension.
    pub address: [u32; 3],
    /// A `CUfilter_mode`, within a level.
    pub filter: u32,
    /// A `CUfilter_mode`, between levels.
    pub level_filter: u32,
    /// `CU_TRSF_*`.
    pub flags: u32,
    /// `maxAnisotropy`.
    pub anisotropy: u32,
    /// `mipmapLevelBias`.
    pub level_bias: u32,
    /// `minMipmapLevelClamp` and `maxMipmapLevelClamp`.
    pub levels: [u32; 2],
    /// `borderColor`.
    pub border: [u32; 4],
}

impl Field for TextureWish {
    fn write(&self, out: &mut Vec<u8>) {
        self.address.write(out);
        [self.filter, self.level_filter, self.flags, self.anisotropy, self.level_bias].write(out);
        self.levels.write(out);
        self.border.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let address = Field::read(reader)?;
        let [filter, level_filter, flags, anisotropy, level_bias] = Field::read(reader)?;
        let (levels, border) = (Field::read(reader)?, Field::read(reader)?);
        Ok(Self { address, filter, level_filter, flags, anisotropy, level_bias, levels, border })
    }
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViewWish {
    /// A `CUresourceViewFormat`.
    pub format: u32,
    /// First and last level, first and last layer.
    pub ranges: [u32; 4],
    /// Width, height and depth.
    pub size: [u64; 3],
}

impl Field for ViewWish {
    fn write(&self, out: &mut Vec<u8>) {
        self.format.write(out);
        self.ranges.write(out);
        self.size.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { format: Field::read(reader)?, ranges: Field::read(reader)?, size: Field::read(reader)? })
    }
}

/// A texture object, or a surface object: one without `texture`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectWish {
    /// What it shows.
    pub resource: Resource,
    /// How it is sampled.
    pub texture: Option<TextureWish>,
    /// Which part of the resource it shows, if the program says so.
    pub view: Option<ViewWish>,
}

impl Field for ObjectWish {
    fn write(&self, out: &mut Vec<u8>) {
        self.resource.write(out);
        [self.texture.is_some(), self.view.is_some()].write(out);
        self.texture.unwrap_or_default().write(out);
        self.view.unwrap_or_default().write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let resource = Field::read(reader)?;
        let [is_texture, has_view]: [bool; 2] = Field::read(reader)?;
        let (texture, view) = (Field::read(reader)?, Field::read(reader)?);
        Ok(Self { resource, texture: Some(texture).filter(|_| is_texture), view: Some(view).filter(|_| has_view) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(size: [u64; 3], flags: u32, levels: u32) -> ArrayWish {
        ArrayWish { size, format: CUarray_format::CU_AD_FORMAT_FLOAT.0, channels: 2, flags, levels }
    }

    #[test]
    fn levels_are_halved_and_layers_are_not() {
        assert_eq!(wish([20, 6, 5], 0, 4).level_bytes(2), [5 * 8, 1, 1]);
        assert_eq!(wish([20, 6, 5], CUDA_ARRAY3D_LAYERED, 4).level_bytes(3), [2 * 8, 1, 5]);
        assert_eq!(wish([20, 0, 0], 0, 0).level_bytes(0), [20 * 8, 1, 1]);
        assert_eq!(wish([4, 4, 6], CUDA_ARRAY3D_CUBEMAP, 0).level_bytes(0), [4 * 8, 4, 6]);
    }

    #[test]
    fn a_client_is_charged_for_more_than_the_texels() {
        for (size, flags) in [([1, 0, 0], 0), ([1000, 700, 0], 0), ([99, 98, 97], 0), ([64, 0, 9], CUDA_ARRAY3D_LAYERED), ([131_072, 65_536, 0], 0)] {
            for levels in [0, 1, 5] {
                let wish = wish(size, flags, levels);
                let texels: u64 = (0..wish.level_count()).map(|level| wish.level_bytes(level).iter().product::<u64>()).sum();
                assert!(wish.charged_bytes() >= texels && wish.charged_bytes().is_multiple_of(PAGE), "{wish:?}");
            }
        }
        assert_eq!(wish([1024, 1024, 0], 0, 0).charged_bytes(), 8 << 20, "whole tiles are not rounded");
        assert_eq!(wish([1024, 1025, 0], 0, 0).charged_bytes(), 9 << 20);
    }

    #[test]
    fn copies_stay_inside() {
        let extent = |width, height, depth| CopyExtent { width, height, depth };
        let array = wish([9, 4, 3], 0, 2);
        assert!(array.holds(0, [8, 1, 2], extent(64, 3, 1)) && array.holds(1, [0; 3], extent(32, 2, 1)));
        for (level, at, extent) in [
            (0, [8, 0, 0], extent(72, 1, 1)),
            (0, [0, 2, 0], extent(8, 3, 1)),
            (0, [0, 0, 3], extent(8, 1, 1)),
            (0, [4, 0, 0], extent(8, 1, 1)),
            (0, [0, 0, 0], extent(12, 1, 1)),
            (0, [u64::MAX - 7, 0, 0], extent(8, 1, 1)),
            (1, [0, 0, 0], extent(40, 1, 1)),
            (2, [0, 0, 0], extent(8, 1, 1)),
        ] {
            assert!(!array.holds(level, at, extent), "{level} {at:?} {extent:?}");
        }
    }
}
