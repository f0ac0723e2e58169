//! Where a capturing stream is in its capture. What a capture does is above, in `capture.rs`.

use super::Stream;
use crate::graph::Graph;
use crate::sync::lock;
use cumux_abi::CUstreamCaptureMode as Mode;
use rustix::thread::Pid;
use std::sync::{Arc, Mutex, Weak};

/// One capture.
#[derive(Debug)]
pub struct Capture {
    /// The number by which the program knows the capture.
    pub(crate) id: u64,
    /// The graph that is being made.
    pub(crate) graph: Arc<Graph>,
    /// The stream it began in: id, and what it is to its context's NULL stream.
    pub(crate) origin: u64,
    /// The stream it began in is joined with its context's NULL stream.
    pub(crate) joined: bool,
    /// Handle of the context of that stream.
    pub(crate) context: u64,
    /// It goes into a graph that the program has.
    pub(crate) into_given: bool,
    /// Which other calls spoil it.
    pub(crate) mode: Mode,
    /// The thread that began it.
    pub(crate) thread: Pid,
    /// It has been spoiled; whoever ends it is told.
    pub(crate) invalid: Mutex<bool>,
    /// Streams that take part.
    pub(crate) streams: Mutex<Vec<Weak<Stream>>>,
}

/// A point in a capture.
#[derive(Debug, Clone)]
pub struct CapturePoint {
    /// The capture.
    pub(crate) capture: Arc<Capture>,
    /// Nodes that what comes next comes after.
    pub(crate) after: Vec<u64>,
}

impl Capture {
    /// Whether it has been spoiled.
    pub(crate) fn is_invalid(&self) -> bool {
        *lock(&self.invalid)
    }

    /// Spoils it.
    pub(crate) fn invalidate(&self) {
        *lock(&self.invalid) = true;
    }
}
