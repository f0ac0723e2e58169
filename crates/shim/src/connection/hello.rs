//! The hello: who serves this program, if anybody.

use super::{Connection, Files};
use cumux_abi::CUresult;
use cumux_link::connection::exactly;
use cumux_link::pulse::{self, Pulse};
use cumux_link::{Connection as Link, LinkError, Process, escape_foreign, trust};
use cumux_ring::window;
use cumux_wire::VERSION;
use cumux_wire::layout::arena_window;
use cumux_wire::message::{Hello, Reply};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const DEFAULT_DIRECTORY: &str = "/tmp/nvidia-mps";
/// Address space kept free of the program's own mappings; device memory beyond it works as well,
/// but host and device addresses could collide.
const RESERVED: u64 = 1 << 40;
/// Between two looks whether the daemon stands still.
const GLANCE: Duration = Duration::from_millis(250);
/// A server that has to be started first, with its executor, takes a while.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Who answers this program's calls.
#[derive(Debug)]
pub enum Verdict {
    /// A cumux server.
    Served,
    /// The real driver, if there is one; why, for the log.
    Bypass(String),
    /// Nobody: every call returns `result`.
    Refused { result: CUresult, why: String },
}

/// Between one hello and the next, when the other side closed the connection before it had
/// answered.
const PAUSES: [Duration; 5] =
    [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];

static SERVED: OnceLock<Connection> = OnceLock::new();

/// The connection, once [`connect`] has made one.
pub fn find_served() -> Option<&'static Connection> {
    SERVED.get()
}

/// Takes a connection made by hand.
#[cfg(test)]
pub(crate) fn adopt(session: Connection) -> &'static Connection {
    SERVED.get_or_init(|| session)
}

/// True if somebody listens where the daemon does. Connects once and sends nothing, because a dead
/// daemon may have left its socket. The CUDA runtime makes hundreds of calls before `cuInit`: once
/// somebody has listened, nobody looks again.
pub fn is_awaited() -> bool {
    static SEEN: OnceLock<()> = OnceLock::new();
    if SEEN.get().is_none() {
        let listens = |directory: PathBuf| {
            let reached = Link::connect_within(&directory.join("cumux"), GLANCE);
            // Any other error is one for the hello to tell of.
            !matches!(reached, Err(LinkError::System(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR)))
        };
        if directory(trust::variable("CUDA_MPS_PIPE_DIRECTORY")).is_ok_and(listens) {
            let _ = SEEN.set(());
        }
    }
    SEEN.get().is_some()
}

/// Says hello. Called once for the process.
#[must_use]
pub fn connect() -> Verdict {
    // Not the wish of a caller who has fewer rights than this program.
    let directory = match directory(trust::variable("CUDA_MPS_PIPE_DIRECTORY")) {
        Ok(directory) => directory,
        Err(why) => return Verdict::Bypass(why),
    };
    let path = directory.join("cumux");
    match hello(&path) {
        Ok(Greeting::Served { files, arenas }) => match Connection::new(*files) {
            Ok(session) => {
                for start in arenas {
                    let _ = window::reserve(start, RESERVED);
                }
                let session = SERVED.get_or_init(|| session);
                if session.recording.is_on() {
                    // SAFETY: the function is a C function without arguments that never unwinds.
                    unsafe { libc::atexit(flush_recording) };
                }
                crate::log::line(format_args!("served as session {} by {}", session.id, path.display()));
                Verdict::Served
            }
            Err(why) => refused(why),
        },
        Ok(Greeting::Refused { result, why }) => Verdict::Refused { result: CUresult(result), why },
        Ok(Greeting::Nobody) => Verdict::Bypass(format!("nobody listens at {}", path.display())),
        Err(why) => refused(why),
    }
}

/// Runs when the process ends in order.
extern "C" fn flush_recording() {
    // A panic must not leave a C function.
    let _ = std::panic::catch_unwind(|| find_served().map(|session| session.recording.flush()));
}

