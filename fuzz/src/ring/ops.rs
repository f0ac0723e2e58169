//! Operations, nearly right: handles that exist, addresses that are somebody's, sizes at bounds.

use crate::bytes::Bytes;
use cumux_wire::layout::ARENA_BASE;
use cumux_wire::record::{ArrayWish, CopyEnd, CopyExtent, Launch, ObjectWish, Op, Resource, TensorWish, TextureWish};

/// Most of the times a small number is meant.
const SMALL: [u32; 6] = [0, 1, 2, 3, 4095, 4096];
const GRANULE: u64 = 2 << 20;

/// What the fuzzed client knows.
pub struct Known {
    /// Where its window begins.
    pub window: u64,
    /// Addresses that were given to it, and those of its neighbour.
    pub addresses: Vec<u64>,
    /// Where images lie in the window, and how long they are.
    pub images: Vec<(u64, u64)>,
}

impl Known {
    fn address(&self, bytes: &mut Bytes<'_>) -> u64 {
        match bytes.below(16) {
            0..=5 if !self.addresses.is_empty() => bytes.pick(&self.addresses),
            6 if !self.addresses.is_empty() => bytes.pick(&self.addresses).wrapping_add(u64::from(bytes.pick(&[4_u32, 8, 256, 1, 4095, 4096]))),
            7..=10 => self.window + u64::from(bytes.short()) * 8,
            11 => ARENA_BASE + (4 << 30) + u64::from(bytes.byte()) * GRANULE,
            12 => bytes.pick(&[0, 1, 0x7fff_0000_0000, u64::MAX, u64::MAX - 7, ARENA_BASE, 1 << 63]),
            13 => self.window + (64 << 30) - u64::from(bytes.short()),
            14 => bytes.long(),
            _ => self.window,
        }
    }
}

fn size(bytes: &mut Bytes<'_>) -> u64 {
    match bytes.below(8) {
        0..=4 => bytes.pick(&[4, 8, 256, 4096, GRANULE, 2 * GRANULE, 1]),
        5 => u64::from(bytes.short()),
        6 => bytes.pick(&[0, 63 << 20, 65 << 20, 1 << 40, u64::MAX, u64::MAX - 4095]),
        _ => bytes.long(),
    }
}

/// Bytes that work touches: mostly fewer than an allocation has.
fn width(bytes: &mut Bytes<'_>) -> u64 {
    if bytes.one_in(8) { size(bytes) } else { bytes.pick(&[64, 4, 256, 1, 1024]) }
}

fn handle(bytes: &mut Bytes<'_>) -> u32 {
    bytes.mostly(&[1, 2, 3])
}

fn device(bytes: &mut Bytes<'_>) -> u32 {
    bytes.mostly(&[0, 0, 1, 2])
}

fn stream(bytes: &mut Bytes<'_>) -> u32 {
    bytes.mostly(&[0, 1, 2, 4095])
}

fn launch(bytes: &mut Bytes<'_>, known: &Known) -> Op {
    let mut parameters = known.address(bytes).to_le_bytes().to_vec();
    parameters.extend(bytes.mostly(&[64, 1, 0]).to_le_bytes());
    if bytes.one_in(8) {
        let length = usize::from(bytes.short() % 1024);
        parameters = bytes.take(length).to_vec();
    }
    let sides = |bytes: &mut Bytes<'_>| [bytes.pick(&[1, 2, 4]), bytes.pick(&[1, 1, 2]), 1];
    Op::Launch(Launch {
        module: bytes.mostly(&[1, 1, 1, 2]),
        function: bytes.mostly(&[0, 1, 2, 3, 4, 5]),
        grid: sides(bytes),
        block: [bytes.pick(&[1, 32, 64, 33, 256, 1024]), 1, 1],
        cluster: if bytes.one_in(8) { sides(bytes) } else { [0; 3] },
        shared: bytes.pick(&[0, 0, 0, 0, 0, 0, 1024, 49_152, 232_448, u32::MAX]),
        cooperative: bytes.one_in(8),
        parameters: parameters.into(),
    })
}

