//! How the driver handles a fault, seen and steered through its requests
//! ([`super::requests`]; measured: `docs/decisions/0120`).
//!
//! ```text
//!        debugger made      suspended        resumed        suspended: a warp has faulted again
//! Calm ───────────────▶ Noticed ──▶ Stopped ──▶ Resumed ──────────────────▶ StoppedAgain
//!                                                  ▲  reset: held                 │
//!                                                  └──────────────────────────────┘ resumed by us
//! each ── a card is closed ──▶ Closed
//! ```
//!
//! - *Noticed* comes 15 ms after the fault, long before the announcement.
//! - *Stopped*: the driver reads each register of each warp by itself, at 25 µs. The card stands
//!   still meanwhile, so this module reads ahead: 64 KiB at once, at the price of one.
//! - *Resumed*: the card goes on, and a millisecond later the driver resets the context's channels,
//!   which cuts every kernel that still runs. That request is held until this process ends or
//!   closes a card.
//! - If warps have faulted again right after that, what all multiprocessors have reported is
//!   forgotten, as a debugger does it before it continues: an illegal instruction is passed over
//!   then, and its warp ends with its kernel. Until that is known, all others wait, too
//!   ([`faults_again`]).
//! - *`StoppedAgain`*: nothing would move any more, or the driver lets the card continue itself.
//!   The warps are let go once more, as the driver did it before, but for those that fault again
//!   and again ([`Choice`]): these are left waiting for a while, and then let go as well. The
//!   driver may also stop the context when there is no warp in it: then it is resumed, so that
//!   kernels can begin.
//!
//! While warps wait, the card cannot be given to other processes: the kernel module waits for
//! seconds then, and everybody else with it (seen). And when another process has had it, warps are
//! in other places (seen: one in record 8000, and in 8008 afterwards). What was read while the
//! driver stopped the card or let it go is not used.
//!
//! Everything here happens in the driver's own threads. The process ends after a fault.
#![expect(clippy::disallowed_types, reason = "every request of the driver looks whether requests are watched, without a lock")]

use super::debugger::{Debugger, Piece};
use super::messages::{is_fault_announced, notify_noticed};
use crate::fault::{FaultPlace, StillWarps, WarpRecords};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes that are read ahead at once.
const CHUNK: u64 = 64 << 10;
/// Most bytes that are kept of what was read ahead.
const MOST_AHEAD: usize = 512 << 20;
/// The area of all warps' records is larger than this. Other memories are read in small pieces.
const LEAST_AREA: u32 = 1 << 20;
/// How long a stop is left alone before the card is let go: its maker reads meanwhile.
const BEFORE_ROUND: Duration = Duration::from_millis(4);
/// Records that have not changed for so long belong to a card that has stopped.
const BETWEEN_READS: Duration = Duration::from_millis(1);

/// So often errors are forgotten, if warps fault again each time.
const MOST_FORGETS: u32 = 6;
/// The driver stops the card and lets it go within this time.
const UNCHANGED_FOR: Duration = Duration::from_millis(12);
/// Longer than this many times of that it is not waited for.
const MOST_WAITS: u32 = 10;

/// After so many looks at which no warp waited, the card is let continue all the same.
const LOOKS_IN_VAIN: u32 = 3;

/// How long the warps that fault again and again are left waiting while all others go on: at first,
/// while no other process wants the card, and later. As long as they wait, no other process seems
/// to get it.
const FIRST_HELD_FOR: Duration = Duration::from_millis(450);
const HELD_FOR: Duration = Duration::from_millis(40);

/// How far the driver has come with a fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// There is no fault.
    #[default]
    Calm,
    /// The driver has made its debugger.
    Noticed,
    /// It has stopped the card and reads its state.
    Stopped,
    /// It has let the card continue.
    Resumed,
    /// A warp has faulted again.
    StoppedAgain,
    /// The card is closed: nobody waits for its kernels any more.
    Closed,
}

