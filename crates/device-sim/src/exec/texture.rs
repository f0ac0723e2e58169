//! Textures and surfaces (CUDA C++ Programming Guide, *Texture Fetching*, *Surface Memory*).
//!
//! A handle is the address of a description in the client's memory ([`cumux_wire::texture`]), which
//! is read and checked at each use. Every texel is an access of its lane. Weights of a linear
//! filter have eight bits behind the point, as the guide says.

use super::access::NearMemory;
use super::fault::{LaneFault, LaneResult};
use super::interface::{Access, FaultKind, GlobalMemory};
use super::raw::DeviceBytes;
use super::texels::{FARTHEST, WarpSample, eighths, is_real};
use super::{atomic, single};
use crate::program::code::{Geometry, LevelOf, Order, Outside, Space, TextureKind, TextureOp, TextureQuery};
use crate::simd::lanes::{LANES, NO_SLOT, PerLane64, RegisterSlot, WarpRegisters};
use crate::simd::ops::half::{H, Small};
use crate::simd::processor::{VectorCode, run_fastest};
use cumux_wire::texture::{AddressMode, Channel, DESCRIPTION_BYTES, Description, Sampling, Shape, used_bytes};

/// Performs the instruction for each lane of `mask`, lowest lane first.
pub(super) fn perform<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &TextureOp,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
    known: &mut KnownTextures,
) -> LaneResult<()> {
    if let TextureKind::Sample { whole, .. } = op.kind
        && sample_at_once(registers, op, whole, mask, near, memory, known)?
    {
        return Ok(());
    }
    perform_by_lane(registers, op, mask, near, memory)
}

/// Performs the instruction lane by lane.
fn perform_by_lane<M: GlobalMemory>(registers: &mut WarpRegisters<'_>, op: &TextureOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    // The lanes of a warp nearly always use the same object.
    let mut known: Option<(u64, Description)> = None;
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        let handle = registers.get64(op.object).0[lane];
        if known.as_ref().is_none_or(|(of, _)| *of != handle) {
            known = Some((handle, read_description(memory, handle, lane)?));
        }
        let Some((_, described)) = &known else { continue };
        let mut at = LaneAccess { handle, described, near: &mut *near, memory: &mut *memory, lane };
        match op.kind {
            TextureKind::Query(query) => registers.r32[op.data[0] as usize].0[lane] = ask(described, query),
            TextureKind::Sample { whole, level } => {
                let sampling = at.sampling(op.geometry)?;
                let texel = if whole { at.fetch(&sampling, op, registers)? } else { at.sample(&sampling, op, registers, level)? };
                for (slot, bits) in op.data.iter().zip(texel) {
                    registers.r32[*slot as usize].0[lane] = bits;
                }
            }
            TextureKind::Gather { component } => {
                let sampling = at.sampling(op.geometry)?;
                let texels = at.gather(&sampling, op, registers, component)?;
                for (slot, bits) in op.data.iter().zip(texels) {
                    registers.r32[*slot as usize].0[lane] = bits;
                }
            }
            TextureKind::Load { bytes, outside } => {
                let address = at.surface_address(op, registers, bytes, outside)?;
                for (n, slot) in op.data.iter().enumerate() {
                    let from = address.map(|address| address + n as u64 * u64::from(bytes));
                    let value = from.map_or(Ok(0), |from| single::load(at.near, at.memory, Space::Global, from, bytes.into(), lane))?;
                    write(registers, *slot, bytes, lane, value);
                }
            }
            TextureKind::Store { bytes, outside } => {
                let Some(address) = at.surface_address(op, registers, bytes, outside)? else { continue };
                for (n, slot) in op.data.iter().enumerate() {
                    let value = read(registers, *slot, bytes, lane);
                    single::store(at.near, at.memory, Space::Global, address + n as u64 * u64::from(bytes), bytes.into(), value, lane)?;
                }
            }
            TextureKind::Reduce { bytes, how, outside } => {
                let Some(address) = at.surface_address(op, registers, bytes, outside)? else { continue };
                let operand = read(registers, op.data[0], bytes, lane);
                let range = DeviceBytes::find(at.memory, address, bytes.into(), Access::Atomic);
                let range = range.map_err(|fault| LaneFault::memory(fault, lane, address, bytes.into()))?;
                if bytes == 8 {
                    range.update64(|old| atomic::combine(how, 8, old, operand, 0));
                } else {
                    range.update32(|old| atomic::combine(how, 4, old.into(), operand, 0) as u32);
                }
            }
        }
    }
    Ok(())
}

