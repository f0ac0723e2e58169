//! The conformance suite, and tests of what only this device does, on a real card. Set
//! `CUMUX_TEST_CUDA=cuda:0`, and run each test in a process of its own, because a fault ends the
//! process's use of the card.
//!
//! Without the variable the driver is cumux's own library: a node with a software GPU is started
//! for each test, and the test runs itself as a client of it. So most of this crate is
//! tested without a card. [`NOT_NESTED`] lists the tests
//! that need one.
//!
//! These tests of the suite are left out, because one context cannot do what they ask for:
//!
//! - Containing faults: `one_byte_past_an_allocation`, `a_freed_allocation`,
//!   `another_clients_memory`, `read_only_memory`,
//!   `a_fault_ends_everything_of_its_client_and_nothing_else`, and `a_trap` with its coordinates.
//! - Stopping the kernels of one client: `an_endless_kernel_is_stopped`,
//!   `closing_a_client_stops_its_kernels`, `revoking_waits_for_running_blocks`,
//!   `an_endless_kernel_does_not_stop_other_streams`.
//! - Registered memory at the client's own address in kernels: `windows_and_registered_memory`. The
//!   attribute `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM` says that it is not there.
//! - One variable alone: `restored_variables_keep_their_contents`. A card places all variables of a
//!   section together; the module `variables` stands in for it.
//! - The text of a device assertion: `an_assertion_says_where`. The driver prints it on a thread of
//!   its own.
//! - A kernel with 132 x 1024 threads that poll one word: `priorities_do_not_starve`. On an H200 it
//!   stops every other kernel, in a plain CUDA program, too.
//! - All of the card's memory: `a_full_card_says_so`. The context takes some.
//! - Mapping a range of an extent: `granules_are_enforced`, `mappings_exclude_each_other`. The
//!   driver maps an extent whole, or answers `NOT_SUPPORTED`.
//!   `extents_are_mapped_whole_and_once_at_an_address` stands in for them.
#![expect(clippy::disallowed_types, reason = "the test's sink is called by other threads")]

#[path = "card/announced.rs"]
mod announced;
#[path = "card/chains.rs"]
mod chains;
#[path = "card/first_uses.rs"]
mod first_uses;
#[path = "card/leaving.rs"]
mod leaving;
#[path = "card/small_copies.rs"]
mod small_copies;
#[path = "card/stalls.rs"]
mod stalls;
#[path = "card/variables.rs"]
mod variables;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cumux_device::conformance::{self, Args, Setup, memory_file};
use cumux_device::{Begun, Channel, ClientId, Device, DeviceError, Image, Outcome, Sink, StreamId, Work};
use cumux_testkit::Node;
use cumux_wire::result;

/// The card of the tests.
const CARD: &str = "CUMUX_TEST_CUDA";

/// What a test says at its end: the harness on standard output, which an open card keeps for its
/// kernels; who leaves the card open, on standard error.
const PASSED: &str = "1 passed";

/// Set where the card is a software GPU for certain.
const NESTED_ONLY: &str = "CUMUX_TEST_NESTED_ONLY";

/// Tests that need a real card's driver, and what of it.
const NOT_NESTED: [(&str, &str); 9] = [
    ("a_window_is_reached_by_kernels_and_copies_across_its_pieces", "it pins memory that processes share"),
    ("extents_are_mapped_whole_and_once_at_an_address", "it refuses to map a range of an extent"),
    ("modules::a_preloaded_module_is_adopted_with_the_variables_of_its_client", "it compiles PTX to machine code"),
    ("variables::a_table_of_functions_that_are_only_called_is_restored", "it runs machine code"),
    ("variables::compiled_code_uses_the_clients_memory_and_goes_on_there", "it runs machine code"),
    ("variables::constants_follow_every_write_and_come_back", "it runs machine code"),
    ("variables::managed_variables_lie_where_host_and_card_see_them", "it runs machine code"),
    ("variables::printf_reads_formats_in_the_clients_memory", "it compiles PTX to machine code"),
    ("variables::what_cannot_be_placed_is_told_and_not_restored", "it loads machine code"),
];

