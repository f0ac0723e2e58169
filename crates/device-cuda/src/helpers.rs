//! The card's two helper threads: what is slow is done here, and not by an engine.

use crossbeam_channel::{Receiver, Sender, unbounded};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// What a helper thread is sent.
enum Order {
    Run(Job),
    Stop,
}

/// The way to the helper threads. Sending never waits for them.
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

    /// Has something slow done: registering memory, making and destroying chains, unloading.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // Refused only when the card is being closed.
        let _ = self.worker.send(Order::Run(Box::new(job)));
    }

    /// Has device printf's text fetched. That may wait until running kernels end, so it has a
    /// thread of its own.
    pub(crate) fn run_printer(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.printer.send(Order::Run(Box::new(job)));
    }

    /// Ends the threads, after what they were sent before.
    pub(crate) fn stop(&self) {
        let _ = (self.worker.send(Order::Stop), self.printer.send(Order::Stop));
    }
}
