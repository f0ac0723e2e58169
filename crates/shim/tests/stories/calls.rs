//! Stories: whole programs in terms of driver calls, against the stand-in executor of
//! [`super::fake`].

use super::fake;
use crate::ffi::error;
use crate::{context, copy, device, event, host, ipc, launch, library, link, memory, module, pointer, set, stream};
use core::ffi::c_void;
use core::ptr::{null, null_mut, with_exposed_provenance_mut};
use cumux_abi::{
    CU_STREAM_PER_THREAD, CUDA_MEMCPY2D, CUcontext, CUevent, CUfunction, CUipcEventHandle, CUlibrary, CUmemorytype, CUmodule, CUpointer_attribute, CUresult,
    CUstream,
};
use cumux_wire::layout::STREAMS;
use cumux_wire::record::{NO_ANSWER, Op};

pub(super) const IMAGE: &[u8] = b".version 8.0\n.target sm_75\n\0";

/// A context of the test's own, current on this thread.
pub(super) fn new_context() -> CUcontext {
    fake::session();
    let mut context = null_mut();
    // SAFETY: pointers to our own variables, here and in all calls of this file.
    unsafe { context::cuCtxCreate_v2(&raw mut context, 0, 0).unwrap() };
    context
}

pub(super) fn end(context: CUcontext) {
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { context::cuCtxDestroy_v2(context).unwrap() };
}

pub(super) fn new_stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { stream::cuStreamCreate(&raw mut stream, flags).unwrap() };
    stream
}

pub(super) fn functions() -> (CUmodule, CUfunction, CUfunction) {
    let (mut module, mut add, mut gate) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        module::cuModuleLoadData(&raw mut module, IMAGE.as_ptr().cast()).unwrap();
        module::cuModuleGetFunction(&raw mut add, module, c"add".as_ptr()).unwrap();
        module::cuModuleGetFunction(&raw mut gate, module, c"gate".as_ptr()).unwrap();
    }
    (module, add, gate)
}

/// A gate nobody else uses.
pub(super) fn new_gate() -> u64 {
    fake::session();
    crate::process::new_number()
}

pub(super) fn launch_gate(gate: CUfunction, mut number: u64, stream: CUstream) {
    let mut each: [*mut c_void; 1] = [(&raw mut number).cast()];
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { launch::cuLaunchKernel(gate, 1, 1, 1, 1, 1, 1, 0, stream, each.as_mut_ptr(), null_mut()).unwrap() };
}

pub(super) fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { memory::cuMemAlloc_v2(&raw mut address, bytes).unwrap() };
    address
}

pub(super) fn query(stream: CUstream) -> Result<(), CUresult> {
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe { stream::cuStreamQuery(stream) }
}

