//! Small copies between kernels.

use super::chains::{open, opened};
use super::{NESTED_ONLY, run_nested};
use cumux_device::conformance::{Actor, Args, Loaded, Setup};
use cumux_device::{Begun, StreamId};
use cumux_wire::result;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// A stream of a client that copies between kernels.
struct Copier<'a, 'b> {
    client: &'a Actor<'b>,
    module: Loaded,
    stream: StreamId,
    /// Memory with different words, and memory to which they are copied.
    source: u64,
    target: u64,
}

impl<'b> Copier<'_, 'b> {
    const BYTES: u64 = 1 << 15;
    const LONGEST: Duration = Duration::from_secs(20);

    fn new<'a>(client: &'a Actor<'b>) -> Copier<'a, 'b> {
        let [source, target] = [0; 2].map(|_| client.allocate(Self::BYTES));
        let words: Vec<u32> = (0..Self::BYTES as u32 / 4).map(|word| word.wrapping_mul(0x9e37_79b9)).collect();
        client.write(source, &words);
        Copier { client, module: client.kernels(), stream: client.stream(), source, target }
    }

    /// A kernel, a copy, a kernel and a copy of what that one has written; all are done.
    fn round(&self, round: u32) {
        let Copier { client, module, stream, source, target } = self;
        let (from, to) = (u64::from(round) * 7 % 1024, u64::from(round) * 13 % 512);
        let (from, to, bytes) = match round % 4 {
            0 => (from * 16, to * 16, 16 + 16 * from),
            1 => (from * 8, to * 8, 8 + 8 * from),
            2 => (from * 4, to * 4, 4 + 8 * from),
            _ => (from, to, 1 + 2 * from),
        };
        let fill = |word: u64, value: u32| client.launch(*stream, module, "fill", 1, 32, Args::new().u64(*target + word).u32(1).u32(value));
        let (written, copied) = (Self::BYTES - 8, Self::BYTES - 4);
        fill(written, round);
        client.copy(*stream, *target + to, *source + from, bytes);
        fill(written, round + 1);
        client.done(client.copy(*stream, *target + copied, *target + written, 4));
        assert_eq!(client.read(*target + written, 2), [round + 1, round + 1], "round {round}");
        let bytes_at = |address: u64| -> Vec<u8> {
            let before = address & 3;
            let words = client.read(address - before, (bytes + before).div_ceil(4) as usize);
            words.iter().flat_map(|word| word.to_le_bytes()).skip(before as usize).take(bytes as usize).collect()
        };
        assert!(bytes_at(*target + to) == bytes_at(*source + from), "round {round}: {bytes} bytes from {from} to {to}");
    }

    /// How many kernels were submitted meanwhile, those that copy among them.
    fn kernels_of(&self, does: impl FnOnce()) -> u64 {
        let kernels = || opened().counters().submitted().kernels;
        let before = kernels();
        does();
        kernels() - before
    }

    /// Rounds until the copies of one were kernels.
    fn until_copies_are_kernels(&self) {
        let begun = Instant::now();
        let mut rounds = (0..).take_while(|_| begun.elapsed() < Self::LONGEST);
        assert!(rounds.any(|round| self.kernels_of(|| self.round(round)) == 4), "no copy between kernels became one");
    }
}

/// Between kernels a small copy is one more of them. Whatever its length, it copies the right
/// bytes.
#[test]
fn small_copies_between_kernels_are_kernels() {
    if std::env::var(super::CARD).is_err() {
        ["1", "2"].iter().for_each(|engines| run_nested("small_copies::small_copies_between_kernels_are_kernels", &[("CUMUX_DISPATCHERS", engines)]));
        return;
    }
    let setup = Setup::new(open);
    let client = setup.client(1);
    let copier = Copier::new(&client);
    copier.until_copies_are_kernels();
    let kernels = copier.kernels_of(|| (0..400).for_each(|round| copier.round(round)));
    eprintln!("{} of 800 copies were kernels", kernels - 800);
    copier.until_copies_are_kernels();
    let copy = |at: u64| client.copy(copier.stream, copier.target + 4 * at, copier.source, 4);
    let made = copier.kernels_of(|| client.done((0..50).map(copy).last().expect("some")));
    assert!(made <= 16, "who only copies has the copy engines: {made} of 50 copies were kernels");
    eprintln!("{}", super::PASSED);
}

