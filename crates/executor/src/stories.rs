//! Sessions on the software GPU with a real keeper and no other process: what a client asks through
//! its ring, and what a successor finds.
//!
//! A takeover is played by closing a session and opening it again from its files: closing writes
//! nothing into the journal and drops nothing from the keeper.
//!
//! One file, although long: a list of stories of one world.

mod leaving;
mod lending;
mod textures;

use crate::arena::{self, GRANULE};
use crate::background::New;
use crate::cards::Cards;
use crate::error::ExecutorError;
use crate::files::Files;
use crate::intake::Intake;
use crate::mailbox::{Letter, Mailboxes, Outbox};
use crate::objects::{Change, ModuleSpec};
use crate::open::{self, Terms};
use crate::preload::Preloader;
use crate::release;
use crate::session::{Phase, Session, SessionParts, Sessions};
use crate::shared::Shared;
use crate::sink::{IntakeLanes, Leaving, Reports};
use crate::suspicion::{self, Case, Ended, Ruling};
use cumux_device::{Begun, ClientId, Device, DeviceError, Fault, GlobalsAllocator, Open, Sink};
use cumux_device_sim::{FaultTiming, Memory, Settings};
use cumux_keeper::client::Keeper;
use cumux_link::{Connection, Listener};
use cumux_ring::client::RingClient;
use cumux_ring::create;
use cumux_ring::journal::Journal;
use cumux_ring::page::Answer;
use cumux_ring::queue::Producer;
use cumux_ring::service::Service;
use cumux_wire::layout::{MARKS_BYTES, WINDOW_BYTES, journal, page, ring};
use cumux_wire::message::{ClientStatus, DeviceGrant, FromExecutor, Hello, Home, SessionConfig};
use cumux_wire::record::{self, Header, Launch, NO_ANSWER, NO_STREAM, Op, event_cell};
use cumux_wire::result;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Device memory lies at the same addresses in every test: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A keeper for all tests of a process; it ends with it.
fn keeper() -> Keeper {
    static SERVER: OnceLock<Keeper> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("cumux-executor-{}.sock", std::process::id()));
        let listener = Listener::bind(&path).unwrap();
        let socket = path.clone();
        std::thread::spawn(move || cumux_keeper::run(&socket));
        let connection = listener.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        connection.receive::<Hello>().unwrap();
        Keeper::over(connection).unwrap()
    });
    Keeper::over(server.connect().unwrap()).unwrap()
}

struct World {
    _alone: MutexGuard<'static, ()>,
    shared: Arc<Shared>,
    intake: Arc<Intake>,
    sink: Arc<Reports>,
    reports: Receiver<Letter>,
}

/// Software GPUs on a machine with enough memory.
struct Roomy;

impl Open for Roomy {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(cumux_device_sim::open_with(
            id,
            sink,
            Settings { threads: 1, watchdog: None, marks: true, memory: Memory::Own(u64::MAX), faults: FaultTiming::default() },
        )?)
    }
}

/// Software GPUs that keep no marks, as real cards do not.
struct Markless;

impl Open for Markless {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(cumux_device_sim::open_with(
            id,
            sink,
            Settings { threads: 1, watchdog: None, marks: false, memory: Memory::Own(u64::MAX), faults: FaultTiming::default() },
        )?)
    }
}

/// Software GPUs that break as a whole and load kernels one by one, as real cards do.
struct LikeACard;

impl Open for LikeACard {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        Roomy.open(&format!("{id}:card"), sink)
    }
}

impl World {
    fn new() -> Self {
        Self::with(&Roomy)
    }

    fn with(opener: &dyn Open) -> Self {
        let alone = ALONE.lock();
        let sessions = Sessions::default();
        let (outbox, reports) = Outbox::new();
        let (outbox, mailboxes) = (Arc::new(outbox), Arc::new(Mailboxes::new(1)));
        let sink = Arc::new(Reports::new(sessions.clone(), mailboxes.clone(), outbox.clone()));
        let reported: Arc<dyn Sink> = sink.clone();
        let cards = Cards::open(&["sim:l4".to_owned()], opener, &reported).unwrap();
        let shared = Arc::new(Shared::new(cards, mailboxes, outbox).unwrap());
        shared.set_keeper(1, keeper());
        let intake = Intake::new(sessions, shared.clone()).unwrap();
        sink.set_lanes(intake.clone(), Leaving::Possible);
        sink.set_shared(&shared);
        Self { _alone: alone, shared, intake, sink, reports }
    }

    fn session(&self, client: u32) -> Arc<Session> {
        self.intake.sessions().into_iter().find(|session| session.client() == client).expect("an open session")
    }

