//! Stories of pools, virtual memory, managed memory, values and occupancy, against the stand-in
//! executor.

use super::calls::{allocate, end, functions, launch_gate, new_context, new_gate, new_stream};
use super::fake;
use crate::ffi::error;
use crate::{copy, host, managed, memory, occupancy, pointer, pool, set, stream, stream_value, vmm};
use core::ptr::null_mut;
use cumux_abi::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute as P, CUmemoryPool,
    CUpointer_attribute,
};
use cumux_wire::record::Op;

const DEVICE: CUmemLocation = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

fn pool_word(pool: CUmemoryPool, attribute: P) -> u64 {
    let mut word = 0_u64;
    // SAFETY: pointers to our own variables, here and in all calls of this file.
    unsafe { pool::cuMemPoolGetAttribute(pool, attribute, (&raw mut word).cast()).unwrap() };
    word
}

#[test]
fn a_pool_gives_a_block_out_again_in_stream_order_and_keeps_what_it_may() {
    let _alone = fake::alone();
    let context = new_context();
    let (_, _, gate) = functions();
    let (first, second) = (new_stream(1), new_stream(1));
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut pool, mut properties) = (null_mut(), cumux_abi::CUmemPoolProps::default());
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = DEVICE;
        pool::cuMemPoolCreate(&raw mut pool, &raw const properties).unwrap();
        let take = |stream| {
            let mut address = 0;
            pool::cuMemAllocFromPoolAsync(&raw mut address, 1000, pool, stream).unwrap();
            address
        };
        let one = take(first);
        assert_eq!((pool_word(pool, P::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), pool_word(pool, P::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)), (1024, 1024));
        let number = new_gate();
        launch_gate(gate, number, first);
        pool::cuMemFreeAsync(one, first).unwrap();
        assert_eq!(pool::cuMemFreeAsync(one, first), Err(error::INVALID_VALUE), "freed once");
        let same = take(first);
        assert_eq!(same, one, "in the same stream at once");
        pool::cuMemFreeAsync(same, first).unwrap();
        let other = take(second);
        assert_ne!(other, one, "not in another one before that point is reached");
        fake::open_gate(number);
        // The threshold keeps the block over a synchronisation.
        let mut keep = 4096_u64;
        pool::cuMemPoolSetAttribute(pool, P::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast()).unwrap();
        stream::cuStreamSynchronize(first).unwrap();
        assert_eq!(pool_word(pool, P::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2048);
        assert_eq!(take(second), one, "in any stream when it is");
        pool::cuMemFreeAsync(one, second).unwrap();
        let mut none = 0_u64;
        pool::cuMemPoolSetAttribute(pool, P::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut none).cast()).unwrap();
        stream::cuStreamSynchronize(second).unwrap();
        assert_eq!(pool_word(pool, P::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 1024, "given back without the threshold");
        assert_eq!(pool_word(pool, P::CU_MEMPOOL_ATTR_USED_MEM_HIGH), 2048);
        memory::cuMemFree_v2(other).unwrap();
        assert_eq!(pool_word(pool, P::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
        let (mut default, mut again) = (null_mut(), null_mut());
        pool::cuDeviceGetDefaultMemPool(&raw mut default, 0).unwrap();
        assert_eq!(pool::cuMemPoolDestroy(default), Err(error::INVALID_VALUE));
        pool::cuDeviceSetMemPool(0, pool).unwrap();
        pool::cuDeviceGetMemPool(&raw mut again, 0).unwrap();
        assert_eq!(again, pool);
        pool::cuMemPoolDestroy(pool).unwrap();
        pool::cuDeviceGetMemPool(&raw mut again, 0).unwrap();
        assert_eq!(again, default);
        // Plain memory may be freed in stream order too.
        let plain = allocate(100);
        pool::cuMemFreeAsync(plain, first).unwrap();
        stream::cuStreamSynchronize(first).unwrap();
    }
    end(context);
}

#[test]
fn virtual_memory_is_reserved_filled_used_and_emptied() {
    let context = new_context();
    let granule = 2_usize << 20;
    let properties = CUmemAllocationProp { type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, location: DEVICE, ..CUmemAllocationProp::default() };
    let access = CUmemAccessDesc { location: DEVICE, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut base, mut handle, mut other, mut told) = (0, 0, 0, 0);
        vmm::cuMemAddressReserve(&raw mut base, 4 * granule, 0, 0, 0).unwrap();
        assert_eq!(vmm::cuMemAddressReserve(&raw mut told, granule + 1, 0, 0, 0), Err(error::INVALID_VALUE));
        vmm::cuMemCreate(&raw mut handle, granule, &raw const properties, 0).unwrap();
        vmm::cuMemCreate(&raw mut other, granule, &raw const properties, 0).unwrap();
        assert_eq!(set::cuMemsetD8_v2(base, 1, 16), Err(error::INVALID_VALUE), "nothing there yet");
        assert_eq!(vmm::cuMemMap(base, 2 * granule, 0, handle, 0), Err(error::INVALID_VALUE), "more than there is");
        assert_eq!(vmm::cuMemMap(base + 4 * granule as u64, granule, 0, handle, 0), Err(error::INVALID_VALUE), "not reserved");
        vmm::cuMemMap(base, granule, 0, handle, 0).unwrap();
        vmm::cuMemMap(base + granule as u64, granule, 0, other, 0).unwrap();
        assert_eq!(vmm::cuMemMap(base, granule, 0, other, 0), Err(error::INVALID_VALUE), "taken");
        vmm::cuMemSetAccess(base, 2 * granule, &raw const access, 1).unwrap();
        let mut flags = 0;
        vmm::cuMemGetAccess(&raw mut flags, &raw const access.location, base).unwrap();
        assert_eq!(flags, 3);
        // One copy across both pieces.
        let source = vec![5_u8; 2 * granule];
        let mut back = vec![0_u8; 2 * granule];
        copy::cuMemcpyHtoD_v2(base, source.as_ptr().cast(), 2 * granule).unwrap();
        copy::cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), base, 2 * granule).unwrap();
        assert!(back == source);
        let mut kind = 0_u32;
        pointer::cuPointerGetAttribute((&raw mut kind).cast(), CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base + 5).unwrap();
        assert_eq!(kind, 2);
        vmm::cuMemRetainAllocationHandle(&raw mut told, core::ptr::without_provenance_mut(base as usize + 5)).unwrap();
        assert_eq!(told, handle);
        for _ in 0..2 {
            vmm::cuMemRelease(handle).unwrap();
        }
        assert_eq!(vmm::cuMemAddressFree(base, 4 * granule), Err(error::INVALID_VALUE), "still in use");
        assert_eq!(vmm::cuMemUnmap(base, granule + 4096), Err(error::INVALID_VALUE));
        vmm::cuMemUnmap(base, 2 * granule).unwrap();
        assert_eq!(vmm::cuMemRelease(handle), Err(error::INVALID_VALUE), "gone with handle and mapping");
        vmm::cuMemRelease(other).unwrap();
        vmm::cuMemAddressFree(base, 4 * granule).unwrap();
        assert_eq!(set::cuMemsetD8_v2(base, 1, 16), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn memory_that_the_host_sees_is_set_when_the_call_returns() {
    let _alone = fake::alone();
    let context = new_context();
    let (_, _, gate) = functions();
    let blocking = new_stream(0);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut pinned, mut managed) = (null_mut(), 0);
        host::cuMemAllocHost_v2(&raw mut pinned, 64).unwrap();
        managed::cuMemAllocManaged(&raw mut managed, 64, 1).unwrap();
        let device = allocate(64);
        for (address, host_sees) in [(pinned.expose_provenance() as u64, true), (managed, true), (device, false)] {
            let last = core::ptr::with_exposed_provenance_mut::<u8>(address as usize + 63);
            if host_sees {
                last.write(1);
            }
            // The NULL stream waits for the gate, which opens when the record is there.
            let number = new_gate();
            launch_gate(gate, number, blocking);
            fake::seen();
            let opener = std::thread::spawn(move || {
                while !fake::seen().iter().any(|record| matches!(record.op, Op::Set { .. })) {
                    std::thread::yield_now();
                }
                if host_sees {
                    fake::open_gate(number);
                }
            });
            set::cuMemsetD8_v2(address, 77, 64).unwrap();
            if host_sees {
                assert_eq!(last.read(), 77);
            }
            opener.join().unwrap();
            // Memory of the device is not waited for.
            fake::open_gate(number);
            stream::cuStreamSynchronize(null_mut()).unwrap();
            // Nor is anything that is called asynchronous.
            let number = new_gate();
            launch_gate(gate, number, blocking);
            set::cuMemsetD8Async(address, 78, 64, null_mut()).unwrap();
            fake::open_gate(number);
            stream::cuStreamSynchronize(null_mut()).unwrap();
        }
    }
    end(context);
}

