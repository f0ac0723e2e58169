//! Whether a program that comes now is served: a process that makes a context through the service,
//! as the user who is served, and the daemon's word that it was the service that served it.
//!
//! There is one trial at a time, and its outcome counts for a while. A trial that does not come to
//! its end is killed.

use super::status;
use crate::{library, say};
use anyhow::Context as _;
use cumux_exporter::users::Users;
use cumux_link::{Process, escape_foreign};
use cumux_trial::Trial;
use rustix::process::{Signal, geteuid};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the trial process says when it has been served.
const SERVED: &str = "served";
/// Longest complaint of a trial process.
const LONGEST: u64 = 16 << 10;
/// Users for whom a trial is made, at most.
const MOST_USERS: usize = 16;
/// The group of a user who is in no list.
const NO_GROUP: u32 = 65534;

/// The trial process: makes a context, says so, and keeps it until its standard input ends.
pub fn main(library: &Path) -> anyhow::Result<u8> {
    let trial = Trial::make(library)?;
    say::line(format_args!("{SERVED} {}", trial.devices()))?;
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    drop(trial);
    Ok(0)
}

struct Done {
    at: Instant,
    seconds: f64,
    outcome: Result<String, String>,
}

/// Makes trials.
pub struct Trials {
    timeout: Duration,
    age: Duration,
    /// Held while a trial is made.
    turn: Mutex<()>,
    last: Mutex<Option<Done>>,
}

impl Trials {
    pub fn new(timeout: Duration, age: Duration) -> Self {
        Self { timeout, age, turn: Mutex::default(), last: Mutex::default() }
    }

    /// The last trial: whether it was served, and its time in seconds.
    pub fn last(&self) -> Option<(bool, f64)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|done| (done.outcome.is_ok(), done.seconds))
    }

    /// The outcome for these users, who have servers now: that of the last trial if it is young
    /// enough, else of a new one.
    pub fn outcome(&self, pipe: &Path, uids: Vec<u32>) -> Result<String, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref().filter(|done| done.at.elapsed() < self.age) {
            return done.outcome.clone();
        }
        let begun = Instant::now();
        let outcome = users_to_try(uids, geteuid().as_raw()).and_then(|users| self.try_all(pipe, &users));
        let done = Done { at: Instant::now(), seconds: begun.elapsed().as_secs_f64(), outcome: outcome.clone() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        outcome
    }

    fn try_all(&self, pipe: &Path, users: &[u32]) -> Result<String, String> {
        let names = Users::read();
        let mut said = Vec::new();
        for uid in users {
            let begun = Instant::now();
            let name = names.name(*uid);
            let devices = self.try_as(pipe, *uid, names.group(*uid)).map_err(|why| format!("a program of user {name} is not served: {why}"))?;
            said.push(format!("a program of user {name} was served on {devices} device(s) in {} ms", begun.elapsed().as_millis()));
        }
        Ok(said.join("\n"))
    }

    fn try_as(&self, pipe: &Path, uid: u32, group: Option<u32>) -> Result<String, String> {
        let mut child = start(pipe, uid, group).map_err(|error| format!("{error:#}"))?;
        let outcome = self.watch(pipe, &mut child);
        // It has been told to end, or has failed.
        drop(child.stdin.take());
        let ended = Process::open(child.id()).is_ok_and(|process| process.ended(Some(self.timeout)) || process.signal(Signal::KILL).is_err());
        if !ended {
            let _ = child.kill();
        }
        let _ = child.wait();
        outcome
    }

    /// Waits for the process's word, and asks the daemon whether it knows the process.
    fn watch(&self, pipe: &Path, child: &mut Child) -> Result<String, String> {
        let (stdout, stderr) = (child.stdout.take().ok_or("no output")?, child.stderr.take().ok_or("no output")?);
        let (sender, word) = channel();
        let reader = std::thread::Builder::new().name("trial".into()).spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout.take(LONGEST)).read_line(&mut line);
            let _ = sender.send(line);
        });
        if let Err(error) = reader {
            let _ = child.kill();
            return Err(format!("the system has no thread for it: {error}"));
        }
        let line = match word.recv_timeout(self.timeout) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let _ = child.kill();
                return Err(format!("it had no context after {} s", self.timeout.as_secs()));
            }
        };
        let Some(devices) = line.trim().strip_prefix(SERVED) else {
            let mut why = String::new();
            let _ = stderr.take(LONGEST).read_to_string(&mut why);
            return Err(reason(&why));
        };
        let known = status(pipe)?.iter().flat_map(|server| &server.clients).any(|client| client.pid == child.id() || is_foreign(client.pid));
        if known { Ok(devices.trim().to_owned()) } else { Err("it was not the service that served it, but the driver itself: see cumux doctor".to_owned()) }
    }
}

/// A number that the daemon gives to a process that has none in its PID namespace. The trial's own
/// cannot be compared then.
fn is_foreign(pid: u32) -> bool {
    pid > 500_000_000
}

/// Those who are served now; where nobody is, oneself. A trial of another user than those would
/// make a daemon that serves one user at a time send its clients away.
fn users_to_try(mut served: Vec<u32>, own: u32) -> Result<Vec<u32>, String> {
    served.sort_unstable();
    served.dedup();
    served.truncate(MOST_USERS);
    if served.is_empty() {
        return Ok(vec![own]);
    }
    if own != 0 {
        served.retain(|uid| *uid == own);
        if served.is_empty() {
            return Err("only root can find out whether programs of other users are served: run the exporter as root, or as the user who is served".to_owned());
        }
    }
    Ok(served)
}

fn start(pipe: &Path, uid: u32, group: Option<u32>) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
    let library = library::folder()?.join(library::LIBRARY);
    let mut command = Command::new(program);
    command.arg("trial").arg(library).env(cumux_control::directory::PIPE_VARIABLE, pipe).env("CUMUX_VERBOSE", "1");
    if uid != geteuid().as_raw() {
        command.uid(uid).gid(group.unwrap_or(NO_GROUP));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("cannot start a trial process")
}

/// What a trial process complained of: the library's line says most.
fn reason(complaint: &str) -> String {
    let lines: Vec<&str> = complaint.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.iter().map(|line| line.trim_start_matches("cumux: ")).collect::<Vec<_>>().join("; ");
    if text.is_empty() { "its process ended without a word".to_owned() } else { escape_foreign(&text, 1024) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_made_for_those_who_are_served() {
        assert_eq!(users_to_try(vec![], 5), Ok(vec![5]));
        assert_eq!(users_to_try(vec![7, 5, 7], 0), Ok(vec![5, 7]));
        assert_eq!(users_to_try(vec![7, 5], 5), Ok(vec![5]));
        assert!(users_to_try(vec![7], 5).unwrap_err().contains("as root"));
    }

    #[test]
    fn complaints() {
        assert_eq!(reason("cumux: no room\ncumux: cuInit: X (3)\n"), "no room; cuInit: X (3)");
        assert_eq!(reason(" \n"), "its process ended without a word");
    }
}
