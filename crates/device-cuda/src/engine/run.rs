//! The main loop of an engine: its rounds, and its own thread.

use super::message::Message;
use super::seat::Seat;
use super::state::{ContextState, Engine};
use crate::driver::{allow_short_sleeps, is_fault_announced};
use crate::issue::STANDS_STILL_NS;
use crate::polling::Pause;
use crate::quiet::Until;
use crate::track::{SHORTEST_SILENCE_NS, UnusualStandstill};
use cumux_locks::{Admitted, admit};
use std::collections::BTreeSet;
use std::time::Duration;

/// When an engine without progress queries a driver stream, and which one.
struct Watch {
    /// When there was progress last, in nanoseconds.
    last_progress: u64,
    /// When a stream was queried last, in nanoseconds.
    last_query: u64,
    /// The number of queries so far.
    queries: usize,
    /// When it was last looked whether a kernel that may print keeps others waiting.
    last_relief: u64,
    /// Streams that wait for a lane, if there are some.
    crowd: Option<Crowd>,
    /// When the other engines were last told whether work stands still, and whether it did.
    last_said: u64,
    said_that_it_stands: bool,
    /// Nothing in flight moves: how unusual that is.
    silence: UnusualStandstill,
}

/// Streams that wait for a lane.
struct Crowd {
    /// Since when they wait and none has got one, in nanoseconds.
    since: u64,
    relief: Relief,
}

/// What was done for streams that wait for a lane in vain.
enum Relief {
    /// Nothing.
    Due,
    /// Others were asked to leave those who have one, and it is not said yet whether they do.
    Asked(crossbeam_channel::Receiver<bool>),
    /// They have left, or nobody can.
    Had,
}

/// How often the other engines are told whether work stands still, in nanoseconds.
const SAY_NS: u64 = 100_000;

/// How often it is looked whether a kernel that may print keeps others waiting, in nanoseconds.
const RELIEF_NS: u64 = 10_000_000;

/// An engine that comes back to its work after so many nanoseconds was in a long call of the
/// driver.
const LONG_ROUND_NS: u64 = 5 * RELIEF_NS;

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            last_progress: 0,
            last_query: 0,
            queries: 0,
            last_relief: 0,
            crowd: None,
            last_said: 0,
            said_that_it_stands: false,
            silence: UnusualStandstill::longer_than(SHORTEST_SILENCE_NS),
        }
    }
}

impl Watch {
    /// Nanoseconds since the last progress.
    fn idle_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_progress)
    }

    /// True if a stream should be queried now.
    fn is_query_due(&self, now: u64, query_after_ns: u64) -> bool {
        self.idle_ns(now) > query_after_ns && now.saturating_sub(self.last_query) > query_after_ns
    }
}

/// Who runs an engine's round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The engine's own thread.
    Itself,
    /// A lane that carries it ([`super::carry`]).
    Lane,
}

/// How an engine's round has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// Something was done.
    Progress,
    /// Nothing was done, and the engine pauses.
    Idle(Pause),
    /// The engine's own thread goes on, because what comes may take long.
    Leaves,
    /// The engine ends.
    Ends,
    /// The engine hands over what it has to another one.
    HandsOver,
}

/// An engine with what it keeps between its rounds: whoever has it may run it.
pub(crate) struct Runner {
    engine: Engine,
    watch: Watch,
    /// Messages that were taken and are not handled yet.
    messages: Vec<Message>,
}

/// How long the engine's own thread waits for a lane that wants the engine.
const LANE_COMES_IN: Duration = Duration::from_micros(50);

impl Engine {
    /// The life of an engine's own thread: runs until [`Message::End`]. After a fault, all engines
    /// but the first hand their work over to that one, and their messages from then on.
    pub(crate) fn run(self, seat: &Seat<Runner>) {
        allow_short_sleeps();
        let (shared, number) = (self.shared.clone(), self.number);
        let _admitted = shared.biased_locks.then(admit);
        let mailbox = shared.mailboxes.of(number);
        mailbox.set_reader();
        let mut runner = Box::new(Runner { engine: self, watch: Watch::default(), messages: Vec::new() });
        loop {
            let round = runner.go_round(By::Itself);
            let may_be_carried = runner.engine.may_be_carried();
            let is_wanted = may_be_carried && seat.is_wanted();
            let longest = match round {
                Round::Ends => return runner.engine.end(),
                Round::HandsOver => return runner.engine.hand_over(),
                Round::Progress | Round::Leaves | Round::Idle(Pause::Spin) if is_wanted => Some(LANE_COMES_IN),
                Round::Progress | Round::Leaves => continue,
                Round::Idle(Pause::Spin) => {
                    std::hint::spin_loop();
                    continue;
                }
                Round::Idle(Pause::Nap(nap)) => Some(nap),
                Round::Idle(Pause::Sleep) => None,
            };
            if may_be_carried {
                runner = seat.rest(runner, mailbox, longest);
            } else {
                mailbox.sleep(longest);
            }
        }
    }

