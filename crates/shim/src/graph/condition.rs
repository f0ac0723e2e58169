//! Conditions of graphs: words of device memory that kernels write to.
//!
//! The handle of a condition is the address of its word, which is what `cudaGraphSetConditional`
//! writes to on devices that say so (`Capabilities::sets_conditions`).

use crate::conditional;
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::Try;
use crate::process;
use crate::sync::lock;
use cumux_wire::record::{Op, event_cell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// A condition.
#[derive(Debug)]
pub struct Condition {
    /// Where its value lies.
    pub address: u64,
    /// Its value at the beginning of each launch.
    pub default: Option<u32>,
}

/// All conditions, by address.
static CONDITIONS: Mutex<BTreeMap<u64, Weak<Condition>>> = Mutex::new(BTreeMap::new());

impl Condition {
    /// The condition that a handle names.
    pub(super) fn find(handle: u64) -> Option<Arc<Self>> {
        lock(&CONDITIONS).get(&handle).and_then(Weak::upgrade)
    }

    /// A condition on a device.
    ///
    /// # Errors
    /// OUT_OF_MEMORY.
    pub(super) fn new(session: &Connection, device: u32, default: Option<u32>) -> Try<Arc<Self>> {
        let [address, ..] = session.call(&Op::MemAlloc { device, bytes: event_cell::BYTES, align: event_cell::BYTES })?;
        conditional::note_made();
        let condition = Arc::new(Self { address, default });
        session.call(&Op::EventCell { address, action: event_cell::CLEAR })?;
        lock(&CONDITIONS).insert(address, Arc::downgrade(&condition));
        Ok(condition)
    }

    /// What the kernels that are over have said.
    ///
    /// # Errors
    /// Those of a session in trouble.
    pub(super) fn value(&self, session: &Connection) -> Try<u32> {
        let [value, ..] = session.call(&Op::EventCell { address: self.address, action: event_cell::LOOK })?;
        Ok(value as u32)
    }

    /// Sets it as every launch begins.
    ///
    /// # Errors
    /// Those of a session in trouble.
    pub(super) fn assign_default(&self, session: &Connection, timeline: TimelineId) -> Try {
        let Some(value) = self.default else { return Ok(()) };
        session.push(timeline, &Op::Set { target: self.address, value, element: 4, width: 1, height: 1, pitch: 0 }).map(drop)
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        lock(&CONDITIONS).remove(&self.address);
        if let Ok(session) = process::find_connection() {
            // A session that is lost has nothing left to give back.
            let _ = session.control(&Op::MemFree { address: self.address });
        }
    }
}
