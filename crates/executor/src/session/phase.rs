//! What a session is doing, as a state machine.
//!
//! ```text
//!             end_hold                stall
//!   OnHold ─────────────▶ Reading ─────────────▶ Stalled
//!                          │ ▲ │ ◀───────────────  go_on
//!            begin_request │ │ │
//!                          ▼ │ ├───────────────▶ Deaf
//!                Requesting ─┘ │     stop_reading
//!                     end_request
//!                              │   pause                  depart
//!                              ├───────────────▶ Paused ──────────▶ Departed
//!                              └ ◀───────────────  resume
//!
//!   any but Departed and Closed ── leave_to_next ──▶ Elsewhere
//!   any but Closed              ── depart ─────────▶ Departed
//!   any                         ── close ──────────▶ Closed
//! ```
//!
//! Records are read in `Reading` alone. A client in error is no phase of its own: its error is one
//! of its [objects](crate::objects::Objects), it outlives the executor, and its records go on being
//! read and answered.
//!
//! The state is private to this file. A step that begins in one state is a method of a value that
//! exists only while the session is in that state ([`Reading`], [`Requesting`], [`Stalled`],
//! [`Paused`], [`OnHold`]), so that no other step can be written.

/// The phase of a session.
#[derive(Debug)]
pub struct Phase(State);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of it is begun: its executors' deaths are being judged, or it waits for its trial.
    OnHold,
    /// Records are taken from the ring.
    Reading,
    /// A slow operation (a module is loaded) runs for the record at the front of the ring.
    Requesting,
    /// The journal was full when intake last looked.
    Stalled,
    /// No records are taken until its streams are empty: then it goes to another executor.
    Paused,
    /// The client broke the protocol: its ring cannot be believed any more.
    Deaf,
    /// The device is lost, and this process is about to end. What the client asks is the next
    /// executor's to do, and nothing is answered; what the device reports counts still.
    Elsewhere,
    /// It has left, and the next executor may have it: nothing of it is touched here any more, not
    /// even for what the device reports.
    Departed,
    /// The session is over, or is being ended.
    Closed,
}

impl Phase {
    /// A session whose work is not begun before [`OnHold::end_hold`].
    #[must_use]
    pub fn on_hold() -> Self {
        Self(State::OnHold)
    }

    /// A session that is served at once.
    #[must_use]
    pub fn reading() -> Self {
        Self(State::Reading)
    }

    /// Whether nothing of it is begun yet.
    #[must_use]
    pub fn is_on_hold(&self) -> bool {
        self.0 == State::OnHold
    }

    /// Whether a slow operation is under way.
    #[cfg(feature = "fuzzing")]
    #[must_use]
    pub fn is_requesting(&self) -> bool {
        self.0 == State::Requesting
    }

    /// Whether it is the next executor's, whether or not it has left already.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.0, State::Elsewhere | State::Departed)
    }

    /// Whether it has left: nothing of it is touched here any more.
    #[must_use]
    pub fn has_departed(&self) -> bool {
        self.0 == State::Departed
    }

    /// Whether the session is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == State::Closed
    }

    /// Whether records would be taken if the journal had room.
    #[must_use]
    pub fn wants_records(&self) -> bool {
        matches!(self.0, State::Reading | State::Stalled)
    }

    /// The session is over, whatever it was doing.
    pub fn close(&mut self) {
        self.0 = State::Closed;
    }

    /// From now on it is the next executor's: the device is lost. Changes nothing for a session
    /// that has left or is over.
    pub fn leave_to_next(&mut self) {
        if !matches!(self.0, State::Departed | State::Closed) {
            self.0 = State::Elsewhere;
        }
    }

    /// It has left, with a device that is lost or beside work that does not end. Changes nothing
    /// for a session that is over.
    pub fn depart(&mut self) {
        if self.0 != State::Closed {
            self.0 = State::Departed;
        }
    }

    /// The steps of a session that is held back, if it is.
    pub fn as_on_hold(&mut self) -> Option<OnHold<'_>> {
        self.is_on_hold().then_some(OnHold(&mut self.0))
    }

    /// The steps of a session whose records are read, if they are.
    pub fn as_reading(&mut self) -> Option<Reading<'_>> {
        (self.0 == State::Reading).then_some(Reading(&mut self.0))
    }

    /// The steps of a session with a slow operation under way, if it has one.
    pub fn as_requesting(&mut self) -> Option<Requesting<'_>> {
        (self.0 == State::Requesting).then_some(Requesting(&mut self.0))
    }

    /// The steps of a session whose journal was full, if it was.
    pub fn as_stalled(&mut self) -> Option<Stalled<'_>> {
        (self.0 == State::Stalled).then_some(Stalled(&mut self.0))
    }

    /// The steps of a session that is about to leave, if it is.
    pub fn as_paused(&mut self) -> Option<Paused<'_>> {
        (self.0 == State::Paused).then_some(Paused(&mut self.0))
    }

    /// Holds a session back whose records are read, for a trial that a test begins.
    #[cfg(test)]
    pub fn hold_back(&mut self) {
        assert_eq!(self.0, State::Reading);
        self.0 = State::OnHold;
    }
}