    /// Waits until the server is told who stays while all others leave.
    fn staying(&self) -> Vec<u32> {
        loop {
            if let (FromExecutor::Occupied { staying }, _) = self.reports.recv_timeout(Duration::from_secs(60)).expect("the server is told") {
                return staying;
            }
        }
    }
}

/// Guests have smaller numbers than this.
const MOST_GUESTS: u32 = 64;

/// Guests that are still there leave nothing to the next world of the same process.
impl Drop for World {
    fn drop(&mut self) {
        for client in 0..MOST_GUESTS {
            self.intake.remove(client);
            self.shared.cards.close_client(client);
            if !std::thread::panicking() {
                keeper().drop_session(client).unwrap();
            }
        }
    }
}

/// A client and its files.
struct Guest<'w> {
    world: &'w World,
    config: SessionConfig,
    files: [OwnedFd; 7],
    client: RingClient,
    producer: Producer,
    requests: u64,
}

impl<'w> Guest<'w> {
    fn new(world: &'w World, id: u32) -> Self {
        let doorbell = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let files = [
            create("ring", ring::BYTES as u64).unwrap(),
            create("page", page::BYTES as u64).unwrap(),
            create("window", WINDOW_BYTES).unwrap(),
            create("journal", journal::BYTES as u64).unwrap(),
            doorbell(),
            create("marks", MARKS_BYTES).unwrap(),
            doorbell(),
        ];
        let client = RingClient::map(&files[0], &files[1], doorbell()).unwrap();
        let parts = vec![DeviceGrant { device: 0, multiprocessors: 0, memory_limit: 0 }];
        let config = SessionConfig {
            id,
            pid: 1,
            uid: 0,
            program: "guest".into(),
            window_slot: id,
            priority: 0,
            parts,
            sms: Vec::new(),
            home: Home::Shared,
            may_run_unbounded: false,
            group: None,
        };
        let producer = client.producer();
        let guest = Self { world, config, files, client, producer, requests: 0 };
        guest.open(1).unwrap();
        guest
    }

    fn open(&self, generation: u32) -> Result<(), ExecutorError> {
        self.open_as(generation, false).map(|_| ())
    }

    fn files(&self) -> Result<Files, ExecutorError> {
        Files::new(self.files.iter().map(|file| file.try_clone().unwrap()).collect(), false)
    }

    fn open_as(&self, generation: u32, on_hold: bool) -> Result<Case, ExecutorError> {
        let terms = Terms { generation, ended: Ended::Unexplained { after: Duration::from_secs(1) }, on_hold };
        open::open(&self.world.shared, &self.world.intake, self.config.clone(), self.files()?, &terms)
    }

    fn close(&self) -> ClientStatus {
        self.world.intake.remove(self.config.id).expect("an open session").close().unwrap()
    }

    fn push(&mut self, op: &Op, answer: u32) {
        self.requests += 1;
        self.push_in(NO_STREAM, self.requests, op, answer);
    }

    fn push_in(&mut self, stream: u32, seq: u64, op: &Op, answer: u32) {
        let mut bytes = Vec::new();
        record::encode(&Header { stream, answer, seq, request: 0 }, op, &mut bytes);
        assert!(self.client.push(&mut self.producer, &bytes, || true));
        self.world.session(self.config.id).intake();
    }

