//! How a daemon is started, and why it could not be.

use crate::directory::DirectoryError;
use crate::inherited::InheritedError;
use crate::settings::Settings;
use cumux_wire::message::DeviceFacts;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// How a daemon is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The pipe directory.
    pub pipe: PathBuf,
    /// The log directory.
    pub log: PathBuf,
    /// Device names for servers, with commas between them: `cuda:0`, `sim:h200,sim:h200`.
    pub device: String,
    /// What `device_query` shows before any server runs. Empty where only a driver knows: a survey
    /// then asks it on demand.
    pub devices: Vec<DeviceFacts>,
    /// `-q`: survey the devices at the start.
    pub ready_devices: bool,
    /// The defaults for new servers.
    pub settings: Settings,
    /// The program that becomes the server when it is called with `server`.
    pub program: Program,
    /// Writes log lines to standard output, too.
    pub echo: bool,
    /// `-M`: servers of several users are active at the same time.
    pub multiuser: bool,
    /// `-S`: clients run on static partitions.
    pub static_partitions: bool,
    /// `--per-card`: the names by which each device is found without the others, for servers of one
    /// card. Empty without that option.
    pub cards: Vec<String>,
    /// Names of the devices for a server with memory-locality partitions; empty where no device has
    /// them.
    pub localities: Vec<String>,
}

/// The program of servers; `upgrade` names another one while the daemon runs.
#[derive(Debug, Clone)]
pub struct Program(Arc<Mutex<PathBuf>>);

impl Program {
    /// Its file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is started from now on is this one. Returns the one before.
    pub(crate) fn replace(&self, path: PathBuf) -> PathBuf {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), path)
    }
}

impl<P: Into<PathBuf>> From<P> for Program {
    fn from(path: P) -> Self {
        Self(Arc::new(Mutex::new(path.into())))
    }
}

/// Why a daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The pipe or log directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The sockets that the daemon was started with cannot be used.
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    /// A socket cannot be bound.
    #[error("cannot listen on {}: {cause}. The pipe directory must be on a file system with sockets, writable for this user", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// `--per-card` beside `-S`.
    #[error("--per-card and static partitioning (-S) exclude each other: partitions are kept for one server over all cards; leave one of them out")]
    PartitionsPerCard,
    /// `-M` without root's rights.
    #[error("multi-user mode (-M) needs a control daemon of root: this user can serve nobody else")]
    NotRoot,
    /// The limit of open files is too low to serve anybody.
    #[error(
        "at most {limit} open files are allowed, and the control daemon needs {least} to serve anybody: raise the limit (ulimit -n {least}, better 1024 or more)"
    )]
    TooFewDescriptors {
        /// The limit in force.
        limit: u64,
        /// The lowest that the daemon accepts.
        least: u64,
    },
    /// The kernel refuses to watch for signals.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// The system has no descriptors or threads left.
    #[error("the system gives no descriptors or threads ({0}); look at the limits of this user (ulimit -n, ulimit -u)")]
    System(#[from] io::Error),
}
