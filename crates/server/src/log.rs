//! `server.log`: `[2026-11-21 00:03:32.853 Server   690] text`, the format that log readers of MPS
//! expect.
//!
//! A server of the daemon's own user writes the file itself. One of another user has no right to
//! it: it writes the same lines to standard error, which the daemon reads. How the file is kept
//! from growing, and what happens on a full disk: [`cumux_link::logfile`].

use cumux_link::flood::{SHAPE, shape};
use cumux_link::logfile::{self, LogFile, Sink, own_limit};
use cumux_wire::message::DeviceFacts;
use std::fmt;
use std::path::Path;

/// What the daemon has set for this server, in lines for its log.
const SETTINGS_VARIABLE: &str = "CUMUX_SERVER_SETTINGS";
/// Set by a daemon in the foreground.
const ECHO_VARIABLE: &str = "CUMUX_ECHO_LOG";

/// Lines of one kind: a client can make many of a kind, and then they are counted only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Kind(String);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "like \"{}…\"", self.0)
    }
}

/// The log of this server; several servers append to the same file, a whole line at a time.
#[derive(Debug)]
pub(crate) struct Log(logfile::Log<Kind>);

impl Log {
    /// In this folder, or to standard error.
    pub(crate) fn open(folder: Option<&Path>) -> Self {
        let sink = folder.map_or(Sink::StandardError, |folder| Sink::File(LogFile::at(folder.join("server.log"), own_limit())));
        Self(logfile::Log::new(sink, SHAPE, std::env::var_os(ECHO_VARIABLE).is_some()))
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.write("Server", text);
    }

    /// Before there is a device, NVIDIA's server calls itself so.
    pub(crate) fn other(&mut self, text: &str) {
        self.write("Other", text);
    }

    /// The first lines of a server that serves, as NVIDIA's writes them. What was set for it comes
    /// from the daemon.
    pub(crate) fn start(&mut self, devices: &[DeviceFacts]) {
        self.contexts("Creating", devices);
        self.line("CUDA MPS Server for Linux/Unix. Binary version: 13000");
        self.line(&format!("cumux {}, protocol version {}", env!("CARGO_PKG_VERSION"), cumux_wire::VERSION));
        for line in std::env::var(SETTINGS_VARIABLE).unwrap_or_default().lines() {
            self.line(line);
        }
        self.line("Server has started");
    }

    /// An executor's contexts come (`Creating`) or have gone with it (`Destroy`).
    pub(crate) fn contexts(&mut self, what: &str, devices: &[DeviceFacts]) {
        for (ordinal, device) in devices.iter().enumerate() {
            self.line(&format!("{what} server context on device {ordinal} ({})", device.name));
        }
    }

    fn write(&mut self, role: &str, text: &str) {
        self.0.line(role, std::process::id(), text, Some(&Kind(shape(text))));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish("Server", std::process::id());
    }
}