#[test]
fn managed_memory_is_one_address_for_both_sides() {
    let context = new_context();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut address, mut is) = (0, 0_u32);
        managed::cuMemAllocManaged(&raw mut address, 64, 1).unwrap();
        set::cuMemsetD32_v2(address, 77, 16).unwrap();
        stream::cuStreamSynchronize(null_mut()).unwrap();
        assert_eq!(core::ptr::with_exposed_provenance::<u32>(address as usize + 60).read(), 77, "the host reads it without a copy");
        pointer::cuPointerGetAttribute((&raw mut is).cast(), CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, address).unwrap();
        assert_eq!(is, 1);
        managed::cuMemPrefetchAsync(address, 64, 0, null_mut()).unwrap();
        assert_eq!(managed::cuMemPrefetchAsync(address, 65, 0, null_mut()), Err(error::INVALID_VALUE));
        assert_eq!(managed::cuMemPrefetchAsync(allocate(64), 64, 0, null_mut()), Err(error::INVALID_VALUE), "not managed");
        memory::cuMemFree_v2(address).unwrap();
        assert_eq!(managed::cuMemAllocManaged(&raw mut address, 64, 0), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn a_stream_waits_for_a_value_that_another_writes() {
    let context = new_context();
    let (first, second) = (new_stream(1), new_stream(1));
    let word = allocate(8);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        set::cuMemsetD32_v2(word, 0, 2).unwrap();
        stream::cuStreamSynchronize(null_mut()).unwrap();
        stream_value::cuStreamWaitValue64_v2(first, word, 5, 0).unwrap();
        assert_eq!(stream::cuStreamQuery(first), Err(error::NOT_READY));
        stream_value::cuStreamWriteValue64_v2(second, word, 5, 0).unwrap();
        stream::cuStreamSynchronize(first).unwrap();
        assert_eq!(stream_value::cuStreamWaitValue64_v2(first, word + 4, 5, 0), Err(error::INVALID_VALUE), "misaligned");
        assert_eq!(stream_value::cuStreamWaitValue32_v2(first, word, 5, 9), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn occupancy_asks_the_programs_own_function_for_shared_memory() {
    extern "C" fn all_of_it(threads: i32) -> usize {
        if threads > 256 { 1 << 30 } else { 0 }
    }
    let context = new_context();
    let (_, add, _) = functions();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut grid, mut block, mut count) = (0, 0, 0);
        occupancy::cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, add, None, 0, 0).unwrap();
        assert_eq!((block, grid), (1024, 132), "the stand-in's device holds 1024 threads a multiprocessor");
        occupancy::cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, add, Some(all_of_it), 0, 0).unwrap();
        assert_eq!((block, grid), (256, 4 * 132));
        occupancy::cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, add, None, 0, 100).unwrap();
        assert!(block <= 100 && block > 0);
        occupancy::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut count, add, 128, 0).unwrap();
        assert_eq!(count, 8);
        occupancy::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut count, add, 128, 1 << 20).unwrap();
        assert_eq!(count, 0);
        assert_eq!(occupancy::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut count, add, 0, 0), Err(error::INVALID_VALUE));
    }
    end(context);
}
