//! Which warps are left waiting while all others go on, after a fault that comes again and again.
//! Pure.
//!
//! ```text
//!       some fault again           only they wait, and the time is over
//! All ──────────────────▶ AllBut ───────────────────────────────────────▶ All
//!                           │  ▲
//!                           └──┘ others have stopped, too: the next choice
//! ```

use super::warps::{FaultPlace, StillWarps, WarpRecords};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long warps are left waiting, but for the first time. As long as they wait, no other process
/// gets the card.
const HELD_FOR: Duration = Duration::from_millis(40);

/// By what the warps are found that fault again and again. If another one faults while these are
/// held, the next choice is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Choice {
    /// They wait in a function in which the dump has seen an exception.
    #[default]
    Place,
    /// They have not moved since the first stop. Nor may others have that had no turn, and one warp
    /// of each multiprocessor records nothing.
    Unmoved,
    /// They are on one of the multiprocessors that are still suspected: half of these are held at a
    /// time, until one is left.
    Multiprocessor,
}

/// Whether all warps are let go, or all but those that fault again and again.
#[derive(Debug)]
enum Round {
    All,
    AllBut { held: StillWarps, until: Instant },
}

/// Who is left waiting, and what is known of the warps that fault again and again.
#[derive(Debug)]
pub(crate) struct Rounds {
    round: Round,
    choice: Choice,
    /// The multiprocessors that are suspected, and those of them that are held.
    suspected: BTreeSet<u64>,
    halved: BTreeSet<u64>,
    /// How long they are held next.
    held_for: Duration,
    nobody: StillWarps,
}

impl Rounds {
    /// All warps go at first. Those that fault again are held so long the first time.
    pub(crate) fn new(held_for: Duration) -> Self {
        Self { round: Round::All, choice: Choice::default(), suspected: BTreeSet::new(), halved: BTreeSet::new(), held_for, nobody: StillWarps::default() }
    }

    /// The warps that are left waiting.
    pub(crate) fn held(&self) -> &StillWarps {
        if let Round::AllBut { held, .. } = &self.round { held } else { &self.nobody }
    }

    /// Decides who goes on now, by the area as it was at the first stop and as it is.
    pub(crate) fn go_on(&mut self, records: WarpRecords, first: &[u8], area: &[u8], places: &[FaultPlace]) {
        if let Round::AllBut { held, until } = &self.round {
            let all_others_go_on = records.count_others(area, held) == 0;
            match (self.choice, all_others_go_on) {
                (Choice::Multiprocessor, _) => {
                    let halved = std::mem::take(&mut self.halved);
                    self.suspected = if all_others_go_on { halved } else { &self.suspected - &halved };
                }
                (_, true) => {}
                // One of the others faults as well.
                (Choice::Place, false) => self.choice = Choice::Unmoved,
                (Choice::Unmoved, false) => self.choice = Choice::Multiprocessor,
            }
            let is_found = self.choice != Choice::Multiprocessor || self.suspected.len() == 1;
            if all_others_go_on && is_found {
                self.halved.clone_from(&self.suspected);
                if Instant::now() >= *until {
                    self.round = Round::All;
                }
                return;
            }
        }
        let mut held = self.choose(records, first, area, places);
        for next in [Choice::Unmoved, Choice::Multiprocessor] {
            if held.count() == 0 {
                self.choice = next;
                held = self.choose(records, first, area, places);
            }
        }
        self.round = if held.count() > 0 { Round::AllBut { held, until: Instant::now() + self.held_for } } else { Round::All };
        self.held_for = HELD_FOR;
    }

    fn choose(&mut self, records: WarpRecords, first: &[u8], area: &[u8], places: &[FaultPlace]) -> StillWarps {
        match self.choice {
            Choice::Place => records.find_faulting(area, places),
            Choice::Unmoved => records.find_unmoved(first, area),
            Choice::Multiprocessor => {
                let there = records.multiprocessors(area);
                self.suspected = &self.suspected & &there;
                if self.suspected.is_empty() {
                    self.suspected = there;
                }
                self.halved = self.suspected.iter().copied().take(self.suspected.len().div_ceil(2)).collect();
                records.find_on(area, &self.halved)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where others stop although some are held, one of them faults, too: the next choice is taken.
    #[test]
    fn who_is_held_is_chosen_anew_if_others_stop() {
        let records = WarpRecords::for_tests();
        let (first, at) = WarpRecords::area_for_tests(&[0, 3, 4, 9]);
        let mut rounds = Rounds::new(Duration::from_secs(3600));
        let held = |rounds: &Rounds| rounds.held().count();
        // The dump names the function where the third record's warp waits. Nobody has moved.
        let places = [FaultPlace { sm: 7, code: Some(at(&first, 3)..at(&first, 3) + 1) }];
        rounds.go_on(records, &first, &first, &places);
        assert_eq!((rounds.choice, held(&rounds)), (Choice::Place, 1));
        // It alone waits: it is held on, until its time is over.
        let (alone, _) = WarpRecords::area_for_tests(&[3]);
        rounds.go_on(records, &first, &alone, &places);
        assert_eq!((rounds.choice, held(&rounds)), (Choice::Place, 1));
        // Another one has stopped, too.
        rounds.go_on(records, &first, &first, &places);
        assert_eq!((rounds.choice, held(&rounds)), (Choice::Unmoved, 3), "the last record is cut");
        rounds.round = Round::AllBut { held: StillWarps::default(), until: Instant::now() };
        let (nobody, _) = WarpRecords::area_for_tests(&[]);
        rounds.go_on(records, &first, &nobody, &places);
        assert_eq!((rounds.choice, held(&rounds)), (Choice::Unmoved, 0), "all go, once");
        let mut rounds = Rounds::new(Duration::ZERO);
        rounds.go_on(records, &first, &alone, &[]);
        assert_eq!((rounds.choice, held(&rounds), rounds.held_for), (Choice::Unmoved, 1, HELD_FOR));
    }

    /// Where nothing tells who faults, the multiprocessor is found by halves.
    #[test]
    fn the_multiprocessor_is_found_by_halves() {
        let records = WarpRecords::for_tests();
        let sms: Vec<usize> = (0..9).collect();
        for culprit in 0..9 {
            let stopped = WarpRecords::area_on_multiprocessors(&sms);
            let mut rounds = Rounds::new(Duration::from_secs(3600));
            let mut looks = 0;
            rounds.go_on(records, &[], &stopped, &[]);
            loop {
                looks += 1;
                assert_eq!(rounds.choice, Choice::Multiprocessor);
                let Round::AllBut { held, .. } = &rounds.round else { panic!("the culprit was let go after {looks} looks") };
                let is_held = *held == records.find_on(&stopped, &rounds.halved) && rounds.halved.contains(&(culprit as u64));
                if is_held && rounds.suspected.len() == 1 {
                    break;
                }
                // While it is held, nobody else stops.
                let waiting: Vec<usize> = sms.iter().copied().filter(|sm| !is_held || rounds.halved.contains(&(*sm as u64))).collect();
                rounds.go_on(records, &[], &WarpRecords::area_on_multiprocessors(&waiting), &[]);
            }
            assert!(looks <= 6, "{looks} looks for {culprit}");
        }
    }
}
