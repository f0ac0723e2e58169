//! What clients are told of the card: what the driver says of it, but for what sharing changes.

use crate::driver::DeviceHandle;
use cumux_abi::CUdevice_attribute as Attribute;
use cumux_device::DeviceFacts;

/// One past the last attribute that the public header names.
const END_OF_ATTRIBUTES: u32 = Attribute::CU_DEVICE_ATTRIBUTE_MAX.0;

pub(crate) fn read(device: &DeviceHandle, ordinal: u32) -> DeviceFacts {
    let attributes = (1..END_OF_ATTRIBUTES)
        .map(Attribute)
        .filter_map(|attribute| device.attribute(attribute).map(|value| (attribute.0, shared(attribute, value))))
        .collect();
    let pci = [Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]
        .map(|attribute| device.attribute(attribute).unwrap_or(0).cast_unsigned());
    DeviceFacts { id: format!("cuda:{ordinal}"), name: device.name(), uuid: device.uuid(), pci, memory: device.memory(), attributes }
}

/// The value that a client of a shared card sees.
fn shared(attribute: Attribute, value: i32) -> i32 {
    match attribute {
        // Registered host memory has another address on the card: the client's pages are the window's.
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => 0,
        // Managed memory belongs to one process.
        Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => 0,
        // The compute mode is the executor's business.
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE => 0,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_sharing_takes_away_is_not_promised() {
        let seen = |number, value| super::shared(super::Attribute(number), value);
        assert_eq!([seen(91, 1), seen(89, 1), seen(20, 3), seen(16, 132)], [0, 0, 0, 132]);
    }
}
