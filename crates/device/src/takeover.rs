//! What a device knows of the work that a dead predecessor had begun.

use crate::ids::ClientId;

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

    /// True: from now on calls of the driver that are not needed wait, because the end of another
    /// process holds a lock of it. False: no more.
    fn spare_driver(&self, is_spared: bool) {
        let _ = is_spared;
    }
}
