//! A card that breaks as a whole at a fault (`sim:…:card`): who is told what, and in which order.
//!
//! The promises, checked by [`check`] after every random mix: each finished piece has exactly
//! one report, in the order of its stream; what innocents had not begun has none; nothing of a
//! culprit that was under way at its fault is reported as done; the loss is said once, at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cumux_device::conformance::{Actor, Args, Loaded, Opener, Setup};
use cumux_device::{Begun, Channel, ClientId, Device, DeviceError, Fault, Image, InDoubt, Outcome, Sink, StreamId, Work};
use cumux_device_sim::{FaultTiming, Memory, Settings, open_with};
use cumux_wire::result;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

/// Where nothing is.
const NOWHERE: u64 = 0xdead_0000;

fn open_timed(sink: Arc<dyn Sink>, threads: usize, faults: FaultTiming) -> Arc<dyn Device> {
    open_with("sim:h200:card", sink, Settings { threads, watchdog: None, marks: true, memory: Memory::Own(u64::MAX), faults }).expect("opens")
}

fn soon() -> FaultTiming {
    FaultTiming { announced_after: Duration::from_millis(1), wait: Duration::from_secs(60), ..FaultTiming::default() }
}

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_timed(sink, 2, soon())
}

fn open_impatient(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_timed(sink, 2, FaultTiming { wait: Duration::from_millis(50), ..soon() })
}

/// Its faults are announced when the test has ended.
fn open_late(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_timed(sink, 2, FaultTiming { announced_after: Duration::from_secs(600), drain: Duration::ZERO, ..FaultTiming::default() })
}

/// `hold` says that it runs, and runs until it is told to end. `begin_and_trap` says so and faults.
const HELD: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry hold(.param .u64 started, .param .u64 stop)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [started];
    ld.param.u64 %rd2, [stop];
    st.volatile.global.u32 [%rd1], 1;
AGAIN:
    ld.volatile.global.u32 %r2, [%rd2];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra AGAIN;
    ret;
}
.visible .entry begin_and_trap(.param .u64 started)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [started];
    st.volatile.global.u32 [%rd1], 1;
    trap;
}
";

/// A kernel that runs until it is told to end.
struct Held {
    token: u64,
    stop: u64,
}

/// Loads it, launches it, and waits until it runs.
fn hold(client: &Actor<'_>, stream: StreamId) -> Held {
    launch_held(client, stream, &client.load(HELD.as_bytes(), &mut NoVariables).expect("loads"))
}

/// Launches it, and waits until it runs.
fn launch_held(client: &Actor<'_>, stream: StreamId, module: &Loaded) -> Held {
    let (started, stop) = (client.allocate(4), client.allocate(4));
    let token = client.launch(stream, module, "hold", 1, 32, Args::new().u64(started).u64(stop));
    client.wait_for_change(started, 0);
    Held { token, stop }
}

#[test]
fn a_device_that_is_given_up_says_whose_work_is_in_doubt() {
    let setup = Setup::new(|sink| open_timed(sink, 2, FaultTiming { drain: Duration::ZERO, wait: Duration::from_millis(300), ..soon() }));
    let (slow, good) = (setup.client(2), setup.client(3));
    let good_kernels = good.kernels();
    let p = good.allocate(4 * 64);
    let bad = setup.client(1);
    hold(&bad, bad.stream());
    let waits = slow.stream();
    let held = hold(&slow, waits);
    let behind = slow.submit(waits, Work::Nop);
    let stream = good.stream();
    good.done(good.launch(stream, &good_kernels, "add_one", 1, 64, Args::new().u64(p).u32(64)));
    // Closed with a kernel that does not end.
    drop(bad);
    let (why, begun) = setup.recorder.wait_for_loss();
    assert!(why.contains("client 1") && why.contains("kernel hold"), "{why}");
    assert_eq!(begun, Begun::Only(vec![InDoubt { client: 2, stream: waits, token: held.token }]), "what is behind it was not begun: {behind}");
    assert_eq!((slow.reports().len(), good.reports().len(), setup.recorder.faulted().len(), setup.recorder.losses().len()), (0, 1, 0, 1));
    assert!(is_lost(&good.device().submit(stream, 1, Work::Nop)));
}

struct NoVariables;

