//! The `__constant__` variables of a client: where the card has them, and the copies in the
//! client's memory that the client sees in their place. Pure.
//!
//! Code reads `__constant__` variables in a bank of the driver's, which ends with the executor. The
//! client gets the address of a copy in its own memory. Whatever its work writes to the copy goes
//! on to the bank, in the order of the stream; a successor fills its bank from the copy.

use crate::driver::CardAddress;
use std::collections::BTreeMap;
use std::ops::Range;

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

/// All `__constant__` variables of a client's modules, by the addresses of their copies, which do
/// not overlap.
#[derive(Debug, Default)]
pub(crate) struct Constants(BTreeMap<CardAddress, ConstantCopy>);

impl Constants {
    /// Adds the variables of a module.
    pub(crate) fn add(&mut self, variables: &[ConstantCopy]) {
        self.0.extend(variables.iter().filter(|variable| variable.bytes > 0).map(|variable| (variable.copy, *variable)));
    }

    /// Removes the variables of a module.
    pub(crate) fn remove(&mut self, variables: &[ConstantCopy]) {
        for variable in variables {
            self.0.remove(&variable.copy);
        }
    }

    /// From the first byte of a copy to the end of the last one; empty if there are none.
    pub(crate) fn bounds(&self) -> Range<CardAddress> {
        let ends = self.0.first_key_value().zip(self.0.last_key_value());
        ends.map_or(0..0, |((first, _), (last, variable))| *first..last + variable.bytes)
    }

    /// The variable whose copy has this byte.
    pub(crate) fn at(&self, address: CardAddress) -> Option<ConstantCopy> {
        let (_, known) = self.0.range(..=address).next_back()?;
        (address - known.copy < known.bytes).then_some(*known)
    }

    /// The parts of variables among these bytes of the client's memory, as copies and the places in
    /// the bank. From the last to the first.
    pub(crate) fn within(&self, address: CardAddress, bytes: u64) -> impl Iterator<Item = ConstantCopy> + '_ {
        let end = address.saturating_add(bytes);
        let before = self.0.range(..end).rev().take_while(move |(_, known)| known.copy + known.bytes > address);
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
        assert_eq!((constants.bounds(), Constants::default().bounds()), (1000..5008, 0..0));
        let at = |address| constants.at(address);
        assert_eq!((at(1000), at(1015), at(1019)), (Some(variable(1000, 70_000, 16)), Some(variable(1000, 70_000, 16)), Some(variable(1016, 80_000, 4))));
        assert_eq!((at(999), at(1020), at(4999), at(5008)), (None, None, None, None));
        assert_eq!((within(996, 4), within(1020, 100), within(1004, 0)), (vec![], vec![], vec![]));
        constants.remove(&[variable(1000, 70_000, 16), variable(1016, 80_000, 4)]);
        assert_eq!(constants.within(0, 10_000).collect::<Vec<_>>(), [variable(5000, 90_000, 8)]);
    }
}
