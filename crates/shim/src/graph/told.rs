//! What programs are told of nodes by an address: the parameters of kernels (an array of pointers,
//! and the values to which these point), and value writes and waits.
//!
//! By the manual they live until the node is changed, and are only to be read. llama.cpp writes
//! pointers of its own into the array, sets the node to that, and does so again for each token,
//! which works under NVIDIA's driver. So both stay where they are as long as the node does. The
//! values follow the node; what a program has written into the array stays there until it asks
//! again.

use super::{Kernel, Values, Work};
use std::cell::Cell;

/// What a program was told of a node.
#[derive(Debug, Default)]
pub struct Told {
    /// Of a kernel.
    pub kernel: ToldKernel,
    /// Of value writes and waits.
    pub values: ToldValues,
}

impl Told {
    /// The node does this now.
    pub fn change(&self, work: &Work) {
        match work {
            Work::Kernel(kernel) => self.kernel.change(kernel),
            Work::Values(values) => self.values.change(&words_of(values)),
            _ => {}
        }
    }
}

/// The words of value writes and waits, as the program gave them.
fn words_of(values: &Values) -> Vec<u64> {
    // SAFETY: all these words have values: the program's, or 0 where a member was set over them.
    values.given.iter().flat_map(|given| unsafe { given.pad }).collect()
}

/// Value writes and waits of a node. Other numbers of them get places of their own.
#[derive(Debug, Default)]
pub struct ToldValues {
    places: Vec<Box<[Cell<u64>]>>,
}

impl ToldValues {
    /// The address of the array of them.
    pub fn tell(&mut self, values: &Values) -> usize {
        self.tell_words(&words_of(values))
    }

    fn tell_words(&mut self, words: &[u64]) -> usize {
        if !self.places.iter().any(|place| place.len() == words.len()) {
            self.places.push(vec![Cell::new(0); words.len()].into_boxed_slice());
        }
        self.change(words);
        self.places.iter().find(|place| place.len() == words.len()).map_or(0, |place| place.as_ptr().expose_provenance())
    }

    fn change(&self, words: &[u64]) {
        if let Some(place) = self.places.iter().find(|place| place.len() == words.len()) {
            place.iter().zip(words).for_each(|(cell, word)| cell.set(*word));
        }
    }
}

/// What a program was told of a kernel. One with other parameters gets a place of its own, and
/// the one before stays as well.
#[derive(Debug, Default)]
pub struct ToldKernel {
    places: Vec<Place>,
}

/// Eight words, aligned as the largest parameters are (`CUtensorMap`).
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Line([Cell<u64>; 8]);

/// Room for parameters at these offsets. The program writes there, too: nothing is read from it but
/// by the program's own calls.
#[derive(Debug)]
struct Place {
    offsets: Vec<u32>,
    bytes: usize,
    values: Box<[Line]>,
    pointers: Box<[Cell<usize>]>,
}

impl Place {
    fn new(offsets: Vec<u32>, bytes: usize) -> Self {
        let values = vec![Line::default(); bytes.div_ceil(size_of::<Line>())].into_boxed_slice();
        let pointers = vec![Cell::new(0); offsets.len()].into_boxed_slice();
        Self { offsets, bytes, values, pointers }
    }

    fn set_values(&self, parameters: &[u8]) {
        let words = self.values.iter().flat_map(|line| &line.0);
        for (cell, bytes) in words.zip(parameters.chunks(size_of::<u64>())) {
            let mut word = [0; size_of::<u64>()];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.set(u64::from_ne_bytes(word));
        }
    }

    fn set_pointers(&self) {
        let base = self.values.as_ptr().expose_provenance();
        for (pointer, offset) in self.pointers.iter().zip(&self.offsets) {
            pointer.set(base + *offset as usize);
        }
    }
}

/// Where a kernel's parameters lie in their block.
fn offsets_of(kernel: &Kernel) -> Vec<u32> {
    kernel.function.info.parameters.iter().map(|parameter| parameter.offset).collect()
}

impl ToldKernel {
    fn place_of(&self, offsets: &[u32], bytes: usize) -> Option<&Place> {
        self.places.iter().find(|place| place.offsets == offsets && place.bytes == bytes)
    }

    /// The address of the array of pointers, which lead to the kernel's parameters.
    pub fn tell(&mut self, kernel: &Kernel) -> usize {
        self.tell_parameters(offsets_of(kernel), &kernel.launch.parameters)
    }

    fn tell_parameters(&mut self, offsets: Vec<u32>, parameters: &[u8]) -> usize {
        if self.place_of(&offsets, parameters.len()).is_none() {
            self.places.push(Place::new(offsets.clone(), parameters.len()));
        }
        let Some(place) = self.place_of(&offsets, parameters.len()) else { return 0 };
        place.set_values(parameters);
        place.set_pointers();
        place.pointers.as_ptr().expose_provenance()
    }

    /// The node has this kernel now.
    pub fn change(&self, kernel: &Kernel) {
        if self.places.is_empty() {
            return;
        }
        let parameters = &kernel.launch.parameters;
        if let Some(place) = self.place_of(&offsets_of(kernel), parameters.len()) {
            place.set_values(parameters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_keeps_its_place() {
        let mut told = ToldKernel::default();
        let first = told.tell_parameters(vec![0, 8], &[1; 12]);
        let other = told.tell_parameters(vec![0, 64], &[2; 192]);
        assert!(first != other && told.tell_parameters(vec![0, 8], &[3; 12]) == first, "it has the other kernel again");
        let place = told.place_of(&[0, 64], 192).expect("told");
        assert_eq!((place.values.as_ptr().addr() % 64, place.pointers[1].get() - place.pointers[0].get()), (0, 64));
        assert_eq!(place.values[2].0[7].get(), u64::from_ne_bytes([2; 8]), "the last word");
        let place = told.place_of(&[0, 8], 12).expect("told");
        assert_eq!((place.values[0].0[0].get(), place.values[0].0[1].get()), (u64::from_ne_bytes([3; 8]), 0x0303_0303));
    }

    #[test]
    fn values_stay_where_they_were_told() {
        let mut told = ToldValues::default();
        let first = told.tell_words(&[1; 6]);
        let other = told.tell_words(&[2; 12]);
        told.change(&[3; 6]);
        let values = |at: usize| told.places[at].iter().map(Cell::get).collect::<Vec<_>>();
        assert_eq!((values(0), values(1)), (vec![3; 6], vec![2; 12]), "each number of them has its own place");
        assert!(first != other && told.tell_words(&[4; 6]) == first, "the node has as many again");
    }

    #[test]
    fn what_a_program_has_written_stays_until_it_asks_again() {
        let mut told = ToldKernel::default();
        told.tell_parameters(vec![0], &[1; 4]);
        let place = told.place_of(&[0], 4).expect("told");
        let own = place.pointers[0].replace(77);
        place.set_values(&[2; 4]);
        assert_eq!((place.pointers[0].get(), place.values[0].0[0].get()), (77, 0x0202_0202));
        told.tell_parameters(vec![0], &[2; 4]);
        assert_eq!(told.place_of(&[0], 4).expect("told").pointers[0].get(), own);
    }
}
