//! The intake threads: each looks at the rings of its clients in turn, and sleeps on their
//! doorbells when there is nothing.
//!
//! A client belongs to one lane, so its records are taken by one thread, in order. A lane may carry
//! what a thread of the device would do for its clients ([`cumux_device::Queues::carry`]). Sleeping
//! never misses a push: a lane announces itself in every page, looks at every ring once more, and
//! only then sleeps. It looks for a while before it announces itself, where cores are free for
//! that.

use crate::error::ExecutorError;
use crate::session::{Session, Sessions};
use crate::shared::Shared;
use crate::sink::{self, IntakeLanes};
use cumux_device::Carried;
use cumux_environment::number_or_none;
use cumux_link::pulse;
use cumux_ring::awake::Count;
use cumux_ring::polling;
use cumux_wire::threads::ServiceThreads;
use rustix::event::epoll;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How often a stream that waits for a value in memory is looked at.
const VALUE_POLL: Duration = Duration::from_micros(200);
const BELL: u64 = 0;
/// How long lanes may take to forget sessions that have left, and how often they are looked at.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
const SETTLE_POLL: Duration = Duration::from_micros(200);
/// Looks at all rings before the order is computed anew.
const ROUNDS: u32 = 16;
/// How often a lane that sleeps looks whether a trial is over.
const TRIAL_POLL: Duration = Duration::from_millis(20);

/// Lanes for this machine; `CUMUX_INTAKE_LANES` overrides it for measuring.
#[must_use]
pub fn lanes() -> usize {
    let usual = || ServiceThreads::on(u32::try_from(polling::cores()).unwrap_or(u32::MAX)).lanes as usize;
    number_or_none("CUMUX_INTAKE_LANES").map_or_else(usual, |n| (n as usize).clamp(1, 64))
}

/// How long a lane looks before it sleeps: where nothing is under way, and where something is.
/// `CUMUX_INTAKE_SPIN_US` overrides both for measuring. A push or a report that comes meanwhile
/// needs no waking.
fn look_before_sleep(needs_cores: bool) -> [Duration; 2] {
    let cores = polling::cores();
    let idle = polling::service_limit(cores, Duration::ZERO);
    let usual = || [idle, if needs_cores { idle } else { polling::service_limit_with_work(cores, Duration::ZERO) }];
    number_or_none("CUMUX_INTAKE_SPIN_US").map_or_else(usual, |asked| [Duration::from_micros(asked); 2])
}

pub struct Intake {
    sessions: Sessions,
    shared: Arc<Shared>,
    /// One for each lane.
    polls: Vec<OwnedFd>,
    /// Grows when sessions come and go.
    changes: Count,
    /// Each lane raises its own before it does a round of the device's work, and after it, so that
    /// it is odd meanwhile. A call of the driver may keep it there: that is the device's to judge.
    beats: Vec<Count>,
    /// The thread of each lane.
    threads: Vec<OnceLock<ThreadId>>,
    /// A lane that sleeps comes round so often; none where nobody counts.
    beat_every: Option<Duration>,
}

/// Whether a lane with this count does a round of the device's work.
const fn is_carrying(beats: u64) -> bool {
    !beats.is_multiple_of(2)
}

/// Whether all lanes but the caller's own have come round since they had these counts: a lane has
/// done its round of the device's work, or does it now, and computes its sessions anew before it
/// touches one.
fn have_come_round(before: &[u64], now: &[u64], own: Option<usize>) -> bool {
    let has = |(lane, (before, now)): (usize, (&u64, &u64))| own == Some(lane) || is_carrying(*now) || now.wrapping_sub(*before) >= 2;
    before.iter().zip(now).enumerate().all(has)
}

/// What the server is told of how often lanes have come round. One that the device keeps in its
/// work counts on: the device itself gives up where that does not come back.
#[derive(Default)]
pub struct Beats {
    added: Vec<u64>,
}

impl Beats {
    /// What to tell now.
    pub fn of(&mut self, intake: &Intake) -> Vec<u64> {
        self.add(&intake.beats())
    }

    fn add(&mut self, beats: &[u64]) -> Vec<u64> {
        self.added.resize(beats.len(), 0);
        let add = |(beats, added): (&u64, &mut u64)| {
            *added += u64::from(is_carrying(*beats));
            beats.wrapping_add(*added)
        };
        beats.iter().zip(&mut self.added).map(add).collect()
    }
}

