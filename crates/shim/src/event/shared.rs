//! Events for other processes. Such an event has a cell in device memory, which each process that
//! has the event can reach; `cumux_wire::record::event_cell` says what is in it.
//!
//! To record means to ask for a number, and to have the stream write it into the cell. To wait
//! means to ask for the last number, and to wait for it in the cell. The executor answers while a
//! record is made, so who waits after the recording call has returned, in whichever process, waits
//! for it.

use super::Event;
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error};
use crate::handle::Table;
use crate::loan;
use crate::log::unsupported;
use core::time::Duration;
use cumux_abi::CUevent;
use cumux_wire::cuda::WaitCondition;
use cumux_wire::record::{Op, event_cell};
use std::sync::{Arc, Mutex};

/// How often a thread looks that waits for an event which another process may have recorded.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Where the cell of an event for other processes lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// This program has made the event.
    Own(u64),
    /// Another one has.
    Borrowed(u64),
}

impl Cell {
    fn address(self) -> u64 {
        match self {
            Self::Own(address) | Self::Borrowed(address) => address,
        }
    }

    /// A cell for a new event.
    ///
    /// # Errors
    /// OUT_OF_MEMORY.
    pub(crate) fn new(session: &Connection, device: u32) -> Try<Self> {
        let [address, ..] = session.call(&Op::MemAlloc { device, bytes: event_cell::BYTES, align: event_cell::BYTES })?;
        let cell = Self::Own(address);
        cell.ask(session, event_cell::CLEAR)?;
        Ok(cell)
    }

    /// The number of the last record, and whether it has been reached.
    fn ask(self, session: &Connection, action: u32) -> Try<(u64, bool)> {
        let [recorded, reached, ..] = session.call(&Op::EventCell { address: self.address(), action })?;
        Ok((recorded, reached != 0))
    }

    /// Records the event; returns the sequence number of the piece of work that says so.
    pub(super) fn record(self, session: &Connection, timeline: TimelineId) -> Try<u64> {
        let (number, _) = self.ask(session, event_cell::RECORD)?;
        session.push(timeline, &Op::ValueWrite { address: self.address() + event_cell::place_of(number), value: number, bytes: 8 })
    }

    /// Makes a timeline wait for the last record.
    pub(super) fn hold(self, session: &Connection, timeline: TimelineId) -> Try {
        let (number, reached) = self.ask(session, event_cell::LOOK)?;
        if reached {
            return Ok(());
        }
        let condition = WaitCondition::CU_STREAM_WAIT_VALUE_GEQ.0;
        session.push(timeline, &Op::ValueWait { address: self.address() + event_cell::place_of(number), value: number, bytes: 8, condition }).map(drop)
    }

    /// Whether the last record has been reached.
    pub(super) fn is_reached(self, session: &Connection) -> Try<bool> {
        self.ask(session, event_cell::LOOK).map(|(_, reached)| reached)
    }

    /// Waits until the record that is the last one now, or a later one, has been reached.
    pub(super) fn wait(self, session: &Connection) -> Try {
        while !self.is_reached(session)? {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The event has ended.
    pub(super) fn release(self, session: &Connection) {
        // A session that is lost has nothing left to give back.
        let _ = match self {
            Self::Own(address) => session.control(&Op::MemFree { address }),
            Self::Borrowed(address) => loan::close(session, address).map(drop),
        };
    }
}

/// A new event; none when a million are in use.
pub(crate) fn make(events: &Table<Event>, context: u64, cell: Option<u32>, shared: Option<Cell>) -> Option<CUevent> {
    let make = |handle| Arc::new(Event { handle, context, cell, shared, recorded: Mutex::default(), captured: Mutex::default() });
    let (handle, _) = events.insert(make)?;
    Some(core::ptr::without_provenance_mut(handle as usize))
}

/// What an event for other processes cannot do.
pub(super) fn refuse(event: &Event, what: &'static str) -> Try {
    if event.shared.is_some() { Err(unsupported(what)) } else { Ok(()) }
}

/// What is asked of a session in trouble has the answer of that session.
pub(super) fn or_trouble(reached: Try<bool>) -> bool {
    reached.unwrap_or_else(|code| code != error::NOT_READY)
}
