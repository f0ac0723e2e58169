//! The SMs that clients of a card may use.

use super::Card;
use cumux_device::{ClientId, DeviceError, Partitions};
use std::collections::hash_map::Entry;

impl Partitions for Card {
    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        self.require_context()?;
        let client = self.client(client)?;
        if !client.partitions.read().is_empty() {
            // The partitions lie in the old share. They cannot be made again in a new share while
            // their streams live.
            return Err(DeviceError::NotSupported("this client's contexts have shares of their own, which cannot be changed while they live".into()));
        }
        let old = client.share.read().clone();
        let share = self.choose_partition(None, old.as_deref(), multiprocessors)?;
        *client.share.write() = share;
        Ok(())
    }

    fn set_share_beside(&self, client: ClientId, other: ClientId) -> Result<(), DeviceError> {
        self.require_context()?;
        let (client, other) = (self.client(client)?, self.client(other)?);
        if !client.partitions.read().is_empty() {
            return Err(DeviceError::NotSupported("this client's contexts have shares of their own, which cannot be changed while they live".into()));
        }
        let share = other.share.read().clone();
        *client.share.write() = share;
        Ok(())
    }

    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        self.require_context()?;
        let client = self.client(client)?;
        let share = client.share.read().clone();
        let Some(fresh) = self.choose_partition(share.as_deref(), None, multiprocessors)? else { return Ok(()) };
        match client.partitions.write().entry(partition) {
            Entry::Occupied(_) => Err(DeviceError::Invalid(format!("partition {partition} exists already"))),
            Entry::Vacant(entry) => {
                entry.insert(fresh);
                Ok(())
            }
        }
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        if let Ok(client) = self.client(client) {
            client.partitions.write().remove(&partition);
        }
    }
}
