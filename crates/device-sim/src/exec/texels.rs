//! Samples of a whole warp: the usual textures, all lanes side by side.
//!
//! What comes out is to the bit what [`super::texture`] computes lane by lane (of not-a-number, the
//! payload aside). That does what is left over here: cubes, several levels, lanes with several
//! objects, texels that lie in several allocations or may not be read.

// Several arrays and masks are indexed by the same lane.
#![allow(clippy::needless_range_loop)]

use super::coalesced::CoalescedAccess;
use super::interface::{Access, GlobalMemory};
use super::shape::{AddressShape, Pattern};
use crate::program::code::{Geometry, TextureOp};
use crate::simd::lanes::{LANES, NO_SLOT, PerLane, PerLane64, WarpRegisters};
use crate::simd::ops::half::{H, Small};
use crate::simd::processor::VectorCode;
use cumux_wire::texture::{AddressMode, Channel, Description, Sampling, Shape};

/// The most texels of a dimension for which indices are computed here.
const MOST_TEXELS: u32 = 1 << 30;

/// The farthest place that counts, in texels: whole numbers are exact up to there.
pub(super) const FARTHEST: f64 = 1e15;

/// A real number for each lane.
type Reals = [f64; LANES];

/// A `tex` of lanes with one object, as vector code. The result says whether it is done; if not,
/// no register has changed.
pub(super) struct WarpSample<'x, 'a, M> {
    pub registers: &'x mut WarpRegisters<'a>,
    pub op: &'x TextureOp,
    /// Coordinates are whole numbers.
    pub whole: bool,
    pub mask: u32,
    pub described: &'x Description,
    /// The object's, which fits the instruction's geometry.
    pub sampling: &'x Sampling,
    pub memory: &'x mut M,
}

impl<M: GlobalMemory> VectorCode for WarpSample<'_, '_, M> {
    type Out = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let WarpSample { registers, op, whole, mask, described, sampling, memory } = self;
        let dimensions = op.geometry.dimensions();
        let is_known = described.levels.len() == 1
            && !matches!(op.geometry, Geometry::Cube | Geometry::Cubes)
            && described.size.iter().all(|size| *size <= MOST_TEXELS)
            && op.coordinates[..dimensions].iter().all(|slot| *slot != NO_SLOT);
        if !is_known {
            return false;
        }
        let linear = sampling.linear && !whole && is_real(described, sampling);
        let is_memory = described.shape == Shape::Linear;
        // Linear memory has nothing around it.
        let modes = if whole && is_memory { [AddressMode::Border; 3] } else { sampling.address };
        let has_border = modes[..dimensions].contains(&AddressMode::Border);
        let Some(image) = Image::of(described) else { return false };
        // For each dimension the texel at or below the coordinate and, for a filter, the next one.
        let mut places = [[[0; LANES]; 2]; 3];
        let mut inside = [[u32::MAX; 2]; 3];
        let mut weight = [[0.0; LANES]; 3];
        for n in 0..dimensions {
            let from = &registers.get32(op.coordinates[n]).0;
            let first = if whole {
                per_lane(|lane| from[lane].cast_signed().into())
            } else {
                find_positions(from, described.size[n], sampling.normalized, linear, &mut weight[n])
            };
            for next in 0..if linear { 2 } else { 1u8 } {
                let at = usize::from(next);
                inside[n][at] = find_places(modes[n], sampling.normalized, &first, next.into(), described.size[n], &mut places[n][at]);
            }
        }
        let layers = find_layers(registers, op, described);
        // Channels that are not there have the same value everywhere but in the border.
        let channels = if has_border { 4 } else { usize::from(described.channels) };
        let real = is_real(described, sampling);
        let mut texels = Texels([[0; LANES]; 4]);
        if !linear {
            let inside = mask & inside[0][0] & inside[1][0] & inside[2][0];
            if !texels.read(memory, &image, [0, 1, 2].map(|n| &places[n][0]), &layers, inside) {
                return false;
            }
            for (n, slot) in op.data.iter().enumerate() {
                if n >= channels {
                    let missing = if n == 3 { 1.0 } else { 0.0 };
                    registers.set32(*slot, &PerLane([result_of(missing, real); LANES]), mask);
                    continue;
                }
                let value = texels.numbers(n, described, sampling);
                let mut bits = if real { per_lane(|lane| (value[lane] as f32).to_bits()) } else { per_lane(|lane| value[lane] as i64 as u32) };
                if has_border {
                    let border = if whole && is_memory { 0 } else { result_of(sampling.border[n].into(), real) };
                    for lane in 0..LANES {
                        bits[lane] = if inside >> lane & 1 != 0 { bits[lane] } else { border };
                    }
                }
                registers.set32(*slot, &PerLane(bits), mask);
            }
            return true;
        }
        let mut sum = [[0.0; LANES], [0.0; LANES], [0.0; LANES], [if channels == 4 { 0.0 } else { 1.0 }; LANES]];
        for corner in 0..1usize << dimensions {
            let next = [0, 1, 2].map(|n| corner >> n & 1);
            let mut part = [1.0; LANES];
            for n in 0..dimensions {
                for lane in 0..LANES {
                    part[lane] *= if next[n] != 0 { weight[n][lane] } else { 1.0 - weight[n][lane] };
                }
            }
            let wanted = mask & lanes_where(&part, |part| part != 0.0);
            if wanted == 0 {
                continue;
            }
            let inside = inside[0][next[0]] & inside[1][next[1]] & inside[2][next[2]];
            if !texels.read(memory, &image, [0, 1, 2].map(|n| &places[n][next[n]]), &layers, wanted & inside) {
                return false;
            }
            for n in 0..channels {
                let mut value = texels.numbers(n, described, sampling);
                if has_border {
                    for lane in 0..LANES {
                        value[lane] = if inside >> lane & 1 != 0 { value[lane] } else { sampling.border[n].into() };
                    }
                }
                for lane in 0..LANES {
                    // Not-a-number and infinity pass unchanged where there is one texel.
                    let more = sum[n][lane] + part[lane] * value[lane];
                    let more = if part[lane] == 1.0 { value[lane] } else { more };
                    sum[n][lane] = if part[lane] == 0.0 { sum[n][lane] } else { more };
                }
            }
        }
        for (slot, sum) in op.data.iter().zip(&sum) {
            registers.set32(*slot, &PerLane(per_lane(|lane| (sum[lane] as f32).to_bits())), mask);
        }
        true
    }
}

