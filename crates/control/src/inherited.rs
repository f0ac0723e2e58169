//! Listening sockets that a supervisor of services has opened for the daemon: systemd's
//! `cumux.socket`, whose first program starts the daemon.
//!
//! Invariants: the daemon serves an inherited socket only if programs reach it under the path in
//! the pipe directory, and if the user who listened before is the daemon's own: a program that
//! connected before the daemon was there has trusted that user (`reach` of `cumux-link`). The files
//! of inherited sockets belong to the supervisor: the daemon neither changes nor removes them.

use crate::directory::{Claim, PIPE_VARIABLE, PipeDirectory};
use cumux_link::listener::listen_again;
use cumux_link::{Connection, LinkError, Listener, Peer, reach, trust};
use rustix::fs::FileType;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the daemon waits for a place in the queue of a socket that it has taken over.
const QUEUE_WAIT: Duration = Duration::from_millis(100);

/// One socket that the supervisor has passed.
#[derive(Debug)]
pub struct Inherited {
    /// The socket.
    pub socket: OwnedFd,
    /// Its name, as the supervisor says: that of the socket unit.
    pub name: String,
}

/// Why the daemon does not serve the sockets that it was started with. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    /// It is no unix socket in the pipe directory, or none of the two.
    #[error(
        "{name} passes {what}, and the control daemon serves {} (ListenStream=) and {} (ListenSequentialPacket=) alone: correct the unit, or set {PIPE_VARIABLE} to its directory", directory.control().display(), directory.cumux().display()
    )]
    Unknown {
        /// The unit.
        name: String,
        /// What it is.
        what: String,
        /// The pipe directory.
        directory: PipeDirectory,
    },
    /// It is of another type.
    #[error("{name} passes {} as {is}: the unit must name it in {option}=", path.display())]
    Kind {
        /// The unit.
        name: String,
        /// The socket.
        path: PathBuf,
        /// The type that it has.
        is: &'static str,
        /// The unit's option for the type that it must have.
        option: &'static str,
    },
    /// It is a connection, or nobody listens on it.
    #[error("{name} passes a socket that does not listen: the unit must have Accept=no")]
    Silent {
        /// The unit.
        name: String,
    },
    /// A socket was not passed.
    #[error("no {} was passed to the control daemon: a socket unit must have {option}={0}, beside the other socket", path.display())]
    Missing {
        /// The socket.
        path: PathBuf,
        /// The unit's option for it.
        option: &'static str,
    },
    /// A socket was passed twice.
    #[error("{} was passed twice: one socket unit must name it, once", path.display())]
    Twice {
        /// The socket.
        path: PathBuf,
    },
    /// Another user listens, or owns the file.
    #[error(
        "{} was opened by user {uid}, and the control daemon runs as user {own}, whom programs might not trust: take User= and SocketUser= out of the units; a user's own daemon needs units of that user (systemctl --user)", path.display()
    )]
    Owner {
        /// The socket.
        path: PathBuf,
        /// The user.
        uid: u32,
        /// The daemon's user.
        own: u32,
    },
    /// Not every user may connect.
    #[error("{} has the mode {mode:o}, so not every user can connect: {name} must have SocketMode=0666 (the daemon asks the kernel who connects)", path.display())]
    Mode {
        /// The unit.
        name: String,
        /// The socket.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Programs would not come to the socket that was passed.
    #[error(
        "{} {what}, so programs do not reach the socket of {name}: start that unit again (systemctl restart {name}; cumux.service needs RuntimeDirectoryPreserve=yes)", path.display()
    )]
    Unreachable {
        /// The unit.
        name: String,
        /// The socket.
        path: PathBuf,
        /// What lies there instead.
        what: &'static str,
    },
    /// The system refuses.
    #[error("the socket of {name} cannot be taken over: {cause}")]
    System {
        /// The unit.
        name: String,
        /// The reason.
        cause: io::Error,
    },
}

/// The two sockets to which everybody may connect.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) text: UnixListener,
    pub(crate) packets: Listener,
}

