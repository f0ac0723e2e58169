//! Groups of processes and the cards of the node, as the daemon tells of them.
//!
//! [`Groups`] is the whole interface that plugins and hooks need. [`Daemon`] speaks the control
//! socket's text commands. It connects for every call, so a daemon that was started again is found,
//! and it waits for one that is just being started again.

use cumux_control::{Frontend, FrontendError, PipeDirectory};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a call waits for a daemon that does not listen: as long as a restart takes on a busy
/// machine.
pub const RESTART: Duration = Duration::from_secs(10);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(50);

/// A group of processes with limits of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 64.
    pub name: String,
    /// MiB of each card, by UUID. A card that is missing here has no limit.
    pub memory: BTreeMap<String, u64>,
    /// Percent of the multiprocessors.
    pub percentage: Option<u32>,
    /// 0 is normal, 1 below normal.
    pub priority: Option<u32>,
    /// Most clients at a time.
    pub clients: Option<u32>,
    /// The one user whose processes may be in it.
    pub uid: Option<u32>,
    /// Its control group, below `/sys/fs/cgroup`.
    pub cgroup: Option<String>,
    /// The UUIDs of the cards that its processes see; empty for all.
    pub devices: Vec<String>,
}

impl Group {
    /// Its limits as `key=value` words of `group create` and `group set`.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = String::new();
        if !self.memory.is_empty() {
            let limits: Vec<String> = self.memory.iter().map(|(uuid, mib)| format!("{uuid}={mib}M")).collect();
            let _ = write!(words, " memory={}", limits.join(","));
        }
        for (key, value) in [("percentage", self.percentage), ("priority", self.priority), ("clients", self.clients), ("uid", self.uid)] {
            if let Some(value) = value {
                let _ = write!(words, " {key}={value}");
            }
        }
        if let Some(cgroup) = &self.cgroup {
            let _ = write!(words, " cgroup={cgroup}");
        }
        if !self.devices.is_empty() {
            let _ = write!(words, " devices={}", self.devices.join(","));
        }
        words
    }
}

/// A group that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Processes in it.
    pub clients: u32,
    /// The directory with its socket.
    pub directory: PathBuf,
}

/// A card of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCard {
    /// Its place among the daemon's devices.
    pub ordinal: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// What `cuDeviceGetName` answers.
    pub name: String,
    /// MiB of device memory.
    pub memory_mib: u64,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Why nobody should be sent to it now; `None` while it is well.
    pub ill: Option<String>,
}

/// Why a call to the daemon failed.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum GroupsError {
    /// No daemon answers.
    #[error("no cumux daemon answers in {directory}: {why}. Start it there (cumux control -d), or look into its control.log")]
    NoDaemon {
        /// The pipe directory.
        directory: String,
        /// The last attempt's failure.
        why: String,
    },
    /// The daemon refuses.
    #[error("the daemon refuses \"{command}\": {why}")]
    Refused {
        /// What it was asked.
        command: String,
        /// Its words.
        why: String,
    },
    /// The answer has no form that this version knows.
    #[error("the daemon's answer to \"{command}\" is not understood: it is of another version of cumux; start it again with this one")]
    OtherVersion {
        /// What it was asked.
        command: String,
    },
}

/// The groups and cards of one node.
pub trait Groups: Send + Sync {
    /// Makes a group and returns the directory with its socket. A group of that name that exists is
    /// replaced.
    ///
    /// # Errors
    /// [`GroupsError`].
    fn create(&self, group: &Group) -> Result<PathBuf, GroupsError>;
    /// Gives an existing group these limits.
    ///
    /// # Errors
    /// [`GroupsError`].
    fn set(&self, group: &Group) -> Result<(), GroupsError>;
    /// Removes a group and ends its clients. True if there was one.
    ///
    /// # Errors
    /// [`GroupsError`].
    fn remove(&self, name: &str) -> Result<bool, GroupsError>;
    /// All groups.
    ///
    /// # Errors
    /// [`GroupsError`].
    fn list(&self) -> Result<Vec<Listed>, GroupsError>;
    /// All cards with their state.
    ///
    /// # Errors
    /// [`GroupsError`].
    fn cards(&self) -> Result<Vec<NodeCard>, GroupsError>;
}

