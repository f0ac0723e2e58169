//! The SMs that clients of a card may use.

use super::Card;
use crate::context::{ContextClient, Partition};
use cumux_device::{ClientId, DeviceError, Partitions};
use cumux_wire::positions::SmPositions;
use std::collections::hash_map::Entry;
use std::sync::Arc;

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
        add_partition(&client, partition, fresh)
    }

    fn place_partition(&self, client: ClientId, partition: u32, positions: SmPositions) -> Result<(), DeviceError> {
        self.require_context()?;
        let client = self.client(client)?;
        let share = client.share.read().clone();
        let fresh = self.check_loss(self.partitions.place(&self.shared.driver, share.as_deref(), positions))?;
        add_partition(&client, partition, fresh)
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        if let Ok(client) = self.client(client) {
            client.partitions.write().remove(&partition);
        }
    }
}

fn add_partition(client: &ContextClient, number: u32, fresh: Arc<Partition>) -> Result<(), DeviceError> {
    match client.partitions.write().entry(number) {
        Entry::Occupied(_) => Err(DeviceError::Invalid(format!("partition {number} exists already"))),
        Entry::Vacant(entry) => {
            entry.insert(fresh);
            Ok(())
        }
    }
}