/// Checks what the supervisor has passed and listens on it. The caller has the lock of the pipe
/// directory, so no other daemon serves these sockets.
///
/// # Errors
/// [`InheritedError`]; the sockets are then as they were, or name this process as their listener
/// until the next daemon takes them over.
pub(crate) fn take_over(claim: &Claim, sockets: Vec<Inherited>) -> Result<Sockets, InheritedError> {
    let directory = claim.directory();
    let wanted = [Wanted { path: directory.control(), kind: SocketType::STREAM }, Wanted { path: directory.cumux(), kind: SocketType::SEQPACKET }];
    let mut found = [None, None];
    for inherited in sockets {
        let place = place_of(directory, &wanted, &inherited)?;
        if found[place].replace(inherited).is_some() {
            return Err(InheritedError::Twice { path: wanted[place].path.clone() });
        }
    }
    let missing = |wanted: &Wanted| InheritedError::Missing { path: wanted.path.clone(), option: wanted.option() };
    let [text, packets] = found;
    let (text, packets) = (text.ok_or_else(|| missing(&wanted[0]))?, packets.ok_or_else(|| missing(&wanted[1]))?);
    // Nothing is changed before everything has been checked.
    for (inherited, wanted) in [(&text, &wanted[0]), (&packets, &wanted[1])] {
        check_owner(inherited, wanted)?;
        check_file(inherited, wanted)?;
    }
    for (inherited, wanted) in [(&text, &wanted[0]), (&packets, &wanted[1])] {
        begin(inherited, wanted)?;
    }
    Ok(Sockets { text: text.socket.into(), packets: Listener::over(packets.socket, &wanted[1].path) })
}

/// A socket that the daemon needs.
struct Wanted {
    path: PathBuf,
    kind: SocketType,
}

impl Wanted {
    /// The option of a socket unit that makes it.
    fn option(&self) -> &'static str {
        if self.kind == SocketType::STREAM { "ListenStream" } else { "ListenSequentialPacket" }
    }
}

fn place_of(directory: &PipeDirectory, wanted: &[Wanted; 2], inherited: &Inherited) -> Result<usize, InheritedError> {
    let name = || inherited.name.clone();
    let unknown = |what: String| InheritedError::Unknown { name: name(), what, directory: directory.clone() };
    let socket = &inherited.socket;
    if !sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX) {
        return Err(unknown("what is no unix socket".to_owned()));
    }
    let path = rustix::net::getsockname(socket).ok().and_then(|address| SocketAddrUnix::try_from(address).ok());
    let path = path.as_ref().and_then(|address| address.path_bytes()).map(|bytes| PathBuf::from(std::ffi::OsStr::from_bytes(bytes)));
    let Some(path) = path else { return Err(unknown("a unix socket without a path".to_owned())) };
    let Some(place) = wanted.iter().position(|wanted| is_same(&path, &wanted.path)) else { return Err(unknown(path.display().to_string())) };
    let is = sockopt::socket_type(socket).map_err(|errno| InheritedError::System { name: name(), cause: errno.into() })?;
    if is != wanted[place].kind {
        let is = match is {
            SocketType::STREAM => "a stream socket",
            SocketType::SEQPACKET => "a sequential-packet socket",
            SocketType::DGRAM => "a datagram socket",
            _ => "a socket of another type",
        };
        return Err(InheritedError::Kind { name: name(), path, is, option: wanted[place].option() });
    }
    if !sockopt::socket_acceptconn(socket).unwrap_or(false) {
        return Err(InheritedError::Silent { name: name() });
    }
    Ok(place)
}

/// Whether two paths mean the same name in the same directory.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.parent().and_then(|parent| std::fs::metadata(parent).ok()).map(|folder| (folder.dev(), folder.ino()));
    one.file_name() == other.file_name() && place(one).is_some_and(|folder| place(other) == Some(folder))
}

/// A program that is connected already was told who listened before.
fn check_owner(inherited: &Inherited, wanted: &Wanted) -> Result<(), InheritedError> {
    let (uid, own) = (listener_of(inherited)?.uid, trust::own());
    if uid == own { Ok(()) } else { Err(InheritedError::Owner { path: wanted.path.clone(), uid, own }) }
}

fn listener_of(inherited: &Inherited) -> Result<Peer, InheritedError> {
    Peer::of(&inherited.socket).map_err(|errno| InheritedError::System { name: inherited.name.clone(), cause: errno.into() })
}

