//! Recordings of one program alone, as `cumux record` makes them, and which of several counts.
//!
//! What else a machine does slows a program's host down and never speeds it up. A run without the
//! recorder has shown how fast the program can be. A recording that is far from that has met with
//! a machine that did something else, and is made again.

use crate::device::DeviceName;
use crate::record::{self, Audience};
use anyhow::{Context as _, bail};
use cumux_planner::profile::Profile;
use std::ffi::OsString;
use std::time::Duration;

/// So many times as slow as without the recorder the host's slow requests may be. Recordings of
/// ResNet-50 of four labs were 0.9, 1.3, 1.4 and 1.5 times as slow (cards H200, H200, H200, H100);
/// with the last three the predictions were 28 to 43 % off.
const MOST_SLOW: f64 = 1.2;
/// A program is recorded so many times at most. Each takes as long as the program.
const MOST_RECORDINGS: usize = 2;

/// The profile of a program that runs alone through cumux.
pub fn profile_of(devices: &[DeviceName], command: &[OsString], limit: Duration) -> anyhow::Result<Profile> {
    let (end, observed) = record::observe(devices, command, Audience::Lab(limit))?;
    if !end.success() {
        bail!("it ended with {end} while it was recorded (at most {:.0} s)", limit.as_secs_f64());
    }
    let first = observed.into_iter().next().context("it did nothing on the card")?;
    first.profile.map_err(|why| anyhow::anyhow!("{why}"))
}

/// The first recording that is about as fast as the program without the recorder, or the fastest.
/// `known_ns` is p99 of the program's requests without the recorder. Where it is not known, or the
/// host's time for a request is not, the first recording counts.
///
/// # Errors
/// Those of the first recording. A later one that fails does not count.
pub fn undisturbed(known_ns: Option<f64>, mut record: impl FnMut() -> anyhow::Result<Profile>) -> anyhow::Result<Profile> {
    let mut best = record()?;
    let Some(known) = known_ns else { return Ok(best) };
    for _ in 1..MOST_RECORDINGS {
        let Some(slow) = slow_ns(&best).filter(|slow| *slow > MOST_SLOW * known) else { break };
        let Ok(next) = record() else { break };
        if slow_ns(&next).is_some_and(|next| next < slow) {
            best = next;
        }
    }
    Ok(best)
}

/// p99 of the host's time for a request.
fn slow_ns(profile: &Profile) -> Option<f64> {
    Some(profile.host.as_ref()?.request?.p99_ns)
}

#[cfg(test)]
mod tests {
    use super::{MOST_RECORDINGS, undisturbed};
    use cumux_planner::profile::{self, Duration, Profile};

    /// A recording whose host takes so many microseconds for a slow request.
    fn slow(us: f64) -> Profile {
        let mut profile = profile::read(include_str!("../../../../benches/results/lab/profiles/yours.json")).expect("a profile");
        let host = profile.host.as_mut().expect("the host's time is in it");
        host.request = Some(Duration { mean_ns: 1000.0 * us.min(2000.0), p99_ns: 1000.0 * us });
        profile
    }

    /// What is chosen of recordings with these times, in microseconds, and how many were made.
    fn choose(known_us: Option<f64>, made: &[Option<f64>]) -> (Option<f64>, usize) {
        let mut count = 0;
        let chosen = undisturbed(known_us.map(|us| us * 1000.0), || {
            count += 1;
            made[count - 1].map(slow).ok_or_else(|| anyhow::anyhow!("it ended"))
        });
        (chosen.ok().and_then(|profile| super::slow_ns(&profile)).map(|ns| ns / 1000.0), count)
    }

    #[test]
    fn a_recording_that_the_machine_has_disturbed_is_made_again() {
        assert_eq!(choose(Some(2222.0), &[Some(3200.0), Some(2400.0)]), (Some(2400.0), 2));
        assert_eq!(choose(Some(2222.0), &[Some(3200.0), Some(2900.0)]), (Some(2900.0), MOST_RECORDINGS));
        assert_eq!(choose(Some(2222.0), &[Some(3200.0), Some(3300.0)]), (Some(3200.0), MOST_RECORDINGS));
    }

    #[test]
    fn one_recording_is_enough_where_it_agrees_or_nothing_is_known() {
        assert_eq!(choose(Some(2222.0), &[Some(2600.0)]), (Some(2600.0), 1));
        assert_eq!(choose(None, &[Some(2600.0)]), (Some(2600.0), 1));
    }

    #[test]
    fn a_later_recording_that_fails_does_not_count() {
        assert_eq!(choose(Some(2222.0), &[Some(3200.0), None]), (Some(3200.0), 2));
        assert_eq!(choose(Some(2222.0), &[None]), (None, 1));
    }
}
