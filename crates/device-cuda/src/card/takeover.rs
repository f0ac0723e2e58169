//! What a card does for the clients of a dead predecessor. It keeps no marks, so that it knows
//! nothing of work that was begun; it makes the chains that they had before they come.

use super::Card;
use crate::context::ClientModule;
use crate::driver::first_queue;
use crate::issue::{PlannedKernel, PreparedChain, plan_recipe};
use cumux_device::{ChainRecipe, ClientId, ImageHash, Interrupted, RecipeKernel, Takeover};
use std::collections::HashMap;
use std::sync::Arc;

impl Takeover for Card {
    /// A card keeps no marks: it cannot tell which blocks of a kernel are done.
    fn marks_bytes(&self) -> usize {
        0
    }

    /// A card knows nothing of a predecessor's work.
    fn recover(&self, _client: ClientId) -> Vec<Interrupted> {
        Vec::new()
    }

    fn first_queue(&self) -> Option<u32> {
        first_queue()
    }

    fn chain_recipes(&self, client: ClientId) -> Vec<ChainRecipe> {
        self.client(client).map(|client| client.recipes.lock().list()).unwrap_or_default()
    }

    fn inherit_recipes(&self, client: ClientId, recipes: Vec<ChainRecipe>) {
        if let Ok(client) = self.client(client) {
            client.recipes.lock().inherit(recipes);
        }
    }

    fn prepare_chains(&self, recipes: &[ChainRecipe], most: usize) -> usize {
        let shared = &self.shared;
        if !shared.prepared.may_prepare() || self.require_context().is_err() {
            return 0;
        }
        let mut modules: HashMap<Option<ImageHash>, Option<Arc<ClientModule>>> = HashMap::new();
        let mut module_of = |image: Option<ImageHash>| {
            let find = || match image {
                Some(image) => self.library.look_up(image),
                None => Some(shared.own_kernels.module.clone()),
            };
            modules.entry(image).or_insert_with(|| find().map(ClientModule::new)).clone()
        };
        let plan =
            |recipe: &[RecipeKernel]| -> Option<Vec<PlannedKernel>> { recipe.iter().map(|kernel| plan_recipe(kernel, &module_of(kernel.image)?)).collect() };
        let make = |kernels| PreparedChain::new(&shared.driver, kernels, shared.own_kernels.fence);
        shared.prepared.prepare(recipes, most, plan, make)
    }

    fn spare_driver(&self, is_spared: bool) {
        self.shared.mailboxes.spare_driver(is_spared);
    }
}
