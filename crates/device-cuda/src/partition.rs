//! Parts of the card for clients with a share: green contexts of the one primary context. Kernels loaded once run in all of them.
//!
//! Which SMs a part gets is decided by [`Floor`], as on the software GPU: side by side as long as there is room. A green context for a set of SMs is made when
//! the set is first used and kept until the device is closed: making one takes a millisecond, some 5 MiB of the card, and waits for running kernels.

use crate::driver::{Driver, Function, GreenContext, Stream};
use crate::fault::remedy;
use crate::layout::Layout;
use cumux_device::DeviceError;
use cumux_device::floor::Floor;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than this, making a part is told in the log: somebody's change of share is late.
const SLOW: Duration = Duration::from_millis(10);
/// Sets of SMs for which a green context is kept. With so many, who comes shares one that is there.
const SETS: usize = 48;

/// A set of SMs as the driver knows it.
struct Made {
    driver: Arc<Driver>,
    green: GreenContext,
    id: u32,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.driver.destroy_green_context(self.green);
    }
}

/// Somebody's part of the card. Its SMs count as taken until it is dropped.
pub(crate) struct Partition {
    made: Arc<Made>,
    /// By our numbers, in order.
    sms: Vec<u32>,
    floor: Arc<Mutex<Floor>>,
}

impl Partition {
    /// Parts with the same number are the same SMs. 0 is the whole card.
    pub(crate) fn id(&self) -> u32 {
        self.made.id
    }

    pub(crate) fn create_stream(&self, priority: i32) -> Result<Stream, crate::fault::CudaError> {
        self.made.driver.create_green_stream(self.made.green, priority)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.floor.lock().give(&self.sms);
    }
}

/// The card's parts.
pub(crate) struct Partitions {
    /// Or why the card cannot be divided.
    layout: Result<Layout, String>,
    floor: Arc<Mutex<Floor>>,
    made: Mutex<HashMap<Vec<u32>, Arc<Made>>>,
}

impl Partitions {
    /// Looks at the card, before anything runs on it.
    pub(crate) fn find(driver: &Arc<Driver>, place: Function) -> Partitions {
        let layout = Layout::find(driver, place).map_err(|code| {
            let why = driver.describe_numbered(code);
            tracing::warn!("this card cannot be divided among clients: {why}");
            why
        });
        let floor = layout.as_ref().map_or_else(|_| Floor::default(), |layout| Floor::with_groups(layout.all(), layout.groups()));
        Partitions { layout, floor: Arc::new(Mutex::new(floor)), made: Mutex::default() }
    }

    /// A part of this size where the fewest others are, of the card or of another part. Who leaves another for it is not in its way.
    pub(crate) fn choose(
        &self,
        driver: &Arc<Driver>,
        inside: Option<&Partition>,
        leaves: Option<&Partition>,
        multiprocessors: u32,
    ) -> Result<Arc<Partition>, DeviceError> {
        let mut made = self.made.lock();
        let sms = {
            let mut floor = self.floor.lock();
            let within = inside.map_or_else(|| floor.all(), |part| part.sms.clone());
            let count = if multiprocessors == 0 { within.len() as u32 } else { multiprocessors.next_multiple_of(2) };
            let left = leaves.map_or(&[] as &[u32], |part| &part.sms);
            floor.give(left);
            let sms = floor.take(count, &within);
            floor.hold(left);
            if made.len() < SETS || made.contains_key(&sms) {
                sms
            } else {
                let alike = made.keys().filter(|set| set.len() == sms.len() && set.iter().all(|sm| within.contains(sm)));
                let shared = alike.min_by_key(|set| floor.parts(set)).cloned();
                shared.map_or_else(
                    || sms.clone(),
                    |set| {
                        floor.give(&sms);
                        floor.hold(&set);
                        set
                    },
                )
            }
        };
        self.make(&mut made, driver, sms)
    }

    /// A static partition: exactly these SMs.
    pub(crate) fn exactly(&self, driver: &Arc<Driver>, sms: &[u32]) -> Result<Arc<Partition>, DeviceError> {
        let mut sms = sms.to_vec();
        sms.sort_unstable();
        sms.dedup();
        self.floor.lock().hold(&sms);
        self.make(&mut self.made.lock(), driver, sms)
    }

    /// The part of these SMs, which are held already.
    fn make(&self, made: &mut HashMap<Vec<u32>, Arc<Made>>, driver: &Arc<Driver>, sms: Vec<u32>) -> Result<Arc<Partition>, DeviceError> {
        let part = |made: &Arc<Made>, sms: Vec<u32>| Arc::new(Partition { made: made.clone(), sms, floor: self.floor.clone() });
        if let Some(there) = made.get(&sms) {
            return Ok(part(there, sms));
        }
        let cannot = |why: &str| format!("a share of {} SMs cannot be made: {why}", sms.len());
        let fresh = self.layout.as_ref().map_err(|why| DeviceError::NotSupported(cannot(why))).and_then(|layout| {
            let pieces = layout.pieces(&sms).ok_or_else(|| DeviceError::NotSupported(cannot("the card has no such set of SMs")))?;
            let begun = Instant::now();
            let green = driver.create_green_context(&pieces);
            let took = begun.elapsed();
            if took > SLOW {
                tracing::warn!("the driver took {} ms for a share of {} SMs in {} pieces", took.as_millis(), sms.len(), pieces.len());
            }
            green.map_err(|code| {
                let why = cannot(&driver.describe_numbered(code));
                remedy::refused_call(code, why, DeviceError::NotSupported)
            })
        });
        match fresh {
            Ok(green) => {
                let fresh = Arc::new(Made { driver: driver.clone(), green, id: made.len() as u32 + 1 });
                made.insert(sms.clone(), fresh.clone());
                Ok(part(&fresh, sms))
            }
            Err(error) => {
                self.floor.lock().give(&sms);
                Err(error)
            }
        }
    }
}
