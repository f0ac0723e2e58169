//! Samples of a whole warp: the usual textures, all lanes side by side.
//!
//! What comes out is to the bit what [`super::texture`] computes lane by lane (of not-a-number, the
//! payload aside). That does what is left over here: cubes, several levels, lanes with several
//! objects, texels that lie in several allocations or may not be read.

// Several arrays and masks are indexed by the same lane.
#![allow(clippy::needless_range_loop)]

use super::coalesced::{AddressShape, CoalescedAccess, Pattern};
use super::interface::{Access, GlobalMemory};
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
        let (mut first, mut weight) = ([[0.0; LANES]; 3], [[0.0; LANES]; 3]);
        for n in 0..dimensions {
            let from = &registers.get32(op.coordinates[n]).0;
            (first[n], weight[n]) = if whole {
                (per_lane(|lane| from[lane].cast_signed().into()), [0.0; LANES])
            } else {
                find_positions(from, described.size[n], sampling.normalized, linear)
            };
        }
        let layers = find_layers(registers, op, described);
        // Channels that are not there have the same value everywhere but in the border.
        let channels = if has_border { 4 } else { usize::from(described.channels) };
        let mut sum = [[0.0; LANES], [0.0; LANES], [0.0; LANES], [if channels == 4 { 0.0 } else { 1.0 }; LANES]];
        let mut outside = 0;
        for corner in 0..if linear { 1u32 << dimensions } else { 1 } {
            let (mut part, mut inside, mut places) = ([1.0; LANES], mask, [[0; LANES]; 3]);
            for n in 0..dimensions {
                let is_next = corner >> n & 1 != 0;
                for lane in 0..LANES {
                    part[lane] *= if is_next { weight[n][lane] } else { 1.0 - weight[n][lane] };
                }
                let found = find_places(modes[n], sampling.normalized, &first[n], f64::from(u8::from(is_next)), described.size[n]);
                places[n] = found.0;
                inside &= found.1;
            }
            let wanted = mask & lanes_where(&part, |part| part != 0.0);
            outside |= wanted & !inside;
            let Some(mut texels) = read_texels(memory, described, sampling, &places, &layers, wanted & inside) else { return false };
            for n in 0..channels {
                let value = &mut texels[n];
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
        let real = is_real(described, sampling);
        for (slot, sum) in op.data.iter().zip(&sum) {
            let mut bits = if real { per_lane(|lane| (sum[lane] as f32).to_bits()) } else { per_lane(|lane| sum[lane] as i64 as u32) };
            if whole && is_memory {
                for lane in 0..LANES {
                    bits[lane] = if outside >> lane & 1 != 0 { 0 } else { bits[lane] };
                }
            }
            registers.set32(*slot, &PerLane(bits), mask);
        }
        true
    }
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

/// Coordinates in texels of a dimension: the texels at or below them, and the weights of the next
/// ones.
#[inline(always)]
fn find_positions(from: &[u32; LANES], size: u32, normalized: bool, linear: bool) -> (Reals, Reals) {
    let scale = if normalized { f64::from(size) } else { 1.0 };
    let (mut first, mut weight) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        let x = f64::from(f32::from_bits(from[lane])) * scale;
        // Not-a-number fails the comparisons.
        let x = if x >= -FARTHEST { x } else { -FARTHEST };
        let x = if x > FARTHEST { FARTHEST } else { x };
        first[lane] = if linear { (x - 0.5).floor() } else { x.floor() };
        weight[lane] = if linear { eighths(x - 0.5 - first[lane]) } else { 0.0 };
    }
    (first, weight)
}

/// The texels that stand at places of a dimension, and the lanes for which there is one.
#[inline(always)]
fn find_places(mode: AddressMode, normalized: bool, first: &Reals, ahead: f64, size: u32) -> ([u32; LANES], u32) {
    let size = f64::from(size);
    let mut places = [0; LANES];
    let mut inside = u32::MAX;
    // The result is a whole number that an `i32` holds.
    match mode {
        AddressMode::Border => {
            inside = lanes_where(first, |at| at + ahead >= 0.0 && at + ahead < size);
            for lane in 0..LANES {
                places[lane] = (first[lane] + ahead).max(0.0).min(size - 1.0) as i32 as u32;
            }
        }
        AddressMode::Wrap if normalized => {
            for lane in 0..LANES {
                places[lane] = remainder(first[lane] + ahead, size) as i32 as u32;
            }
        }
        AddressMode::Mirror if normalized => {
            for lane in 0..LANES {
                let at = remainder(first[lane] + ahead, 2.0 * size);
                places[lane] = (if at < size { at } else { 2.0 * size - 1.0 - at }) as i32 as u32;
            }
        }
        _ => {
            for lane in 0..LANES {
                places[lane] = (first[lane] + ahead).max(0.0).min(size - 1.0) as i32 as u32;
            }
        }
    }
    (places, inside)
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

/// The channels of the texels at places, as numbers, for the lanes of a mask. `None` if they cannot
/// be read at once.
#[inline(always)]
fn read_texels<M: GlobalMemory>(
    memory: &mut M,
    described: &Description,
    sampling: &Sampling,
    places: &[[u32; LANES]; 3],
    layers: &[u32; LANES],
    mask: u32,
) -> Option<[Reals; 4]> {
    let mut out = [[0.0; LANES], [0.0; LANES], [0.0; LANES], [1.0; LANES]];
    if mask == 0 {
        return Some(out);
    }
    let level = described.levels[0];
    let texel = described.texel();
    let mut at = PerLane64::splat(0);
    for lane in 0..LANES {
        let slices = u64::from(places[2][lane]) + u64::from(layers[lane]);
        let row = level.address.wrapping_add(slices.wrapping_mul(level.slice)).wrapping_add(u64::from(places[1][lane]).wrapping_mul(level.pitch));
        at.0[lane] = row.wrapping_add(u64::from(places[0][lane]).wrapping_mul(texel));
    }
    let shape = AddressShape { pattern: Pattern::Scattered, ..AddressShape::of_addresses(&at, mask, texel) };
    let found = CoalescedAccess::in_global(memory, &at, mask, &shape, texel, Access::Load)?;
    let width = 8 * u32::from(described.channel.bytes());
    let cut = u32::MAX >> (32 - width);
    macro_rules! channels {
        ($word:ty, $all:ty) => {{
            let mut words: [$all; LANES] = [0; LANES];
            found.gather(0, &mut words, |word: $word| <$all>::from(word));
            for n in 0..usize::from(described.channels) {
                out[n] = numbers_of(described.channel, sampling, &per_lane(|lane| (words[lane] >> (width * n as u32)) as u32 & cut));
            }
        }};
    }
    match texel {
        1 => channels!(u8, u32),
        2 => channels!(u16, u32),
        4 => channels!(u32, u32),
        8 => channels!(u64, u64),
        16 => channels!(u128, u128),
        _ => return None,
    }
    Some(out)
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
