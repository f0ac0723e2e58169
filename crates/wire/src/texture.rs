//! What a texture or surface object is: a description in the client's pinned window, whose address
//! is the object's handle.
//!
//! The client writes it when it makes the object, and a device that executes texture instructions
//! itself reads it when a kernel uses the handle. So the object needs no record, and it is still
//! there after a takeover, as the memory is. A client can write whatever it likes there: the device
//! decodes the description at each use ([`Description::decode`]), and each texel is an access to
//! the client's memory like any other.

use cumux_abi::CUarray_format;

/// Levels of a mipmapped array at most: those of 32,768 texels.
pub const MOST_LEVELS: usize = 16;

/// Bytes of a description.
pub const DESCRIPTION_BYTES: usize = 8 * WORDS;

const WORDS: usize = 16 + 3 * MOST_LEVELS;
const MAGIC: u64 = 0x7465_7874_7572_6531;

/// How the bits of a channel are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Unsigned integers of this many bytes.
    Unsigned(u8),
    /// Signed integers of this many bytes.
    Signed(u8),
    /// Half precision.
    Half,
    /// Single precision.
    Single,
}

impl Channel {
    /// The channels of a format of CUDA's; `None` for formats of video, of blocks, and those with a
    /// number of channels of their own.
    #[must_use]
    pub fn of(format: CUarray_format) -> Option<Channel> {
        Some(match format {
            CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8 => Channel::Unsigned(1),
            CUarray_format::CU_AD_FORMAT_UNSIGNED_INT16 => Channel::Unsigned(2),
            CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32 => Channel::Unsigned(4),
            CUarray_format::CU_AD_FORMAT_SIGNED_INT8 => Channel::Signed(1),
            CUarray_format::CU_AD_FORMAT_SIGNED_INT16 => Channel::Signed(2),
            CUarray_format::CU_AD_FORMAT_SIGNED_INT32 => Channel::Signed(4),
            CUarray_format::CU_AD_FORMAT_HALF => Channel::Half,
            CUarray_format::CU_AD_FORMAT_FLOAT => Channel::Single,
            _ => return None,
        })
    }

    /// Bytes of a channel.
    #[must_use]
    pub fn bytes(self) -> u8 {
        match self {
            Channel::Unsigned(bytes) | Channel::Signed(bytes) => bytes,
            Channel::Half => 2,
            Channel::Single => 4,
        }
    }

    /// True for integers that can be read as numbers from 0 or -1 to 1.
    #[must_use]
    pub fn can_be_normalized(self) -> bool {
        matches!(self, Channel::Unsigned(1 | 2) | Channel::Signed(1 | 2))
    }

    fn code(self) -> u64 {
        match self {
            Channel::Unsigned(bytes) => bytes.into(),
            Channel::Signed(bytes) => 0x10 | u64::from(bytes),
            Channel::Half => 0x20,
            Channel::Single => 0x21,
        }
    }

    fn from_code(code: u64) -> Option<Channel> {
        Some(match code {
            1 | 2 | 4 => Channel::Unsigned(code as u8),
            0x11 | 0x12 | 0x14 => Channel::Signed(code as u8 & 15),
            0x20 => Channel::Half,
            0x21 => Channel::Single,
            _ => return None,
        })
    }
}

/// The shape of what a texture or surface shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Linear memory: fetched by whole numbers.
    Linear,
    /// One dimension.
    Line,
    /// Two dimensions: an array, or memory with a pitch.
    Plane,
    /// Three dimensions.
    Solid,
    /// Layers of one dimension.
    Lines,
    /// Layers of two dimensions.
    Planes,
    /// Six faces.
    Cube,
    /// Layers of six faces.
    Cubes,
}

const SHAPES: [Shape; 8] = [Shape::Linear, Shape::Line, Shape::Plane, Shape::Solid, Shape::Lines, Shape::Planes, Shape::Cube, Shape::Cubes];

