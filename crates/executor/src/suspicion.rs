//! Whose work ends executors. What was under way at two deaths in a row, and got no further in
//! between, is its client's end and not everybody's.
//!
//! Each journal counts for two leads (the oldest piece of stream work that the device had, and the
//! request that was being carried out on a thread of its own) at how many deaths in a row it was
//! under way:
//!
//! - A client with a lead that got nowhere at two deaths is a suspect, also one whose lead was
//!   there at [`MANY`] deaths, however far it got. An executor that had served for less than
//!   [`FAIR`] gave nobody the time to get anywhere.
//! - Only deaths that nobody can explain count. An executor that let go of its sessions, or whose
//!   device a client broke that was told so, says nothing against the others.
//! - A single suspect whose lead got nowhere is ended: its client has an error, the others go on.
//! - Several suspects are tried one at a time while the others wait: the one on trial when the next
//!   executor ends is ended, the rest are not suspects any more. A trial is over when the leads are
//!   done, or when it has lasted well longer than the executor before had lived.
//!
//! The judgement is pure; what it is founded on is written before the work is given to the device
//! again, so that a death at any moment is counted once.

use cumux_ring::journal::Journal;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Deaths in a row at which a lead may be under way, even if it gets further each time.
const MANY: u64 = 4;
/// Whoever gets nowhere in so long could have.
const FAIR: Duration = Duration::from_millis(250);
/// Executors that a client's restoring may end.
const RESTORINGS: u64 = 3;
/// A trial lasts so much longer than twice the time of the executor before, and no longer than
/// [`LONGEST`].
const MARGIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// A trial that was interrupted by an end that is explained goes on as after one that had served so
/// long: how long the one before had served is not known any more.
const INTERRUPTED: Duration = Duration::from_secs(5);

/// Words of the journal. A lead has four: what it is, how far it had come, deaths without progress,
/// deaths.
const STREAM: usize = 0;
const REQUEST: usize = 4;
const ON_TRIAL: usize = 8;
const RESTORING: usize = 9;
/// Ring position after the request that is being carried out on another thread; 0 = none.
const BUSY: usize = 10;

/// How an executor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It let go of its sessions, or a client was told that it broke the device.
    Explained,
    /// Nobody knows why.
    Unexplained {
        /// How long it had served.
        after: Duration,
    },
}

/// What may have been a client's end: never 0.
pub type Lead = u64;

/// The lead that a piece of stream work is.
#[must_use]
pub fn of_token(token: u64) -> Lead {
    token.wrapping_add(1)
}

/// The lead that a request is, by the ring position after it. Positions and tokens are other
/// numbers.
#[must_use]
pub fn of_request(end: u64) -> Lead {
    end | 1 << 63
}

/// A request is being carried out on another thread, up to this ring position; 0: no more.
pub fn note_request(journal: &Journal, end: u64) {
    journal.set_case(BUSY, end);
}

/// The request that was being carried out when the executor ended.
#[must_use]
pub fn request_under_way(journal: &Journal) -> Option<Lead> {
    Some(journal.case(BUSY)).filter(|end| *end != 0).map(of_request)
}

/// One more executor begins to restore this client. Returns how many ended while they did, if they
/// are too many.
#[must_use]
pub fn begin_restoring(journal: &Journal) -> Option<u64> {
    let ended = journal.case(RESTORING);
    journal.set_case(RESTORING, ended + 1);
    (ended >= RESTORINGS).then_some(ended)
}

pub fn end_restoring(journal: &Journal) {
    journal.set_case(RESTORING, 0);
}

/// One lead over the deaths at which it was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    lead: Lead,
    /// Blocks of it that were done.
    progress: u64,
    /// Fair deaths since it got further.
    idle: u64,
    deaths: u64,
}

impl Count {
    fn read(journal: &Journal, at: usize) -> Self {
        Self { lead: journal.case(at), progress: journal.case(at + 1), idle: journal.case(at + 2), deaths: journal.case(at + 3) }
    }

