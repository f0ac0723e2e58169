//! Devices: what the service told of them in the welcome. Every query is answered from that,
//! without asking anybody.

mod calls;

pub use calls::*;

use crate::connection::Connection;
use crate::ffi::{Try, error};
use crate::limits::Limits;
use cumux_abi::CUdevice_attribute;
use cumux_wire::message::DeviceFacts;
use cumux_wire::share::Grain;
use std::sync::OnceLock;

/// The highest number of an attribute that is believed: the table has a place for each number.
const HIGHEST_ATTRIBUTE: u32 = 4096;

/// The devices of this process, by ordinal.
static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// One device of the process.
#[derive(Debug)]
pub struct Device {
    /// As the welcome told them.
    pub facts: DeviceFacts,
    /// By attribute number.
    attributes: Vec<Option<i32>>,
    /// What it allows a launch.
    pub limits: Limits,
}

impl Device {
    /// A device with these facts.
    #[must_use]
    pub fn new(facts: DeviceFacts) -> Self {
        let highest = facts.attributes.iter().map(|(attribute, _)| attribute.0).max().unwrap_or(0).min(HIGHEST_ATTRIBUTE);
        let mut attributes = vec![None; highest as usize + 1];
        for (attribute, value) in facts.attributes.iter() {
            if let Some(cell) = attributes.get_mut(attribute.0 as usize) {
                *cell = Some(value);
            }
        }
        let limits = Limits::from_attributes(|attribute| attributes.get(attribute.0 as usize).copied().flatten());
        Self { facts, attributes, limits }
    }

    /// In which steps its multiprocessors are shared out.
    #[must_use]
    pub fn grain(&self) -> Grain {
        Grain::of(&self.facts)
    }

    /// An attribute; `None` where the service has not told it.
    #[must_use]
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Option<i32> {
        self.attributes.get(attribute.0 as usize).copied().flatten()
    }
}

/// All devices, by ordinal.
pub(crate) fn all(session: &Connection) -> &'static [Device] {
    DEVICES.get_or_init(|| session.granted.devices.iter().cloned().map(Device::new).collect())
}

/// The device with this ordinal.
///
/// # Errors
/// INVALID_DEVICE.
pub(crate) fn named(session: &Connection, ordinal: i32) -> Try<&'static Device> {
    usize::try_from(ordinal).ok().and_then(|index| all(session).get(index)).ok_or(error::INVALID_DEVICE)
}

/// Multiprocessors of a device that this program may use: its share, which may change while it
/// runs.
#[must_use]
pub(crate) fn share(session: &Connection, ordinal: u32) -> u32 {
    let most = all(session).get(ordinal as usize).map_or(0, |device| device.limits.multiprocessors);
    match session.granted_share(ordinal) {
        0 => most,
        share => share.min(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn facts() -> DeviceFacts {
        DeviceFacts {
            id: "sim:test".into(),
            name: "Test".into(),
            uuid: [1; 16],
            pci: [0, 0x3B, 0],
            memory: 1 << 30,
            attributes: [
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
            ]
            .into(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        }
    }

    #[test]
    fn attributes_are_those_of_the_facts() {
        let device = Device::new(facts());
        assert_eq!((device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), device.limits.multiprocessors), (Some(132), 132));
        assert_eq!(device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), None);
        assert_eq!(device.attribute(CUdevice_attribute(100_000)), None);
    }
}