/// The area of all warps' records, as it was read last.
#[derive(Debug)]
struct Area {
    piece: Piece,
    bytes: Vec<u8>,
}

/// How warps can be let go.
#[derive(Debug, Clone)]
struct Means {
    records: WarpRecords,
    debugger: Debugger,
    area: Piece,
    /// The area when the card was stopped first.
    first: Arc<[u8]>,
}

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

/// What is known of the warps that fault again and again.
#[derive(Debug)]
struct Rounds {
    round: Round,
    choice: Choice,
    /// The multiprocessors that are suspected, and those of them that are held.
    suspected: BTreeSet<u64>,
    halved: BTreeSet<u64>,
    /// How long they are held next.
    held_for: Duration,
}

/// What came of letting the card continue.
enum LetGo {
    /// So many warps waited and go on.
    Warps(usize),
    /// The card was stopped or let go meanwhile.
    Outdated,
    /// It cannot be done.
    Failed,
}

#[derive(Debug, Default)]
struct Handling {
    stage: Stage,
    /// What was read ahead since the card was stopped, by memory and number of the chunk.
    ahead: FxHashMap<(u32, u64), Box<[u8]>>,
    area: Option<Area>,
    means: Option<Means>,
    /// Where the dump has seen exceptions.
    places: Vec<FaultPlace>,
    /// How many multiprocessors the driver asks for errors.
    multiprocessors: u32,
    /// How often the card was stopped or let go.
    changes: u64,
    /// Whether warps fault again and again, once that is known.
    again: Option<bool>,
}

/// Lock 9 of the crate's order. The driver is asked under it, by its own threads.
static HANDLING: Mutex<Option<Handling>> = Mutex::new(None);
/// The stage has changed.
static CHANGED: Condvar = Condvar::new();
/// True once requests are watched.
static WATCHES: AtomicBool = AtomicBool::new(false);
/// How long a reset is held.
static HOLD: OnceLock<Duration> = OnceLock::new();

/// From now on requests are watched: the contexts of this process are made. A reset is held for
/// `hold` at most.
pub(crate) fn watch_requests(hold: Duration) {
    HOLD.get_or_init(|| hold);
    let mut handling = HANDLING.lock();
    let handling = handling.get_or_insert_default();
    if handling.stage == Stage::Closed {
        *handling = Handling::default();
    }
    WATCHES.store(true, Ordering::Release);
}

/// A card is closed: the driver may do what it wants. Its calls that end a context would wait for a
/// held reset.
pub(crate) fn stop_watching_requests() {
    if let Some(handling) = HANDLING.lock().as_mut() {
        handling.stage = Stage::Closed;
    }
    CHANGED.notify_all();
}

/// The dump says where exceptions were found: the warps there fault again and again.
pub(crate) fn note_fault_places(places: impl FnOnce() -> Vec<FaultPlace>) {
    if let Some(handling) = HANDLING.lock().as_mut().filter(|handling| handling.places.is_empty()) {
        handling.places = places();
    }
}

/// The driver asks so many multiprocessors for errors, or more.
pub(super) fn note_multiprocessors(number: u32) {
    if let Some(handling) = HANDLING.lock().as_mut() {
        handling.multiprocessors = handling.multiprocessors.max(number);
    }
}

/// Whether warps fault again and again, although all errors were forgotten; `None` while that is
/// not known.
pub(crate) fn faults_again() -> Option<bool> {
    let handling = HANDLING.lock();
    // Without a debugger nothing lets warps go, and nothing will be known.
    handling.as_ref().filter(|handling| handling.stage != Stage::Calm).map_or(Some(false), |handling| handling.again)
}

/// True once requests are watched.
pub(super) fn watches() -> bool {
    WATCHES.load(Ordering::Acquire)
}

/// The driver makes a debugger: it begins to look at a fault.
pub(super) fn note_debugger() {
    let before =
        HANDLING.lock().as_mut().filter(|handling| handling.stage != Stage::Closed).map(|handling| std::mem::replace(&mut handling.stage, Stage::Noticed));
    // Without the lock: who reads the line may want it. A part of the card may have made a debugger
    // without any fault, so it is said again.
    if matches!(before, Some(Stage::Calm | Stage::Noticed)) {
        notify_noticed();
    }
}