/// Samples for all lanes of `mask` at once, if they use the same object and it is a usual one.
/// Returns false if it is to be done lane by lane.
fn sample_at_once<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &TextureOp,
    whole: bool,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
    known: &mut KnownTextures,
) -> LaneResult<bool> {
    let lane = mask.trailing_zeros() as usize & 31;
    let handles = registers.get64(op.object);
    let handle = handles.0[lane];
    if run_fastest(HasOthers { handles, mask, handle }) {
        return Ok(false);
    }
    let described = known.look_up(memory, handle, lane)?;
    let sampling = &LaneAccess { handle, described, near, memory, lane }.sampling(op.geometry)?;
    Ok(run_fastest(WarpSample { registers, op, whole, mask, described, sampling, memory }))
}

/// Whether a lane of a mask has another handle than `handle`.
struct HasOthers<'a> {
    handles: &'a PerLane64,
    mask: u32,
    handle: u64,
}

impl VectorCode for HasOthers<'_> {
    type Out = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut others = 0;
        for lane in 0..LANES {
            others |= (self.handles.0[lane] ^ self.handle) & 0u64.wrapping_sub((self.mask >> lane & 1).into());
        }
        others != 0
    }
}

/// Textures that are remembered.
const MOST_KNOWN: usize = 4;

/// Descriptions that were read lately, so that they need not be decoded again. Each use compares
/// them with what is in memory.
#[derive(Debug, Default)]
pub(super) struct KnownTextures {
    known: Vec<KnownTexture>,
    /// The next to be replaced.
    next: usize,
}

/// One of them.
#[derive(Debug)]
struct KnownTexture {
    handle: u64,
    bytes: [u8; DESCRIPTION_BYTES],
    described: Description,
}

impl KnownTextures {
    /// The description that a handle names.
    fn look_up<M: GlobalMemory>(&mut self, memory: &mut M, handle: u64, lane: usize) -> LaneResult<&Description> {
        let range = find_description(memory, handle, lane)?;
        let found = self.known.iter().position(|known| known.handle == handle && is_in_memory(&known.bytes, known.described.levels.len(), &range));
        let at = match found {
            Some(at) => at,
            None => {
                let (bytes, described) = decode_description(&range, handle, lane)?;
                // What the handle named before is of no use any more.
                let at = self.known.iter().position(|known| known.handle == handle).unwrap_or_else(|| {
                    self.next = (self.next + 1) % MOST_KNOWN;
                    self.next
                });
                let known = KnownTexture { handle, bytes, described };
                match self.known.get_mut(at) {
                    Some(old) => {
                        *old = known;
                        at
                    }
                    None => {
                        self.known.push(known);
                        self.known.len() - 1
                    }
                }
            }
        };
        Ok(&self.known[at].described)
    }
}

/// Whether the bytes of a description with so many levels are those in memory.
fn is_in_memory(bytes: &[u8; DESCRIPTION_BYTES], levels: usize, range: &DeviceBytes) -> bool {
    let mut differ = 0;
    for (n, word) in bytes[..used_bytes(levels)].chunks_exact(8).enumerate() {
        differ |= range.load64(8 * n as u64, Order::Weak) ^ u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
    }
    differ == 0
}

fn read(registers: &WarpRegisters<'_>, slot: RegisterSlot, bytes: u8, lane: usize) -> u64 {
    if bytes == 8 { registers.get64(slot).0[lane] } else { registers.get32(slot).0[lane].into() }
}

fn write(registers: &mut WarpRegisters<'_>, slot: RegisterSlot, bytes: u8, lane: usize, value: u64) {
    if bytes == 8 {
        registers.r64[slot as usize].0[lane] = value;
    } else {
        registers.r32[slot as usize].0[lane] = value as u32;
    }
}

/// Reads the description that a handle names.
fn read_description<M: GlobalMemory>(memory: &mut M, handle: u64, lane: usize) -> LaneResult<Description> {
    let range = find_description(memory, handle, lane)?;
    decode_description(&range, handle, lane).map(|(_, described)| described)
}

