//! The contract between the executor and a device, real or software.
//!
//! One executor process opens one [`Device`] for each card. The executor owns order, handles and
//! limits; the device owns execution.
//!
//! Rules every device keeps, tested by [`conformance`] (feature `conformance`):
//!
//! - **Threads.** All methods may be called from any thread. None of them waits for work on the
//!   device, except [`Device::close_client`] and [`Device::revoke`], which return when no running
//!   block can touch the memory any more.
//! - **Streams are queues.** Work submitted to one device stream runs in order, each piece after
//!   the one before is done; streams run at the same time.
//! - **Exactly one report.** For each accepted submission the device calls [`Sink::retired`]
//!   exactly once, in stream order, from a thread of its own, without holding a lock that any
//!   method takes.
//! - **Reports come before successors.** Work that follows in the stream begins only when
//!   [`Sink::retired`] has returned for the work before it. So what the sink records there is never
//!   behind what the device has done. A sink must not call [`Device::close_client`] or
//!   [`Device::revoke`]: they wait for the thread that calls the sink.
//! - **A fault ends the client, not the device**, where the hardware allows it
//!   ([`Device::contains_faults`]): the faulting work is reported with its error, everything else
//!   of that client with the same error, and no memory of other clients was touched.
//! - **The caller validates** handles and dimensions; the device checks addresses at run time.
//! - **Memory is made of extents**: files whose descriptors outlive the process. A successor maps
//!   the same extents at the same addresses and sees the same bytes.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use cumux_wire::message::DeviceFacts;
pub use cumux_wire::module::{FunctionInfo, GlobalInfo, ModuleInfo};
pub use cumux_wire::record::{CopyExtent, Launch, Parameters, TensorWish};

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod sm_allocator;

/// A client of the device: the session number.
pub type ClientId = u32;
/// A module of a client; the client chooses the number.
pub type ModuleId = u32;

/// A stream of the device; the device chooses the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// One piece of stream work.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are described with their work")]
pub enum Work {
    /// Runs a kernel.
    Kernel(Kernel),
    /// Copies between device memory and the client's window, in any combination.
    Copy { target: Rows, source: Rows, extent: CopyExtent },
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
    /// The part that a predecessor has already done before it died: from [`Device::recover`].
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

/// What happened to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end.
    Done {
        /// Nanoseconds it occupied the device; for a kernel from its first block to its last.
        device_ns: u64,
    },
    /// It failed, or an earlier fault stopped its client.
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

/// A report for [`Sink::retired_all`]; the fields are the arguments of [`Sink::retired`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described with the method")]
pub struct Report {
    pub client: ClientId,
    pub stream: StreamId,
    pub token: u64,
    pub outcome: Outcome,
}

/// The receiver of a device's reports. Implemented by the executor; calls are short and never
/// block.
pub trait Sink: Send + Sync {
    /// Submission `token` of `stream` is over.
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome);
    /// Delivers several reports at once, in the order of their streams. A sink does here once what
    /// is needed once for all (take a lock, wake a client).
    fn retired_all(&self, reports: &mut Vec<Report>) {
        for Report { client, stream, token, outcome } in reports.drain(..) {
            self.retired(client, stream, token, outcome);
        }
    }
    /// Delivers what the client's kernels printed (device printf, assertion messages): complete
    /// lines or pieces, in order.
    fn text(&self, client: ClientId, text: &[u8]);
    /// The device is lost, and its last report has been delivered. Accepted work without a report
    /// is left to a successor. `told`: the clients whose kernels were running have been notified of
    /// a fault, so that a successor may run all other work again.
    fn lost(&self, why: &str, told: bool) {
        let _ = (why, told);
    }
}

/// Why a device refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The card is full, or the client's limit is reached.
    #[error("out of device memory: {0}")]
    OutOfMemory(String),
    /// An argument has an impossible value; the text says which.
    #[error("{0}")]
    Invalid(String),
    /// An image that cannot be loaded.
    #[error("{text}")]
    Image {
        /// The `CUresult`.
        result: u32,
        /// The reason, with line and column where the image is PTX.
        text: String,
    },
    /// The device lacks this ability.
    #[error("not supported by this device: {0}")]
    NotSupported(String),
    /// The kernel or the driver refuses.
    #[error("the operating system refused: {0}")]
    System(String),
    /// The device is lost; the executor must be replaced.
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