#[test]
fn a_vector_addition_from_first_call_to_last() {
    let session = fake::session();
    let n = 100_000_usize;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let mut context = null_mut();
        context::cuDevicePrimaryCtxRetain(&raw mut context, 0).unwrap();
        context::cuCtxSetCurrent(context).unwrap();
        let (mut library, mut kernel): (CUlibrary, _) = (null_mut(), null_mut());
        library::cuLibraryLoadData(&raw mut library, IMAGE.as_ptr().cast(), null_mut(), null_mut(), 0, null_mut(), null_mut(), 0).unwrap();
        library::cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()).unwrap();
        let (a, b, c) = (allocate(n * 4), allocate(n * 4), allocate(n * 4));
        let left: Vec<f32> = (0..n).map(|n| n as f32).collect();
        let right: Vec<f32> = (0..n).map(|n| 2.0 * n as f32).collect();
        let mut sum = vec![0.0_f32; n];
        copy::cuMemcpyHtoD_v2(a, left.as_ptr().cast(), n * 4).unwrap();
        copy::cuMemcpyHtoD_v2(b, right.as_ptr().cast(), n * 4).unwrap();
        let (mut x, mut y, mut z, mut count) = (a, b, c, n as u32);
        let mut each: [*mut c_void; 4] = [(&raw mut x).cast(), (&raw mut y).cast(), (&raw mut z).cast(), (&raw mut count).cast()];
        launch::cuLaunchKernel(kernel.cast(), 400, 1, 1, 256, 1, 1, 0, null_mut(), each.as_mut_ptr(), null_mut()).unwrap();
        stream::cuStreamSynchronize(null_mut()).unwrap();
        copy::cuMemcpyDtoH_v2(sum.as_mut_ptr().cast(), c, n * 4).unwrap();
        assert!(sum.iter().enumerate().all(|(n, value)| *value == 3.0 * n as f32));
        for address in [a, b, c] {
            memory::cuMemFree_v2(address).unwrap();
            assert_eq!(memory::cuMemFree_v2(address), Err(error::INVALID_VALUE), "freed once");
            let seen = fake::seen();
            let freed = seen.iter().find(|record| record.op == Op::MemFree { address });
            assert!(freed.is_some_and(|record| record.header.answer != NO_ANSWER), "others may have it when the call returns");
        }
        library::cuLibraryUnload(library).unwrap();
        assert_eq!(library::cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()), Err(error::INVALID_HANDLE));
        context::cuDevicePrimaryCtxRelease_v2(0).unwrap();
    }
    assert!(session.health().is_ok());
}

#[test]
fn a_stream_is_busy_until_its_work_is_done_and_others_go_on() {
    let context = new_context();
    let (_, _, gate) = functions();
    let (first, second) = (new_stream(1), new_stream(1));
    let number = new_gate();
    launch_gate(gate, number, first);
    assert_eq!(query(first), Err(error::NOT_READY));
    assert_eq!(query(second), Ok(()));
    // A stream that waits for an event behind the gate is held back too.
    let mut mark: CUevent = null_mut();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        event::cuEventCreate(&raw mut mark, 2).unwrap();
        assert_eq!(event::cuEventQuery(mark), Ok(()), "never recorded counts as reached");
        event::cuEventRecord(mark, first).unwrap();
        assert_eq!(event::cuEventQuery(mark), Err(error::NOT_READY));
        stream::cuStreamWaitEvent(second, mark, 0).unwrap();
        assert_eq!(query(second), Err(error::NOT_READY));
        fake::open_gate(number);
        stream::cuStreamSynchronize(second).unwrap();
        event::cuEventSynchronize(mark).unwrap();
        assert_eq!((query(first), event::cuEventQuery(mark)), (Ok(()), Ok(())));
        stream::cuStreamDestroy_v2(first).unwrap();
        assert_eq!(query(first), Err(error::INVALID_HANDLE));
    }
    end(context);
}

#[test]
fn the_null_stream_waits_for_blocking_streams_and_they_for_it_and_nobody_else() {
    let context = new_context();
    let (_, _, gate) = functions();
    let (blocking, free) = (new_stream(0), new_stream(1));
    let one = new_gate();
    launch_gate(gate, one, blocking);
    let target = allocate(64);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        set::cuMemsetD8Async(target, 1, 64, null_mut()).unwrap();
        set::cuMemsetD8Async(target, 2, 64, free).unwrap();
        assert_eq!(query(null_mut()), Err(error::NOT_READY), "the NULL stream waits for the blocking one");
        stream::cuStreamSynchronize(free).unwrap();
        fake::open_gate(one);
        stream::cuStreamSynchronize(null_mut()).unwrap();
        let two = new_gate();
        launch_gate(gate, two, null_mut());
        set::cuMemsetD8Async(target, 3, 64, blocking).unwrap();
        set::cuMemsetD8Async(target, 3, 64, CU_STREAM_PER_THREAD).unwrap();
        assert_eq!((query(blocking), query(CU_STREAM_PER_THREAD)), (Err(error::NOT_READY), Err(error::NOT_READY)), "and they for it");
        assert_eq!(query(free), Ok(()));
        fake::open_gate(two);
        context::cuCtxSynchronize().unwrap();
        assert_eq!((query(blocking), query(CU_STREAM_PER_THREAD)), (Ok(()), Ok(())));
    }
    end(context);
}

