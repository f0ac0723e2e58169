//! A fault that the driver announces, with work of all engines on the card. The software GPU
//! beneath has no fault: the test prints the driver's line in its place, and ends the kernels of
//! the innocent itself.

use super::{NESTED_ONLY, open, run_nested};
use cumux_device::conformance::{Actor, Args, Loaded, Setup};
use cumux_device::{Begun, Outcome, StreamId};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// With this many engines each.
const ENGINES: [&str; 3] = ["1", "2", "3"];

/// Prints a line of the driver, as the driver does: through C's standard error.
fn announce() {
    // SAFETY: the text ends with a zero byte.
    #[expect(unsafe_code, reason = "the driver prints through C's standard error")]
    unsafe {
        libc::perror(c"coredump: Starting GPU coredump generation".as_ptr());
    }
}

/// All engines' work stays in sight of the verdict: what ends later is reported, and who alone
/// does not end is told.
#[test]
fn work_of_all_engines_waits_for_one_verdict() {
    if std::env::var(super::CARD).is_err() {
        ENGINES
            .iter()
            .for_each(|engines| run_nested("announced::work_of_all_engines_waits_for_one_verdict", &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]));
        return;
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: a card's driver announces its own faults");
    }
    // Closing the device waits for the culprit's kernel, which ends with this process.
    let setup = ManuallyDrop::new(Setup::new(open));
    // Their numbers do not say which engine has them.
    let clients: Vec<_> = (1..=6).map(|id| ManuallyDrop::new(setup.client(2 * id))).collect();
    let prepared: Vec<_> = clients.iter().map(|client| (client.stream(), client.kernels(), client.allocate(8))).collect();
    let culprit = 2;
    // With two engines, the first one has no other kernel than the culprit's.
    let runs_on = |number: usize| number == culprit || number % 2 == 1;
    let launch = |number: usize| {
        let (client, (stream, module, flag)) = (&clients[number], &prepared[number]);
        client.done(client.launch(*stream, module, "fill", 1, 32, Args::new().u64(*flag).u32(1).u32(u32::from(!runs_on(number)))));
        client.launch(*stream, module, "until", 1, 1, Args::new().u64(*flag))
    };
    let launched: Vec<u64> = (0..clients.len()).map(launch).collect();
    // What comes after a kernel in its engine's mailbox is complete: the kernel was begun.
    for (client, (_, module, flag)) in clients.iter().zip(&prepared) {
        client.done(client.launch(client.stream(), module, "fill", 1, 32, Args::new().u64(flag + 4).u32(1).u32(0)));
    }
    let innocents = || clients.iter().zip(&launched).enumerate().filter(|(number, _)| *number != culprit).map(|(_, pair)| pair);
    let later: Vec<u64> = std::thread::scope(|scope| {
        // A request that all others leave, which waits for their kernels at every engine.
        let leaving = scope.spawn(|| {
            let begun = setup.device.leave(&BTreeSet::from([clients[culprit].id]), Duration::from_secs(60));
            let all_told = innocents().all(|(client, token)| client.reports().iter().any(|(_, told, _)| told == token));
            (begun, all_told)
        });
        // Whose streams have moved a moment before is innocent by that alone.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            std::thread::yield_now();
        }
        announce();
        let launch_later = |(client, (stream, module, flag)): (&ManuallyDrop<Actor<'_>>, &(StreamId, Loaded, u64))| {
            client.launch(*stream, module, "fill", 1, 32, Args::new().u64(flag + 4).u32(1).u32(9))
        };
        let later = clients.iter().zip(&prepared).map(launch_later).collect();
        for (number, (client, (.., flag))) in clients.iter().zip(&prepared).enumerate() {
            if number != culprit {
                client.write(*flag, &[1]);
            }
        }
        for (number, (client, token)) in clients.iter().zip(&launched).enumerate() {
            if number == culprit {
                let text = client.fault(*token, cumux_wire::result::LAUNCH_FAILED);
                assert!(text.contains("until") && text.contains("all other clients' work was completed"), "{text}");
            } else {
                client.done(*token);
            }
        }
        assert_eq!(leaving.join().expect("no panic"), (Begun::Only(Vec::new()), true), "nothing is forgotten, and nothing is done twice");
        later
    });
    let (why, begun) = setup.recorder.wait_for_loss();
    assert!(!why.is_empty() && begun == Begun::Only(Vec::new()), "{why} {begun:?}");
    assert_eq!((setup.recorder.losses().len(), setup.recorder.faulted().len()), (1, 1));
    for (number, (client, later)) in clients.iter().zip(&later).enumerate() {
        let told = client.reports().into_iter().find_map(|(_, token, outcome)| (token == *later).then_some(outcome));
        match told {
            Some(Outcome::Fault(_)) => assert_eq!(number, culprit, "client {}", client.id),
            // It was begun, because it came before the engine knew.
            Some(Outcome::Done { .. }) | None => assert_ne!(number, culprit, "the culprit hears of all that it wanted"),
            other => panic!("client {}: {other:?}", client.id),
        }
    }
    eprintln!("{}: the card stays open", super::PASSED);
}