    fn write(self, journal: &Journal, at: usize) {
        for (word, value) in [self.lead, self.progress, self.idle, self.deaths].into_iter().enumerate() {
            journal.set_case(at + word, value);
        }
    }

    /// After one more death. What was not under way at it has been begun by nobody since, or is
    /// over: it counts no further.
    fn after(self, seen: Option<(Lead, u64)>, fair: bool) -> Self {
        let Some((lead, progress)) = seen else { return self };
        let same = self.lead == lead && self.deaths > 0;
        let before = if same && self.progress == progress { self.idle } else { 0 };
        Self { lead, progress, idle: before + u64::from(fair || before == 0), deaths: if same { self.deaths + 1 } else { 1 } }
    }

    fn is_suspect(self) -> bool {
        self.deaths >= MANY || self.is_stuck()
    }

    fn is_stuck(self) -> bool {
        self.idle >= 2
    }
}

/// What speaks against one client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Case {
    counts: [Count; 2],
    on_trial: bool,
}

impl Case {
    /// Reads what earlier executors left, adds the end of the last one, and writes it down.
    /// `stream`: the oldest work that the device had and how far it had come.
    pub fn open(journal: &Journal, stream: Option<(Lead, u64)>, ended: Ended) -> Self {
        let request = request_under_way(journal).map(|lead| (lead, 0));
        let counts = [(STREAM, stream), (REQUEST, request)].map(|(at, seen)| {
            let before = Count::read(journal, at);
            let Ended::Unexplained { after } = ended else { return before };
            let count = before.after(seen, after >= FAIR);
            count.write(journal, at);
            count
        });
        note_request(journal, 0);
        let on_trial = journal.case(ON_TRIAL) != 0 && ended != Ended::Explained;
        journal.set_case(ON_TRIAL, 0);
        Self { counts, on_trial }
    }

    fn is_suspect(&self) -> bool {
        self.counts.iter().any(|count| count.is_suspect())
    }

    fn is_stuck(&self) -> bool {
        self.counts.iter().any(|count| count.is_stuck())
    }

    /// Deaths at which a lead was under way.
    #[must_use]
    pub fn deaths(&self) -> u64 {
        self.counts.iter().map(|count| count.deaths).max().unwrap_or(0)
    }

    /// What has to be over before the client is no suspect any more.
    #[must_use]
    pub fn leads(&self) -> Vec<Lead> {
        self.counts.iter().filter(|count| count.is_suspect()).map(|count| count.lead).collect()
    }
}

/// The client is on trial from now on.
pub fn begin_trial(journal: &Journal) {
    journal.set_case(ON_TRIAL, 1);
}

/// Nothing is held against the client any more.
pub fn acquit(journal: &Journal) {
    journal.set_case(ON_TRIAL, 0);
    for at in [STREAM, REQUEST] {
        Count::default().write(journal, at);
    }
}

/// What is to be done with the clients of a dead executor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruling {
    /// Their clients get an error.
    pub guilty: Vec<u32>,
    /// To be tried in this order, one at a time.
    pub trials: Vec<u32>,
    /// Nothing is held against them any more.
    pub acquitted: Vec<u32>,
}

/// Judges all clients that can go on.
#[must_use]
pub fn judge(cases: &BTreeMap<u32, Case>, ended: Ended) -> Ruling {
    let tried: Vec<u32> = cases.iter().filter(|(_, case)| case.on_trial).map(|(id, _)| *id).collect();
    let suspects: Vec<u32> = cases.iter().filter(|(_, case)| case.is_suspect()).map(|(id, _)| *id).collect();
    if !tried.is_empty() {
        let acquitted = suspects.into_iter().filter(|id| !tried.contains(id)).collect();
        return Ruling { guilty: tried, trials: Vec::new(), acquitted };
    }
    match suspects.as_slice() {
        [one] if cases.get(one).is_some_and(Case::is_stuck) && ended != Ended::Explained => Ruling { guilty: suspects, ..Ruling::default() },
        _ => Ruling { trials: suspects, ..Ruling::default() },
    }
}

