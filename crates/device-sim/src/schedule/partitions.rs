//! Which SMs belong to which partition of a client. Pure bookkeeping under the scheduler's lock.
//!
//! [`SmAllocator`] is the card's side: how many partitions each SM belongs to. [`ClientPartitions`]
//! is one client's side: partition [`SHARE`] is its whole share, the others lie inside of it. A set
//! of SMs that was replaced stays until its last kernel is over.

use std::collections::{BTreeMap, BTreeSet};

use super::placement::SmSet;
use crate::models::Limits;
use cumux_device::sm_allocator::SmAllocator;
use cumux_wire::positions::SmPositions;

/// The partition that is the client's whole share.
pub(crate) const SHARE: u32 = 0;

/// Which SMs of a client's share a partition has.
#[derive(Debug, Clone, Copy)]
pub(super) enum PartitionSize {
    /// So many, those that the fewest partitions have; 0 = all.
    Count(u32),
    /// Those at these positions.
    Positions(SmPositions),
}

/// One set of SMs of a client, and how many kernels run there.
#[derive(Debug)]
struct PartitionSms {
    sms: SmSet,
    kernels: u32,
    /// The partition whose new kernels use the set; `None` once it was replaced.
    partition: Option<u32>,
}

/// The partitions of one client.
#[derive(Debug, Default)]
pub(super) struct ClientPartitions {
    /// By number; a kernel keeps the number of its set.
    sets: BTreeMap<u32, PartitionSms>,
    last_set: u32,
    /// What each partition was asked to have.
    wanted: BTreeMap<u32, PartitionSize>,
}

impl ClientPartitions {
    /// A client with a share of so many SMs (0 = the whole card).
    pub(super) fn new(limits: &Limits, sm_allocator: &mut SmAllocator, share: u32) -> Self {
        let mut partitions = ClientPartitions::default();
        partitions.wanted.insert(SHARE, PartitionSize::Count(share));
        partitions.place_partition(limits, sm_allocator, SHARE);
        partitions
    }

    /// A client of a static partition: exactly these SMs.
    pub(super) fn with_sms(limits: &Limits, sm_allocator: &mut SmAllocator, sms: &[u32]) -> Self {
        let mut partitions = ClientPartitions::default();
        let ids: Vec<u32> = sms.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        sm_allocator.hold(&ids);
        partitions.wanted.insert(SHARE, PartitionSize::Count(ids.len() as u32));
        partitions.add_set(SmSet::new(limits, ids), SHARE);
        partitions
    }

    /// The SMs of the share now.
    pub(super) fn share(&self) -> Vec<u32> {
        self.sms_of(SHARE).map(|sms| sms.ids().to_vec()).unwrap_or_default()
    }

    fn add_set(&mut self, sms: SmSet, partition: u32) {
        self.last_set += 1;
        self.sets.insert(self.last_set, PartitionSms { sms, kernels: 0, partition: Some(partition) });
    }

    fn place_partition(&mut self, limits: &Limits, sm_allocator: &mut SmAllocator, partition: u32) {
        let within = if partition == SHARE { sm_allocator.all() } else { self.share() };
        let ids = match self.wanted.get(&partition).copied().unwrap_or(PartitionSize::Count(0)) {
            PartitionSize::Count(0) => sm_allocator.assign(within.len() as u32, &within),
            PartitionSize::Count(count) => sm_allocator.assign(count, &within),
            PartitionSize::Positions(positions) => {
                let ids = positions.pick(&within);
                sm_allocator.hold(&ids);
                ids
            }
        };
        self.add_set(SmSet::new(limits, ids), partition);
    }

    /// Lets no new kernel begin on the partition's SMs.
    fn retire_partition(&mut self, sm_allocator: &mut SmAllocator, partition: u32) {
        if let Some(number) = self.set_number(partition) {
            if let Some(set) = self.sets.get_mut(&number) {
                set.partition = None;
            }
            self.drop_unused(sm_allocator, number);
        }
    }

    fn drop_unused(&mut self, sm_allocator: &mut SmAllocator, number: u32) {
        if self.sets.get(&number).is_some_and(|set| set.partition.is_none() && set.kernels == 0)
            && let Some(set) = self.sets.remove(&number)
        {
            sm_allocator.release(set.sms.ids());
        }
    }

    fn set_number(&self, partition: u32) -> Option<u32> {
        self.sets.iter().find(|(_, set)| set.partition == Some(partition)).map(|(number, _)| *number)
    }

