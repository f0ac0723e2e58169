//! The driver for Kubernetes' Dynamic Resource Allocation, `gpu.cumux.dev`.
//!
//! Every card is one device that many claims share. Claims ask for memory and multiprocessors as
//! consumable capacity; the scheduler counts, and the daemon enforces. Each prepared claim is one
//! group, and one CDI device that gives a container the group's directory.
//!
//! - [`claim`]: what a claim was given, and its opaque configuration. Pure.
//! - [`cdi`]: the file by which a container runtime sets up a container.
//! - [`slice`]: what the node offers. Pure.
//! - [`api`]: the API server.
//! - [`driver`]: preparing and unpreparing, with a checkpoint.
//! - [`node`]: kubelet's sockets, and publishing.

pub mod api;
pub mod cdi;
pub mod claim;
pub mod driver;
#[allow(missing_docs, reason = "the fields are kubelet's, and described there")]
pub mod messages;
pub mod node;
pub mod slice;

/// The driver's name: in ResourceSlices, DeviceClasses and opaque configurations.
pub const DRIVER: &str = "gpu.cumux.dev";
