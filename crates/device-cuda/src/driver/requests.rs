//! The driver's requests of its kernel module, as far as they matter at a fault.
//!
//! The driver makes them with C's `ioctl`. This program has a function of that name, which goes
//! before the C library's in the whole process. It passes on every request as it is; what it does
//! beside that is in [`super::handling`] and [`super::queue_numbers`]. Numbers and structures:
//! `nv-ioctl-numbers.h`, `nvos.h`, `ctrl83de.h`, `ctrl906f.h` and `ctrlc36f.h` of NVIDIA's open
//! kernel modules. Another driver that has others finds its requests passed on, and nothing more.

use super::debugger::{
    CONTROL, Control, Debugger, Piece, READ_ERRORS, READ_ERRORS_BYTES, READ_ERRORS_WORDS, READ_MEMORY, RESUME_CONTEXT, SUSPEND_CONTEXT, TYPE, Transfer,
    WRITE_MEMORY, pass_on,
};
use super::handling;
use super::queue_numbers::{self, GET_TOKEN};
use core::ffi::{c_int, c_ulong, c_void};

/// `NV_ESC_RM_ALLOC`.
const ALLOCATE: c_ulong = 0x2b;
/// `GT200_DEBUGGER`, the class of the object through which a card is debugged.
const DEBUGGER: u32 = 0x83de;
/// `NV906F_CTRL_CMD_RESET_CHANNEL`.
const RESET_CHANNEL: u32 = 0x906f_0102;

/// The beginning of `NVOS21_PARAMETERS` and `NVOS64_PARAMETERS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Allocation {
    root: u32,
    parent: u32,
    object: u32,
    class: u32,
}

/// C's `ioctl`, for the whole process.
///
/// # Safety
/// As for the C library's: the argument is what the request wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as this function's caller has it.
    unsafe { answer(descriptor, request, argument, || pass_on(descriptor, request, argument)) }
}

/// Answers a request, or has the kernel module answer it: `pass_on` does that.
///
/// # Safety
/// As for [`ioctl`].
unsafe fn answer(descriptor: c_int, request: c_ulong, argument: *mut c_void, pass_on: impl Fn() -> c_int) -> c_int {
    // SAFETY: called for a request that has this structure.
    let read_control = || unsafe { argument.cast::<Control>().read_unaligned() };
    let (kind, number, bytes) = ((request >> 8) & 0xff, request & 0xff, (request >> 16) as usize & 0x3fff);
    if kind != TYPE || argument.is_null() {
        return pass_on();
    }
    let is_control = number == CONTROL && bytes == size_of::<Control>();
    if is_control && read_control().command == GET_TOKEN {
        let result = pass_on();
        let control = read_control();
        if result == 0 && control.status == 0 && control.bytes as usize == size_of::<u32>() && !control.parameters.is_null() {
            // SAFETY: the kernel module has answered the request; the size is that of the word.
            queue_numbers::note(unsafe { queue_numbers::read_token(control.parameters) });
        }
        return result;
    }
    if !handling::watches() {
        return pass_on();
    }
    if number == ALLOCATE && bytes >= size_of::<Allocation>() {
        // SAFETY: the size is part of the request.
        if unsafe { argument.cast::<Allocation>().read_unaligned() }.class == DEBUGGER {
            handling::note_debugger();
        }
    }
    if !is_control {
        return pass_on();
    }
    let control = read_control();
    let debugger = Debugger { descriptor, client: control.client, object: control.object };
    let is_done = || {
        // SAFETY: the structure of the request, which its maker reads afterwards.
        unsafe { argument.cast::<Control>().write_unaligned(Control { status: 0, ..control }) };
        0
    };
    match control.command {
        READ_MEMORY | WRITE_MEMORY if control.bytes as usize == size_of::<Transfer>() && !control.parameters.is_null() => {
            // SAFETY: the size is that of the command's parameters.
            let transfer = unsafe { control.parameters.cast::<Transfer>().read_unaligned() };
            if transfer.buffer.is_null() {
                return pass_on();
            }
            let piece = Piece { memory: transfer.memory, offset: transfer.offset, length: transfer.length };
            if control.command == WRITE_MEMORY {
                // SAFETY: the driver gives a buffer of that length to be written, and waits.
                let bytes = unsafe { core::slice::from_raw_parts(transfer.buffer, transfer.length as usize) };
                return if handling::before_write(debugger, piece, bytes) { pass_on() } else { is_done() };
            }
            // SAFETY: the driver gives a buffer of the length of the piece, and waits meanwhile.
            let fill = |bytes: &[u8]| unsafe { transfer.buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            if handling::read_ahead(debugger, piece, fill) {
                return is_done();
            }
            let result = pass_on();
            if result == 0 && read_control().status == 0 {
                // SAFETY: the request has filled the driver's buffer, which has that length.
                handling::after_read(debugger, piece, unsafe { core::slice::from_raw_parts_mut(transfer.buffer, transfer.length as usize) });
            }
            result
        }
        SUSPEND_CONTEXT | RESUME_CONTEXT => handling::stop_or_go(debugger, control.command == SUSPEND_CONTEXT, pass_on).unwrap_or_else(is_done),
        READ_ERRORS if control.bytes == READ_ERRORS_BYTES && !control.parameters.is_null() => {
            // SAFETY: the size is that of the command's parameters.
            let word = |at: usize| unsafe { control.parameters.cast::<u32>().add(at).read_unaligned() };
            let [number, first] = READ_ERRORS_WORDS.map(word);
            handling::note_multiprocessors(first.saturating_add(number));
            pass_on()
        }
        RESET_CHANNEL => {
            handling::hold_reset();
            pass_on()
        }
        _ => pass_on(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue_numbers::first_queue;
    use super::*;

    /// Asks for a queue's token as the driver does. The kernel module answers with `status`, and
    /// with that token.
    fn ask_for_token(command: u32, parameters: &mut u32, bytes: u32, (status, token): (u32, u32)) -> c_int {
        let place: *mut u32 = parameters;
        let mut control = Control { client: 1, object: 2, command, flags: 0, parameters: place.cast(), bytes, status: 0xffff };
        let argument: *mut Control = &raw mut control;
        let request = (size_of::<Control>() as c_ulong) << 16 | TYPE << 8 | CONTROL;
        let kernel_module = || {
            // SAFETY: both are locals of this function, and the size is that of a token.
            unsafe {
                (*argument).status = status;
                if bytes == 4 {
                    place.write(token);
                }
            }
            0
        };
        // SAFETY: the argument is what the request wants.
        unsafe { answer(-1, request, argument.cast(), kernel_module) }
    }

    #[test]
    fn tokens_that_the_kernel_module_gives_are_noted_and_nothing_else() {
        // Lower than those of other tests of this process.
        let mut token = 0;
        for (command, bytes, answered) in [(GET_TOKEN, 4, (1, 0x1_0003)), (GET_TOKEN, 8, (0, 0x1_0003)), (GET_TOKEN + 1, 4, (0, 0x1_0003))] {
            assert_eq!(ask_for_token(command, &mut token, bytes, answered), 0);
            assert_ne!(first_queue(), Some(3), "{command:#x} {bytes} {answered:?}");
        }
        assert_eq!(ask_for_token(GET_TOKEN, &mut token, 4, (0, 0x1_0003)), 0);
        assert_eq!((token, first_queue()), (0x1_0003, Some(3)), "the driver has its token, and the number is known");
    }
}
