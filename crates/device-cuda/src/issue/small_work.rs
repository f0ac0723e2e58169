//! Setting and copying a few bytes as a kernel: it is a node of a chain, where the driver's call
//! would end one.
//!
//! Libraries set a few counters to zero between their kernels: ResNet-50 nine times in a pass. An
//! engine of vLLM copies a few lists from the host eleven times in a step, and between copy engines
//! and multiprocessors the card waits each time.

use super::pieces::CopyPiece;
use super::plan::{Asked, PlannedKernel, Planner};
use crate::context::{ClientModule, KernelCode, LoadedModule, OWN_THREADS, OwnKernels};
use crate::driver::{CardAddress, LaunchShape, MemorySet};
use cumux_device::{Parameters, Work};
use std::sync::Arc;

/// Most bytes that one block sets or copies: sixteen words a thread.
pub(super) const MOST_BYTES: u64 = 16 << 10;
/// Most units that one block copies. A thread that reads the host's memory waits a microsecond or
/// more for each of its own.
const MOST_UNITS: u64 = 8 * OWN_THREADS as u64;
/// Bytes that the set kernel sets at once.
const WORD: u64 = 4;

/// A kernel of this crate's own.
struct OwnKernel {
    /// `None` if its code is not on the card.
    code: Option<KernelCode>,
    function: usize,
    /// [`crate::context::Kernel::id`].
    id: u64,
}

/// The set kernel and the copy kernel of one engine.
pub(crate) struct SmallWork {
    /// The engine's own reference.
    module: Arc<ClientModule>,
    set: OwnKernel,
    copy: OwnKernel,
    /// True if kernels reach the memory of clients' windows: not those of a driver that is cumux's
    /// own library.
    reaches_windows: bool,
}

impl SmallWork {
    /// For one engine. `reaches_windows`: kernels of this driver reach the memory of clients'
    /// windows.
    pub(crate) fn new(own: &OwnKernels, reaches_windows: bool) -> SmallWork {
        let kernel = |function: usize| OwnKernel { code: own.module.kernels[function].code(), function, id: own.module.kernels[function].id };
        SmallWork { module: ClientModule::new(own.module.clone()), set: kernel(own.set), copy: kernel(own.copy), reaches_windows }
    }

    /// The module of this crate's own kernels.
    pub(super) fn module(&self) -> &LoadedModule {
        &self.module
    }

    /// True if this is a set or a copy, which the client did not launch as a kernel.
    #[inline]
    pub(super) fn made(&self, planned: &PlannedKernel) -> bool {
        [self.set.id, self.copy.id].contains(&planned.kernel().id)
    }

    /// True if this is a copy.
    #[inline]
    pub(super) fn is_copy(&self, planned: &PlannedKernel) -> bool {
        planned.kernel().id == self.copy.id
    }

    /// How many copies are nodes since the client's last kernel, behind these kernels. `before`:
    /// how many were before them.
    pub(super) fn count_copies(&self, before: usize, kernels: &[PlannedKernel]) -> usize {
        let since = kernels.iter().rev().take_while(|planned| self.made(planned));
        let (own, copies) = since.fold((0, 0), |(own, copies), planned| (own + 1, copies + usize::from(self.is_copy(planned))));
        if own == kernels.len() { before + copies } else { copies }
    }

    /// True if this launch of the set kernel does this set.
    pub(super) fn does_set(&self, set: &MemorySet, planned: &PlannedKernel) -> bool {
        planned.kernel().id == self.set.id && set_parameters(set).is_some_and(|parameters| parameters == planned.parameters)
    }

    /// True if this launch of the copy kernel does these copies, which are planned from `work`.
    pub(super) fn does_copy(&self, pieces: &[CopyPiece], work: &Work, planner: &Planner<'_>, planned: &PlannedKernel) -> bool {
        self.is_copy(planned) && self.copy_parameters(pieces, work, planner).is_some_and(|parameters| parameters == planned.parameters)
    }

    /// The parameters with which the copy kernel does these copies, if it can.
    fn copy_parameters(&self, pieces: &[CopyPiece], work: &Work, planner: &Planner<'_>) -> Option<Parameters> {
        let [CopyPiece::Row { target, source, bytes }] = *pieces else { return None };
        // Of a copy onto itself nothing is left but what follows it.
        let is_real = matches!(work, Work::Copy { target, source, .. } if target.address != source.address);
        let is_reached = self.reaches_windows || !(planner.is_in_window(target) || planner.is_in_window(source));
        if is_real && is_reached { row_parameters(target, source, bytes) } else { None }
    }

