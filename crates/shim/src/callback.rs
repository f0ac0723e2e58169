//! Host callbacks: the program's functions that run in stream order. One thread, made at first use,
//! runs them all.
//!
//! A callback is a `HostCall` record; its stream stops there. The thread sees that everything
//! before it is done, runs the function, and stores the record's sequence where the executor looks
//! for it.

use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error};
use crate::process;
use crate::sync::lock;
use core::ffi::c_void;
use cumux_abi::{CUresult, CUstream};
use cumux_wire::record::Op;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is to be run. The program's pointer travels as a number: only the program's function gives
/// it a meaning.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    Host { function: unsafe extern "C" fn(*mut c_void), data: usize },
    Stream { callback: unsafe extern "C" fn(CUstream, CUresult, *mut c_void), stream: usize, data: usize },
}

impl Work {
    /// A host function is not called after an error; a stream callback is told.
    fn run(self, status: CUresult) {
        match self {
            Work::Host { function, data } if status == CUresult::CUDA_SUCCESS => {
                // SAFETY: the program asked for exactly this call.
                unsafe { function(core::ptr::with_exposed_provenance_mut(data)) }
            }
            Work::Host { .. } => {}
            Work::Stream { callback, stream, data } => {
                // SAFETY: the program asked for exactly this call.
                unsafe { callback(core::ptr::without_provenance_mut(stream), status, core::ptr::with_exposed_provenance_mut(data)) }
            }
        }
    }
}

#[derive(Debug)]
struct Pending {
    timeline: TimelineId,
    seq: u64,
    work: Work,
}

#[derive(Debug)]
struct State {
    pending: Vec<Pending>,
    running: bool,
}

/// Callbacks that have been pushed and not run.
static STATE: Mutex<State> = Mutex::new(State { pending: Vec::new(), running: false });
static ADDED: Condvar = Condvar::new();

/// Pushes a callback on a timeline.
///
/// # Errors
/// OPERATING_SYSTEM when no thread can be made; as [`Connection::health`].
pub(crate) fn push(session: &'static Connection, timeline: TimelineId, work: Work) -> Try {
    let mut state = lock(&STATE);
    if !state.running {
        std::thread::Builder::new().name("cumux-callbacks".to_owned()).spawn(move || serve(session)).map_err(|_| error::OPERATING_SYSTEM)?;
        state.running = true;
    }
    let seq = session.push(timeline, &Op::HostCall)?;
    state.pending.push(Pending { timeline, seq, work });
    drop(state);
    ADDED.notify_one();
    session.wake();
    Ok(())
}

/// Takes out a callback whose turn has come; `None` when there is none now.
fn take_due(session: &Connection) -> Option<Pending> {
    let mut state = lock(&STATE);
    let broken = session.health().is_err();
    let position = state.pending.iter().position(|pending| broken || session.is_done(pending.timeline, pending.seq - 1))?;
    Some(state.pending.remove(position))
}

fn sleep_while_empty() {
    let mut state = lock(&STATE);
    while state.pending.is_empty() {
        state = ADDED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn serve(session: &'static Connection) {
    process::mark_callback_thread();
    loop {
        sleep_while_empty();
        let mut due = None;
        session.wait_until(Instant::now() + Duration::from_millis(100), || {
            if due.is_none() {
                due = take_due(session);
            }
            due.is_some()
        });
        if let Some(Pending { timeline, seq, work }) = due {
            work.run(session.health().err().unwrap_or(CUresult::CUDA_SUCCESS));
            session.set_host_done(timeline, seq);
        }
    }
}
