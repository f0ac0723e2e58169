//! What is held, by session and key.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One entry; shared, so that it can be sent without the lock.
pub(crate) struct Entry {
    pub(crate) note: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

#[derive(Default)]
pub(crate) struct Store {
    entries: Mutex<BTreeMap<(u32, String), Arc<Entry>>>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u32, String), Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what was there. Old descriptors are closed after the lock is given back: closing
    /// the last one of a large file takes time.
    pub(crate) fn keep(&self, session: u32, key: String, entry: Entry) {
        let old = self.lock().insert((session, key), Arc::new(entry));
        drop(old);
    }

    pub(crate) fn drop_key(&self, session: u32, key: String) {
        let old = self.lock().remove(&(session, key));
        drop(old);
    }

    pub(crate) fn drop_session(&self, session: u32) {
        let old = {
            let mut entries = self.lock();
            let mut of_session = entries.split_off(&(session, String::new()));
            if let Some(next) = session.checked_add(1) {
                let mut later = of_session.split_off(&(next, String::new()));
                entries.append(&mut later);
            }
            of_session
        };
        drop(old);
    }

    /// Everything of one session, or of all for 0.
    pub(crate) fn list(&self, session: u32) -> Vec<(u32, String, Arc<Entry>)> {
        self.lock().iter().filter(|((s, _), _)| session == 0 || *s == session).map(|((s, key), entry)| (*s, key.clone(), Arc::clone(entry))).collect()
    }
}
