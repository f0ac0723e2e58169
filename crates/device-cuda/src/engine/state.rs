//! An engine's state.

use super::ends::ClientEnds;
use super::handover::{Evacuation, Remains};
use super::message::Message;
use super::orders::Orders;
use super::pace::Pace;
use super::shared::Shared;
use crate::driver::Stream;
use crate::fault::{Call, CudaError, FlyingKernel, KnownKernel};
use crate::issue::{ChainOrder, Issuer, IssuerSettings, SmallWork, Streams};
use crate::quiet::LongWork;
use crate::track::{Flight, Printing, Withheld};
use cumux_device::{ClientId, Report, StreamId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// What an engine knows of a fault before the verdict.
pub(super) struct Inquiry {
    /// When the driver announced the fault.
    pub(super) begun: Instant,
    /// Since when nothing was completed, or the driver was asked whether anything runs; `None`
    /// until this is looked at.
    pub(super) moved: Option<Instant>,
    /// The kernels in flight then, of all engines that have handed over.
    pub(super) flying: Vec<FlyingKernel>,
    /// The kernels that were launched until then, of all engines; `None` until all have handed
    /// over.
    pub(super) known: Option<Vec<KnownKernel>>,
    /// Work that was completed after the announcement, with the nanoseconds it took.
    pub(super) completed: Vec<(Flight, u64)>,
    /// Since when the dump is written and nothing was completed.
    pub(super) waits_since: Option<Instant>,
    /// When kernels of innocents were waited for first.
    pub(super) first_waits: Option<Instant>,
}

/// Whether those have left who do not wait for others' kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// They are leaving.
    UnderWay,
    /// They have left.
    Over,
}

/// What an engine does after a verdict while kernels of innocent clients still run.
pub(super) struct Finish {
    /// Whether all others have left.
    pub(super) parting: Parting,
    /// Those whose kernels still ran when others left last.
    pub(super) staying: BTreeSet<ClientId>,
    /// They are not waited for any longer.
    pub(super) until: Instant,
    /// When the driver was asked last whether it has ended what runs.
    pub(super) asked: Instant,
    /// When something of theirs has ended last.
    pub(super) moved: Instant,
    /// What has broken the context.
    pub(super) error: CudaError,
    /// The same in words.
    pub(super) what: String,
}

/// Whether the context still works, as far as an engine knows.
///
/// ```text
///          the driver announces a fault            the verdict
/// Working ──────────────────────────────▶ Faulted ─────────────▶ Broken ◀─┐
///  ▲ │  │                                 │   └─▶ Finishing ───────────────┤
///  │ │  └▶ HandingOver ─▶ (no engine)     │                               │
///  │ └──────────────────── a call of the driver fails ────────────────────┘
///  └──────── it was another card's fault ─┘
/// ```
///
/// The first engine is `Faulted` after the announcement, and every other one is `HandingOver`.
pub(super) enum ContextState {
    /// The context works.
    Working,
    /// The driver has announced a fault. Nothing more is submitted, and work in flight may still
    /// complete.
    Faulted(Box<Inquiry>),
    /// The driver has announced a fault, and another engine finds out whose it was. This one gives
    /// it all that it has, and only passes on messages from then on.
    HandingOver(Box<Inquiry>),
    /// The verdict has been reported, and all clients have left but those whose kernels still run.
    /// Their ends are reported. Nothing is submitted.
    Finishing(Finish),
    /// The context is broken. Work in flight never completes. New work is queued and not begun,
    /// because a successor will run it.
    Broken,
}

