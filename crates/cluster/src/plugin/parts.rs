//! The resources of a node: which cards each has, in how many parts, and what a part is worth.
//! Pure.
//!
//! Invariants: a card gives its memory to one resource only, so no memory is promised twice. The
//! name of a part is the card's UUID, `::` and a number; a whole card is its UUID alone. Both are
//! what NVIDIA's plugin writes.

use crate::groups::NodeCard;
use cumux_artifacts::plugin::{Config, Devices};
use std::collections::BTreeMap;

/// The resource of cards that nothing shares.
pub const WHOLE: &str = "nvidia.com/gpu";

/// Something that containers ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// What its parts are.
    pub kind: Kind,
    /// Its cards, in the daemon's order.
    pub cards: Vec<Share>,
}

/// What the parts of a resource are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Equal parts of cards, or whole cards. A container may have several on several cards.
    Replicas,
    /// Units of memory. A container has them on one card.
    Memory,
    /// Units of percent of the multiprocessors, each so many. They are counted only: they apply to
    /// the card on which the container has its memory.
    Percent(u32),
}

/// A card in a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The card.
    pub uuid: String,
    /// Its parts.
    pub parts: u32,
    /// MiB of one part; 0 where the parts are no memory.
    pub part_mib: u64,
}

/// Why there are no resources.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum PartsError {
    /// The node has no such card.
    #[error("the configuration names the card {0}, which this node's daemon does not have: it has {1}")]
    NoSuchCard(String, String),
    /// Two resources want one card.
    #[error("{first} and {second} both want the card {uuid}: its memory can be given out once only. Divide the cards with \"devices\"")]
    Twice {
        /// The resource that has it.
        first: String,
        /// The resource that wants it, too.
        second: String,
        /// The card.
        uuid: String,
    },
    /// A card has less memory than parts.
    #[error("the card {uuid} has {memory_mib} MiB: that is no whole part for {resource}. Ask for fewer replicas or a smaller unit")]
    TooSmall {
        /// The resource.
        resource: String,
        /// The card.
        uuid: String,
        /// Its memory.
        memory_mib: u64,
    },
}

impl Resource {
    /// The names of the parts, each with its card.
    pub fn devices(&self) -> impl Iterator<Item = (String, &Share)> {
        self.cards.iter().flat_map(|share| (0..share.parts).map(move |part| (share.part(part), share)))
    }

    /// The card of a part; `None` if there is no such part.
    #[must_use]
    pub fn card_of(&self, id: &str) -> Option<&Share> {
        let (uuid, part) = id.split_once("::").map_or((id, None), |(uuid, part)| (uuid, Some(part)));
        let share = self.cards.iter().find(|share| share.uuid == uuid)?;
        match part {
            None => (share.parts == 1).then_some(share),
            // Only as we write it: "07" is another text than "7".
            Some(part) => part.parse::<u32>().ok().filter(|number| *number < share.parts && share.part(*number) == id).map(|_| share),
        }
    }
}

impl Share {
    fn part(&self, part: u32) -> String {
        if self.parts == 1 { self.uuid.clone() } else { format!("{}::{part}", self.uuid) }
    }
}

fn select<'a>(devices: &Devices, cards: &'a [NodeCard]) -> Result<Vec<&'a NodeCard>, PartsError> {
    match devices {
        Devices::All => Ok(cards.iter().collect()),
        Devices::Count(count) => Ok(cards.iter().take(*count as usize).collect()),
        Devices::These(names) => {
            let known = || cards.iter().map(|card| format!("{} ({})", card.ordinal, card.uuid)).collect::<Vec<_>>().join(", ");
            let find = |name: &String| cards.iter().find(|card| card.uuid == *name || card.ordinal.to_string() == *name);
            names.iter().map(|name| find(name).ok_or_else(|| PartsError::NoSuchCard(name.clone(), known()))).collect()
        }
    }
}