/// Tests for which a software GPU is divided among clients, too.
const DIVIDED: [&str; 3] =
    ["modules::a_cooperative_grid_that_does_not_fit", "modules::blocks_know_their_multiprocessor", "modules::partitions_at_positions_are_exactly_those"];

/// The card on which the test that calls this runs now. `None` if there is no card: then the test
/// has run already, over a software GPU, or it needs a card's driver and is left out.
fn card() -> Option<String> {
    let card = std::env::var(CARD).ok();
    if card.is_none() {
        let thread = std::thread::current();
        run_nested(thread.name().expect("the test's name"), &[]);
    }
    card
}

/// Runs a test in a process of its own, with cumux's library over a software GPU as its driver.
fn run_nested(test: &str, settings: &[(&str, &str)]) {
    if let Some((_, why)) = NOT_NESTED.iter().find(|(name, _)| *name == test) {
        return println!("left out: {test} needs a card's driver: {why}");
    }
    let node = Node::with().device("sim:h200").start();
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).envs(settings.iter().copied());
    command.env(CARD, "cuda:0").env("CUMUX_NESTED", node.pipe()).env("CUMUX_REAL_LIBCUDA", node.folder().join("lib/libcuda.so.1"));
    if DIVIDED.contains(&test) {
        command.env("CUMUX_NESTED_DIVIDES", "1");
    }
    expect_pass(test, &mut command, || node.logs());
}

/// Runs a test once more on the card on which it is, in a process of its own with these settings.
fn run_again(test: &str, settings: &[(&str, &str)]) {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).envs(settings.iter().copied());
    expect_pass(test, &mut command, String::new);
}

/// Runs this program for one of its tests, which is to pass.
fn expect_pass(test: &str, command: &mut std::process::Command, logs: impl FnOnce() -> String) {
    let output = command.output().expect("this program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let has_passed = said.contains(PASSED) || complaints.contains(PASSED);
    assert!(output.status.success() && has_passed, "{test} ({}):\n{said}\n{complaints}\n{}", output.status, logs());
}

/// Two clients have two engines, where there are two, and these submit to one context.
#[test]
fn two_engines_keep_every_stream_in_order() {
    if std::env::var(CARD).is_ok() {
        return println!("left out: set CUMUX_DISPATCHERS=2 for the other tests");
    }
    for test in ["two_clients_have_their_own_sums", "streams::each_submission_is_reported_once_and_in_order"] {
        run_nested(test, &[("CUMUX_DISPATCHERS", "2")]);
    }
}

/// Which multiprocessors the driver's groups contain the first process finds out, and notes it for
/// those that come after it.
#[test]
fn the_multiprocessors_are_looked_for_once() {
    if std::env::var(CARD).is_ok() {
        return println!("left out: set CUMUX_CARD_NOTES for the other tests");
    }
    let notes = tempfile::NamedTempFile::new().expect("a file");
    let run = || {
        run_nested("modules::partitions_at_positions_are_exactly_those", &[("CUMUX_CARD_NOTES", notes.path().to_str().expect("a path"))]);
        std::fs::read_to_string(notes.path()).expect("the file")
    };
    let first = run();
    assert_eq!(first.lines().count(), 1, "{first}");
    assert_eq!(run(), first, "the second one has it from there");
}

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    cumux_device_cuda::open(&std::env::var(CARD).expect("asked before"), sink).expect("the card opens")
}

macro_rules! suite {
    ($($module:ident: $($name:ident)*;)*) => {$(
        mod $module {
            $(#[test]
            fn $name() {
                if super::card().is_some() {
                    super::conformance::$module::$name(super::open);
                }
            })*
        }
    )*};
}

