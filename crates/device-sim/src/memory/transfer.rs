//! Copies, sets and value writes, in steps: kernels run between the steps of a long one.
//!
//! An overlapping copy gives the same result as a copy through a buffer. Where both sides have the
//! same strides it is enough to copy in the right direction; otherwise the source is read into a
//! buffer first. An overlapping copy cannot be repeated after it has begun, so it has a record in
//! the progress log.
//!
//! ```text
//!                 no overlap, or target below source
//!  UnexaminedCopy ──────────────────────────────────▶ Copy forwards
//!    │  ▲      │  target above source, same strides
//!    │  │      ├───────────────────────────────────▶ Copy backwards
//!    └──┘      │  overlap, other strides
//!  no free     └───────────────────────────────────▶ Staged
//!  record: at the next step again
//! ```

use std::sync::Arc;

use cumux_device::{CopyExtent, Rows, Work};
use cumux_wire::record::span;

use super::worker::{RefusedAddress, WorkerMemory};
use crate::exec::interface::{Access, MemoryFault};
use crate::progress::{KernelProgress, ProgressLog, layout::TRANSFER};

/// Bytes moved in one step: some tenths of a millisecond.
const STEP_BYTES: u64 = 2 << 20;

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    More,
    Done,
    /// Nothing may be accessed at this address.
    Refused(u64, MemoryFault),
    /// The address is not a multiple of the element's size.
    Misaligned(u64),
}

/// In which order the bytes of overlapping sides are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forwards,
    Backwards,
}

#[derive(Debug)]
enum TransferKind {
    /// A copy before its first byte: whether its sides overlap is not known.
    UnexaminedCopy {
        target: Rows,
        source: Rows,
    },
    Copy {
        target: Rows,
        source: Rows,
        direction: Direction,
    },
    /// A copy whose source has been read.
    Staged {
        target: Rows,
        bytes: Vec<u8>,
    },
    /// `element`: bytes of the repeated value.
    Set {
        target: Rows,
        value: u32,
        element: u32,
    },
    /// The low `bytes` bytes of a value, stored at once.
    Value {
        address: u64,
        value: u64,
        bytes: u32,
    },
}

/// A transfer at the head of a stream.
#[derive(Debug)]
pub(crate) struct Transfer {
    kind: TransferKind,
    /// Bytes of a row, rows, and slices.
    extent: CopyExtent,
    /// Bytes done, counted row by row.
    done: u64,
    token: u64,
    pub(crate) progress: Option<Arc<KernelProgress>>,
}

impl Transfer {
    /// The transfer that `work` asks for; `None` for work that is none, or a set whose extent does
    /// not fit in 64 bits.
    pub(crate) fn new(work: &Work, token: u64) -> Option<Transfer> {
        let (kind, extent) = match *work {
            Work::Copy { target, source, extent } => {
                let (target, source, extent) = flatten(target, source, extent);
                (TransferKind::UnexaminedCopy { target, source }, extent)
            }
            Work::Set { target, pitch, value, element, width, height } => {
                let extent = CopyExtent { width: width.checked_mul(u64::from(element))?, height, depth: 1 };
                let rows = Rows { address: target, pitch, slice: 0 };
                let (rows, _, extent) = flatten(rows, rows, extent);
                (TransferKind::Set { target: rows, value, element }, extent)
            }
            Work::WriteValue { address, value, bytes } => (TransferKind::Value { address, value, bytes }, CopyExtent { width: 1, height: 1, depth: 1 }),
            Work::Kernel(_) | Work::ArrayCopy { .. } | Work::Nop => return None,
        };
        Some(Transfer { kind, extent, done: 0, token, progress: None })
    }

    /// Whether any byte of its target was written.
    pub(crate) fn has_begun(&self) -> bool {
        self.done > 0
    }

    /// Does the next step.
    pub(crate) fn step(&mut self, memory: &mut WorkerMemory, log: Option<&Arc<ProgressLog>>) -> StepEnd {
        match self.try_step(memory, log) {
            Ok(step) => step,
            Err((address, fault)) => StepEnd::Refused(address, fault),
        }
    }

