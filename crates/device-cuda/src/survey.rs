//! Examines the machine's cards without opening one, for `cumux doctor`. No context is made, and
//! nothing is changed.

use crate::context::read_facts;
use crate::driver::DeviceHandle;
use crate::fault::remedy;
use cumux_abi::CUcomputemode;
use cumux_device::{DeviceError, DeviceFacts};

/// A card as the driver shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The card's number, as in `cuda:<ordinal>`.
    pub ordinal: u32,
    /// The card's name, from the driver.
    pub name: String,
    /// The compute capability as major * 10 + minor; 0 where the driver does not say it.
    pub capability: u32,
    /// The compute mode: any process may use the card, or one alone, or none.
    pub mode: CUcomputemode,
    /// The card's memory in bytes.
    pub memory: u64,
}

/// Whether a card can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The card can be served. The text says what was found.
    Good(String),
    /// The card can be served, with something missing. The texts say what was found, and what to
    /// do.
    Limited(String, String),
    /// The card cannot be served. The texts say why, and what to do.
    Unusable(String, String),
}

/// All cards that the driver shows, in the driver's order.
///
/// # Errors
/// A sentence with a remedy: there is no driver, or the driver is too old or does not start.
pub fn cards() -> Result<Vec<Seen>, DeviceError> {
    let see = |(ordinal, card): (u32, DeviceHandle)| Seen {
        ordinal,
        name: card.name(),
        capability: card.compute_capability(),
        mode: card.compute_mode(),
        memory: card.memory(),
    };
    Ok((0..).zip(DeviceHandle::all()?).map(see).collect())
}

/// The facts of one card, as clients see them.
///
/// # Errors
/// As [`cards`], and where there is no such card or it cannot be shared.
pub(crate) fn facts(ordinal: u32) -> Result<DeviceFacts, DeviceError> {
    let all = DeviceHandle::all()?;
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let Some(card) = all.get(ordinal as usize) else {
        return Err(DeviceError::System(remedy::no_such_card(ordinal, count)));
    };
    let facts = read_facts(card, ordinal);
    remedy::require_shareable(ordinal, &facts.name, card.compute_mode()).map(|()| facts)
}

/// The facts of one card, whether it can be shared or not.
pub(crate) fn shown(ordinal: u32) -> Option<DeviceFacts> {
    DeviceHandle::all().ok()?.get(ordinal as usize).map(|card| read_facts(card, ordinal))
}

/// Whether `cuda:<ordinal>` can be served, given the cards that were found. Pure.
#[must_use]
pub fn judge(ordinal: u32, found: &Result<Vec<Seen>, DeviceError>) -> Verdict {
    let software = "for the software GPU: --device sim:h200";
    let cards = match found {
        Ok(cards) => cards,
        Err(error) => return Verdict::Unusable(error.to_string(), software.into()),
    };
    let Some(card) = cards.iter().find(|card| card.ordinal == ordinal) else {
        let count = u32::try_from(cards.len()).unwrap_or(u32::MAX);
        return Verdict::Unusable(remedy::no_such_card(ordinal, count), software.into());
    };
    let shown = format!("cuda:{ordinal}, {}, {} GiB", card.name, card.memory >> 30);
    if let Err(error) = remedy::require_shareable(ordinal, &card.name, card.mode) {
        return Verdict::Unusable(shown, error.to_string());
    }
    match remedy::exclusive_card(ordinal, card.mode) {
        Some(why) => {
            Verdict::Limited(format!("{shown}: there will be no standby, a takeover starts from cold"), format!("{why}. NVIDIA's own MPS must not run on it"))
        }
        None => Verdict::Good(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str, mode: u32) -> Result<Vec<Seen>, DeviceError> {
        Ok(vec![Seen { ordinal: 0, name: name.into(), capability: 90, mode: CUcomputemode(mode), memory: 141 << 30 }])
    }

    #[test]
    fn every_state_of_a_card_has_its_sentence() {
        assert_eq!(judge(0, &card("NVIDIA H200", 0)), Verdict::Good("cuda:0, NVIDIA H200, 141 GiB".into()));
        let Verdict::Limited(found, remedy) = judge(0, &card("NVIDIA H200", 3)) else { panic!("one process may have it") };
        assert!(found.contains("no standby") && remedy.contains("EXCLUSIVE_PROCESS") && remedy.contains("-c DEFAULT"), "{found} {remedy}");
        let Verdict::Unusable(_, remedy) = judge(0, &card("NVIDIA H200", 2)) else { panic!("prohibited") };
        assert!(remedy.contains("PROHIBITED") && remedy.contains("-c DEFAULT"), "{remedy}");
        let Verdict::Unusable(found, remedy) = judge(0, &card("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0)) else { panic!("MIG") };
        assert!(found.contains("MIG") && remedy.contains("-mig 0"), "{found} {remedy}");
        let Verdict::Unusable(found, _) = judge(3, &card("NVIDIA H200", 0)) else { panic!("no such card") };
        assert!(found.contains("cuda:3") && found.contains("only one is cuda:0"), "{found}");
        let Verdict::Unusable(found, _) = judge(0, &Ok(Vec::new())) else { panic!("no card") };
        assert!(found.contains("nvidia-smi") && found.contains("MIG"), "no instance of a MIG card looks like this: {found}");
    }

    #[test]
    fn a_driver_that_is_missing_or_old_is_said_as_the_executor_says_it() {
        for why in [remedy::driver_not_found(&[], &[]), remedy::require_version(12_080).unwrap_err()] {
            let Verdict::Unusable(found, remedy) = judge(0, &Err(DeviceError::System(why.clone()))) else { panic!("{why}") };
            assert!(found.contains("580") && remedy.contains("sim:h200"), "{found} {remedy}");
        }
    }
}
