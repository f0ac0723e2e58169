//! What clients are told of the card: what the driver says of it, but for what sharing changes.

use crate::driver::Driver;
use cumux_device::DeviceFacts;

const LAST_ATTRIBUTE: u32 = 147;
/// Registered host memory has another address on the card: the client's pages are the window's.
const REGISTERED_AT_HOST_ADDRESS: u32 = 91;
/// Managed memory belongs to one process.
const CONCURRENT_MANAGED: u32 = 89;

pub(crate) fn read(driver: &Driver, ordinal: u32) -> DeviceFacts {
    let attributes = (1..=LAST_ATTRIBUTE).filter_map(|number| driver.attribute(number).map(|value| (number, shared(number, value)))).collect();
    let pci = [50, 33, 34].map(|number| driver.attribute(number).unwrap_or(0).cast_unsigned());
    DeviceFacts { id: format!("cuda:{ordinal}"), name: driver.name(), uuid: driver.uuid(), pci, memory: driver.memory(), attributes }
}

/// The value that a client of a shared card sees.
fn shared(number: u32, value: i32) -> i32 {
    match number {
        REGISTERED_AT_HOST_ADDRESS | CONCURRENT_MANAGED => 0,
        // The compute mode is the executor's business.
        20 => 0,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_sharing_takes_away_is_not_promised() {
        assert_eq!([super::shared(91, 1), super::shared(89, 1), super::shared(16, 132)], [0, 0, 132]);
    }
}
