//! Several copies of a program at the same time. They begin together, are limited in time, and none
//! outlives this value, with what it has started.
//!
//! What a program and the lab say to each other is in docs/lab.md, "A program of yours": `ready`,
//! `go`, and a result ([`Finding`]), once or several times.

use crate::demo::interrupt::Interrupt;
use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Between two looks at the copies.
const LOOK: Duration = Duration::from_millis(2);
/// How long the last lines of a copy that has ended are waited for. A process that it has started
/// may hold its output open.
const LAST_LINES: Duration = Duration::from_millis(500);
/// Longest line that is kept of a program, and most lines of it: the last ones.
const LONGEST_LINE: u64 = 1 << 20;
const MOST_LINES: usize = 200;
/// Most points and spans of a result that are taken.
const MOST_POINTS: usize = 10_000;

/// What a copy has found: the last line of it that is a JSON object. `lab_work load` prints one,
/// and a user's program may.
#[derive(Debug, Clone, Deserialize)]
pub struct Finding {
    pub requests: f64,
    pub seconds: f64,
    #[serde(default = "yes")]
    pub right: bool,
    pub p50_us: f64,
    pub p99_us: f64,
    #[serde(default)]
    pub start_ms: Option<f64>,
    #[serde(default)]
    pub points_us: Vec<f64>,
    #[serde(default)]
    pub spans_us: Vec<(f64, f64)>,
}

fn yes() -> bool {
    true
}

impl Finding {
    /// A result out of its line.
    ///
    /// # Errors
    /// A sentence: what is missing in it, or cannot be.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        let mut finding: Self = serde_json::from_str(line).context("a program's result is not understood")?;
        let times = [finding.p50_us, finding.p99_us, finding.start_ms.unwrap_or(0.0)];
        if finding.requests < 1.0 || finding.seconds <= 0.0 {
            bail!("a program's result has {} requests in {} seconds: it needs at least one request and more than no time", finding.requests, finding.seconds);
        }
        if times.into_iter().chain(finding.points_us.iter().copied()).any(|time| time < 0.0) {
            bail!("a program's result has a time below zero");
        }
        if finding.p50_us > finding.p99_us {
            bail!("a program's result has p50_us {} and p99_us {}: half of the requests cannot take longer than 99 of 100", finding.p50_us, finding.p99_us);
        }
        finding.points_us.truncate(MOST_POINTS);
        finding.spans_us.truncate(MOST_POINTS);
        Ok(finding)
    }
}

/// Requests a second of all copies.
pub fn rate_of(findings: &[Finding]) -> f64 {
    findings.iter().map(|finding| finding.requests / finding.seconds.max(1e-9)).sum()
}

/// One copy.
struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All that it will ever say has been heard.
    is_silent: bool,
    /// How often it has said that it is ready.
    readied: u32,
    said: VecDeque<String>,
    ended: Option<(ExitStatus, Instant)>,
}

impl Member {
    /// Hears what it has said, and sees whether it has ended. True if there was anything.
    fn look(&mut self) -> anyhow::Result<bool> {
        let mut moved = false;
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait().context("cannot watch a program")?
        {
            self.ended = Some((status, Instant::now()));
            moved = true;
        }
        while !self.is_silent {
            match self.lines.try_recv() {
                Ok(line) if line == "ready" => self.readied = self.readied.saturating_add(1),
                Ok(line) => {
                    if self.said.len() == MOST_LINES {
                        self.said.pop_front();
                    }
                    self.said.push_back(line);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.is_silent = true,
            }
            moved = true;
        }
        Ok(moved)
    }

    fn is_ready(&self) -> bool {
        self.readied > 0
    }

    /// True if it has ended, and its last lines are there.
    fn is_over(&self) -> bool {
        self.ended.is_some_and(|(_, at)| self.is_silent || at.elapsed() >= LAST_LINES)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // It leads a group of its own: what it has started ends, too.
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
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

/// The last of these lines that begins as a JSON object does.
fn result_line<'a>(said: impl DoubleEndedIterator<Item = &'a String>) -> Option<&'a str> {
    said.rev().map(String::as_str).find(|line| line.starts_with('{'))
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

    /// The line of its result.
    pub fn result_line(&self) -> Option<&str> {
        result_line(self.said.iter())
    }

    /// Its result.
    pub fn result<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let line = self.result_line().with_context(|| format!("a program said: {}", self.last_line()))?;
        serde_json::from_str(line).context("a program's result is not understood")
    }

