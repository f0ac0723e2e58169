//! The groups that have clients here, with their accounts: one file for each, which every executor
//! that has clients of the group charges ([`cumux_ring::group`]).
//!
//! Invariants: a group is known as long as it has a session. A line of its accounts is empty when
//! it is given to a session, and is cleared when no executor has anything of that session.

use cumux_ring::FileError;
use cumux_ring::group::{self, GroupAccounts};
use cumux_wire::message::{GroupGrant, GroupStatus};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One group.
#[derive(Debug)]
struct Group {
    file: Arc<OwnedFd>,
    accounts: GroupAccounts,
}

impl Group {
    fn of(file: Arc<OwnedFd>) -> Result<Self, FileError> {
        Ok(Self { accounts: GroupAccounts::open(&file)?, file })
    }

    fn set_limits(&self, grant: &GroupGrant) -> Result<(), String> {
        (0..).zip(&grant.memory).try_for_each(|(device, bytes)| self.accounts.set_limit(device, *bytes)).map_err(|error| error.to_string())
    }
}

/// All groups, by name.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<String, Group>);

impl Groups {
    /// A client of the group comes, with this slot: makes the accounts if it is the first, writes
    /// the limits, and returns the file.
    ///
    /// # Errors
    /// A sentence, when the system gives no file.
    pub(crate) fn join(&mut self, grant: &GroupGrant, slot: u32) -> Result<Arc<OwnedFd>, String> {
        let group = match self.0.remove(&grant.name) {
            Some(group) => group,
            None => group::create().map(Arc::new).and_then(Group::of).map_err(|error| error.to_string())?,
        };
        let joined = group.set_limits(grant).and_then(|()| group.accounts.clear(slot).map_err(|error| error.to_string()));
        let file = Arc::clone(&group.file);
        self.0.insert(grant.name.clone(), group);
        joined.map(|()| file)
    }

    /// A session of an earlier server has these accounts.
    ///
    /// # Errors
    /// The file is none of ours.
    pub(crate) fn restore(&mut self, name: &str, file: &Arc<OwnedFd>) -> Result<(), FileError> {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Group::of(Arc::clone(file))?);
        }
        Ok(())
    }

    /// No executor has anything of the session with this slot any more. What cannot be cleared now
    /// is when the slot is given to another client of the group.
    pub(crate) fn leave(&self, name: &str, slot: u32) {
        if let Some(group) = self.0.get(name) {
            let _ = group.accounts.clear(slot);
        }
    }

    /// Forgets the groups that have no session.
    pub(crate) fn retain(&mut self, has_sessions: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| has_sessions(name));
    }

    /// Writes other limits; nothing where the group has no client here.
    ///
    /// # Errors
    /// A sentence, when the accounts cannot be written.
    pub(crate) fn set_limits(&self, grant: &GroupGrant) -> Result<(), String> {
        self.0.get(&grant.name).map_or(Ok(()), |group| group.set_limits(grant))
    }

    /// Bytes that the group may have of a device; none without a limit.
    pub(crate) fn limit(&self, name: &str, device: u32) -> Option<u64> {
        self.0.get(name)?.accounts.usage(device).ok().map(|usage| usage.limit).filter(|limit| *limit != 0)
    }

    /// What each group uses on so many devices. `clients` counts its clients.
    pub(crate) fn status(&self, devices: usize, clients: impl Fn(&str) -> u32) -> Vec<GroupStatus> {
        let used = |group: &Group| (0..).take(devices).map(|device| group.accounts.usage(device).map_or(0, |usage| usage.used)).collect();
        self.0.iter().map(|(name, group)| GroupStatus { name: name.clone(), clients: clients(name), used: used(group) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_lives_with_its_sessions_and_a_successor_finds_its_accounts() {
        let grant = GroupGrant { name: "g".into(), clients: 0, memory: vec![100, 0], share: None };
        let mut groups = Groups::default();
        let file = groups.join(&grant, 4).unwrap();
        let executor = GroupAccounts::open(&file).unwrap();
        executor.charge(0, 4, 60).unwrap();
        assert!(Arc::ptr_eq(&file, &groups.join(&grant, 5).unwrap()), "one file for all");
        assert!(executor.charge(0, 5, 41).is_err());
        let mut next = Groups::default();
        next.restore("g", &file).unwrap();
        assert_eq!(next.status(2, |_| 2), [GroupStatus { name: "g".into(), clients: 2, used: vec![60, 0] }]);
        next.set_limits(&GroupGrant { memory: vec![200, 50], ..grant.clone() }).unwrap();
        executor.charge(0, 5, 140).unwrap();
        assert!(executor.charge(1, 5, 51).is_err());
        next.leave("g", 5);
        assert_eq!(next.status(1, |_| 1)[0].used, [60]);
        assert!(Arc::ptr_eq(&next.join(&grant, 4).unwrap(), &file), "a slot that is given again");
        assert_eq!(next.status(1, |_| 1)[0].used, [0]);
        next.retain(|_| false);
        assert!(!Arc::ptr_eq(&next.join(&grant, 4).unwrap(), &file));
    }
}
