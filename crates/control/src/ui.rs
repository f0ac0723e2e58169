//! The text side of the `control` socket.
//!
//! Two kinds of visitors: our front end, which greets with [`GREETING`] and gets each answer closed
//! by [`END`] and a status byte; and people with a plain tool (`socat`), who get the text alone. A
//! visitor that sends no text, or nothing at all, is refused at once: NVIDIA's own libraries look
//! for their daemon under the same name and must not be left hanging.

use crate::answer::answer;
use crate::command::Command;
use crate::daemon::Daemon;
use crate::group_commands::GroupCommand;
use crate::log::on_account_of;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// First line of our front end.
pub(crate) const GREETING: &str = "cumux-ui 1";
/// Closes an answer; the status byte follows.
pub(crate) const END: u8 = 4;

/// How long a visitor may take for the first byte, and for the rest of a line that has begun.
const SILENCE: Duration = Duration::from_secs(2);
/// Longest line of a command.
const LONGEST_LINE: u64 = 4096;

/// The next input of a visitor.
enum Input {
    Line(String),
    /// The visitor sends nothing more.
    End,
    /// A sentence for the visitor; the connection then ends.
    Wrong(&'static str),
}

const TOO_LONG: &str = "A command has at most 4096 bytes: one command a line";
const NO_TEXT: &str = "A command is printable text";
const HALF: &str = "A command came without its end within 2 seconds: end it with a new line";
/// The refusal of a connection for which there is no place.
pub(crate) const TOO_MANY: &str = "Too many programs talk to the control daemon at the same time: try again\n";

/// Serves one visitor to the end. According to the kernel, it belongs to `user`. Its process may be
/// without a process id here.
pub(crate) fn serve(daemon: &Arc<Daemon>, stream: &UnixStream, user: u32) {
    let _account = on_account_of(user);
    let privileged = user == 0 || user == rustix::process::geteuid().as_raw();
    let mut input = BufReader::new(stream);
    if !begins_as_text(stream, &mut input) {
        return daemon.note("User did not send valid credentials");
    }
    daemon.note("NEW UI");
    let mut framed = false;
    loop {
        match read_line(stream, &mut input) {
            Input::Line(line) if line == GREETING && !framed => framed = true,
            Input::Line(line) => {
                if !reply(daemon, stream, &line, privileged, framed) {
                    break;
                }
            }
            Input::End => break,
            Input::Wrong(why) => {
                daemon.note(why);
                say(stream, &format!("{why}\n"), 1, framed);
                break;
            }
        }
    }
    daemon.note("UI closed");
}

/// Sends an answer; false when the visitor has gone. Does not wait for a visitor that sends and
/// never reads.
pub(crate) fn say(mut stream: &UnixStream, text: &str, status: u8, framed: bool) -> bool {
    let mut bytes = text.as_bytes().to_vec();
    if framed {
        bytes.extend([END, status]);
    }
    stream.set_write_timeout(Some(SILENCE)).is_ok() && stream.write_all(&bytes).is_ok()
}

/// Answers one line; false when the visitor has gone or the daemon ends.
fn reply(daemon: &Arc<Daemon>, stream: &UnixStream, line: &str, privileged: bool, framed: bool) -> bool {
    let command = Command::parse(line);
    if command != Command::Nothing {
        daemon.note(&format!("Cmd:{}", line.trim()));
    }
    let ends = privileged && matches!(command, Command::Quit { .. });
    // Asked again and again by those who watch.
    let quiet = matches!(command, Command::StatusJson | Command::Group(GroupCommand::List));
    let answer = answer(daemon, command, privileged);
    if !quiet {
        for line in answer.text.lines() {
            daemon.note(line);
        }
    }
    say(stream, &answer.text, answer.status, framed) && !ends
}

/// Whether the first byte comes in time and is text.
fn begins_as_text(stream: &UnixStream, input: &mut BufReader<&UnixStream>) -> bool {
    let timely = stream.set_read_timeout(Some(SILENCE)).is_ok();
    timely && input.fill_buf().is_ok_and(|bytes| bytes.first().is_some_and(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()))
}

/// Reads one line of text without its end. Between two lines a visitor may think; a line that has
/// begun must be completed in time.
fn read_line(stream: &UnixStream, input: &mut BufReader<&UnixStream>) -> Input {
    let begun = stream.set_read_timeout(None).is_ok() && input.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
    if !begun || stream.set_read_timeout(Some(SILENCE)).is_err() {
        return Input::End;
    }
    let mut line = Vec::new();
    match io::Read::by_ref(input).take(LONGEST_LINE).read_until(b'\n', &mut line) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Input::Wrong(HALF),
        Err(_) => return Input::End,
        Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST_LINE => return Input::Wrong(TOO_LONG),
        Ok(_) => {}
    }
    let Ok(text) = String::from_utf8(line) else { return Input::Wrong(NO_TEXT) };
    let text = text.trim_end_matches(['\n', '\r']);
    if text.chars().any(|c| c.is_control() && c != '\t') { Input::Wrong(NO_TEXT) } else { Input::Line(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a visitor's bytes are taken for, one input after the other, up to the end.
    fn inputs(bytes: &[u8]) -> Vec<Result<String, &'static str>> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        let mut input = BufReader::new(&ours);
        std::iter::from_fn(|| match read_line(&ours, &mut input) {
            Input::Line(line) => Some(Ok(line)),
            Input::Wrong(why) => Some(Err(why)),
            Input::End => None,
        })
        .take(3)
        .collect()
    }

    #[test]
    fn lines_are_cut_where_they_end() {
        assert_eq!(inputs(b"ps\r\nquit\n\tstatus"), [Ok("ps".to_owned()), Ok("quit".to_owned()), Ok("\tstatus".to_owned())]);
        assert_eq!(inputs(b""), []);
        assert_eq!(inputs(b"\x1b[2J\n"), [Err(NO_TEXT)]);
        assert_eq!(inputs(b"\xff\n"), [Err(NO_TEXT)]);
    }

    /// The longest line has 4096 bytes with its end. A longer one is refused, not cut: half a
    /// command could be another command.
    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let longest = LONGEST_LINE as usize;
        let line = |letters: usize| [&b"x".repeat(letters)[..], b"\n"].concat();
        assert_eq!(inputs(&line(longest - 1)), [Ok("x".repeat(longest - 1))]);
        assert_eq!(inputs(&line(longest)).first(), Some(&Err(TOO_LONG)));
        assert_eq!(inputs(&b"x".repeat(longest)).first(), Some(&Err(TOO_LONG)), "nor is one that never ends");
        assert_eq!(inputs(&b"x".repeat(longest - 1)), [Ok("x".repeat(longest - 1))], "the last line needs no end");
    }

    /// A visitor that begins a line and does not go on is told so, instead of holding a thread.
    #[test]
    fn a_line_that_stops_halfway_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"get_serv").unwrap();
        assert!(matches!(read_line(&ours, &mut BufReader::new(&ours)), Input::Wrong(HALF)));
    }
}
