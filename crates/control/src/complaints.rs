//! Settings that cannot be used are ignored without a word to the program, as in NVIDIA's daemon.
//! They are reported in control.log and by `cumux doctor`.

use crate::daemon::Daemon;
use crate::settings;

impl Daemon {
    /// Reports an ignored setting in the log, and keeps it for `cumux doctor`.
    pub(crate) fn complain(&self, text: &str) {
        if self.registry(|registry| registry.complain(text.to_owned())) {
            self.note(text);
        }
    }

    pub(crate) fn note_environment(&self) {
        let names =
            [settings::PERCENTAGE_VARIABLE, settings::PINNED_VARIABLE, settings::PRIORITY_VARIABLE, settings::ISOLATION_VARIABLE, settings::UNBOUNDED_VARIABLE];
        let own: Vec<(String, String)> = names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
        for text in settings::complaints(&own, &self.options.devices) {
            self.complain(&format!("Control daemon: {text}"));
        }
    }
}
