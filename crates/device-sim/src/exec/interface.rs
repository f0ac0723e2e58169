//! What the execution core offers to the device around it, and what it needs from the device.
//!
//! The device compiles a module once ([`Program`](crate::program::Program), shared by all clients)
//! and links it with the addresses of one client's variables ([`LinkedProgram`]). It describes a
//! launch ([`Launch`]) and makes a [`Block`](super::Block) for each block of the grid. It runs a
//! block in slices: [`Block::run`](super::Block::run) executes a bounded number of warp
//! instructions and returns. The value holds all state of the block, so any worker thread can
//! continue it.
//!
//! Invariant: nothing here waits. A block that spins on memory uses up its budget. All resident
//! blocks of a grid make progress if the device gives each of them slices in turn. A grid-wide
//! barrier needs that: in PTX it is atomics and a spin loop.

use std::sync::Arc;

use cumux_device::Channel;

use super::request::{Answer, Request, errors};
use crate::program::LinkedProgram;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes at once; the pointer is used with atomic instructions.
    Atomic,
}

/// Why the device's memory refuses an access. The core checks the alignment itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFault {
    /// No allocation of the client covers the bytes.
    OutOfBounds,
    /// The allocation was freed.
    Freed,
    /// The allocation may only be read.
    ReadOnly,
}

/// The client's global memory as one worker thread sees it. Each worker has a value of its own,
/// which may cache lookups.
///
/// # Safety
/// A pointer returned by [`access`](Self::access) must be valid for reads (for [`Access::Store`]
/// and [`Access::Atomic`] also for writes) of `bytes` bytes until the block's current slice ends,
/// and have the same alignment as `address` modulo 16. Nothing in the process may hold a Rust
/// reference to these bytes meanwhile. Other workers may access them at the same time through this
/// trait.
#[allow(unsafe_code)]
pub unsafe trait GlobalMemory {
    /// Where the bytes from `address` to `address + bytes` lie in this process, if one allocation
    /// of the client holds all of them.
    ///
    /// # Errors
    /// The core first asks for the whole span that a warp touches. If that fails, it asks for each
    /// lane, and only then is the error a fault.
    fn access(&mut self, address: u64, bytes: u64, access: Access) -> Result<*mut u8, MemoryFault>;

    /// Called before each ordinary store with exactly the bytes that it will overwrite. The undo
    /// log saves the old contents, which are at `at`. Not called for atomics and reductions: a
    /// kernel with those is not [`Kernel::repeatable`](crate::program::Kernel::repeatable).
    #[inline(always)]
    fn before_store(&mut self, address: u64, at: *mut u8, bytes: u32) {
        let _ = (address, at, bytes);
    }

    /// As [`before_store`](Self::before_store), for a store of `bytes` bytes at each address whose
    /// bit is set in `mask`. The bytes of address `a` lie at `to + a` (wrapping).
    #[inline(always)]
    fn before_stores(&mut self, addresses: &[u64; 32], mask: u32, to: *mut u8, bytes: u32) {
        for (lane, address) in addresses.iter().enumerate() {
            if mask >> lane & 1 != 0 {
                self.before_store(*address, to.wrapping_add(*address as usize), bytes);
            }
        }
    }
}

/// What kernels need besides memory.
pub trait Services {
    /// The output of `printf` ([`Channel::Output`]) and of failed assertions ([`Channel::Error`]),
    /// formatted.
    fn print(&mut self, channel: Channel, text: &[u8]);
    /// Device-side `malloc`: an address aligned to at least 16 bytes, or 0.
    fn malloc(&mut self, bytes: u64) -> u64;
    /// Device-side `free`. False if the address is not a live allocation of that heap; the thread
    /// then faults.
    fn free(&mut self, address: u64) -> bool;
    /// `%globaltimer`: nanoseconds of the wall clock.
    fn globaltimer(&mut self) -> u64;
    /// `%clock64`: cycles of the device's clock, which never goes back.
    fn clock(&mut self) -> u64;
    /// What a thread of block number `block` of the grid asks of the device's runtime.
    ///
    /// # Errors
    /// The `cudaError_t` that the call returns.
    fn ask(&mut self, block: u64, request: Request) -> Result<Answer, u32> {
        let _ = (block, request);
        Err(errors::NOT_SUPPORTED)
    }
}

/// A launch of one kernel, shared by all of its blocks.
#[derive(Debug)]
pub struct Launch {
    /// The program, linked with the client's variables.
    pub linked: Arc<LinkedProgram>,
    /// Index into [`Program::kernels`](crate::program::Program::kernels).
    pub kernel: usize,
    /// Blocks of the grid along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Blocks of a cluster along x, y and z; all ones without clusters. The grid is a multiple.
    pub cluster: [u32; 3],
    /// `%is_explicit_cluster`: the launch or the kernel says the size of a cluster.
    pub explicit_cluster: bool,
    /// Dynamic shared memory of a block, in bytes.
    pub dynamic_shared: u32,
    /// The kernel's parameters: at least
    /// [`Kernel::parameter_bytes`](crate::program::Kernel::parameter_bytes) bytes; missing ones
    /// read as zero.
    pub parameters: cumux_device::Parameters,
    /// `%gridid`.
    pub grid_id: u64,
    /// `cudaLimitStackSize`: bytes of stack for each thread that calls may use, besides the
    /// kernel's own frame.
    pub stack_bytes: u32,
    /// `%nsmid`.
    pub multiprocessors: u32,
    /// `%nwarpid`: warps that a multiprocessor can hold.
    pub warps_per_multiprocessor: u32,
    /// Generic address of at least 32 zeroed bytes of device memory for grid-wide barriers
    /// (`%envreg1`, `%envreg2`); 0 if the launch is not cooperative.
    pub grid_workspace: u64,
}

