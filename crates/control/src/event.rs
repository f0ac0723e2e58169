//! What can happen to the registry, and what its caller has to do then.

use cumux_wire::message::{DeviceFacts, Grant, Hello};
use std::time::Duration;

/// A client's connection, kept by the caller.
pub type Token = u64;

/// What happened.
#[derive(Debug)]
pub enum Event {
    Client {
        token: Token,
        pid: u32,
        uid: u32,
        hello: Hello,
    },
    /// An earlier daemon has left a server that lives, and will connect; or, without a number, one that is lost, and perhaps its clients.
    Left {
        pid: Option<u32>,
        uid: u32,
    },
    /// The command `start_server`.
    Wanted {
        uid: u32,
    },
    /// `again`: whether another attempt may go better.
    LaunchFailed {
        uid: u32,
        why: String,
        again: bool,
    },
    Launched {
        pid: u32,
        uid: u32,
    },
    /// A client that waited has gone: its process has ended, or it has closed its socket.
    ClientGone {
        token: Token,
    },
    /// A server's hello, with its devices as in `--device`; one that an earlier daemon launched is adopted.
    Registered {
        pid: u32,
        uid: u32,
        devices: Vec<String>,
    },
    Ready {
        pid: u32,
        devices: Vec<DeviceFacts>,
    },
    Failed {
        pid: u32,
        why: String,
    },
    /// Its connection broke. It ends, or connects again.
    Disconnected {
        pid: u32,
    },
    /// Clients that a server has, and how many it was handed on this connection.
    Clients {
        pid: u32,
        count: u32,
        taken: u64,
    },
    /// It lives and stands still; `why` says how.
    Unresponsive {
        pid: u32,
        why: String,
    },
    /// The process is gone; its exit status where we are the parent.
    Exited {
        pid: u32,
        status: Option<i32>,
    },
    Shutdown {
        pid: u32,
        force: bool,
    },
    Quit {
        timeout: Option<Duration>,
    },
    /// A deadline of [`Registry::deadline`] has come.
    Tick,
}

/// What the caller has to do, in this order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Answer with `Launched` or `LaunchFailed`.
    Launch {
        uid: u32,
    },
    Hand {
        token: Token,
        server: u32,
        pid: u32,
        uid: u32,
        hello: Hello,
        grant: Grant,
    },
    Refuse {
        token: Token,
        result: u32,
        why: String,
    },
    Shutdown {
        server: u32,
        force: bool,
    },
    Kill {
        server: u32,
    },
    Log(String),
    /// A line that stands in the log in the name of the new server.
    Launched {
        pid: u32,
        text: String,
    },
    /// All servers are gone after `Quit`; `clean` if each of them ended with status 0.
    Finished {
        clean: bool,
    },
}