/// An operation of any kind.
pub fn op(bytes: &mut Bytes<'_>, known: &Known) -> Op {
    let at = |bytes: &mut Bytes<'_>| known.address(bytes);
    match bytes.below(52) {
        0..=3 => {
            Op::StreamCreate { index: stream(bytes), device: device(bytes), priority: bytes.mostly(&[0, 1]).cast_signed(), partition: bytes.pick(&[0, 0, 1]) }
        }
        4 => Op::StreamDestroy { index: stream(bytes) },
        5..=7 => {
            let (image, image_bytes) = bytes.pick(&known.images);
            let image_bytes = if bytes.one_in(8) { size(bytes) } else { image_bytes };
            let info = if bytes.one_in(8) { at(bytes) } else { known.window + (1 << 20) };
            Op::ModuleLoad { module: handle(bytes), device: device(bytes), image, image_bytes, info, info_bytes: bytes.pick(&[65_536, 65_536, 16, 0]) }
        }
        8 => Op::ModuleUnload { module: handle(bytes) },
        9 => Op::FunctionSet { module: handle(bytes), function: bytes.mostly(&[0, 1]), attribute: bytes.mostly(&[8, 9]), value: bytes.word().cast_signed() },
        10..=13 => Op::MemAlloc { device: device(bytes), bytes: size(bytes), align: bytes.pick(&[256, 1, GRANULE, 2 * GRANULE, 1 << 30]) },
        14 => Op::MemFree { address: at(bytes) },
        15 => Op::MemInfo { device: device(bytes) },
        16 => Op::VmmReserve { bytes: size(bytes), align: bytes.pick(&[0, GRANULE, 1 << 40, 1 << 63]), fixed: at(bytes) },
        17 => Op::VmmUnreserve { address: at(bytes), bytes: size(bytes) },
        18 => Op::VmmCreate { handle: handle(bytes), device: device(bytes), bytes: size(bytes) },
        19 => Op::VmmRelease { handle: handle(bytes) },
        20 => Op::VmmMap { address: at(bytes), bytes: size(bytes), handle: handle(bytes), offset: bytes.pick(&[0, 0, GRANULE, u64::MAX]) },
        21 => Op::VmmUnmap { address: at(bytes), bytes: size(bytes) },
        22 => Op::VmmAccess { address: at(bytes), bytes: size(bytes), access: bytes.mostly(&[0, 1, 3]) },
        23 => Op::HostRegister { user: at(bytes), window: at(bytes), bytes: size(bytes) },
        24 => Op::HostUnregister { user: at(bytes) },
        25 => Op::LimitSet { limit: bytes.mostly(&[0, 1, 2, 3]), value: size(bytes) },
        26 => Op::Reset,
        27 => Op::WindowUse { address: at(bytes), bytes: size(bytes) },
        28 => Op::PartitionOpen { partition: bytes.mostly(&[1, 2]).max(1), device: device(bytes), multiprocessors: bytes.mostly(&[2, 8, 58]).max(1) },
        29 if bytes.mostly(&[0, 1]) == 0 => {
            Op::PartitionPlace { partition: bytes.mostly(&[1, 2]).max(1), device: device(bytes), positions: [size(bytes), size(bytes), 0, 1] }
        }
        29 => Op::PartitionClose { partition: bytes.mostly(&[1, 2]) },
        30 => Op::Charge { device: device(bytes), address: at(bytes), bytes: size(bytes) },
        31 => Op::Refund { address: at(bytes) },
        32 => Op::TensorMap { device: device(bytes), out: at(bytes), wish: tensor(bytes, known) },
        33..=36 => launch(bytes, known),
        37..=39 => Op::Copy {
            target: at(bytes),
            target_pitch: size(bytes),
            target_slice: size(bytes),
            source: at(bytes),
            source_pitch: size(bytes),
            source_slice: size(bytes),
            extent: CopyExtent { width: width(bytes), height: bytes.pick(&[1, 1, 2, 0, 16]), depth: bytes.pick(&[1, 1, 2, 0]) },
        },
        40 | 41 => Op::Set {
            target: at(bytes),
            value: bytes.word(),
            element: bytes.pick(&[1, 2, 4]),
            width: width(bytes),
            height: bytes.pick(&[1, 1, 2, 0, 16]),
            pitch: size(bytes),
        },
        42 => Op::EventTime { event: bytes.mostly(&SMALL) },
        43 => Op::Wait { stream: stream(bytes), seq: u64::from(bytes.mostly(&[1, 2, 3])) },
        44 => Op::HostCall,
        45 => Op::ValueWrite { address: at(bytes) & !7, value: bytes.long(), bytes: bytes.pick(&[4, 8]) },
        46 => Op::ValueWait { address: at(bytes) & !7, value: u64::from(bytes.byte()), bytes: bytes.pick(&[4, 8]), condition: bytes.pick(&[0, 1, 2, 3]) },
        48 => Op::ArrayCreate { device: device(bytes), array: handle(bytes).max(1), wish: array(bytes) },
        49 if bytes.one_in(2) => Op::ArrayDestroy { array: handle(bytes) },
        49 => Op::ObjectDestroy { device: device(bytes), handle: u64::from(handle(bytes)) },
        50 => Op::ObjectCreate {
            device: device(bytes),
            wish: ObjectWish {
                resource: match bytes.below(4) {
                    0 => Resource::Array { array: handle(bytes), level: bytes.mostly(&[0, 1]) },
                    1 => Resource::Mipmapped { array: handle(bytes) },
                    2 => Resource::Linear { address: at(bytes), format: bytes.mostly(&[1, 0x20]), channels: bytes.mostly(&[1, 2, 4]), bytes: size(bytes) },
                    _ => Resource::Pitched { address: at(bytes), format: 0x20, channels: 1, size: [width(bytes), width(bytes), size(bytes)] },
                },
                texture: if bytes.one_in(2) { Some(TextureWish::default()) } else { None },
                view: None,
            },
        },
        51 => Op::ArrayCopy {
            target: CopyEnd::Array { array: handle(bytes).max(1), level: bytes.mostly(&[0, 1]), at: [width(bytes), 0, 0] },
            source: CopyEnd::Memory { address: at(bytes), pitch: size(bytes), slice: size(bytes) },
            extent: CopyExtent { width: width(bytes), height: bytes.pick(&[1, 1, 2, 0]), depth: bytes.pick(&[1, 1, 0]) },
        },
        _ => {
            if bytes.one_in(2) {
                Op::Nop
            } else {
                Op::FreeInStream { address: at(bytes) }
            }
        }
    }
}