/// A number as a register has it.
#[inline(always)]
fn result_of(value: f64, real: bool) -> u32 {
    if real { (value as f32).to_bits() } else { value as i64 as u32 }
}

/// A weight with eight bits behind the point.
#[inline(always)]
pub(super) fn eighths(weight: f64) -> f64 {
    (weight * 256.0).round() / 256.0
}

/// True if texels are numbers with a point.
#[inline(always)]
pub(super) fn is_real(described: &Description, sampling: &Sampling) -> bool {
    match described.channel {
        Channel::Half | Channel::Single => true,
        channel => sampling.as_numbers && channel.can_be_normalized(),
    }
}

/// What `f` gives for each lane. A plain loop, which is compiled for the fast processor wherever it
/// is used, as [`std::array::from_fn`] is not.
#[inline(always)]
fn per_lane<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for lane in 0..LANES {
        out[lane] = f(lane);
    }
    out
}

/// The lanes whose value passes a test.
#[inline(always)]
fn lanes_where(values: &Reals, test: impl Fn(f64) -> bool) -> u32 {
    let mut lanes = 0;
    for lane in 0..LANES {
        lanes |= u32::from(test(values[lane])) << lane;
    }
    lanes
}

/// Coordinates in texels of a dimension: the texels at or below them and, for a linear filter, the
/// weights of the next ones.
#[inline(always)]
fn find_positions(from: &[u32; LANES], size: u32, normalized: bool, linear: bool, weight: &mut Reals) -> Reals {
    let scale = if normalized { f64::from(size) } else { 1.0 };
    let half = if linear { 0.5 } else { 0.0 };
    let mut first = [0.0; LANES];
    for lane in 0..LANES {
        let x = f64::from(f32::from_bits(from[lane])) * scale;
        // Not-a-number fails the comparisons.
        let x = if x >= -FARTHEST { x } else { -FARTHEST };
        let x = if x > FARTHEST { FARTHEST } else { x };
        first[lane] = (x - half).floor();
        if linear {
            weight[lane] = eighths(x - half - first[lane]);
        }
    }
    first
}

