//! The program's own standard output, through the C library's buffer, so that device printf keeps
//! its place among the program's lines.

#[allow(non_upper_case_globals)]
mod c {
    unsafe extern "C" {
        pub(super) static stdout: *mut libc::FILE;
    }
}

/// Writes text as the program's own `printf` would.
pub(crate) fn write(text: &[u8]) {
    // SAFETY: `stdout` is the C library's, valid from before main to after exit handlers; fwrite
    // locks it itself; the buffer is ours.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), c::stdout) };
}