/// The resources of a node with these cards.
///
/// # Errors
/// [`PartsError`].
pub fn resources(config: &Config, cards: &[NodeCard]) -> Result<Vec<Resource>, PartsError> {
    let mut owner: BTreeMap<&str, String> = BTreeMap::new();
    let mut all: Vec<Resource> = Vec::new();
    let mut add = |name: &str, kind: Kind, share: Share| match all.iter_mut().find(|resource| resource.name == name) {
        Some(resource) => resource.cards.push(share),
        None => all.push(Resource { name: name.to_owned(), kind, cards: vec![share] }),
    };
    fn claim<'a>(owner: &mut BTreeMap<&'a str, String>, card: &'a NodeCard, name: &str) -> Result<(), PartsError> {
        match owner.insert(&card.uuid, name.to_owned()) {
            None => Ok(()),
            Some(first) => Err(PartsError::Twice { first, second: name.to_owned(), uuid: card.uuid.clone() }),
        }
    }
    for replicated in &config.replicated {
        for card in select(&replicated.devices, cards)? {
            claim(&mut owner, card, &replicated.advertised)?;
            let part_mib = card.memory_mib / u64::from(replicated.replicas);
            if part_mib == 0 {
                return Err(PartsError::TooSmall { resource: replicated.advertised.clone(), uuid: card.uuid.clone(), memory_mib: card.memory_mib });
            }
            add(&replicated.advertised, Kind::Replicas, Share { uuid: card.uuid.clone(), parts: replicated.replicas, part_mib });
        }
    }
    if let Some(units) = &config.units {
        for card in select(&units.devices, cards)? {
            claim(&mut owner, card, &units.memory.name)?;
            let parts = u32::try_from(card.memory_mib / units.memory.size).unwrap_or(u32::MAX);
            if parts == 0 {
                return Err(PartsError::TooSmall { resource: units.memory.name.clone(), uuid: card.uuid.clone(), memory_mib: card.memory_mib });
            }
            add(&units.memory.name, Kind::Memory, Share { uuid: card.uuid.clone(), parts, part_mib: units.memory.size });
            if let Some(percent) = &units.percent {
                let size = u32::try_from(percent.size).unwrap_or(100);
                add(&percent.name, Kind::Percent(size), Share { uuid: card.uuid.clone(), parts: 100 / size, part_mib: 0 });
            }
        }
    }
    for card in cards.iter().filter(|card| !owner.contains_key(card.uuid.as_str())) {
        add(WHOLE, Kind::Replicas, Share { uuid: card.uuid.clone(), parts: 1, part_mib: card.memory_mib });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDaemon;
    use crate::groups::Groups as _;
    use cumux_artifacts::plugin::read;

    fn of(config: &str) -> Result<Vec<Resource>, PartsError> {
        resources(&read(config).unwrap(), &FakeDaemon::with_cards(&[80_000, 40_000]).cards().unwrap())
    }

    #[test]
    fn without_sharing_every_card_is_whole() {
        let all = of("version: v1\n").unwrap();
        assert_eq!((all.len(), all[0].name.as_str(), all[0].devices().count()), (1, WHOLE, 2));
        let id = all[0].devices().next().unwrap().0;
        assert!(!id.contains("::") && all[0].card_of(&id).is_some());
    }

    #[test]
    fn parts_have_names_that_are_read_back() {
        let all = of("sharing:\n  mps:\n    resources: [{name: gpu, replicas: 4}]\n").unwrap();
        assert_eq!(all[0].devices().count(), 8);
        for (id, share) in all[0].devices() {
            assert!(id.len() <= 63 && all[0].card_of(&id) == Some(share), "{id}");
        }
        assert_eq!(all[0].cards[1].part_mib, 10_000);
        let uuid = &all[0].cards[0].uuid;
        for wrong in [uuid.clone(), format!("{uuid}::4"), format!("{uuid}::01"), format!("{uuid}::-1"), format!("{uuid}::"), "GPU-x::0".into(), String::new()] {
            assert_eq!(all[0].card_of(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_card_has_one_owner() {
        let units = "  cumux:\n    memory: {name: cumux.dev/gpu-memory}\n    percent: {name: cumux.dev/gpu-percent, unit: 5}\n";
        let all = of(&format!("sharing:\n{units}    devices: [1]\n")).unwrap();
        let names: Vec<(&str, usize)> = all.iter().map(|resource| (resource.name.as_str(), resource.devices().count())).collect();
        assert_eq!(names, [("cumux.dev/gpu-memory", 39), ("cumux.dev/gpu-percent", 20), (WHOLE, 1)]);
        let twice = of(&format!("sharing:\n  mps:\n    resources: [{{name: gpu, replicas: 4}}]\n{units}")).unwrap_err();
        assert!(twice.to_string().contains("Divide the cards"), "{twice}");
        let missing = of("sharing:\n  mps:\n    resources: [{name: gpu, replicas: 4, devices: [7]}]\n").unwrap_err();
        assert!(missing.to_string().contains("names the card 7"), "{missing}");
    }
}
