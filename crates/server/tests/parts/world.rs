//! The story's side: it plays the daemon and the clients' programs.

use super::{FOLDER, LOSE, MODE, NAME_AGAIN, NOTICE, SPARED, SPARED_NO_MORE, SPEAK, UNEXPLAINED, again};
use cumux_link::connection::exactly;
use cumux_link::pulse::{self, Motion};
use cumux_link::{Connection, Listener, Process};
use cumux_ring::service::Service;
use cumux_wire::VERSION;
use cumux_wire::cuda::DeviceAttribute;
use cumux_wire::layout::page;
use cumux_wire::message::{FromServer, Grant, Hello, Home, Reply, ServerStatus, ToServer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Long after which a story counts as hung.
const WATCHDOG: Duration = Duration::from_secs(30);

pub struct World {
    pub folder: PathBuf,
    mode: String,
    listener: Listener,
    daemon: Connection,
    server: Child,
    request: u64,
}

impl World {
    /// A server that is ready.
    pub fn new(mode: &str) -> Self {
        let world = Self::unready(mode);
        world.expect(|m| matches!(m, FromServer::Ready { devices } if devices.len() == 1));
        world
    }

    /// A server that has just said hello.
    pub fn unready(mode: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cumux-story-{}-{:?}", std::process::id(), std::thread::current().id()).replace(['(', ')'], ""));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let listener = Listener::bind(&folder.join("cumux")).unwrap();
        let (server, daemon) = Self::start_until_met(&folder, mode, &listener);
        Self { folder, mode: mode.to_owned(), listener, daemon, server, request: 0 }
    }

    fn start(folder: &std::path::Path, mode: &str) -> Child {
        // As the daemon does.
        let log = std::fs::File::options().create(true).append(true).open(folder.join("server.log")).unwrap();
        let mut server = again("server", &folder.join("server-7.sock"));
        server.env(FOLDER, folder).env(MODE, mode).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// Starts servers until one says hello, as the daemon does: a server that was killed while it
    /// started a process leaves its lock to that process for a moment, and the next one ends.
    fn start_until_met(folder: &std::path::Path, mode: &str, listener: &Listener) -> (Child, Connection) {
        let begun = Instant::now();
        let mut server = Self::start(folder, mode);
        while !has_visitor(listener) {
            assert!(begun.elapsed() < WATCHDOG, "no server says hello\n{}", std::fs::read_to_string(folder.join("server.log")).unwrap_or_default());
            if server.try_wait().unwrap().is_some() {
                server = Self::start(folder, mode);
            }
        }
        (server, Self::accept_server(listener))
    }

    fn accept_server(listener: &Listener) -> Connection {
        let connection = listener.accept().unwrap();
        connection.set_timeout(Some(WATCHDOG)).unwrap();
        let (hello, _) = connection.receive::<Hello>().unwrap();
        assert!(matches!(hello, Hello::Server { version: VERSION, uid: 7, .. }), "{hello:?}");
        connection
    }

    /// The daemon dies and a new one starts.
    pub fn new_daemon(&mut self) {
        rustix::net::shutdown(&self.daemon, rustix::net::Shutdown::Both).unwrap();
        self.daemon = Self::accept_server(&self.listener);
    }

    /// The daemon dies for good.
    pub fn no_daemon(&mut self) {
        std::fs::remove_file(self.folder.join("cumux")).unwrap();
        rustix::net::shutdown(&self.daemon, rustix::net::Shutdown::Both).unwrap();
    }

    /// SIGKILL.
    pub fn kill_server(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    pub fn start_server(&mut self) {
        (self.server, self.daemon) = Self::start_until_met(&self.folder, &self.mode, &self.listener);
    }

    pub fn server_ends(&mut self) {
        assert!(self.server.wait().unwrap().success());
        assert!(!self.folder.join("server-7.json").exists() && !self.folder.join("server-7.sock").exists(), "it has cleaned up");
    }

    /// The next message that is `wanted`; others are passed over.
    pub fn expect(&self, wanted: impl Fn(&FromServer) -> bool) -> FromServer {
        let start = Instant::now();
        loop {
            // Other messages may come without end.
            assert!(start.elapsed() < WATCHDOG, "{}", self.log());
            let (message, _) = self.daemon.receive::<FromServer>().unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
            if wanted(&message) {
                return message;
            }
        }
    }

    /// A line for the daemon's log that contains `words`.
    pub fn expect_note(&self, words: &str) -> String {
        match self.expect(|m| matches!(m, FromServer::Note { text } if text.contains(words))) {
            FromServer::Note { text } => text,
            other => unreachable!("{other:?}"),
        }
    }

    pub fn expect_clients(&self, wanted: u32) {
        self.expect(|m| matches!(m, FromServer::Clients { count, .. } if *count == wanted));
    }

    pub fn tell(&self, message: &ToServer, descriptors: &[std::os::fd::BorrowedFd<'_>]) {
        self.daemon.send(message, descriptors).unwrap();
    }

    pub fn status(&mut self) -> ServerStatus {
        self.request += 1;
        let asked = self.request;
        self.tell(&ToServer::Status { request: asked }, &[]);
        match self.expect(|m| matches!(m, FromServer::Status { request, more: false, .. } if *request == asked)) {
            FromServer::Status { server, .. } => server,
            other => unreachable!("{other:?}"),
        }
    }

    /// Asks until it is so.
    pub fn status_when(&mut self, wanted: impl Fn(&ServerStatus) -> bool) -> ServerStatus {
        let start = Instant::now();
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(start.elapsed() < WATCHDOG, "{status:?}\n{}", self.log());
        }
    }

    pub fn wait_for(&self, wanted: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !wanted(self) {
            assert!(start.elapsed() < WATCHDOG, "{}", self.log());
            std::thread::yield_now();
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    /// A program says hello; nothing is waited for.
    pub fn knock_as(&self, version: u32, percentage: u32) -> FakeClient {
        let program = Command::new("sleep").arg("600").spawn().unwrap();
        self.knock_for(program, version, percentage)
    }

    pub fn knock_for(&self, program: Child, version: u32, percentage: u32) -> FakeClient {
        self.knock_with(program, version, percentage, false)
    }

    fn knock_with(&self, program: Child, version: u32, percentage: u32, hung_up: bool) -> FakeClient {
        let (mut ours, theirs) = Connection::pair().unwrap();
        ours.set_timeout(Some(WATCHDOG)).unwrap();
        let pid = program.id();
        let hello = Hello::Client { version, pid, environment: Vec::new(), program: "sleep".into() };
        let share = cumux_wire::share::Share::parse(&percentage.to_string()).unwrap_or(cumux_wire::share::Share::ALL);
        let grant = Grant { share, priority: 0, devices: vec![(0, 5 << 30)], sms: Vec::new(), home: Home::Shared, group: None };
        let process = Process::open(pid).unwrap();
        if hung_up {
            ours = Connection::pair().unwrap().0;
        }
        self.tell(&ToServer::Client { hello, pid, uid: 7, grant }, &[theirs.as_fd(), process.as_fd()]);
        FakeClient { program, connection: ours, session: 0, slot: 0, multiprocessors: 0, files: None }
    }

    /// A program says hello to a server that has no executor yet, and the server has read it. A
    /// server that ends before it has read a hello closes the connection without an answer.
    pub fn knock_and_wait(&mut self) -> FakeClient {
        let client = self.knock_as(VERSION, 0);
        // The server reads what the daemon sends in order: it has read the hello when it answers.
        self.status();
        client
    }

    /// Until then, executors that serve nobody (see `executor.rs`) say nothing.
    pub fn let_executor_speak(&self) {
        std::fs::write(self.folder.join(SPEAK), "").unwrap();
    }

    /// The executor that serves was told to spare the driver.
    pub fn is_driver_spared(&self) -> bool {
        self.folder.join(SPARED).exists()
    }

    /// A standby was told this: `RESTS` or `RESTS_NO_MORE` of `parts`.
    pub fn was_told(&self, what: &str) -> bool {
        self.folder.join(what).exists()
    }

    /// Whether the executor of this generation was told that nobody knows why the one before ended.
    pub fn is_unexplained(&self, generation: u32) -> bool {
        self.folder.join(format!("{UNEXPLAINED}{generation}")).exists()
    }

    /// It was told that it need not any more.
    pub fn is_driver_spared_no_more(&self) -> bool {
        self.folder.join(SPARED_NO_MORE).exists()
    }

    /// The device of the executor that serves looks at a fault, and the server knows.
    pub fn notice_fault(&mut self) {
        std::fs::write(self.folder.join(NOTICE), "").unwrap();
        // What the executor says comes before its answer.
        self.status_when(|status| status.clients.len() == 1);
        assert!(!self.folder.join(NOTICE).exists(), "an executor has taken it");
    }

    /// An executor that was left to one of two clients names both once more, and the server has
    /// heard it.
    pub fn name_again(&mut self) {
        std::fs::write(self.folder.join(NAME_AGAIN), "").unwrap();
        self.wait_until_taken(NAME_AGAIN);
        // What the executor says comes before its answer.
        self.status();
    }

    /// Asks for figures until an executor has taken this file.
    fn wait_until_taken(&mut self, name: &str) {
        let start = Instant::now();
        while self.folder.join(name).exists() {
            self.status();
            assert!(start.elapsed() < WATCHDOG, "{}", self.log());
        }
    }

    /// The executor that serves loses its device.
    pub fn lose_device(&mut self) {
        std::fs::write(self.folder.join(LOSE), "").unwrap();
        self.status();
    }

    /// Process number of the executor that was started as this one, in stories with a slow one.
    pub fn executor(&self, number: usize) -> u32 {
        self.wait_for(|world| world.named_executor(number).is_some());
        self.named_executor(number).unwrap()
    }

    fn named_executor(&self, number: usize) -> Option<u32> {
        std::fs::read_to_string(self.folder.join(format!("executor-{number}"))).ok()?.trim().parse().ok()
    }

    /// A program that lives and has closed its socket.
    pub fn knock_hung_up(&self) -> FakeClient {
        self.knock_with(Command::new("sleep").arg("600").spawn().unwrap(), VERSION, 0, true)
    }

    /// A program is served.
    pub fn client(&self) -> FakeClient {
        let mut client = self.knock_as(VERSION, 50);
        client.welcome();
        client
    }
}

/// Whether somebody connects; waits for a moment.
fn has_visitor(listener: &Listener) -> bool {
    let moment = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&moment)).is_ok_and(|ready| ready > 0)
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let pids = std::fs::read(self.folder.join("server-7.json")).unwrap_or_default();
        let pids: serde_json::Value = serde_json::from_slice(&pids).unwrap_or_default();
        let _ = self.server.kill();
        let _ = self.server.wait();
        for role in ["executor", "standby", "keeper"] {
            kill(u32::try_from(pids[role].as_u64().unwrap_or(0)).unwrap_or(0));
        }
        // A slow one may be neither.
        (1..).map_while(|number| self.named_executor(number)).for_each(kill);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// SIGSTOP; it stands still when this returns.
pub fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    let begun = Instant::now();
    while !is_stopped(pid) {
        assert!(begun.elapsed() < WATCHDOG, "process {pid} does not stop");
        std::thread::yield_now();
    }
}

/// Whether a signal has stopped a process.
pub fn is_stopped(pid: u32) -> bool {
    pulse::motion(pid) == Motion::Stopped
}

/// Whether a process has a file of this name open.
pub fn has_file(pid: u32, name: &str) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|path| path.to_string_lossy().contains(name))
}

/// SIGCONT.
pub fn set_going(pid: u32) {
    signal(pid, Signal::CONT);
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(process) = Process::open(pid) {
        let _ = process.signal(signal);
    }
}

pub struct Files {
    pub ring: OwnedFd,
    pub page: OwnedFd,
    pub window: OwnedFd,
    pub doorbell: OwnedFd,
    pub server: Process,
    pub keeper: Process,
}

pub struct FakeClient {
    pub program: Child,
    pub connection: Connection,
    pub session: u32,
    pub slot: u32,
    pub multiprocessors: u32,
    files: Option<Files>,
}

impl FakeClient {
    pub fn welcome(&mut self) {
        let (reply, descriptors) = self.connection.receive::<Reply>().unwrap();
        let Reply::Welcome { version: VERSION, session, window_slot, devices, parts, fixed: false } = reply else { panic!("{reply:?}") };
        // What the executor said, and that the device is shared (CU_DEVICE_ATTRIBUTE_MPS_ENABLED).
        let mut shared = super::executor::device("");
        // In DEFAULT mode for its clients, and shared.
        shared.attributes.set(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0);
        shared.attributes.set(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 1);
        assert_eq!((devices, parts.len(), parts[0].memory_limit), (vec![shared], 1, 5 << 30));
        let [ring, page, window, doorbell, server, keeper] = exactly(descriptors).unwrap();
        (self.session, self.slot, self.multiprocessors) = (session, window_slot, parts[0].multiprocessors);
        self.files = Some(Files { ring, page, window, doorbell, server: server.into(), keeper: keeper.into() });
    }

    pub fn refused(&self) -> (u32, String) {
        match self.connection.receive::<Reply>() {
            Ok((Reply::Refused { result, why }, _)) => (result, why),
            other => panic!("{other:?}"),
        }
    }

    pub fn files(&self) -> &Files {
        self.files.as_ref().unwrap()
    }

    fn page_word(&self, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        std::fs::File::from(self.files().page.try_clone().unwrap()).read_exact_at(&mut bytes, offset as u64).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn generation(&self) -> u32 {
        self.page_word(page::GENERATION)
    }

    pub fn server(&self) -> u32 {
        self.page_word(page::SERVER)
    }

    pub fn sticky(&self) -> u32 {
        Service::map(&self.files().ring, &self.files().page).unwrap().sticky()
    }

    /// SIGKILL; the process stays a zombie until this is dropped.
    pub fn kill(&mut self) {
        self.program.kill().unwrap();
    }
}

impl Drop for FakeClient {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
