//! What a device knows of the work that a dead predecessor had begun.

use crate::ids::ClientId;
use crate::recipes::ChainRecipe;

/// The part of an interrupted kernel that must not run again. Opaque outside the device that made
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// One bit a block, in launch order; set = done.
    pub done: Vec<u64>,
}

/// What a predecessor's marks say about a submission it had started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// Half-done blocks were undone: the work can be submitted again with this.
    Resume {
        /// The token of the submission.
        stream_token: u64,
        /// For [`crate::Kernel::resume`].
        resume: Resume,
    },
    /// The work cannot be repeated safely. The client gets LAUNCH_FAILED.
    Lost {
        /// The token of the submission.
        stream_token: u64,
        /// The reason.
        why: String,
    },
}

/// Takes up the clients of a dead predecessor.
pub trait Takeover {
    /// Bytes that a client's marks file must have; 0 where the device keeps no marks
    /// ([`crate::Capabilities::resumes_kernels`] is false). The executor makes the file, the keeper
    /// preserves it, and only the device writes it.
    fn marks_bytes(&self) -> usize;

    /// Reads the marks that a dead predecessor has left for this client, undoes half-done blocks,
    /// and says which of the started work can continue. Called after the client's extents and
    /// window are mapped and its allocations allowed, before any work of the client is submitted.
    fn recover(&self, client: ClientId) -> Vec<Interrupted>;

    /// The lowest number of this process's queues on any card, if the device numbers them. Of
    /// several processes that could take over, the one with the lowest is to: the driver notices a
    /// fault sooner in it (decision 0128).
    fn first_queue(&self) -> Option<u32> {
        None
    }

    /// The chains of kernels that were made for this client, for [`Takeover::prepare_chains`] in a
    /// process that stands by. The device says when there are others
    /// ([`crate::Sink::chains_made`]).
    fn chain_recipes(&self, client: ClientId) -> Vec<ChainRecipe> {
        let _ = client;
        Vec::new()
    }

    /// The chains that a predecessor had made for this client: it has them again soon.
    fn inherit_recipes(&self, client: ClientId, recipes: Vec<ChainRecipe>) {
        let _ = (client, recipes);
    }

    /// Makes chains before the clients come that will need them, `most` of them at most, and drops
    /// those that are not among these. A recipe may be there several times, for several clients.
    /// Returns how many were made. What cannot be made now, because kernels of it are not loaded,
    /// is left out. Nothing is made any more once a client is open. Slow.
    fn prepare_chains(&self, recipes: &[ChainRecipe], most: usize) -> usize {
        let _ = (recipes, most);
        0
    }

    /// True: from now on calls of the driver that are not needed wait, because the end of another
    /// process holds a lock of it. False: no more.
    fn spare_driver(&self, is_spared: bool) {
        let _ = is_spared;
    }
}
