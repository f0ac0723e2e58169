//! Samples of a warp against those of its lanes, and places that a person can compute.

use super::*;
use crate::memory::client::ClientMemory;
use crate::memory::worker::{Bounds, WorkerMemory};
use crate::simd::lanes::{PerLane32, PerLane64};
use cumux_ranges::AllowedRange;
use std::sync::Arc;

/// A repeatable number below `most`.
fn below(state: &mut u64, most: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % most
}

fn one_of<T: Copy>(state: &mut u64, all: &[T]) -> T {
    all[below(state, all.len() as u64) as usize]
}

/// A coordinate near an image of some texels, or far away.
fn coordinate(state: &mut u64, whole: bool, normalized: bool) -> u32 {
    const FAR: [f32; 10] = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 2e9, -3e12, 1e-40];
    if whole {
        return if below(state, 9) == 0 { below(state, 1 << 32) as u32 } else { (below(state, 60) as i32 - 25) as u32 };
    }
    if below(state, 12) == 0 {
        return one_of(state, &FAR).to_bits();
    }
    let texels = (below(state, 4096) as f32 - 1500.0) / 64.0;
    (if normalized { texels / 9.0 } else { texels }).to_bits()
}

/// Where the client's memory begins.
const START: u64 = 0x1_0000;

/// A worker's view of a client's memory of these bytes.
fn view(bytes: &mut [u128]) -> WorkerMemory {
    let client = Arc::new(ClientMemory::default());
    let shift = (bytes.as_mut_ptr().expose_provenance() as u64).wrapping_sub(START);
    let range = AllowedRange { start: START, end: START + size_of_val(bytes) as u64, writable: true, shift };
    client.table.write().allow(range).unwrap();
    let mut memory = WorkerMemory::new(Bounds::Exact);
    memory.begin_slice(&client, false);
    memory
}

