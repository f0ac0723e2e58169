//! Streams, and the work in them.

use crate::error::DeviceError;
use crate::ids::{ClientId, StreamId};
use crate::work::Work;

/// What a thread does of a device's own work ([`Queues::carry`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// Nothing: the device's own threads do it.
    Nothing,
    /// It would, and there was nothing to do.
    Idle,
    /// It has done something.
    Progress,
}

/// Makes streams and takes work for them.
pub trait Queues {
    /// Makes a queue for one client. A lower `priority` is more urgent.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when there are too many.
    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError>;

    /// As [`Queues::create_stream`], with kernels on a partition of the client's share (0 = the
    /// whole share).
    ///
    /// # Errors
    /// As [`Queues::create_stream`], and [`DeviceError::Invalid`] for an unknown partition.
    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        match partition {
            0 => self.create_stream(client, priority),
            _ => Err(DeviceError::NotSupported("the share of a client cannot be divided".into())),
        }
    }

    /// Destroys a stream that has drained.
    fn destroy_stream(&self, stream: StreamId);

    /// Queues work. `token` comes back in [`crate::Sink::retired`]; tokens of a client grow.
    ///
    /// # Errors
    /// Only for an unknown stream or a lost device; what is wrong with the work itself is reported
    /// as its outcome.
    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError>;

    /// Queues several pieces of work for one stream, in order, and empties the list. As
    /// [`Queues::submit`] for each, but cheaper together.
    ///
    /// # Errors
    /// As [`Queues::submit`]; pieces before the one that failed are queued.
    fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        work.drain(..).try_for_each(|(token, work)| self.submit(stream, token, work))
    }

    /// A thread that submits the work of clients may *carry* what one of the device's threads would
    /// do for them: it calls this again and again, and holds no lock meanwhile. Each call does a
    /// round of it, and reports what is complete. `lane` is the thread's number, by which clients
    /// name it ([`crate::ClientSpec::lane`]); `moved` is true if it has had something to do since
    /// its last call. The device decides when it is carried. Before the thread sleeps, waits for
    /// anything, or calls anything of the device but [`Queues::submit_all`], it calls
    /// [`Queues::put_down`].
    fn carry(&self, lane: usize, moved: bool) -> Carried {
        let _ = (lane, moved);
        Carried::Nothing
    }

    /// The calling thread carries nothing from now on. Costs nothing where it carries nothing.
    fn put_down(&self) {}
}
