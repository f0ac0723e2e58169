//! The driver's requests of its kernel module, as far as they matter at a fault.
//!
//! The driver makes them with C's `ioctl`. This program has a function of that name, which goes
//! before the C library's in the whole process. It passes on every request as it is; what it does
//! beside that is in [`super::handling`]. Numbers and structures: `nv-ioctl-numbers.h`, `nvos.h`,
//! `ctrl83de.h` and `ctrl906f.h` of NVIDIA's open kernel modules. Another driver that has others
//! finds its requests passed on, and nothing more.

use super::handling;
use core::ffi::{c_int, c_ulong, c_void};

/// The type of the driver's requests.
const TYPE: c_ulong = b'F' as c_ulong;
/// `NV_ESC_RM_CONTROL`.
const CONTROL: c_ulong = 0x2a;
/// `NV_ESC_RM_ALLOC`.
const ALLOCATE: c_ulong = 0x2b;
/// `GT200_DEBUGGER`, the class of the object through which a card is debugged.
const DEBUGGER: u32 = 0x83de;
/// `NV83DE_CTRL_CMD_DEBUG_READ_MEMORY` and what follows it.
const READ_MEMORY: u32 = 0x83de_0315;
const WRITE_MEMORY: u32 = 0x83de_0316;
const SUSPEND_CONTEXT: u32 = 0x83de_0317;
const RESUME_CONTEXT: u32 = 0x83de_0318;
/// `NV906F_CTRL_CMD_RESET_CHANNEL`.
const RESET_CHANNEL: u32 = 0x906f_0102;

/// `NVOS54_PARAMETERS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: *mut c_void,
    bytes: u32,
    status: u32,
}

/// The beginning of `NVOS21_PARAMETERS` and `NVOS64_PARAMETERS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Allocation {
    root: u32,
    parent: u32,
    object: u32,
    class: u32,
}

/// `NV83DE_CTRL_DEBUG_READ_MEMORY_PARAMS`, and those of writing.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Transfer {
    memory: u32,
    length: u32,
    offset: u64,
    buffer: *mut u8,
}

/// Bytes of a memory of the card, in which the debugger finds what warps were doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    /// The driver's handle of the memory.
    pub memory: u32,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// The driver's debugger, so that requests can be made in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debugger {
    descriptor: c_int,
    client: u32,
    object: u32,
}

/// C's `ioctl`, for the whole process.
///
/// # Safety
/// As for the C library's: the argument is what the request wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as this function's caller has it.
    let pass_on = || unsafe { pass_on(descriptor, request, argument) };
    let (kind, number, bytes) = ((request >> 8) & 0xff, request & 0xff, (request >> 16) as usize & 0x3fff);
    if kind != TYPE || argument.is_null() || !handling::watches() {
        return pass_on();
    }
    if number == ALLOCATE && bytes >= size_of::<Allocation>() {
        // SAFETY: the size is part of the request.
        if unsafe { argument.cast::<Allocation>().read_unaligned() }.class == DEBUGGER {
            handling::note_debugger();
        }
    }
    if number != CONTROL || bytes != size_of::<Control>() {
        return pass_on();
    }
    // SAFETY: the size is that of the request.
    let control = unsafe { argument.cast::<Control>().read_unaligned() };
    let debugger = Debugger { descriptor, client: control.client, object: control.object };
    match control.command {
        READ_MEMORY | WRITE_MEMORY if control.bytes as usize == size_of::<Transfer>() && !control.parameters.is_null() => {
            // SAFETY: the size is that of the command's parameters.
            let transfer = unsafe { control.parameters.cast::<Transfer>().read_unaligned() };
            if transfer.buffer.is_null() {
                return pass_on();
            }
            let piece = Piece { memory: transfer.memory, offset: transfer.offset, length: transfer.length };
            // SAFETY: the driver gives a buffer of that length, and waits meanwhile.
            let buffer = unsafe { core::slice::from_raw_parts_mut(transfer.buffer, transfer.length as usize) };
            if control.command == WRITE_MEMORY {
                handling::before_write(debugger, piece, buffer);
                return pass_on();
            }
            if handling::read_ahead(debugger, piece, buffer) {
                // SAFETY: the structure of the request, which its maker reads afterwards.
                unsafe { argument.cast::<Control>().write_unaligned(Control { status: 0, ..control }) };
                return 0;
            }
            let result = pass_on();
            // SAFETY: as above.
            let status = unsafe { argument.cast::<Control>().read_unaligned() }.status;
            if result == 0 && status == 0 {
                handling::after_read(piece, buffer);
            }
            result
        }
        SUSPEND_CONTEXT | RESUME_CONTEXT => {
            let result = pass_on();
            handling::after_stop_or_go(control.command == SUSPEND_CONTEXT);
            result
        }
        RESET_CHANNEL => {
            handling::hold_reset();
            pass_on()
        }
        _ => pass_on(),
    }
}

/// The system's own call.
///
/// # Safety
/// As for the C library's function.
unsafe fn pass_on(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as the caller has it; the C library's `ioctl` is this and nothing more.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, argument) };
    // It returns small numbers.
    result as c_int
}

impl Debugger {
    /// Makes a control request as the driver's debugger does. True if it is done.
    fn control(self, command: u32, parameters: *mut c_void, bytes: usize) -> bool {
        let Debugger { descriptor, client, object } = self;
        let mut control = Control { client, object, command, flags: 0, parameters, bytes: bytes as u32, status: 0 };
        // The number that the driver's own requests have: read and write, the size, type, number.
        let request: c_ulong = (3 << 30) | ((size_of::<Control>() as c_ulong) << 16) | (TYPE << 8) | CONTROL;
        // SAFETY: the structure and its parameters are as the command wants them, and live until it
        // returns.
        let result = unsafe { pass_on(descriptor, request, (&raw mut control).cast()) };
        result == 0 && control.status == 0
    }

    fn transfer(self, command: u32, memory: u32, offset: u64, buffer: *mut u8, length: usize) -> bool {
        let Ok(length) = u32::try_from(length) else { return false };
        let mut transfer = Transfer { memory, length, offset, buffer };
        self.control(command, (&raw mut transfer).cast(), size_of::<Transfer>())
    }

    /// Reads a memory from `offset` on. False if that cannot be read.
    pub(super) fn read(self, memory: u32, offset: u64, buffer: &mut [u8]) -> bool {
        self.transfer(READ_MEMORY, memory, offset, buffer.as_mut_ptr(), buffer.len())
    }

    /// Writes into a memory from `offset` on. False if that cannot be written.
    pub(super) fn write(self, memory: u32, offset: u64, bytes: &mut [u8]) -> bool {
        self.transfer(WRITE_MEMORY, memory, offset, bytes.as_mut_ptr(), bytes.len())
    }

    /// Lets the card continue. False if it does not.
    pub(super) fn resume(self) -> bool {
        self.control(RESUME_CONTEXT, core::ptr::null_mut(), 0)
    }
}