impl<T: Groups + ?Sized> Groups for std::sync::Arc<T> {
    fn create(&self, group: &Group) -> Result<PathBuf, GroupsError> {
        (**self).create(group)
    }
    fn set(&self, group: &Group) -> Result<(), GroupsError> {
        (**self).set(group)
    }
    fn remove(&self, name: &str) -> Result<bool, GroupsError> {
        (**self).remove(name)
    }
    fn list(&self) -> Result<Vec<Listed>, GroupsError> {
        (**self).list()
    }
    fn cards(&self) -> Result<Vec<NodeCard>, GroupsError> {
        (**self).cards()
    }
}

/// The real daemon of a pipe directory.
#[derive(Debug, Clone)]
pub struct Daemon {
    pipe: PathBuf,
    patience: Duration,
}

impl Daemon {
    /// The daemon of this pipe directory.
    #[must_use]
    pub fn at(pipe: PathBuf) -> Self {
        Self { pipe, patience: RESTART }
    }

    /// How long a call waits for a daemon that does not listen.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    fn ask(&self, command: &str) -> Result<String, GroupsError> {
        let until = Instant::now() + self.patience;
        loop {
            let asked = Frontend::connect(&PipeDirectory::at(&self.pipe)).and_then(|mut daemon| daemon.ask(command));
            match asked {
                Ok((text, _)) => return Ok(text),
                Err(FrontendError::NoDaemon | FrontendError::Broken) if Instant::now() < until => std::thread::sleep(AGAIN),
                Err(why) => return Err(GroupsError::NoDaemon { directory: self.pipe.display().to_string(), why: why.to_string() }),
            }
        }
    }

    fn json<T: for<'a> Deserialize<'a>>(&self, command: &str) -> Result<T, GroupsError> {
        let text = self.ask(command)?;
        if text.starts_with("Unknown command") {
            return Err(GroupsError::OtherVersion { command: command.to_owned() });
        }
        match serde_json::from_str(&text) {
            Ok(value) => Ok(value),
            // A sentence, such as why the driver does not name its cards.
            Err(_) if !text.starts_with(['{', '[']) => Err(Self::refused(command, &text)),
            Err(_) => Err(GroupsError::OtherVersion { command: command.to_owned() }),
        }
    }

    fn refused(command: &str, text: &str) -> GroupsError {
        if text.starts_with("Unknown command") {
            return GroupsError::OtherVersion { command: command.to_owned() };
        }
        GroupsError::Refused { command: command.to_owned(), why: text.trim().to_owned() }
    }
}

/// What the daemon's `cards` command answers for each card.
#[derive(Debug, Deserialize)]
struct KnownCard {
    id: String,
    uuid: String,
    name: String,
    memory: u64,
    multiprocessors: u32,
}

/// What we need of `group list`.
#[derive(Debug, Deserialize)]
struct KnownGroups {
    groups: Vec<KnownGroup>,
}

#[derive(Debug, Deserialize)]
struct KnownServer {
    pid: u32,
    state: String,
    #[serde(default)]
    devices: Vec<String>,
    #[serde(default)]
    cards: Vec<ServedCard>,
}

#[derive(Debug, Deserialize)]
struct ServedCard {
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    unavailable: String,
}

impl KnownServer {
    /// Why this server's users cannot use a card now.
    fn why_ill(&self, card: &KnownCard) -> Option<String> {
        // A server that does not answer names no devices: then none of them can be relied on.
        let has_it = self.devices.is_empty() || self.devices.contains(&card.id);
        if has_it && ILL_STATES.contains(&self.state.as_str()) {
            return Some(format!("server {} is in {}", self.pid, self.state));
        }
        let lost = self.cards.iter().find(|served| served.uuid == card.uuid && !served.unavailable.is_empty());
        lost.map(|served| format!("server {} has lost it: {}", self.pid, served.unavailable))
    }
}

#[derive(Debug, Deserialize)]
struct KnownGroup {
    name: String,
    clients: u32,
    directory: PathBuf,
}

/// States of a server whose cards serve nobody at the moment.
const ILL_STATES: [&str; 2] = ["FAULT", "UNRESPONSIVE"];

/// What an order on groups is answered with.
#[derive(Debug, Default, Deserialize)]
struct Answered {
    directory: Option<PathBuf>,
    error: Option<String>,
    note: Option<String>,
}

impl Daemon {
    fn order(&self, command: &str) -> Result<Answered, GroupsError> {
        let text = self.ask(command)?;
        let answered: Answered = serde_json::from_str(&text).map_err(|_| Self::refused(command, &text))?;
        match answered.error {
            Some(why) => Err(GroupsError::Refused { command: command.to_owned(), why }),
            None => Ok(answered),
        }
    }
}

