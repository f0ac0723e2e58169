//! The processes of a node, found by the node's folder in their command lines and environments.

use cumux_link::Process;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

/// Kills the processes of a folder until none is left: one may have started another just before it
/// died.
pub(crate) fn end_processes_of(folder: &Path) {
    for _ in 0..100 {
        let left = processes_of(folder);
        if left.is_empty() {
            return;
        }
        for pid in left {
            kill_quietly(pid);
        }
    }
}

/// Kills a process with SIGKILL, if it lives, and waits for its end.
pub(crate) fn kill_quietly(pid: u32) {
    if let Ok(process) = Process::open(pid) {
        let _ = process.signal(Signal::KILL);
        let _ = process.ended(Some(Duration::from_secs(5)));
    }
}

/// Processes whose command line or environment names the folder.
#[must_use]
pub fn processes_of(folder: &Path) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| *pid != own && belongs(*pid, folder) && is_alive(*pid)).collect()
}

/// Whether a process's command line or environment names the folder.
pub(crate) fn belongs(pid: u32, folder: &Path) -> bool {
    let needle = folder.as_os_str().as_encoded_bytes();
    ["cmdline", "environ"].iter().any(|file| {
        let mut bytes = Vec::new();
        let read = fs::File::open(format!("/proc/{pid}/{file}")).and_then(|mut file| file.read_to_end(&mut bytes));
        read.is_ok() && bytes.windows(needle.len()).any(|window| window == needle)
    })
}

/// False for a zombie, too: it has ended, and its parent has not reaped it yet.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/status")) else { return false };
    BufReader::new(file).lines().map_while(Result::ok).find(|line| line.starts_with("State:")).is_some_and(|line| !line.contains('Z'))
}