/// The driver has stopped the card, or let it continue.
pub(super) fn after_stop_or_go(stopped: bool) {
    let mut handling = HANDLING.lock();
    let Some(handling) = handling.as_mut() else { return };
    handling.ahead.clear();
    handling.changes += 1;
    tracing::debug!(stopped, before = ?handling.stage, "the card was stopped, or let go");
    handling.stage = match (handling.stage, stopped) {
        (Stage::Closed, _) => Stage::Closed,
        (Stage::Resumed | Stage::StoppedAgain, true) => Stage::StoppedAgain,
        (_, true) => Stage::Stopped,
        (_, false) => Stage::Resumed,
    };
    CHANGED.notify_all();
}

/// Hands `take` the piece as it was read ahead, or is read ahead now. False if the driver has to
/// read it itself. For a card full of warps this is called a million times.
pub(super) fn read_ahead(debugger: Debugger, piece: Piece, take: impl FnOnce(&[u8])) -> bool {
    let mut handling = HANDLING.lock();
    let Some(handling) = handling.as_mut().filter(|handling| matches!(handling.stage, Stage::Stopped)) else { return false };
    let (number, start) = (piece.offset / CHUNK, (piece.offset % CHUNK) as usize);
    let end = start + piece.length as usize;
    if end > CHUNK as usize {
        return false;
    }
    if (handling.ahead.len() + 1) * CHUNK as usize > MOST_AHEAD {
        handling.ahead.clear();
    }
    let read = || {
        let mut chunk = vec![0; CHUNK as usize].into_boxed_slice();
        // The end of a memory is no multiple of a chunk: what lies there is not read ahead.
        if debugger.read(piece.memory, number * CHUNK, &mut chunk) { chunk } else { Box::default() }
    };
    handling.ahead.entry((piece.memory, number)).or_insert_with(read).get(start..end).map(take).is_some()
}

/// The driver has read this itself.
pub(super) fn after_read(piece: Piece, bytes: &[u8]) {
    let mut handling = HANDLING.lock();
    if let Some(handling) = handling.as_mut().filter(|handling| piece.length >= LEAST_AREA && handling.stage == Stage::Stopped) {
        handling.area = Some(Area { piece, bytes: bytes.to_vec() });
    }
}

/// The driver is about to write this.
pub(super) fn before_write(debugger: Debugger, piece: Piece, bytes: &[u8]) {
    let mut handling = HANDLING.lock();
    let Some(handling) = handling.as_mut() else { return };
    handling.ahead.clear();
    if let Some(area) = handling.area.take().filter(|area| area.piece == piece) {
        handling.means = WarpRecords::learn(&area.bytes, bytes).map(|records| Means { records, debugger, area: piece, first: area.bytes.into() });
    }
}

/// The driver is about to reset a channel. Returns when it may: there was no fault, nothing helps
/// any more, or the time is over.
pub(super) fn hold_reset() {
    if !is_fault_announced() {
        return;
    }
    hold_until_nothing_helps();
    tracing::debug!("the channel may be reset");
}

