//! Partitions of the card for clients with a share: green contexts within the one primary context.
//! Kernels loaded once run in all of them.
//!
//! [`Floor`] decides which SMs a partition gets, as on the software GPU: side by side as long as
//! there is room. A green context for a set of SMs is made when the set is first used and kept
//! until the device is closed: making one takes a millisecond and some 5 MiB of the card, and waits
//! for running kernels.

use super::sm_layout::SmLayout;
use crate::driver::{Driver, Function, GreenContext, Stream};
use crate::fault::{Call, remedy};
use cumux_device::DeviceError;
use cumux_device::floor::Floor;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Making a partition that takes longer is told in the log: somebody's change of share is late.
const SLOW: Duration = Duration::from_millis(10);
/// Sets of SMs for which a green context is kept. With so many, a newcomer shares one of them.
const MOST_SETS: usize = 48;
/// SMs of a share are counted in pairs, the least that Hopper gives out.
const SHARE_STEP: u32 = 2;

/// Tells sets of SMs apart. Partitions with the same number have the same SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PartitionId(u32);

impl PartitionId {
    /// All SMs of the card, without a green context.
    pub(crate) const WHOLE_CARD: PartitionId = PartitionId(0);

    /// The number of a client's partition; `None` is the whole card.
    pub(crate) fn of(partition: Option<&Partition>) -> PartitionId {
        partition.map_or(PartitionId::WHOLE_CARD, |partition| partition.context.id)
    }

    /// Any number but the whole card's, for tests.
    #[cfg(test)]
    pub(crate) fn other() -> PartitionId {
        PartitionId(7)
    }
}

/// A green context of ours on one set of SMs.
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

/// Somebody's partition of the card. Its SMs count as taken until it is dropped.
pub(crate) struct Partition {
    context: Arc<SetContext>,
    /// By our numbers, in order.
    sms: Vec<u32>,
    floor: Arc<Mutex<Floor>>,
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
        self.floor.lock().give(&self.sms);
    }
}

/// Green contexts by their SMs (our numbers, in order).
type SetContexts = HashMap<Vec<u32>, Arc<SetContext>>;

/// The partitions of a card.
///
/// Lock order: `contexts`, then `floor`. The driver is called under `contexts`.
pub(crate) struct Partitions {
    /// Or why the card cannot be divided.
    layout: Result<SmLayout, String>,
    floor: Arc<Mutex<Floor>>,
    contexts: Mutex<SetContexts>,
}

impl Partitions {
    /// Probes the card, before anything runs on it.
    pub(crate) fn probe(driver: &Arc<Driver>, sm_probe: Function) -> Partitions {
        let layout = SmLayout::probe(driver, sm_probe).map_err(|error| {
            let why = driver.describe_numbered(error);
            tracing::warn!("this card cannot be divided among clients: {why}");
            why
        });
        let floor = layout.as_ref().map_or_else(|_| Floor::default(), |layout| Floor::with_groups(layout.count(), layout.coscheduled()));
        Partitions { layout, floor: Arc::new(Mutex::new(floor)), contexts: Mutex::default() }
    }

    /// A partition of so many SMs (0: as many as there are) where the fewest others are, of the
    /// card or of the partition `inside`. A client that leaves the partition `leaves` for it is not
    /// in its own way.
    ///
    /// # Errors
    /// A sentence: the card cannot be divided, or not so.
    pub(crate) fn choose(
        &self,
        driver: &Arc<Driver>,
        inside: Option<&Partition>,
        leaves: Option<&Partition>,
        multiprocessors: u32,
    ) -> Result<Arc<Partition>, DeviceError> {
        let mut contexts = self.contexts.lock();
        let sms = {
            let mut floor = self.floor.lock();
            let within = inside.map_or_else(|| floor.all(), |partition| partition.sms.clone());
            let count = if multiprocessors == 0 { within.len() as u32 } else { multiprocessors.next_multiple_of(SHARE_STEP) };
            let left = leaves.map_or(&[] as &[u32], |partition| &partition.sms);
            floor.give(left);
            let sms = floor.take(count, &within);
            floor.hold(left);
            if contexts.len() < MOST_SETS || contexts.contains_key(&sms) { sms } else { share_set(&contexts, &mut floor, sms, &within) }
        };
        self.partition_of_held(&mut contexts, driver, sms)
    }

    /// A static partition: exactly these SMs.
    ///
    /// # Errors
    /// A sentence: the card cannot be divided, or has no such set.
    pub(crate) fn exactly(&self, driver: &Arc<Driver>, sms: &[u32]) -> Result<Arc<Partition>, DeviceError> {
        let mut sms = sms.to_vec();
        sms.sort_unstable();
        sms.dedup();
        self.floor.lock().hold(&sms);
        self.partition_of_held(&mut self.contexts.lock(), driver, sms)
    }

    /// The partition of these SMs, which the floor counts as taken already.
    fn partition_of_held(&self, contexts: &mut SetContexts, driver: &Arc<Driver>, sms: Vec<u32>) -> Result<Arc<Partition>, DeviceError> {
        let partition = |context: &Arc<SetContext>, sms| Arc::new(Partition { context: context.clone(), sms, floor: self.floor.clone() });
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
                self.floor.lock().give(&sms);
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

/// A set of as many SMs for which there is a context, the one with the fewest partitions, in place
/// of `sms`; `sms` itself if there is none. The result is held in the floor, as `sms` was.
fn share_set(contexts: &SetContexts, floor: &mut Floor, sms: Vec<u32>, within: &[u32]) -> Vec<u32> {
    let alike = contexts.keys().filter(|set| set.len() == sms.len() && set.iter().all(|sm| within.contains(sm)));
    let Some(set) = alike.min_by_key(|set| floor.parts(set)).cloned() else { return sms };
    floor.give(&sms);
    floor.hold(&set);
    set
}