    /// The answer to a request; slow ones are done on a thread of their own.
    fn ask(&mut self, op: &Op) -> Answer {
        self.push(op, 0);
        let begun = Instant::now();
        loop {
            if let Some(answer) = self.client.answer(0, self.requests) {
                return answer;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no answer to {op:?}");
            self.world.session(self.config.id).intake();
            std::thread::yield_now();
        }
    }

    fn ask_ok(&mut self, op: &Op) -> u64 {
        let answer = self.ask(op);
        assert_eq!(answer.result, result::SUCCESS, "{op:?}");
        answer.words[0]
    }

    fn tell(&mut self, op: &Op) {
        self.push(op, NO_ANSWER);
    }

    fn charged(&self) -> u64 {
        self.world.shared.charged(self.config.id)
    }
}

fn allocate(bytes: u64, align: u64) -> Op {
    Op::MemAlloc { device: 0, bytes, align }
}

/// An image with one kernel.
const IMAGE: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";

/// Puts an image into a client's window, to be loaded as this module.
fn put_image(guest: &Guest<'_>, module: u32, image: &[u8]) -> Op {
    let window = cumux_wire::layout::window_address(guest.config.id);
    rustix::io::pwrite(&guest.files[2], image, 0).unwrap();
    Op::ModuleLoad { module, device: 0, image: window, image_bytes: image.len() as u64, info: window + 4096, info_bytes: 4096 }
}

/// Programs that serve the same model bring the same image. One that is known is not copied; one
/// that differs in its last byte is another one.
#[test]
fn an_image_that_is_known_is_not_copied_and_another_one_is() {
    let world = World::new();
    let image = |last: u8| [IMAGE, b"//", &vec![b'a'; 200 << 10][..], &[last]].concat();
    let put = |guest: &Guest<'_>, last: u8| match put_image(guest, 1, &image(last)) {
        Op::ModuleLoad { module, device, image, image_bytes, info_bytes, .. } => (module, device, image, image_bytes, image + (512 << 10), info_bytes),
        other => panic!("{other:?}"),
    };
    let mut first = Guest::new(&world, 31);
    let (module, device, image, image_bytes, info, info_bytes) = put(&first, b'x');
    first.ask_ok(&Op::ModuleLoad { module, device, image, image_bytes, info, info_bytes });
    let name = world.session(31).lock().objects.modules[&1].image.clone();
    let known = world.shared.images.images.lock().find(&name).unwrap();
    let second = Guest::new(&world, 32);
    let take = |last: u8| {
        let (module, device, image, image_bytes, info, info_bytes) = put(&second, last);
        let header = Header { stream: NO_STREAM, answer: 0, seq: 1, request: 0 };
        world.session(32).take_image(&crate::background::Request { header, end: 0, module, device, image, image_bytes, info, info_bytes }).unwrap()
    };
    // What cannot be read, or has no hash as its name, is passed over.
    let length = image_bytes;
    let unsealed = std::sync::Arc::new(create("image", length).unwrap());
    for other in ["not a hash", &"0".repeat(64)] {
        world.shared.images.images.lock().learn(other, unsealed.clone(), length);
    }
    let (file, content, hash) = take(b'x');
    assert!(std::sync::Arc::ptr_eq(&file, &known) && hash.to_hex() == name && content.as_ref().last() == Some(&b'x'));
    let (file, content, hash) = take(b'y');
    assert!(!std::sync::Arc::ptr_eq(&file, &known) && hash.to_hex() != name && content.as_ref().last() == Some(&b'y'));
    first.close();
    second.close();
}

#[test]
fn what_was_released_while_it_was_mapped_goes_with_its_mapping_also_under_a_successor() {
    let world = World::new();
    let mut guest = Guest::new(&world, 1);
    let address = guest.ask_ok(&Op::VmmReserve { bytes: GRANULE, align: 0, fixed: 0 });
    guest.ask_ok(&Op::VmmCreate { handle: 7, device: 0, bytes: GRANULE });
    guest.ask_ok(&Op::VmmMap { address, bytes: GRANULE, handle: 7, offset: 0 });
    guest.tell(&Op::VmmRelease { handle: 7 });
    assert_eq!(guest.charged(), GRANULE, "it is still mapped");
    guest.close();
    guest.open(2).unwrap();
    assert_eq!(guest.charged(), GRANULE);
    assert_eq!(guest.ask(&Op::VmmMap { address, bytes: GRANULE, handle: 7, offset: 0 }).result, result::INVALID_VALUE, "the client has let go of it");
    guest.ask_ok(&Op::VmmUnmap { address, bytes: GRANULE });
    assert_eq!(guest.charged(), 0);
    guest.close();
}

/// An executor ends between two requests of a client, once before it has noted that it took the
/// second one.
#[test]
fn an_answer_outlives_its_executor_and_is_given_once() {
    let world = World::new();
    let mut guest = Guest::new(&world, 1);
    let address = guest.ask_ok(&allocate(event_cell::BYTES, 256));
    let allocated = guest.requests;
    guest.ask_ok(&Op::EventCell { address, action: event_cell::CLEAR });
    let taken = Journal::map(&guest.files[3]).unwrap().taken();
    assert_eq!(guest.ask_ok(&Op::EventCell { address, action: event_cell::RECORD }), 1);
    guest.close();
    guest.open(2).unwrap();
    assert_eq!(guest.client.answer(0, guest.requests).map(|answer| answer.words[0]), Some(1), "the one to request {allocated} was noted, and is older");
    guest.close();
    Journal::map(&guest.files[3]).unwrap().set_taken(taken);
    guest.open(3).unwrap();
    world.session(1).intake();
    assert_eq!(guest.client.answer(0, guest.requests).map(|answer| answer.words[0]), Some(1));
    assert_eq!(guest.ask_ok(&Op::EventCell { address, action: event_cell::RECORD }), 2, "the record before was counted once");
    guest.close();
}

