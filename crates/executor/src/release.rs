//! Letting go of one session, which goes on in another executor while this one serves the others.
//!
//! The session is *paused*: no records are taken from its ring, what was accepted goes on. When its
//! streams are empty everything that the client has is in journal and keeper, nothing of it is with
//! the device, and the next executor opens it as after a takeover, with nothing in doubt. Where
//! that moment does not come in time the session goes on here, and the server hears why.
//!
//! A session that nobody waits for is watched before it is paused: most have a moment without work
//! by themselves. One whose work would not end within the pause is not paused at all.
//!
//! Its addresses stay taken here as long as the client lives, so that it can come back.

use crate::intake::Intake;
use crate::orders::Addresses;
use crate::session::{Inner, Session};
use crate::shared::Shared;
use cumux_environment::steps::{self, Step};
use cumux_wire::message::{ClientStatus, FromExecutor};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a paused session is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// A session that nobody waits for is watched for so long, and looked at so often.
const WATCH: Duration = Duration::from_secs(1);
const WATCH_EVERY: Duration = Duration::from_millis(1);
/// Work that has not moved for so long stands still.
const STILL: Duration = Duration::from_millis(50);

/// On which terms a session leaves.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How long it may be paused.
    pub wait: Duration,
    /// Nobody waits: it is paused only where its work is about to end.
    pub unless_still: bool,
}

/// Why a session cannot leave now.
#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error("its work has not moved for {} ms ({pieces} pieces are under way): try again when its kernel has ended", STILL.as_millis())]
    Still { pieces: u64 },
    #[error("its streams have work for about {ms} ms ({pieces} pieces), and it is not paused for so long: try again when they are empty")]
    Long { pieces: u64, ms: u128 },
    #[error("its streams were not empty within {ms} ms ({what}): try again when they are")]
    Busy { ms: u128, what: String },
    #[error("it would end with an error, because of a module of it: {0}. Stop it, and start it again where it is to be")]
    NotResumable(String),
    #[error("it has {0} on the card, which only this executor's driver knows: try again when they are destroyed")]
    HasTextures(String),
    #[error("it has more objects than its journal holds, so that no other executor can know them all")]
    Unlogged,
    #[error("it shares memory with other clients of its executor (cuIpcGetMemHandle, cuMemExportToShareableHandle): try again when that is closed")]
    SharesMemory,
    #[error("there is no keeper at the moment, which holds its memory between two executors: try again")]
    NoKeeper,
    #[error("it has ended, or its executor is about to end")]
    Over,
}

/// Lets go of a session, and tells the server.
pub fn release(shared: &Shared, intake: &Intake, session: &Arc<Session>, terms: &Terms) {
    let client = session.client();
    if let Err(Stay { error, paused }) = leave(session, terms) {
        let status = Box::new(ClientStatus { session: client, ..ClientStatus::default() });
        let paused_us = u64::try_from(paused.as_micros()).unwrap_or(u64::MAX);
        let lasting = matches!(error, ReleaseError::NotResumable(_) | ReleaseError::HasTextures(_) | ReleaseError::Unlogged);
        return shared.report(FromExecutor::Released { error: error.to_string(), status, paused_us, lasting });
    }
    steps::pass(Step::MoveLeft);
    let closed = session.close_with(Addresses::Kept);
    if intake.remove(client).is_none() {
        // The client has gone meanwhile, and was detached.
        shared.free_addresses(client);
    }
    // A lane that slept may still write into its page.
    intake.settle_lanes();
    let status = closed.unwrap_or_else(|error| {
        tracing::error!("session {client} has left, and did not close cleanly: {error}");
        session.status()
    });
    session.lock_then_deliver(|inner| session.note_departure(inner));
    steps::pass(Step::MoveClosed);
    shared.report(FromExecutor::Released { error: String::new(), status: Box::new(status), paused_us: 0, lasting: false });
    steps::pass(Step::MoveTold);
}

/// A session stays.
#[derive(Debug)]
struct Stay {
    error: ReleaseError,
    /// How long it took no records.
    paused: Duration,
}

impl From<ReleaseError> for Stay {
    fn from(error: ReleaseError) -> Self {
        Self { error, paused: Duration::ZERO }
    }
}

/// Waits for the moment at which its streams are empty. Nobody touches it any more when this
/// returns without an error.
fn leave(session: &Arc<Session>, terms: &Terms) -> Result<(), Stay> {
    if terms.unless_still {
        watch(session, terms.wait)?;
    }
    let begun = Instant::now();
    loop {
        let late = begun.elapsed() >= terms.wait;
        let step = session.lock_then_deliver(|inner| step(session, inner, late.then_some(terms.wait)));
        match step {
            Ok(true) => return Ok(()),
            Ok(false) => std::thread::sleep(LOOK_EVERY),
            Err(error) => {
                session.service.notify();
                session.shared.wake_intake(session.client());
                return Err(Stay { error, paused: begun.elapsed() });
            }
        }
    }
}

