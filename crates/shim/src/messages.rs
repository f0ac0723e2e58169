//! The error messages of this process, as programs get them by `cuLogs…` (`logs.rs`): why a call
//! has failed, in words. The last ones are kept; those who want them are called; and
//! `CUDA_LOG_FILE` (`stdout`, `stderr` or a path) has each written down at once, as NVIDIA's driver
//! does.
//!
//! Invariants: messages have numbers without gaps. Nobody is called, and nothing is written, under
//! the lock. A forked child of a thread that held it loses messages, and waits for nothing.

use cumux_link::trust;
use rustix::thread::gettid;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes that are kept at most, as the manual says of NVIDIA's driver.
const MOST_BYTES: usize = 25_600;
/// Where messages are written, too.
const FILE_VARIABLE: &str = "CUDA_LOG_FILE";
/// What stands for messages that are no longer kept.
const LOST: &str = "[CUDA][W] older messages are not kept\n";

/// Who is called with each message. The bytes are a line without its end.
pub(crate) type Listener = fn(number: usize, line: &str);

#[derive(Debug, Default)]
pub(crate) struct Messages {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the first line that is kept.
    first: u32,
}

/// What was read, and the number of the message that comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub text: String,
    pub next: u32,
}

impl Messages {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, first: 0 }
    }

    fn add(&mut self, line: &str) {
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// The number of the next message.
    pub(crate) fn next(&self) -> u32 {
        // At most as many as bytes are kept.
        self.first.wrapping_add(u32::try_from(self.lines.len()).unwrap_or(u32::MAX))
    }

    /// The number of the first message that is kept.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// The messages from this number on, whole ones, as many as fit into so many bytes. A number
    /// that no message has had yet is that of the next one.
    pub(crate) fn read(&self, from: u32, room: usize) -> Excerpt {
        let kept = self.next().wrapping_sub(self.first);
        let (skipped, is_old) = match from.wrapping_sub(self.first) {
            ahead if ahead <= kept => (ahead, false),
            // Behind the first one that is kept, and not far beyond the last one.
            ahead => (if ahead > u32::MAX / 2 { 0 } else { kept }, ahead > u32::MAX / 2),
        };
        let mut excerpt = Excerpt { text: String::new(), next: self.first.wrapping_add(skipped) };
        if is_old && LOST.len() <= room {
            excerpt.text.push_str(LOST);
        }
        for line in self.lines.iter().skip(skipped as usize) {
            if excerpt.text.len() + line.len() > room {
                break;
            }
            excerpt.text.push_str(line);
            excerpt.next = excerpt.next.wrapping_add(1);
        }
        excerpt
    }
}

static MESSAGES: Mutex<Messages> = Mutex::new(Messages::new());
static LISTENER: OnceLock<Listener> = OnceLock::new();

thread_local! {
    /// Whoever is called may make calls that fail.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Has this called with each message from now on. It must not call anybody under a lock that a
/// message could want.
pub(crate) fn set_listener(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// Uses the messages that are kept.
pub(crate) fn with<T>(act: impl FnOnce(&Messages) -> T) -> T {
    act(&MESSAGES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Notes an error message: one line, without its end.
#[cold]
pub(crate) fn note(text: &str) {
    if IS_TELLING.replace(true) {
        return;
    }
    let line = line_of(SystemTime::now(), gettid().as_raw_nonzero().get(), text);
    let number = MESSAGES.try_lock().ok().map(|mut messages| {
        messages.add(&line);
        messages.next()
    });
    match file() {
        Target::Nowhere => {}
        // What cannot be written must not disturb the program.
        Target::Stdout => drop(std::io::stdout().write_all(line.as_bytes())),
        Target::Stderr => drop(std::io::stderr().write_all(line.as_bytes())),
        Target::File(file) => drop((&mut &*file).write_all(line.as_bytes())),
    }
    if let (Some(listener), Some(number)) = (LISTENER.get(), number) {
        listener(number as usize, line.trim_end());
    }
    IS_TELLING.set(false);
}

/// As the manual shows it: time (UTC), thread, source, severity, message.
fn line_of(at: SystemTime, thread: i32, text: &str) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs() % 86_400, since.subsec_millis());
    format!("[{:02}:{:02}:{:02}.{millis:03}][{thread}][CUDA][E] {text}\n", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

enum Target {
    Nowhere,
    Stdout,
    Stderr,
    File(File),
}

/// Not what a caller names who has fewer rights than this program.
fn file() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| match trust::variable(FILE_VARIABLE) {
        None => Target::Nowhere,
        Some(name) if name.is_empty() => Target::Nowhere,
        Some(name) if name == "stdout" => Target::Stdout,
        Some(name) if name == "stderr" => Target::Stderr,
        Some(path) => OpenOptions::new().create(true).append(true).open(path).map_or(Target::Nowhere, Target::File),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn messages_are_read_once_and_whole() {
        let mut messages = Messages::new();
        assert_eq!(messages.read(0, 100), Excerpt { text: String::new(), next: 0 });
        ["one\n", "two\n", "three\n"].iter().for_each(|line| messages.add(line));
        assert_eq!(messages.read(0, 100), Excerpt { text: "one\ntwo\nthree\n".into(), next: 3 });
        assert_eq!(messages.read(0, 9), Excerpt { text: "one\ntwo\n".into(), next: 2 });
        assert_eq!(messages.read(2, 100), Excerpt { text: "three\n".into(), next: 3 });
        assert_eq!(messages.read(0, 3), Excerpt { text: String::new(), next: 0 });
        assert_eq!(messages.read(7, 100), Excerpt { text: String::new(), next: 3 }, "a number from nowhere");
    }

    #[test]
    fn old_messages_make_room_and_that_is_said() {
        let mut messages = Messages { first: u32::MAX - 3, ..Messages::new() };
        let begin = messages.next();
        let line = format!("{}\n", "x".repeat(999));
        (0..30).for_each(|_| messages.add(&line));
        assert_eq!((messages.lines.len(), messages.bytes, messages.next()), (25, 25_000, begin.wrapping_add(30)));
        let Excerpt { text, next } = messages.read(begin, usize::MAX);
        assert!(text.starts_with(LOST) && text.len() == LOST.len() + 25_000 && next == messages.next(), "{next}");
    }

    #[test]
    fn lines_are_as_the_manual_shows_them() {
        let at = UNIX_EPOCH + Duration::from_millis(86_400_000 * 3 + 80_492_099);
        assert_eq!(line_of(at, 25642, "buffer cannot be NULL"), "[22:21:32.099][25642][CUDA][E] buffer cannot be NULL\n");
    }
}
