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
//! - *`StoppedAgain`*: nothing would move any more, or the driver lets the card continue itself.
//!   The warps are let go once more, as the driver did it before. All of them: while some wait, the
//!   card cannot be given to other processes (seen once: all others stood still). It may also stop
//!   the context when there is no warp in it: then it is resumed, so that kernels can begin.
//!
//! Everything here happens in the driver's own threads. The process ends after a fault.
#![expect(clippy::disallowed_types, reason = "every request of the driver looks whether requests are watched, without a lock")]

use super::debugger::{Debugger, Piece};
use super::messages::{is_fault_announced, notify_noticed};
use crate::fault::{Exception, StillWarps, WarpRecords};
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

/// After so many looks at which no warp waited, the card is let continue all the same.
const LOOKS_IN_VAIN: u32 = 3;

/// How long the warps that fault again and again are left waiting while all others go on. As long
/// as they wait, no other process seems to get the card.
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

/// Whether all warps are let go, or all but those that have not moved since the first stop.
#[derive(Debug)]
enum Round {
    All,
    AllBut { held: StillWarps, since: Instant },
}

#[derive(Debug, Default)]
struct Handling {
    stage: Stage,
    /// What was read ahead since the card was stopped, by memory and number of the chunk.
    ahead: FxHashMap<(u32, u64), Box<[u8]>>,
    area: Option<Area>,
    means: Option<Means>,
    /// Where the dump has seen exceptions: multiprocessors, and addresses of instructions.
    exceptions: Vec<(u64, Option<u64>)>,
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
pub(crate) fn note_exceptions(exceptions: &[Exception]) {
    if let Some(handling) = HANDLING.lock().as_mut().filter(|handling| handling.exceptions.is_empty()) {
        handling.exceptions = exceptions.iter().map(|exception| (exception.sm, exception.pc)).collect();
    }
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
    let (mut number, mut in_vain, mut round) = (0, 0, Round::All);
    loop {
        let Some(means) = wait_for_stop(until) else { return };
        std::thread::sleep(BEFORE_ROUND);
        let released = if Instant::now() < until { means.let_go(&mut round) } else { None };
        match released {
            None => return,
            Some(0) => {
                in_vain += 1;
                if in_vain % LOOKS_IN_VAIN == 0 {
                    let done = means.debugger.resume();
                    tracing::debug!(in_vain, done, "no warp waits: the context is resumed, if it is stopped");
                }
            }
            Some(warps) => {
                let held = if let Round::AllBut { held, .. } = &round { held.count() } else { 0 };
                tracing::debug!(number, warps, held, "a warp has faulted again: warps are let go");
                (number, in_vain) = (number + 1, 0);
            }
        }
    }
}

/// Waits until a warp has faulted again. How warps can be let go; `None` if they cannot, or the
/// time is over.
fn wait_for_stop(until: Instant) -> Option<Means> {
    let mut handling = HANDLING.lock();
    loop {
        let Handling { stage, means, .. } = handling.as_ref()?;
        match stage {
            Stage::StoppedAgain => return means.clone(),
            Stage::Closed => return None,
            _ => {}
        }
        if CHANGED.wait_until(&mut handling, until).timed_out() {
            return None;
        }
    }
}

impl Means {
    /// Lets the card continue. Returns how many warps waited and go on; `None` if it cannot be
    /// done.
    ///
    /// Those that fault again and again stop all others within microseconds, so they are left
    /// waiting for a while: kernels of innocents end meanwhile. Then all go on once, so that the
    /// card can be given to other processes.
    fn let_go(&self, round: &mut Round) -> Option<usize> {
        let Piece { memory, offset, length } = self.area;
        let (mut area, mut again) = (vec![0; length as usize], vec![0; length as usize]);
        if !self.debugger.read(memory, offset, &mut again) {
            return None;
        }
        // While the card runs or stops, the records change: what was read would be old when it is
        // written.
        while area != again {
            std::mem::swap(&mut area, &mut again);
            std::thread::sleep(BETWEEN_READS);
            if !self.debugger.read(memory, offset, &mut again) {
                return None;
            }
        }
        match round {
            Round::All => {
                let mut held = self.records.find_unmoved(&self.first, &area);
                if held.count() == 0 {
                    let exceptions = HANDLING.lock().as_ref().map(|handling| handling.exceptions.clone()).unwrap_or_default();
                    held = self.records.find_faulting(&area, &exceptions);
                }
                if held.count() > 0 {
                    *round = Round::AllBut { held, since: Instant::now() };
                }
            }
            Round::AllBut { since, .. } if since.elapsed() >= HELD_FOR => *round = Round::All,
            Round::AllBut { .. } => {}
        }
        let none = StillWarps::default();
        let released = self.records.release(&mut area, if let Round::AllBut { held, .. } = round { held } else { &none });
        if released == 0 && tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(states = ?self.records.count_states(&area), "no warp was let go");
        }
        let done = released == 0 || (self.debugger.write(memory, offset, &mut area) && self.debugger.resume());
        done.then_some(released)
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
