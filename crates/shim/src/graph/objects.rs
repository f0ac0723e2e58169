//! User objects: the program's own things with a destructor, kept alive by graphs and executables
//! that use them. What an executable uses no more ends when the launches that may use it are over:
//! the next call that launches, changes or destroys a graph looks for it.

use super::find_graph;
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error, put};
use crate::handle::{Kind, Table};
use crate::process;
use crate::sync::lock;
use core::ffi::{c_uint, c_void};
use cumux_abi::{CUgraph, CUhostFn, CUuserObject, CUuserObject_flags, CUuserObjectRetain_flags};
use std::sync::{Arc, Mutex};

/// All user objects.
static USER_OBJECTS: Table<UserObject> = Table::new(Kind::UserObject);

/// A user object.
#[derive(Debug)]
pub struct UserObject {
    handle: u64,
    data: usize,
    destroy: unsafe extern "C" fn(*mut c_void),
    references: Mutex<u64>,
}

impl UserObject {
    /// Gives references back; the destructor runs with the last one.
    fn release(&self, count: u64) {
        let last = {
            let mut references = lock(&self.references);
            let before = *references;
            *references = before.saturating_sub(count);
            before > 0 && *references == 0
        };
        if last {
            if process::find_connection().is_ok() {
                USER_OBJECTS.remove(self.handle);
            }
            // SAFETY: the program asked for exactly this call.
            unsafe { (self.destroy)(core::ptr::with_exposed_provenance_mut(self.data)) };
        }
    }
}

/// References that a graph owns; executables and clones share them.
#[derive(Debug)]
pub struct Held {
    object: Arc<UserObject>,
    count: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.object.release(self.count);
    }
}

/// Objects that executables have let go of while launches were under way, and where those end.
static LEAVING: Mutex<Vec<(End, Vec<Arc<Held>>)>> = Mutex::new(Vec::new());

/// The end of the last launch that may use something.
pub(super) type End = (TimelineId, u64);

/// Lets go of objects that launches up to this end may use. Nothing may be locked: the program's
/// destructors may call back.
pub(super) fn let_go(session: &Connection, end: Option<End>, held: Vec<Arc<Held>>) {
    match end.filter(|(timeline, seq)| !held.is_empty() && !session.is_done(*timeline, *seq)) {
        Some(end) => lock(&LEAVING).push((end, held)),
        None => drop(held),
    }
    end_what_is_over(session);
}

/// Ends objects whose last launch is over. Nothing may be locked.
pub(super) fn end_what_is_over(session: &Connection) {
    let over: Vec<_> = lock(&LEAVING).extract_if(.., |((timeline, seq), _)| session.is_done(*timeline, *seq)).collect();
    drop(over);
}

fn named(object: CUuserObject) -> Try<Arc<UserObject>> {
    process::find_connection()?;
    USER_OBJECTS.get(object.addr() as u64).ok_or(error::INVALID_VALUE)
}

pub unsafe fn cuUserObjectCreate(out: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, references: c_uint, flags: c_uint) -> Try {
    process::enter()?;
    let destroy = destroy.ok_or(error::INVALID_VALUE)?;
    // The one flag says that nobody waits for the destructor, and it must be given.
    if out.is_null() || flags != CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0 || references == 0 {
        return Err(error::INVALID_VALUE);
    }
    let data = data.expose_provenance();
    let make = |handle| Arc::new(UserObject { handle, data, destroy, references: Mutex::new(u64::from(references)) });
    let (handle, _) = USER_OBJECTS.insert(make).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, core::ptr::without_provenance_mut(handle as usize));
    Ok(())
}

pub unsafe fn cuUserObjectRetain(object: CUuserObject, count: c_uint) -> Try {
    *lock(&named(object)?.references) += u64::from(count);
    Ok(())
}

pub unsafe fn cuUserObjectRelease(object: CUuserObject, count: c_uint) -> Try {
    named(object)?.release(u64::from(count));
    Ok(())
}

pub unsafe fn cuGraphRetainUserObject(handle: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let object = named(object)?;
    const MOVE: c_uint = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE.0;
    if count == 0 || flags & !MOVE != 0 {
        return Err(error::INVALID_VALUE);
    }
    if flags & MOVE == 0 {
        *lock(&object.references) += u64::from(count);
    }
    lock(&graph.held).push(Arc::new(Held { object, count: u64::from(count) }));
    Ok(())
}

pub unsafe fn cuGraphReleaseUserObject(handle: CUgraph, object: CUuserObject, _count: c_uint) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let object = named(object)?;
    let mut held = lock(&graph.held);
    let position = held.iter().position(|held| Arc::ptr_eq(&held.object, &object)).ok_or(error::INVALID_VALUE)?;
    let gone = held.remove(position);
    // The destructor may call back.
    drop(held);
    drop(gone);
    Ok(())
}