impl cumux_device::GlobalsAllocator for NoVariables {
    fn variable(&mut self, name: &str, _: u64, _: u64, _: bool) -> Result<(u64, bool), DeviceError> {
        Err(DeviceError::Invalid(format!("no variable {name} expected")))
    }
}

/// Both decisions about a late completion of the faulting kernel.
const SEEDS: [Opener; 2] = [|sink| open_timed(sink, 2, FaultTiming { seed: 0, ..soon() }), |sink| open_timed(sink, 2, FaultTiming { seed: 1, ..soon() })];

fn is_lost<T>(answer: &Result<T, DeviceError>) -> bool {
    matches!(answer, Err(DeviceError::Lost(_)))
}

#[test]
fn every_kind_of_fault_is_told_to_its_maker_and_breaks_the_card() {
    type Launch = fn(&Actor<'_>, &Loaded, u64) -> u64;
    let kinds: [(&str, u32, Launch); 5] = [
        ("illegal write", result::ILLEGAL_ADDRESS, |bad, kernels, _| bad.launch(bad.stream(), kernels, "store", 1, 1, Args::new().u64(NOWHERE).u32(1))),
        ("illegal read", result::ILLEGAL_ADDRESS, |bad, kernels, p| bad.launch(bad.stream(), kernels, "load", 1, 1, Args::new().u64(NOWHERE).u64(p))),
        ("misaligned", result::MISALIGNED_ADDRESS, |bad, kernels, p| bad.launch(bad.stream(), kernels, "store", 1, 1, Args::new().u64(p + 1).u32(1))),
        ("trap", result::LAUNCH_FAILED, |bad, kernels, _| bad.launch(bad.stream(), kernels, "trap_if", 4, 64, Args::new().u32(70))),
        ("assertion", result::ASSERT, |bad, kernels, _| bad.launch(bad.stream(), kernels, "assert_small", 1, 32, Args::new().u32(31))),
    ];
    for opener in SEEDS {
        for (kind, code, launch) in kinds {
            let setup = Setup::new(opener);
            let (bad, good) = (setup.client(1), setup.client(2));
            let kernels = bad.kernels();
            let p = bad.allocate(64);
            let token = launch(&bad, &kernels, p);
            let text = bad.fault(token, code);
            setup.expect_loss_by_fault();
            assert_eq!(setup.recorder.faulted(), [(1, Fault { result: code, text: text.clone() })], "{kind}");
            assert_eq!((bad.reports().len(), good.reports().len()), (1, 0), "{kind}");
            let (why, _) = setup.recorder.wait_for_loss();
            assert!(why.contains(&text), "{why}");
            let said = setup.recorder.text(1, Channel::Error);
            assert_eq!(said.matches("thread: [31,0,0] Assertion `threadIdx.x < limit` failed.\n").count(), usize::from(kind == "assertion"), "{kind}: {said}");
            assert_eq!(setup.recorder.text(2, Channel::Error), "");
        }
    }
}

#[test]
fn between_the_fault_and_its_announcement_everybody_else_goes_on() {
    let setup = Setup::new(open_late);
    let (bad, good) = (setup.client(1), setup.client(2));
    let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
    let p = good.allocate(4 * 64);
    let culprit = bad.launch(bad.stream(), &bad_kernels, "store", 1, 1, Args::new().u64(NOWHERE).u32(1));
    // Another stream of the culprit, too.
    bad.drain(bad.stream());
    let stream = good.stream();
    for _ in 0..50 {
        good.done(good.launch(stream, &good_kernels, "add_one", 1, 64, Args::new().u64(p).u32(64)));
    }
    assert_eq!(good.read(p, 64), vec![50; 64]);
    good.kernels();
    assert!(bad.reports().iter().all(|(_, token, _)| *token != culprit), "it is held");
    assert_eq!(setup.recorder.losses(), []);
    // Closing the culprit waits for its kernel, which never ends: the drain is over at once, but a
    // fault is about to be announced, and nothing is given up.
    std::mem::forget(bad);
}

#[test]
fn what_others_have_begun_ends_and_what_they_have_not_is_left() {
    for opener in SEEDS {
        let setup = Setup::new(opener);
        let (bad, good, idle) = (setup.client(1), setup.client(2), setup.client(3));
        let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
        let p = good.allocate(4 * 64);
        let (running, next) = (good.stream(), good.stream());
        let held = hold(&good, running);
        let behind = good.launch(running, &good_kernels, "add_one", 1, 64, Args::new().u64(p).u32(64));
        let culprit = bad.launch(bad.stream(), &bad_kernels, "store", 1, 1, Args::new().u64(NOWHERE).u32(1));
        // What comes after the announcement is accepted and never begun.
        let mut late = Vec::new();
        while late.len() < 300 {
            late.push(good.launch(next, &good_kernels, "add_one", 1, 64, Args::new().u64(p).u32(64)));
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(setup.recorder.losses().is_empty(), "the kernel that runs is waited for");
        assert!(bad.reports().is_empty(), "nobody is told before the verdict");
        good.write(held.stop, &[1]);
        setup.expect_loss_by_fault();
        good.done(held.token);
        bad.fault(culprit, result::ILLEGAL_ADDRESS);
        let done: Vec<u64> = good.reports().into_iter().filter(|(stream, ..)| *stream == next).map(|(_, token, _)| token).collect();
        assert_eq!(done, late[..done.len()], "a beginning of the stream");
        assert!(good.reports().iter().all(|(_, token, outcome)| *token != behind && matches!(outcome, Outcome::Done { .. })));
        assert_eq!(idle.reports(), []);
    }
}

#[test]
fn work_of_others_that_does_not_end_in_time_has_an_error_that_says_why() {
    let setup = Setup::new(open_impatient);
    let (bad, slow, good) = (setup.client(1), setup.client(2), setup.client(3));
    let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
    let p = good.allocate(4 * 64);
    let stream = slow.stream();
    let held = hold(&slow, stream);
    let behind = slow.submit(stream, Work::Nop);
    good.done(good.launch(good.stream(), &good_kernels, "add_one", 1, 64, Args::new().u64(p).u32(64)));
    let culprit = bad.launch(bad.stream(), &bad_kernels, "store", 1, 1, Args::new().u64(NOWHERE).u32(1));
    let said = bad.fault(culprit, result::ILLEGAL_ADDRESS);
    setup.expect_loss_by_fault();
    for token in [held.token, behind] {
        let text = slow.fault(token, result::ILLEGAL_ADDRESS);
        assert!(text.contains("another client's kernel ended the context") && text.contains("kernel hold") && text.contains(&said), "{text}");
    }
    assert_eq!(setup.recorder.faulted().iter().map(|(client, _)| *client).collect::<Vec<_>>(), [1], "it is no culprit");
}

#[test]
fn two_culprits_have_each_their_own_error() {
    let setup = Setup::new(|sink| open_timed(sink, 2, FaultTiming { announced_after: Duration::from_millis(200), ..FaultTiming::default() }));
    let (first, second, third) = (setup.client(1), setup.client(2), setup.client(3));
    let (one, two) = (first.kernels(), second.kernels());
    let store = first.launch(first.stream(), &one, "store", 1, 1, Args::new().u64(NOWHERE).u32(1));
    let trap = second.launch(second.stream(), &two, "trap_if", 1, 32, Args::new().u32(0));
    let (mine, other) = (first.wait(store), second.wait(trap));
    setup.expect_loss_by_fault();
    let code = |outcome| match outcome {
        Outcome::Fault(fault) => fault.result,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(mine), result::ILLEGAL_ADDRESS);
    // On a machine that was held up, the second had not begun when the first fault was announced.
    assert_eq!(code(other), result::LAUNCH_FAILED);
    assert_eq!((setup.recorder.faulted().len(), third.reports().len()), (2, 0));
}

#[test]
fn a_culprit_that_is_closed_before_the_announcement_changes_nothing_for_others() {
    let openers: [Opener; 2] = [
        |sink| open_timed(sink, 2, FaultTiming { announced_after: Duration::from_secs(1), seed: 0, ..soon() }),
        |sink| open_timed(sink, 2, FaultTiming { announced_after: Duration::from_secs(1), seed: 1, ..soon() }),
    ];
    for opener in openers {
        let setup = Setup::new(opener);
        let good = setup.client(2);
        let stream = good.stream();
        let token = {
            let bad = setup.client(1);
            let module = bad.load(HELD.as_bytes(), &mut NoVariables).expect("loads");
            let started = bad.allocate(4);
            let token = bad.launch(bad.stream(), &module, "begin_and_trap", 1, 1, Args::new().u64(started));
            bad.wait_for_change(started, 0);
            token
            // Closed here, as the client of a killed process is. Its kernel is held, so this waits.
        };
        setup.expect_loss_by_fault();
        assert!(is_lost(&good.device().submit(stream, 77_000, Work::Nop)));
        assert_eq!(setup.recorder.faulted().iter().map(|(client, fault)| (*client, fault.result)).collect::<Vec<_>>(), [(1, result::LAUNCH_FAILED)]);
        let reports = setup.recorder.reports(1);
        assert!(matches!(&reports[..], [(_, own, Outcome::Cancelled)] if *own == token), "{reports:?}");
        assert_eq!(good.reports(), []);
    }
}

#[test]
fn stopping_a_client_tells_it_and_does_not_stop_its_kernel() {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let kernels = client.kernels();
    let p = client.allocate(4 * 64);
    let stream = client.stream();
    let held = hold(&client, stream);
    let behind = client.launch(stream, &kernels, "add_one", 1, 64, Args::new().u64(p).u32(64));
    let fault = Fault { result: result::LAUNCH_TIMEOUT, text: "stopped by the test".into() };
    client.device().stop_client(1, fault.clone());
    for token in [held.token, behind] {
        assert_eq!(client.wait(token), Outcome::Fault(fault.clone()));
    }
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| client.device().close_client(1));
        client.write(held.stop, &[1]);
        closing.join().expect("closed, when the kernel has ended");
    });
    assert_eq!((setup.recorder.reports(1).len(), setup.recorder.losses()), (2, vec![]), "its end is not reported again");
    assert_eq!(client.read(p, 64), vec![0; 64]);
}

