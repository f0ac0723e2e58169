//! Partitions of the card's SMs, for clients with a share: green contexts within the one primary
//! context. Kernels are loaded once and run in all partitions.
//!
//! [`SmAllocator`] decides which SMs a partition gets, as on the software GPU: partitions overlap
//! only when they are together larger than the card. A green context for a set of SMs is made when
//! the set is first used, and kept until the device is closed. Making one takes a millisecond and
//! about 5 MiB of the card's memory, and waits for running kernels.

use super::sm_layout::{SmLayout, SmNumbers};
use super::sm_notes::Notes;
use crate::driver::{DeviceHandle, Driver, Dumps, GreenContext, Stream, first_queue, set_first_queue};
use crate::fault::{Call, remedy};
use cumux_device::DeviceError;
use cumux_device::sm_allocator::SmAllocator;
use cumux_wire::positions::SmPositions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// If making a green context takes longer than this, the log says so: a client's change of share is
/// delayed.
const SLOW: Duration = Duration::from_millis(10);
/// Most sets of SMs for which a green context is kept. Once there are this many, a new partition
/// uses one of them.
const MOST_SETS: usize = 48;
/// SMs of a share come in pairs, the smallest unit that Hopper partitions.
const SHARE_STEP: u32 = 2;

/// Identifies a set of SMs. Partitions with the same number have the same SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PartitionId(u32);

impl PartitionId {
    /// All SMs of the card, without a green context.
    pub(crate) const WHOLE_CARD: PartitionId = PartitionId(0);

    /// The number of a client's partition; `None` is the whole card.
    pub(crate) fn of(partition: Option<&Partition>) -> PartitionId {
        partition.map_or(PartitionId::WHOLE_CARD, |partition| partition.context.id)
    }

    /// A number other than the whole card's, for tests.
    #[cfg(test)]
    pub(crate) fn other() -> PartitionId {
        PartitionId(7)
    }
}

/// The green context on one set of SMs.
struct SetContext {
    driver: Arc<Driver>,
    green: GreenContext,
    id: PartitionId,
}

impl Drop for SetContext {
    fn drop(&mut self) {
        self.driver.destroy_green_context(self.green);
    }
}

/// A partition that a client uses. The SM allocator counts its SMs as used until it is dropped.
pub(crate) struct Partition {
    context: Arc<SetContext>,
    /// The SMs, by this crate's numbers, in order.
    sms: Vec<u32>,
    sm_allocator: Arc<Mutex<SmAllocator>>,
}

impl Partition {
    /// A driver stream of this priority on the partition's SMs.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_stream(&self, priority: i32) -> Call<Stream> {
        self.context.driver.create_green_stream(self.context.green, priority)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.sm_allocator.lock().release(&self.sms);
    }
}

/// Green contexts by their SMs (this crate's numbers, in order).
type SetContexts = HashMap<Vec<u32>, Arc<SetContext>>;

/// Finds out the numbers of the SMs of a card, in a context of its own, which is gone then, if no
/// executor before has noted them. To be called before this process runs anything on the card.
/// `None` if they were not found so.
pub(crate) fn find_sms(ordinal: u32, dumps: Dumps) -> Option<SmNumbers> {
    if Driver::is_whole() {
        return None;
    }
    let uuid = DeviceHandle::open(ordinal).ok()?.uuid();
    let mut notes = Notes::open();
    if let Some(found) = notes.as_mut().and_then(|notes| notes.find(uuid)) {
        return Some(found);
    }
    let queue = first_queue();
    let found = Driver::open(ordinal, dumps, 1).ok().and_then(|driver| {
        driver.begin_small();
        SmNumbers::find(&driver).inspect_err(|error| tracing::debug!("the card's multiprocessors: {}", driver.describe_numbered(*error))).ok()
    });
    set_first_queue(queue);
    if let (Some(notes), Some(found)) = (&mut notes, &found) {
        notes.add(uuid, found);
    }
    found
}

/// The partitions of a card.
///
/// Lock order: `contexts` (6), then `sm_allocator` (7). The driver is called under `contexts`.
pub(crate) struct Partitions {
    /// The card's SMs, or why the card cannot be partitioned.
    layout: Result<SmLayout, String>,
    sm_allocator: Arc<Mutex<SmAllocator>>,
    contexts: Mutex<SetContexts>,
}

impl Partitions {
    /// The partitions of a card whose SMs have these numbers. If they are not known, or cannot be,
    /// they are found out now, before anything runs on the card.
    pub(crate) fn of(driver: &Arc<Driver>, found: Option<SmNumbers>) -> Partitions {
        let ask = || {
            let asked = SmNumbers::find(driver).and_then(|found| SmLayout::of(driver, found));
            asked.map_err(|error| {
                let why = driver.describe_numbered(error);
                tracing::warn!("this card cannot be divided among clients: {why}");
                why
            })
        };
        let layout = match found.map(|found| SmLayout::of(driver, found)) {
            _ if Driver::is_whole() => Err("the driver is cumux's own library".to_owned()),
            Some(Ok(layout)) => Ok(layout),
            Some(Err(_)) | None => ask(),
        };
        let sm_allocator = layout.as_ref().map_or_else(|_| SmAllocator::default(), |layout| SmAllocator::with_groups(layout.count(), layout.coscheduled()));
        Partitions { layout, sm_allocator: Arc::new(Mutex::new(sm_allocator)), contexts: Mutex::default() }
    }

