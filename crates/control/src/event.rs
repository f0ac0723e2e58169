//! The registry's input and output: what can happen, and what its caller has to do then.

use crate::duty::Duty;
use crate::groups::Door;
use cumux_wire::message::{DeviceFacts, Grant, Hello};
use std::time::Duration;

/// A client's connection, kept by the caller.
pub type Token = u64;

/// What happened. `pid` and `uid` are the process id and the user of a client or of a server.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are described above or with their event")]
pub enum Event {
    /// A client has connected and said hello.
    Client { token: Token, pid: u32, uid: u32, hello: Hello, door: Door },
    /// An earlier daemon has left a server: a living one, which will connect; or, without a process
    /// id, a lost one whose clients may still live.
    Left { pid: Option<u32>, duty: Duty },
    /// The command `start_server`.
    Wanted { uid: u32 },
    /// `again`: whether another attempt may succeed.
    LaunchFailed { duty: Duty, why: String, again: bool },
    /// A server was started.
    Launched { pid: u32, duty: Duty },
    /// A client that waited has gone: its process has ended, or it has closed its socket.
    ClientGone { token: Token },
    /// A server's hello, with its devices named as in `--device`. A server that an earlier daemon
    /// launched is adopted.
    Registered { pid: u32, duty: Duty, devices: Vec<String> },
    /// A server can serve clients.
    Ready { pid: u32, devices: Vec<DeviceFacts> },
    /// A server cannot serve; `why` says what to do.
    Failed { pid: u32, why: String },
    /// The server's connection broke. It ends, or connects again.
    Disconnected { pid: u32 },
    /// Clients that a server has now, and how many it has received on this connection.
    Clients { pid: u32, count: u32, taken: u64 },
    /// The server lives but makes no progress; `why` says how.
    Unresponsive { pid: u32, why: String },
    /// The server's process is gone; `status` is its exit status where we are the parent.
    Exited { pid: u32, status: Option<i32> },
    /// The command `shutdown_server`; `force`: without waiting for its clients.
    Shutdown { pid: u32, force: bool },
    /// The command `quit`, or a signal. With a timeout, servers are forced to end after it.
    Quit { timeout: Option<Duration> },
    /// The time of [`Registry::deadline`] has come.
    Tick,
}

/// An order to the caller. The caller carries orders out in their sequence. `server` is the process
/// id of a server, `pid` and `uid` are those of a client.
#[derive(Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are described above or with their order")]
pub enum Effect {
    /// Start a server; answer with `Launched` or `LaunchFailed`.
    Launch { duty: Duty },
    /// Hand the client over to the server, with what it may use.
    Hand { token: Token, server: u32, pid: u32, uid: u32, hello: Hello, grant: Box<Grant>, door: Door },
    /// Refuse the client: `result` is the `CUresult` that its `cuInit` returns, `why` says what to
    /// do.
    Refuse { token: Token, result: u32, why: String },
    /// Order a server to end when its clients have gone, or at once with `force`.
    Shutdown { server: u32, force: bool },
    /// Kill the process of a server that does not end.
    Kill { server: u32 },
    /// Write a line into control.log.
    Log(String),
    /// Write a line into the log in the name of the new server.
    Launched { pid: u32, text: String },
    /// End: all servers are gone after `Quit`; `clean` if each of them ended with status 0.
    Finished { clean: bool },
}
