//! What the device knows of a client. Shared between the threads that change it and the engine that runs its work.

use crate::host::HostWindow;
use crate::module::Loaded;
use crate::partition::Partition;
use crate::ranges::Ranges;
use cumux_device::{ClientCounters, ClientId, ModuleId, StreamId};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
}

impl ClientStream {
    pub(crate) fn new(id: StreamId, client: Arc<Client>, part: u32, priority: i32) -> Self {
        Self { id, client, priority, part }
    }

    /// Where its next work runs. A part that was closed is the client's share again.
    pub(crate) fn partition(&self) -> Option<Arc<Partition>> {
        let own = if self.part == 0 { None } else { self.client.parts.read().get(&self.part).cloned() };
        own.or_else(|| self.client.share.read().clone())
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
}