    fn sms_of(&self, partition: u32) -> Option<&SmSet> {
        self.sets.values().find(|set| set.partition == Some(partition)).map(|set| &set.sms)
    }

    /// Changes the share. The other partitions are placed inside of it anew.
    pub(super) fn set_share(&mut self, limits: &Limits, sm_allocator: &mut SmAllocator, share: u32) {
        self.wanted.insert(SHARE, PartitionSize::Count(share));
        let all: Vec<u32> = self.wanted.keys().copied().collect();
        for partition in &all {
            self.retire_partition(sm_allocator, *partition);
        }
        for partition in all {
            self.place_partition(limits, sm_allocator, partition);
        }
    }

    /// As [`ClientPartitions::set_share`], to exactly these SMs.
    pub(super) fn set_sms(&mut self, limits: &Limits, sm_allocator: &mut SmAllocator, sms: &[u32]) {
        self.wanted.insert(SHARE, PartitionSize::Count(sms.len() as u32));
        let all: Vec<u32> = self.wanted.keys().copied().collect();
        for partition in &all {
            self.retire_partition(sm_allocator, *partition);
        }
        sm_allocator.hold(sms);
        self.add_set(SmSet::new(limits, sms.to_vec()), SHARE);
        for partition in all.into_iter().filter(|partition| *partition != SHARE) {
            self.place_partition(limits, sm_allocator, partition);
        }
    }

    /// Opens a partition inside of the share; false if the number is in use.
    pub(super) fn open_partition(&mut self, limits: &Limits, sm_allocator: &mut SmAllocator, partition: u32, size: PartitionSize) -> bool {
        if self.wanted.contains_key(&partition) {
            return false;
        }
        self.wanted.insert(partition, size);
        self.place_partition(limits, sm_allocator, partition);
        true
    }

    /// Closes a partition. The share itself stays.
    pub(super) fn close_partition(&mut self, sm_allocator: &mut SmAllocator, partition: u32) {
        if partition != SHARE && self.wanted.remove(&partition).is_some() {
            self.retire_partition(sm_allocator, partition);
        }
    }

    /// Gives all SMs back. Nothing of the client runs any more.
    pub(super) fn release_all(&mut self, sm_allocator: &mut SmAllocator) {
        for set in std::mem::take(&mut self.sets).into_values() {
            sm_allocator.release(set.sms.ids());
        }
    }

    /// Whether the partition is open.
    pub(super) fn has_partition(&self, partition: u32) -> bool {
        self.wanted.contains_key(&partition)
    }

    /// The set on which kernels of a partition begin now, and its number. For a partition that was
    /// closed it is the set of the share.
    pub(super) fn current_set(&self, partition: u32) -> Option<(u32, &SmSet)> {
        let number = self.set_number(partition).or_else(|| self.set_number(SHARE))?;
        self.sets.get(&number).map(|set| (number, &set.sms))
    }

    /// The set with this number.
    pub(super) fn set(&mut self, number: u32) -> Option<&mut SmSet> {
        self.sets.get_mut(&number).map(|set| &mut set.sms)
    }

