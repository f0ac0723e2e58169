//! Stories of graphs and capture, against the stand-in executor.
//!
//! One file, although long: a list of stories of one world.

use super::calls::{allocate, end, functions, launch_gate, new_context, new_gate, new_stream, query};
use super::fake;
use crate::ffi::error;
use crate::{capture, context, copy, event, graph, ipc, launch, loan, managed, memory, pool, set, stream};
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use cumux_abi::{
    CU_STREAM_LEGACY, CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUevent,
    CUfunction, CUgraph, CUgraphChildGraphNodeOwnership, CUgraphExec, CUgraphInstantiate_flags, CUgraphMem_attribute, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType, CUipcMemHandle, CUmemorytype, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use cumux_wire::record::Op;
use std::sync::Mutex;

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

pub(super) fn begin(stream: CUstream) {
    // SAFETY: pointers to our own variables, here and in all calls of this file.
    unsafe { capture::cuStreamBeginCapture_v2(stream, GLOBAL).unwrap() };
}

pub(super) fn end_capture(stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { capture::cuStreamEndCapture(stream, &raw mut graph).map(|()| graph) }
}

fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { graph::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0).unwrap() };
    exec
}

fn launch_exec(exec: CUgraphExec, stream: CUstream) {
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { graph::cuGraphLaunch(exec, stream).unwrap() };
}

pub(super) fn launch_add(add: CUfunction, a: u64, b: u64, c: u64, n: u32, stream: CUstream) -> Result<(), CUresult> {
    let (mut a, mut b, mut c, mut n) = (a, b, c, n);
    let mut each: [*mut c_void; 4] = [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut c).cast(), (&raw mut n).cast()];
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { launch::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, each.as_mut_ptr(), null_mut()) }
}

pub(super) fn floats(address: u64, n: usize) -> Vec<f32> {
    let mut out = vec![0.0_f32; n];
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { copy::cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), address, n * 4).unwrap() };
    out
}

pub(super) fn node_count(graph: CUgraph) -> usize {
    let mut count = 0;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { graph::cuGraphGetNodes(graph, null_mut(), &raw mut count).unwrap() };
    count
}

#[test]
fn captured_work_runs_when_launched_and_as_often_as_launched() {
    let context = new_context();
    let (_, add, _) = functions();
    let stream = new_stream(1);
    let (one, sum) = (allocate(64), allocate(64));
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        set::cuMemsetD32_v2(one, 1.0_f32.to_bits(), 16).unwrap();
        set::cuMemsetD32_v2(sum, 0, 16).unwrap();
        stream::cuStreamSynchronize(null_mut()).unwrap();
    }
    begin(stream);
    launch_add(add, one, sum, sum, 16, stream).unwrap();
    launch_add(add, one, sum, sum, 16, stream).unwrap();
    let graph = end_capture(stream).unwrap();
    assert_eq!(floats(sum, 16), [0.0; 16], "nothing has run");
    assert_eq!(node_count(graph), 2);
    let exec = instantiate(graph);
    for _ in 0..5 {
        launch_exec(exec, stream);
    }
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(floats(sum, 16), [10.0; 16]);
        // The graph may go before the executable.
        graph::cuGraphDestroy(graph).unwrap();
        let mut count = 0;
        assert_eq!(graph::cuGraphGetNodes(graph, null_mut(), &raw mut count), Err(error::INVALID_VALUE));
        launch_exec(exec, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(floats(sum, 16), [12.0; 16]);
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(graph::cuGraphLaunch(exec, stream), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn a_fork_and_join_through_events_is_one_graph() {
    let context = new_context();
    let (_, add, _) = functions();
    let (first, second) = (new_stream(1), new_stream(1));
    let (a, b, c) = (allocate(64), allocate(64), allocate(64));
    let (mut fork, mut join): (CUevent, CUevent) = (null_mut(), null_mut());
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        event::cuEventCreate(&raw mut fork, 2).unwrap();
        event::cuEventCreate(&raw mut join, 2).unwrap();
        begin(first);
        set::cuMemsetD32Async(a, 2.0_f32.to_bits(), 16, first).unwrap();
        event::cuEventRecord(fork, first).unwrap();
        stream::cuStreamWaitEvent(second, fork, 0).unwrap();
        let mut state = CUstreamCaptureStatus(9);
        capture::cuStreamIsCapturing(second, &raw mut state).unwrap();
        assert_eq!(state, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, "joined by waiting");
        set::cuMemsetD32Async(b, 3.0_f32.to_bits(), 16, second).unwrap();
        assert_eq!(event::cuEventQuery(fork), Err(CUresult::CUDA_ERROR_CAPTURED_EVENT));
        event::cuEventRecord(join, second).unwrap();
        stream::cuStreamWaitEvent(first, join, 0).unwrap();
        launch_add(add, a, b, c, 16, first).unwrap();
        let graph = end_capture(first).unwrap();
        let mut edges = 0;
        graph::cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut edges).unwrap();
        // The first node leads to both others and the second to the third.
        assert_eq!((node_count(graph), edges), (3, 3));
        let exec = instantiate(graph);
        launch_exec(exec, first);
        stream::cuStreamSynchronize(first).unwrap();
        assert_eq!(floats(c, 16), [5.0; 16]);
        assert_eq!(query(second), Ok(()), "the stream is itself again");
    }
    end(context);
}

