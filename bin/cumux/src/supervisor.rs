//! What a supervisor of services (systemd: `Type=notify`, `WatchdogSec=`) is told. Where none has
//! asked, nothing is said.

use crate::say;
use cumux_control::Alive;
use sd_notify::NotifyState;
use std::thread;

/// Tells the supervisor that programs can come. From then on it gets a sign of life at half the
/// interval that it wants, as long as the daemon makes progress.
pub fn tell_ready(alive: Alive) {
    tell(&[NotifyState::Ready, NotifyState::Status("programs are served")]);
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let beat = move || {
        loop {
            alive.check();
            tell(&[NotifyState::Watchdog]);
            thread::sleep(limit / 2);
        }
    };
    if let Err(error) = thread::Builder::new().name("supervisor".into()).spawn(beat) {
        say::complain(format_args!("cumux: the supervisor gets no signs of life, as the system has no thread for them: {error}"));
    }
}

/// Tells the supervisor that requests are answered.
pub fn tell_listening() {
    tell(&[NotifyState::Ready]);
}

/// Tells the supervisor that the daemon ends because it was told to.
pub fn tell_end() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // A supervisor that cannot be told notices by itself.
    let _ = sd_notify::notify(states);
}