impl Intake {
    /// # Errors
    /// When the kernel has no epoll for us.
    pub fn new(sessions: Sessions, shared: Arc<Shared>) -> Result<Arc<Self>, ExecutorError> {
        let mut polls = Vec::new();
        for bell in shared.bells() {
            let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&poll, bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
            polls.push(poll);
        }
        let beats = polls.iter().map(|_| Count::default()).collect();
        let threads = polls.iter().map(|_| OnceLock::new()).collect();
        let beat_every = pulse::limit().map(pulse::interval);
        Ok(Arc::new(Self { sessions, shared, polls, changes: Count::default(), beats, threads, beat_every }))
    }

    /// The counts of the lanes: twice how often each has come round.
    #[must_use]
    pub fn beats(&self) -> Vec<u64> {
        self.beats.iter().map(Count::get).collect()
    }

    /// How often the server is told; none where it does not want to know.
    #[must_use]
    pub fn beat_every(&self) -> Option<Duration> {
        self.beat_every
    }

    /// Starts a thread for each lane.
    ///
    /// # Errors
    /// When the system has no threads for us.
    pub fn start(self: &Arc<Self>) -> Result<(), ExecutorError> {
        for lane in 0..self.polls.len() {
            let intake = self.clone();
            let started = std::thread::Builder::new().name(format!("intake-{lane}")).spawn(move || intake.run(lane));
            started.map_err(|_| rustix::io::Errno::AGAIN)?;
        }
        Ok(())
    }

    fn poll_of(&self, client: u32) -> &OwnedFd {
        &self.polls[self.shared.mailboxes.lane_of(client)]
    }

