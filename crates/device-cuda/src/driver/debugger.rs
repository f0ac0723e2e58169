//! The driver's own debugger of a card: its requests, as the driver makes them. Numbers and
//! structures: `nv-ioctl-numbers.h`, `nvos.h` and `ctrl83de.h` of NVIDIA's open kernel modules.

use core::ffi::{c_int, c_ulong, c_void};

/// The type of the driver's requests.
pub(super) const TYPE: c_ulong = b'F' as c_ulong;
/// `NV_ESC_RM_CONTROL`.
pub(super) const CONTROL: c_ulong = 0x2a;
/// `NV83DE_CTRL_CMD_DEBUG_READ_MEMORY` and what follows it.
pub(super) const READ_MEMORY: u32 = 0x83de_0315;
pub(super) const WRITE_MEMORY: u32 = 0x83de_0316;
pub(super) const SUSPEND_CONTEXT: u32 = 0x83de_0317;
pub(super) const RESUME_CONTEXT: u32 = 0x83de_0318;
pub(super) const READ_ERRORS: u32 = 0x83de_030c;
/// `NV83DE_CTRL_CMD_DEBUG_CLEAR_SINGLE_SM_ERROR_STATE`. The command for all multiprocessors takes
/// 70 to 220 ms on an H200; this one 0.9.
const CLEAR_ERROR: u32 = 0x83de_030f;

/// Bytes of `NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS`.
pub(super) const READ_ERRORS_BYTES: u32 = 4824;
/// Where the number of multiprocessors is in it, and the first one's number, in words.
pub(super) const READ_ERRORS_WORDS: [usize; 2] = [1, 1205];
/// The first multiprocessor's registers in it, the words of each, and most of them in one request.
const FIRST_ERROR: usize = 2;
const ERROR_WORDS: usize = 12;
const MOST_ERRORS: u32 = 100;
/// The bit of a multiprocessor's register that says that it was stopped: `BPT_PAUSE` of
/// `HWW_GLOBAL_ESR`.
const PAUSED: u32 = 0x20;

/// `NVOS54_PARAMETERS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Control {
    pub(super) client: u32,
    pub(super) object: u32,
    pub(super) command: u32,
    pub(super) flags: u32,
    pub(super) parameters: *mut c_void,
    pub(super) bytes: u32,
    pub(super) status: u32,
}

/// `NV83DE_CTRL_DEBUG_READ_MEMORY_PARAMS`, and those of writing.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Transfer {
    pub(super) memory: u32,
    pub(super) length: u32,
    pub(super) offset: u64,
    pub(super) buffer: *mut u8,
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
    pub(super) descriptor: c_int,
    pub(super) client: u32,
    pub(super) object: u32,
}

/// The system's own call.
///
/// # Safety
/// As for the C library's function.
pub(super) unsafe fn pass_on(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as the caller has it; the C library's `ioctl` is this and nothing more.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, argument) };
    // It returns small numbers.
    result as c_int
}

impl Debugger {
    /// What names it, whichever file it is asked through: the driver's client and object.
    pub(super) fn name(self) -> (u32, u32) {
        (self.client, self.object)
    }

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

    /// Stops the context's warps. False if that cannot be done.
    pub(super) fn suspend(self) -> bool {
        // `NV83DE_CTRL_DEBUG_SUSPEND_CONTEXT_PARAMS`: two words of what it found.
        let mut found = [0_u32; 2];
        self.control(SUSPEND_CONTEXT, (&raw mut found).cast(), size_of_val(&found))
    }

    /// The first multiprocessors of the card, so many, that have reported an error or a pause.
    /// `None` if they cannot be asked.
    pub(super) fn reporting(self, multiprocessors: u32) -> Option<Vec<u32>> {
        Some(self.read_errors(multiprocessors)?.into_iter().map(|(sm, _)| sm).collect())
    }

    /// Those of them that have reported an error, not a pause alone.
    pub(super) fn faulting(self, multiprocessors: u32) -> Option<Vec<u32>> {
        Some(self.read_errors(multiprocessors)?.into_iter().filter(|(_, [sm, warp])| sm & !PAUSED != 0 || *warp != 0).map(|(sm, _)| sm).collect())
    }

    /// The first multiprocessors of the card, so many, that have reported something, with the
    /// registers of the multiprocessor and of a warp. `None` if they cannot be asked.
    fn read_errors(self, multiprocessors: u32) -> Option<Vec<(u32, [u32; 2])>> {
        let mut reporting = Vec::new();
        let [number, first] = READ_ERRORS_WORDS;
        for begin in (0..multiprocessors).step_by(MOST_ERRORS as usize) {
            let mut words = [0_u32; READ_ERRORS_BYTES as usize / 4];
            let count = (multiprocessors - begin).min(MOST_ERRORS);
            (words[number], words[first]) = (count, begin);
            if !self.control(READ_ERRORS, words.as_mut_ptr().cast(), size_of_val(&words)) {
                return None;
            }
            // The first two words are the multiprocessor's register and that of a warp.
            let registers = words.get(FIRST_ERROR..)?.chunks_exact(ERROR_WORDS).filter_map(|words| words.first_chunk::<2>().copied());
            reporting.extend((begin..begin + count).zip(registers).filter(|(_, registers)| *registers != [0, 0]));
        }
        Some(reporting)
    }

    /// Forgets what the first multiprocessors, so many, have reported. How many had; `None` if that
    /// cannot be done. The card has to be stopped.
    pub(super) fn clear_errors(self, multiprocessors: u32) -> Option<usize> {
        let reporting = self.reporting(multiprocessors)?;
        let clear = |sm: &u32| {
            // `NV83DE_CTRL_DEBUG_CLEAR_SINGLE_SM_ERROR_STATE_PARAMS`: a channel, of which the
            // driver names none either, and the multiprocessor.
            let mut what = [0, *sm];
            self.control(CLEAR_ERROR, (&raw mut what).cast(), size_of_val(&what))
        };
        reporting.iter().all(clear).then_some(reporting.len())
    }

    /// Lets the card continue. False if it does not.
    pub(super) fn resume(self) -> bool {
        self.control(RESUME_CONTEXT, core::ptr::null_mut(), 0)
    }
}
