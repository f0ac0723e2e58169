//! `cumux demo`: ordinary CUDA programs share one device at the same time; one is killed in the
//! middle of a kernel, one makes an illegal access, and all the others finish with right results.
//!
//! Exit status 0 only if every innocent finished with verified results and the two others failed as
//! they were meant to.

pub mod cast;
mod client;
pub mod interrupt;
mod progress;
mod report;
mod role;

use crate::device::{self, with_fallback};
use crate::private::PrivateDaemon;
use crate::{library, say};
use anyhow::Context as _;
use client::DemoProgram;
use cumux_wire::message::{ClientStatus, ServerStatus};
use interrupt::Interrupt;
use progress::Progress;
use std::time::{Duration, Instant};

/// Limit of the demo: a longer run hangs.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the demo and returns its exit status.
pub fn main(json: bool, device: Option<&str>) -> anyhow::Result<u8> {
    let (devices, notice) = with_fallback(device)?;
    let device = device::list(&devices);
    let interrupt = Interrupt::watch().context("cannot watch for signals")?;
    let mut progress = Progress::new(json);
    if let Some(notice) = &notice {
        progress.say(notice);
    }
    let library = library::folder()?;
    let cast = cast::prepare(&mut progress, &interrupt)?;
    progress.say(&format!("starting a private daemon on {device}"));
    // Locals are dropped in the opposite order, whatever happens: first the programs end, then the
    // daemon.
    let daemon = PrivateDaemon::start(&devices)?;
    let begun = Instant::now();
    let mut clients = Vec::new();
    for role in &cast.roles {
        interrupt.check()?;
        clients.push(DemoProgram::start(role, &library, daemon.pipe())?);
    }
    progress.begin(&clients);
    let watched = watch(&mut clients, &daemon, &mut progress, &interrupt);
    let seconds = begun.elapsed().as_secs_f64();
    progress.end();
    let servers = watched?;
    let report = report::Report::new(&device, notice.into_iter().chain(cast.note).collect(), &clients, &servers, seconds);
    if json {
        say::line(serde_json::to_string_pretty(&report).context("cannot write JSON")?)?;
    } else {
        say::line(&report)?;
    }
    if !report.passed && !json {
        say::complain_text(&daemon.last_words());
    }
    Ok(u8::from(!report.passed))
}

/// Watches until every program has ended and the server has counted it. Returns the last status of
/// the servers.
fn watch(clients: &mut [DemoProgram], daemon: &PrivateDaemon, progress: &mut Progress, interrupt: &Interrupt) -> anyhow::Result<Vec<ServerStatus>> {
    let until = Instant::now() + RUN_LIMIT;
    let mut last_servers = Vec::new();
    let mut ended_at = None;
    loop {
        interrupt.check()?;
        for client in clients.iter_mut() {
            client.check_end().context("cannot watch a program")?;
        }
        let servers: Vec<ServerStatus> = daemon.ask("status --json").ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(last_servers);
        for client in clients.iter_mut() {
            if let Some(status) = find(&servers, client.pid()) {
                client.status = status.clone();
            }
            client.kill_in_the_middle();
        }
        last_servers = servers;
        progress.show(clients);
        if clients.iter().all(|client| client.end().is_some()) {
            // The server notices an end a moment after us.
            let ended = *ended_at.get_or_insert_with(Instant::now);
            let counted = clients.iter().all(|client| client.status.state != "running");
            if counted || ended.elapsed() > Duration::from_secs(3) {
                return Ok(last_servers);
            }
        }
        if Instant::now() > until {
            anyhow::bail!("some programs did not end within {} seconds\n{}", RUN_LIMIT.as_secs(), daemon.last_words());
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

fn find(servers: &[ServerStatus], pid: u32) -> Option<&ClientStatus> {
    servers.iter().flat_map(|server| server.clients.iter().chain(&server.gone)).rfind(|client| client.pid == pid)
}
