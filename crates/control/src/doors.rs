//! Admission: how many connections each user may hold open, so that no user keeps the others out.
//!
//! Invariants: clients and visitors never use up the daemon's descriptors; some permits are
//! reserved for root and the daemon's own user; each other user may hold as many permits as are
//! still free, so that a user who holds none always finds one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Descriptors for everything else: standard streams, logs, sockets, the servers' connections.
const KEPT: u64 = 32;
/// Permits of each kind that there are in any case.
const FEWEST: u64 = 4;
/// The lowest limit of open descriptors with which a daemon can serve: the permits that there are
/// in any case are then a quarter for each kind.
pub(crate) const LEAST: u64 = KEPT + 4 * FEWEST;
/// Most waiting clients of one user: there are as many windows, and a server would refuse a further
/// one.
const CLIENTS_A_USER: u32 = 512;
const CLIENTS: u64 = 4096;
/// Most text connections of one user; each has a thread.
const TEXTS_A_USER: u32 = 64;
const TEXTS: u64 = 1024;
/// Most connections of one user's servers, and of all; the daemon keeps descriptors for them. A
/// server's connection may overlap with the one that it replaces.
const SERVERS_A_USER: u32 = 4;
const SERVERS: u64 = 256;
/// Time between two log lines on refusals of one user.
const TOLD: Duration = Duration::from_secs(10);

/// The permits for one kind of connection.
#[derive(Debug)]
pub(crate) struct ConnectionQuota {
    most: u32,
    most_of_one: u32,
    /// The daemon's own user.
    own: u32,
    permits: Mutex<PermitCounts>,
}

#[derive(Debug, Default)]
struct PermitCounts {
    taken: u32,
    of_user: HashMap<u32, u32>,
    /// Users with a refusal, and when the log last reported one.
    told: HashMap<u32, Instant>,
}

/// The right to one connection; dropping it returns the permit.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    quota: Arc<ConnectionQuota>,
    uid: u32,
}

/// The refusal of a permit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Permits that this user holds.
    pub(crate) has: u32,
    /// Whether the log should report it.
    pub(crate) new: bool,
}

impl ConnectionQuota {
    /// Permits for clients that have not yet said hello, or wait; each needs two descriptors.
    pub(crate) fn for_clients(descriptors: u64, own: u32) -> Arc<Self> {
        Self::new(descriptors, CLIENTS, CLIENTS_A_USER, own)
    }

    /// Permits for servers, apart from those of clients: a user's waiting clients may hold all of
    /// theirs, and it is the server that they wait for.
    pub(crate) fn for_servers(descriptors: u64, own: u32) -> Arc<Self> {
        Self::new(descriptors, SERVERS, SERVERS_A_USER, own)
    }

    /// Permits for text connections.
    pub(crate) fn for_texts(descriptors: u64, own: u32) -> Arc<Self> {
        Self::new(descriptors, TEXTS, TEXTS_A_USER, own)
    }

    fn new(descriptors: u64, largest: u64, most_of_one: u32, own: u32) -> Arc<Self> {
        // A quarter for each kind: clients need two descriptors a permit, and a quarter stays free.
        let most = (descriptors.saturating_sub(KEPT) / 4).clamp(FEWEST, largest);
        Arc::new(Self { most: u32::try_from(most).unwrap_or(u32::MAX), most_of_one, own, permits: Mutex::default() })
    }

    fn permits(&self) -> MutexGuard<'_, PermitCounts> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits in use.
    pub(crate) fn taken(&self) -> u32 {
        self.permits().taken
    }

    /// Takes a permit for a connection of this user.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn enter(self: &Arc<Self>, uid: u32) -> Result<ConnectionPermit, Full> {
        let mut permits = self.permits();
        let has = permits.of_user.get(&uid).copied().unwrap_or(0);
        let has_rest = if uid == 0 || uid == self.own {
            permits.taken < self.most
        } else {
            let free = (self.most - self.most / 8).saturating_sub(permits.taken);
            has < self.most_of_one.min(free)
        };
        if !has_rest {
            let now = Instant::now();
            permits.told.retain(|_, at| now.duration_since(*at) < TOLD);
            let new = !permits.told.contains_key(&uid);
            permits.told.entry(uid).or_insert(now);
            return Err(Full { has, new });
        }
        permits.taken += 1;
        *permits.of_user.entry(uid).or_default() += 1;
        Ok(ConnectionPermit { quota: Arc::clone(self), uid })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut permits = self.quota.permits();
        permits.taken -= 1;
        if let Some(has) = permits.of_user.get_mut(&self.uid) {
            *has -= 1;
            if *has == 0 {
                permits.of_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 7;

    /// Takes permits for this user until one is refused, at most a fixed number.
    fn fill(quota: &Arc<ConnectionQuota>, uid: u32) -> Vec<ConnectionPermit> {
        std::iter::from_fn(|| quota.enter(uid).ok()).collect()
    }

    #[test]
    fn nobody_keeps_the_others_out() {
        let quota = ConnectionQuota::for_clients(1024, OWN);
        let greedy = fill(&quota, 1000);
        assert_eq!(greedy.len(), 109, "half of what is not kept back");
        let mut all = vec![greedy];
        for uid in 1001..1006 {
            let permits = fill(&quota, uid);
            assert!(!permits.is_empty(), "there is a permit for user {uid}");
            all.push(permits);
        }
        // However many users conspire, root and the daemon's own user find a permit.
        all.extend((2000..3000).map(|uid| fill(&quota, uid)));
        assert!(!fill(&quota, 0).is_empty() && !fill(&quota, OWN).is_empty());
        assert!(quota.taken() <= 248);
        drop(all);
        assert_eq!(quota.taken(), 0);
        assert!(quota.permits().of_user.is_empty());
        assert_eq!(fill(&quota, 1001).len(), 109, "who comes when they have gone has as many");
    }

    #[test]
    fn a_user_has_a_bound_also_where_there_is_much_room() {
        let quota = ConnectionQuota::for_clients(1 << 20, OWN);
        assert_eq!(fill(&quota, 1000).len(), 512);
        assert_eq!(fill(&quota, OWN).len(), 4096);
        assert_eq!(fill(&ConnectionQuota::for_texts(1 << 20, OWN), 1000).len(), 64);
        // With as few descriptors as the smallest system allows.
        let quota = ConnectionQuota::for_clients(0, OWN);
        let (_theirs, ours) = (fill(&quota, 1000), fill(&quota, 0));
        assert!(!ours.is_empty());
    }

    #[test]
    fn a_refusal_is_told_once() {
        let quota = ConnectionQuota::for_texts(1 << 20, OWN);
        let _places = fill(&quota, 1000);
        assert_eq!(quota.enter(1000).unwrap_err(), Full { has: 64, new: false }, "the first was told");
        let quota = ConnectionQuota::for_texts(0, OWN);
        let _all = fill(&quota, 0);
        assert_eq!(quota.enter(1000).unwrap_err(), Full { has: 0, new: true });
        assert_eq!(quota.enter(1000).unwrap_err(), Full { has: 0, new: false });
        assert!(quota.enter(1001).unwrap_err().new);
    }
}