    /// True if a lane may run this engine's rounds. After a fault calls of the driver may wait
    /// until it is handled, and whatever an engine does then is its own thread's.
    fn may_be_carried(&self) -> bool {
        self.context_works() && self.evacuation.is_none() && !is_fault_announced()
    }
}

impl Runner {
    /// True if the engine has something to do before the next message comes.
    pub(super) fn goes_on(&self) -> bool {
        !self.messages.is_empty() || !self.engine.may_be_carried() || self.engine.waits() || self.watch.said_that_it_stands
    }

    /// Has the calling thread read the driver's locks without writing to them, if that is wanted.
    pub(super) fn admit(&self) -> Option<Admitted> {
        self.engine.shared.biased_locks.then(admit)
    }

    /// The engine's time, as it was read last, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.engine.streams.clock.now()
    }

    /// Reads the engine's time.
    pub(super) fn tick(&mut self) -> u64 {
        self.engine.streams.clock.tick();
        self.now()
    }

    /// One round: handles messages, submits, and reports what is complete.
    pub(super) fn go_round(&mut self, by: By) -> Round {
        let Runner { engine, watch, messages } = self;
        if by == By::Lane && !engine.may_be_carried() {
            return Round::Leaves;
        }
        engine.streams.clock.tick();
        let mut progress = false;
        if messages.is_empty() {
            engine.shared.mailboxes.of(engine.number).take_all(messages);
        }
        let of_lane = |messages: &[Message]| messages.iter().position(Message::is_for_own_thread);
        let until = if by == By::Lane { of_lane(messages) } else { None };
        for message in messages.drain(..until.unwrap_or(messages.len())) {
            progress = true;
            if matches!(message, Message::End) {
                return Round::Ends;
            }
            engine.handle_message(message);
        }
        if until.is_some() {
            return Round::Leaves;
        }
        if matches!(engine.context, ContextState::HandingOver(_)) {
            return Round::HandsOver;
        }
        if engine.is_faulted() {
            progress |= engine.continue_inquiry();
        } else if matches!(engine.context, ContextState::Finishing(_)) {
            progress |= engine.continue_finish();
        } else {
            progress |= engine.issue_ready();
            engine.long_work.begin_hold();
            progress |= engine.poll_completions();
            if !engine.orders.is_empty() {
                engine.serve_orders();
            }
            engine.finish_evacuation();
        }
        engine.answer_quiet();
        // The clock may have been read again since the round began.
        let now = engine.streams.clock.now();
        let since_relief = now.saturating_sub(watch.last_relief);
        if since_relief > RELIEF_NS {
            watch.last_relief = now;
            if let Some(pace) = &mut engine.pace {
                pace.tell(now, &engine.shared.counters, engine.shared.driver.submission_times());
            }
            engine.relieve_silent();
            engine.relieve_crowd(watch, now, since_relief < LONG_ROUND_NS);
        }
        // At once where nothing is in flight any more: this engine may sleep from now on.
        let is_over = watch.said_that_it_stands && !engine.streams.tracker.is_busy();
        if is_over || now.saturating_sub(watch.last_said) > SAY_NS {
            watch.last_said = now;
            watch.said_that_it_stands = engine.say_whether_work_stands(watch);
        }
        if progress {
            watch.last_progress = now;
            return Round::Progress;
        }
        // Work in flight in a broken context never completes.
        let in_flight = engine.streams.tracker.is_busy() && engine.context_works();
        if in_flight && watch.is_query_due(now, engine.shared.query_after_ns) {
            // A call that meets a fault may wait until that is handled.
            if by == By::Lane {
                return Round::Leaves;
            }
            watch.last_query = now;
            watch.queries += 1;
            engine.query_busy_stream(watch.queries);
        }
        Round::Idle(engine.pause_after(watch.idle_ns(now)))
    }
}

impl Engine {
    /// Notifies the thread that waits for a quiet card, if no long kernel of this engine runs.
    fn answer_quiet(&mut self) {
        let (works, streams) = (self.context_works(), &self.streams);
        self.long_work.answer_unless(|until| {
            works
                && match until {
                    Until::NothingLong => streams.tracker.runs_long(streams.clock.now()),
                    Until::NothingKnownLong => streams.tracker.runs_known_long(),
                }
        });
        self.long_work.answer_stop_unless(|| works && streams.tracker.runs_kernels());
    }

