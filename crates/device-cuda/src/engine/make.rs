//! Making the chains that are due.
//!
//! Their graphs get their nodes first. What may wait for kernels that run, instantiating and
//! uploading a graph, is done while the card is stopped (decision 0123).

use super::due::DueChain;
use super::message::Message;
use super::shared::Shared;
use super::state::Engine;
use crate::driver::Stream;
use crate::fault::{Call, CudaError};
use crate::issue::{Chain, ChainOrder, DraftedChain, PendingChain};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// For so long the card is kept stopped to make chains in, and until the last one is made. Until it
/// stands still takes as long, beside eight busy programs.
const MAKES_FOR: Duration = Duration::from_millis(8);
/// So many chains are made in any case: another stop would take longer.
const LEAST_MADE: usize = 4;

/// A chain of an engine, before the card is stopped.
struct Draft {
    engine: usize,
    chain: PendingChain,
    /// The stream in which it is uploaded.
    stream: Stream,
    /// `None` if the driver has refused it.
    drafted: Option<DraftedChain>,
}

impl Draft {
    fn of(due: DueChain, shared: &Shared) -> Draft {
        let DueChain { order: ChainOrder { chain, kernels }, engine, address, stream } = due;
        let drafted = unless_refused(chain, DraftedChain::new(&shared.driver, kernels, shared.own_kernels.fence, address));
        Draft { engine, chain, stream, drafted }
    }

    /// What its engine gets: the chain if it is made, else its order.
    fn answer(self, is_made: bool) -> (usize, Message) {
        let Draft { engine, chain, stream, drafted } = self;
        let message = match drafted {
            Some(draft) if is_made => Message::ChainBuilt(chain, unless_refused(chain, draft.complete(chain.word, stream, chain.purpose))),
            Some(draft) => Message::NotMade(ChainOrder { chain, kernels: draft.into_kernels() }),
            None => Message::ChainBuilt(chain, None),
        };
        (engine, message)
    }
}

fn unless_refused<T>(chain: PendingChain, made: Call<T>) -> Option<T> {
    let warn = |error: &CudaError| tracing::warn!(length = chain.length, code = error.number(), "no graph can be made of a batch of kernels");
    made.inspect_err(warn).ok()
}

impl Engine {
    /// Has chains made while nothing runs, with those of other engines that are due by then. Those
    /// for which the card is not kept stopped are asked for again. If it cannot be stopped, none is
    /// made, and they are ordered again when their kernels come again.
    pub(super) fn make_chains(&self, orders: Vec<ChainOrder>) {
        let (tracker, stream, engine) = (&self.streams.tracker, self.helper_stream, self.number);
        self.shared.due.add(orders.into_iter().map(|order| DueChain { address: tracker.word_address(order.chain.word), order, engine, stream }));
        let shared = self.shared.clone();
        self.shared.helpers.run(move || make_due(&shared));
    }
}

fn make_due(shared: &Shared) {
    if shared.due.is_empty() {
        return;
    }
    let begun = Instant::now();
    let take = || shared.due.take().into_iter().map(|due| Draft::of(due, shared));
    let mut drafts: Vec<Draft> = take().collect();
    let drafting = begun.elapsed();
    let mut stopped = Duration::ZERO;
    let answers = shared.gate.run_while_stopped(|| {
        shared.counters.stops.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        // Those of other engines have come meanwhile.
        drafts.extend(take());
        let answer = |(number, draft): (usize, Draft)| draft.answer(number < LEAST_MADE || since.elapsed() < MAKES_FOR);
        let answers: Vec<_> = drafts.drain(..).enumerate().map(answer).collect();
        stopped = since.elapsed();
        answers
    });
    let answers = answers.unwrap_or_else(|| {
        let due = shared.due.take().into_iter().map(|due| (due.engine, due.order.chain));
        let all = drafts.drain(..).map(|draft| (draft.engine, draft.chain)).chain(due);
        all.map(|(engine, chain)| (engine, Message::ChainBuilt(chain, None))).collect()
    });
    let made = answers.iter().filter(|(_, answer)| matches!(answer, Message::ChainBuilt(_, Some::<Chain>(_)))).count();
    shared.counters.chains_made.fetch_add(made as u64, Ordering::Relaxed);
    tracing::debug!(ordered = answers.len(), made, ?drafting, ?stopped, took = ?begun.elapsed(), "chains were to be made");
    for (engine, answer) in answers {
        shared.mailboxes.of(engine).send(answer);
    }
}
