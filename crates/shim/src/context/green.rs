//! Green contexts as contexts: a part of the share, and the primary context whose objects they use.
//! What the program holds of them is above, in `green`.

use super::{Context, Kindred, forget, primary};
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error};
use crate::process;
use crate::stream::{STREAMS, Stream};
use crate::sync::lock;
use cumux_abi::{CUdevice, CUgreenCtx};
use cumux_wire::positions::SmPositions;
use cumux_wire::record::Op;
use std::sync::{Arc, OnceLock};

/// What makes a context a green one.
#[derive(Debug)]
pub(crate) struct Green {
    /// The context whose objects it uses.
    pub(crate) primary: Arc<Context>,
    /// Its multiprocessors.
    pub(crate) positions: SmPositions,
    /// They were split without regard to which are scheduled together.
    pub(crate) fine: bool,
    /// The word by which the program knows the green context, not the context.
    pub(crate) handle: OnceLock<u64>,
}

impl Context {
    /// A green context on these multiprocessors of the program's share. It retains the primary
    /// context.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when there are too many; what the executor says of the part.
    pub(crate) fn new_green(session: &'static Connection, device: CUdevice, positions: SmPositions, fine: bool) -> Try<Arc<Self>> {
        let primary = Arc::clone(primary(session, device)?);
        let partition = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
        let ordinal = primary.device;
        session.call(&Op::PartitionPlace { partition, device: ordinal, positions: positions.words() })?;
        primary.retain();
        let green = Green { primary: Arc::clone(&primary), positions, fine, handle: OnceLock::new() };
        let flags = lock(&primary.life).flags;
        let kindred = Kindred { device: ordinal, partition, multiprocessors: positions.count(), affine: true, primary: false, green: Some(green) };
        let made = Self::insert(session, kindred, flags);
        match &made {
            Ok(context) => lock(&primary.greens).push(Arc::clone(context)),
            Err(_) => {
                let _ = session.control(&Op::PartitionClose { partition });
                primary.release(session);
            }
        }
        made
    }

    /// Ends a green context whose objects have been ended, but for its default streams. The primary
    /// context is not released.
    pub(crate) fn end_green(self: &Arc<Self>, session: &Connection) {
        self.end_streams(session);
        lock(&self.root().greens).retain(|other| !Arc::ptr_eq(other, self));
        forget(self);
    }

    /// Whether its streams run on a part of the share that the device has chosen.
    pub(crate) fn has_own_part(&self) -> bool {
        self.partition != 0 && self.green.is_none()
    }

    /// The context whose objects it uses: itself, or the primary context of a green one.
    pub(crate) fn root(&self) -> &Context {
        self.green.as_ref().map_or(self, |green| &green.primary)
    }

    /// The handle of a green context as C has it, null for other contexts.
    pub(crate) fn green_handle(&self) -> CUgreenCtx {
        let handle = self.green.as_ref().and_then(|green| green.handle.get()).copied().unwrap_or(0);
        core::ptr::without_provenance_mut(handle as usize)
    }

    /// Its green contexts.
    pub(crate) fn greens(&self) -> Vec<Arc<Context>> {
        lock(&self.greens).clone()
    }

    /// Waits for all its work, and for that of its green contexts.
    ///
    /// # Errors
    /// As [`Connection::drain`].
    pub(crate) fn drain_all_streams(&self, session: &Connection) -> Try {
        session.drain(self.group)?;
        self.greens().iter().try_for_each(|green| session.drain(green.group))
    }

    /// Unfinished points of all its streams, and of those of its green contexts.
    pub(crate) fn points(&self, session: &Connection) -> Vec<(TimelineId, u64)> {
        let mut points = session.points(self.group);
        points.extend(self.greens().iter().flat_map(|green| session.points(green.group)));
        points
    }

    /// Its streams with a handle, without those of its green contexts.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        STREAMS.all(|stream| stream.context_handle == self.handle)
    }

    /// Its default streams that there are.
    pub(crate) fn default_streams(&self) -> Vec<Arc<Stream>> {
        self.legacy.get().into_iter().chain(lock(&self.per_thread).iter()).map(Arc::clone).collect()
    }

    /// Streams made from now on wait for these points first.
    pub(crate) fn hold_later(&self, session: &Connection, points: &[(TimelineId, u64)]) {
        let mut held = lock(&self.held);
        held.retain(|(timeline, seq)| !session.is_done(*timeline, *seq));
        held.extend(points);
    }

    /// Makes a new stream wait for what its context waits for.
    ///
    /// # Errors
    /// As [`Connection::hold_timeline`].
    pub(crate) fn hold_new(&self, session: &Connection, made: TimelineId) -> Try {
        let held = lock(&self.held).clone();
        held.into_iter().try_for_each(|(timeline, seq)| session.hold_timeline(made, timeline, seq))
    }
}
