//! How the driver handles a fault, seen and steered through its requests
//! ([`super::requests`]; measured: `docs/decisions/0120`).
//!
//! ```text
//!        debugger made      suspended        resumed
//! Calm ───────────────▶ Noticed ──▶ Stopped ──▶ Resumed ── nothing helps any more ──▶ GivenUp
//!
//! each ── a card is closed ──▶ Closed
//! ```
//!
//! - *Noticed* comes 15 ms after the fault, long before the announcement.
//! - *Stopped*: the driver reads the registers of each warp in 36 pieces, at 25 µs. The card stands
//!   still meanwhile, so this module reads ahead: 64 KiB at once, at the price of one. Before it
//!   lets warps go, what multiprocessors have reported is forgotten, as a debugger does it: whoever
//!   goes on stops at once on a multiprocessor with an error, and an illegal instruction is passed
//!   over.
//!   Where many warps have stopped, those of multiprocessors without an error are hidden from the
//!   driver, which would read each of their registers: a full card stood still for 1.5 s.
//! - *Resumed*: the card goes on, and a millisecond later the driver resets the context's channels,
//!   which cuts every kernel that still runs. That request is held until this process ends or
//!   closes a card. From here on the card is this module's: if the driver wants to stop it or let
//!   it go, it is told that this is done. It does so 10 to 150 ms after each further fault, and
//!   where it finds an error it leaves the card stopped for everybody.
//!
//! Who has faulted again is found by what multiprocessors report. That is forgotten once more, and
//! their warps are let go. Until it is known whether some fault again and again, all others wait,
//! too ([`faults_again`]). Those that do are left waiting for a while ([`Rounds`]), and then let go
//! as well.
//!
//! While warps wait, the card cannot be given to other processes: the kernel module waits for
//! seconds then, and everybody else with it (seen). And when another process has had it, warps are
//! in other places (seen: one in record 8000, and in 8008 afterwards).
//!
//! Everything here happens in the driver's own threads. The process ends after a fault.
#![expect(clippy::disallowed_types, reason = "every request of the driver looks whether requests are watched, without a lock")]

use super::debugger::{Debugger, Piece};
use super::messages::{is_fault_announced, notify_noticed};
use crate::fault::{FaultPlace, HiddenWarps, Rounds, StillWarps, WarpRecords};
use core::ffi::c_int;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
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
/// How long warps have to stop after the card was told to: each multiprocessor reports it. So long
/// nothing new is reported, and so many times of that at most.
const UNTIL_STOPPED: Duration = Duration::from_millis(2);
const MOST_WAITS: u32 = 5;
/// Records that have not changed for so long belong to a card that has stopped.
const BETWEEN_READS: Duration = Duration::from_millis(1);
/// How often it is looked whether warps have faulted again, at first and later. A look takes 0.5 ms
/// of the driver's lock.
const LOOK_EVERY: Duration = Duration::from_millis(4);
const LOOK_LATER: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);
/// So often errors are forgotten at once, if warps fault again each time.
const MOST_FORGETS: u32 = 10;
/// After so many looks at which nothing was reported, warps do not fault again and again.
const CLEAN_LOOKS: u32 = 3;

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
    /// What this module can do does not help, or its time is over: the driver does as it wants.
    GivenUp,
    /// The card is closed: nobody waits for its kernels any more.
    Closed,
}

/// The area of all warps' records, as it was read last.
#[derive(Debug)]
struct Area {
    piece: Piece,
    bytes: Vec<u8>,
    /// The warps of which the driver does not know.
    hidden: HiddenWarps,
}

/// How warps can be let go.
#[derive(Debug, Clone)]
struct Means {
    records: WarpRecords,
    debugger: Debugger,
    area: Piece,
    /// The area when the card was stopped first.
    first: Arc<[u8]>,
    /// How many multiprocessors the driver has asked for errors.
    multiprocessors: u32,
}

/// What the driver has read while the card was stopped: of what a long dump consists.
#[derive(Debug, Default)]
struct Readings {
    /// Since when the card is stopped.
    since: Option<Instant>,
    /// Pieces that it has got from what was read ahead.
    answered: u64,
    /// Chunks that were read ahead, and how long that took.
    chunks: u64,
    chunks_took: Duration,
}

