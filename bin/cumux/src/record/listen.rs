//! The recorder's ear: a socket in a folder of its own, and one thread that hears everybody who
//! connects.

use anyhow::{Context as _, anyhow};
use cumux_link::{Connection, LinkError, Listener, trust};
use cumux_planner::observe::{Recording, Speaker};
use cumux_wire::recording::decode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Most who are heard at a time; who comes later is not.
const MOST_SPEAKERS: usize = 1024;
/// How long the thread waits before it looks whether the recording is over.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A recording that is under way.
pub struct Listening {
    path: PathBuf,
    thread: JoinHandle<Result<Recording, String>>,
    over: Sender<()>,
    _folder: TempDir,
}

impl Listening {
    /// Starts to listen.
    pub fn begin() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cumux-record-").tempdir().context("cannot make a folder for the recording: set TMPDIR")?;
        let path = folder.path().join("record");
        let listener = Listener::bind(&path).context("cannot listen for the recording")?;
        let (over, heard) = channel();
        let thread = std::thread::Builder::new().name("record".into()).spawn(move || listen(&listener, &heard)).context("cannot start a thread")?;
        Ok(Self { path, thread, over, _folder: folder })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hears what was said until now, and ends.
    pub fn end(self) -> anyhow::Result<Recording> {
        drop(self.over);
        let heard = self.thread.join().map_err(|_| anyhow!("the recording broke off"))?;
        heard.map_err(|why| anyhow!("the recording broke off: {why}"))
    }
}

fn listen(listener: &Listener, over: &Receiver<()>) -> Result<Recording, String> {
    let mut recording = Recording::default();
    let mut speakers: Vec<(Connection, Speaker)> = Vec::new();
    loop {
        let is_over = matches!(over.try_recv(), Err(TryRecvError::Disconnected));
        let ready = wait(listener, &speakers, if is_over { NOW } else { LOOK })?;
        if is_over && ready.is_empty() {
            return Ok(recording);
        }
        // From the back: who goes changes no place that is still to be looked at.
        for place in ready.into_iter().rev() {
            let Some(number) = place.checked_sub(1) else {
                let fresh = listener.accept().map_err(|error| error.to_string())?;
                let is_ours = fresh.peer().is_ok_and(|peer| trust::is_trusted(peer.uid));
                if is_ours && speakers.len() < MOST_SPEAKERS {
                    speakers.push((fresh, Speaker::Unknown));
                }
                continue;
            };
            let (connection, speaker) = &mut speakers[number];
            let heard = connection.receive_bytes().and_then(|(packet, _)| decode(&packet).map_err(|_| LinkError::Closed));
            match heard {
                Ok(packet) => recording.hear(speaker, packet),
                Err(_) => {
                    speakers.remove(number);
                }
            }
        }
    }
}

/// The places at which there is something to hear: 0 is the listener, the others follow.
fn wait(listener: &Listener, speakers: &[(Connection, Speaker)], limit: Timespec) -> Result<Vec<usize>, String> {
    let all = std::iter::once(listener.as_fd()).chain(speakers.iter().map(|(connection, _)| connection.as_fd()));
    let mut asked: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut asked, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.to_string()),
    }
    Ok(asked.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()).map(|(place, _)| place).collect())
}
