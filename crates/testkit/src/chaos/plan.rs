//! The blows of a round, their victims and their times: a pure function of the scenario and the
//! seed.

use fastrand::Rng;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A process of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Client,
    Daemon,
    Server,
    Keeper,
    Executor,
    Standby,
}

impl Role {
    pub const ALL: [Self; 6] = [Self::Client, Self::Daemon, Self::Server, Self::Keeper, Self::Executor, Self::Standby];
    /// The processes of the service.
    pub const SERVICE: [Self; 5] = [Self::Daemon, Self::Server, Self::Keeper, Self::Executor, Self::Standby];

    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Daemon => "daemon",
            Self::Server => "server",
            Self::Keeper => "keeper",
            Self::Executor => "executor",
            Self::Standby => "standby",
        }
    }
}

/// What a round is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Two are killed, 0 to 10 ms apart, in either order.
    Pair(Role, Role),
    /// One is killed.
    Kill(Role),
    /// One is stopped, for longer than a heartbeat or shorter.
    Stop(Role),
    /// The daemon is killed and started again, and killed and started again.
    DaemonAgain,
    /// The whole service is killed at once.
    AllFive,
    /// A client is killed 0 to 10 ms after its start, then `quit`.
    ClientThenQuit,
    /// A client is killed while its welcome is under way.
    Welcome,
    /// The successor is killed within 100 ms.
    TwoTakeovers,
    /// `quit` in the middle of a takeover.
    QuitInTakeover,
    /// The daemon is killed and started again in the middle of a takeover.
    DaemonInTakeover,
    /// Everybody is stopped for longer than a heartbeat and goes on, as when a virtual machine or a
    /// container is paused.
    Freeze,
}

impl Scenario {
    /// Each once.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (at, one) in Role::ALL.into_iter().enumerate() {
            all.extend(Role::ALL[at + 1..].iter().map(|other| Self::Pair(one, *other)));
        }
        all.extend(Role::ALL.map(Self::Kill));
        all.extend(Role::ALL.map(Self::Stop));
        all.extend([Self::DaemonAgain, Self::AllFive, Self::ClientThenQuit, Self::Welcome, Self::TwoTakeovers]);
        all.extend([Self::QuitInTakeover, Self::DaemonInTakeover, Self::Freeze]);
        all
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair(one, other) => write!(f, "{}+{}", one.name(), other.name()),
            Self::Kill(role) => write!(f, "kill:{}", role.name()),
            Self::Stop(role) => write!(f, "stop:{}", role.name()),
            Self::DaemonAgain => f.write_str("daemon-again"),
            Self::AllFive => f.write_str("all-five"),
            Self::ClientThenQuit => f.write_str("client-then-quit"),
            Self::Welcome => f.write_str("welcome"),
            Self::TwoTakeovers => f.write_str("two-takeovers"),
            Self::QuitInTakeover => f.write_str("quit-in-takeover"),
            Self::DaemonInTakeover => f.write_str("daemon-in-takeover"),
            Self::Freeze => f.write_str("freeze"),
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    /// The names of a pair come in any order.
    fn from_str(text: &str) -> Result<Self, String> {
        let turned = text.split_once('+').map(|(one, other)| format!("{other}+{one}"));
        let all = Self::all();
        let names = |wanted: &str| all.iter().find(|scenario| scenario.to_string() == wanted).copied();
        names(text).or_else(|| names(&turned?)).ok_or_else(|| {
            let known: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("there is no \"{text}\": name one of {}", known.join(", "))
        })
    }
}

/// What a client of a round is doing when the first blow falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Launches, copies, waits.
    Working,
    /// Waits for one long kernel after the other.
    Waiting,
    /// Has memory and nothing to do.
    Idle,
    /// Starts while blows fall.
    Starting,
    /// Waits behind another user's server.
    Queueing,
    /// Starts when the last blow has fallen.
    Newcomer,
}

/// The state of the round when the first blow falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Clients work, and the service is complete.
    Settled,
    /// The service is starting: the first clients were started so long ago.
    Arriving(Duration),
    /// One user's server replaces another's: the first user's last client ended so long ago. Only
    /// with two users.
    Changing(Duration),
    /// No client but the victim. Either no server was started yet, or there is one whose last
    /// client has gone.
    Empty { server: bool },
}