/// There are more of them than streams.
#[test]
fn threads_that_end_give_their_default_streams_back() {
    let context = new_context();
    let (target, handle) = (allocate(64), context.expose_provenance());
    for turn in 0..=STREAMS {
        let work = move || {
            // SAFETY: the arguments are this test's own variables and handles.
            unsafe {
                context::cuCtxSetCurrent(with_exposed_provenance_mut(handle))?;
                set::cuMemsetD8Async(target, 1, 64, CU_STREAM_PER_THREAD)?;
                stream::cuStreamSynchronize(CU_STREAM_PER_THREAD)
            }
        };
        assert_eq!(std::thread::spawn(work).join().expect("it does not panic"), Ok(()), "thread {turn}");
    }
    end(context);
}

#[test]
fn joins_cost_records_only_when_something_is_unfinished() {
    let _alone = fake::alone();
    let context = new_context();
    let blocking = new_stream(0);
    let target = allocate(64);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        for _ in 0..10 {
            set::cuMemsetD8Async(target, 1, 64, blocking).unwrap();
            stream::cuStreamSynchronize(blocking).unwrap();
            set::cuMemsetD8Async(target, 1, 64, null_mut()).unwrap();
            stream::cuStreamSynchronize(null_mut()).unwrap();
        }
    }
    let own: Vec<u32> = fake::seen().iter().filter(|r| matches!(r.op, Op::Set { target: t, .. } if t == target)).map(|r| r.header.stream).collect();
    let waits = fake::seen().into_iter().filter(|r| own.contains(&r.header.stream) && matches!(r.op, Op::Wait { .. })).count();
    assert_eq!((own.len(), waits), (20, 0));
    end(context);
}

#[test]
fn times_come_from_cells_and_mistakes_are_told_apart() {
    let context = new_context();
    let (_, _, gate) = functions();
    let stream = new_stream(1);
    let (mut start, mut stop, mut plain): (CUevent, CUevent, CUevent) = (null_mut(), null_mut(), null_mut());
    let mut ms = -1.0_f32;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        event::cuEventCreate(&raw mut start, 0).unwrap();
        event::cuEventCreate(&raw mut stop, 1).unwrap();
        event::cuEventCreate(&raw mut plain, 2).unwrap();
        assert_eq!(event::cuEventElapsedTime_v2(&raw mut ms, start, stop), Err(error::INVALID_HANDLE), "not recorded");
        event::cuEventRecord(start, stream).unwrap();
        let number = new_gate();
        launch_gate(gate, number, stream);
        event::cuEventRecord(stop, stream).unwrap();
        event::cuEventRecord(plain, stream).unwrap();
        assert_eq!(event::cuEventElapsedTime_v2(&raw mut ms, start, stop), Err(error::NOT_READY));
        assert_eq!(event::cuEventElapsedTime_v2(&raw mut ms, start, plain), Err(error::INVALID_HANDLE), "no timing");
        fake::open_gate(number);
        event::cuEventSynchronize(stop).unwrap();
        event::cuEventElapsedTime_v2(&raw mut ms, start, stop).unwrap();
        assert!(ms >= 0.0);
        let mut handle = CUipcEventHandle { reserved: [7; 64] };
        assert_eq!(ipc::cuIpcGetEventHandle(&raw mut handle, stop), Err(error::INVALID_HANDLE));
        assert_eq!(handle.reserved, [0; 64], "no handle is left that looks like one");
        event::cuEventDestroy_v2(start).unwrap();
        assert_eq!(event::cuEventQuery(start), Err(error::INVALID_HANDLE));
        assert_eq!(event::cuEventCreate(&raw mut start, 4), Err(error::INVALID_VALUE), "interprocess needs no timing");
        event::cuEventCreate(&raw mut start, 6).unwrap();
        event::cuEventQuery(start).unwrap();
        event::cuEventDestroy_v2(start).unwrap();
    }
    end(context);
}

