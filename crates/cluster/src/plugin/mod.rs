//! The Kubernetes device plugin: kubelet's device plugin API `v1beta1`, answered from the node's
//! daemon.
//!
//! - [`parts`]: which resources the node has. [`prefer`]: which part is best. Both pure.
//! - [`ledger`]: who has which part, and the rules by which groups come and go.
//! - [`pods`]: what kubelet tells of its pods. [`names`]: which container a group is.
//! - [`serve`]: the calls of kubelet. [`node`]: sockets, registration, health, and the time
//!   between.
//!
//! One process serves all resources of a node, with a socket for each, and needs one daemon for all
//! cards. It needs no privilege but to write kubelet's folder and to be root for the daemon.

pub mod ledger;
#[allow(missing_docs, reason = "the fields are kubelet's, and described there")]
pub mod messages;
pub mod names;
pub mod node;
pub mod parts;
pub mod pods;
pub mod prefer;
pub mod serve;
