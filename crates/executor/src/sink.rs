//! Where the device reports: finds the session and passes the report on.

use crate::mailbox::{Mailboxes, Outbox};
use crate::session::{Session, Sessions};
use crate::shared::Shared;
use cumux_device::{Begun, Channel, ClientId, Fault, Outcome, Report, Sink, StreamId};
use cumux_environment::steps::{self, Step};
use cumux_wire::message::FromExecutor;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Exit status of an executor whose device is lost.
const DEVICE_LOST: i32 = 70;

/// How long a session's last reports wait for who holds its lock, and the server for the last
/// messages, when the process ends.
const LAST_REPORTS_TIMEOUT: Duration = Duration::from_millis(100);

/// How long this process stays when it has told that its device is lost. Its end keeps the driver
/// busy, and each mapping that the successor makes meanwhile takes 20 ms instead of 0.5.
const TAKEOVER_FIRST: Duration = Duration::from_millis(250);

/// How long a session that is to leave waits for who holds its lock.
const DEPARTURE_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Reports {
    sessions: Sessions,
    mailboxes: Arc<Mailboxes>,
    outbox: Arc<Outbox>,
    /// Those who look at the rings of sessions, and whether these can go on elsewhere; none before
    /// they have started.
    lanes: OnceLock<(Arc<dyn IntakeLanes>, Leaving)>,
    /// Clients whose recipes are to be kept, and what is needed for that.
    recipes: Arc<Mutex<BTreeSet<ClientId>>>,
    shared: OnceLock<Weak<Shared>>,
    /// Who stays, who is being opened and who is late while clients leave.
    parting: Arc<Mutex<Parting>>,
    /// Held from the first to the last step of having clients leave: whoever is told who stays may
    /// take all others for departed.
    leaving: Mutex<()>,
    /// Held while the last reports are delivered: another thread's clients must not leave while
    /// this one has their reports in its hands.
    delivering: Mutex<()>,
    /// Set once clients have left or are to leave: this executor takes no others.
    apart: OnceLock<()>,
    /// Set once the device is lost.
    lost: OnceLock<()>,
    /// Set once a client was told that its work broke the device.
    blamed: OnceLock<()>,
}

/// What is known of clients that leave for another process.
#[derive(Default)]
struct Parting {
    /// Those who do not leave; none before the first leave.
    staying: Option<BTreeSet<ClientId>>,
    /// What of those who leave may have been begun.
    begun: Option<Begun>,
    /// Those who are being opened here. No other executor may open them before that is over.
    opening: BTreeSet<ClientId>,
    /// Those who are to leave, and are in a call.
    late: BTreeSet<ClientId>,
}

impl Parting {
    /// All but these leave; of their work this may have been begun. Who has left before stays away.
    fn note(&mut self, staying: &BTreeSet<ClientId>, begun: &Begun) {
        self.staying = Some(self.staying.take().map_or_else(|| staying.clone(), |before| &before & staying));
        self.begun = Some(match (self.begun.take(), begun) {
            (None, begun) => begun.clone(),
            (Some(Begun::Only(mut before)), Begun::Only(more)) => {
                before.extend(more);
                Begun::Only(before)
            }
            (Some(_), _) => Begun::Unknown,
        });
    }
}

/// Tells the server who is still here: not those that have moved meanwhile.
fn tell_who_stays(sessions: &Sessions, parting: &Mutex<Parting>, outbox: &Outbox) {
    // Held until it is said: who moves is removed first, and said to have moved then.
    let here = sessions.read();
    let parting = parting.lock();
    let stays = parting.staying.iter().flatten().chain(&parting.late).filter(|client| here.contains_key(client));
    let staying: BTreeSet<ClientId> = stays.chain(&parting.opening).copied().collect();
    outbox.put(FromExecutor::Occupied { staying: staying.into_iter().collect() });
}

/// Whether clients can leave for another process while this one goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// They can.
    Possible,
    /// The device serves one process alone.
    Impossible,
}

