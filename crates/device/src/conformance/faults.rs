//! Faults: each kind has its own error, ends its client, and touches no other client. Where a fault
//! breaks the device for all ([`crate::Capabilities::contains_faults`] is false) it is lost after
//! that, in order: its maker is told, what others had begun is reported, and what they had not
//! begun is not.

use cumux_wire::cuda::DeviceAttribute;
use cumux_wire::record::Launch;
use cumux_wire::result;

use super::{Actor, Args, Loaded, Opener, Setup};
use crate::{Begun, DeviceError, Fault, Outcome, StreamId, Work};

/// Launches `store` to an address and returns the text of the fault that must follow.
fn bad_store(client: &Actor<'_>, module: &Loaded, address: u64, expected: u32) -> String {
    let token = client.launch(client.stream(), module, "store", 1, 1, Args::new().u64(address).u32(1));
    let text = client.fault(token, expected);
    client.setup().expect_loss_by_fault();
    text
}

pub fn one_byte_past_an_allocation(open: Opener) {
    let shared = Setup::new(open);
    for (id, bytes, offset, name) in [(1, 8, 8, "store_byte"), (2, 7, 7, "store_byte"), (3, 7, 4, "store"), (4, 8, 8, "load")] {
        let own = (!shared.contains_faults()).then(|| Setup::new(open));
        let client = own.as_ref().unwrap_or(&shared).client(id);
        let module = client.kernels();
        let (p, out) = (client.allocate(bytes), client.allocate(8));
        let stream = client.stream();
        let last = client.launch(stream, &module, "store_byte", 1, 1, Args::new().u64(p + bytes - 1).u32(9));
        client.done(last);
        let args = if name == "load" { Args::new().u64(p + offset).u64(out) } else { Args::new().u64(p + offset).u32(1) };
        let token = client.launch(stream, &module, name, 1, 1, args);
        let text = client.fault(token, result::ILLEGAL_ADDRESS);
        assert!(text.contains(name) && text.contains(&format!("{:#x}", p + offset)), "{text}");
    }
}

pub fn a_freed_allocation(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let p = client.allocate(64);
    client.done(client.launch(client.stream(), &module, "store", 1, 1, Args::new().u64(p).u32(1)));
    client.device().revoke(client.id, p);
    let text = bad_store(&client, &module, p, result::ILLEGAL_ADDRESS);
    assert!(text.contains("freed"), "{text}");
}

pub fn another_clients_memory(open: Opener) {
    let setup = Setup::new(open);
    let (owner, thief) = (setup.client(1), setup.client(2));
    let module = thief.kernels();
    let p = owner.allocate(64);
    owner.write(p, &[77]);
    bad_store(&thief, &module, p, result::ILLEGAL_ADDRESS);
    if !setup.contains_faults() {
        assert_eq!(owner.reports(), []);
        return;
    }
    assert_eq!(owner.read(p, 1), [77]);
    let module = owner.kernels();
    owner.done(owner.launch(owner.stream(), &module, "store", 1, 1, Args::new().u64(p).u32(78)));
    assert_eq!(owner.read(p, 1), [78]);
}

pub fn a_null_pointer(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let text = bad_store(&client, &module, 0, result::ILLEGAL_ADDRESS);
    assert!(text.contains("store"), "{text}");
}

pub fn a_misaligned_address(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let p = client.allocate(64);
    let text = bad_store(&client, &module, p + 2, result::MISALIGNED_ADDRESS);
    assert!(text.contains("misaligned"), "{text}");
}

pub fn a_trap(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let token = client.launch(client.stream(), &module, "trap_if", 4, 64, Args::new().u32(2 * 64 + 5));
    let text = client.fault(token, result::LAUNCH_FAILED);
    assert!(text.contains("trap_if") && text.contains("block 2,0,0") && text.contains("thread 5,0,0"), "{text}");
}

pub fn an_assertion_says_where(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let token = client.launch(client.stream(), &module, "assert_small", 1, 32, Args::new().u32(31));
    client.fault(token, result::ASSERT);
    setup.expect_loss_by_fault();
    let text = client.error_text();
    let said = " block: [0,0,0], thread: [31,0,0] Assertion `threadIdx.x < limit` failed.\n";
    assert!(text.contains("kernels.cu:") && text.contains("assert_small") && text.ends_with(said) && text.lines().count() == 1, "{text}");
    assert_eq!(client.text(), "", "standard output is the program's");
}