/// The target of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A process of the service.
    Service(Role),
    /// The client that is the round's victim.
    Victim,
    /// All processes of the service and all clients.
    Everybody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The victim starts, where it is one that starts.
    StartVictim,
    Kill(Target),
    Stop(Target),
    Continue(Target),
    StartDaemon,
    /// A front end asks the stopped daemon something: it must not wait for ever.
    Ask,
    /// `quit`, with a time after which clients are not waited for.
    Quit {
        seconds: Option<u32>,
    },
}

/// When an act is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// So long after the script's begin.
    At(Duration),
    /// So long after the victim's hello is with the server.
    AfterHello(Duration),
    /// So long after another executor than the first one is at work.
    AfterSuccessor(Duration),
    /// So long after the act before.
    Next(Duration),
}

/// A round before it is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub scenario: Scenario,
    pub moment: Moment,
    pub two_users: bool,
    /// Which of the clients is [`Target::Victim`].
    pub victim: Option<Kind>,
    /// In order.
    pub script: Vec<(Due, Act)>,
    /// When clients start, so long after the script's begin.
    pub starts: Vec<Duration>,
}

/// From the script's begin to the first blow, so that clients can be in the middle of their start.
const LEAD: Duration = Duration::from_millis(12);
/// The heartbeat of rounds with stopped processes (`CUMUX_HEARTBEAT_MS`).
pub const HEARTBEAT: Duration = Duration::from_millis(500);

fn kill(role: Role) -> Act {
    Act::Kill(target(role))
}

fn target(role: Role) -> Target {
    if role == Role::Client { Target::Victim } else { Target::Service(role) }
}

impl Plan {
    /// The round of this seed.
    pub fn new(scenario: Scenario, seed: u64, two_users_can_be: bool) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let (two_users, moment) = setting(rng, scenario, two_users_can_be);
        let (victim, script) = script(rng, scenario, two_users, moment);
        let starting = if scenario == Scenario::ClientThenQuit || matches!(moment, Moment::Empty { .. }) { 0 } else { rng.usize(1..=3) };
        // From long enough before the first blow that they are served, until well after the last.
        let mut starts: Vec<Duration> = (0..starting).map(|_| micros(rng, 30_000)).collect();
        starts.sort();
        Self { seed, scenario, moment, two_users, victim, script, starts }
    }

    /// The variable that sets the heartbeat, for all processes of a round that stops some.
    pub fn heartbeat(&self) -> Option<(&'static str, String)> {
        let stops = self.script.iter().any(|(_, act)| matches!(act, Act::Stop(_)));
        stops.then(|| ("CUMUX_HEARTBEAT_MS", HEARTBEAT.as_millis().to_string()))
    }
}

/// Evenly from nothing to `most` microseconds.
fn micros(rng: &mut Rng, most: u64) -> Duration {
    Duration::from_micros(rng.u64(0..=most))
}

/// 0 to 10 ms, a third of them within the first.
fn gap(rng: &mut Rng) -> Duration {
    if rng.u8(0..3) == 0 { micros(rng, 1_000) } else { micros(rng, 10_000) }
}

/// Chooses the clients and the moment.
fn setting(rng: &mut Rng, scenario: Scenario, two_users_can_be: bool) -> (bool, Moment) {
    let two_users = two_users_can_be && rng.u8(0..2) == 0;
    let draw = rng.u8(0..10);
    let (arriving, changing) = (micros(rng, 60_000), micros(rng, 60_000));
    let moment = match scenario {
        // These need clients whose executor can be lost.
        Scenario::TwoTakeovers | Scenario::QuitInTakeover | Scenario::DaemonInTakeover => Moment::Settled,
        // Any other client that comes or goes would hide a wrong count.
        Scenario::ClientThenQuit | Scenario::Welcome if draw < 6 => Moment::Empty { server: draw < 3 },
        Scenario::ClientThenQuit | Scenario::Welcome => Moment::Settled,
        _ => match draw {
            0 | 1 => Moment::Arriving(arriving),
            2 | 3 if two_users => Moment::Changing(changing),
            _ => Moment::Settled,
        },
    };
    (two_users && !matches!(moment, Moment::Empty { .. }), moment)
}

