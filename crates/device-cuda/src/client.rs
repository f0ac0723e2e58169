//! What the device knows of a client. Shared between the threads that change it and the engine that runs its work.

use crate::host::HostWindow;
use crate::module::Loaded;
use crate::partition::Partition;
use crate::ranges::Ranges;
use cumux_device::{ClientCounters, ClientId, ModuleId, StreamId, Work};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct Client {
    pub id: ClientId,
    /// Which engine runs its work: all of it, so that a client's order is one thread's order.
    pub engine: usize,
    /// Below normal: its streams are the least urgent, whatever it asks for.
    pub gives_way: bool,
    /// The part of the card that is its share; none: all of it.
    pub share: RwLock<Option<Arc<Partition>>>,
    /// Parts of its share by the numbers the client gave them.
    pub parts: RwLock<FxHashMap<u32, Arc<Partition>>>,
    pub ranges: RwLock<Ranges>,
    pub window: RwLock<Option<Arc<HostWindow>>>,
    pub modules: RwLock<FxHashMap<ModuleId, Arc<Own>>>,
    pub counts: Counts,
}

/// What is counted of one client. Written by its engine (once a chain) and by who does slow things for it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub coalesced: AtomicU64,
    pub quiets: AtomicU64,
    pub quiet_ns: AtomicU64,
    pub registrations: AtomicU64,
}

impl Counts {
    /// Something of the client has waited for a quiet card.
    pub(crate) fn quiet(&self, waited: Duration) {
        self.quiets.fetch_add(1, Ordering::Relaxed);
        self.quiet_ns.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> ClientCounters {
        let [coalesced, quiets, quiet_ns, registrations] =
            [&self.coalesced, &self.quiets, &self.quiet_ns, &self.registrations].map(|count| count.load(Ordering::Relaxed));
        ClientCounters { coalesced, quiets, quiet_ns, registrations }
    }
}

/// A stream of a client: virtual, bound to a driver stream while it has work in flight.
pub(crate) struct ClientStream {
    pub id: StreamId,
    pub client: Arc<Client>,
    pub priority: i32,
    /// The part of the client's share on which it runs; 0 = all of it.
    part: u32,
    /// Submitted and not seen by the engine.
    pending: Mutex<Vec<(u64, Work)>>,
    /// The engine has a message that there is something pending.
    announced: AtomicBool,
}

impl ClientStream {
    pub(crate) fn new(id: StreamId, client: Arc<Client>, part: u32, priority: i32) -> Self {
        Self { id, client, priority, part, pending: Mutex::default(), announced: AtomicBool::new(false) }
    }

    /// Where its next work runs. A part that was closed is the client's share again.
    pub(crate) fn partition(&self) -> Option<Arc<Partition>> {
        let own = if self.part == 0 { None } else { self.client.parts.read().get(&self.part).cloned() };
        own.or_else(|| self.client.share.read().clone())
    }

    /// Adds work; true if the engine has to be told. Clients that submit at the same time so do not meet at the engine's mailbox for each piece.
    pub(crate) fn push(&self, token: u64, work: Work) -> bool {
        self.pending.lock().push((token, work));
        !self.announced.swap(true, Ordering::SeqCst)
    }

    /// As [`ClientStream::push`], for several pieces.
    pub(crate) fn push_all(&self, work: &mut Vec<(u64, Work)>) -> bool {
        self.pending.lock().append(work);
        !self.announced.swap(true, Ordering::SeqCst)
    }

    /// Takes everything pending into an empty list. What is pushed from now on is announced again.
    pub(crate) fn take(&self, into: &mut Vec<(u64, Work)>) {
        self.announced.store(false, Ordering::SeqCst);
        std::mem::swap(&mut *self.pending.lock(), into);
    }
}

/// A client's hold on a module that others may share: its own, so that counting references does not make engines wait for one another.
pub(crate) struct Own(Arc<Loaded>);

impl Own {
    pub(crate) fn new(module: Arc<Loaded>) -> Arc<Own> {
        Arc::new(Own(module))
    }
}

impl Deref for Own {
    type Target = Loaded;
    fn deref(&self) -> &Loaded {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_adds_up() {
        let counts = Counts::default();
        counts.quiet(Duration::from_micros(3));
        counts.quiet(Duration::from_micros(4));
        counts.coalesced.fetch_add(17, Ordering::Relaxed);
        assert_eq!(counts.read(), ClientCounters { coalesced: 17, quiets: 2, quiet_ns: 7000, registrations: 0 });
    }

    #[test]
    fn work_is_announced_once_until_it_is_taken() {
        let client = Client {
            id: 1,
            engine: 0,
            gives_way: false,
            share: RwLock::default(),
            parts: RwLock::default(),
            ranges: RwLock::default(),
            window: RwLock::default(),
            modules: RwLock::default(),
            counts: Counts::default(),
        };
        let stream = ClientStream::new(StreamId(1), Arc::new(client), 0, 0);
        assert!(stream.push(1, Work::Mark));
        assert!(!stream.push(2, Work::Mark));
        let mut taken = Vec::new();
        stream.take(&mut taken);
        assert_eq!(taken.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
        assert!(stream.push(3, Work::Mark), "announced again");
    }
}