fn hold_until_nothing_helps() {
    tracing::debug!(means = HANDLING.lock().as_ref().is_some_and(|handling| handling.means.is_some()), "the reset of a channel is held");
    let until = Instant::now() + HOLD.get().copied().unwrap_or_default();
    look_for_faults();
    let (mut number, mut in_vain, mut resumed_after) = (0, 0, 0);
    let mut rounds = Rounds::new(FIRST_HELD_FOR);
    loop {
        let Some((means, changes)) = wait_for_stop(until) else { return };
        std::thread::sleep(BEFORE_ROUND);
        if Instant::now() >= until {
            return;
        }
        match means.let_go(&mut rounds, changes, resumed_after == changes) {
            LetGo::Failed => return,
            LetGo::Outdated => {}
            LetGo::Warps(0) => {
                in_vain += 1;
                // While some are held, once for each time that the driver has stopped the context:
                // kernels that have no warp on it could not begin.
                let is_due = matches!(rounds.round, Round::All) || resumed_after != changes;
                if in_vain % LOOKS_IN_VAIN == 0 && is_due {
                    let done = means.debugger.resume();
                    tracing::debug!(in_vain, done, "no warp waits: the context is resumed, if it is stopped");
                    resumed_after = changes;
                }
            }
            LetGo::Warps(warps) => {
                let held = if let Round::AllBut { held, .. } = &rounds.round { held.count() } else { 0 };
                tracing::debug!(number, warps, held, choice = ?rounds.choice, "a warp has faulted again: warps are let go");
                (number, in_vain, resumed_after) = (number + 1, 0, changes);
            }
        }
    }
}

/// Looks whether warps wait that were let go a moment ago: the driver notices that 10 to 150 ms
/// later. As long as they do, the errors of all multiprocessors are forgotten.
fn look_for_faults() {
    let known = HANDLING.lock().as_ref().and_then(|handling| Some((handling.means.clone()?, handling.multiprocessors)));
    let again = known.is_some_and(|(means, multiprocessors)| {
        for _ in 0..MOST_FORGETS {
            wait_until_unchanged();
            if !means.faults_again() {
                return false;
            }
            if !means.forget_errors(multiprocessors) {
                return true;
            }
        }
        means.faults_again()
    });
    tracing::debug!(again, "whether warps fault again and again");
    if let Some(handling) = HANDLING.lock().as_mut() {
        handling.again = Some(again);
    }
}

/// Waits until the driver has neither stopped the card nor let it go for a moment.
fn wait_until_unchanged() {
    let changes = || HANDLING.lock().as_ref().map_or(0, |handling| handling.changes);
    let mut before = changes();
    for _ in 0..MOST_WAITS {
        std::thread::sleep(UNCHANGED_FOR);
        let now = changes();
        if now == before {
            return;
        }
        before = now;
    }
}

/// Waits until a warp has faulted again. How warps can be let go, and how often the card was
/// stopped or let go until then; `None` if they cannot, or the time is over.
fn wait_for_stop(until: Instant) -> Option<(Means, u64)> {
    let mut handling = HANDLING.lock();
    loop {
        let Handling { stage, means, changes, .. } = handling.as_ref()?;
        match stage {
            Stage::StoppedAgain => return means.clone().map(|means| (means, *changes)),
            Stage::Closed => return None,
            _ => {}
        }
        if CHANGED.wait_until(&mut handling, until).timed_out() {
            return None;
        }
    }
}

impl Means {
    /// Whether warps wait now, a moment after they were let go.
    fn faults_again(&self) -> bool {
        std::thread::sleep(BEFORE_ROUND);
        let mut area = vec![0; self.area.length as usize];
        self.debugger.read(self.area.memory, self.area.offset, &mut area) && self.records.count_others(&area, &StillWarps::default()) > 0
    }

    /// Lets all warps go once more, after what their multiprocessors have reported is forgotten: an
    /// illegal instruction is passed over then. True if it was done.
    fn forget_errors(&self, multiprocessors: u32) -> bool {
        let suspended = self.debugger.suspend();
        let forgotten = self.debugger.clear_errors(multiprocessors);
        let mut area = vec![0; self.area.length as usize];
        std::thread::sleep(BEFORE_ROUND);
        let read = self.debugger.read(self.area.memory, self.area.offset, &mut area);
        let warps = self.records.release(&mut area, &StillWarps::default());
        let done = read && self.debugger.write(self.area.memory, self.area.offset, &mut area);
        // In any case: it was stopped here.
        let resumed = self.debugger.resume();
        tracing::debug!(suspended, forgotten, warps, done, resumed, "errors are forgotten, and warps let go");
        done && resumed
    }

