//! One server as the registry sees it: its phase, why it should end, how many clients it has.

use crate::duty::{Duty, Reach};
use crate::event::Effect;
use crate::settings::Settings;
use cumux_wire::message::DeviceFacts;
use std::time::Instant;

/// How far a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// An earlier daemon has launched it; it lives and has not connected yet.
    Awaited,
    /// Its process was started.
    Launched,
    /// It has connected.
    Registered,
    /// It can serve clients.
    Ready,
    /// It was ordered to end.
    Leaving,
}

/// Why a server should end once it has no clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// It was launched for the clients of a lost server. It stays if another client comes.
    Heir,
    /// Clients of another user wait.
    OtherUser,
    /// It serves other devices than this daemon was started with. The only reason for which it gets
    /// no further clients.
    OtherDevices,
    /// `shutdown_server`.
    Command,
    /// `quit`.
    Quit,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Its process id.
    pub pid: u32,
    /// The user whom it serves.
    pub uid: u32,
    /// Which of the daemon's cards it serves.
    pub(crate) reach: Reach,
    /// The limits and priority for its clients.
    pub settings: Settings,
    /// Its devices; empty until it is ready.
    pub devices: Vec<DeviceFacts>,
    /// As in `--device`.
    pub(crate) device_names: Vec<String>,
    pub(crate) phase: Phase,
    pub(crate) away: Option<Away>,
    /// The count that it last reported on this connection.
    pub(crate) counted: Option<u32>,
    /// Clients handed over on this connection, and how many of them the server has received.
    pub(crate) handed: u64,
    pub(crate) taken: u64,
    /// When it last became ready, and when it is killed.
    pub(crate) since: Instant,
    pub(crate) kill_at: Option<Instant>,
}

impl Server {
    /// Whose programs it serves, and on which cards.
    pub(crate) fn duty(&self) -> Duty {
        Duty { uid: self.uid, reach: self.reach }
    }

    /// Whether clients are handed to it, and so whether it is in `get_server_list`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether the daemon can send messages to it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !matches!(self.phase, Phase::Awaited | Phase::Launched)
    }

    /// Names of its devices, if it only serves its present clients because this daemon was started
    /// with other devices.
    #[must_use]
    pub fn outdated(&self) -> Option<String> {
        (self.away == Some(Away::OtherDevices)).then(|| self.device_names.join(", "))
    }

    /// Whether it gets further clients. A server that was ordered to end gets them until its
    /// clients have gone, as recorded.
    pub(crate) fn takes_clients(&self) -> bool {
        self.phase == Phase::Ready && self.away != Some(Away::OtherDevices)
    }

    /// Its clients, with those that are on their way to it.
    pub(crate) fn clients(&self) -> u64 {
        u64::from(self.counted.unwrap_or(0)).saturating_add(self.handed.saturating_sub(self.taken))
    }

    /// Whether no client is lost when it ends. A server that has just connected may have clients
    /// that it has not reported yet.
    pub(crate) fn is_empty(&self) -> bool {
        (self.counted.is_some() || self.phase == Phase::Launched) && self.clients() == 0
    }

    /// Forgets the counts: on a new connection they start again.
    pub(crate) fn forget_counts(&mut self) {
        (self.counted, self.handed, self.taken) = (None, 0, 0);
    }

    pub(crate) fn log_shutdown(&self, backoff: &str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Log(format!("Try shutting down server {}, backoff is {backoff}", self.pid)));
        let clients = self.clients();
        if clients > 0 {
            // NVIDIA's server has two threads for a client.
            effects.push(Effect::Log(format!("Server {} has {} active worker threads. Server will not shutdown.", self.pid, clients.saturating_mul(2))));
        }
    }
}