#[test]
fn host_functions_run_in_stream_order_and_may_not_call_cuda() {
    use std::sync::Mutex;
    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    unsafe extern "C" fn note(data: *mut c_void) {
        let mut count = 0;
        // SAFETY: the arguments are this test's own variables and handles.
        assert_eq!(unsafe { memory::cuMemAlloc_v2(&raw mut count, 4) }, Err(error::NOT_PERMITTED));
        ORDER.lock().unwrap().push(data.addr());
    }
    unsafe extern "C" fn tell(_stream: CUstream, status: CUresult, data: *mut c_void) {
        assert_eq!(status, CUresult::CUDA_SUCCESS);
        ORDER.lock().unwrap().push(data.addr());
    }
    let context = new_context();
    let (_, _, gate) = functions();
    let stream = new_stream(1);
    let number = new_gate();
    launch_gate(gate, number, stream);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        for n in 1..=5_usize {
            launch::cuLaunchHostFunc(stream, Some(note), core::ptr::without_provenance_mut(n)).unwrap();
        }
        stream::cuStreamAddCallback(stream, Some(tell), core::ptr::without_provenance_mut(6), 0).unwrap();
        assert!(ORDER.lock().unwrap().is_empty());
        assert_eq!(query(stream), Err(error::NOT_READY));
        fake::open_gate(number);
        stream::cuStreamSynchronize(stream).unwrap();
    }
    assert_eq!(*ORDER.lock().unwrap(), [1, 2, 3, 4, 5, 6]);
    end(context);
}

