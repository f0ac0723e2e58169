//! From a piece of work to calls of the driver: addresses checked and translated, rectangles and overlaps taken apart. No calls are made here.

use crate::context::{Access, Client, ClientModule, Kernel};
use crate::driver::{GraphKernel, LaunchShape, MemorySet, RectangleCopy};
use cumux_abi::CUdevice_attribute as Attribute;
use cumux_device::{DeviceFacts, Extent, Fault, Launch, Parameters, Rows, Work};
use cumux_wire::result;
use std::sync::Arc;

/// Rows or pieces of one copy that are looked at one by one. Far beyond what programs ask for, and little enough that nobody waits long for who asks for more.
const MOST_PIECES: u64 = 1 << 20;
/// Taken for in use behind a pointer into the window that nobody announced.
const AHEAD: u64 = 64 << 20;

/// A kernel with what its launch needs.
#[derive(Clone)]
pub(crate) struct Planned {
    pub module: Arc<ClientModule>,
    pub function: usize,
    pub shape: LaunchShape,
    pub parameters: Parameters,
}

impl Planned {
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.module.kernels[self.function]
    }

    /// As a node of a chain.
    pub(crate) fn graph_kernel(&self) -> GraphKernel<'_> {
        GraphKernel { function: self.kernel().handle, shape: self.shape, parameters: &self.parameters }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Flat { target: u64, source: u64, bytes: u64 },
    Box(RectangleCopy),
}

pub(crate) enum Plan {
    Nothing,
    Kernel(Planned),
    Moves(Vec<Move>),
    Set(MemorySet),
    Value { address: u64, value: u64, bytes: u32 },
}

pub(crate) enum Refusal {
    Fault(Fault),
    /// These bytes of the window have to be registered first.
    Register(u64, u64),
}

fn fault(result: u32, text: String) -> Refusal {
    Refusal::Fault(Fault { result, text })
}

/// What a launch may ask for, from the card's attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    threads: u32,
    block: [u32; 3],
    grid: [u32; 3],
    shared: u32,
    multiprocessors: u32,
}

impl Limits {
    pub(crate) fn multiprocessors(&self) -> u64 {
        u64::from(self.multiprocessors)
    }

