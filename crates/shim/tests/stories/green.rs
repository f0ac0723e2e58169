//! Green contexts: what of them the executor hears, and what belongs to whom.

use super::calls::{functions, launch_gate, new_gate, query};
use super::fake;
use crate::ffi::error;
use crate::{context, event, green, launch, memory, module, stream};
use core::ptr::null_mut;
use cumux_abi::{CUcontext, CUdevResource, CUdevResourceType, CUevent, CUgreenCtx, CUstream};
use cumux_wire::positions::SmPositions;
use cumux_wire::record::Op;

const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

/// Two groups of 16 multiprocessors.
fn groups() -> [CUdevResource; 2] {
    let (mut all, mut groups, mut count) = (CUdevResource::default(), [CUdevResource::default(); 2], 2);
    // SAFETY: pointers to our own variables, here and in all calls of this file.
    unsafe {
        green::cuDeviceGetDevResource(0, &raw mut all, SM).unwrap();
        green::cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &raw mut count, &raw const all, null_mut(), 0, 16).unwrap();
    }
    assert_eq!(count, 2);
    groups
}

fn new_green(mut group: CUdevResource) -> CUgreenCtx {
    let (mut description, mut made) = (null_mut(), null_mut());
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        green::cuDevResourceGenerateDesc(&raw mut description, &raw mut group, 1).unwrap();
        green::cuGreenCtxCreate(&raw mut made, description, 0, 1).unwrap();
    }
    made
}

fn new_stream(of: CUgreenCtx) -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { green::cuGreenCtxStreamCreate(&raw mut stream, of, 1, 0).unwrap() };
    stream
}

/// Waits until the executor has taken all records so far.
fn settle() {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { memory::cuMemGetInfo_v2(&raw mut free, &raw mut total).unwrap() };
}

/// The primary context, retained and current on this thread.
fn primary() -> CUcontext {
    fake::session();
    let mut primary = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        context::cuDevicePrimaryCtxRetain(&raw mut primary, 0).unwrap();
        context::cuCtxPushCurrent_v2(primary).unwrap();
    }
    primary
}

#[test]
fn the_executor_is_told_which_multiprocessors_and_the_primary_context_has_the_rest() {
    let _alone = fake::alone();
    let context = primary();
    let (_module, _, gate) = functions();
    let [low, high] = groups();
    settle();
    fake::seen();
    let (one, two) = (new_green(low), new_green(high));
    let (first, second) = (new_stream(one), new_stream(two));
    settle();
    let told: Vec<(u32, Vec<u32>)> = fake::seen()
        .into_iter()
        .filter_map(|record| match record.op {
            Op::PartitionPlace { partition, device: 0, positions } => Some((partition, SmPositions::from_words(positions).iter().collect())),
            Op::StreamCreate { partition, .. } if partition != 0 => Some((partition, Vec::new())),
            _ => None,
        })
        .collect();
    let [(a, low), (b, high), (in_a, _), (in_b, _)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((low, high), (&(0..16).collect(), &(16..32).collect()));
    assert!(a != b && in_a == a && in_b == b);

    // A function of the primary context runs in their streams, and all is waited for by it.
    let (held, open) = (new_gate(), new_gate());
    fake::open_gate(open);
    launch_gate(gate, held, first);
    launch_gate(gate, open, second);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        stream::cuStreamSynchronize(second).unwrap();
        assert_eq!(query(first), Err(error::NOT_READY));
        let (mut got, mut green) = (null_mut(), null_mut());
        stream::cuStreamGetCtx_v2(first, &raw mut got, &raw mut green).unwrap();
        assert_eq!((got, green), (context, one));
        stream::cuStreamGetCtx(first, &raw mut got).unwrap();
        let mut converted = null_mut();
        green::cuCtxFromGreenCtx(&raw mut converted, one).unwrap();
        assert!(got == converted && got != context);
        // Its end waits for its work; a stream that is left says why it is none any more.
        fake::open_gate(held);
        green::cuGreenCtxDestroy(one).unwrap();
        assert_eq!(query(first), Err(error::CONTEXT_IS_DESTROYED));
        assert_eq!(stream::cuStreamDestroy_v2(first), Err(error::CONTEXT_IS_DESTROYED));
        assert_eq!(context::cuCtxSetCurrent(converted), Err(error::INVALID_CONTEXT));
        assert_eq!(green::cuGreenCtxDestroy(one), Err(error::INVALID_CONTEXT));
        stream::cuStreamDestroy_v2(second).unwrap();
        green::cuGreenCtxDestroy(two).unwrap();
        settle();
        let closed = fake::seen().into_iter().filter(|record| matches!(record.op, Op::PartitionClose { .. })).count();
        assert_eq!(closed, 2);
        context::cuCtxPopCurrent_v2(&raw mut got).unwrap();
        context::cuDevicePrimaryCtxRelease_v2(0).unwrap();
    }
}

