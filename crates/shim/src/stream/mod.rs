//! Streams: timelines of the ring with a handle, flags and a priority.

mod calls;
mod capture_point;

pub use calls::*;
pub use capture_point::{Capture, CapturePoint};

use crate::connection::Connection;
use crate::connection::pipe::{Role, TimelineId};
use crate::ffi::{Try, error};
use crate::handle::{Kind, Table};
use crate::process;
use crate::sync::lock;
use core::ffi::{c_int, c_uint};
use cumux_abi::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUresult, CUstream};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// All streams with a handle.
pub(crate) static STREAMS: Table<Stream> = Table::new(Kind::Stream);

/// Handles of streams whose green context has been destroyed before them.
static ORPHANS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// What a stream must know of its context.
#[derive(Debug, Clone, Copy)]
pub struct Home {
    /// Id of the context.
    pub context: u64,
    /// Handle of the context.
    pub handle: u64,
    /// Ordinal of its device.
    pub device: u32,
    /// The group of its timelines.
    pub group: u32,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// 0 for default streams, which have no entry in the table.
    pub handle: u64,
    /// A number that no other stream of this process ever has.
    pub id: u64,
    /// Id of its context.
    pub context: u64,
    /// Handle of its context.
    pub context_handle: u64,
    /// Ordinal of its device.
    pub device: u32,
    /// Its timeline in the ring.
    pub timeline: TimelineId,
    /// What it is to its context's NULL stream.
    pub role: Role,
    flags: c_uint,
    priority: c_int,
    /// Attributes as the program set them: number and the 64 bytes of value.
    attributes: Mutex<Vec<(u32, [u64; 8])>>,
    /// While it captures: which capture, and where in it.
    pub(crate) capture: Mutex<Option<CapturePoint>>,
}

impl Stream {
    fn new(home: Home, handle: u64, role: Role, timeline: TimelineId, flags: c_uint, priority: c_int) -> Arc<Self> {
        Arc::new(Self {
            handle,
            id: process::new_number(),
            context: home.context,
            context_handle: home.handle,
            device: home.device,
            timeline,
            role,
            flags,
            priority,
            attributes: Mutex::new(Vec::new()),
            capture: Mutex::new(None),
        })
    }

    /// A context's NULL stream or a thread's default stream.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when all stream indices are in use.
    pub fn default_of(session: &Connection, home: Home, role: Role) -> Try<Arc<Self>> {
        let timeline = session.new_timeline(home.group, role, home.device, 0)?;
        Ok(Self::new(home, 0, role, timeline, 0, 0))
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUstream {
        match (self.handle, self.role) {
            (0, Role::Legacy) => CU_STREAM_LEGACY,
            (0, _) => CU_STREAM_PER_THREAD,
            (handle, _) => core::ptr::without_provenance_mut(handle as usize),
        }
    }
}

/// Why a handle names no stream.
pub(crate) fn missing(handle: u64) -> CUresult {
    if lock(&ORPHANS).contains(&handle) { error::CONTEXT_IS_DESTROYED } else { error::INVALID_HANDLE }
}

/// A green context has been destroyed before its streams: their handles are told apart from
/// invented ones from now on, also by whoever destroys them late.
pub(crate) fn orphan(session: &Connection, context_handle: u64) {
    for stream in STREAMS.remove_all(|stream| stream.context_handle == context_handle) {
        lock(&ORPHANS).insert(stream.handle);
        session.free_timeline(stream.timeline);
    }
}
