//! Several copies of a program at the same time. They begin together, are limited in time, and none
//! outlives this value.

use crate::demo::interrupt::Interrupt;
use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two looks whether a signal asks us to end.
const LOOK: Duration = Duration::from_millis(50);
/// Longest line that is kept of a program, and most lines of it.
const LONGEST_LINE: u64 = 1 << 20;
const MOST_LINES: usize = 200;

/// What a copy of `lab_work load` has found.
#[derive(Debug, Clone, Deserialize)]
pub struct Finding {
    pub requests: f64,
    pub seconds: f64,
    pub start_ms: f64,
    pub right: bool,
    pub p50_us: f64,
    pub p99_us: f64,
    pub points_us: Vec<f64>,
    pub spans_us: Vec<(f64, f64)>,
}

/// One copy.
struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
    ended: Option<(ExitStatus, Duration)>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Copies that run.
pub struct Crowd<'a> {
    members: Vec<Member>,
    interrupt: &'a Interrupt,
    until: Instant,
    begun: Instant,
}

/// How a copy ended.
#[derive(Debug)]
pub struct End {
    pub status: ExitStatus,
    pub took: Duration,
    pub said: Vec<String>,
}

impl End {
    /// Its last line, or how it ended.
    pub fn last_line(&self) -> String {
        self.said.last().cloned().unwrap_or_else(|| self.status.to_string())
    }

    /// Its result: the last line that is a document.
    pub fn result<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let line = self.said.iter().rev().find(|line| line.starts_with('{')).with_context(|| format!("a program said: {}", self.last_line()))?;
        serde_json::from_str(line).context("a program's result is not understood")
    }
}

impl<'a> Crowd<'a> {
    /// Starts the copies.
    pub fn start(commands: Vec<Command>, interrupt: &'a Interrupt, limit: Duration) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let mut crowd = Self { members: Vec::new(), interrupt, until: begun + limit, begun };
        for command in commands {
            crowd.add(command)?;
        }
        Ok(crowd)
    }

    /// Starts one more.
    pub fn add(&mut self, mut command: Command) -> anyhow::Result<()> {
        self.interrupt.check()?;
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (sender, lines) = channel();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // From here on an error ends the program (Drop).
        self.members.push(Member { child, stdin, lines, said: Vec::new(), ended: None });
        let streams = [stdout.map(|stream| Box::new(stream) as Box<dyn Read + Send>), stderr.map(|stream| Box::new(stream) as Box<dyn Read + Send>)];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            let read = move || {
                let mut reader = BufReader::new(stream);
                loop {
                    let mut line = Vec::new();
                    match reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                        Ok(read) if read > 0 => {}
                        _ => return,
                    }
                    // Nobody listens any more: the rest is read away.
                    let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
            };
            std::thread::Builder::new().name("reader".into()).spawn(read).context("cannot start a thread for a program's output")?;
        }
        Ok(())
    }

    fn check_limits(&self) -> anyhow::Result<()> {
        self.interrupt.check()?;
        if Instant::now() > self.until {
            bail!("the programs did not end in time");
        }
        Ok(())
    }

    /// Waits until every copy has said that it is ready.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            loop {
                self.check_limits()?;
                let member = &mut self.members[number];
                match member.lines.recv_timeout(LOOK) {
                    Ok(line) if line == "ready" => break,
                    Ok(line) => member.said.push(line),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        let status = member.child.wait().context("cannot watch a program")?;
                        member.ended = Some((status, self.begun.elapsed()));
                        bail!("a program ended before it was ready ({status}): {}", member.said.last().cloned().unwrap_or_default());
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets all copies begin.
    pub fn go(&mut self) {
        for member in &mut self.members {
            if let Some(stdin) = &mut member.stdin {
                // One that has ended says so itself.
                let _ = stdin.write_all(b"go\n").and_then(|()| stdin.flush());
            }
        }
    }

    /// Waits for the end of all.
    pub fn finish(mut self) -> anyhow::Result<Vec<End>> {
        for member in &mut self.members {
            member.stdin = None;
        }
        while self.members.iter().any(|member| member.ended.is_none()) {
            self.check_limits()?;
            let mut moved = false;
            for member in &mut self.members {
                while let Ok(line) = member.lines.try_recv() {
                    if member.said.len() < MOST_LINES {
                        member.said.push(line);
                    }
                    moved = true;
                }
                if member.ended.is_none()
                    && let Some(status) = member.child.try_wait().context("cannot watch a program")?
                {
                    member.ended = Some((status, self.begun.elapsed()));
                    moved = true;
                }
            }
            if !moved {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let mut ends = Vec::new();
        for member in &mut self.members {
            // Its last lines may still be on their way; a grandchild may hold the pipe open.
            while let Ok(line) = member.lines.recv_timeout(Duration::from_millis(500)) {
                if member.said.len() < MOST_LINES {
                    member.said.push(line);
                }
            }
            let Some((status, took)) = member.ended else { continue };
            ends.push(End { status, took, said: std::mem::take(&mut member.said) });
        }
        Ok(ends)
    }
}
