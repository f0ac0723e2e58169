//! Chains that were made before their clients came, while this process stood by. No card had to be
//! stopped for them. A client's engine takes one in place of ordering one, so that after a takeover
//! kernels are launched in chains from the first pass on.
//!
//! ```text
//!            the first client is opened
//! Preparing ───────────────────────────▶ Serving        Off
//!  makes                                  gives          neither
//! ```
#![expect(clippy::disallowed_types, reason = "lets engines look without a lock")]

use super::chain::{Chain, PreparedChain, can_be_node};
use super::plan::{Asked, PlannedKernel};
use crate::context::ClientModule;
use crate::counters::Counters;
use crate::driver::LaunchShape;
use crate::fault::{Call, CudaError};
use cumux_device::{ChainRecipe, MOST_OF_RECIPE, RecipeKernel};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// For so long after the first client has come. What nobody has needed by then nobody will: engines
/// have it destroyed, little by little.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Most chains.
const MOST_PREPARED: usize = 768;

/// A kernel of a recipe, with parameters that are all zero: its node is set before it runs. `None`
/// if it cannot be a node of a chain, or its code is not on the card. The local memory that it
/// needs may be missing: a chain is launched for a batch whose kernels have theirs.
pub(crate) fn plan_recipe(kernel: &RecipeKernel, module: &Arc<ClientModule>) -> Option<PlannedKernel> {
    let function = kernel.function as usize;
    let known = module.kernels.get(function)?;
    let code = known.loaded_code()?;
    module.allow_shared_memory(kernel.function, kernel.shared).ok()?;
    let RecipeKernel { grid, block, cluster, shared, .. } = *kernel;
    let shape = LaunchShape { grid, block, cluster, shared, cooperative: false };
    let parameters = std::iter::repeat_n(0, known.parameter_bytes as usize).collect();
    let planned = PlannedKernel { module: module.clone(), function, code, shape, parameters, constants: Vec::new(), asked: Asked::Launch { module: 0 } };
    can_be_node(&planned).then_some(planned)
}

/// Which chains are to be there, `most` at most: one of each recipe first, in their order, then the
/// second of those that want several, and so on.
fn choose(recipes: &[ChainRecipe], most: usize) -> Vec<&[RecipeKernel]> {
    let twins = (0..MOST_OF_RECIPE).flat_map(|before| recipes.iter().filter(move |recipe| recipe.count > before));
    twins.map(|recipe| recipe.kernels.as_slice()).take(most).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// No client is there.
    #[default]
    Preparing,
    /// Since then there are some.
    Serving(Instant),
    /// None is made.
    Off,
}

#[derive(Default)]
struct Stock {
    phase: Phase,
    /// By the hash of their functions.
    chains: FxHashMap<u64, Vec<(Vec<RecipeKernel>, PreparedChain)>>,
    /// What the driver has refused.
    refused: BTreeSet<Vec<RecipeKernel>>,
}

impl Stock {
    fn len(&self) -> usize {
        self.chains.values().map(Vec::len).sum()
    }

    /// What is missing of these, in their order, and the chains that are not among them.
    fn sort_out<'a>(&mut self, wanted: &[&'a [RecipeKernel]]) -> (Vec<&'a [RecipeKernel]>, Vec<PreparedChain>) {
        let mut there: BTreeMap<&[RecipeKernel], usize> = BTreeMap::new();
        self.chains.values().flatten().for_each(|(recipe, _)| *there.entry(recipe).or_default() += 1);
        let mut missing = Vec::new();
        for recipe in wanted {
            match there.get_mut(recipe) {
                Some(count) if *count > 0 => *count -= 1,
                _ if self.refused.contains(*recipe) => {}
                _ => missing.push(*recipe),
            }
        }
        // What is left of them is too much.
        let mut excess: BTreeMap<Vec<RecipeKernel>, usize> = there.into_iter().map(|(recipe, count)| (recipe.to_vec(), count)).collect();
        let mut unwanted = Vec::new();
        for chains in self.chains.values_mut() {
            let mut is_unwanted = |recipe: &Vec<RecipeKernel>| match excess.get_mut(recipe) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    true
                }
                _ => false,
            };
            unwanted.extend(chains.extract_if(.., |(recipe, _)| is_unwanted(recipe)).map(|(_, chain)| chain));
        }
        self.chains.retain(|_, chains| !chains.is_empty());
        self.refused.retain(|refused| wanted.contains(&refused.as_slice()));
        (missing, unwanted)
    }
}

/// The chains of a card that no engine has yet.
pub(crate) struct PreparedChains {
    counters: Arc<Counters>,
    /// How many there are.
    count: AtomicUsize,
    /// A client is about to come.
    is_closing: AtomicBool,
    /// Lock 8 of the crate's order. The driver is called under it while no client is open.
    stock: Mutex<Stock>,
}

impl PreparedChains {
    /// None yet. `prepares`: some will be made.
    pub(crate) fn new(prepares: bool, counters: Arc<Counters>) -> PreparedChains {
        let phase = if prepares { Phase::Preparing } else { Phase::Off };
        PreparedChains { counters, count: AtomicUsize::new(0), is_closing: AtomicBool::new(false), stock: Mutex::new(Stock { phase, ..Stock::default() }) }
    }

