//! The chains of one length, so that those of a stream for given functions are found without a
//! look at the others.

use super::chain::{Chain, Purpose};
use cumux_device::StreamId;

/// The key of chains that belong to no stream.
const NOBODYS: u64 = 0;
/// What the key of a chain that a stream has left differs in from its shape.
const LEFT: u64 = 0x1ef7_1ef7_1ef7_1ef7;

/// The chains of one length. They have indexes, which change when one is removed.
#[derive(Default)]
pub(super) struct Shelf {
    chains: Vec<Chain>,
    /// The chains' keys, in the same order. Different chains may have the same.
    keys: Vec<u64>,
}

/// The key of a stream's own chains of this shape.
pub(super) fn key_of(stream: StreamId, shape: u64) -> u64 {
    u64::from(stream.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ shape
}

fn key_of_chain(chain: &Chain) -> u64 {
    match chain.purpose {
        Purpose::Own(stream) => key_of(stream, chain.shape()),
        Purpose::General => NOBODYS,
        Purpose::Left => chain.shape() ^ LEFT,
    }
}

impl Shelf {
    /// The number of chains.
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }

    /// The number of chains that were ordered by chance.
    pub(super) fn count_by_chance(&self) -> usize {
        self.chains.iter().filter(|chain| chain.by_chance).count()
    }

    /// Adds a chain.
    pub(super) fn push(&mut self, chain: Chain) {
        self.keys.push(key_of_chain(&chain));
        self.chains.push(chain);
    }

    /// Removes a chain. The last one gets its index.
    pub(super) fn swap_remove(&mut self, index: usize) -> Chain {
        self.keys.swap_remove(index);
        self.chains.swap_remove(index)
    }

    /// Removes all chains for which `is_gone` holds.
    pub(super) fn remove_if(&mut self, is_gone: impl Fn(&Chain) -> bool) -> Vec<Chain> {
        let gone: Vec<Chain> = self.chains.extract_if(.., |chain| is_gone(chain)).collect();
        if !gone.is_empty() {
            self.keys = self.chains.iter().map(key_of_chain).collect();
        }
        gone
    }

    /// One chain. What it is for and its shape change through [`Shelf::change`] alone.
    pub(super) fn chain(&mut self, index: usize) -> &mut Chain {
        &mut self.chains[index]
    }

    /// The chain with this index, if there is one.
    pub(super) fn get(&self, index: usize) -> Option<&Chain> {
        self.chains.get(index)
    }

    /// Changes a chain.
    pub(super) fn change<R>(&mut self, index: usize, act: impl FnOnce(&mut Chain) -> R) -> R {
        let result = act(&mut self.chains[index]);
        self.keys[index] = key_of_chain(&self.chains[index]);
        result
    }

    /// All chains with their indexes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Chain)> {
        self.chains.iter_mut().enumerate()
    }

    /// The indexes of this stream's own chains of this shape.
    pub(super) fn own(&self, stream: StreamId, shape: u64) -> impl Iterator<Item = usize> {
        self.with_key(key_of(stream, shape), Purpose::Own(stream), shape)
    }

    /// The indexes of the chains of this shape that streams have left.
    pub(super) fn left(&self, shape: u64) -> impl Iterator<Item = usize> {
        self.with_key(shape ^ LEFT, Purpose::Left, shape)
    }

    fn with_key(&self, key: u64, purpose: Purpose, shape: u64) -> impl Iterator<Item = usize> {
        let with_key = self.keys.iter().enumerate().filter(move |(_, other)| **other == key);
        with_key.map(|(index, _)| index).filter(move |index| {
            let chain = &self.chains[*index];
            chain.purpose == purpose && chain.shape() == shape
        })
    }

    /// These streams are gone: their chains are for the next one that brings their functions.
    pub(super) fn leave(&mut self, streams: &[StreamId]) {
        for index in 0..self.chains.len() {
            if matches!(self.chains[index].purpose, Purpose::Own(stream) if streams.contains(&stream)) {
                self.change(index, |chain| chain.purpose = Purpose::Left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_of_other_streams_and_shapes_differ(stream in 0..1000_u32, other in 0..1000_u32, shape: u64) {
            prop_assume!(stream != other);
            prop_assert_ne!(key_of(StreamId(stream), shape), key_of(StreamId(other), shape));
            prop_assert_ne!(key_of(StreamId(stream), shape), key_of(StreamId(stream), !shape));
        }
    }
}
