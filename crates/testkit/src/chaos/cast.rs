//! The clients of a round: what they run, what they must print, and how they fared.

use crate::chaos::clock::Instant;
use crate::chaos::plan::Kind;
use crate::chaos::rules::Fate;
use crate::{Client, Node, Outcome};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

/// Names of the errors of a client that was never served; a served client gets other errors.
const TURNED_AWAY: [&str; 6] = [
    "cudaErrorMpsConnectionFailed",
    "cudaErrorMpsServerNotReady",
    "cudaErrorMpsMaxClientsReached",
    "cudaErrorNoDevice",
    "cudaErrorInsufficientDriver",
    "cudaErrorSystemDriverMismatch",
];

/// What a client does: arguments of `tests/cu/chaos.cu`, and how many input lines it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientPart {
    arguments: &'static [&'static str],
    lines: usize,
}

/// Each takes about 0.2 s alone, so that it outlasts the blows.
pub const WORK: [ClientPart; 2] = [ClientPart { arguments: &["work", "400", "1"], lines: 0 }, ClientPart { arguments: &["work", "250", "2"], lines: 0 }];
pub const WAIT: ClientPart = ClientPart { arguments: &["wait", "6", "1000000"], lines: 0 };
/// One kernel after the blows.
pub const IDLE: ClientPart = ClientPart { arguments: &["idle"], lines: 1 };
/// Ends with its first results.
pub const VISIT: ClientPart = ClientPart { arguments: &["idle"], lines: 0 };
pub const START: ClientPart = ClientPart { arguments: &["work", "40", "3"], lines: 0 };

/// What each part prints when it is alone.
pub type Alone = BTreeMap<ClientPart, String>;

/// Plays each part on a node of its own.
///
/// # Panics
/// One does not succeed.
pub fn alone() -> Alone {
    let node = Node::start();
    let digest = |part: ClientPart| {
        let mut client = node.test_client("chaos").args(part.arguments).start();
        for _ in 0..part.lines {
            client.tell("");
        }
        let said = client.expect_ok();
        (part, line(&said, "digest ").unwrap_or_else(|| panic!("no digest: {said}")).to_owned())
    };
    WORK.into_iter().chain([WAIT, IDLE, VISIT, START]).map(digest).collect()
}

/// A client of a round.
#[derive(Debug)]
pub struct Actor<'a> {
    pub kind: Kind,
    pub uid: u32,
    pub part: ClientPart,
    pub pid: u32,
    client: Client<'a>,
    pub victim: bool,
    pub killed: bool,
    /// True if the harness has stopped it: the times that it measured then mean nothing.
    pub paused: bool,
    end: Option<(Outcome, Instant)>,
}

impl<'a> Actor<'a> {
    /// Starts the client, with one more variable if `variable` is set.
    pub fn start(node: &'a Node, kind: Kind, uid: u32, part: ClientPart, variable: Option<&(&str, String)>) -> Self {
        let mut builder = node.test_client("chaos").args(part.arguments);
        if let Some((name, value)) = variable {
            builder = builder.env(name, value);
        }
        let own = rustix::process::geteuid().as_raw();
        let client = if uid == own { builder } else { builder.user(uid) }.start();
        Self { kind, uid, part, pid: client.pid(), client, victim: false, killed: false, paused: false, end: None }
    }

    /// Sends all its lines and ends its input.
    pub fn finish(&mut self) {
        for _ in 0..self.part.lines {
            // A client that has ended reports that itself.
            let _ = self.client.try_tell("");
        }
        self.client.close_input();
    }

    pub fn is_ready(&self) -> bool {
        self.client.said().iter().any(|line| line == "ready")
    }

    /// True once it has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.end.is_none() {
            self.end = self.client.try_wait().map(|outcome| (outcome, Instant::now()));
        }
        self.end.is_some()
    }

    /// How it fared, when the round is over.
    pub fn seen(&self, alone: &Alone) -> Seen {
        let Some((outcome, ended)) = &self.end else {
            let how = format!("did not end; it said {:?}", self.client.said());
            return Seen { kind: self.kind, uid: self.uid, fate: Fate::Wrong(how), first: None, longest: None, ended: None, paused: self.paused };
        };
        let times = |name| line(&outcome.out, name).and_then(span);
        Seen {
            kind: self.kind,
            uid: self.uid,
            fate: fate(outcome, alone.get(&self.part).map_or("", String::as_str), self.killed),
            first: times("first "),
            longest: times("longest "),
            ended: Some(*ended),
            paused: self.paused,
        }
    }
}

/// How a client fared.
#[derive(Debug, Clone)]
pub struct Seen {
    pub kind: Kind,
    pub uid: u32,
    pub fate: Fate,
    /// Its first call, with which it starts: when it began, and how long it took.
    pub first: Option<(Instant, Duration)>,
    /// The longest of its other calls.
    pub longest: Option<(Instant, Duration)>,
    pub ended: Option<Instant>,
    pub paused: bool,
}

fn fate(outcome: &Outcome, alone: &str, killed: bool) -> Fate {
    let told = line(&outcome.out, "told ").map(|told| told.split_whitespace().next().unwrap_or_default().to_owned());
    match (outcome.status.code(), line(&outcome.out, "digest "), told) {
        (Some(0), Some(digest), None) if digest == alone => Fate::WentOn,
        (Some(0), Some(digest), None) => Fate::Wrong(format!("has wrong results: {digest}, alone {alone}")),
        (Some(3), None, Some(error)) if TURNED_AWAY.contains(&error.as_str()) => Fate::TurnedAway(error),
        (Some(3), None, Some(error)) => Fate::Told(error),
        _ if killed && outcome.status.signal() == Some(9) => Fate::Killed,
        _ => Fate::Wrong(format!("ended with {}: {:?} {:?}", outcome.status, outcome.out, outcome.err)),
    }
}

/// The rest of the line that begins so.
fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

/// `AT TOOK` in nanoseconds.
fn span(text: &str) -> Option<(Instant, Duration)> {
    let (at, took) = text.split_once(' ')?;
    Some((Instant(at.parse().ok()?), Duration::from_nanos(took.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    fn ended(status: i32, out: &str) -> Outcome {
        Outcome { status: ExitStatus::from_raw(status), out: out.into(), err: String::new() }
    }

    #[test]
    fn what_a_client_printed_tells_how_it_fared() {
        let right = "first 5 7\nready\nlongest 20 30\ndigest ab";
        assert_eq!(fate(&ended(0, right), "ab", false), Fate::WentOn);
        assert!(matches!(fate(&ended(0, right), "cd", false), Fate::Wrong(how) if how.contains("wrong results")));
        assert!(matches!(fate(&ended(0, "ready"), "ab", false), Fate::Wrong(_)), "a success without results is none");
        let told = |name: &str| fate(&ended(3 << 8, &format!("first 5 7\ntold {name} by cudaMalloc(&a, 5)\nlongest 0 0")), "ab", false);
        assert_eq!(told("cudaErrorMpsRpcFailure"), Fate::Told("cudaErrorMpsRpcFailure".into()));
        assert_eq!(told("cudaErrorMpsServerNotReady"), Fate::TurnedAway("cudaErrorMpsServerNotReady".into()));
        assert_eq!(fate(&ended(9, "ready"), "ab", true), Fate::Killed);
        assert!(matches!(fate(&ended(9, "ready"), "ab", false), Fate::Wrong(_)), "somebody else killed it");
        assert!(matches!(fate(&ended(11, right), "ab", true), Fate::Wrong(_)));
        assert_eq!(line(right, "longest ").and_then(span), Some((Instant(20), Duration::from_nanos(30))));
    }
}