#[test]
fn memory_modules_and_events_of_a_green_context_are_its_primary_context_s() {
    let _alone = fake::alone();
    primary();
    let made = new_green(groups()[0]);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut converted, mut before) = (null_mut(), null_mut());
        green::cuCtxFromGreenCtx(&raw mut converted, made).unwrap();
        context::cuCtxPopCurrent_v2(&raw mut before).unwrap();
        context::cuCtxPushCurrent_v2(converted).unwrap();
        let (module, _, gate) = functions();
        let mut memory = 0;
        memory::cuMemAlloc_v2(&raw mut memory, 100).unwrap();
        let (mut event, mut own): (CUevent, CUstream) = (null_mut(), null_mut());
        event::cuEventCreate(&raw mut event, 2).unwrap();
        stream::cuStreamCreate(&raw mut own, 1).unwrap();
        let number = new_gate();
        launch_gate(gate, number, own);
        green::cuGreenCtxRecordEvent(made, event).unwrap();
        context::cuCtxPopCurrent_v2(&raw mut converted).unwrap();
        context::cuCtxPushCurrent_v2(before).unwrap();
        assert_eq!(event::cuEventQuery(event), Err(error::NOT_READY));
        // In the primary context's own NULL stream, which runs on the whole share.
        let open = new_gate();
        fake::open_gate(open);
        launch_gate(gate, open, null_mut());
        stream::cuStreamSynchronize(null_mut()).unwrap();
        assert_eq!(event::cuEventQuery(event), Err(error::NOT_READY), "a NULL stream waits for its own context's streams alone");
        fake::open_gate(number);
        context::cuCtxSynchronize().unwrap();
        assert_eq!(event::cuEventQuery(event), Ok(()));
        green::cuGreenCtxDestroy(made).unwrap();
        // What was made while it was current is still there.
        memory::cuMemFree_v2(memory).unwrap();
        event::cuEventDestroy_v2(event).unwrap();
        launch_gate(gate, open, null_mut());
        module::cuModuleUnload(module).unwrap();
        assert_eq!(launch::cuLaunchKernel(gate, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut()), Err(error::INVALID_HANDLE));
        context::cuCtxPopCurrent_v2(&raw mut before).unwrap();
        context::cuDevicePrimaryCtxRelease_v2(0).unwrap();
    }
}

#[test]
fn streams_that_come_later_wait_for_what_their_green_context_waits_for() {
    let _alone = fake::alone();
    primary();
    let (_module, _, gate) = functions();
    let [low, high] = groups();
    let (one, two) = (new_green(low), new_green(high));
    let stream = new_stream(one);
    let (held, open) = (new_gate(), new_gate());
    fake::open_gate(open);
    launch_gate(gate, held, stream);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let mut event: CUevent = null_mut();
        event::cuEventCreate(&raw mut event, 2).unwrap();
        event::cuEventRecord(event, stream).unwrap();
        green::cuGreenCtxWaitEvent(two, event).unwrap();
        let (late, free) = (new_stream(two), new_stream(one));
        launch_gate(gate, open, late);
        launch_gate(gate, open, free);
        stream::cuStreamSynchronize(free).unwrap();
        assert_eq!(query(late), Err(error::NOT_READY));
        fake::open_gate(held);
        stream::cuStreamSynchronize(late).unwrap();
        green::cuGreenCtxDestroy(one).unwrap();
        green::cuGreenCtxDestroy(two).unwrap();
        let mut popped = null_mut();
        context::cuCtxPopCurrent_v2(&raw mut popped).unwrap();
        context::cuDevicePrimaryCtxRelease_v2(0).unwrap();
    }
}
