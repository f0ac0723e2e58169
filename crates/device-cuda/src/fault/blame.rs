//! The error that each client gets when the context breaks. Pure.
//!
//! The driver reports that the context is broken, but not by whose kernel. So each client that had
//! kernels in flight is a suspect, and its error says what is known.

use cumux_device::ClientId;
use std::collections::BTreeMap;

/// A client's error lists kernel names up to about this many bytes.
const NAMES_BYTES: usize = 200;

/// Whether a suspect can have caused the error that the driver reports.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// It cannot: an assertion failed, and none of its kernels has assertions.
    #[default]
    RuledOut,
    /// One of its kernels can have caused it.
    Possible,
}

/// A client that had kernels in flight when the context broke.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// The kernels' names, separated by commas.
    kernels: String,
    blame: Blame,
}

impl Suspect {
    /// Adds a kernel that was in flight.
    pub(crate) fn add_kernel(&mut self, name: &str, blame: Blame) {
        if blame == Blame::Possible {
            self.blame = Blame::Possible;
        }
        if self.kernels.len() < NAMES_BYTES && !self.kernels.contains(name) {
            self.kernels.push_str(if self.kernels.is_empty() { "" } else { ", " });
            self.kernels.push_str(name);
        }
    }
}

/// All clients that had kernels in flight.
pub(crate) type Suspects = BTreeMap<ClientId, Suspect>;

/// The text of the error for `suspect`, one of `all`. `what` is the driver's sentence for the code.
pub(crate) fn accusation(all: &Suspects, suspect: &Suspect, what: &str) -> String {
    let kernels = &suspect.kernels;
    let possible = all.values().filter(|suspect| suspect.blame == Blame::Possible).count();
    match (suspect.blame, possible) {
        (Blame::RuledOut, 1..) => {
            format!("another client's kernel ended the context ({what}) while {kernels} was under way; whether it had finished is not known")
        }
        (_, 0 | 1) => format!("{what} in one of {kernels}"),
        (Blame::Possible, several) => {
            format!("{what} in one of {kernels}; {several} clients had kernels under way and the card does not say whose it was")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspects(list: &[(ClientId, &str, Blame)]) -> Suspects {
        let mut all = Suspects::default();
        for (client, kernel, blame) in list {
            all.entry(*client).or_default().add_kernel(kernel, *blame);
        }
        all
    }

    #[test]
    fn each_suspect_is_told_what_is_known() {
        let told = |all: &Suspects, client| accusation(all, &all[&client], "trap");
        let one = suspects(&[(1, "a", Blame::Possible), (1, "b", Blame::RuledOut), (1, "a", Blame::RuledOut)]);
        assert_eq!(told(&one, 1), "trap in one of a, b");
        let two = suspects(&[(1, "a", Blame::Possible), (2, "b", Blame::Possible)]);
        assert_eq!(told(&two, 2), "trap in one of b; 2 clients had kernels under way and the card does not say whose it was");
        let innocent = suspects(&[(1, "a", Blame::Possible), (2, "b", Blame::RuledOut)]);
        assert_eq!(told(&innocent, 1), "trap in one of a");
        assert_eq!(told(&innocent, 2), "another client's kernel ended the context (trap) while b was under way; whether it had finished is not known");
        let nobody = suspects(&[(1, "a", Blame::RuledOut), (2, "b", Blame::RuledOut)]);
        assert_eq!(told(&nobody, 2), "trap in one of b");
    }

    #[test]
    fn names_are_listed_once_and_not_for_ever() {
        let mut suspect = Suspect::default();
        for at in 0..1000 {
            suspect.add_kernel(&format!("kernel number {at}"), Blame::Possible);
        }
        assert!(suspect.kernels.len() < NAMES_BYTES + 40, "{}", suspect.kernels);
    }
}