#[derive(Debug, Default)]
struct Handling {
    stage: Stage,
    readings: Readings,
    /// What was read ahead since the card was stopped, by memory and number of the chunk.
    ahead: FxHashMap<(u32, u64), Box<[u8]>>,
    area: Option<Area>,
    means: Option<Means>,
    /// The debuggers of cards that the driver has stopped, and let continue.
    stopped: BTreeSet<(u32, u32)>,
    resumed: BTreeSet<(u32, u32)>,
    /// Whether warps were hidden from the driver.
    hides: bool,
    /// Where the dump has seen exceptions.
    places: Vec<FaultPlace>,
    /// How many multiprocessors the driver asks for errors.
    multiprocessors: u32,
    /// Whether warps fault again and again, once that is known.
    again: Option<bool>,
}

impl Handling {
    /// Whether the card with this debugger is this module's: the driver has let it continue, and is
    /// no longer to stop it. A process may have several cards, which the driver stops together.
    fn is_ours(&self, debugger: Debugger) -> bool {
        let is_it = |means: &Means| self.stopped.len() == 1 || means.debugger.name() == debugger.name();
        self.stage == Stage::Resumed && self.resumed.contains(&debugger.name()) && self.means.as_ref().is_some_and(is_it)
    }

    /// Whether this is the area of the card that is this module's.
    fn is_our_area(&self, piece: Piece) -> bool {
        self.stage == Stage::Resumed && self.means.as_ref().is_some_and(|means| means.area == piece)
    }

    /// Whether the driver does as it wants, from now on and for good.
    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::GivenUp | Stage::Closed)
    }

    /// See [`before_write`].
    fn before_write(&mut self, debugger: Debugger, piece: Piece, bytes: &[u8]) -> bool {
        if self.is_our_area(piece) {
            return false;
        }
        self.ahead.clear();
        if piece.length >= LEAST_AREA && self.stage == Stage::Stopped {
            let forgotten = debugger.clear_errors(self.multiprocessors);
            tracing::debug!(?forgotten, "the driver lets warps go: errors are forgotten");
        }
        let Some(Area { bytes: read, hidden, .. }) = self.area.take().filter(|area| area.piece == piece) else { return true };
        // As the driver has read it.
        let mut shown = Cow::Borrowed(&*read);
        if hidden.count() > 0 {
            hidden.hide(shown.to_mut());
        }
        // Who has faulted again is found by what multiprocessors report.
        let multiprocessors = self.multiprocessors;
        if multiprocessors > 0
            && let Some(records) = WarpRecords::learn(&shown, bytes)
        {
            self.means = Some(Means { records, debugger, area: piece, first: read.into(), multiprocessors });
        }
        if hidden.count() == 0 {
            return true;
        }
        let mut written = bytes.to_vec();
        hidden.release(&mut written);
        !debugger.write(piece.memory, piece.offset, &mut written)
    }
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

/// Whether warps were hidden from the driver: its dump does not list all kernels on the card.
pub(crate) fn hides_warps() -> bool {
    HANDLING.lock().as_ref().is_some_and(|handling| handling.hides)
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
    let before = HANDLING.lock().as_mut().filter(|handling| !handling.is_over()).map(|handling| std::mem::replace(&mut handling.stage, Stage::Noticed));
    // Without the lock: who reads the line may want it. A part of the card may have made a debugger
    // without any fault, so it is said again.
    if matches!(before, Some(Stage::Calm | Stage::Noticed)) {
        notify_noticed();
    }
}

