//! The SMs that clients of a software GPU may use.

use cumux_device::{ClientId, DeviceError, Partitions};
use cumux_wire::positions::SmPositions;

use super::SoftwareGpu;

impl Partitions for SoftwareGpu {
    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        scheduler.set_share(client, multiprocessors)?;
        self.card.wake_worker(&scheduler);
        Ok(())
    }

    fn set_share_beside(&self, client: ClientId, other: ClientId) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        scheduler.set_share_beside(client, other)?;
        self.card.wake_worker(&scheduler);
        Ok(())
    }

    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        scheduler.open_partition(client, partition, multiprocessors)
    }

    fn place_partition(&self, client: ClientId, partition: u32, positions: SmPositions) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        scheduler.place_partition(client, partition, positions)
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        self.card.scheduler.lock().close_partition(client, partition);
    }
}
