//! Handles of the driver's objects, kept as numbers.

use core::ptr::with_exposed_provenance_mut;
use cumux_abi::types as t;

/// Declares handle types.
///
/// A handle is live from the call that made it until its owner's call that destroys it, and the
/// owner makes that call after every use by others. `of` takes what a successful call of the driver
/// wrote; `raw` gives exactly that back.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $raw:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) struct $name(usize);

        impl $name {
            pub(super) fn of(raw: $raw) -> Self {
                Self(raw.expose_provenance())
            }
            pub(super) fn raw(self) -> $raw {
                with_exposed_provenance_mut(self.0)
            }
        }
    )*};
}

handles! {
    /// A driver stream: work in it runs in order.
    Stream = t::CUstream;
    /// A loaded module.
    Module = t::CUmodule;
    /// A kernel of a module.
    Function = t::CUfunction;
    /// A context on some SMs of the card, within the primary context.
    GreenContext = t::CUgreenCtx;
    /// A graph, from which an executable is made.
    Graph = t::CUgraph;
    /// A node of a graph and of the executable made of it.
    GraphNode = t::CUgraphNode;
    /// A graph that can be launched.
    GraphExec = t::CUgraphExec;
}

#[cfg(test)]
impl Stream {
    /// No stream at all, for tests of bookkeeping.
    pub(crate) fn none() -> Self {
        Self(0)
    }
}
