//! A lane of the executor's intake carries an engine: it runs the engine's rounds between its own
//! (decision 0132).
//!
//! A kernel that a client waits for then passes through one thread, with everything in its caches.
//! Two threads do more than one, so a lane that has little time left puts the engine down for a
//! while.

use super::message::Mailboxes;
use super::run::{By, Round, Runner};
use super::seat::{After, Seat};
use cumux_device::Carried;
use cumux_locks::Admitted;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A load is judged when a lane has carried its engine for this long.
const WINDOW: Duration = Duration::from_micros(500);
/// It is too heavy if this part of the time was spent on work, in percent.
const BUSY_PERCENT: u32 = 60;
/// It is put down for a while, too, if something else made the lane put it down so often, each time
/// before its load was judged.
const SHORT_RIDES: u32 = 8;
/// How long the engine's own thread has it after that at first, and at most.
const RELIEF: Duration = Duration::from_millis(4);
const MOST_RELIEF: Duration = Duration::from_millis(128);

/// How busy a lane is while it carries an engine. Pure.
#[derive(Debug, Default)]
struct Load {
    /// The time that rounds with work took.
    busy: Duration,
    /// The time of all rounds.
    whole: Duration,
    /// How often it has put the engine down since a load was judged.
    short_rides: u32,
}

impl Load {
    /// Adds a round, with all that the lane did since the one before. Returns whether the load is
    /// too heavy when that is judged.
    fn add(&mut self, took: Duration, had_work: bool) -> Option<bool> {
        self.whole += took;
        if had_work {
            self.busy += took;
        }
        if self.whole < WINDOW {
            return None;
        }
        let Load { busy, whole, .. } = std::mem::take(self);
        Some(busy * 100 > whole * BUSY_PERCENT)
    }

    /// The engine is put down for something else. Returns whether that happens too often.
    fn interrupt(&mut self) -> bool {
        let short_rides = self.short_rides + 1;
        let is_often = short_rides >= SHORT_RIDES;
        *self = Load { short_rides: if is_often { 0 } else { short_rides }, ..Load::default() };
        is_often
    }
}

/// What a lane has of the engine that it carries.
struct Carrier {
    seat: Arc<Seat<Runner>>,
    mailboxes: Arc<Mailboxes>,
    engine: usize,
    runner: Option<Box<Runner>>,
    /// Its own thread was asked for it and is about to let go of it.
    asked: bool,
    load: Load,
    /// The driver's locks are read by notes.
    admitted: Option<Admitted>,
    /// When the last round began, by the engine's clock.
    before: u64,
    /// The engine's own thread has it until then, and the next time for so long.
    until: Instant,
    relief: Duration,
}

thread_local! {
    /// Taken out while the engine does a round, in which the sink may call the device.
    static CARRIER: RefCell<Option<Box<Carrier>>> = const { RefCell::new(None) };
}

impl Drop for Carrier {
    /// The thread ends. After a panic the engine is not whole: nobody goes on with it, and the
    /// device is given up as with one that does not come back.
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(self.runner.take());
        }
        self.put_down();
    }
}

impl Carrier {
    fn new(seat: &Arc<Seat<Runner>>, mailboxes: &Arc<Mailboxes>, engine: usize) -> Carrier {
        Carrier {
            seat: seat.clone(),
            mailboxes: mailboxes.clone(),
            engine,
            runner: None,
            asked: false,
            load: Load::default(),
            admitted: None,
            before: 0,
            until: Instant::now(),
            relief: RELIEF,
        }
    }

    /// Takes the engine, if it may.
    fn board(&mut self) {
        if Instant::now() < self.until {
            return;
        }
        self.runner = self.seat.board(self.mailboxes.of(self.engine));
        self.asked = self.runner.is_none();
        if let Some(runner) = &mut self.runner {
            self.before = runner.tick();
            self.admitted = self.admitted.take().or_else(|| runner.admit());
        }
    }

    fn put_down(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.seat.forgo();
        }
        if let Some(runner) = self.runner.take() {
            let after = if runner.goes_on() { After::GoesOn } else { After::Sleeps };
            self.seat.put_down(runner, self.mailboxes.of(self.engine), after);
        }
    }

    /// Puts it down for a while.
    fn put_down_for_long(&mut self) {
        self.put_down();
        self.until = Instant::now() + self.relief;
        self.relief = (self.relief * 2).min(MOST_RELIEF);
    }

    /// The lane has something else to do, which may take long.
    fn interrupt(&mut self) {
        if self.runner.is_some() && self.load.interrupt() { self.put_down_for_long() } else { self.put_down() }
    }

    /// One round. `moved`: the lane has done something since the last one.
    fn go_round(&mut self, moved: bool) -> Carried {
        if self.runner.is_none() && (moved || self.asked) {
            self.board();
        }
        let Some(runner) = &mut self.runner else { return Carried::Nothing };
        let round = runner.go_round(By::Lane);
        let progress = round == Round::Progress;
        if !(progress || matches!(round, Round::Idle(_))) {
            self.put_down();
            return Carried::Nothing;
        }
        let now = runner.now();
        match self.load.add(Duration::from_nanos(now.saturating_sub(self.before)), moved || progress) {
            Some(true) => self.put_down_for_long(),
            Some(false) => self.relief = RELIEF,
            None => {}
        }
        self.before = now;
        if progress { Carried::Progress } else { Carried::Idle }
    }
}

/// Does a round of the engine of this number, if the calling thread may carry it, as
/// [`cumux_device::Queues::carry`] says.
pub(crate) fn carry(seat: &Arc<Seat<Runner>>, mailboxes: &Arc<Mailboxes>, engine: usize, moved: bool) -> Carried {
    // Another card's is dropped, and what it carried is put down.
    let own = CARRIER.take().filter(|carrier| Arc::ptr_eq(&carrier.seat, seat));
    let mut carrier = own.unwrap_or_else(|| Box::new(Carrier::new(seat, mailboxes, engine)));
    let carried = carrier.go_round(moved);
    CARRIER.set(Some(carrier));
    carried
}

/// The calling thread carries nothing any more.
pub(crate) fn put_down() {
    CARRIER.with_borrow_mut(|carrier| {
        if let Some(carrier) = carrier {
            carrier.interrupt();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    /// What becomes of rounds with work of this length, with so much idle time after each.
    fn judge(work: u64, idle: u64) -> bool {
        let mut load = Load::default();
        for _ in 0..1_000 {
            for (took, had_work) in [(us(work), true), (us(idle), false)] {
                if let Some(is_heavy) = load.add(took, had_work) {
                    return is_heavy;
                }
            }
        }
        unreachable!("the window ends")
    }

    #[test]
    fn a_load_is_heavy_where_little_time_is_left() {
        assert!(judge(40, 0) && judge(6, 3), "another thread would do a part of it meanwhile");
        assert!(!judge(4, 5) && !judge(40, 40), "one client that waits for each kernel; pieces with pauses");
    }

    #[test]
    fn who_is_interrupted_again_and_again_puts_the_engine_down_for_a_while() {
        let mut load = Load::default();
        let mut is_often = |rounds: u32| {
            (0..rounds).for_each(|_| _ = load.add(us(30), true));
            load.interrupt()
        };
        assert_eq!((1..=SHORT_RIDES).find(|_| is_often(3)), Some(SHORT_RIDES));
        assert!((0..100).all(|_| !is_often(20)), "each time after a load was judged");
    }
}