#[test]
fn a_session_that_cannot_be_restored_leaves_nothing_behind() {
    let world = World::new();
    let mut guest = Guest::new(&world, 2);
    let address = guest.ask_ok(&allocate(4096, 256));
    let reserved = guest.ask_ok(&Op::VmmReserve { bytes: GRANULE, align: 0, fixed: 0 });
    guest.ask_ok(&Op::VmmCreate { handle: 1, device: 0, bytes: GRANULE });
    guest.ask_ok(&Op::VmmMap { address: reserved, bytes: GRANULE, handle: 1, offset: 0 });
    guest.close();
    keeper().drop_key(2, "physical-1").unwrap();
    let error = guest.open(2).unwrap_err().to_string();
    assert!(error.contains("the mapping at"), "{error}");
    assert_eq!((guest.charged(), world.intake.has(2), world.shared.fair_queues.order(0)), (0, false, vec![]));
    assert!(world.shared.arena.lock().claim(arena::ALL.start, arena::ALL.end - arena::ALL.start), "{address:#x} and {reserved:#x} are free again");
}

/// What a standby has loaded before it is needed is not loaded again: the image is not even read.
#[test]
fn a_standby_that_has_preloaded_a_module_takes_its_client_over_without_the_image() {
    const IMAGE: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 kept;\n.visible .entry k()\n{\nret;\n}\n";
    for is_preloaded in [true, false] {
        let world = World::new();
        let mut guest = Guest::new(&world, 16);
        let window = cumux_wire::layout::window_address(16);
        rustix::io::pwrite(&guest.files[2], IMAGE, 0).unwrap();
        let load = Op::ModuleLoad { module: 1, device: 0, image: window, image_bytes: IMAGE.len() as u64, info: window + 4096, info_bytes: 4096 };
        guest.ask_ok(&load);
        let mut preloader = Preloader::default();
        if is_preloaded {
            preloader.expect(&world.shared, &guest.config, &guest.files().unwrap());
            let begun = Instant::now();
            while preloader.loaded() == 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "nothing is preloaded");
                std::thread::yield_now();
            }
        }
        guest.close();
        keeper().list(16).unwrap().iter().filter(|item| item.key.starts_with("image-")).for_each(|item| keeper().drop_key(16, &item.key).unwrap());
        world.shared.forget_images();
        preloader.end();
        let taken_over = guest.open(2);
        preloader.clear(&world.shared);
        match taken_over {
            Ok(()) => {
                assert!(is_preloaded);
                guest.ask_ok(&Op::FunctionSet { module: 1, function: 0, attribute: 9, value: -1 });
                guest.close();
            }
            Err(error) => assert!(!is_preloaded && error.to_string().contains("not in the keeper"), "{error}"),
        }
    }
}

/// The journal names the kernels that a client has launched, once each. A standby loads those, and
/// goes on with those that are launched later.
#[test]
fn a_standby_loads_the_kernels_that_were_launched() {
    const IMAGE: &[u8] =
        b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry a()\n{\nret;\n}\n.visible .entry b()\n{\nret;\n}\n.visible .entry c()\n{\nret;\n}\n";
    let world = World::with(&LikeACard);
    let mut guest = Guest::new(&world, 18);
    let load = put_image(&guest, 1, IMAGE);
    guest.ask_ok(&load);
    guest.tell(&Op::StreamCreate { index: 1, device: 0, priority: 0, partition: 0 });
    let launch = |function| Op::Launch(Launch { module: 1, function, grid: [1; 3], block: [1; 3], ..Launch::default() });
    for (seq, function) in (1..).zip([2, 0, 2, 2]) {
        guest.push_in(1, seq, &launch(function), NO_ANSWER);
    }
    let used = |world: &World| world.session(18).lock().objects.modules[&1].used.clone();
    // Intake is another thread.
    let begun = Instant::now();
    let wait_for_used = |wanted: &[u32]| {
        while used(&world) != wanted.iter().copied().collect() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?} are written down", used(&world));
            // As in `Guest::ask`: one round may find the session busy.
            world.session(18).intake();
            std::thread::yield_now();
        }
    };
    wait_for_used(&[0, 2]);
    let mut preloader = Preloader::default();
    preloader.expect(&world.shared, &guest.config, &guest.files().unwrap());
    let wait_for = |preloader: &Preloader, kernels: usize| {
        while preloader.kernels() != kernels {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} kernels are preloaded", preloader.kernels());
            std::thread::yield_now();
        }
    };
    wait_for(&preloader, 2);
    guest.push_in(1, 5, &launch(1), NO_ANSWER);
    wait_for(&preloader, 3);
    preloader.end();
    guest.close();
    guest.open(2).unwrap();
    preloader.clear(&world.shared);
    guest.push_in(1, 6, &launch(1), NO_ANSWER);
    // It was written down before the takeover.
    wait_for_used(&[0, 1, 2]);
    guest.close();
}

