//! Many launches as one: chains of kernels, kept as graph executables whose nodes are given other kernels and parameters each time.
//!
//! A chain belongs to one engine and runs at most once at a time. What was in a node the last time is remembered, so a step that repeats itself
//! sets nothing (measured: setting parameters about 0.5 µs a node, another function about 1.5 µs, launching one by one 1.4 to 2.7 µs a kernel).
//! Chains are made on the helper thread, never here: until one is there, kernels are launched one by one.

use crate::driver::{Code, Driver, Executable, Graph, Node, Stream};
use crate::work::Planned;
use std::sync::Arc;

/// Lengths of chains. Shorter runs do not pay.
const LENGTHS: [usize; 9] = [4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Chains of one length in an engine: one that runs cannot be changed.
const EACH: usize = 16;

/// The longest chain that a run of this many kernels fills.
pub(crate) fn length(run: usize) -> Option<usize> {
    LENGTHS.iter().rev().find(|length| **length <= run).copied()
}

/// The functions of a run as one number: equal for equal sequences.
pub(crate) fn signature(run: &[Planned]) -> u64 {
    run.iter().fold(0xcbf2_9ce4_8422_2325, |hash, planned| (hash ^ planned.kernel().id).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a kernel can be a node of a chain.
pub(crate) fn fits(planned: &Planned) -> bool {
    let plain = planned.shape.cluster == [0; 3] || planned.shape.cluster == [1; 3];
    let info = &planned.module.info.functions[planned.function];
    plain && !planned.shape.cooperative && !planned.kernel().prints && info.cluster == [0; 3]
}

pub(crate) struct Chain {
    driver: Arc<Driver>,
    graph: Graph,
    executable: Executable,
    nodes: Vec<Node>,
    /// What each node runs now. Holds the modules: they are not unloaded under a chain.
    content: Vec<Planned>,
    signature: u64,
    /// Driver stream and mark after which it may be changed again.
    busy: Option<(usize, u64)>,
    used: u64,
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.driver.destroy_chain(self.graph, self.executable);
    }
}

impl Chain {
    /// Slow: not for a dispatch thread.
    pub(crate) fn build(driver: &Arc<Driver>, content: Vec<Planned>, stream: Stream) -> Result<Chain, Code> {
        let kernels: Vec<_> = content.iter().map(|p| (p.kernel().handle, p.shape, p.parameters.as_slice())).collect();
        let (graph, executable, nodes) = driver.chain(&kernels, stream)?;
        let signature = signature(&content);
        Ok(Chain { driver: driver.clone(), graph, executable, nodes, content, signature, busy: None, used: 0 })
    }

    /// Makes the nodes run this and launches them; `run` is used up. Returns how many nodes had to be set. A kernel that cannot be in a node gives
    /// `None`: nothing was launched, `run` is as it was, and the chain is of no more use.
    fn launch(&mut self, run: &mut Vec<Planned>, stream: Stream) -> Result<Option<usize>, Code> {
        let mut swapped = Vec::new();
        for at in 0..run.len() {
            let (now, next) = (&self.content[at], &run[at]);
            if now.kernel().id == next.kernel().id && now.shape == next.shape && now.parameters == next.parameters {
                continue;
            }
            if self.driver.change(self.executable, self.nodes[at], next.kernel().handle, &next.shape, &next.parameters).is_err() {
                // Those before were exchanged: exchange them again.
                for place in swapped {
                    std::mem::swap(&mut self.content[place], &mut run[place]);
                }
                return Ok(None);
            }
            swapped.push(at);
            std::mem::swap(&mut self.content[at], &mut run[at]);
        }
        // Nodes that were right already and those that were set: all of it is in `content` now, `run` holds leftovers.
        self.driver.launch_chain(self.executable, stream)?;
        self.signature = signature(&self.content);
        run.clear();
        Ok(Some(swapped.len()))
    }
}

/// What became of a run.
pub(crate) enum Tried {
    Launched {
        nodes_set: usize,
    },
    /// No chain is free; `build`: one should be made.
    Busy {
        build: bool,
    },
}

/// The chains of one engine.
#[derive(Default)]
pub(crate) struct Chains {
    chains: Vec<Chain>,
    /// Lengths of chains that are being made.
    ordered: Vec<usize>,
    clock: u64,
}

impl Chains {
    /// Launches `run` (as long as a chain) as one, if a chain is free. `over` says whether the work before a mark is over.
    pub(crate) fn launch(&mut self, run: &mut Vec<Planned>, stream: Stream, slot: usize, mark: u64, over: impl Fn(usize, u64) -> bool) -> Result<Tried, Code> {
        let wanted = signature(run);
        let alike = |chain: &Chain| chain.nodes.len() == run.len();
        let free = |chain: &Chain| chain.busy.is_none_or(|(slot, mark)| over(slot, mark));
        // The one that ran the same the last time, else the one that was not used for the longest time.
        let best = self.chains.iter().enumerate().filter(|(_, c)| alike(c) && free(c)).min_by_key(|(_, c)| (c.signature != wanted, c.used)).map(|(at, _)| at);
        let Some(at) = best else {
            let made = self.chains.iter().filter(|c| alike(c)).count() + self.ordered.iter().filter(|l| **l == run.len()).count();
            let build = made < EACH && !self.ordered.contains(&run.len());
            if build {
                self.ordered.push(run.len());
            }
            return Ok(Tried::Busy { build });
        };
        self.clock += 1;
        let chain = &mut self.chains[at];
        chain.used = self.clock;
        let Some(nodes_set) = chain.launch(run, stream)? else {
            self.chains.swap_remove(at);
            return Ok(Tried::Busy { build: false });
        };
        chain.busy = Some((slot, mark));
        Ok(Tried::Launched { nodes_set })
    }

    /// The helper has made one, or could not.
    pub(crate) fn built(&mut self, length: usize, chain: Option<Chain>) {
        self.ordered.retain(|l| *l != length);
        self.chains.extend(chain);
    }

    /// Takes out the chains that mention kernels for which `gone` is true.
    pub(crate) fn forget(&mut self, gone: impl Fn(&Planned) -> bool) -> Vec<Chain> {
        self.chains.extract_if(.., |chain| chain.content.iter().any(&gone)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_into_few_chains() {
        assert_eq!(length(3), None);
        assert_eq!((length(4), length(5), length(100)), (Some(4), Some(4), Some(64)));
        let mut rest = 100;
        let mut pieces = Vec::new();
        while let Some(l) = length(rest) {
            pieces.push(l);
            rest -= l;
        }
        assert_eq!((pieces, rest), (vec![64, 32, 4], 0));
    }
}