impl Groups for Daemon {
    fn create(&self, group: &Group) -> Result<PathBuf, GroupsError> {
        // A group of that name is from an attempt whose answer was lost.
        self.remove(&group.name)?;
        let command = format!("group create {}{}", group.name, group.words());
        self.order(&command)?.directory.ok_or(GroupsError::OtherVersion { command })
    }

    fn set(&self, group: &Group) -> Result<(), GroupsError> {
        let answered = self.order(&format!("group set {}{}", group.name, group.words()))?;
        if let Some(note) = answered.note {
            tracing::warn!("group {}: {note}", group.name);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool, GroupsError> {
        if !self.list()?.iter().any(|group| group.name == name) {
            return Ok(false);
        }
        self.order(&format!("group rm {name} force"))?;
        Ok(true)
    }

    fn list(&self) -> Result<Vec<Listed>, GroupsError> {
        let known: KnownGroups = self.json("group list")?;
        Ok(known.groups.into_iter().map(|group| Listed { name: group.name, clients: group.clients, directory: group.directory }).collect())
    }

    fn cards(&self) -> Result<Vec<NodeCard>, GroupsError> {
        let known: Vec<KnownCard> = self.json("cards")?;
        let servers: Vec<KnownServer> = self.json("status --json")?;
        let card = |(ordinal, known): (u32, KnownCard)| NodeCard {
            ordinal,
            ill: servers.iter().find_map(|server| server.why_ill(&known)),
            uuid: known.uuid,
            name: known.name,
            memory_mib: known.memory >> 20,
            multiprocessors: known.multiprocessors,
        };
        Ok((0..).zip(known).map(card).collect())
    }
}

/// The daemons of a node: one for all cards, or several, each with cards of its own. A group lives
/// in the daemon that has its cards.
#[derive(Debug, Clone)]
pub struct Node<D = Daemon>(Vec<D>);

/// A daemon of the node does not answer.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{error}")]
pub struct MissingDaemon {
    /// What the first of those daemons has failed with.
    pub error: GroupsError,
    /// The cards of the others.
    pub cards: Vec<NodeCard>,
}

impl Node {
    /// The daemons of these pipe directories.
    #[must_use]
    pub fn of(pipes: impl IntoIterator<Item = PathBuf>, patience: Duration) -> Self {
        Self(pipes.into_iter().map(|pipe| Daemon::at(pipe).patience(patience)).collect())
    }
}

impl<D: Groups + Clone + 'static> Node<D> {
    /// Asks every daemon on a thread of its own: nobody waits for several that are down one after
    /// the other. The answers, each with the place of its daemon, in the order in which they come.
    fn ask_each<T: Send + 'static>(&self, ask: impl Fn(&D) -> Result<T, GroupsError> + Clone + Send + 'static) -> Receiver<(usize, Result<T, GroupsError>)> {
        let (sender, answers) = channel();
        for (place, daemon) in self.0.iter().cloned().enumerate() {
            let (ask, own) = (ask.clone(), sender.clone());
            // The send fails if nobody waits any longer.
            let work = move || drop(own.send((place, ask(&daemon))));
            if let Err(error) = std::thread::Builder::new().name("daemon".into()).spawn(work) {
                let why = format!("the system gives no thread to ask it ({error}); look at the limits of this user (ulimit -u)");
                let _ = sender.send((place, Err(GroupsError::NoDaemon { directory: format!("the pipe directory number {}", place + 1), why })));
            }
        }
        answers
    }

    /// What all daemons answer, in their order.
    fn ask_all<T: Send + 'static>(&self, ask: impl Fn(&D) -> Result<T, GroupsError> + Clone + Send + 'static) -> Vec<Result<T, GroupsError>> {
        let answers: BTreeMap<usize, Result<T, GroupsError>> = self.ask_each(ask).iter().collect();
        answers.into_values().collect()
    }

    /// The cards of all daemons, where none is missing: what a node offers is counted once.
    ///
    /// # Errors
    /// [`MissingDaemon`]: a daemon does not answer.
    pub fn every_card(&self) -> Result<Vec<NodeCard>, MissingDaemon> {
        let (mut error, mut cards) = (None, Vec::new());
        for answer in self.ask_all(D::cards) {
            match answer {
                Ok(some) => cards.push(some),
                Err(why) => error = error.or(Some(why)),
            }
        }
        let cards = numbered(cards.into_iter());
        match error {
            None => Ok(cards),
            Some(error) => Err(MissingDaemon { error, cards }),
        }
    }

    /// The one daemon that has all cards of a group. It is not waited for others that are down.
    fn daemon_of(&self, group: &Group) -> Result<&D, GroupsError> {
        if let [only] = &self.0[..] {
            return Ok(only);
        }
        let has = |cards: &[NodeCard]| group.devices.iter().all(|uuid| cards.iter().any(|card| card.uuid == *uuid));
        let found = self.ask_each(D::cards).iter().find(|(_, cards)| cards.as_ref().is_ok_and(|cards| has(cards)));
        found.and_then(|(place, _)| self.0.get(place)).ok_or_else(|| {
            let why = "no daemon of this node that answers has all its cards: a group's cards are one daemon's".to_owned();
            GroupsError::Refused { command: format!("group create {}{}", group.name, group.words()), why }
        })
    }
}

