//! What a device allows a launch, and the arithmetic of how many blocks fit on a multiprocessor.
//! Pure.

use crate::ffi::{Try, error};
use crate::log::{because, unsupported};
use cumux_abi::CUdevice_attribute as A;
use cumux_wire::module::FunctionInfo;

/// Bytes are bytes, everything else is a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most threads of a block, by dimension.
    pub block: [u32; 3],
    /// Most blocks of a grid, by dimension.
    pub grid: [u32; 3],
    /// Most threads of a block.
    pub threads_per_block: u32,
    /// Threads of a warp.
    pub warp: u32,
    /// Multiprocessors of the whole device.
    pub multiprocessors: u32,
    /// Shared memory of a block without and with asking for more
    /// (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`).
    pub shared_per_block: u32,
    /// Most shared memory that a block may have after asking for it.
    pub shared_optin: u32,
    /// Shared memory of a multiprocessor.
    pub shared_per_multiprocessor: u32,
    /// Shared memory that the system takes of every block.
    pub shared_reserved: u32,
    /// Registers that a block may have.
    pub registers_per_block: u32,
    /// Registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Threads that fit on a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Blocks that fit on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// Thread block clusters can be launched.
    pub clusters: bool,
}

/// Blocks of a cluster that every device with clusters takes, and with the function's leave.
const PORTABLE_CLUSTER: u32 = 8;
const LARGEST_CLUSTER: u32 = 16;

