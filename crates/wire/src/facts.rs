//! What is known of a device.

use serde::{Deserialize, Serialize};

/// The properties of a device. A client receives them at its hello, so that the shim answers
/// property queries without a round trip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The device's name in `--device`: `sim:h200`, `cuda:0`.
    pub id: String,
    /// The name that `cuDeviceGetName` answers.
    pub name: String,
    /// The bytes that `cuDeviceGetUuid` answers.
    pub uuid: [u8; 16],
    /// PCI domain, bus, device.
    pub pci: [u32; 3],
    /// Bytes of device memory.
    pub memory: u64,
    /// Pairs of `CUdevice_attribute` number and value. The shim answers INVALID_VALUE for a number
    /// that is missing here.
    pub attributes: Vec<(u32, i32)>,
}

impl DeviceFacts {
    /// Value of the attribute with this `CUdevice_attribute` number, 0 where the device does not
    /// have it.
    #[must_use]
    pub fn attribute(&self, number: u32) -> i32 {
        self.attributes.iter().find(|(n, _)| *n == number).map_or(0, |(_, v)| *v)
    }
}
