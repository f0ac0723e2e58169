//! Copies and sets against a model of the memory.

use std::os::fd::AsFd;

use super::client::memory_file;
use super::{Actor, Args, Opener, Setup};
use crate::{CopyExtent, Rows, Work};

/// Bytes whose values follow from their positions.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i ^ (i >> 8).wrapping_mul(31)) as u8).collect()
}

/// Small numbers that look random; the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn contents(client: &Actor<'_>, address: u64, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    client.device().read(address, &mut all).expect("read");
    all
}

pub fn copies_in_one_dimension(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let stream = client.stream();
    let bytes = 5_000_003;
    let (a, b) = (client.allocate(bytes), client.allocate(bytes));
    let model = pattern(bytes as usize);
    client.device().write(a, &model).expect("written");
    client.copy(stream, b, a, bytes);
    client.copy(stream, b + 1, a, 0);
    client.copy(stream, b + 11, a + 3, 7);
    client.drain(stream);
    let mut expected = model.clone();
    expected[11..18].copy_from_slice(&model[3..10]);
    assert!(contents(&client, b, bytes as usize) == expected);
    assert!(contents(&client, a, bytes as usize) == model);
}

pub fn copies_in_two_and_three_dimensions(open: Opener) {
    const SIZE: usize = 40_000;
    let setup = Setup::new(open);
    let client = setup.client(1);
    let stream = client.stream();
    let (a, b) = (client.allocate(SIZE as u64), client.allocate(SIZE as u64));
    let mut numbers = Numbers(7);
    for round in 0..60 {
        let (w, h, d) = (1 + numbers.below(60), 1 + numbers.below(9), 1 + numbers.below(5));
        let mut rows = |address: u64| {
            let pitch = w + numbers.below(20);
            Rows { address: address + numbers.below(500), pitch, slice: pitch * h + numbers.below(50) }
        };
        let (target, source) = (rows(b), rows(a));
        let from = pattern(SIZE);
        let mut to = vec![round; SIZE];
        client.device().write(a, &from).expect("written");
        client.device().write(b, &to).expect("written");
        for z in 0..d {
            for y in 0..h {
                let at = |rows: Rows, base: u64| (rows.address - base + z * rows.slice + y * rows.pitch) as usize;
                let (t, s) = (at(target, b), at(source, a));
                to[t..t + w as usize].copy_from_slice(&from[s..s + w as usize]);
            }
        }
        client.submit(stream, Work::Copy { target, source, extent: CopyExtent { width: w, height: h, depth: d } });
        client.drain(stream);
        assert!(contents(&client, b, SIZE) == to, "{target:?} {source:?} {w} x {h} x {d}");
    }
}

pub fn overlapping_copies_are_as_through_a_buffer(open: Opener) {
    const SIZE: usize = 9_000_000;
    let setup = Setup::new(open);
    let client = setup.client(1);
    let stream = client.stream();
    let p = client.allocate(SIZE as u64);
    for (to, from, bytes) in [(1000usize, 0usize, 8_000_000usize), (0, 1000, 8_000_000), (5, 5, 100), (64, 0, 63)] {
        let before = pattern(SIZE);
        client.device().write(p, &before).expect("written");
        client.copy(stream, p + to as u64, p + from as u64, bytes as u64);
        client.drain(stream);
        let mut expected = before.clone();
        expected.copy_within(from..from + bytes, to);
        assert!(contents(&client, p, SIZE) == expected, "{bytes} bytes from {from} to {to}");
    }
}

pub fn sets_of_all_widths(open: Opener) {
    const SIZE: usize = 70_000;
    let setup = Setup::new(open);
    let client = setup.client(1);
    let stream = client.stream();
    let p = client.allocate(SIZE as u64);
    for (element, at, width, height, pitch) in [
        (1u32, 3u64, 65_000u64, 1u64, 0u64),
        (2, 6, 1001, 1, 0),
        (4, 4, 16_000, 1, 0),
        (1, 1, 17, 30, 33),
        (2, 2, 40, 25, 100),
        (4, 8, 7, 40, 64),
        (4, 0, 0, 5, 64),
    ] {
        let value = 0x1234_5678u32;
        let mut expected = pattern(SIZE);
        client.device().write(p, &expected).expect("written");
        for row in 0..height {
            for i in 0..width {
                let start = (at + row * pitch + i * u64::from(element)) as usize;
                expected[start..start + element as usize].copy_from_slice(&value.to_le_bytes()[..element as usize]);
            }
        }
        client.submit(stream, Work::Set { target: p + at, pitch, value, element, width, height });
        client.drain(stream);
        assert!(contents(&client, p, SIZE) == expected, "{width} x {height} elements of {element} bytes");
    }
}

pub fn long_copies_do_not_hold_up_kernels(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let bytes = 96 << 20;
    let (big, p) = (client.allocate(bytes), client.allocate(4));
    let (copying, launching) = (client.stream(), client.stream());
    let sets: Vec<u64> =
        (0..4u32).map(|value| client.submit(copying, Work::Set { target: big, pitch: 0, value, element: 1, width: bytes, height: 1 })).collect();
    let kernel = client.launch(launching, &module, "add_one", 1, 32, Args::new().u64(p).u32(1));
    client.done(kernel);
    client.drain(copying);
    let order: Vec<u64> = client.reports().iter().map(|(_, token, _)| *token).collect();
    let place = |token: &u64| order.iter().position(|t| t == token);
    assert!(place(&kernel) < place(&sets[3]), "the kernel had to wait for all sets: {order:?}");
}

pub fn windows_and_registered_memory(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let bytes = 4 << 20;
    let window = setup.window_address(bytes);
    let file = memory_file(bytes);
    client.device().map_window(client.id, file.as_fd(), window, bytes).expect("a window");
    let n = 1000u32;
    client.launch(stream, &module, "fill", 4, 256, Args::new().u64(window).u32(n).u32(6));
    // The same memory under the client's own address.
    let user = 0x7fff_1234_5000;
    client.device().alias(client.id, user, window, 1 << 20).expect("an alias");
    client.launch(stream, &module, "add_one", 4, 256, Args::new().u64(user).u32(n));
    let p = client.allocate(u64::from(4 * n));
    client.copy(stream, p, user, u64::from(4 * n));
    client.copy(stream, user + 8192, p, u64::from(4 * n));
    client.drain(stream);
    assert_eq!(client.read(window, n as usize), vec![7; n as usize]);
    assert_eq!(client.read(p, n as usize), vec![7; n as usize]);
    assert_eq!(client.read(window + 8192, n as usize), vec![7; n as usize]);
    let mut word = [0; 4];
    rustix::io::pread(&file, &mut word, 4 * 999).expect("read through the file");
    assert_eq!(u32::from_le_bytes(word), 7);
    assert!(client.device().alias(client.id, user + 4096, window, 4096).is_err(), "overlaps the first");
    client.device().unalias(client.id, user);
    let late = client.launch(stream, &module, "add_one", 1, 32, Args::new().u64(user).u32(1));
    client.fault(late, cumux_wire::result::ILLEGAL_ADDRESS);
}
