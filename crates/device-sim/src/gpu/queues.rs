//! The streams of a software GPU.

use cumux_device::{ClientId, DeviceError, Queues, StreamId, Work};

use super::SoftwareGpu;
use crate::schedule::SHARE;

impl Queues for SoftwareGpu {
    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, SHARE, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        scheduler.create_stream(client, partition, priority)
    }

    fn destroy_stream(&self, stream: StreamId) {
        self.card.scheduler.lock().destroy_stream(stream);
    }

    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        scheduler.submit(stream, token, work)?;
        self.card.wake_worker(&scheduler);
        Ok(())
    }
}