#[test]
fn branches_run_side_by_side_and_the_stream_waits_for_all() {
    let context = new_context();
    let (_, _, gate) = functions();
    let (stream, other) = (new_stream(1), new_stream(1));
    let target = allocate(64);
    let number = new_gate();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let mut graph = null_mut();
        graph::cuGraphCreate(&raw mut graph, 0).unwrap();
        let mut number_word = number;
        let mut each: [*mut c_void; 1] = [(&raw mut number_word).cast()];
        let kernel = CUDA_KERNEL_NODE_PARAMS {
            func: gate,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            kernelParams: each.as_mut_ptr(),
            ..CUDA_KERNEL_NODE_PARAMS::default()
        };
        let fill = CUDA_MEMSET_NODE_PARAMS { dst: target, pitch: 0, value: 7, elementSize: 1, width: 64, height: 1 };
        let (mut held, mut free): (CUgraphNode, CUgraphNode) = (null_mut(), null_mut());
        graph::cuGraphAddKernelNode_v2(&raw mut held, graph, null(), 0, &raw const kernel).unwrap();
        graph::cuGraphAddMemsetNode(&raw mut free, graph, null(), 0, &raw const fill, context).unwrap();
        let exec = instantiate(graph);
        launch_exec(exec, stream);
        // The branch beside the closed gate gets through: its bytes arrive while the graph is still
        // running.
        let mut seen = [0_u8; 64];
        while seen != [7; 64] {
            copy::cuMemcpyDtoHAsync_v2(seen.as_mut_ptr().cast(), target, 64, other).unwrap();
            stream::cuStreamSynchronize(other).unwrap();
        }
        assert_eq!(query(stream), Err(error::NOT_READY));
        // A second launch of the same executable waits for the first.
        let late = new_stream(1);
        launch_exec(exec, late);
        assert_eq!(query(late), Err(error::NOT_READY));
        fake::open_gate(number);
        stream::cuStreamSynchronize(late).unwrap();
        assert_eq!(query(stream), Ok(()));
        // What the kernel was given can be read back.
        let mut told = CUDA_KERNEL_NODE_PARAMS::default();
        graph::cuGraphKernelNodeGetParams_v2(held, &raw mut told).unwrap();
        let parameter = told.kernelParams.read();
        assert!(parameter.addr().abs_diff((&raw const told).addr()) > 1 << 16, "it leads into the node, not to a stack that is gone");
        assert_eq!((told.func, parameter.cast::<u64>().read()), (gate, number));
        graph::cuGraphExecDestroy(exec).unwrap();
        graph::cuGraphDestroy(graph).unwrap();
    }
    end(context);
}

#[test]
fn private_memory_and_host_functions_in_a_graph_keep_their_order() {
    static INPUT: Mutex<[u32; 4]> = Mutex::new([0; 4]);
    unsafe extern "C" fn next(data: *mut c_void) {
        // SAFETY: the array below.
        unsafe { data.cast::<u32>().write(data.cast::<u32>().read() + 1) };
    }
    let context = new_context();
    let stream = new_stream(1);
    let device = allocate(16);
    let mut input = INPUT.lock().unwrap();
    let mut output = [0_u32; 4];
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let mut graph = null_mut();
        graph::cuGraphCreate(&raw mut graph, 0).unwrap();
        let host = CUDA_HOST_NODE_PARAMS { fn_: Some(next), userData: input.as_mut_ptr().cast() };
        let line = CUDA_MEMCPY3D { WidthInBytes: 16, Height: 1, Depth: 1, ..CUDA_MEMCPY3D::default() };
        let there = CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: input.as_ptr().cast(),
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: device,
            ..line
        };
        let back = CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: device,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: output.as_mut_ptr().cast(),
            ..line
        };
        let mut nodes: [CUgraphNode; 3] = [null_mut(); 3];
        graph::cuGraphAddHostNode(&raw mut nodes[0], graph, null(), 0, &raw const host).unwrap();
        graph::cuGraphAddMemcpyNode(&raw mut nodes[1], graph, nodes.as_ptr(), 1, &raw const there, context).unwrap();
        graph::cuGraphAddMemcpyNode(&raw mut nodes[2], graph, nodes.as_ptr().add(1), 1, &raw const back, context).unwrap();
        let exec = instantiate(graph);
        for round in 1..=3 {
            launch_exec(exec, stream);
            stream::cuStreamSynchronize(stream).unwrap();
            assert_eq!(output[0], round);
        }
        // The middle one may be changed for one of its kind, and for nothing else.
        let mut other = [9_u32; 4];
        let elsewhere = CUDA_MEMCPY3D { srcHost: other.as_mut_ptr().cast(), ..there };
        graph::cuGraphExecMemcpyNodeSetParams(exec, nodes[1], &raw const elsewhere, context).unwrap();
        assert_eq!(graph::cuGraphExecHostNodeSetParams(exec, nodes[1], &raw const host), Err(error::INVALID_VALUE));
        launch_exec(exec, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(output, [9; 4]);
    }
    end(context);
}

