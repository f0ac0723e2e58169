//! A standby makes the chains that clients have ([`crate::recipes`]), when it has loaded all
//! modules.

use crate::recipes::{self, Recipes};
use crate::shared::Shared;
use cumux_device::ChainRecipe;
use cumux_wire::layout::DeviceIndex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most chains that are made without a pause.
const CHAINS_AT_ONCE: usize = 4;
/// How often the keeper is asked what chains clients have.
const PERIOD: Duration = Duration::from_secs(1);
/// The same when they have not changed for longer and longer.
const LONGEST_PERIOD: Duration = Duration::from_secs(8);

/// A pause takes this part of the time that work in advance took. Most of that is spent unpacking
/// and reading the image, which no neighbour feels.
const PAUSE_SHARE: u32 = 3;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long nothing is begun after what was begun then and is done.
pub fn pause_after(begun: Instant) -> Duration {
    (begun.elapsed() / PAUSE_SHARE).min(LONGEST_PAUSE)
}

/// The chains that clients have.
pub struct ChainsAhead {
    of_client: BTreeMap<u32, Recipes>,
    /// The same by device: the latest first, of each client in turn.
    of_device: BTreeMap<DeviceIndex, Vec<ChainRecipe>>,
    /// When the keeper is asked for them next, and how long after that the next time.
    next: Instant,
    period: Duration,
    /// Modules or kernels were loaded since they were made last.
    has_loaded: bool,
}

impl Default for ChainsAhead {
    fn default() -> Self {
        Self { of_client: BTreeMap::new(), of_device: BTreeMap::new(), next: Instant::now(), period: PERIOD, has_loaded: false }
    }
}

impl ChainsAhead {
    /// A module or kernels of one were loaded: there may be chains that can be made now.
    pub fn note_loaded(&mut self) {
        self.has_loaded = true;
    }

    /// Makes the chains that these clients have now, if there may be any. `pause` waits so long,
    /// and as long as nothing is to be begun. False if it says that the takeover comes.
    pub fn follow(&mut self, shared: &Shared, clients: &[u32], pause: impl Fn(Duration) -> bool) -> bool {
        let asks = Instant::now() >= self.next;
        if asks {
            self.period = if self.ask(shared, clients) { PERIOD } else { (self.period * 2).min(LONGEST_PERIOD) };
            self.next = Instant::now() + self.period;
        }
        if !(asks || std::mem::take(&mut self.has_loaded)) {
            return true;
        }
        for (device_index, recipes) in &self.of_device {
            loop {
                if !pause(Duration::ZERO) {
                    return false;
                }
                let begun = Instant::now();
                let made = shared.cards.prepare_chains(*device_index, recipes, CHAINS_AT_ONCE);
                if made == 0 {
                    break;
                }
                tracing::debug!(made, took = ?begun.elapsed(), "chains in advance");
                if !pause(pause_after(begun)) {
                    return false;
                }
            }
        }
        true
    }

    /// Reads what clients have. Of one of which the keeper says nothing it stays as it was. True if
    /// anything is new.
    fn ask(&mut self, shared: &Shared, clients: &[u32]) -> bool {
        let before = self.of_client.len();
        self.of_client.retain(|client, _| clients.contains(client));
        let mut is_new = self.of_client.len() != before;
        for client in clients {
            let Ok(items) = shared.ask_keeper(|keeper| keeper.list(*client)) else { continue };
            let recipes: Recipes = items.iter().filter_map(recipes::read).flatten().collect();
            is_new |= self.of_client.get(client) != Some(&recipes);
            self.of_client.insert(*client, recipes);
        }
        if is_new {
            self.sort();
        }
        is_new
    }

    fn sort(&mut self) {
        self.of_device.values_mut().for_each(Vec::clear);
        let mut lists: Vec<(DeviceIndex, std::iter::Rev<std::slice::Iter<'_, ChainRecipe>>)> =
            self.of_client.values().flatten().map(|(device_index, recipes)| (*device_index, recipes.iter().rev())).collect();
        while !lists.is_empty() {
            lists.retain_mut(|(device_index, recipes)| {
                let next = recipes.next();
                self.of_device.entry(*device_index).or_default().extend(next.cloned());
                next.is_some()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_each_client_come_first() {
        let recipe = |function| {
            let kernel = cumux_device::RecipeKernel { image: None, function, grid: [1; 3], block: [1; 3], cluster: [0; 3], shared: 0 };
            ChainRecipe { kernels: vec![kernel], count: 1 }
        };
        let of_client = [(1, vec![(0, vec![recipe(1), recipe(2), recipe(3)])]), (2, vec![(0, vec![recipe(4)]), (1, vec![recipe(5)])])];
        let mut chains = ChainsAhead { of_client: of_client.into(), ..ChainsAhead::default() };
        chains.sort();
        let functions = |device| chains.of_device[&device].iter().map(|recipe: &ChainRecipe| recipe.kernels[0].function).collect::<Vec<_>>();
        assert_eq!((functions(0), functions(1)), (vec![3, 4, 2, 1], vec![5]));
    }
}
