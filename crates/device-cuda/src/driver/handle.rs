//! Handles of the driver's objects, kept as numbers.

use core::ptr::with_exposed_provenance_mut;
use cumux_abi::types as t;

/// Declares handle types.
///
/// A handle is live from the call that made the object until the call that destroys it. The
/// object's owner makes that call, after the last use by anyone. `of` keeps what a successful call
/// of the driver has written, and `raw` returns exactly that.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $raw:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) struct $name(usize);

        impl $name {
            /// Keeps a handle that the driver has written.
            pub(super) fn of(raw: $raw) -> Self {
                Self(raw.expose_provenance())
            }
            /// The handle, for a call of the driver.
            pub(super) fn raw(self) -> $raw {
                with_exposed_provenance_mut(self.0)
            }
            /// The handle as a number, to be compared with those in a core dump.
            #[allow(dead_code, reason = "not every kind of handle is compared")]
            pub(crate) fn number(self) -> u64 {
                self.0 as u64
            }
        }
    )*};
}

/// A driver stream. Its work runs in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    handle: usize,
    /// True if one thread alone submits to the context in which it is.
    is_engines: bool,
}

impl Stream {
    /// Keeps a handle that the driver has written.
    pub(super) fn of(raw: t::CUstream) -> Stream {
        Stream { handle: raw.expose_provenance(), is_engines: false }
    }

    /// As [`Stream::of`], for a stream in an engine's own green context.
    pub(super) fn of_engine(raw: t::CUstream) -> Stream {
        Stream { is_engines: true, ..Stream::of(raw) }
    }

    /// The handle, for a call of the driver.
    pub(super) fn raw(self) -> t::CUstream {
        with_exposed_provenance_mut(self.handle)
    }

    /// True if whoever submits to this stream waits for no other thread.
    pub(super) fn is_engines(self) -> bool {
        self.is_engines
    }
}

handles! {
    /// A loaded module.
    Module = t::CUmodule;
    /// A kernel of a module.
    Function = t::CUfunction;
    /// An array, or a level of a mipmapped array.
    Array = t::CUarray;
    /// A mipmapped array.
    MipmappedArray = t::CUmipmappedArray;
    /// A green context: a context on some SMs of the card, within the primary context.
    GreenContext = t::CUgreenCtx;
    /// A graph, from which an executable is made.
    Graph = t::CUgraph;
    /// A node of a graph and of the executable made of it.
    GraphNode = t::CUgraphNode;
    /// A graph that can be launched.
    GraphExec = t::CUgraphExec;
}

#[cfg(test)]
impl Array {
    /// A handle of no array, for tests that do not call the driver.
    pub(crate) fn numbered(number: usize) -> Self {
        Self(number)
    }
}

#[cfg(test)]
impl Stream {
    /// A handle of no stream, for tests that do not call the driver.
    pub(crate) fn none() -> Self {
        Stream { handle: 0, is_engines: false }
    }

    /// The same, as if it were an engine's.
    pub(crate) fn none_of_engine() -> Self {
        Stream { handle: 0, is_engines: true }
    }
}