/// Says hello until it is answered: a server that dies in the middle of it is replaced, and the
/// next hello goes to its successor.
fn hello(path: &Path) -> Result<Greeting, String> {
    let mut pauses = PAUSES.iter();
    let mut asked = false;
    loop {
        let failed = match Link::connect_within(path, pulse::limit().unwrap_or(TIMEOUT)) {
            Ok(connection) => {
                asked = true;
                match greet(&connection) {
                    Ok(greeting) => return Ok(greeting),
                    Err(error) => error,
                }
            }
            Err(LinkError::System(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR)) if !asked => return Ok(Greeting::Nobody),
            // Who listened a moment ago may be coming back.
            Err(LinkError::System(Errno::NOENT | Errno::CONNREFUSED)) => LinkError::Closed,
            Err(LinkError::Foreign(stranger)) => {
                // Heard without being asked for: the program would look as if its card were broken.
                crate::log::alarm(format_args!("{stranger}"));
                return Err(stranger.to_string());
            }
            Err(error) => return Err(format!("cannot reach {}: {error}", path.display())),
        };
        match (failed, pauses.next()) {
            (LinkError::Closed, Some(pause)) => std::thread::sleep(*pause),
            (error, _) => return Err(format!("the service at {} did not answer: {error}", path.display())),
        }
    }
}

fn refused(why: String) -> Verdict {
    Verdict::Refused { result: CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED, why }
}

/// Where the daemon listens; `Err` when the program asks not to be served.
fn directory(variable: Option<OsString>) -> Result<PathBuf, String> {
    match variable {
        None => Ok(DEFAULT_DIRECTORY.into()),
        Some(path) if path.is_empty() => Err("CUDA_MPS_PIPE_DIRECTORY is empty".to_owned()),
        Some(path) => Ok(path.into()),
    }
}

/// The answer, understood.
enum Greeting {
    /// With the beginnings of the device memory of each device.
    Served {
        files: Box<Files>,
        arenas: Vec<u64>,
    },
    /// There is no service.
    Nobody,
    Refused {
        result: u32,
        why: String,
    },
}

fn greet(connection: &Link) -> Result<Greeting, LinkError> {
    connection.set_timeout(Some(GLANCE))?;
    let hello = Hello::Client { version: VERSION, pid: std::process::id(), environment: environment(), program: program() };
    // For a daemon that does not see this process and whose kernel gives it no handle. Without it
    // others are served still.
    let own = Process::open(std::process::id()).ok();
    let handles: Vec<_> = own.iter().map(AsFd::as_fd).collect();
    let sent = connection.send(&hello, &handles);
    let mut outcome = answer(connection);
    if matches!(outcome, Err(LinkError::Closed)) {
        // Whoever refuses without reading the hello resets the connection; the refusal lies behind
        // that.
        outcome = answer(connection);
    }
    let (reply, descriptors) = match (outcome, sent) {
        (Ok(Ok(answer)), _) => answer,
        (Ok(Err(why)), _) => return Ok(Greeting::Refused { result: CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED.0, why }),
        (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
    };
    Ok(match reply {
        Reply::Welcome { version, .. } if version != VERSION => Greeting::Refused {
            result: CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH.0,
            why: format!("the service speaks version {version}, this libcuda.so.1 version {VERSION}: install both from the same cumux release"),
        },
        Reply::Welcome { session, window_slot, devices, parts, fixed, .. } => {
            let arenas = parts.iter().map(|part| arena_window(part.device).start).collect();
            let limits = parts.iter().map(|part| part.memory_limit).collect();
            let [ring, page, window, doorbell, server, keeper] = exactly(descriptors)?;
            Greeting::Served { files: Box::new(Files { session, window_slot, devices, fixed, limits, ring, page, window, doorbell, server, keeper }), arenas }
        }
        Reply::Refused { result, why } => Greeting::Refused { result, why: escape_foreign(&why, 1024) },
    })
}

/// The answer to the hello; a sentence where the daemon has been stopped by a signal.
fn answer(connection: &Link) -> Result<Result<(Reply, Vec<OwnedFd>), String>, LinkError> {
    let asked = Instant::now();
    let daemon = connection.peer().ok().and_then(|peer| peer.pid);
    let mut watched = daemon.zip(pulse::limit().map(|limit| Pulse::new(limit, asked)));
    loop {
        match connection.receive::<Reply>() {
            Err(LinkError::Timeout) if asked.elapsed() < TIMEOUT => {}
            other => return other.map(Ok),
        }
        if let Some((pid, pulse)) = &mut watched
            && let pulse::Verdict::Dead(how) = pulse.observe(Instant::now(), pulse::motion(*pid), &[])
        {
            return Ok(Err(format!(
                "the control daemon does not answer: process {pid} {how}; let it go on (kill -CONT {pid}), or end it and start it again, then start this program again"
            )));
        }
    }
}

/// What the service may want to know of the program's environment.
fn environment() -> Vec<(String, String)> {
    let wanted = |name: &str| name.starts_with("CUDA_MPS_") || name == "CUDA_VISIBLE_DEVICES" || name.starts_with("CUMUX_");
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).filter(|(name, _)| wanted(name)).collect()
}