    /// The launch of the set kernel that does this set, which is planned from `work`. If it cannot
    /// do it, or should not, there is none, and `work` stays.
    pub(super) fn kernel_for_set(&self, set: &MemorySet, work: &mut Work) -> Option<PlannedKernel> {
        self.plan(&self.set, set_parameters(set)?, work)
    }

    /// As [`SmallWork::kernel_for_set`], for these copies.
    pub(super) fn kernel_for_copy(&self, pieces: &[CopyPiece], work: &mut Work, planner: &Planner<'_>) -> Option<PlannedKernel> {
        self.plan(&self.copy, self.copy_parameters(pieces, work, planner)?, work)
    }

    fn plan(&self, own: &OwnKernel, parameters: Parameters, work: &mut Work) -> Option<PlannedKernel> {
        let code = own.code?;
        let shape = LaunchShape { grid: [1; 3], block: [OWN_THREADS, 1, 1], ..LaunchShape::default() };
        let asked = Asked::Other(Box::new(std::mem::replace(work, Work::Nop)));
        Some(PlannedKernel { module: self.module.clone(), function: own.function, code, shape, parameters, constants: Vec::new(), asked })
    }
}

/// The parameters with which the set kernel does this set, if it can.
fn set_parameters(set: &MemorySet) -> Option<Parameters> {
    let (words, value) = words_of(set)?;
    Some(set.target.to_ne_bytes().into_iter().chain(words.to_ne_bytes()).chain(value.to_ne_bytes()).collect())
}

/// The parameters with which the copy kernel copies a row, if that has few bytes.
fn row_parameters(target: CardAddress, source: CardAddress, bytes: u64) -> Option<Parameters> {
    let (count, unit) = units_of(target, source, bytes)?;
    Some(target.to_ne_bytes().into_iter().chain(source.to_ne_bytes()).chain(count.to_ne_bytes()).chain(unit.to_ne_bytes()).collect())
}

/// How many units to copy, and how many bytes each has; `None` if they are too many for one block.
fn units_of(target: u64, source: u64, bytes: u64) -> Option<(u32, u32)> {
    let is_multiple = |unit: &u64| (target | source | bytes).is_multiple_of(*unit);
    let unit = [16, 8, 4, 1].into_iter().find(is_multiple)?;
    let fits = bytes <= MOST_BYTES && bytes / unit <= MOST_UNITS;
    if fits { Some((u32::try_from(bytes / unit).ok()?, u32::try_from(unit).ok()?)) } else { None }
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

    #[test]
    fn one_small_row_is_copied_by_the_kernel() {
        assert_eq!(units_of(0x1000, 0x2010, 48), Some((3, 16)));
        assert_eq!((units_of(0x1008, 0x2010, 48), units_of(0x1000, 0x2010, 8)), (Some((6, 8)), Some((1, 8))));
        assert_eq!((units_of(0x1004, 0x2010, 48), units_of(0x1000, 0x2010, 44)), (Some((12, 4)), Some((11, 4))));
        assert_eq!((units_of(0x1001, 0x2010, 48), units_of(0x1000, 0x2010, 7)), (Some((48, 1)), Some((7, 1))));
        assert_eq!((units_of(0, 16, MOST_BYTES).is_some(), units_of(0, 16, MOST_BYTES + 16)), (true, None), "too many bytes");
        assert_eq!((units_of(0, 4, 8192).is_some(), units_of(0, 4, 8196)), (true, None), "too many words");
        assert_eq!((units_of(1, 4, 2048).is_some(), units_of(1, 4, 2049)), (true, None), "too many bytes one by one");
    }

    proptest! {
        #[test]
        fn units_are_all_of_a_row(target in 0_u64..100_000, source in 0_u64..100_000, bytes in 1_u64..MOST_BYTES) {
            if let Some((count, unit)) = units_of(target, source, bytes) {
                prop_assert_eq!(u64::from(count) * u64::from(unit), bytes);
                prop_assert!((target | source).is_multiple_of(u64::from(unit)) && u64::from(count) <= MOST_UNITS);
            } else {
                prop_assert!(bytes > MOST_UNITS);
            }
        }

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
