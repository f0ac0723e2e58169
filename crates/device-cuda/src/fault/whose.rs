//! Which card of the process has faulted. The driver announces a fault to the process, and writes
//! one core dump for all its cards, so each card has to find out whether the fault is its own.
//!
//! The evidence is the dump, which names modules and kernels by the driver's handles: those of one
//! card are known to no other. Where it names those of several cards (a trap says only what was on
//! the cards), the context decides: that of the faulty card is broken when its work has ended.

use super::dump::Dump;
use super::verdict::KnownKernel;
use parking_lot::Mutex;

/// The cards of this process.
struct Cards {
    opened: u64,
    open: usize,
    /// The card that has found the fault to be its own.
    faulty: Option<u64>,
}

/// Lock 8 of the crate's order, held alone.
static CARDS: Mutex<Cards> = Mutex::new(Cards { opened: 0, open: 0, faulty: None });

/// A card among the open ones of this process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    number: u64,
}

impl Membership {
    /// One more card.
    pub(crate) fn begin() -> Membership {
        let mut cards = CARDS.lock();
        cards.opened += 1;
        cards.open += 1;
        Membership { number: cards.opened }
    }

    /// Whether the process has no other card: a fault is this one's.
    pub(crate) fn is_alone(&self) -> bool {
        CARDS.lock().open == 1
    }

    /// The fault is this card's, unless another one has said so before.
    pub(crate) fn claim_fault(&self) {
        CARDS.lock().faulty.get_or_insert(self.number);
    }

    /// Whether another card has said that the fault is its own.
    pub(crate) fn is_fault_anothers(&self) -> bool {
        CARDS.lock().faulty.is_some_and(|faulty| faulty != self.number)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        CARDS.lock().open -= 1;
    }
}

/// Whose fault a dump describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This card's.
    Ours,
    /// Another card's.
    Anothers,
    /// The dump does not say.
    Unknown,
}

/// Whose fault this is, by the kernels that this card has launched; `None` if an engine did not say
/// them.
pub(crate) fn whose(dump: &Dump, known: Option<&[KnownKernel]>) -> Whose {
    let Some(known) = known else { return Whose::Unknown };
    let is_known = |handle: &u64| known.iter().any(|kernel| kernel.handle == *handle);
    if dump.exceptions.is_empty() {
        let ours = dump.resident.iter().filter(|handle| is_known(handle)).count();
        return match (ours, dump.resident.len()) {
            (0, 1..) => Whose::Anothers,
            (ours, all) if ours == all && all > 0 => Whose::Ours,
            _ => Whose::Unknown,
        };
    }
    let mut all_anothers = true;
    for exception in &dump.exceptions {
        match exception.pc.and_then(|pc| dump.place_of(pc)) {
            Some(place) if known.iter().any(|kernel| kernel.module == place.module) => return Whose::Ours,
            Some(_) => {}
            None if exception.kernels.iter().any(is_known) => return Whose::Ours,
            None => all_anothers &= !exception.kernels.is_empty(),
        }
    }
    if all_anothers { Whose::Anothers } else { Whose::Unknown }
}

#[cfg(test)]
mod tests {
    use super::super::dump::Exception;
    use super::super::verdict::Launchers;
    use super::*;

    fn kernel(handle: u64, module: u64) -> KnownKernel {
        KnownKernel { name: "k".into(), handle, module, asserts: false, launchers: Launchers::One(1) }
    }

    fn stopped(kernels: &[u64]) -> Dump {
        let exception = Exception { sm: 1, code: 14, pc: None, kernels: kernels.to_vec() };
        Dump::of(vec![exception], kernels.to_vec())
    }

    #[test]
    fn a_fault_is_the_cards_that_knows_its_kernel() {
        let (first, second) = ([kernel(0xf1, 0xa)], [kernel(0xf2, 0xb)]);
        assert_eq!(whose(&stopped(&[0xf1]), Some(&first)), Whose::Ours);
        assert_eq!(whose(&stopped(&[0xf1]), Some(&second)), Whose::Anothers);
        assert_eq!(whose(&stopped(&[0xf1]), None), Whose::Unknown, "an engine is silent");
        assert_eq!(whose(&stopped(&[]), Some(&first)), Whose::Unknown, "an exception without a kernel");
    }

    #[test]
    fn a_trap_says_what_was_on_the_cards() {
        let trap = |resident: &[u64]| Dump::of(Vec::new(), resident.to_vec());
        let first = [kernel(0xf1, 0xa)];
        assert_eq!(whose(&trap(&[0xf1]), Some(&first)), Whose::Ours);
        assert_eq!(whose(&trap(&[0xf2]), Some(&first)), Whose::Anothers);
        assert_eq!(whose(&trap(&[0xf1, 0xf2]), Some(&first)), Whose::Unknown);
        assert_eq!(whose(&trap(&[]), Some(&first)), Whose::Unknown);
    }

    #[test]
    fn the_first_card_that_claims_a_fault_has_it() {
        let (first, second) = (Membership::begin(), Membership::begin());
        assert!(!first.is_alone());
        first.claim_fault();
        second.claim_fault();
        assert!(!first.is_fault_anothers() && second.is_fault_anothers());
        drop(second);
        assert!(first.is_alone());
    }
}