/// The texels that stand at places of a dimension, and the lanes for which there is one.
#[inline(always)]
fn find_places(mode: AddressMode, normalized: bool, first: &Reals, ahead: f64, size: u32, places: &mut [u32; LANES]) -> u32 {
    let size = f64::from(size);
    match mode {
        AddressMode::Wrap if normalized => {
            for lane in 0..LANES {
                places[lane] = to_index(remainder(first[lane] + ahead, size));
            }
        }
        AddressMode::Mirror if normalized => {
            for lane in 0..LANES {
                let at = remainder(first[lane] + ahead, 2.0 * size);
                places[lane] = to_index(if at < size { at } else { 2.0 * size - 1.0 - at });
            }
        }
        _ => {
            for lane in 0..LANES {
                places[lane] = to_index((first[lane] + ahead).max(0.0).min(size - 1.0));
            }
        }
    }
    if mode == AddressMode::Border { lanes_where(first, |at| at + ahead >= 0.0 && at + ahead < size) } else { u32::MAX }
}

/// A whole number from 0 to 2^32 - 1 as an integer. The sum has it in its low bits: a cast that
/// heeds all other numbers is done lane by lane.
#[inline(always)]
fn to_index(whole: f64) -> u32 {
    const TWO_TO_52: f64 = 4_503_599_627_370_496.0;
    (whole + TWO_TO_52).to_bits() as u32
}

/// What is left of a whole number when it is divided by `size`, from 0 on. Numbers here are below
/// 2^53, so all but the quotient is exact, and that is at most one off.
#[inline(always)]
fn remainder(at: f64, size: f64) -> f64 {
    let left = at - (at / size).floor() * size;
    let left = if left < 0.0 { left + size } else { left };
    if left >= size { left - size } else { left }
}

/// The layers of an access.
#[inline(always)]
fn find_layers(registers: &WarpRegisters<'_>, op: &TextureOp, described: &Description) -> [u32; LANES] {
    if op.layer == NO_SLOT {
        return [0; LANES];
    }
    let last = i64::from(described.layers.max(1)) - 1;
    let asked = &registers.get32(op.layer).0;
    per_lane(|lane| i64::from(asked[lane].cast_signed()).clamp(0, last) as u32)
}

/// Where the texels of an image lie. Its texels are at most [`u32::MAX`] bytes apart.
struct Image {
    address: u64,
    pitch: u32,
    slice: u32,
    texel: u32,
    channels: usize,
    /// Bits of a channel.
    width: u32,
}

impl Image {
    /// The first level of an object; `None` if it is larger, or would wrap around the addresses.
    #[inline(always)]
    fn of(described: &Description) -> Option<Image> {
        let level = described.levels[0];
        let texel = described.texel();
        let most = |places: u32, step: u64| u64::from(places - 1).checked_mul(step);
        let slices = described.size[2].checked_add(described.layers - 1)?;
        let far = most(slices, level.slice)?.checked_add(most(described.size[1], level.pitch)?)?.checked_add(most(described.size[0], texel)?)?;
        if far > u64::from(u32::MAX) || level.address.checked_add(far).is_none() {
            return None;
        }
        // Where there is one row or one slice, the step to the next does not matter.
        let step = |bytes: u64, places: u32| if places == 1 { 0 } else { bytes as u32 };
        Some(Image {
            address: level.address,
            pitch: step(level.pitch, described.size[1]),
            slice: step(level.slice, slices),
            texel: texel as u32,
            channels: described.channels.into(),
            width: 8 * u32::from(described.channel.bytes()),
        })
    }
}

/// Stands for addresses that their shape describes.
static UNREAD_ADDRESSES: PerLane64 = PerLane([0; LANES]);

/// The bits of the channels of a texel of each lane.
struct Texels([[u32; LANES]; 4]);

