//! How much may be written into a log: so many bytes at once, and so many a second. Lines beyond
//! that are left out and counted, so that a client that causes endless lines neither fills a disk
//! nor pushes everybody else's lines out of the log.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

/// Accounts that are kept apart; further keys share one.
const MOST: usize = 256;

/// What one account may write.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Bytes at once.
    pub burst: u64,
    /// Bytes that it regains in a second.
    pub a_second: u64,
}

/// For all lines that one user causes: about 5,000 at once, 80 a second for ever.
pub const USER: Allowance = Allowance { burst: 512 << 10, a_second: 8 << 10 };
/// For lines of one shape that one process writes.
pub const SHAPE: Allowance = Allowance { burst: 64 << 10, a_second: 1 << 10 };

#[derive(Debug)]
struct Account {
    left: u64,
    at: Instant,
    /// Lines since the last one that was written.
    left_out: u64,
}

impl Account {
    /// Bytes that the account may write at a time.
    fn has(&self, allowance: Allowance, now: Instant) -> u64 {
        let past = u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        self.left.saturating_add(past.saturating_mul(allowance.a_second) / 1000).min(allowance.burst)
    }

    /// An account that is exhausted waits until some of its allowance is back. Otherwise every
    /// second line would report one line left out.
    fn may_go_on(&self, allowance: Allowance, now: Instant) -> bool {
        self.left_out == 0 || self.has(allowance, now) >= allowance.burst / 16
    }
}

/// The accounts of a log, one for each key.
#[derive(Debug)]
pub struct Flood<K> {
    allowance: Allowance,
    accounts: HashMap<Option<K>, Account>,
}

impl<K: Eq + Hash + Clone> Flood<K> {
    /// Without accounts; each gets `allowance` with its first line.
    #[must_use]
    pub fn new(allowance: Allowance) -> Self {
        Self { allowance, accounts: HashMap::new() }
    }

    /// Whether a line of `bytes` bytes may be written on this account. Counts the line as left out
    /// if not.
    pub fn admits(&mut self, key: &K, bytes: usize, now: Instant) -> bool {
        let allowance = self.allowance;
        let account = self.account(key, now);
        let (has, bytes) = (account.has(allowance, now), u64::try_from(bytes).unwrap_or(u64::MAX));
        if !account.may_go_on(allowance, now) || has < bytes {
            account.left_out += 1;
            return false;
        }
        (account.left, account.at) = (has - bytes, now);
        true
    }

    /// Accounts whose lost lines may be reported now, with the number of lines. The caller reports
    /// them; the counts start again.
    pub fn take_losses(&mut self, now: Instant) -> Vec<(Option<K>, u64)> {
        let allowance = self.allowance;
        let owing = self.accounts.iter_mut().filter(|(_, account)| account.left_out > 0 && account.may_go_on(allowance, now));
        owing.map(|(key, account)| (key.clone(), std::mem::take(&mut account.left_out))).collect()
    }

    /// All lost lines that were not reported yet, as [`Flood::take_losses`].
    pub fn take_all_losses(&mut self) -> Vec<(Option<K>, u64)> {
        let owing = self.accounts.iter_mut().filter(|(_, account)| account.left_out > 0);
        owing.map(|(key, account)| (key.clone(), std::mem::take(&mut account.left_out))).collect()
    }

    fn account(&mut self, key: &K, now: Instant) -> &mut Account {
        let allowance = self.allowance;
        let mut key = Some(key.clone());
        if !self.accounts.contains_key(&key) && self.accounts.len() >= MOST {
            // An account that owes nothing and has all of its allowance is as good as a new one.
            self.accounts.retain(|_, account| account.left_out > 0 || account.has(allowance, now) < allowance.burst);
            if self.accounts.len() >= MOST {
                key = None;
            }
        }
        self.accounts.entry(key).or_insert(Account { left: allowance.burst, at: now, left_out: 0 })
    }
}

/// The shape of a line: its first 32 characters without digits. Lines that differ only in numbers
/// have the same shape.
#[must_use]
pub fn shape(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SMALL: Allowance = Allowance { burst: 1600, a_second: 100 };

    #[test]
    fn who_writes_too_much_is_left_out_and_counted_and_nobody_else_is() {
        let mut flood = Flood::new(SMALL);
        let start = Instant::now();
        let written = (0..10_000).filter(|_| flood.admits(&1, 100, start)).count();
        assert_eq!(written, 16);
        assert!(flood.admits(&2, 100, start), "another account");
        assert_eq!(flood.take_losses(start), [], "not before there is room for the next");
        let later = start + Duration::from_secs(1);
        assert_eq!(flood.take_losses(later), [(Some(1), 9984)]);
        assert_eq!(flood.take_losses(later), []);
        let written = (0..10_000).filter(|n| flood.admits(&1, 100, later + Duration::from_millis(*n))).count();
        assert!((2..=12).contains(&written), "{written}");
        let told: u64 = flood.take_all_losses().into_iter().map(|(_, count)| count).sum();
        assert_eq!(told, 10_000 - written as u64);
    }

    #[test]
    fn very_many_accounts_share_one() {
        let mut flood = Flood::new(SMALL);
        let start = Instant::now();
        let written = (0..10_000_u32).filter(|user| flood.admits(user, 100, start)).count();
        assert!(written <= MOST + 17 && flood.accounts.len() <= MOST + 1, "{written}");
        // And are apart again when nobody writes any more.
        assert!(flood.admits(&u32::MAX, 100, start + Duration::from_secs(100)));
        assert!(flood.accounts.contains_key(&Some(u32::MAX)));
    }

    #[test]
    fn lines_that_differ_in_numbers_have_one_shape() {
        assert_eq!(shape("Client {PID: 12, Context ID: 0} connected"), shape("Client {PID: 7, Context ID: 1} connected"));
        assert_ne!(shape("Client 1 connected"), shape("Client 1 exiting"));
    }
}
