//! What the driver prints on standard error, as lines for this process.
//!
//! The driver prints through C's `stderr`, a pointer of the C library. It is replaced by a stream
//! of ours (glibc's custom streams); Rust's own standard error is descriptor 2 and is not affected.
//! So the service's log stays what it is, also at a panic. The stream writes into a pipe, from
//! which a thread reads lines. The announcement of a fault is noted before that, in the thread that
//! prints it: the card stands still until the driver goes on.
#![expect(clippy::disallowed_types, reason = "noted by the driver's thread, which must not wait; engines look at it without a lock")]

use crate::fault::{FAULT_NOTICED, announces_fault};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use parking_lot::Mutex;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    /// C's standard error. A pointer that programs may replace (glibc's manual, "Standard
    /// Streams").
    #[link_name = "stderr"]
    static mut C_STANDARD_ERROR: *mut libc::FILE;

    /// Makes a stream of functions (glibc's manual, "Custom Streams").
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut libc::FILE;
}

/// `cookie_io_functions_t`: what the absent functions would do is not needed for a stream that is
/// only written.
#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// True once the driver has announced a fault of a card.
static ANNOUNCED: AtomicBool = AtomicBool::new(false);
/// The pipe to the thread that reads lines.
static PIPE: OnceLock<OwnedFd> = OnceLock::new();

/// True once the driver has announced a fault of a card: what completes from now on may be the
/// culprit's.
pub(crate) fn is_fault_announced() -> bool {
    ANNOUNCED.load(Ordering::Acquire)
}

/// Tells the listeners that the driver looks at a fault, as a line of their own.
pub(super) fn notify_noticed() {
    write_to_pipe(format!("\n{FAULT_NOTICED}\n").as_bytes());
}

fn write_to_pipe(mut printed: &[u8]) {
    while let (Some(pipe), false) = (PIPE.get(), printed.is_empty()) {
        match rustix::io::write(pipe, printed) {
            Ok(written) => printed = printed.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
}

/// Takes what is printed. C calls it with bytes of its buffer.
unsafe extern "C" fn take_printed(_cookie: *mut c_void, bytes: *const c_char, count: usize) -> isize {
    if bytes.is_null() {
        return 0;
    }
    // SAFETY: C gives `count` initialised bytes, which live until this returns.
    let printed = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), count) };
    if announces_fault(printed) {
        ANNOUNCED.store(true, Ordering::Release);
    }
    write_to_pipe(printed);
    // Nobody would know what to do with a failure.
    count.cast_signed()
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
    PIPE.get_or_init(|| writer);
    let functions = CookieFunctions { read: None, write: Some(take_printed), seek: None, close: None };
    // SAFETY: a constant text and a function that needs no cookie.
    let stream = unsafe { fopencookie(null_mut(), c"w".as_ptr(), functions) };
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
