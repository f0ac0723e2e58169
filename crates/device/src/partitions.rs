//! The SMs that clients may use.

use crate::error::DeviceError;
use crate::ids::ClientId;
use cumux_wire::positions::SmPositions;

/// Divides the SMs of a device among its clients, and the share of a client among its streams.
pub trait Partitions {
    /// Changes the client's share to so many SMs (0 = all). Kernels that begin later run on it;
    /// running ones stay where they are. Larger partitions of the client shrink to it. Does not
    /// wait.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where shares cannot be changed, [`DeviceError::Invalid`] for
    /// an unknown client.
    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let _ = (client, multiprocessors);
        Err(DeviceError::NotSupported("the share of a running client cannot be changed".into()))
    }

    /// Changes the client's share to the SMs of another client, as [`Partitions::set_share`] does
    /// it.
    ///
    /// # Errors
    /// As [`Partitions::set_share`], for either client.
    fn set_share_beside(&self, client: ClientId, other: ClientId) -> Result<(), DeviceError> {
        let _ = (client, other);
        Err(DeviceError::NotSupported("the share of a running client cannot be changed".into()))
    }

    /// Reserves a part of the client's share for streams made in it. The client chooses `partition`
    /// (not 0); `multiprocessors` is at most its share.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where a share cannot be divided, [`DeviceError::Invalid`] for
    /// a number in use.
    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        let _ = (client, partition, multiprocessors);
        Err(DeviceError::NotSupported("the share of a client cannot be divided".into()))
    }

    /// As [`Partitions::open_partition`], with exactly the SMs at these positions of the client's
    /// share. Partitions with the same positions have the same SMs.
    ///
    /// # Errors
    /// As [`Partitions::open_partition`]; [`DeviceError::Invalid`] where there is no position.
    fn place_partition(&self, client: ClientId, partition: u32, positions: SmPositions) -> Result<(), DeviceError> {
        let _ = (client, partition, positions);
        Err(DeviceError::NotSupported("the share of a client cannot be divided".into()))
    }

    /// Ends a partition whose streams have been destroyed.
    fn close_partition(&self, client: ClientId, partition: u32) {
        let _ = (client, partition);
    }
}