#[test]
fn copies_of_every_kind_move_the_right_bytes() {
    let context = new_context();
    let stream = new_stream(1);
    let bytes = (3 << 20) + 13;
    let source: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
    let mut back = vec![0_u8; bytes];
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (one, two) = (allocate(bytes), allocate(bytes));
        copy::cuMemcpyHtoDAsync_v2(one, source.as_ptr().cast(), bytes, stream).unwrap();
        copy::cuMemcpyDtoDAsync_v2(two, one, bytes, stream).unwrap();
        copy::cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), two, bytes, stream).unwrap();
        assert!(back == source);
        // Kinds inferred from the addresses, pinned memory in the middle.
        let mut pinned = null_mut();
        host::cuMemAllocHost_v2(&raw mut pinned, bytes).unwrap();
        copy::cuMemcpyAsync(pinned.expose_provenance() as u64, two, bytes, stream).unwrap();
        back.fill(0);
        copy::cuMemcpyAsync(back.as_mut_ptr().expose_provenance() as u64, pinned.expose_provenance() as u64, bytes, stream).unwrap();
        assert!(back == source);
        host::cuMemFreeHost(pinned).unwrap();
        // Bad addresses are found out.
        assert_eq!(copy::cuMemcpyHtoD_v2(one + bytes as u64, source.as_ptr().cast(), 1), Err(error::INVALID_VALUE));
        assert_eq!(copy::cuMemcpyHtoD_v2(one, source.as_ptr().cast(), bytes + 1), Err(error::INVALID_VALUE));
        assert_eq!(copy::cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), 0x1234, 4), Err(error::INVALID_VALUE));
        // A window of a matrix, and out again into another place.
        let (wide, high) = (300_usize, 50_usize);
        let mut matrix = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: source.as_ptr().cast(),
            srcPitch: 1000,
            srcXInBytes: 7,
            srcY: 3,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: one,
            dstPitch: 512,
            WidthInBytes: wide,
            Height: high,
            ..CUDA_MEMCPY2D::default()
        };
        copy::cuMemcpy2D_v2(&raw const matrix).unwrap();
        back.fill(0);
        (matrix.srcMemoryType, matrix.srcDevice, matrix.srcPitch, matrix.srcXInBytes, matrix.srcY) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, one, 512, 0, 0);
        (matrix.dstMemoryType, matrix.dstHost, matrix.dstPitch) = (CUmemorytype::CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast(), 400);
        copy::cuMemcpy2D_v2(&raw const matrix).unwrap();
        for y in 0..high {
            assert_eq!(back[y * 400..y * 400 + wide], source[(y + 3) * 1000 + 7..(y + 3) * 1000 + 7 + wide], "row {y}");
            assert!(back[y * 400 + wide..(y + 1) * 400].iter().all(|byte| *byte == 0), "nothing beside row {y}");
        }
        matrix.dstPitch = 299;
        assert_eq!(copy::cuMemcpy2D_v2(&raw const matrix), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn registered_memory_becomes_shared_keeps_its_contents_and_comes_back() {
    let context = new_context();
    let mut buffer: Vec<u8> = (0..50_000).map(|n| (n % 199) as u8).collect();
    let (start, bytes) = (buffer.as_mut_ptr().wrapping_add(100), 40_000_usize);
    let device = allocate(bytes);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        host::cuMemHostRegister_v2(start.cast(), bytes, 0).unwrap();
        assert_eq!(host::cuMemHostRegister_v2(start.wrapping_add(10).cast(), 10, 0), Err(error::ALREADY_REGISTERED));
        assert!(buffer.iter().enumerate().all(|(n, byte)| *byte == (n % 199) as u8), "contents stay");
        set::cuMemsetD8_v2(device, 0xEE, bytes).unwrap();
        copy::cuMemcpyDtoHAsync_v2(start.cast(), device, bytes, null_mut()).unwrap();
        stream::cuStreamSynchronize(null_mut()).unwrap();
        assert!(buffer[100..40_100].iter().all(|byte| *byte == 0xEE), "written through the window");
        assert!(buffer[..100].iter().chain(&buffer[40_100..]).zip((0..100).chain(40_100..)).all(|(byte, n): (&u8, usize)| *byte == (n % 199) as u8));
        host::cuMemHostUnregister(start.cast()).unwrap();
        assert_eq!(host::cuMemHostUnregister(start.cast()), Err(error::NOT_REGISTERED));
        assert!(buffer[100..40_100].iter().all(|byte| *byte == 0xEE), "contents come back");
        buffer[200] = 1;
    }
    end(context);
}

#[test]
fn modules_say_what_is_wrong_and_what_is_inside() {
    let _alone = fake::alone();
    let context = new_context();
    let mut log = [0_u8; 64];
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        use cumux_abi::CUjit_option as J;
        let mut module = null_mut();
        let mut options = [J::CU_JIT_ERROR_LOG_BUFFER, J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(64)];
        let broken = c".version 8.0 broken";
        let verdict = module::cuModuleLoadDataEx(&raw mut module, broken.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr());
        assert_eq!(verdict, Err(CUresult::CUDA_ERROR_INVALID_PTX));
        assert!(log.starts_with(b"line 3: unknown instruction\0"));
        assert_eq!(values[1].addr(), 27);
        // A limit of registers reaches the compiler as a directive.
        let text = c".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry add(.param .u64 a) { ret; }\n";
        let (mut limit, mut number) = ([J::CU_JIT_MAX_REGISTERS], [core::ptr::without_provenance_mut(32)]);
        let mut limited = null_mut();
        fake::images();
        module::cuModuleLoadDataEx(&raw mut limited, text.as_ptr().cast(), 1, limit.as_mut_ptr(), number.as_mut_ptr()).unwrap();
        let (mut library, no_options, no_values) = (null_mut(), null_mut(), null_mut());
        library::cuLibraryLoadData(&raw mut library, text.as_ptr().cast(), limit.as_mut_ptr(), number.as_mut_ptr(), 1, no_options, no_values, 0).unwrap();
        for image in fake::images() {
            assert!(image.contains("(.param .u64 a) \n.maxnreg 32\n{ ret; }"), "{image}");
        }
        let (module, add, _) = functions();
        let (mut address, mut bytes, mut other) = (0, 0, null_mut());
        module::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"counter".as_ptr()).unwrap();
        assert_eq!(bytes, 64);
        set::cuMemsetD32_v2(address, 5, 16).unwrap();
        assert_eq!(module::cuModuleGetFunction(&raw mut other, module, c"none".as_ptr()), Err(error::NOT_FOUND));
        module::cuModuleGetFunction(&raw mut other, module, c"add".as_ptr()).unwrap();
        assert_eq!(other, add, "one handle a function");
        module::cuModuleUnload(module).unwrap();
        let (mut each, none) = ([null_mut(); 4], null_mut());
        assert_eq!(launch::cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, none, each.as_mut_ptr(), null_mut()), Err(error::INVALID_HANDLE));
        assert_eq!(set::cuMemsetD32_v2(address, 5, 16), Err(error::INVALID_VALUE));
        assert_eq!(module::cuModuleLoadData((&raw mut other).cast(), null()), Err(error::INVALID_VALUE));
    }
    end(context);
}

