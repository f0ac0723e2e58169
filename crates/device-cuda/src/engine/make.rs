//! Making the chains that are due.
//!
//! Their graphs get their nodes first. What may wait for kernels that run, instantiating and
//! uploading a graph, is done while the card is stopped (decision 0123).

use super::due::DueChain;
use super::message::Message;
use super::shared::Shared;
use super::state::Engine;
use crate::context::ContextClient;
use crate::driver::Stream;
use crate::fault::{Call, CudaError};
use crate::issue::{Chain, ChainOrder, DraftedChain, PendingChain, Purpose};
use cumux_device::ClientId;
use std::collections::BTreeSet;
use std::sync::Arc;
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
    /// The client whose stream it is for, and how many such chains that has then, if another
    /// process is to make them in advance.
    client: Option<(Arc<ContextClient>, u32)>,
    /// The stream in which it is uploaded.
    stream: Stream,
    /// `None` if the driver has refused it.
    drafted: Option<DraftedChain>,
}

impl Draft {
    fn of(due: DueChain, shared: &Shared) -> Draft {
        let DueChain { order: ChainOrder { chain, kernels, count }, client, engine, address, stream } = due;
        let drafted = unless_refused(chain, DraftedChain::new(&shared.driver, kernels, shared.own_kernels.fence, address));
        Draft { engine, chain, client: client.zip(count), stream, drafted }
    }

    /// What its engine gets: the chain if it is made, else its order.
    fn answer(self, is_made: bool) -> Answer {
        let Draft { engine, chain, client, stream, drafted } = self;
        let count = client.as_ref().map(|(_, count)| *count);
        let message = match drafted {
            Some(draft) if is_made => Message::ChainBuilt(chain, unless_refused(chain, draft.complete(chain.word, Some(stream), chain.purpose))),
            Some(draft) => Message::NotMade(ChainOrder { chain, kernels: draft.into_kernels(), count }),
            None => Message::ChainBuilt(chain, None),
        };
        Answer { engine, message, client }
    }
}

/// What an engine gets of an order.
struct Answer {
    engine: usize,
    message: Message,
    client: Option<(Arc<ContextClient>, u32)>,
}

impl Answer {
    /// Notes how another process can make the chain that was made. Returns its client if that has
    /// such a recipe.
    fn note_recipe(&self, shared: &Shared) -> Option<ClientId> {
        let (Message::ChainBuilt(_, Some(chain)), Some((client, count))) = (&self.message, &self.client) else { return None };
        client.recipes.lock().note(chain.recipe(&shared.own_kernels.module)?, *count);
        Some(client.id)
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
        let client_of = |order: &ChainOrder| match order.chain.purpose {
            Purpose::Own(stream) => self.streams.queues.get(&stream).map(|queue| queue.stream.client.clone()),
            Purpose::General | Purpose::Left => None,
        };
        let due = |order: ChainOrder| DueChain { address: tracker.word_address(order.chain.word), client: client_of(&order), order, engine, stream };
        self.shared.due.add(orders.into_iter().map(due));
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
        all.map(|(engine, chain)| Answer { engine, message: Message::ChainBuilt(chain, None), client: None }).collect()
    });
    let made = answers.iter().filter(|answer| matches!(answer.message, Message::ChainBuilt(_, Some::<Chain>(_)))).count();
    shared.counters.chains_made.fetch_add(made as u64, Ordering::Relaxed);
    tracing::debug!(ordered = answers.len(), made, ?drafting, ?stopped, took = ?begun.elapsed(), "chains were to be made");
    let clients: BTreeSet<ClientId> = answers.iter().filter_map(|answer| answer.note_recipe(shared)).collect();
    for Answer { engine, message, .. } in answers {
        shared.mailboxes.of(engine).send(message);
    }
    if !clients.is_empty() {
        shared.sink.chains_made(&clients.into_iter().collect::<Vec<_>>());
    }
}
