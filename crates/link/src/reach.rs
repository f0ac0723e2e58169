//! Connecting to a socket at a path of any length, without waiting for ever, and to trusted users
//! only.
//!
//! Nothing is sent before the kernel has named the listener's user ([`crate::trust`]).

use crate::error::LinkError;
use crate::folder::by_descriptor;
use crate::peer::Peer;
use crate::trust::{self, Foreign};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a connect waits for a trusted listener whose queue is full, where the caller names no
/// limit.
const QUEUE_WAIT: Duration = Duration::from_secs(10);

/// A path in the form that the system accepts.
pub(crate) struct Address {
    pub(crate) at: SocketAddrUnix,
    /// Keeps the folder open of a path that is too long by itself.
    _folder: Option<OwnedFd>,
}

pub(crate) fn address(path: &Path) -> Result<Address, LinkError> {
    let too_long = || LinkError::PathTooLong(path.display().to_string());
    if let Ok(at) = SocketAddrUnix::new(path) {
        return Ok(Address { at, _folder: None });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(too_long()) };
    let folder = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let at = SocketAddrUnix::new(by_descriptor(&folder).join(name)).map_err(|_| too_long())?;
    Ok(Address { at, _folder: Some(folder) })
}

/// Connects to the listener at `path`. Waits at most `limit` for one whose queue is full,
/// [`QUEUE_WAIT`] without a limit.
pub(crate) fn reach(path: &Path, kind: SocketType, limit: Option<Duration>) -> Result<OwnedFd, LinkError> {
    let address = address(path)?;
    let foreign = |uid| LinkError::Foreign(Foreign::new(path.display().to_string(), uid));
    // The file's owner decides only how long we wait: a stranger may listen and never accept.
    let stranger = rustix::fs::stat(path).ok().map(|stat| stat.st_uid).filter(|uid| !trust::is_trusted(*uid));
    let flags = if stranger.is_some() { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK } else { SocketFlags::CLOEXEC };
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit.unwrap_or(QUEUE_WAIT)))?;
    match (rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address.at)), stranger) {
        (Err(Errno::AGAIN), Some(uid)) => return Err(foreign(uid)),
        (outcome, _) => outcome?,
    }
    let listener = Peer::of(&socket)?;
    if !trust::is_trusted(listener.uid) {
        return Err(foreign(listener.uid));
    }
    set_socket_timeout(&socket, Timeout::Send, None)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// A stream connection to the listener at `path`; `limit` as in
/// [`crate::Connection::connect_within`].
///
/// # Errors
/// As [`crate::Connection::connect_within`].
pub fn stream(path: &Path, limit: Option<Duration>) -> Result<UnixStream, LinkError> {
    Ok(reach(path, SocketType::STREAM, limit)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, Listener};
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn a_path_may_be_longer_than_an_address() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("x".repeat(150));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("server-4294967295.sock");
        let listener = Listener::bind(&path).unwrap();
        let connection = Connection::connect(&path).unwrap();
        connection.send(&"hello", &[]).unwrap();
        assert_eq!(listener.accept().unwrap().receive::<String>().unwrap().0, "hello");
        assert!(path.exists(), "it lies where it was asked for");
        let text = std::os::unix::net::UnixListener::bind(base.path().join("text")).unwrap();
        let stream = stream(&base.path().join("text"), None).unwrap();
        let listener = Peer::of(&stream).unwrap();
        assert_eq!((listener.pid, listener.uid), (Some(std::process::id()), trust::own()));
        drop(text);
    }

    const PART: &str = "CUMUX_TEST_STRANGER";

    /// The stranger's part: listens at a path, with room for nobody if so asked, and tells what the
    /// first who comes has sent.
    fn play_stranger(path: &str) -> ! {
        let kind = if path.contains("packet") { SocketType::SEQPACKET } else { SocketType::STREAM };
        let new = || rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (listener, at) = (new(), SocketAddrUnix::new(path).unwrap());
        rustix::net::bind(&listener, &at).unwrap();
        let full = path.contains("full");
        rustix::net::listen(&listener, if full { 0 } else { 5 }).unwrap();
        let own = new();
        if full {
            rustix::net::connect(&own, &at).unwrap();
        }
        eprintln!("up");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        if !full {
            let first = rustix::net::accept(&listener).unwrap();
            let (count, _) = rustix::net::recv(&first, &mut [0; 100][..], rustix::net::RecvFlags::empty()).unwrap();
            eprintln!("heard {count}");
        }
        std::process::exit(0);
    }

    /// Another user listens, in a process of its own: nothing but the kernel's word can tell.
    #[test]
    fn a_stranger_is_left_before_a_word_is_said() {
        if let Ok(path) = std::env::var(PART) {
            play_stranger(&path);
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOTE: not tested: another user needs root");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        std::fs::set_permissions(base.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let program = base.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        for name in ["packets", "packets-full", "stream", "stream-full"] {
            let path = base.path().join(name);
            let mut child = Command::new(&program);
            child.args(["a_stranger_is_left", "--nocapture"]).env(PART, &path).uid(65534).gid(65534);
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
            assert_eq!(said.next().as_deref(), Some("up"));
            let attempt = || if name.contains("stream") { stream(&path, None).map(drop) } else { Connection::connect(&path).map(drop) };
            let outcome = attempt();
            let Err(LinkError::Foreign(who)) = outcome else { panic!("{name}: {outcome:?}") };
            assert_eq!(who.uid, 65534);
            let full = name.contains("full");
            if !full {
                // Root's file does not make the listener root's.
                chown(&path, Some(0), None).unwrap();
                assert!(matches!(attempt(), Err(LinkError::Foreign(_))));
            }
            drop(child.stdin.take());
            assert_eq!(said.next().as_deref(), (!full).then_some("heard 0"));
            child.wait().unwrap();
        }
    }
}