    /// Notes that a kernel begins on this set.
    pub(super) fn begin_kernel(&mut self, number: u32) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.kernels += 1;
        }
    }

    /// Notes that a kernel of this set is over.
    pub(super) fn end_kernel(&mut self, sm_allocator: &mut SmAllocator, number: u32) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.kernels = set.kernels.saturating_sub(1);
        }
        self.drop_unused(sm_allocator, number);
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

    fn ids(partitions: &ClientPartitions, partition: u32) -> Vec<u32> {
        partitions.current_set(partition).unwrap().1.ids().to_vec()
    }

    #[test]
    fn a_share_is_changed_under_running_kernels() {
        let (limits, mut sm_allocator) = (h200(), SmAllocator::new(132));
        let mut partitions = ClientPartitions::new(&limits, &mut sm_allocator, 32);
        let (old, _) = partitions.current_set(0).unwrap();
        partitions.begin_kernel(old);
        partitions.set_share(&limits, &mut sm_allocator, 8);
        let (new, sms) = partitions.current_set(0).unwrap();
        assert!(new != old && sms.ids().len() == 8);
        assert!(partitions.set(old).is_some(), "what has begun ends where it is");
        assert_eq!(sm_allocator.loads().iter().sum::<u32>(), 40);
        partitions.end_kernel(&mut sm_allocator, old);
        assert!(partitions.set(old).is_none());
        assert_eq!(sm_allocator.loads().iter().sum::<u32>(), 8);
        partitions.release_all(&mut sm_allocator);
        assert_eq!(sm_allocator.loads().iter().sum::<u32>(), 0);
    }

    #[test]
    fn partitions_of_a_client_lie_inside_its_share_beside_each_other() {
        let (limits, mut sm_allocator) = (h200(), SmAllocator::new(132));
        let mut partitions = ClientPartitions::new(&limits, &mut sm_allocator, 66);
        assert!(partitions.open_partition(&limits, &mut sm_allocator, 1, PartitionSize::Count(16)));
        assert!(partitions.open_partition(&limits, &mut sm_allocator, 2, PartitionSize::Count(32)));
        assert!(!partitions.open_partition(&limits, &mut sm_allocator, 2, PartitionSize::Count(8)), "in use");
        let (share, one, two) = (ids(&partitions, 0), ids(&partitions, 1), ids(&partitions, 2));
        assert!(one.iter().chain(&two).all(|sm| share.contains(sm)));
        assert!(!one.iter().any(|sm| two.contains(sm)));
        partitions.set_share(&limits, &mut sm_allocator, 10);
        assert_eq!((ids(&partitions, 0).len(), ids(&partitions, 1).len(), ids(&partitions, 2).len()), (10, 10, 10));
        partitions.close_partition(&mut sm_allocator, 1);
        assert_eq!(ids(&partitions, 1), ids(&partitions, 0));
    }

    /// A partition at positions has these SMs of the share, whatever else is there.
    #[test]
    fn partitions_at_positions_have_exactly_those() {
        let (limits, mut sm_allocator) = (h200(), SmAllocator::new(132));
        let mut other = ClientPartitions::new(&limits, &mut sm_allocator, 66);
        let mut partitions = ClientPartitions::new(&limits, &mut sm_allocator, 0);
        let at = |range: std::ops::Range<u32>| PartitionSize::Positions(range.collect());
        for (number, range) in [(1, 0..66), (2, 66..132), (3, 66..132)] {
            assert!(partitions.open_partition(&limits, &mut sm_allocator, number, at(range)));
        }
        assert_eq!(ids(&partitions, 1), (0..66).collect::<Vec<_>>());
        assert_eq!((ids(&partitions, 2), ids(&partitions, 3)), ((66..132).collect(), (66..132).collect()));
        partitions.set_share(&limits, &mut sm_allocator, 70);
        let share = ids(&partitions, 0);
        assert_eq!(ids(&partitions, 1), share[..66], "in the new share");
        assert_eq!(ids(&partitions, 2), [&share[..62], &share[66..]].concat(), "what is not there begins at the front again");
        partitions.release_all(&mut sm_allocator);
        other.release_all(&mut sm_allocator);
        assert!(sm_allocator.loads().iter().all(|load| *load == 0));
    }

    proptest! {
        /// Clients come and go. A new partition shares SMs with others only if the card has not
        /// enough free SMs, and everything is given back in the end.
        #[test]
        fn partitions_overlap_as_little_as_the_sum_allows(steps in proptest::collection::vec((1_u32..67, any::<bool>(), any::<prop::sample::Index>()), 1..60)) {
            let (limits, mut sm_allocator) = (h200(), SmAllocator::new(132));
            let mut live: Vec<ClientPartitions> = Vec::new();
            for (pairs, leave, which) in steps {
                if leave && !live.is_empty() {
                    live.swap_remove(which.index(live.len())).release_all(&mut sm_allocator);
                    continue;
                }
                let free = sm_allocator.loads().iter().filter(|load| **load == 0).count() as u32;
                let before = sm_allocator.loads().to_vec();
                let partitions = ClientPartitions::new(&limits, &mut sm_allocator, pairs * 2);
                let mine = ids(&partitions, 0);
                prop_assert_eq!(mine.len() as u32, pairs * 2);
                prop_assert!(mine.is_sorted() && mine.iter().all(|sm| *sm < 132));
                let overlapping = mine.iter().filter(|sm| before[**sm as usize] > 0).count() as u32;
                prop_assert_eq!(overlapping, (pairs * 2).saturating_sub(free));
                live.push(partitions);
            }
            for mut partitions in live {
                partitions.release_all(&mut sm_allocator);
            }
            prop_assert!(sm_allocator.loads().iter().all(|load| *load == 0));
        }
    }
}