    /// Queries one of the driver streams with work in flight, another one each time. An error shows
    /// that the context is lost. If the stream is idle, its fences must have been reached.
    fn query_busy_stream(&mut self, round: usize) {
        let Some(slot) = self.streams.tracker.busy_slot(round) else { return };
        match self.shared.driver.is_idle(self.streams.tracker.slot(slot).stream()) {
            Ok(false) => {}
            // Nobody knows what an idle stream of a context is that has broken.
            Ok(true) if is_fault_announced() => {}
            Ok(true) => self.streams.tracker.note_idle(slot),
            Err(error) => self.declare_lost(error),
        }
    }

    /// Tells the other engines of the card whether work of this one stands still, which it returns,
    /// and notes whether the card does.
    fn say_whether_work_stands(&mut self, watch: &mut Watch) -> bool {
        let now = self.streams.clock.now();
        let stands = self.shared.mailboxes.len() > 1 && self.streams.tracker.stands_still(now, STANDS_STILL_NS);
        self.shared.standing.note(self.number, stands);
        let is_silent = watch.silence.look(self.streams.tracker.silent_ns(now));
        // The silence of this engine's work may be that of its clients alone.
        let moves = || self.shared.motion.moves(now, self.streams.tracker.longest_still_ns(now));
        self.withheld.note_silence(is_silent && self.streams.tracker.has_several() && !moves());
        stands
    }

    /// Has all other clients leave one of this engine whose kernel does not end, if they wait for
    /// their turn to print.
    fn relieve_silent(&self) {
        let Some(client) = self.printing.notice_blocker(self.shared.gate.patience()) else { return };
        let gate = self.shared.gate.clone();
        let leave = move || {
            if !gate.leave_beside(&BTreeSet::from([client])) {
                tracing::warn!(client, "a kernel that may print runs for long: those of others wait until it ends");
            }
        };
        // A thread of its own: the helpers may be waiting for kernels, that of printers for this
        // one.
        if let Err(error) = std::thread::Builder::new().name("cuda-print-turn".into()).spawn(leave) {
            tracing::warn!(client, %error, "a kernel that may print runs for long, and there is no thread to have others leave");
        }
    }

    /// Streams wait for a lane ([`crate::track::Lanes`]), and no work of those with one ends: has
    /// all others leave these. If that does not help, because nobody can leave or those who stay
    /// wait for one another, the limit is lifted. `looks`: this engine has looked at its work all
    /// the time, so that it would have seen some end.
    fn relieve_crowd(&self, watch: &mut Watch, now: u64, looks: bool) {
        if !self.streams.tracker.waits_for_lanes() || !self.context_works() || is_fault_announced() {
            watch.crowd = None;
            return;
        }
        let patience = u64::try_from(self.shared.gate.patience().as_nanos()).unwrap_or(u64::MAX);
        let crowd = watch.crowd.get_or_insert(Crowd { since: now, relief: Relief::Due });
        crowd.since = crowd.since.max(if looks { self.streams.tracker.lane_progress() } else { now });
        match &crowd.relief {
            _ if now.saturating_sub(crowd.since) < patience => {}
            Relief::Due => {
                let ((said, outcome), gate) = (crossbeam_channel::bounded(1), self.shared.gate.clone());
                // A thread of its own: the helpers may be waiting for kernels.
                let ask = move || {
                    let _ = said.send(gate.leave_where_stuck());
                };
                let asks = std::thread::Builder::new().name("cuda-crowd".into()).spawn(ask).is_ok();
                crowd.relief = if asks { Relief::Asked(outcome) } else { Relief::Had };
            }
            Relief::Asked(outcome) => {
                if let Ok(leave) = outcome.try_recv() {
                    // Who leaves takes some time to do so.
                    *crowd = Crowd { since: if leave { now } else { crowd.since }, relief: Relief::Had };
                }
            }
            Relief::Had => {
                crowd.since = now;
                self.shared.lanes.lift();
            }
        }
    }

    /// True if what is in flight or waits will end without a message.
    fn waits(&self) -> bool {
        // What is ready waits for others' work: for a lane, or for long kernels.
        self.streams.tracker.is_busy() || !self.streams.ready.is_empty() || self.withheld.holds() || self.is_evacuation_awaited()
    }

    /// How the engine pauses before the next round, as the polling policy says.
    fn pause_after(&self, idle_ns: u64) -> Pause {
        let in_flight = self.is_faulted() || (self.waits() && self.context_runs());
        self.shared.polling.pause(idle_ns, in_flight)
    }
}
