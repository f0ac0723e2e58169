//! Threads for what is slow, which stay: a thread that starts or ends costs every other thread of
//! the process some of its time (its stack is mapped and unmapped), and the neighbours of a client
//! that loads modules all the time notice.
//!
//! Whoever gives a job never waits and starts a thread only when none is free; a thread that leaves
//! nobody free behind it starts its successor itself.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Free threads that are kept.
const KEPT: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait and that no job in the queue is meant for.
    free: usize,
}

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    given: Condvar,
}

#[derive(Default)]
pub struct Workers {
    pool: Arc<Pool>,
}

impl Workers {
    /// Has it done soon, in the order given. False when the system has no thread for it: then it is
    /// not done.
    #[must_use]
    pub fn run_soon(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut queue = self.pool.queue.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.free > 0 {
            queue.free -= 1;
            drop(queue);
            self.pool.given.notify_one();
            return true;
        }
        let started = self.pool.start();
        if !started {
            queue.jobs.pop_back();
        }
        started
    }
}

impl Pool {
    /// One more thread, to which one job belongs or which is counted as free.
    fn start(self: &Arc<Self>) -> bool {
        let pool = self.clone();
        std::thread::Builder::new().name("slow".into()).spawn(move || pool.work()).is_ok()
    }

    fn work(self: Arc<Self>) {
        loop {
            let mut queue = self.queue.lock();
            let job = loop {
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => self.given.wait(&mut queue),
                }
            };
            let last = queue.free == 0;
            queue.free += usize::from(last);
            drop(queue);
            if last && !self.start() {
                // Somebody may have counted on that thread: the job is done when one of the others
                // is free.
                let mut queue = self.queue.lock();
                queue.free = queue.free.saturating_sub(1);
            }
            job();
            let mut queue = self.queue.lock();
            if queue.free >= KEPT {
                return;
            }
            queue.free += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn jobs_that_wait_for_one_another_all_run() {
        let workers = Workers::default();
        let (out, results) = mpsc::channel();
        let mut gates = Vec::new();
        // More at once than are kept; each ends only when it is told to.
        for number in 0..3 * KEPT {
            let (gate, wait) = mpsc::channel::<()>();
            gates.push(gate);
            let out = out.clone();
            assert!(workers.run_soon(move || {
                let _ = out.send((number, "begun"));
                let _ = wait.recv();
                let _ = out.send((number, "over"));
            }));
        }
        let watchdog = Duration::from_secs(60);
        let mut begun: Vec<usize> = (0..3 * KEPT).map(|_| results.recv_timeout(watchdog).unwrap().0).collect();
        begun.sort_unstable();
        assert_eq!(begun, (0..3 * KEPT).collect::<Vec<_>>(), "all at the same time");
        drop(gates);
        for _ in 0..3 * KEPT {
            assert_eq!(results.recv_timeout(watchdog).unwrap().1, "over");
        }
        for round in 0..200 {
            let out = out.clone();
            assert!(workers.run_soon(move || out.send((round, "again")).unwrap()));
            assert_eq!(results.recv_timeout(watchdog), Ok((round, "again")));
        }
        assert!(workers.pool.queue.lock().free <= KEPT + 1);
    }
}