/// A client that another executor has and that is to move here finds its modules loaded, also when
/// the takeover is long over.
#[test]
fn what_was_preloaded_waits_for_a_client_that_comes_later() {
    let world = World::new();
    let mut guest = Guest::new(&world, 17);
    let load = put_image(&guest, 1, IMAGE);
    guest.ask_ok(&load);
    let mut preloader = Preloader::default();
    preloader.expect(&world.shared, &guest.config, &guest.files().unwrap());
    let begun = Instant::now();
    let wait_for = |preloader: &Preloader, loaded: usize| {
        while preloader.loaded() != loaded {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} are preloaded", preloader.loaded());
            std::thread::yield_now();
        }
    };
    wait_for(&preloader, 1);
    preloader.end();
    preloader.clear(&world.shared);
    guest.close();
    keeper().drop_session(17).unwrap();
    world.shared.forget_images();
    // Neither keeper nor executor has the image: it is not needed.
    guest.open(2).unwrap();
    guest.ask_ok(&Op::FunctionSet { module: 1, function: 0, attribute: 9, value: -1 });
    assert!(preloader.forget(17) && !preloader.forget(17));
    preloader.clear(&world.shared);
    wait_for(&preloader, 0);
    guest.close();
}

/// The keeper has an image as long as its session has a module of it.
#[test]
fn an_image_goes_with_the_last_module_of_it() {
    let world = World::new();
    let mut guest = Guest::new(&world, 18);
    let kept = || keeper().list(18).unwrap().iter().filter(|item| item.key.starts_with("image-")).count();
    let load = put_image(&guest, 1, IMAGE);
    guest.ask_ok(&load);
    let load = put_image(&guest, 2, IMAGE);
    guest.ask_ok(&load);
    assert_eq!(kept(), 1, "the same bytes");
    guest.tell(&Op::ModuleUnload { module: 1 });
    assert_eq!(kept(), 1);
    guest.close();
    guest.open(2).unwrap();
    guest.tell(&Op::ModuleUnload { module: 2 });
    assert_eq!(kept(), 1, "it may be loaded again soon");
    let load = put_image(&guest, 3, IMAGE);
    guest.ask_ok(&load);
    guest.close();
    guest.open(3).unwrap();
    assert_eq!(kept(), 1, "it was loaded again, and a successor has it");
    guest.tell(&Op::ModuleUnload { module: 3 });
    guest.close();
    guest.open(4).unwrap();
    assert_eq!(kept(), 0, "a successor has no use for it");
    // Others than the last few are dropped, whatever else is loaded.
    for number in 4..40_u32 {
        let image = String::from_utf8_lossy(IMAGE).replace("k()", &format!("k{number:02}()"));
        let load = put_image(&guest, number, image.as_bytes());
        guest.ask_ok(&load);
        guest.tell(&Op::ModuleUnload { module: number });
    }
    let watchdog = Instant::now() + Duration::from_secs(60);
    while kept() > 16 {
        assert!(Instant::now() < watchdog, "{} images of modules that are gone", kept());
        std::thread::yield_now();
    }
    guest.close();
}

/// The intake thread serves all clients: it does not wait until the keeper has answered somebody.
#[test]
fn who_unloads_a_module_waits_for_no_call_of_the_keeper() {
    let world = World::new();
    let mut guest = Guest::new(&world, 19);
    let load = put_image(&guest, 1, IMAGE);
    guest.ask_ok(&load);
    let (shared, (held, is_held), (end, ended)) = (world.shared.clone(), mpsc::channel(), mpsc::channel::<()>());
    let call = std::thread::spawn(move || {
        let _call = shared.images.calls.lock();
        held.send(()).unwrap();
        ended.recv_timeout(Duration::from_secs(60)).is_ok()
    });
    is_held.recv().unwrap();
    guest.tell(&Op::ModuleUnload { module: 1 });
    guest.ask_ok(&allocate(512, 256));
    assert!(world.session(19).lock().objects.modules.is_empty(), "it is unloaded");
    let _ = end.send(());
    assert!(call.join().unwrap(), "the call was still under way");
    guest.close();
}

/// A successor that found a part of what the client had would give its memory out again.
#[test]
fn a_client_with_more_objects_than_its_journal_holds_is_not_restored_in_part() {
    let world = World::new();
    let mut guest = Guest::new(&world, 11);
    guest.ask_ok(&allocate(512, 256));
    let spec = ModuleSpec {
        image: "x".repeat(journal::OBJECT_BYTES),
        device: 0,
        variables: Vec::new(),
        settings: Vec::new(),
        not_resumable: None,
        used: BTreeSet::new(),
    };
    let session = world.session(11);
    session.commit(&mut session.lock(), Change::Module { id: 1, spec }, 0, None);
    guest.ask_ok(&allocate(512, 256));
    drop(session);
    guest.close();
    assert!(matches!(guest.open(2), Err(ExecutorError::Unlogged)));
    assert!(!world.intake.has(11));
}

