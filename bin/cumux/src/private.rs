//! A daemon for one command: its own pipe directory, gone with it.

use crate::control::{PROTOCOL_VARIABLE, READY};
use crate::device::DeviceName;
use anyhow::{Context as _, bail};
use cumux_control::directory::{LOG_VARIABLE, PIPE_VARIABLE};
use cumux_control::{Frontend, PipeDirectory};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Ends with this value, and with this process in any case.
pub struct PrivateDaemon {
    child: Child,
    /// Removed with everything in it.
    folder: tempfile::TempDir,
}

impl PrivateDaemon {
    /// Starts a daemon and waits until it is ready. Call from the main thread: it ends when the thread that started it does.
    pub fn start(device: &DeviceName) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cumux-").tempdir().context("cannot make a temporary folder (TMPDIR)")?;
        let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
        let mut command = Command::new(program);
        command.args(["control", "--background", "--with-parent", "--device", &device.to_string()]);
        command.env(PIPE_VARIABLE, folder.path()).env(LOG_VARIABLE, folder.path().join("log"));
        // Nobody but us commands it.
        command.env_remove(PROTOCOL_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start a private daemon")?;
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
        Ok(Self { child, folder })
    }

    /// Its pipe directory.
    pub fn pipe(&self) -> &Path {
        self.folder.path()
    }

    /// A command to it.
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
        // What is still running after two seconds does not want to end.
        if self.ask("quit -t 2").is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