suite! {
    streams:
        work_of_a_stream_runs_in_order
        streams_run_at_the_same_time
        each_submission_is_reported_once_and_in_order
        many_blocks_all_run
        blocks_that_wait_for_each_other_meet
        blocks_that_wait_for_earlier_ones_go_on
        value_writes_and_marks_keep_the_order
        an_unknown_stream_is_an_error;
    copies:
        copies_in_one_dimension
        copies_in_two_and_three_dimensions
        overlapping_copies_are_as_through_a_buffer
        sets_of_all_widths
        long_copies_do_not_hold_up_kernels;
    faults:
        a_null_pointer
        a_misaligned_address
        a_bad_copy_faults
        launches_beyond_the_card;
    memory:
        extents_begin_zeroed_and_outlive_the_device
        reads_and_writes_outside_streams;
    modules:
        variables_are_placed_and_filled
        variables_are_filled_when_their_client_agrees
        a_preloaded_module_is_adopted_with_the_variables_of_its_client
        clients_have_variables_of_their_own
        printf_reaches_its_client_in_order
        cooperative_grids_synchronise
        a_cooperative_grid_that_does_not_fit
        dynamic_shared_memory_beyond_the_default
        bad_images_say_what_is_wrong
        function_information_is_complete
        blocks_know_their_multiprocessor
        partitions_at_positions_are_exactly_those;
    textures:
        a_plane_is_sampled_in_all_ways
        layers_solids_and_levels_are_sampled
        surfaces_are_read_and_written
        boxes_of_arrays_are_copied
        a_copy_beyond_an_array_faults
        an_array_has_nothing_of_the_one_before
        arrays_are_their_clients_alone;
}

/// The rounds of the engine are done by the thread that submits, by its own thread, and by both in
/// turn.
#[test]
fn a_thread_that_submits_may_carry_the_engine() {
    let Some(_) = card() else { return };
    assert!(conformance::streams::work_is_done_whoever_carries_it(open));
}

/// Batches long enough for chains, with parameters that change, give the same sums as single
/// launches.
#[test]
fn runs_of_kernels_go_as_one_and_do_the_same() {
    let Some(_) = card() else { return };
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let n = 1000_u32;
    let cells: Vec<u64> = (0..5).map(|_| client.allocate(u64::from(4 * n))).collect();
    let mut rounds = [0_u32; 5];
    for round in 0..200_u32 {
        for i in 0..50 {
            let at = ((round + i * 3) % 5) as usize;
            let used = n - round;
            client.launch(stream, &module, "add_one", used.div_ceil(256), 256, Args::new().u64(cells[at]).u32(used));
            rounds[at] += 1;
        }
        if round % 20 == 0 {
            client.drain(stream);
        }
    }
    client.drain(stream);
    for (cell, rounds) in cells.iter().zip(rounds) {
        assert_eq!(client.read(*cell, 800), vec![rounds; 800]);
    }
}

/// Two clients' batches, in chains and with parameters that change, at the same time.
#[test]
fn two_clients_have_their_own_sums() {
    let Some(_) = card() else { return };
    let setup = Setup::new(open);
    let clients = [setup.client(1), setup.client(2)];
    let n = 512_u32;
    let work: Vec<_> = clients.iter().map(|client| (client, client.stream(), client.kernels(), client.allocate(u64::from(4 * n)))).collect();
    for round in 0..30_u32 {
        for (number, (client, stream, module, cells)) in (1..).zip(&work) {
            for i in 0..30_u32 {
                let used = n - (i * number) % 7;
                client.launch(*stream, module, "add_one", used.div_ceil(256), 256, Args::new().u64(*cells).u32(used));
            }
        }
        if round % 10 == 0 {
            work.iter().for_each(|(client, stream, ..)| client.drain(*stream));
        }
    }
    for (client, stream, _, cells) in &work {
        client.drain(*stream);
        assert_eq!(client.read(*cells, 500), vec![30 * 30; 500]);
    }
}

#[test]
fn a_window_is_reached_by_kernels_and_copies_across_its_pieces() {
    let Some(_) = card() else { return };
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let bytes = 256 << 20;
    let window = setup.window_address(bytes);
    let file = memory_file(bytes);
    client.device().map_window(client.id, file.as_fd(), window, bytes).expect("a window");
    // Memory that was not announced is registered when the work names it.
    let far = window + (100 << 20);
    client.launch(stream, &module, "fill", 4, 256, Args::new().u64(far).u32(1000).u32(6));
    client.drain(stream);
    assert_eq!(client.read(far, 1000), vec![6; 1000]);
    // Memory that was announced is registered at once.
    client.device().use_window(client.id, window + (180 << 20), 70 << 20).expect("announced");
    let n = 8 << 20;
    client.launch(stream, &module, "fill", n / 256, 256, Args::new().u64(window + (190 << 20)).u32(n).u32(7));
    // Copies cross pieces that were registered separately, in both directions.
    let p = client.allocate(96 << 20);
    client.copy(stream, p, window + (120 << 20), 96 << 20);
    client.copy(stream, window + (5 << 20) + 8, p, 96 << 20);
    let user = 0x7fff_1234_5000;
    client.device().alias(client.id, user, window, 1 << 20).expect("an alias");
    client.copy(stream, p, user, 1 << 20);
    client.drain(stream);
    assert_eq!(client.read(window + (5 << 20) + 8 + (70 << 20), 1000), vec![7; 1000]);
    client.device().unalias(client.id, user);
    let late = client.copy(stream, p, user, 4);
    client.fault(late, result::ILLEGAL_ADDRESS);
}