fn bad_texture(handle: u64, lane: usize) -> LaneFault {
    LaneFault::access(FaultKind::BadTexture, lane, handle, 0)
}

/// Where the description lies that a handle names.
fn find_description<M: GlobalMemory>(memory: &mut M, handle: u64, lane: usize) -> LaneResult<DeviceBytes> {
    if handle & 7 != 0 {
        return Err(bad_texture(handle, lane));
    }
    DeviceBytes::find(memory, handle, DESCRIPTION_BYTES as u64, Access::Load).map_err(|_| bad_texture(handle, lane))
}

/// Reads a description, and gives its bytes, too.
fn decode_description(range: &DeviceBytes, handle: u64, lane: usize) -> LaneResult<([u8; DESCRIPTION_BYTES], Description)> {
    let mut bytes = [0; DESCRIPTION_BYTES];
    for (n, into) in bytes.chunks_exact_mut(8).enumerate() {
        into.copy_from_slice(&range.load64(8 * n as u64, Order::Weak).to_le_bytes());
    }
    let described = Description::decode(&bytes).ok_or_else(|| bad_texture(handle, lane))?;
    Ok((bytes, described))
}

/// `txq` and `suq`.
fn ask(described: &Description, query: TextureQuery) -> u32 {
    match query {
        TextureQuery::Width => described.size[0],
        TextureQuery::Height => described.size[1],
        TextureQuery::Depth => described.size[2],
        TextureQuery::Layers => match described.shape {
            Shape::Cubes => described.layers / 6,
            _ => described.layers,
        },
        TextureQuery::Levels => described.levels.len() as u32,
        TextureQuery::Normalized => described.sampling.is_some_and(|sampling| sampling.normalized).into(),
    }
}

/// A coordinate in texels: the texel at or below it, and the weight of the next one.
#[derive(Debug, Clone, Copy)]
struct Position {
    first: i64,
    weight: f64,
}

impl Position {
    /// The position of a coordinate in a dimension of `size` texels.
    fn of(coordinate: f32, size: u32, normalized: bool, linear: bool) -> Position {
        let x = f64::from(coordinate) * if normalized { f64::from(size) } else { 1.0 };
        let x = if x.is_finite() {
            x.clamp(-FARTHEST, FARTHEST)
        } else if x > 0.0 {
            FARTHEST
        } else {
            -FARTHEST
        };
        if !linear {
            return Position { first: x.floor() as i64, weight: 0.0 };
        }
        let below = (x - 0.5).floor();
        Position { first: below as i64, weight: eighths(x - 0.5 - below) }
    }
}

/// The texel that stands at a place of a dimension; `None` for the border.
fn index(mode: AddressMode, normalized: bool, at: i64, size: u32) -> Option<u32> {
    let size = i64::from(size);
    let inside = match mode {
        AddressMode::Border => return u32::try_from(at).ok().filter(|at| i64::from(*at) < size),
        // Images repeat only where coordinates go from 0 to 1.
        AddressMode::Wrap if normalized => at.rem_euclid(size),
        AddressMode::Mirror if normalized => {
            let at = at.rem_euclid(2 * size);
            if at < size { at } else { 2 * size - 1 - at }
        }
        _ => at.clamp(0, size - 1),
    };
    Some(inside as u32)
}

/// The face of a cube to which a direction points, and the coordinates there, from 0 to 1.
fn find_face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let (face, most, s, t) = if ax >= ay && ax >= az {
        if x >= 0.0 { (0, ax, -z, -y) } else { (1, ax, z, -y) }
    } else if ay >= az {
        if y >= 0.0 { (2, ay, x, z) } else { (3, ay, x, -z) }
    } else if z >= 0.0 {
        (4, az, x, -y)
    } else {
        (5, az, -x, -y)
    };
    (face, [s, t].map(|n| (n / most + 1.0) / 2.0))
}

/// One lane's use of an object.
struct LaneAccess<'a, 'b, M> {
    handle: u64,
    described: &'a Description,
    near: &'a mut NearMemory<'b>,
    memory: &'a mut M,
    lane: usize,
}

impl<M: GlobalMemory> LaneAccess<'_, '_, M> {
    fn wrong(&self) -> LaneFault {
        LaneFault::access(FaultKind::BadTexture, self.lane, self.handle, 0)
    }

