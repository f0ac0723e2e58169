//! A launch's check against its device, with the answers of a driver call.

use crate::ffi::{Try, error};
use crate::log::{because, unsupported};
use cumux_abi::CUresult;
use cumux_wire::limits::{KernelNeeds, LaunchError};
pub use cumux_wire::limits::{LaunchLimits as Limits, LaunchShape as Config};

/// Whether a launch may be sent; see [`Limits::check`].
///
/// # Errors
/// The error's code; what is wrong goes to the log.
pub fn check(function: impl Into<KernelNeeds>, dynamic_limit: u32, limits: &Limits, multiprocessors: u32, config: &Config) -> Try {
    limits.check(function, dynamic_limit, multiprocessors, config).map_err(|exceeded| match exceeded {
        LaunchError::NoClusters => unsupported("thread block clusters, which this device has not"),
        LaunchError::ClusterSize { .. } => error::INVALID_CLUSTER_SIZE,
        other => because(CUresult(other.result()), other.to_string()),
    })
}
