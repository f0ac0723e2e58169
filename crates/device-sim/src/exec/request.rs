//! What a kernel asks of the device's runtime: launches from the device, its streams and events,
//! and questions (CUDA C++ Programming Guide, *CUDA Dynamic Parallelism*).

use cumux_device::{CopyExtent, Rows};

/// What the runtime answers if it does not do what it was asked: numbers of `cudaError_t`.
pub mod errors {
    /// `cudaErrorInvalidValue`.
    pub const INVALID_VALUE: u32 = 1;
    /// `cudaErrorMemoryAllocation`.
    pub const MEMORY_ALLOCATION: u32 = 2;
    /// `cudaErrorInvalidConfiguration`.
    pub const INVALID_CONFIGURATION: u32 = 9;
    /// `cudaErrorInvalidPitchValue`.
    pub const INVALID_PITCH: u32 = 12;
    /// `cudaErrorInvalidMemcpyDirection`.
    pub const INVALID_DIRECTION: u32 = 21;
    /// `cudaErrorLaunchPendingCountExceeded`.
    pub const TOO_MANY_PENDING: u32 = 69;
    /// `cudaErrorInvalidDevice`.
    pub const INVALID_DEVICE: u32 = 101;
    /// `cudaErrorUnsupportedLimit`.
    pub const UNSUPPORTED_LIMIT: u32 = 215;
    /// `cudaErrorNotSupported`.
    pub const NOT_SUPPORTED: u32 = 801;
}

/// Which grid is launched, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// The kernel's address, as kernels see it.
    pub function: u64,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// What a thread asks. Streams and events are the handles that the runtime has given out; a stream
/// may also be one of the numbers that CUDA has fixed (0, `cudaStreamTailLaunch` and the like).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A buffer for the parameters of a launch. Answers its address.
    Buffer {
        /// What is to be launched, if it is said here.
        configuration: Option<Configuration>,
        /// Bytes of the buffer, if it is not.
        bytes: u64,
    },
    /// Launches a grid with the parameters in a buffer.
    Launch {
        /// The buffer's address.
        buffer: u64,
        /// What is to be launched, if the buffer's request did not say it.
        configuration: Option<Configuration>,
        /// Where.
        stream: u64,
    },
    /// Answers a new stream.
    CreateStream,
    /// The stream is not used any more; what it has goes on.
    DestroyStream(u64),
    /// Answers a new event.
    CreateEvent,
    /// The event is not used any more.
    DestroyEvent(u64),
    /// The event happens when all work is over that the stream has now.
    Record {
        /// Which event.
        event: u64,
        /// Where.
        stream: u64,
    },
    /// What the stream gets later waits for the event as it was recorded last.
    Await {
        /// Which stream waits.
        stream: u64,
        /// For what.
        event: u64,
    },
    /// Copies.
    Copy {
        /// Where to.
        target: Rows,
        /// Where from.
        source: Rows,
        /// How much.
        extent: CopyExtent,
        /// In which order.
        stream: u64,
    },
    /// Fills rows with a byte.
    Set {
        /// Address of the first byte, and bytes from row to row.
        target: Rows,
        /// The byte.
        value: u8,
        /// How much.
        extent: CopyExtent,
        /// In which order.
        stream: u64,
    },
    /// Answers which of the client's devices this is, by the client's own numbers.
    OwnDevice,
    /// Answers how many devices the client sees.
    DeviceCount,
    /// Answers an attribute of a card.
    Attribute {
        /// Which one: a `cudaDeviceAttr`.
        attribute: i32,
        /// Of which of the client's devices.
        device: u32,
    },
    /// Answers a limit (`cudaLimit`).
    Limit(u32),
    /// Answers what is known of a kernel, as [`FunctionNumbers`] has it.
    Function(u64),
    /// Answers how many blocks a multiprocessor holds.
    Occupancy {
        /// Of this kernel,
        function: u64,
        /// with so many threads a block,
        threads: u32,
        /// and so many bytes of dynamic shared memory.
        shared: u32,
    },
    /// Answers the address of an error's name, or of its description.
    Text {
        /// The error.
        code: u32,
        /// Its name and not its description.
        name: bool,
    },
}

/// The fields of `cudaFuncAttributes` that a card fills in, from the structure's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionNumbers {
    /// Bytes of static shared memory, of constant memory, and of local memory of a thread.
    pub bytes: [u64; 3],
    /// Most threads of a block, registers of a thread, versions of PTX and of machine code.
    pub numbers: [u32; 4],
}

/// What the runtime answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done; there is nothing to say.
    Done,
    /// A number, an address or a handle.
    Number(u64),
    /// What is known of a kernel.
    Function(FunctionNumbers),
}

/// The name and the description of an error that the runtime can answer.
#[must_use]
pub fn describe(code: u32) -> (&'static str, &'static str) {
    match code {
        0 => ("cudaSuccess", "no error"),
        errors::INVALID_VALUE => ("cudaErrorInvalidValue", "invalid argument"),
        errors::MEMORY_ALLOCATION => ("cudaErrorMemoryAllocation", "out of memory"),
        errors::INVALID_CONFIGURATION => ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
        errors::INVALID_PITCH => ("cudaErrorInvalidPitchValue", "invalid pitch argument"),
        errors::INVALID_DIRECTION => ("cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"),
        errors::TOO_MANY_PENDING => ("cudaErrorLaunchPendingCountExceeded", "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount"),
        errors::INVALID_DEVICE => ("cudaErrorInvalidDevice", "invalid device ordinal"),
        errors::UNSUPPORTED_LIMIT => ("cudaErrorUnsupportedLimit", "limit is not supported on this architecture"),
        701 => ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
        errors::NOT_SUPPORTED => ("cudaErrorNotSupported", "operation not supported"),
        912 => ("cudaErrorInvalidClusterSize", "a kernel launch error has occurred due to cluster misconfiguration"),
        _ => ("unrecognized error code", "unrecognized error code"),
    }
}
