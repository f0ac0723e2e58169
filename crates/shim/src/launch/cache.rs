//! What a thread knows of launches that it has made before: the function and the stream behind two
//! handles, and the shape that was checked last.
//!
//! Invariant: what is found here under a [`Key`] is what the full way would find now. It was found
//! by the full way in this thread under the same key, the key has the number of changes that was
//! read before ([`crate::changes`]), and nothing is kept that changes without being noted: not the
//! sticky error, not the program's share. No object of the program is kept alive.

use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::limits::{Config, Limits};
use crate::{changes, context, default_stream};
use cumux_abi::{CUfunction, CUstream};
use cumux_wire::module::FunctionInfo;
use cumux_wire::record::LaunchFields;
use std::cell::RefCell;
use std::sync::Arc;

/// Launches that a thread knows. A power of two. Most programs launch fewer kernels again and
/// again, and their handles are numbered one after the other.
const PLACES: usize = 256;

/// A launch in this thread: all that decides which function and which stream it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    changes: u64,
    function: u64,
    /// Never 0: the default stream has a name of its own.
    stream: u64,
    /// Number of the current context.
    context: u64,
}

impl Key {
    /// A launch at this moment.
    #[inline]
    pub(super) fn now(function: CUfunction, stream: CUstream) -> Self {
        let stream = default_stream::resolve(stream).addr() as u64;
        Self { changes: changes::count(), function: function.addr() as u64, stream, context: context::top_number() }
    }

    /// Where such a launch is kept. The numbers in handles begin at bit 4, the kind at bit 40.
    #[inline]
    fn place(&self) -> usize {
        (self.function >> 4 ^ self.function >> 34 ^ (self.stream >> 4).wrapping_mul(37)) as usize & (PLACES - 1)
    }
}

/// What is known of a launch.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) session: &'static Connection,
    pub(super) timeline: TimelineId,
    /// With the shape that was checked last: no cluster, no grid-wide barrier.
    pub(super) fields: LaunchFields,
    pub(super) limits: &'static Limits,
    pub(super) info: Arc<FunctionInfo>,
}

impl Known {
    /// Whether the function takes a launch of this shape; remembers that it does.
    #[inline]
    pub(super) fn takes(&mut self, config: &Config) -> bool {
        let fields = &self.fields;
        if config.cluster != [0; 3] || config.cooperative {
            return false;
        }
        (config.grid == fields.grid && config.block == fields.block && config.shared == fields.shared) || self.takes_other(config)
    }

    fn takes_other(&mut self, config: &Config) -> bool {
        let fields = &self.fields;
        let taken = if config.block == fields.block && config.shared == fields.shared {
            // Without clusters and barriers, nothing else depends on the grid.
            self.limits.check_dimensions(config.grid, config.block).is_ok()
        } else {
            // How much shared memory the function may have is known up to what it had.
            config.shared <= fields.shared && self.limits.check(&*self.info, config.shared, 0, config).is_ok()
        };
        if !taken {
            return false;
        }
        self.fields = LaunchFields { grid: config.grid, block: config.block, shared: config.shared, ..self.fields };
        true
    }
}

thread_local! {
    /// Empty until the first launch of the thread.
    static KNOWN: RefCell<Vec<Option<(Key, Known)>>> = const { RefCell::new(Vec::new()) };
}

/// Does something with what is known of a launch; `None` where nothing is known, or where that is
/// the answer.
#[inline]
pub(super) fn with<T>(key: &Key, then: impl FnOnce(&mut Known) -> Option<T>) -> Option<T> {
    let find = |known: &RefCell<Vec<Option<(Key, Known)>>>| match known.borrow_mut().get_mut(key.place()) {
        Some(Some((found, known))) if found == key => then(known),
        _ => None,
    };
    KNOWN.try_with(find).ok().flatten()
}

/// Remembers a launch that the full way has checked.
pub(super) fn put(key: Key, launch: Known) {
    let put = |known: &RefCell<Vec<Option<(Key, Known)>>>| {
        let mut known = known.borrow_mut();
        if known.is_empty() {
            known.resize_with(PLACES, || None);
        }
        if let Some(place) = known.get_mut(key.place()) {
            *place = Some((key, launch));
        }
    };
    let _ = KNOWN.try_with(put);
}
