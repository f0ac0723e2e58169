//! The numbers that the card has given to this process's queues.
//!
//! The kernel module tells the driver each queue's token, from which the card knows whose work
//! comes: its lower half is the queue's number. After a fault the card's own processor goes through
//! all queues from number 0 on, several times, at about 0.65 ms each, until it has found that of
//! the fault (decision 0128). So a fault is noticed sooner in a process that has low numbers.

use core::ffi::c_void;
use parking_lot::Mutex;

/// `NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN`.
pub(super) const GET_TOKEN: u32 = 0xc36f_0108;

/// The lowest number so far. Lock 8 of the crate's order, held alone.
static FIRST: Mutex<Option<u32>> = Mutex::new(None);

/// Notes the queue of a token.
pub(super) fn note(token: u32) {
    let number = token & 0xffff;
    let mut first = FIRST.lock();
    *first = Some(first.map_or(number, |first| first.min(number)));
}

/// A context has gone, with its queues: the lowest number is again what it was before.
pub(crate) fn set_first_queue(before: Option<u32>) {
    *FIRST.lock() = before;
}

/// The lowest number of this process's queues; `None` if none is known.
pub(crate) fn first_queue() -> Option<u32> {
    *FIRST.lock()
}

/// The token that a request has got.
///
/// # Safety
/// `parameters` points to those of an answered [`GET_TOKEN`]: one word.
pub(super) unsafe fn read_token(parameters: *const c_void) -> u32 {
    // SAFETY: as this function's caller has it.
    unsafe { parameters.cast::<u32>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of an H200's first process: the upper half is the list of queues.
    #[test]
    fn the_lowest_number_counts() {
        [0x1001a, 0x0b, 0x0a, 0xa0049].into_iter().for_each(note);
        assert_eq!(first_queue(), Some(0x0a));
        note(0x03);
        set_first_queue(Some(0x0a));
        assert_eq!(first_queue(), Some(0x0a), "the queue of a context that is gone");
    }
}