impl Limits {
    /// From device attributes; what is missing takes the value every device since compute
    /// capability 7.5 has or exceeds.
    #[must_use]
    pub fn from_attributes(attribute: impl Fn(A) -> Option<i32>) -> Self {
        let of = |known: A, otherwise: u32| attribute(known).and_then(|value| u32::try_from(value).ok()).unwrap_or(otherwise);
        let shared_per_block = of(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10);
        Self {
            block: [
                of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
                of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
                of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
            ],
            grid: [
                of(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX.cast_unsigned()),
                of(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
                of(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
            ],
            threads_per_block: of(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
            warp: of(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32).max(1),
            multiprocessors: of(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1).max(1),
            shared_per_block,
            shared_optin: of(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, shared_per_block),
            shared_per_multiprocessor: of(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 64 << 10),
            shared_reserved: of(A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 0),
            registers_per_block: of(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536),
            registers_per_multiprocessor: of(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
            threads_per_multiprocessor: of(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1024),
            blocks_per_multiprocessor: of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16),
            clusters: of(A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0) != 0,
        }
    }

    /// Clusters of this shape that the device holds at a time. How multiprocessors are grouped is
    /// not known here: the driver may count a few less.
    #[must_use]
    pub fn active_clusters(&self, function: &FunctionInfo, threads: u32, dynamic: u32, cluster: [u32; 3], multiprocessors: u32) -> u32 {
        match size(cluster) {
            1 => self.blocks_per_sm(function, threads, dynamic) * multiprocessors,
            blocks if self.clusters && blocks <= LARGEST_CLUSTER => self.blocks_per_sm(function, threads, dynamic) * multiprocessors / blocks,
            _ => 0,
        }
    }

    /// Blocks of the largest cluster of a function; `larger` is its leave to exceed what every
    /// device takes.
    #[must_use]
    pub fn largest_cluster(&self, larger: bool) -> u32 {
        match (self.clusters, larger) {
            (false, _) => 1,
            (true, false) => PORTABLE_CLUSTER,
            (true, true) => LARGEST_CLUSTER,
        }
    }

    /// Blocks of `threads` threads with `dynamic` bytes of dynamic shared memory that one
    /// multiprocessor holds at a time.
    #[must_use]
    pub fn blocks_per_sm(&self, function: &FunctionInfo, threads: u32, dynamic: u32) -> u32 {
        if threads == 0 || threads > function.max_threads.min(self.threads_per_block) {
            return 0;
        }
        let warps = threads.div_ceil(self.warp);
        let by_threads = (self.threads_per_multiprocessor / self.warp) / warps;
        // Registers are handed out per warp, in pieces of 256.
        let per_warp = (function.registers * self.warp).next_multiple_of(256);
        let by_registers = self.registers_per_multiprocessor.checked_div(per_warp).map_or(u32::MAX, |held| held / warps);
        let shared = u64::from(function.static_shared) + u64::from(dynamic);
        if shared > u64::from(self.shared_optin) {
            return 0;
        }
        let charged = (shared + u64::from(self.shared_reserved)).next_multiple_of(128);
        let by_shared = u64::from(self.shared_per_multiprocessor).checked_div(charged).map_or(u32::MAX, |count| u32::try_from(count).unwrap_or(u32::MAX));
        by_threads.min(by_registers).min(by_shared).min(self.blocks_per_multiprocessor)
    }

    /// Largest dynamic shared memory with which `blocks` blocks still fit on one multiprocessor.
    #[must_use]
    pub fn available_dynamic(&self, function: &FunctionInfo, blocks: u32, threads: u32) -> u32 {
        if blocks == 0 || self.blocks_per_sm(function, threads, 0) < blocks {
            return 0;
        }
        let each = self.shared_per_multiprocessor / blocks / 128 * 128;
        let usable = each.saturating_sub(self.shared_reserved).min(self.shared_optin);
        usable.saturating_sub(function.static_shared)
    }
}

/// A launch as the program asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Blocks, by dimension.
    pub grid: [u32; 3],
    /// Threads of a block, by dimension.
    pub block: [u32; 3],
    /// All zero: none.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The blocks wait for each other.
    pub cooperative: bool,
}

fn size(cluster: [u32; 3]) -> u32 {
    cluster.iter().fold(1, |product, n| product.saturating_mul((*n).max(1)))
}

/// Whether a launch may be sent: exactly what would fail at once on the device fails at once here.
///
/// `dynamic_limit` is the function's `MAX_DYNAMIC_SHARED_SIZE_BYTES`, `multiprocessors` what the
/// launch may run on.
///
/// # Errors
/// INVALID_VALUE for impossible dimensions, LAUNCH_OUT_OF_RESOURCES for too many registers,
/// COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_CLUSTER_SIZE; NOT_SUPPORTED for clusters where the device
/// has none.
pub fn check(function: &FunctionInfo, dynamic_limit: u32, limits: &Limits, multiprocessors: u32, config: &Config) -> Try {
    let within = |values: [u32; 3], most: [u32; 3]| values.iter().zip(most).all(|(value, most)| (1..=most).contains(value));
    if !within(config.grid, limits.grid) || !within(config.block, limits.block) {
        let why = format!("a grid of {:?} blocks of {:?} threads: from 1 to {:?} and {:?} are possible", config.grid, config.block, limits.grid, limits.block);
        return Err(because(error::INVALID_VALUE, why));
    }
    let threads = config.block.iter().fold(1_u32, |product, n| product.saturating_mul(*n));
    if threads > limits.threads_per_block {
        return Err(because(error::INVALID_VALUE, format!("{threads} threads a block: {} are possible", limits.threads_per_block)));
    }
    if function.required_block != [0; 3] && function.required_block != config.block {
        let why = format!("blocks of {:?} threads: the kernel requires {:?}", config.block, function.required_block);
        return Err(because(error::INVALID_VALUE, why));
    }
    if config.shared > dynamic_limit || u64::from(config.shared) + u64::from(function.static_shared) > u64::from(limits.shared_optin) {
        let (own, most) = (function.static_shared, limits.shared_optin);
        let why = format!("{} bytes of dynamic shared memory: the kernel may have {dynamic_limit}, and with its own {own} a block {most}", config.shared);
        return Err(because(error::INVALID_VALUE, why));
    }
    let warps = threads.div_ceil(limits.warp);
    if warps.saturating_mul((function.registers * limits.warp).next_multiple_of(256)) > limits.registers_per_block {
        let why = format!("{} registers for each of {threads} threads: a block may have {}", function.registers, limits.registers_per_block);
        return Err(because(error::LAUNCH_OUT_OF_RESOURCES, why));
    }
    if threads > function.max_threads {
        return Err(because(error::INVALID_VALUE, format!("{threads} threads a block: the kernel was compiled for at most {}", function.max_threads)));
    }
    let cluster = if config.cluster == [0; 3] { function.cluster } else { config.cluster };
    if cluster != [0; 3] && cluster != [1; 3] {
        if !limits.clusters {
            return Err(unsupported("thread block clusters, which this device has not"));
        }
        let whole = config.grid.iter().zip(cluster).all(|(grid, cluster)| cluster != 0 && grid % cluster == 0);
        if !whole || size(cluster) > LARGEST_CLUSTER {
            return Err(error::INVALID_CLUSTER_SIZE);
        }
    }
    if config.cooperative {
        let blocks = config.grid.iter().fold(1_u64, |product, n| product.saturating_mul(u64::from(*n)));
        let resident = u64::from(limits.blocks_per_sm(function, threads, config.shared)) * u64::from(multiprocessors);
        if blocks > resident {
            let why = format!("{blocks} blocks that wait for each other: {resident} can be resident at once");
            return Err(because(error::COOPERATIVE_LAUNCH_TOO_LARGE, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::facts::Attributes;

    fn h200() -> Limits {
        let known = Attributes::from([
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152),
            (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536),
            (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233_472),
            (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232_448),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
            (A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024),
        ]);
        Limits::from_attributes(|attribute| known.get(attribute))
    }

    fn kernel() -> FunctionInfo {
        FunctionInfo { registers: 32, max_threads: 1024, ..FunctionInfo::default() }
    }

    fn config(grid: [u32; 3], block: [u32; 3]) -> Config {
        Config { grid, block, ..Config::default() }
    }

    #[test]
    fn dimensions_are_checked_one_by_one_and_as_a_product() {
        let verdict = |grid, block| check(&kernel(), 49152, &h200(), 132, &config(grid, block));
        assert_eq!(verdict([1, 1, 1], [1024, 1, 1]), Ok(()));
        assert_eq!(verdict([i32::MAX as u32, 65535, 65535], [1, 1, 64]), Ok(()));
        for (grid, block) in [
            ([0, 1, 1], [1, 1, 1]),
            ([1, 1, 1], [1, 0, 1]),
            ([1, 65536, 1], [1, 1, 1]),
            ([1, 1, 1], [1, 1, 65]),
            ([1, 1, 1], [1025, 1, 1]),
            ([1, 1, 1], [32, 33, 1]),
            ([1, 1, 1], [u32::MAX, u32::MAX, 64]),
        ] {
            assert_eq!(verdict(grid, block), Err(error::INVALID_VALUE), "{grid:?} {block:?}");
        }
    }

    #[test]
    fn shared_memory_beyond_the_default_must_be_asked_for() {
        let ask = |shared, limit| check(&kernel(), limit, &h200(), 132, &Config { shared, ..config([1; 3], [32, 1, 1]) });
        assert_eq!(ask(49152, 49152), Ok(()));
        assert_eq!(ask(49153, 49152), Err(error::INVALID_VALUE));
        assert_eq!(ask(232_448, 232_448), Ok(()));
        assert_eq!(ask(232_449, u32::MAX), Err(error::INVALID_VALUE), "more than the device has");
    }

    #[test]
    fn registers_required_blocks_and_clusters() {
        let greedy = FunctionInfo { registers: 255, ..kernel() };
        assert_eq!(check(&greedy, 0, &h200(), 132, &config([1; 3], [256, 1, 1])), Ok(()));
        assert_eq!(check(&greedy, 0, &h200(), 132, &config([1; 3], [1024, 1, 1])), Err(error::LAUNCH_OUT_OF_RESOURCES));
        let bounded = FunctionInfo { max_threads: 128, ..kernel() };
        assert_eq!(check(&bounded, 0, &h200(), 132, &config([1; 3], [129, 1, 1])), Err(error::INVALID_VALUE));
        let fixed = FunctionInfo { required_block: [64, 2, 1], ..kernel() };
        assert_eq!(check(&fixed, 0, &h200(), 132, &config([1; 3], [64, 2, 1])), Ok(()));
        assert_eq!(check(&fixed, 0, &h200(), 132, &config([1; 3], [128, 1, 1])), Err(error::INVALID_VALUE));
        let clustered = Config { cluster: [2, 1, 1], ..config([2, 1, 1], [32, 1, 1]) };
        assert_eq!(check(&kernel(), 0, &h200(), 132, &clustered), Err(error::NOT_SUPPORTED));
        let able = Limits { clusters: true, ..h200() };
        assert_eq!(check(&kernel(), 0, &able, 132, &clustered), Ok(()));
        let odd = Config { grid: [3, 1, 1], ..clustered };
        assert_eq!(check(&kernel(), 0, &able, 132, &odd), Err(error::INVALID_CLUSTER_SIZE), "no whole number of clusters");
        assert_eq!(able.active_clusters(&kernel(), 1024, 0, [4, 1, 1], 132), 66);
        assert_eq!(h200().active_clusters(&kernel(), 1024, 0, [4, 1, 1], 132), 0);
    }

    #[test]
    fn occupancy_is_bound_by_the_scarcest() {
        let limits = h200();
        assert_eq!(limits.blocks_per_sm(&kernel(), 1024, 0), 2, "threads");
        assert_eq!(limits.blocks_per_sm(&kernel(), 32, 0), 32, "block slots");
        assert_eq!(limits.blocks_per_sm(&FunctionInfo { registers: 128, ..kernel() }, 256, 0), 2, "registers");
        assert_eq!(limits.blocks_per_sm(&kernel(), 32, 48 << 10), 4, "shared memory with the system's KiB");
        assert_eq!(limits.blocks_per_sm(&kernel(), 32, 232_448), 1);
        assert_eq!(limits.blocks_per_sm(&kernel(), 32, 232_449), 0);
        assert_eq!(limits.blocks_per_sm(&kernel(), 0, 0), 0);
    }

    #[test]
    fn what_is_called_available_does_fit() {
        let limits = h200();
        for threads in [32, 128, 256, 1024] {
            for blocks in 1..=limits.blocks_per_sm(&kernel(), threads, 0) {
                let dynamic = limits.available_dynamic(&kernel(), blocks, threads);
                assert!(limits.blocks_per_sm(&kernel(), threads, dynamic) >= blocks, "{blocks} blocks of {threads} with {dynamic}");
                assert!(
                    dynamic == limits.shared_optin || limits.blocks_per_sm(&kernel(), threads, dynamic + 129) < blocks,
                    "{blocks} {threads}: more would fit"
                );
            }
        }
        assert_eq!(limits.available_dynamic(&kernel(), 33, 32), 0);
    }

    #[test]
    fn a_cooperative_grid_must_be_resident_at_once() {
        let ask = |blocks| check(&kernel(), 49152, &h200(), 132, &Config { cooperative: true, ..config([blocks, 1, 1], [1024, 1, 1]) });
        assert_eq!(ask(264), Ok(()));
        assert_eq!(ask(265), Err(error::COOPERATIVE_LAUNCH_TOO_LARGE));
    }
}
