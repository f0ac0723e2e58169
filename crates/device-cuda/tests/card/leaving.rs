//! Clients that leave while work of theirs is complete and not reported yet. Their next executor
//! does all again that has no report, so it must be reported before the device says that they have
//! left.

use super::{NESTED_ONLY, open, run_again, run_nested};
use cumux_device::conformance::{Args, Setup, Variables};
use cumux_device::{Begun, InDoubt, Outcome};
use std::collections::{BTreeSet, HashMap};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// With this many engines each.
const ENGINES: [&str; 3] = ["1", "2", "3"];

/// A kernel that waits for a word and then prints "x".
const PRINTER: &str = "
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[3] = {120, 10, 0};
.visible .entry print_when(.param .u64 flag)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [flag];
    mov.u64 %rd1, 0;
look:
    ld.volatile.global.u32 %r, [%rd0];
    setp.eq.s32 %p, %r, 0;
    @%p bra look;
    mov.u64 %rd2, text;
    cvta.global.u64 %rd2, %rd2;
    {
    .param .b64 param0;
    st.param.b64 [param0], %rd2;
    .param .b64 param1;
    st.param.b64 [param1], %rd1;
    .param .b32 said;
    call.uni (said), vprintf, (param0, param1);
    }
    ret;
}
";

/// Whether the test runs here, once with each number of engines.
fn runs_here(test: &str) -> bool {
    if std::env::var(super::CARD).is_err() {
        ENGINES.iter().for_each(|engines| run_nested(test, &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]));
        return false;
    }
    true
}

