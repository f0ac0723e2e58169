//! A line to whoever set `CUMUX_LOG`, and nothing otherwise.
//!
//! The shim lives in a stranger's process: no logger, no buffer, no thread. `CUMUX_LOG=1` or `CUMUX_LOG=stderr` writes to standard error, any
//! other value is a file to append to. Each line is one write, so lines of several processes do not mix.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;

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

/// Writes one line to standard error, asked for or not; where lines go there anyway, whoever calls
/// this writes it.
pub(crate) fn alarm(message: fmt::Arguments<'_>) {
    if !matches!(sink(), Sink::Stderr) {
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

fn open(value: Option<&OsStr>) -> Sink {
    match value {
        None => Sink::Silent,
        Some(value) if value.is_empty() || value == "0" => Sink::Silent,
        Some(value) if value == "1" || value == "stderr" => Sink::Stderr,
        Some(path) => match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Sink::File(file),
            Err(_) => Sink::Stderr,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_the_sink() {
        assert!(matches!(open(None), Sink::Silent));
        assert!(matches!(open(Some(OsStr::new("0"))), Sink::Silent));
        assert!(matches!(open(Some(OsStr::new("stderr"))), Sink::Stderr));
        assert!(matches!(open(Some(OsStr::new("/no/such/folder/log"))), Sink::Stderr));
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(matches!(open(Some(folder.path().join("log").as_os_str())), Sink::File(_)));
    }
}