/// Memory for a module's global variables, from the client's own allocations so that it survives
/// the executor.
pub trait GlobalsAllocator {
    /// Returns the address of `bytes` bytes for the variable `name`, and whether its contents are
    /// already there (restored after a takeover: the device must not initialise them).
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when the client's limit is reached.
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError>;

    /// Whether a predecessor that has died had loaded the module before. A device that cannot
    /// restore its variables, at the addresses and with the contents that they had, must refuse the
    /// module: a client with fresh variables would compute wrong results.
    fn is_restoring(&self) -> bool {
        false
    }

    /// Says that the module has state on the card, now or later, that no successor can restore, and
    /// why (a part of a sentence). The client gets an error if the executor is replaced.
    fn not_resumable(&mut self, why: &str) {
        let _ = why;
    }
}

/// The part of an interrupted kernel that must not run again. Opaque outside the device that made
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// One bit a block, in launch order; set = done.
    pub done: Vec<u64>,
}

/// What a predecessor's marks say about a submission it had started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// Half-done blocks were undone: the work can be submitted again with this.
    Resume {
        /// The token of the submission.
        stream_token: u64,
        /// For [`Kernel::resume`].
        resume: Resume,
    },
    /// The work cannot be repeated safely. The client gets LAUNCH_FAILED.
    Lost {
        /// The token of the submission.
        stream_token: u64,
        /// The reason.
        why: String,
    },
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

/// One card. See the crate's documentation for the rules.
pub trait Device: Send + Sync {
    /// The device's properties.
    fn facts(&self) -> &DeviceFacts;

    /// Whether a fault of one client leaves the device usable for the others.
    fn contains_faults(&self) -> bool;

    /// Bytes of memory that can be had at most: the card's, unless there is less behind it.
    fn capacity(&self) -> u64 {
        self.facts().memory
    }

    /// Why no other process can use this card while this one has it, and what to do; `None` where
    /// another one can.
    fn alone(&self) -> Option<String> {
        None
    }

    /// The counts of a client; zeros for an unknown client, and from devices that count nothing.
    /// Takes no lock that work needs.
    fn client_counters(&self, client: ClientId) -> ClientCounters {
        let _ = client;
        ClientCounters::default()
    }

    /// Bytes that a client's marks file must have; 0 if the device keeps no marks. The executor
    /// makes the file, the keeper preserves it, and only the device writes it.
    fn marks_bytes(&self) -> usize;

    /// Adds a client. A number may be used again after [`Device::close_client`].
    ///
    /// # Errors
    /// [`DeviceError::System`] when the marks cannot be mapped.
    fn open_client(&self, client: ClientId, spec: &ClientSpec, marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError>;

    /// Stops the client's running blocks, reports its queued work as [`Outcome::Cancelled`],
    /// forgets its modules, streams and permissions. Returns when nothing of the client runs any
    /// more. Extents stay mapped until [`Device::unmap`].
    fn close_client(&self, client: ClientId);

    /// Stops the client's work with this error: everything running and queued is reported as that
    /// fault. Later submissions fail the same way.
    fn stop_client(&self, client: ClientId, fault: Fault);

    /// Changes the client's share to so many SMs (0 = all). Kernels that begin later run on it;
    /// running ones stay where they are. Larger partitions of the client shrink to it. Does not
    /// wait.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where shares cannot be changed, [`DeviceError::Invalid`] for
    /// an unknown client.
    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let _ = (client, multiprocessors);
        Err(DeviceError::NotSupported("the share of a running client cannot be changed".into()))
    }

