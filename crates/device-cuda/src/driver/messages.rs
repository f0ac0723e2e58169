//! What the driver prints on standard error, as lines for this process.
//!
//! The driver prints through C's `stderr`, a pointer of the C library. It is replaced by a stream
//! into a pipe; Rust's own standard error is descriptor 2 and is not affected. So the service's log
//! stays what it is, also at a panic.

use core::ptr::null_mut;
use parking_lot::Mutex;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::OnceLock;

unsafe extern "C" {
    /// C's standard error. A pointer that programs may replace (glibc's manual, "Standard
    /// Streams").
    #[link_name = "stderr"]
    static mut C_STANDARD_ERROR: *mut libc::FILE;
}

/// A receiver of the driver's lines.
type Listener = Box<dyn Fn(&str) + Send>;

/// All receivers. Lock 8 of the crate's order; receivers are called under it, and may send
/// messages (9).
static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

/// Longest line that is passed on. The rest of a longer one comes as another line.
const LONGEST_LINE: u64 = 64 << 10;

/// Calls `listener` with each line that the driver prints from now on, on a thread of its own. The
/// receiver is never removed: an executor opens its cards once.
///
/// # Errors
/// The operating system's: there is no descriptor or no thread for it.
pub(crate) fn listen_to_driver(listener: impl Fn(&str) + Send + 'static) -> std::io::Result<()> {
    static STARTED: OnceLock<Result<(), i32>> = OnceLock::new();
    LISTENERS.lock().push(Box::new(listener));
    let started = STARTED.get_or_init(|| start().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)));
    started.map_err(std::io::Error::from_raw_os_error)
}

/// Replaces C's `stderr`, and starts the thread that reads the lines.
fn start() -> std::io::Result<()> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::Builder::new().name("driver-words".into()).spawn(move || read_lines(reader))?;
    let descriptor = writer.into_raw_fd();
    // SAFETY: an open descriptor, which the stream owns from now on, and a constant text.
    let stream = unsafe { libc::fdopen(descriptor, c"w".as_ptr()) };
    if stream.is_null() {
        return Err(std::io::Error::last_os_error());
    }
    // Whole lines: the driver prints one in several pieces.
    // SAFETY: the stream was just made and is used by nobody yet; C allocates the buffer.
    unsafe { libc::setvbuf(stream, null_mut(), libc::_IOLBF, 0) };
    // SAFETY: the pointer is replaced before the driver, the only C code of this process that
    // prints, is loaded; the new stream is never closed.
    unsafe { C_STANDARD_ERROR = stream };
    Ok(())
}

fn read_lines(reader: OwnedFd) {
    let mut reader = BufReader::new(std::fs::File::from(reader));
    let mut line = Vec::new();
    loop {
        line.clear();
        match std::io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                LISTENERS.lock().iter().for_each(|listener| listener(&text));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
