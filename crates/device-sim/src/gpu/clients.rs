//! The clients of a software GPU.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cumux_abi::CUlimit;
use cumux_device::{Begun, ClientId, ClientSpec, Clients, DeviceError, Fault};

use super::SoftwareGpu;
use crate::progress::ProgressLog;
use crate::schedule::{ClientEnd, not_open};

/// Bytes of the largest stack that a thread may have.
const MAX_STACK_BYTES: u64 = 512 << 10;

/// Launches from the device that may wait for their turn, whatever a client sets.
const MOST_PENDING: u64 = 1 << 20;

impl Clients for SoftwareGpu {
    fn open_client(&self, client: ClientId, spec: &ClientSpec, progress_file: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        let log = progress_file.map(ProgressLog::open).transpose()?;
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        if scheduler.clients.contains_key(&client) {
            return Err(DeviceError::Invalid(format!("client {client} is open already")));
        }
        if let Some(wrong) = spec.sms.iter().find(|sm| **sm >= self.card.limits.launch.multiprocessors) {
            return Err(DeviceError::Invalid(format!("the card has no SM {wrong}")));
        }
        scheduler.add_client(client, spec, log);
        Ok(())
    }

    fn close_client(&self, client: ClientId) {
        let window = {
            let mut scheduler = self.card.scheduler.lock();
            if !scheduler.clients.contains_key(&client) {
                return;
            }
            self.card.end_client(&mut scheduler, client, ClientEnd::Cancelled);
            if self.card.breaks {
                self.card.wait_for_unstoppable_client(&mut scheduler, client);
            } else {
                self.card.wait_for_client(&mut scheduler, client);
            }
            scheduler.remove_client(client).and_then(|gone| gone.window)
        };
        if let Some(window) = window
            && let Err(error) = self.card.maps.write().unmap(window.address, window.bytes)
        {
            tracing::error!(client, %error, "the window of a closed client cannot be unmapped");
        }
    }

    fn stop_client(&self, client: ClientId, fault: Fault) {
        let mut scheduler = self.card.scheduler.lock();
        self.card.end_client(&mut scheduler, client, ClientEnd::Fault(fault));
    }

    fn leave(&self, staying: &BTreeSet<ClientId>, patience: Duration) -> Begun {
        let mut scheduler = self.card.scheduler.lock();
        // A card that is lost tells the sink of all work that was begun.
        Begun::Only(self.card.wait_for_leaving(&mut scheduler, staying, patience).unwrap_or_default())
    }

    fn set_limit(&self, client: ClientId, limit: CUlimit, value: u64) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        match limit {
            CUlimit::CU_LIMIT_STACK_SIZE if value <= MAX_STACK_BYTES => {
                owner.stack_bytes = value as u32;
                Ok(())
            }
            CUlimit::CU_LIMIT_STACK_SIZE => Err(DeviceError::Invalid(format!("a stack of {value} bytes a thread; at most {MAX_STACK_BYTES} are possible"))),
            // Text is passed on as it comes: nothing to reserve.
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => Ok(()),
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => owner.memory.heap.lock().set_limit(value).map_err(DeviceError::Invalid),
            CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => {
                owner.most_pending = value.min(MOST_PENDING);
                Ok(())
            }
            _ => Err(DeviceError::NotSupported(format!("limit {}", limit.0))),
        }
    }
}
