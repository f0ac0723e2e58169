//! The other end of the `control` socket: lines from standard input to the daemon, answers to standard output.

use crate::directory::PipeDirectory;
use crate::ui::{END, GREETING};
use cumux_link::trust::Foreign;
use cumux_link::{LinkError, Process, reach};
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
    #[error("Cannot read commands: {0}")]
    Input(io::Error),
}

/// A connection to a daemon.
pub struct Frontend {
    stream: BufReader<UnixStream>,
}

impl Frontend {
    /// # Errors
    /// [`FrontendError::NoDaemon`] when nobody listens, [`FrontendError::Foreign`] when somebody
    /// does whom we do not trust.
    pub fn connect(directory: &PipeDirectory) -> Result<Self, FrontendError> {
        let mut stream = reach::stream(&directory.control()).map_err(|error| match error {
            LinkError::Foreign(foreign) => FrontendError::Foreign(foreign),
            _ => FrontendError::NoDaemon,
        })?;
        stream.write_all(format!("{GREETING}\n").as_bytes()).map_err(|_| FrontendError::Broken)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and returns its answer and the status to exit with.
    ///
    /// # Errors
    /// [`FrontendError::Broken`] when the daemon goes away before it has answered.
    pub fn ask(&mut self, command: &str) -> Result<(String, u8), FrontendError> {
        let line: String = command.chars().filter(|c| *c != '\n').collect();
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(|_| FrontendError::Broken)?;
        let mut text = Vec::new();
        self.stream.read_until(END, &mut text).map_err(|_| FrontendError::Broken)?;
        if text.pop() != Some(END) {
            return Err(FrontendError::Broken);
        }
        let mut status = [0];
        self.stream.read_exact(&mut status).map_err(|_| FrontendError::Broken)?;
        Ok((String::from_utf8_lossy(&text).into_owned(), status[0]))
    }

    /// Waits until the daemon's process has ended: whoever starts the next one in the same directory right after `quit` must find it free. A daemon that
    /// cannot be seen from here (another process namespace) is not waited for.
    fn wait_for_the_end(&self) {
        let pid = reach::other_end(self.stream.get_ref()).ok().and_then(|listener| listener.pid);
        if let Some(daemon) = pid.and_then(|pid| Process::open(pid).ok()) {
            let _ = daemon.ended(Some(END_PATIENCE));
        }
    }

    /// Every line of `input` in turn, its answer to `output`; the status of the last.
    ///
    /// # Errors
    /// The input cannot be read, or the daemon goes away. A closed output ends the conversation quietly.
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
            if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
                return Ok(status);
            }
            if command.split_whitespace().next() == Some("quit") && text.is_empty() {
                self.wait_for_the_end();
                return Ok(status);
            }
        }
    }
}
