//! `cumux top`: shows who uses the card at the moment. A screen in a terminal, one table per
//! interval anywhere else.
//!
//! A thread asks the daemon for its status and sends the answers. Everything shown is a pure
//! function of the last two answers ([`view`]), so that screen and tables agree. A line reports a
//! daemon that has gone; its successor is asked as soon as it is there.

mod screen;
mod table;
mod view;

use crate::say;
use anyhow::bail;
use cumux_control::directory::{PIPE_VARIABLE, pipe_directory};
use cumux_control::{Frontend, FrontendError, PipeDirectory};
use cumux_wire::message::ServerStatus;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
pub use view::Sort;
use view::{Sample, View};

/// The shortest and the longest useful interval.
const SHORTEST: f64 = 0.05;
const LONGEST: f64 = 3600.0;
/// Width of tables that do not go to a terminal.
const PLAIN_WIDTH: usize = 140;

/// Width for the next table: the terminal may have been resized.
fn width() -> usize {
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    terminal.filter(|width| *width > 0).unwrap_or(PLAIN_WIDTH)
}

/// Runs the display and returns the exit status.
pub fn main(once: bool, interval: f64, sort: Sort) -> anyhow::Result<u8> {
    if !(SHORTEST..=LONGEST).contains(&interval) {
        bail!("an interval of {interval} seconds is of no use: choose one between {SHORTEST} and {LONGEST}");
    }
    let interval = Duration::from_secs_f64(interval);
    let pipe = pipe_directory();
    if once {
        return once_only(&pipe, interval, sort);
    }
    let samples = sampling(pipe.clone(), interval)?;
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() { screen::run(&pipe, &samples, sort) } else { tables(&pipe, &samples, sort) }
}

/// Takes two samples, one interval apart, and prints one table.
fn once_only(pipe: &Path, interval: Duration, sort: Sort) -> anyhow::Result<u8> {
    let first = take_sample(pipe);
    let quick = !matches!(&first.servers, Ok(servers) if !servers.is_empty());
    let (before, now) = if quick {
        (None, first)
    } else {
        thread::sleep(interval);
        (Some(first), take_sample(pipe))
    };
    let view = View::of(pipe, before.as_ref(), &now, sort);
    say::text(&table::page(&view, width()))?;
    Ok(u8::from(now.servers.is_err()))
}

/// Prints a table for each answer, until the reader has gone.
fn tables(pipe: &Path, samples: &Receiver<Sample>, sort: Sort) -> anyhow::Result<u8> {
    let mut before = None;
    for now in samples {
        // The first answer has no rates.
        if before.is_some() || !matches!(&now.servers, Ok(servers) if !servers.is_empty()) {
            let view = View::of(pipe, before.as_ref(), &now, sort);
            say::line(table::page(&view, width()))?;
        }
        before = Some(now);
    }
    Ok(0)
}

/// Asks the daemon at intervals, on a thread of its own: a daemon that hangs must not block the
/// keys.
fn sampling(pipe: PathBuf, interval: Duration) -> anyhow::Result<Receiver<Sample>> {
    let (sender, samples): (Sender<Sample>, _) = channel();
    let ask = move || {
        while sender.send(take_sample(&pipe)).is_ok() {
            thread::sleep(interval);
        }
    };
    thread::Builder::new().name("top".into()).spawn(ask)?;
    Ok(samples)
}

fn take_sample(pipe: &Path) -> Sample {
    let servers = ask(pipe);
    Sample { at: Instant::now(), servers }
}

fn ask(pipe: &Path) -> Result<Vec<ServerStatus>, String> {
    let shown = pipe.display();
    let none = |error| match error {
        FrontendError::Foreign(stranger) => format!("No daemon for this user: {stranger}."),
        FrontendError::Still { .. } | FrontendError::Busy => format!("{error}."),
        _ => format!("No daemon in {shown}: start one (cumux control -d), or set {PIPE_VARIABLE} to the directory of one."),
    };
    let mut daemon = Frontend::connect(&PipeDirectory::at(pipe)).map_err(none)?;
    daemon.servers().map_err(|error| match error {
        FrontendError::OtherVersion => format!("The daemon in {shown} is not cumux, or another version: restart it (echo quit | cumux control)."),
        FrontendError::Still { .. } => format!("{error}."),
        _ => format!("The daemon in {shown} went away while it was asked."),
    })
}
