//! The one place where errors become words and exit statuses.

use crate::say::SayError;
use cumux_control::{DaemonError, FrontendError};
use signal_hook::consts::SIGPIPE;
use std::io;

/// A program that `run` could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {program}: {cause}")]
pub struct CannotRun {
    pub program: String,
    pub cause: io::Error,
}

/// A signal asked this command to end, and what it had begun is cleaned up.
#[derive(Debug, thiserror::Error)]
#[error("ended by signal {0}")]
pub struct Interrupted(pub i32);

/// The signal that ends this process in place of an exit status: its parent sees the same as of any
/// other tool.
pub fn signal(error: &anyhow::Error) -> Option<i32> {
    match (error.downcast_ref::<SayError>(), error.downcast_ref::<Interrupted>()) {
        (Some(SayError::Closed), _) => Some(SIGPIPE),
        (_, Some(Interrupted(signal))) => Some(*signal),
        _ => None,
    }
}

/// Exit statuses: 1 for what the user can set right, 126 and 127 as shells use them for programs
/// that cannot be started.
pub fn exit_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<CannotRun>() {
        Some(CannotRun { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => 127,
        Some(_) => 126,
        None => 1,
    }
}

/// The sentence to print. Texts that scripts look for stand alone; all others begin with our name.
pub fn sentence(error: &anyhow::Error) -> String {
    let recorded = error.downcast_ref::<FrontendError>().is_some_and(|e| matches!(e, FrontendError::NoDaemon))
        || error.downcast_ref::<DaemonError>().is_some_and(|e| matches!(e, DaemonError::Directory(cumux_control::directory::DirectoryError::AlreadyRunning)));
    if recorded { error.to_string() } else { format!("cumux: {error:#}") }
}
