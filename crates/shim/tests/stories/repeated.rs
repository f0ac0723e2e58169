//! Stories of launches that a thread makes again: what it remembers of earlier ones must not
//! outlive what they were about.

use super::calls::{IMAGE, allocate, end, functions, launch_gate, new_context, new_gate, new_stream, query};
use super::fake;
use super::graphs::{begin, end_capture, floats, launch_add, node_count};
use crate::ffi::error;
use crate::{context, event, function, launch, library, module, set, stream};
use core::ffi::c_void;
use core::ptr::null_mut;
use cumux_abi::{CU_STREAM_PER_THREAD, CUevent, CUfunction, CUfunction_attribute, CUlibrary, CUresult, CUstream};
use cumux_wire::record::Op;

/// Launches `add` on no elements, with this shape.
fn launch_shaped(add: CUfunction, grid: [u32; 3], block: u32, shared: u32, stream: CUstream) -> Result<(), CUresult> {
    let (mut address, mut n) = (0_u64, 0_u32);
    let mut each: [*mut c_void; 4] = [(&raw mut address).cast(), (&raw mut address).cast(), (&raw mut address).cast(), (&raw mut n).cast()];
    let [x, y, z] = grid;
    // SAFETY: the arguments are this test's own variables and handles, here and in all calls of
    // this file.
    unsafe { launch::cuLaunchKernel(add, x, y, z, block, 1, 1, shared, stream, each.as_mut_ptr(), null_mut()) }
}

/// Often enough that the thread remembers it.
fn launch_twice(add: CUfunction, stream: CUstream) {
    for _ in 0..2 {
        launch_add(add, 0, 0, 0, 0, stream).unwrap();
    }
}

#[test]
fn a_repeated_launch_finds_that_its_stream_or_its_module_is_gone() {
    let context = new_context();
    let (module, add, _) = functions();
    let stream = new_stream(1);
    launch_twice(add, stream);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { stream::cuStreamDestroy_v2(stream).unwrap() };
    assert_eq!(launch_add(add, 0, 0, 0, 0, stream), Err(error::INVALID_HANDLE));
    for stream in [new_stream(0), null_mut(), CU_STREAM_PER_THREAD] {
        launch_twice(add, stream);
    }
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { module::cuModuleUnload(module).unwrap() };
    for stream in [new_stream(0), null_mut(), CU_STREAM_PER_THREAD] {
        assert_eq!(launch_add(add, 0, 0, 0, 0, stream), Err(error::INVALID_HANDLE));
    }
    end(context);
}

#[test]
fn a_repeated_launch_is_captured_when_its_stream_captures() {
    let context = new_context();
    let (_, add, _) = functions();
    let (first, second) = (new_stream(0), new_stream(1));
    let (one, sum) = (allocate(64), allocate(64));
    let mut mark: CUevent = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        set::cuMemsetD32_v2(one, 1.0_f32.to_bits(), 16).unwrap();
        set::cuMemsetD32_v2(sum, 0, 16).unwrap();
        event::cuEventCreate(&raw mut mark, 2).unwrap();
        context::cuCtxSynchronize().unwrap();
    }
    for stream in [first, second, null_mut()] {
        launch_twice(add, stream);
    }
    begin(first);
    launch_add(add, one, sum, sum, 16, first).unwrap();
    // The second one joins later.
    launch_twice(add, second);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        event::cuEventRecord(mark, first).unwrap();
        stream::cuStreamWaitEvent(second, mark, 0).unwrap();
        launch_add(add, one, sum, sum, 16, second).unwrap();
        event::cuEventRecord(mark, second).unwrap();
        stream::cuStreamWaitEvent(first, mark, 0).unwrap();
    }
    let graph = end_capture(first).unwrap();
    assert_eq!((node_count(graph), floats(sum, 16)), (2, vec![0.0; 16]));
    for stream in [first, second] {
        launch_add(add, one, sum, sum, 16, stream).unwrap();
        // SAFETY: the arguments are this test's own variables and handles.
        unsafe { stream::cuStreamSynchronize(stream).unwrap() };
    }
    assert_eq!(floats(sum, 16), [2.0; 16], "after the capture they run");
    // Nor does the NULL stream go on beside a stream that is joined with it.
    launch_twice(add, null_mut());
    begin(first);
    assert_eq!(launch_add(add, 0, 0, 0, 0, null_mut()), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    assert_eq!(end_capture(first), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    launch_twice(add, null_mut());
    end(context);
}

#[test]
fn a_repeated_launch_is_checked_when_its_shape_or_its_function_changes() {
    let _alone = fake::alone();
    let context = new_context();
    let (_, add, _) = functions();
    let stream = new_stream(1);
    let good = |shared| launch_shaped(add, [1; 3], 32, shared, stream);
    let set = |attribute, value| {
        // SAFETY: the arguments are this test's own variables and handles.
        unsafe { function::cuFuncSetAttribute(add, attribute, value) }
    };
    for _ in 0..2 {
        assert_eq!(good(0), Ok(()));
        assert_eq!(launch_shaped(add, [1, 65_536, 1], 32, 0, stream), Err(error::INVALID_VALUE));
        assert_eq!(launch_shaped(add, [0, 1, 1], 32, 0, stream), Err(error::INVALID_VALUE));
        assert_eq!(launch_shaped(add, [1; 3], 1025, 0, stream), Err(error::INVALID_VALUE));
        assert_eq!((good(49_152), good(49_153)), (Ok(()), Err(error::INVALID_VALUE)));
    }
    // What is pushed is what was asked for last.
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { stream::cuStreamSynchronize(stream).unwrap() };
    fake::seen();
    let shapes = [([1, 1, 1], 32, 0), ([7, 2, 1], 32, 0), ([7, 2, 1], 64, 16), ([7, 2, 1], 64, 8), ([1, 1, 1], 32, 0)];
    for (grid, block, shared) in shapes {
        launch_shaped(add, grid, block, shared, stream).unwrap();
    }
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { stream::cuStreamSynchronize(stream).unwrap() };
    let shape = |op: &Op| if let Op::Launch(launch) = op { Some((launch.grid, launch.block[0], launch.shared)) } else { None };
    assert_eq!(fake::seen().iter().filter_map(|record| shape(&record.op)).collect::<Vec<_>>(), shapes);
    const MOST: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    set(MOST, 60_000).unwrap();
    for _ in 0..3 {
        assert_eq!(good(60_000), Ok(()));
    }
    set(MOST, 1000).unwrap();
    assert_eq!((good(60_000), good(1000), good(0)), (Err(error::INVALID_VALUE), Ok(()), Ok(())));
    // A cluster that the function gets is one of its launches, which this device does not have.
    set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2).unwrap();
    assert_eq!(good(0), Err(error::NOT_SUPPORTED));
    end(context);
}

