//! One program of the demo while it runs.

use super::role::{Fate, Role};
use crate::library;
use anyhow::Context as _;
use cumux_control::directory::PIPE_VARIABLE;
use cumux_wire::message::ClientStatus;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The line by which an example reports that its endless kernel runs.
const RUNNING: &str = "kernel running";

pub struct DemoProgram {
    pub role: Role,
    /// The server's counts.
    pub status: ClientStatus,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    end: Option<ExitStatus>,
    killed: bool,
}

impl DemoProgram {
    pub fn start(role: &Role, folder: &Path, pipe: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(&role.program);
        command.args(&role.arguments).env(PIPE_VARIABLE, pipe).env(library::VARIABLE, library::path_with(folder));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", role.program.display()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let status = ClientStatus { pid: child.id(), state: "running".into(), ..ClientStatus::default() };
        // From here on, an error ends the program (Drop).
        let mut client = Self { role: role.clone(), status, child, lines: Arc::default(), readers: Vec::new(), end: None, killed: false };
        client.readers.extend(stdout.map(|stdout| read_into(stdout, &client.lines)).transpose()?);
        client.readers.extend(stderr.map(|stderr| read_into(stderr, &client.lines)).transpose()?);
        Ok(client)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Checks whether the program has ended.
    pub fn check_end(&mut self) -> std::io::Result<()> {
        if self.end.is_none() {
            self.end = self.child.try_wait()?;
            if self.end.is_some() {
                // All its output is needed before it is judged.
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
            }
        }
        Ok(())
    }

    pub fn end(&self) -> Option<ExitStatus> {
        self.end
    }

    /// Kills the program whose role that is, as soon as its kernel runs.
    pub fn kill_in_the_middle(&mut self) {
        if self.role.fate == Fate::Killed && !self.killed && self.end.is_none() && self.said(RUNNING) {
            self.killed = self.child.kill().is_ok();
        }
    }

    /// Its last line.
    pub fn last_line(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).last().cloned().unwrap_or_default()
    }

    fn said(&self, line: &str) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|said| said == line)
    }

    /// Whether the program checked its results and found them right.
    pub fn verified(&self) -> bool {
        self.end.is_some_and(|end| end.success()) && self.last_line().contains("PASS")
    }

    /// Whether the program ended as its role requires.
    pub fn as_expected(&self) -> bool {
        match self.role.fate {
            Fate::Innocent => self.verified(),
            Fate::Killed => self.killed,
            Fate::Faulty => self.end.is_some_and(|end| end.code() == Some(0)) && self.last_line().contains("illegal"),
        }
    }

    /// How the program ended, in words.
    pub fn outcome(&self) -> String {
        match (self.end, self.role.fate) {
            (None, _) => "running".into(),
            (Some(_), Fate::Killed) if self.killed => "killed in the middle of a kernel".into(),
            (Some(_), Fate::Faulty) if self.as_expected() => "illegal access, told so".into(),
            (Some(end), _) if end.success() => "finished".into(),
            (Some(end), _) => match end.signal() {
                Some(signal) => format!("ended by signal {signal}"),
                None => format!("failed with status {}: {}", end.code().unwrap_or(-1), self.last_line()),
            },
        }
    }
}

/// A demo that ends early leaves no program behind.
impl Drop for DemoProgram {
    fn drop(&mut self) {
        if self.end.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn read_into(stream: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> anyhow::Result<JoinHandle<()>> {
    let lines = Arc::clone(lines);
    let read = move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    };
    std::thread::Builder::new().name("reader".into()).spawn(read).context("cannot start a thread for a program's output")
}