#[test]
fn a_link_writes_both_of_its_logs_and_keeps_to_its_registers() {
    let context = new_context();
    let (mut info, mut wrong) = ([b'x'; 64], [b'x'; 64]);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        use cumux_abi::{CUjit_option as J, CUjitInputType as Input};
        let mut options = [
            J::CU_JIT_INFO_LOG_BUFFER,
            J::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            J::CU_JIT_ERROR_LOG_BUFFER,
            J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            J::CU_JIT_MAX_REGISTERS,
        ];
        let size = |bytes| core::ptr::without_provenance_mut(bytes);
        let mut values: [*mut c_void; 5] = [info.as_mut_ptr().cast(), size(64), wrong.as_mut_ptr().cast(), size(64), size(40)];
        let mut state = null_mut();
        link::cuLinkCreate_v2(5, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state).unwrap();
        assert_eq!((info[0], wrong[0], values[1].addr(), values[3].addr()), (0, 0, 0, 0), "nothing to tell yet");
        let add = |text: &[u8]| {
            link::cuLinkAddData_v2(state, Input::CU_JIT_INPUT_PTX, text.as_ptr().cast_mut().cast(), text.len(), c"one".as_ptr(), 0, null_mut(), null_mut())
        };
        assert!(add(b"nonsense").is_err());
        assert!(values[3].addr() > 0 && wrong.starts_with(b"error"), "{}", String::from_utf8_lossy(&wrong));
        add(b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry add(.param .u64 a) { ret; }\n").unwrap();
        let (mut image, mut bytes) = (null_mut(), 0);
        link::cuLinkComplete(state, &raw mut image, &raw mut bytes).unwrap();
        let text = String::from_utf8_lossy(std::slice::from_raw_parts(image.cast::<u8>(), bytes)).into_owned();
        assert!(text.contains(".maxnreg 40\n{"), "{text}");
        assert_eq!((info[0], values[1].addr()), (0, 0));
        link::cuLinkDestroy(state).unwrap();
    }
    end(context);
}