#[test]
fn a_repeated_launch_of_a_kernel_goes_to_the_context_that_is_current() {
    let (first, second) = (new_context(), new_context());
    let (mut library, mut kernel): (CUlibrary, _) = (null_mut(), null_mut());
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        library::cuLibraryLoadData(&raw mut library, IMAGE.as_ptr().cast(), null_mut(), null_mut(), 0, null_mut(), null_mut(), 0).unwrap();
        library::cuLibraryGetKernel(&raw mut kernel, library, c"gate".as_ptr()).unwrap();
        let kernel: CUfunction = kernel.cast();
        let open = new_gate();
        fake::open_gate(open);
        for stream in [null_mut(), CU_STREAM_PER_THREAD] {
            for context in [first, second, first, second] {
                context::cuCtxSetCurrent(context).unwrap();
                launch_gate(kernel, open, stream);
            }
            let closed = new_gate();
            launch_gate(kernel, closed, stream);
            assert_eq!(query(stream), Err(error::NOT_READY));
            context::cuCtxSetCurrent(first).unwrap();
            launch_gate(kernel, open, stream);
            stream::cuStreamSynchronize(stream).unwrap();
            fake::open_gate(closed);
        }
        // A context that ends below the top of the stack.
        context::cuCtxSetCurrent(second).unwrap();
        launch_gate(kernel, open, null_mut());
        context::cuCtxPushCurrent_v2(first).unwrap();
        end(second);
        let mut popped = null_mut();
        context::cuCtxPopCurrent_v2(&raw mut popped).unwrap();
        assert_eq!(popped, first);
        let mut number = open;
        let mut each: [*mut c_void; 1] = [(&raw mut number).cast()];
        let launched = launch::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, null_mut(), each.as_mut_ptr(), null_mut());
        assert_eq!(launched, Err(error::CONTEXT_IS_DESTROYED));
        context::cuCtxSetCurrent(first).unwrap();
        launch_gate(kernel, open, null_mut());
        library::cuLibraryUnload(library).unwrap();
        let launched = launch::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, null_mut(), each.as_mut_ptr(), null_mut());
        assert_eq!(launched, Err(error::INVALID_HANDLE));
    }
    end(first);
}

#[test]
fn another_thread_learns_that_a_stream_is_gone() {
    let context = new_context();
    let (_, add, _) = functions();
    let stream = new_stream(1);
    let (add, stream, context_word) = (add.expose_provenance(), stream.expose_provenance(), context.expose_provenance());
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (add, stream) = (core::ptr::with_exposed_provenance_mut(add), core::ptr::with_exposed_provenance_mut(stream));
            // SAFETY: the arguments are this test's own variables and handles.
            unsafe { context::cuCtxSetCurrent(core::ptr::with_exposed_provenance_mut(context_word)).unwrap() };
            launch_twice(add, stream);
            say.send(()).unwrap();
            told.recv().unwrap();
            assert_eq!(launch_add(add, 0, 0, 0, 0, stream), Err(error::INVALID_HANDLE));
        });
        said.recv().unwrap();
        // SAFETY: the arguments are this test's own variables and handles.
        unsafe { stream::cuStreamDestroy_v2(core::ptr::with_exposed_provenance_mut(stream)).unwrap() };
        tell.send(()).unwrap();
    });
    end(context);
}
