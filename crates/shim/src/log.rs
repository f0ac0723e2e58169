//! What the shim says. [`line`] is for who set `CUMUX_LOG`; [`tell`] is also for whoever runs the
//! program.
//!
//! The shim lives in a stranger's process: no logger, no buffer, no thread. `CUMUX_LOG=1` or
//! `CUMUX_LOG=stderr` writes to standard error, any other value is a file to append to, but for the
//! levels, which are meant for the service's own processes. Each line is one write, so lines of
//! several processes do not mix.
//!
//! A failure whose reason is known is told once, in one line, on the program's standard error,
//! where `CUMUX_VERBOSE` is set: `cumux run` sets it, and a program that a service serves without
//! it prints what it would print on any card. `CUMUX_QUIET` silences in any case.

use cumux_abi::CUresult;
use cumux_link::escape_foreign;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Lines that are told at most: a program that fails for ever fills nobody's terminal.
const MOST: usize = 64;
/// Characters of a line. It has names in it that a program has made.
const LONGEST: usize = 1200;

enum Sink {
    Silent,
    Stderr,
    File(File),
}

static SINK: OnceLock<Sink> = OnceLock::new();

/// Not what a caller names who has fewer rights than this program: it would be written with the
/// program's.
fn sink() -> &'static Sink {
    SINK.get_or_init(|| open(cumux_link::trust::variable("CUMUX_LOG").as_deref()))
}

/// Writes one line to standard error, asked for or not, unless `CUMUX_QUIET` is set. Where lines go
/// there anyway ([`line`], [`tell`]) the caller's own line is the one.
pub(crate) fn alarm(message: fmt::Arguments<'_>) {
    let quiet = !wants(Some("1".into()), std::env::var_os("CUMUX_QUIET"));
    if !matches!(sink(), Sink::Stderr) && !is_verbose() && !quiet {
        let _ = std::io::stderr().write_all(format!("cumux[{}]: {message}\n", std::process::id()).as_bytes());
    }
}

/// Writes one line, if anybody asked for lines.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let sink = sink();
    let text = || format!("cumux[{}]: {message}\n", std::process::id());
    // A log that cannot be written must not disturb the program.
    let _ = match sink {
        Sink::Silent => Ok(()),
        Sink::Stderr => std::io::stderr().write_all(text().as_bytes()),
        Sink::File(file) => (&mut &*file).write_all(text().as_bytes()),
    };
}

/// What `CUMUX_LOG` says to the service's processes, which a program has from the same shell.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn open(value: Option<&OsStr>) -> Sink {
    match value {
        None => Sink::Silent,
        Some(value) if value.is_empty() || value == "0" || LEVELS.iter().any(|level| value == *level) => Sink::Silent,
        Some(value) if value == "1" || value == "stderr" => Sink::Stderr,
        Some(path) => match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Sink::File(file),
            Err(_) => Sink::Stderr,
        },
    }
}

// ---- for whoever runs the program

/// Whether anybody would read what is told: what costs something to find out is not asked
/// otherwise.
pub(crate) fn anybody() -> bool {
    is_verbose() || !matches!(sink(), Sink::Silent)
}

fn is_verbose() -> bool {
    static VERBOSE: OnceLock<bool> = OnceLock::new();
    *VERBOSE.get_or_init(|| wants(std::env::var_os("CUMUX_VERBOSE"), std::env::var_os("CUMUX_QUIET")))
}

fn wants(verbose: Option<OsString>, quiet: Option<OsString>) -> bool {
    let on = |value: Option<OsString>| value.is_some_and(|value| !value.is_empty() && value != "0");
    on(verbose) && !on(quiet)
}

/// Says why something fails: one line, once. In the log as well.
pub(crate) fn tell(message: fmt::Arguments<'_>) {
    let text = one_line(&message.to_string());
    crate::messages::note(&text);
    if !anybody() {
        return;
    }
    line(format_args!("{text}"));
    // Who has the log on the same terminal has read it.
    if !is_verbose() || matches!(sink(), Sink::Stderr) {
        return;
    }
    static TOLD: Mutex<Option<Told>> = Mutex::new(None);
    let said = TOLD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().say(text);
    if let Some(text) = said {
        let _ = std::io::stderr().write_all(format!("cumux: {text}\n").as_bytes());
    }
}