impl Texels {
    /// Reads the texels at places of an image, for the lanes of a mask. Returns false if they
    /// cannot be read at once.
    #[inline(always)]
    fn read<M: GlobalMemory>(&mut self, memory: &mut M, image: &Image, places: [&[u32; LANES]; 3], layers: &[u32; LANES], mask: u32) -> bool {
        if mask == 0 {
            return true;
        }
        // No sum is larger than the distance of the last texel.
        let mut offsets = PerLane([0; LANES]);
        for lane in 0..LANES {
            let slices = places[2][lane].wrapping_add(layers[lane]).wrapping_mul(image.slice);
            let row = slices.wrapping_add(places[1][lane].wrapping_mul(image.pitch));
            offsets.0[lane] = row.wrapping_add(places[0][lane].wrapping_mul(image.texel));
        }
        let bytes = u64::from(image.texel);
        let plain = AddressShape::of_short_addresses(&offsets, mask, bytes);
        let shape = AddressShape { low: plain.low + image.address, high: plain.high + image.address, any: plain.any | image.address, ..plain };
        let mut own = PerLane([0; LANES]);
        let at = if shape.pattern.needs_addresses() {
            for lane in 0..LANES {
                own.0[lane] = image.address.wrapping_add(offsets.0[lane].into());
            }
            &own
        } else {
            &UNREAD_ADDRESSES
        };
        let Some(found) = CoalescedAccess::in_global(memory, at, mask, &shape, bytes, Access::Load) else { return false };
        let width = image.width;
        let cut = u32::MAX >> (32 - width);
        macro_rules! split {
            ($words:expr) => {
                for n in 0..image.channels {
                    for lane in 0..LANES {
                        self.0[n][lane] = ($words[lane] >> (width * n as u32)) as u32 & cut;
                    }
                }
            };
        }
        match image.texel {
            1 => {
                let mut words = [0; LANES];
                found.gather(0, &mut words, |word: u8| u32::from(word));
                split!(words);
            }
            2 => {
                let mut words = [0; LANES];
                found.gather(0, &mut words, |word: u16| u32::from(word));
                split!(words);
            }
            4 => {
                let mut words = [0; LANES];
                if found.pattern == Pattern::Contiguous {
                    found.read_row_into(&mut words);
                } else {
                    found.gather(0, &mut words, |word: u32| word);
                }
                if image.channels == 1 {
                    self.0[0] = words;
                } else {
                    split!(words);
                }
            }
            8 => {
                let mut words = [0u64; LANES];
                found.gather(0, &mut words, |word: u64| word);
                split!(words);
            }
            16 if found.pattern == Pattern::Contiguous => {
                let row = found.read_row::<u32, 4>();
                for n in 0..4 {
                    for lane in 0..LANES {
                        self.0[n][lane] = row[lane][n];
                    }
                }
            }
            16 => {
                let mut words = [0u128; LANES];
                found.gather(0, &mut words, |word: u128| word);
                split!(words);
            }
            _ => return false,
        }
        true
    }

    /// A channel of the texels as numbers: that of an image without it has no colour, and is
    /// opaque.
    #[inline(always)]
    fn numbers(&self, n: usize, described: &Description, sampling: &Sampling) -> Reals {
        if n < usize::from(described.channels) { numbers_of(described.channel, sampling, &self.0[n]) } else { [if n == 3 { 1.0 } else { 0.0 }; LANES] }
    }
}

/// A channel's bits as numbers. Whole numbers of 32 bits are exact.
#[inline(always)]
fn numbers_of(channel: Channel, sampling: &Sampling, bits: &[u32; LANES]) -> Reals {
    match channel {
        Channel::Half => per_lane(|lane| Small::wide(H(bits[lane] as u16))),
        Channel::Single => per_lane(|lane| f32::from_bits(bits[lane]).into()),
        Channel::Unsigned(1) if sampling.as_numbers => per_lane(|lane| f64::from(bits[lane]) / 255.0),
        Channel::Unsigned(2) if sampling.as_numbers => per_lane(|lane| f64::from(bits[lane]) / 65535.0),
        Channel::Signed(1) if sampling.as_numbers => per_lane(|lane| (f64::from(bits[lane] as i8) / 127.0).max(-1.0)),
        Channel::Signed(2) if sampling.as_numbers => per_lane(|lane| (f64::from(bits[lane] as i16) / 32767.0).max(-1.0)),
        Channel::Unsigned(_) => per_lane(|lane| bits[lane].into()),
        Channel::Signed(1) => per_lane(|lane| (bits[lane] as i8).into()),
        Channel::Signed(2) => per_lane(|lane| (bits[lane] as i16).into()),
        Channel::Signed(_) => per_lane(|lane| bits[lane].cast_signed().into()),
    }
}
