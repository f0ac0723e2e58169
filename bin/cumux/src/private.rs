//! A daemon for one command: its own pipe directory, gone with it.

use crate::control::READY;
use crate::device::DeviceName;
use anyhow::{Context as _, bail};
use cumux_control::directory::{LOG_VARIABLE, PIPE_VARIABLE};
use cumux_control::{Frontend, PipeDirectory};
use cumux_link::Folder;
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
        let folder = safe_folder()?;
        let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
        let mut command = Command::new(program);
        command.args(["control", "--background", "--with-parent", "--device", &device.to_string()]);
        command.env(PIPE_VARIABLE, folder.path()).env(LOG_VARIABLE, folder.path().join("log"));
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

/// A new folder where nobody else can exchange it: in the usual place for temporary files, or in
/// another where that is not safe.
fn safe_folder() -> anyhow::Result<tempfile::TempDir> {
    let usual = std::env::temp_dir();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let places = [Some(usual.clone()), runtime, Some(PathBuf::from("/tmp")), Some(PathBuf::from("/dev/shm"))];
    let mut why = None;
    for place in places.into_iter().flatten() {
        let made = tempfile::Builder::new().prefix("cumux-").tempdir_in(&place).map_err(anyhow::Error::from);
        match made.and_then(|folder| Ok(Folder::open(folder.path()).map(|_| folder)?)) {
            Ok(folder) => return Ok(folder),
            Err(error) => why = why.or(Some(error)),
        }
    }
    let why = why.map_or_else(String::new, |error| error.to_string());
    bail!("cannot make a temporary folder in {}: {why}; set TMPDIR to a directory that only you can write", usual.display())
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
