//! The program's own standard output and standard error, through the C library's buffers, so that
//! the text of kernels keeps its place among the program's lines.

use cumux_wire::text::Channel;

#[allow(non_upper_case_globals)]
mod c {
    unsafe extern "C" {
        pub(super) static stdout: *mut libc::FILE;
        pub(super) static stderr: *mut libc::FILE;
    }
}

/// Writes text as the program's own `fprintf` would.
pub(crate) fn write(channel: Channel, text: &[u8]) {
    // SAFETY: both streams are the C library's, valid from before main to after exit handlers.
    let stream = unsafe {
        match channel {
            Channel::Output => c::stdout,
            Channel::Error => c::stderr,
        }
    };
    // SAFETY: the stream is one of the C library's, which fwrite locks itself; the buffer is ours.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stream) };
}
