//! The messages of engines, and the engines' mailboxes.

use super::assign::Assignments;
use super::handover::Handover;
use crate::context::ClientStream;
use crate::issue::{Chain, ChainOrder, PendingChain};
use crate::mailbox::Mailbox;
use crate::quiet::{LongWorkHolders, Until};
use crossbeam_channel::Sender;
use cumux_device::{Begun, ClientId, Fault, InDoubt, Lane, StreamId, Work};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A message for an engine.
pub(crate) enum Message {
    /// A client has a new stream.
    AddStream(Arc<ClientStream>),
    /// Work for a stream, with its token. The work is moved in the message itself, so that a launch
    /// allocates no memory that another thread would have to free.
    Submit(StreamId, u64, Work),
    /// Much work for a stream, in order, each piece with its token.
    SubmitAll(StreamId, Vec<(u64, Work)>),
    /// A stream is destroyed. It has no work left.
    RemoveStream(StreamId),
    /// Stop the client: report all its work with this fault, now and later.
    StopClient(ClientId, Fault),
    /// Close the client: cancel all its work, and answer when none is in flight any more.
    CloseClient(ClientId, Sender<()>),
    /// Answer with a description of the client's work in flight.
    DescribeClient(ClientId, Sender<String>),
    /// What a parked queue of the client waits for was done. A fault says that it could not be; the
    /// client is stopped with it.
    Unpark(ClientId, Option<Fault>),
    /// A chain was made. `None` if it could not be made.
    ChainBuilt(PendingChain, Option<Chain>),
    /// An ordered chain was not made, because the card was not kept stopped for it.
    NotMade(ChainOrder),
    /// Answer that engine with [`Message::Past`] and the number when the work has ended that is in
    /// flight now.
    AskPast(usize, u64),
    /// The work of an engine has ended that was in flight when this one asked, for its order of
    /// this number.
    Past(u64),
    /// The text that a fetch for this stream has brought.
    Printed(StreamId, Vec<u8>),
    /// It is the client's turn to print.
    TurnToPrint(ClientId),
    /// The kernels with these numbers will be unloaded: forget them.
    ForgetKernels(Vec<u64>),
    /// Begin no long kernel until [`Message::ResumeLongWork`], and answer when none runs.
    HoldLongWork(Sender<()>, Until),
    /// Begin nothing at all until [`Message::ResumeLongWork`], and answer when no kernel is in
    /// flight.
    StopWork(Sender<()>),
    /// Everything may begin again.
    ResumeLongWork,
    /// A thread has met an error that may be the loss of the context: check whether it is.
    CheckContext,
    /// Let go of all clients but these, and answer with what is in doubt of their work when nothing
    /// of it is in flight, or at that time.
    Evacuate(BTreeSet<ClientId>, Instant, Sender<Vec<InDoubt>>),
    /// All clients have left but those whose kernels still run after a fault.
    HaveParted,
    /// Answer at once.
    Ping(Sender<()>),
    /// Answer with the clients whose work has run for longer than so many nanoseconds.
    ListLongClients(u64, Sender<Vec<ClientId>>),
    /// From now on no chains are made, or they are made again.
    SpareDriver(bool),
    /// The driver has announced a fault: submit nothing more, and find out whose it was.
    FaultBegins,
    /// After a fault, another engine hands over its clients and their work in flight.
    TakeOver(Box<Handover>),
    /// The card is closed: end the thread.
    End,
}

impl Message {
    /// True if only the engine's own thread handles the message: what follows from it may take
    /// long, or ends the engine.
    pub(super) fn is_for_own_thread(&self) -> bool {
        match self {
            Message::AddStream(_)
            | Message::Submit(..)
            | Message::SubmitAll(..)
            | Message::RemoveStream(_)
            | Message::Unpark(..)
            | Message::ChainBuilt(..)
            | Message::NotMade(_)
            | Message::AskPast(..)
            | Message::Past(_)
            | Message::TurnToPrint(_)
            | Message::ForgetKernels(_)
            | Message::HoldLongWork(..)
            | Message::StopWork(_)
            | Message::ResumeLongWork
            | Message::Ping(_)
            | Message::SpareDriver(_) => false,
            Message::StopClient(..)
            | Message::CloseClient(..)
            | Message::DescribeClient(..)
            | Message::Printed(..)
            | Message::CheckContext
            | Message::Evacuate(..)
            | Message::HaveParted
            | Message::ListLongClients(..)
            | Message::FaultBegins
            | Message::TakeOver(_)
            | Message::End => true,
        }
    }
}

/// The number of the engine that all others hand over to after a fault.
pub(super) const FIRST_ENGINE: usize = 0;

