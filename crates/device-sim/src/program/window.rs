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

/// Bytes of the shared window that stand for one block: more than a block can have.
pub const SHARED_OF_BLOCK: u64 = 16 << 20;
/// Most blocks of a cluster (CUDA C++ Programming Guide, *Thread Block Clusters*).
pub const CLUSTER_BLOCKS: u64 = 16;
/// Shared memory: first the thread's own block's, then that of each block of its cluster by rank.
/// It is the lowest window: addresses below it are global.
pub const SHARED: GenericWindow = GenericWindow { start: 0x0001_0100_0000_0000, bytes: (CLUSTER_BLOCKS + 1) * SHARED_OF_BLOCK };
/// The thread's local memory.
pub const LOCAL: GenericWindow = GenericWindow { start: 0x0001_0200_0000_0000, bytes: 1 << 30 };
/// The kernel's parameters.
pub const PARAM: GenericWindow = GenericWindow { start: 0x0001_0300_0000_0000, bytes: 1 << 16 };

/// To which block of the cluster an address of shared memory belongs, by its rank, and the address
/// in that block's memory. `None`: the thread's own block. The bits above those of an offset in the
/// window are ignored.
#[inline(always)]
#[must_use]
pub const fn shared_block(address: u64) -> (Option<u64>, u64) {
    (((address / SHARED_OF_BLOCK) & 0xff).checked_sub(1), address % SHARED_OF_BLOCK)
}

/// The address that stands in all blocks of a cluster for what `address` is in the block of this
/// rank (PTX ISA, *mapa*). The result is in the same form, an offset in shared memory or a generic
/// address.
#[must_use]
pub const fn map_shared(address: u64, rank: u32) -> u64 {
    let rank = if (rank as u64) < CLUSTER_BLOCKS { rank as u64 + 1 } else { 0xff };
    (address & !(0xff * SHARED_OF_BLOCK)) | (rank * SHARED_OF_BLOCK)
}

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
    fn an_address_of_shared_memory_says_whose_block_it_is() {
        assert_eq!(shared_block(0x1234), (None, 0x1234));
        for (start, rank) in [(0, 0), (SHARED.start, 7), (SHARED.start, 15)] {
            let mapped = map_shared(start + 0x1234, rank);
            assert_eq!(shared_block(mapped - start), (Some(rank.into()), 0x1234), "{mapped:#x}");
            assert_eq!(map_shared(mapped, 3), map_shared(start + 0x1234, 3));
            assert!(start == 0 || SHARED.contains(mapped));
        }
        assert!(!SHARED.contains(map_shared(SHARED.start, 16)), "no block has this rank");
    }

    #[test]
    fn a_window_ends_where_it_says() {
        assert!(SHARED.contains(SHARED.start) && SHARED.contains(SHARED.start + SHARED.bytes - 1));
        assert!(!SHARED.contains(SHARED.start - 1) && !SHARED.contains(SHARED.start + SHARED.bytes));
    }
}
