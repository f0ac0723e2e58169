//! A copy that has been checked, and how it runs. Memory that the executor knows (device, pinned,
//! registered, managed) is one record. The program's private memory travels through staging slices,
//! in bands of rows that fit a slice.
//!
//! A copy from private memory may return when the last band is staged; a copy to private memory
//! returns when the bytes are there.

use crate::bands::{Band, Side, bands, pieces};
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::connection::staging::Taken;
use crate::ffi::Try;
use cumux_wire::record::{CopyEnd, CopyExtent, Op};
use std::collections::VecDeque;

/// Bands of a copy to private memory that are under way at once.
const AHEAD: usize = 4;

/// A copy, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Where the bytes go.
    pub target: Side,
    /// Where they come from.
    pub source: Side,
    /// How many there are.
    pub extent: CopyExtent,
}

impl Transfer {
    /// Rows that follow one another without a gap are one row.
    fn flattened(mut self) -> Self {
        if self.target.array.or(self.source.array).is_some() {
            return self;
        }
        let CopyExtent { width, height, depth } = self.extent;
        let dense = |side: &Side| (height == 1 || side.pitch == width) && (depth == 1 || side.slice == width * height);
        if dense(&self.target) && dense(&self.source) {
            self.extent = CopyExtent { width: width * height * depth, height: 1, depth: 1 };
        }
        self
    }

    /// Whether there is nothing to copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.extent.width == 0 || self.extent.height == 0 || self.extent.depth == 0
    }

    /// The record of a copy between two places that the executor knows.
    pub(crate) fn record(target: Side, source: Side, extent: CopyExtent) -> Op {
        if target.array.or(source.array).is_some() {
            return Op::ArrayCopy { target: end(&target), source: end(&source), extent };
        }
        Op::Copy {
            target: target.address,
            target_pitch: target.pitch,
            target_slice: target.slice,
            source: source.address,
            source_pitch: source.pitch,
            source_slice: source.slice,
            extent,
        }
    }

    /// Runs the copy in a stream. Returns when the program may change or read its private memory.
    ///
    /// # Safety
    /// A private side is readable (source) or writable (target) memory of the program.
    ///
    /// # Errors
    /// As [`Connection::wait`].
    pub unsafe fn run(&self, session: &Connection, timeline: TimelineId) -> Try {
        let this = self.flattened();
        match (this.source.private, this.target.private) {
            (false, false) => pieces(this.extent)
                .try_for_each(|(z, y, extent)| session.push(timeline, &Self::record(this.target.at(z, y), this.source.at(z, y), extent)).map(drop)),
            // SAFETY: the caller promises a readable source.
            (true, false) => unsafe { this.send(session, timeline) },
            // SAFETY: the caller promises a writable target.
            (false, true) => unsafe { this.fetch(session, timeline) },
            (true, true) => {
                session.drain_timeline(timeline)?;
                for band in bands(this.extent) {
                    // SAFETY: the caller promises a readable source and a writable target.
                    unsafe { rows(band.at(&this.source), this.source.pitch, band.at(&this.target), this.target.pitch, band) };
                }
                Ok(())
            }
        }
    }

    /// From private memory.
    ///
    /// # Safety
    /// The source is readable memory of the program.
    unsafe fn send(&self, session: &Connection, timeline: TimelineId) -> Try {
        for band in bands(self.extent) {
            let slice = session.take_slice(band.bytes())?;
            // SAFETY: the caller promises a readable source; the slice is ours and long enough.
            unsafe { rows(band.at(&self.source), self.source.pitch, slice.address, band.width, band) };
            let (target, source) = (part(&self.target, band), staged(slice, band));
            let sent = session.push(timeline, &Self::record(target, source, CopyExtent { width: band.width, height: band.rows, depth: 1 }));
            session.hold_slice_until(slice, sent.as_ref().ok().map(|seq| (timeline, *seq)));
            sent?;
        }
        Ok(())
    }

    /// To private memory.
    ///
    /// # Safety
    /// The target is writable memory of the program.
    unsafe fn fetch(&self, session: &Connection, timeline: TimelineId) -> Try {
        let mut under_way: VecDeque<(Band, Taken, u64)> = VecDeque::with_capacity(AHEAD);
        let finish = |(band, slice, seq): (Band, Taken, u64)| {
            session.wait(|| session.is_done(timeline, seq))?;
            // Nothing has come if there was a fault.
            session.health()?;
            // SAFETY: the caller promises a writable target; the slice is ours and has been filled.
            unsafe { rows(slice.address, band.width, band.at(&self.target), self.target.pitch, band) };
            session.hold_slice_until(slice, None);
            Ok(())
        };
        for band in bands(self.extent) {
            if under_way.len() == AHEAD
                && let Some(oldest) = under_way.pop_front()
            {
                finish(oldest)?;
            }
            let slice = session.take_slice(band.bytes())?;
            let (target, source) = (staged(slice, band), part(&self.source, band));
            match session.push(timeline, &Self::record(target, source, CopyExtent { width: band.width, height: band.rows, depth: 1 })) {
                Ok(seq) => under_way.push_back((band, slice, seq)),
                Err(code) => {
                    session.hold_slice_until(slice, None);
                    return Err(code);
                }
            }
        }
        under_way.into_iter().try_for_each(finish)
    }
}