pub(super) fn program() -> String {
    std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::result;

    #[test]
    fn an_empty_directory_asks_not_to_be_served() {
        assert_eq!(directory(None), Ok(PathBuf::from(DEFAULT_DIRECTORY)));
        assert_eq!(directory(Some("/run/mps".into())), Ok(PathBuf::from("/run/mps")));
        assert!(directory(Some(OsString::new())).is_err());
    }

    #[test]
    fn another_version_and_a_refusal_are_told_apart_from_a_welcome() {
        let (client, service) = Link::pair().unwrap();
        let answer = |reply: Reply| {
            service.send(&reply, &[]).unwrap();
            greet(&client)
        };
        let welcome = |version| Reply::Welcome { version, session: 1, window_slot: 0, devices: Vec::new(), parts: Vec::new(), fixed: false };
        assert!(matches!(answer(welcome(VERSION + 1)), Ok(Greeting::Refused { result: result::SYSTEM_DRIVER_MISMATCH, .. })));
        assert!(matches!(answer(welcome(VERSION)), Err(LinkError::Descriptors { .. })), "no files, no session");
        assert!(matches!(
            answer(Reply::Refused { result: result::MPS_SERVER_NOT_READY, why: String::new() }),
            Ok(Greeting::Refused { result: result::MPS_SERVER_NOT_READY, .. })
        ));
    }

    #[test]
    fn a_refusal_before_the_hello_was_read_is_heard() {
        let refuse = |read: bool| {
            let (client, service) = Link::pair().unwrap();
            let greeting = std::thread::spawn(move || greet(&client));
            if read {
                // The hello is there, and nobody reads it.
                let mut there = [rustix::event::PollFd::new(&service, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut there, None).unwrap();
            }
            service.send(&Reply::Refused { result: result::MPS_MAX_CLIENTS_REACHED, why: "no \u{1b}[2Jplace".into() }, &[]).unwrap();
            drop(service);
            greeting.join().unwrap()
        };
        for read in [true, false] {
            let greeting = refuse(read);
            assert!(matches!(&greeting, Ok(Greeting::Refused { result: result::MPS_MAX_CLIENTS_REACHED, why }) if why == "no \\u{1b}[2Jplace"));
        }
    }

    #[test]
    fn a_hello_that_nobody_finished_is_said_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cumux");
        assert!(matches!(hello(&path), Ok(Greeting::Nobody)));
        let listener = cumux_link::Listener::bind(&path).unwrap();
        let service = std::thread::spawn(move || {
            for _ in 0..2 {
                // The hello was read, or not even that: the server is gone.
                let connection = listener.accept().unwrap();
                let _ = connection.receive_bytes();
            }
            let connection = listener.accept().unwrap();
            connection.receive_bytes().unwrap();
            connection.send(&Reply::Refused { result: result::MPS_SERVER_NOT_READY, why: String::new() }, &[]).unwrap();
            listener
        });
        assert!(matches!(hello(&path), Ok(Greeting::Refused { result: result::MPS_SERVER_NOT_READY, .. })));
        // One that never answers is told as such in the end, even when it goes away altogether.
        let listener = service.join().unwrap();
        let service = std::thread::spawn(move || drop(listener.accept().unwrap()));
        assert!(hello(&path).is_err_and(|why| why.contains("did not answer")));
        service.join().unwrap();
    }
}
