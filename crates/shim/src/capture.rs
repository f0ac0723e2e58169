//! Stream capture: where streams and events ask whether their work is recorded instead of run.

use crate::callback::Work;
use crate::copy::Transfer;
use crate::event::Event;
use crate::ffi::Try;
use crate::stream::Stream;
use cumux_wire::record::{Launch, Op};

/// What an event recorded during capture stands for.
#[derive(Debug, Clone)]
pub struct Captured {}

/// # Errors
/// STREAM_CAPTURE_UNSUPPORTED while the stream captures.
pub(crate) fn refuse_while_capturing(_stream: &Stream) -> Try {
    Ok(())
}

/// Takes an event record into the capture of its stream; false when the stream does not capture.
pub(crate) fn record(_event: &Event, _stream: &Stream) -> Try<bool> {
    Ok(false)
}

/// Takes a wait into the capture that the event or the stream belongs to; false when neither captures.
pub(crate) fn hold(_event: &Event, _stream: &Stream) -> Try<bool> {
    Ok(false)
}

/// Takes a launch into the capture of its stream; false when the stream does not capture.
pub(crate) fn launch(_stream: &Stream, _fill: impl FnOnce(&mut Launch)) -> Try<bool> {
    Ok(false)
}

/// Takes a copy into the capture of its stream; false when the stream does not capture.
pub(crate) fn copy(_stream: &Stream, _transfer: &Transfer) -> Try<bool> {
    Ok(false)
}

/// Takes any other operation into the capture of its stream; false when the stream does not capture.
pub(crate) fn op(_stream: &Stream, _op: &Op) -> Try<bool> {
    Ok(false)
}

/// Takes a host callback into the capture of its stream; false when the stream does not capture.
pub(crate) fn host(_stream: &Stream, _work: Work) -> Try<bool> {
    Ok(false)
}

/// Notes pool memory allocated in a capturing stream.
pub(crate) fn allocated(_stream: &Stream, _address: u64, _bytes: usize) -> Try {
    Ok(())
}

/// Takes a free into the capture of its stream; false when the stream does not capture.
pub(crate) fn freed(_stream: &Stream, _address: u64) -> Try<bool> {
    Ok(false)
}