    fn try_step(&mut self, memory: &mut WorkerMemory, log: Option<&Arc<ProgressLog>>) -> Result<StepEnd, RefusedAddress> {
        let total = self.total_bytes();
        if total == 0 {
            return Ok(StepEnd::Done);
        }
        match self.kind {
            TransferKind::Value { address, bytes, .. } if !address.is_multiple_of(u64::from(bytes)) => return Ok(StepEnd::Misaligned(address)),
            TransferKind::Value { address, value, bytes } => {
                memory.store_value(address, value, bytes)?;
                return Ok(StepEnd::Done);
            }
            TransferKind::Set { target, element, .. } => {
                let pitch = if self.extent.height > 1 { target.pitch } else { 0 };
                if !(target.address | pitch).is_multiple_of(u64::from(element)) {
                    return Ok(StepEnd::Misaligned(target.address));
                }
            }
            TransferKind::UnexaminedCopy { target, source } => match self.examine_copy(target, source, memory, log)? {
                Some(kind) => self.kind = kind,
                None => return Ok(StepEnd::More),
            },
            TransferKind::Copy { .. } | TransferKind::Staged { .. } => {}
        }
        let end = (self.done + STEP_BYTES).min(total);
        while self.done < end {
            let (at, now) = self.next_piece(end - self.done);
            match &self.kind {
                TransferKind::Copy { target, source, direction: Direction::Forwards } => {
                    memory.copy_forwards(self.address(*target, at), self.address(*source, at), now)?;
                }
                TransferKind::Copy { target, source, direction: Direction::Backwards } => {
                    memory.copy_backwards(self.address(*target, at), self.address(*source, at), now)?;
                }
                TransferKind::Staged { target, bytes } => memory.write(self.address(*target, at), &bytes[at as usize..(at + now) as usize])?,
                TransferKind::Set { target, value, element } => memory.fill(self.address(*target, at), *value, *element, now)?,
                TransferKind::UnexaminedCopy { .. } | TransferKind::Value { .. } => {}
            }
            self.done += now;
        }
        if self.done < total {
            return Ok(StepEnd::More);
        }
        if let Some(progress) = &self.progress {
            progress.mark_done(0);
        }
        Ok(StepEnd::Done)
    }

    /// Says, before the first byte moves, how the copy must be done. `None` if the progress log has
    /// no free record for it: then it must be asked again later.
    fn examine_copy(
        &mut self,
        target: Rows,
        source: Rows,
        memory: &mut WorkerMemory,
        log: Option<&Arc<ProgressLog>>,
    ) -> Result<Option<TransferKind>, RefusedAddress> {
        let to = memory.address_here(target.address, Access::Store)?;
        let from = memory.address_here(source.address, Access::Load)?;
        let length = |rows: Rows| span(rows.address, rows.pitch, rows.slice, self.extent).unwrap_or(u64::MAX);
        let same_strides = (target.pitch == source.pitch || self.extent.height == 1) && (target.slice == source.slice || self.extent.depth == 1);
        // A copy onto itself changes no byte.
        let in_place = to == from && same_strides;
        let overlap = to < from.saturating_add(length(source)) && from < to.saturating_add(length(target)) && !in_place;
        if !overlap {
            return Ok(Some(TransferKind::Copy { target, source, direction: Direction::Forwards }));
        }
        if let (Some(log), None) = (log, &self.progress) {
            let Some(progress) = log.start_kernel(self.token, 1, TRANSFER, None) else { return Ok(None) };
            progress.mark_begun(0);
            self.progress = Some(progress);
        }
        if same_strides {
            let direction = if to > from { Direction::Backwards } else { Direction::Forwards };
            return Ok(Some(TransferKind::Copy { target, source, direction }));
        }
        let mut bytes = Vec::new();
        let total = usize::try_from(self.total_bytes()).unwrap_or(usize::MAX);
        bytes.try_reserve_exact(total).map_err(|_| (source.address, MemoryFault::OutOfBounds))?;
        bytes.resize(total, 0);
        for (row, part) in (0u64..).zip(bytes.chunks_mut(self.extent.width as usize)) {
            memory.read(self.address(source, row * self.extent.width), part)?;
        }
        Ok(Some(TransferKind::Staged { target, bytes }))
    }

    /// The executor checked that the extent spans an address range, so this is less than 2^64. A
    /// wrong extent ends as a refused address.
    fn total_bytes(&self) -> u64 {
        self.extent.width.saturating_mul(self.extent.height).saturating_mul(self.extent.depth)
    }

    /// The next piece inside one row, at most `most` bytes: its position in the bytes counted row
    /// by row, and its length.
    fn next_piece(&self, most: u64) -> (u64, u64) {
        let width = self.extent.width;
        if matches!(self.kind, TransferKind::Copy { direction: Direction::Backwards, .. }) {
            let end = self.total_bytes() - self.done;
            let in_row = (end - 1) % width + 1;
            let now = in_row.min(most);
            (end - now, now)
        } else {
            (self.done, (width - self.done % width).min(most))
        }
    }

    /// The address of a position in the bytes counted row by row.
    fn address(&self, rows: Rows, position: u64) -> u64 {
        let (row, column) = (position / self.extent.width, position % self.extent.width);
        let (slice, row) = (row / self.extent.height, row % self.extent.height);
        rows.address.wrapping_add(slice.wrapping_mul(rows.slice)).wrapping_add(row.wrapping_mul(rows.pitch)).wrapping_add(column)
    }
}

