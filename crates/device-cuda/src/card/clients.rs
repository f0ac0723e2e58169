//! The clients of a card.

use super::Card;
use crate::context::{ContextClient, PinnedWindow, Urgency, WindowAlias};
use crate::engine::{Message, put_down};
use crate::fault::remedy;
use crate::quiet::NotQuiet;
use cumux_abi::CUlimit;
use cumux_device::{Begun, ClientCounters, ClientId, ClientSpec, Clients, DeviceError, Fault};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long closing a client waits for its work on a lost card, where no work completes any more.
const LOST_DRAIN: Duration = Duration::from_secs(1);
/// How long closing a client waits for the engine's description of the work that does not end.
const DESCRIPTION_WAIT_LIMIT: Duration = Duration::from_secs(1);
/// The limits of a context that a client may raise.
const LIMITS: [CUlimit; 4] =
    [CUlimit::CU_LIMIT_STACK_SIZE, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT];

impl Clients for Card {
    fn open_client(&self, client: ClientId, spec: &ClientSpec, _marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        self.require_context()?;
        if self.shared.prepared.begin_serving() {
            self.shared.driver.make_awaited();
        }
        let beside = spec.beside.and_then(|other| self.client(other).ok());
        let share = match spec.sms.as_slice() {
            _ if beside.is_some() => beside.and_then(|other| other.share.read().clone()),
            [] => self.choose_partition(None, None, spec.multiprocessors)?,
            sms if sms.len() >= self.multiprocessors() as usize => None,
            sms => Some(self.check_loss(self.partitions.exactly(&self.shared.driver, sms))?),
        };
        match self.clients.write().entry(client) {
            Entry::Occupied(_) => Err(DeviceError::Invalid(format!("client {client} is open already"))),
            Entry::Vacant(entry) => {
                let engine = self.shared.mailboxes.assign(client, spec.lane.filter(|_| self.carried));
                entry.insert(Arc::new(ContextClient::new(client, engine, Urgency::of(spec.priority), share)));
                Ok(())
            }
        }
    }

    fn close_client(&self, client: ClientId) {
        let Ok(closed) = self.client(client) else { return };
        put_down();
        let engine = self.shared.mailboxes.of(closed.engine);
        let (done, drained) = crossbeam_channel::bounded(1);
        engine.send(Message::CloseClient(client, done));
        let works = self.shared.loss.why().is_none();
        if drained.recv_timeout(if works { self.drain } else { LOST_DRAIN }).is_err() && works {
            let (asker, answer) = crossbeam_channel::bounded(1);
            engine.send(Message::DescribeClient(client, asker));
            let what = answer.recv_timeout(DESCRIPTION_WAIT_LIMIT).unwrap_or_else(|_| "the driver does not come back from a call".into());
            let limit = self.drain.as_secs_f64();
            let begun = self.shared.mailboxes.evacuate(&BTreeSet::new(), self.shared.fault_wait);
            let why = format!("work of client {client} runs on {limit} s after the client was closed, and cannot be stopped alone: {what}");
            self.shared.give_up(why, begun);
        }
        // Before the client is gone: its number may be used again then.
        self.shared.mailboxes.release(client);
        self.clients.write().remove(&client);
        self.streams.write().retain(|_, stream| stream.client.id != client);
        self.gone.note();
        let modules = std::mem::take(&mut *closed.modules.write());
        for module in modules.into_values() {
            self.drop_module(&closed, module);
        }
        self.discard_textures(&closed);
        let window = closed.window.write().take();
        let aliases = closed.aliases.lock().take().unwrap_or_default();
        if let Some(window) = window {
            // Releasing pinned memory waits for running kernels, and holds the lock that launches
            // need. Where those do not end, all others leave, and the window stays until this
            // process ends.
            let mut window = Some((aliases, window));
            let release = |(aliases, window): (BTreeMap<u64, Arc<WindowAlias>>, Arc<PinnedWindow>)| {
                for (address, alias) in aliases {
                    drop(alias);
                    self.extents.hosts().end(address);
                }
                PinnedWindow::close(window);
            };
            let closed = self.shared.gate.run_quietly(Some(&closed.counts), || window.take().map(release));
            if closed.is_err() {
                std::mem::forget(window);
            }
        }
    }

    fn stop_client(&self, client: ClientId, fault: Fault) {
        if let Ok(client) = self.client(client) {
            self.shared.mailboxes.of(client.engine).send(Message::StopClient(client.id, fault));
        }
    }

    fn leave(&self, staying: &BTreeSet<ClientId>, patience: Duration) -> Begun {
        put_down();
        self.shared.mailboxes.evacuate(staying, patience)
    }

    /// Limits belong to the whole context, so each is the largest that any client has set.
    fn set_limit(&self, client: ClientId, limit: CUlimit, value: u64) -> Result<(), DeviceError> {
        let client = self.client(client)?;
        if !LIMITS.contains(&limit) {
            return Err(DeviceError::NotSupported(format!("limit {}", limit.0)));
        }
        let driver = &self.shared.driver;
        // Held only to look: what follows may take long.
        let is_stack = limit == CUlimit::CU_LIMIT_STACK_SIZE;
        let of_context = || if is_stack { Some(driver.stack()) } else { driver.limit(limit).ok() };
        let current = self.limits.lock().get(&limit).copied().or_else(of_context).unwrap_or(0);
        if value <= current {
            return Ok(());
        }
        if !driver.may_raise(limit, value) {
            let text =
                format!("limit {} cannot be raised to {value}: the buffer for what kernels print has {current} bytes, and kernels may have printed", limit.0);
            return Err(DeviceError::Invalid(text));
        }
        // The driver waits for running kernels.
        let set = || {
            if is_stack {
                return driver.set_stack(value);
            }
            // Another client may have raised it further meanwhile.
            if driver.limit(limit).is_ok_and(|bytes| bytes >= value) {
                return Ok(());
            }
            driver.set_limit(limit, value)
        };
        let raised = self.shared.gate.run_quietly(Some(&client.counts), set).map_err(NotQuiet::into_error)?.map_err(|error| {
            let text = format!("limit {} cannot be raised to {value}: {}", limit.0, driver.describe(error));
            remedy::refused_call(error, text, DeviceError::Invalid)
        });
        self.check_loss(raised)?;
        let mut limits = self.limits.lock();
        let highest = limits.entry(limit).or_default();
        *highest = value.max(*highest);
        Ok(())
    }

    fn client_counters(&self, client: ClientId) -> ClientCounters {
        self.client(client).map_or_else(|_| ClientCounters::default(), |client| client.counts.read())
    }
}
