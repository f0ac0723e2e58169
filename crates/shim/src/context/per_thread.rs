//! The default streams of threads: one for each context that the thread uses, given back when the
//! thread ends. They are there for what runs at the program's end: with a new stream for each call
//! there would be no order.

use super::Context;
use crate::changes;
use crate::connection::Connection;
use crate::connection::pipe::Role;
use crate::ffi::Try;
use crate::process;
use crate::stream::Stream;
use crate::thread::{self, AtThreadEnd};
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use std::cell::RefCell;
use std::sync::Arc;

/// Default streams of a thread, one a context.
type Streams = RefCell<Vec<(Arc<Context>, Arc<Stream>)>>;

thread_local! {
    static OWN: ManuallyDrop<Streams> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// A thread gives its streams back.
static END: AtThreadEnd = AtThreadEnd::new(give_back);

extern "C" fn give_back(_: *mut c_void) {
    thread::finish(|| {
        let own = OWN.with(|own| own.take());
        if let Ok(session) = process::find_connection() {
            for (context, stream) in own {
                context.disown(&stream);
                session.free_timeline(stream.timeline);
            }
            changes::note();
        }
    });
}

/// This thread's default stream in a context.
pub(super) fn find_stream(session: &'static Connection, context: &Arc<Context>) -> Try<Arc<Stream>> {
    let known = |own: &Streams| own.borrow().iter().find(|(owner, _)| Arc::ptr_eq(owner, context)).map(|(_, stream)| Arc::clone(stream));
    if let Some(stream) = OWN.with(|own| known(own)) {
        return Ok(stream);
    }
    let stream = Stream::default_of(session, context.home(), Role::Blocking)?;
    context.hold_new(session, stream.timeline)?;
    context.adopt(Arc::clone(&stream));
    END.ask();
    OWN.with(|own| own.borrow_mut().push((Arc::clone(context), Arc::clone(&stream))));
    Ok(stream)
}
