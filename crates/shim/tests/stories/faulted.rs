//! What a program hears of work that a fault has ended.

use super::calls::{functions, launch_gate, new_context, new_gate, new_stream};
use super::fake;
use crate::{context, event, launch, module};
use core::ptr::null_mut;
use cumux_abi::CUresult;

/// The executor says that there was a fault, and then that all work is over. A program that asks
/// between its own look at the connection and that end (here: does not look) is told of the fault,
/// and not that its kernel has ended. In a process of its own: the session is in error afterwards.
#[test]
fn work_that_a_fault_has_ended_is_not_done() {
    if std::env::var_os("NEXTEST").is_none() {
        println!("left out: the other tests of this process have the same session");
        return;
    }
    let session = fake::session();
    new_context();
    let (stream, (module, _, gate), number) = (new_stream(1), functions(), new_gate());
    let (mut fault, mut marked) = (null_mut(), null_mut());
    launch_gate(gate, number, stream);
    // SAFETY: the arguments are this test's own variables and handles.
    unsafe {
        module::cuModuleGetFunction(&raw mut fault, module, c"fault".as_ptr()).unwrap();
        event::cuEventCreate(&raw mut marked, 0).unwrap();
        launch::cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()).unwrap();
        event::cuEventRecord(marked, stream).unwrap();
    }
    let timeline = context::stream(session, stream).unwrap().timeline;
    let last = session.point(timeline).unwrap();
    let marked = event::EVENTS.get(marked.addr() as u64).unwrap();
    assert_eq!((session.is_idle(timeline), marked.query(session)), (Ok(false), Ok(false)));
    fake::open_gate(number);
    while !session.is_done(timeline, last) {
        std::thread::yield_now();
    }
    let told = Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!((session.is_idle(timeline), marked.query(session)), (told, told));
}
