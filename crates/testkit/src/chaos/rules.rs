//! Which losses may cost which clients their work: the table, with reasons. In any other case a
//! client must go on with right results.
//!
//! The table is for the software GPU, whose marks show which parts of a kernel have run. On a real
//! card, the loss of an executor alone may cost every client that had work with it.

use crate::chaos::plan::{Kind, Role};
use serde::Serialize;

/// What a round destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The process was killed, or was stopped for so long that it counted as dead.
    Process(Role),
    /// `quit`.
    Quit,
    /// `quit` with a time that ran out.
    QuitNow,
}

/// How a client fared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It printed the results of a run alone.
    WentOn,
    /// It had been served, and got an error.
    Told(String),
    /// It was never served, and got the reason.
    TurnedAway(String),
    /// The harness killed it.
    Killed,
    /// It did what is never allowed: wrong results, a crash, a wait without end.
    Wrong(String),
}

/// What a row of the table allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    Told,
    TurnedAway,
    Either,
}

struct Rule {
    /// All of these were lost.
    losses: &'static [Loss],
    who: &'static [Kind],
    may: May,
    why: &'static str,
}

const DAEMON: Loss = Loss::Process(Role::Daemon);
const SERVER: Loss = Loss::Process(Role::Server);
const KEEPER: Loss = Loss::Process(Role::Keeper);
const EXECUTOR: Loss = Loss::Process(Role::Executor);

/// Clients that may have a session.
const SERVED: &[Kind] = &[Kind::Working, Kind::Waiting, Kind::Idle, Kind::Starting];
/// Clients whose hello may be with the daemon.
const COMING: &[Kind] = &[Kind::Starting, Kind::Queueing];

const RULES: &[Rule] = &[
    Rule {
        losses: &[KEEPER, EXECUTOR],
        who: SERVED,
        may: May::Told,
        why: "device memory is mapped in the executor and kept by the keeper, and nobody else has its descriptors",
    },
    Rule {
        losses: &[KEEPER, SERVER],
        who: SERVED,
        may: May::Told,
        why: "who is served is known to the server and kept by the keeper: the next server cannot find the clients of this one",
    },
    Rule {
        losses: &[DAEMON],
        who: COMING,
        may: May::TurnedAway,
        why: "a hello that the daemon has not handed over is lost with it, and is said again for 0.4 s only: nobody else would start a daemon",
    },
    Rule { losses: &[Loss::Quit], who: COMING, may: May::TurnedAway, why: "after `quit` the daemon serves those whom it serves, and nobody else" },
    Rule { losses: &[Loss::QuitNow], who: SERVED, may: May::Either, why: "`quit -t` says for how long clients are waited for" },
];

/// Why a client must not end like this; `None` if it may.
pub fn complaint(losses: &[Loss], kind: Kind, fate: &Fate) -> Option<String> {
    let allowed = |wanted: May| {
        let fits = |rule: &&Rule| rule.losses.iter().all(|loss| losses.contains(loss)) && rule.who.contains(&kind);
        RULES.iter().filter(fits).any(|rule| rule.may == wanted || rule.may == May::Either)
    };
    match fate {
        Fate::WentOn | Fate::Killed => None,
        Fate::Told(_) if allowed(May::Told) => None,
        Fate::TurnedAway(_) if allowed(May::TurnedAway) => None,
        Fate::Told(error) => Some(format!("was told {error} though nothing that it needs was lost")),
        Fate::TurnedAway(error) => Some(format!("was turned away with {error} though the service was there")),
        Fate::Wrong(how) => Some(how.clone()),
    }
}

/// The table for people.
pub fn table() -> String {
    let name = |loss: &Loss| match loss {
        Loss::Process(role) => role.name(),
        Loss::Quit => "quit",
        Loss::QuitNow => "quit -t",
    };
    let row = |rule: &Rule| {
        let lost: Vec<&str> = rule.losses.iter().map(name).collect();
        let who: Vec<String> = rule.who.iter().map(|kind| format!("{kind:?}").to_lowercase()).collect();
        let may = match rule.may {
            May::Told => "be told",
            May::TurnedAway => "be turned away",
            May::Either => "be told or turned away",
        };
        format!("  {:<17} {} may {may}: {}\n", lost.join("+"), who.join(", "), rule.why)
    };
    RULES.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_the_table_must_go_on() {
        let told = Fate::Told("cudaErrorMpsRpcFailure".into());
        let away = Fate::TurnedAway("cudaErrorMpsConnectionFailed".into());
        for role in Role::ALL {
            let losses = [Loss::Process(role)];
            assert!(complaint(&losses, Kind::Working, &told).is_some(), "{role:?} alone costs nobody anything");
            assert_eq!(complaint(&losses, Kind::Starting, &away).is_none(), role == Role::Daemon);
            assert!(complaint(&losses, Kind::Newcomer, &away).is_some());
        }
        assert_eq!(complaint(&[EXECUTOR, DAEMON, KEEPER], Kind::Idle, &told), None);
        assert!(complaint(&[EXECUTOR, KEEPER], Kind::Idle, &away).is_some());
        assert!(complaint(&[EXECUTOR, KEEPER, Loss::QuitNow], Kind::Working, &Fate::Wrong("digest".into())).is_some());
        assert_eq!(table().lines().count(), RULES.len());
    }
}