    /// Reserves a part of the client's share for streams made in it. The client chooses `partition`
    /// (not 0); `multiprocessors` is at most its share.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where a share cannot be divided, [`DeviceError::Invalid`] for
    /// a number in use.
    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        let _ = (client, partition, multiprocessors);
        Err(DeviceError::NotSupported("the share of a client cannot be divided".into()))
    }

    /// Ends a partition whose streams have been destroyed.
    fn close_partition(&self, client: ClientId, partition: u32) {
        let _ = (client, partition);
    }

    // ---- memory

    /// Granularity of extents and mappings in bytes.
    fn granule(&self) -> u64;

    /// Makes an extent of zeroed device memory, not mapped yet. `bytes` is a multiple of the
    /// granule.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when the card is full, [`DeviceError::System`] when the file
    /// cannot be made.
    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError>;

    /// Announces that the descriptors of an extent are closed next, for devices that account for
    /// extents and cannot see the closing. Mapped memory counts until it is unmapped.
    fn forget_extent(&self, extent: BorrowedFd<'_>) {
        let _ = extent;
    }

    /// Maps `bytes` of an extent from `offset` at `address` (in the arena), readable and writable
    /// for the device. No client may touch it before [`Device::allow`].
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when something is mapped there, [`DeviceError::System`] otherwise.
    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Undoes [`Device::map`] for exactly that range. Permissions must have been revoked.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when nothing is mapped there.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Maps the client's window (host memory shared with it) at `address`. All of it is readable
    /// and writable for the client's work.
    ///
    /// # Errors
    /// [`DeviceError::System`] when it cannot be mapped.
    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Makes these bytes of the client's window usable as pinned memory: kernels may get pointers
    /// into them once this returns. It may be slow (pages are pinned) and is not called on a
    /// dispatch thread. Devices that can use all of a window anyway do nothing.
    ///
    /// # Errors
    /// [`DeviceError::System`] when the memory cannot be pinned.
    fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (client, address, bytes);
        Ok(())
    }

    /// Makes the client's private range at `user` another name of the window's memory at `window`:
    /// kernels may use either address.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when ranges overlap.
    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Undoes [`Device::alias`] for the range at `user`.
    fn unalias(&self, client: ClientId, user: u64);

    /// Makes the bytes `[address, address + bytes)` an allocation of `client`: its kernels and
    /// copies may touch exactly these bytes.
    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool);

    /// Undoes [`Device::allow`] for the allocation that begins at `address`. Work that uses it has
    /// retired, or faults from now on.
    fn revoke(&self, client: ClientId, address: u64);

    /// Writes an allocation outside any stream (module initialisation, scrubbing). The range must
    /// be mapped.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when it is not mapped.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// Reads an allocation outside any stream.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    // ---- modules

    /// Loads a fatbin, PTX text or cubin. Slow (it compiles): never called on a dispatch thread.
    ///
    /// # Errors
    /// [`DeviceError::Image`] when it cannot be loaded; the text says what and where.
    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError>;

    /// Unloads a module. Work that uses it has retired.
    fn unload_module(&self, client: ClientId, module: ModuleId);

    /// Sets a `CUfunction_attribute`.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for an unknown function or value.
    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError>;

    /// Encodes a description of a tensor for the copy engine (`CUtensorMap`). A pure function of
    /// its argument.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where kernels cannot use one, [`DeviceError::Invalid`] for
    /// impossible arguments.
    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        Err(DeviceError::NotSupported(format!("tensor maps (a tensor of rank {})", wish.rank)))
    }

    /// Sets a `CUlimit` for the client: 0 stack size a thread, 1 printf fifo, 2 malloc heap.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] for limits the device does not have.
    fn set_limit(&self, client: ClientId, limit: u32, value: u64) -> Result<(), DeviceError>;

    // ---- work

    /// Makes a queue for one client. A lower `priority` is more urgent.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when there are too many.
    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError>;

    /// As [`Device::create_stream`], with kernels on a partition of the client's share (0 = the
    /// whole share).
    ///
    /// # Errors
    /// As [`Device::create_stream`], and [`DeviceError::Invalid`] for an unknown partition.
    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        match partition {
            0 => self.create_stream(client, priority),
            _ => Err(DeviceError::NotSupported("the share of a client cannot be divided".into())),
        }
    }

    /// Destroys a stream that has drained.
    fn destroy_stream(&self, stream: StreamId);

    /// Queues work. `token` comes back in [`Sink::retired`]; tokens of a client grow.
    ///
    /// # Errors
    /// Only for an unknown stream or a lost device; what is wrong with the work itself is reported
    /// as its outcome.
    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError>;

    /// Queues several pieces of work for one stream, in order, and empties the list. As
    /// [`Device::submit`] for each, but cheaper together.
    ///
    /// # Errors
    /// As [`Device::submit`]; pieces before the one that failed are queued.
    fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        work.drain(..).try_for_each(|(token, work)| self.submit(stream, token, work))
    }

    // ---- takeover

    /// Reads the marks that a dead predecessor has left for this client, undoes half-done blocks,
    /// and says which of the started work can continue. Called after the client's extents and
    /// window are mapped and its allocations allowed, before any work of the client is submitted.
    fn recover(&self, client: ClientId) -> Vec<Interrupted>;
}

/// Opens devices by name. One registry in the binary knows all kinds.
pub trait Open: Send + Sync {
    /// Opens the device `id`, named as in `--device`; it reports to `sink`.
    ///
    /// # Errors
    /// A sentence that names the devices there are.
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError>;
}