/// A module that was being loaded when its client went asks for memory of its variables, or gives
/// it back, when everything is gone already.
#[test]
fn what_comes_after_the_end_of_a_session_changes_nothing() {
    let world = World::new();
    let mut gone = Guest::new(&world, 8);
    let address = gone.ask_ok(&allocate(100 << 20, 256));
    let session = world.session(8);
    gone.close();
    let mut other = Guest::new(&world, 9);
    assert_eq!(other.ask_ok(&allocate(100 << 20, 256)), address, "the same place");
    session.give_back(&mut session.lock(), address, 100 << 20);
    assert!(session.allocate(&mut session.lock(), 0, 4096, 256).is_err() && session.charge(0, 4096).is_err());
    let mut third = Guest::new(&world, 10);
    let next = third.ask_ok(&allocate(100 << 20, 256));
    assert!(next.abs_diff(address) >= 100 << 20, "{next:#x} is not another's {address:#x}");
    assert_eq!(world.shared.memory_info(9, 0, 0)[0], world.shared.cards.facts(0).memory - other.charged() - third.charged());
    other.close();
    third.close();
}

/// What was with a device that keeps no marks when its executor was killed: a kernel is not done
/// again, unless the executor had told whose were under way.
#[test]
fn what_is_in_doubt_is_not_done_again() {
    let world = World::with(&Markless);
    let copy = Op::linear_copy(0x10, 0x20, 4);
    let kernel = || Op::Launch(Launch { grid: [1; 3], block: [1; 3], ..Launch::default() });
    for (number, op, given, told, goes_on) in
        [(12, kernel(), true, false, false), (13, kernel(), false, false, true), (14, kernel(), true, true, true), (15, copy, true, false, true)]
    {
        let mut guest = Guest::new(&world, number);
        guest.tell(&Op::StreamCreate { index: 1, device: 0, priority: 0, partition: 0 });
        // The callback is never called, so nothing of this ever reaches the device.
        guest.push_in(1, 1, &Op::HostCall, NO_ANSWER);
        guest.push_in(1, 2, &op, NO_ANSWER);
        let session = world.session(number);
        if given {
            session.lock().journal.set_submitted(1, 2);
        }
        if told {
            session.last_reports(Duration::from_secs(60), &Begun::Only(Vec::new()));
        }
        drop(session);
        guest.close();
        guest.open(2).unwrap();
        let sticky = guest.client.sticky();
        let said = world.session(number).status().fault;
        assert_eq!(sticky == 0, goes_on, "{op:?}, given {given}, told {told}: {sticky} {said}");
        if !goes_on {
            assert!(sticky == result::LAUNCH_FAILED && said.contains("a kernel among them"), "{sticky} {said}");
        }
        guest.close();
    }
}

/// What was said to the server of a session that was to leave.
fn released(world: &World) -> String {
    let letter = world.reports.try_iter().find_map(|(message, _)| if let FromExecutor::Released { error, .. } = message { Some(error) } else { None });
    letter.expect("an answer")
}

#[test]
fn a_session_leaves_when_its_streams_are_empty_and_comes_back_to_its_addresses() {
    let world = World::new();
    let mut guest = Guest::new(&world, 21);
    let address = guest.ask_ok(&allocate(4096, 256));
    let reserved = guest.ask_ok(&Op::VmmReserve { bytes: GRANULE, align: 0, fixed: 0 });
    guest.tell(&Op::StreamCreate { index: 1, device: 0, priority: 0, partition: 0 });
    guest.push_in(1, 1, &Op::HostCall, NO_ANSWER);
    let terms = |unless_still| release::Terms { wait: Duration::from_millis(1), unless_still };
    for (unless_still, word) in [(false, "waits for a host function"), (true, "has not moved")] {
        release::release(&world.shared, &world.intake, &world.session(21), &terms(unless_still));
        let why = released(&world);
        assert!(why.contains(word) && why.contains("try again"), "{why}");
    }
    assert_eq!(guest.ask(&allocate(1 << 40, 256)).result, result::OUT_OF_MEMORY, "it goes on here");
    guest.client.set_host_done(1, 1);
    world.session(21).intake();
    release::release(&world.shared, &world.intake, &world.session(21), &terms(true));
    assert_eq!(released(&world), "");
    assert_eq!((guest.charged(), world.intake.has(21), world.shared.fair_queues.order(0)), (0, false, vec![]));
    let mut other = Guest::new(&world, 22);
    let [own, own_reserved] = [other.ask_ok(&allocate(4096, 256)), other.ask_ok(&Op::VmmReserve { bytes: GRANULE, align: 0, fixed: reserved })];
    assert!(own.abs_diff(address) >= GRANULE && own_reserved != reserved, "its addresses stay its own: {own:#x} {own_reserved:#x}");
    world.shared.free_addresses(21);
    guest.open(2).unwrap();
    assert!(guest.charged() > 0 && guest.client.sticky() == 0);
    guest.push_in(1, 2, &Op::linear_copy(address, address + 64, 64), NO_ANSWER);
    guest.tell(&Op::MemFree { address });
    guest.close();
    other.close();
    assert!(world.shared.arena.lock().claim(arena::ALL.start, arena::ALL.end - arena::ALL.start), "nothing is left");
}

