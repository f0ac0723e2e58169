//! The contract between the executor and a device, real or software.
//!
//! One executor process opens one [`Device`] for each card. The executor owns order, handles and limits; the device owns execution.
//!
//! Rules every device keeps, tested by [`conformance`] (feature `conformance`):
//!
//! - **Who calls.** All methods may be called from any thread. None of them waits for work on the device, except [`Device::close_client`] and
//!   [`Device::revoke`], which return when no running block can touch the memory any more.
//! - **Streams are queues.** Work submitted to one device stream runs in order, each piece after the one before is done; streams run at the same time.
//! - **Exactly one report.** For each accepted submission the device calls [`Sink::retired`] exactly once, in stream order, from a thread of its own,
//!   without holding a lock that any method takes.
//! - **Reports come before successors.** Work that follows in the stream begins only when [`Sink::retired`] has returned for the work before it, so that what
//!   the sink writes down there is never behind what the device has done. A sink must not call [`Device::close_client`] or [`Device::revoke`]: they wait for
//!   the thread that calls the sink.
//! - **A fault ends the client, not the device**, where the hardware allows it ([`Device::contains_faults`]): the faulting work is reported with its
//!   error, everything else of that client with the same error, and no memory of other clients was touched.
//! - **Validation is the caller's** for handles and dimensions; the device checks addresses at run time.
//! - **Memory is made of extents**: files whose descriptors outlive the process. A successor maps the same extents at the same addresses and sees the same bytes.
#![forbid(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use cumux_wire::message::DeviceFacts;
pub use cumux_wire::module::{FunctionInfo, GlobalInfo, ModuleInfo};
pub use cumux_wire::record::{Extent, Launch, Parameters, TensorWish};

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod floor;

/// A client of the device: the session number.
pub type ClientId = u32;
/// A module of a client, minted by the client.
pub type ModuleId = u32;

/// A stream of the device, minted by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// One piece of stream work.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Kernel(Kernel),
    /// Addresses in device memory or in the client's window.
    Copy {
        target: Rows,
        source: Rows,
        extent: Extent,
    },
    /// `width` elements of `element` bytes (1, 2 or 4) in each of `height` rows.
    Set {
        target: u64,
        pitch: u64,
        value: u32,
        element: u32,
        width: u64,
        height: u64,
    },
    /// Stores the low `bytes` (4 or 8) bytes of `value`.
    WriteValue {
        address: u64,
        value: u64,
        bytes: u32,
    },
    /// Nothing; reports when reached.
    Mark,
}

/// A kernel launch of `client`'s module.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    pub launch: Launch,
    /// What a predecessor that died has already done of it: from [`Device::recover`].
    pub resume: Option<Resume>,
}

/// One side of a copy. Strides in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rows {
    pub address: u64,
    pub pitch: u64,
    pub slice: u64,
}

/// What happened to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `device_ns`: nanoseconds it occupied the device (for a kernel: from its first block to its last).
    Done {
        device_ns: u64,
    },
    Fault(Fault),
    /// Not run because the client was closed or stopped.
    Cancelled,
}

/// A fault in words and as CUDA numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A `CUresult`, see [`cumux_wire::result`].
    pub result: u32,
    /// Kernel, block, thread, address, instruction: what is known.
    pub text: String,
}

/// A report for [`Sink::retired_all`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub client: ClientId,
    pub stream: StreamId,
    pub token: u64,
    pub outcome: Outcome,
}

/// Where the device reports. Implemented by the executor; calls are short and never block.
pub trait Sink: Send + Sync {
    /// Submission `token` of `stream` is over.
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome);
    /// Several reports that came together, in the order of their streams. What is done once for many (a lock, waking a client) is done once here.
    fn retired_all(&self, reports: &mut Vec<Report>) {
        for Report { client, stream, token, outcome } in reports.drain(..) {
            self.retired(client, stream, token, outcome);
        }
    }
    /// The client's kernels printed this (device printf, assertion messages), complete lines or pieces in order.
    fn text(&self, client: ClientId, text: &[u8]);
    /// The device can do no more, and everything it has to report about it is reported. What was accepted and not reported is for a successor.
    /// `told`: whose kernels were under way has been told, so that all the rest can be done again.
    fn lost(&self, why: &str, told: bool) {
        let _ = (why, told);
    }
}

/// Why a device refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("out of device memory: {0}")]
    OutOfMemory(String),
    #[error("{0}")]
    Invalid(String),
    /// An image that cannot be loaded: `result` as CUDA numbers it, the text with line and column where it is PTX.
    #[error("{text}")]
    Image { result: u32, text: String },
    #[error("not supported by this device: {0}")]
    NotSupported(String),
    #[error("the operating system refused: {0}")]
    System(String),
    /// The device can do no more; the executor must be replaced.
    #[error("the device is lost: {0}")]
    Lost(String),
}