#[test]
fn a_warp_at_once_has_the_samples_of_its_lanes() {
    let state = &mut 7;
    let mut at_once = 0;
    for round in 0..6_000 {
        let (geometry, shape) = one_of(
            state,
            &[
                (Geometry::Line, Shape::Line),
                (Geometry::Line, Shape::Linear),
                (Geometry::Plane, Shape::Plane),
                (Geometry::Solid, Shape::Solid),
                (Geometry::Lines, Shape::Lines),
                (Geometry::Planes, Shape::Planes),
            ],
        );
        let whole = shape == Shape::Linear || below(state, 3) == 0;
        let dimensions = geometry.dimensions();
        let channel = one_of(state, &[1, 2, 4].map(Channel::Unsigned));
        let channel = {
            let signed = one_of(state, &[1, 2, 4].map(Channel::Signed));
            one_of(state, &[channel, signed, Channel::Half, Channel::Single])
        };
        let channels = one_of(state, &[1, 2, 4]);
        let size = [0, 1, 2].map(|n| if n < dimensions { 1 + below(state, 12) as u32 } else { 1 });
        let layers = if geometry.has_layers() { 1 + below(state, 4) as u32 } else { 1 };
        let texel = u64::from(channel.bytes()) * u64::from(channels);
        // Rows begin at multiples of a texel, or of a channel now and then.
        let gap = if below(state, 8) == 0 { u64::from(channel.bytes()) } else { texel };
        let pitch = texel * u64::from(size[0]) + gap * below(state, 3);
        let slice = pitch * u64::from(size[1]);
        let mode = |state: &mut u64| one_of(state, &[AddressMode::Wrap, AddressMode::Clamp, AddressMode::Mirror, AddressMode::Border]);
        let sampling = Sampling {
            address: if below(state, 2) == 0 { [mode(state); 3] } else { [mode(state), mode(state), mode(state)] },
            linear: below(state, 2) == 0,
            normalized: below(state, 2) == 0,
            as_numbers: below(state, 2) == 0,
            border: [-1.5, 0.25, 7.0, 1e12],
            ..Sampling::default()
        };
        let start = START + DESCRIPTION_BYTES as u64;
        let levels = vec![cumux_wire::texture::Level { address: start, pitch, slice }];
        let described = Description { shape, channel, channels, size, layers, levels, sampling: Some(sampling) };
        // Now and then the last texels are missing: a fault of the first lane that wants one.
        let missing = if below(state, 20) == 0 { 1 } else { 0 };
        let bytes = (start - START + slice * u64::from(size[2]) * u64::from(layers)).next_multiple_of(16) - 16 * missing;
        let mut bytes: Vec<u128> = (0..bytes / 16).map(|_| (0..5).fold(0, |all, _| all << 27 ^ u128::from(below(state, 1 << 31)))).collect();
        for (into, from) in bytes.iter_mut().zip(described.encode().chunks_exact(16)) {
            *into = u128::from_le_bytes(from.try_into().unwrap());
        }
        let mut memory = view(&mut bytes);
        let op = TextureOp {
            kind: TextureKind::Sample { whole, level: LevelOf::First },
            geometry,
            object: 0,
            layer: if geometry.has_layers() { 3 } else { NO_SLOT },
            coordinates: [0, 1, 2].map(|n| if usize::from(n) < dimensions { n } else { NO_SLOT }),
            data: vec![4, 5, 6, 7],
        };
        let mask = one_of(state, &[u32::MAX, 1, 0x8000_0000, 0xffff, 0x1357_9bdf]);
        let mut r32 = [PerLane32::splat(0); 8];
        for slot in &mut r32[..3] {
            slot.0 = std::array::from_fn(|_| coordinate(state, whole, sampling.normalized));
        }
        r32[3].0 = std::array::from_fn(|_| (below(state, 8) as u32).wrapping_sub(2));
        let mut known = KnownTextures::default();
        let mut run = |at_once: Option<&mut u32>| {
            let (mut r32, mut r64) = (r32, [PerLane64::splat(START)]);
            let mut registers = WarpRegisters { r32: &mut r32, r64: &mut r64, p: &mut [], c32: &[], c64: &[] };
            let mut near = NearMemory { shared: &mut [], peers: &mut [], rank: 0, local: &mut [], local_bytes: 0, frame: 0, parameters: &[] };
            let result = match at_once {
                Some(count) => {
                    *count += u32::from(sample_at_once(&mut registers, &op, whole, mask, &mut near, &mut memory, &mut known).is_ok_and(|done| done));
                    perform(&mut registers, &op, mask, &mut near, &mut memory, &mut known)
                }
                None => perform_by_lane(&mut registers, &op, mask, &mut near, &mut memory),
            };
            (result.map_err(|fault| (fault.kind, fault.lane, fault.address, fault.bytes)), r32.map(|slot| slot.0))
        };
        let (together, alone) = (run(Some(&mut at_once)), run(None));
        assert_eq!(together.0, alone.0, "round {round}: {described:?} {op:?}");
        // Of the sum of two that are no numbers the sign and the payload are open.
        let number = |bits: u32| if is_real(&described, &sampling) && f32::from_bits(bits).is_nan() { f32::NAN.to_bits() } else { bits };
        if alone.0.is_ok() {
            assert_eq!(together.1.map(|slot| slot.map(number)), alone.1.map(|slot| slot.map(number)), "round {round}: {described:?} {op:?}");
        }
    }
    assert!(at_once > 3_000, "only {at_once} were sampled at once");
}

#[test]
fn places_outside_follow_the_mode() {
    let all = |mode, normalized| (-5..9).map(|at| index(mode, normalized, at, 4).map_or(-1, i64::from)).collect::<Vec<_>>();
    assert_eq!(all(AddressMode::Clamp, true), [0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 3, 3, 3]);
    assert_eq!(all(AddressMode::Border, true), [-1, -1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, -1]);
    assert_eq!(all(AddressMode::Wrap, true), [3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0]);
    assert_eq!(all(AddressMode::Mirror, true), [3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0, 0]);
    // Coordinates that count texels do not repeat.
    assert_eq!(all(AddressMode::Wrap, false), all(AddressMode::Clamp, true));
}

#[test]
fn weights_have_eight_bits() {
    let of = |x: f32| {
        let Position { first, weight } = Position::of(x, 8, false, true);
        (first, weight)
    };
    assert_eq!([of(1.5), of(2.0), of(0.0)], [(1, 0.0), (1, 0.5), (-1, 0.5)]);
    assert_eq!(of(1.5 + 1.0 / 300.0).1, 1.0 / 256.0);
    assert_eq!(of(2.499), (1, 1.0));
    assert_eq!(Position::of(f32::NAN, 8, true, true).first, -1_000_000_000_000_001);
    assert_eq!(Position::of(0.3, 10, true, false).first, 3);
}

#[test]
fn directions_point_to_faces() {
    let faces = [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]];
    assert_eq!(faces.map(|direction| find_face(direction).0), [0, 1, 2, 3, 4, 5]);
    assert_eq!(find_face([2.0, 1.0, -1.0]), (0, [0.75, 0.25]));
    assert_eq!(find_face([1.0, 2.0, 1.0]), (2, [0.75, 0.75]));
}
