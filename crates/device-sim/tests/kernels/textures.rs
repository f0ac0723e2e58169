//! Textures and surfaces: samples that a person can compute (CUDA C++ Programming Guide, *Texture
//! Fetching*), for every shape, filter and address mode, from descriptions as the client's library
//! writes them.

use crate::common::Loaded;
use cumux_wire::texture::{AddressMode, Channel, Description, Level, Sampling, Shape};

/// A kernel of one thread whose parameters are an object, three coordinates, and where it writes.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 object, .param .b32 x, .param .b32 y, .param .b32 z, .param .b32 l, .param .u64 out)\n{{\n\
         .reg .b64 %d, %o;\n.reg .b32 %x, %y, %z, %l;\n.reg .b32 %r<4>;\n\
         ld.param.u64 %d, [object];\nld.param.b32 %x, [x];\nld.param.b32 %y, [y];\nld.param.b32 %z, [z];\nld.param.b32 %l, [l];\nld.param.u64 %o, [out];\n\
         {body}\nst.global.v4.b32 [%o], {{%r0, %r1, %r2, %r3}};\nret;\n}}\n"
    )
}

const FOUR: &str = "{%r0, %r1, %r2, %r3}";
const ZEROS: &str = "mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0;\n";

/// An object over an image, and a kernel that uses it.
struct Image {
    loaded: Loaded,
    handle: u64,
    texels: u64,
    out: u64,
}

impl Image {
    /// `levels`: where each level's texels begin in `bytes`, with pitch and slice.
    fn new(body: &str, mut about: Description, bytes: &[u8], levels: &[(u64, u64, u64)]) -> Image {
        let mut loaded = Loaded::new(&kernel(body)).expect("it compiles");
        let texels = loaded.memory.allocate(bytes);
        about.levels = levels.iter().map(|(at, pitch, slice)| Level { address: texels + at, pitch: *pitch, slice: *slice }).collect();
        let handle = loaded.memory.allocate(&about.encode());
        let out = loaded.memory.allocate(&[0; 16]);
        Image { loaded, handle, texels, out }
    }

    fn run(&mut self, [x, y, z]: [u32; 3], l: u32) -> Result<[u32; 4], String> {
        let mut parameters = self.handle.to_le_bytes().to_vec();
        parameters.extend([x, y, z, l].iter().flat_map(|word| word.to_le_bytes()));
        parameters.extend(self.out.to_le_bytes());
        self.loaded.run("k", [1; 3], [1; 3], 0, parameters).map_err(|fault| fault.to_string())?;
        let out = self.loaded.memory.read(self.out);
        Ok([0, 1, 2, 3].map(|n| u32::from_le_bytes(out[4 * n..4 * n + 4].try_into().unwrap())))
    }

    /// At real coordinates; the result as real numbers.
    fn sample(&mut self, at: [f32; 3], l: u32) -> [f32; 4] {
        self.run(at.map(f32::to_bits), l).expect("no fault").map(f32::from_bits)
    }