/// Those who look at the rings of sessions.
pub trait IntakeLanes: Send + Sync {
    /// The ring of this session is not looked at any more.
    fn leave(&self, client: ClientId);
    /// Returns when nobody touches the sessions that have left.
    fn settle(&self);
}

impl Reports {
    #[must_use]
    pub fn new(sessions: Sessions, mailboxes: Arc<Mailboxes>, outbox: Arc<Outbox>) -> Self {
        Self {
            sessions,
            mailboxes,
            outbox,
            lanes: OnceLock::new(),
            recipes: Arc::default(),
            shared: OnceLock::new(),
            parting: Arc::default(),
            leaving: Mutex::default(),
            delivering: Mutex::default(),
            apart: OnceLock::new(),
            lost: OnceLock::new(),
            blamed: OnceLock::new(),
        }
    }

    /// Whether clients have left or are to leave, so that this executor takes no others.
    pub fn is_apart(&self) -> bool {
        self.apart.get().is_some()
    }

    /// Whether the device is lost. Such a process has nothing to put in order.
    pub fn has_lost_device(&self) -> bool {
        self.lost.get().is_some()
    }

    /// A session is about to be opened. False if this executor takes no others.
    pub fn begin_opening(&self, client: ClientId) -> bool {
        let mut parting = self.parting.lock();
        !self.is_apart() && parting.opening.insert(client)
    }

    /// A session has been opened, or was not. If all have left meanwhile, it leaves now.
    pub fn end_opening(&self, client: ClientId) {
        let _alone = self.leaving.lock();
        let session = self.sessions.read().get(&client).cloned();
        let begun = {
            let mut parting = self.parting.lock();
            parting.opening.remove(&client);
            if parting.staying.as_ref().is_none_or(|staying| staying.contains(&client)) {
                return;
            }
            if session.is_some() {
                parting.late.insert(client);
            }
            parting.begun.clone().unwrap_or(Begun::Unknown)
        };
        let Some((lanes, _)) = self.lanes.get() else { return };
        match session {
            Some(session) => {
                self.deliver_last_reports();
                self.latecomers(lanes, vec![session], begun).follow();
            }
            None => tell_who_stays(&self.sessions, &self.parting, &self.outbox),
        }
    }

    fn latecomers(&self, lanes: &Arc<dyn IntakeLanes>, late: Vec<Arc<Session>>, begun: Begun) -> Latecomers {
        let (outbox, sessions, parting) = (self.outbox.clone(), self.sessions.clone(), self.parting.clone());
        Latecomers { late, begun, lanes: lanes.clone(), outbox, sessions, parting }
    }

    /// From now on this executor takes no others.
    pub fn retire(&self) {
        let _ = self.apart.set(());
    }

    /// From now on the recipes of clients are kept.
    pub fn set_shared(&self, shared: &Arc<Shared>) {
        let _ = self.shared.set(Arc::downgrade(shared));
    }

    /// From now on these deliver reports, too, and clients leave through them.
    pub fn set_lanes(&self, lanes: Arc<dyn IntakeLanes>, leaving: Leaving) {
        let _ = self.lanes.set((lanes, leaving));
    }

    /// Delivers all that the device has reported before clients leave. A lane may have taken
    /// reports and not delivered them yet; work whose end is not written down is done again by the
    /// next executor.
    fn deliver_last_reports(&self) {
        let _alone = self.delivering.lock();
        deliver(&self.sessions, &mut self.mailboxes.rest());
        if let Some((lanes, _)) = self.lanes.get() {
            lanes.settle();
        }
        deliver(&self.sessions, &mut self.mailboxes.rest());
    }
}

/// Sessions that are to leave, and are in a call. Nothing of theirs is begun here any more, so they
/// must not stay; the call may be one that waits for this departure.
struct Latecomers {
    late: Vec<Arc<Session>>,
    begun: Begun,
    lanes: Arc<dyn IntakeLanes>,
    outbox: Arc<Outbox>,
    sessions: Sessions,
    parting: Arc<Mutex<Parting>>,
}