impl DeviceError {
    /// The `CUresult` for the client's call. The one place where device errors become result codes.
    #[must_use]
    pub fn result(&self) -> u32 {
        use cumux_wire::result;
        match self {
            DeviceError::OutOfMemory(_) => result::OUT_OF_MEMORY,
            DeviceError::Invalid(_) => result::INVALID_VALUE,
            DeviceError::Image { result, .. } => *result,
            DeviceError::NotSupported(_) => result::NOT_SUPPORTED,
            DeviceError::System(_) => result::UNKNOWN,
            DeviceError::Lost(_) => result::LOST,
        }
    }
}

/// Memory for a module's global variables, from the client's own allocations so that it survives the executor.
pub trait Place {
    /// Address of `bytes` bytes for the variable `name`, and whether its contents are already there (restored after a takeover: do not initialise).
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when the client's limit is reached.
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError>;

    /// Whether the module was loaded before by a predecessor that has died. A device that cannot bring its variables back, at the addresses
    /// and with the contents that they had, must refuse it: whoever goes on with fresh ones computes wrong results.
    fn is_restoring(&self) -> bool {
        false
    }
}

/// How much of an interrupted kernel must not be run again. Opaque outside the device that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// One bit a block, in launch order; set = done.
    pub done: Vec<u64>,
}

/// What a predecessor's marks say about a submission it had started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// Half-done blocks were undone; submit it again with this.
    Resume { stream_token: u64, resume: Resume },
    /// It cannot be repeated safely; the text says why. The client gets LAUNCH_FAILED.
    Lost { stream_token: u64, why: String },
}

/// Per-client settings.
#[derive(Debug, Clone, Default)]
pub struct ClientSpec {
    /// SMs the client's kernels may use; 0 = all.
    pub multiprocessors: u32,
    /// 0 normal, 1 below normal: whatever priorities its streams have, its work gives way to that of normal clients.
    pub priority: u32,
    /// Static partitioning: exactly these SMs, in place of a count. Empty otherwise.
    pub sms: Vec<u32>,
}

/// What a device has counted of a client since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Kernels that went to the card together with others, in one call of the driver.
    pub coalesced: u64,
    /// Times something of the client waited for a moment when nothing long ran, and nanoseconds it waited.
    pub quiets: u64,
    pub quiet_ns: u64,
    /// Times its work waited until memory of its window was pinned.
    pub registrations: u64,
}

impl ClientCounters {
    /// Both together.
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

/// One card. See the module documentation for the rules.
pub trait Device: Send + Sync {
    fn facts(&self) -> &DeviceFacts;

    /// Whether a fault of one client leaves the device usable for the others.
    fn contains_faults(&self) -> bool;

    /// Why no other process can have this card while this one has it, and what to do; `None` where it can.
    fn alone(&self) -> Option<String> {
        None
    }

    /// What was counted of the client; zeros for a client it does not know, and from devices that count nothing. Takes no lock that work needs.
    fn client_counters(&self, client: ClientId) -> ClientCounters {
        let _ = client;
        ClientCounters::default()
    }

    /// Bytes a client's marks file must have; 0 if the device keeps none. The file is the executor's, lives in the keeper, and only the device writes it.
    fn marks_bytes(&self) -> usize;

    /// # Errors
    /// [`DeviceError::System`] when the marks cannot be mapped.
    fn open_client(&self, client: ClientId, spec: &ClientSpec, marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError>;

    /// Stops the client's running blocks, reports its queued work as [`Outcome::Cancelled`], forgets its modules, streams and permissions.
    /// Returns when nothing of the client runs any more. Extents stay mapped until [`Device::unmap`].
    fn close_client(&self, client: ClientId);

    /// Stops the client's work with this error: everything running and queued is reported as that fault. Later submissions fail the same way.
    fn stop_client(&self, client: ClientId, fault: Fault);

    /// Gives the client another share (SMs, 0 = all). Kernels that begin later run on it; what has begun ends where it is. Partitions of the client that are
    /// larger shrink to it. Does not wait.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where shares cannot be changed, [`DeviceError::Invalid`] for an unknown client.
    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let _ = (client, multiprocessors);
        Err(DeviceError::NotSupported("the share of a running client cannot be changed".into()))
    }

    /// A part of the client's share, for streams made in it: `partition` (not 0) is minted by the client, `multiprocessors` at most its share.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where a share cannot be divided, [`DeviceError::Invalid`] for a number in use.
    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        let _ = (client, partition, multiprocessors);
        Err(DeviceError::NotSupported("the share of a client cannot be divided".into()))
    }

    /// Its streams are destroyed.
    fn close_partition(&self, client: ClientId, partition: u32) {
        let _ = (client, partition);
    }

