//! Servers that live and do not answer: one that was stopped by a signal, or whose thread hangs, is ended and started again. Its clients go on: executor and keeper
//! are processes of their own, and the next server knows them.

use crate::daemon::Daemon;
use crate::event::Event;
use cumux_link::pulse::{self, Motion, Pulse, Verdict};
use cumux_wire::message::ToServer;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Looks at all servers again and again, on a thread of its own: a question to a server that does not read can take a second.
pub(crate) fn watch(daemon: &Arc<Daemon>) {
    let Some(limit) = pulse::limit() else { return };
    let daemon = Arc::clone(daemon);
    thread::spawn(move || {
        let mut pulses = HashMap::new();
        loop {
            thread::sleep(pulse::interval(limit));
            look(&daemon, &mut pulses, limit);
        }
    });
}

fn look(daemon: &Arc<Daemon>, pulses: &mut HashMap<u32, Pulse>, limit: Duration) {
    let servers: Vec<(u32, bool)> = daemon.registry(|registry| registry.servers().iter().map(|server| (server.pid, server.is_connected())).collect());
    pulses.retain(|pid, _| servers.iter().any(|(server, _)| server == pid));
    for (pid, connected) in servers {
        let (motion, now) = (pulse::motion(pid), Instant::now());
        // One that is on its way up has a deadline of its own.
        let words = if connected { vec![daemon.words_of(pid)] } else { Vec::new() };
        let pulse = pulses.entry(pid).or_insert_with(|| Pulse::new(limit, now));
        if let Verdict::Dead(standstill) = pulse.look(now, motion, &words) {
            daemon.feed(Event::Unresponsive { pid, why: standstill.to_string() });
        } else if connected && motion == Motion::Runs {
            daemon.tell(pid, |request| ToServer::Ping { request });
        }
    }
}