/// Which block of its grid this is, and the multiprocessor it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockCoordinates {
    /// `%ctaid`.
    pub ctaid: [u32; 3],
    /// `%smid`.
    pub multiprocessor: u32,
    /// `%warpid` of the block's first warp.
    pub first_warp: u32,
}

/// How a slice of a block ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The budget is used up, and the block has more to do.
    Running,
    /// Every thread of the block has exited.
    Done,
    /// A thread failed. The block must not be run again.
    Fault(Box<Fault>),
}

/// What a thread did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Global memory refused an access.
    Global(MemoryFault),
    /// An access outside the block's shared memory.
    SharedOutOfBounds,
    /// An access outside the thread's local memory.
    LocalOutOfBounds,
    /// An access outside the kernel's parameters.
    ParamOutOfBounds,
    /// An access outside a surface, by an instruction that traps there.
    SurfaceOutOfBounds,
    /// The handle is no texture or surface object, or one of another geometry than the
    /// instruction's.
    BadTexture,
    /// The address is no multiple of the access's size.
    Misaligned,
    /// `trap`.
    Trap,
    /// `brkpt`: a fault without a debugger, as on the hardware.
    Breakpoint,
    /// An assertion of the program failed.
    Assertion,
    /// An instruction that the software GPU does not know.
    IllegalInstruction,
    /// The thread's calls need more than the launch's stack.
    StackOverflow,
    /// An indirect call of an address that is not a function of the module.
    BadCall,
    /// `free` of an address that is not an allocation.
    BadFree,
    /// Every thread of the block, or of its cluster, waits at a barrier that cannot complete.
    Deadlock,
}

impl FaultKind {
    /// What CUDA calls an access that went wrong. `None` for a fault that is no access.
    fn headline(self) -> Option<&'static str> {
        match self {
            FaultKind::Global(_) | FaultKind::SharedOutOfBounds | FaultKind::LocalOutOfBounds | FaultKind::ParamOutOfBounds => Some("illegal address"),
            FaultKind::SurfaceOutOfBounds | FaultKind::BadTexture => Some("illegal address"),
            FaultKind::Misaligned => Some("misaligned address"),
            _ => None,
        }
    }

    /// A description, as part of a sentence.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            FaultKind::Global(MemoryFault::OutOfBounds) => "access outside any allocation",
            FaultKind::Global(MemoryFault::Freed) => "access to freed memory",
            FaultKind::Global(MemoryFault::ReadOnly) => "write to read-only memory",
            FaultKind::SharedOutOfBounds => "access outside the block's shared memory",
            FaultKind::LocalOutOfBounds => "access outside the thread's local memory",
            FaultKind::ParamOutOfBounds => "access outside the parameters",
            FaultKind::SurfaceOutOfBounds => "access outside a surface",
            FaultKind::BadTexture => "no texture or surface object of this geometry",
            FaultKind::Misaligned => "address that is no multiple of the access",
            FaultKind::Trap => "trap",
            FaultKind::Breakpoint => "breakpoint",
            FaultKind::Assertion => "assertion failed",
            FaultKind::IllegalInstruction => "illegal instruction",
            FaultKind::StackOverflow => "stack overflow",
            FaultKind::BadCall => "call of something that is not a function",
            FaultKind::BadFree => "free of something that is not an allocation",
            FaultKind::Deadlock => "all threads wait at barriers that cannot complete",
        }
    }
}

/// The most characters of a kernel's name that a message shows.
const MAX_NAME_CHARACTERS: usize = 200;

/// Shortens a name that is too long for a message.
pub(crate) fn shorten_name(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME_CHARACTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// A fault and the thread that raised it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What the thread did wrong.
    pub kind: FaultKind,
    /// The address of the access; 0 if the fault is no access.
    pub address: u64,
    /// The bytes of the access; 0 if the fault is no access.
    pub bytes: u32,
    /// Line of the PTX text.
    pub line: u32,
    /// The line of the source, if the module has line information.
    pub source: Option<cumux_fatbin::lines::Source>,
    /// The instruction's name.
    pub instruction: String,
    /// The kernel's name.
    pub kernel: String,
    /// `%ctaid` of the thread's block.
    pub ctaid: [u32; 3],
    /// `%tid` of the thread.
    pub thread: [u32; 3],
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [bx, by, bz] = self.ctaid;
        let [tx, ty, tz] = self.thread;
        // The most important words come first: later stages cut texts, and the names of templates
        // have any length.
        let kernel = shorten_name(&self.kernel);
        let source = self.source.as_ref().map_or_else(String::new, |source| format!(" at {source}"));
        let place = format!("(block {bx},{by},{bz} thread {tx},{ty},{tz}){source}");
        match self.kind.headline() {
            Some(headline) => {
                write!(f, "kernel {kernel}: {headline} {:#x} {place}: {}, {} bytes", self.address, self.kind.describe(), self.bytes)?;
            }
            None => write!(f, "kernel {kernel}: {} {place}", self.kind.describe())?,
        }
        write!(f, ", PTX line {}: {}", self.line, self.instruction)
    }
}
