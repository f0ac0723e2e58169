//! What the execution core offers to the device around it, and what it needs from it.
//!
//! The device compiles a module once ([`Program`](crate::program::Program), shared by all clients), binds it to one client's variable addresses ([`Image`]),
//! describes a launch ([`Launch`]) and then makes one [`Block`](super::Block) for each block of the grid, which it runs in slices:
//! [`Block::run`](super::Block::run) does a bounded number of warp instructions and returns. All state of a block is in the value, so
//! any worker thread may go on with any block.
//!
//! Invariant: nothing here waits. A block that spins on memory just uses up its budget; all resident blocks of a grid make progress if
//! the device gives each of them slices in turn, which is what a grid-wide barrier needs (in PTX it is atomics and a spin loop).

use std::sync::Arc;

use crate::program::Image;

/// What an access wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Load,
    Store,
    /// Read and write at once; the pointer is used with atomic instructions.
    Atomic,
}

/// Why the device's memory refuses an access. Alignment is checked by the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFault {
    /// No allocation of this client covers the bytes.
    OutOfBounds,
    /// The allocation was freed.
    Freed,
    /// The allocation may only be read.
    ReadOnly,
}

/// The client's global memory as one worker sees it. One value for each worker thread (it may cache lookups).
///
/// # Safety
/// A pointer returned by [`access`](Self::access) must be valid for reads (and for [`Access::Store`] and [`Access::Atomic`] for writes) of
/// `bytes` bytes until the block's current slice ends, and have the same alignment as `address` modulo 16. Nothing in the process may hold
/// a Rust reference to those bytes meanwhile; other workers may access them at the same time through the same trait.
#[allow(unsafe_code)]
pub unsafe trait GlobalMemory {
    /// Where `[address, address + bytes)` lies in this process, if all of it belongs to one allocation of the client.
    ///
    /// # Errors
    /// The core asks first for the whole span that a warp touches; when that fails it asks for each lane, and only then is the error a fault.
    fn access(&mut self, address: u64, bytes: u64, access: Access) -> Result<*mut u8, MemoryFault>;

    /// Called before each ordinary store with exactly the bytes it will overwrite (the undo log reads the old contents at `at`).
    /// Not called for atomics and reductions: a kernel with those is not [`Kernel::repeatable`](crate::program::Kernel::repeatable).
    #[inline(always)]
    fn before_store(&mut self, address: u64, at: *mut u8, bytes: u32) {
        let _ = (address, at, bytes);
    }

    /// The same for a store of `bytes` bytes at each address whose bit is set in `mask`; the bytes of address `a` lie at `to + a` (wrapping).
    #[inline(always)]
    fn before_stores(&mut self, addresses: &[u64; 32], mask: u32, to: *mut u8, bytes: u32) {
        for (lane, address) in addresses.iter().enumerate() {
            if mask >> lane & 1 != 0 {
                self.before_store(*address, to.wrapping_add(*address as usize), bytes);
            }
        }
    }
}

/// What kernels ask for besides memory.
pub trait Services {
    /// Output of `printf` and of failed assertions, complete as the format made it.
    fn print(&mut self, text: &[u8]);
    /// Device-side `malloc`: an address of at least 16-byte alignment, or 0.
    fn malloc(&mut self, bytes: u64) -> u64;
    /// Device-side `free`. False if the address is not a live allocation of that heap (the thread then faults).
    fn free(&mut self, address: u64) -> bool;
    /// `%globaltimer`: nanoseconds of the wall clock.
    fn globaltimer(&mut self) -> u64;
    /// `%clock64`: cycles of the card's clock, never going back.
    fn clock(&mut self) -> u64;
}

