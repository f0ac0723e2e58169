//! Where pods and jobs meet cumux: everything that an orchestrator calls on a node.
//!
//! - [`groups`]: the groups and cards of the node's daemon, behind a trait; [`fake`] is the same in
//!   memory, for tests.
//! - [`checkpoint`]: a file that survives the process.
//! - [`rpc`]: gRPC calls and their messages' transport, over unix sockets.
//! - [`plugin`]: the Kubernetes device plugin.
//! - [`dra`]: the driver for Kubernetes' Dynamic Resource Allocation.
//! - [`slurm`]: what slurmd calls before and after a job.
//!
//! Invariant: nothing is answered to an orchestrator before the daemon has confirmed it, and
//! nothing is made in the daemon before a checkpoint names it. So after a crash at any moment the
//! next process knows what may exist, and makes or removes the rest.
//!
//! Floors, upper ones use lower ones: `plugin`, `dra`, `slurm`; `rpc`, `service`; `groups`,
//! `checkpoint`.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod checkpoint;
pub mod dra;
pub mod fake;
pub mod groups;
pub mod plugin;
pub mod rpc;
mod service;
pub mod slurm;
mod watch;