    /// True if some can be made now: no client is open.
    pub(crate) fn may_prepare(&self) -> bool {
        self.stock.lock().phase == Phase::Preparing
    }

    /// Makes chains of these recipes, `most` of them at most, and drops all that are not among
    /// them. `plan` finds the kernels, and gives none where some are not loaded; `make` makes a
    /// chain of them. Returns how many were made.
    pub(crate) fn prepare(
        &self,
        recipes: &[ChainRecipe],
        most: usize,
        mut plan: impl FnMut(&[RecipeKernel]) -> Option<Vec<PlannedKernel>>,
        mut make: impl FnMut(Vec<PlannedKernel>) -> Call<PreparedChain>,
    ) -> usize {
        let wanted = choose(recipes, MOST_PREPARED);
        let (missing, unwanted) = {
            let mut stock = self.stock.lock();
            if stock.phase != Phase::Preparing {
                return 0;
            }
            let sorted = stock.sort_out(&wanted);
            self.count.store(stock.len(), Ordering::Release);
            sorted
        };
        drop(unwanted);
        let mut made = 0;
        for recipe in missing {
            if made == most {
                break;
            }
            let Some(kernels) = plan(recipe) else { continue };
            let mut stock = self.stock.lock();
            // A client may have come meanwhile: a chain that is made beside its kernels may wait
            // for them.
            if stock.phase != Phase::Preparing || self.is_closing.load(Ordering::Acquire) {
                break;
            }
            if stock.refused.contains(recipe) {
                continue;
            }
            match make(kernels) {
                Ok(chain) => {
                    stock.chains.entry(chain.shape()).or_default().push((recipe.to_vec(), chain));
                    self.count.fetch_add(1, Ordering::Release);
                    made += 1;
                }
                // There may be more memory later.
                Err(CudaError::OUT_OF_MEMORY) => break,
                Err(error) => {
                    tracing::debug!(length = recipe.len(), code = error.number(), "a chain is not made in advance");
                    stock.refused.insert(recipe.to_vec());
                }
            }
        }
        made
    }

    /// A client comes: from now on none is made. Waits for the one that is being made. True for the
    /// first client.
    pub(crate) fn begin_serving(&self) -> bool {
        self.is_closing.store(true, Ordering::Release);
        let mut stock = self.stock.lock();
        let begins = stock.phase == Phase::Preparing;
        if begins {
            stock.phase = Phase::Serving(Instant::now());
        }
        begins
    }

    /// True if there is none. Does not wait.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes a chain of these functions for which `fits` holds, with its recipe.
    pub(super) fn take(&self, shape: u64, fits: impl Fn(&Chain) -> bool) -> Option<(Vec<RecipeKernel>, PreparedChain)> {
        let mut stock = self.stock.lock();
        let chains = stock.chains.get_mut(&shape)?;
        let at = chains.iter().position(|(_, chain)| fits(chain.look()))?;
        let taken = chains.swap_remove(at);
        if chains.is_empty() {
            stock.chains.remove(&shape);
        }
        self.count.store(stock.len(), Ordering::Release);
        self.counters.chains_ahead.fetch_add(1, Ordering::Relaxed);
        Some(taken)
    }

    /// Takes some of what is left, when the time for it is over. Destroying it takes long.
    pub(super) fn take_left_over(&self, most: usize) -> Vec<PreparedChain> {
        let mut stock = self.stock.lock();
        let Phase::Serving(since) = stock.phase else { return Vec::new() };
        if since.elapsed() < KEPT_FOR {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for chains in stock.chains.values_mut() {
            let some = chains.len().min(most - taken.len());
            taken.extend(chains.drain(..some).map(|(_, chain)| chain));
        }
        stock.chains.retain(|_, chains| !chains.is_empty());
        self.count.store(stock.len(), Ordering::Release);
        taken
    }

    /// Takes the chains that mention a kernel for which `is_gone` holds.
    pub(crate) fn forget_kernels(&self, is_gone: impl Fn(u64) -> bool) -> Vec<PreparedChain> {
        let mut stock = self.stock.lock();
        let mut gone = Vec::new();
        for chains in stock.chains.values_mut() {
            gone.extend(chains.extract_if(.., |(_, chain)| chain.look().mentions(&is_gone)).map(|(_, chain)| chain));
        }
        stock.chains.retain(|_, chains| !chains.is_empty());
        self.count.store(stock.len(), Ordering::Release);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_comes_first() {
        let recipe = |function, count| {
            let kernel = RecipeKernel { image: None, function, grid: [1; 3], block: [1; 3], cluster: [0; 3], shared: 0 };
            ChainRecipe { kernels: vec![kernel], count }
        };
        let recipes = [recipe(1, 2), recipe(2, 1), recipe(3, 3), recipe(1, 1)];
        let chosen = |most| choose(&recipes, most).iter().map(|kernels| kernels[0].function).collect::<Vec<_>>();
        assert_eq!(chosen(100), [1, 2, 3, 1, 1, 3, 3]);
        assert_eq!(chosen(2), [1, 2]);
    }
}
