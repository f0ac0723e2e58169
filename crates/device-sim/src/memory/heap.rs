//! The heap of device-side `malloc`: memory of this process alone, byte-exact like any allocation
//! (CUDA C Programming Guide, "Dynamic Global Memory Allocation and Operations").
//!
//! The heap does not survive the executor: after a takeover a kernel that uses what an earlier
//! kernel had allocated faults, and the message says so.

use cumux_ranges::{AllowedRange, FirstFit};
use parking_lot::RwLock;

use super::permissions::Permissions;
use crate::mapping::Mapping;

/// Bytes of the heap until the client sets `cudaLimitMallocHeapSize`.
const DEFAULT_BYTES: u64 = 8 << 20;
/// Bytes of the largest heap that a client may have.
const MOST_BYTES: u64 = 64 << 30;
/// Allocations are aligned to this many bytes.
const ALIGN: u64 = 16;
/// The heap's size is a multiple of this.
const PAGE: u64 = 4096;
/// The heap of one client.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Bytes that the heap has, or will have.
    limit: u64,
    /// Made at the first allocation.
    mapping: Option<Mapping>,
    pieces: FirstFit,
}

impl Default for Heap {
    fn default() -> Self {
        Heap { limit: DEFAULT_BYTES, mapping: None, pieces: FirstFit::new(ALIGN) }
    }
}

impl Heap {
    /// Sets the heap's size.
    ///
    /// # Errors
    /// A sentence, if the heap is in use already or would be too large.
    pub(crate) fn set_limit(&mut self, bytes: u64) -> Result<(), String> {
        if self.mapping.is_some() && bytes != self.limit {
            return Err("the malloc heap is in use; its size can be set only before the first kernel that allocates".into());
        }
        if bytes > MOST_BYTES {
            return Err(format!("a malloc heap of {bytes} bytes; at most {MOST_BYTES} are possible"));
        }
        self.limit = bytes.next_multiple_of(PAGE);
        Ok(())
    }

    /// Bytes that the heap has, or will have.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Allocates from the first free piece that is long enough and lets the client touch it. The
    /// address, or 0 if there is no such piece.
    pub(crate) fn allocate(&mut self, bytes: u64, table: &RwLock<Permissions>) -> u64 {
        if bytes == 0 || bytes > self.limit {
            return 0;
        }
        if self.mapping.is_none() {
            match Mapping::private(self.limit) {
                Ok(mapping) => {
                    self.pieces.add(mapping.address(), mapping.bytes());
                    self.mapping = Some(mapping);
                }
                Err(error) => {
                    tracing::error!(%error, "no memory for a malloc heap");
                    return 0;
                }
            }
        }
        let Some(start) = self.pieces.allocate(bytes, ALIGN) else { return 0 };
        if table.write().allow(AllowedRange::new(start, bytes, true, 0)).is_err() {
            self.pieces.release(start);
            return 0;
        }
        start
    }

    /// Frees an allocation and joins it with the free pieces beside it. False if `address` is
    /// neither 0 nor the start of an allocation.
    pub(crate) fn free(&mut self, address: u64, table: &RwLock<Permissions>) -> bool {
        if self.pieces.release(address).is_none() {
            return address == 0;
        }
        table.write().revoke(address);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::interface::{Access, MemoryFault};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn allocations_do_not_overlap_and_everything_comes_back(steps in proptest::collection::vec((1u64..4000, any::<u8>()), 0..200)) {
            let (mut heap, table) = (Heap::default(), RwLock::new(Permissions::default()));
            heap.set_limit(64 << 10).unwrap();
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (bytes, choice) in steps {
                if choice % 3 == 0 && !live.is_empty() {
                    let (address, _) = live.swap_remove(choice as usize % live.len());
                    prop_assert!(heap.free(address, &table) && !heap.free(address, &table));
                } else {
                    let address = heap.allocate(bytes, &table);
                    if address != 0 {
                        prop_assert!(address.is_multiple_of(16));
                        prop_assert!(live.iter().all(|(a, b)| address + bytes <= *a || a + b <= address));
                        live.push((address, bytes));
                    }
                }
                for (address, bytes) in &live {
                    prop_assert!(table.read().look_up(*address, *bytes, Access::Store).is_ok());
                    prop_assert_eq!(table.read().look_up(*address, bytes + 1, Access::Load), Err(MemoryFault::OutOfBounds));
                }
            }
            for (address, _) in live {
                prop_assert!(heap.free(address, &table));
            }
            prop_assert!(heap.allocate(64 << 10, &table) != 0, "one piece again");
        }
    }
}