/// A session that is held back.
#[derive(Debug)]
pub struct OnHold<'a>(&'a mut State);

impl OnHold<'_> {
    /// Its work may begin.
    pub fn end_hold(self) {
        *self.0 = State::Reading;
    }
}

/// A session whose records are read.
#[derive(Debug)]
pub struct Reading<'a>(&'a mut State);

impl Reading<'_> {
    /// The record at the front of the ring is carried out on another thread.
    pub fn begin_request(self) {
        *self.0 = State::Requesting;
    }

    /// The journal is full.
    pub fn stall(self) {
        *self.0 = State::Stalled;
    }

    /// No records are taken until the session has left, or stays.
    pub fn pause(self) {
        *self.0 = State::Paused;
    }

    /// The ring is not believed any more.
    pub fn stop_reading(self) {
        *self.0 = State::Deaf;
    }
}

/// A session with a slow operation under way.
#[derive(Debug)]
pub struct Requesting<'a>(&'a mut State);

impl Requesting<'_> {
    /// The operation is over.
    pub fn end_request(self) {
        *self.0 = State::Reading;
    }
}

/// A session whose journal was full.
#[derive(Debug)]
pub struct Stalled<'a>(&'a mut State);

impl Stalled<'_> {
    /// The journal has room again, or nothing needs it any more.
    pub fn go_on(self) {
        *self.0 = State::Reading;
    }
}

/// A session that is about to leave.
#[derive(Debug)]
pub struct Paused<'a>(&'a mut State);

impl Paused<'_> {
    /// It stays.
    pub fn resume(self) {
        *self.0 = State::Reading;
    }

    /// It is its next executor's.
    pub fn depart(self) {
        *self.0 = State::Departed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_do_not_begin_here_cannot_be_had() {
        let mut phase = Phase::on_hold();
        assert!(!phase.wants_records() && phase.as_reading().is_none() && phase.as_requesting().is_none() && phase.as_stalled().is_none());
        phase.as_on_hold().unwrap().end_hold();
        phase.as_reading().unwrap().stall();
        assert!(phase.wants_records() && phase.as_reading().is_none() && phase.as_on_hold().is_none());
        phase.as_stalled().unwrap().go_on();
        phase.as_reading().unwrap().begin_request();
        assert!(!phase.wants_records() && phase.as_reading().is_none());
        phase.as_requesting().unwrap().end_request();
        phase.as_reading().unwrap().pause();
        assert!(!phase.wants_records() && phase.as_reading().is_none() && phase.as_stalled().is_none());
        phase.as_paused().unwrap().resume();
        assert!(phase.as_paused().is_none());
        phase.as_reading().unwrap().stop_reading();
        assert!(!phase.wants_records() && phase.as_reading().is_none());
    }

    #[test]
    fn the_end_is_reached_from_everywhere_and_never_left() {
        for state in [State::OnHold, State::Reading, State::Requesting, State::Stalled, State::Paused, State::Deaf, State::Elsewhere, State::Departed] {
            let mut phase = Phase(state);
            phase.leave_to_next();
            assert!(phase.is_elsewhere() && phase.as_requesting().is_none() && phase.as_paused().is_none(), "{state:?}");
            let mut phase = Phase(state);
            phase.depart();
            phase.leave_to_next();
            assert!(phase.is_elsewhere() && phase.has_departed(), "{state:?}: who has left does not come back");
            let mut phase = Phase(state);
            phase.close();
            phase.leave_to_next();
            phase.depart();
            assert!(phase.is_closed() && !phase.is_elsewhere() && !phase.has_departed(), "{state:?}");
        }
    }
}
