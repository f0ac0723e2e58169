//! `cumux run -- CMD…`: runs a program with our `libcuda.so.1` first in its library path, and with
//! a daemon. Its exit status becomes ours.

use crate::device::{DeviceName, with_fallback};
use crate::doctor;
use crate::error::CannotRun;
use crate::library;
use crate::private::PrivateDaemon;
use crate::say;
use crate::visible;
use anyhow::Context as _;
use cumux_control::PipeDirectory;
use cumux_control::directory::{PIPE_VARIABLE, pipe_directory};
use cumux_control::settings::VISIBLE_VARIABLE;
use cumux_link::{Connection, LinkError, Process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The variable that makes our library explain each failure on the program's standard error, in one
/// line.
const VERBOSE: &str = "CUMUX_VERBOSE";

/// Runs the program and returns its exit status.
pub fn main(device: Option<&str>, command: &[OsString]) -> anyhow::Result<u8> {
    let library = library::folder()?;
    let (daemon, devices) = private_daemon(device)?;
    let mut child = prepare(command, &library, &devices)?;
    match &daemon {
        Some(daemon) => lead_to(&mut child, daemon, &devices),
        None => visible::name_served_cards(&mut child, &pipe_directory(), &devices),
    }
    let status = forward(&mut child, None).map_err(|cause| cannot_run(command, cause))?.1;
    drop(daemon);
    end_as(status)
}

/// A command that runs a program with our libraries.
pub fn prepare(command: &[OsString], library: &Path, devices: &[DeviceName]) -> anyhow::Result<Command> {
    let (program, arguments) = command.split_first().context("no program to run")?;
    let mut child = Command::new(program);
    child.args(arguments).env(library::VARIABLE, library::path_with(library));
    let software = !devices.is_empty() && devices.iter().all(|device| matches!(device, DeviceName::Sim(_)));
    library::lead_to_compilers(&mut child, library, software);
    // A user who starts a program by hand wants to know why something fails. The library itself
    // reads CUMUX_QUIET.
    if std::env::var_os(VERBOSE).is_none() {
        child.env(VERBOSE, "1");
    }
    Ok(child)
}

/// Has a program use this private daemon of these devices.
pub fn lead_to(child: &mut Command, daemon: &PrivateDaemon, devices: &[DeviceName]) {
    child.env(PIPE_VARIABLE, daemon.pipe());
    if names_are_of_seen_cards(devices) {
        child.env_remove(VISIBLE_VARIABLE);
        visible::name_served_cards(child, daemon.pipe(), devices);
    }
}

/// True if these are real GPUs. The driver in the daemon's executors has chosen among all of them
/// by `CUDA_VISIBLE_DEVICES` and numbered what is left, so the program must not choose once more.
fn names_are_of_seen_cards(devices: &[DeviceName]) -> bool {
    devices.iter().any(|device| matches!(device, DeviceName::Cuda(_)))
}

/// Why a program could not be started.
pub fn cannot_run(command: &[OsString], cause: std::io::Error) -> CannotRun {
    CannotRun { program: command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default(), cause }
}

/// A private daemon, unless a trusted daemon already serves the pipe directory and no particular
/// device is wished; and the devices of the one that will serve.
fn private_daemon(device: Option<&str>) -> anyhow::Result<(Option<PrivateDaemon>, Vec<DeviceName>)> {
    let directory = PipeDirectory::at(&pipe_directory());
    if device.is_none() {
        match Connection::connect(&directory.cumux()) {
            Ok(_) => return Ok((None, doctor::served_devices())),
            // Reported, because the user may have expected that daemon to serve.
            Err(LinkError::Foreign(stranger)) => {
                let (path, uid) = (&stranger.path, stranger.uid);
                say::complain(format_args!("cumux: {path} is a daemon of user {uid} and is not used: this program gets a private one"));
            }
            Err(_) => {}
        }
    }
    let (devices, notice) = with_fallback(device)?;
    if let Some(notice) = notice {
        say::complain(format_args!("cumux: {notice}"));
    }
    Ok((Some(PrivateDaemon::start(&devices)?), devices))
}

/// Runs the program and forwards signals to it; it is killed if it takes longer than `limit`.
/// Returns its process number, too.
pub fn forward(command: &mut Command, limit: Option<Duration>) -> std::io::Result<(u32, ExitStatus)> {
    // Registered before the program starts: a signal in between must not end us alone.
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    // A terminal sends these to the whole process group, so the program has received them already.
    // A signal that another process sends to us alone must be forwarded.
    let from_terminal = |origin: &Origin| matches!(origin.signal, SIGINT | SIGQUIT) && matches!(origin.cause, Cause::Kernel);
    let (sender, started) = channel::<Process>();
    let forward = move || {
        let Ok(process) = started.recv() else { return };
        for origin in signals.forever() {
            let signal = rustix::process::Signal::from_named_raw(origin.signal).filter(|_| !from_terminal(&origin));
            if let Some(signal) = signal {
                let _ = process.signal(signal);
            }
        }
    };
    // Before the program, which could not be told of signals otherwise.
    let forwarder = std::thread::Builder::new().name("signals".into()).spawn(forward)?;
    cumux_signals::hand_on(command);
    let status = command.spawn().and_then(|mut child| {
        if let Ok(process) = Process::open(child.id()) {
            let _ = sender.send(process);
        }
        if limit.is_some() && Process::open(child.id()).is_ok_and(|process| !process.ended(limit)) {
            child.kill()?;
        }
        Ok((child.id(), child.wait()?))
    });
    drop(sender);
    handle.close();
    let _ = forwarder.join();
    status
}

/// Ends as the program did: with its status, or by the same signal.
pub fn end_as(status: ExitStatus) -> anyhow::Result<u8> {
    if let Some(signal) = status.signal() {
        // Does not return for signals that end a process.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_chooses_among_software_gpus_and_the_driver_among_cards() {
        assert!(names_are_of_seen_cards(&[DeviceName::Cuda(0), DeviceName::Cuda(1)]));
        assert!(!names_are_of_seen_cards(&[DeviceName::parse("sim:h200").unwrap()]) && !names_are_of_seen_cards(&[]));
    }
}
