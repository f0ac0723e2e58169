//! Arrays, texture objects and surface objects, on devices that have them. A device either executes
//! texture instructions on descriptions in the client's memory, or has a driver that makes arrays
//! and objects. Kernels see no difference.

use super::client::Variables;
use super::{Actor, Args, Loaded, Opener, Setup};
use crate::{ArrayWish, CopyEnd, CopyExtent, DeviceError, ObjectWish, Resource, StreamId, TextureWish, Work};
use cumux_wire::result;
use cumux_wire::texture::{AddressMode, Channel, Description, Level, Sampling, Shape};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;

/// The kernels; the file explains them.
const KERNELS: &str = include_str!("textures.ptx");

/// `CU_AD_FORMAT_FLOAT` and `CU_AD_FORMAT_UNSIGNED_INT32`.
const FLOAT: u32 = 0x20;
const WORD: u32 = 3;
/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_SURFACE_LDST`.
const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
/// `CU_TRSF_NORMALIZED_COORDINATES`.
const NORMALIZED: u32 = 2;
/// Bytes of a texel, here always.
const TEXEL: u64 = 4;

/// A client that makes images and samples them.
struct Painter<'a, 'b> {
    client: &'a Actor<'b>,
    stream: StreamId,
    kernels: Loaded,
    out: u64,
    next: Mutex<u32>,
}

/// Texels somewhere, one word each, in so many levels.
struct Image {
    shape: Shape,
    /// As the array is described.
    size: [u64; 3],
    flags: u32,
    format: u32,
    levels: u32,
    /// Of a device whose driver makes arrays.
    array: u32,
    /// Of another device: where each level is.
    places: Vec<Level>,
}

impl Image {
    /// Texels of a row, rows, and slices of a level.
    fn texels(&self, level: u32) -> [u64; 3] {
        let [row, rows, slices] = self.wish().level_bytes(level);
        [row / TEXEL, rows, slices]
    }

    fn wish(&self) -> ArrayWish {
        let levels = if self.levels > 1 { self.levels } else { 0 };
        ArrayWish { size: self.size, format: self.format, channels: 1, flags: self.flags, levels }
    }
}

impl<'a, 'b> Painter<'a, 'b> {
    /// `None` on a device without textures.
    fn new(client: &'a Actor<'b>) -> Option<Self> {
        let capabilities = client.device().capabilities();
        if !capabilities.has_textures && !capabilities.makes_textures {
            return None;
        }
        let mut place = Variables { actor: client, restored: HashMap::new() };
        let kernels = client.load(KERNELS.as_bytes(), &mut place).expect("the kernels load");
        Some(Self { client, stream: client.stream(), kernels, out: client.allocate(64), next: Mutex::new(1) })
    }

    fn makes(&self) -> bool {
        self.client.device().capabilities().makes_textures
    }

    /// An image of zeros.
    fn image(&self, shape: Shape, size: [u64; 3], flags: u32, format: u32, levels: u32) -> Image {
        let array = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        let mut image = Image { shape, size, flags, format, levels, array, places: Vec::new() };
        if self.makes() {
            self.client.device().create_array(self.client.id, array, &image.wish()).expect("an array");
        } else {
            image.places = (0..levels)
                .map(|level| {
                    let [row, rows, slices] = image.texels(level).map(|count| count);
                    let (pitch, slice) = (row * TEXEL, row * rows * TEXEL);
                    Level { address: self.client.allocate(slice * slices), pitch, slice }
                })
                .collect();
        }
        image
    }

    /// Copies words, one after the other, into a level; in the order of the stream.
    fn paint(&self, image: &Image, level: u32, words: &[u32]) {
        let [row, rows, slices] = image.texels(level);
        assert_eq!(words.len() as u64, row * rows * slices);
        let from = self.client.allocate(words.len() as u64 * TEXEL);
        self.client.write(from, words);
        let source = CopyEnd::Memory { address: from, pitch: row * TEXEL, slice: row * rows * TEXEL };
        self.copy(self.end(image, level, [0; 3]), source, [row * TEXEL, rows, slices]);
    }

    /// The words of a level.
    fn look(&self, image: &Image, level: u32) -> Vec<u32> {
        let [row, rows, slices] = image.texels(level);
        let count = row * rows * slices;
        let into = self.client.allocate(count * TEXEL);
        let target = CopyEnd::Memory { address: into, pitch: row * TEXEL, slice: row * rows * TEXEL };
        self.copy(target, self.end(image, level, [0; 3]), [row * TEXEL, rows, slices]);
        self.client.drain(self.stream);
        self.client.read(into, count as usize)
    }

    /// A place in a level, from this byte of a row, this row and this slice on.
    fn end(&self, image: &Image, level: u32, at: [u64; 3]) -> CopyEnd {
        match image.places.get(level as usize) {
            Some(Level { address, pitch, slice }) => CopyEnd::Memory { address: address + at[2] * slice + at[1] * pitch + at[0], pitch: *pitch, slice: *slice },
            None => CopyEnd::Array { array: image.array, level, at },
        }
    }

    fn copy(&self, target: CopyEnd, source: CopyEnd, [width, height, depth]: [u64; 3]) -> u64 {
        let extent = CopyExtent { width, height, depth };
        let rows = |end| match end {
            CopyEnd::Memory { address, pitch, slice } => Some(crate::Rows { address, pitch, slice }),
            CopyEnd::Array { .. } => None,
        };
        let work = match (rows(target), rows(source)) {
            (Some(target), Some(source)) => Work::Copy { target, source, extent },
            _ => Work::ArrayCopy { target, source, extent },
        };
        self.client.submit(self.stream, work)
    }

    /// The handle of a texture object, with border -1.
    fn texture(&self, image: &Image, mode: AddressMode, linear: bool, normalized: bool) -> u64 {
        if self.makes() {
            let resource = if image.levels > 1 { Resource::Mipmapped { array: image.array } } else { Resource::Array { array: image.array, level: 0 } };
            let texture = TextureWish {
                address: [mode as u32; 3],
                filter: linear.into(),
                level_filter: linear.into(),
                flags: if normalized { NORMALIZED } else { 0 },
                levels: [0.0_f32, 15.0].map(f32::to_bits),
                border: [-1.0_f32; 4].map(f32::to_bits),
                ..TextureWish::default()
            };
            return self.object(&ObjectWish { resource, texture: Some(texture), view: None });
        }
        let sampling =
            Sampling { address: [mode; 3], linear, linear_levels: linear, normalized, levels: [0.0, 15.0], border: [-1.0; 4], ..Sampling::default() };
        self.describe(image, Some(sampling))
    }

    fn surface(&self, image: &Image) -> u64 {
        if self.makes() {
            return self.object(&ObjectWish { resource: Resource::Array { array: image.array, level: 0 }, texture: None, view: None });
        }
        self.describe(image, None)
    }

    fn object(&self, wish: &ObjectWish) -> u64 {
        self.client.device().create_object(self.client.id, wish).expect("an object")
    }

    fn describe(&self, image: &Image, sampling: Option<Sampling>) -> u64 {
        let [width, height, depth] = image.texels(0).map(|count| count as u32);
        let (depth, layers) = if image.flags & LAYERED != 0 { (1, depth) } else { (depth, 1) };
        let channel = if image.format == FLOAT { Channel::Single } else { Channel::Unsigned(4) };
        let description =
            Description { shape: image.shape, channel, channels: 1, size: [width, height, depth], layers, levels: image.places.clone(), sampling };
        let bytes = description.encode();
        let handle = self.client.allocate(bytes.len() as u64);
        self.client.device().write(handle, &bytes).expect("written");
        handle
    }

    /// The first channel of a sample.
    fn sample(&self, kernel: &str, object: u64, at: &[f32], layer: Option<u32>) -> f32 {
        let args = at.iter().fold(Args::new().u64(object), |args, part| args.u32(part.to_bits()));
        let args = layer.into_iter().fold(args, Args::u32).u64(self.out);
        self.client.launch(self.stream, &self.kernels, kernel, 1, 1, args);
        self.client.drain(self.stream);
        f32::from_bits(self.client.read(self.out, 1)[0])
    }
}

/// So many numbers, each ten times its row and its column more than the one before.
fn slope([width, height, depth]: [u64; 3]) -> Vec<u32> {
    let value = |z: u64, y: u64, x: u64| (100 * z + 10 * y + x) as f32;
    (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| value(z, y, x).to_bits()))).collect()
}

pub fn a_plane_is_sampled_in_all_ways(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let Some(painter) = Painter::new(&client) else { return };
    let image = painter.image(Shape::Plane, [4, 3, 0], 0, FLOAT, 1);
    painter.paint(&image, 0, &slope([4, 3, 1]));
    let clamped = painter.texture(&image, AddressMode::Clamp, false, false);
    let linear = painter.texture(&image, AddressMode::Clamp, true, false);
    let bordered = painter.texture(&image, AddressMode::Border, false, false);
    let repeated = painter.texture(&image, AddressMode::Wrap, false, true);
    let sample = |object, x, y| painter.sample("sample_plane", object, &[x, y], None);
    for (x, y, expected) in [(0.0, 0.0, 0.0), (0.99, 1.0, 10.0), (3.5, 2.9, 23.0), (-5.0, 1.5, 10.0), (9.0, 9.0, 23.0)] {
        assert_eq!(sample(clamped, x, y), expected, "{x} {y}");
    }
    for (x, y, expected) in [(0.5, 0.5, 0.0), (1.0, 0.5, 0.5), (1.75, 2.0, 16.25), (3.5, 2.5, 23.0)] {
        assert_eq!(sample(linear, x, y), expected, "{x} {y}");
    }
    assert_eq!((sample(bordered, 1.5, 1.5), sample(bordered, -0.5, 1.5)), (11.0, -1.0));
    assert_eq!((sample(repeated, 0.3, 0.5), sample(repeated, 1.3, -0.5)), (11.0, 11.0));
}

pub fn layers_solids_and_levels_are_sampled(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let Some(painter) = Painter::new(&client) else { return };
    let layers = painter.image(Shape::Planes, [5, 4, 3], LAYERED, FLOAT, 1);
    let solid = painter.image(Shape::Solid, [5, 4, 3], 0, FLOAT, 1);
    for image in [&layers, &solid] {
        painter.paint(image, 0, &slope([5, 4, 3]));
    }
    let (in_layers, in_solid) = (painter.texture(&layers, AddressMode::Clamp, false, false), painter.texture(&solid, AddressMode::Clamp, true, false));
    for (layer, expected) in [(0, 21.0), (2, 221.0), (9, 221.0)] {
        assert_eq!(painter.sample("sample_layer", in_layers, &[1.5, 2.5], Some(layer)), expected);
    }
    for (z, expected) in [(0.5, 21.0), (1.0, 71.0), (2.5, 221.0)] {
        assert_eq!(painter.sample("sample_solid", in_solid, &[1.5, 2.5, z], None), expected);
    }
    let pyramid = painter.image(Shape::Plane, [8, 8, 0], 0, FLOAT, 3);
    for level in 0..3 {
        let [width, height, _] = pyramid.texels(level);
        painter.paint(&pyramid, level, &vec![(10.0 * level as f32).to_bits(); (width * height) as usize]);
    }
    let in_levels = painter.texture(&pyramid, AddressMode::Clamp, true, true);
    for (level, expected) in [(0.0, 0.0), (0.5, 5.0), (1.0, 10.0), (2.0, 20.0), (7.0, 20.0)] {
        assert_eq!(painter.sample("sample_level", in_levels, &[0.5, 0.5, level], None), expected);
    }
}

pub fn surfaces_are_read_and_written(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let Some(painter) = Painter::new(&client) else { return };
    let (one, other) = (painter.image(Shape::Plane, [16, 7, 0], SURFACE, WORD, 1), painter.image(Shape::Plane, [16, 7, 0], SURFACE, WORD, 1));
    let words: Vec<u32> = (0..16 * 7).map(|n| n * 3).collect();
    painter.paint(&one, 0, &words);
    let (from, to) = (painter.surface(&one), painter.surface(&other));
    // Copies and kernels of a stream see what the ones before have done.
    for _ in 0..10 {
        for (from, to) in [(from, to), (to, from)] {
            client.launch(painter.stream, &painter.kernels, "add_one_across", 7, 16, Args::new().u64(from).u64(to));
        }
    }
    assert_eq!(painter.look(&one, 0), words.iter().map(|word| word + 20).collect::<Vec<_>>());
    assert_eq!(painter.look(&other, 0), words.iter().map(|word| word + 19).collect::<Vec<_>>());
}

pub fn boxes_of_arrays_are_copied(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let Some(painter) = Painter::new(&client) else { return };
    let size = [24, 9, 6];
    let place = |[x, y, z]: [u64; 3]| ((z * size[1] + y) * size[0] + x) as usize;
    let (one, other) = (painter.image(Shape::Solid, size, 0, WORD, 1), painter.image(Shape::Solid, size, 0, WORD, 1));
    assert!(painter.look(&one, 0).iter().all(|word| *word == 0), "an array begins with zeros");
    let words: Vec<u32> = (0..24 * 9 * 6).map(|n| n * 7 + 1).collect();
    painter.paint(&one, 0, &words);
    assert_eq!(painter.look(&one, 0), words);
    let mut expected = vec![0; words.len()];
    for (from, to, extent) in [([0, 0, 0], [3, 2, 1], [5, 4, 3]), ([20, 8, 5], [0, 0, 0], [4, 1, 1]), ([1, 1, 1], [12, 3, 2], [12, 6, 4])] {
        let bytes = |[x, y, z]: [u64; 3]| [x * TEXEL, y, z];
        painter.copy(painter.end(&other, 0, bytes(to)), painter.end(&one, 0, bytes(from)), bytes(extent));
        for z in 0..extent[2] {
            for y in 0..extent[1] {
                for x in 0..extent[0] {
                    expected[place([to[0] + x, to[1] + y, to[2] + z])] = words[place([from[0] + x, from[1] + y, from[2] + z])];
                }
            }
        }
        assert_eq!(painter.look(&other, 0), expected, "from {from:?} to {to:?}");
    }
    // Through memory whose rows and slices are further apart.
    let memory = client.allocate(1 << 20);
    let apart = CopyEnd::Memory { address: memory + 64, pitch: 104, slice: 104 * 11 };
    painter.copy(apart, painter.end(&one, 0, [0; 3]), [24 * TEXEL, 9, 6]);
    painter.copy(painter.end(&other, 0, [0; 3]), apart, [24 * TEXEL, 9, 6]);
    assert_eq!(painter.look(&other, 0), words);
}

pub fn a_copy_beyond_an_array_faults(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let Some(painter) = Painter::new(&client).filter(Painter::makes) else { return };
    let image = painter.image(Shape::Plane, [8, 4, 0], 0, WORD, 1);
    let memory = client.allocate(4096);
    let end = CopyEnd::Memory { address: memory, pitch: 64, slice: 0 };
    let token = painter.copy(painter.end(&image, 0, [0, 1, 0]), end, [32, 4, 1]);
    client.fault(token, result::INVALID_VALUE);
}

pub fn an_array_has_nothing_of_the_one_before(open: Opener) {
    let setup = Setup::new(open);
    for id in 1..=3 {
        let client = setup.client(id);
        let Some(painter) = Painter::new(&client).filter(Painter::makes) else { return };
        for (shape, size, levels) in [(Shape::Plane, [700, 900, 0], 1), (Shape::Plane, [512, 512, 0], 4), (Shape::Solid, [60, 50, 40], 1)] {
            let image = painter.image(shape, size, 0, WORD, levels);
            for level in 0..levels {
                assert!(painter.look(&image, level).iter().all(|word| *word == 0), "client {id}, {size:?}, level {level}");
                painter.paint(&image, level, &vec![u32::MAX; image.texels(level).iter().product::<u64>() as usize]);
            }
            client.drain(painter.stream);
            client.device().destroy_array(client.id, image.array);
        }
    }
}

pub fn arrays_are_their_clients_alone(open: Opener) {
    let setup = Setup::new(open);
    let (client, other) = (setup.client(1), setup.client(2));
    let Some(painter) = Painter::new(&client).filter(Painter::makes) else { return };
    let image = painter.image(Shape::Plane, [8, 4, 0], SURFACE, WORD, 1);
    let words: Vec<u32> = (0..32).collect();
    painter.paint(&image, 0, &words);
    let device = client.device();
    let surface = ObjectWish { resource: Resource::Array { array: image.array, level: 0 }, texture: None, view: None };
    assert!(matches!(device.create_object(other.id, &surface), Err(DeviceError::Invalid(_))), "another client's array");
    assert!(device.create_array(client.id, image.array, &image.wish()).is_err(), "the number is in use");
    let memory = client.allocate(4096);
    let shown = |address| ObjectWish {
        resource: Resource::Linear { address, format: WORD, channels: 1, bytes: 256 },
        texture: Some(TextureWish { levels: [0, 0], ..TextureWish::default() }),
        view: None,
    };
    assert!(device.create_object(client.id, &shown(memory)).is_ok());
    assert!(matches!(device.create_object(other.id, &shown(memory)), Err(DeviceError::Invalid(_))), "another client's memory");
    // The other client has a number of its own for an array of its own.
    device.create_array(other.id, image.array, &image.wish()).expect("an array of the other's");
    device.destroy_array(other.id, image.array);
    assert_eq!(painter.look(&image, 0), words);
    let stream = other.stream();
    let into = CopyEnd::Memory { address: other.allocate(4096), pitch: 32, slice: 0 };
    let work = Work::ArrayCopy { target: into, source: painter.end(&image, 0, [0; 3]), extent: CopyExtent { width: 32, height: 4, depth: 1 } };
    let token = other.submit(stream, work);
    other.fault(token, result::INVALID_HANDLE);
    device.destroy_object(client.id, painter.surface(&image));
    device.destroy_array(client.id, image.array);
    let token = painter.copy(into, painter.end(&image, 0, [0; 3]), [32, 4, 1]);
    client.fault(token, result::INVALID_HANDLE);
}
