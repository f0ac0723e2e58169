//! Starting a server: under which user, in which folder, with which settings.
//!
//! A server of another user gets nothing of the daemon's: its folder belongs to that user alone,
//! its standard error is a pipe that the daemon reads (not the log), and of the daemon's
//! environment it has only what concerns CUDA.

use crate::directory::CUMUX;
use crate::duty::{Duty, Reach};
use crate::event::Event;
use crate::log::{Log, on_account_of};
use crate::options::Options;
use crate::settings::Settings;
use cumux_link::{Folder, FolderError, Process};
use cumux_wire::message::DeviceFacts;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, Timespec};
use rustix::pipe::PipeFlags;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a pipe holds while no daemon reads it: about 10,000 lines.
const PIPE_BYTES: usize = 1 << 20;
/// How long the daemon reads from processes of a server that has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Beginnings of the variables that a server of another user inherits from the daemon.
const HANDED_ON: [&str; 9] = ["CUMUX_", "CUDA_", "NVIDIA_", "LD_LIBRARY_PATH", "PATH", "TZ", "LANG", "LC_", "RUST_"];

/// Starts a server with this duty. `ended` is called with its process id and exit status, by a
/// thread of its own.
pub(crate) fn launch(
    options: &Options,
    log: &Arc<Log>,
    duty: Duty,
    settings: &Settings,
    devices: &[String],
    ended: impl FnOnce(u32, i32) + Send + 'static,
) -> Event {
    let Duty { uid, reach } = duty;
    let own = rustix::process::geteuid().as_raw();
    if uid != own && own != 0 {
        let why = format!(
            "the control daemon runs as user {own} and can only serve that user; start a daemon as root, or one of user {uid} with its own CUDA_MPS_PIPE_DIRECTORY"
        );
        return Event::LaunchFailed { duty, why, again: false };
    }
    let pipe = match prepare_for(options, duty) {
        Ok(pipe) => pipe,
        Err(error) => {
            let remedy = error.remedy();
            let why = format!("cannot give user {uid} a folder: {error}{}{remedy}", if remedy.is_empty() { "" } else { ". What to do: " });
            return Event::LaunchFailed { duty, why, again: false };
        }
    };
    let mut command = Command::new(options.program.path());
    command.arg("server").arg("--pipe").arg(&pipe);
    let mut words = None;
    if uid == own {
        // A process group of its own: Ctrl-C in the daemon's terminal must not reach it.
        command.arg("--log").arg(&options.log).stdin(Stdio::null()).stderr(log.for_own_server()).process_group(0);
    } else {
        let (read, write) = match pipe_for_words() {
            Ok(both) => both,
            Err(error) => return Event::LaunchFailed { duty, why: format!("the system gives no pipe: {error}"), again: true },
        };
        words = read.try_clone().ok();
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_handed_on(name.to_str())));
        // It keeps the other end as its standard input, for the next daemon, and makes a
        // session of its own, away from the daemon's terminal.
        command.stdin(read).stderr(write).uid(uid).gid(primary_group(uid));
    }
    command.args(devices.iter().flat_map(|name| ["--device", name])).arg("--uid").arg(uid.to_string());
    let usual = match reach {
        Reach::All => options.device.split(',').eq(devices),
        Reach::Card(_) => reach.among(&options.cards) == devices,
    };
    let known: Vec<(usize, DeviceFacts)> = options.devices.iter().cloned().enumerate().filter(|_| usual).collect();
    command.env("CUMUX_SERVER_SETTINGS", settings.lines(&reach.among(&known)).join("\n"));
    command.stdout(Stdio::null());
    if options.echo && uid == own {
        command.env("CUMUX_ECHO_LOG", "1").stdout(Stdio::inherit());
    }
    // The threads before the process: a server that nobody waits for would never be replaced.
    let threads =
        start_waiter(uid, ended).and_then(|waiter| Ok((waiter, words.map(|words| Ok::<_, io::Error>((start_reader(log, uid)?, words))).transpose()?)));
    let (waiter, reader) = match threads {
        Ok(threads) => threads,
        Err(error) => {
            let why = format!("the system gives no thread ({error}); look at the limits of the daemon's user (ulimit -u)");
            return Event::LaunchFailed { duty, why, again: true };
        }
    };
    match command.spawn() {
        Ok(child) => {
            let pid = child.id();
            if let Some((reader, words)) = reader {
                let _ = reader.send((pid, words));
            }
            let _ = waiter.send(child);
            Event::Launched { pid, duty }
        }
        Err(error) => Event::LaunchFailed { duty, why: format!("cannot start {}: {error}", options.program.path().display()), again: true },
    }
}

/// The pipe directory of a server. That of the daemon's own user shares the daemon's; any other
/// gets a folder in it that no other user may enter, with a link to the daemon's socket.
fn prepare_for(options: &Options, duty: Duty) -> Result<PathBuf, FolderError> {
    let Some(name) = duty.folder(rustix::process::geteuid().as_raw()) else { return Ok(options.pipe.clone()) };
    let Duty { uid, .. } = duty;
    Folder::open(&options.pipe)?.make_private(&name, uid, primary_group(uid), (CUMUX, "../cumux"))?;
    Ok(options.pipe.join(name))
}

