//! One server as the registry sees it: how far it is, why it should go, how many clients it has.

use crate::event::Effect;
use crate::settings::Settings;
use cumux_wire::message::DeviceFacts;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// An earlier daemon has launched it, and it lives.
    Awaited,
    Launched,
    Registered,
    Ready,
    Leaving,
}

/// Why a server should go when it has no clients any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// It was launched for the clients that a lost server has left, and stays as soon as another one
    /// comes.
    Heir,
    OtherUser,
    /// It serves other devices than this daemon was started with. The only reason for which it gets no more clients.
    OtherDevices,
    Command,
    Quit,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    pub pid: u32,
    pub uid: u32,
    pub settings: Settings,
    pub devices: Vec<DeviceFacts>,
    /// As in `--device`.
    pub(crate) device_names: Vec<String>,
    pub(crate) phase: Phase,
    pub(crate) away: Option<Away>,
    /// As it last said on this connection.
    pub(crate) counted: Option<u32>,
    /// Clients handed over on this connection, and those of them that the server has taken.
    pub(crate) handed: u64,
    pub(crate) taken: u64,
    /// When it last came up, and when it is killed.
    pub(crate) since: Instant,
    pub(crate) kill_at: Option<Instant>,
}

impl Server {
    /// Whether clients are handed to it, and so whether it is in `get_server_list`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether messages reach it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !matches!(self.phase, Phase::Awaited | Phase::Launched)
    }

    /// Whether it serves on for its clients only, since this daemon was started with other devices: their names.
    #[must_use]
    pub fn outdated(&self) -> Option<String> {
        (self.away == Some(Away::OtherDevices)).then(|| self.device_names.join(", "))
    }

    /// Until its clients have gone, also one that was told to go, as recorded.
    pub(crate) fn takes_clients(&self) -> bool {
        self.phase == Phase::Ready && self.away != Some(Away::OtherDevices)
    }

    /// Its clients, with those that are on their way to it.
    pub(crate) fn clients(&self) -> u64 {
        u64::from(self.counted.unwrap_or(0)).saturating_add(self.handed.saturating_sub(self.taken))
    }

    /// Nobody is lost when it goes. A server that has just connected may have clients that it has not told of yet.
    pub(crate) fn is_empty(&self) -> bool {
        (self.counted.is_some() || self.phase == Phase::Launched) && self.clients() == 0
    }

    /// On a new connection everything is counted anew.
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