pub fn a_fault_ends_everything_of_its_client_and_nothing_else(open: Opener) {
    let setup = Setup::new(open);
    if !setup.contains_faults() {
        return a_fault_ends_the_device_in_order(&setup);
    }
    let (bad, good) = (setup.client(1), setup.client(2));
    let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
    let (first, second) = (bad.stream(), bad.stream());
    let [running, queued] = keep_busy(&bad, first, &bad_kernels);
    let p = good.allocate(4 * 5000);
    let stream = good.stream();
    let mut tokens = Vec::new();
    for round in 0..50 {
        tokens.push(good.launch(stream, &good_kernels, "add_one", 20, 256, Args::new().u64(p).u32(5000)));
        if round == 20 {
            let culprit = bad.launch(second, &bad_kernels, "store", 1, 1, Args::new().u64(p).u32(1));
            let behind = bad.submit(second, Work::Nop);
            let text = bad.fault(culprit, result::ILLEGAL_ADDRESS);
            for token in [behind, running, queued] {
                assert_eq!(bad.fault(token, result::ILLEGAL_ADDRESS), text);
            }
            let later = bad.launch(first, &bad_kernels, "empty", 1, 32, Args::new());
            assert_eq!(bad.fault(later, result::ILLEGAL_ADDRESS), text);
        }
    }
    for token in tokens {
        good.done(token);
    }
    assert_eq!(good.read(p, 5000), vec![50; 5000]);
    assert_eq!(bad.reports().len(), 5);
}

/// A kernel that waits for ever, and one behind it.
fn keep_busy(client: &Actor<'_>, stream: StreamId, kernels: &Loaded) -> [u64; 2] {
    let never = client.allocate(4);
    let running = client.launch(stream, kernels, "until", 2, 32, Args::new().u64(never));
    [running, client.launch(stream, kernels, "empty", 1, 32, Args::new())]
}

/// What a fault does on a device that does not contain it: its maker has the fault for all its
/// work; others have a beginning of each stream reported as done, and nothing else.
fn a_fault_ends_the_device_in_order(setup: &Setup) {
    let (bad, good) = (setup.client(1), setup.client(2));
    let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
    let (first, second) = (bad.stream(), bad.stream());
    let [running, queued] = keep_busy(&bad, first, &bad_kernels);
    let p = good.allocate(4 * 5000);
    let stream = good.stream();
    let culprit = bad.launch(second, &bad_kernels, "store", 1, 1, Args::new().u64(p).u32(1));
    let behind = bad.submit(second, Work::Nop);
    // Until the end, whenever that is.
    let mut accepted = Vec::new();
    let add_one = |token| good.device().submit(stream, token, good.kernel(&good_kernels, "add_one", 20, 256, Args::new().u64(p).u32(5000)));
    for token in 1000.. {
        match add_one(token) {
            Ok(()) => accepted.push(token),
            Err(DeviceError::Lost(_)) => break,
            Err(error) => panic!("{error}"),
        }
        if accepted.len() % 100 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    setup.expect_loss_by_fault();
    let text = bad.fault(culprit, result::ILLEGAL_ADDRESS);
    for token in [behind, running, queued] {
        assert_eq!(bad.fault(token, result::ILLEGAL_ADDRESS), text);
    }
    assert_eq!(setup.recorder.faulted(), [(bad.id, Fault { result: result::ILLEGAL_ADDRESS, text })]);
    let reports = good.reports();
    assert!(reports.iter().all(|(_, _, outcome)| matches!(outcome, Outcome::Done { .. })), "{reports:?}");
    assert_eq!(reports.iter().map(|(_, token, _)| *token).collect::<Vec<_>>(), accepted[..reports.len()]);
    assert_eq!(bad.reports().len(), 4);
}

pub fn a_bad_copy_faults(open: Opener) {
    let setup = Setup::new(open);
    for id in 1..5 {
        let client = setup.client(id);
        let stream = client.stream();
        let p = client.allocate(100);
        let other = client.allocate(100);
        let token = match id {
            1 => client.copy(stream, p, other + 1, 100),
            2 => client.copy(stream, p + 1, other, 100),
            3 => client.submit(stream, Work::Set { target: p + 92, pitch: 0, value: 0, element: 4, width: 3, height: 1 }),
            _ => client.submit(stream, Work::WriteValue { address: p + 100, value: 0, bytes: 4 }),
        };
        let text = client.fault(token, result::ILLEGAL_ADDRESS);
        assert!(text.contains(&format!("{:#x}", if id == 1 { other + 100 } else { p + 100 })), "{text}");
    }
}

pub fn read_only_memory(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let (p, out) = (client.reserve(8), client.allocate(4));
    client.device().allow(client.id, p, 8, false);
    client.write(p, &[55]);
    let stream = client.stream();
    client.done(client.launch(stream, &module, "load", 1, 1, Args::new().u64(p).u64(out)));
    assert_eq!(client.read(out, 1), [55]);
    bad_store(&client, &module, p, result::ILLEGAL_ADDRESS);
    if setup.contains_faults() {
        assert_eq!(client.read(p, 1), [55]);
    }
}

pub fn an_endless_kernel_is_stopped(open: Opener) {
    let setup = Setup::new(open);
    let (bad, good) = (setup.client(1), setup.client(2));
    let module = bad.kernels();
    let out = bad.allocate(4);
    let stream = bad.stream();
    let endless = if setup.contains_faults() {
        bad.launch(stream, &module, "endless", 200, 256, Args::new().u64(out))
    } else {
        // What has not begun would be taken back, so it has to be seen to run.
        let grinding = bad.launch(stream, &module, "grind", 4, 256, Args::new().u64(out).u32(1).u32(u32::MAX));
        bad.wait_for_change(out, 0);
        grinding
    };
    let queued = bad.submit(stream, Work::Nop);
    let fault = Fault { result: result::LAUNCH_TIMEOUT, text: "stopped by the test".into() };
    bad.device().stop_client(bad.id, fault.clone());
    assert_eq!(bad.wait(endless), Outcome::Fault(fault.clone()));
    assert_eq!(bad.wait(queued), Outcome::Fault(fault.clone()));
    assert_eq!(bad.wait(bad.submit(stream, Work::Nop)), Outcome::Fault(fault));
    good.drain(good.stream());
    if !setup.contains_faults() {
        // What cannot be stopped alone is waited for, and then the device is given up.
        drop(bad);
        let (why, begun) = setup.recorder.wait_for_loss();
        assert!(why.contains("client 1") && why.contains("grind") && begun == Begun::Only(Vec::new()), "{why}, {begun:?}");
        assert!(matches!(good.device().create_stream(good.id, 0), Err(DeviceError::Lost(_))));
    }
}

/// Where kernels cannot be stopped alone, closing their client waits for them.
fn closing_a_client_waits_for_its_kernels(setup: &Setup) {
    let (bad, good) = (setup.client(1), setup.client(2));
    let (module, good_kernels) = (bad.kernels(), good.kernels());
    let flag = bad.allocate(4);
    let stream = bad.stream();
    let waiting = bad.launch(stream, &module, "until", 300, 64, Args::new().u64(flag));
    let queued = bad.submit(stream, Work::Nop);
    // It runs.
    good.drain(good.stream());
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| bad.device().close_client(bad.id));
        assert_eq!((bad.wait(waiting), bad.wait(queued)), (Outcome::Cancelled, Outcome::Cancelled));
        bad.write(flag, &[1]);
        closing.join().expect("closed");
    });
    assert_eq!(bad.reports().len(), 2, "its end is not reported again");
    let p = good.allocate(4 * 256);
    good.done(good.launch(good.stream(), &good_kernels, "add_one", 1, 256, Args::new().u64(p).u32(256)));
    assert_eq!(good.read(p, 256), vec![1; 256]);
    assert_eq!(setup.recorder.losses(), []);
}