    /// Its result, if it is one of requests.
    pub fn finding(&self) -> anyhow::Result<Finding> {
        Finding::parse(self.result_line().with_context(|| format!("a program said: {}", self.last_line()))?)
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
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (sender, lines) = channel();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // From here on an error ends the program (Drop).
        self.members.push(Member { child, stdin, lines, is_silent: false, readied: 0, said: VecDeque::new(), ended: None });
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

    /// Looks at all copies until `done` says so.
    fn watch(&mut self, what: &str, done: impl Fn(&[Member]) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        loop {
            self.interrupt.check()?;
            let mut moved = false;
            for member in &mut self.members {
                moved |= member.look()?;
            }
            if done(&self.members)? {
                return Ok(());
            }
            if Instant::now() > self.until {
                bail!("the programs did not {what} within {:.0} seconds", (self.until - self.begun).as_secs_f64());
            }
            if !moved {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Waits until every copy has said that it is ready, or has ended. Returns how many are ready.
    pub fn wait_until_ready_or_ended(&mut self) -> anyhow::Result<usize> {
        self.watch("become ready or end", |members| Ok(members.iter().all(|member| member.is_ready() || member.is_over())))?;
        Ok(self.members.iter().filter(|member| member.is_ready()).count())
    }

    /// Waits until every copy has said that it is ready. One that ends before ends the wait.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.watch("become ready", |members| {
            if let Some(member) = members.iter().find(|member| !member.is_ready() && member.is_over()) {
                let status = member.ended.map_or_else(String::new, |(status, _)| status.to_string());
                bail!("a program ended before it was ready ({status}): {}", member.said.back().cloned().unwrap_or_default());
            }
            Ok(members.iter().all(Member::is_ready))
        })
    }

    /// How long the copies run by now.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
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

    /// Lets all copies begin, and again, `most` times in all, as long as all of them say after
    /// their results that they are ready for another round. What each round has shown but the last
    /// one, which the ends tell of.
    pub fn go_round(&mut self, most: u32) -> anyhow::Result<Vec<Vec<Finding>>> {
        let mut rounds = Vec::new();
        self.go();
        for round in 1..most {
            self.watch("end a round", |members| Ok(members.iter().all(|member| member.readied > round || member.is_over())))?;
            if !self.members.iter().all(|member| member.readied > round) {
                break;
            }
            let result = |member: &Member| result_line(member.said.iter()).map(Finding::parse);
            // One that said ready without a result says what it is in the end.
            let Some(results) = self.members.iter().map(result).collect::<Option<Vec<_>>>() else { break };
            rounds.push(results.into_iter().collect::<anyhow::Result<Vec<Finding>>>()?);
            // No round has the result of the one before.
            self.members.iter_mut().for_each(|member| member.said.clear());
            self.go();
        }
        Ok(rounds)
    }

    /// Waits for the end of all.
    pub fn finish(mut self) -> anyhow::Result<Vec<End>> {
        for member in &mut self.members {
            member.stdin = None;
        }
        self.watch("end", |members| Ok(members.iter().all(Member::is_over)))?;
        let begun = self.begun;
        let end = |member: &mut Member| {
            let (status, at) = member.ended?;
            Some(End { status, took: at - begun, said: std::mem::take(&mut member.said).into() })
        };
        Ok(self.members.iter_mut().filter_map(end).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of a shell's commands, each with its number, that may begin so often: the requests of
    /// each in each round, and in the end.
    fn rounds(copies: u32, most: u32, commands: &str) -> (Vec<Vec<f64>>, Vec<f64>) {
        let interrupt = Interrupt::watch().expect("signals");
        let command = |number: u32| {
            let mut command = Command::new("sh");
            command.args(["-c", commands]).env("NUMBER", number.to_string());
            command
        };
        let mut crowd = Crowd::start((1..=copies).map(command).collect(), &interrupt, Duration::from_secs(60)).expect("they start");
        crowd.wait_until_ready().expect("they are ready");
        let rounds = crowd.go_round(most).expect("rounds");
        let requests = |findings: Vec<Finding>| findings.iter().map(|finding| finding.requests).collect();
        let ends = crowd.finish().expect("they end");
        let last = ends.iter().map(End::finding).collect::<anyhow::Result<_>>().expect("results");
        (rounds.into_iter().map(requests).collect(), requests(last))
    }

    #[test]
    fn a_program_that_is_ready_again_has_another_round() {
        // The end of the input counts as `go` the first time, and ends it later.
        const ROUNDS: &str = r#"round=0; echo ready; read word
            while :; do
              round=$((round + 1))
              echo "{\"requests\": $NUMBER$round, \"seconds\": 1, \"p50_us\": 1, \"p99_us\": 2}"
              echo ready; read word || exit 0
            done"#;
        assert_eq!(rounds(2, 3, ROUNDS), (vec![vec![11.0, 21.0], vec![12.0, 22.0]], vec![13.0, 23.0]));
        assert_eq!(rounds(1, 1, ROUNDS), (vec![], vec![11.0]));
    }

    #[test]
    fn a_program_that_ends_after_its_result_has_one_round() {
        const ONCE: &str = r#"echo ready; read word; echo '{"requests": 4, "seconds": 1, "p50_us": 1, "p99_us": 2}'"#;
        assert_eq!(rounds(2, 3, ONCE), (vec![], vec![4.0, 4.0]));
        // Where one of two ends, the other one is not asked again.
        let one_again = format!("{ONCE}; [ $NUMBER = 1 ] || {{ echo ready; read word; }}");
        assert_eq!(rounds(2, 3, &one_again), (vec![], vec![4.0, 4.0]));
        // Nor one that is ready again and has no new result.
        let without_result = format!("{ONCE}; echo ready; read word; echo ready; read word; {}", ONCE.rsplit("; ").next().expect("its result"));
        assert_eq!(rounds(1, 3, &without_result), (vec![vec![4.0]], vec![4.0]));
    }

    const LEAST: &str = r#"{"requests": 8, "seconds": 2.0, "p50_us": 10, "p99_us": 20, "model": "resnet50"}"#;

    #[test]
    fn a_result_needs_four_fields_and_may_have_more() {
        let least = Finding::parse(LEAST).expect("a result");
        assert_eq!((least.requests, least.right, least.start_ms, least.points_us.len()), (8.0, true, None, 0));
        let whole = LEAST.replace("\"requests\"", r#""right": false, "start_ms": 3.5, "points_us": [1, 2], "spans_us": [[0, 1], [2, 3]], "requests""#);
        let whole = Finding::parse(&whole).expect("a result");
        assert_eq!((whole.right, whole.start_ms, whole.points_us, whole.spans_us), (false, Some(3.5), vec![1.0, 2.0], vec![(0.0, 1.0), (2.0, 3.0)]));
    }

    #[test]
    fn a_result_that_cannot_be_is_answered_with_a_sentence() {
        let refused = |from: &str, to: &str| format!("{:#}", Finding::parse(&LEAST.replacen(from, to, 1)).expect_err("it is no result"));
        for (from, to, says) in [
            ("\"p99_us\": 20", "\"p99\": 20", "missing field `p99_us`"),
            ("8", "NaN", "not understood"),
            ("8", "\"8\"", "invalid type: string"),
            ("8", "0", "at least one request"),
            ("2.0", "-1", "more than no time"),
            ("10", "30", "half of the requests cannot take longer"),
            ("10", "-10", "a time below zero"),
            ("}", "", "EOF"),
        ] {
            let said = refused(from, to);
            assert!(said.contains("result") && said.contains(says), "{said}");
        }
    }
}
