//! Which SMs belong to whom. Pure bookkeeping under the scheduler's lock.
//!
//! The card's side of it is [`Floor`]. [`ClientPartitions`] is one client's: part 0 is its share, the others lie inside of it. A part that is
//! replaced stays until its last kernel is over.

use std::collections::BTreeMap;

use super::placement::SmSet;
use crate::models::Limits;
use cumux_device::floor::Floor;

/// One set of SMs of a client, and the kernels that run there.
#[derive(Debug)]
struct PartitionSms {
    sms: SmSet,
    kernels: u32,
    /// The part that new kernels use it for.
    part: Option<u32>,
}

/// The parts of one client.
#[derive(Debug, Default)]
pub(crate) struct ClientPartitions {
    /// By number; kernels keep the number of theirs.
    sets: BTreeMap<u32, PartitionSms>,
    next: u32,
    /// What was asked for, by part; 0 = all.
    wanted: BTreeMap<u32, u32>,
}

impl ClientPartitions {
    /// A client with a share (0 = the whole card).
    pub(crate) fn new(limits: &Limits, floor: &mut Floor, share: u32) -> Self {
        let mut parts = ClientPartitions::default();
        parts.wanted.insert(0, share);
        parts.place_partition(limits, floor, 0);
        parts
    }

    /// A client of a static partition: these SMs, each once.
    pub(crate) fn with_sms(limits: &Limits, floor: &mut Floor, sms: &[u32]) -> Self {
        let mut parts = ClientPartitions::default();
        let ids: Vec<u32> = sms.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        floor.hold(&ids);
        parts.wanted.insert(0, ids.len() as u32);
        parts.next = 1;
        parts.sets.insert(1, PartitionSms { sms: SmSet::new(limits, ids), kernels: 0, part: Some(0) });
        parts
    }

    fn place_partition(&mut self, limits: &Limits, floor: &mut Floor, part: u32) {
        let wanted = self.wanted.get(&part).copied().unwrap_or(0);
        let within = if part == 0 { floor.all() } else { self.sms_of(0).map(|sms| sms.ids().to_vec()).unwrap_or_default() };
        let count = if wanted == 0 { within.len() as u32 } else { wanted };
        let ids = floor.take(count, &within);
        self.next += 1;
        self.sets.insert(self.next, PartitionSms { sms: SmSet::new(limits, ids), kernels: 0, part: Some(part) });
    }

    /// No new kernel begins on this part's SMs.
    fn retire_partition(&mut self, floor: &mut Floor, part: u32) {
        if let Some(number) = self.set_number(part) {
            if let Some(table) = self.sets.get_mut(&number) {
                table.part = None;
            }
            self.drop_unused(floor, number);
        }
    }

    fn drop_unused(&mut self, floor: &mut Floor, number: u32) {
        if self.sets.get(&number).is_some_and(|table| table.part.is_none() && table.kernels == 0)
            && let Some(table) = self.sets.remove(&number)
        {
            floor.give(table.sms.ids());
        }
    }

    fn set_number(&self, part: u32) -> Option<u32> {
        self.sets.iter().find(|(_, table)| table.part == Some(part)).map(|(number, _)| *number)
    }

    fn sms_of(&self, part: u32) -> Option<&SmSet> {
        self.sets.values().find(|table| table.part == Some(part)).map(|table| &table.sms)
    }

    /// Another share; the other parts are put inside of it anew.
    pub(crate) fn set_share(&mut self, limits: &Limits, floor: &mut Floor, share: u32) {
        self.wanted.insert(0, share);
        let all: Vec<u32> = self.wanted.keys().copied().collect();
        for part in &all {
            self.retire_partition(floor, *part);
        }
        for part in all {
            self.place_partition(limits, floor, part);
        }
    }

    /// A part inside of the share; false if the number is in use.
    pub(crate) fn open_partition(&mut self, limits: &Limits, floor: &mut Floor, part: u32, multiprocessors: u32) -> bool {
        if self.wanted.contains_key(&part) {
            return false;
        }
        self.wanted.insert(part, multiprocessors);
        self.place_partition(limits, floor, part);
        true
    }

    pub(crate) fn close_partition(&mut self, floor: &mut Floor, part: u32) {
        if part != 0 && self.wanted.remove(&part).is_some() {
            self.retire_partition(floor, part);
        }
    }

    /// Gives everything back; nothing of the client runs any more.
    pub(crate) fn release_all(&mut self, floor: &mut Floor) {
        for table in std::mem::take(&mut self.sets).into_values() {
            floor.give(table.sms.ids());
        }
    }

    pub(crate) fn has_partition(&self, part: u32) -> bool {
        self.wanted.contains_key(&part)
    }