    fn first(&mut self, at: [f32; 3]) -> f32 {
        self.sample(at, 0)[0]
    }
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn about(shape: Shape, size: [u32; 3], layers: u32, sampling: Option<Sampling>) -> Description {
    Description { shape, channel: Channel::Single, channels: 1, size, layers, levels: Vec::new(), sampling }
}

fn sampling(mode: AddressMode, linear: bool, normalized: bool) -> Sampling {
    Sampling { address: [mode; 3], linear, normalized, levels: [0.0, 15.0], border: [-1.0, -2.0, -3.0, -4.0], ..Sampling::default() }
}

/// Four by three texels, each 10 y + x, in rows of 32 bytes.
fn plane(mode: AddressMode, linear: bool, normalized: bool) -> Image {
    let texels = floats((0..24).map(|n| (10 * (n / 8) + n % 8) as f32));
    let body = format!("tex.2d.v4.f32.f32 {FOUR}, [%d, {{%x, %y}}];");
    Image::new(&body, about(Shape::Plane, [4, 3, 1], 1, Some(sampling(mode, linear, normalized))), &texels, &[(0, 32, 0)])
}

#[test]
fn the_nearest_texel_is_the_one_in_which_the_coordinate_lies() {
    let mut image = plane(AddressMode::Clamp, false, false);
    for (x, y, expected) in [(0.0, 0.0, 0.0), (0.99, 1.0, 10.0), (3.5, 2.9, 23.0), (-5.0, 1.5, 10.0), (9.0, 9.0, 23.0), (f32::NEG_INFINITY, 0.0, 0.0)] {
        assert_eq!(image.first([x, y, 0.0]), expected, "{x} {y}");
    }
    assert_eq!(image.sample([1.5, 1.5, 0.0], 0), [11.0, 0.0, 0.0, 1.0], "channels that are not there");
}

#[test]
fn a_linear_filter_weights_the_four_around() {
    let mut image = plane(AddressMode::Clamp, true, false);
    // Between the middles of texels the image is a plane, so the filter is exact.
    for (x, y, expected) in [(0.5, 0.5, 0.0), (1.0, 0.5, 0.5), (1.75, 2.0, 1.25 + 15.0), (3.5, 2.5, 23.0), (2.5, 1.25, 2.0 + 7.5)] {
        assert_eq!(image.first([x, y, 0.0]), expected, "{x} {y}");
    }
    // Outside of the outermost middles it is flat.
    assert_eq!((image.first([0.0, 0.0, 0.0]), image.first([40.0, 1.5, 0.0])), (0.0, 13.0));
    // A weight has eight bits behind the point.
    assert_eq!(image.first([0.5 + 1.0 / 1024.0, 0.5, 0.0]), 0.0);
    assert_eq!(image.first([0.5 + 3.0 / 256.0, 0.5, 0.0]), 3.0 / 256.0);
}

#[test]
fn images_repeat_and_mirror_where_coordinates_go_from_0_to_1() {
    let (mut wrapped, mut mirrored) = (plane(AddressMode::Wrap, false, true), plane(AddressMode::Mirror, false, true));
    for (texel, wrap, mirror) in [(0, 0.0, 0.0), (3, 3.0, 3.0), (4, 0.0, 3.0), (5, 1.0, 2.0), (7, 3.0, 0.0), (8, 0.0, 0.0), (-1, 3.0, 0.0), (-4, 0.0, 3.0)] {
        let at = [(texel as f32 + 0.5) / 4.0, 0.1, 0.0];
        assert_eq!((wrapped.first(at), mirrored.first(at)), (wrap, mirror), "{texel}");
    }
    // Halfway between the last column and the first.
    assert_eq!(plane(AddressMode::Wrap, true, true).first([1.0, 0.5 / 3.0, 0.0]), 1.5);
    // Coordinates in texels are clamped instead.
    assert_eq!(plane(AddressMode::Wrap, false, false).first([5.5, 0.0, 0.0]), 3.0);
}

#[test]
fn the_border_has_its_colour() {
    let mut image = plane(AddressMode::Border, false, false);
    assert_eq!(image.sample([-0.1, 1.0, 0.0], 0), [-1.0, -2.0, -3.0, -4.0]);
    assert_eq!((image.first([4.0, 1.0, 0.0]), image.first([3.9, 3.0, 0.0]), image.first([3.9, 2.9, 0.0])), (-1.0, -1.0, 23.0));
    // A filter at the edge takes half of each.
    assert_eq!(plane(AddressMode::Border, true, false).first([0.0, 0.5, 0.0]), -0.5);
}

#[test]
fn four_texels_are_gathered_counter_clockwise_from_the_lower_left() {
    let texels = floats((0..24).map(|n| (10 * (n / 8) + n % 8) as f32));
    for (component, offset) in [("r", 0.0), ("g", 1.0)] {
        let body = format!("tld4.{component}.2d.v4.f32.f32 {FOUR}, [%d, {{%x, %y}}];");
        // Two channels: a texel is two numbers.
        let mut two = about(Shape::Plane, [4, 3, 1], 1, Some(sampling(AddressMode::Clamp, false, false)));
        two.channels = 2;
        let mut image = Image::new(&body, two, &texels, &[(0, 32, 0)]);
        // Around the corner that texels (1, 0), (2, 0), (1, 1) and (2, 1) share.
        assert_eq!(image.sample([2.0, 1.0, 0.0], 0), [12.0, 14.0, 4.0, 2.0].map(|value: f32| value + offset), "{component}");
        assert_eq!(image.sample([0.0, 0.0, 0.0], 0), [offset; 4], "{component}");
    }
}

#[test]
fn integers_can_be_numbers_from_minus_1_to_1() {
    let body = format!("tex.1d.v4.f32.f32 {FOUR}, [%d, {{%x}}];");
    let numbers = |channel, bytes: &[u8], width: usize| {
        let mut about = about(Shape::Line, [(bytes.len() / width) as u32, 1, 1], 1, Some(sampling(AddressMode::Clamp, false, false)));
        about.channel = channel;
        about.sampling.as_mut().unwrap().as_numbers = true;
        let mut image = Image::new(&body, about, bytes, &[(0, 0, 0)]);
        (0..bytes.len() / width).map(|n| image.first([n as f32 + 0.5, 0.0, 0.0])).collect::<Vec<f32>>()
    };
    assert_eq!(numbers(Channel::Unsigned(1), &[0, 51, 255, 0], 1), [0.0, 0.2, 1.0, 0.0]);
    assert_eq!(numbers(Channel::Unsigned(2), &[0xff, 0xff, 0, 0], 2), [1.0, 0.0]);
    assert_eq!(numbers(Channel::Signed(1), &[127, 0x80, 0x81, 0], 1), [1.0, -1.0, -1.0, 0.0]);
    assert_eq!(numbers(Channel::Signed(2), &[0xff, 0x7f, 0, 0x80, 1, 0x80, 0, 0], 2), [1.0, -1.0, -1.0, 0.0]);
    let whole = |channel, bytes: &[u8]| {
        let mut about = about(Shape::Line, [1, 1, 1], 1, Some(sampling(AddressMode::Clamp, false, false)));
        about.channel = channel;
        let mut image = Image::new(&format!("tex.1d.v4.s32.s32 {FOUR}, [%d, {{%x}}];"), about, bytes, &[(0, 0, 0)]);
        image.run([0; 3], 0).unwrap()[0]
    };
    assert_eq!(whole(Channel::Signed(1), &[0xfe; 4]), u32::MAX - 1);
    assert_eq!(whole(Channel::Signed(2), &[0xfe, 0xff, 1, 1]), u32::MAX - 1);
    assert_eq!(whole(Channel::Unsigned(4), &[1, 2, 3, 0xff]), 0xff03_0201);
    assert_eq!(whole(Channel::Unsigned(2), &[1, 2, 3, 4]), 0x0201);
}

#[test]
fn solids_and_layers_have_their_slices() {
    // Two by two by three texels, each 100 z + 10 y + x, in rows of 16 bytes and slices of 64.
    let mut texels = vec![0.0f32; 48];
    for z in 0..3 {
        for y in 0..2 {
            for x in 0..2 {
                texels[16 * z + 4 * y + x] = (100 * z + 10 * y + x) as f32;
            }
        }
    }
    let bytes = floats(texels);
    let body = format!("tex.3d.v4.f32.f32 {FOUR}, [%d, {{%x, %y, %z, %z}}];");
    let mut solid = Image::new(&body, about(Shape::Solid, [2, 2, 3], 1, Some(sampling(AddressMode::Clamp, true, false))), &bytes, &[(0, 16, 64)]);
    assert_eq!((solid.first([1.5, 1.5, 2.5]), solid.first([0.5, 0.5, 1.0]), solid.first([1.0, 1.0, 9.0])), (211.0, 50.0, 205.5));

    let body = format!("tex.a2d.v4.f32.f32 {FOUR}, [%d, {{%l, %x, %y, %y}}];");
    let mut planes = Image::new(&body, about(Shape::Planes, [2, 2, 1], 3, Some(sampling(AddressMode::Clamp, false, false))), &bytes, &[(0, 16, 64)]);
    let at = |image: &mut Image, layer: i32| image.sample([1.0, 1.0, 0.0], layer as u32)[0];
    assert_eq!([0, 1, 2, 3, -1].map(|layer| at(&mut planes, layer)), [11.0, 111.0, 211.0, 211.0, 11.0], "layers are clamped");

    let body = format!("tex.a1d.v4.f32.f32 {FOUR}, [%d, {{%l, %x}}];");
    let mut lines = Image::new(&body, about(Shape::Lines, [2, 1, 1], 3, Some(sampling(AddressMode::Clamp, false, false))), &bytes, &[(0, 16, 64)]);
    assert_eq!((at(&mut lines, 0), at(&mut lines, 2)), (1.0, 201.0));
}

#[test]
fn a_direction_points_to_a_face() {
    // Six faces of one texel: the face's number.
    let body = format!("tex.cube.v4.f32.f32 {FOUR}, [%d, {{%x, %y, %z, %z}}];");
    let faces = floats((0..24).map(|n| (n / 4) as f32));
    let mut cube = Image::new(&body, about(Shape::Cube, [1, 1, 1], 6, Some(sampling(AddressMode::Clamp, false, true))), &faces, &[(0, 16, 16)]);
    let directions = [[2.0, 1.0, 1.0], [-2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, -2.0, 1.0], [1.0, 1.0, 2.0], [1.0, 1.0, -2.0]];
    assert_eq!(directions.map(|at| cube.first(at)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    // A face of two by two texels, 10 y + x: from +z, x goes to the right and y down.
    let faces = floats((0..48).map(|n| (100 * (n / 8) + 10 * (n % 8 / 4) + n % 4) as f32));
    let mut cube = Image::new(&body, about(Shape::Cube, [2, 2, 1], 6, Some(sampling(AddressMode::Clamp, false, true))), &faces, &[(0, 16, 32)]);
    assert_eq!([[-0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [-0.5, -0.5, 1.0], [0.5, -0.5, -1.0]].map(|at| cube.first(at)), [400.0, 401.0, 410.0, 510.0]);
}

#[test]
fn levels_are_chosen_and_weighted() {
    // Four texels of 1, two of 3, one of 9.
    let bytes = floats([1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 9.0, 0.0]);
    let levels = [(0, 16, 0), (16, 16, 0), (24, 16, 0)];
    let body = format!("tex.level.1d.v4.f32.f32 {FOUR}, [%d, {{%x}}], %l;");
    let with = |linear_levels, bias: f32, range: [f32; 2]| {
        let mut how = sampling(AddressMode::Clamp, false, true);
        (how.linear_levels, how.level_bias, how.levels) = (linear_levels, bias, range);
        Image::new(&body, about(Shape::Line, [4, 1, 1], 1, Some(how)), &bytes, &levels)
    };
    let at = |image: &mut Image, level: f32| image.sample([0.5, 0.0, 0.0], level.to_bits())[0];
    let all = [0.0, 15.0];
    let mut nearest = with(false, 0.0, all);
    assert_eq!([-1.0, 0.4, 0.5, 1.0, 1.6, 7.0].map(|level| at(&mut nearest, level)), [1.0, 1.0, 3.0, 3.0, 9.0, 9.0]);
    let mut weighted = with(true, 0.0, all);
    assert_eq!([0.0, 0.25, 1.0, 1.5, 2.0, 9.0].map(|level| at(&mut weighted, level)), [1.0, 1.5, 3.0, 6.0, 9.0, 9.0]);
    assert_eq!(at(&mut with(true, 0.5, all), 1.0), 6.0, "the bias is added");
    let mut bounded = with(true, 0.0, [1.0, 1.5]);
    assert_eq!((at(&mut bounded, 0.0), at(&mut bounded, 5.0)), (3.0, 6.0));

    // Two texels apart per thread in a level of four: the second level.
    let body = format!("mov.b32 %y, 0f00000000;\ntex.grad.1d.v4.f32.f32 {FOUR}, [%d, {{%x}}], {{%l}}, {{%y}};");
    let mut how = sampling(AddressMode::Clamp, false, true);
    how.linear_levels = true;
    let mut graded = Image::new(&body, about(Shape::Line, [4, 1, 1], 1, Some(how)), &bytes, &levels);
    assert_eq!([0.25f32, 0.5, 1.0].map(|step| at(&mut graded, step)), [1.0, 3.0, 9.0]);
}

#[test]
fn linear_memory_is_fetched_and_has_nothing_around_it() {
    let body = format!("tex.1d.v4.f32.s32 {FOUR}, [%d, {{%x}}];");
    let mut line =
        Image::new(&body, about(Shape::Linear, [3, 1, 1], 1, Some(sampling(AddressMode::Clamp, false, false))), &floats([5.0, 6.0, 7.0, 8.0]), &[(0, 0, 0)]);
    assert_eq!([0u32, 2, 3, u32::MAX].map(|at| f32::from_bits(line.run([at, 0, 0], 0).unwrap()[0])), [5.0, 7.0, 0.0, 0.0]);
    // A plane is clamped.
    let body = format!("tex.2d.v4.f32.s32 {FOUR}, [%d, {{%x, %y}}];");
    let texels = floats((0..8).map(|n| n as f32));
    let mut plane = Image::new(&body, about(Shape::Plane, [2, 2, 1], 1, Some(sampling(AddressMode::Clamp, false, false))), &texels, &[(0, 16, 0)]);
    assert_eq!([[1, 1], [5, 5], [u32::MAX, 1]].map(|[x, y]| f32::from_bits(plane.run([x, y, 0], 0).unwrap()[0])), [5.0, 5.0, 4.0]);
}

#[test]
fn a_plane_of_one_row_is_a_line_too() {
    let body = format!("tex.1d.v4.f32.f32 {FOUR}, [%d, {{%x}}];");
    let texels = floats([5.0, 6.0, 8.0, 9.0]);
    let of_height = |height: u32| {
        let about = about(Shape::Plane, [4 / height, height, 1], 1, Some(sampling(AddressMode::Border, true, false)));
        Image::new(&body, about, &texels, &[(0, 16 / u64::from(height), 0)])
    };
    let mut row = of_height(1);
    assert_eq!([0.5, 1.0, 2.0, 4.0].map(|x| row.first([x, 0.0, 0.0])), [5.0, 5.5, 7.0, 4.0], "the border's -1 is beside the last");
    assert!(of_height(2).run([0; 3], 0).unwrap_err().contains("no texture or surface object of this geometry"));
    let mut about = about(Shape::Plane, [4, 1, 1], 1, None);
    about.channel = Channel::Unsigned(4);
    let mut surface = Image::new(&format!("{ZEROS}suld.b.1d.b32.trap {{%r0}}, [%d, {{%x}}];"), about, &texels, &[(0, 16, 0)]);
    assert_eq!(f32::from_bits(surface.run([8, 0, 0], 0).unwrap()[0]), 8.0);
}

#[test]
fn surfaces_are_read_and_written_by_bytes() {
    // Four by two by two words, in rows of 16 bytes and slices of 32: their numbers.
    let bytes: Vec<u8> = (0..16u32).flat_map(u32::to_le_bytes).collect();
    let surface = |body: &str, shape, size, layers| {
        let mut about = about(shape, size, layers, None);
        about.channel = Channel::Unsigned(4);
        Image::new(&format!("{ZEROS}{body}"), about, &bytes, &[(0, 16, 32)])
    };
    let mut clamped = surface("suld.b.2d.b32.clamp {%r0}, [%d, {%x, %y}];", Shape::Plane, [4, 2, 1], 1);
    assert_eq!([[0, 0], [4, 1], [12, 0], [16, 7], [u32::MAX - 3, 1]].map(|[x, y]| clamped.run([x, y, 0], 0).unwrap()[0]), [0, 5, 3, 7, 4]);
    assert!(clamped.run([2, 0, 0], 0).unwrap_err().contains("multiple"), "bytes count");
    let mut zero = surface("suld.b.3d.v2.b32.zero {%r0, %r1}, [%d, {%x, %y, %z, %z}];", Shape::Solid, [4, 2, 2], 1);
    assert_eq!(zero.run([8, 1, 1], 0).unwrap(), [14, 15, 0, 0]);
    assert_eq!([[16, 1, 1], [0, 2, 1], [0, 0, 2]].map(|at| zero.run(at, 0).unwrap()), [[0; 4]; 3]);
    let mut trap = surface("suld.b.a2d.b32.trap {%r0}, [%d, {%l, %x, %y, %y}];", Shape::Planes, [4, 2, 1], 2);
    assert_eq!(trap.run([4, 1, 0], 1).unwrap()[0], 13);
    for (at, layer) in [([16, 0, 0], 0), ([0, 2, 0], 0), ([0, 0, 0], 2), ([0, 0, 0], u32::MAX)] {
        assert!(trap.run(at, layer).unwrap_err().contains("surface"), "{at:?} {layer}");
    }

    let mut written = surface("sust.b.2d.b32.zero [%d, {%x, %y}], {%z};", Shape::Plane, [4, 2, 1], 1);
    written.run([8, 1, 99], 0).unwrap();
    written.run([16, 1, 77], 0).unwrap();
    let word = |image: &Image, n: usize| u32::from_le_bytes(image.loaded.memory.read(image.texels)[4 * n..4 * n + 4].try_into().unwrap());
    assert_eq!([5, 6, 7].map(|n| word(&written, n)), [5, 99, 7], "outside nothing is written");
    let mut summed = surface("sured.b.add.2d.u32.clamp [%d, {%x, %y}], %z;", Shape::Plane, [4, 2, 1], 1);
    summed.run([4, 1, 100], 0).unwrap();
    assert_eq!([4, 5, 6].map(|n| word(&summed, n)), [4, 105, 6]);
    // A texture is no surface, and a surface of another shape is another one.
    assert!(surface("suld.b.1d.b32.trap {%r0}, [%d, {%x}];", Shape::Plane, [4, 2, 1], 1).run([0; 3], 0).unwrap_err().contains("no texture or surface object"));
}

#[test]
fn an_object_answers_for_its_size() {
    let mut image = Image::new(
        "txq.width.b32 %r0, [%d];\ntxq.height.b32 %r1, [%d];\ntxq.depth.b32 %r2, [%d];\ntxq.num_mipmap_levels.b32 %r3, [%d];",
        about(Shape::Solid, [2, 3, 4], 1, Some(sampling(AddressMode::Clamp, false, false))),
        &[0; 96],
        &[(0, 8, 24), (0, 8, 24)],
    );
    assert_eq!(image.run([0; 3], 0).unwrap(), [2, 3, 4, 2]);
    let mut cubes = Image::new(
        &format!("{ZEROS}txq.array_size.b32 %r0, [%d];\ntxq.normalized_coords.b32 %r1, [%d];"),
        about(Shape::Cubes, [1, 1, 1], 12, Some(sampling(AddressMode::Clamp, false, true))),
        &[0; 96],
        &[(0, 8, 8)],
    );
    assert_eq!(cubes.run([0; 3], 0).unwrap()[..1], [2]);
}
