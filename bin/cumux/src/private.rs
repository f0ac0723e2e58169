//! A private daemon for one command, with a pipe directory of its own.
//!
//! Nothing of it outlives the command, however the command ends: the daemon's standard input is a
//! pipe whose other end only the command holds. When it closes, the daemon ends its servers,
//! removes its folder and ends ([`Parent`], [`remove_own`]).

mod folder;

use crate::device::{self, DeviceName};
use anyhow::{Context as _, bail};
use cumux_control::directory::{LOG_VARIABLE, PIPE_VARIABLE};
use cumux_control::{Frontend, PipeDirectory};
use cumux_link::Process;
use folder::Folder;
pub use folder::remove_own;
use rustix::process::{Signal, getpid, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The line that a background daemon writes to its standard output when clients can connect.
pub const READY: &str = "ready";
/// The variable with the protocol that NVIDIA's daemon is to speak, in place of `-p`.
pub const PROTOCOL_VARIABLE: &str = "CUDA_MPS_PROTOCOL_VERSION";
/// How long the daemon may take to end after `quit -t 2` before it is killed.
const END_LIMIT: Duration = Duration::from_secs(15);

/// A daemon that ends when this value is dropped, and with this process in any case.
pub struct PrivateDaemon {
    child: Child,
    /// Never written to. It closes with this process; programs started meanwhile do not inherit it.
    _lifeline: Option<ChildStdin>,
    folder: Folder,
}

impl PrivateDaemon {
    /// Starts a daemon and waits until it is ready.
    pub fn start(devices: &[DeviceName]) -> anyhow::Result<Self> {
        Self::start_with(devices, &[])
    }

    /// As [`PrivateDaemon::start`], with more in its environment, which its servers and executors
    /// inherit.
    pub fn start_with(devices: &[DeviceName], environment: &[(&str, &OsStr)]) -> anyhow::Result<Self> {
        let folder = Folder::make()?;
        let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
        let mut command = Command::new(program);
        command.args(["control", "--background", "--private", "--device", &device::list(devices)]);
        command.env(PIPE_VARIABLE, folder.path()).env(LOG_VARIABLE, folder.path().join("log"));
        command.envs(environment.iter().copied());
        // Only this command talks to it.
        command.env_remove(PROTOCOL_VARIABLE);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start a private daemon")?;
        let lifeline = child.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).context("cannot hear from the private daemon")?;
        }
        if line.trim() != READY {
            let mut why = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut why);
            }
            let _ = child.wait();
            bail!("the private daemon did not start: {}", why.trim().trim_start_matches("cumux: "));
        }
        Ok(Self { child, _lifeline: lifeline, folder })
    }

    /// Its pipe directory.
    pub fn pipe(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a command to the daemon and returns the answer.
    pub fn ask(&self, command: &str) -> anyhow::Result<String> {
        Ok(Frontend::connect(&PipeDirectory::at(self.pipe()))?.ask(command)?.0)
    }

    /// The end of its logs, for a message.
    pub fn last_words(&self) -> String {
        let tail = |name: &str| -> Option<String> {
            let text = fs::read_to_string(self.log(name)).ok()?;
            let lines: Vec<&str> = text.lines().rev().take(8).collect();
            Some(lines.into_iter().rev().map(|line| format!("  {line}\n")).collect())
        };
        ["control.log", "server.log"].iter().filter_map(|name| Some(format!("{name}:\n{}", tail(name)?))).collect()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join("log").join(name)
    }
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        // Programs that still run after two seconds are forced to end.
        let told = self.ask("quit -t 2").is_ok();
        if !told || !Process::open(self.child.id()).is_ok_and(|daemon| daemon.ended(Some(END_LIMIT))) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// In the daemon: watches for the end of the command that started it.
pub struct Parent {
    ready: Sender<()>,
}

impl Parent {
    /// Starts a thread that waits for the command's end.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn watch() -> io::Result<Self> {
        let (ready, begin) = channel::<()>();
        std::thread::Builder::new().name("parent".into()).spawn(move || {
            // A shutdown before the daemon is ready would end it at once and leave its folder.
            if begin.recv().is_ok() {
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                let _ = kill_process(getpid(), Signal::TERM);
            }
        })?;
        Ok(Self { ready })
    }

    /// From now on, the daemon shuts down when its parent ends.
    pub fn begin(self) {
        let _ = self.ready.send(());
    }
}
