//! What a device allows a launch, and the arithmetic of how many blocks fit on a multiprocessor.
//! Pure: the one place where a launch is compared with a device.
//!
//! Whoever sends a launch checks all of it ([`LaunchLimits::check`]), so that a bad one fails at
//! once. The software GPU checks all of it again, because the sender is not believed. A real card
//! checks dimensions and shared memory ([`LaunchLimits::check_dimensions`],
//! [`LaunchLimits::check_shared`]) and leaves the rest to the driver, which knows the kernel's
//! machine code. The decoder of a record ([`crate::record`]) knows no device: it only keeps numbers
//! out that no device takes.

use crate::cuda::DeviceAttribute as A;
use crate::facts::DeviceFacts;
use crate::module::FunctionInfo;
use crate::result;

/// Blocks of a cluster that every device with clusters takes.
const PORTABLE_CLUSTER: u32 = 8;
/// Blocks of the largest cluster, which a function must ask for.
const LARGEST_CLUSTER: u32 = 16;
/// Registers are handed out to a warp in pieces of this many.
const REGISTER_PIECE: u32 = 256;
/// Shared memory is handed out to a block in pieces of this many bytes.
const SHARED_PIECE: u32 = 128;
/// Sizes of shared memory that a multiprocessor can be set to, as far as it has so much, in KiB.
const SHARED_CONFIGURATIONS_KIB: [u64; 9] = [8, 16, 32, 64, 100, 132, 164, 196, 228];

/// Bytes are bytes, everything else is a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchLimits {
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
    /// Shared memory of a block without asking for more
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

/// What a kernel needs and demands, as far as a launch is checked against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelNeeds {
    /// Registers of a thread.
    pub registers: u32,
    /// Most threads of a block that the kernel can run with.
    pub max_threads: u32,
    /// Static shared memory of a block in bytes.
    pub static_shared: u32,
    /// Required block size, all zero if none.
    pub required_block: [u32; 3],
    /// Required or hinted cluster size, all zero if none.
    pub cluster: [u32; 3],
    /// How much of a multiprocessor's memory is to be shared memory, in percent, if the program
    /// says so.
    pub carveout: Option<u32>,
}

impl From<&FunctionInfo> for KernelNeeds {
    fn from(function: &FunctionInfo) -> Self {
        Self {
            registers: function.registers,
            max_threads: function.max_threads,
            static_shared: function.static_shared,
            required_block: function.required_block,
            cluster: function.cluster,
            carveout: None,
        }
    }
}

/// A launch as the program asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchShape {
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

/// Why a device does not take a launch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each error names its fields")]
pub enum LaunchError {
    /// A dimension is zero or too large.
    #[error("a grid of {grid:?} blocks of {block:?} threads: from 1 to {most_grid:?} and {most_block:?} are possible")]
    Dimensions { grid: [u32; 3], block: [u32; 3], most_grid: [u32; 3], most_block: [u32; 3] },
    /// A block has more threads than the device takes.
    #[error("{threads} threads a block: {most} are possible")]
    Threads { threads: u32, most: u32 },
    /// The kernel requires another block size.
    #[error("blocks of {block:?} threads: the kernel requires {required:?}")]
    RequiredBlock { block: [u32; 3], required: [u32; 3] },
    /// A block would have too much shared memory.
    #[error("{asked} bytes of dynamic shared memory: the kernel may have {limit}, and with its own {own} a block {most}")]
    Shared { asked: u32, limit: u32, own: u32, most: u32 },
    /// A block would have too many registers.
    #[error("{registers} registers for each of {threads} threads: a block may have {most}")]
    Registers { registers: u32, threads: u32, most: u32 },
    /// The kernel was compiled for smaller blocks.
    #[error("{threads} threads a block: the kernel was compiled for at most {most}")]
    CompiledFor { threads: u32, most: u32 },
    /// The device has no thread block clusters.
    #[error("thread block clusters, which this device has not")]
    NoClusters,
    /// The grid is no multiple of the cluster, or the cluster is too large.
    #[error("clusters of {cluster:?} blocks: a grid of {grid:?} blocks is no multiple, or a cluster has more than {LARGEST_CLUSTER}")]
    ClusterSize { cluster: [u32; 3], grid: [u32; 3] },
    /// Blocks that wait for each other cannot all be resident.
    #[error("{blocks} blocks that wait for each other: {resident} can be resident at once")]
    Cooperative { blocks: u64, resident: u64 },
}

