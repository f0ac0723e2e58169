//! Processes of a server that did not end by itself: its keeper and its executors, which wait for
//! the next server. When the daemon ends, no server follows.
//!
//! Nothing in a user's own folder is believed: a process is ended only if it belongs to that user
//! and was started for the socket in that folder.

use crate::duty::Duty;
use cumux_link::Process;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// How long a killed process may take to end.
const END: Duration = Duration::from_secs(2);
/// Bytes of a state file, at most.
const LONGEST: u64 = 64 * 1024;

/// Ends the processes of dead servers in a pipe directory and in the servers' folders there, and
/// removes their files. Returns the process ids.
pub(crate) fn end(pipe: &Path) -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    let mut ended = end_of(pipe, own);
    for entry in fs::read_dir(pipe).into_iter().flatten().flatten() {
        let duty = entry.file_name().to_str().and_then(|name| Duty::of_folder(name, own));
        if let Some(Duty { uid, .. }) = duty.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            ended.extend(end_of(&entry.path(), uid));
        }
    }
    ended
}

fn end_of(folder: &Path, uid: u32) -> Vec<u32> {
    let name = |ending: &str| folder.join(format!("server-{uid}.{ending}"));
    let Some(state) = read(&name("json")) else { return Vec::new() };
    // A running server holds its lock.
    let lock = rustix::fs::open(name("lock"), OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    if !lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()) {
        return Vec::new();
    }
    let socket = name("sock");
    let pids = ["executor", "standby", "keeper"].into_iter().filter_map(|role| u32::try_from(state[role].as_u64()?).ok());
    let ended: Vec<u32> = pids.filter(|pid| end_one(*pid, uid, &socket)).collect();
    for file in [name("json"), socket] {
        let _ = fs::remove_file(file);
    }
    ended
}

fn read(path: &Path) -> Option<serde_json::Value> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    File::from(file).take(LONGEST).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Ends a process of this user that has the socket in its command line.
fn end_one(pid: u32, uid: u32, socket: &Path) -> bool {
    // The pidfd first: what is read next is then about this very process, if it still lives.
    let Some(process) = Process::open(pid).ok().filter(|_| pid != 0) else { return false };
    let owned = fs::metadata(format!("/proc/{pid}")).is_ok_and(|metadata| metadata.uid() == uid);
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let ours = line.split(|byte| *byte == 0).any(|word| word == socket.as_os_str().as_bytes());
    if !(owned && ours && process.is_alive() && process.signal(Signal::KILL).is_ok()) {
        return false;
    }
    process.ended(Some(END))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn process_for(socket: &Path) -> Child {
        Command::new("cat").arg("-").arg(socket).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn only_processes_of_the_server_that_has_ended_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let socket = folder.path().join(format!("server-{uid}.sock"));
        let state = folder.path().join(format!("server-{uid}.json"));
        let lock = File::create(folder.path().join(format!("server-{uid}.lock"))).unwrap();
        let (mut ours, mut another) = (process_for(&socket), process_for(Path::new("/elsewhere/server.sock")));
        let process = Process::open(ours.id()).unwrap();
        // The command line changes when the process executes the program.
        while !fs::read(format!("/proc/{}/cmdline", ours.id())).unwrap().starts_with(b"cat") {
            std::thread::yield_now();
        }
        process.signal(Signal::STOP).unwrap();
        let text = format!("{{\"server\": 1, \"keeper\": {}, \"executor\": {}, \"standby\": 0}}", another.id(), ours.id());
        fs::write(&state, &text).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(end(folder.path()), Vec::<u32>::new(), "its server runs");
        drop(lock);
        assert_eq!(end(folder.path()), [ours.id()], "also one that is stopped");
        assert!(!state.exists() && another.try_wait().unwrap().is_none());
        for child in [&mut ours, &mut another] {
            let _ = child.kill();
            child.wait().unwrap();
        }
        assert_eq!(end(folder.path()), Vec::<u32>::new());
    }
}