    /// A partition of this many SMs (0: as many as possible), out of the card's or those of the
    /// partition `inside`. It gets the SMs that the fewest other partitions use; `leaves`, the
    /// partition that the client gives up for it, is not counted.
    ///
    /// # Errors
    /// A sentence: the card cannot be partitioned, or not in this way.
    pub(crate) fn choose(
        &self,
        driver: &Arc<Driver>,
        inside: Option<&Partition>,
        leaves: Option<&Partition>,
        multiprocessors: u32,
    ) -> Result<Arc<Partition>, DeviceError> {
        let mut contexts = self.contexts.lock();
        let sms = {
            let mut sm_allocator = self.sm_allocator.lock();
            let within = inside.map_or_else(|| sm_allocator.all(), |partition| partition.sms.clone());
            let count = if multiprocessors == 0 { within.len() as u32 } else { multiprocessors.next_multiple_of(SHARE_STEP) };
            let left = leaves.map_or(&[] as &[u32], |partition| &partition.sms);
            sm_allocator.release(left);
            let sms = sm_allocator.assign(count, &within);
            sm_allocator.hold(left);
            if contexts.len() < MOST_SETS || contexts.contains_key(&sms) { sms } else { share_set(&contexts, &mut sm_allocator, sms, &within) }
        };
        self.partition_of_held(&mut contexts, driver, sms)
    }

    /// A partition of the SMs at these positions of the card's SMs, or of those of the partition
    /// `inside`.
    ///
    /// # Errors
    /// A sentence: the card cannot be partitioned in this way, or has as many sets of SMs in use as
    /// are kept.
    pub(crate) fn place(&self, driver: &Arc<Driver>, inside: Option<&Partition>, positions: SmPositions) -> Result<Arc<Partition>, DeviceError> {
        let mut contexts = self.contexts.lock();
        let mut sm_allocator = self.sm_allocator.lock();
        let sms = positions.pick(inside.map_or_else(|| sm_allocator.all(), |partition| partition.sms.clone()).as_slice());
        if sms.is_empty() {
            return Err(DeviceError::Invalid("a partition without SMs".into()));
        }
        if contexts.len() >= MOST_SETS && !contexts.contains_key(&sms) {
            // Each set costs memory of the card for as long as the executor lives.
            let text = format!("the card has {MOST_SETS} sets of multiprocessors in use already, and keeps no more");
            return Err(DeviceError::OutOfMemory(text));
        }
        sm_allocator.hold(&sms);
        drop(sm_allocator);
        self.partition_of_held(&mut contexts, driver, sms)
    }

    /// A static partition: exactly these SMs.
    ///
    /// # Errors
    /// A sentence: the card cannot be partitioned, or has no such SMs.
    pub(crate) fn exactly(&self, driver: &Arc<Driver>, sms: &[u32]) -> Result<Arc<Partition>, DeviceError> {
        let mut sms = sms.to_vec();
        sms.sort_unstable();
        sms.dedup();
        self.sm_allocator.lock().hold(&sms);
        self.partition_of_held(&mut self.contexts.lock(), driver, sms)
    }

    /// The partition of these SMs. The SM allocator counts them as used already.
    fn partition_of_held(&self, contexts: &mut SetContexts, driver: &Arc<Driver>, sms: Vec<u32>) -> Result<Arc<Partition>, DeviceError> {
        let partition = |context: &Arc<SetContext>, sms| Arc::new(Partition { context: context.clone(), sms, sm_allocator: self.sm_allocator.clone() });
        if let Some(context) = contexts.get(&sms) {
            return Ok(partition(context, sms));
        }
        match self.create_green_context(driver, &sms) {
            Ok(green) => {
                let id = PartitionId(contexts.len() as u32 + 1);
                let context = Arc::new(SetContext { driver: driver.clone(), green, id });
                contexts.insert(sms.clone(), context.clone());
                Ok(partition(&context, sms))
            }
            Err(error) => {
                self.sm_allocator.lock().release(&sms);
                Err(error)
            }
        }
    }

    fn create_green_context(&self, driver: &Arc<Driver>, sms: &[u32]) -> Result<GreenContext, DeviceError> {
        let cannot = |why: &str| format!("a share of {} SMs cannot be made: {why}", sms.len());
        let layout = self.layout.as_ref().map_err(|why| DeviceError::NotSupported(cannot(why)))?;
        let groups = layout.resources_for(sms).ok_or_else(|| DeviceError::NotSupported(cannot("the card has no such set of SMs")))?;
        let begun = Instant::now();
        let green = driver.create_green_context(&groups);
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!("the driver took {} ms for a share of {} SMs in {} groups", took.as_millis(), sms.len(), groups.len());
        }
        green.map_err(|error| remedy::refused_call(error, cannot(&driver.describe_numbered(error)), DeviceError::NotSupported))
    }
}

/// Finds an existing set of as many SMs, among them the one that the fewest partitions use. Returns
/// `sms` if there is none. The SM allocator counts the returned set as used, in place of `sms`.
fn share_set(contexts: &SetContexts, sm_allocator: &mut SmAllocator, sms: Vec<u32>, within: &[u32]) -> Vec<u32> {
    let alike = contexts.keys().filter(|set| set.len() == sms.len() && set.iter().all(|sm| within.contains(sm)));
    let Some(set) = alike.min_by_key(|set| sm_allocator.partitions_on(set)).cloned() else { return sms };
    sm_allocator.release(&sms);
    sm_allocator.hold(&set);
    set
}