/// Passes when kernels that run have become long ones. Where others have the processors, they
/// become so later: only time with a processor counts.
fn grow_old() {
    let processors = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
    };
    let (clock, computed, age) = (std::time::Instant::now(), processors(), Duration::from_millis(20));
    while clock.elapsed() < age || processors() < computed + age {
        std::hint::spin_loop();
    }
}

#[test]
fn a_module_waits_for_a_quiet_card() {
    let setup = Setup::new(open);
    let (busy, loader) = (setup.client(1), setup.client(2));
    let ended = Mutex::new(false);
    let held = hold(&busy, busy.stream());
    grow_old();
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let begun = std::time::Instant::now();
            loader.kernels();
            // Either the kernel had ended, or the wait was as long as it may be.
            assert!(*ended.lock() || begun.elapsed() >= Duration::from_millis(900));
        });
        std::thread::sleep(Duration::from_millis(50));
        *ended.lock() = true;
        busy.write(held.stop, &[1]);
        loading.join().expect("loaded");
    });
    busy.done(held.token);
    // A kernel that does not end delays it, and does not prevent it.
    let held = hold(&busy, busy.stream());
    grow_old();
    loader.kernels();
    busy.write(held.stop, &[1]);
    busy.done(held.token);
}

/// A sink whose clients can go on in another process. It answers when the test says so.
struct Leaving {
    recorder: Arc<dyn Sink>,
}

