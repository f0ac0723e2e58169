//! Host callbacks: the program's functions that run in stream order. One thread, made at first use,
//! runs them all.
//!
//! What may take long and calls nothing of the program's, a condition in a graph for example, has a
//! thread of its own when its turn comes.
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

/// What is done apart from callbacks. The stream waits for its end.
pub(crate) type Apart = Box<dyn FnOnce() + Send>;

enum Task {
    Callback(Work),
    Apart(Apart),
}

struct Pending {
    timeline: TimelineId,
    seq: u64,
    task: Task,
}

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
    push_task(session, timeline, Task::Callback(work))
}

/// Pushes something that is done apart from callbacks.
///
/// # Errors
/// As [`push`].
pub(crate) fn push_apart(session: &'static Connection, timeline: TimelineId, task: Apart) -> Try {
    push_task(session, timeline, Task::Apart(task))
}

fn push_task(session: &'static Connection, timeline: TimelineId, task: Task) -> Try {
    let mut state = lock(&STATE);
    if !state.running {
        std::thread::Builder::new().name("cumux-callbacks".to_owned()).spawn(move || serve(session)).map_err(|_| error::OPERATING_SYSTEM)?;
        state.running = true;
    }
    let seq = session.push(timeline, &Op::HostCall)?;
    state.pending.push(Pending { timeline, seq, task });
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
        match due {
            Some(Pending { timeline, seq, task: Task::Callback(work) }) => {
                work.run(session.health().err().unwrap_or(CUresult::CUDA_SUCCESS));
                session.set_host_done(timeline, seq);
            }
            Some(Pending { timeline, seq, task: Task::Apart(task) }) => run_apart(session, timeline, seq, task),
            None => {}
        }
    }
}

/// Runs it on a thread of its own; here, where the system has none: then callbacks wait for it.
fn run_apart(session: &'static Connection, timeline: TimelineId, seq: u64, task: Apart) {
    let task = std::sync::Arc::new(Mutex::new(Some(task)));
    let own = std::sync::Arc::clone(&task);
    let run = move || {
        if let Some(task) = lock(&own).take() {
            task();
        }
        session.set_host_done(timeline, seq);
    };
    if let Err(_no_thread) = std::thread::Builder::new().name("cumux-graph".to_owned()).spawn(run) {
        if let Some(task) = lock(&task).take() {
            task();
        }
        session.set_host_done(timeline, seq);
    }
}
