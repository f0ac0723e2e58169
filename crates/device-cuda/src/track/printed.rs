//! Reports that are held until the client has the text that was printed before them.
//!
//! The driver writes printed text out when a stream is synchronised. That may take long, so another
//! thread does it: it fetches the text. A fetch covers the work that was complete when it began.
//! Work that completes meanwhile, and may have printed, needs another fetch.

use std::collections::VecDeque;

/// The report of a piece of work that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldReport {
    /// The client's number for the work.
    pub token: u64,
    /// How long the work took, in nanoseconds.
    pub device_ns: u64,
    /// True if the work may have printed.
    pub prints: bool,
}

/// Whether a fetch for a stream is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fetch {
    #[default]
    None,
    /// A fetch is under way, for this many of the held reports.
    UnderWay { covered: usize },
}

/// The held reports of one stream, in order.
#[derive(Debug, Default)]
pub(crate) struct HeldReports {
    reports: VecDeque<HeldReport>,
    fetch: Fetch,
}

/// What follows when a fetch is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The reports to send after the text, in order.
    pub reports: Vec<HeldReport>,
    /// True if work whose report is still held may have printed.
    pub fetch_again: bool,
}

impl HeldReports {
    /// True if no report is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Holds a report.
    pub(crate) fn hold(&mut self, token: u64, device_ns: u64, prints: bool) {
        self.reports.push_back(HeldReport { token, device_ns, prints });
    }

    /// Takes out all reports, in order, without the text that was printed before them.
    pub(crate) fn release(&mut self) -> Vec<HeldReport> {
        self.fetch = Fetch::None;
        self.reports.drain(..).collect()
    }

    /// Begins a fetch for all held reports. Returns how many of them may have printed, or `None` if
    /// a fetch is under way already.
    pub(crate) fn begin_fetch(&mut self) -> Option<usize> {
        if self.fetch != Fetch::None {
            return None;
        }
        let uncovered = self.count_uncovered();
        self.fetch = Fetch::UnderWay { covered: self.reports.len() };
        Some(uncovered)
    }

    /// How many held reports may have printed and are not covered by the fetch under way.
    fn count_uncovered(&self) -> usize {
        let covered = if let Fetch::UnderWay { covered } = self.fetch { covered } else { 0 };
        self.reports.iter().skip(covered).filter(|report| report.prints).count()
    }

    /// Ends the fetch that is under way.
    pub(crate) fn end_fetch(&mut self) -> Fetched {
        let covered = match std::mem::take(&mut self.fetch) {
            Fetch::None => 0,
            // Some reports may have been cancelled meanwhile.
            Fetch::UnderWay { covered } => covered.min(self.reports.len()),
        };
        let fetch_again = self.reports.iter().skip(covered).any(|report| report.prints);
        let ready = if fetch_again { covered } else { self.reports.len() };
        Fetched { reports: self.reports.drain(..ready).collect(), fetch_again }
    }

    /// Removes all held reports, when the client is stopped or closed. Returns their tokens, and
    /// how many of them may have printed text that no fetch under way brings.
    pub(crate) fn cancel(&mut self) -> (usize, impl Iterator<Item = u64> + '_) {
        let unfetched = self.count_uncovered();
        if let Fetch::UnderWay { covered } = &mut self.fetch {
            *covered = 0;
        }
        (unfetched, self.reports.drain(..).map(|report| report.token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_wait_for_the_text_before_them() {
        let mut held = HeldReports::default();
        held.hold(1, 10, true);
        assert_eq!((held.begin_fetch(), held.begin_fetch()), (Some(1), None));
        held.hold(2, 20, false);
        held.hold(3, 30, true);
        held.hold(4, 40, false);
        let tokens = |fetched: &Fetched| fetched.reports.iter().map(|report| report.token).collect::<Vec<_>>();
        let first = held.end_fetch();
        assert_eq!((tokens(&first), first.fetch_again), (vec![1], true), "what printed meanwhile needs another fetch");
        assert_eq!(held.begin_fetch(), Some(1));
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
        assert_eq!(held.begin_fetch(), Some(2));
        held.hold(3, 10, true);
        held.hold(4, 10, false);
        let (unfetched, tokens) = held.cancel();
        assert_eq!((unfetched, tokens.collect::<Vec<_>>()), (1, vec![1, 2, 3, 4]), "no fetch brings the text of the third");
        held.hold(5, 10, true);
        assert_eq!(held.end_fetch(), Fetched { reports: Vec::new(), fetch_again: true });
        assert_eq!(held.cancel().0, 1, "there is no fetch");
    }
}