/// What a [`Leaving`] and its test say to each other.
#[derive(Debug, PartialEq)]
enum Stage {
    Quiet,
    Asked(BTreeSet<ClientId>),
    Answered,
    LetGo(BTreeSet<ClientId>, Begun),
}

static STAGE: Mutex<Stage> = Mutex::new(Stage::Quiet);
static NEXT_STAGE: Condvar = Condvar::new();

impl Stage {
    fn enter(stage: Stage) {
        *STAGE.lock() = stage;
        NEXT_STAGE.notify_all();
    }

    /// Waits for one of some stages, and takes it.
    fn wait_for(is_it: fn(&Stage) -> bool) -> Stage {
        let mut stage = STAGE.lock();
        let waited = NEXT_STAGE.wait_while_for(&mut stage, |stage| !is_it(stage), Duration::from_secs(120));
        assert!(!waited.timed_out(), "still {stage:?}");
        std::mem::replace(&mut *stage, Stage::Quiet)
    }
}

impl Sink for Leaving {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        self.recorder.retired(client, stream, token, outcome);
    }
    fn text(&self, _: ClientId, _: Channel, _: &[u8]) {}
    fn occupied(&self, by: &BTreeSet<ClientId>) -> bool {
        Stage::enter(Stage::Asked(by.clone()));
        Stage::wait_for(|stage| *stage == Stage::Answered);
        true
    }
    fn let_go(&self, staying: &BTreeSet<ClientId>, begun: Begun) {
        Stage::enter(Stage::LetGo(staying.clone(), begun));
    }
}

