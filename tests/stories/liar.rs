//! A client that lies in every field of the ring: it hurts itself alone.

use cumux_link::Connection;
use cumux_link::connection::exactly;
use cumux_ring::client::RingClient;
use cumux_ring::file::Mapping;
use cumux_ring::memory::{Memory as _, Ordering};
use cumux_testkit::Node;
use cumux_wire::layout;
use cumux_wire::message::{Hello, Reply};
use cumux_wire::record::{Header, Launch, NO_ANSWER, NO_STREAM, Op, encode};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A session of this test process, without a shim in between.
struct Stranger {
    client: RingClient,
    ring: Mapping,
    page: Mapping,
    /// The open file that server and executor have, too.
    doorbell: OwnedFd,
    _rest: Vec<OwnedFd>,
}

impl Stranger {
    fn come(node: &Node) -> Self {
        let connection = Connection::connect(&node.pipe().join("cumux")).unwrap();
        let hello = Hello::Client { version: cumux_wire::VERSION, pid: std::process::id(), environment: Vec::new(), program: "liar".into() };
        connection.send(&hello, &[]).unwrap();
        let (reply, descriptors) = connection.receive::<Reply>().unwrap();
        assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
        let [ring, page, window, doorbell, server, keeper] = exactly(descriptors).unwrap();
        Self {
            client: RingClient::map(&ring, &page, doorbell.try_clone().unwrap()).unwrap(),
            doorbell,
            ring: Mapping::of(&ring, layout::ring::BYTES).unwrap(),
            page: Mapping::of(&page, layout::page::BYTES).unwrap(),
            _rest: vec![window, server, keeper],
        }
    }

    /// Puts bytes into the ring as they are and rings; returns when the executor has read them or
    /// has stopped listening.
    fn say(&self, bytes: &[u8]) {
        self.ring.write(layout::ring::DATA, bytes);
        self.head(bytes.len() as u64);
    }

    fn head(&self, head: u64) {
        self.ring.store64(layout::ring::HEAD, head, Ordering::SeqCst);
        // The doorbell, as an honest push would ring it.
        self.client.set_host_done(layout::STREAMS as u32 - 1, 0);
        let until = Instant::now() + Duration::from_secs(20);
        let heard = || self.client.sticky() != 0 || self.page.load64(layout::page::TAKEN, Ordering::SeqCst) >= head;
        assert!(self.client.wait(Some(until), heard), "the executor neither took the record nor refused it");
    }
}

fn record(stream: u32, answer: u32, seq: u64, op: &Op) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Header { stream, answer, seq, request: 1 }, op, &mut bytes);
    bytes
}

