//! A listening socket at a path.

use crate::connection::Connection;
use crate::error::LinkError;
use crate::peer::Peer;
use crate::reach::address;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Connections that may wait in the queue of an inherited socket; the system allows fewer
/// (net.core.somaxconn).
pub const INHERITED_QUEUE: i32 = 4096;

/// Listens again on a socket on which another process listens already. From then on the kernel
/// names this process to everybody who connects ([`crate::reach`] asks it). Connections that wait
/// in the queue stay there; the kernel goes on naming the other process to their clients.
///
/// # Errors
/// [`LinkError::System`]: the socket is not bound, or the kernel still names another process.
pub fn listen_again(socket: &impl AsFd) -> Result<(), LinkError> {
    rustix::net::listen(socket, INHERITED_QUEUE)?;
    // Of a listening socket the kernel tells what it will tell its clients.
    let listener = Peer::of(socket)?;
    if listener.pid == Some(std::process::id()) { Ok(()) } else { Err(LinkError::System(Errno::OPNOTSUPP)) }
}

/// Listens for sequenced-packet connections. Binding replaces an old socket at the path: the caller
/// has made sure that it is stale, and that only trusted users can write the directory.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// [`LinkError::PathTooLong`], or [`LinkError::System`] when the directory cannot be written.
    pub fn bind(path: &Path) -> Result<Self, LinkError> {
        let address = address(path)?;
        match rustix::fs::unlink(path) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(LinkError::System(errno)),
        }
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &address.at)?;
        rustix::net::listen(&socket, 1024)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// A socket for packets that is bound to `path` and listens already ([`listen_again`]).
    #[must_use]
    pub fn over(socket: OwnedFd, path: &Path) -> Self {
        Self { socket, path: path.to_owned() }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`LinkError::System`] when the process has too many descriptors, for example.
    pub fn accept(&self) -> Result<Connection, LinkError> {
        Ok(rustix::io::retry_on_intr(|| rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC))?.into())
    }

    /// The path it is bound to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, peer, trust};
    use rustix::net::{SocketAddrUnix, accept, bind, connect, listen, recv, send, socket_with};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    const PART: &str = "CUMUX_TEST_INHERITS";

    /// The heir's part: standard input is the listening socket. It listens again and answers the
    /// first two who come.
    fn play_heir() -> ! {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        let before = Peer::of(&socket).unwrap();
        assert_eq!((before.pid, before.uid), (Some(rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs()), trust::own()));
        listen_again(&socket).unwrap();
        eprintln!("up");
        for _ in 0..2 {
            let client = accept(&socket).unwrap();
            let mut word = [0; 100];
            let (count, _) = recv(&client, &mut word[..], rustix::net::RecvFlags::empty()).unwrap();
            let client_pid = Peer::of(&client).unwrap().pid.unwrap();
            std::io::stderr().write_all(format!("heard {} of {client_pid}\n", String::from_utf8_lossy(&word[..count])).as_bytes()).unwrap();
        }
        std::process::exit(0);
    }

    /// Socket activation rests on this: one process binds and listens, a client connects, another
    /// process inherits the socket and listens again. To the next client the kernel names the
    /// second process; both clients are served, and both are known by their own credentials.
    #[test]
    fn who_listens_again_on_an_inherited_socket_is_who_listens() {
        if std::env::var_os(PART).is_some() {
            play_heir();
        }
        let base = tempfile::tempdir().unwrap();
        for (name, kind) in [("stream", SocketType::STREAM), ("packets", SocketType::SEQPACKET)] {
            let new = || socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let (listener, at) = (new(), SocketAddrUnix::new(base.path().join(name)).unwrap());
            bind(&listener, &at).unwrap();
            listen(&listener, 5).unwrap();
            let own = std::process::id();
            let reach = |word: &str| {
                let client = new();
                connect(&client, &at).unwrap();
                send(&client, word.as_bytes(), rustix::net::SendFlags::NOSIGNAL).unwrap();
                client
            };
            let early = reach("early");
            assert_eq!(Peer::of(&early).unwrap().pid, Some(own));
            let mut heir = Command::new(std::env::current_exe().unwrap());
            heir.args(["who_listens_again", "--nocapture"]).env(PART, "").stdin(listener.try_clone().unwrap()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut heir = heir.spawn().unwrap();
            let mut said = BufReader::new(heir.stderr.take().unwrap()).lines().map(Result::unwrap);
            assert_eq!(said.next().as_deref(), Some("up"), "{name}");
            let late = reach("late");
            let (listens, process) = (Peer::of(&late).unwrap(), peer::process_of(&late));
            assert_eq!((listens.pid, listens.uid), (Some(heir.id()), trust::own()), "{name}");
            if let Some(process) = process {
                assert_eq!(peer::told_number(&process), Some(heir.id()), "{name}");
            }
            assert_eq!(Peer::of(&early).unwrap().pid, Some(own), "a client that connected before keeps what it was told");
            assert_eq!(said.next(), Some(format!("heard early of {own}")), "{name}");
            assert_eq!(said.next(), Some(format!("heard late of {own}")), "{name}");
            assert!(heir.wait().unwrap().success());
            // Whoever holds the socket still may hand it to the next.
            let between = reach("between");
            assert_eq!(Peer::of(&between).unwrap().pid, Some(heir.id()), "the kernel names the one who listened last, also if it has ended");
            listen_again(&listener).unwrap();
            let next = reach("next");
            assert_eq!(Peer::of(&next).unwrap().pid, Some(own));
            assert!(Process::open(own).unwrap().is_alive());
        }
    }

    #[test]
    fn what_is_not_bound_cannot_be_taken_over() {
        let fresh = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        assert!(matches!(listen_again(&fresh), Err(LinkError::System(Errno::INVAL))));
    }
}
