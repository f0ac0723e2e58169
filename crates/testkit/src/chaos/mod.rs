//! The crash matrix: processes of the service and clients are killed and stopped in every
//! combination, in rounds that a seed chooses.
//!
//! Promised, and checked after each round:
//!
//! - A client prints what it prints alone, or ends with a CUDA error. Where nothing that it needs
//!   was lost it must succeed; which losses may cost which clients is the table in [`rules`].
//! - No client waits for an answer or an error for more than 5 s, and a newcomer is served within
//!   5 s.
//! - When all clients have ended, no process of the service holds a file or device memory of
//!   theirs.
//! - `quit` returns within 5 s of the last client's end, and leaves no process, no socket and no
//!   file but the lock.
//!
//! The seconds are fair ones ([`clock`]): time in which the machine did not run does not count.
//! Where processes are stopped, a heartbeat of 500 ms (`CUMUX_HEARTBEAT_MS`) is added. Each round
//! has a node of its own, and several are played at a time. The scenario and all choices in it
//! follow from the round's seed ([`plan`]). How the system interleaves the processes does not, so a
//! failing seed fails again often and not always.
//!
//! Parts: [`plan`] chooses, [`cast`] has the clients, [`round`] plays and judges by [`rules`],
//! [`figures`] counts.

mod cast;
mod clock;
mod figures;
mod plan;
mod round;
mod rules;

pub use figures::{Failure, Figures, Row};
pub use plan::Scenario;
pub use rules::table as rules;

use clock::{Clock, Instant};
use plan::Plan;
use round::Played;
use rules::Fate;
use std::fs;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What a run consists of.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many rounds to play.
    pub rounds: usize,
    /// Seed of the first round; each next round has the next seed.
    pub seed: u64,
    /// If set, all rounds are of this scenario. Otherwise each scenario comes once before one
    /// repeats.
    pub only: Option<Scenario>,
    /// Gives all rounds the same seed, and so the same plan. Their timing still differs.
    pub same: bool,
    /// Rounds at the same time.
    pub lanes: usize,
    /// Failed rounds after which no further round begins.
    pub most_failures: usize,
}

impl Options {
    /// A run of so many rounds, with as many at a time as the machine bears.
    #[must_use]
    pub fn rounds(rounds: usize, seed: u64) -> Self {
        // A round spends most of its time waiting.
        let lanes = 2 * thread::available_parallelism().map_or(2, usize::from);
        Self { rounds, seed, only: None, same: false, lanes, most_failures: 10 }
    }
}

/// Plays the rounds and prints a line for each; for a failed one all evidence.
///
/// # Panics
/// The clients do not even succeed on a quiet node.
#[must_use]
pub fn run(options: &Options) -> Figures {
    let (begun, clock, alone) = (Instant::now(), Clock::start(), cast::alone());
    let two_users = rustix::process::geteuid().is_root();
    if !two_users {
        println!("NOTE: all clients are of one user, since two users need root: nobody queues behind another user's server");
    }
    let scenarios = Scenario::all();
    let work = Mutex::new((0..options.rounds, Figures { seed: options.seed, ..Figures::default() }));
    let next = || {
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.1.failed >= options.most_failures { None } else { work.0.next() }
    };
    thread::scope(|scope| {
        for _ in 0..options.lanes.clamp(1, options.rounds.max(1)) {
            scope.spawn(|| {
                while let Some(round) = next() {
                    let seed = options.seed.wrapping_add(if options.same { 0 } else { round as u64 });
                    // The remainder is smaller than the list.
                    let scenario = options.only.unwrap_or_else(|| scenarios[usize::try_from(seed % scenarios.len() as u64).unwrap_or(0)]);
                    let played = round::play(Plan::new(scenario, seed, two_users), &clock, &alone);
                    let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
                    work.1.add(&played);
                    // A closed standard output does not end the run.
                    let _ = writeln!(std::io::stdout(), "{:>4} {}", work.1.rounds, line(&played));
                    if !played.complaints.is_empty() {
                        let report = report(&played);
                        let _ = writeln!(std::io::stdout(), "{report}");
                        let _ = played.folder.as_ref().map(|folder| fs::write(folder.join("round.txt"), &report));
                    }
                }
            });
        }
    });
    let (_, mut figures) = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    figures.finish(begun.elapsed());
    figures
}

/// Seed, victims, times, outcome.
fn line(played: &Played) -> String {
    let Plan { seed, scenario, moment, two_users, .. } = &played.plan;
    let moment = match moment {
        plan::Moment::Settled => "settled".to_owned(),
        plan::Moment::Arriving(ago) => format!("{} ms after the first start", ago.as_millis()),
        plan::Moment::Changing(ago) => format!("{} ms after the first user's end", ago.as_millis()),
        plan::Moment::Empty { server: true } => "nobody else there".to_owned(),
        plan::Moment::Empty { server: false } => "nobody there before".to_owned(),
    };
    let count = |wanted: fn(&Fate) -> bool| played.seen.iter().filter(|client| wanted(&client.fate)).count();
    let (went_on, told) = (count(|fate| *fate == Fate::WentOn), count(|fate| matches!(fate, Fate::Told(_))));
    let (turned_away, killed) = (count(|fate| matches!(fate, Fate::TurnedAway(_))), count(|fate| *fate == Fate::Killed));
    let newcomer = played.newcomers.iter().max().map_or_else(String::new, |time| format!(", newcomers {} ms", time.as_millis()));
    format!(
        "seed {seed} {scenario}, {moment}, {}: {}: {went_on} went on, {told} told, {turned_away} turned away, {killed} killed; longest wait {} ms{newcomer}; {:.1} s: {}",
        if *two_users { "2 users" } else { "1 user" },
        played.deeds.join(", "),
        played.longest.as_millis(),
        played.took.as_secs_f64(),
        if played.complaints.is_empty() { "right" } else { "FAILED" }
    )
}

/// All evidence of a failed round.
fn report(played: &Played) -> String {
    let Plan { seed, scenario, .. } = &played.plan;
    let folder = played.folder.as_ref().map(|folder| folder.display().to_string()).unwrap_or_default();
    let mut text = format!("==== FAILED: {}\n", line(played));
    for complaint in &played.complaints {
        text.push_str(&format!("  - {complaint}\n"));
    }
    text.push_str(&format!("again: cargo xtask chaos --rounds 20 --same --seed {seed} --only {scenario}\nfolder: {folder}\nplan: {:?}\n", played.plan));
    for client in &played.seen {
        text.push_str(&format!("  {client:?}\n"));
    }
    text.push_str(&played.evidence);
    text
}
