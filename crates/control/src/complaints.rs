//! What is passed over in silence towards the program, as in NVIDIA's daemon, is told elsewhere: in
//! control.log and by `cumux doctor`.

use crate::daemon::Daemon;
use crate::settings;

impl Daemon {
    /// Keeps what is passed over in silence for the log and for `cumux doctor`.
    pub(crate) fn complain(&self, text: &str) {
        if self.registry(|registry| registry.complain(text.to_owned())) {
            self.note(text);
        }
    }

    pub(crate) fn note_environment(&self) {
        let names = [settings::PERCENTAGE_VARIABLE, settings::PINNED_VARIABLE, settings::PRIORITY_VARIABLE];
        let own: Vec<(String, String)> = names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
        for text in settings::complaints(&own, &self.options.devices) {
            self.complain(&format!("Control daemon: {text}"));
        }
    }
}