/// Starts a thread that waits for the end of the server it is sent. Without one it ends.
fn start_waiter(uid: u32, ended: impl FnOnce(u32, i32) + Send + 'static) -> io::Result<Sender<Child>> {
    let (sender, children) = channel::<Child>();
    thread::Builder::new().name("waiter".into()).spawn(move || {
        let Ok(mut child) = children.recv() else { return };
        let _account = on_account_of(uid);
        let status = child.wait().map_or(-1, exit_number);
        ended(child.id(), status);
    })?;
    Ok(sender)
}

/// Starts a thread that reads what a server of another user writes: process id and read end are
/// sent to it. Without them it ends.
pub(crate) fn start_reader(log: &Arc<Log>, uid: u32) -> io::Result<Sender<(u32, OwnedFd)>> {
    let (sender, servers) = channel::<(u32, OwnedFd)>();
    let log = Arc::clone(log);
    thread::Builder::new().name("words".into()).spawn(move || {
        let Ok((pid, words)) = servers.recv() else { return };
        // Nothing that a server sends is believed, not even that the descriptor is a pipe.
        let is_pipe = rustix::fs::fstat(&words).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        let Ok(ours) = words.try_clone().map(fs::File::from) else { return };
        if is_pipe && rustix::fs::fcntl_setfl(&words, OFlags::NONBLOCK).is_ok() {
            let mut listener = Listening { words, server: Process::open(pid).ok(), until: None };
            log.write_down(pid, uid, ours, || listener.wait());
        }
    })?;
    Ok(sender)
}

/// Waits for output of a server and of the processes that it has started.
struct Listening {
    words: OwnedFd,
    /// `None` once the server has ended.
    server: Option<Process>,
    /// End of reading, some time after the server's end. Its processes could keep the pipe open for
    /// ever, and each new server of the user would leave one more pipe to read.
    until: Option<Instant>,
}

impl Listening {
    /// Returns false when reading is over.
    fn wait(&mut self) -> bool {
        loop {
            let rest = match (&self.server, self.until) {
                (Some(_), _) => None,
                (None, None) => Some(LAST_WORDS),
                (None, Some(until)) => match until.checked_duration_since(Instant::now()) {
                    Some(rest) => Some(rest),
                    None => return false,
                },
            };
            self.until = self.until.or_else(|| rest.map(|rest| Instant::now() + rest));
            let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
            let mut watched = vec![PollFd::new(&self.words, PollFlags::IN)];
            watched.extend(self.server.as_ref().map(|server| PollFd::new(server, PollFlags::IN)));
            match poll(&mut watched, timeout.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return false,
            }
            let [words, server @ ..] = watched.as_slice() else { return false };
            let (has_words, has_ended) = (!words.revents().is_empty(), server.iter().any(|server| !server.revents().is_empty()));
            if has_ended {
                self.server = None;
            }
            if has_words {
                return true;
            }
        }
    }
}

/// Both ends of a pipe. Writing never blocks: a server must not stop because its daemon does not
/// read.
fn pipe_for_words() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK)?;
    // The usual size also works, for a shorter time.
    let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
    Ok((read, write))
}

fn is_handed_on(name: Option<&str>) -> bool {
    name.is_some_and(|name| HANDED_ON.iter().any(|beginning| name.starts_with(beginning)))
}

fn exit_number(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The user's group in `/etc/passwd`, or the one with the same number: a server needs no group, but
/// must not keep root's.
fn primary_group(uid: u32) -> u32 {
    let fields = |line: &str| -> Option<(u32, u32)> {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    text.lines().filter_map(fields).find(|(user, _)| *user == uid).map_or(uid, |(_, group)| group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// A process of the server keeps the pipe open, and the daemon stops reading all the same.
    #[test]
    fn nobody_is_listened_to_for_ever() {
        let (words, write) = pipe_for_words().unwrap();
        fs::File::from(write.try_clone().unwrap()).write_all(b"one\n").unwrap();
        let mut server = Command::new("sleep").arg("600").spawn().unwrap();
        let mut listening = Listening { words, server: Process::open(server.id()).ok(), until: None };
        assert!(listening.wait() && listening.server.is_some());
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(listening.wait() && listening.server.is_none(), "what was said before is read");
        rustix::io::read(&listening.words, &mut [0; 100]).unwrap();
        // As if the time had passed.
        listening.until = Some(Instant::now());
        assert!(!listening.wait());
    }

    #[test]
    fn of_the_daemons_environment_a_user_gets_what_concerns_cuda() {
        for (name, goes) in [("CUDA_VISIBLE_DEVICES", true), ("CUMUX_LOG_BYTES", true), ("PATH", true), ("AWS_SECRET_ACCESS_KEY", false), ("HOME", false)] {
            assert_eq!(is_handed_on(Some(name)), goes, "{name}");
        }
        assert!(!is_handed_on(None));
    }
}