/// The driver stops a card, or lets it continue, by `pass_on`. `None` if it is to be told that this
/// was done.
pub(super) fn stop_or_go(debugger: Debugger, stopped: bool, pass_on: impl FnOnce() -> c_int) -> Option<c_int> {
    let mut handling = HANDLING.lock();
    if handling.as_ref().is_some_and(|handling| handling.is_ours(debugger)) {
        tracing::debug!(stopped, "the driver would stop the card, or let it go");
        return None;
    }
    let result = pass_on();
    if let Some(handling) = handling.as_mut() {
        let readings = std::mem::take(&mut handling.readings);
        tracing::debug!(stopped, before = ?handling.stage, ?readings, stopped_for = ?readings.since.map(|since| since.elapsed()), "the card was stopped, or let go");
        handling.readings.since = stopped.then(Instant::now);
        handling.ahead.clear();
        let names = if stopped { &mut handling.stopped } else { &mut handling.resumed };
        names.insert(debugger.name());
        handling.stage = match (handling.stage, stopped) {
            (over, _) if handling.is_over() => over,
            (_, true) => Stage::Stopped,
            (_, false) => Stage::Resumed,
        };
        CHANGED.notify_all();
    }
    Some(result)
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
    let Handling { ahead, readings, .. } = handling;
    readings.answered += 1;
    let read = || {
        let begun = Instant::now();
        let mut chunk = vec![0; CHUNK as usize].into_boxed_slice();
        // The end of a memory is no multiple of a chunk: what lies there is not read ahead.
        let is_read = debugger.read(piece.memory, number * CHUNK, &mut chunk);
        (readings.chunks, readings.chunks_took) = (readings.chunks + 1, readings.chunks_took + begun.elapsed());
        if is_read { chunk } else { Box::default() }
    };
    ahead.entry((piece.memory, number)).or_insert_with(read).get(start..end).map(take).is_some()
}

/// The driver has read this itself. What it needs not look at is hidden from it.
pub(super) fn after_read(debugger: Debugger, piece: Piece, bytes: &mut [u8]) {
    let mut handling = HANDLING.lock();
    if let Some(handling) = handling.as_mut().filter(|handling| piece.length >= LEAST_AREA && handling.stage == Stage::Stopped) {
        let read = bytes.to_vec();
        // The question takes a millisecond or two.
        let asks = WarpRecords::is_crowded(&read);
        let faulting = if asks { debugger.faulting(WarpRecords::count_multiprocessors(&read)).unwrap_or_default() } else { Vec::new() };
        let hidden = WarpRecords::hide_others(bytes, &faulting.iter().copied().map(u64::from).collect()).unwrap_or_default();
        tracing::debug!(?faulting, hidden = hidden.count(), "the warps' records are read");
        handling.hides |= hidden.count() > 0;
        handling.area = Some(Area { piece, bytes: read, hidden });
    }
}

/// The driver is about to write this. If it lets warps go with that, errors are forgotten before.
/// False if it is to be told that it is written.
pub(super) fn before_write(debugger: Debugger, piece: Piece, bytes: &[u8]) -> bool {
    HANDLING.lock().as_mut().is_none_or(|handling| handling.before_write(debugger, piece, bytes))
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
    let means = match HANDLING.lock().as_ref().filter(|handling| !handling.is_over()) {
        Some(handling) => handling.means.clone(),
        None => return,
    };
    tracing::debug!(means = means.is_some(), "the reset of a channel is held");
    let until = Instant::now() + HOLD.get().copied().unwrap_or_default();
    match means {
        Some(means) => means.hold(until),
        // Kernels end as long as no warp faults again.
        None => {
            note_again(false);
            wait(until);
        }
    }
    if let Some(handling) = HANDLING.lock().as_mut().filter(|handling| handling.stage != Stage::Closed) {
        handling.stage = Stage::GivenUp;
    }
}

/// Whether warps fault again and again is known now.
fn note_again(again: bool) {
    tracing::debug!(again, "whether warps fault again and again");
    if let Some(handling) = HANDLING.lock().as_mut() {
        handling.again = Some(again);
    }
}

/// Waits until then; false as soon as the card is closed, or is stopped once more by the driver and
/// cannot be let go.
fn wait(until: Instant) -> bool {
    let is_over = |handling: &Handling| handling.is_over() || handling.stage == Stage::Stopped && handling.means.is_none();
    let mut handling = HANDLING.lock();
    loop {
        if handling.as_ref().is_none_or(is_over) {
            return false;
        }
        if CHANGED.wait_until(&mut handling, until).timed_out() {
            return true;
        }
    }
}