/// The cards of all daemons, numbered on.
fn numbered(cards: impl Iterator<Item = Vec<NodeCard>>) -> Vec<NodeCard> {
    (0..).zip(cards.flatten()).map(|(ordinal, card)| NodeCard { ordinal, ..card }).collect()
}

impl<D: Groups + Clone + 'static> Groups for Node<D> {
    fn create(&self, group: &Group) -> Result<PathBuf, GroupsError> {
        self.daemon_of(group)?.create(group)
    }

    fn set(&self, group: &Group) -> Result<(), GroupsError> {
        self.daemon_of(group)?.set(group)
    }

    fn remove(&self, name: &str) -> Result<bool, GroupsError> {
        let mut missing = None;
        // Listed first: an answer that comes when nobody waits any longer must remove nothing.
        for (place, listed) in self.ask_each(D::list) {
            match (listed, self.0.get(place)) {
                (Ok(groups), Some(daemon)) if groups.iter().any(|group| group.name == name) => return daemon.remove(name),
                (Ok(_), _) => {}
                // The daemon that is down may have it.
                (Err(error), _) => missing = missing.or(Some(error)),
            }
        }
        missing.map_or(Ok(false), Err)
    }

    fn list(&self) -> Result<Vec<Listed>, GroupsError> {
        let lists: Result<Vec<_>, _> = self.ask_all(D::list).into_iter().collect();
        Ok(lists?.concat())
    }

    /// The cards of all daemons, numbered on. A daemon that is down has none, unless all are.
    fn cards(&self) -> Result<Vec<NodeCard>, GroupsError> {
        let asked = self.ask_all(D::cards);
        if let (true, Some(Err(error))) = (asked.iter().all(Result::is_err), asked.first()) {
            return Err(error.clone());
        }
        Ok(numbered(asked.into_iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;
    use std::sync::{Arc, Mutex};

    #[test]
    fn limits_as_the_daemon_reads_them() {
        let group = Group {
            name: "k8s-1".into(),
            memory: [("GPU-a".to_owned(), 2048), ("GPU-b".to_owned(), 1)].into(),
            percentage: Some(25),
            uid: Some(1000),
            devices: vec!["GPU-a".into()],
            ..Group::default()
        };
        assert_eq!(group.words(), " memory=GPU-a=2048M,GPU-b=1M percentage=25 uid=1000 devices=GPU-a");
        assert_eq!(Group::default().words(), "");
    }

    #[test]
    fn a_card_is_ill_while_a_server_cannot_use_it() {
        let card: KnownCard = serde_json::from_str(r#"{"id":"cuda:1","uuid":"GPU-b","name":"x","memory":1,"multiprocessors":1}"#).unwrap();
        for (server, why) in [
            (r#"{"pid":7,"state":"ACTIVE","devices":["cuda:0","cuda:1"]}"#, None),
            (r#"{"pid":7,"state":"FAULT","devices":["cuda:0"]}"#, None),
            (r#"{"pid":7,"state":"FAULT","devices":["cuda:1"]}"#, Some("server 7 is in FAULT")),
            (r#"{"pid":7,"state":"UNRESPONSIVE","devices":[]}"#, Some("server 7 is in UNRESPONSIVE")),
            (r#"{"pid":7,"state":"INITIALIZING","devices":[]}"#, None),
            (r#"{"pid":7,"state":"ACTIVE","devices":[],"cards":[{"uuid":"GPU-b","unavailable":"it has gone"}]}"#, Some("server 7 has lost it: it has gone")),
            (r#"{"pid":7,"state":"ACTIVE","devices":[],"cards":[{"uuid":"GPU-a","unavailable":"it has gone"},{"uuid":"GPU-b"}]}"#, None),
        ] {
            let known: KnownServer = serde_json::from_str(server).unwrap();
            assert_eq!(known.why_ill(&card).as_deref(), why, "{server}");
        }
    }

    #[test]
    fn without_a_daemon_the_error_says_where() {
        let daemon = Daemon::at("/nonexistent/cumux".into()).patience(Duration::ZERO);
        let text = daemon.list().unwrap_err().to_string();
        assert!(text.contains("/nonexistent/cumux") && text.contains("cumux control -d"), "{text}");
    }

    /// Long after which a test counts as hung.
    const WATCHDOG: Duration = Duration::from_secs(30);

    /// A daemon that says when it is asked for its cards, and answers when it may.
    #[derive(Clone)]
    struct Slow {
        uuid: &'static str,
        asked: Sender<&'static str>,
        may_answer: Arc<Mutex<Receiver<()>>>,
    }

    impl Groups for Slow {
        fn create(&self, _: &Group) -> Result<PathBuf, GroupsError> {
            Ok(self.uuid.into())
        }
        fn set(&self, _: &Group) -> Result<(), GroupsError> {
            Ok(())
        }
        fn remove(&self, _: &str) -> Result<bool, GroupsError> {
            Ok(false)
        }
        fn list(&self) -> Result<Vec<Listed>, GroupsError> {
            Ok(Vec::new())
        }
        fn cards(&self) -> Result<Vec<NodeCard>, GroupsError> {
            self.asked.send(self.uuid).unwrap();
            match self.may_answer.lock().unwrap().recv() {
                Ok(()) => Ok(vec![NodeCard { uuid: self.uuid.to_owned(), ..NodeCard::default() }]),
                // Nobody will ever let it answer.
                Err(_) => Err(GroupsError::NoDaemon { directory: self.uuid.to_owned(), why: "it is down".to_owned() }),
            }
        }
    }

    /// A node of two such daemons, who are asked, and what lets each of them answer.
    fn two_daemons() -> (Node<Slow>, Receiver<&'static str>, [Sender<()>; 2]) {
        let (asked, questions) = channel();
        let daemon = |uuid| {
            let (answer, may_answer) = channel();
            (Slow { uuid, asked: asked.clone(), may_answer: Arc::new(Mutex::new(may_answer)) }, answer)
        };
        let [(first, one), (second, other)] = ["GPU-a", "GPU-b"].map(daemon);
        (Node(vec![first, second]), questions, [one, other])
    }

    #[test]
    fn several_daemons_are_asked_side_by_side() {
        let (node, questions, [one, other]) = two_daemons();
        let asker = std::thread::spawn(move || (node.every_card(), node.cards()));
        let both_asked = || [(); 2].map(|()| questions.recv_timeout(WATCHDOG).expect("asked although the other has not answered"));
        both_asked();
        other.send(()).unwrap();
        one.send(()).unwrap();
        both_asked();
        other.send(()).unwrap();
        drop(one);
        let (every, some) = asker.join().unwrap();
        let names = |cards: &[NodeCard]| cards.iter().map(|card| (card.ordinal, card.uuid.clone())).collect::<Vec<_>>();
        assert_eq!(names(&every.unwrap()), [(0, "GPU-a".to_owned()), (1, "GPU-b".to_owned())], "in the order of the daemons");
        assert_eq!(names(&some.unwrap()), [(0, "GPU-b".to_owned())]);
    }

    #[test]
    fn who_is_missing_is_named_and_the_others_have_their_cards() {
        let (node, _questions, [one, other]) = two_daemons();
        other.send(()).unwrap();
        drop(one);
        let missing = node.every_card().unwrap_err();
        assert!(missing.to_string().contains("GPU-a: it is down"), "{missing}");
        assert_eq!(missing.cards.iter().map(|card| card.uuid.as_str()).collect::<Vec<_>>(), ["GPU-b"]);
    }

    #[test]
    fn a_group_is_made_while_the_daemon_of_another_card_does_not_answer() {
        let (node, _questions, [_one, other]) = two_daemons();
        other.send(()).unwrap();
        let (made, result) = channel();
        let group = Group { devices: vec!["GPU-b".into()], ..Group::default() };
        std::thread::spawn(move || made.send(node.create(&group)));
        assert_eq!(result.recv_timeout(WATCHDOG).expect("it does not wait for the other"), Ok("GPU-b".into()));
    }
}