/// A launch of one kernel, shared by all of its blocks.
#[derive(Debug)]
pub struct Launch {
    pub image: Arc<Image>,
    /// Index into [`Program::kernels`](crate::program::Program::kernels).
    pub kernel: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Blocks of a cluster; all ones if there are none.
    pub cluster: [u32; 3],
    pub dynamic_shared: u32,
    /// At least [`Kernel::parameter_bytes`](crate::program::Kernel::parameter_bytes) bytes; missing ones read as zero.
    pub parameters: cumux_device::Parameters,
    /// `%gridid`.
    pub grid_id: u64,
    /// `cudaLimitStackSize`: bytes of stack that calls may use besides the kernel's own frame.
    pub stack_bytes: u32,
    /// `%nsmid`.
    pub multiprocessors: u32,
    /// `%nwarpid`: warps an SM can hold.
    pub warps_per_multiprocessor: u32,
    /// Generic address of at least 32 zeroed bytes of device memory for grid-wide barriers (`%envreg1`, `%envreg2`); 0 if not a cooperative launch.
    pub grid_workspace: u64,
}

/// Where one block is in its grid and on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockCoordinates {
    pub ctaid: [u32; 3],
    /// `%smid`.
    pub multiprocessor: u32,
    /// `%warpid` of the block's first warp.
    pub first_warp: u32,
}

/// How a slice ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The budget is used up.
    Running,
    Done,
    Fault(Box<Fault>),
}

/// What a thread did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Address space and what is wrong.
    Global(MemoryFault),
    SharedOutOfBounds,
    LocalOutOfBounds,
    ParamOutOfBounds,
    Misaligned,
    Trap,
    /// `brkpt`: as on the card without a debugger.
    Breakpoint,
    Assertion,
    IllegalInstruction,
    StackOverflow,
    /// An indirect call of something that is not a function of the module.
    BadCall,
    /// `free` of what is not an allocation.
    BadFree,
    /// Every thread of the block waits at a barrier that none can complete.
    Deadlock,
}

impl FaultKind {
    /// How CUDA calls an access that went wrong; `None` for faults without an address.
    fn headline(self) -> Option<&'static str> {
        match self {
            FaultKind::Global(_) | FaultKind::SharedOutOfBounds | FaultKind::LocalOutOfBounds | FaultKind::ParamOutOfBounds => Some("illegal address"),
            FaultKind::Misaligned => Some("misaligned address"),
            _ => None,
        }
    }

    /// In words, as part of a sentence.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            FaultKind::Global(MemoryFault::OutOfBounds) => "access outside any allocation",
            FaultKind::Global(MemoryFault::Freed) => "access to freed memory",
            FaultKind::Global(MemoryFault::ReadOnly) => "write to read-only memory",
            FaultKind::SharedOutOfBounds => "access outside the block's shared memory",
            FaultKind::LocalOutOfBounds => "access outside the thread's local memory",
            FaultKind::ParamOutOfBounds => "access outside the parameters",
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

/// Characters of a kernel's name in a message.
const LONGEST_NAME: usize = 200;

/// The beginning of a name that is too long for a message.
pub(crate) fn shortened(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// A fault and where it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// The address accessed, 0 where there is none.
    pub address: u64,
    pub bytes: u32,
    /// PTX line.
    pub line: u32,
    /// The instruction's mnemonic.
    pub instruction: String,
    pub kernel: String,
    pub ctaid: [u32; 3],
    pub thread: [u32; 3],
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [bx, by, bz] = self.ctaid;
        let [tx, ty, tz] = self.thread;
        // What matters most comes first: texts are cut where they travel, and names of templates
        // are as long as they like.
        let kernel = shortened(&self.kernel);
        let place = format!("(block {bx},{by},{bz} thread {tx},{ty},{tz})");
        match self.kind.headline() {
            Some(headline) => {
                write!(f, "kernel {kernel}: {headline} {:#x} {place}: {}, {} bytes", self.address, self.kind.describe(), self.bytes)?;
            }
            None => write!(f, "kernel {kernel}: {} {place}", self.kind.describe())?,
        }
        write!(f, ", PTX line {}: {}", self.line, self.instruction)
    }
}