impl Latecomers {
    /// Has them leave when they can, by a thread that looks again and again.
    fn follow(mut self) {
        if self.late.is_empty() {
            return;
        }
        let follow = move || {
            let mut departed = Vec::new();
            while !self.late.is_empty() {
                let before = self.late.len();
                self.late.retain(|session| {
                    let has_left = session.depart(DEPARTURE_TIMEOUT, &self.begun);
                    if has_left {
                        self.lanes.leave(session.client());
                        departed.push(session.client());
                    }
                    !has_left
                });
                if self.late.len() < before {
                    self.lanes.settle();
                    self.parting.lock().late.retain(|client| !departed.contains(client));
                    departed.clear();
                    tell_who_stays(&self.sessions, &self.parting, &self.outbox);
                }
            }
        };
        if std::thread::Builder::new().name("latecomers".into()).spawn(follow).is_err() {
            tracing::error!("no thread for sessions that are in a call: they go on elsewhere when this executor ends");
        }
    }
}

/// Ends a process whose device is lost. The orderly end of one with a broken context takes most of
/// a second, and may wait for what the driver still does about the fault.
pub fn end_at_once() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::exit(DEVICE_LOST);
}

/// Gives reports to their sessions: one lock for those of one client that follow each other.
pub fn deliver(sessions: &Sessions, reports: &mut Vec<Report>) {
    deliver_to(|client| sessions.read().get(&client).cloned(), reports);
}

/// As [`deliver`], with sessions that the calling thread has at hand. If one is missing, all
/// reports stay in the list.
pub fn deliver_at_hand(at_hand: &[Arc<Session>], reports: &mut Vec<Report>) {
    let session_of = |client: ClientId| at_hand.iter().find(|session| session.client() == client);
    if reports.iter().all(|report| session_of(report.client).is_some()) {
        deliver_to(session_of, reports);
    }
}

fn deliver_to<S: AsRef<Session>>(session_of: impl Fn(ClientId) -> Option<S>, reports: &mut Vec<Report>) {
    let mut reports = reports.drain(..).peekable();
    while let Some(client) = reports.peek().map(|report| report.client) {
        let session = session_of(client);
        let own = std::iter::from_fn(|| reports.next_if(|r| r.client == client)).map(|r| (r.stream, r.token, r.outcome));
        match session {
            Some(session) => session.as_ref().retired(own),
            None => own.for_each(drop),
        }
    }
}