    /// Where kernels of a part begin now (a part that was closed: the share): the table's number, and the table.
    pub(crate) fn current_set(&self, part: u32) -> Option<(u32, &SmSet)> {
        let number = self.set_number(part).or_else(|| self.set_number(0))?;
        self.sets.get(&number).map(|table| (number, &table.sms))
    }

    pub(crate) fn set(&mut self, number: u32) -> Option<&mut SmSet> {
        self.sets.get_mut(&number).map(|table| &mut table.sms)
    }

    /// A kernel of this table begins.
    pub(crate) fn begin_kernel(&mut self, number: u32) {
        if let Some(table) = self.sets.get_mut(&number) {
            table.kernels += 1;
        }
    }

    /// A kernel of this table is over.
    pub(crate) fn end_kernel(&mut self, floor: &mut Floor, number: u32) {
        if let Some(table) = self.sets.get_mut(&number) {
            table.kernels = table.kernels.saturating_sub(1);
        }
        self.drop_unused(floor, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use proptest::prelude::*;

    fn h200() -> Limits {
        Limits::of(&models::facts("sim:h200", 0).unwrap())
    }

    fn ids(parts: &ClientPartitions, part: u32) -> Vec<u32> {
        parts.current_set(part).unwrap().1.ids().to_vec()
    }

    #[test]
    fn a_share_is_changed_under_running_kernels() {
        let (limits, mut floor) = (h200(), Floor::new(132));
        let mut parts = ClientPartitions::new(&limits, &mut floor, 32);
        let (old, _) = parts.current_set(0).unwrap();
        parts.begin_kernel(old);
        parts.set_share(&limits, &mut floor, 8);
        let (new, sms) = parts.current_set(0).unwrap();
        assert!(new != old && sms.ids().len() == 8);
        assert!(parts.set(old).is_some(), "what has begun ends where it is");
        assert_eq!(floor.loads().iter().sum::<u32>(), 40);
        parts.end_kernel(&mut floor, old);
        assert!(parts.set(old).is_none());
        assert_eq!(floor.loads().iter().sum::<u32>(), 8);
        parts.release_all(&mut floor);
        assert_eq!(floor.loads().iter().sum::<u32>(), 0);
    }

    #[test]
    fn parts_of_a_client_lie_inside_its_share_beside_each_other() {
        let (limits, mut floor) = (h200(), Floor::new(132));
        let mut parts = ClientPartitions::new(&limits, &mut floor, 66);
        assert!(parts.open_partition(&limits, &mut floor, 1, 16) && parts.open_partition(&limits, &mut floor, 2, 32));
        assert!(!parts.open_partition(&limits, &mut floor, 2, 8), "in use");
        let (share, one, two) = (ids(&parts, 0), ids(&parts, 1), ids(&parts, 2));
        assert!(one.iter().chain(&two).all(|sm| share.contains(sm)));
        assert!(!one.iter().any(|sm| two.contains(sm)));
        parts.set_share(&limits, &mut floor, 10);
        assert_eq!((ids(&parts, 0).len(), ids(&parts, 1).len(), ids(&parts, 2).len()), (10, 10, 10));
        parts.close_partition(&mut floor, 1);
        assert_eq!(ids(&parts, 1), ids(&parts, 0));
    }

    proptest! {
        /// Whoever comes and goes: a new part touches others only if the card has not enough free SMs, and everything is given back in the end.
        #[test]
        fn parts_overlap_as_little_as_the_sum_allows(steps in proptest::collection::vec((1_u32..67, any::<bool>(), any::<prop::sample::Index>()), 1..60)) {
            let (limits, mut floor) = (h200(), Floor::new(132));
            let mut live: Vec<ClientPartitions> = Vec::new();
            for (pairs, leave, which) in steps {
                if leave && !live.is_empty() {
                    live.swap_remove(which.index(live.len())).release_all(&mut floor);
                    continue;
                }
                let free = floor.loads().iter().filter(|load| **load == 0).count() as u32;
                let before = floor.loads().to_vec();
                let parts = ClientPartitions::new(&limits, &mut floor, pairs * 2);
                let mine = ids(&parts, 0);
                prop_assert_eq!(mine.len() as u32, pairs * 2);
                prop_assert!(mine.is_sorted() && mine.iter().all(|sm| *sm < 132));
                let overlapping = mine.iter().filter(|sm| before[**sm as usize] > 0).count() as u32;
                prop_assert_eq!(overlapping, (pairs * 2).saturating_sub(free));
                live.push(parts);
            }
            for mut parts in live {
                parts.release_all(&mut floor);
            }
            prop_assert!(floor.loads().iter().all(|load| *load == 0));
        }
    }
}