impl LaunchError {
    /// The `CUresult` of a call that asks for such a launch.
    #[must_use]
    pub fn result(&self) -> u32 {
        match self {
            Self::Dimensions { .. } | Self::Threads { .. } | Self::RequiredBlock { .. } | Self::Shared { .. } | Self::CompiledFor { .. } => {
                result::INVALID_VALUE
            }
            Self::Registers { .. } => result::LAUNCH_OUT_OF_RESOURCES,
            Self::NoClusters => result::NOT_SUPPORTED,
            Self::ClusterSize { .. } => result::INVALID_CLUSTER_SIZE,
            Self::Cooperative { .. } => result::COOPERATIVE_LAUNCH_TOO_LARGE,
        }
    }
}

/// Elements of a box of this size; `u64::MAX` where there are more.
#[must_use]
pub fn volume(size: [u32; 3]) -> u64 {
    size.iter().fold(1, |product: u64, n| product.saturating_mul(u64::from(*n)))
}

fn cluster_blocks(cluster: [u32; 3]) -> u32 {
    cluster.iter().fold(1, |product, n| product.saturating_mul((*n).max(1)))
}

impl LaunchLimits {
    /// The limits of a device.
    #[must_use]
    pub fn of(facts: &DeviceFacts) -> Self {
        Self::from_attributes(|attribute| facts.attributes.get(attribute))
    }

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
    pub fn active_clusters(&self, kernel: impl Into<KernelNeeds>, threads: u32, dynamic: u32, cluster: [u32; 3], multiprocessors: u32) -> u32 {
        match cluster_blocks(cluster) {
            1 => self.blocks_per_sm(kernel, threads, dynamic) * multiprocessors,
            blocks if self.clusters && blocks <= LARGEST_CLUSTER => self.blocks_per_sm(kernel, threads, dynamic) * multiprocessors / blocks,
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

    /// Registers that a warp of this kernel gets.
    #[must_use]
    pub fn registers_per_warp(&self, registers: u32) -> u32 {
        (registers * self.warp).next_multiple_of(REGISTER_PIECE)
    }

    /// Shared memory that a block with so many bytes of its own gets, with what the system takes.
    #[must_use]
    pub fn shared_charged(&self, shared: u32) -> u64 {
        (u64::from(shared) + u64::from(self.shared_reserved)).next_multiple_of(u64::from(SHARED_PIECE))
    }

    /// Blocks of `threads` threads with `dynamic` bytes of dynamic shared memory that one
    /// multiprocessor holds at a time.
    #[must_use]
    pub fn blocks_per_sm(&self, kernel: impl Into<KernelNeeds>, threads: u32, dynamic: u32) -> u32 {
        let kernel = kernel.into();
        if threads == 0 || threads > kernel.max_threads.min(self.threads_per_block) {
            return 0;
        }
        let warps = threads.div_ceil(self.warp);
        let by_threads = (self.threads_per_multiprocessor / self.warp) / warps;
        let by_registers = self.registers_per_multiprocessor.checked_div(self.registers_per_warp(kernel.registers)).map_or(u32::MAX, |held| held / warps);
        let shared = kernel.static_shared.saturating_add(dynamic);
        if shared > self.shared_optin {
            return 0;
        }
        let charged = self.shared_charged(shared);
        let held = self.shared_configured(kernel.carveout, charged).checked_div(charged);
        let by_shared = held.map_or(u32::MAX, |count| u32::try_from(count).unwrap_or(u32::MAX));
        by_threads.min(by_registers).min(by_shared).min(self.blocks_per_multiprocessor)
    }

    /// Bytes of shared memory that a multiprocessor is set to for a kernel: its smallest
    /// configuration that has at least the carveout and what a block gets (recorded on an H200,
    /// driver 580; the sizes by the CUDA programming guide).
    fn shared_configured(&self, carveout: Option<u32>, charged: u64) -> u64 {
        let all = u64::from(self.shared_per_multiprocessor);
        let Some(percent) = carveout else { return all };
        // Before compute capability 8.0, where the system takes nothing, there are two.
        let least = if self.shared_reserved == 0 { 32 } else { 0 };
        let fits = |size: &u64| *size >= charged && *size * 100 >= all * u64::from(percent);
        SHARED_CONFIGURATIONS_KIB.into_iter().filter(|size| *size >= least).map(|size| size << 10).find(fits).map_or(all, |size| size.min(all))
    }

    /// Dynamic shared memory with which so many blocks fit on one multiprocessor, by the driver's
    /// rule, which does not count what the system takes of each; `None` if they do not fit even
    /// without (recorded on an H200, driver 580). The function's own limit is not known here.
    #[must_use]
    pub fn available_dynamic(&self, kernel: impl Into<KernelNeeds>, blocks: u32, threads: u32) -> Option<u32> {
        let kernel = kernel.into();
        if blocks == 0 || self.blocks_per_sm(kernel, threads, 0) < blocks {
            return None;
        }
        if blocks == 1 {
            return Some(self.shared_optin.saturating_sub(kernel.static_shared));
        }
        let all = u32::try_from(self.shared_configured(kernel.carveout, self.shared_charged(kernel.static_shared))).unwrap_or(u32::MAX);
        Some((all / blocks / SHARED_PIECE * SHARED_PIECE).min(self.shared_optin).saturating_sub(kernel.static_shared))
    }

    /// Checks the dimensions of grid and block, one by one and as a product. Returns the threads of
    /// a block.
    ///
    /// # Errors
    /// [`LaunchError::Dimensions`] and [`LaunchError::Threads`].
    pub fn check_dimensions(&self, grid: [u32; 3], block: [u32; 3]) -> Result<u32, LaunchError> {
        let within = |values: [u32; 3], most: [u32; 3]| values.iter().zip(most).all(|(value, most)| (1..=most).contains(value));
        if !within(grid, self.grid) || !within(block, self.block) {
            return Err(LaunchError::Dimensions { grid, block, most_grid: self.grid, most_block: self.block });
        }
        let threads = u32::try_from(volume(block)).unwrap_or(u32::MAX);
        if threads > self.threads_per_block {
            return Err(LaunchError::Threads { threads, most: self.threads_per_block });
        }
        Ok(threads)
    }

    /// Checks the shared memory of a block. `limit` is what the function may have of dynamic shared
    /// memory; `None` where only the device's own limit counts.
    ///
    /// # Errors
    /// [`LaunchError::Shared`].
    pub fn check_shared(&self, static_shared: u32, dynamic: u32, limit: Option<u32>) -> Result<(), LaunchError> {
        let limit = limit.unwrap_or(self.shared_optin.saturating_sub(static_shared));
        if dynamic > limit || u64::from(dynamic) + u64::from(static_shared) > u64::from(self.shared_optin) {
            return Err(LaunchError::Shared { asked: dynamic, limit, own: static_shared, most: self.shared_optin });
        }
        Ok(())
    }

    /// Checks a launch: exactly what would fail at once on the device fails here.
    ///
    /// `dynamic_limit` is the function's `MAX_DYNAMIC_SHARED_SIZE_BYTES`, `multiprocessors` what
    /// the launch may run on.
    ///
    /// # Errors
    /// The first limit that the launch exceeds; [`LaunchError::result`] is its `CUresult`.
    pub fn check(&self, kernel: impl Into<KernelNeeds>, dynamic_limit: u32, multiprocessors: u32, shape: &LaunchShape) -> Result<(), LaunchError> {
        let kernel = kernel.into();
        let threads = self.check_dimensions(shape.grid, shape.block)?;
        if kernel.required_block != [0; 3] && kernel.required_block != shape.block {
            return Err(LaunchError::RequiredBlock { block: shape.block, required: kernel.required_block });
        }
        self.check_shared(kernel.static_shared, shape.shared, Some(dynamic_limit))?;
        let warps = threads.div_ceil(self.warp);
        if warps.saturating_mul(self.registers_per_warp(kernel.registers)) > self.registers_per_block {
            return Err(LaunchError::Registers { registers: kernel.registers, threads, most: self.registers_per_block });
        }
        if threads > kernel.max_threads {
            return Err(LaunchError::CompiledFor { threads, most: kernel.max_threads });
        }
        let cluster = if shape.cluster == [0; 3] { kernel.cluster } else { shape.cluster };
        if cluster != [0; 3] && cluster != [1; 3] {
            if !self.clusters {
                return Err(LaunchError::NoClusters);
            }
            let whole = shape.grid.iter().zip(cluster).all(|(grid, cluster)| cluster != 0 && grid % cluster == 0);
            if !whole || cluster_blocks(cluster) > LARGEST_CLUSTER {
                return Err(LaunchError::ClusterSize { cluster, grid: shape.grid });
            }
        }
        if shape.cooperative {
            let blocks = volume(shape.grid);
            let resident = u64::from(self.blocks_per_sm(kernel, threads, shape.shared)) * u64::from(multiprocessors);
            if blocks > resident {
                return Err(LaunchError::Cooperative { blocks, resident });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Attributes;

    fn h200() -> LaunchLimits {
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
        LaunchLimits::from_attributes(|attribute| known.get(attribute))
    }

    fn check(kernel: &FunctionInfo, dynamic_limit: u32, limits: &LaunchLimits, multiprocessors: u32, shape: &LaunchShape) -> Result<(), u32> {
        limits.check(kernel, dynamic_limit, multiprocessors, shape).map_err(|error| error.result())
    }

    fn kernel() -> FunctionInfo {
        FunctionInfo { registers: 32, max_threads: 1024, ..FunctionInfo::default() }
    }

    fn shape(grid: [u32; 3], block: [u32; 3]) -> LaunchShape {
        LaunchShape { grid, block, ..LaunchShape::default() }
    }

    /// A device that says nothing of itself counts as one of compute capability 7.5 with the least
    /// that such devices have.
    #[test]
    fn what_a_device_does_not_say_is_the_least_that_there_is() {
        let least = LaunchLimits::from_attributes(|_| None);
        assert_eq!((least.block, least.threads_per_block, least.warp), ([1024, 1024, 64], 1024, 32));
        assert_eq!(least.grid, [i32::MAX as u32, 65535, 65535]);
        let ask = |shared| check(&kernel(), u32::MAX, &least, 1, &LaunchShape { shared, ..shape([1; 3], [32, 1, 1]) });
        assert_eq!((ask(48 << 10), ask((48 << 10) + 1)), (Ok(()), Err(result::INVALID_VALUE)));
        let small = FunctionInfo { registers: 16, ..kernel() };
        assert_eq!(least.blocks_per_sm(&small, 32, 0), 16, "block slots");
        assert_eq!(least.blocks_per_sm(&small, 512, 0), 2, "threads");
        assert_eq!(least.blocks_per_sm(&small, 32, 32 << 10), 2, "64 KiB of shared memory");
        assert_eq!(least.blocks_per_sm(&FunctionInfo { registers: 64, ..kernel() }, 1024, 0), 1, "registers");
    }

    #[test]
    fn dimensions_are_checked_one_by_one_and_as_a_product() {
        let verdict = |grid, block| check(&kernel(), 49152, &h200(), 132, &shape(grid, block));
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
            assert_eq!(verdict(grid, block), Err(result::INVALID_VALUE), "{grid:?} {block:?}");
        }
    }

    #[test]
    fn shared_memory_beyond_the_default_must_be_asked_for() {
        let ask = |shared, limit| check(&kernel(), limit, &h200(), 132, &LaunchShape { shared, ..shape([1; 3], [32, 1, 1]) });
        assert_eq!(ask(49152, 49152), Ok(()));
        assert_eq!(ask(49153, 49152), Err(result::INVALID_VALUE));
        assert_eq!(ask(232_448, 232_448), Ok(()));
        assert_eq!(ask(232_449, u32::MAX), Err(result::INVALID_VALUE), "more than the device has");
    }

    #[test]
    fn registers_required_blocks_and_clusters() {
        let greedy = FunctionInfo { registers: 255, ..kernel() };
        assert_eq!(check(&greedy, 0, &h200(), 132, &shape([1; 3], [256, 1, 1])), Ok(()));
        assert_eq!(check(&greedy, 0, &h200(), 132, &shape([1; 3], [1024, 1, 1])), Err(result::LAUNCH_OUT_OF_RESOURCES));
        let bounded = FunctionInfo { max_threads: 128, ..kernel() };
        assert_eq!(check(&bounded, 0, &h200(), 132, &shape([1; 3], [129, 1, 1])), Err(result::INVALID_VALUE));
        let fixed = FunctionInfo { required_block: [64, 2, 1], ..kernel() };
        assert_eq!(check(&fixed, 0, &h200(), 132, &shape([1; 3], [64, 2, 1])), Ok(()));
        assert_eq!(check(&fixed, 0, &h200(), 132, &shape([1; 3], [128, 1, 1])), Err(result::INVALID_VALUE));
        let clustered = LaunchShape { cluster: [2, 1, 1], ..shape([2, 1, 1], [32, 1, 1]) };
        assert_eq!(check(&kernel(), 0, &h200(), 132, &clustered), Err(result::NOT_SUPPORTED));
        let able = LaunchLimits { clusters: true, ..h200() };
        assert_eq!(check(&kernel(), 0, &able, 132, &clustered), Ok(()));
        let odd = LaunchShape { grid: [3, 1, 1], ..clustered };
        assert_eq!(check(&kernel(), 0, &able, 132, &odd), Err(result::INVALID_CLUSTER_SIZE), "no whole number of clusters");
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

    /// What driver 580 said on an H200 of functions that may have all, for so many blocks of 256
    /// threads.
    #[test]
    fn available_is_what_the_driver_calls_so() {
        let of = |static_shared, carveout| {
            let needs = KernelNeeds { static_shared, carveout, ..KernelNeeds::from(&kernel()) };
            [1, 2, 3, 5, 8, 9].map(|blocks| h200().available_dynamic(needs, blocks, 256))
        };
        assert_eq!(of(0, None), [Some(232_448), Some(116_736), Some(77_824), Some(46_592), Some(29_184), None]);
        assert_eq!(of(16, None), [Some(232_432), Some(116_720), Some(77_808), Some(46_576), Some(29_168), None]);
        assert_eq!(of(0, Some(50)), [Some(232_448), Some(67_584), Some(45_056), Some(27_008), Some(16_896), None]);
        assert_eq!(of(0, Some(0)), [Some(232_448), Some(4096), Some(2688), Some(1536), Some(1024), None]);
        assert_eq!(of(0, Some(100)), of(0, None));
        assert_eq!(h200().available_dynamic(&kernel(), 33, 32), None);
        assert_eq!((h200().available_dynamic(&kernel(), 1, 2048), h200().available_dynamic(&kernel(), 0, 32)), (None, None));
    }

    /// The same for blocks of 256 threads with so much dynamic shared memory.
    #[test]
    fn what_a_program_prefers_bounds_how_many_blocks_fit() {
        let of = |carveout| {
            let needs = KernelNeeds { carveout, ..KernelNeeds::from(&kernel()) };
            [0, 1, 1000, 20_000, 40_000, 60_000, 116_000, 200_000].map(|dynamic| h200().blocks_per_sm(needs, 256, dynamic))
        };
        assert_eq!(of(None), [8, 8, 8, 8, 5, 3, 1, 1]);
        assert_eq!(of(Some(50)), [8, 8, 8, 6, 3, 2, 1, 1]);
        assert_eq!(of(Some(0)), [8, 7, 4, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_cooperative_grid_must_be_resident_at_once() {
        let ask = |blocks| check(&kernel(), 49152, &h200(), 132, &LaunchShape { cooperative: true, ..shape([blocks, 1, 1], [1024, 1, 1]) });
        assert_eq!(ask(264), Ok(()));
        assert_eq!(ask(265), Err(result::COOPERATIVE_LAUNCH_TOO_LARGE));
    }

    #[test]
    fn a_real_card_is_asked_for_dimensions_and_shared_memory() {
        let limits = LaunchLimits { shared_optin: 1000, ..h200() };
        assert_eq!(limits.check_dimensions([1, 65_535, 1], [1024, 1, 1]), Ok(1024));
        for (grid, block, said) in
            [([1, 1, 1], [1024, 2, 1], "threads"), ([1, 1, 1], [1, 1, 65], "64]"), ([1, 65_536, 1], [1; 3], "grid"), ([0, 1, 1], [1; 3], "grid")]
        {
            assert!(limits.check_dimensions(grid, block).is_err_and(|error| error.to_string().contains(said)), "{grid:?} {block:?}");
        }
        assert_eq!(limits.check_shared(100, 900, None), Ok(()));
        assert!(limits.check_shared(100, 901, None).is_err_and(|error| error.to_string().contains("901")));
        assert!(limits.check_shared(1001, 0, None).is_err() && limits.check_shared(0, u32::MAX, Some(u32::MAX)).is_err());
    }
}
