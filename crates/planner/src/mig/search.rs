//! Placing instances: exhaustive search on the axis of memory slices.
//!
//! Rules of the driver, each of which [`place`] keeps:
//!
//! - An instance begins where its profile may begin, and no two lie on the same memory slice.
//! - All together have no more compute slices than the card.
//! - A profile occurs at most as often as its table says (`4g` once).
//! - One instance may have the media engines (`+me`, `+me.all`). Beside `+me.all`, all others are
//!   without (`-me`).

use super::{Geometry, Instance, MigError, Profile, Table};

/// Why an instance cannot be added to others; `None` if it can.
fn conflict(table: &Table, placed: &[Instance], profile: &'static Profile) -> Option<String> {
    let of_this = placed.iter().filter(|other| other.profile.name == profile.name).count();
    if of_this as u32 >= profile.most {
        return Some(format!("{} may be there {}", profile.name, times(profile.most)));
    }
    let compute: u32 = placed.iter().map(|other| other.profile.compute).sum();
    if compute + profile.compute > table.compute {
        return Some(format!("together they need {} compute slices, the card has {}", compute + profile.compute, table.compute));
    }
    let others = || placed.iter().map(|other| other.profile);
    if profile.has_media() && others().any(Profile::has_media) {
        return Some("one instance alone may have the media engines (+me)".to_owned());
    }
    let all = others().chain([profile]).find(|other| other.takes_all_media());
    if let Some(all) = all
        && others().chain([profile]).any(|other| other.name != all.name && !other.is_without_media())
    {
        return Some(format!("{} has all media engines: every other instance must be one without (-me)", all.name));
    }
    None
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// Places these profiles, in this order, or proves that it is impossible.
///
/// # Errors
/// [`MigError::Impossible`] with the reason.
pub(super) fn place(table: &Table, profiles: &[&'static Profile]) -> Result<Geometry, MigError> {
    let mut placed = Vec::new();
    let mut reason = None;
    if descend(table, profiles, &mut placed, &mut reason) {
        return Ok(Geometry { instances: placed });
    }
    let units: u32 = profiles.iter().map(|profile| profile.size).sum();
    let reason = reason.unwrap_or_else(|| match units > table.grid {
        true => format!("together they take {units} memory slices, the card has {}", table.grid),
        false => "no placement leaves room for all: instances may begin at some slices only".to_owned(),
    });
    let names = profiles.iter().map(|profile| profile.name).collect::<Vec<_>>().join(" + ");
    Err(MigError::Impossible { names, reason })
}

fn descend(table: &Table, rest: &[&'static Profile], placed: &mut Vec<Instance>, reason: &mut Option<String>) -> bool {
    let Some((first, rest)) = rest.split_first() else { return true };
    if let Some(why) = conflict(table, placed, first) {
        *reason = Some(why);
        return false;
    }
    // Instances of one profile are the same to each other: they are placed in rising order.
    let from = placed.iter().filter(|other| other.profile.name == first.name).map(|other| other.start + 1).max().unwrap_or(0);
    for &start in first.starts.iter().filter(|start| **start >= from) {
        let instance = Instance { profile: first, start };
        if placed.iter().any(|other| other.overlaps(&instance)) {
            continue;
        }
        placed.push(instance);
        if descend(table, rest, placed, reason) {
            return true;
        }
        placed.pop();
    }
    false
}

/// Every geometry of the card, each set of profiles once, with the profiles in the order of the
/// table. The empty one is not among them.
pub(super) fn all(table: &'static Table) -> Vec<Geometry> {
    let mut found = Vec::new();
    extend(table, 0, &mut Vec::new(), &mut found);
    found
}

/// Adds every geometry that has `chosen` and more profiles from number `from` on.
fn extend(table: &'static Table, from: usize, chosen: &mut Vec<&'static Profile>, found: &mut Vec<Geometry>) {
    for (number, profile) in table.profiles.iter().enumerate().skip(from) {
        chosen.push(profile);
        // Where a set does not fit, no larger one does.
        if let Ok(geometry) = place(table, chosen) {
            found.push(geometry);
            extend(table, number, chosen, found);
        }
        chosen.pop();
    }
}
