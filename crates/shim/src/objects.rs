//! What lower floors must tell the files of objects: the hooks that are handed down when the
//! process has been greeted.

use crate::connection::Connection;
use crate::context::{Context, EndHook};
use crate::stream::STREAMS;
use crate::{array, context, event, graph, green, library, memory, module, peer, pool, private, texture};

/// What ends with a context, in this order.
static ENDING: &[EndHook] = &[
    green::end_context,
    forget_local_storage,
    peer::end_context,
    graph::end_context,
    end_streams,
    event::end_context,
    module::end_context,
    library::end_context,
    texture::end_context,
    array::end_context,
    end_memory,
];

/// Hands all hooks down. Called once, before the program's first call goes on.
pub(crate) fn hand_down_hooks(session: &Connection) {
    session.call_when_drained(pool::settle);
    context::prepare(session, ENDING);
}

fn forget_local_storage(_: &'static Connection, context: &Context) {
    private::context_gone(context.handle);
}

fn end_streams(session: &'static Connection, context: &Context) {
    for stream in STREAMS.remove_all(|stream| stream.context == context.id) {
        session.free_timeline(stream.timeline);
    }
}

fn end_memory(session: &'static Connection, context: &Context) {
    memory::end_context(session, context.id);
}
