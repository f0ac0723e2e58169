//! The chains of kernels that a session has, as another process can make them again. The executor
//! that serves the session has the keeper keep them under it; so they go with it. A standby makes
//! them before it is needed, and a successor knows from them what to keep for the next one.
//!
//! What is read here was written by another process of the service. It is a hint: where it is
//! damaged, chains are made later, as without it.

use crate::shared::Shared;
use cumux_device::{ChainRecipe, ImageHash, MOST_OF_RECIPE, MOST_RECIPE_KERNELS, MOST_RECIPES, RecipeKernel};
use cumux_keeper::client::Item;
use cumux_ring::FileError;
use cumux_ring::file::{Constant, create_constant};
use cumux_wire::layout::DeviceIndex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};

/// The keeper's key of a session's recipes.
pub const RECIPES_KEY: &str = "chains";
/// Bytes of them at most.
const MOST_BYTES: u64 = 8 << 20;
/// Devices of a session at most.
const MOST_DEVICES: usize = 64;

/// Recipes by device.
pub type Recipes = Vec<(DeviceIndex, Vec<ChainRecipe>)>;

/// As they are written: images have numbers.
#[derive(Serialize, Deserialize)]
struct Written {
    images: Vec<String>,
    devices: Vec<(DeviceIndex, Vec<WrittenRecipe>)>,
}

#[derive(Serialize, Deserialize)]
struct WrittenRecipe {
    count: u32,
    kernels: Vec<WrittenKernel>,
}

/// Image and function, and what a launch is.
type WrittenKernel = (Option<u32>, u32, [[u32; 3]; 3], u32);

fn encode(recipes: &Recipes) -> Vec<u8> {
    let mut numbers: BTreeMap<ImageHash, u32> = BTreeMap::new();
    let mut images = Vec::new();
    let mut number_of = |image: ImageHash| {
        *numbers.entry(image).or_insert_with(|| {
            images.push(image.to_hex());
            images.len() as u32 - 1
        })
    };
    let mut kernel = |kernel: &RecipeKernel| {
        let RecipeKernel { image, function, grid, block, cluster, shared } = *kernel;
        (image.map(&mut number_of), function, [grid, block, cluster], shared)
    };
    let mut recipe = |recipe: &ChainRecipe| WrittenRecipe { count: recipe.count, kernels: recipe.kernels.iter().map(&mut kernel).collect() };
    let devices = recipes.iter().map(|(device, recipes)| (*device, recipes.iter().map(&mut recipe).collect())).collect();
    serde_json::to_vec(&Written { images, devices }).unwrap_or_default()
}

/// `None` where it is damaged, or more than any session has.
fn decode(bytes: &[u8]) -> Option<Recipes> {
    let Written { images, devices } = serde_json::from_slice(bytes).ok()?;
    let images: Vec<ImageHash> = images.iter().map(|image| ImageHash::from_hex(image)).collect::<Option<_>>()?;
    let kernel = |(image, function, [grid, block, cluster], shared): WrittenKernel| {
        let image = match image {
            Some(number) => Some(*images.get(number as usize)?),
            None => None,
        };
        Some(RecipeKernel { image, function, grid, block, cluster, shared })
    };
    let recipe = |WrittenRecipe { count, kernels }: WrittenRecipe| {
        let is_one = (1..=MOST_RECIPE_KERNELS).contains(&kernels.len()) && (1..=MOST_OF_RECIPE).contains(&count);
        let kernels = kernels.into_iter().map(kernel).collect::<Option<_>>().filter(|_| is_one)?;
        Some(ChainRecipe { kernels, count })
    };
    let fits = devices.len() <= MOST_DEVICES && devices.iter().all(|(_, recipes)| recipes.len() <= MOST_RECIPES);
    let devices = devices.into_iter().map(|(device, recipes)| Some((device, recipes.into_iter().map(recipe).collect::<Option<_>>()?)));
    devices.collect::<Option<_>>().filter(|_| fits)
}

fn write(recipes: &Recipes) -> Result<OwnedFd, FileError> {
    let bytes = encode(recipes);
    create_constant("cumux-chains", bytes.len() as u64, |at, piece| {
        let at = at as usize;
        piece.copy_from_slice(&bytes[at..at + piece.len()]);
        Ok(())
    })
}