/// The same rectangle with as few and as long rows as possible.
fn flatten(mut a: Rows, mut b: Rows, mut extent: CopyExtent) -> (Rows, Rows, CopyExtent) {
    if extent.height == 1 {
        (a.pitch, b.pitch) = (a.slice, b.slice);
        (extent.height, extent.depth) = (extent.depth, 1);
    }
    // Twice: rows that touch become one row, then slices that touch.
    for _ in 0..2 {
        if extent.height > 1
            && a.pitch == extent.width
            && b.pitch == extent.width
            && let Some(width) = extent.width.checked_mul(extent.height)
        {
            (a.pitch, b.pitch) = (a.slice, b.slice);
            extent = CopyExtent { width, height: extent.depth, depth: 1 };
        }
    }
    (a, b, extent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::memory::client::ClientMemory;
    use cumux_ranges::AllowedRange;
    use proptest::prelude::*;

    const SIZE: usize = 4096;

    /// A client with one page of memory, at an address that is not where the page lies.
    fn page() -> (Mapping, Arc<ClientMemory>, u64) {
        let file = crate::mapping::files::create("t", SIZE as u64).unwrap();
        let mapping = Mapping::file(0, std::os::fd::AsFd::as_fd(&file), 0, SIZE as u64).unwrap();
        let memory = Arc::new(ClientMemory::default());
        let base = 0x10_0000;
        let range = AllowedRange { start: base, end: base + SIZE as u64, writable: true, shift: mapping.address().wrapping_sub(base) };
        memory.table.write().allow(range).unwrap();
        (mapping, memory, base)
    }

    fn run(work: &Work, memory: &Arc<ClientMemory>) -> StepEnd {
        let mut worker = WorkerMemory::default();
        worker.begin_slice(memory, false);
        let mut transfer = Transfer::new(work, 1).unwrap();
        loop {
            match transfer.step(&mut worker, None) {
                StepEnd::More => {}
                end => return end,
            }
        }
    }

    fn rows() -> impl Strategy<Value = (u64, u64, u64)> {
        (0u64..1200, 0u64..40, 0u64..300)
    }

    proptest! {
        #[test]
        fn copies_equal_a_copy_through_a_buffer((to, tp, ts) in rows(), (from, sp, ss) in rows(), same: bool, w in 0u64..40, h in 0u64..8, d in 0u64..4) {
            let (mapping, memory, base) = page();
            let (sp, ss) = if same { (tp, ts) } else { (sp, ss) };
            let mut model: Vec<u8> = (0..SIZE).map(|i| (i * 7 + i / 256) as u8).collect();
            prop_assert!(mapping.write(0, &model));
            let before = model.clone();
            // Rows of the target must not overlap one another, or the result depends on the order.
            prop_assume!((tp >= w || h < 2) && (ts >= tp * h.max(1) + w || d < 2));
            for z in 0..d { for y in 0..h { for x in 0..w {
                model[(to + z * ts + y * tp + x) as usize] = before[(from + z * ss + y * sp + x) as usize];
            }}}
            let work = Work::Copy {
                target: Rows { address: base + to, pitch: tp, slice: ts },
                source: Rows { address: base + from, pitch: sp, slice: ss },
                extent: CopyExtent { width: w, height: h, depth: d },
            };
            prop_assert_eq!(run(&work, &memory), StepEnd::Done);
            let mut got = vec![0; SIZE];
            prop_assert!(mapping.read(0, &mut got));
            prop_assert_eq!(got, model);
        }

        #[test]
        fn sets_fill_exactly_the_rectangle(at in 0u64..200, element in prop_oneof![Just(1u32), Just(2), Just(4)], value: u32, pad in 0u64..9, w in 0u64..50, h in 0u64..9) {
            let (mapping, memory, base) = page();
            let e = u64::from(element);
            let (at, pitch) = (at * e, (w + pad) * e);
            let mut model = vec![0x5a; SIZE];
            prop_assert!(mapping.write(0, &model));
            for y in 0..h { for x in 0..w { for b in 0..e {
                model[(at + y * pitch + x * e + b) as usize] = value.to_le_bytes()[b as usize];
            }}}
            let work = Work::Set { target: base + at, pitch, value, element, width: w, height: h };
            prop_assert_eq!(run(&work, &memory), StepEnd::Done);
            let mut got = vec![0; SIZE];
            prop_assert!(mapping.read(0, &mut got));
            prop_assert_eq!(got, model);
        }
    }

    #[test]
    fn the_first_byte_outside_is_named() {
        let (_mapping, memory, base) = page();
        let end = base + SIZE as u64;
        let rows = |address| Rows { address, pitch: 0, slice: 0 };
        let extent = CopyExtent { width: 16, height: 1, depth: 1 };
        let over = Work::Copy { target: rows(end - 15), source: rows(base), extent };
        assert_eq!(run(&over, &memory), StepEnd::Refused(end, MemoryFault::OutOfBounds));
        let exact = Work::Copy { target: rows(end - 16), source: rows(base), extent };
        assert_eq!(run(&exact, &memory), StepEnd::Done);
        let set = Work::Set { target: end - 4, pitch: 0, value: 1, element: 4, width: 2, height: 1 };
        assert_eq!(run(&set, &memory), StepEnd::Refused(end, MemoryFault::OutOfBounds));
        let odd = Work::Set { target: base + 2, pitch: 0, value: 1, element: 4, width: 1, height: 1 };
        assert_eq!(run(&odd, &memory), StepEnd::Misaligned(base + 2));
        assert_eq!(run(&Work::WriteValue { address: base + 4, value: 1, bytes: 8 }, &memory), StepEnd::Misaligned(base + 4));
    }
}