pub fn closing_a_client_stops_its_kernels(open: Opener) {
    let setup = Setup::new(open);
    if !setup.contains_faults() {
        return closing_a_client_waits_for_its_kernels(&setup);
    }
    let good = setup.client(2);
    let good_kernels = good.kernels();
    let p = good.allocate(4 * 256);
    let (endless, queued) = {
        let bad = setup.client(1);
        let module = bad.kernels();
        let flag = bad.allocate(4);
        let stream = bad.stream();
        let endless = bad.launch(stream, &module, "until", 300, 64, Args::new().u64(flag));
        (endless, bad.submit(stream, Work::Nop))
        // Dropped here: the client is closed, then its memory is unmapped under any block that
        // would still run.
    };
    let reports = setup.recorder.reports(1);
    let outcomes: Vec<(u64, &Outcome)> = reports.iter().map(|(_, token, outcome)| (*token, outcome)).collect();
    assert_eq!(outcomes, [(endless, &Outcome::Cancelled), (queued, &Outcome::Cancelled)]);
    good.done(good.launch(good.stream(), &good_kernels, "add_one", 1, 256, Args::new().u64(p).u32(256)));
    assert_eq!(good.read(p, 256), vec![1; 256]);
    // The number may be used again.
    let again = setup.client(1);
    again.drain(again.stream());
}

pub fn launches_beyond_the_card(open: Opener) {
    let setup = Setup::new(open);
    let too_much = setup.device.facts().attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).cast_unsigned() + 1;
    let shapes = [
        Launch { grid: [1, 1, 1], block: [1025, 1, 1], ..Launch::default() },
        Launch { grid: [1, 1, 1], block: [1, 1, 65], ..Launch::default() },
        Launch { grid: [1, 65_536, 1], block: [1, 1, 1], ..Launch::default() },
        Launch { grid: [1, 1, 1], block: [32, 1, 1], shared: too_much, ..Launch::default() },
    ];
    for (id, shape) in (1..).zip(shapes) {
        let client = setup.client(id);
        let module = client.kernels();
        let p = client.allocate(4096);
        let token = client.launch_with(client.stream(), &module, "reverse_shared", shape, Args::new().u64(p));
        let text = client.fault(token, result::LAUNCH_OUT_OF_RESOURCES);
        assert!(text.contains("reverse_shared"), "{text}");
    }
}
