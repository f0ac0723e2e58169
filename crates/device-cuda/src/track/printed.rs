//! Reports that wait until what was printed before them has reached the client.
//!
//! The driver gives printed text out at a synchronisation, which may take long, so another thread
//! fetches it. A fetch covers the work that was over when it began; what ends meanwhile and prints
//! itself needs another one.

use std::collections::VecDeque;

/// Work of one stream that is over, but not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldReport {
    /// As it was submitted.
    pub token: u64,
    /// Nanoseconds it took.
    pub device_ns: u64,
    /// True if it may have printed itself.
    pub prints: bool,
}

/// Whether a stream's text is being fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fetch {
    #[default]
    None,
    /// It is, for so many of the held reports.
    UnderWay { covered: usize },
}

/// The held reports of one stream, in order.
#[derive(Debug, Default)]
pub(crate) struct HeldReports {
    reports: VecDeque<HeldReport>,
    fetch: Fetch,
}

/// What to do with the text that was fetched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// To be reported after the text, in order.
    pub reports: Vec<HeldReport>,
    /// True if what is still held has printed, too.
    pub fetch_again: bool,
}

impl HeldReports {
    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Holds a report.
    pub(crate) fn hold(&mut self, token: u64, device_ns: u64, prints: bool) {
        self.reports.push_back(HeldReport { token, device_ns, prints });
    }

    /// Begins a fetch for everything that is held. False if one is under way.
    pub(crate) fn begin_fetch(&mut self) -> bool {
        if self.fetch != Fetch::None {
            return false;
        }
        self.fetch = Fetch::UnderWay { covered: self.reports.len() };
        true
    }

    /// The fetch is over.
    pub(crate) fn end_fetch(&mut self) -> Fetched {
        let covered = match std::mem::take(&mut self.fetch) {
            Fetch::None => 0,
            // Some may have been cancelled meanwhile.
            Fetch::UnderWay { covered } => covered.min(self.reports.len()),
        };
        let fetch_again = self.reports.iter().skip(covered).any(|report| report.prints);
        let ready = if fetch_again { covered } else { self.reports.len() };
        Fetched { reports: self.reports.drain(..ready).collect(), fetch_again }
    }

    /// Takes the tokens of all held reports, whose client is ended.
    pub(crate) fn cancel(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.reports.drain(..).map(|report| report.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_wait_for_the_text_before_them() {
        let mut held = HeldReports::default();
        held.hold(1, 10, true);
        assert!(held.begin_fetch() && !held.begin_fetch());
        held.hold(2, 20, false);
        held.hold(3, 30, true);
        held.hold(4, 40, false);
        let tokens = |fetched: &Fetched| fetched.reports.iter().map(|report| report.token).collect::<Vec<_>>();
        let first = held.end_fetch();
        assert_eq!((tokens(&first), first.fetch_again), (vec![1], true), "what printed meanwhile needs another fetch");
        assert!(held.begin_fetch());
        held.hold(5, 50, false);
        let second = held.end_fetch();
        assert_eq!((tokens(&second), second.fetch_again), (vec![2, 3, 4, 5], false));
        assert!(held.is_empty());
    }

    #[test]
    fn a_cancelled_report_is_not_made_when_the_text_comes() {
        let mut held = HeldReports::default();
        held.hold(1, 10, true);
        held.hold(2, 10, true);
        assert!(held.begin_fetch());
        assert_eq!(held.cancel().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(held.end_fetch(), Fetched { reports: Vec::new(), fetch_again: false });
    }
}
