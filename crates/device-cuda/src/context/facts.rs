//! The facts of a card that clients see: those of the driver, except where sharing changes them.

use crate::driver::DeviceHandle;
use crate::fault::remedy;
use cumux_abi::CUdevice_attribute as Attribute;
use cumux_device::{Capabilities, DeviceFacts};

/// The first attribute that the public header names, and one past the last.
const ATTRIBUTES: std::ops::Range<u32> = 1..Attribute::CU_DEVICE_ATTRIBUTE_MAX.0;
/// The attributes of the card's PCI address, in the order of [`DeviceFacts::pci`].
const PCI: [Attribute; 3] =
    [Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];

/// Reads the facts of card `ordinal`.
pub(crate) fn read_facts(device: &DeviceHandle, ordinal: u32) -> DeviceFacts {
    let seen = |attribute| device.attribute(attribute).map(|value| (attribute, as_shared(attribute, value)));
    DeviceFacts {
        id: format!("cuda:{ordinal}"),
        name: device.name(),
        uuid: device.uuid(),
        pci: PCI.map(|attribute| device.attribute(attribute).unwrap_or(0).cast_unsigned()),
        memory: device.memory(),
        attributes: ATTRIBUTES.map(Attribute).filter_map(seen).collect(),
        capabilities: Capabilities {
            resumes_kernels: false,
            waits_for_reports: false,
            contains_faults: false,
            pins_windows: true,
            needs_cores: false,
            runs_ptx_alone: false,
            has_textures: false,
            makes_textures: true,
            sets_conditions: true,
            exclusive: remedy::exclusive_card(ordinal, device.compute_mode()),
            // The executor fills these in: which cards it has, it alone knows.
            unavailable: None,
            peers: Vec::new(),
        },
    }
}

/// The value of an attribute that a client of a shared card sees.
fn as_shared(attribute: Attribute, value: i32) -> i32 {
    match attribute {
        // The card has a client's registered memory at the address that the client's pinned window
        // has, not at the client's own.
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => 0,
        // Multicast objects and handles of a fabric are refused.
        Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED | Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED => 0,
        // Managed memory belongs to one process.
        Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => 0,
        // The executor uses the card in its compute mode; clients share it.
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE => 0,
        // Pools go to other processes as file descriptors only.
        Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => value & 1,
        // Drivers of other devices would have to know the executor's memory.
        Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED => 0,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sharing_takes_away_is_not_promised() {
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1), 0);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1), 0);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1), 0);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 3), 0);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1), 0);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 9), 1);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1), 0);
        assert_eq!(as_shared(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132), 132);
    }
}