    /// The shape that an instruction sees: a plane of one row is a line, too (as `cudaMallocArray`
    /// makes one with a height of 1).
    fn shape(&self, geometry: Geometry) -> Shape {
        match (self.described.shape, geometry) {
            (Shape::Plane, Geometry::Line) if self.described.size[1] == 1 => Shape::Line,
            (shape, _) => shape,
        }
    }

    /// How the texture is sampled. A fault for a surface, and for an object of another geometry.
    fn sampling(&self, geometry: Geometry) -> LaneResult<Sampling> {
        let fits = matches!(
            (self.shape(geometry), geometry),
            (Shape::Linear | Shape::Line, Geometry::Line)
                | (Shape::Plane, Geometry::Plane)
                | (Shape::Solid, Geometry::Solid)
                | (Shape::Lines, Geometry::Lines)
                | (Shape::Planes, Geometry::Planes)
                | (Shape::Cube, Geometry::Cube)
                | (Shape::Cubes, Geometry::Cubes)
        );
        self.described.sampling.filter(|_| fits).ok_or_else(|| self.wrong())
    }

    /// The channels of a texel, as numbers. Whole numbers of 32 bits are exact.
    fn texel(&mut self, sampling: &Sampling, level: usize, at: [Option<u32>; 3], layer: u32) -> LaneResult<[f64; 4]> {
        let described = self.described;
        let mut out = [0.0, 0.0, 0.0, 1.0];
        let channels = usize::from(described.channels);
        let [Some(x), Some(y), Some(z)] = at else {
            for (into, border) in out.iter_mut().zip(sampling.border) {
                *into = border.into();
            }
            return Ok(out);
        };
        let place = described.levels[level];
        let slices = u64::from(z) + u64::from(layer);
        let row = place.address.wrapping_add(slices.wrapping_mul(place.slice)).wrapping_add(u64::from(y).wrapping_mul(place.pitch));
        let start = row.wrapping_add(u64::from(x).wrapping_mul(described.texel()));
        let bytes = u64::from(described.channel.bytes());
        for (n, into) in out[..channels].iter_mut().enumerate() {
            let bits = single::load(self.near, self.memory, Space::Global, start.wrapping_add(n as u64 * bytes), bytes, self.lane)?;
            *into = match described.channel {
                Channel::Half => Small::wide(H(bits as u16)),
                Channel::Single => f32::from_bits(bits as u32).into(),
                Channel::Unsigned(1 | 2) if sampling.as_numbers => bits as f64 / f64::from((1u32 << (8 * bytes)) - 1),
                Channel::Signed(width @ (1 | 2)) if sampling.as_numbers => {
                    let value = if width == 1 { f64::from(bits as i8) } else { f64::from(bits as i16) };
                    (value / f64::from((1i32 << (8 * bytes - 1)) - 1)).max(-1.0)
                }
                Channel::Unsigned(_) => bits as f64,
                Channel::Signed(1) => (bits as i8).into(),
                Channel::Signed(2) => (bits as i16).into(),
                Channel::Signed(_) => (bits as i32).into(),
            };
        }
        Ok(out)
    }

    /// A channel as the instruction gives it.
    fn bits(&self, sampling: &Sampling, value: f64) -> u32 {
        if is_real(self.described, sampling) { (value as f32).to_bits() } else { value as i64 as u32 }
    }

    /// The layer of an access, faces of cubes counted.
    fn layer(&self, op: &TextureOp, registers: &WarpRegisters<'_>, face: u32) -> u32 {
        let faces = if matches!(op.geometry, Geometry::Cube | Geometry::Cubes) { 6 } else { 1 };
        if op.layer == NO_SLOT {
            return face;
        }
        let last = i64::from((self.described.layers / faces).max(1)) - 1;
        let layer = i64::from(registers.get32(op.layer).0[self.lane].cast_signed()).clamp(0, last) as u32;
        layer.wrapping_mul(faces).wrapping_add(face)
    }

    fn coordinate(&self, op: &TextureOp, registers: &WarpRegisters<'_>, n: usize) -> u32 {
        if op.coordinates[n] == NO_SLOT { 0 } else { registers.get32(op.coordinates[n]).0[self.lane] }
    }