/// 12 of 22 GiB, again and again.
#[test]
fn physical_memory_that_was_never_mapped_is_the_cards_again() {
    let world = World::new();
    let mut guest = Guest::new(&world, 7);
    for handle in 0..4 {
        guest.ask_ok(&Op::VmmCreate { handle, device: 0, bytes: 12 << 30 });
        if handle % 2 == 0 {
            guest.tell(&Op::VmmRelease { handle });
        } else {
            guest.close();
            keeper().drop_session(7).unwrap();
            guest = Guest::new(&world, 7);
        }
    }
    guest.close();
}

/// An extent has no more than its granule's alignment: more would take more memory than is charged.
#[test]
fn an_alignment_beyond_that_of_extents_is_refused() {
    let world = World::new();
    let mut guest = Guest::new(&world, 3);
    assert_eq!(guest.ask(&allocate(512, 2 * GRANULE)).result, result::INVALID_VALUE);
    assert_eq!(guest.charged(), 0);
    assert!(guest.ask_ok(&allocate(512, GRANULE)).is_multiple_of(GRANULE));
    guest.close();
}

#[test]
fn a_client_that_reserves_all_it_can_takes_no_addresses_from_others() {
    let world = World::new();
    let (mut greedy, mut other) = (Guest::new(&world, 4), Guest::new(&world, 5));
    let tebibyte = Op::VmmReserve { bytes: 1 << 40, align: 0, fixed: arena::ALL.start };
    let had = (0..40).take_while(|_| greedy.ask(&tebibyte).result == result::SUCCESS).count();
    assert!((2..40).contains(&had), "{had} TiB");
    other.ask_ok(&tebibyte);
    other.ask_ok(&allocate(1 << 30, 256));
    assert_eq!(other.ask(&Op::VmmReserve { bytes: !(GRANULE - 1), align: 0, fixed: 0 }).result, result::OUT_OF_MEMORY);
    greedy.close();
    other.close();
}

/// A kernel's name is the client's to choose, and comes back in the text of its faults.
#[test]
fn the_longest_fault_fits_into_packets_with_those_of_others() {
    let world = World::new();
    let guest = Guest::new(&world, 6);
    let session = world.session(6);
    session.fault(&mut session.lock(), &Fault { result: result::LAUNCH_FAILED, text: format!("kernel at \u{1b}[2J\n{}", "x".repeat(1 << 20)) });
    assert!(session.status().fault.starts_with("kernel at \\u{1b}[2J\\nxxx"), "it goes to logs and terminals: {}", session.status().fault);
    let (ours, theirs) = Connection::pair().unwrap();
    let clients = vec![session.status(); cumux_wire::message::CLIENTS_A_PACKET];
    for report in [world.reports.recv().unwrap().0, FromExecutor::Metrics { request: 1, clients, more: false }] {
        ours.send(&report, &[]).unwrap();
        assert_eq!(theirs.receive::<FromExecutor>().unwrap().0, report);
    }
    guest.close();
}