/// What has been told.
#[derive(Default)]
struct Told {
    lines: HashSet<String>,
}

impl Told {
    /// What is to be written for a line: nothing if it has been, or if it is one too many.
    fn say(&mut self, text: String) -> Option<String> {
        if self.lines.len() > MOST || self.lines.contains(&text) {
            return None;
        }
        let full = self.lines.len() == MOST;
        self.lines.insert(text.clone());
        Some(if full { "more has gone wrong, which is not told here; CUMUX_LOG=FILE writes all of it down".to_owned() } else { text })
    }
}

/// A text as one line that a terminal can be given: white space is one space, and what could move a
/// cursor is written out.
fn one_line(text: &str) -> String {
    escape_foreign(&text.split_whitespace().collect::<Vec<_>>().join(" "), LONGEST)
}

// ---- why a call answers what it answers

thread_local! {
    /// What the call that is under way on this thread has said about its answer.
    static REASON: Cell<Option<(CUresult, Cow<'static, str>)>> = const { Cell::new(None) };
}

/// An answer and its reason, which is told with the call's name when the call gives that answer
/// ([`crate::border`]).
pub(crate) fn because(code: CUresult, why: impl Into<Cow<'static, str>>) -> CUresult {
    let _ = REASON.try_with(|reason| reason.set(Some((code, why.into()))));
    code
}

/// NOT_SUPPORTED, and what it is that is not.
pub(crate) fn unsupported(what: impl Into<Cow<'static, str>>) -> CUresult {
    because(CUresult::CUDA_ERROR_NOT_SUPPORTED, what)
}

/// The reason for an answer, if one was given. What was said about another answer is forgotten:
/// that one was not given.
pub(crate) fn reason(code: CUresult) -> Option<Cow<'static, str>> {
    let said = REASON.try_with(Cell::take).ok().flatten();
    said.filter(|(about, _)| *about == code).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_the_sink() {
        assert!(matches!(open(None), Sink::Silent));
        assert!(matches!(open(Some(OsStr::new("0"))), Sink::Silent));
        assert!(matches!(open(Some(OsStr::new("debug"))), Sink::Silent));
        assert!(matches!(open(Some(OsStr::new("stderr"))), Sink::Stderr));
        assert!(matches!(open(Some(OsStr::new("/no/such/folder/log"))), Sink::Stderr));
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(matches!(open(Some(folder.path().join("log").as_os_str())), Sink::File(_)));
    }

    #[test]
    fn quiet_is_stronger_than_verbose() {
        let on = || Some(OsString::from("1"));
        assert!(wants(on(), None) && wants(on(), Some("0".into())) && wants(on(), Some("".into())));
        assert!(!wants(None, None) && !wants(Some("0".into()), None) && !wants(on(), on()) && !wants(None, on()));
    }

    #[test]
    fn a_line_is_told_once_and_not_for_ever() {
        let mut told = Told::default();
        assert_eq!(told.say("a".into()).as_deref(), Some("a"));
        assert_eq!(told.say("a".into()), None);
        let said: Vec<String> = (0..1000).filter_map(|n| told.say(format!("failure {n}"))).collect();
        assert_eq!(said.len(), MOST);
        assert!(said[MOST - 2].starts_with("failure") && said[MOST - 1].contains("CUMUX_LOG"), "{said:?}");
    }

    #[test]
    fn whatever_a_text_holds_it_is_one_line() {
        assert_eq!(one_line("line 7:\n   mov.u32 %r1 1;\n\t^\n"), "line 7: mov.u32 %r1 1; ^");
        assert_eq!(one_line("red \u{1b}[31m and"), "red \\u{1b}[31m and");
        assert_eq!(one_line(&"x".repeat(1 << 20)).chars().count(), LONGEST);
    }

    #[test]
    fn a_reason_belongs_to_its_answer() {
        assert_eq!(reason(unsupported("this")).as_deref(), Some("this"));
        assert_eq!(reason(CUresult::CUDA_ERROR_NOT_SUPPORTED), None, "it is told once");
        unsupported("that");
        assert_eq!(reason(CUresult::CUDA_ERROR_INVALID_VALUE), None, "another answer has another reason");
        assert_eq!(reason(CUresult::CUDA_ERROR_NOT_SUPPORTED), None, "and what was not answered is forgotten");
    }
}
