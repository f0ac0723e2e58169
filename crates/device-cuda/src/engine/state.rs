//! An engine's state.

use super::ends::ClientEnds;
use super::shared::Shared;
use crate::driver::Stream;
use crate::fault::Call;
use crate::issue::{Issuer, Streams};
use crate::quiet::LongWork;
use crate::track::Flight;
use cumux_device::Report;
use std::sync::Arc;

/// Whether an engine can still give work to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContextState {
    /// It can.
    Working,
    /// The context is broken. Work that comes is kept and not begun: a successor runs it. What is
    /// in flight never ends.
    Broken,
}

/// An engine.
pub(crate) struct Engine {
    /// Its number among the card's engines.
    pub(super) number: usize,
    pub(super) shared: Arc<Shared>,
    /// What gives work to the driver.
    pub(super) issuer: Issuer,
    /// Its clients' streams, and what is in flight in them.
    pub(super) streams: Streams,
    /// Clients that are ended.
    pub(super) ends: ClientEnds,
    /// Whether it begins long work.
    pub(super) long_work: LongWork,
    pub(super) context: ContextState,
    /// For making chains and for fetching text, on the helper threads.
    pub(super) helper_stream: Stream,
    /// What a poll has found over; empty between polls.
    pub(super) over: Vec<(Flight, u64)>,
    /// What is to be reported; empty between rounds.
    pub(super) reports: Vec<Report>,
}

impl Engine {
    /// Engine `number` of a card.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(shared: &Arc<Shared>, number: usize) -> Call<Engine> {
        let driver = &shared.driver;
        let streams = Streams::new(driver)?;
        let helper_stream = driver.create_stream(0)?;
        let issuer = Issuer::new(driver.clone(), shared.limits, shared.coalesces, shared.counters.clone(), shared.helpers.clone());
        Ok(Engine {
            number,
            shared: shared.clone(),
            issuer,
            streams,
            ends: ClientEnds::default(),
            long_work: LongWork::default(),
            context: ContextState::Working,
            helper_stream,
            over: Vec::new(),
            reports: Vec::new(),
        })
    }

    /// True while the context works, as far as this engine knows.
    pub(super) fn context_works(&self) -> bool {
        self.context == ContextState::Working
    }

    /// Gives everything back to the driver that the engine has of it, in the order in which one
    /// uses the other: chains, what was sent and not taken, streams, words.
    pub(super) fn end(self) {
        let Engine { shared, issuer, streams, helper_stream, number, .. } = self;
        let mut unread = Vec::new();
        shared.mailboxes.of(number).take_all(&mut unread);
        drop((issuer, unread));
        drop(streams);
        shared.driver.destroy_stream(helper_stream);
    }
}
