//! A server's state, fed with what the daemon, keepers, executors and strangers say in packets,
//! with pretended processes and a clock that the bytes move.
//!
//! Whatever happens: when it is told to end it comes to its end, and no client waits for ever.

use crate::bytes::Bytes;
use crate::messages::{self, CLIENTS};
use cumux_link::{Connection, LinkError};
use cumux_ring::client::RingClient;
use cumux_server::fuzzing::{Bench, USER};
use cumux_wire::VERSION;
use cumux_wire::message::{DeviceFacts, FromExecutor, Grant, Hello, Home, Reply, Scope, ToServer};
use cumux_wire::share::Share;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Steps in one run.
const MOST: usize = 64;

/// A folder of this process; the server's files in it are overwritten by the next one.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("cumux-fuzz-server-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    })
}

struct World<'b, 'd> {
    bytes: &'b mut Bytes<'d>,
    bench: Bench,
    requests: u64,
    /// Other ends of connections: they stay open until the run is over.
    ends: Vec<Connection>,
    /// Clients by their processes, and where they wait for their answers.
    clients: Vec<(u32, Connection)>,
    /// Executors that have said hello.
    come: BTreeSet<u32>,
    beats: u64,
}

/// # Panics
/// The server does not do what it should.
pub fn run(bytes: &mut Bytes<'_>) {
    let heartbeat = bytes.one_in(2);
    let mut world =
        World { bytes, bench: Bench::new(folder(), heartbeat), requests: 0, ends: Vec::new(), clients: Vec::new(), come: BTreeSet::new(), beats: 0 };
    if !world.bytes.one_in(8) {
        // As a server usually begins, so that what follows finds one that serves.
        world.bench.keeper_comes();
        let connection = world.connection();
        world.bench.daemon_comes(connection);
        world.right_executor_comes();
        world.executor_says_what_it_should();
        world.client_comes();
        world.executor_says_what_it_should();
    }
    for _ in 0..MOST {
        if world.bytes.is_empty() || world.bench.is_done() {
            break;
        }
        world.step();
    }
    world.end();
}

impl World<'_, '_> {
    /// One end for the server; the other one stays open.
    fn connection(&mut self) -> Connection {
        let (ours, theirs) = Connection::pair().expect("a pair of sockets");
        self.ends.push(ours);
        theirs
    }

    fn step(&mut self) {
        match self.bytes.below(24) {
            // What should happen.
            16..=18 => self.executor_says_what_it_should(),
            19 | 20 => self.right_executor_comes(),
            21 | 22 => self.client_comes(),
            0 | 23 => self.bench.keeper_comes(),
            1 => {
                let connection = self.connection();
                self.bench.daemon_comes(connection);
            }
            2 | 3 => self.executor_comes(),
            4..=6 => self.executor_says(),
            7..=9 => self.daemon_says(),
            10 => {
                let (keepers, executors) = self.bench.running();
                let all = [keepers, executors].concat();
                if !all.is_empty() {
                    let pid = self.bytes.pick(&all);
                    if self.bytes.one_in(4) { self.bench.stop_process(pid) } else { self.bench.end_process(pid) }
                }
            }
            11 => {
                let pid = self.bytes.pick(&CLIENTS);
                self.bench.end_process(pid);
            }
            12 => {
                let milliseconds = self.bytes.pick(&[1, 100, 1000, 2500, 61_000]);
                self.bench.wait(Duration::from_millis(milliseconds));
            }
            13 => self.stranger_comes(),
            14 => {
                let exhausted = self.bytes.one_in(2);
                self.bench.exhaust(exhausted);
            }
            _ => self.bench.daemon_goes(),
        }
    }

    /// An executor that the server has started and that has not come yet says a proper hello.
    fn right_executor_comes(&mut self) {
        let (_, executors) = self.bench.running();
        for pid in executors {
            if self.come.insert(pid) {
                let device = DeviceFacts {
                    id: "sim:h200".into(),
                    name: "H200".into(),
                    uuid: [1; 16],
                    pci: [0; 3],
                    memory: 1 << 37,
                    attributes: [(cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132)].into(),
                    capabilities: cumux_wire::facts::Capabilities::default(),
                };
                let hello = Hello::Executor { version: VERSION, pid, generation: 0, serving: false, devices: vec![device], scope: Scope::Shared, stripe: 0, first_queue: 0 };
                let connection = self.connection();
                self.bench.hello(connection, hello);
                return;
            }
        }
    }

    /// The executor that serves, or should, answers as a good one does.
    fn executor_says_what_it_should(&mut self) {
        let (generation, sessions) = (self.bench.generation(), self.bench.sessions());
        for worker in self.bench.executors() {
            let active = FromExecutor::Active { generation, resumed: sessions.clone(), lost: Vec::new(), suspects: Vec::new() };
            self.bench.executor(worker, active, Vec::new());
            for session in &sessions {
                self.bench.executor(worker, FromExecutor::Attached { session: *session, error: String::new(), again: false }, Vec::new());
            }
            self.beats += 1;
            self.bench.executor(worker, FromExecutor::Beat { lanes: vec![self.beats] }, Vec::new());
        }
    }

