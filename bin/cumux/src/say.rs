//! What commands print: the one place where this program writes to its standard output and its standard error.
//!
//! A reader may go at any time (`| head`), and a disk may be full. Neither is a reason to panic:
//! - [`SayError::Closed`]: nobody reads any more. The command ends as other tools do, by SIGPIPE and without a word.
//! - [`SayError::Cannot`]: what was to be written is lost. The command fails with a sentence.
//! - What cannot be written to standard error is dropped: there is nobody left to tell.

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

/// Writes to standard output, at once and all of it.
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