/// An engine.
pub(crate) struct Engine {
    /// The engine's number among the card's engines.
    pub(super) number: usize,
    /// The state that the card shares with its engines.
    pub(super) shared: Arc<Shared>,
    /// Submits work to the driver.
    pub(super) issuer: Issuer,
    /// The clients' streams, with their queues and their work in flight.
    pub(super) streams: Streams,
    /// Clients that were stopped or are being closed.
    pub(super) ends: ClientEnds,
    /// Whose kernels may print.
    pub(super) printing: Printing,
    /// Whether long kernels may begin.
    pub(super) long_work: LongWork,
    /// Whether the context still works, as far as the engine knows.
    pub(super) context: ContextState,
    /// The clients that go on in another process, if some do.
    pub(super) evacuation: Option<Evacuation>,
    /// A driver stream for the helper threads, to make chains and to fetch text.
    pub(super) helper_stream: Stream,
    /// The chain that is made when what was in flight has ended.
    pub(super) orders: Orders<ChainOrder>,
    /// The flights that a poll has found complete. Empty between polls, but for those that were
    /// held back because of another card's fault.
    pub(super) over: Vec<(Flight, u64)>,
    /// Those that are complete and not told yet.
    pub(super) withheld: Withheld,
    /// When work of this engine was last noted to have ended, in nanoseconds.
    pub(super) last_moment: u64,
    /// Streams that wait for a lane. Empty between two rounds.
    pub(super) awaiting: Vec<StreamId>,
    /// The reports to send at the end of the round. Empty between rounds.
    pub(super) reports: Vec<Report>,
    /// What is left of the engines that have handed over to this one.
    pub(super) remains: Vec<Remains>,
    /// What was told of the pace of all engines, if anybody wants to know.
    pub(super) pace: Option<Pace>,
}

impl Engine {
    /// Makes engine `number` of a card.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(shared: &Arc<Shared>, number: usize) -> Call<Engine> {
        let driver = &shared.driver;
        let streams = Streams::new(driver, shared.filling.clone(), (shared.lanes.clone(), number), shared.latency_ns, shared.opened)?;
        let helper_stream = driver.create_engine_stream(number, 0)?;
        let printing = shared.printing.clone();
        let settings = IssuerSettings { limits: shared.limits, coalesces: shared.coalesces, small_copies: shared.small_copies, engine: number };
        let small_work = SmallWork::new(&shared.own_kernels, driver.reaches_windows());
        let chains = (shared.prepared.clone(), streams.tracker.word_addresses());
        let issuer = Issuer::new(
            driver.clone(),
            settings,
            small_work,
            shared.counters.clone(),
            shared.helpers.clone(),
            printing.clone(),
            shared.standing.clone(),
            chains,
        );
        Ok(Engine {
            number,
            shared: shared.clone(),
            issuer,
            streams,
            ends: ClientEnds::default(),
            printing,
            long_work: LongWork::default(),
            context: ContextState::Working,
            evacuation: None,
            helper_stream,
            orders: Orders::default(),
            over: Vec::new(),
            withheld: Withheld::default(),
            last_moment: 0,
            awaiting: Vec::new(),
            reports: Vec::new(),
            remains: Vec::new(),
            pace: Pace::of_engine(number),
        })
    }

    /// The number of engines whose work this one has: its own, and that of those that have handed
    /// over.
    pub(super) fn engines_here(&self) -> usize {
        1 + self.remains.len()
    }

    /// True while the context works, as far as this engine knows.
    pub(super) fn context_works(&self) -> bool {
        matches!(self.context, ContextState::Working)
    }

    /// True while work in flight may still complete.
    pub(super) fn context_runs(&self) -> bool {
        !matches!(self.context, ContextState::Broken)
    }

    /// True if the driver has announced a fault and there is no verdict yet.
    pub(super) fn is_faulted(&self) -> bool {
        matches!(self.context, ContextState::Faulted(_))
    }

    /// Destroys the engine's objects of the driver, each before those that it uses: chains (also
    /// those in unread messages), driver streams, words.
    pub(super) fn end(self) {
        let Engine { shared, issuer, mut streams, helper_stream, number, mut remains, .. } = self;
        let mut unread = Vec::new();
        shared.mailboxes.of(number).take_all(&mut unread);
        for message in unread {
            if let Message::TakeOver(handover) = message {
                streams.absorb(handover.streams);
                remains.push(handover.remains);
            }
        }
        let helper_streams: Vec<Stream> = remains.iter().map(|remains| remains.helper_stream).chain([helper_stream]).collect();
        drop((issuer, remains));
        drop(streams);
        helper_streams.into_iter().for_each(|stream| shared.driver.destroy_stream(stream));
    }
}
