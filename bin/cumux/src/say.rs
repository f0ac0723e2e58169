//! Output of the commands: only this file writes to standard output and standard error.
//!
//! A reader may go at any time (`| head`), and a disk may be full. Neither is a reason to panic:
//!
//! - [`SayError::Closed`]: the reader has gone. The command ends silently, by SIGPIPE, as other
//!   tools do.
//! - [`SayError::Cannot`]: the output is lost. The command fails with a sentence.
//! - Output to standard error that cannot be written is dropped: there is no other place for it.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Why something could not be printed.
#[derive(Debug, thiserror::Error)]
pub enum SayError {
    #[error("nobody reads the output any more")]
    Closed,
    #[error("cannot write to standard output: {0}")]
    Cannot(io::Error),
}

impl From<io::Error> for SayError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { SayError::Closed } else { SayError::Cannot(error) }
    }
}

/// Writes to standard output, all of it at once.
pub fn bytes(bytes: &[u8]) -> Result<(), SayError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())?;
    Ok(())
}

/// Writes text that has its line ends already.
pub fn text(text: &str) -> Result<(), SayError> {
    bytes(text.as_bytes())
}

/// Writes one line.
pub fn line(line: impl Display) -> Result<(), SayError> {
    text(&format!("{line}\n"))
}

/// Writes one line to standard error.
pub fn complain(line: impl Display) {
    complain_text(&format!("{line}\n"));
}

/// As [`complain`], for text that has its line ends already.
pub fn complain_text(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