    /// A texel by whole numbers.
    fn fetch(&mut self, sampling: &Sampling, op: &TextureOp, registers: &WarpRegisters<'_>) -> LaneResult<[u32; 4]> {
        let described = self.described;
        let layer = self.layer(op, registers, 0);
        let at = [0, 1, 2].map(|n| {
            let place = i64::from(self.coordinate(op, registers, n).cast_signed());
            // Linear memory has nothing around it.
            let mode = if described.shape == Shape::Linear { AddressMode::Border } else { sampling.address[n] };
            index(mode, sampling.normalized, place, described.size[n])
        });
        if described.shape == Shape::Linear && at.contains(&None) {
            return Ok([0; 4]);
        }
        let texel = self.texel(sampling, 0, at, layer)?;
        Ok(texel.map(|value| self.bits(sampling, value)))
    }

    /// The coordinates on a level's image, and the layer.
    fn coordinates(&self, op: &TextureOp, registers: &WarpRegisters<'_>) -> ([f32; 3], u32) {
        let given = [0, 1, 2].map(|n| f32::from_bits(self.coordinate(op, registers, n)));
        if matches!(op.geometry, Geometry::Cube | Geometry::Cubes) {
            let (face, [s, t]) = find_face(given);
            ([s, t, 0.0], self.layer(op, registers, face))
        } else {
            (given, self.layer(op, registers, 0))
        }
    }

    /// A sample at coordinates.
    fn sample(&mut self, sampling: &Sampling, op: &TextureOp, registers: &WarpRegisters<'_>, level: LevelOf) -> LaneResult<[u32; 4]> {
        let (coordinates, layer) = self.coordinates(op, registers);
        let last = self.described.levels.len() - 1;
        let level = if last == 0 { 0.0 } else { self.find_level(sampling, op, registers, level).clamp(0.0, last as f64) };
        let value = if sampling.linear_levels && is_real(self.described, sampling) {
            let (below, weight) = (level.floor(), eighths(level - level.floor()));
            let first = self.sample_level(sampling, op.geometry, below as usize, coordinates, layer)?;
            if weight == 0.0 {
                first
            } else {
                let second = self.sample_level(sampling, op.geometry, (below as usize + 1).min(last), coordinates, layer)?;
                [0, 1, 2, 3].map(|n| first[n] * (1.0 - weight) + second[n] * weight)
            }
        } else {
            self.sample_level(sampling, op.geometry, (level + 0.5).floor().min(last as f64) as usize, coordinates, layer)?
        };
        Ok(value.map(|value| self.bits(sampling, value)))
    }

    /// The level that an instruction asks for.
    fn find_level(&self, sampling: &Sampling, op: &TextureOp, registers: &WarpRegisters<'_>, level: LevelOf) -> f64 {
        let single = |slot: RegisterSlot| f64::from(f32::from_bits(registers.get32(slot).0[self.lane]));
        let asked = match level {
            LevelOf::First => return 0.0,
            LevelOf::Register(slot) => single(slot),
            LevelOf::Gradients(x, y) => {
                let size = self.described.size_of(0);
                let length = |axis: [RegisterSlot; 3]| {
                    let texels = |n: usize| single(axis[n]) * if sampling.normalized { f64::from(size[n]) } else { 1.0 };
                    (0..op.geometry.dimensions()).map(|n| texels(n).powi(2)).sum::<f64>().sqrt()
                };
                length(x).max(length(y)).log2()
            }
        };
        let level = asked + f64::from(sampling.level_bias);
        if level.is_nan() { 0.0 } else { level.max(sampling.levels[0].into()).min(sampling.levels[1].into()) }
    }

