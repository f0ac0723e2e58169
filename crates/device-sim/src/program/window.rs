//! Windows of the generic address space: where shared, local and parameter memory and functions
//! appear to a program (PTX ISA, "Generic Addressing").
//!
//! All windows lie outside what a process can map, so no generic address in them can equal a
//! client's own pointer.

/// A part of the generic address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenericWindow {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl GenericWindow {
    /// True if the address lies in the window.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, address: u64) -> bool {
        address >= self.start && address - self.start < self.bytes
    }
}

/// The block's shared memory. It is the lowest window: addresses below it are global.
pub const SHARED: GenericWindow = GenericWindow { start: 0x0001_0100_0000_0000, bytes: 16 << 20 };
/// The thread's local memory.
pub const LOCAL: GenericWindow = GenericWindow { start: 0x0001_0200_0000_0000, bytes: 1 << 30 };
/// The kernel's parameters.
pub const PARAM: GenericWindow = GenericWindow { start: 0x0001_0300_0000_0000, bytes: 1 << 16 };

/// Where the values of device function pointers begin.
const FUNCTIONS: u64 = 0x0001_0400_0000_0000;
/// Distance of two function pointers.
const FUNCTION_STEP: u64 = 16;

/// The value of a pointer to function number `function` of a module. It never equals the window's
/// start, so that no pointer is address 0 of the window.
#[must_use]
pub const fn function_pointer(function: u64) -> u64 {
    FUNCTIONS + FUNCTION_STEP * (function + 1)
}

/// The number of the function to which a pointer points; `None` if it cannot be a function pointer.
/// The module may have fewer functions.
#[must_use]
pub const fn function_at(pointer: u64) -> Option<u64> {
    if pointer <= FUNCTIONS || !pointer.is_multiple_of(FUNCTION_STEP) {
        return None;
    }
    Some((pointer - FUNCTIONS) / FUNCTION_STEP - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_pointers_lead_back_and_nothing_else_does() {
        for function in [0, 1, 77] {
            assert_eq!(function_at(function_pointer(function)), Some(function));
        }
        for pointer in [0, FUNCTIONS, FUNCTIONS + 8, function_pointer(3) + 1] {
            assert_eq!(function_at(pointer), None, "{pointer:#x}");
        }
    }

    #[test]
    fn a_window_ends_where_it_says() {
        assert!(SHARED.contains(SHARED.start) && SHARED.contains(SHARED.start + SHARED.bytes - 1));
        assert!(!SHARED.contains(SHARED.start - 1) && !SHARED.contains(SHARED.start + SHARED.bytes));
    }
}
