//! How a set of multiprocessors is split into groups. Pure.
//!
//! The smallest group and the step of its size are what the CUDA documents give by compute
//! capability. Groups are taken from the front, one beside the other, so that groups of the usual
//! size are the card's own where the share begins with such.

use crate::ffi::{Try, error};
use core::ffi::c_uint;
use cumux_abi::{CUdevSmResourceSplit_flags as Flags, CUresult};
use cumux_wire::positions::SmPositions;

const IGNORE: c_uint = Flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0;
const LARGE_CLUSTERS: c_uint = Flags::CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.0;
/// The smallest group where it does not matter which multiprocessors are scheduled together.
const FINE: Granularity = Granularity { least: 2, step: 2 };
/// Blocks of the largest cluster that a function can ask for.
const LARGEST_CLUSTER: u32 = 16;

/// The sizes that groups may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granularity {
    /// The smallest one.
    pub(super) least: u32,
    /// Sizes are multiples of this.
    pub(super) step: u32,
}

impl Granularity {
    /// Of cards of a compute capability (`major`), in the usual case and where it does not matter
    /// which multiprocessors are scheduled together (`fine`).
    pub(super) fn of(major: u32, fine: bool) -> Self {
        match major {
            _ if fine => FINE,
            0..=7 => Self { least: 2, step: 2 },
            8 => Self { least: 4, step: 2 },
            _ => Self { least: 8, step: 8 },
        }
    }

    /// For a split of `count` multiprocessors with these flags.
    ///
    /// # Errors
    /// INVALID_VALUE for flags that there are not, that exclude each other, or that the card does
    /// not have.
    fn for_split(major: u32, flags: c_uint, count: u32) -> Try<Self> {
        match flags {
            0 | IGNORE => Ok(Self::of(major, flags == IGNORE)),
            // It is a wish: a set that has no place for one such group is split as usual.
            LARGE_CLUSTERS if major >= 9 && count >= LARGEST_CLUSTER => Ok(Self { least: LARGEST_CLUSTER, step: LARGEST_CLUSTER }),
            LARGE_CLUSTERS if major >= 9 => Ok(Self::of(major, false)),
            _ => Err(error::INVALID_VALUE),
        }
    }

    /// The smallest size of at least `wanted`.
    fn up(self, wanted: u32) -> Option<u32> {
        wanted.max(self.least).checked_next_multiple_of(self.step)
    }
}

/// Whether groups of a split with these flags are made without regard to which multiprocessors are
/// scheduled together.
pub(super) fn is_fine(flags: c_uint) -> bool {
    flags == IGNORE
}

/// A split.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) groups: Vec<SmPositions>,
    pub(super) rest: SmPositions,
}

/// Splits a set into groups of at least `wanted` multiprocessors, all of one size: as many as there
/// can be, and at most `most`.
///
/// # Errors
/// INVALID_VALUE for flags that are not taken and for more multiprocessors than the set has,
/// INVALID_RESOURCE_CONFIGURATION for a set that is too small for one group.
pub(super) fn divide(set: SmPositions, major: u32, flags: c_uint, wanted: u32, most: u32) -> Try<Division> {
    let count = set.count();
    let granularity = Granularity::for_split(major, flags, count)?;
    if wanted > count {
        return Err(error::INVALID_VALUE);
    }
    let size = granularity.up(wanted).filter(|size| *size <= count).ok_or(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)?;
    let mut division = Division { groups: Vec::new(), rest: set };
    for _ in 0..(count / size).min(most) {
        let (group, rest) = division.rest.split(size);
        division.groups.push(group);
        division.rest = rest;
    }
    Ok(division)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(count: u32, major: u32, flags: c_uint, wanted: u32, most: u32) -> Result<(Vec<u32>, u32), CUresult> {
        let division = divide(SmPositions::first(count).unwrap(), major, flags, wanted, most)?;
        Ok((division.groups.iter().map(|group| group.count()).collect(), division.rest.count()))
    }

    #[test]
    fn sizes_are_rounded_up_as_the_manual_says() {
        for (count, major, flags, wanted, most, expected) in [
            (132, 9, 0, 16, 2, Ok((vec![16, 16], 100))),
            (132, 9, 0, 0, 1, Ok((vec![8], 124))),
            (132, 9, 0, 9, 99, Ok((vec![16; 8], 4))),
            (132, 9, 0, 66, 2, Ok((vec![72], 60))),
            (132, 9, IGNORE, 65, 9, Ok((vec![66; 2], 0))),
            (132, 9, LARGE_CLUSTERS, 8, 2, Ok((vec![16; 2], 100))),
            (12, 9, LARGE_CLUSTERS, 8, 2, Ok((vec![8], 4))),
            (108, 8, 0, 1, 1, Ok((vec![4], 104))),
            (108, 8, 0, 5, 99, Ok((vec![6; 18], 0))),
            (40, 7, 0, 1, 99, Ok((vec![2; 20], 0))),
            (40, 7, LARGE_CLUSTERS, 1, 1, Err(error::INVALID_VALUE)),
            (132, 9, 3, 8, 1, Err(error::INVALID_VALUE)),
            (132, 9, 4, 8, 1, Err(error::INVALID_VALUE)),
            (132, 9, 0, 133, 1, Err(error::INVALID_VALUE)),
            (132, 9, 0, u32::MAX, 1, Err(error::INVALID_VALUE)),
            (132, 9, 0, 132, 1, Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)),
            (6, 9, 0, 2, 1, Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)),
        ] {
            assert_eq!(sizes(count, major, flags, wanted, most), expected, "{count} of {major}.x, flags {flags}, {wanted} wanted");
        }
    }

    proptest! {
        /// Groups and rest are all of the set, once each; groups are alike, of a size that the card
        /// has and that was asked for, and no further group would have fitted.
        #[test]
        fn a_split_loses_nothing_and_gives_nothing_twice(
            positions in proptest::collection::btree_set(0_u32..256, 1..256),
            major in 6_u32..13,
            flags in 0_u32..3,
            wanted in 0_u32..256,
            most in 0_u32..64,
        ) {
            let set: SmPositions = positions.into_iter().collect();
            let Ok(Division { groups, rest }) = divide(set, major, flags, wanted, most) else {
                let granularity = Granularity::for_split(major, flags, set.count());
                prop_assert!(granularity.is_ok_and(|of| of.up(wanted).is_none_or(|size| size > set.count())) || flags == LARGE_CLUSTERS && major < 9);
                return Ok(());
            };
            let mut together = rest;
            for group in &groups {
                prop_assert!(!together.overlaps(*group));
                together = together.union(*group);
            }
            prop_assert_eq!(together, set);
            let Granularity { least, step } = Granularity::for_split(major, flags, set.count()).unwrap();
            let size = groups.first().map_or(set.count() + 1, |group| group.count());
            prop_assert!(groups.iter().all(|group| group.count() == size) && groups.len() as u32 <= most);
            prop_assert!(groups.is_empty() || size >= least && size.is_multiple_of(step) && size >= wanted && size < wanted.max(least) + step);
            prop_assert!(groups.len() as u32 == most || rest.count() < size);
        }
    }
}
