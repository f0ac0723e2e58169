//! The results of a run of many rounds, for people and as JSON.

use crate::chaos::round::Played;
use crate::chaos::rules::Fate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Figures of a run.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Seed of the first round.
    pub seed: u64,
    /// Rounds that were played.
    pub rounds: usize,
    /// Rounds with complaints.
    pub failed: usize,
    /// Duration of the run in seconds.
    pub seconds: f64,
    /// The rounds of each scenario, by its name.
    pub by_scenario: BTreeMap<String, Row>,
    /// All rounds.
    pub all: Row,
    /// The rounds with complaints.
    pub failures: Vec<Failure>,
}

/// Figures of the rounds of one scenario, or of all.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Row {
    /// Rounds that were played.
    pub rounds: usize,
    /// Rounds with complaints.
    pub failed: usize,
    /// Clients that printed what they print alone.
    pub went_on: usize,
    /// Clients that had been served and got an error.
    pub told: usize,
    /// Clients that were never served and got the reason.
    pub turned_away: usize,
    /// Clients that the harness killed.
    pub killed: usize,
    /// The longest wait of a client in milliseconds.
    pub longest_wait_ms: f64,
    /// Median time from a newcomer's first call to its answer, in milliseconds.
    pub newcomer_median_ms: f64,
    /// The longest such time.
    pub newcomer_most_ms: f64,
    /// The longest `quit` in milliseconds.
    pub quit_most_ms: f64,
    #[serde(skip)]
    newcomers: Vec<Duration>,
}

/// A round with complaints.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: String,
    /// The round's seed.
    pub seed: u64,
    /// What was done, with times.
    pub deeds: Vec<String>,
    /// What was not as promised.
    pub complaints: Vec<String>,
    /// The node's folder, which is kept.
    pub folder: String,
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

impl Row {
    fn add(&mut self, played: &Played) {
        self.rounds += 1;
        self.failed += usize::from(!played.complaints.is_empty());
        for client in &played.seen {
            match client.fate {
                Fate::WentOn => self.went_on += 1,
                Fate::Told(_) => self.told += 1,
                Fate::TurnedAway(_) => self.turned_away += 1,
                Fate::Killed => self.killed += 1,
                Fate::Wrong(_) => {}
            }
        }
        self.longest_wait_ms = self.longest_wait_ms.max(ms(played.longest));
        self.quit_most_ms = self.quit_most_ms.max(played.quit.map_or(0.0, ms));
        self.newcomers.extend(&played.newcomers);
    }

    fn finish(&mut self) {
        self.newcomers.sort();
        if let (Some(median), Some(most)) = (self.newcomers.get(self.newcomers.len() / 2), self.newcomers.last()) {
            (self.newcomer_median_ms, self.newcomer_most_ms) = (ms(*median), ms(*most));
        }
    }
}

impl Figures {
    pub(crate) fn add(&mut self, played: &Played) {
        self.rounds += 1;
        self.all.add(played);
        self.by_scenario.entry(played.plan.scenario.to_string()).or_default().add(played);
        if !played.complaints.is_empty() {
            self.failed += 1;
            self.failures.push(Failure {
                scenario: played.plan.scenario.to_string(),
                seed: played.plan.seed,
                deeds: played.deeds.clone(),
                complaints: played.complaints.clone(),
                folder: played.folder.as_ref().map(|folder| folder.display().to_string()).unwrap_or_default(),
            });
        }
    }

    pub(crate) fn finish(&mut self, took: Duration) {
        self.seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
        self.by_scenario.values_mut().for_each(Row::finish);
        self.all.finish();
        self.failures.sort_by_key(|failure| failure.seed);
    }

    /// The figures as a table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<20}{:>7}{:>8}{:>9}{:>6}{:>8}{:>8}{:>14}{:>18}{:>15}{:>12}\n",
            "scenario", "rounds", "failed", "went on", "told", "turned", "killed", "longest wait", "newcomer median", "newcomer most", "quit most"
        );
        let all = [("all".to_owned(), &self.all)];
        for (name, row) in self.by_scenario.iter().map(|(name, row)| (name.clone(), row)).chain(all) {
            let Row { rounds, failed, went_on, told, turned_away, killed, .. } = row;
            text.push_str(&format!("{name:<20}{rounds:>7}{failed:>8}{went_on:>9}{told:>6}{turned_away:>8}{killed:>8}"));
            let (median, most) = (row.newcomer_median_ms, row.newcomer_most_ms);
            text.push_str(&format!("{:>11.1} ms{median:>15.1} ms{most:>12.1} ms{:>9.1} ms\n", row.longest_wait_ms, row.quit_most_ms));
        }
        text
    }
}
