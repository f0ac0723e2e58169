//! Recordings of one program alone, as `cumux record` makes them.

use crate::device::DeviceName;
use crate::record::{self, Audience};
use anyhow::{Context as _, bail};
use cumux_planner::profile::Profile;
use std::ffi::OsString;
use std::time::Duration;

/// Records the program so many times. The recording with the most requests counts, as the faster
/// round of a small crowd does: the tail of a single one is mostly the machine's. The program runs
/// for the same time in all, or has the same number of requests.
///
/// # Errors
/// What went wrong in the first recording that failed.
pub fn fastest(devices: &[DeviceName], command: &[OsString], limit: Duration, times: u32) -> anyhow::Result<Profile> {
    let mut best = profile_of(devices, command, limit)?;
    for _ in 1..times {
        best = faster(best, profile_of(devices, command, limit)?);
    }
    Ok(best)
}

fn faster(first: Profile, second: Profile) -> Profile {
    if second.requests > first.requests { second } else { first }
}

/// The profile of a program that runs alone through cumux.
fn profile_of(devices: &[DeviceName], command: &[OsString], limit: Duration) -> anyhow::Result<Profile> {
    let (end, observed) = record::observe(devices, command, Audience::Lab(limit))?;
    if !end.success() {
        bail!("it ended with {end} while it was recorded (at most {:.0} s)", limit.as_secs_f64());
    }
    let first = observed.into_iter().next().context("it did nothing on the card")?;
    first.profile.map_err(|why| anyhow::anyhow!("{why}"))
}
