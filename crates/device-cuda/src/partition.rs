//! Parts of the card for clients with a share: green contexts of the one primary context. Kernels loaded once run in all of them.

use crate::driver::{Driver, Green, Stream};
use cumux_device::DeviceError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A fixed set of SMs. Kept until the device is closed: making one waits for running kernels.
pub(crate) struct Partition {
    driver: Arc<Driver>,
    green: Green,
    /// 0 is the whole card.
    pub id: u32,
}

impl Partition {
    pub(crate) fn create_stream(&self, priority: i32) -> Result<Stream, crate::driver::Code> {
        self.driver.create_green_stream(self.green, priority)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.driver.destroy_green(self.green);
    }
}

/// By what they are part of (0 = the card) and size.
type BySize = HashMap<(u32, u32), Vec<Arc<Partition>>>;

/// The partitions made so far.
#[derive(Default)]
pub(crate) struct Partitions {
    by_size: Mutex<BySize>,
}

/// Clusters need whole groups of SMs that are scheduled together; other sizes give that up.
fn keeps_clusters(multiprocessors: u32) -> bool {
    multiprocessors.is_multiple_of(8)
}

impl Partitions {
    /// The part of this size with the fewest clients, of the card or of another part.
    pub(crate) fn choose(&self, driver: &Arc<Driver>, inside: Option<&Partition>, multiprocessors: u32) -> Result<Arc<Partition>, DeviceError> {
        let fail = |code: crate::driver::Code| {
            DeviceError::NotSupported(format!("a share of {multiprocessors} SMs cannot be made: {} (CUDA error {})", driver.text(code), code.0))
        };
        let mut by_size = self.by_size.lock();
        let made: u32 = by_size.values().map(|parts| parts.len() as u32).sum();
        let parts = match by_size.entry((inside.map_or(0, |part| part.id), multiprocessors)) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let groups = driver.split(inside.map(|part| part.green), multiprocessors, keeps_clusters(multiprocessors)).map_err(fail)?;
                let mut parts = Vec::with_capacity(groups.len());
                for (number, group) in (1..).zip(&groups) {
                    let green = driver.create_green(group).map_err(fail)?;
                    parts.push(Arc::new(Partition { driver: driver.clone(), green, id: made + number }));
                }
                entry.insert(parts)
            }
        };
        let fewest = parts.iter().min_by_key(|part| Arc::strong_count(part));
        fewest.cloned().ok_or_else(|| DeviceError::NotSupported(format!("the card has no {multiprocessors} SMs")))
    }
}