/// What becomes of coordinates outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressMode {
    /// The image repeats.
    Wrap,
    /// The texel at the edge.
    #[default]
    Clamp,
    /// The image repeats, every other time mirrored.
    Mirror,
    /// The border's colour.
    Border,
}

const ADDRESS_MODES: [AddressMode; 4] = [AddressMode::Wrap, AddressMode::Clamp, AddressMode::Mirror, AddressMode::Border];

/// One level: where its first texel lies, and bytes between rows and between layers or slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// Where its first texel lies.
    pub address: u64,
    /// Bytes from a row to the next.
    pub pitch: u64,
    /// Bytes from a layer or slice to the next.
    pub slice: u64,
}

/// How a texture is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sampling {
    /// By dimension.
    pub address: [AddressMode; 3],
    /// Texels are weighted by their distance, not the nearest one taken.
    pub linear: bool,
    /// Levels are weighted, not the nearest one taken.
    pub linear_levels: bool,
    /// Coordinates go from 0 to 1.
    pub normalized: bool,
    /// Integers become numbers from 0 or -1 to 1.
    pub as_numbers: bool,
    /// Added to the level.
    pub level_bias: f32,
    /// The least and the greatest level.
    pub levels: [f32; 2],
    /// What is outside, for [`AddressMode::Border`].
    pub border: [f32; 4],
}

/// A texture object, or a surface object (without `sampling`).
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Its shape.
    pub shape: Shape,
    /// A channel of a texel.
    pub channel: Channel,
    /// Channels of a texel: 1, 2 or 4.
    pub channels: u8,
    /// Texels along x, y and z of the first level; 1 where there is no such dimension.
    pub size: [u32; 3],
    /// Layers, the faces of cubes counted; 1 without.
    pub layers: u32,
    /// Its levels, at least one, at most [`MOST_LEVELS`].
    pub levels: Vec<Level>,
    /// How it is sampled; `None` for a surface.
    pub sampling: Option<Sampling>,
}

/// The bytes of a description that are read, if it has so many levels.
#[must_use]
pub fn used_bytes(levels: usize) -> usize {
    8 * (16 + 3 * levels.min(MOST_LEVELS))
}

impl Description {
    /// Bytes of a texel.
    #[must_use]
    pub fn texel(&self) -> u64 {
        u64::from(self.channel.bytes()) * u64::from(self.channels)
    }

    /// Texels along x, y and z of a level.
    #[must_use]
    pub fn size_of(&self, level: usize) -> [u32; 3] {
        self.size.map(|n| n.checked_shr(level as u32).unwrap_or(0).max(1))
    }