#[test]
fn who_goes_on_elsewhere_leaves_in_doubt_what_was_begun_and_does_not_end() {
    let setup = Setup::new(|recorder| {
        // Who is closed with work that was not begun is not waited for.
        let timing = FaultTiming { long_kernel: Duration::from_millis(20), wait: Duration::from_millis(100), drain: Duration::ZERO, ..soon() };
        open_timed(Arc::new(Leaving { recorder }), 3, timing)
    });
    let (busy, leaving, loader) = (setup.client(1), setup.client(2), setup.client(3));
    let module = leaving.load(HELD.as_bytes(), &mut NoVariables).expect("loads");
    let held = hold(&busy, busy.stream());
    grow_old();
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| loader.load(HELD.as_bytes(), &mut NoVariables));
        let occupiers = BTreeSet::from([1]);
        assert_eq!(Stage::wait_for(|stage| matches!(stage, Stage::Asked(_))), Stage::Asked(occupiers.clone()));
        // So late that it is no long kernel.
        let stream = leaving.stream();
        let late = launch_held(&leaving, stream, &module);
        leaving.submit(stream, Work::Nop);
        Stage::enter(Stage::Answered);
        let in_doubt = InDoubt { client: 2, stream, token: late.token };
        assert_eq!(Stage::wait_for(|stage| matches!(stage, Stage::LetGo(..))), Stage::LetGo(occupiers, Begun::Only(vec![in_doubt])));
        assert!(matches!(loading.join().expect("returns"), Err(DeviceError::LetGo(_))));
        leaving.write(late.stop, &[1]);
        busy.write(held.stop, &[1]);
    });
    busy.done(held.token);
}

#[test]
fn a_lost_card_refuses_everything() {
    let setup = Setup::new(open);
    let bad = setup.client(1);
    let kernels = bad.kernels();
    let stream = bad.stream();
    let p = bad.allocate(64);
    let spare = setup.device.create_extent(setup.device.granule()).expect("an extent");
    bad.launch(stream, &kernels, "trap_if", 1, 1, Args::new().u32(0));
    setup.expect_loss_by_fault();
    let device = &setup.device;
    let (granule, at) = (device.granule(), setup.addresses(64));
    assert!(is_lost(&device.open_client(2, &cumux_device::ClientSpec::default(), None)));
    assert!(is_lost(&device.create_stream(1, 0)) && is_lost(&device.submit(stream, 9, Work::Nop)));
    assert!(is_lost(&device.create_extent(granule)) && is_lost(&device.map(at, std::os::fd::AsFd::as_fd(&spare), 0, granule)));
    assert!(is_lost(&device.write(p, &[1])) && is_lost(&device.read(p, &mut [0])));
    assert!(
        is_lost(&device.load_module(1, 50, Image::of(b""), &mut NoVariables)) && is_lost(&device.set_share(1, 8)) && is_lost(&device.open_partition(1, 2, 8))
    );
    assert!(is_lost(&device.set_limit(1, cumux_abi::CUlimit::CU_LIMIT_STACK_SIZE, 2048)) && is_lost(&device.use_window(1, at, 64)));
}

#[test]
fn devices_are_dropped_at_every_step_of_a_fault() {
    // Before the announcement, around it, while innocents are waited for, after the loss.
    for (announced_ms, wait_us) in [(500, 0), (0, 0), (1, 300), (1, 900), (1, 1100), (1, 2000), (0, 5000), (5, 5200)] {
        for _ in 0..5 {
            let setup = Setup::new(match announced_ms {
                0 => |sink| open_timed(sink, 2, FaultTiming { announced_after: Duration::ZERO, ..soon() }),
                1 => open,
                5 => |sink| open_timed(sink, 1, FaultTiming { announced_after: Duration::from_millis(5), ..soon() }),
                _ => |sink| open_timed(sink, 2, FaultTiming { announced_after: Duration::from_millis(500), ..soon() }),
            });
            let bad = std::mem::ManuallyDrop::new(setup.client(1));
            let kernels = bad.kernels();
            let flag = bad.allocate(4);
            bad.launch(bad.stream(), &kernels, "until", 1, 32, Args::new().u64(flag));
            bad.launch(bad.stream(), &kernels, "trap_if", 1, 1, Args::new().u32(0));
            std::thread::sleep(Duration::from_micros(wait_us));
            let recorder = setup.recorder.clone();
            drop(setup);
            assert!(recorder.losses().len() <= 1);
        }
    }
}

