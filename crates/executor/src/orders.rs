//! What the server wants of a session that is open: to know how it fares, to give its memory to
//! another keeper, to begin or judge what was held back, and to end it.

use crate::drive::Caller;
use crate::error::ExecutorError;
use crate::session::{Inner, Session};
use crate::suspicion::{self, Lead};
use cumux_device::ClientCounters;
use cumux_wire::message::ClientStatus;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// How long the end of a session waits until the device fills no variables of it.
const FILLING_LIMIT: Duration = Duration::from_secs(2);

/// What becomes of the addresses of a session that is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// They are free for others.
    Freed,
    /// The session lives in another executor and may come back: nobody else gets them before
    /// [`crate::shared::Shared::free_addresses`].
    Kept,
}

impl Session {
    /// What is known of the client now.
    #[must_use]
    pub fn status(&self) -> ClientStatus {
        let device = self.shared.cards.client_counters(self.client());
        self.lock_then_deliver(|inner| {
            self.note_memory(inner);
            self.status_of(inner, device)
        })
    }

    /// Begins what a session had accepted that was held back. It is on trial until these leads are
    /// over.
    pub(crate) fn end_hold(self: &Arc<Self>, trial: Vec<Lead>) {
        let begun = self.lock_then_deliver(|inner| {
            let Some(held_back) = inner.phase.as_on_hold() else { return false };
            held_back.end_hold();
            if !trial.is_empty() {
                suspicion::begin_trial(&inner.journal);
            }
            inner.trial = trial;
            let mut all: Vec<u32> = inner.queues.streams.keys().copied().collect();
            self.drive(inner, &mut all, Caller::Intake);
            self.pass_barriers(inner);
            true
        });
        if !begun {
            return;
        }
        self.service.notify();
        self.shared.wake_intake(self.client());
    }

    /// Whether its trial is over; it is in any case when its `time_is_up`.
    pub(crate) fn is_tried(&self, time_is_up: bool) -> bool {
        self.lock_then_deliver(|inner| {
            if time_is_up && !inner.trial.is_empty() {
                inner.trial.clear();
                suspicion::acquit(&inner.journal);
            }
            inner.trial.is_empty() || inner.phase.is_closed() || inner.objects.fault.is_some()
        })
    }

    /// Gives a new keeper everything that belongs to this session's memory.
    ///
    /// # Errors
    /// When it does not take it.
    pub fn rekeep(&self) -> Result<(), ExecutorError> {
        self.lock_then_deliver(|inner| self.keep_memory(inner))
    }

    /// Ends the session: nothing of it runs any more when this returns, and its memory is gone.
    ///
    /// # Errors
    /// When the device does not give the memory back.
    pub fn close(&self) -> Result<ClientStatus, ExecutorError> {
        self.close_with(Addresses::Freed)
    }

    /// As [`Session::close`].
    ///
    /// # Errors
    /// When the device does not give the memory back.
    pub(crate) fn close_with(&self, addresses: Addresses) -> Result<ClientStatus, ExecutorError> {
        self.lock_then_deliver(|inner| inner.phase.close());
        // Memory that the device still writes to is not given back.
        if self.lock_when_filled(FILLING_LIMIT).is_none() {
            tracing::warn!("session {} is closed while the device fills its variables", self.client());
        }
        let counted = self.shared.cards.client_counters(self.client());
        self.shared.cards.close_client(self.client());
        self.lock_then_deliver(|inner| self.release_all(inner, counted, addresses))
    }

    /// Gives back everything a session has, at its end.
    fn release_all(&self, inner: &mut Inner, counted: ClientCounters, addresses: Addresses) -> Result<ClientStatus, ExecutorError> {
        // What cannot be unmapped keeps its addresses; all the rest is given back whatever happens.
        let mut outcome = Ok(());
        // A module that is being loaded may still want to give back its variables: it finds nothing
        // of the client's any more.
        let (heap, objects) = (std::mem::take(&mut inner.memory.heap), std::mem::take(&mut inner.objects));
        for (address, mapped) in &objects.mappings {
            outcome = outcome.and(self.shared.cards.unmap(*address, mapped.bytes));
        }
        let mut unused = Vec::new();
        for (address, bytes) in heap.extents() {
            match self.shared.leave_extent(self.client(), address, bytes) {
                Ok(true) => unused.push((address, bytes)),
                // Others have something in it.
                Ok(false) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        for (address, (_, note, _)) in inner.memory.borrowed.drain() {
            match self.shared.leave_extent(self.config.id, address, note.bytes) {
                Ok(true) => unused.push((address, note.bytes)),
                Ok(false) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        unused.extend(objects.reservations);
        unused.append(&mut inner.memory.leaving);
        self.shared.forget_images_of(self.client());
        self.shared.keep_addresses(self.client(), unused);
        if addresses == Addresses::Freed {
            self.shared.free_addresses(self.client());
        }
        inner.memory.extents.clear();
        for (handle, file) in inner.memory.physical.drain() {
            let token = objects.shared_physical.get(&handle).map(|shared| shared.token);
            if let Some(device_index) = objects.physical.get(&handle).and_then(|(device, _)| self.device_index(*device))
                && !token.is_some_and(|token| self.shared.loans.lock().is_shared(token, self.client()))
            {
                self.shared.cards.forget_extent(device_index, file.as_fd());
            }
        }
        inner.memory.spare.drain(..).for_each(|(_, bytes)| self.shared.unspare(bytes));
        self.shared.close_account(self.config.id);
        let consequences = self.shared.loans.lock().forget_client(self.config.id);
        self.shared.settle_loans(consequences);
        self.shared.departures.note_departure(self.config.id);
        self.shared.fair_queues.remove(self.config.id);
        let mut status = self.status_of(inner, counted);
        status.memory = 0;
        // What was not done is not in flight any more: the device has cancelled it.
        status.in_flight = 0;
        outcome?;
        Ok(status)
    }
}