    pub(crate) fn of(facts: &DeviceFacts) -> Limits {
        let get = |attribute: Attribute| facts.attribute(attribute.0).cast_unsigned();
        Limits {
            threads: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            block: [
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            grid: [
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            shared: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        }
    }

    fn check(&self, launch: &Launch, static_shared: u32) -> Result<(), String> {
        let threads: u64 = launch.block.iter().map(|d| u64::from(*d)).product();
        let beyond = |what: &[u32; 3], most: &[u32; 3]| what.iter().zip(most).any(|(w, m)| w > m || *w == 0);
        if threads > u64::from(self.threads) || beyond(&launch.block, &self.block) {
            return Err(format!("blocks of {:?} threads; at most {} threads and {:?}", launch.block, self.threads, self.block));
        }
        if beyond(&launch.grid, &self.grid) {
            return Err(format!("a grid of {:?} blocks; at most {:?}", launch.grid, self.grid));
        }
        let shared = u64::from(launch.shared) + u64::from(static_shared);
        if shared > u64::from(self.shared) {
            return Err(format!("{shared} bytes of shared memory a block; at most {}", self.shared));
        }
        Ok(())
    }
}

/// Makes the work whole again that became this kernel.
pub(crate) fn put_back(work: &mut Work, planned: Planned) {
    if let Work::Kernel(kernel) = work {
        kernel.launch.parameters = planned.parameters;
    }
}

pub(crate) fn plan(client: &Client, limits: &Limits, work: &mut Work) -> Result<Plan, Refusal> {
    match work {
        Work::Mark => Ok(Plan::Nothing),
        Work::Kernel(kernel) => launch(client, limits, &mut kernel.launch).map(Plan::Kernel),
        Work::Copy { target, source, extent } => copy(client, target, source, *extent).map(Plan::Moves),
        Work::Set { target, pitch, value, element, width, height } => {
            let row = width.saturating_mul(u64::from(*element));
            if row == 0 || *height == 0 {
                return Ok(Plan::Nothing);
            }
            let rows = Rows { address: *target, pitch: *pitch, slice: 0 };
            let extent = Extent { width: row, height: *height, depth: 1 };
            let target = locate(client, &rows, extent, Access::Write, "a set")?;
            Ok(Plan::Set(MemorySet { target, pitch: *pitch, value: *value, element: *element, width: *width, height: *height }))
        }
        Work::WriteValue { address, value, bytes } => {
            let rows = Rows { address: *address, pitch: 0, slice: 0 };
            let address = locate(client, &rows, Extent { width: u64::from(*bytes), height: 1, depth: 1 }, Access::Write, "a value write")?;
            Ok(Plan::Value { address, value: *value, bytes: *bytes })
        }
    }
}

fn launch(client: &Client, limits: &Limits, launch: &mut Launch) -> Result<Planned, Refusal> {
    let module = client.modules.read().get(&launch.module).cloned();
    let index = launch.function as usize;
    let Some(module) = module.filter(|m| index < m.kernels.len()) else {
        return Err(fault(result::INVALID_HANDLE, format!("no kernel {} in module {}: was it unloaded?", launch.function, launch.module)));
    };
    let (kernel, info) = (&module.kernels[index], &module.info.functions[index]);
    limits.check(launch, info.static_shared).map_err(|why| fault(result::LAUNCH_OUT_OF_RESOURCES, format!("{}: {why}", kernel.name)))?;
    let mut parameters = std::mem::take(&mut launch.parameters);
    if let Some(window) = &*client.window.read() {
        for word in parameters.chunks_exact(8) {
            let address = word.first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
            if window.contains(address, 1) && !window.is_registered(address, 1) {
                launch.parameters = parameters;
                return Err(Refusal::Register(address, AHEAD.min(window.address() + window.bytes() - address)));
            }
        }
    }
    parameters.resize(kernel.parameter_bytes as usize, 0);
    let shape = LaunchShape { grid: launch.grid, block: launch.block, cluster: launch.cluster, shared: launch.shared, cooperative: launch.cooperative };
    Ok(Planned { function: index, shape, parameters, module })
}

/// The card's address of the first byte of a rectangle, each row of which must be allowed and, in the window, registered.
fn locate(client: &Client, rows: &Rows, extent: Extent, access: Access, what: &str) -> Result<u64, Refusal> {
    let whole = cumux_wire::record::span(rows.address, rows.pitch, rows.slice, extent);
    let bad = |at: u64| {
        fault(
            result::ILLEGAL_ADDRESS,
            format!("{what} touches {at:#x}, which is no memory of this client that it may {}", if access == Access::Write { "write" } else { "read" }),
        )
    };
    let whole = whole.ok_or_else(|| bad(rows.address))?;
    let ranges = client.permissions.read();
    let found = match ranges.translate(rows.address, whole, access) {
        Ok(found) => found,
        Err(_) => {
            if extent.height.saturating_mul(extent.depth) > MOST_PIECES {
                return Err(too_many(what));
            }
            // What lies between the rows may belong to somebody else.
            let first = ranges.translate(rows.address, extent.width, access).map_err(bad)?;
            for z in 0..extent.depth {
                for y in 0..extent.height {
                    let row = rows.address + z * rows.slice + y * rows.pitch;
                    let at = ranges.translate(row, extent.width, access).map_err(bad)?;
                    if at.wrapping_sub(row) != first.wrapping_sub(rows.address) {
                        return Err(bad(row));
                    }
                }
            }
            first
        }
    };
    if let Some(window) = &*client.window.read()
        && window.contains(found, whole)
        && !window.is_registered(found, whole)
    {
        return Err(Refusal::Register(found, whole));
    }
    Ok(found)
}

/// Pieces of a copy row by row, whose sides are so far from one another: a row that overlaps itself goes in pieces of that distance.
fn most_pieces(extent: Extent, apart: u64) -> u64 {
    let of_a_row = if apart == 0 { 1 } else { extent.width.div_ceil(apart) };
    extent.height.saturating_mul(extent.depth).saturating_mul(of_a_row.max(1))
}

fn too_many(what: &str) -> Refusal {
    fault(
        result::INVALID_VALUE,
        format!("{what} falls into more than {MOST_PIECES} pieces (rows apart from one another, or sides that overlap): copy less at once"),
    )
}

fn copy(client: &Client, target: &Rows, source: &Rows, extent: Extent) -> Result<Vec<Move>, Refusal> {
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(Vec::new());
    }
    let from = locate(client, source, extent, Access::Read, "a copy")?;
    let to = locate(client, target, extent, Access::Write, "a copy")?;
    let mut moves = Vec::new();
    let window = client.window.read();
    // How far a copy may go at an address of the window: registered pieces are separate for the driver.
    let run = |at: u64| window.as_ref().filter(|w| w.contains(at, 1)).and_then(|w| w.bytes_to_piece_end(at)).unwrap_or(u64::MAX);
    let (target, source) = (Rows { address: to, ..*target }, Rows { address: from, ..*source });
    let pieces = most_pieces(extent, to.abs_diff(from));
    if extent.height == 1 && extent.depth == 1 {
        if pieces > MOST_PIECES {
            return Err(too_many("a copy"));
        }
        flat(to, from, extent.width, &run, &mut moves);
        return Ok(moves);
    }
    let span = |rows: &Rows| cumux_wire::record::span(rows.address, rows.pitch, rows.slice, extent).unwrap_or(u64::MAX);
    let whole = span(&target) <= run(to) && span(&source) <= run(from);
    if (!whole || target.pitch < extent.width || source.pitch < extent.width) && pieces > MOST_PIECES {
        return Err(too_many("a copy"));
    }
    boxes(&target, &source, extent, whole, &run, &mut moves);
    Ok(moves)
}

/// One row, in pieces that the driver takes, as if through a buffer where the sides overlap.
fn flat(target: u64, source: u64, bytes: u64, run: &dyn Fn(u64) -> u64, moves: &mut Vec<Move>) {
    let distance = target.abs_diff(source);
    if distance == 0 {
        return;
    }
    let from = moves.len();
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(run(target + done)).min(run(source + done)).min(distance);
        moves.push(Move::Flat { target: target + done, source: source + done, bytes: piece });
        done += piece;
    }
    if target > source && distance < bytes {
        // The end first, before the beginning is written over it.
        moves[from..].reverse();
    }
}