// ---- random mixes

/// What happens to a sink, in order.
#[derive(Debug, Clone, PartialEq)]
enum Happening {
    Retired(ClientId, StreamId, u64, Outcome),
    Faulted(ClientId),
    Lost(Begun),
}

#[derive(Default)]
struct Witness {
    happenings: Mutex<Vec<Happening>>,
}

impl Sink for Witness {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        self.happenings.lock().push(Happening::Retired(client, stream, token, outcome));
    }
    fn text(&self, _: ClientId, _: Channel, _: &[u8]) {}
    fn faulted(&self, client: ClientId, _: &Fault) {
        self.happenings.lock().push(Happening::Faulted(client));
    }
    fn lost(&self, _: &str, begun: Begun) {
        self.happenings.lock().push(Happening::Lost(begun));
    }
}

/// A piece of work of a mix.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// A kernel over so many blocks.
    Kernel(u32),
    Copy(u32),
    Mark,
    BadWrite,
    Trap,
    /// Refused without harm to others.
    BadCopy,
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        8 => (1u32..40).prop_map(Piece::Kernel),
        4 => (1u32..3 << 20).prop_map(Piece::Copy),
        2 => Just(Piece::Mark),
        1 => Just(Piece::BadWrite),
        1 => Just(Piece::Trap),
        1 => Just(Piece::BadCopy),
    ]
}

/// What was submitted of one stream.
#[derive(Default)]
struct Submitted {
    client: ClientId,
    pieces: Vec<(u64, Piece)>,
}

