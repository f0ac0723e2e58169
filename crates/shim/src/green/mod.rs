//! Green contexts of the program's own, inside the share that the service grants it.
//!
//! - A resource ([`resource`]) is a set of positions in the program's share. It lies in the
//!   program's own structure: nothing of it is kept here.
//! - A description is a resource behind a handle. CUDA has no call that frees one.
//! - A green context is a context on such a part ([`Context::new_green`]). Its memory, modules and
//!   events are its primary context's, which it retains.
//! - The service takes a share's positions as they are: green contexts with the same ones run on
//!   the same multiprocessors, and others do not overlap. When an administrator makes the share
//!   smaller, parts shrink, and may overlap.

mod calls;
mod division;
mod resource;

pub use calls::*;

use crate::connection::Connection;
use crate::context::Context;
use crate::handle::{Kind, Table};
use crate::{private, stream};
use resource::Resource;
use std::sync::Arc;

/// All green contexts, by the handles that the program has of them.
static GREENS: Table<Context> = Table::new(Kind::GreenContext);

/// All descriptions of resources.
static DESCRIPTIONS: Table<Resource> = Table::new(Kind::ResourceDescription);

/// A primary context ends: its green contexts go.
pub(crate) fn end_context(session: &'static Connection, context: &Context) {
    for green in context.greens() {
        end(session, &green);
    }
}

/// Ends a green context when its work is over. False if another thread ends it.
fn end(session: &'static Connection, green: &Arc<Context>) -> bool {
    let handle = green.green.as_ref().and_then(|green| green.handle.get());
    if handle.is_some_and(|handle| GREENS.remove(*handle).is_none()) {
        return false;
    }
    // A faulted client has nothing to wait for.
    let _ = session.drain(green.group);
    private::context_gone(green.handle);
    crate::graph::end_context(session, green);
    stream::orphan(session, green.handle);
    green.end_green(session);
    true
}