fn array(bytes: &mut Bytes<'_>) -> ArrayWish {
    let side = |bytes: &mut Bytes<'_>| u64::from(bytes.mostly(&[0, 1, 64, 4096]) % (1 << 18));
    let (size, format) = ([side(bytes).max(1), side(bytes), side(bytes)], bytes.pick(&[1_u32, 0x10, 0x20]));
    ArrayWish { size, format, channels: bytes.pick(&[1, 2, 4]), flags: bytes.pick(&[0, 1, 2, 4]), levels: bytes.pick(&[0, 0, 1, 5]) }
}

fn tensor(bytes: &mut Bytes<'_>, known: &Known) -> TensorWish {
    let words = |bytes: &mut Bytes<'_>| [(); 5].map(|()| bytes.mostly(&[1, 8, 0, 64]));
    TensorWish {
        im2col: bytes.one_in(4),
        data_type: bytes.mostly(&[0, 6, 7, 13]),
        rank: bytes.mostly(&[1, 2, 3, 5]),
        address: known.address(bytes),
        dimensions: words(bytes).map(u64::from),
        strides: [(); 4].map(|()| size(bytes)),
        first: words(bytes),
        upper: [(); 3].map(|()| bytes.mostly(&[0, 1])),
        element_strides: words(bytes),
        interleave: bytes.mostly(&[0, 1, 2]),
        swizzle: bytes.mostly(&[0, 1, 2, 3]),
        l2: bytes.mostly(&[0, 1, 2, 3]),
        fill: bytes.mostly(&[0, 1]),
    }
}

/// Whether an operation would keep the processor or the memory of this machine for long. It is the
/// client's own time and memory: nothing is learned of it.
pub fn is_heavy(op: &Op) -> bool {
    const BYTES: u64 = 4 << 20;
    const ROWS: u64 = 4096;
    match op {
        Op::Copy { extent, .. } => {
            let rows = extent.height.saturating_mul(extent.depth);
            rows > ROWS || rows.saturating_mul(extent.width) > BYTES
        }
        Op::Set { element, width, height, .. } => *height > ROWS || width.saturating_mul(*height).saturating_mul(u64::from(*element)) > BYTES,
        Op::ModuleLoad { image_bytes, .. } => *image_bytes > 1 << 20,
        Op::Launch(launch) => launch.grid.iter().fold(1_u64, |all, side| all.saturating_mul(u64::from(*side))) > 4096,
        Op::LimitSet { value, .. } => *value > 16 << 20,
        _ => false,
    }
}