#[test]
fn extents_are_mapped_whole_and_once_at_an_address() {
    let Some(_) = card() else { return };
    let setup = Setup::new(open);
    let device = &setup.device;
    let granule = device.granule();
    assert!(device.create_extent(granule + 1).is_err() && device.create_extent(0).is_err());
    let (one, two) = (device.create_extent(granule).expect("an extent"), device.create_extent(2 * granule).expect("an extent"));
    let at = setup.addresses(8 * granule);
    assert!(device.map(at + 4096, one.as_fd(), 0, granule).is_err());
    assert!(device.map(at, one.as_fd(), 4096, granule).is_err());
    assert!(device.map(at, one.as_fd(), 0, 2 * granule).is_err(), "more than it has");
    assert!(matches!(device.map(at, two.as_fd(), granule, granule), Err(DeviceError::NotSupported(_))), "a range of it");
    device.map(at, one.as_fd(), 0, granule).expect("mapped");
    assert!(matches!(device.map(at, one.as_fd(), 0, granule), Err(DeviceError::Invalid(_))));
    assert!(matches!(device.map(at - granule, two.as_fd(), 0, 2 * granule), Err(DeviceError::Invalid(_))), "reaches into the first");
    device.map(at + granule, one.as_fd(), 0, granule).expect("mapped twice");
    device.write(at + 5, &[1, 2, 3]).expect("written");
    let mut seen = [0; 3];
    device.read(at + granule + 5, &mut seen).expect("read");
    assert_eq!(seen, [1, 2, 3]);
    assert!(device.unmap(at, 2 * granule).is_err());
    for address in [at, at + granule] {
        device.unmap(address, granule).expect("unmapped");
    }
}