impl Sink for Reports {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        let session = self.sessions.read().get(&client).cloned();
        if let Some(session) = session {
            session.retired([(stream, token, outcome)]);
        }
    }

    /// Left to the intake threads that are awake: one lock for all of them, and nothing that those
    /// touch all the time. The others' take one lock and one wake for each client.
    fn retired_all(&self, reports: &mut Vec<Report>) {
        if !self.mailboxes.leave_reports(reports) {
            // Stable: the order within a stream stays.
            reports.sort_by_key(|report| report.client);
            deliver(&self.sessions, reports);
        }
    }

    /// Those of several are kept together: while some are written down, others come.
    fn chains_made(&self, clients: &[ClientId]) {
        let Some(shared) = self.shared.get().and_then(Weak::upgrade) else { return };
        let is_under_way = {
            let mut waiting = self.recipes.lock();
            let is_under_way = !waiting.is_empty();
            waiting.extend(clients);
            is_under_way
        };
        if is_under_way {
            return;
        }
        let (waiting, sessions, keeping) = (self.recipes.clone(), self.sessions.clone(), shared.clone());
        let keep = move || {
            let clients = std::mem::take(&mut *waiting.lock());
            keeping.keep_recipes(clients.into_iter(), |client| sessions.read().contains_key(&client));
        };
        if !shared.workers.run_soon(keep) {
            // The next ones are tried again.
            self.recipes.lock().clear();
        }
    }

    /// Only of an executor that serves: the driver makes a debugger of its own for each context.
    fn fault_noticed(&self) {
        if self.lanes.get().is_some() {
            self.outbox.put(FromExecutor::FaultNoticed);
        }
    }

    fn faulted(&self, client: ClientId, fault: &Fault) {
        let session = self.sessions.read().get(&client).cloned();
        if let Some(session) = session {
            session.lock_then_deliver(|inner| session.fault(inner, fault));
            let _ = self.blamed.set(());
        }
    }

    fn dumped(&self, clients: &[ClientId], dump: OwnedFd) {
        self.outbox.put_with(FromExecutor::CoreDump { sessions: clients.to_vec() }, vec![Arc::new(dump)]);
    }

    /// Whether there is anybody who could go on elsewhere, and an elsewhere.
    fn occupied(&self, by: &BTreeSet<ClientId>) -> bool {
        let can_leave = self.lanes.get().is_some_and(|(_, leaving)| *leaving == Leaving::Possible);
        can_leave && self.sessions.read().keys().any(|client| !by.contains(client))
    }

    /// Those who leave are their next executor's from now on: nothing of them is touched any more.
    fn let_go(&self, staying: &BTreeSet<ClientId>, begun: Begun) {
        let Some((lanes, Leaving::Possible)) = self.lanes.get() else { return };
        let _ = self.apart.set(());
        let _alone = self.leaving.lock();
        steps::pass(Step::EvacuationBegun);
        let (staying, opening) = {
            let mut parting = self.parting.lock();
            parting.note(staying, &begun);
            (parting.staying.clone().unwrap_or_default(), parting.opening.clone())
        };
        self.deliver_last_reports();
        // One that is being opened leaves when that is over ([`Reports::end_opening`]). The thread
        // that opens it has its lock, and may be the one that is here.
        let leaves = |session: &&Arc<Session>| !staying.contains(&session.client()) && session.is_opened() && !opening.contains(&session.client());
        let leaving: Vec<_> = self.sessions.read().values().filter(leaves).cloned().collect();
        tracing::warn!("work of clients {staying:?} does not end: {} other clients go on in another process", leaving.len());
        let mut late = Vec::new();
        for session in leaving {
            if session.depart(DEPARTURE_TIMEOUT, &begun) {
                lanes.leave(session.client());
            } else {
                tracing::warn!("session {} is in a call that takes long: it leaves later", session.client());
                self.parting.lock().late.insert(session.client());
                late.push(session);
            }
        }
        // A lane that slept may still write into the pages of those that have left.
        lanes.settle();
        steps::pass(Step::EvacuationDone);
        tell_who_stays(&self.sessions, &self.parting, &self.outbox);
        self.latecomers(lanes, late, begun).follow();
    }

    /// A lost device cannot be mended in this process. What was accepted is in the journals; the
    /// server starts a successor.
    fn lost(&self, why: &str, begun: Begun) {
        tracing::error!("the device is lost: {why}; this executor ends and another takes over");
        steps::pass(Step::LossHeard);
        let _ = self.lost.set(());
        // It opens no session any more.
        let _ = self.apart.set(());
        // What was over counts, and the culprit's error is the server's to know, too.
        self.deliver_last_reports();
        let sessions: Vec<_> = self.sessions.read().values().cloned().collect();
        let departed = sessions.iter().filter(|session| session.depart_from_loss(LAST_REPORTS_TIMEOUT, &begun)).count();
        // The successor writes into the pages from now on.
        if let Some((lanes, _)) = self.lanes.get() {
            sessions.iter().for_each(|session| lanes.leave(session.client()));
            lanes.settle();
        }
        steps::pass(Step::LossDeparted);
        self.outbox.put(FromExecutor::DeviceLost { why: why.to_owned(), blamed: self.blamed.get().is_some() });
        self.outbox.flush(LAST_REPORTS_TIMEOUT);
        steps::pass(Step::LossTold);
        if departed == sessions.len() {
            std::thread::sleep(TAKEOVER_FIRST);
        }
        end_at_once();
    }

    fn text(&self, client: ClientId, channel: Channel, text: &[u8]) {
        let session = self.sessions.read().get(&client).cloned();
        if let Some(session) = session {
            session.text(channel, text);
        }
    }
}
