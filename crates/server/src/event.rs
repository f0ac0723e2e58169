//! What can happen to a server, and the threads that only say so. One thread owns all state and
//! takes these one at a time.

use crate::host::Host;
use crate::keeper::Told;
use crate::outbox::{Outbox, read_all};
use cumux_link::{Connection, Listener};
use cumux_wire::VERSION;
use cumux_wire::message::{FromExecutor, FromServer, Hello, ToServer};
use rustix::fs::FileType;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// How long somebody who connects may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a lost daemon is looked for.
const RETRY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) enum Event {
    /// A keeper or executor has come to our socket.
    Hello {
        connection: Connection,
        hello: Hello,
    },
    Executor {
        worker: u64,
        message: FromExecutor,
        descriptors: Vec<OwnedFd>,
    },
    /// The keeper with this number has answered.
    Keeper {
        number: u64,
        told: Told,
    },
    /// Nothing more comes from this executor's connection.
    ExecutorLost {
        worker: u64,
    },
    /// A watched process has ended.
    Gone {
        token: u64,
    },
    DaemonUp(Outbox<FromServer>),
    Daemon {
        message: ToServer,
        descriptors: Vec<OwnedFd>,
    },
    DaemonDown,
    /// A signal asks this server to end.
    Stop,
}

/// Accepts keeper and executors. Ends when the listener is shut down.
pub(crate) fn accept<H: Host>(listener: &Listener, host: &H, events: &Sender<Event>) {
    loop {
        let connection = match listener.accept() {
            Ok(connection) => connection,
            Err(cumux_link::LinkError::System(rustix::io::Errno::INVAL)) => return,
            // Out of descriptors, for example: it may pass.
            Err(_) => {
                thread::sleep(RETRY);
                continue;
            }
        };
        if !host.admits(&connection) {
            continue;
        }
        let events = events.clone();
        // Without a thread the connection closes; the other side tries again.
        let _ = thread::Builder::new().name("hello".into()).spawn(move || {
            if connection.set_timeout(Some(HELLO_TIMEOUT)).is_ok()
                && let Ok((hello, _)) = connection.receive::<Hello>()
                && connection.set_timeout(None).is_ok()
            {
                let _ = events.send(Event::Hello { connection, hello });
            }
        });
    }
}

/// Forwards what an executor says.
pub(crate) fn listen_to(connection: Arc<Connection>, worker: u64, events: Sender<Event>) -> std::io::Result<()> {
    thread::Builder::new().name("executor".into()).spawn(move || {
        read_all(&connection, |message, descriptors| events.send(Event::Executor { worker, message, descriptors }).is_ok());
        let _ = events.send(Event::ExecutorLost { worker });
    })?;
    Ok(())
}

/// Whether what this server and its processes write to standard error can be read from its standard
/// input: a daemon has made it so.
fn has_words(input: &impl AsFd) -> bool {
    rustix::fs::fstat(input).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Keeps a connection to the daemon, for ever: clients that run do not need it, new ones do.
pub(crate) fn meet_daemon(socket: PathBuf, pid: u32, uid: u32, devices: Vec<String>, events: Sender<Event>) -> std::io::Result<()> {
    thread::Builder::new().name("daemon".into()).spawn(move || {
        let input = std::io::stdin();
        let words: Vec<_> = has_words(&input).then(|| input.as_fd()).into_iter().collect();
        loop {
            if let Ok(connection) = Connection::connect(&socket)
                // A daemon that does not read must not keep this server from ending.
                && set_socket_timeout(&connection, Timeout::Send, Some(HELLO_TIMEOUT)).is_ok()
                && connection.send(&Hello::Server { version: VERSION, pid, uid, devices: devices.clone() }, &words).is_ok()
            {
                let connection = Arc::new(connection);
                let Ok(outbox) = Outbox::over(Arc::clone(&connection)) else { continue };
                if events.send(Event::DaemonUp(outbox)).is_err() {
                    return;
                }
                read_all(&connection, |message, descriptors| events.send(Event::Daemon { message, descriptors }).is_ok());
                if events.send(Event::DaemonDown).is_err() {
                    return;
                }
            }
            thread::sleep(RETRY);
        }
    })?;
    Ok(())
}
