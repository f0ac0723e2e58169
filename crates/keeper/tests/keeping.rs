//! A keeper in a thread, asked over real sockets.
#![forbid(unsafe_code)]

use cumux_keeper::Keeper;
use cumux_link::{Connection, Listener};
use cumux_wire::message::Hello;
use rustix::event::{EventfdFlags, eventfd};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread::JoinHandle;

struct Running {
    listener: Listener,
    folder: PathBuf,
    thread: JoinHandle<Result<(), cumux_keeper::KeeperError>>,
}

impl Running {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cumux-keeper-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("server.sock");
        let listener = Listener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || cumux_keeper::run(&path));
        Self { listener, folder, thread }
    }

    fn server(&self) -> Keeper {
        let connection = self.listener.accept().unwrap();
        let (hello, _) = connection.receive::<Hello>().unwrap();
        assert!(matches!(hello, Hello::Keeper { version: cumux_wire::VERSION, .. }), "{hello:?}");
        Keeper::over(connection).unwrap()
    }

    fn end(self, server: &Keeper) {
        server.quit().unwrap();
        self.thread.join().unwrap().unwrap();
        fs::remove_dir_all(self.folder).unwrap();
    }
}

fn counter(value: u32) -> OwnedFd {
    eventfd(value, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Reads (and so empties) an event counter: which file a descriptor really is.
fn value(counter: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(counter, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

#[test]
fn what_is_kept_outlives_the_server_and_goes_by_name() {
    let running = Running::start("outlives");
    let server = running.server();
    let (a, b, c) = (counter(1), counter(2), counter(3));
    server.keep(7, "files", "note \"with\" marks", &[a.as_fd(), b.as_fd()]).unwrap();
    server.keep(7, "more", "", &[c.as_fd()]).unwrap();
    server.keep(8, "files", "eight", &[c.as_fd()]).unwrap();
    server.keep(u32::MAX, "last", "", &[c.as_fd()]).unwrap();
    drop(server);
    drop((a, b));

    let server = running.server();
    let mut items = server.list(7).unwrap();
    assert_eq!(items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["files", "more"]);
    assert_eq!(items[0].note, "note \"with\" marks");
    let [a, b] = items.remove(0).exactly::<2>().unwrap();
    assert_eq!((value(&a), value(&b)), (1, 2), "the same files in the same order");

    let replacement = counter(9);
    server.keep(7, "files", "new", &[replacement.as_fd()]).unwrap();
    let items = server.list(7).unwrap();
    assert_eq!((items[0].note.as_str(), items[0].descriptors.len(), value(&items[0].descriptors[0])), ("new", 1, 9));

    server.drop_key(7, "more").unwrap();
    server.drop_session(7).unwrap();
    assert_eq!(server.list(0).unwrap().iter().map(|i| i.session).collect::<Vec<_>>(), [8, u32::MAX], "neighbours stay");
    server.drop_session(u32::MAX).unwrap();
    assert_eq!(server.list(0).unwrap().len(), 1);
    running.end(&server);
}

#[test]
fn a_connection_handed_over_serves_another_process_and_cannot_end_the_keeper() {
    let running = Running::start("handed");
    let server = running.server();
    let executor = Keeper::over(server.connect().unwrap()).unwrap();
    executor.keep(3, "extent-0", "", &[counter(5).as_fd()]).unwrap();
    assert_eq!(server.list(3).unwrap().len(), 1, "both see the same store");
    executor.quit().unwrap();
    assert!(executor.list(0).is_err(), "that connection is over");
    assert_eq!(server.list(3).unwrap().len(), 1, "the keeper is not");
    running.end(&server);
}

#[test]
fn dropping_closes_the_descriptors() {
    let running = Running::start("closes");
    let server = running.server();
    let (ours, theirs) = Connection::pair().unwrap();
    server.keep(1, "end", "", &[theirs.as_fd()]).unwrap();
    drop(theirs);
    server.drop_session(1).unwrap();
    // The pair's other end was held by the keeper alone.
    assert!(matches!(ours.receive::<Hello>(), Err(cumux_link::LinkError::Closed)));
    running.end(&server);
}

#[test]
fn nonsense_and_empty_hands_change_nothing() {
    let running = Running::start("nonsense");
    let server = running.server();
    let stranger: Connection = server.connect().unwrap().into();
    stranger.send(&"what is this", &[]).unwrap();
    let stranger = Keeper::over(stranger).unwrap();
    stranger.keep(1, "a", "", &[counter(4).as_fd()]).unwrap();
    stranger.keep(1, "a", "", &[]).unwrap();
    let items = server.list(1).unwrap();
    assert_eq!(value(&items[0].descriptors[0]), 4, "an empty packet replaces nothing");
    running.end(&server);
}
