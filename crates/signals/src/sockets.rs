//! Listening sockets that a supervisor of services passes to the process that it starts, as
//! sd_listen_fds(3) describes: the first has descriptor 3, `LISTEN_FDS` is their number,
//! `LISTEN_PID` the process for which they are meant, `LISTEN_FDNAMES` their names.

use std::ffi::OsString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;

/// The first descriptor.
const FIRST: RawFd = 3;
/// More than any unit passes.
const MOST: u32 = 64;

/// What the supervisor has said cannot be followed.
#[derive(Debug)]
pub struct SocketsError(String);

impl std::fmt::Display for SocketsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sockets should have been passed to this process, and {}: correct what starts it, or have it set no LISTEN_FDS", self.0)
    }
}

impl std::error::Error for SocketsError {}

/// One descriptor that was passed.
#[derive(Debug)]
pub struct Passed {
    /// The descriptor. No process that this one starts inherits it.
    pub socket: OwnedFd,
    /// Its name; systemd gives the name of the socket unit if the unit has no other.
    pub name: String,
}

/// The descriptors that were passed to this process; none if they are meant for another one. The
/// second call returns none.
///
/// To be called before this process opens a file of its own: it would have the number of a
/// descriptor that was announced and not passed.
///
/// # Errors
/// [`SocketsError`] if the variables contradict each other or the descriptors.
pub fn passed() -> Result<Vec<Passed>, SocketsError> {
    static TAKEN: OnceLock<()> = OnceLock::new();
    let names = announced(|name| std::env::var_os(name), std::process::id())?;
    if TAKEN.set(()).is_err() {
        return Ok(Vec::new());
    }
    // All are looked at before the first is owned: a number that is not open is nobody's.
    for (number, _) in (FIRST..).zip(&names) {
        close_in_children(number).map_err(|cause| SocketsError(format!("descriptor {number} is not open ({cause})")))?;
    }
    let own = |(number, name)| {
        // SAFETY: the descriptor is open, the starter has passed it to this process, and nobody
        // else in this process owns it: each is handed out once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        Passed { socket, name }
    };
    Ok((FIRST..).zip(names).map(own).collect())
}

/// The names of the descriptors that are announced for the process `own`.
fn announced(variable: impl Fn(&str) -> Option<OsString>, own: u32) -> Result<Vec<String>, SocketsError> {
    let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    let number = |name: &str| text(name).map(|value| value.parse::<u32>().map_err(|_| SocketsError(format!("{name}={value} is no number")))).transpose();
    if number("LISTEN_PID")? != Some(own) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS")?.unwrap_or(0);
    if count > MOST {
        return Err(SocketsError(format!("LISTEN_FDS={count} is more than {MOST}")));
    }
    let mut names: Vec<String> = text("LISTEN_FDNAMES").map(|all| all.split(':').map(str::to_owned).collect()).unwrap_or_default();
    names.resize(usize::try_from(count).unwrap_or_default(), "unknown".to_owned());
    Ok(names)
}

fn close_in_children(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the call changes a flag of the descriptor, and fails if there is none.
    let outcome = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    if outcome == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        announced(find, 7).map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_is_meant_for_this_process_is_taken() {
        assert_eq!(names(&[]), Ok(vec![]));
        assert_eq!(names(&[("LISTEN_FDS", "2")]), Ok(vec![]));
        assert_eq!(names(&[("LISTEN_PID", "8"), ("LISTEN_FDS", "x")]), Ok(vec![]), "another process's affair");
        assert_eq!(names(&[("LISTEN_PID", "7")]), Ok(vec![]));
        let both = [("LISTEN_PID", "7"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "a.socket:b")];
        assert_eq!(names(&both), Ok(vec!["a.socket".to_owned(), "b".to_owned()]));
        assert_eq!(names(&both[..2]), Ok(vec!["unknown".to_owned(); 2]));
        for (bad, word) in [([("LISTEN_PID", "x"), ("LISTEN_FDS", "1")], "LISTEN_PID=x"), ([("LISTEN_PID", "7"), ("LISTEN_FDS", "65")], "more than 64")] {
            let text = names(&bad).unwrap_err();
            assert!(text.contains(word) && text.contains("correct what starts it"), "{text}");
        }
    }

    const PART: &str = "CUMUX_TEST_PASSED";

    /// In a process of its own, whose descriptors are what a shell has made them.
    #[test]
    fn descriptors_are_owned_once_and_not_inherited() {
        if std::env::var_os(PART).is_some() {
            let told = match passed() {
                Err(error) => error.to_string(),
                Ok(all) => {
                    let again = passed().unwrap().len();
                    let open = all.iter().map(|passed| std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&passed.socket))));
                    let open: Vec<_> = open.map(|target| target.unwrap().display().to_string()).collect();
                    let child = std::process::Command::new("sh").args(["-c", "test -e /proc/self/fd/3 || test -e /proc/self/fd/4"]).status().unwrap();
                    format!("{open:?} again {again} inherited {}", child.success())
                }
            };
            println!("told {told}");
            return;
        }
        let tell = |count: u32| {
            let variables = format!("LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES=a:b");
            let script = format!(
                "export {variables}; exec \"$0\" --exact sockets::tests::descriptors_are_owned_once_and_not_inherited --nocapture 3</dev/null 4</dev/zero"
            );
            let output = std::process::Command::new("sh").args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(PART, "").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().find_map(|line| Some(line.split_once("told ")?.1.to_owned())).unwrap_or_else(|| panic!("{output:?}"))
        };
        assert_eq!(tell(2), "[\"/dev/null\", \"/dev/zero\"] again 0 inherited false");
        let missing = tell(60);
        assert!(missing.contains("is not open"), "{missing}");
    }
}
