//! One thread that watches process handles and says which process has ended. Liveness is a process
//! handle, never a closed socket: children inherit sockets.

use rustix::event::{EventfdFlags, epoll, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Stops the thread.
const STOP: u64 = 0;

#[derive(Debug)]
pub(crate) struct Watcher {
    set: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    next: u64,
}

impl Watcher {
    /// `gone` is called with the number of each process that has ended, by a thread of its own;
    /// false from it ends that thread.
    ///
    /// # Errors
    /// When the system gives no epoll set or thread.
    pub(crate) fn start(gone: impl Fn(u64) -> bool + Send + 'static) -> std::io::Result<Self> {
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        epoll::add(&*set, &*stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        // A counter that nobody holds is in no set: the thread holds it until it has seen it.
        let (waiting, held) = (Arc::clone(&set), Arc::clone(&stop));
        let run = move || {
            watch(&waiting, gone);
            drop(held);
        };
        thread::Builder::new().name("watcher".into()).spawn(run)?;
        Ok(Self { set, stop, next: STOP })
    }

    /// Announces once, with the number returned, that the process behind
    /// `handle` has ended.
    ///
    /// # Errors
    /// When the system has no room for more.
    pub(crate) fn watch(&mut self, handle: impl AsFd) -> rustix::io::Result<u64> {
        self.next += 1;
        epoll::add(&*self.set, handle, epoll::EventData::new_u64(self.next), epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)?;
        Ok(self.next)
    }

    /// To be called before the handle is closed: copies of it live elsewhere, so closing alone does
    /// not end the watch.
    pub(crate) fn forget(&self, handle: impl AsFd) {
        let _ = epoll::delete(&*self.set, handle);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

fn watch(set: &OwnedFd, gone: impl Fn(u64) -> bool) {
    let mut ready = Vec::with_capacity(64);
    loop {
        match epoll::wait(set, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        for event in ready.drain(..) {
            let token = event.data.u64();
            if token == STOP || !gone(token) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    /// Found by the fuzz target `packets`: the counter was closed before the thread had looked at
    /// it, and the thread waited for ever.
    #[test]
    fn the_thread_ends_with_its_watcher() {
        for _ in 0..200 {
            let (ends, inbox) = channel();
            drop(Watcher::start(move |token| ends.send(token).is_ok()).unwrap());
            assert!(matches!(inbox.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected)), "the thread still waits");
        }
    }
}