fn check(happenings: &[Happening], streams: &BTreeMap<StreamId, Submitted>) -> Result<(), TestCaseError> {
    let losses: Vec<usize> = happenings.iter().enumerate().filter(|(_, happening)| matches!(happening, Happening::Lost(_))).map(|(at, _)| at).collect();
    prop_assert!(losses.len() <= 1 && losses.iter().all(|at| *at == happenings.len() - 1), "lost once, and last");
    let culprits: BTreeSet<ClientId> =
        happenings.iter().filter_map(|happening| if let Happening::Faulted(client) = happening { Some(*client) } else { None }).collect();
    prop_assert_eq!(culprits.is_empty(), losses.is_empty());
    for (stream, submitted) in streams {
        let reports: Vec<(u64, &Outcome)> = happenings
            .iter()
            .filter_map(|happening| match happening {
                Happening::Retired(_, other, token, outcome) if other == stream => Some((*token, outcome)),
                _ => None,
            })
            .collect();
        let tokens: Vec<u64> = submitted.pieces.iter().map(|(token, _)| *token).collect();
        prop_assert!(reports.len() <= tokens.len());
        let reported: Vec<u64> = reports.iter().map(|(token, _)| *token).collect();
        prop_assert_eq!(&reported[..], &tokens[..reported.len()], "each once, in order, without gaps");
        for ((_, piece), (_, outcome)) in submitted.pieces.iter().zip(&reports) {
            let faults = matches!(piece, Piece::BadWrite | Piece::Trap | Piece::BadCopy);
            prop_assert!(!faults || matches!(outcome, Outcome::Fault(_)), "{:?} is never done", piece);
        }
        let first_fault = reports.iter().position(|(_, outcome)| !matches!(outcome, Outcome::Done { .. }));
        prop_assert!(
            first_fault.is_none_or(|at| reports[at..].iter().all(|(_, outcome)| matches!(outcome, Outcome::Fault(_)))),
            "nothing is done after a fault"
        );
        if culprits.contains(&submitted.client) {
            prop_assert_eq!(reported.len(), tokens.len(), "a culprit is told of everything");
        }
        let is_harmless = streams
            .values()
            .filter(|other| other.client == submitted.client)
            .all(|other| other.pieces.iter().all(|(_, piece)| !matches!(piece, Piece::BadWrite | Piece::Trap | Piece::BadCopy)));
        prop_assert!(!is_harmless || first_fault.is_none(), "an innocent has no error");
        prop_assert!(!losses.is_empty() || reported.len() == tokens.len(), "without a loss all is reported");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_mixes_keep_the_promises(
        mix in proptest::collection::vec((0u32..4, 0usize..2, piece()), 1..60),
        seed in any::<u64>(),
        announced_us in prop_oneof![Just(0u64), 0u64..3000],
        threads in 1usize..4,
    ) {
        let witness = Arc::new(Witness::default());
        let timing = FaultTiming { announced_after: Duration::from_micros(announced_us), wait: Duration::from_secs(60), long_kernel: Duration::from_secs(600), drain: Duration::from_secs(60), seed };
        static TIMING: Mutex<Option<(usize, FaultTiming, Arc<Witness>)>> = Mutex::new(None);
        // One mix at a time: an opener is a plain function.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock();
        *TIMING.lock() = Some((threads, timing, witness.clone()));
        let setup = Setup::new(|_| {
            let (threads, timing, witness) = TIMING.lock().clone().expect("set");
            open_timed(witness, threads, timing)
        });
        let mut streams: BTreeMap<StreamId, Submitted> = BTreeMap::new();
        let clients: Vec<_> = (1..5).map(|id| setup.client(id)).collect();
        let places: Vec<_> = clients.iter().map(|client| {
            let own: Vec<StreamId> = (0..2).map(|_| client.stream()).collect();
            (client.kernels(), own, client.allocate(4 * 256 * 40), client.allocate(4 << 20))
        }).collect();
        let mut token = 0;
        for (client, stream, piece) in mix {
            let (kernels, own, p, big) = &places[client as usize];
            let actor = &clients[client as usize];
            let (p, big) = (*p, *big);
            let row = |address| cumux_device::Rows { address, pitch: 0, slice: 0 };
            let work = match piece {
                Piece::Kernel(blocks) => actor.kernel(kernels, "grind", blocks, 256, Args::new().u64(p).u32(256 * 40).u32(3)),
                Piece::Copy(bytes) => Work::Set { target: big, pitch: 0, value: 5, element: 1, width: u64::from(bytes), height: 1 },
                Piece::Mark => Work::Nop,
                Piece::BadWrite => actor.kernel(kernels, "store", 1, 1, Args::new().u64(NOWHERE).u32(1)),
                Piece::Trap => actor.kernel(kernels, "trap_if", 3, 32, Args::new().u32(40)),
                Piece::BadCopy => Work::Copy { target: row(NOWHERE), source: row(p), extent: cumux_device::CopyExtent { width: 4, height: 1, depth: 1 } },
            };
            token += 1;
            match actor.device().submit(own[stream], token, work) {
                Ok(()) => {
                    let submitted = streams.entry(own[stream]).or_default();
                    submitted.client = actor.id;
                    submitted.pieces.push((token, piece));
                }
                Err(DeviceError::Lost(_)) => break,
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
        // It comes to an end: all is reported, or the card is lost.
        let total: usize = streams.values().map(|submitted| submitted.pieces.len()).sum();
        let begun = std::time::Instant::now();
        loop {
            let happenings = witness.happenings.lock();
            let reported = happenings.iter().filter(|happening| matches!(happening, Happening::Retired(..))).count();
            let is_lost = happenings.iter().any(|happening| matches!(happening, Happening::Lost(_)));
            // The fault of a kernel; the loss follows.
            let is_breaking = happenings.iter().any(|happening| matches!(happening, Happening::Retired(.., Outcome::Fault(fault)) if fault.text.starts_with("kernel ")));
            if is_lost || (reported == total && !is_breaking) {
                break;
            }
            drop(happenings);
            prop_assert!(begun.elapsed() < Duration::from_secs(120), "it does not end");
            std::thread::sleep(Duration::from_micros(200));
        }
        check(&witness.happenings.lock(), &streams)?;
        drop(clients);
        drop(setup);
        check(&witness.happenings.lock(), &streams)?;
    }
}
