//! Which parts a further container should have. Pure. kubelet asks this before it allocates, and
//! may decide otherwise.

use super::parts::{Kind, Resource};
use cumux_artifacts::plugin::Policy;
use std::collections::BTreeMap;

/// Chooses `size` parts out of `available`, with all of `must` among them. Parts that are not known
/// are left out, so the answer may be shorter.
#[must_use]
pub fn prefer(resource: &Resource, policy: Policy, available: &[String], must: &[String], size: usize) -> Vec<String> {
    let mut free: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for id in available.iter().filter(|id| !must.contains(id)) {
        if let Some(share) = resource.card_of(id) {
            free.entry(&share.uuid).or_default().push(id.clone());
        }
    }
    for parts in free.values_mut() {
        parts.sort_by_key(|id| id.split_once("::").and_then(|(_, part)| part.parse::<u32>().ok()));
        parts.reverse();
    }
    let mut chosen: Vec<String> = must.iter().take(size).cloned().collect();
    let pinned = must.first().and_then(|id| resource.card_of(id)).map(|share| share.uuid.as_str());
    let wanted = size - chosen.len();
    // Containers whose parts belong together get one card, if one suffices.
    if resource.kind == Kind::Memory || policy == Policy::Packed {
        let suffices = |(uuid, parts): &(&&str, &Vec<String>)| parts.len() >= wanted && pinned.is_none_or(|pinned| pinned == **uuid);
        let candidates = free.iter().filter(suffices);
        let card = match policy {
            Policy::Packed => candidates.min_by_key(|(_, parts)| parts.len()),
            Policy::Distributed => candidates.rev().max_by_key(|(_, parts)| parts.len()),
        };
        if let Some(card) = card.map(|(uuid, _)| *uuid)
            && let Some(parts) = free.get_mut(card)
        {
            chosen.extend((0..wanted).filter_map(|_| parts.pop()));
            return chosen;
        }
    }
    // One part at a time, each from the card that the policy prefers then.
    while chosen.len() < size {
        let cards = free.values_mut().filter(|parts| !parts.is_empty());
        let card = match policy {
            Policy::Packed => cards.min_by_key(|parts| parts.len()),
            Policy::Distributed => cards.rev().max_by_key(|parts| parts.len()),
        };
        let Some(part) = card.and_then(Vec::pop) else { break };
        chosen.push(part);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::parts::Share;
    use super::*;

    fn resource(kind: Kind) -> Resource {
        let share = |uuid: &str, parts| Share { uuid: uuid.into(), parts, part_mib: 1024 };
        Resource { name: "r".into(), kind, cards: vec![share("a", 4), share("b", 4)] }
    }

    fn ask(kind: Kind, policy: Policy, available: &[&str], must: &[&str], size: usize) -> Vec<String> {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        prefer(&resource(kind), policy, &owned(available), &owned(must), size)
    }

    #[test]
    fn replicas_are_distributed_or_packed() {
        let available = ["a::1", "a::2", "b::0", "b::1", "b::2"];
        assert_eq!(ask(Kind::Replicas, Policy::Distributed, &available, &[], 1), ["b::0"]);
        assert_eq!(ask(Kind::Replicas, Policy::Packed, &available, &[], 1), ["a::1"]);
        assert_eq!(ask(Kind::Replicas, Policy::Distributed, &available, &[], 2), ["b::0", "a::1"]);
        assert_eq!(ask(Kind::Replicas, Policy::Packed, &available, &[], 3), ["b::0", "b::1", "b::2"]);
        assert_eq!(ask(Kind::Replicas, Policy::Distributed, &["a::0", "b::0"], &[], 1), ["a::0"], "equal cards are taken in their order");
    }

    #[test]
    fn memory_lies_on_one_card() {
        let available = ["a::0", "a::1", "b::0", "b::1", "b::2"];
        assert_eq!(ask(Kind::Memory, Policy::Distributed, &available, &[], 2), ["b::0", "b::1"]);
        assert_eq!(ask(Kind::Memory, Policy::Packed, &available, &[], 2), ["a::0", "a::1"]);
        assert_eq!(ask(Kind::Memory, Policy::Packed, &available, &["b::2"], 2), ["b::2", "b::0"]);
        assert_eq!(ask(Kind::Memory, Policy::Packed, &available, &[], 4).len(), 4, "Allocate refuses it with the reason");
    }

    #[test]
    fn what_is_not_there_is_not_chosen() {
        assert_eq!(ask(Kind::Replicas, Policy::Packed, &["z::0", "a::9"], &[], 1), [""; 0]);
        assert_eq!(ask(Kind::Replicas, Policy::Packed, &["a::0"], &["a::1"], 1), ["a::1"]);
    }
}
