//! Occupancy: answered by arithmetic from the function's needs and the device's limits.

use crate::connection::Connection;
use crate::context;
use crate::ffi::{Try, error, forward, put, put_if};
use crate::function::{self, Function};
use crate::limits::Limits;
use crate::{library, process};
use core::ffi::{c_int, c_uint};
use cumux_abi::{CUfunction, CUlaunchConfig, CUoccupancy_flags, CUoccupancyB2DSize, CUstream};

/// Default behaviour, and not counting a cache that may be switched off: no difference on devices
/// with unified caches.
const KNOWN_FLAGS: c_uint = CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0;

/// Blocks per multiprocessor; more dynamic shared memory than the function may have fits none.
fn blocks(function: &Function, limits: &Limits, threads: u32, dynamic: usize) -> u32 {
    let dynamic = u32::try_from(dynamic).unwrap_or(u32::MAX);
    if dynamic > most_dynamic(function, limits) { 0 } else { limits.blocks_per_sm(function.needs(), threads, dynamic) }
}

/// A limit below that of every function counts as that (recorded on an H200, driver 580).
fn most_dynamic(function: &Function, limits: &Limits) -> u32 {
    function.max_dynamic(limits).max(limits.shared_per_block.saturating_sub(function.info.static_shared))
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut c_int, wanted: CUfunction, threads: c_int, dynamic: usize) -> Try {
    forward!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, wanted, threads, dynamic, 0))
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: *mut c_int, wanted: CUfunction, threads: c_int, dynamic: usize, flags: c_uint) -> Try {
    let session = process::enter()?;
    let function = library::find_function(session, wanted)?;
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(error::INVALID_VALUE)?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    put!(out, c_int::try_from(blocks(&function, function::attributes::limits(session), threads, dynamic)).unwrap_or(c_int::MAX));
    Ok(())
}

pub unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(out: *mut usize, wanted: CUfunction, blocks: c_int, threads: c_int) -> Try {
    let session = process::enter()?;
    let function = library::find_function(session, wanted)?;
    let (Ok(blocks), Ok(threads)) = (u32::try_from(blocks), u32::try_from(threads)) else { return Err(error::INVALID_VALUE) };
    if blocks == 0 || threads == 0 {
        return Err(error::INVALID_VALUE);
    }
    let limits = function::attributes::limits(session);
    let available = limits.available_dynamic(function.needs(), blocks, threads).ok_or(error::INVALID_VALUE)?;
    // No more than a launch may ask for: cuDF launches with half of what it is told.
    put!(out, available.min(function.max_dynamic(limits)) as usize);
    Ok(())
}

/// The block size that keeps most threads resident, the largest of equals, with its blocks per
/// multiprocessor.
fn best(function: &Function, limits: &Limits, most: u32, dynamic: impl Fn(u32) -> usize) -> Option<(u32, u32)> {
    let mut best: Option<(u32, u32)> = None;
    let mut step = most.next_multiple_of(limits.warp);
    while step > 0 {
        let threads = step.min(most);
        let count = blocks(function, limits, threads, dynamic(threads));
        if count > 0 && best.is_none_or(|(size, number)| count * threads > size * number) {
            best = Some((threads, count));
        }
        step -= limits.warp;
    }
    best
}

fn potential(grid: *mut c_int, block: *mut c_int, wanted: CUfunction, callback: CUoccupancyB2DSize, dynamic: usize, limit: c_int, flags: c_uint) -> Try {
    let session = process::enter()?;
    let function = library::find_function(session, wanted)?;
    let limits = function::attributes::limits(session);
    if flags & !KNOWN_FLAGS != 0 || limit < 0 {
        return Err(error::INVALID_VALUE);
    }
    let most = function.info.max_threads.min(limits.threads_per_block);
    let most = if limit == 0 { most } else { most.min(limit.cast_unsigned()) };
    let of = |threads: u32| match callback {
        // SAFETY: the program's own function, called as the manual says.
        Some(callback) => unsafe { callback(threads.cast_signed()) },
        None => dynamic,
    };
    let (size, count) = best(&function, limits, most, of).unwrap_or((0, 0));
    put!(block, size.cast_signed());
    put!(grid, (count * context::multiprocessors(session)).cast_signed());
    Ok(())
}

pub unsafe fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    callback: CUoccupancyB2DSize,
    dynamic: usize,
    limit: c_int,
) -> Try {
    potential(grid, block, function, callback, dynamic, limit, 0)
}

pub unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    callback: CUoccupancyB2DSize,
    dynamic: usize,
    limit: c_int,
    flags: c_uint,
) -> Try {
    potential(grid, block, function, callback, dynamic, limit, flags)
}

pub unsafe fn cuOccupancyMaxActiveClusters(out: *mut c_int, wanted: CUfunction, config: *const CUlaunchConfig) -> Try {
    let session = process::enter()?;
    let function = library::find_function(session, wanted)?;
    // SAFETY: an argument of an exported function; its C caller vouches for it.
    let (config, stream) = unsafe { crate::launch::read_config(config)? };
    let limits = function::attributes::limits(session);
    let multiprocessors = in_stream(session, stream);
    let threads = config.block.iter().fold(1_u32, |product, n| product.saturating_mul(*n));
    let cluster = if config.cluster == [0; 3] { function.info.cluster } else { config.cluster };
    let fits = config.shared <= most_dynamic(&function, limits);
    let count = if fits { limits.active_clusters(function.needs(), threads, config.shared, cluster, multiprocessors) } else { 0 };
    put!(out, count.cast_signed());
    Ok(())
}

pub unsafe fn cuOccupancyMaxPotentialClusterSize(out: *mut c_int, wanted: CUfunction, config: *const CUlaunchConfig) -> Try {
    let session = process::enter()?;
    let function = library::find_function(session, wanted)?;
    // SAFETY: an argument of an exported function; its C caller vouches for it.
    let (config, stream) = unsafe { crate::launch::read_config(config)? };
    let limits = function::attributes::limits(session);
    let (threads, multiprocessors) = (config.block.iter().fold(1_u32, |product, n| product.saturating_mul(*n)), in_stream(session, stream));
    let mut blocks = limits.largest_cluster(function.takes_larger_clusters());
    // A small part of the card has no place for large ones.
    while blocks > 1 && limits.active_clusters(function.needs(), threads, config.shared, [blocks, 1, 1], multiprocessors) == 0 {
        blocks /= 2;
    }
    put_if!(out, blocks.cast_signed());
    Ok(())
}

/// Multiprocessors of the context of a stream that a program names, or of the current one.
fn in_stream(session: &'static Connection, stream: CUstream) -> u32 {
    context::stream(session, stream).map_or_else(|_| context::multiprocessors(session), |stream| context::multiprocessors_of(session, &stream))
}