/// A keeper that goes in the middle of an allocation: the client waits for the next keeper and gets
/// its memory, which that one has then.
#[test]
fn an_allocation_waits_for_the_next_keeper() {
    let world = World::new();
    let mut guest = Guest::new(&world, 16);
    let (ours, theirs) = Connection::pair().unwrap();
    world.shared.set_keeper(2, Keeper::over(ours).unwrap());
    drop(theirs);
    guest.push(&allocate(100 << 20, 256), 0);
    let lost = world.reports.recv_timeout(Duration::from_secs(60)).unwrap().0;
    assert_eq!(lost, FromExecutor::KeeperLost { number: 2 }, "the server is asked for another");
    assert_eq!(guest.client.answer(0, guest.requests), None, "nothing is said yet");
    world.shared.set_keeper(3, keeper());
    let requests = guest.requests;
    let begun = Instant::now();
    let answer = loop {
        if let Some(answer) = guest.client.answer(0, requests) {
            break answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    };
    assert_eq!(answer.result, result::SUCCESS);
    assert!(keeper().list(16).unwrap().iter().any(|item| item.key == format!("extent-{:x}", answer.words[0])));
    guest.close();
    keeper().drop_session(16).unwrap();
}

/// Device memory is lost with the keeper and the executor that had it mapped. Who has none, or
/// comes while there is no keeper, needs no keeper to be served.
#[test]
fn who_has_no_memory_needs_no_keeper() {
    let world = World::new();
    let (mut rich, mut poor) = (Guest::new(&world, 22), Guest::new(&world, 23));
    rich.ask_ok(&allocate(512, 256));
    poor.ask_ok(&Op::VmmReserve { bytes: GRANULE, align: 0, fixed: 0 });
    rich.close();
    poor.close();
    let (ours, theirs) = Connection::pair().unwrap();
    world.shared.set_keeper(2, Keeper::over(ours).unwrap());
    drop(theirs);
    let newcomer = Guest::new(&world, 24);
    assert!(matches!(rich.open(2), Err(ExecutorError::Keeper(_))));
    poor.open(2).unwrap();
    assert_eq!(poor.ask(&Op::MemInfo { device: 0 }).result, result::SUCCESS);
    newcomer.close();
    poor.close();
    keeper().drop_session(22).unwrap();
}

/// Work that was under way at two deaths and got nowhere: its client is told, and is held back
/// until that is decided.
#[test]
fn what_was_under_way_at_two_deaths_is_known_by_the_journal() {
    let world = World::with(&Markless);
    let mut guest = Guest::new(&world, 17);
    guest.tell(&Op::StreamCreate { index: 1, device: 0, priority: 0, partition: 0 });
    // The callback is never called, so that the copy is never given to the device in fact.
    guest.push_in(1, 1, &Op::HostCall, NO_ANSWER);
    let mut ruling = Ruling::default();
    for generation in 2..=3 {
        world.session(17).lock().journal.set_submitted(1, 1);
        guest.close();
        let case = guest.open_as(generation, true).unwrap();
        ruling = suspicion::judge(&BTreeMap::from([(17, case)]), Ended::Unexplained { after: Duration::from_secs(1) });
        assert!(!world.session(17).intake() && !world.session(17).has_more(), "it is held back");
        world.session(17).end_hold(Vec::new());
    }
    assert_eq!(ruling, Ruling { guilty: vec![17], ..Ruling::default() });
    guest.close();
}

/// A trial ends with the lead, or when its time is up.
#[test]
fn a_trial_ends_with_its_lead_or_its_time() {
    let world = World::new();
    let guest = Guest::new(&world, 18);
    let session = world.session(18);
    session.lock().phase.hold_back();
    session.end_hold(vec![7, 9]);
    assert!(!session.is_tried(false));
    session.lead_is_over(&mut session.lock(), 7);
    assert!(!session.is_tried(false));
    session.lead_is_over(&mut session.lock(), 9);
    assert!(session.is_tried(false));
    session.lock().phase.hold_back();
    session.end_hold(vec![7]);
    assert!(!session.is_tried(false) && session.is_tried(true) && session.is_tried(false));
    drop(session);
    guest.close();
}

/// What the machine has not is refused, and not counted as free.
#[test]
fn memory_that_the_machine_has_not_is_refused() {
    struct Small;
    impl Open for Small {
        fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
            Ok(cumux_device_sim::open_with(
                id,
                sink,
                Settings { threads: 1, watchdog: None, marks: true, memory: Memory::Own(96 << 20), faults: FaultTiming::default() },
            )?)
        }
    }
    let world = World::with(&Small);
    let (mut one, mut two) = (Guest::new(&world, 19), Guest::new(&world, 20));
    let info = |guest: &mut Guest<'_>| guest.ask(&Op::MemInfo { device: 0 }).words;
    let total = world.shared.cards.facts(0).memory;
    assert_eq!(info(&mut one)[..3], [96 << 20, total, 96 << 20]);
    assert_eq!(one.ask(&allocate(97 << 20, 256)).result, result::OUT_OF_MEMORY);
    let address = one.ask_ok(&allocate(64 << 20, 256));
    assert_eq!(info(&mut two)[..2], [32 << 20, total]);
    assert_eq!(two.ask(&allocate(33 << 20, 256)).result, result::OUT_OF_MEMORY);
    two.ask_ok(&allocate(32 << 20, 256));
    one.tell(&Op::MemFree { address });
    let freed = info(&mut one)[0];
    assert_eq!(freed, 64 << 20);
    one.ask_ok(&allocate(64 << 20, 256));
    one.close();
    two.close();
}