/// A kernel that has faulted may end before the driver announces the fault, and with it one of an
/// innocent in another engine. That is no motion of the card: neither is told before the verdict.
#[test]
fn what_ends_in_two_engines_after_a_silence_waits_for_the_verdict() {
    const TEST: &str = "announced::what_ends_in_two_engines_after_a_silence_waits_for_the_verdict";
    if std::env::var(super::CARD).is_err() {
        ENGINES[1..].iter().for_each(|engines| run_nested(TEST, &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]));
        return;
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: a card's driver announces its own faults");
    }
    // Closing the device waits for the culprit's kernel, which ends with this process.
    let setup = ManuallyDrop::new(Setup::new(open));
    // The first two have two engines.
    let clients: Vec<_> = (1..=4).map(|id| ManuallyDrop::new(setup.client(id))).collect();
    let (early, culprit) = (2, 3);
    // Loading waits for a quiet card.
    let prepared: Vec<_> = clients.iter().map(|client| (client.stream(), client.stream(), client.kernels(), client.allocate(8))).collect();
    let launch = |(client, (stream, other, module, flag)): (&ManuallyDrop<Actor<'_>>, &(StreamId, StreamId, Loaded, u64))| {
        client.done(client.launch(*stream, module, "fill", 1, 32, Args::new().u64(*flag).u32(1).u32(0)));
        let token = client.launch(*stream, module, "until", 1, 1, Args::new().u64(*flag));
        // What comes after a kernel in its engine's mailbox is complete: the kernel was begun.
        client.done(client.launch(*other, module, "fill", 1, 32, Args::new().u64(flag + 4).u32(1).u32(0)));
        (*flag, token)
    };
    let begun = Instant::now();
    let launched: Vec<(u64, u64)> = clients.iter().zip(&prepared).map(launch).collect();
    let watch = |time: Duration, told: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while begun.elapsed() < time && !told() {
            std::thread::yield_now();
        }
    };
    // The card stands still for longer than it may have so far, on a slow machine.
    watch(4 * begun.elapsed() + Duration::from_millis(20), &|| false);
    let is_told = |number: usize| clients[number].reports().iter().any(|(_, token, _)| *token == launched[number].1);
    for number in 0..early {
        clients[number].write(launched[number].0, &[1]);
    }
    let any_told = || (0..early).any(is_told);
    watch(Duration::from_millis(100), &any_told);
    let told: Vec<_> = clients.iter().map(|client| client.reports()).collect();
    assert!(!any_told(), "two kernels have ended, and nothing else moves: {told:?} of {launched:?}");
    announce();
    clients[early].write(launched[early].0, &[1]);
    for number in 0..=early {
        clients[number].done(launched[number].1);
    }
    clients[culprit].fault(launched[culprit].1, cumux_wire::result::LAUNCH_FAILED);
    eprintln!("{}: the card stays open", super::PASSED);
}
