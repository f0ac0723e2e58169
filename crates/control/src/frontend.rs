//! The other end of the `control` socket: lines from standard input to the daemon, answers to standard output.

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

/// How long a daemon that runs may take for an answer, at least: it asks servers, which may have to be given up one after the other.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a daemon that has answered `quit` may take to be gone.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Why a conversation ended early.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    #[error("Cannot find MPS control daemon process")]
    NoDaemon,
    #[error(transparent)]
    Foreign(Foreign),
    #[error("The control daemon closed the connection; see control.log in the log directory")]
    Broken,
    #[error("the daemon is of another version: restart it (echo quit | cumux control)")]
    OtherVersion,
    /// It lives and stands still.
    #[error(
        "The control daemon does not answer: process {pid} {how}. Let it go on (kill -CONT {pid}), or end it (kill -KILL {pid}) and start it again; programs that run go on meanwhile"
    )]
    Still { pid: u32, how: Standstill },
    /// Its queue of connections is full.
    #[error("The control daemon does not answer: see control.log in the log directory, end its process and start it again; programs that run go on meanwhile")]
    Busy,
    #[error("Cannot read commands: {0}")]
    Input(io::Error),
    #[error("Cannot write answers: {0}")]
    Output(io::Error),
}

/// A line of an answer; tables have no tabs, people's plain tools may.
fn escape_line(line: &str) -> String {
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    let cells: Vec<String> = text.split('\t').map(|cell| escape_foreign(cell, usize::MAX)).collect();
    cells.join("\t") + end
}

/// A connection to a daemon.
pub struct Frontend {
    stream: BufReader<UnixStream>,
    /// The daemon's process, and how long it may stand still.
    watched: Option<(u32, Duration)>,
}

impl Frontend {
    /// # Errors
    /// [`FrontendError::NoDaemon`] when nobody listens, [`FrontendError::Foreign`] when somebody
    /// does whom we do not trust.
    pub fn connect(directory: &PipeDirectory) -> Result<Self, FrontendError> {
        let limit = pulse::limit();
        let mut stream = reach::stream(&directory.control(), limit).map_err(|error| match error {
            LinkError::Foreign(foreign) => FrontendError::Foreign(foreign),
            LinkError::Timeout => FrontendError::Busy,
            _ => FrontendError::NoDaemon,
        })?;
        let peer = Peer::of(&stream).ok().and_then(|peer| peer.pid);
        stream.write_all(format!("{GREETING}\n").as_bytes()).map_err(|_| FrontendError::Broken)?;
        let watched = limit.zip(peer).map(|(limit, pid)| (pid, limit));
        Ok(Self { stream: BufReader::new(stream), watched })
    }

    /// Sends one command and returns its answer and the status to exit with.
    ///
    /// # Errors
    /// [`FrontendError::Broken`] when the daemon goes away before it has answered.
    pub fn ask(&mut self, command: &str) -> Result<(String, u8), FrontendError> {
        let line: String = command.chars().filter(|c| *c != '\n').collect();
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(|_| FrontendError::Broken)?;
        let patient = ["quit", "start_server"].contains(&line.split_whitespace().next().unwrap_or_default());
        let (mut text, mut status) = (Vec::new(), [0]);
        self.in_time(patient, |stream| stream.read_until(END, &mut text).map(|_| ()))?;
        if text.pop() != Some(END) {
            return Err(FrontendError::Broken);
        }
        self.in_time(patient, |stream| stream.read_exact(&mut status))?;
        // Whoever listens in a directory that anybody can name is not allowed to command this terminal.
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
        // What was escaped for JSON is a command again when it has been read.
        Ok(servers.into_iter().map(clean::status).collect())
    }

    /// Reads; gives up on a daemon that stands still. `patient`: the answer may take as long as it likes.
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
            if let Verdict::Dead(how) = pulse.look(Instant::now(), pulse::motion(pid), &[]) {
                return Err(FrontendError::Still { pid, how });
            }
            if !patient && asked.elapsed() >= (limit * STUCK).max(ANSWER) {
                return Err(FrontendError::Still { pid, how: Standstill::Stuck });
            }
        }
    }

    /// Waits until the daemon's process has ended: whoever starts the next one in the same directory right after `quit` must find it free. Where the kernel gives no
    /// handle of it (before Linux 6.5, in another PID namespace), it is not waited for.
    fn wait_for_the_end(&self) {
        let stream = self.stream.get_ref();
        let by_number = || Process::open(Peer::of(stream).ok()?.pid?).ok();
        if let Some(daemon) = peer::process_of(stream).or_else(by_number) {
            let _ = daemon.ended(Some(END_PATIENCE));
        }
    }

    /// Every line of `input` in turn, its answer to `output`; the status of the last.
    ///
    /// # Errors
    /// The input cannot be read, an answer cannot be written, or the daemon goes away. Nothing that follows is sent then.
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
