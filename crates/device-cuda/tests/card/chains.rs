//! When chains are made.

use super::{NESTED_ONLY, run_nested};
use cumux_device::conformance::{Args, Setup};
use cumux_device::{Device, Sink};
use cumux_device_cuda::{Card, Settings};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

static OPENED: OnceLock<Weak<Card>> = OnceLock::new();

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    let card = Card::open(0, sink, Settings::from_environment(1).expect("settings")).expect("the card opens");
    OPENED.set(Arc::downgrade(&card)).expect("once");
    card
}

fn chains() -> u64 {
    let card = OPENED.get().and_then(Weak::upgrade).expect("it is open");
    card.counters().chains.load(Ordering::Relaxed)
}

/// Many streams want chains at about the same time: the card is not stopped for each of them.
#[test]
fn chains_of_many_streams_are_made_in_few_stops() {
    if std::env::var(super::CARD).is_err() {
        ["1", "2"].iter().for_each(|engines| run_nested("chains::chains_of_many_streams_are_made_in_few_stops", &[("CUMUX_DISPATCHERS", engines)]));
        return;
    }
    const STREAMS: usize = 16;
    let setup = Setup::new(open);
    let clients = [1, 2].map(|id| setup.client(id));
    let own: Vec<_> = clients.iter().map(|client| (client, client.kernels(), client.allocate(8))).collect();
    let streams: Vec<_> = (0..STREAMS).map(|number| (&own[number % 2], own[number % 2].0.stream())).collect();
    let read = || {
        let card = OPENED.get().and_then(Weak::upgrade).expect("it is open");
        [&card.counters().chains_made, &card.counters().stops].map(|count| count.load(Ordering::Relaxed))
    };
    // A machine may be so slow that each stream's launches come when the chain before is made: they
    // want other chains then, a few times.
    for blocks in 1..=5 {
        while read()[0] < STREAMS as u64 * u64::from(blocks) {
            // All at once, so that they want chains at once.
            let runs: Vec<_> = streams
                .iter()
                .map(|((client, module, out), stream)| (client, client.launch(*stream, module, "fill", blocks, 32, Args::new().u64(*out).u32(1).u32(5))))
                .collect();
            runs.into_iter().for_each(|(client, run)| client.done(run));
        }
        let [made, stops] = read();
        if stops < made {
            break;
        }
        assert!(blocks < 5, "{made} chains were made in {stops} stops");
    }
    eprintln!("{}", super::PASSED);
}

/// Making one may wait for a kernel that runs, and everybody waits for the making. Another engine
/// than that of the kernel's client does not see the kernel by itself.
#[test]
fn no_chain_is_made_beside_a_kernel_that_runs() {
    if std::env::var(super::CARD).is_err() {
        ["1", "2"]
            .iter()
            .for_each(|engines| run_nested("chains::no_chain_is_made_beside_a_kernel_that_runs", &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]));
        return;
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: a card may run other kernels late beside one that polls memory");
    }
    // Where an assertion fails, closing the device would wait for the kernel.
    let setup = ManuallyDrop::new(Setup::new(open));
    let [long, busy] = [1, 2].map(|id| ManuallyDrop::new(setup.client(id)));
    let (long_stream, long_module, flag) = (long.stream(), long.kernels(), long.allocate(8));
    long.done(long.launch(long_stream, &long_module, "fill", 1, 32, Args::new().u64(flag).u32(1).u32(0)));
    let (stream, module, out) = (busy.stream(), busy.kernels(), busy.allocate(8));
    let round = || busy.done(busy.launch(stream, &module, "fill", 1, 32, Args::new().u64(out).u32(1).u32(5)));
    let runs = long.launch(long_stream, &long_module, "until", 1, 1, Args::new().u64(flag));
    // It has been begun when what its engine got later is complete.
    long.done(long.launch(long.stream(), &long_module, "fill", 1, 32, Args::new().u64(flag + 4).u32(1).u32(0)));
    (0..500).for_each(|_| round());
    assert_eq!(chains(), 0, "one was made beside the kernel");
    long.write(flag, &[1]);
    long.done(runs);
    // The same rounds have chains now.
    while chains() == 0 {
        round();
    }
    eprintln!("{}: the card stays open", super::PASSED);
}

/// A kernel of which nobody knows that it does not end may begin while a chain is made, or just
/// before: then the making would wait for it, and everybody for the making. Each time the kernel is
/// of a module that was just loaded, and others have chains made in a new stream. In later attempts
/// it has ended once before.
#[test]
fn a_kernel_that_never_ended_does_not_begin_while_a_chain_is_made() {
    if std::env::var(super::CARD).is_err() {
        ["1", "2"].iter().for_each(|engines| {
            run_nested("chains::a_kernel_that_never_ended_does_not_begin_while_a_chain_is_made", &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]);
        });
        return;
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: a card may run other kernels late beside one that polls memory");
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let [long, busy] = [1, 2].map(|id| ManuallyDrop::new(setup.client(id)));
    let (long_stream, flag) = (long.stream(), long.allocate(8));
    let (module, out) = (busy.kernels(), busy.allocate(8));
    let mut all_before = chains();
    for attempt in 0..32_u32 {
        let (fresh, stream) = (long.kernels(), busy.stream());
        if attempt >= 16 {
            long.write(flag, &[1]);
            long.done(long.launch(long_stream, &fresh, "until", 1, 1, Args::new().u64(flag)));
        }
        long.write(flag, &[0]);
        let round = || busy.done(busy.launch(stream, &module, "fill", 1, 32, Args::new().u64(out).u32(1).u32(5)));
        (0..attempt % 16).for_each(|_| round());
        let runs = long.launch(long_stream, &fresh, "until", 1, 1, Args::new().u64(flag));
        (0..40).for_each(|_| round());
        long.write(flag, &[1]);
        long.done(runs);
        (0..40).for_each(|_| round());
        let all = chains();
        eprintln!("{attempt}: {} chains", all - all_before);
        all_before = all;
    }
    assert!(all_before > 0, "no chain was made at all");
    eprintln!("{}: the card stays open", super::PASSED);
}