    fn client_comes(&mut self) {
        let pid = self.bytes.pick(&CLIENTS);
        let hello = Hello::Client { version: VERSION, pid, environment: Vec::new(), program: "./a.out".into() };
        let grant = Grant { share: Share::ALL, priority: 0, devices: vec![(0, 0)], sms: Vec::new(), home: Home::Shared, group: None };
        let (ours, theirs) = Connection::pair().expect("a pair of sockets");
        self.clients.push((pid, ours));
        let process = self.bench.handle_of(pid);
        self.bench.daemon(ToServer::Client { hello, pid, uid: USER, grant }, vec![theirs.into(), process]);
    }

    fn executor_comes(&mut self) {
        let (_, executors) = self.bench.running();
        let hello = messages::hello(self.bytes, &executors);
        let packet = messages::packet(self.bytes, &hello);
        if let Some((hello @ Hello::Executor { .. }, _)) = messages::through::<Hello>(&packet, &[]) {
            let connection = self.connection();
            self.bench.hello(connection, hello);
        }
    }

    /// Somebody who says whatever and hangs up.
    fn stranger_comes(&mut self) {
        let (keepers, executors) = self.bench.running();
        let hello = messages::hello(self.bytes, &[keepers, executors].concat());
        let packet = messages::packet(self.bytes, &hello);
        // An executor that has hung up is told of by another thread, in its own time.
        if let Some((hello, _)) = messages::through::<Hello>(&packet, &[])
            && !matches!(hello, Hello::Executor { .. })
        {
            let (ours, theirs) = Connection::pair().expect("a pair of sockets");
            drop(ours);
            self.bench.hello(theirs, hello);
        }
    }

    fn executor_says(&mut self) {
        let executors = self.bench.executors();
        if executors.is_empty() {
            return;
        }
        let worker = self.bytes.pick(&executors);
        let message = messages::from_executor(self.bytes, &self.bench.sessions(), self.bench.generation());
        let packet = messages::packet(self.bytes, &message);
        let descriptors = messages::descriptors(self.bytes);
        if let Some((message, descriptors)) = messages::through::<FromExecutor>(&packet, &descriptors) {
            self.bench.executor(worker, message, descriptors);
        }
    }

    fn daemon_says(&mut self) {
        self.requests += 1;
        let message = messages::to_server(self.bytes, self.requests);
        let packet = messages::packet(self.bytes, &message);
        let (ours, theirs) = Connection::pair().expect("a pair of sockets");
        // Mostly with the client's socket and the handle of its process, and nothing else.
        let of_client = if let ToServer::Client { pid, .. } = &message { *pid } else { 0 };
        let descriptors: Vec<OwnedFd> =
            if self.bytes.one_in(16) { messages::descriptors(self.bytes) } else { vec![theirs.into(), self.bench.handle_of(of_client)] };
        let socket = descriptors.len() == 2;
        if let Some((message, descriptors)) = messages::through::<ToServer>(&packet, &descriptors) {
            if let ToServer::Client { pid, .. } = &message
                && socket
            {
                self.clients.push((*pid, ours));
            }
            self.bench.daemon(message, descriptors);
        }
    }

    /// The server is told to end, and its time passes.
    fn end(mut self) {
        self.bench.exhaust(false);
        self.bench.stop();
        for _ in 0..50 {
            if self.bench.is_done() {
                break;
            }
            self.bench.wait(Duration::from_secs(3));
        }
        assert!(self.bench.is_done(), "the server does not come to its end: {:?} still run", self.bench.running());
        for (pid, connection) in &self.clients {
            connection.set_timeout(Some(Duration::from_millis(1))).expect("a socket");
            match connection.receive::<Reply>() {
                Ok((Reply::Welcome { .. }, files)) => {
                    let [ring, page, ..] = files.as_slice() else { panic!("a welcome without files") };
                    let client = RingClient::map(ring, page, eventfd(0, EventfdFlags::NONBLOCK).expect("a counter")).expect("files of a session");
                    assert!(client.sticky() != 0 || self.bench.has_ended(*pid) || self.has_come_again(*pid), "client {pid} waits for a server that has ended");
                }
                Ok((Reply::Refused { why, .. }, _)) => assert!(!why.is_empty(), "a refusal says why"),
                Err(LinkError::Closed) => {}
                Err(other) => panic!("client {pid} is neither answered nor let go: {other}"),
            }
        }
    }

    /// A process has one session: who comes again has given up the one before.
    fn has_come_again(&self, pid: u32) -> bool {
        self.clients.iter().filter(|(other, _)| *other == pid).count() > 1
    }
}
