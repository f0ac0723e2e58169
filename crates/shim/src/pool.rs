//! Stream-ordered memory pools.

use crate::client::Session;
use crate::ffi::{Try, error};
use crate::memory::Allocation;

/// `cuMemFree` of pool memory.
pub(crate) fn free_now(_session: &Session, _pool: u64, _known: &Allocation) -> Try {
    Err(error::NOT_SUPPORTED)
}
