//! The front end of the `control` socket: sends lines of standard input to the daemon and prints
//! the answers.

use crate::clean;
use crate::directory::PipeDirectory;
use crate::ui::{END, GREETING};
use cumux_link::pulse::{self, Pulse, STUCK, Standstill, Verdict};
use cumux_link::trust::Foreign;
use cumux_link::{LinkError, Peer, Process, escape_foreign, peer, reach};
use cumux_wire::message::ServerStatus;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a living daemon may take for an answer, at least: it asks servers, and each server that
/// does not answer costs a timeout.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a daemon may take to end after it has answered `quit`.
const END_WAIT: Duration = Duration::from_secs(5);

/// Why a conversation ended early.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// No daemon listens in the directory.
    #[error("Cannot find MPS control daemon process")]
    NoDaemon,
    /// A daemon of an untrusted user listens in the directory.
    #[error(transparent)]
    Foreign(Foreign),
    /// The daemon has gone before it answered.
    #[error("The control daemon closed the connection; see control.log in the log directory")]
    Broken,
    /// The answer has another form than this version expects.
    #[error("the daemon is of another version: restart it (echo quit | cumux control)")]
    OtherVersion,
    /// The daemon lives but makes no progress.
    #[error(
        "The control daemon does not answer: process {pid} {how}. Let it go on (kill -CONT {pid}), or end it (kill -KILL {pid}) and start it again; programs that run go on meanwhile"
    )]
    Still {
        /// The daemon's process id.
        pid: u32,
        /// How it stands still.
        how: Standstill,
    },
    /// The daemon's queue of connections is full.
    #[error("The control daemon does not answer: see control.log in the log directory, end its process and start it again; programs that run go on meanwhile")]
    Busy,
    /// The input cannot be read.
    #[error("Cannot read commands: {0}")]
    Input(io::Error),
    /// An answer cannot be written.
    #[error("Cannot write answers: {0}")]
    Output(io::Error),
}