#[test]
fn a_destroyed_context_takes_its_objects_with_it() {
    let first = new_context();
    let stream = new_stream(0);
    let memory = allocate(100);
    let second = new_context();
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        let (mut top, mut id) = (null_mut(), 0);
        context::cuCtxGetCurrent(&raw mut top).unwrap();
        assert_eq!(top, second);
        assert_eq!(set::cuMemsetD8Async(memory, 0, 100, stream), Ok(()), "a stream of another context works");
        context::cuCtxDestroy_v2(first).unwrap();
        assert_eq!(query(stream), Err(error::INVALID_HANDLE));
        assert_eq!(memory::cuMemFree_v2(memory), Err(error::INVALID_VALUE));
        assert_eq!(context::cuCtxGetId(first, &raw mut id), Err(error::INVALID_CONTEXT));
        context::cuCtxDestroy_v2(second).unwrap();
        context::cuCtxGetCurrent(&raw mut top).unwrap();
        assert_eq!(top, first, "the stack still has it");
        assert_eq!(stream::cuStreamCreate((&raw mut top).cast(), 0), Err(error::CONTEXT_IS_DESTROYED));
        context::cuCtxPopCurrent_v2(&raw mut top).unwrap();
        assert_eq!(context::cuCtxPopCurrent_v2(&raw mut top), Err(error::INVALID_CONTEXT));
        assert_eq!(stream::cuStreamCreate((&raw mut top).cast(), 0), Err(error::INVALID_CONTEXT));
    }
}

#[test]
fn addresses_are_described_as_what_they_are() {
    let context = new_context();
    let device = allocate(1000);
    let local = 5_u64;
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        use CUpointer_attribute as A;
        let mut pinned = null_mut();
        host::cuMemHostAlloc(&raw mut pinned, 100, 2).unwrap();
        let kind = |address: u64| {
            let mut kind = 0_u32;
            pointer::cuPointerGetAttribute((&raw mut kind).cast(), A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address).map(|()| kind)
        };
        assert_eq!((kind(device + 999), kind(device + 1000 + 4096)), (Ok(2), Err(error::INVALID_VALUE)));
        assert_eq!(kind(pinned.expose_provenance() as u64), Ok(1));
        assert_eq!(kind((&raw const local).expose_provenance() as u64), Err(error::INVALID_VALUE));
        let (mut base, mut bytes, mut owner) = (0, 0, null_mut::<c_void>());
        pointer::cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, device + 5).unwrap();
        assert_eq!((base, bytes), (device, 1000));
        pointer::cuPointerGetAttribute((&raw mut owner).cast(), A::CU_POINTER_ATTRIBUTE_CONTEXT, device).unwrap();
        assert_eq!(owner.cast(), context);
        let mut name = [0; 5];
        device::cuDeviceGetName(name.as_mut_ptr(), 5, 0).unwrap();
        assert_eq!(name, b"Test\0".map(|byte| byte as i8));
    }
    end(context);
}

#[test]
fn many_threads_share_the_ring() {
    let context = new_context();
    let (_, add, _) = functions();
    let (add, context_word) = (add.expose_provenance(), context.expose_provenance());
    std::thread::scope(|scope| {
        for seed in 0..4_u32 {
            scope.spawn(move || {
                // SAFETY: the arguments are this test's own variables and handles.
                unsafe {
                    context::cuCtxSetCurrent(core::ptr::with_exposed_provenance_mut(context_word)).unwrap();
                    let stream = new_stream(seed % 2);
                    let n = 1000_usize;
                    let (a, b) = (allocate(n * 4), allocate(n * 4));
                    set::cuMemsetD32Async(a, (seed as f32).to_bits(), n, stream).unwrap();
                    set::cuMemsetD32Async(b, 0, n, stream).unwrap();
                    for _ in 0..200 {
                        let (mut x, mut y, mut z, mut count) = (a, b, b, n as u32);
                        let mut each: [*mut c_void; 4] = [(&raw mut x).cast(), (&raw mut y).cast(), (&raw mut z).cast(), (&raw mut count).cast()];
                        let add = core::ptr::with_exposed_provenance_mut(add);
                        launch::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, each.as_mut_ptr(), null_mut()).unwrap();
                    }
                    let mut out = vec![0.0_f32; n];
                    copy::cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), b, n * 4, stream).unwrap();
                    stream::cuStreamSynchronize(stream).unwrap();
                    assert!(out.iter().all(|value| *value == 200.0 * seed as f32), "thread {seed}");
                }
            });
        }
    });
    end(context);
}