    /// Lets the card continue, if it was not stopped or let go since it had been so often.
    ///
    /// Those that fault again and again stop all others within microseconds, so they are left
    /// waiting for a while: kernels of innocents end meanwhile. Then all go on once, so that the
    /// card can be given to other processes.
    ///
    /// `is_resumed`: nothing has stopped the context since this was done last, so it is stopped
    /// before, and what the multiprocessors have reported is forgotten.
    fn let_go(&self, rounds: &mut Rounds, changes: u64, is_resumed: bool) -> LetGo {
        let Piece { memory, offset, length } = self.area;
        let (mut area, mut again) = (vec![0; length as usize], vec![0; length as usize]);
        if !self.debugger.read(memory, offset, &mut again) {
            return LetGo::Failed;
        }
        // While the card runs or stops, the records change: what was read would be old when it is
        // written.
        while area != again {
            std::mem::swap(&mut area, &mut again);
            std::thread::sleep(BETWEEN_READS);
            if !self.debugger.read(memory, offset, &mut again) {
                return LetGo::Failed;
            }
        }
        let known = HANDLING.lock().as_ref().map(|handling| (handling.places.clone(), handling.changes, handling.multiprocessors));
        let (places, now, multiprocessors) = known.unwrap_or_default();
        if now != changes {
            return LetGo::Outdated;
        }
        rounds.go_on(self.records, &self.first, &area, &places);
        let none = StillWarps::default();
        let held = if let Round::AllBut { held, .. } = &rounds.round { held } else { &none };
        if is_resumed && self.records.count_others(&area, held) > 0 {
            let done = self.debugger.suspend() && self.debugger.clear_errors(multiprocessors);
            std::thread::sleep(BEFORE_ROUND);
            if !done || !self.debugger.read(memory, offset, &mut area) {
                tracing::debug!(done, "the context cannot be stopped once more");
            }
        }
        let released = self.records.release(&mut area, held);
        if released == 0 && tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(states = ?self.records.count_states(&area), "no warp was let go");
        }
        let done = released == 0 || (self.debugger.write(memory, offset, &mut area) && self.debugger.resume());
        if done { LetGo::Warps(released) } else { LetGo::Failed }
    }
}

impl Rounds {
    fn new(held_for: Duration) -> Self {
        Self { round: Round::All, choice: Choice::default(), suspected: BTreeSet::new(), halved: BTreeSet::new(), held_for }
    }

    /// Decides who goes on now, by the area as it was at the first stop and as it is.
    fn go_on(&mut self, records: WarpRecords, first: &[u8], area: &[u8], places: &[FaultPlace]) {
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

    /// Otherwise the driver's call that ends the context would wait as long as the reset.
    #[test]
    fn a_closed_card_holds_no_reset() {
        watch_requests(Duration::from_secs(3600));
        note_debugger();
        let (sender, gone_on) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            hold_until_nothing_helps();
            sender.send(())
        });
        assert!(gone_on.try_recv().is_err(), "the reset is held");
        stop_watching_requests();
        gone_on.recv_timeout(Duration::from_secs(60)).expect("the reset goes on");
        note_debugger();
        assert_eq!(HANDLING.lock().as_ref().map(|handling| handling.stage), Some(Stage::Closed));
        // The next card of the process is watched again.
        watch_requests(Duration::ZERO);
        note_debugger();
        assert_eq!(HANDLING.lock().as_ref().map(|handling| handling.stage), Some(Stage::Noticed));
    }

    /// Where others stop although some are held, one of them faults, too: the next choice is taken.
    #[test]
    fn who_is_held_is_chosen_anew_if_others_stop() {
        let records = WarpRecords::for_tests();
        let (first, at) = WarpRecords::area_for_tests(&[0, 3, 4, 9]);
        let mut rounds = Rounds::new(Duration::from_secs(3600));
        let held = |rounds: &Rounds| if let Round::AllBut { held, .. } = &rounds.round { held.count() } else { 0 };
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
