//! The limits of a launch.

use cumux_abi::CUdevice_attribute as Attribute;
use cumux_device::{DeviceFacts, Launch};

/// A card's limits for launches, from its attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchLimits {
    /// Most threads of a block.
    threads: u32,
    /// Most threads of a block in x, y, z.
    block: [u32; 3],
    /// Most blocks of a grid in x, y, z.
    grid: [u32; 3],
    /// Most bytes of shared memory of a block, static and dynamic together.
    shared: u32,
    /// The number of SMs of the card.
    multiprocessors: u32,
}

impl LaunchLimits {
    /// Reads the limits from a card's facts.
    pub(crate) fn of(facts: &DeviceFacts) -> LaunchLimits {
        let read = |attribute: Attribute| facts.attribute(attribute).cast_unsigned();
        LaunchLimits {
            threads: read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            block: [
                read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            grid: [
                read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            shared: read(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            multiprocessors: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        }
    }

    /// The number of SMs of the card.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Checks the launch of a kernel that has `static_shared` bytes of static shared memory.
    ///
    /// # Errors
    /// A sentence: what the launch asks for, and the limit.
    pub(super) fn check(&self, launch: &Launch, static_shared: u32) -> Result<(), String> {
        let threads: u64 = launch.block.iter().map(|d| u64::from(*d)).product();
        let exceeds = |asked: &[u32; 3], most: &[u32; 3]| asked.iter().zip(most).any(|(asked, most)| asked > most || *asked == 0);
        if threads > u64::from(self.threads) || exceeds(&launch.block, &self.block) {
            return Err(format!("blocks of {:?} threads; at most {} threads and {:?}", launch.block, self.threads, self.block));
        }
        if exceeds(&launch.grid, &self.grid) {
            return Err(format!("a grid of {:?} blocks; at most {:?}", launch.grid, self.grid));
        }
        let shared = u64::from(launch.shared) + u64::from(static_shared);
        if shared > u64::from(self.shared) {
            return Err(format!("{shared} bytes of shared memory a block; at most {}", self.shared));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_beyond_the_card_are_refused_in_words() {
        let limits =
            LaunchLimits { threads: 1024, block: [1024, 1024, 64], grid: [i32::MAX.cast_unsigned(), 65_535, 65_535], shared: 1000, multiprocessors: 132 };
        let launch = |grid, block, shared| Launch { grid, block, shared, ..Launch::default() };
        assert!(limits.check(&launch([1, 65_535, 1], [1024, 1, 1], 900), 100).is_ok());
        assert!(limits.check(&launch([1, 1, 1], [1024, 2, 1], 0), 0).is_err_and(|t| t.contains("threads")));
        assert!(limits.check(&launch([1, 1, 1], [1, 1, 65], 0), 0).is_err());
        assert!(limits.check(&launch([1, 65_536, 1], [1, 1, 1], 0), 0).is_err_and(|t| t.contains("grid")));
        assert!(limits.check(&launch([1, 1, 1], [1, 1, 1], 901), 100).is_err_and(|t| t.contains("1001")));
        assert!(limits.check(&launch([0, 1, 1], [1, 1, 1], 0), 0).is_err());
    }
}