/// Operations that are well formed and wrong, each with what is wrong.
fn wrong_wishes() -> Vec<(&'static str, Vec<u8>)> {
    let stream = record(NO_STREAM, NO_ANSWER, 1, &Op::StreamCreate { index: 0, device: 0, priority: 0, partition: 0 });
    let far = 0x7fff_0000_0000;
    let copy = |target: u64, source: u64| Op::linear_copy(target, source, 64);
    let launch = |module: u32, function: u32| {
        Op::Launch(Launch {
            module,
            function,
            grid: [1; 3],
            block: [1024, 1, 1],
            cluster: [9; 3],
            shared: u32::MAX,
            cooperative: true,
            parameters: vec![0xff; 4096].into(),
        })
    };
    let control = |op: Op| record(NO_STREAM, 0, 1, &op);
    let streamed = |op: Op| [stream.clone(), record(0, NO_ANSWER, 1, &op)].concat();
    vec![
        ("a stream made twice", [stream.clone(), stream.clone()].concat()),
        ("a stream of another device", control(Op::StreamCreate { index: 3, device: 9, priority: i32::MIN, partition: 0 })),
        ("a stream in nobody's partition", control(Op::StreamCreate { index: 3, device: 0, priority: 0, partition: 77 })),
        ("a partition of everything and more", control(Op::PartitionOpen { partition: 1, device: 0, multiprocessors: u32::MAX })),
        ("a partition of another device", control(Op::PartitionOpen { partition: 1, device: 9, multiprocessors: 8 })),
        (
            "a partition that closes under its stream",
            [
                record(NO_STREAM, NO_ANSWER, 1, &Op::PartitionOpen { partition: 5, device: 0, multiprocessors: 8 }),
                record(NO_STREAM, NO_ANSWER, 2, &Op::StreamCreate { index: 0, device: 0, priority: 0, partition: 5 }),
                record(NO_STREAM, NO_ANSWER, 3, &Op::PartitionClose { partition: 5 }),
                record(0, NO_ANSWER, 1, &launch(1, 1)),
            ]
            .concat(),
        ),
        ("a part of another device", control(Op::PartitionPlace { partition: 1, device: 9, positions: [1, 0, 0, 0] })),
        ("a part behind the end of the share", control(Op::PartitionPlace { partition: 1, device: 0, positions: [0, 0, 0, 1 << 63] })),
        (
            "a part made twice",
            [
                record(NO_STREAM, NO_ANSWER, 1, &Op::PartitionPlace { partition: 5, device: 0, positions: [u64::MAX; 4] }),
                record(NO_STREAM, NO_ANSWER, 2, &Op::PartitionPlace { partition: 5, device: 0, positions: [1, 0, 0, 0] }),
            ]
            .concat(),
        ),
        ("the end of a partition that never was", control(Op::PartitionClose { partition: 99 })),
        ("a charge for another's window", control(Op::Charge { device: 0, address: layout::window_address(511), bytes: 512 })),
        ("a charge of everything", control(Op::Charge { device: 0, address: layout::window_address(0), bytes: u64::MAX })),
        ("a charge of another device", control(Op::Charge { device: 77, address: layout::window_address(0), bytes: 512 })),
        ("a refund that was never charged", control(Op::Refund { address: layout::window_address(0) })),
        ("work for no stream", record(77, NO_ANSWER, 1, &Op::Nop)),
        ("a sequence that jumps", [stream.clone(), record(0, NO_ANSWER, 9, &Op::Nop)].concat()),
        ("a module that is not there", streamed(launch(4, 0))),
        ("a function that is not there", streamed(launch(u32::MAX, u32::MAX))),
        ("a copy to nowhere", streamed(copy(far, layout::ARENA_BASE))),
        ("a copy from another's window", streamed(copy(layout::window_address(511), layout::window_address(510)))),
        ("a set of everything", streamed(Op::Set { target: layout::ARENA_BASE, value: 1, element: 4, width: 1 << 40, height: 1, pitch: 0 })),
        ("a value written to the executor", streamed(Op::ValueWrite { address: 0x5555_5555_0000, value: 1, bytes: 8 })),
        ("a wait for a value that is not ours", streamed(Op::ValueWait { address: far, value: 1, bytes: 4, condition: 1 })),
        ("a wait that never ends", streamed(Op::Wait { stream: 4095, seq: u64::MAX })),
        ("a free of what is not allocated", control(Op::MemFree { address: layout::ARENA_BASE })),
        ("a free in a stream", streamed(Op::FreeInStream { address: u64::MAX })),
        ("all memory there is", control(Op::MemAlloc { device: 0, bytes: u64::MAX, align: 512 })),
        ("memory of another device", control(Op::MemAlloc { device: 7, bytes: 512, align: 512 })),
        ("an image outside the window", control(Op::ModuleLoad { module: 1, device: 0, image: far, image_bytes: 1 << 20, info: 0, info_bytes: u64::MAX })),
        (
            "an image as large as the world",
            control(Op::ModuleLoad { module: 1, device: 0, image: layout::window_address(0), image_bytes: u64::MAX, info: u64::MAX, info_bytes: 8 }),
        ),
        ("a reservation of everything", control(Op::VmmReserve { bytes: 1 << 62, align: 1 << 40, fixed: layout::ARENA_BASE })),
        ("an unreserved range", control(Op::VmmUnreserve { address: layout::ARENA_BASE, bytes: u64::MAX })),
        ("a mapping over somebody", control(Op::VmmMap { address: layout::ARENA_BASE, bytes: 2 << 20, handle: 3, offset: u64::MAX })),
        ("access to the arena", control(Op::VmmAccess { address: layout::ARENA_BASE, bytes: layout::ARENA_BYTES, access: 3 })),
        ("an unmapping of the arena", control(Op::VmmUnmap { address: layout::ARENA_BASE, bytes: layout::ARENA_BYTES })),
        ("registered memory outside the window", control(Op::HostRegister { user: 0, window: far, bytes: u64::MAX })),
        ("an alias of the arena", control(Op::HostRegister { user: layout::ARENA_BASE, window: layout::window_address(0), bytes: 1 << 30 })),
        ("an impossible limit", control(Op::LimitSet { limit: u32::MAX, value: u64::MAX })),
        ("an attribute of nothing", control(Op::FunctionSet { module: 1, function: 1, attribute: u32::MAX, value: -1 })),
        ("the end of a stream that never was", control(Op::StreamDestroy { index: 4000 })),
        ("a window that is not ours", control(Op::WindowUse { address: layout::window_address(511), bytes: u64::MAX })),
        ("a reset in between", control(Op::Reset)),
    ]
}

