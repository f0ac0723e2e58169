//! The chains that a client has, as another process can make them again. Pure.

use cumux_device::{ChainRecipe, MOST_OF_RECIPE, MOST_RECIPE_KERNELS, MOST_RECIPES, RecipeKernel};

/// A client's recipes. The one that was needed last is at the end.
#[derive(Debug, Default)]
pub(crate) struct Recipes(Vec<ChainRecipe>);

impl Recipes {
    /// A chain of these kernels was made, so that a stream has so many of them, or one that was
    /// made in advance was taken. If there are too many recipes, the one goes that was not needed
    /// for the longest time. Returns true if there is anything that was not there before.
    pub(crate) fn note(&mut self, kernels: Vec<RecipeKernel>, count: u32) -> bool {
        if kernels.is_empty() || kernels.len() > MOST_RECIPE_KERNELS {
            return false;
        }
        let known = self.0.iter().position(|recipe| recipe.kernels == kernels).map(|at| self.0.remove(at));
        let before = known.map_or(0, |recipe| recipe.count);
        let count = before.max(count).clamp(1, MOST_OF_RECIPE);
        self.0.push(ChainRecipe { kernels, count });
        if self.0.len() > MOST_RECIPES {
            self.0.remove(0);
        }
        count > before
    }

    /// Those of a predecessor. They count as older than all that are known.
    pub(crate) fn inherit(&mut self, recipes: Vec<ChainRecipe>) {
        let own = std::mem::take(&mut self.0);
        recipes.into_iter().chain(own).for_each(|recipe| _ = self.note(recipe.kernels, recipe.count));
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<ChainRecipe> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(function: u32) -> Vec<RecipeKernel> {
        vec![RecipeKernel { image: None, function, grid: [1; 3], block: [1; 3], cluster: [0; 3], shared: 0 }]
    }

    fn functions(recipes: &Recipes) -> Vec<(u32, u32)> {
        recipes.list().iter().map(|recipe| (recipe.kernels[0].function, recipe.count)).collect()
    }

    #[test]
    fn a_recipe_counts_the_most_chains_and_the_latest_stays_longest() {
        let mut recipes = Recipes::default();
        let news = [(1, 1), (2, 0), (1, 3), (3, 100), (1, 2)].map(|(function, count)| recipes.note(kernels(function), count));
        assert_eq!(news, [true, true, true, true, false]);
        assert_eq!(functions(&recipes), [(2, 1), (3, MOST_OF_RECIPE), (1, 3)]);
        (10..10 + MOST_RECIPES as u32 - 1).for_each(|function| _ = recipes.note(kernels(function), 1));
        assert_eq!(functions(&recipes).len(), MOST_RECIPES);
        assert_eq!(functions(&recipes)[..2], [(1, 3), (10, 1)]);
        recipes.note(Vec::new(), 1);
        recipes.note(vec![kernels(5).remove(0); MOST_RECIPE_KERNELS + 1], 1);
        assert_eq!(functions(&recipes)[0], (1, 3), "these are none");
    }

    #[test]
    fn what_is_inherited_is_older_than_what_is_known() {
        let mut recipes = Recipes::default();
        recipes.note(kernels(1), 1);
        recipes.note(kernels(2), 1);
        recipes.inherit(vec![ChainRecipe { kernels: kernels(3), count: 2 }, ChainRecipe { kernels: kernels(1), count: 4 }]);
        assert_eq!(functions(&recipes), [(3, 2), (1, 4), (2, 1)]);
    }
}
