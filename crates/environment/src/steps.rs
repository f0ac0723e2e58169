//! Named steps of the service at which a test has a process killed or stopped.
//!
//! Only processes all of whose devices are software GPUs heed them ([`heed`]). A test names a
//! folder in [`VARIABLE`] and writes a file there with a step's name: `kill` or `stop`, and how
//! many passes are let through before. Whoever passes then renames the file, so it happens once,
//! and never comes back. Without the variable a pass is one look at a word in memory.

use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The variable with the folder.
pub const VARIABLE: &str = "CUMUX_CRASH_STEPS";

/// What a file's name ends with once its step has been taken.
pub const TAKEN: &str = "taken";

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

macro_rules! steps {
    ($($(#[doc = $doc:literal])* $step:ident = $name:literal),* $(,)?) => {
        /// A step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Step { $($(#[doc = $doc])* $step),* }

        impl Step {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$step),*];

            /// Its name: which process, and where in it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$step => $name),* }
            }
        }
    };
}

steps! {
    /// A fault was announced: nothing more is begun.
    CardAnnounced = "card-announced",
    /// What innocents had begun has ended, or was waited for long enough.
    CardSettled = "card-settled",
    /// All reports of the lost card are with the executor.
    CardReported = "card-reported",
    /// The culprits have their errors.
    CardJudged = "card-judged",
    /// A client's error is in its page, and not in its journal.
    FaultShown = "executor-fault-shown",
    /// It is in its journal, too.
    FaultWritten = "executor-fault-written",
    /// Completions are in the journal and in the page.
    WorkRetired = "executor-work-retired",
    /// An executor hears that its device is lost.
    LossHeard = "executor-loss-heard",
    /// Its sessions belong to its successor.
    LossDeparted = "executor-loss-departed",
    /// The server was told.
    LossTold = "executor-loss-told",
    /// An executor is to let go of all sessions but some.
    EvacuationBegun = "executor-evacuation-begun",
    /// They belong to its successor.
    EvacuationDone = "executor-evacuation-done",
    /// A standby was told to take over.
    TakeoverBegun = "standby-takeover-begun",
    /// A journal was read.
    JournalRead = "standby-journal-read",
    /// A client's memory is there again.
    MemoryRestored = "standby-memory-restored",
    /// Its modules are, too.
    ModulesRestored = "standby-modules-restored",
    /// Its work is in its streams again.
    WorkRestored = "standby-work-restored",
    /// All sessions are open, and nothing of them is begun.
    TakeoverOpened = "standby-takeover-opened",
    /// Their work goes on.
    TakeoverDone = "standby-takeover-done",
    /// A session that is to move takes no records.
    MovePaused = "executor-move-paused",
    /// It belongs to its next executor.
    MoveLeft = "executor-move-left",
    /// It is closed, and the server does not know.
    MoveClosed = "executor-move-closed",
    /// The server was told.
    MoveTold = "executor-move-told",
    /// An executor was given a session.
    AttachBegun = "executor-attach-begun",
    /// It has opened it.
    AttachDone = "executor-attach-done",
    /// The server knows that the executor that served does so no more.
    ServerHeardOfLoss = "server-heard-of-loss",
    /// It has told a standby to take over.
    ServerActivated = "server-activated",
    /// It knows that one has.
    ServerHeardOfTakeover = "server-heard-of-takeover",
    /// It has asked an executor to let go of a session.
    ServerAskedToLetGo = "server-asked-to-let-go",
    /// It knows that it has.
    ServerHeardOfRelease = "server-heard-of-release",
    /// It has given a session to an executor.
    ServerGave = "server-gave",
    /// It knows that the session has arrived.
    ServerHeardOfArrival = "server-heard-of-arrival",
}

/// From now on this process heeds steps, if the environment names a folder and every device of it
/// is a software GPU.
pub fn heed(devices: &[String]) {
    if devices.iter().all(|device| device.starts_with("sim:"))
        && let Some(folder) = std::env::var_os(VARIABLE)
    {
        let _ = FOLDER.set(folder.into());
    }
}

/// The process has come to this step.
#[inline]
pub fn pass(step: Step) {
    if let Some(folder) = FOLDER.get() {
        act_on_step(folder, step);
    }
}

#[cold]
fn act_on_step(folder: &Path, step: Step) {
    let path = folder.join(step.name());
    let own = folder.join(format!("{}.{}", step.name(), std::process::id()));
    // Two who pass at once: one has it.
    if std::fs::rename(&path, &own).is_err() {
        return;
    }
    let text = std::fs::read_to_string(&own).unwrap_or_default();
    let (word, passes) = text.trim().split_once(' ').unwrap_or((text.trim(), "0"));
    match passes.parse::<u32>().unwrap_or(0).checked_sub(1) {
        Some(rest) => {
            let _ = std::fs::write(&own, format!("{word} {rest}"));
            let _ = std::fs::rename(&own, &path);
        }
        None => {
            let _ = std::fs::rename(&own, folder.join(format!("{}.{TAKEN}", step.name())));
            let signal = if word == "stop" { Signal::STOP } else { Signal::KILL };
            // The signal is the process's. By its number this thread is chosen to take it: with
            // the number of the process it would run on until another thread has.
            let _ = rustix::process::kill_process(rustix::thread::gettid(), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn steps_have_names_of_their_own() {
        let names: BTreeSet<&str> = Step::ALL.iter().map(|step| step.name()).collect();
        assert_eq!(names.len(), Step::ALL.len());
    }

    #[test]
    fn passes_are_let_through_before() {
        let folder = std::env::temp_dir().join(format!("cumux-steps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(Step::MoveLeft.name());
        act_on_step(&folder, Step::MoveLeft);
        std::fs::write(&path, "kill 2").unwrap();
        act_on_step(&folder, Step::MoveTold);
        act_on_step(&folder, Step::MoveLeft);
        act_on_step(&folder, Step::MoveLeft);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kill 0", "the next one is the last");
        pass(Step::MoveLeft);
        assert!(path.exists(), "this process heeds none");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