    /// From now on the session is looked at.
    ///
    /// # Errors
    /// When the doorbell cannot be watched.
    pub fn add(&self, session: &Arc<Session>) -> Result<(), ExecutorError> {
        let client = session.client();
        epoll::add(self.poll_of(client), session.doorbell(), epoll::EventData::new_u64(u64::from(client)), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        self.sessions.write().insert(client, session.clone());
        self.tell();
        self.changes.add();
        self.shared.wake_intake(client);
        Ok(())
    }

    /// Tells everybody how many there are. Not beside a device that needs every processor
    /// that waiting clients would look on.
    fn tell(&self) {
        if self.shared.cards.capabilities().needs_cores {
            return;
        }
        let sessions = self.sessions.read();
        let count = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
        sessions.values().for_each(|session| session.service.set_company(count));
    }

    /// The session is no longer looked at.
    pub fn remove(&self, client: u32) -> Option<Arc<Session>> {
        let session = self.sessions.write().remove(&client)?;
        self.tell();
        self.changes.add();
        let _ = epoll::delete(self.poll_of(client), session.doorbell());
        self.shared.mailboxes.release(client);
        Some(session)
    }

    #[must_use]
    pub fn has(&self, client: u32) -> bool {
        self.sessions.read().contains_key(&client)
    }

    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// Wakes all lanes, and waits until each has forgotten the sessions that were removed.
    pub fn settle_lanes(&self) {
        let until = Instant::now() + SETTLE_TIMEOUT;
        let before = self.beats();
        // Who asks may be a lane in a call of the device: it comes round when this has returned.
        let own = std::thread::current().id();
        let own = self.threads.iter().position(|thread| thread.get() == Some(&own));
        while !have_come_round(&before, &self.beats(), own) && Instant::now() < until {
            (0..self.polls.len()).for_each(|lane| self.shared.wake_lane(lane));
            std::thread::sleep(SETTLE_POLL);
        }
    }

    /// The life of one lane's thread.
    fn run(&self, lane: usize) {
        let _ = self.threads[lane].set(std::thread::current().id());
        let mut events = Vec::with_capacity(64);
        let [look, look_with_work] = look_before_sleep(self.shared.cards.capabilities().needs_cores);
        let mailboxes = &*self.shared.mailboxes;
        let awake = mailboxes.lane_awake(lane);
        awake.set(true);
        // Since when nothing has moved.
        let mut still_since = None;
        let (mut sessions, mut round, mut known) = (Vec::new(), 0_u32, u64::MAX);
        let (mut reports, mut seen) = (Vec::new(), 0);
        // Work is likely to come: what is carried then needs no other thread woken.
        let mut is_woken = false;
        loop {
            // Whose turn it is changes slowly beside a look at the rings.
            let changed = self.changes.get();
            if round.is_multiple_of(ROUNDS) || changed != known {
                known = changed;
                self.in_order(lane, &mut sessions);
                self.go_on_with_trials();
            }
            round = round.wrapping_add(1);
            let mut moved = false;
            // Between two sessions as well: a turn of one of them takes as long as a short kernel.
            let mut deliver = |sessions: &[Arc<Session>]| {
                let has_any = mailboxes.take_reports(lane, &mut seen, &mut reports);
                // Who came since the list was made is in the other one: this count rises before
                // anything of it can be reported.
                if has_any && self.changes.get() == known {
                    sink::deliver_at_hand(sessions, &mut reports);
                }
                sink::deliver(&self.sessions, &mut reports);
                has_any
            };
            for session in &sessions {
                moved |= deliver(&sessions);
                moved |= session.intake();
            }
            moved |= deliver(&sessions);
            self.beats[lane].add();
            moved |= self.shared.cards.carry(lane, moved || is_woken) == Carried::Progress;
            self.beats[lane].add();
            is_woken = false;
            // The list is an old one: nothing of it is touched any more.
            if moved || self.changes.get() != known {
                still_since = None;
                continue;
            }
            let still = still_since.get_or_insert_with(Instant::now).elapsed();
            if !sessions.is_empty() && (still < look || still < look_with_work && sessions.iter().any(|session| session.has_work())) {
                std::hint::spin_loop();
                continue;
            }
            self.shared.cards.put_down();
            awake.set(false);
            self.in_order(lane, &mut sessions);
            for session in &sessions {
                session.service.set_sleeping(true);
            }
            if !mailboxes.has(lane) && !sessions.iter().any(|s| s.has_more()) {
                let value = sessions.iter().any(|s| s.polls()).then_some(VALUE_POLL);
                let trial = (!self.shared.trials.lock().is_over()).then_some(TRIAL_POLL);
                let timeout = [value, trial, self.beat_every].into_iter().flatten().min();
                let timeout = timeout.and_then(|t| rustix::fs::Timespec::try_from(t).ok());
                events.clear();
                let _ = epoll::wait(&self.polls[lane], rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
                for event in &events {
                    self.silence(lane, event.data.u64());
                }
            }
            awake.set(true);
            for session in &sessions {
                session.service.set_sleeping(false);
            }
            round = 0;
            is_woken = true;
            still_since = None;
        }
    }

    /// Ends a trial that is over, and begins the next one.
    fn go_on_with_trials(&self) {
        // Another lane that is at it may wait for a session.
        let Some(mut trials) = self.shared.trials.try_lock() else { return };
        if trials.is_over() {
            return;
        }
        self.shared.cards.put_down();
        let now = Instant::now();
        let session = |client: u32| self.sessions.read().get(&client).cloned();
        if let Some((client, until)) = trials.current {
            if session(client).is_some_and(|session| !session.is_tried(now >= until)) {
                return;
            }
            trials.current = None;
        }
        while let Some((client, leads)) = trials.next(now) {
            if let Some(session) = session(client) {
                session.end_hold(leads);
                return;
            }
        }
    }

    /// The sessions of a lane in the order of the fair queue.
    fn in_order(&self, lane: usize, sessions: &mut Vec<Arc<Session>>) {
        let order = self.shared.fair_queues.order(lane);
        let all = self.sessions.read();
        sessions.clear();
        sessions.extend(order.iter().filter_map(|client| all.get(client).cloned()));
    }

    /// Resets our own bell if it has rung. A client's doorbell is never read: each ring is an edge.
    /// The client has the same open file, so it could make a read wait, and all clients with it.
    fn silence(&self, lane: usize, source: u64) {
        if source == BELL
            && let Some(bell) = self.shared.bells().nth(lane)
        {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }
}

impl IntakeLanes for Intake {
    fn leave(&self, client: u32) {
        self.remove(client);
    }

    fn settle(&self) {
        self.settle_lanes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_the_device_keeps_counts_on_and_one_that_hangs_does_not() {
        let mut beats = Beats::default();
        let told: Vec<_> = (0..3).map(|_| beats.add(&[6, 7])).collect();
        assert_eq!(told, [[6, 8], [6, 9], [6, 10]]);
        assert_eq!(beats.add(&[8, 8]), [8, 11], "it never goes back");
    }

    #[test]
    fn a_lane_that_asks_does_not_wait_for_itself_nor_for_one_in_the_devices_work() {
        assert!(!have_come_round(&[6, 6], &[6, 8], None), "the first one may have its old list");
        assert!(!have_come_round(&[7, 6], &[8, 8], None), "it has not looked yet whether its list is old");
        assert!(have_come_round(&[6, u64::MAX - 1], &[8, 0], None) && have_come_round(&[6, 6], &[7, 8], None));
        assert!(have_come_round(&[6, 6], &[6, 8], Some(0)) && !have_come_round(&[6, 6], &[8, 6], Some(0)));
    }
}
