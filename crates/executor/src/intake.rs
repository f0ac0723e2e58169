//! The intake thread: looks at every ring in turn, sleeps on the doorbells when there is nothing.
//!
//! Sleeping never misses a push: it announces itself in every page, looks at every ring once more, and only then sleeps.

use crate::error::ExecutorError;
use crate::session::Session;
use crate::shared::Shared;
use parking_lot::RwLock;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// All sessions of this executor by number.
pub type Sessions = Arc<RwLock<BTreeMap<u32, Arc<Session>>>>;

/// How often a stream that waits for a value in memory is looked at.
const VALUE_POLL: Duration = Duration::from_micros(200);
const BELL: u64 = 0;

pub struct Intake {
    sessions: Sessions,
    shared: Arc<Shared>,
    poll: OwnedFd,
}

impl Intake {
    /// # Errors
    /// When the kernel has no epoll for us.
    pub fn new(sessions: Sessions, shared: Arc<Shared>) -> Result<Arc<Self>, ExecutorError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, shared.bell(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Arc::new(Self { sessions, shared, poll }))
    }

    /// From now on the session is looked at.
    ///
    /// # Errors
    /// When the doorbell cannot be watched.
    pub fn add(&self, session: &Arc<Session>) -> Result<(), ExecutorError> {
        epoll::add(&self.poll, session.doorbell(), epoll::EventData::new_u64(u64::from(session.client())), epoll::EventFlags::IN)?;
        self.sessions.write().insert(session.client(), session.clone());
        self.shared.wake_intake();
        Ok(())
    }

    /// The session is no longer looked at.
    pub fn remove(&self, client: u32) -> Option<Arc<Session>> {
        let session = self.sessions.write().remove(&client)?;
        let _ = epoll::delete(&self.poll, session.doorbell());
        Some(session)
    }

    #[must_use]
    pub fn has(&self, client: u32) -> bool {
        self.sessions.read().contains_key(&client)
    }

    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// The thread's life.
    pub fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let order = self.shared.turns.lock().order();
            let sessions: Vec<Arc<Session>> = {
                let all = self.sessions.read();
                order.iter().filter_map(|client| all.get(client).cloned()).collect()
            };
            let mut moved = false;
            for session in &sessions {
                moved |= session.intake();
            }
            if moved {
                continue;
            }
            for session in &sessions {
                session.service.set_sleeping(true);
            }
            if !sessions.iter().any(|s| s.has_more()) {
                let timeout = sessions.iter().any(|s| s.polls()).then_some(VALUE_POLL);
                let timeout = timeout.and_then(|t| rustix::fs::Timespec::try_from(t).ok());
                events.clear();
                let _ = epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
                for event in &events {
                    self.silence(event.data.u64());
                }
            }
            for session in &sessions {
                session.service.set_sleeping(false);
            }
        }
    }

    /// Resets the bell that rang.
    fn silence(&self, source: u64) {
        let mut count = [0; 8];
        if source == BELL {
            let _ = rustix::io::read(self.shared.bell(), &mut count);
        } else if let Some(session) = u32::try_from(source).ok().and_then(|id| self.sessions.read().get(&id).cloned()) {
            let _ = rustix::io::read(session.doorbell().as_fd(), &mut count);
        }
    }
}
