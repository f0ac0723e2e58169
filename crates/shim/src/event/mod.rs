//! Events: a point in a stream. An event without timing is a pair of numbers and costs no record;
//! one with timing is a record that writes the time into a cell of the page.

mod calls;
mod shared;

pub use calls::*;
pub(crate) use shared::{Cell, make};

use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::context::Context;
use crate::ffi::{Try, error};
use crate::handle::{Kind, Table};
use crate::stream::CapturePoint;
use crate::sync::lock;
use cumux_abi::CUevent;
use cumux_wire::layout::EVENTS as TIME_CELLS;
use cumux_wire::record::Op;
use std::sync::{Arc, Mutex};

/// All events.
pub(crate) static EVENTS: Table<Event> = Table::new(Kind::Event);

/// The time cells of the page.
static CELLS: Mutex<Cells> = Mutex::new(Cells { free: Vec::new(), used: 0 });

/// Which time cells of the page are free.
#[derive(Debug)]
pub(crate) struct Cells {
    free: Vec<u32>,
    /// How many were ever taken.
    used: u32,
}

impl Cells {
    fn take_cell(&mut self) -> Option<u32> {
        if let Some(cell) = self.free.pop() {
            return Some(cell);
        }
        let cell = self.used;
        ((cell as usize) < TIME_CELLS).then(|| self.used += 1)?;
        Some(cell)
    }
}

/// Where an event was recorded last: a context may have many streams, so there can be several
/// points; each is (timeline, sequence).
#[derive(Debug, Clone, Default)]
enum Recorded {
    #[default]
    Never,
    At(TimelineId, u64),
    Many(Vec<(TimelineId, u64)>),
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// The word that the program holds.
    pub handle: u64,
    /// Id of its context.
    pub context: u64,
    /// Time cell, if timing is wanted.
    cell: Option<u32>,
    /// Where it is kept, if it is one for other processes.
    pub(crate) shared: Option<Cell>,
    recorded: Mutex<Recorded>,
    /// Set while the last record was made in a capture: the node it stands for.
    pub(crate) captured: Mutex<Option<CapturePoint>>,
}

impl Event {
    /// Whether all that it stands for is done.
    ///
    /// # Errors
    /// As [`Connection::settled`].
    pub(crate) fn query(&self, session: &Connection) -> Try<bool> {
        session.settled(self.is_done(session))
    }

    fn is_done(&self, session: &Connection) -> bool {
        if let Some(cell) = self.shared {
            return shared::or_trouble(cell.is_reached(session));
        }
        match &*lock(&self.recorded) {
            Recorded::Never => true,
            Recorded::At(timeline, seq) => session.is_done(*timeline, *seq),
            Recorded::Many(points) => points.iter().all(|(timeline, seq)| session.is_done(*timeline, *seq)),
        }
    }

    /// The points that it stands for; `None` for an event of other processes.
    fn points(&self) -> Option<Vec<(TimelineId, u64)>> {
        if self.shared.is_some() {
            return None;
        }
        Some(match &*lock(&self.recorded) {
            Recorded::Never => Vec::new(),
            Recorded::At(timeline, seq) => vec![(*timeline, *seq)],
            Recorded::Many(points) => points.clone(),
        })
    }

    /// The stream in which it was recorded, where that is one.
    fn stream_index(&self) -> Option<u32> {
        match &*lock(&self.recorded) {
            Recorded::At(timeline, _) => Some(timeline.index),
            Recorded::Never | Recorded::Many(_) => None,
        }
    }

    /// Gives the time cell back.
    pub(crate) fn release(&self, session: &Connection) {
        if let Some(cell) = self.shared {
            return cell.release(session);
        }
        // A record still under way would write into the next owner's cell: such a cell is not used
        // again.
        if let Some(cell) = self.cell.filter(|_| self.is_done(session)) {
            lock(&CELLS).free.push(cell);
        }
    }
}

/// The event a handle names.
pub(crate) fn named(event: CUevent) -> Try<Arc<Event>> {
    EVENTS.get(event.addr() as u64).ok_or(error::INVALID_HANDLE)
}

/// Records an event on a timeline; returns the sequence that it stands for.
pub(crate) fn record_in(session: &Connection, event: &Event, timeline: TimelineId) -> Try<u64> {
    // The lock is held across the push: of two threads that record one event, the later push is the
    // one remembered.
    let mut recorded = lock(&event.recorded);
    let seq = match event.cell {
        _ if let Some(cell) = event.shared => cell.record(session, timeline)?,
        Some(cell) => session.push(timeline, &Op::EventTime { event: cell })?,
        None => session.point(timeline)?,
    };
    *recorded = Recorded::At(timeline, seq);
    Ok(seq)
}

/// Makes a timeline wait for an event.
pub(crate) fn hold_timeline(session: &Connection, target: TimelineId, event: &Event) -> Try {
    if let Some(cell) = event.shared {
        return cell.hold(session, target);
    }
    let recorded = lock(&event.recorded).clone();
    match recorded {
        Recorded::Never => Ok(()),
        Recorded::At(timeline, seq) => session.hold_timeline(target, timeline, seq),
        Recorded::Many(points) => points.into_iter().try_for_each(|(timeline, seq)| session.hold_timeline(target, timeline, seq)),
    }
}

/// A context has ended: its events go.
pub(crate) fn end_context(session: &'static Connection, context: &Context) {
    for event in EVENTS.remove_all(|event| event.context == context.id) {
        event.release(session);
    }
}
