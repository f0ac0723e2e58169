//! The parameters of kernel nodes as programs are told them: an array of pointers, and the values
//! to which these point.
//!
//! By the manual they live until the node is changed, and are only to be read. llama.cpp writes its
//! own pointers into the array, sets the node to that, and does so again for each token, which
//! works under NVIDIA's driver. So both stay where they are as long as the node does, and have the
//! values that the node has now.

use super::Kernel;
use std::cell::Cell;

/// What a program was told of a node. A kernel with other parameters gets a place of its own, and
/// the one before stays as well.
#[derive(Debug, Default)]
pub struct ToldKernel {
    places: Vec<Place>,
}

/// Room for parameters at these offsets. The program writes there, too: nothing is read from it but
/// by the program's own calls.
#[derive(Debug)]
struct Place {
    offsets: Vec<u32>,
    values: Box<[Cell<u64>]>,
    pointers: Box<[Cell<usize>]>,
}

impl Place {
    fn new(offsets: Vec<u32>, bytes: usize) -> Self {
        let values = vec![Cell::new(0); bytes.div_ceil(size_of::<u64>())].into_boxed_slice();
        let pointers = vec![Cell::new(0); offsets.len()].into_boxed_slice();
        Self { offsets, values, pointers }
    }

    fn fill(&self, parameters: &[u8]) {
        for (cell, bytes) in self.values.iter().zip(parameters.chunks(size_of::<u64>())) {
            let mut word = [0; size_of::<u64>()];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.set(u64::from_ne_bytes(word));
        }
        let base = self.values.as_ptr().expose_provenance();
        for (pointer, offset) in self.pointers.iter().zip(&self.offsets) {
            pointer.set(base + *offset as usize);
        }
    }
}

impl ToldKernel {
    /// The address of the array of pointers, which lead to the kernel's parameters.
    pub fn tell(&mut self, kernel: &Kernel) -> usize {
        let parameters = &kernel.launch.parameters;
        let offsets: Vec<u32> = kernel.function.info.parameters.iter().map(|parameter| parameter.offset).collect();
        let fits = |place: &Place| place.offsets == offsets && place.values.len() == parameters.len().div_ceil(size_of::<u64>());
        let at = self.places.iter().position(fits).unwrap_or_else(|| {
            self.places.push(Place::new(offsets, parameters.len()));
            self.places.len() - 1
        });
        self.places[at].fill(parameters);
        self.places[at].pointers.as_ptr().expose_provenance()
    }

    /// The node has another kernel now.
    pub fn change(&mut self, kernel: &Kernel) {
        if !self.places.is_empty() {
            self.tell(kernel);
        }
    }
}
