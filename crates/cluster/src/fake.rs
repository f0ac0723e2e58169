//! A node's daemon in memory: groups and cards without any process. For tests of what uses
//! [`Groups`](crate::groups::Groups), also those of other crates.
//!
//! Invariant: it is as strict as the real one. What the real daemon would refuse, it refuses.

use crate::groups::{Group, Groups, GroupsError, Listed, NodeCard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The daemon.
#[derive(Debug)]
pub struct FakeDaemon {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cards: Vec<NodeCard>,
    groups: BTreeMap<String, Group>,
    /// Clients in the groups, by name.
    clients: BTreeMap<String, u32>,
    is_down: bool,
    /// Groups that were ever made.
    made: u64,
}

impl FakeDaemon {
    /// A node with cards of so many MiB.
    #[must_use]
    pub fn with_cards(memory_mib: &[u64]) -> Self {
        let card = |(ordinal, memory_mib): (u32, &u64)| NodeCard {
            ordinal,
            uuid: format!("GPU-{ordinal:08x}-0000-0000-0000-000000000000"),
            name: "NVIDIA H200".to_owned(),
            memory_mib: *memory_mib,
            multiprocessors: 132,
            ill: None,
        };
        let cards = (0..).zip(memory_mib).map(card).collect();
        Self { state: Mutex::new(State { cards, ..State::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn up(&self) -> Result<MutexGuard<'_, State>, GroupsError> {
        let state = self.lock();
        match state.is_down {
            true => Err(GroupsError::NoDaemon { directory: "/fake".to_owned(), why: "it is down".to_owned() }),
            false => Ok(state),
        }
    }

    /// Takes the daemon down, or lets it come back with its groups.
    pub fn set_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    /// The daemon forgets its groups, as one whose files were deleted.
    pub fn forget(&self) {
        let mut state = self.lock();
        state.groups.clear();
        state.clients.clear();
    }

    /// Makes a card ill, or well again.
    pub fn set_ill(&self, ordinal: usize, ill: Option<&str>) {
        if let Some(card) = self.lock().cards.get_mut(ordinal) {
            card.ill = ill.map(str::to_owned);
        }
    }

    /// Takes a card away.
    pub fn lose_card(&self, ordinal: u32) {
        self.lock().cards.retain(|card| card.ordinal != ordinal);
    }

    /// So many processes are in a group.
    pub fn set_clients(&self, group: &str, clients: u32) {
        self.lock().clients.insert(group.to_owned(), clients);
    }

    /// The groups as they were made.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        self.lock().groups.values().cloned().collect()
    }

    /// The group in this directory.
    #[must_use]
    pub fn group_at(&self, directory: &str) -> Option<Group> {
        self.lock().groups.values().find(|group| directory_of(&group.name) == Path::new(directory)).cloned()
    }

    /// How many groups were ever made.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.lock().made
    }
}

fn directory_of(name: &str) -> PathBuf {
    PathBuf::from(format!("/fake/groups/{name}"))
}

fn refuse(command: &str, why: &str) -> GroupsError {
    GroupsError::Refused { command: command.to_owned(), why: why.to_owned() }
}

fn check(state: &State, group: &Group) -> Result<(), GroupsError> {
    let command = format!("group create {}{}", group.name, group.words());
    let is_name = (1..=64).contains(&group.name.len()) && group.name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !is_name {
        return Err(refuse(&command, "this is no name of a group"));
    }
    if group.percentage.is_some_and(|percentage| !(1..=100).contains(&percentage)) {
        return Err(refuse(&command, "a percentage is above 0 and at most 100"));
    }
    for (uuid, mib) in &group.memory {
        match state.cards.iter().find(|card| card.uuid == *uuid) {
            None => return Err(refuse(&command, "there is no such device")),
            Some(_) if *mib == 0 => return Err(refuse(&command, "a limit is above 0")),
            Some(_) => {}
        }
    }
    match group.devices.iter().all(|uuid| state.cards.iter().any(|card| card.uuid == *uuid)) {
        true => Ok(()),
        false => Err(refuse(&command, "there is no such device")),
    }
}

impl Groups for FakeDaemon {
    fn create(&self, group: &Group) -> Result<PathBuf, GroupsError> {
        let mut state = self.up()?;
        check(&state, group)?;
        state.groups.insert(group.name.clone(), group.clone());
        state.clients.insert(group.name.clone(), 0);
        state.made += 1;
        Ok(directory_of(&group.name))
    }

    fn set(&self, group: &Group) -> Result<(), GroupsError> {
        let mut state = self.up()?;
        check(&state, group)?;
        match state.groups.get_mut(&group.name) {
            Some(existing) => {
                *existing = group.clone();
                Ok(())
            }
            None => Err(refuse(&format!("group set {}", group.name), "there is no such group")),
        }
    }

    fn remove(&self, name: &str) -> Result<bool, GroupsError> {
        let mut state = self.up()?;
        state.clients.remove(name);
        Ok(state.groups.remove(name).is_some())
    }

    fn list(&self) -> Result<Vec<Listed>, GroupsError> {
        let state = self.up()?;
        let listed = |name: &String| Listed { name: name.clone(), clients: state.clients.get(name).copied().unwrap_or(0), directory: directory_of(name) };
        Ok(state.groups.keys().map(listed).collect())
    }

    fn cards(&self) -> Result<Vec<NodeCard>, GroupsError> {
        Ok(self.up()?.cards.clone())
    }
}
