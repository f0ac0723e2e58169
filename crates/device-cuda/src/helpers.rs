//! The card's two helper threads. They make the slow calls, so that engines need not.

use crossbeam_channel::{Receiver, Sender, unbounded};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A message for a helper thread.
enum Order {
    Run(Job),
    Stop,
}

/// Senders to the helper threads. Sending never blocks.
pub(crate) struct Helpers {
    worker: Sender<Order>,
    printer: Sender<Order>,
}

impl Helpers {
    /// Starts the threads.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn start(ordinal: u32) -> std::io::Result<(Helpers, Vec<JoinHandle<()>>)> {
        let (worker, jobs) = unbounded();
        let (printer, prints) = unbounded();
        let start = |name: &str, orders: Receiver<Order>| {
            std::thread::Builder::new().name(format!("cuda-{ordinal}-{name}")).spawn(move || {
                while let Ok(Order::Run(job)) = orders.recv() {
                    job();
                }
            })
        };
        let threads = vec![start("help", jobs)?, start("print", prints)?];
        Ok((Helpers { worker, printer }, threads))
    }

    /// Runs a slow job on the worker thread: registering memory, making and destroying chains,
    /// unloading modules.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The send fails only while the card is being closed.
        let _ = self.worker.send(Order::Run(Box::new(job)));
    }

    /// Runs a job on the printer thread, which fetches the text of device printf. Fetching may
    /// block until running kernels end, so it has a thread of its own.
    pub(crate) fn run_printer(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.printer.send(Order::Run(Box::new(job)));
    }

    /// Ends the threads once they have run the jobs sent before.
    pub(crate) fn stop(&self) {
        let _ = (self.worker.send(Order::Stop), self.printer.send(Order::Stop));
    }
}
