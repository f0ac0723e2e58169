//! Names of device attributes; the numbers are the constants of [`crate::CUdevice_attribute`].

use crate::generated::names::DEVICE_ATTRIBUTE_NAMES;
use core::ffi::CStr;

/// The name of a device attribute, or `None` for a number that names none in this version.
pub fn name(number: u32) -> Option<&'static CStr> {
    crate::result::find(DEVICE_ATTRIBUTE_NAMES, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_header() {
        assert_eq!(name(1), Some(c"CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK"));
        assert_eq!(name(16), Some(c"CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"));
        assert_eq!(name(0), None);
        assert_eq!(name(149), None);
    }
}
