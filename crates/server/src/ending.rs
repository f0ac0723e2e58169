//! The way to the end: executors are told to quit, then the keeper.

use crate::core::{Core, Ending};
use crate::host::Host;
use cumux_wire::message::FromServer;
use cumux_wire::result;
use std::time::Instant;

impl<H: Host> Core<H> {
    /// Nobody can be served: everybody who waits is told so, and this server ends. The daemon
    /// starts another one for the next client.
    pub(crate) fn break_down(&mut self, why: String) {
        self.note(&format!("Server is handling a fatal error: {why}"));
        self.tell(FromServer::Failed { why: why.clone() });
        self.refuse_arrivals(result::MPS_SERVER_NOT_READY, &why);
        self.broken = Some(why);
        for worker in self.executors.workers.values_mut() {
            worker.end(&self.host);
        }
        self.end(true);
    }

    /// Ends with the last client, or now.
    pub(crate) fn end(&mut self, now: bool) {
        if !now {
            if self.ending == Ending::No {
                self.ending = Ending::Draining;
            }
            return;
        }
        if matches!(self.ending, Ending::No | Ending::Draining) {
            self.clients.arrivals.clear();
            for worker in self.executors.workers.values_mut() {
                worker.dismiss(&self.host);
            }
            self.ending = Ending::Executors { since: Instant::now() };
        }
    }

    /// The next step of the way.
    pub(crate) fn end_step(&mut self, now: Instant) {
        if self.ending == Ending::HandOver {
            return;
        }
        if let Ending::Executors { since } = self.ending {
            if !self.executors.workers.is_empty() && now >= since + self.limits.quit {
                for worker in self.executors.workers.values_mut() {
                    worker.kill(&self.host);
                }
            }
            // A daemon that comes now should still hear why.
            let unheard = self.broken.is_some() && self.daemon.is_none() && now < since + self.limits.quit;
            if self.executors.workers.is_empty() && !unheard {
                self.fail_sessions(result::MPS_RPC_FAILURE);
                self.keeper.quit(&self.host);
                self.ending = Ending::Keeper { since: now };
            }
        }
        if let Ending::Keeper { since } = self.ending {
            if !self.keeper.is_gone() && now >= since + self.limits.quit {
                self.keeper.kill(&self.host);
            }
            if self.keeper.is_gone() {
                self.ending = Ending::Done;
            }
        }
    }
}
