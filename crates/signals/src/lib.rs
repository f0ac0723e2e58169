//! What a process inherits: of signals the mask, and which ones are ignored; the listening sockets
//! that a supervisor of services passes to it ([`sockets`]). And what it says when it crashes
//! ([`crashes`]).
//!
//! Invariants: after [`settle`], our own processes depend on nothing that their starter has set. A
//! program that we start for a user gets back what we were started with ([`hand_on`]). The unsafe
//! calls are here, so that the program itself can forbid them.

pub mod crashes;
pub mod sockets;

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, sigset_t};

/// Signals for which our processes have handlers or a disposition of their own.
const CHANGED: [c_int; 8] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCHLD, libc::SIGXFSZ];

/// What this process was started with.
struct Inherited {
    mask: sigset_t,
    ignored: Vec<c_int>,
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Empties the signal mask and makes children waitable, whatever the starter has set. To be called
/// first of all in `main`, before other threads: they inherit the mask.
pub fn settle() {
    INHERITED.get_or_init(|| {
        let ignored = CHANGED.into_iter().filter(|signal| is_ignored(*signal)).collect();
        let mask = exchange_mask(&no_signals());
        // With SIGCHLD ignored, nobody can wait for a child.
        set_default(libc::SIGCHLD);
        Inherited { mask, ignored }
    });
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error, as on a full disk, instead
/// of the end of this process.
pub fn survive_file_limit() {
    set_ignored(libc::SIGXFSZ);
}

/// Lets the program that `command` starts have the mask and the ignored signals that this process
/// was started with.
pub fn hand_on(command: &mut Command) -> &mut Command {
    let Some(Inherited { mask, ignored }) = INHERITED.get() else { return command };
    let same = ignored.is_empty() && (1..=64).all(|signal| !is_member(mask, signal));
    if same {
        return command;
    }
    let restore = move || {
        for signal in ignored {
            set_ignored(*signal);
        }
        exchange_mask(mask);
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls only signal(2) and pthread_sigmask(3), which
    // are async-signal-safe, and reads memory that is never written again.
    unsafe { command.pre_exec(restore) }
}

fn no_signals() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is valid for writes, and sigemptyset initialises all of the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Sets this thread's mask and returns the one before.
fn exchange_mask(mask: &sigset_t) -> sigset_t {
    let mut before = no_signals();
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    before
}

fn is_member(mask: &sigset_t, signal: c_int) -> bool {
    // SAFETY: the set is initialised.
    unsafe { libc::sigismember(mask, signal) == 1 }
}

fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and the pointer is valid for writes. A zeroed action is a
    // valid one, should the call fail.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

fn set_ignored(signal: c_int) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

fn set_default(signal: c_int) {
    // SAFETY: SIG_DFL runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: it changes the whole process.
    #[test]
    fn a_process_is_settled_and_hands_on_what_it_got() {
        set_ignored(libc::SIGCHLD);
        set_ignored(libc::SIGHUP);
        let mut blocked = no_signals();
        // SAFETY: the set is initialised.
        unsafe { libc::sigaddset(&raw mut blocked, libc::SIGTERM) };
        exchange_mask(&blocked);
        settle();
        assert!(!is_ignored(libc::SIGCHLD) && !is_member(&exchange_mask(&no_signals()), libc::SIGTERM));
        assert_eq!(Command::new("sh").args(["-c", "exit 7"]).status().unwrap().code(), Some(7));
        let mut command = Command::new("grep");
        let output = hand_on(command.args(["-E", "^Sig(Blk|Ign)", "/proc/self/status"])).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let bits = |name: &str| u64::from_str_radix(said.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim(), 16).unwrap();
        let bit = |signal: c_int| 1_u64 << (signal - 1);
        assert_eq!(bits("SigBlk:"), bit(libc::SIGTERM), "{said}");
        assert_eq!(bits("SigIgn:") & (bit(libc::SIGCHLD) | bit(libc::SIGHUP)), bit(libc::SIGCHLD) | bit(libc::SIGHUP), "{said}");
    }
}