/// What the keeper has of a session, if it is this.
#[must_use]
pub fn read(item: &Item) -> Option<Recipes> {
    let file = item.descriptors.first().filter(|_| item.key == RECIPES_KEY)?;
    let bytes = u64::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    let constant = Constant::of(file).ok().filter(|_| bytes <= MOST_BYTES)?;
    decode(constant.as_ref())
}

impl Shared {
    /// Has the keeper keep what these sessions have, as long as `is_here` says that they are here.
    pub fn keep_recipes(&self, sessions: impl Iterator<Item = u32>, is_here: impl Fn(u32) -> bool) {
        // One after the other: the latest word is the last one.
        let _turn = self.recipes.lock();
        for session in sessions.filter(|session| is_here(*session)) {
            let recipes = self.cards.chain_recipes(session);
            // It is about to leave: what is kept is true.
            if recipes.is_empty() {
                continue;
            }
            let kept = write(&recipes).map(|file| self.keep(session, RECIPES_KEY, "", &[file.as_fd()]));
            if let Ok(Err(error)) = kept
                && !self.lacks_keeper()
            {
                tracing::debug!("the keeper has not taken the chains of session {session}: {error}");
            }
            // It may have ended meanwhile, and what the keeper had of it was dropped. If it has
            // moved, its next executor has read it, and writes it again.
            if !is_here(session) {
                self.drop_kept(session, RECIPES_KEY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn kernels() -> impl Strategy<Value = Vec<RecipeKernel>> {
        let kernel = (proptest::option::of(0..4_u8), 0..9_u32, any::<[[u32; 3]; 3]>(), any::<u32>()).prop_map(|(image, function, shape, shared)| {
            let [grid, block, cluster] = shape;
            RecipeKernel { image: image.map(|image| ImageHash::of(&[image])), function, grid, block, cluster, shared }
        });
        vec(kernel, 1..6)
    }

    fn recipes() -> impl Strategy<Value = Recipes> {
        let recipe = (kernels(), 1..=MOST_OF_RECIPE).prop_map(|(kernels, count)| ChainRecipe { kernels, count });
        vec((0..3_u32, vec(recipe, 0..5)), 0..3)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(recipes in recipes()) {
            prop_assert_eq!(decode(&encode(&recipes)), Some(recipes));
        }

        #[test]
        fn what_is_damaged_is_none_or_something_else(recipes in recipes(), at: usize, with: u8) {
            let mut bytes = encode(&recipes);
            let at = at % bytes.len();
            bytes[at] = with;
            // Whatever it is, it stays within the limits.
            for (_, recipes) in decode(&bytes).unwrap_or_default() {
                prop_assert!(recipes.iter().all(|recipe| (1..=MOST_OF_RECIPE).contains(&recipe.count) && !recipe.kernels.is_empty()));
            }
        }
    }

    #[test]
    fn more_than_any_session_has_is_refused() {
        let kernel = RecipeKernel { image: None, function: 0, grid: [1; 3], block: [1; 3], cluster: [0; 3], shared: 0 };
        let recipes = |kernels: usize, count, times: usize| vec![(0, vec![ChainRecipe { kernels: vec![kernel.clone(); kernels], count }; times])];
        let reads = |recipes: Recipes| decode(&encode(&recipes)).is_some();
        assert!(reads(recipes(MOST_RECIPE_KERNELS, MOST_OF_RECIPE, MOST_RECIPES)));
        for (kernels, count, times) in [(MOST_RECIPE_KERNELS + 1, 1, 1), (0, 1, 1), (1, MOST_OF_RECIPE + 1, 1), (1, 0, 1), (1, 1, MOST_RECIPES + 1)] {
            assert!(!reads(recipes(kernels, count, times)), "{kernels} {count} {times}");
        }
        assert!(decode(br#"{"images":[],"devices":[[0,[{"count":1,"kernels":[[0,0,[[1,1,1],[1,1,1],[0,0,0]],0]]}]]]}"#).is_none(), "an image without a name");
    }
}
