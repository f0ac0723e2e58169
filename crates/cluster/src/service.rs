//! A service that runs until it is told to end, on a thread and a runtime of its own.

use std::io;
use std::thread::JoinHandle;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A service that runs. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// A runtime for [`Service::start`], in which sockets can be opened before.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

impl Service {
    /// Starts `serve`, which returns soon after its receiver has turned true. Calls that wait for
    /// the daemon then are not waited for.
    pub(crate) fn start(name: &str, runtime: Runtime, serve: impl FnOnce(&Runtime, watch::Receiver<bool>) + Send + 'static) -> io::Result<Self> {
        let (end, ended) = watch::channel(false);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            serve(&runtime, ended);
            runtime.shutdown_background();
        })?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.end.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
