//! What is submitted to a stream.

use crate::takeover::Resume;
use cumux_wire::record::{CopyEnd, CopyExtent, Launch};

/// One piece of stream work.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are described with their work")]
pub enum Work {
    /// Runs a kernel.
    Kernel(Kernel),
    /// Copies between device memory and the client's window, in any combination.
    Copy { target: Rows, source: Rows, extent: CopyExtent },
    /// As `Copy`, where at least one end is an array of the client ([`crate::Textures`]).
    ArrayCopy { target: CopyEnd, source: CopyEnd, extent: CopyExtent },
    /// Fills `width` elements of `element` bytes (1, 2 or 4) in each of `height` rows, `pitch`
    /// bytes apart.
    Set { target: u64, pitch: u64, value: u32, element: u32, width: u64, height: u64 },
    /// Stores the low `bytes` (4 or 8) bytes of `value`.
    WriteValue { address: u64, value: u64, bytes: u32 },
    /// Does nothing; it is reported when the stream reaches it.
    Nop,
}

/// A kernel launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// What to run, and with which dimensions and parameters.
    pub launch: Launch,
    /// The part that a predecessor has already done before it died: from
    /// [`crate::Takeover::recover`].
    pub resume: Option<Resume>,
}

/// One side of a copy. Numbers are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rows {
    /// Address of the first byte.
    pub address: u64,
    /// From row to row.
    pub pitch: u64,
    /// From slice to slice.
    pub slice: u64,
}
