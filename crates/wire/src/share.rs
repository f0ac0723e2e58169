//! Shares of a card's multiprocessors: what an administrator or a program writes, exactly, and the
//! count of multiprocessors it means. Pure.
//!
//! Percentages are rounded down to what the card can split and never below its least part, as
//! recorded from driver 580 on an H200 (12.5 % of 132 is 16, 12 % is 14, 1 % is 8). Execution
//! affinities are rounded up (recorded: 1 gives 8, 17 gives 18). The least part is what the CUDA
//! documents give for green contexts by compute capability; on the H200 that is what was recorded.

use crate::cuda::DeviceAttribute;
use crate::facts::DeviceFacts;
use serde::{Deserialize, Serialize};

/// A part of a card, in millionths of a percent: above 0 and at most all. Integers, so that what is
/// written in one process is the same in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Share(u32);

impl Share {
    const UNITS: u32 = 1_000_000;
    /// The whole card.
    pub const ALL: Self = Self(100 * Self::UNITS);

    /// Reads a percentage: a number above 0 and at most 100. `None` for any other text: NVIDIA's
    /// daemon and driver then act as if nothing was set.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value: f64 = text.trim().parse().ok()?;
        if !(value > 0.0 && value <= 100.0) {
            return None;
        }
        // Between 0 and 100 millions: the cast loses nothing.
        let units = (value * f64::from(Self::UNITS)).round() as u32;
        Some(Self(units.max(1)))
    }

    /// As the text commands print it: `12.5`, `100.0`.
    #[must_use]
    pub fn text(self) -> String {
        format!("{:.1}", f64::from(self.0) / f64::from(Self::UNITS))
    }

    /// Multiprocessors of this share on a card: rounded down, at least the card's least part.
    #[must_use]
    pub fn multiprocessors(self, grain: Grain) -> u32 {
        let exact = u64::from(grain.all) * u64::from(self.0) / u64::from(Self::ALL.0);
        let exact = u32::try_from(exact).unwrap_or(grain.all);
        if exact >= grain.all {
            return grain.all;
        }
        (exact / grain.step * grain.step).max(grain.least).min(grain.all)
    }
}

impl TryFrom<u32> for Share {
    type Error = String;

    fn try_from(units: u32) -> Result<Self, String> {
        if units == 0 || units > Self::ALL.0 { Err(format!("{units} millionths of a percent is no share")) } else { Ok(Self(units)) }
    }
}

impl From<Share> for u32 {
    fn from(share: Share) -> Self {
        share.0
    }
}

/// How a card can be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// Multiprocessors of the card.
    pub all: u32,
    /// Parts are multiples of this.
    pub step: u32,
    /// The smallest part.
    pub least: u32,
}

impl Grain {
    /// By the card's count of multiprocessors and its compute capability (`major`; 0 where it is
    /// not known counts as the newest).
    #[must_use]
    pub fn new(all: u32, major: u32) -> Self {
        let (step, least) = match major {
            1..=6 => (1, 1),
            7 => (2, 2),
            8 => (2, 4),
            _ => (2, 8),
        };
        Self { all, step, least: least.min(all) }
    }

    /// The grain of a device with these attributes.
    #[must_use]
    pub fn of(facts: &DeviceFacts) -> Self {
        let major = facts.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        Self::new(facts.multiprocessors(), major.max(0).cast_unsigned())
    }

    /// The smallest part with at least `wanted` multiprocessors; `None` if the card has fewer.
    #[must_use]
    pub fn up(self, wanted: u32) -> Option<u32> {
        if wanted == self.all {
            return Some(wanted);
        }
        let part = wanted.max(self.least).checked_next_multiple_of(self.step)?;
        (part <= self.all).then_some(part)
    }
}

/// What NVIDIA's MPS makes of a percentage as written: multiprocessors of an H200 (driver
/// 580.159.04, recorded; `benches/h200_mps.sh` asks again).
#[rustfmt::skip]
pub const RECORDED: [(&str, u32); 28] = [
    ("1", 8), ("2", 8), ("3", 8), ("5", 8), ("7", 8), ("10", 12), ("12", 14), ("12.5", 16), ("15", 18),
    ("20", 26), ("25", 32), ("30", 38), ("33", 42), ("33.3", 42), ("40", 52), ("50", 66), ("60", 78),
    ("66", 86), ("70", 92), ("75", 98), ("80", 104), ("90", 118), ("99", 130), ("100", 132), ("0", 132),
    ("-5", 132), ("150", 132), ("abc", 132),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const H200: Grain = Grain { all: 132, step: 2, least: 8 };

    /// A percentage that cannot be read is no limit.
    #[test]
    fn the_recorded_table() {
        for (text, expected) in RECORDED {
            assert_eq!(Share::parse(text).unwrap_or(Share::ALL).multiprocessors(H200), expected, "{text} %");
        }
    }

    /// Execution affinities as recorded: what was asked for, what was granted.
    #[test]
    fn the_recorded_affinities() {
        for (asked, granted) in [(1, Some(8)), (5, Some(8)), (8, Some(8)), (10, Some(10)), (17, Some(18)), (64, Some(64)), (132, Some(132)), (200, None)] {
            assert_eq!(H200.up(asked), granted, "{asked}");
        }
        assert_eq!(H200.up(u32::MAX), None);
    }

    #[test]
    fn shares_are_printed_as_the_commands_print_them() {
        for (text, printed) in [("25", "25.0"), ("33.5", "33.5"), ("12.5", "12.5"), ("100", "100.0"), ("0.0000001", "0.0")] {
            assert_eq!(Share::parse(text).map(Share::text).as_deref(), Some(printed));
        }
        for text in ["", "nan", "inf", "1e9", "-0", "100.1", "5%"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        assert!(serde_json::from_str::<Share>("0").is_err() && serde_json::from_str::<Share>("100000001").is_err());
        assert_eq!(serde_json::from_str::<Share>("12500000").ok(), Share::parse("12.5"));
    }

    proptest! {
        /// Never more than the percentage says (but for the least part), never a part the card does
        /// not have, and more percent is never fewer.
        #[test]
        fn a_share_is_a_ceiling(percent in 0.01_f64..100.0, more in 0.0_f64..50.0, all in 1_u32..300, major in 0_u32..13) {
            let grain = Grain::new(all, major);
            let share = Share::parse(&percent.to_string()).expect("a percentage");
            let count = share.multiprocessors(grain);
            prop_assert!(count >= grain.least && count <= all);
            prop_assert!(count == all || count.is_multiple_of(grain.step) || count == grain.least);
            prop_assert!(count == grain.least || f64::from(count) <= f64::from(all) * percent / 100.0 + 1e-4);
            let larger = Share::parse(&(percent + more).min(100.0).to_string()).expect("a percentage");
            prop_assert!(larger.multiprocessors(grain) >= count);
        }

        /// An affinity is a floor.
        #[test]
        fn an_affinity_is_at_least_what_was_asked(wanted in 0_u32..400, all in 1_u32..300, major in 0_u32..13) {
            let grain = Grain::new(all, major);
            match grain.up(wanted) {
                Some(part) => prop_assert!(part >= wanted && part <= all),
                None => prop_assert!(wanted.max(grain.least).next_multiple_of(grain.step) > all),
            }
        }
    }
}
