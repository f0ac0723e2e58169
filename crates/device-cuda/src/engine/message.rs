//! What an engine is told, and the engines' mailboxes.

use crate::context::ClientStream;
use crate::issue::{Chain, PendingChain};
use crate::mailbox::Mailbox;
use crate::quiet::LongWorkHolders;
use crossbeam_channel::Sender;
use cumux_device::{ClientId, Fault, StreamId, Work};
use std::sync::Arc;

/// What an engine is told.
pub(crate) enum Message {
    /// There is a stream more.
    AddStream(Arc<ClientStream>),
    /// Work for a stream, with its token. The work comes as it is: a launch takes no memory that
    /// one thread would allocate and another free.
    Submit(StreamId, u64, Work),
    /// A stream is gone. It has drained.
    RemoveStream(StreamId),
    /// Everything of the client ends with this fault, now and later.
    StopClient(ClientId, Fault),
    /// Everything of the client is cancelled. The answer comes when nothing of it runs any more.
    CloseClient(ClientId, Sender<()>),
    /// Answer with what of the client runs, in words.
    DescribeClient(ClientId, Sender<String>),
    /// Memory of the client's window was registered; or it could not be, which ends the client.
    WindowRegistered(ClientId, Option<Fault>),
    /// A chain was made, or could not be.
    ChainBuilt(PendingChain, Option<Chain>),
    /// What this stream's kernels had printed before it was fetched.
    Printed(StreamId, Vec<u8>),
    /// The kernels with these numbers are about to be unloaded.
    ForgetKernels(Vec<u64>),
    /// Begin nothing long until [`Message::ResumeLongWork`], and answer when nothing long runs.
    HoldLongWork(Sender<()>),
    /// Long work may begin again.
    ResumeLongWork,
    /// Somebody has found the context broken: see whether it is.
    CheckContext,
    /// The card is closed.
    End,
}

/// The mailboxes of a card's engines, by the engines' numbers.
pub(crate) struct Mailboxes(Vec<Mailbox<Message>>);

impl Mailboxes {
    /// One for each of so many engines.
    pub(crate) fn new(engines: usize) -> Mailboxes {
        Mailboxes((0..engines).map(|_| Mailbox::default()).collect())
    }

    /// How many engines there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The mailbox of an engine.
    pub(crate) fn of(&self, engine: usize) -> &Mailbox<Message> {
        &self.0[engine]
    }

    /// All mailboxes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mailbox<Message>> {
        self.0.iter()
    }
}

impl LongWorkHolders for Mailboxes {
    fn count(&self) -> usize {
        self.len()
    }

    fn hold_long_work(&self, ready: &Sender<()>) {
        self.iter().for_each(|mailbox| mailbox.send(Message::HoldLongWork(ready.clone())));
    }

    fn resume_long_work(&self) {
        self.iter().for_each(|mailbox| mailbox.send(Message::ResumeLongWork));
    }
}
