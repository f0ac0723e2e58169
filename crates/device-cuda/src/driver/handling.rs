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
//!   and again ([`Rounds`]): these are left waiting for a while, and then let go as well. The
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
use crate::fault::{FaultPlace, Rounds, StillWarps, WarpRecords};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
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

/// How long the warps that fault again and again are left waiting at first, while no other process
/// wants the card.
const FIRST_HELD_FOR: Duration = Duration::from_millis(450);

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
                let is_due = rounds.held().count() == 0 || resumed_after != changes;
                if in_vain % LOOKS_IN_VAIN == 0 && is_due {
                    let done = means.debugger.resume();
                    tracing::debug!(in_vain, done, "no warp waits: the context is resumed, if it is stopped");
                    resumed_after = changes;
                }
            }
            LetGo::Warps(warps) => {
                let held = rounds.held().count();
                tracing::debug!(number, warps, held, ?rounds, "a warp has faulted again: warps are let go");
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
            if is_closed() || !means.faults_again() {
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

fn is_closed() -> bool {
    HANDLING.lock().as_ref().is_none_or(|handling| handling.stage == Stage::Closed)
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
        let stops = is_resumed && self.records.count_others(&area, rounds.held()) > 0;
        if stops {
            let done = self.debugger.suspend() && self.debugger.clear_errors(multiprocessors);
            std::thread::sleep(BEFORE_ROUND);
            if !done || !self.debugger.read(memory, offset, &mut area) {
                tracing::debug!(done, "the context cannot be stopped once more");
            }
        }
        let released = self.records.release(&mut area, rounds.held());
        if released == 0 && tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(states = ?self.records.count_states(&area), "no warp was let go");
        }
        let written = released == 0 || self.debugger.write(memory, offset, &mut area);
        // What was stopped here goes on in any case.
        let resumed = (released == 0 && !stops) || self.debugger.resume();
        if written && resumed { LetGo::Warps(released) } else { LetGo::Failed }
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
}
