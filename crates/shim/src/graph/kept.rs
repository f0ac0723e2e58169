//! What an executable keeps of the graphs that it was made from: the program's objects, and
//! conditions.

use super::condition::Condition;
use super::objects::Held;
use super::structure::Graph;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a graph has of both, and all graphs in it.
#[derive(Debug, Default)]
struct Things {
    held: Vec<Arc<Held>>,
    conditions: Vec<Arc<Condition>>,
}

impl Things {
    fn of(graph: &Graph) -> Self {
        Self { held: graph.all_held(), conditions: graph.all_conditions() }
    }
}

/// What an executable keeps.
#[derive(Debug, Default)]
pub(super) struct Kept {
    graph: Things,
    /// Of the graphs whose parameters child graph nodes have got since then, by those nodes.
    children: BTreeMap<u64, Things>,
}

impl Kept {
    /// What an executable of this graph keeps.
    pub(super) fn of(graph: &Graph) -> Self {
        Self { graph: Things::of(graph), children: BTreeMap::new() }
    }

    /// A child graph node has got the parameters of this graph. Returns what is kept no more.
    #[must_use]
    pub(super) fn change_child(&mut self, node: u64, child: &Graph) -> Vec<Arc<Held>> {
        self.children.insert(node, Things::of(child)).map(|before| before.held).unwrap_or_default()
    }

    /// All conditions.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Arc<Condition>> {
        self.graph.conditions.iter().chain(self.children.values().flat_map(|child| &child.conditions))
    }

    /// All objects.
    pub(super) fn into_held(self) -> Vec<Arc<Held>> {
        self.graph.held.into_iter().chain(self.children.into_values().flat_map(|child| child.held)).collect()
    }
}