/// A kernel that fills the card may wait for what another stream of its client copies. As a kernel
/// the copy would wait for it.
#[test]
fn a_copy_beside_kernels_of_another_stream_is_none() {
    if std::env::var(super::CARD).is_err() {
        ["1", "2"].iter().for_each(|engines| {
            run_nested("small_copies::a_copy_beside_kernels_of_another_stream_is_none", &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]);
        });
        return;
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: a card may run other kernels late beside one that polls memory");
    }
    // Where an assertion fails, closing the device would wait for the kernel.
    let setup = ManuallyDrop::new(Setup::new(open));
    let client = ManuallyDrop::new(setup.client(1));
    let (copier, other, words) = (ManuallyDrop::new(Copier::new(&client)), client.stream(), client.allocate(8));
    let until = || client.launch(other, &copier.module, "until", 1, 1, Args::new().u64(words));
    // It ends at once the first time, so that it is not known to be long.
    client.write(words, &[1, 1]);
    client.done(until());
    copier.until_copies_are_kernels();
    client.write(words, &[0, 1]);
    let kernels = copier.kernels_of(|| {
        let waits = until();
        client.done(client.copy(copier.stream, words, words + 4, 4));
        client.done(waits);
    });
    assert_eq!(kernels, 1, "the copy was a kernel");
    // Also where the other kernel has run for long.
    copier.until_copies_are_kernels();
    client.write(words, &[0, 1]);
    let before = opened().counters().submitted().kernels;
    let waits = until();
    while opened().counters().submitted().kernels == before {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    for round in 0.. {
        assert_eq!(copier.kernels_of(|| copier.round(round)), 2, "a copy was a kernel in round {round}");
        if begun.elapsed() > Duration::from_millis(300) {
            break;
        }
    }
    client.write(words, &[1]);
    client.done(waits);
    eprintln!("{}", super::PASSED);
}

/// A copy that a kernel does may begin when the kernels have ended beside which its client was let
/// go. If the client's next executor had done it as well, it would come a second time, over what
/// was written since.
#[test]
fn a_copy_that_may_still_be_done_is_not_done_elsewhere() {
    if std::env::var(super::CARD).is_err() {
        let run =
            |engines| run_nested("small_copies::a_copy_that_may_still_be_done_is_not_done_elsewhere", &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]);
        return ["1", "2"].into_iter().for_each(run);
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: a card may run other kernels late beside one that polls memory");
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let [client, neighbour] = [1, 2].map(|id| ManuallyDrop::new(setup.client(id)));
    let (copier, words) = (ManuallyDrop::new(Copier::new(&client)), client.allocate(8));
    let until = || client.launch(copier.stream, &copier.module, "until", 1, 1, Args::new().u64(words));
    client.write(words, &[1, 1]);
    client.done(until());
    copier.until_copies_are_kernels();
    client.write(words, &[0, 1]);
    let before = opened().counters().submitted().kernels;
    let waits = until();
    let copy = client.copy(copier.stream, copier.target, copier.source, 4);
    while opened().counters().submitted().kernels < before + 2 {
        std::thread::yield_now();
    }
    let begun = setup.device.leave(&BTreeSet::from([neighbour.id]), Duration::from_millis(200));
    assert_eq!(begun, Begun::Only(Vec::new()), "nothing is left in doubt");
    for token in [waits, copy] {
        client.fault(token, result::LAUNCH_FAILED);
    }
    client.write(words, &[1]);
    eprintln!("{}", super::PASSED);
}