fn check_file(inherited: &Inherited, wanted: &Wanted) -> Result<(), InheritedError> {
    let (name, path) = (inherited.name.clone(), wanted.path.clone());
    let stat = match rustix::fs::lstat(&path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => stat,
        Ok(_) => return Err(InheritedError::Unreachable { name, path, what: "is no socket" }),
        Err(_) => return Err(InheritedError::Unreachable { name, path, what: "is missing" }),
    };
    let own = trust::own();
    if stat.st_uid != own {
        return Err(InheritedError::Owner { path, uid: stat.st_uid, own });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o666 == 0o666 { Ok(()) } else { Err(InheritedError::Mode { name, path, mode }) }
}

/// Listens, and makes sure that whoever connects to the path comes to this socket.
fn begin(inherited: &Inherited, wanted: &Wanted) -> Result<(), InheritedError> {
    let system = |cause: io::Error| InheritedError::System { name: inherited.name.clone(), cause };
    // The unit may have set either; accepted connections inherit the second.
    rustix::io::ioctl_fionbio(&inherited.socket, false).map_err(|errno| system(errno.into()))?;
    sockopt::set_socket_passcred(&inherited.socket, false).map_err(|errno| system(errno.into()))?;
    listen_again(&inherited.socket).map_err(|error| system(io::Error::other(error)))?;
    // The connection ends at once; who accepts it knows it by its process.
    let listener = match wanted.kind {
        SocketType::STREAM => reach::stream(&wanted.path, Some(QUEUE_WAIT)).and_then(|stream| Ok(Peer::of(&stream)?)),
        _ => Connection::connect_within(&wanted.path, QUEUE_WAIT).and_then(|connection| connection.peer()),
    };
    match listener {
        Ok(peer) if peer.pid == Some(std::process::id()) => Ok(()),
        // The queue is full of programs: it cannot be tried.
        Err(LinkError::Timeout) => Ok(()),
        _ => Err(InheritedError::Unreachable { name: inherited.name.clone(), path: wanted.path.clone(), what: "is another socket" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_link::listener::INHERITED_QUEUE;
    use rustix::net::{SocketFlags, bind, listen, socket_with};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const QUEUE: i32 = 5;

    fn bound(path: &Path, kind: SocketType) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).unwrap();
        let _ = fs::remove_file(path);
        bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        socket
    }

    fn listening(path: &Path, kind: SocketType) -> OwnedFd {
        let socket = bound(path, kind);
        listen(&socket, QUEUE).unwrap();
        socket
    }

    fn both(directory: &PipeDirectory) -> Vec<OwnedFd> {
        vec![listening(&directory.cumux(), SocketType::SEQPACKET), listening(&directory.control(), SocketType::STREAM)]
    }

    fn take(claim: &Claim, sockets: Vec<OwnedFd>) -> Result<Sockets, InheritedError> {
        take_over(claim, sockets.into_iter().map(|socket| Inherited { socket, name: "x.socket".to_owned() }).collect())
    }

    fn refused(claim: &Claim, sockets: Vec<OwnedFd>) -> String {
        take(claim, sockets).unwrap_err().to_string()
    }

    /// The order of the sockets does not matter, nor by which way the supervisor came to the
    /// directory. The files stay.
    #[test]
    fn both_sockets_are_taken_over_and_their_files_stay() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("pipe");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, base.path().join("other")).unwrap();
        let directory = PipeDirectory::at(&path);
        let sockets = both(&PipeDirectory::at(&base.path().join("other")));
        let claim = directory.claim_beside_sockets().unwrap();
        assert!(directory.claim_beside_sockets().is_err(), "another daemon has the lock");
        let Sockets { text, packets } = take(&claim, sockets).unwrap();
        // First the daemon itself has come, to see who listens.
        let own = Some(std::process::id());
        let (first, _) = text.accept().unwrap();
        assert_eq!((Peer::of(&first).unwrap().pid, packets.accept().unwrap().peer().unwrap().pid), (own, own));
        let client = Connection::connect(&directory.cumux()).unwrap();
        client.send(&"hello", &[]).unwrap();
        assert_eq!(packets.accept().unwrap().receive::<String>().unwrap().0, "hello");
        drop((claim, text, packets));
        assert!(directory.control().exists() && directory.cumux().exists() && !directory.pid_file().exists());
    }

    #[test]
    fn what_programs_could_not_use_is_refused_with_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let directory = PipeDirectory::at(&base.path().join("pipe"));
        let claim = directory.claim_beside_sockets().unwrap();
        let (control, cumux) = (directory.control(), directory.cumux());
        let packets = || listening(&cumux, SocketType::SEQPACKET);
        let text = || listening(&control, SocketType::STREAM);
        let shown = |path: &Path| path.display().to_string();

        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let unnamed = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let elsewhere = listening(&base.path().join("control"), SocketType::STREAM);
        for (socket, what) in
            [(tcp.into(), "what is no unix socket".to_owned()), (unnamed, "without a path".to_owned()), (elsewhere, shown(&base.path().join("control")))]
        {
            let said = refused(&claim, vec![socket, packets()]);
            assert!(said.contains(&what) && said.contains(PIPE_VARIABLE) && said.contains(&shown(&control)), "{said}");
        }
        for (sockets, option) in [(vec![packets()], "ListenStream"), (vec![text()], "ListenSequentialPacket")] {
            let said = refused(&claim, sockets);
            assert!(said.contains(&format!("must have {option}={}", directory.path().display())), "{said}");
        }
        let said = refused(&claim, vec![listening(&control, SocketType::SEQPACKET), packets()]);
        assert!(said.contains("as a sequential-packet socket: the unit must name it in ListenStream="), "{said}");
        let said = refused(&claim, vec![text(), listening(&cumux, SocketType::STREAM)]);
        assert!(said.contains("as a stream socket: the unit must name it in ListenSequentialPacket="), "{said}");
        let said = refused(&claim, vec![text(), bound(&cumux, SocketType::SEQPACKET)]);
        assert!(said.contains("Accept=no"), "{said}");
        let first = text();
        let said = refused(&claim, vec![first.try_clone().unwrap(), first, packets()]);
        assert!(said.contains("was passed twice"), "{said}");
        // Of all these none was changed: who listened still does.
        assert!(control.exists() && cumux.exists());
    }

    #[test]
    fn files_that_do_not_lead_to_the_sockets_are_refused_with_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let directory = PipeDirectory::at(&base.path().join("pipe"));
        let claim = directory.claim_beside_sockets().unwrap();
        let (control, cumux) = (directory.control(), directory.cumux());
        let set_mode = |mode| fs::set_permissions(&cumux, fs::Permissions::from_mode(mode)).unwrap();

        let sockets = both(&directory);
        set_mode(0o660);
        let said = refused(&claim, sockets);
        assert!(said.contains("the mode 660") && said.contains("x.socket must have SocketMode=0666"), "{said}");
        let sockets = both(&directory);
        fs::remove_file(&control).unwrap();
        let said = refused(&claim, sockets);
        assert!(said.contains("control is missing") && said.contains("systemctl restart x.socket") && said.contains("RuntimeDirectoryPreserve=yes"), "{said}");
        let sockets = both(&directory);
        fs::remove_file(&control).unwrap();
        fs::write(&control, "").unwrap();
        assert!(refused(&claim, sockets).contains("control is no socket"));
        // Whoever listens there now is another process's affair; nobody would come to ours.
        let sockets = both(&directory);
        fs::remove_file(&cumux).unwrap();
        let other = bound(&cumux, SocketType::SEQPACKET);
        assert!(refused(&claim, sockets).contains("cumux is another socket"));
        drop(other);
    }

    /// A program that connected before the daemon was there trusted who listened then.
    #[test]
    fn a_socket_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOTE: not tested: another user needs root");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let directory = PipeDirectory::at(&base.path().join("pipe"));
        let claim = directory.claim_beside_sockets().unwrap();
        let owner = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None).unwrap();
        let sockets = both(&directory);
        owner(&directory.cumux(), 65534);
        let said = refused(&claim, sockets);
        assert!(said.contains("opened by user 65534") && said.contains("SocketUser="), "{said}");
        let sockets = both(&directory);
        let packets = sockets[0].try_clone().unwrap();
        let listens = std::thread::spawn(move || {
            // This thread alone goes on as another user.
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            listen(&packets, QUEUE).unwrap();
        });
        listens.join().unwrap();
        let said = refused(&claim, sockets);
        assert!(said.contains("opened by user 65534") && said.contains("User="), "{said}");
    }

    /// Then who would answer cannot be tried, and the programs that wait must be served.
    #[test]
    fn a_full_queue_is_no_reason_to_serve_nobody() {
        let base = tempfile::tempdir().unwrap();
        let directory = PipeDirectory::at(&base.path().join("pipe"));
        let claim = directory.claim_beside_sockets().unwrap();
        let sockets = both(&directory);
        let room: usize = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        let room = room.min(usize::try_from(INHERITED_QUEUE).unwrap());
        cumux_link::limit::raise();
        // What listens again has a longer queue: it is filled beforehand.
        listen(&sockets[0], INHERITED_QUEUE).unwrap();
        let clients: Vec<_> = (0..=room).map(|_| Connection::connect(&directory.cumux()).unwrap()).collect();
        let taken = take(&claim, sockets).unwrap();
        drop(clients);
        drop(taken);
    }
}