/// Bytes that are no records at all.
fn noise() -> Vec<(&'static str, Vec<u8>)> {
    let good = record(NO_STREAM, 0, 1, &Op::MemAlloc { device: 0, bytes: 512, align: 512 });
    let mut out = Vec::new();
    for (what, at, value) in
        [("length 0", 0, 0_u32), ("length of the ring", 0, 1 << 20), ("a length that is no multiple of 8", 0, 41), ("an unknown operation", 4, 999)]
    {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        out.push((what, bytes));
    }
    for (what, at, value) in [("a stream for what has none", 8, 5_u32), ("answer slot 64", 12, 64), ("answer slot 4 billion", 12, u32::MAX - 1)] {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        out.push((what, bytes));
    }
    // A generator of our own with a fixed seed: every run tells the same lies.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..24 {
        let mut bytes = good.clone();
        for _ in 0..1 + next() % 4 {
            let at = (next() % bytes.len() as u64) as usize;
            bytes[at] = next() as u8;
        }
        out.push(("a few wrong bytes", bytes));
    }
    out.push(("nothing but noise", (0..512).map(|_| next() as u8).collect()));
    out
}

#[test]
fn a_client_lies_in_every_field() {
    let node = Node::start();
    let neighbour = node.test_client("busy").args(&["12", "3"]).start();
    neighbour.wait_for_line("ready");
    let executor = node.server().executor;
    for (what, bytes) in noise().into_iter().chain(wrong_wishes()) {
        Stranger::come(&node).say(&bytes);
        assert_eq!(node.server().executor, executor, "{what}: the executor is another one");
    }
    for head in [u64::MAX, 1, 7, 1 << 40, layout::ring::DATA_BYTES as u64 + 8] {
        let stranger = Stranger::come(&node);
        stranger.head(head);
        assert_ne!(stranger.client.sticky(), 0, "a head of {head} is a lie");
    }
    assert_eq!(node.server().takeovers, 0);
    let alone = Node::start().test_client("busy").args(&["12", "3"]).start().expect_ok();
    assert_eq!(neighbour.expect_ok(), alone, "the neighbour's results are right");
}

/// The doorbell is one open file of client and executor. The client makes it one on which a read
/// waits, and reads whatever is rung before the executor could.
#[test]
fn a_client_reads_its_own_doorbell() {
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let before = node.server();
    let stranger = Stranger::come(&node);
    let flags = rustix::fs::fcntl_getfl(&stranger.doorbell).unwrap();
    rustix::fs::fcntl_setfl(&stranger.doorbell, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
    for _ in 0..3 {
        let doorbell = stranger.doorbell.try_clone().unwrap();
        // They end with this process.
        std::thread::spawn(move || while rustix::io::read(&doorbell, &mut [0; 8]).is_ok() {});
    }
    for _ in 0..4 {
        for _ in 0..2000 {
            rustix::io::write(&stranger.doorbell, &1_u64.to_ne_bytes()).unwrap();
            std::thread::yield_now();
        }
        node.client("vector_add").args(&["1"]).start().expect_ok();
    }
    let after = node.server();
    assert_eq!((after.executor, after.takeovers), (before.executor, 0), "nobody was waited for, and so nobody was replaced");
}
