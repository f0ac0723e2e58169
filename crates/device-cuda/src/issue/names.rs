//! What names a chain of an engine, for as long as the chain keeps its place. Pure.

use crate::track::FenceWord;

/// A chain's name. It names nothing any more once the chain has gone or has got another place: who
/// has it must be able to do without the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainName {
    /// The number of its kernels.
    pub(super) length: usize,
    /// Its index among the chains of its length.
    pub(super) index: usize,
    /// The word of its fence, which no other chain of the engine has at the same time.
    pub(super) word: FenceWord,
}
