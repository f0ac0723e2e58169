//! The wiring of the other processes: server, keeper, executor, standby. Each is one function of its own crate.

use anyhow::bail;
use cumux_wire::message::DeviceFacts;
use std::ffi::OsString;

/// Whether this build can serve a real GPU.
pub fn serves_cuda() -> bool {
    false
}

/// Facts of a device without opening it, for `device_query` before any server runs; empty if they cannot be known.
pub fn facts(_device: &str) -> Vec<DeviceFacts> {
    Vec::new()
}

/// `nvidia-cuda-mps-server` as a person might call it: only its version.
pub fn drop_in_server(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    if arguments.first().is_some_and(|argument| argument == "-v" || argument == "--version") {
        println!("cumux {}", env!("CARGO_PKG_VERSION"));
        return Ok(0);
    }
    server(arguments)
}

pub fn server(_arguments: Vec<OsString>) -> anyhow::Result<u8> {
    bail!("the server is not part of this build")
}

pub fn keeper(_arguments: Vec<OsString>) -> anyhow::Result<u8> {
    bail!("the keeper is not part of this build")
}

pub fn executor(_arguments: Vec<OsString>) -> anyhow::Result<u8> {
    bail!("the executor is not part of this build")
}

pub fn standby(_arguments: Vec<OsString>) -> anyhow::Result<u8> {
    bail!("the standby is not part of this build")
}
