//! Driver streams, and work in them other than kernels.

use super::CardAddress;
use super::context::Driver;
use super::green;
use super::handle::Stream;
use crate::fault::{Call, CudaError};
use core::ptr::null_mut;
use cumux_abi::types as t;

/// The copy of a rectangle of bytes, or of several slices of rectangles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RectangleCopy {
    /// The address of the target's first byte.
    pub target: CardAddress,
    /// Bytes from row to row of the target.
    pub target_pitch: u64,
    /// Rows from slice to slice of the target.
    pub target_rows: u64,
    /// The address of the source's first byte.
    pub source: CardAddress,
    /// Bytes from row to row of the source.
    pub source_pitch: u64,
    /// Rows from slice to slice of the source.
    pub source_rows: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// The number of slices.
    pub depth: u64,
}

/// Setting memory: `width` elements of `element` bytes in each of `height` rows to one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemorySet {
    /// The address of the first byte.
    pub target: CardAddress,
    /// Bytes from row to row.
    pub pitch: u64,
    /// The value of each element, in the low `element` bytes.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements of a row.
    pub width: u64,
    /// The number of rows.
    pub height: u64,
}

impl Driver {
    /// Creates a driver stream of this priority (lower is more urgent) on the whole card.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_stream(&self, priority: i32) -> Call<Stream> {
        let mut stream = null_mut();
        let flags = t::CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        // SAFETY: the call writes one handle, a local.
        CudaError::check(unsafe { (self.table()?.cuStreamCreateWithPriority)(&raw mut stream, flags, priority) })?;
        Ok(Stream::of(stream))
    }

    /// Creates a driver stream of this priority on the whole card, to which this engine alone
    /// submits.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_engine_stream(&self, engine: usize, priority: i32) -> Call<Stream> {
        match self.engine_context(engine) {
            Some(context) => Ok(Stream::of_engine(green::create_stream(self.table()?, context, priority)?)),
            None => self.create_stream(priority),
        }
    }

    /// Destroys a driver stream. The caller is its owner.
    pub(crate) fn destroy_stream(&self, stream: Stream) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of a live stream.
            let _ = unsafe { (table.cuStreamDestroy_v2)(stream.raw()) };
        }
    }

    /// True if all work of the stream is done.
    ///
    /// # Errors
    /// The driver's. Errors of the whole context show here, too.
    pub(crate) fn is_idle(&self, stream: Stream) -> Call<bool> {
        // SAFETY: a live stream.
        match CudaError::check(unsafe { (self.table()?.cuStreamQuery)(stream.raw()) }) {
            Ok(()) => Ok(true),
            Err(CudaError::NOT_READY) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until all work of the stream is done.
    ///
    /// # Errors
    /// The driver's. Errors of the whole context show here, too.
    pub(crate) fn synchronize(&self, stream: Stream) -> Call<()> {
        // SAFETY: a live stream.
        CudaError::check(unsafe { (self.table()?.cuStreamSynchronize)(stream.raw()) })
    }

    /// Queues a copy of one row of bytes. If source and target overlap, the result is undefined.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn copy_row(&self, target: CardAddress, source: CardAddress, bytes: u64, stream: Stream) -> Call<()> {
        let _turn = self.submission.enter(stream);
        // SAFETY: card addresses and a live stream.
        CudaError::check(unsafe { (self.table()?.cuMemcpyAsync)(target, source, bytes as usize, stream.raw()) })
    }

    /// Queues a copy of a rectangle.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn copy_rectangle(&self, copy: &RectangleCopy, stream: Stream) -> Call<()> {
        let _turn = self.submission.enter(stream);
        let kind = t::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        if copy.depth == 1 {
            let plane = t::CUDA_MEMCPY2D {
                srcMemoryType: kind,
                srcDevice: copy.source,
                srcPitch: copy.source_pitch as usize,
                dstMemoryType: kind,
                dstDevice: copy.target,
                dstPitch: copy.target_pitch as usize,
                WidthInBytes: copy.width as usize,
                Height: copy.height as usize,
                ..t::CUDA_MEMCPY2D::default()
            };
            // SAFETY: card addresses and a live stream; the call reads one local.
            return CudaError::check(unsafe { (self.table()?.cuMemcpy2DAsync_v2)(&raw const plane, stream.raw()) });
        }
        let cuboid = t::CUDA_MEMCPY3D {
            srcMemoryType: kind,
            srcDevice: copy.source,
            srcPitch: copy.source_pitch as usize,
            srcHeight: copy.source_rows as usize,
            dstMemoryType: kind,
            dstDevice: copy.target,
            dstPitch: copy.target_pitch as usize,
            dstHeight: copy.target_rows as usize,
            WidthInBytes: copy.width as usize,
            Height: copy.height as usize,
            Depth: copy.depth as usize,
            ..t::CUDA_MEMCPY3D::default()
        };
        // SAFETY: card addresses and a live stream; the call reads one local.
        CudaError::check(unsafe { (self.table()?.cuMemcpy3DAsync_v2)(&raw const cuboid, stream.raw()) })
    }

    /// Queues setting memory.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn set_memory(&self, set: &MemorySet, stream: Stream) -> Call<()> {
        let _turn = self.submission.enter(stream);
        let (table, stream) = (self.table()?, stream.raw());
        let MemorySet { target, value, element, .. } = *set;
        let (pitch, width, height) = (set.pitch as usize, set.width as usize, set.height as usize);
        // SAFETY: a card address and a live stream, in each arm.
        CudaError::check(unsafe {
            match (element, height) {
                (1, 1) => (table.cuMemsetD8Async)(target, value as u8, width, stream),
                (2, 1) => (table.cuMemsetD16Async)(target, value as u16, width, stream),
                (_, 1) => (table.cuMemsetD32Async)(target, value, width, stream),
                (1, _) => (table.cuMemsetD2D8Async)(target, pitch, value as u8, width, height, stream),
                (2, _) => (table.cuMemsetD2D16Async)(target, pitch, value as u16, width, height, stream),
                (_, _) => (table.cuMemsetD2D32Async)(target, pitch, value, width, height, stream),
            }
        })
    }

    /// Queues storing the low `bytes` (4 or 8) bytes of `value`. A reader that sees the value also
    /// sees what the stream did before.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn write_value(&self, address: CardAddress, value: u64, bytes: u32, stream: Stream) -> Call<()> {
        let table = self.table()?;
        let _turn = self.submission.enter(stream);
        // SAFETY: a card address and a live stream, in both branches.
        CudaError::check(unsafe {
            if bytes == 4 {
                (table.cuStreamWriteValue32_v2)(stream.raw(), address, value as u32, 0)
            } else {
                (table.cuStreamWriteValue64_v2)(stream.raw(), address, value, 0)
            }
        })
    }
}
