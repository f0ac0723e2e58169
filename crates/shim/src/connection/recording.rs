//! What the program's host does, told to a recorder (`cumux record`). Without one, each question
//! here is one look at an `Option`.

use super::pipe::TimelineId;
use crate::sync::lock;
use cumux_link::recorder::{Recorder, now_ns};
use cumux_wire::facts::DeviceFacts;
use cumux_wire::module::FunctionInfo;
use cumux_wire::record::Op;
use cumux_wire::recording::{Fact, LONGEST_NAME, Moment, Shape, Way, moved};
use std::sync::Mutex;

/// The recording of this process, if it is recorded.
#[derive(Debug, Default)]
pub struct Recording {
    recorder: Option<Recorder>,
    /// Since when the host asks again and again whether a stream is done, and which.
    asking: Mutex<Option<(u64, Option<u32>)>>,
}

impl Recording {
    /// Connects to the recorder that the environment names, if any.
    pub(super) fn begin(session: u32, device: &DeviceFacts, multiprocessors: u32) -> Self {
        let who = || Fact::Program { session, pid: std::process::id(), name: super::hello::program(), device: Box::new(device.clone()), multiprocessors };
        Self { recorder: Recorder::of_environment(who), asking: Mutex::new(None) }
    }

    /// The time, if this is recorded.
    #[inline]
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        self.recorder.as_ref().map(|_| now_ns())
    }

    fn put(&self, from: u64, moment: impl FnOnce(u64) -> Moment) {
        if let Some(recorder) = &self.recorder {
            let now = now_ns();
            recorder.put(&moment(now.saturating_sub(from)), now);
        }
    }

    /// A launch was pushed.
    pub(super) fn launched(&self, from: u64, timeline: TimelineId, shape: Shape) {
        *lock(&self.asking) = None;
        self.put(from, |took| Moment::Launch { from, took, stream: timeline.index, shape });
    }

    /// An operation was pushed.
    pub(super) fn pushed(&self, from: u64, timeline: TimelineId, op: &Op) {
        if let Some((way, bytes)) = moved(op) {
            self.copied(from, timeline, way, bytes);
        }
    }

    fn copied(&self, from: u64, timeline: TimelineId, way: Way, bytes: u64) {
        *lock(&self.asking) = None;
        self.put(from, |took| Moment::Copy { from, took, stream: timeline.index, way, bytes });
    }

    /// The host has waited since `from` for a stream, or for all.
    #[inline]
    pub fn waited(&self, from: Option<u64>, stream: impl FnOnce() -> Option<u32>) {
        if let Some(from) = from {
            let stream = stream();
            *lock(&self.asking) = None;
            self.put(from, |took| Moment::Wait { from, took, stream });
        }
    }

    /// The host has asked whether work is done. One who asks until it is has waited.
    #[inline]
    pub fn asked(&self, stream: impl FnOnce() -> Option<u32>, is_done: bool) {
        if self.recorder.is_none() {
            return;
        }
        let stream = stream();
        let mut asking = lock(&self.asking);
        match (*asking, is_done) {
            (None, false) => *asking = Some((now_ns(), stream)),
            (Some((from, of)), true) if of == stream => {
                drop(asking);
                self.waited(Some(from), || stream);
            }
            _ => {}
        }
    }

    /// The program has loaded a module.
    pub fn loaded<'a>(&self, module: u32, functions: impl Iterator<Item = &'a FunctionInfo>) {
        let Some(recorder) = &self.recorder else { return };
        for (function, info) in (0..).zip(functions) {
            let name = info.name.chars().take(LONGEST_NAME).collect();
            recorder.tell(&Fact::Function { module, function, name, registers: info.registers, shared: info.static_shared });
        }
    }

    /// Sends what was gathered: the process ends.
    pub(super) fn flush(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.flush();
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.recorder.is_some()
    }
}