#[test]
fn mistakes_in_capture_are_told_apart_and_leave_the_streams_usable() {
    let context = new_context();
    let (_, _, gate) = functions();
    let (first, second) = (new_stream(0), new_stream(1));
    let target = allocate(64);
    let mut mark: CUevent = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        event::cuEventCreate(&raw mut mark, 2).unwrap();
        assert_eq!(capture::cuStreamBeginCapture_v2(CU_STREAM_LEGACY, RELAXED), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        assert_eq!(end_capture(second), Err(error::INVALID_VALUE), "does not capture");
        // Waiting for a capturing stream spoils it.
        begin(first);
        assert_eq!(stream::cuStreamSynchronize(first), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        assert_eq!(set::cuMemsetD8Async(target, 0, 64, first), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        assert_eq!(end_capture(first), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        // The NULL stream is joined with it.
        begin(first);
        assert_eq!(set::cuMemsetD8Async(target, 0, 64, null_mut()), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        assert!(end_capture(first).is_err());
        // A question to the NULL stream has no answer then, and spoils nothing.
        for mode in [GLOBAL, RELAXED] {
            let mut state = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
            capture::cuStreamBeginCapture_v2(first, mode).unwrap();
            assert_eq!(capture::cuStreamIsCapturing(null_mut(), &raw mut state), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
            let information = capture::cuStreamGetCaptureInfo(null_mut(), &raw mut state, null_mut());
            assert_eq!(information, Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
            capture::cuStreamIsCapturing(second, &raw mut state).unwrap();
            assert_eq!(state, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
            assert!(end_capture(first).is_ok());
            capture::cuStreamIsCapturing(null_mut(), &raw mut state).unwrap();
        }
        // Work outside cannot become a part of it.
        let number = new_gate();
        launch_gate(gate, number, second);
        event::cuEventRecord(mark, second).unwrap();
        begin(first);
        assert_eq!(stream::cuStreamWaitEvent(first, mark, 0), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
        assert!(end_capture(first).is_err());
        fake::open_gate(number);
        // A branch that never comes back.
        begin(first);
        event::cuEventRecord(mark, first).unwrap();
        stream::cuStreamWaitEvent(second, mark, 0).unwrap();
        set::cuMemsetD8Async(target, 0, 64, second).unwrap();
        assert_eq!(end_capture(second), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
        assert!(end_capture(first).is_err());
        begin(first);
        event::cuEventRecord(mark, first).unwrap();
        stream::cuStreamWaitEvent(second, mark, 0).unwrap();
        set::cuMemsetD8Async(target, 0, 64, second).unwrap();
        assert_eq!(end_capture(first), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
        for stream in [first, second, null_mut()] {
            set::cuMemsetD8Async(target, 1, 64, stream).unwrap();
            stream::cuStreamSynchronize(stream).unwrap();
        }
    }
    end(context);
}

#[test]
fn memory_of_a_graph_lives_as_long_as_whoever_names_it() {
    let context = new_context();
    let (_, add, _) = functions();
    let stream = new_stream(1);
    let result = allocate(64);
    let mut inside = 0;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        begin(stream);
        pool::cuMemAllocAsync(&raw mut inside, 64, stream).unwrap();
        set::cuMemsetD32Async(inside, 4.0_f32.to_bits(), 16, stream).unwrap();
        launch_add(add, inside, inside, result, 16, stream).unwrap();
        pool::cuMemFreeAsync(inside, stream).unwrap();
        let graph = end_capture(stream).unwrap();
        assert_eq!(node_count(graph), 4);
        let exec = instantiate(graph);
        graph::cuGraphDestroy(graph).unwrap();
        for _ in 0..2 {
            launch_exec(exec, stream);
            stream::cuStreamSynchronize(stream).unwrap();
        }
        assert_eq!(floats(result, 16), [8.0; 16]);
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(memory::cuMemFree_v2(inside), Err(error::INVALID_VALUE), "gone with the executable");
    }
    end(context);
}

/// A graph that allocates 64 bytes and fills them, and does not free them.
fn allocating_graph(stream: CUstream, value: f32) -> (CUgraph, u64) {
    let mut inside = 0;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        begin(stream);
        pool::cuMemAllocAsync(&raw mut inside, 64, stream).unwrap();
        set::cuMemsetD32Async(inside, value.to_bits(), 16, stream).unwrap();
        (end_capture(stream).unwrap(), inside)
    }
}

#[test]
fn memory_that_a_graph_does_not_free_lives_on_without_it() {
    let _alone = fake::alone();
    let context = new_context();
    let stream = new_stream(1);
    let (graph, inside) = allocating_graph(stream, 4.0);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        assert_eq!(memory::cuMemFree_v2(inside), Err(error::INVALID_VALUE), "no launch has allocated it");
        let exec = instantiate(graph);
        launch_exec(exec, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        graph::cuGraphDestroy(graph).unwrap();
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(floats(inside, 16), [4.0; 16]);
        assert!(!fake::seen().iter().any(|record| record.op == Op::MemFree { address: inside }));
        memory::cuMemFree_v2(inside).unwrap();
        // The answer comes after everything before it.
        let mut free = 0;
        memory::cuMemGetInfo_v2(&raw mut free, null_mut()).unwrap();
        assert!(fake::seen().iter().any(|record| record.op == Op::MemFree { address: inside }), "it goes back to the device");
        assert_eq!(memory::cuMemFree_v2(inside), Err(error::INVALID_VALUE), "once");

        // Freed by another graph, which runs after the first has gone.
        let (graph, inside) = allocating_graph(stream, 5.0);
        begin(stream);
        pool::cuMemFreeAsync(inside, stream).unwrap();
        let freeing = instantiate(end_capture(stream).unwrap());
        assert_eq!(graph::cuGraphLaunch(freeing, stream), Err(error::INVALID_VALUE), "it is not allocated");
        let exec = instantiate(graph);
        launch_exec(exec, stream);
        graph::cuGraphDestroy(graph).unwrap();
        graph::cuGraphExecDestroy(exec).unwrap();
        launch_exec(freeing, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(memory::cuMemFree_v2(inside), Err(error::INVALID_VALUE), "the graph has freed it");
        // Other memory is none of a graph's business.
        let plain = allocate(64);
        begin(stream);
        assert_eq!(pool::cuMemFreeAsync(plain, stream), Err(error::INVALID_VALUE));
        end_capture(stream).unwrap();
        memory::cuMemFree_v2(plain).unwrap();
    }
    end(context);
}

#[test]
fn a_graph_runs_again_after_its_memory_was_freed_outside() {
    let _alone = fake::alone();
    let context = new_context();
    let stream = new_stream(1);
    let (graph, inside) = allocating_graph(stream, 4.0);
    let exec = instantiate(graph);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        launch_exec(exec, stream);
        assert_eq!(graph::cuGraphLaunch(exec, stream), Err(error::INVALID_VALUE), "its memory is still allocated");
        memory::cuMemFree_v2(inside).unwrap();
        assert_eq!(memory::cuMemFree_v2(inside), Err(error::INVALID_VALUE), "once");
        launch_exec(exec, stream);
        pool::cuMemFreeAsync(inside, stream).unwrap();
        launch_exec(exec, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(floats(inside, 16), [4.0; 16]);
        assert!(!fake::seen().iter().any(|record| matches!(record.op, Op::MemFree { address } | Op::FreeInStream { address } if address == inside)));

        // An executable may free at its next launch what is left of the last.
        let mut frees = null_mut();
        let flag = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
        graph::cuGraphInstantiateWithFlags(&raw mut frees, graph, flag.into()).unwrap();
        launch_exec(frees, stream);
        launch_exec(frees, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        memory::cuMemFree_v2(inside).unwrap();
    }
    end(context);
}

/// Large memory is the device's again as soon as the program frees it, although the graph is there.
#[test]
fn large_memory_of_a_graph_is_there_while_it_is_allocated() {
    let _alone = fake::alone();
    let context = new_context();
    let stream = new_stream(1);
    let bytes = 3 << 20;
    let records = || {
        let named = |op: Op| match op {
            Op::VmmReserve { bytes, .. } => Some(("reserve", bytes)),
            Op::VmmCreate { bytes, .. } => Some(("create", bytes)),
            Op::VmmMap { bytes, .. } => Some(("map", bytes)),
            Op::VmmAccess { bytes, .. } => Some(("access", bytes)),
            Op::VmmUnmap { bytes, .. } => Some(("unmap", bytes)),
            Op::VmmRelease { .. } => Some(("release", 4 << 20)),
            Op::VmmUnreserve { bytes, .. } => Some(("unreserve", bytes)),
            _ => None,
        };
        let mut free = 0;
        // SAFETY: our own word. The answer comes after everything before it.
        unsafe { memory::cuMemGetInfo_v2(&raw mut free, null_mut()).unwrap() };
        let (names, sizes): (Vec<&str>, Vec<u64>) = fake::seen().into_iter().filter_map(|record| named(record.op)).unzip();
        assert!(sizes.iter().all(|bytes| *bytes == 4 << 20), "whole pieces: {sizes:?}");
        names
    };
    let mut inside = 0;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        records();
        begin(stream);
        pool::cuMemAllocAsync(&raw mut inside, bytes, stream).unwrap();
        set::cuMemsetD32Async(inside, 7, bytes / 4, stream).unwrap();
        let exec = instantiate(end_capture(stream).unwrap());
        assert_eq!(records(), ["reserve"]);
        launch_exec(exec, stream);
        assert_eq!(records(), ["create", "map", "access"]);
        memory::cuMemFree_v2(inside).unwrap();
        assert_eq!(records(), ["unmap", "release"]);
        launch_exec(exec, stream);
        assert_eq!(records(), ["create", "map", "access"]);
        // In a stream, the executable keeps it for its next launch.
        pool::cuMemFreeAsync(inside, stream).unwrap();
        launch_exec(exec, stream);
        assert!(records().is_empty());
        pool::cuMemFreeAsync(inside, stream).unwrap();
        // The stand-in has 1 GiB: this is more than there is, and what is idle is given up for it.
        let mut large = 0;
        assert_eq!(memory::cuMemAlloc_v2(&raw mut large, 2 << 30), Err(error::OUT_OF_MEMORY));
        assert_eq!(records(), ["unmap", "release"]);
        launch_exec(exec, stream);
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(records(), ["create", "map", "access"], "the graph is still there");
    }
    end(context);
}

#[test]
fn a_device_tells_what_its_graphs_hold() {
    let _alone = fake::alone();
    let context = new_context();
    let stream = new_stream(1);
    let told = |attribute| {
        let mut value = 0_u64;
        // SAFETY: the arguments are this test's own variables and handles.
        unsafe { graph::cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast()).unwrap() };
        value
    };
    let all = || {
        [
            told(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT),
            told(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH),
            told(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT),
            told(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
        ]
    };
    let (graph, inside) = allocating_graph(stream, 4.0);
    let exec = instantiate(graph);
    assert_eq!(all(), [0; 4], "nothing has run");
    launch_exec(exec, stream);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        graph::cuGraphDestroy(graph).unwrap();
        assert_eq!(all(), [64; 4]);
        memory::cuMemFree_v2(inside).unwrap();
        assert_eq!(all(), [0, 64, 64, 64], "kept for the next launch");
        let mut zero = 0_u64;
        graph::cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, (&raw mut zero).cast()).unwrap();
        assert_eq!(all(), [0, 0, 64, 64]);
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(all(), [0, 0, 0, 64]);
        graph::cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, (&raw mut zero).cast()).unwrap();
        assert_eq!(all(), [0; 4]);
    }
    end(context);
}

#[test]
fn an_allocation_spoils_captures_that_do_not_allow_it() {
    let _alone = fake::alone();
    let context = new_context();
    let stream = new_stream(1);
    let begin_as = |mode| {
        // SAFETY: the arguments are this test's own variables and handles.
        unsafe { capture::cuStreamBeginCapture_v2(stream, mode).unwrap() };
    };
    let try_to_allocate = || {
        let mut address = 0;
        // SAFETY: the arguments are this test's own variables and handles.
        unsafe { memory::cuMemAlloc_v2(&raw mut address, 64).map(|()| address) }
    };
    for mode in [GLOBAL, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] {
        begin_as(mode);
        assert_eq!(try_to_allocate(), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        assert_eq!(end_capture(stream), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    }
    begin_as(GLOBAL);
    let mut address = 0;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { assert_eq!(managed::cuMemAllocManaged(&raw mut address, 64, 1), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)) };
    assert!(end_capture(stream).is_err());
    // Memory of another program is as good as an allocation.
    begin_as(GLOBAL);
    let handle = CUipcMemHandle { reserved: loan::encode(loan::Kind::Memory, [1, 2], [0; 16]).map(u8::cast_signed) };
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { assert_eq!(ipc::cuIpcOpenMemHandle_v2(&raw mut address, handle, 0), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)) };
    assert_eq!(end_capture(stream), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    // Relaxed: the capture, or this thread.
    begin_as(RELAXED);
    let first = try_to_allocate().unwrap();
    end_capture(stream).unwrap();
    let mut mode = RELAXED;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { capture::cuThreadExchangeStreamCaptureMode(&raw mut mode).unwrap() };
    begin_as(GLOBAL);
    // SAFETY: as above.
    unsafe { memory::cuMemFree_v2(first).unwrap() };
    end_capture(stream).unwrap();
    // SAFETY: as above.
    unsafe { capture::cuThreadExchangeStreamCaptureMode(&raw mut mode).unwrap() };
    assert_eq!(mode, RELAXED);
    // Another thread is held back by a global capture only.
    let in_another_thread = || {
        let word = context.expose_provenance();
        std::thread::spawn(move || {
            let mut address = 0;
            // SAFETY: a context of this test; the address is our own.
            unsafe {
                context::cuCtxSetCurrent(core::ptr::with_exposed_provenance_mut(word)).unwrap();
                memory::cuMemAlloc_v2(&raw mut address, 64)
            }
        })
        .join()
        .unwrap()
    };
    begin_as(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    in_another_thread().unwrap();
    end_capture(stream).unwrap();
    begin_as(GLOBAL);
    assert_eq!(in_another_thread(), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(end_capture(stream), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    try_to_allocate().unwrap();
    end(context);
}

#[test]
fn clones_children_updates_and_structure() {
    let context = new_context();
    let stream = new_stream(1);
    let target = allocate(64);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let fill = |value| CUDA_MEMSET_NODE_PARAMS { dst: target, pitch: 0, value, elementSize: 4, width: 16, height: 1 };
        let (ones, twos) = (fill(1), fill(2));
        let (mut graph, mut clone) = (null_mut(), null_mut());
        graph::cuGraphCreate(&raw mut graph, 0).unwrap();
        let (mut empty, mut node, mut found): (CUgraphNode, CUgraphNode, CUgraphNode) = (null_mut(), null_mut(), null_mut());
        graph::cuGraphAddEmptyNode(&raw mut empty, graph, null(), 0).unwrap();
        graph::cuGraphAddMemsetNode(&raw mut node, graph, &raw const empty, 1, &raw const ones, context).unwrap();
        assert_eq!(graph::cuGraphAddDependencies(graph, &raw const empty, &raw const node, 1), Err(error::INVALID_VALUE), "already there");
        graph::cuGraphClone(&raw mut clone, graph).unwrap();
        graph::cuGraphNodeFindInClone(&raw mut found, node, clone).unwrap();
        let exec = instantiate(graph);
        // A clone has its own parameters, and its shape fits the executable.
        graph::cuGraphMemsetNodeSetParams(found, &raw const twos).unwrap();
        let mut told = fill(0);
        graph::cuGraphMemsetNodeGetParams(node, &raw mut told).unwrap();
        assert_eq!(told.value, 1);
        let mut info = Default::default();
        graph::cuGraphExecUpdate_v2(exec, clone, &raw mut info).unwrap();
        launch_exec(exec, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(floats(target, 16)[0].to_bits(), 2);
        // Another shape does not.
        graph::cuGraphRemoveDependencies(clone, &raw const found, &raw const found, 0).unwrap();
        graph::cuGraphDestroyNode(found).unwrap();
        assert_eq!(graph::cuGraphExecUpdate_v2(exec, clone, &raw mut info), Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
        // A child runs as part of its parent; a circle cannot be instantiated; a disabled node does
        // nothing.
        let (mut parent, mut child, mut kind) = (null_mut(), null_mut(), CUgraphNodeType(99));
        graph::cuGraphCreate(&raw mut parent, 0).unwrap();
        graph::cuGraphAddChildGraphNode(&raw mut child, parent, null(), 0, graph).unwrap();
        graph::cuGraphNodeGetType(child, &raw mut kind).unwrap();
        assert_eq!(kind, CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
        launch_exec(instantiate(parent), stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(floats(target, 16)[0].to_bits(), 1);
        graph::cuGraphNodeSetEnabled(exec, node, 0).unwrap();
        launch_exec(exec, stream);
        stream::cuStreamSynchronize(stream).unwrap();
        assert_eq!(floats(target, 16)[0].to_bits(), 1);
        graph::cuGraphAddDependencies(graph, &raw const node, &raw const empty, 1).unwrap();
        let mut circle = null_mut();
        assert_eq!(graph::cuGraphInstantiateWithFlags(&raw mut circle, graph, 0), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn nodes_of_a_child_graph_are_changed_in_the_executable() {
    let context = new_context();
    let stream = new_stream(1);
    let target = allocate(64);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let fill = |value| CUDA_MEMSET_NODE_PARAMS { dst: target, pitch: 0, value, elementSize: 4, width: 16, height: 1 };
        let run = |exec| {
            launch_exec(exec, stream);
            stream::cuStreamSynchronize(stream).unwrap();
            floats(target, 16)[0].to_bits()
        };
        let child_params = |graph, ownership| {
            let mut params = CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH, ..Default::default() };
            params.__bindgen_anon_1.graph = CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ownership };
            params
        };
        let fills = [1, 2, 3, 4].map(fill);
        // A moved child keeps its handles; a clone has others.
        for ownership in
            [CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE]
        {
            let is_moved = ownership == CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
            let (mut parent, mut child, mut inner) = (null_mut(), null_mut(), null_mut());
            let (mut node, mut child_node): (CUgraphNode, CUgraphNode) = (null_mut(), null_mut());
            graph::cuGraphCreate(&raw mut parent, 0).unwrap();
            graph::cuGraphCreate(&raw mut child, 0).unwrap();
            graph::cuGraphAddMemsetNode(&raw mut node, child, null(), 0, &raw const fills[0], context).unwrap();
            let mut params = child_params(child, ownership);
            graph::cuGraphAddNode_v2(&raw mut child_node, parent, null(), null(), 0, &raw mut params).unwrap();
            graph::cuGraphChildGraphNodeGetGraph(child_node, &raw mut inner).unwrap();
            assert_eq!(inner == child, is_moved);
            let (mut known, mut count) = (null_mut(), 1);
            graph::cuGraphGetNodes(inner, &raw mut known, &raw mut count).unwrap();
            assert_eq!(known == node, is_moved);
            let exec = instantiate(parent);
            assert_eq!(run(exec), 1);
            graph::cuGraphExecMemsetNodeSetParams(exec, known, &raw const fills[1], context).unwrap();
            assert_eq!(run(exec), 2);
            graph::cuGraphNodeSetEnabled(exec, known, 0).unwrap();
            graph::cuGraphExecMemsetNodeSetParams(exec, known, &raw const fills[2], context).unwrap();
            assert_eq!(run(exec), 2, "a disabled node does nothing");
            graph::cuGraphNodeSetEnabled(exec, known, 1).unwrap();
            // An update takes the parameters of the children, too, and leaves their nodes known.
            let mut clone = null_mut();
            graph::cuGraphClone(&raw mut clone, parent).unwrap();
            let mut info = Default::default();
            graph::cuGraphExecUpdate_v2(exec, clone, &raw mut info).unwrap();
            assert_eq!(run(exec), 1);
            graph::cuGraphExecMemsetNodeSetParams(exec, known, &raw const fills[3], context).unwrap();
            assert_eq!(run(exec), 4);
            // Another shape of a child is another shape.
            let mut more = null_mut();
            graph::cuGraphAddEmptyNode(&raw mut more, inner, null(), 0).unwrap();
            assert_eq!(graph::cuGraphExecUpdate_v2(exec, parent, &raw mut info), Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
            if is_moved {
                assert_eq!(graph::cuGraphDestroy(child), Err(error::INVALID_VALUE), "it belongs to its node");
                let mut again = child_params(child, ownership);
                assert_eq!(graph::cuGraphAddNode_v2(&raw mut more, parent, null(), null(), 0, &raw mut again), Err(error::INVALID_VALUE));
                let mut circle = child_params(parent, ownership);
                assert_eq!(graph::cuGraphAddNode_v2(&raw mut more, child, null(), null(), 0, &raw mut circle), Err(error::INVALID_VALUE));
            }
            graph::cuGraphDestroy(parent).unwrap();
            assert_eq!(graph::cuGraphDestroy(child).is_err(), is_moved, "a moved child ends with its parent");
        }
    }
    end(context);
}

#[test]
fn graphs_of_nodes_are_replaced_destroyed_and_kept_with_them() {
    let context = new_context();
    let stream = new_stream(1);
    let target = allocate(64);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let fills = [1, 2].map(|value| CUDA_MEMSET_NODE_PARAMS { dst: target, pitch: 0, value, elementSize: 4, width: 16, height: 1 });
        let child_of = |fill: &CUDA_MEMSET_NODE_PARAMS| {
            let (mut child, mut node) = (null_mut(), null_mut());
            graph::cuGraphCreate(&raw mut child, 0).unwrap();
            graph::cuGraphAddMemsetNode(&raw mut node, child, null(), 0, &raw const *fill, context).unwrap();
            (child, node)
        };
        let moved = |graph| {
            let mut params = CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH, ..Default::default() };
            params.__bindgen_anon_1.graph =
                CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ownership: CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE };
            params
        };
        let (mut parent, mut child_node): (CUgraph, CUgraphNode) = (null_mut(), null_mut());
        graph::cuGraphCreate(&raw mut parent, 0).unwrap();
        let ((child, node), (other, _)) = (child_of(&fills[0]), child_of(&fills[1]));
        // A move that fails leaves the child the program's.
        let mut params = moved(child);
        assert_eq!(graph::cuGraphAddNode_v2(&raw mut child_node, parent, &raw const node, null(), 1, &raw mut params), Err(error::INVALID_VALUE));
        graph::cuGraphAddNode_v2(&raw mut child_node, parent, null(), null(), 0, &raw mut params).unwrap();
        let exec = instantiate(parent);
        let run = || {
            launch_exec(exec, stream);
            stream::cuStreamSynchronize(stream).unwrap();
            floats(target, 16)[0].to_bits()
        };
        // An executable's child graph node gets the parameters of a graph of its shape, and its
        // nodes go on being known.
        let mut wanted = moved(other);
        assert_eq!(graph::cuGraphExecNodeSetParams(exec, child_node, &raw mut wanted), Err(error::INVALID_VALUE), "it keeps its own");
        graph::cuGraphExecChildGraphNodeSetParams(exec, child_node, other).unwrap();
        assert_eq!(run(), 2);
        graph::cuGraphExecMemsetNodeSetParams(exec, node, &raw const fills[0], context).unwrap();
        assert_eq!(run(), 1);
        let (mut empty, mut more) = (null_mut(), null_mut());
        graph::cuGraphCreate(&raw mut empty, 0).unwrap();
        assert_eq!(graph::cuGraphExecChildGraphNodeSetParams(exec, child_node, empty), Err(error::INVALID_VALUE), "another shape");
        // The child ends with its node.
        graph::cuGraphDestroyNode(child_node).unwrap();
        assert_eq!(graph::cuGraphAddEmptyNode(&raw mut more, child, null(), 0), Err(error::INVALID_VALUE));
        assert_eq!(run(), 1, "the executable is as it was");
        for graph in [parent, other, empty] {
            graph::cuGraphDestroy(graph).unwrap();
        }
    }
    end(context);
}

#[test]
fn an_executable_keeps_the_objects_of_children() {
    static ENDED: Mutex<u32> = Mutex::new(0);
    unsafe extern "C" fn ended(_data: *mut c_void) {
        *ENDED.lock().unwrap() += 1;
    }
    let context = new_context();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut parent, mut child, mut node, mut object) = (null_mut(), null_mut(), null_mut(), null_mut());
        graph::cuGraphCreate(&raw mut parent, 0).unwrap();
        graph::cuGraphCreate(&raw mut child, 0).unwrap();
        graph::cuUserObjectCreate(&raw mut object, null_mut(), Some(ended), 1, 1).unwrap();
        graph::cuGraphRetainUserObject(child, object, 1, 1).unwrap();
        let mut params = CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH, ..Default::default() };
        params.__bindgen_anon_1.graph =
            CUDA_CHILD_GRAPH_NODE_PARAMS { graph: child, ownership: CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE };
        graph::cuGraphAddNode_v2(&raw mut node, parent, null(), null(), 0, &raw mut params).unwrap();
        let exec = instantiate(parent);
        graph::cuGraphDestroy(parent).unwrap();
        assert_eq!(*ENDED.lock().unwrap(), 0, "the executable still uses it");
        // An update exchanges what is kept.
        let (mut plain, mut empty, mut inside, mut info) = (null_mut(), null_mut(), null_mut(), Default::default());
        graph::cuGraphCreate(&raw mut plain, 0).unwrap();
        graph::cuGraphCreate(&raw mut empty, 0).unwrap();
        graph::cuGraphAddChildGraphNode(&raw mut inside, plain, null(), 0, empty).unwrap();
        graph::cuGraphExecUpdate_v2(exec, plain, &raw mut info).unwrap();
        assert_eq!(*ENDED.lock().unwrap(), 1);
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(*ENDED.lock().unwrap(), 1);
        context::cuCtxSynchronize().unwrap();
    }
    end(context);
}

#[test]
fn objects_outlive_the_launches_that_use_them() {
    static ENDED: Mutex<u32> = Mutex::new(0);
    unsafe extern "C" fn ended(_data: *mut c_void) {
        *ENDED.lock().unwrap() += 1;
    }
    let ended_now = || *ENDED.lock().unwrap();
    let context = new_context();
    let stream = new_stream(1);
    let (_, _, gate) = functions();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let with_object = || {
            let (mut graph, mut node, mut object) = (null_mut(), null_mut(), null_mut());
            graph::cuGraphCreate(&raw mut graph, 0).unwrap();
            graph::cuGraphAddEmptyNode(&raw mut node, graph, null(), 0).unwrap();
            graph::cuUserObjectCreate(&raw mut object, null_mut(), Some(ended), 1, 1).unwrap();
            graph::cuGraphRetainUserObject(graph, object, 1, 1).unwrap();
            graph
        };
        let (first, second) = (with_object(), with_object());
        let exec = instantiate(first);
        graph::cuGraphDestroy(first).unwrap();
        let number = new_gate();
        launch_gate(gate, number, stream);
        launch_exec(exec, stream);
        let mut info = Default::default();
        graph::cuGraphExecUpdate_v2(exec, second, &raw mut info).unwrap();
        assert_eq!(ended_now(), 0, "the launch has not ended");
        fake::open_gate(number);
        stream::cuStreamSynchronize(stream).unwrap();
        graph::cuGraphDestroy(second).unwrap();
        assert_eq!(ended_now(), 1, "the first one's; the executable has the second one's");
        let number = new_gate();
        launch_gate(gate, number, stream);
        launch_exec(exec, stream);
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(ended_now(), 1);
        fake::open_gate(number);
        stream::cuStreamSynchronize(stream).unwrap();
        let last = with_object();
        graph::cuGraphDestroy(last).unwrap();
        assert_eq!(ended_now(), 3, "the second one's, and that of a graph that nothing uses");
    }
    end(context);
}

#[test]
fn user_objects_end_with_their_last_user() {
    static ENDED: Mutex<u32> = Mutex::new(0);
    unsafe extern "C" fn ended(_data: *mut c_void) {
        *ENDED.lock().unwrap() += 1;
    }
    let context = new_context();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut graph, mut object) = (null_mut(), null_mut());
        graph::cuGraphCreate(&raw mut graph, 0).unwrap();
        graph::cuUserObjectCreate(&raw mut object, null_mut(), Some(ended), 1, 1).unwrap();
        graph::cuGraphRetainUserObject(graph, object, 1, 1).unwrap();
        let exec = instantiate(graph);
        graph::cuGraphDestroy(graph).unwrap();
        assert_eq!(*ENDED.lock().unwrap(), 0, "the executable still uses it");
        graph::cuGraphExecDestroy(exec).unwrap();
        assert_eq!(*ENDED.lock().unwrap(), 1);
        assert_eq!(graph::cuUserObjectRelease(object, 1), Err(error::INVALID_VALUE));
        context::cuCtxSynchronize().unwrap();
    }
    end(context);
}
