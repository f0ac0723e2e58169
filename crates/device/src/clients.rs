//! The clients of a device.

use crate::error::DeviceError;
use crate::ids::ClientId;
use crate::report::{Begun, Fault};
use cumux_wire::cuda::Limit;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A thread that takes in the work of some clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Its number.
    pub number: usize,
    /// How many such threads there are.
    pub of: usize,
}

/// Per-client settings.
#[derive(Debug, Clone, Default)]
pub struct ClientSpec {
    /// SMs the client's kernels may use; 0 = all.
    pub multiprocessors: u32,
    /// 0 normal, 1 below normal. Work of a below-normal client yields to that of normal ones,
    /// whatever the priorities of its streams are.
    pub priority: u32,
    /// Static partitioning: exactly these SMs, in place of a count. Empty otherwise.
    pub sms: Vec<u32>,
    /// The SMs of this client, which is open, in place of a count: clients of one group run on the
    /// same SMs.
    pub beside: Option<ClientId>,
    /// The device's number among those that the client sees. Kernels may ask for it.
    pub ordinal: u32,
    /// How many devices the client sees; 0 counts as 1.
    pub visible: u32,
    /// The thread that takes in this client's work, if it may carry work of the device
    /// ([`crate::Queues::carry`]).
    pub lane: Option<Lane>,
}

/// What a device has counted for a client since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Kernels that went to the card together with others, in one call of the driver.
    pub coalesced: u64,
    /// Times a module load or the like waited for a moment without long kernels.
    pub quiets: u64,
    /// Nanoseconds of these waits.
    pub quiet_ns: u64,
    /// Times its work waited until memory of its window was pinned.
    pub registrations: u64,
}

impl ClientCounters {
    /// The sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            coalesced: self.coalesced.saturating_add(other.coalesced),
            quiets: self.quiets.saturating_add(other.quiets),
            quiet_ns: self.quiet_ns.saturating_add(other.quiet_ns),
            registrations: self.registrations.saturating_add(other.registrations),
        }
    }
}

/// Opens and closes clients.
pub trait Clients {
    /// Adds a client. A number may be used again after [`Clients::close_client`].
    ///
    /// # Errors
    /// [`DeviceError::System`] when the marks cannot be mapped.
    fn open_client(&self, client: ClientId, spec: &ClientSpec, marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError>;

    /// Stops the client's running blocks, reports its queued work as [`crate::Outcome::Cancelled`],
    /// forgets its modules, streams and permissions. Returns when nothing of the client runs any
    /// more. Extents stay mapped until [`crate::Memory::unmap`].
    fn close_client(&self, client: ClientId);

    /// Stops the client's work with this error: everything running and queued is reported as that
    /// fault. Later submissions fail the same way.
    fn stop_client(&self, client: ClientId, fault: Fault);

    /// Begins nothing more of any client but these: they go on in another process. Returns when
    /// what those that leave have begun is over and reported, or after this time, with what may
    /// have been begun and is not reported. May be called again, with others.
    fn leave(&self, staying: &BTreeSet<ClientId>, patience: Duration) -> Begun {
        let _ = (staying, patience);
        Begun::Unknown
    }

    /// Sets a limit for the client: stack size a thread, printf fifo or malloc heap.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] for limits the device does not have.
    fn set_limit(&self, client: ClientId, limit: Limit, value: u64) -> Result<(), DeviceError>;

    /// The counts of a client; zeros for an unknown client, and from devices that count nothing.
    /// Takes no lock that work needs.
    fn client_counters(&self, client: ClientId) -> ClientCounters {
        let _ = client;
        ClientCounters::default()
    }
}