/// Makes one line of an answer harmless. Its tables contain no tabs; tabs from other tools are
/// kept.
fn escape_line(line: &str) -> String {
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    let cells: Vec<String> = text.split('\t').map(|cell| escape_foreign(cell, usize::MAX)).collect();
    cells.join("\t") + end
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Frontend {
    stream: BufReader<UnixStream>,
    /// False if the process that listened when we connected was not the daemon, but a supervisor of
    /// services that starts it.
    knows_daemon: bool,
    /// The daemon's process id, and how long it may stand still.
    watched: Option<(u32, Duration)>,
}

impl Frontend {
    /// Connects to the daemon of a directory.
    ///
    /// # Errors
    /// [`FrontendError::NoDaemon`] when no daemon listens, [`FrontendError::Foreign`] when an
    /// untrusted user does.
    pub fn connect(directory: &PipeDirectory) -> Result<Self, FrontendError> {
        let limit = pulse::limit();
        let mut stream = reach::stream(&directory.control(), limit).map_err(|error| match error {
            LinkError::Foreign(foreign) => FrontendError::Foreign(foreign),
            LinkError::Timeout => FrontendError::Busy,
            _ => FrontendError::NoDaemon,
        })?;
        let peer = Peer::of(&stream).ok().and_then(|peer| peer.pid);
        stream.write_all(format!("{GREETING}\n").as_bytes()).map_err(|_| FrontendError::Broken)?;
        let knows_daemon = peer.is_none_or(|pid| directory.is_daemon(pid));
        let watched = limit.zip(peer).filter(|_| knows_daemon).map(|(limit, pid)| (pid, limit));
        Ok(Self { stream: BufReader::new(stream), knows_daemon, watched })
    }

    /// Sends one command and returns its answer and the status to exit with.
    ///
    /// # Errors
    /// [`FrontendError::Broken`] when the daemon goes away before it has answered.
    pub fn ask(&mut self, command: &str) -> Result<(String, u8), FrontendError> {
        let line: String = command.chars().filter(|c| *c != '\n').collect();
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(|_| FrontendError::Broken)?;
        // The daemon knows how long these may take, and answers then.
        let patient = ["quit", "start_server", "move_client", "upgrade"].contains(&line.split_whitespace().next().unwrap_or_default());
        let (mut text, mut status) = (Vec::new(), [0]);
        self.in_time(patient, |stream| stream.read_until(END, &mut text).map(|_| ()))?;
        if text.pop() != Some(END) {
            return Err(FrontendError::Broken);
        }
        self.in_time(patient, |stream| stream.read_exact(&mut status))?;
        // Anybody can make a directory and listen there: a listener must not control this terminal.
        let text = String::from_utf8_lossy(&text);
        let harmless: String = text.split_inclusive('\n').map(escape_line).collect();
        Ok((harmless, status[0]))
    }

    /// All servers with their clients, ready to be shown.
    ///
    /// # Errors
    /// [`FrontendError::Broken`], and [`FrontendError::OtherVersion`] for an answer that is none.
    pub fn servers(&mut self) -> Result<Vec<ServerStatus>, FrontendError> {
        let (text, _) = self.ask("status --json")?;
        let servers: Vec<ServerStatus> = serde_json::from_str(&text).map_err(|_| FrontendError::OtherVersion)?;
        // Text that was escaped for JSON is plain text again after parsing: it is made harmless
        // here.
        Ok(servers.into_iter().map(clean::status).collect())
    }

    /// Reads, and fails once the daemon stands still. `patient`: the answer itself may take any
    /// time.
    fn in_time(&mut self, patient: bool, mut read: impl FnMut(&mut BufReader<UnixStream>) -> io::Result<()>) -> Result<(), FrontendError> {
        let Some((pid, limit)) = self.watched else { return read(&mut self.stream).map_err(|_| FrontendError::Broken) };
        let asked = Instant::now();
        let mut pulse = Pulse::new(limit, asked);
        self.stream.get_ref().set_read_timeout(Some(pulse::interval(limit))).map_err(|_| FrontendError::Broken)?;
        loop {
            match read(&mut self.stream) {
                Ok(()) => return Ok(()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) => return Err(FrontendError::Broken),
            }
            if let Verdict::Dead(how) = pulse.observe(Instant::now(), pulse::motion(pid), &[]) {
                return Err(FrontendError::Still { pid, how });
            }
            if !patient && asked.elapsed() >= (limit * STUCK).max(ANSWER) {
                return Err(FrontendError::Still { pid, how: Standstill::Stuck });
            }
        }
    }

    /// Waits until the daemon's process has ended: a user who starts the next daemon in the same
    /// directory right after `quit` must find it free. Does not wait where the kernel has no pidfd
    /// of the daemon (before Linux 6.5, in another PID namespace), or one of its supervisor.
    fn wait_for_the_end(&self) {
        if !self.knows_daemon {
            return;
        }
        let stream = self.stream.get_ref();
        let by_number = || Process::open(Peer::of(stream).ok()?.pid?).ok();
        if let Some(daemon) = peer::process_of(stream).or_else(by_number) {
            let _ = daemon.ended(Some(END_WAIT));
        }
    }

    /// Sends every line of `input` in turn and writes its answer to `output`. Returns the exit
    /// status of the last one.
    ///
    /// # Errors
    /// The input cannot be read, an answer cannot be written, or the daemon goes away. Further
    /// lines are then not sent.
    pub fn converse(&mut self, mut input: impl BufRead, mut output: impl Write) -> Result<u8, FrontendError> {
        let mut status = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line).map_err(FrontendError::Input)? == 0 {
                return Ok(status);
            }
            let command = String::from_utf8_lossy(&line);
            let command = command.trim();
            if command.is_empty() {
                continue;
            }
            let (text, answered) = self.ask(command)?;
            status = answered;
            output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(FrontendError::Output)?;
            if command.split_whitespace().next() == Some("quit") && text.is_empty() {
                self.wait_for_the_end();
                return Ok(status);
            }
        }
    }
}