impl Means {
    /// Has kernels go on until the card is closed, nothing helps any more, or the time is over.
    fn hold(&self, until: Instant) {
        let begun = Instant::now();
        let again = self.look_for_faults(until);
        note_again(again != Some(false));
        if again.is_none() {
            return;
        }
        let mut rounds = Rounds::new(FIRST_HELD_FOR);
        let mut number = 0_u64;
        loop {
            let is_later = begun.elapsed() > LATER && rounds.held().count() == 0;
            if !wait(until.min(Instant::now() + if is_later { LOOK_LATER } else { LOOK_EVERY })) || Instant::now() >= until {
                return;
            }
            let Some(reporting) = self.debugger.reporting(self.multiprocessors) else { return };
            if reporting.is_empty() && rounds.held().count() == 0 {
                continue;
            }
            let Some(warps) = self.let_go(&mut rounds) else { return };
            if warps > 0 {
                number += 1;
                tracing::debug!(number, warps, reporting = reporting.len(), held = rounds.held().count(), ?rounds, "warps have faulted again, and are let go");
            }
        }
    }

    /// Looks whether warps fault again that were let go a moment ago. As long as they do, what the
    /// multiprocessors report is forgotten, and they are let go, some times. Whether they fault
    /// again after that; `None` if the card is closed or cannot be asked.
    fn look_for_faults(&self, until: Instant) -> Option<bool> {
        let (mut forgets, mut clean) = (0, 0);
        while clean < CLEAN_LOOKS {
            if !wait(until.min(Instant::now() + LOOK_EVERY)) {
                return None;
            }
            if self.debugger.reporting(self.multiprocessors)?.is_empty() {
                clean += 1;
                continue;
            }
            if forgets == MOST_FORGETS {
                return Some(true);
            }
            (forgets, clean) = (forgets + 1, 0);
            let warps = self.release(&StillWarps::default())?;
            tracing::debug!(forgets, warps, "errors are forgotten, and warps let go");
        }
        Some(false)
    }

    /// Lets all warps go but some, after what their multiprocessors have reported is forgotten.
    /// How many waited that go on; `None` if it was not done.
    fn release(&self, held: &StillWarps) -> Option<usize> {
        let Piece { memory, offset, length } = self.area;
        let suspended = self.debugger.suspend();
        let mut reporting = Vec::new();
        for _ in 0..MOST_WAITS {
            std::thread::sleep(UNTIL_STOPPED);
            let now = self.debugger.reporting(self.multiprocessors).unwrap_or_default();
            if now == reporting {
                break;
            }
            reporting = now;
        }
        let forgotten = self.debugger.clear_errors(self.multiprocessors);
        let mut area = vec![0; length as usize];
        let read = self.debugger.read(memory, offset, &mut area);
        let warps = self.records.release(&mut area, held);
        let written = read && (warps == 0 || self.debugger.write(memory, offset, &mut area));
        // In any case: it was stopped here.
        let resumed = self.debugger.resume();
        if !(suspended && forgotten.is_some() && written && resumed) {
            tracing::debug!(suspended, ?forgotten, written, resumed, "warps could not be let go");
        }
        (written && resumed).then_some(warps)
    }

