//! Setting a few bytes as a kernel: it is a node of a chain, where the driver's call would end one.
//!
//! Libraries set a few counters to zero between their kernels: ResNet-50 nine times in a pass.

use super::plan::{Asked, PlannedKernel};
use crate::context::{ClientModule, KernelCode, LoadedModule, OwnKernels, SET_THREADS};
use crate::driver::{LaunchShape, MemorySet};
use cumux_device::{Parameters, Work};
use std::sync::Arc;

/// Most bytes that one block sets: sixteen words a thread.
const MOST_BYTES: u64 = 16 << 10;
/// Bytes that the set kernel sets at once.
const WORD: u64 = 4;

/// The set kernel of one engine.
pub(crate) struct SmallSets {
    /// `None` if its code is not on the card.
    code: Option<KernelCode>,
    /// The engine's own reference.
    module: Arc<ClientModule>,
    function: usize,
}

impl SmallSets {
    /// For one engine.
    pub(crate) fn new(own: &OwnKernels) -> SmallSets {
        SmallSets { code: own.module.kernels[own.set].code(), module: ClientModule::new(own.module.clone()), function: own.set }
    }

    /// The module of this crate's own kernels.
    pub(super) fn module(&self) -> &LoadedModule {
        &self.module
    }

    /// True if this is a set, which the client did not launch as a kernel.
    #[inline]
    pub(super) fn made(&self, planned: &PlannedKernel) -> bool {
        planned.kernel().id == self.module.kernels[self.function].id
    }

    /// True if this launch of the set kernel does this set.
    pub(super) fn does(&self, set: &MemorySet, planned: &PlannedKernel) -> bool {
        self.made(planned) && parameters_of(set).is_some_and(|parameters| parameters == planned.parameters)
    }

    /// The launch of the set kernel that does this set, which is planned from `work`. If it cannot
    /// do it, or should not, there is none, and `work` stays.
    pub(super) fn kernel_for(&self, set: &MemorySet, work: &mut Work) -> Option<PlannedKernel> {
        let code = self.code?;
        let parameters = parameters_of(set)?;
        let shape = LaunchShape { grid: [1; 3], block: [SET_THREADS, 1, 1], ..LaunchShape::default() };
        let asked = Asked::Other(Box::new(std::mem::replace(work, Work::Nop)));
        Some(PlannedKernel { module: self.module.clone(), function: self.function, code, shape, parameters, constants: Vec::new(), asked })
    }
}

/// The parameters with which the set kernel does this set, if it can.
fn parameters_of(set: &MemorySet) -> Option<Parameters> {
    let (words, value) = words_of(set)?;
    Some(set.target.to_ne_bytes().into_iter().chain(words.to_ne_bytes()).chain(value.to_ne_bytes()).collect())
}

/// The number of words to set, and their value; `None` if the bytes are many, not in one row, or no
/// whole words.
fn words_of(set: &MemorySet) -> Option<(u64, u32)> {
    let row = set.width.checked_mul(u64::from(set.element))?;
    let bytes = row.checked_mul(set.height)?;
    let in_one_row = set.height == 1 || set.pitch == row;
    let value = match set.element {
        1 => (set.value & 0xff) * 0x0101_0101,
        2 => (set.value & 0xffff) * 0x0001_0001,
        4 => set.value,
        _ => return None,
    };
    let fits = in_one_row && bytes <= MOST_BYTES && bytes.is_multiple_of(WORD) && set.target.is_multiple_of(WORD);
    fits.then_some((bytes / WORD, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(element: u32, width: u64, height: u64, pitch: u64) -> MemorySet {
        MemorySet { target: 0x1000, pitch, value: 0xffff_ffa5, element, width, height }
    }

    #[test]
    fn small_rows_of_whole_words_are_set_by_the_kernel() {
        assert_eq!(words_of(&set(1, 256, 1, 0)), Some((64, 0xa5a5_a5a5)));
        assert_eq!(words_of(&set(2, 2, 3, 4)), Some((3, 0xffa5_ffa5)));
        assert_eq!(words_of(&set(4, 5, 1, 9)), Some((5, 0xffff_ffa5)));
        assert_eq!(words_of(&set(4, 5, 2, 24)), None, "the rows are apart");
        assert_eq!(words_of(&set(1, 255, 1, 0)), None, "no whole words");
        assert_eq!(words_of(&MemorySet { target: 0x1002, ..set(4, 1, 1, 0) }), None, "between two words");
        assert_eq!((words_of(&set(1, MOST_BYTES, 1, 0)).is_some(), words_of(&set(1, MOST_BYTES + 4, 1, 0))), (true, None));
        assert_eq!((words_of(&set(3, 4, 1, 0)), words_of(&set(4, u64::MAX, 2, 0))), (None, None));
    }

    proptest! {
        #[test]
        fn the_kernel_sets_what_the_driver_would(element in prop::sample::select(vec![1_u32, 2, 4]), width in 1_u64..64, height in 1_u64..4, value: u32) {
            let row = width * u64::from(element);
            let set = MemorySet { target: 0, pitch: row, value, element, width, height };
            let expected: Vec<u8> = value.to_le_bytes()[..element as usize].repeat((width * height) as usize);
            let Some((words, word)) = words_of(&set) else {
                prop_assert!(!(row * height).is_multiple_of(WORD));
                return Ok(());
            };
            prop_assert_eq!(word.to_le_bytes().repeat(words as usize), expected);
        }
    }
}