/// Looks at a session without pausing it, until it has no work or is about to have none.
///
/// # Errors
/// Its work would not end within the pause, as far as that can be known.
fn watch(session: &Session, pause: Duration) -> Result<(), ReleaseError> {
    let look = || session.lock_then_deliver(|inner| (work_under_way(inner).is_none(), inner.status.in_flight, inner.status.kernels + inner.status.copies));
    let (_, _, first) = look();
    let begun = Instant::now();
    loop {
        let (is_idle, pieces, done) = look();
        let watched = begun.elapsed();
        if is_idle {
            return Ok(());
        }
        match u32::try_from(done.saturating_sub(first)).unwrap_or(u32::MAX) {
            0 if watched >= STILL => return Err(ReleaseError::Still { pieces }),
            0 => {}
            ended if watched >= WATCH => {
                let rest = (watched / ended).saturating_mul(u32::try_from(pieces).unwrap_or(u32::MAX));
                return if rest <= pause { Ok(()) } else { Err(ReleaseError::Long { pieces, ms: rest.as_millis() }) };
            }
            _ => {}
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

/// Pauses the session, and lets it go if nothing of it is under way. Whether it has left. `waited`
/// is how long it was paused in vain: then it stays.
fn step(session: &Session, inner: &mut Inner, waited: Option<Duration>) -> Result<bool, ReleaseError> {
    if inner.phase.is_closed() || inner.phase.is_elsewhere() {
        return Err(ReleaseError::Over);
    }
    inner.go_on();
    if let Some(reading) = inner.phase.as_reading() {
        reading.pause();
        steps::pass(Step::MovePaused);
    }
    let refusal = match (under_way(inner), waited) {
        (None, _) => match what_would_be_lost(session, inner) {
            None => match inner.phase.as_paused() {
                Some(paused) => {
                    paused.depart();
                    return Ok(true);
                }
                None => ReleaseError::Over,
            },
            Some(why) => why,
        },
        (Some(_), None) => return Ok(false),
        (Some(what), Some(waited)) => ReleaseError::Busy { ms: waited.as_millis(), what },
    };
    if let Some(paused) = inner.phase.as_paused() {
        paused.resume();
    }
    Err(refusal)
}

/// What of a session is under way; none where its next executor finds everything in journal and
/// keeper.
fn under_way(inner: &mut Inner) -> Option<String> {
    // A slow operation is under way, or its records are not read at all.
    let why = "a slow call is under way, a module that is being loaded for example, or its records are not read";
    work_under_way(inner).or_else(|| inner.phase.as_paused().is_none().then(|| why.to_owned()))
}

/// As [`under_way`], without what is known only of a session that is paused.
fn work_under_way(inner: &Inner) -> Option<String> {
    if !inner.queues.parked.is_empty() {
        return Some("a stream waits for a host function or for a value in memory".to_owned());
    }
    let pieces: usize = inner.queues.streams.values().filter(|stream| !stream.is_idle()).count();
    if pieces > 0 {
        return Some(format!("{pieces} streams have work"));
    }
    if !inner.queues.barriers.is_empty() || !inner.lists.touched.is_empty() {
        return Some("a call waits for work before it".to_owned());
    }
    if !inner.trial.is_empty() {
        return Some("its work is being tried, because executors have ended over it".to_owned());
    }
    if inner.text.iter().any(|text| !text.is_empty()) {
        return Some("it has not read what its kernels have printed".to_owned());
    }
    None
}

/// What another executor could not make anew.
fn what_would_be_lost(session: &Session, inner: &Inner) -> Option<ReleaseError> {
    if session.shared.lacks_keeper() {
        return Some(ReleaseError::NoKeeper);
    }
    if !inner.condition.is_whole() {
        return Some(ReleaseError::Unlogged);
    }
    let why = inner.objects.modules.values().find_map(|module| module.not_resumable.clone());
    if let Some(why) = why {
        return Some(ReleaseError::NotResumable(why));
    }
    if let Some(what) = inner.objects.describe_textures() {
        return Some(ReleaseError::HasTextures(what));
    }
    // Last: from here on nobody can open anything of its.
    (!session.shared.loans.lock().take_leave(session.client())).then_some(ReleaseError::SharesMemory)
}
