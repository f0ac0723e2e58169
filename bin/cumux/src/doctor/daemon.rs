//! Whether there is a daemon, can be reached, is trusted, and serves this user.

use super::module::{self, Module};
use super::{Finding, container};
use cumux_control::directory::{DEFAULT_LOG, LOG_VARIABLE, LONGEST_SOCKET_PATH, PIPE_VARIABLE, advice, named_directory, pipe_directory};
use cumux_control::{Frontend, FrontendError, LOG_NAMES, PipeDirectory};
use cumux_link::{Connection, Folder, FolderError, LinkError, Peer};
use cumux_wire::message::ServerStatus;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::io;
use std::path::Path;

const DIRECTORY: &str = "pipe directory";
const LOGS: &str = "log directory";
const DAEMON: &str = "daemon";
const USER: &str = "user";
const VERSION: &str = "version";
const SERVER: &str = "server";
const SETTINGS: &str = "settings";

/// The checks, in the order in which a program meets them. After the first that stops the program,
/// the rest cannot be tested.
pub fn findings() -> Vec<Finding> {
    if std::env::var_os(PIPE_VARIABLE).is_some_and(|path| path.is_empty()) {
        let remedy = format!("unset {PIPE_VARIABLE}, or set it to the daemon's directory");
        return stopped(vec![Finding::problem(DIRECTORY, format!("{PIPE_VARIABLE} is set to nothing: programs bypass the service"), remedy)]);
    }
    let directory = PipeDirectory::at(&pipe_directory());
    let (found, reachable) = path(&directory);
    let mut findings = vec![found];
    if reachable {
        let listens = daemon(&directory);
        let is_there = is_ok(&listens);
        findings.push(listens);
        findings.extend(is_there.then(|| user(&directory)));
    }
    if findings.iter().all(|finding| is_ok(finding) || finding.outcome == super::Outcome::Warning) {
        findings.extend(state(&directory));
    }
    findings.push(match container::is_group(&directory) {
        true => Finding::not_tested(LOGS, "this is the directory of a group: its daemon logs elsewhere"),
        false => logs(directory.path()),
    });
    stopped(findings)
}

fn is_ok(finding: &Finding) -> bool {
    finding.outcome == super::Outcome::Ok
}

fn stopped(mut findings: Vec<Finding>) -> Vec<Finding> {
    for check in [DIRECTORY, DAEMON, USER, VERSION, SERVER] {
        if !findings.iter().any(|finding| finding.check == check) {
            findings.push(Finding::not_tested(check, "not tested: the problem above comes first"));
        }
    }
    findings
}

/// Checks the directory. Returns also whether a daemon can be searched in it, which is possible in
/// an unsafe one, too.
fn path(directory: &PipeDirectory) -> (Finding, bool) {
    let path = directory.path();
    let shown = path.display();
    if let Err(error) = directory.check_length() {
        return (
            Finding::problem(DIRECTORY, error.to_string(), format!("use a directory so short that its sockets fit in {LONGEST_SOCKET_PATH} bytes")),
            false,
        );
    }
    let start = format!("start a daemon (cumux control -d --device sim:h200), or set {PIPE_VARIABLE} to the directory of one, or use cumux run");
    let unreachable = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && module::shut_folder(path).is_some() => confined(DIRECTORY, "the way to", path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::problem(DIRECTORY, format!("{shown} cannot be reached: {error}"), "let this user enter the folders above it (chmod o+x)")
        }
        Err(error) if container::is_here() || std::env::var_os("SLURM_JOB_ID").is_some() => {
            Finding::problem(DIRECTORY, format!("{shown} is not there: {error}"), container::missing_directory(path))
        }
        Err(error) => Finding::problem(DIRECTORY, format!("{shown}: {error}"), start),
        Ok(metadata) if !metadata.is_dir() => Finding::problem(DIRECTORY, format!("{shown} is not a directory"), start),
        Ok(metadata) if access(path, Access::EXEC_OK).is_err() && module::bits_allow(&metadata, module::ENTER) => confined(DIRECTORY, "the way into", path),
        Ok(_) if access(path, Access::EXEC_OK).is_err() => {
            Finding::problem(DIRECTORY, format!("{shown} may not be entered by this user"), format!("chmod o+rx {shown} (as its owner)"))
        }
        Ok(_) => {
            let found = match Folder::open(path).and_then(|folder| PipeDirectory::files().iter().try_for_each(|name| folder.check(name))) {
                Err(cause) if cause.is_danger() => unsafe_place(DIRECTORY, &cause, PIPE_VARIABLE),
                _ => Finding::ok(DIRECTORY, shown.to_string()),
            };
            return (found, true);
        }
    };
    (unreachable, false)
}