    /// Lets the card continue, but for those that fault again and again. These stop all others
    /// within microseconds, so they are left waiting for a while: kernels of innocents end
    /// meanwhile. Then all go on once, so that the card can be given to other processes.
    fn let_go(&self, rounds: &mut Rounds) -> Option<usize> {
        let Piece { memory, offset, length } = self.area;
        let (mut area, mut again) = (vec![0; length as usize], vec![0; length as usize]);
        let read = |into: &mut [u8]| self.debugger.read(memory, offset, into).then_some(());
        read(&mut again)?;
        // While the card runs or stops, the records change.
        while area != again {
            std::mem::swap(&mut area, &mut again);
            std::thread::sleep(BETWEEN_READS);
            read(&mut again)?;
        }
        let places = HANDLING.lock().as_ref().map(|handling| handling.places.clone()).unwrap_or_default();
        rounds.go_on(self.records, &self.first, &area, &places);
        // Those that are held go on waiting, and nobody else does.
        let is_needed = self.records.count_others(&area, rounds.held()) > 0 || rounds.held().count() == 0;
        if is_needed { self.release(rounds.held()) } else { Some(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The debugger of a card, of which no request is answered.
    fn card(object: u32) -> Debugger {
        Debugger { descriptor: -1, client: 1, object }
    }

    /// What the driver does to a card that it has let continue is not done; a second card of the
    /// process, stopped with it, goes on.
    #[test]
    fn only_the_card_that_has_gone_on_is_ours() {
        let (first, second) = (card(7), card(8));
        let mut handling = Handling { stage: Stage::Resumed, ..Handling::default() };
        let area = Piece { memory: 3, offset: 0, length: LEAST_AREA };
        let means = Means { records: WarpRecords::for_tests(), debugger: first, area, first: Arc::new([]), multiprocessors: 1 };
        handling.stopped.extend([first.name()]);
        handling.resumed.extend([first.name()]);
        assert!(!handling.is_ours(first) && !handling.is_our_area(area), "nothing is known of its warps");
        handling.means = Some(means);
        assert!(handling.is_ours(first) && handling.is_our_area(area) && !handling.is_ours(second));
        assert!(!handling.before_write(first, area, &[]), "the driver is told that it has written");
        handling.stopped.extend([second.name()]);
        assert!(handling.is_ours(first) && !handling.is_ours(second), "it was not let go yet");
        handling.resumed.extend([second.name()]);
        assert!(handling.is_ours(first) && !handling.is_ours(second) && !handling.is_our_area(Piece { memory: 4, ..area }));
        for over in [Stage::GivenUp, Stage::Closed] {
            handling.stage = over;
            assert!(!handling.is_ours(first) && !handling.is_our_area(area), "{over:?}");
        }
    }

    /// Without the number of multiprocessors nobody would see who faults again: the driver goes on
    /// alone. And a card without a warp tells nothing.
    #[test]
    fn how_warps_are_let_go_is_learnt_once() {
        let mut read = WarpRecords::area_on_multiprocessors(&[0, 2]);
        read.resize(LEAST_AREA as usize, 0);
        let mut written = read.clone();
        WarpRecords::for_tests().release(&mut written, &StillWarps::default());
        let piece = |memory| Piece { memory, offset: 0, length: LEAST_AREA };
        let mut handling = Handling { stage: Stage::Stopped, ..Handling::default() };
        let write = |handling: &mut Handling, memory, read: &[u8], written: &[u8]| {
            handling.area = Some(Area { piece: piece(memory), bytes: read.to_vec(), hidden: HiddenWarps::default() });
            handling.before_write(card(memory), piece(memory), written)
        };
        assert!(write(&mut handling, 1, &read, &written) && handling.means.is_none());
        handling.multiprocessors = 4;
        assert!(write(&mut handling, 1, &read, &written) && handling.means.is_some());
        assert!(write(&mut handling, 2, &written, &written), "a second card, on which nothing has stopped");
        assert_eq!(handling.means.take().map(|means| means.area), Some(piece(1)));

        // Where warps were hidden, how warps are let go is learnt from those that the driver saw.
        let many: Vec<usize> = (0..10).collect();
        let mut read = WarpRecords::area_on_whole_multiprocessors(&many);
        read.resize(LEAST_AREA as usize, 0);
        let mut shown = read.clone();
        let hidden = WarpRecords::hide_others(&mut shown, &[3].into()).expect("hidden");
        let mut written = shown.clone();
        let write = |handling: &mut Handling, written: &[u8]| {
            handling.area = Some(Area { piece: piece(1), bytes: read.clone(), hidden: hidden.clone() });
            // Nobody answers this debugger: what the driver has is written.
            assert!(handling.before_write(card(1), piece(1), written));
        };
        write(&mut handling, &written);
        assert!(handling.means.is_none(), "it has let nobody go");
        WarpRecords::for_tests().release(&mut written, &StillWarps::default());
        write(&mut handling, &written);
        assert_eq!(handling.means.map(|means| means.first.to_vec()), Some(read.clone()), "as it was");
    }

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