    /// A sample of one level.
    fn sample_level(&mut self, sampling: &Sampling, geometry: Geometry, level: usize, coordinates: [f32; 3], layer: u32) -> LaneResult<[f64; 4]> {
        let size = self.described.size_of(level);
        let flat = matches!(geometry, Geometry::Cube | Geometry::Cubes);
        let dimensions = if flat { 2 } else { geometry.dimensions() };
        let normalized = sampling.normalized || flat;
        let linear = sampling.linear && is_real(self.described, sampling);
        let positions =
            [0, 1, 2].map(|n| if n < dimensions { Position::of(coordinates[n], size[n], normalized, linear) } else { Position { first: 0, weight: 0.0 } });
        let mut sum = [0.0; 4];
        // Each corner of the cell whose weight is not zero.
        for corner in 0..if linear { 1u32 << dimensions } else { 1 } {
            let next = |n: usize| corner >> n & 1 != 0;
            let weight: f64 = (0..3).map(|n| if next(n) { positions[n].weight } else { 1.0 - positions[n].weight }).product();
            if weight == 0.0 {
                continue;
            }
            let at = [0, 1, 2]
                .map(|n| if n >= dimensions { Some(0) } else { index(sampling.address[n], normalized, positions[n].first + i64::from(next(n)), size[n]) });
            let texel = self.texel(sampling, level, at, layer)?;
            for (sum, value) in sum.iter_mut().zip(texel) {
                // Not-a-number and infinity pass unchanged where there is one texel.
                *sum = if weight == 1.0 { value } else { *sum + weight * value };
            }
        }
        Ok(sum)
    }

    /// One component of the four texels around a place, counter-clockwise from the lower left.
    fn gather(&mut self, sampling: &Sampling, op: &TextureOp, registers: &WarpRegisters<'_>, component: u8) -> LaneResult<[u32; 4]> {
        let (coordinates, layer) = self.coordinates(op, registers);
        let size = self.described.size_of(0);
        let positions = [0, 1].map(|n| Position::of(coordinates[n], size[n], sampling.normalized, true).first);
        let mut out = [0; 4];
        for (into, (right, down)) in out.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)]) {
            let x = index(sampling.address[0], sampling.normalized, positions[0] + right, size[0]);
            let y = index(sampling.address[1], sampling.normalized, positions[1] + down, size[1]);
            let texel = self.texel(sampling, 0, [x, y, Some(0)], layer)?;
            *into = self.bits(sampling, texel[usize::from(component)]);
        }
        Ok(out)
    }

    /// Where an access to a surface goes; `None` if it is outside and nothing is there.
    fn surface_address(&mut self, op: &TextureOp, registers: &WarpRegisters<'_>, bytes: u8, outside: Outside) -> LaneResult<Option<u64>> {
        let described = self.described;
        let fits = matches!(
            (self.shape(op.geometry), op.geometry),
            (Shape::Line, Geometry::Line)
                | (Shape::Plane, Geometry::Plane)
                | (Shape::Solid, Geometry::Solid)
                | (Shape::Lines, Geometry::Lines)
                | (Shape::Planes | Shape::Cube | Shape::Cubes, Geometry::Planes)
        );
        if described.sampling.is_some() || !fits {
            return Err(self.wrong());
        }
        let all = i64::from(bytes) * op.data.len() as i64;
        let row = i64::from(described.size[0]) * described.texel() as i64;
        let limits = [row - all, i64::from(described.size[1]) - 1, i64::from(described.size[2]) - 1];
        let mut at = [0, 1, 2].map(|n| i64::from(self.coordinate(op, registers, n).cast_signed()));
        if at[0] & (all - 1) != 0 {
            return Err(LaneFault::access(FaultKind::Misaligned, self.lane, at[0] as u64, all as u32));
        }
        let layer = if op.layer == NO_SLOT { 0 } else { i64::from(registers.get32(op.layer).0[self.lane].cast_signed()) };
        let last = i64::from(described.layers) - 1;
        let is_inside = at.iter().zip(limits).all(|(at, limit)| (0..=limit).contains(at)) && (0..=last).contains(&layer);
        match outside {
            _ if is_inside => {}
            Outside::Zero => return Ok(None),
            Outside::Trap => return Err(LaneFault::access(FaultKind::SurfaceOutOfBounds, self.lane, self.handle, all as u32)),
            Outside::Clamp => {
                for (at, limit) in at.iter_mut().zip(limits) {
                    *at = (*at).min(limit).max(0);
                }
            }
        }
        let layer = layer.clamp(0, last);
        let place = described.levels[0];
        let slices = (at[2] + layer) as u64;
        let start = place.address.wrapping_add(slices.wrapping_mul(place.slice)).wrapping_add((at[1] as u64).wrapping_mul(place.pitch));
        Ok(Some(start.wrapping_add(at[0] as u64)))
    }
}

#[cfg(test)]
mod tests;
