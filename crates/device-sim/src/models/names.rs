//! Names of software GPUs: `sim:CARD[.mPART][:MODE][:granule][:card][@NUMBER]`. Pure.

use cumux_abi::{CUcomputemode, CUdevice_attribute as A};
use cumux_device::DeviceFacts;
use std::collections::BTreeSet;

/// What can follow a card's name for its compute mode: the words of `nvidia-smi -c`, in lower case.
const COMPUTE_MODES: [(&str, ComputeMode); 3] =
    [("default", ComputeMode::Default), ("prohibited", ComputeMode::Prohibited), ("exclusive_process", ComputeMode::ExclusiveProcess)];

/// Which processes may make contexts on a card (`CUcomputemode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComputeMode {
    /// All.
    Default,
    /// None.
    Prohibited,
    /// One process at a time: here one executor, without a standby.
    ExclusiveProcess,
}

impl ComputeMode {
    /// The compute mode in a card's facts.
    pub(crate) fn of(facts: &DeviceFacts) -> Self {
        let answer = facts.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
        [ComputeMode::Prohibited, ComputeMode::ExclusiveProcess].into_iter().find(|mode| mode.number() == answer).unwrap_or(ComputeMode::Default)
    }

    /// The value of `CUcomputemode`.
    pub(super) fn number(self) -> i32 {
        let mode = match self {
            ComputeMode::Default => CUcomputemode::CU_COMPUTEMODE_DEFAULT,
            ComputeMode::Prohibited => CUcomputemode::CU_COMPUTEMODE_PROHIBITED,
            ComputeMode::ExclusiveProcess => CUcomputemode::CU_COMPUTEMODE_EXCLUSIVE_PROCESS,
        };
        mode.0.cast_signed()
    }
}

/// Splits a name such as `sim:h200:prohibited` into the card's name and its compute mode. A word
/// that is not a mode stays in the name, which is then unknown.
pub(super) fn split_mode(id: &str) -> (&str, Option<ComputeMode>) {
    let found = id.rsplit_once(':').and_then(|(name, word)| Some((name, COMPUTE_MODES.iter().find(|(known, _)| *known == word)?.1)));
    found.map_or((id, None), |(name, mode)| (name, Some(mode)))
}

/// What comes before a card's number among those of its kind, at the end of its name.
const NUMBER: char = '@';

/// Splits the name of one certain card of its kind (`sim:h200@1` is the second) from its number. A
/// number that is not written as one stays in the name, which is then unknown.
fn split_number(id: &str) -> (&str, Option<u32>) {
    let found = id.rsplit_once(NUMBER).and_then(|(name, digits)| Some((name, digits.parse::<u8>().ok().filter(|number| number.to_string() == digits)?)));
    found.map_or((id, None), |(name, number)| (name, Some(number.into())))
}

/// The number that a name states.
pub(crate) fn number(id: &str) -> Option<u32> {
    split_number(id).1
}

/// The numbers of these cards among those of their kinds, from 0: the one that the name states, or
/// the lowest that no other card of the list has.
pub(crate) fn numbers(ids: &[&str]) -> Vec<u32> {
    let mut taken: BTreeSet<(&str, u32)> = ids.iter().filter_map(|id| Some((kind(id), number(id)?))).collect();
    let mut of = |id| {
        number(id).unwrap_or_else(|| {
            let free = (0..).find(|number| taken.insert((kind(id), *number)));
            free.unwrap_or(u32::MAX)
        })
    };
    ids.iter().map(|id| of(id)).collect()
}

/// The names of these cards by which each is found without the others: with its number where
/// several are of one kind.
pub(crate) fn single_names(ids: &[&str]) -> Vec<String> {
    let is_one_of_several = |id: &str| number(id).is_none() && ids.iter().filter(|other| kind(other) == kind(id)).count() > 1;
    let name = |(id, number): (&&str, u32)| if is_one_of_several(id) { format!("{id}{NUMBER}{number}") } else { (*id).to_owned() };
    ids.iter().zip(numbers(ids)).map(name).collect()
}

/// What follows a card's name, and its compute mode, for a card that breaks as a whole at a fault.
const CARD: &str = ":card";

/// Splits the name of a card that breaks as a whole at a fault (`sim:h200:card`) from this word,
/// without its number.
pub(super) fn split_card(id: &str) -> (&str, bool) {
    let id = split_number(id).0;
    id.strip_suffix(CARD).map_or((id, false), |name| (name, true))
}

/// What follows a card's name, and its compute mode, for a card whose bounds are rounded.
const GRANULE: &str = ":granule";

/// Splits the name of a card whose bounds are rounded (`sim:h200:granule`) from this word.
pub(super) fn split_bounds(id: &str) -> (&str, bool) {
    id.strip_suffix(GRANULE).map_or((id, false), |name| (name, true))
}

/// Whether kernels on the card of this name may read and write up to the end of a granule, as on
/// real cards.
pub(crate) fn rounds_bounds(id: &str) -> bool {
    split_bounds(split_card(id).0).1
}

/// Whether the card of this name breaks as a whole at a fault, as real cards do.
pub(crate) fn breaks(id: &str) -> bool {
    split_card(id).1
}

/// The name of a card without its compute mode, `:granule`, `:card` and its number. Cards of one
/// kind are counted together.
pub(crate) fn kind(id: &str) -> &str {
    split_mode(split_bounds(split_card(id).0).0).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_end_names_one_card_of_its_kind() {
        assert_eq!(split_number("sim:h200:card@12"), ("sim:h200:card", Some(12)));
        for name in ["sim:h200", "sim:h200@", "sim:h200@x", "sim:h200@01", "sim:h200@+1", "sim:h200@256", "@"] {
            assert_eq!(split_number(name), (name, None));
        }
        assert_eq!((kind("sim:h200:prohibited:card@3"), breaks("sim:h200:card@3"), rounds_bounds("sim:l4:granule@3")), ("sim:h200", true, true));
    }

    #[test]
    fn each_card_of_a_list_has_a_number_and_a_name_of_its_own() {
        assert_eq!(numbers(&["sim:h200", "sim:l4", "sim:h200:card", "sim:h200"]), [0, 0, 1, 2]);
        assert_eq!(numbers(&["sim:h200", "sim:h200@0", "sim:h200", "sim:h200@4"]), [1, 0, 2, 4], "what is stated comes first");
        assert_eq!(single_names(&["sim:h200", "sim:l4", "sim:h200:card"]), ["sim:h200@0", "sim:l4", "sim:h200:card@1"]);
        assert_eq!(single_names(&["sim:h200@7", "sim:h200"]), ["sim:h200@7", "sim:h200@0"]);
        assert_eq!(single_names(&["sim:h200@1"]), ["sim:h200@1"]);
    }
}