/// Chooses the victim, where a client is one.
fn victim(rng: &mut Rng, two_users: bool, moment: Moment) -> Kind {
    let mut kinds = match moment {
        Moment::Changing(_) | Moment::Empty { .. } => vec![Kind::Starting],
        Moment::Settled | Moment::Arriving(_) => vec![Kind::Working, Kind::Waiting, Kind::Idle, Kind::Starting],
    };
    if two_users {
        kinds.push(Kind::Queueing);
    }
    kinds[rng.usize(0..kinds.len())]
}

/// The victim and the blows.
fn script(rng: &mut Rng, scenario: Scenario, two_users: bool, moment: Moment) -> (Option<Kind>, Vec<(Due, Act)>) {
    let victim = victim(rng, two_users, moment);
    let start_of_victim = Due::At(LEAD - micros(rng, 10_000));
    let at = |later: Duration| Due::At(LEAD + later);
    let restart = |rng: &mut Rng| (Due::Next(micros(rng, 60_000)), Act::StartDaemon);
    match scenario {
        Scenario::Pair(one, other) => {
            let mut pair = [one, other];
            rng.shuffle(&mut pair);
            let mut acts = vec![(at(Duration::ZERO), kill(pair[0])), (at(gap(rng)), kill(pair[1]))];
            if pair.contains(&Role::Client) && victim == Kind::Starting {
                acts.insert(0, (start_of_victim, Act::StartVictim));
            }
            if pair.contains(&Role::Daemon) {
                acts.push(restart(rng));
            }
            (pair.contains(&Role::Client).then_some(victim), acts)
        }
        Scenario::Kill(role) => {
            let mut acts = vec![(at(Duration::ZERO), kill(role))];
            if role == Role::Client && victim == Kind::Starting {
                acts.insert(0, (start_of_victim, Act::StartVictim));
            }
            if role == Role::Daemon {
                acts.push(restart(rng));
            }
            ((role == Role::Client).then_some(victim), acts)
        }
        Scenario::Stop(role) => {
            let mut acts = stop(rng, role);
            if role == Role::Client && victim == Kind::Starting {
                acts.insert(0, (start_of_victim, Act::StartVictim));
            }
            ((role == Role::Client).then_some(victim), acts)
        }
        Scenario::DaemonAgain => {
            let again = (Due::Next(micros(rng, 100_000)), kill(Role::Daemon));
            (None, vec![(at(Duration::ZERO), kill(Role::Daemon)), restart(rng), again, restart(rng)])
        }
        Scenario::AllFive => {
            let mut five = Role::SERVICE;
            rng.shuffle(&mut five);
            let mut times: Vec<Duration> = five.iter().map(|_| gap(rng)).collect();
            times.sort();
            let mut acts: Vec<(Due, Act)> = five.iter().zip(times).map(|(role, later)| (at(later), kill(*role))).collect();
            acts.push(restart(rng));
            (None, acts)
        }
        Scenario::ClientThenQuit => {
            let start = (at(Duration::ZERO), Act::StartVictim);
            let quit = (Due::Next(gap(rng)), Act::Quit { seconds: None });
            (Some(Kind::Starting), vec![start, (Due::Next(gap(rng)), Act::Kill(Target::Victim)), quit])
        }
        Scenario::Welcome => {
            let blow = (Due::AfterHello(micros(rng, 1_500)), Act::Kill(Target::Victim));
            (Some(Kind::Starting), vec![(at(Duration::ZERO), Act::StartVictim), blow])
        }
        Scenario::TwoTakeovers => {
            let second = (Due::AfterSuccessor(micros(rng, 100_000)), kill(Role::Executor));
            (None, vec![(at(Duration::ZERO), kill(Role::Executor)), second])
        }
        Scenario::QuitInTakeover => {
            let seconds = (rng.u8(0..3) == 0).then_some(1);
            (None, vec![(at(Duration::ZERO), kill(Role::Executor)), (at(gap(rng)), Act::Quit { seconds })])
        }
        Scenario::DaemonInTakeover => {
            let again = (Due::Next(gap(rng)), Act::StartDaemon);
            (None, vec![(at(Duration::ZERO), kill(Role::Executor)), (at(gap(rng)), kill(Role::Daemon)), again])
        }
        Scenario::Freeze => {
            let most = u64::try_from(HEARTBEAT.as_micros()).unwrap_or(0);
            let thaw = (Due::Next(HEARTBEAT + micros(rng, most)), Act::Continue(Target::Everybody));
            (None, vec![(at(Duration::ZERO), Act::Stop(Target::Everybody)), thaw])
        }
    }
}

