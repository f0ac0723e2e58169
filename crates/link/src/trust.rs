//! The users that a process trusts: root, its own user, and a user named by `CUMUX_TRUST_UID`.
//!
//! Anybody can make a pipe directory, so a listener there is a stranger until the kernel has named
//! its user. The same users are trusted with the directories in which the service works
//! ([`crate::folder`]).
//!
//! A program with more rights than its caller (setuid, setgid, file capabilities) trusts neither
//! the caller's daemon nor the caller's environment.

use std::sync::OnceLock;

/// The variable with the number of one more trusted user.
pub const VARIABLE: &str = "CUMUX_TRUST_UID";

/// A listener that belongs to an untrusted user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the service at {path} belongs to user {uid}, and this process of user {own} trusts root and its own user alone: end that service and have root start one, \
     or start your own (cumux run, or a daemon in another CUDA_MPS_PIPE_DIRECTORY), or set {VARIABLE}={uid} if you trust that user with your programs{hint}"
)]
pub struct Foreign {
    /// The listener's path.
    pub path: String,
    /// The listener's user.
    pub uid: u32,
    own: u32,
    hint: &'static str,
}

impl Foreign {
    /// The error for a listener at `path` that belongs to `uid`, as this process sees it.
    #[must_use]
    pub fn new(path: String, uid: u32) -> Self {
        let hint = if is_unmapped(uid) { " (it may be a user outside of this user namespace)" } else { "" };
        Self { path, uid, own: own(), hint }
    }
}

/// The users that a process trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Circle {
    /// Effective and real user of the process.
    effective: u32,
    real: u32,
    /// True if the process has more rights than its caller.
    elevated: bool,
    named: Option<u32>,
}

impl Circle {
    fn has(&self, uid: u32) -> bool {
        // Where only rights were added, the effective user is the caller.
        let ours = uid == self.effective && !(self.elevated && self.effective == self.real);
        uid == 0 || ours || (!self.elevated && self.named == Some(uid))
    }
}

/// Whether this process trusts a user with what it sends and reads.
#[must_use]
pub fn is_trusted(uid: u32) -> bool {
    let named = cumux_environment::number_or_none(VARIABLE).and_then(|uid| u32::try_from(uid).ok());
    Circle { effective: own(), real: rustix::process::getuid().as_raw(), elevated: is_elevated(), named }.has(uid)
}

/// Whether this process has more rights than its caller. Its environment is then the caller's and
/// must not be followed.
#[must_use]
pub fn is_elevated() -> bool {
    static ELEVATED: OnceLock<bool> = OnceLock::new();
    *ELEVATED.get_or_init(|| {
        let differs = rustix::process::getuid() != rustix::process::geteuid() || rustix::process::getgid() != rustix::process::getegid();
        differs || is_secure(std::fs::read("/proc/self/auxv"))
    })
}

/// The kernel's word on the program's rights (AT_SECURE). A program with added rights cannot read
/// the file: that is an answer, too.
fn is_secure(vector: std::io::Result<Vec<u8>>) -> bool {
    const SECURE: u64 = 23;
    let word = |bytes: &[u8]| bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    match vector {
        Ok(vector) => vector.chunks_exact(16).any(|entry| word(entry) == SECURE && word(&entry[8..]) != 0),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// A variable of the environment; `None` also if the process has more rights than its caller.
#[must_use]
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    if is_elevated() { None } else { std::env::var_os(name) }
}

/// The effective user of this process.
#[must_use]
pub fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether `uid` is the overflow user, as which all users appear that this user namespace does not
/// map. Outside of the namespace root owns everything, even its own `/tmp`.
#[must_use]
pub fn is_unmapped(uid: u32) -> bool {
    let number = |path: &str| std::fs::read_to_string(path).ok();
    let overflow = number("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok()).unwrap_or(65534);
    uid == overflow && number("/proc/self/uid_map").is_some_and(|map| !is_whole(&map))
}

/// Whether a `uid_map` maps every user.
fn is_whole(map: &str) -> bool {
    map.lines().any(|line| line.split_ascii_whitespace().nth(2) == Some("4294967295"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_oneself_and_who_was_named_are_trusted() {
        let plain = Circle { effective: 1000, real: 1000, elevated: false, named: None };
        assert_eq!([0, 1000, 1001].map(|uid| plain.has(uid)), [true, true, false]);
        let named = Circle { named: Some(1001), ..plain };
        assert_eq!([0, 1000, 1001, 1002].map(|uid| named.has(uid)), [true, true, true, false]);
    }

    #[test]
    fn a_program_with_rights_of_its_own_does_not_trust_its_caller() {
        let setuid = Circle { effective: 0, real: 1000, elevated: true, named: Some(1000) };
        assert_eq!([0, 1000].map(|uid| setuid.has(uid)), [true, false]);
        let other = Circle { effective: 7, real: 1000, elevated: true, named: Some(1000) };
        assert_eq!([0, 7, 1000].map(|uid| other.has(uid)), [true, true, false]);
        let capable = Circle { effective: 1000, real: 1000, elevated: true, named: Some(1001) };
        assert_eq!([0, 1000, 1001].map(|uid| capable.has(uid)), [true, false, false]);
    }

    #[test]
    fn the_auxiliary_vector_tells_of_rights() {
        let entry = |key: u64, value: u64| [key.to_ne_bytes(), value.to_ne_bytes()].concat();
        assert!(is_secure(Ok([entry(6, 4096), entry(23, 1)].concat())));
        assert!(!is_secure(Ok([entry(6, 23), entry(23, 0)].concat())));
        assert!(is_secure(Err(std::io::ErrorKind::PermissionDenied.into())));
        assert!(!is_secure(Err(std::io::ErrorKind::NotFound.into())), "no /proc");
        assert!(!is_elevated(), "this test has no rights of its own");
    }

    #[test]
    fn a_namespace_with_every_user_has_no_unknown_ones() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
    }

    #[test]
    fn the_sentence_names_path_user_and_remedy() {
        let text = Foreign::new("/tmp/nvidia-mps/cumux".into(), 4242).to_string();
        assert!(text.contains("/tmp/nvidia-mps/cumux") && text.contains("user 4242") && text.contains("CUMUX_TRUST_UID=4242"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