fn pass_time(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Measured on an H200: a fault in another process stopped the card, kernels ended after that
/// silence and were held back, and their clients left beside a kernel that did not end. One of
/// their kernels was done twice, and its program had a wrong result without an error.
#[test]
fn what_has_ended_after_a_silence_is_reported_before_its_client_leaves() {
    if !runs_here("leaving::what_has_ended_after_a_silence_is_reported_before_its_client_leaves") {
        return;
    }
    // Closing the device waits for the kernel that does not end; it ends with this process.
    let setup = ManuallyDrop::new(Setup::new(open));
    // Each engine has a client that leaves, and another one whose kernel does not end.
    let clients: Vec<_> = (1..=6).map(|id| ManuallyDrop::new(setup.client(id))).collect();
    let leaving = 3;
    // Loading waits for a quiet card.
    let prepared: Vec<_> = clients.iter().map(|client| (client.stream(), client.stream(), client.kernels(), client.allocate(8))).collect();
    let begun = Instant::now();
    let mut launched = Vec::new();
    for (client, (stream, other, module, flag)) in clients.iter().zip(&prepared) {
        client.done(client.launch(*stream, module, "fill", 1, 32, Args::new().u64(*flag).u32(1).u32(0)));
        launched.push(client.launch(*stream, module, "until", 1, 1, Args::new().u64(*flag)));
        // What comes after a kernel in its engine's mailbox is complete: the kernel was begun.
        client.done(client.launch(*other, module, "fill", 1, 32, Args::new().u64(flag + 4).u32(1).u32(0)));
    }
    // The card stands still for longer than it may have so far, on a slow machine.
    pass_time(4 * begun.elapsed() + Duration::from_millis(20));
    for (client, (.., flag)) in clients.iter().zip(&prepared).take(leaving) {
        client.write(*flag, &[1]);
    }
    // They end.
    pass_time(Duration::from_millis(100));
    let staying: BTreeSet<u32> = clients[leaving..].iter().map(|client| client.id).collect();
    assert_eq!(setup.device.leave(&staying, Duration::from_secs(60)), Begun::Only(Vec::new()));
    for (client, token) in clients.iter().zip(&launched).take(leaving) {
        let reports = client.reports();
        assert!(reports.iter().any(|(_, told, outcome)| told == token && matches!(outcome, Outcome::Done { .. })), "{reports:?}");
    }
    eprintln!("{}: the card stays open", super::PASSED);
}

/// The report of a kernel that may have printed waits until its text was fetched.
#[test]
fn what_has_printed_is_reported_before_its_client_leaves() {
    if !runs_here("leaving::what_has_printed_is_reported_before_its_client_leaves") {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let clients: Vec<_> = [1, 2].map(|id| ManuallyDrop::new(setup.client(id))).into();
    let client = &clients[0];
    let (stream, other, fillers, flag) = (client.stream(), client.stream(), client.kernels(), client.allocate(8));
    let printers = client.load(PRINTER.as_bytes(), &mut Variables { actor: client, restored: HashMap::new() }).expect("it loads");
    // Once before: what it needs is made, so that the second one begins at once.
    client.done(client.launch(stream, &fillers, "fill", 1, 32, Args::new().u64(flag).u32(1).u32(1)));
    client.done(client.launch(stream, &printers, "print_when", 1, 1, Args::new().u64(flag)));
    client.done(client.launch(stream, &fillers, "fill", 1, 32, Args::new().u64(flag).u32(1).u32(0)));
    let token = client.launch(stream, &printers, "print_when", 1, 1, Args::new().u64(flag));
    client.done(client.launch(other, &fillers, "fill", 1, 32, Args::new().u64(flag + 4).u32(1).u32(0)));
    let (begun, reports) = std::thread::scope(|scope| {
        let leaving = scope.spawn(|| (setup.device.leave(&BTreeSet::from([2]), Duration::from_secs(60)), client.reports()));
        // The engines have been asked.
        pass_time(Duration::from_millis(100));
        client.write(flag, &[1]);
        leaving.join().expect("no panic")
    });
    assert_eq!(begun, Begun::Only(Vec::new()));
    assert!(reports.iter().any(|(_, told, outcome)| *told == token && matches!(outcome, Outcome::Done { .. })), "{reports:?}");
    assert_eq!(client.text(), "x\nx\n");
    eprintln!("{}: the card stays open", super::PASSED);
}

/// The driver may say that the context is broken without having announced a fault. A copy in flight
/// has run or not: its client's next executor must know that nobody knows.
#[test]
fn copies_in_flight_are_in_doubt_when_a_context_breaks_unannounced() {
    const TEST: &str = "leaving::copies_in_flight_are_in_doubt_when_a_context_breaks_unannounced";
    if !runs_here(TEST) {
        return;
    }
    // A card announces its faults where core dumps are on, and the copies would all be done.
    if std::env::var_os(NESTED_ONLY).is_none() && std::env::var_os("CUMUX_CORE_DUMPS").is_none() {
        run_again(TEST, &[("CUMUX_CORE_DUMPS", "0")]);
        return eprintln!("{}: in a process of its own", super::PASSED);
    }
    const BYTES: u64 = 64 << 20;
    let setup = ManuallyDrop::new(Setup::new(open));
    let [copier, culprit] = [1, 2].map(|id| ManuallyDrop::new(setup.client(id)));
    let (stream, from, to) = (copier.stream(), copier.allocate(BYTES), copier.allocate(BYTES));
    let (culprits, module, fine) = (culprit.stream(), culprit.kernels(), culprit.allocate(8));
    // The first kernel of a client may wait until there is a stack for it.
    culprit.done(culprit.launch(culprits, &module, "store", 1, 1, Args::new().u64(fine).u32(1)));
    // A fifth of a second and more: the fault comes while they are under way.
    let tokens: Vec<u64> = (0..8192).map(|_| copier.copy(stream, to, from, BYTES)).collect();
    // On a busy machine the culprit's engine may be the first one that has a processor.
    copier.done(tokens[0]);
    culprit.launch(culprits, &module, "store", 1, 1, Args::new().u64(0).u32(1));
    let (_, begun) = setup.recorder.wait_for_loss();
    let Begun::Only(pieces) = begun else { panic!("{begun:?}") };
    let reports = copier.reports();
    let is_one = |piece: &InDoubt| piece.client == copier.id && tokens.contains(&piece.token);
    assert!(!pieces.is_empty() && pieces.iter().all(is_one), "{pieces:?}, {} of {} copies are told", reports.len(), tokens.len());
    assert!(pieces.iter().all(|piece| reports.iter().all(|(_, told, _)| *told != piece.token)), "who was told is not in doubt");
    eprintln!("{}: the card stays open", super::PASSED);
}