/// Stops one process. A process of the service that does not continue is replaced by the others,
/// except for the daemon.
fn stop(rng: &mut Rng, role: Role) -> Vec<(Due, Act)> {
    let first = (Due::At(LEAD), Act::Stop(target(role)));
    let short = rng.u8(0..4) == 0;
    let killed = rng.bool();
    let pause = if short { micros(rng, 150_000) } else { HEARTBEAT * 2 + micros(rng, 400_000) };
    let goes_on = (Due::Next(pause), Act::Continue(target(role)));
    match role {
        Role::Daemon if short => vec![first, goes_on],
        Role::Daemon if killed => vec![first, (Due::Next(pause), Act::Ask), (Due::Next(Duration::ZERO), kill(role)), (Due::Next(gap(rng)), Act::StartDaemon)],
        Role::Daemon => vec![first, (Due::Next(pause), Act::Ask), (Due::Next(Duration::ZERO), goes_on.1)],
        Role::Client if killed => vec![first, (Due::Next(pause), kill(role))],
        Role::Client => vec![first, goes_on],
        _ if short => vec![first, goes_on],
        _ => vec![first],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_and_everybody_alone_is_in_the_matrix_once() {
        let all = Scenario::all();
        assert_eq!(all.iter().filter(|s| matches!(s, Scenario::Pair(..))).count(), 15);
        assert_eq!(all.iter().filter(|s| matches!(s, Scenario::Kill(_))).count(), 6);
        assert_eq!(all.iter().filter(|s| matches!(s, Scenario::Stop(_))).count(), 6);
        let names: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
        for scenario in all {
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
        }
        assert_eq!("executor+keeper".parse(), Ok(Scenario::Pair(Role::Keeper, Role::Executor)));
        assert!("keeper+keeper".parse::<Scenario>().is_err_and(|why| why.contains("two-takeovers")));
    }

    #[test]
    fn the_seed_alone_decides() {
        for scenario in Scenario::all() {
            let plans: Vec<Plan> = (0..64).map(|seed| Plan::new(scenario, seed, true)).collect();
            let again: Vec<Plan> = (0..64).map(|seed| Plan::new(scenario, seed, true)).collect();
            assert_eq!(plans, again);
            let differs = |plan: &Plan| (&plan.script, &plan.starts, plan.moment) != (&plans[0].script, &plans[0].starts, plans[0].moment);
            assert!(plans.iter().any(differs), "{scenario}: seeds give different plans");
        }
    }

    #[test]
    fn a_killed_daemon_is_started_again_and_times_do_not_go_back() {
        for scenario in Scenario::all() {
            for seed in 0..200 {
                let plan = Plan::new(scenario, seed, seed % 2 == 0);
                let count = |wanted: Act| plan.script.iter().filter(|(_, act)| *act == wanted).count();
                assert_eq!(count(kill(Role::Daemon)), count(Act::StartDaemon), "{plan:?}");
                let times: Vec<Duration> = plan.script.iter().filter_map(|(due, _)| if let Due::At(time) = due { Some(*time) } else { None }).collect();
                assert!(times.is_sorted() && plan.starts.is_sorted(), "{plan:?}");
                assert!(plan.two_users || !matches!(plan.moment, Moment::Changing(_)), "{plan:?}");
                assert!(plan.two_users || plan.victim != Some(Kind::Queueing), "{plan:?}");
                if let Scenario::Pair(one, other) = scenario {
                    let mut struck: Vec<Act> = plan.script.iter().map(|(_, act)| *act).filter(|act| matches!(act, Act::Kill(_))).collect();
                    struck.retain(|act| *act == kill(one) || *act == kill(other));
                    assert_eq!(struck.len(), 2, "{plan:?}");
                }
            }
        }
    }
}