/// The finding for a place that another user could exchange, or that holds something that must not
/// be followed.
fn unsafe_place(check: &'static str, cause: &FolderError, variable: &str) -> Finding {
    Finding::problem(check, format!("not safe: {cause}"), advice(cause, variable))
}

/// Checks the place in which a daemon of this user would write its logs.
fn logs(pipe: &Path) -> Finding {
    let asked = named_directory(LOG_VARIABLE);
    let path = asked.as_deref().unwrap_or(Path::new(DEFAULT_LOG));
    let checked = Folder::open(path).and_then(|folder| LOG_NAMES.iter().try_for_each(|name| folder.check(name)));
    let elsewhere = |why: String| Finding::ok(LOGS, format!("{} ({why})", pipe.display()));
    let own = rustix::process::geteuid();
    match checked {
        Err(cause) if cause.is_danger() && asked.is_none() && !own.is_root() => elsewhere(format!("{} is not used: {cause}", path.display())),
        // The logs of root's daemon are no problem for another user, even if it cannot write them.
        Err(FolderError::Foreign { owner: 0, .. }) => Finding::ok(LOGS, format!("{}, of root", path.display())),
        Err(cause) if cause.is_danger() => unsafe_place(LOGS, &cause, LOG_VARIABLE),
        Err(cause) if asked.is_some() && !cause.is_missing() => {
            Finding::problem(LOGS, cause.to_string(), format!("set {LOG_VARIABLE} to a directory of this user"))
        }
        Ok(()) if access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() => match asked {
            Some(_) => Finding::warning(
                LOGS,
                format!("{} cannot be written by this user", path.display()),
                format!("for a daemon of this user, set {LOG_VARIABLE} to another"),
            ),
            None => elsewhere(format!("{} cannot be written by this user", path.display())),
        },
        Ok(()) => Finding::ok(LOGS, path.display().to_string()),
        Err(_) => Finding::ok(LOGS, format!("{}, made when a daemon starts", path.display())),
    }
}

fn daemon(directory: &PipeDirectory) -> Finding {
    let shown = directory.path().display();
    let start = "start it: cumux control -d (or use cumux run, which starts a private one)";
    match Connection::connect(&directory.cumux()) {
        Ok(_) if container::is_group(directory) => Finding::ok(DAEMON, format!("listens in {shown}, the directory of a group")),
        Ok(_) => match directory.daemon().unwrap_or(0) {
            pid if pid == 0 || directory.is_daemon(pid) => Finding::ok(DAEMON, format!("listens in {shown}, pid {pid}")),
            // systemd, or a daemon before it that has ended.
            _ => Finding::ok(DAEMON, format!("is started by the first program: a supervisor of services listens in {shown}")),
        },
        // Before the questions whether the socket is there: a module hides files as well.
        Err(LinkError::System(Errno::ACCESS)) if module::bits_allow_socket(&directory.cumux()) => confined(DAEMON, "the connection to", &directory.cumux()),
        // The next check judges its user.
        Err(LinkError::Foreign(stranger)) => Finding::ok(DAEMON, format!("one of user {} listens in {shown}", stranger.uid)),
        Err(_) if !directory.cumux().exists() && cumux_link::reach::stream(&directory.control(), None).is_ok() => {
            Finding::problem(DAEMON, format!("the daemon in {shown} is not cumux"), "end it (echo quit | nvidia-cuda-mps-control) and start cumux control -d")
        }
        Err(_) if !directory.cumux().exists() => Finding::problem(DAEMON, format!("no daemon in {shown}"), start),
        Err(_) if access(directory.cumux(), Access::WRITE_OK).is_err() => Finding::problem(
            DAEMON,
            format!("this user may not connect to {}", directory.cumux().display()),
            "start the daemon again: it lets everybody connect",
        ),
        Err(error) => Finding::problem(DAEMON, format!("the daemon in {shown} is gone, its files are left ({error})"), start),
    }
}

/// The permissions allow it, and the system does not.
fn confined(check: &'static str, what: &str, path: &Path) -> Finding {
    Module::at(Path::new("/")).refuses(check, &format!("{what} {}", path.display()))
}

/// Checks whether the daemon serves this user. A daemon that is not root's serves its own user
/// only, and no other user trusts it.
fn user(directory: &PipeDirectory) -> Finding {
    let own = rustix::process::geteuid().as_raw();
    match Connection::connect(&directory.cumux()).and_then(|connection| Ok(Peer::of(&connection)?)) {
        Ok(peer) if peer.pid.is_none() && (peer.uid == 0 || peer.uid == own) => {
            Finding::ok(USER, format!("daemon of user {}, in another PID namespace; this is user {own}", peer.uid))
        }
        Ok(peer) if peer.uid == 0 || peer.uid == own => Finding::ok(USER, format!("daemon of user {}, this is user {own}", peer.uid)),
        Ok(peer) => Finding::warning(
            USER,
            format!("the daemon belongs to user {}, whom CUMUX_TRUST_UID names; this is user {own}", peer.uid),
            "a daemon that is not root's serves its own user only: have root start one for everybody",
        ),
        Err(LinkError::Foreign(stranger)) => Finding::problem(
            USER,
            format!("the daemon belongs to user {} and is not trusted; this is user {own}", stranger.uid),
            format!("start your own daemon with another {PIPE_VARIABLE}, or have root end that one and start one for everybody"),
        ),
        Err(error) => Finding::problem(
            USER,
            format!("it cannot be told whose the daemon is: {error}"),
            "run daemon and programs where they see each other, or start the daemon again",
        ),
    }
}