/// A side as a record names it where an array takes part.
fn end(side: &Side) -> CopyEnd {
    match &side.array {
        Some(array) => CopyEnd::Array { array: array.number, level: array.level, at: side.place(array) },
        None => CopyEnd::Memory { address: side.address, pitch: side.pitch, slice: side.slice },
    }
}

/// The part of a side that a band covers.
pub(crate) fn part(side: &Side, band: Band) -> Side {
    Side { address: band.at(side), slice: 0, ..*side }
}

/// A band in its staging slice, as a side.
pub(crate) fn staged(slice: Taken, band: Band) -> Side {
    Side::known(slice.address, band.width, 0)
}

/// Copies the rows of a band between two places of this process.
///
/// # Safety
/// All bytes of both rectangles are valid memory; they may overlap.
unsafe fn rows(source: u64, source_pitch: u64, target: u64, target_pitch: u64, band: Band) {
    for row in 0..band.rows {
        let from = core::ptr::with_exposed_provenance::<u8>((source + row * source_pitch) as usize);
        let to = core::ptr::with_exposed_provenance_mut::<u8>((target + row * target_pitch) as usize);
        // SAFETY: the caller promises that all bytes of both rectangles are valid.
        unsafe { core::ptr::copy(from, to, band.width as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bands::ArraySide;

    #[test]
    fn dense_rectangles_become_one_line() {
        let side = |pitch, slice| Side::known(4096, pitch, slice);
        let of = |source, target| Transfer { target, source, extent: CopyExtent { width: 10, height: 4, depth: 2 } }.flattened().extent;
        assert_eq!(of(side(10, 40), side(10, 40)), CopyExtent { width: 80, height: 1, depth: 1 });
        assert_eq!(of(side(16, 64), side(10, 40)).height, 4);
        assert_eq!(of(side(10, 48), side(10, 40)).height, 4);
    }

    #[test]
    fn an_array_is_named_by_its_parts() {
        let array = ArraySide { handle: 1, number: 7, level: 2, rows: 5, device: 0, context: 1 };
        // Rows of 40 bytes; from byte 8 of row 3 of slice 2.
        let side = Side { array: Some(array), ..Side::known(2 * 200 + 3 * 40 + 8, 40, 200) };
        let memory = Side::known(0x1000, 16, 32);
        let extent = CopyExtent { width: 16, height: 2, depth: 1 };
        let Op::ArrayCopy { target, source, .. } = Transfer::record(side, memory, extent) else { panic!("no copy of an array") };
        assert_eq!((target, source), (CopyEnd::Array { array: 7, level: 2, at: [8, 3, 2] }, CopyEnd::Memory { address: 0x1000, pitch: 16, slice: 32 }));
        let band = Band { x: 4, y: 1, z: 1, width: 4, rows: 1 };
        assert_eq!(end(&part(&side, band)), CopyEnd::Array { array: 7, level: 2, at: [12, 4, 3] });
        assert_eq!(end(&side.at(1, 1)), CopyEnd::Array { array: 7, level: 2, at: [8, 4, 3] });
        let dense = Transfer { target: Side { array: Some(array), ..Side::known(0, 16, 80) }, source: memory, extent };
        assert_eq!(dense.flattened(), dense, "rows of an array are not one line");
    }

    #[test]
    fn rows_are_copied_with_their_strides() {
        let source: Vec<u8> = (0..64).collect();
        let mut target = vec![0_u8; 64];
        let band = Band { x: 0, y: 0, z: 0, width: 3, rows: 2 };
        // SAFETY: both rectangles lie in the buffers.
        unsafe { rows(source.as_ptr().expose_provenance() as u64, 16, target.as_mut_ptr().expose_provenance() as u64, 8, band) };
        assert_eq!((&target[..3], &target[8..11], target[3]), (&[0, 1, 2][..], &[16, 17, 18][..], 0));
    }
}