    /// The bytes of the description.
    #[must_use]
    pub fn encode(&self) -> [u8; DESCRIPTION_BYTES] {
        let mut words = [0u64; WORDS];
        let shape = SHAPES.iter().position(|shape| *shape == self.shape).unwrap_or(0) as u64;
        words[0] = MAGIC;
        words[1] =
            shape | self.channel.code() << 8 | u64::from(self.channels) << 16 | (self.levels.len() as u64) << 24 | u64::from(self.sampling.is_some()) << 32;
        words[2] = u64::from(self.size[0]) | u64::from(self.size[1]) << 32;
        words[3] = u64::from(self.size[2]) | u64::from(self.layers) << 32;
        if let Some(sampling) = &self.sampling {
            let flags = [sampling.linear, sampling.linear_levels, sampling.normalized, sampling.as_numbers];
            let modes = sampling.address.map(|mode| ADDRESS_MODES.iter().position(|one| *one == mode).unwrap_or(1) as u64);
            words[4] = flags.iter().rev().fold(0, |all, flag| all << 1 | u64::from(*flag)) | modes[0] << 8 | modes[1] << 16 | modes[2] << 24;
            let two = |[a, b]: [f32; 2]| u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32;
            words[5] = sampling.level_bias.to_bits().into();
            words[6] = two(sampling.levels);
            words[7] = two([sampling.border[0], sampling.border[1]]);
            words[8] = two([sampling.border[2], sampling.border[3]]);
        }
        for (level, into) in self.levels.iter().zip(words[16..].chunks_exact_mut(3)) {
            into.copy_from_slice(&[level.address, level.pitch, level.slice]);
        }
        let mut bytes = [0; DESCRIPTION_BYTES];
        for (word, into) in words.iter().zip(bytes.chunks_exact_mut(8)) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a description; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8; DESCRIPTION_BYTES]) -> Option<Description> {
        let mut words = [0u64; WORDS];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let [magic, first, sizes, more, modes, bias, range, border, rest, ..] = words;
        let count = (first >> 24 & 0xff) as usize;
        let channels = (first >> 16 & 0xff) as u8;
        if magic != MAGIC || !(1..=MOST_LEVELS).contains(&count) || !matches!(channels, 1 | 2 | 4) {
            return None;
        }
        let two = |word: u64| [f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32)];
        let mode = |n: u32| ADDRESS_MODES[(modes >> (8 * n) & 3) as usize];
        let ([red, green], [blue, alpha]) = (two(border), two(rest));
        let sampling = Sampling {
            address: [mode(1), mode(2), mode(3)],
            linear: modes & 1 != 0,
            linear_levels: modes & 2 != 0,
            normalized: modes & 4 != 0,
            as_numbers: modes & 8 != 0,
            level_bias: f32::from_bits(bias as u32),
            levels: two(range),
            border: [red, green, blue, alpha],
        };
        let size = [sizes as u32, (sizes >> 32) as u32, more as u32];
        let layers = (more >> 32) as u32;
        if size.contains(&0) || layers == 0 || size.iter().any(|n| *n > i32::MAX as u32) {
            return None;
        }
        let levels = words[16..].chunks_exact(3).take(count).map(|level| Level { address: level[0], pitch: level[1], slice: level[2] }).collect();
        Some(Description {
            shape: *SHAPES.get((first & 0xff) as usize)?,
            channel: Channel::from_code(first >> 8 & 0xff)?,
            channels,
            size,
            layers,
            levels,
            sampling: (first >> 32 & 1 != 0).then_some(sampling),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texture() -> Description {
        Description {
            shape: Shape::Planes,
            channel: Channel::Signed(2),
            channels: 4,
            size: [640, 480, 1],
            layers: 7,
            levels: (0..3).map(|n| Level { address: 0x1000_0000_0000 + n, pitch: 4096 >> n, slice: 1 << 20 }).collect(),
            sampling: Some(Sampling {
                address: [AddressMode::Mirror, AddressMode::Border, AddressMode::Wrap],
                linear: true,
                normalized: true,
                as_numbers: true,
                level_bias: -0.5,
                levels: [0.25, 2.0],
                border: [0.0, 1.0, 2.0, 3.0],
                ..Sampling::default()
            }),
        }
    }

    #[test]
    fn a_description_leads_back() {
        for channel in [Channel::Unsigned(1), Channel::Unsigned(4), Channel::Signed(1), Channel::Half, Channel::Single] {
            for shape in SHAPES {
                let one = Description { shape, channel, ..texture() };
                assert_eq!(Description::decode(&one.encode()), Some(one));
            }
        }
        let surface = Description { sampling: None, ..texture() };
        assert_eq!(Description::decode(&surface.encode()), Some(surface));
        assert_eq!(texture().size_of(2), [160, 120, 1]);
    }

    #[test]
    fn nonsense_is_no_description() {
        assert_eq!(Description::decode(&[0; DESCRIPTION_BYTES]), None);
        assert_eq!(Description::decode(&[0xff; DESCRIPTION_BYTES]), None);
        // Any one byte of the first three words changed: another description or none, never a
        // panic.
        for at in 0..32 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = texture().encode();
                bytes[at] = value;
                if let Some(read) = Description::decode(&bytes) {
                    assert!((1..=MOST_LEVELS).contains(&read.levels.len()) && !read.size.contains(&0) && read.layers > 0);
                }
            }
        }
    }
}
