//! The `__constant__` variables of a client: where the card has them, and the copies in the
//! client's memory that the client sees in their place. Pure.
//!
//! Code reads `__constant__` variables in a bank of the driver's, which ends with the executor. The
//! client gets the address of a copy in its own memory. Whatever its work writes to the copy goes
//! on to the bank, in the order of the stream; a successor fills its bank from the copy.

use crate::driver::CardAddress;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// One `__constant__` variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConstantCopy {
    /// The copy in the client's memory.
    pub copy: CardAddress,
    /// The variable in the driver's bank.
    pub bank: CardAddress,
    /// The size of both.
    pub bytes: u64,
}

/// Copies nearer to each other than this are of one module, most likely.
const GAP: u64 = 256;

/// All `__constant__` variables of a client's modules, by the addresses of their copies, which do
/// not overlap.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    copies: BTreeMap<CardAddress, ConstantCopy>,
    spans: Spans,
}

/// Where the copies are, to be looked through without a lock: ranges in order, between which there
/// is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans(Arc<[Range<CardAddress>]>);

impl Spans {
    /// False if there is no copy at this address.
    pub(crate) fn may_have(&self, address: CardAddress) -> bool {
        let at = self.0.partition_point(|span| span.start <= address);
        at > 0 && self.0.get(at - 1).is_some_and(|span| address < span.end)
    }
}

impl Constants {
    /// Adds the variables of a module.
    pub(crate) fn add(&mut self, variables: &[ConstantCopy]) {
        self.copies.extend(variables.iter().filter(|variable| variable.bytes > 0).map(|variable| (variable.copy, *variable)));
        self.find_spans();
    }

    /// Removes the variables of a module.
    pub(crate) fn remove(&mut self, variables: &[ConstantCopy]) {
        for variable in variables {
            self.copies.remove(&variable.copy);
        }
        self.find_spans();
    }

    fn find_spans(&mut self) {
        let mut spans: Vec<Range<CardAddress>> = Vec::new();
        for ConstantCopy { copy, bytes, .. } in self.copies.values() {
            // An image may say that two of its variables share bytes.
            match spans.last_mut().filter(|last| copy.saturating_sub(last.end) < GAP) {
                Some(last) => last.end = last.end.max(copy + bytes),
                None => spans.push(*copy..copy + bytes),
            }
        }
        self.spans = Spans(spans.into());
    }

    /// Where the copies are now.
    pub(crate) fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// The variable whose copy has this byte.
    pub(crate) fn at(&self, address: CardAddress) -> Option<ConstantCopy> {
        let (_, known) = self.copies.range(..=address).next_back()?;
        (address - known.copy < known.bytes).then_some(*known)
    }

    /// The parts of variables among these bytes of the client's memory, as copies and the places in
    /// the bank. From the last to the first.
    pub(crate) fn within(&self, address: CardAddress, bytes: u64) -> impl Iterator<Item = ConstantCopy> + '_ {
        let end = address.saturating_add(bytes);
        let before = self.copies.range(..end).rev().take_while(move |(_, known)| known.copy + known.bytes > address);
        before.filter_map(move |(_, known)| {
            let first = known.copy.max(address);
            let bytes = (known.copy + known.bytes).min(end).checked_sub(first).filter(|bytes| *bytes > 0)?;
            Some(ConstantCopy { copy: first, bank: known.bank + (first - known.copy), bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_variables_are_found() {
        let variable = |copy, bank, bytes| ConstantCopy { copy, bank, bytes };
        let mut constants = Constants::default();
        constants.add(&[variable(1000, 70_000, 16), variable(1016, 80_000, 4)]);
        constants.add(&[variable(5000, 90_000, 8)]);
        let within = |address, bytes| constants.within(address, bytes).collect::<Vec<_>>();
        assert_eq!(within(1000, 16), [variable(1000, 70_000, 16)]);
        assert_eq!(within(1012, 6), [variable(1016, 80_000, 2), variable(1012, 70_012, 4)]);
        assert_eq!(within(0, u64::MAX).len(), 3);
        let spans = constants.spans();
        assert_eq!(&*spans.0, [1000..1020, 5000..5008]);
        assert_eq!([999, 1000, 1019, 1020, 4999, 5000, 5007, 5008].map(|at| spans.may_have(at)), [false, true, true, false, false, true, true, false]);
        assert!(!Constants::default().spans().may_have(0));
        let mut overlapping = Constants::default();
        overlapping.add(&[variable(1000, 70_000, 100), variable(1010, 70_010, 10)]);
        assert_eq!((overlapping.spans().0.len(), overlapping.spans().0.first()), (1, Some(&(1000..1100))));
        let at = |address| constants.at(address);
        assert_eq!((at(1000), at(1015), at(1019)), (Some(variable(1000, 70_000, 16)), Some(variable(1000, 70_000, 16)), Some(variable(1016, 80_000, 4))));
        assert_eq!((at(999), at(1020), at(4999), at(5008)), (None, None, None, None));
        assert_eq!((within(996, 4), within(1020, 100), within(1004, 0)), (vec![], vec![], vec![]));
        constants.remove(&[variable(1000, 70_000, 16), variable(1016, 80_000, 4)]);
        assert_eq!(constants.within(0, 10_000).collect::<Vec<_>>(), [variable(5000, 90_000, 8)]);
    }
}
