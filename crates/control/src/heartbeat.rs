//! Heartbeat of the servers: one that lives and does not answer (a signal has stopped it, or a
//! thread hangs) is ended and started again. Its clients go on: executor and keeper are processes
//! of their own, and the next server finds them.

use cumux_link::pulse::{self, Motion, Pulse, Standstill, Verdict};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The servers that are watched, and what follows from a check.
pub(crate) trait Servers: Send + Sync + 'static {
    /// Process ids of all servers, with the number of messages received from each; `None` for one
    /// that is still starting: it has a deadline of its own.
    fn message_counts(&self) -> Vec<(u32, Option<u64>)>;

    /// Asks a server for a sign of life.
    fn ping(&self, pid: u32);

    /// The server lives but makes no progress.
    fn report_standstill(self: &Arc<Self>, pid: u32, standstill: Standstill);
}

/// Checks all servers at intervals, on a thread of its own: to ask a server that does not read can
/// take a second.
///
/// # Errors
/// The system has no thread for it.
pub(crate) fn watch(servers: &Arc<impl Servers>) -> io::Result<()> {
    let Some(limit) = pulse::limit() else { return Ok(()) };
    let servers = Arc::clone(servers);
    let watch = move || {
        let mut pulses = HashMap::new();
        loop {
            thread::sleep(pulse::interval(limit));
            check(&servers, &mut pulses, limit);
        }
    };
    thread::Builder::new().name("heartbeat".into()).spawn(watch).map(drop)
}

fn check(servers: &Arc<impl Servers>, pulses: &mut HashMap<u32, Pulse>, limit: Duration) {
    let counts = servers.message_counts();
    pulses.retain(|pid, _| counts.iter().any(|(server, _)| server == pid));
    for (pid, messages) in counts {
        let (motion, now) = (pulse::motion(pid), Instant::now());
        let pulse = pulses.entry(pid).or_insert_with(|| Pulse::new(limit, now));
        if let Verdict::Dead(standstill) = pulse.observe(now, motion, messages.as_slice()) {
            servers.report_standstill(pid, standstill);
        } else if messages.is_some() && motion == Motion::Runs {
            servers.ping(pid);
        }
    }
}
