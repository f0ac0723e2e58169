//! Chains of kernels, as another process can make them again.

use crate::modules::ImageHash;

/// A kernel of a chain: its function and its launch, without parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecipeKernel {
    /// The image of its module. `None`: the kernel is the device's own.
    pub image: Option<ImageHash>,
    /// Its place in the module.
    pub function: u32,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; all 0 or all 1 where there are none.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
}

/// Kernels that a client launches again and again, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRecipe {
    /// The kernels.
    pub kernels: Vec<RecipeKernel>,
    /// How many chains of them a stream of the client has.
    pub count: u32,
}

/// Recipes of one client that a device remembers at most.
pub const MOST_RECIPES: usize = 96;
/// Kernels of one recipe at most.
pub const MOST_RECIPE_KERNELS: usize = 128;
/// Chains of one recipe at most.
pub const MOST_OF_RECIPE: u32 = 8;
