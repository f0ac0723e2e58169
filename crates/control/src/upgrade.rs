//! `upgrade`: the processes of all servers are replaced by those of another program while clients
//! work. Nothing is ended before that program is known to be one that can go on.

use crate::daemon::Daemon;
use crate::duty::Duty;
use cumux_link::folder::Rule;
use cumux_link::waits::Waits;
use cumux_link::{Folder, Process};
use cumux_wire::VERSION;
use cumux_wire::message::{FromServer, ToServer};
use rustix::fs::FileType;
use rustix::process::Signal;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The hidden command with which a program says which protocol it speaks.
pub const WORD: &str = "wire-version";
/// How long it may take to say so.
const LOOK: Duration = Duration::from_secs(20);
/// Bytes of the longest version that is read.
const LONGEST_VERSION: u64 = 64;

/// One JSON line: `{"servers": [{"uid", "before", "now", "staying"}]}` or `{"error": "…"}`.
pub(crate) fn answer(daemon: &Arc<Daemon>, program: &str) -> String {
    match upgrade(daemon, Path::new(program)) {
        Ok(value) => format!("{value}\n"),
        Err(error) => format!("{}\n", serde_json::json!({ "error": error })),
    }
}

fn upgrade(daemon: &Arc<Daemon>, program: &Path) -> Result<serde_json::Value, String> {
    let program = &check(program)?;
    // A server that hands over ends at once, and the next one is to be of the new program.
    let earlier = daemon.options.program.replace(program.clone());
    let upgraded = upgrade_servers(daemon, program);
    match &upgraded {
        Ok(_) => daemon.note(&format!("Servers are started from {} from now on", program.display())),
        Err(_) => {
            daemon.options.program.replace(earlier);
            daemon.note("The upgrade has not come to its end: servers are started from the program before");
        }
    }
    upgraded
}

fn upgrade_servers(daemon: &Arc<Daemon>, program: &Path) -> Result<serde_json::Value, String> {
    let servers: Vec<(u32, Duty)> = daemon.registry(|registry| registry.servers().iter().filter(|s| s.is_ready()).map(|s| (s.pid, s.duty())).collect());
    let waits = Waits::from_environment();
    let mut done: Vec<serde_json::Value> = Vec::new();
    for (server, duty) in servers {
        let Duty { uid, .. } = duty;
        let question = |request| ToServer::Upgrade { request, program: program.to_string_lossy().into_owned() };
        let staying = match daemon.ask_within(server, waits.answer_to_upgrade(), question) {
            Some(FromServer::Upgraded { staying, error, .. }) if error.is_empty() => staying,
            Some(FromServer::Upgraded { error, .. }) => return Err(format!("server {server} of user {uid} was not replaced: {error}{}", others(&done))),
            _ => {
                let silence = daemon.silence_of(server, waits.answer_to_upgrade());
                return Err(format!("of user {uid}, {silence}; server.log has what it did last. Clients go on meanwhile{}", others(&done)));
            }
        };
        let now = next_server(daemon, server, duty, waits.next_server()).map_err(|error| error + &others(&done))?;
        let staying: Vec<serde_json::Value> = staying.into_iter().map(|(pid, why)| serde_json::json!({ "client": pid, "why": why })).collect();
        done.push(serde_json::json!({ "uid": uid, "before": server, "now": now, "staying": staying }));
    }
    Ok(serde_json::json!({ "servers": done, "daemon": std::process::id() }))
}

/// What was done before something failed, as the end of a sentence.
fn others(done: &[serde_json::Value]) -> String {
    let users: Vec<String> = done.iter().map(|server| server["uid"].to_string()).collect();
    if users.is_empty() { String::new() } else { format!(". The servers of users {} were replaced before that", users.join(", ")) }
}

/// The server that goes on with the clients of one that has handed over.
fn next_server(daemon: &Daemon, before: u32, duty: Duty, wait: Duration) -> Result<u32, String> {
    let until = Instant::now() + wait;
    loop {
        let ready = daemon.registry(|registry| registry.servers().iter().find(|s| s.duty() == duty && s.pid != before && s.is_ready()).map(|s| s.pid));
        match ready {
            Some(pid) => return Ok(pid),
            None if Instant::now() >= until => {
                return Err(format!(
                    "the next server{} of user {} does not come up within {} s; server.log says why. Clients go on meanwhile",
                    duty.of_card(),
                    duty.uid,
                    wait.as_secs()
                ));
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The file of a program, if it can take over: nobody but root and the daemon's user can have put
/// it there, and it speaks our protocol. From then on this path is used, which has no links.
fn check(program: &Path) -> Result<PathBuf, String> {
    if !program.is_absolute() {
        return Err(format!("\"{}\" is no file by its whole path: write it from / on", program.display()));
    }
    let real = program.canonicalize().map_err(|error| format!("cannot use {}: {error}", program.display()))?;
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Err(format!("{} is no file", real.display())) };
    let refused = |why: String| format!("{} is not used as a program: {why}", real.display());
    let folder = Folder::make(parent, 0o755, Rule::Programs).map_err(|error| refused(format!("{error} {}", error.remedy())))?;
    let stat = folder.stat(name).map_err(|error| refused(error.to_string()))?;
    let own = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused("it is no plain file".to_owned()));
    }
    if stat.st_uid != 0 && stat.st_uid != own {
        return Err(refused(format!("it belongs to user {}, and must to root or user {own}, who runs the daemon", stat.st_uid)));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(refused(format!("others can write it: chmod go-w {}", real.display())));
    }
    match version_of(&real)? {
        VERSION => Ok(real),
        other => Err(format!(
            "{} speaks version {other} of the cumux protocol, and the processes that run speak {VERSION}: nothing was ended. End the programs, then \
             the daemon (quit), and start the new one",
            real.display()
        )),
    }
}

fn version_of(program: &Path) -> Result<u32, String> {
    let mut command = Command::new(program);
    command.arg(WORD).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let process = Process::open(child.id());
    if !process.as_ref().is_ok_and(|process| process.ended(Some(LOOK))) {
        if let Ok(process) = process {
            let _ = process.signal(Signal::KILL);
        }
        let _ = child.kill();
    }
    let mut text = String::new();
    // What it may have started holds the pipe, too: no more is read than a number has.
    let _ = child.stdout.take().map(|stdout| stdout.take(LONGEST_VERSION).read_to_string(&mut text));
    let _ = child.wait();
    text.trim().parse().map_err(|_| format!("{} is no cumux, or one that cannot be upgraded to: it does not say which protocol it speaks", program.display()))
}