#[test]
fn more_memory_than_the_card_has_is_refused_in_words() {
    let Some(_) = card() else { return };
    let setup = Setup::new(open);
    let total = setup.device.facts().memory.next_multiple_of(setup.device.granule());
    match setup.device.create_extent(total) {
        Err(DeviceError::OutOfMemory(text)) => assert!(text.contains("memory"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn identical_images_without_variables_are_loaded_once() {
    let Some(_) = card() else { return };
    let setup = Setup::new(open);
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n";
    let (one, two) = (setup.client(1), setup.client(2));
    for client in [&one, &two] {
        let mut place = conformance::Variables { actor: client, restored: Default::default() };
        let module = client.load(text.as_bytes(), &mut place).expect("loads");
        client.done(client.launch(client.stream(), &module, "nothing", 1, 1, Args::new()));
        client.device().unload_module(client.id, module.id);
    }
}

/// Runs only if `CUMUX_TEST_IMAGE` names a file with the suite's kernels, compiled by nvcc
/// (`-fatbin` or `-cubin`).
#[test]
fn a_compiled_image_offers_what_its_source_does() {
    let (Some(_), Ok(path)) = (card(), std::env::var("CUMUX_TEST_IMAGE")) else { return };
    let image = std::fs::read(path).expect("the image");
    let setup = Setup::new(open);
    let client = setup.client(1);
    let mut place = conformance::Variables { actor: &client, restored: Default::default() };
    let (compiled, source) = (client.load(&image, &mut place).expect("loads"), client.kernels());
    let layouts = |info: &cumux_device::ModuleInfo| -> BTreeMap<String, Vec<u32>> {
        info.functions.iter().map(|f| (f.name.clone(), f.parameters.iter().map(|p| p.offset).collect())).collect()
    };
    assert_eq!(layouts(&compiled.info), layouts(&source.info));
    for name in ["table", "counter", "offset", "into_table"] {
        let of = |info: &cumux_device::ModuleInfo| info.globals.iter().find(|g| g.name == name).map(|g| (g.bytes, g.constant));
        // Not all of them are visible in the text: nvcc keeps some to itself.
        if let (Some(one), Some(two)) = (of(&compiled.info), of(&source.info)) {
            assert_eq!(one, two, "{name}");
        }
    }
    assert!(compiled.info.globals.iter().any(|g| g.name == "counter"), "{:?}", compiled.info.globals);
    let stream = client.stream();
    client.launch(stream, &compiled, "say", 1, 1, Args::new().u32(5));
    client.drain(stream);
    assert_eq!(client.text(), "number 5\n");
}

/// A sink that remembers whether the device is lost.
#[derive(Default)]
struct Listener {
    lost: AtomicBool,
    recorder: conformance::Recorder,
}

impl Sink for Listener {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        self.recorder.retired(client, stream, token, outcome);
    }
    fn text(&self, client: ClientId, channel: Channel, text: &[u8]) {
        Sink::text(&self.recorder, client, channel, text);
    }
    fn lost(&self, why: &str, begun: Begun) {
        assert!(!why.is_empty() && matches!(begun, Begun::Only(_)));
        self.lost.store(true, Ordering::Release);
    }
}

/// A fault is reported to its client. Work of another client that was complete stays complete, no
/// further work is accepted, and the sink is notified last.
#[test]
fn a_fault_is_told_to_its_client_and_ends_the_device() {
    let Some(id) = card() else { return };
    let listener = Arc::new(Listener::default());
    let device = cumux_device_cuda::open(&id, listener.clone()).expect("the card opens");
    let base = cumux_wire::layout::ARENA_BASE + (3 << 40);
    let extent = device.create_extent(device.granule()).expect("an extent");
    device.map(base, extent.as_fd(), 0, device.granule()).expect("mapped");
    for client in [1, 2] {
        device.open_client(client, &Default::default(), None).expect("opens");
    }
    struct Nowhere;
    impl cumux_device::GlobalsAllocator for Nowhere {
        fn variable(&mut self, _: &str, _: u64, _: u64, _: bool) -> Result<(u64, bool), DeviceError> {
            Err(DeviceError::NotSupported("no variables here".into()))
        }
    }
    device.allow(2, base, 4096, true);
    let store = |client, address: u64| {
        let info = device.load_module(client, 1, Image::of(conformance::KERNELS.as_bytes()), &mut Nowhere).expect("loads");
        let function = info.functions.iter().position(|f| f.name == "store").expect("the kernel") as u32;
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(5_u32.to_le_bytes());
        let launch = cumux_device::Launch { module: 1, function, grid: [1; 3], block: [1; 3], parameters: bytes.into(), ..Default::default() };
        Work::Kernel(cumux_device::Kernel { launch, resume: None })
    };
    let (good, bad) = (device.create_stream(2, 0).expect("a stream"), device.create_stream(1, 0).expect("a stream"));
    device.submit(good, 1, store(2, base)).expect("accepted");
    assert!(matches!(listener.recorder.wait(2, 1), Outcome::Done { .. }));
    device.submit(bad, 1, store(1, 0xdead_0000)).expect("accepted");
    match listener.recorder.wait(1, 1) {
        Outcome::Fault(fault) => assert!(fault.result == result::ILLEGAL_ADDRESS && fault.text.contains("store"), "{fault:?}"),
        other => panic!("{other:?}"),
    }
    let begun = std::time::Instant::now();
    while !listener.lost.load(Ordering::Acquire) {
        assert!(begun.elapsed().as_secs() < 60, "the sink never heard");
        std::thread::yield_now();
    }
    assert!(matches!(device.submit(good, 2, Work::Nop), Err(DeviceError::Lost(_))));
    assert_eq!(listener.recorder.reports(2).len(), 1, "the innocent is told nothing");
    device.close_client(1);
    device.close_client(2);
}