fn boxes(target: &Rows, source: &Rows, extent: Extent, whole: bool, run: &dyn Fn(u64) -> u64, moves: &mut Vec<Move>) {
    let Extent { width, height, depth } = extent;
    // The driver takes slices as whole numbers of rows.
    let rows_of =
        |rows: &Rows| if depth == 1 { Some(height) } else { rows.slice.checked_div(rows.pitch).filter(|n| n * rows.pitch == rows.slice && *n >= height) };
    let pitched = |rows: &Rows| height == 1 || rows.pitch >= width;
    let pitch = |rows: &Rows| if rows.pitch < width { width } else { rows.pitch };
    if whole && pitched(target) && pitched(source) {
        let part = |z: u64, rows: u64, source_rows: u64, depth: u64| {
            Move::Box(RectangleCopy {
                target: target.address + z * target.slice,
                target_pitch: pitch(target),
                target_rows: rows,
                source: source.address + z * source.slice,
                source_pitch: pitch(source),
                source_rows,
                width,
                height,
                depth,
            })
        };
        match (rows_of(target), rows_of(source)) {
            (Some(t), Some(s)) if depth == 1 || (target.pitch >= width && source.pitch >= width) => moves.push(part(0, t, s, depth)),
            _ => moves.extend((0..depth).map(|z| part(z, height, height, 1))),
        }
        return;
    }
    for z in 0..depth {
        for y in 0..height {
            let at = |rows: &Rows| rows.address + z * rows.slice + y * rows.pitch;
            flat(at(target), at(source), width, run, moves);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs moves on bytes. A flat move whose sides overlap is a mistake: the driver leaves its result open.
    fn apply(memory: &mut [u8], moves: &[Move]) {
        let mut row = |t: u64, s: u64, n: u64| {
            assert!(t.abs_diff(s) >= n, "overlap");
            memory.copy_within(s as usize..(s + n) as usize, t as usize);
        };
        for m in moves {
            match *m {
                Move::Flat { target, source, bytes } => row(target, source, bytes),
                Move::Box(b) => {
                    for z in 0..b.depth {
                        for y in 0..b.height {
                            row(b.target + (z * b.target_rows + y) * b.target_pitch, b.source + (z * b.source_rows + y) * b.source_pitch, b.width);
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn flat_copies_are_as_through_a_buffer(target in 0_u64..300, source in 0_u64..300, bytes in 0_u64..200, piece in 1_u64..90) {
            let mut memory: Vec<u8> = (0..600_u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut expected = memory.clone();
            expected.copy_within(source as usize..(source + bytes) as usize, target as usize);
            let mut moves = Vec::new();
            let run = |at: u64| piece - at % piece;
            flat(target, source, bytes, &run, &mut moves);
            for m in &moves {
                let Move::Flat { target, source, bytes } = *m else { panic!("a box") };
                prop_assert!(bytes > 0 && bytes <= run(target) && bytes <= run(source));
            }
            apply(&mut memory, &moves);
            prop_assert_eq!(memory, expected);
        }

        #[test]
        fn rectangles_land_where_they_should(w in 1_u64..20, h in 1_u64..6, d in 1_u64..5, tp in 0_u64..9, sp in 0_u64..9, ts in 0_u64..30, ss in 0_u64..30, whole: bool) {
            let target = Rows { address: 3000, pitch: w + tp, slice: (w + tp) * h + ts };
            let source = Rows { address: 1, pitch: w + sp, slice: (w + sp) * h + ss };
            let mut memory: Vec<u8> = (0..6000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut expected = memory.clone();
            for z in 0..d {
                for y in 0..h {
                    let at = |r: &Rows| (r.address + z * r.slice + y * r.pitch) as usize;
                    expected.copy_within(at(&source)..at(&source) + w as usize, at(&target));
                }
            }
            let mut moves = Vec::new();
            boxes(&target, &source, Extent { width: w, height: h, depth: d }, whole, &|_| 7, &mut moves);
            apply(&mut memory, &moves);
            prop_assert_eq!(memory, expected);
        }
    }

    /// A copy of one client takes the engine's time from all: what falls into endless pieces is seen before they are made.
    #[test]
    fn endless_copies_are_seen() {
        let of = |width, height, depth, apart| most_pieces(Extent { width, height, depth }, apart);
        assert_eq!((of(64 << 20, 1, 1, 1 << 40), of(100, 1, 1, 0), of(100, 1, 1, 30), of(8, 5, 3, 1 << 20)), (1, 1, 4, 15));
        assert!(of(64 << 20, 1, 1, 4) > MOST_PIECES && of(1, 1 << 40, 1, 1 << 20) > MOST_PIECES && of(1, u64::MAX, u64::MAX, 5) > MOST_PIECES);
    }

    #[test]
    fn launches_beyond_the_card_are_refused_in_words() {
        let limits = Limits { threads: 1024, block: [1024, 1024, 64], grid: [i32::MAX.cast_unsigned(), 65_535, 65_535], shared: 1000, multiprocessors: 132 };
        let launch = |grid, block, shared| Launch { grid, block, shared, ..Launch::default() };
        assert!(limits.check(&launch([1, 65_535, 1], [1024, 1, 1], 900), 100).is_ok());
        assert!(limits.check(&launch([1, 1, 1], [1024, 2, 1], 0), 0).is_err_and(|t| t.contains("threads")));
        assert!(limits.check(&launch([1, 1, 1], [1, 1, 65], 0), 0).is_err());
        assert!(limits.check(&launch([1, 65_536, 1], [1, 1, 1], 0), 0).is_err_and(|t| t.contains("grid")));
        assert!(limits.check(&launch([1, 1, 1], [1, 1, 1], 901), 100).is_err_and(|t| t.contains("1001")));
        assert!(limits.check(&launch([0, 1, 1], [1, 1, 1], 0), 0).is_err());
    }
}