/// The mailboxes of a card's engines, by the engines' numbers.
pub(crate) struct Mailboxes {
    mailboxes: Vec<Mailbox<Message>>,
    assignments: Assignments,
}

impl Mailboxes {
    /// Empty mailboxes for this many engines.
    pub(crate) fn new(engines: usize) -> Mailboxes {
        Mailboxes { mailboxes: (0..engines).map(|_| Mailbox::default()).collect(), assignments: Assignments::new(engines) }
    }

    /// The number of engines.
    pub(crate) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    /// Gives a client to an engine: its lane's, or the one with the fewest clients. Returns the
    /// engine's number.
    pub(crate) fn assign(&self, client: ClientId, lane: Option<Lane>) -> usize {
        self.assignments.assign(client, lane)
    }

    /// A client is closed.
    pub(crate) fn release(&self, client: ClientId) {
        self.assignments.release(client);
    }

    /// Sends a message to the engine of a client; to the first one if the client is closed already.
    pub(crate) fn send_to_engine_of(&self, client: ClientId, message: Message) {
        self.of(self.assignments.engine_of(client).unwrap_or(FIRST_ENGINE)).send(message);
    }

    /// The mailbox of an engine.
    pub(crate) fn of(&self, engine: usize) -> &Mailbox<Message> {
        &self.mailboxes[engine]
    }

    /// All mailboxes, in the order of the engines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mailbox<Message>> {
        self.mailboxes.iter()
    }
}

impl Mailboxes {
    /// Tells all engines whether the driver is spared.
    pub(crate) fn spare_driver(&self, is_spared: bool) {
        self.iter().for_each(|mailbox| mailbox.send(Message::SpareDriver(is_spared)));
    }

    /// Has all engines let go of all clients but these. Returns what may have been begun of their
    /// work and is not reported: anything, if an engine does not answer, because it is in a call of
    /// the driver and says nothing of its clients.
    pub(crate) fn evacuate(&self, staying: &BTreeSet<ClientId>, limit: Duration) -> Begun {
        let until = Instant::now() + limit;
        let (done, answers) = crossbeam_channel::bounded(self.len());
        self.iter().for_each(|mailbox| mailbox.send(Message::Evacuate(staying.clone(), until, done.clone())));
        let in_doubt: Option<Vec<_>> = (0..self.len()).map(|_| answers.recv_deadline(until + ANSWER_LIMIT).ok()).collect();
        in_doubt.map_or(Begun::Unknown, |lists| Begun::Only(lists.concat()))
    }
}

/// How long an engine that is in a call of the driver is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

impl LongWorkHolders for Mailboxes {
    fn count(&self) -> usize {
        self.len()
    }

    fn hold_long_work(&self, ready: &Sender<()>, until: Until) {
        self.iter().for_each(|mailbox| mailbox.send(Message::HoldLongWork(ready.clone(), until)));
    }

    fn stop_work(&self, ready: &Sender<()>) {
        self.iter().for_each(|mailbox| mailbox.send(Message::StopWork(ready.clone())));
    }

    fn list_long_clients(&self, longer_than: Duration) -> BTreeSet<ClientId> {
        let nanoseconds = u64::try_from(longer_than.as_nanos()).unwrap_or(u64::MAX);
        let until = Instant::now() + ANSWER_LIMIT;
        let (asker, answers) = crossbeam_channel::bounded(self.len());
        self.iter().for_each(|mailbox| mailbox.send(Message::ListLongClients(nanoseconds, asker.clone())));
        (0..self.len()).filter_map(|_| answers.recv_deadline(until).ok()).flatten().collect()
    }

    fn resume_long_work(&self) {
        self.iter().for_each(|mailbox| mailbox.send(Message::ResumeLongWork));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_that_does_not_answer_has_begun_is_unknown() {
        let mailboxes = Mailboxes::new(2);
        let at_once = Duration::ZERO;
        assert_eq!(mailboxes.evacuate(&BTreeSet::new(), at_once), Begun::Unknown, "both are silent");
        // The second engine's thread answers; the first one is in a call that does not end.
        let piece = InDoubt { client: 3, stream: StreamId(1), token: 7 };
        let second = mailboxes.of(1);
        let mut messages = Vec::new();
        let begun = std::thread::scope(|scope| {
            let asked = scope.spawn(|| mailboxes.evacuate(&BTreeSet::new(), at_once));
            while messages.is_empty() {
                second.take_all(&mut messages);
                std::thread::yield_now();
            }
            for message in messages.drain(..) {
                if let Message::Evacuate(_, _, done) = message {
                    let _ = done.send(vec![piece]);
                }
            }
            asked.join().expect("no panic")
        });
        assert_eq!(begun, Begun::Unknown, "one of the two is silent");
    }
}
