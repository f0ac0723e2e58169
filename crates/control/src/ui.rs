//! The text side of the `control` socket.
//!
//! Two kinds of visitors: our front end, which greets with [`GREETING`] and gets each answer closed by [`END`] and a status byte; and people
//! with a plain tool (`socat`), who get the text alone. Whoever sends anything but printable text, or nothing at all, is refused at once: NVIDIA's
//! own libraries look for their daemon under the same name and must not be left hanging.

use crate::answer::answer;
use crate::command::Command;
use crate::daemon::Daemon;
use rustix::net::sockopt::socket_peercred;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// First line of our front end.
pub(crate) const GREETING: &str = "cumux-ui 1";
/// After an answer; the front end's status byte follows.
pub(crate) const END: u8 = 4;

/// How long a visitor may take for the first byte.
const SILENCE: Duration = Duration::from_secs(2);
/// Longest line of a command.
const LONGEST_LINE: u64 = 4096;

/// Serves one visitor to the end.
pub(crate) fn serve(daemon: &Arc<Daemon>, stream: &UnixStream) {
    let Ok(peer) = socket_peercred(stream) else { return daemon.note("User did not send valid credentials") };
    let user = peer.uid.as_raw();
    let privileged = user == 0 || user == rustix::process::geteuid().as_raw();
    let mut input = BufReader::new(stream);
    let Some(first) = first_line(stream, &mut input) else { return daemon.note("User did not send valid credentials") };
    daemon.note("NEW UI");
    let framed = first == GREETING;
    let mut next = if framed { read_line(&mut input) } else { Some(first) };
    while let Some(line) = next {
        if !reply(daemon, stream, &line, privileged, framed) {
            break;
        }
        next = read_line(&mut input);
    }
    daemon.note("UI closed");
}

/// Answers one line; false when the visitor has gone or the daemon ends.
fn reply(daemon: &Arc<Daemon>, mut stream: &UnixStream, line: &str, privileged: bool, framed: bool) -> bool {
    let command = Command::parse(line);
    if command != Command::Nothing {
        daemon.note(&format!("Cmd:{}", line.trim()));
    }
    let ends = privileged && matches!(command, Command::Quit { .. });
    let quiet = command == Command::StatusJson;
    let answer = answer(daemon, command, privileged);
    if !quiet {
        for line in answer.text.lines() {
            daemon.note(line);
        }
    }
    let mut bytes = answer.text.into_bytes();
    if framed {
        bytes.extend([END, answer.status]);
    }
    stream.write_all(&bytes).is_ok() && !ends
}

/// The first line, if it is text and comes in time.
fn first_line(stream: &UnixStream, input: &mut BufReader<&UnixStream>) -> Option<String> {
    stream.set_read_timeout(Some(SILENCE)).ok()?;
    let begins_as_text = input.fill_buf().ok()?.first().is_some_and(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    if !begins_as_text {
        return None;
    }
    let line = read_line(input);
    // People type slowly; only the beginning is hurried.
    stream.set_read_timeout(None).ok()?;
    line
}

/// One line of text without its end; nothing at the end of input or for what is no text.
fn read_line(input: &mut BufReader<&UnixStream>) -> Option<String> {
    let mut line = Vec::new();
    let read = io::Read::by_ref(input).take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
    let whole = line.last() == Some(&b'\n') || (read as u64) < LONGEST_LINE;
    if read == 0 || !whole {
        return None;
    }
    let text = String::from_utf8(line).ok()?;
    let text = text.trim_end_matches(['\n', '\r']);
    (!text.chars().any(|c| c.is_control() && c != '\t')).then(|| text.to_owned())
}