fn state(directory: &PipeDirectory) -> Vec<Finding> {
    if container::is_group(directory) {
        let why = "this is the directory of a group: its daemon is commanded elsewhere";
        return vec![container::trial(directory), Finding::not_tested(VERSION, why), Finding::not_tested(SERVER, why)];
    }
    let restart = "end the daemon (echo quit | cumux control) and start it again with this cumux";
    let version = Frontend::connect(directory).and_then(|mut daemon| daemon.ask("protocol_version"));
    let version = match version.as_ref().map(|(text, _)| text.trim()) {
        Ok(text) if text == cumux_wire::VERSION.to_string() => Finding::ok(VERSION, format!("daemon and this program both speak version {text}")),
        Ok(text) => Finding::problem(VERSION, format!("the daemon speaks version \"{text}\", this program {}", cumux_wire::VERSION), restart),
        Err(FrontendError::Still { pid, how }) => Finding::problem(
            VERSION,
            format!("the daemon does not answer: process {pid} {how}"),
            format!("let it go on (kill -CONT {pid}), or end it (kill -KILL {pid}) and start it again: programs that run go on meanwhile"),
        ),
        Err(error) => Finding::problem(VERSION, format!("the daemon does not answer: {error}"), restart),
    };
    if !is_ok(&version) {
        return vec![version];
    }
    let server = match Frontend::connect(directory).and_then(|mut daemon| daemon.servers()) {
        Ok(servers) => servers_of(&servers, directory.path()),
        Err(_) => Finding::problem(SERVER, "the daemon does not tell its servers", restart),
    };
    let mut findings = vec![version, server];
    findings.extend(settings(directory));
    findings
}

/// The devices of this shell's daemon, named as in `--device`; empty without a daemon, or while it
/// knows none.
pub fn devices() -> Vec<String> {
    if std::env::var_os(PIPE_VARIABLE).is_some_and(|path| path.is_empty()) {
        return Vec::new();
    }
    let told = Frontend::connect(&PipeDirectory::at(&pipe_directory())).and_then(|mut daemon| daemon.ask("devices"));
    told.ok().and_then(|(text, _)| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Settings that the daemon has ignored without a word to the program, as NVIDIA's does.
fn settings(directory: &PipeDirectory) -> Vec<Finding> {
    let told = Frontend::connect(directory).and_then(|mut daemon| daemon.ask("complaints"));
    let all: Vec<String> = told.ok().and_then(|(text, _)| serde_json::from_str(&text).ok()).unwrap_or_default();
    if all.is_empty() {
        return vec![Finding::ok(SETTINGS, "every limit and priority that was set is in force")];
    }
    // The newest few are enough; all of them are in control.log.
    all.iter().rev().take(5).map(|text| Finding::warning(SETTINGS, text.clone(), "set it again in the form that the sentence gives")).collect()
}

fn servers_of(servers: &[ServerStatus], pipe: &Path) -> Finding {
    let own = rustix::process::geteuid().as_raw();
    match servers {
        [] => Finding::ok(SERVER, "none runs; the first program starts one"),
        [server] if server.uid != own => Finding::warning(
            SERVER,
            format!("server {} is user {}'s, with {} clients: this user waits until they have gone", server.pid, server.uid, server.clients.len()),
            format!("wait, or start a daemon of your own in another directory than {}", pipe.display()),
        ),
        [server, ..] if !server.leaving.is_empty() => Finding::warning(
            SERVER,
            format!("server {} has {} clients and goes when they have gone: {}", server.pid, server.clients.len(), server.leaving),
            format!("wait, or end them; echo shutdown_server {} -f | cumux control ends the server at once and leaves them with an error", server.pid),
        ),
        [server, ..] if server.state == "ACTIVE" => Finding::ok(SERVER, format!("server {} is ACTIVE with {} clients", server.pid, server.clients.len())),
        [server, ..] => Finding::problem(
            SERVER,
            format!("server {} is {}", server.pid, server.state),
            format!("wait a moment; if it stays so: echo shutdown_server {} -f | cumux control, and look into server.log", server.pid),
        ),
    }
}