    // ---- memory

    /// Granularity of extents and mappings in bytes.
    fn granule(&self) -> u64;

    /// A new extent of zeroed device memory, not mapped yet. `bytes` is a multiple of the granule.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when the card is full, [`DeviceError::System`] when the file cannot be made.
    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError>;

    /// The extent is given up: its descriptors are closed next. For devices that count what they gave out and cannot see that a descriptor is closed;
    /// what is mapped counts on until it is unmapped.
    fn forget_extent(&self, extent: BorrowedFd<'_>) {
        let _ = extent;
    }

    /// Maps `bytes` of an extent from `offset` at `address` (in the arena), readable and writable by the device. Nobody may touch it before [`Device::allow`].
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when something is mapped there, [`DeviceError::System`] otherwise.
    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Undoes [`Device::map`] for exactly that range. Permissions must have been revoked.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when nothing is mapped there.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Maps the client's window (host memory shared with it) at `address`. All of it is readable and writable for the client's work.
    ///
    /// # Errors
    /// [`DeviceError::System`] when it cannot be mapped.
    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// The client is about to use these bytes of its window as pinned memory: kernels may be given pointers into them when this returns. May be slow
    /// (pages are pinned); not called on a dispatch thread. Devices that can use all of a window anyway do nothing.
    ///
    /// # Errors
    /// [`DeviceError::System`] when the memory cannot be pinned.
    fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (client, address, bytes);
        Ok(())
    }

    /// The client's private range at `user` is the window's memory at `window`: kernels may use either address.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when ranges overlap.
    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError>;

    fn unalias(&self, client: ClientId, user: u64);

    /// Bytes `[address, address + bytes)` are an allocation of `client`: its kernels and copies may touch exactly these bytes.
    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool);

    /// Undoes [`Device::allow`] for the allocation that begins at `address`. Work that uses it has retired, or will fault.
    fn revoke(&self, client: ClientId, address: u64);

    /// Reads or writes an allocation outside any stream (module initialisation, scrubbing). The range must be mapped.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when it is not mapped.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// # Errors
    /// As [`Device::write`].
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    // ---- modules

    /// Loads a fatbin, PTX text or cubin. Slow (it compiles): never called on a dispatch thread.
    ///
    /// # Errors
    /// [`DeviceError::Image`] when it cannot be loaded; the text says what and where.
    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn Place) -> Result<ModuleInfo, DeviceError>;

    /// Work that uses it has retired.
    fn unload_module(&self, client: ClientId, module: ModuleId);

    /// Sets a `CUfunction_attribute`.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for an unknown function or value.
    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError>;

    /// Encodes a description of a tensor for the copy engine (`CUtensorMap`). A pure function of its argument.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where kernels cannot use one, [`DeviceError::Invalid`] for one that cannot be.
    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        Err(DeviceError::NotSupported(format!("tensor maps (a tensor of rank {})", wish.rank)))
    }

    /// Sets a `CUlimit` for the client: 0 stack size a thread, 1 printf fifo, 2 malloc heap.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] for limits the device does not have.
    fn set_limit(&self, client: ClientId, limit: u32, value: u64) -> Result<(), DeviceError>;

    // ---- work

    /// A queue for one client. Lower `priority` is more urgent.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when there are too many.
    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError>;

    /// [`Device::create_stream`] whose kernels run on a partition of the client's share (0 = the whole share).
    ///
    /// # Errors
    /// As [`Device::create_stream`], and [`DeviceError::Invalid`] for an unknown partition.
    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        match partition {
            0 => self.create_stream(client, priority),
            _ => Err(DeviceError::NotSupported("the share of a client cannot be divided".into())),
        }
    }

    /// The stream has drained.
    fn destroy_stream(&self, stream: StreamId);

    /// Queues work. `token` comes back in [`Sink::retired`]; tokens of a client grow.
    ///
    /// # Errors
    /// Only for an unknown stream or a lost device; what is wrong with the work itself is reported as its outcome.
    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError>;

    /// Queues several pieces of one stream, in order, and empties the list. As [`Device::submit`] for each; what is done once for many is done once here.
    ///
    /// # Errors
    /// As [`Device::submit`]; pieces before the one that failed are queued.
    fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        work.drain(..).try_for_each(|(token, work)| self.submit(stream, token, work))
    }

    // ---- takeover

    /// Reads the marks a dead predecessor left for this client, undoes blocks that were half done, and says what of the started work can go on.
    /// Called after the client's extents and window are mapped and its allocations allowed, before anything is submitted for it.
    fn recover(&self, client: ClientId) -> Vec<Interrupted>;
}

/// Opens devices by name. One registry in the binary knows all kinds.
pub trait Open: Send + Sync {
    /// # Errors
    /// A sentence that names the devices there are.
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError>;
}