/// Suspects that wait for their trial, and the one that is tried.
#[derive(Debug, Default)]
pub struct Trials {
    waiting: VecDeque<(u32, Vec<Lead>)>,
    /// Who, and until when at the latest.
    pub current: Option<(u32, Instant)>,
    time: Duration,
}

impl Trials {
    /// Trials after an executor that ended so. They last longer the longer it had served.
    #[must_use]
    pub fn new(suspects: impl IntoIterator<Item = (u32, Vec<Lead>)>, ended: Ended) -> Self {
        let lived = if let Ended::Unexplained { after } = ended { after } else { INTERRUPTED };
        Self { waiting: suspects.into_iter().collect(), current: None, time: (lived * 2 + MARGIN).min(LONGEST) }
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// The next one's trial begins.
    pub fn next(&mut self, now: Instant) -> Option<(u32, Vec<Lead>)> {
        let (client, leads) = self.waiting.pop_front()?;
        self.current = Some((client, now + self.time));
        Some((client, leads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::layout::journal::BYTES;

    const FAIRLY: Ended = Ended::Unexplained { after: FAIR };

    fn journal() -> Journal {
        Journal::map(cumux_ring::create("journal", BYTES as u64).unwrap()).unwrap()
    }

    fn cases<const N: usize>(journals: &[Journal; N], seen: [Option<(Lead, u64)>; N]) -> BTreeMap<u32, Case> {
        (1..).zip(journals.iter().zip(seen)).map(|(id, (journal, seen))| (id, Case::open(journal, seen, FAIRLY))).collect()
    }

    #[test]
    fn who_gets_nowhere_at_two_deaths_is_ended_and_the_others_go_on() {
        let all = [journal(), journal(), journal()];
        assert_eq!(judge(&cases(&all, [Some((7, 0)), Some((9, 0)), None]), FAIRLY), Ruling::default(), "once is nobody's fault");
        // The second got further, the third idles.
        let second = cases(&all, [Some((7, 0)), Some((9, 3)), None]);
        assert_eq!(judge(&second, FAIRLY), Ruling { guilty: vec![1], ..Ruling::default() });
        assert_eq!(second[&1].deaths(), 2);
    }

    #[test]
    fn several_suspects_are_tried_one_at_a_time() {
        let all = [journal(), journal()];
        let seen = [Some((7, 0)), Some((9, 0))];
        assert_eq!(judge(&cases(&all, seen), FAIRLY), Ruling::default());
        let suspects = cases(&all, seen);
        assert_eq!(judge(&suspects, FAIRLY), Ruling { trials: vec![1, 2], ..Ruling::default() });
        let mut trials = Trials::new([1, 2].map(|id| (id, suspects[&id].leads())), Ended::Unexplained { after: Duration::from_millis(10) });
        assert_eq!(trials.next(Instant::now()), Some((1, vec![7])));
        begin_trial(&all[0]);
        // The first one's lead is done; the second is tried, and the executor ends.
        acquit(&all[0]);
        assert_eq!((trials.next(Instant::now()), trials.next(Instant::now())), (Some((2, vec![9])), None));
        begin_trial(&all[1]);
        assert_eq!(judge(&cases(&all, [Some((8, 0)), Some((9, 0))]), FAIRLY), Ruling { guilty: vec![2], ..Ruling::default() });
        assert_eq!(judge(&cases(&all, [None, None]), FAIRLY).guilty, [2], "an executor that ended before it could say so changes nothing");
        acquit(&all[1]);
        assert_eq!(judge(&cases(&all, [None, None]), FAIRLY), Ruling::default(), "the client has its error");
    }

    #[test]
    fn the_death_at_a_trial_clears_the_others() {
        let all = [journal(), journal()];
        let seen = [Some((7, 0)), Some((9, 0))];
        let _ = (cases(&all, seen), cases(&all, seen));
        begin_trial(&all[0]);
        assert_eq!(judge(&cases(&all, [Some((7, 0)), None]), FAIRLY), Ruling { guilty: vec![1], trials: Vec::new(), acquitted: vec![2] });
    }

    #[test]
    fn a_lead_that_gets_further_each_time_is_tried_in_the_end() {
        let all = [journal()];
        for death in 1..4 {
            assert_eq!(judge(&cases(&all, [Some((7, death))]), FAIRLY), Ruling::default(), "death {death}");
        }
        assert_eq!(judge(&cases(&all, [Some((7, 4))]), FAIRLY), Ruling { trials: vec![1], ..Ruling::default() });
    }

    #[test]
    fn a_request_is_a_lead_of_its_own() {
        let all = [journal()];
        for (death, guilty) in [(1, vec![]), (2, vec![1])] {
            note_request(&all[0], 640);
            // Its streams go on meanwhile.
            assert_eq!(judge(&cases(&all, [Some((7 + death, 0))]), FAIRLY).guilty, guilty);
        }
    }

    #[test]
    fn a_death_at_which_nothing_of_it_was_under_way_is_not_its() {
        let all = [journal()];
        assert_eq!(judge(&cases(&all, [Some((7, 0))]), FAIRLY), Ruling::default());
        assert_eq!(judge(&cases(&all, [None]), FAIRLY), Ruling::default());
        assert_eq!(judge(&cases(&all, [Some((7, 0))]), FAIRLY).guilty, [1], "the same again, which nobody had begun in between");
    }

    #[test]
    fn an_executor_that_lived_too_short_says_nothing_of_progress() {
        let journal = journal();
        let open = |after| {
            let ended = Ended::Unexplained { after };
            judge(&BTreeMap::from([(1, Case::open(&journal, Some((7, 0)), ended))]), ended)
        };
        assert_eq!([open(Duration::ZERO), open(Duration::ZERO), open(Duration::ZERO)], [Ruling::default(), Ruling::default(), Ruling::default()]);
        assert_eq!(open(Duration::ZERO).trials, [1], "but it was there each time");
        assert_eq!(open(FAIR).guilty, [1]);
    }

    #[test]
    fn an_end_that_is_explained_counts_against_nobody() {
        let all = [journal(), journal()];
        let explained = |seen: [Option<(Lead, u64)>; 2]| {
            let cases: BTreeMap<_, _> = (1..).zip(all.iter().zip(seen).map(|(journal, seen)| Case::open(journal, seen, Ended::Explained))).collect();
            judge(&cases, Ended::Explained)
        };
        for _ in 0..=MANY {
            note_request(&all[1], 640);
            assert_eq!(explained([Some((7, 0)), None]), Ruling::default());
            assert_eq!(request_under_way(&all[1]), None);
        }
        assert_eq!(judge(&cases(&all, [Some((7, 0)), None]), FAIRLY), Ruling::default(), "the first that nobody can explain");
        // Who is on trial is tried again.
        let suspects = cases(&all, [Some((7, 0)), None]);
        assert_eq!(judge(&suspects, FAIRLY).guilty, [1]);
        begin_trial(&all[0]);
        assert_eq!(explained([Some((7, 0)), None]), Ruling { trials: vec![1], ..Ruling::default() });
    }

    #[test]
    fn restoring_that_ends_executors_is_given_up() {
        let journal = journal();
        assert_eq!([(); 3].map(|()| begin_restoring(&journal)), [None; 3]);
        assert_eq!(begin_restoring(&journal), Some(3));
        end_restoring(&journal);
        assert_eq!(begin_restoring(&journal), None);
    }
}
