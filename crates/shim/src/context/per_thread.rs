//! The default streams of threads: one for each context that the thread uses, given back when the
//! thread ends.

use super::Context;
use crate::changes;
use crate::connection::Connection;
use crate::connection::pipe::Role;
use crate::ffi::Try;
use crate::process;
use crate::stream::Stream;
use std::cell::RefCell;
use std::sync::Arc;

/// This thread's default streams, one a context; given back when the thread ends.
struct Own(RefCell<Vec<(Arc<Context>, Arc<Stream>)>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Ok(session) = process::find_connection() {
            for (context, stream) in self.0.take() {
                context.disown(&stream);
                session.free_timeline(stream.timeline);
            }
            changes::note();
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
}

/// This thread's default stream in a context.
pub(super) fn find_stream(session: &'static Connection, context: &Arc<Context>) -> Try<Arc<Stream>> {
    let known = |own: &Own| own.0.borrow().iter().find(|(owner, _)| Arc::ptr_eq(owner, context)).map(|(_, stream)| Arc::clone(stream));
    if let Ok(Some(stream)) = OWN.try_with(known) {
        return Ok(stream);
    }
    let stream = Stream::default_of(session, context.home(), Role::Blocking)?;
    context.hold_new(session, stream.timeline)?;
    context.adopt(Arc::clone(&stream));
    let _ = OWN.try_with(|own| own.0.borrow_mut().push((Arc::clone(context), Arc::clone(&stream))));
    Ok(stream)
}
