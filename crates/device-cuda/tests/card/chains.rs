//! When chains are made.

use super::{NESTED_ONLY, run_nested};
use cumux_device::conformance::{Actor, Args, Loaded, Setup, Variables};
use cumux_device::{ChainRecipe, CopyExtent, Device, ImageHash, Launch, Rows, Sink, StreamId, Work};
use cumux_device_cuda::{Card, Settings};
use cumux_wire::result;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

static OPENED: Mutex<Weak<Card>> = Mutex::new(Weak::new());

pub(super) fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    let card = Card::open(0, sink, Settings::from_environment(1).expect("settings")).expect("the card opens");
    *OPENED.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&card);
    card
}

/// The card that was opened last.
pub(super) fn opened() -> Arc<Card> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).upgrade().expect("it is open")
}

fn chains() -> u64 {
    opened().counters().submitted().chains
}

/// Many streams want chains at about the same time: the card is not stopped for each of them.
#[test]
fn chains_of_many_streams_are_made_in_few_stops() {
    if std::env::var(super::CARD).is_err() {
        ["1", "2"].iter().for_each(|engines| run_nested("chains::chains_of_many_streams_are_made_in_few_stops", &[("CUMUX_DISPATCHERS", engines)]));
        return;
    }
    const STREAMS: usize = 16;
    const MOST_ROUNDS: usize = 500;
    let setup = Setup::new(open);
    let clients = [1, 2].map(|id| setup.client(id));
    let own: Vec<_> = clients.iter().map(|client| (client, client.kernels(), client.allocate(8))).collect();
    let streams: Vec<_> = (0..STREAMS).map(|number| (&own[number % 2], own[number % 2].0.stream())).collect();
    let read = || {
        let card = opened();
        [&card.counters().chains_made, &card.counters().stops].map(|count| count.load(Ordering::Relaxed))
    };
    // A machine may be so slow that each stream's launches come when the chain before is made: they
    // want other chains then, a few times.
    for blocks in 1..=5 {
        // A stream whose launch finds another one's chain free wants none of its own.
        for _ in 0..MOST_ROUNDS {
            if read()[0] >= STREAMS as u64 * u64::from(blocks) {
                break;
            }
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

const PUT: &[u8] = b"
.version 7.0
.target sm_70
.address_size 64
.visible .entry put(.param .u64 out, .param .u32 value)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %ctaid.x;
    add.u32 %r3, %r1, %r2;
    atom.global.exch.b32 %r3, [%rd1], %r3;
    ret;
}
";

/// A program that does the same again and again, with other numbers: passes of kernels, with a copy
/// behind each, of two rows, so that it is no node of a chain. It is some passes ahead, so that the
/// kernels of a pass are in the queue together, and works on two things in turn, so that each of
/// these wants a chain of its own.
struct Program<'a, 'b> {
    client: &'a Actor<'b>,
    module: Loaded,
    stream: StreamId,
    words: u64,
}

impl Program<'_, '_> {
    const KERNELS: u32 = 20;
    const AHEAD: u32 = 8;
    const BYTES: u64 = 4 * Self::KERNELS as u64;

    fn new<'a, 'b>(client: &'a Actor<'b>, module: Loaded) -> Program<'a, 'b> {
        let words = client.allocate(Program::BYTES * u64::from(Program::AHEAD + 2));
        Program { client, module, stream: client.stream(), words }
    }

    /// Some passes.
    fn go_on(&self, round: u32) {
        let value = |pass: u32, kernel: u32| (round * Self::AHEAD + pass) * Self::KERNELS + kernel;
        let copied = |pass: u32| self.words + Self::BYTES * u64::from(pass + 2);
        let mut last = 0;
        for pass in 0..Self::AHEAD {
            let words = self.words + Self::BYTES * u64::from(pass % 2);
            for kernel in 0..Self::KERNELS {
                let shape = Launch { grid: [1, 1 + kernel % 3, 1], block: [1; 3], ..Launch::default() };
                let arguments = Args::new().u64(words + 4 * u64::from(kernel)).u32(value(pass, kernel));
                self.client.launch_with(self.stream, &self.module, "put", shape, arguments);
            }
            let rows = |address| Rows { address, pitch: Self::BYTES / 2, slice: 0 };
            let extent = CopyExtent { width: Self::BYTES / 2, height: 2, depth: 1 };
            last = self.client.submit(self.stream, Work::Copy { target: rows(copied(pass)), source: rows(words), extent });
        }
        self.client.done(last);
        for pass in 0..Self::AHEAD {
            let expected: Vec<u32> = (0..Self::KERNELS).map(|kernel| value(pass, kernel)).collect();
            assert_eq!(self.client.read(copied(pass), Self::KERNELS as usize), expected, "pass {pass} of round {round}");
        }
    }
}

/// What a standby does: the chains are there before the client that is taken over, and it has them
/// from its first passes on. They were made with parameters that are all zero.
#[test]
fn chains_that_were_made_in_advance_are_taken_by_whom_they_fit() {
    if std::env::var(super::CARD).is_err() {
        let run = |engines| run_nested("chains::chains_that_were_made_in_advance_are_taken_by_whom_they_fit", &[("CUMUX_DISPATCHERS", engines)]);
        return ["1", "2"].into_iter().for_each(run);
    }
    const ROUNDS: u32 = 10_000;
    let hash = ImageHash::of(PUT);
    let recipes: Vec<ChainRecipe> = {
        let setup = Setup::new(open);
        let client = setup.client(1);
        let module = client.load(PUT, &mut Variables { actor: &client, restored: HashMap::new() }).expect("loads");
        let program = Program::new(&client, module);
        let mut recipes = (0..ROUNDS).map(|round| {
            program.go_on(round);
            client.device().chain_recipes(1)
        });
        recipes.find(|recipes| recipes.iter().any(|recipe| recipe.count > 1)).expect("two chains of the same kernels were made")
    };
    assert!(recipes.iter().all(|recipe| recipe.kernels.iter().all(|kernel| kernel.image == Some(hash) && kernel.function == 0)));
    let setup = Setup::new(open);
    assert_eq!(setup.device.prepare_chains(&recipes, 100), 0, "the module is not there");
    let client = setup.client(7);
    assert_eq!(setup.device.prepare_chains(&recipes, 100), 0, "there are clients");
    drop(client);
    drop(setup);
    let setup = Setup::new(open);
    let mut read = || Ok(Box::new(PUT) as Box<dyn AsRef<[u8]>>);
    let number = setup.device.preload_module(hash, &mut read, &mut NoVariables).expect("loads").expect("it gains by that");
    setup.device.preload_kernels(number, &[0]).expect("loads");
    let made: usize = recipes.iter().map(|recipe| recipe.count as usize).sum();
    assert_eq!(setup.device.prepare_chains(&recipes, 100), made);
    assert_eq!(setup.device.prepare_chains(&recipes, 100), 0, "they are there");
    assert_eq!(setup.device.prepare_chains(&[], 100), 0, "they are dropped");
    assert_eq!(setup.device.prepare_chains(&recipes, 1), 1);
    assert_eq!(setup.device.prepare_chains(&recipes, 100), made - 1);
    let client = setup.client(1);
    let module = client.adopt(hash, &mut Variables { actor: &client, restored: HashMap::new() }).expect("asked").expect("it is there");
    client.device().inherit_recipes(1, recipes.clone());
    assert_eq!(client.device().chain_recipes(1), recipes);
    let program = Program::new(&client, module);
    let taken = || opened().counters().chains_ahead.load(Ordering::Relaxed);
    (0..ROUNDS).take_while(|_| taken() < 2).for_each(|round| program.go_on(round));
    assert!(taken() >= 2, "{:?}", opened().counters());
    (0..20).for_each(|round| program.go_on(ROUNDS + round));
    eprintln!("{}", super::PASSED);
}

/// Who serves a model starts workers again and again: the next one has the chains of the one
/// before, and so has whoever comes after this process.
#[test]
fn a_stream_that_goes_leaves_its_chains_to_the_next() {
    if std::env::var(super::CARD).is_err() {
        return run_nested("chains::a_stream_that_goes_leaves_its_chains_to_the_next", &[("CUMUX_DISPATCHERS", "1")]);
    }
    const ROUNDS: u32 = 10_000;
    let setup = Setup::new(open);
    let inherited = || opened().counters().chains_inherited.load(Ordering::Relaxed);
    let serve = |id: u32, is_enough: &dyn Fn() -> bool| {
        let client = setup.client(id);
        let program = Program::new(&client, client.load(PUT, &mut Variables { actor: &client, restored: HashMap::new() }).expect("loads"));
        let rounds = (0..ROUNDS).take_while(|_| !is_enough()).inspect(|round| program.go_on(*round)).count();
        assert!(is_enough(), "{:?} after {rounds} rounds", opened().counters());
        (0..20).for_each(|round| program.go_on(ROUNDS + round));
        client.device().chain_recipes(id)
    };
    let first = serve(1, &|| !setup.device.chain_recipes(1).is_empty());
    assert_eq!(inherited(), 0, "nobody was there before");
    let second = serve(2, &|| inherited() > 0);
    assert!(second.iter().any(|recipe| first.iter().any(|other| recipe.kernels == other.kernels)), "{second:?}");
    eprintln!("{}", super::PASSED);
}

struct NoVariables;

impl cumux_device::GlobalsAllocator for NoVariables {
    fn variable(&mut self, name: &str, _bytes: u64, _align: u64, _managed: bool) -> Result<(u64, bool), cumux_device::DeviceError> {
        Err(cumux_device::DeviceError::Invalid(format!("there is no {name}")))
    }
}

/// A program whose rounds are all the same, each of which it waits for: twenty kernels that add to
/// words, and a set and a copy of one word between them. Of what comes again nothing is planned but
/// these two; it does what it says all the same, and no more than that when something in it
/// changes.
struct Repetition<'a, 'b> {
    client: &'a Actor<'b>,
    stream: StreamId,
    words: u64,
    set: u64,
    /// The copy's source and target.
    copy: [u64; 2],
}

impl Repetition<'_, '_> {
    const KERNELS: u32 = 20;
    const COPIED: u32 = 77;

    fn new<'a, 'b>(client: &'a Actor<'b>) -> Repetition<'a, 'b> {
        let [set, source, target] = [0; 3].map(|_| client.allocate(4));
        client.write(source, &[Self::COPIED]);
        Repetition { client, stream: client.stream(), words: client.allocate(4 * u64::from(Repetition::KERNELS)), set, copy: [source, target] }
    }

    /// One round: all but one kernel put the same values again. Returns the token of its end.
    fn begin(&self, module: &Loaded, changed: u32, value: u32) -> u64 {
        let mut last = 0;
        for kernel in 0..Self::KERNELS {
            if kernel == 7 {
                self.client.submit(self.stream, Work::Set { target: self.set, pitch: 0, value: 9, element: 4, width: 1, height: 1 });
            }
            if kernel == 9 {
                self.client.copy(self.stream, self.copy[1], self.copy[0], 4);
            }
            let arguments = Args::new().u64(self.words + 4 * u64::from(kernel)).u32(if kernel == changed { value } else { 100 + kernel });
            last = self.client.launch_with(self.stream, module, "put", Launch { grid: [1; 3], block: [1; 3], ..Launch::default() }, arguments);
        }
        last
    }

    /// Some rounds that are the same, until they are compared with chains, the copy, too.
    fn repeat(&self, module: &Loaded) {
        let counted = || opened().counters().submitted();
        let (before, mut rounds, mut has_copied) = (counted().repeated, 0, false);
        while counted().repeated < before + 20 || !has_copied {
            self.client.write(self.words, &[0; 20]);
            self.client.write(self.set, &[0]);
            self.client.write(self.copy[1], &[0]);
            let kernels = counted().kernels;
            self.client.done(self.begin(module, u32::MAX, 0));
            has_copied = counted().kernels == kernels + u64::from(Self::KERNELS) + 2;
            let expected: Vec<u32> = (0..Self::KERNELS).map(|kernel| 100 + kernel).collect();
            let found = (self.client.read(self.words, 20), self.client.read(self.set, 1), self.client.read(self.copy[1], 1));
            assert_eq!(found, (expected, vec![9], vec![Self::COPIED]), "round {rounds}");
            rounds += 1;
            assert!(rounds < 10_000, "nothing was compared: {:?}", opened().counters());
        }
    }
}

#[test]
fn what_a_program_repeats_is_done_and_what_it_changes_too() {
    if std::env::var(super::CARD).is_err() {
        let run = |engines| run_nested("chains::what_a_program_repeats_is_done_and_what_it_changes_too", &[("CUMUX_DISPATCHERS", engines)]);
        return ["1", "2"].into_iter().for_each(run);
    }
    let setup = Setup::new(open);
    let client = setup.client(1);
    let load = || client.load(PUT, &mut Variables { actor: &client, restored: HashMap::new() }).expect("loads");
    let module = load();
    let program = Repetition::new(&client);
    program.repeat(&module);
    for changed in [0, 6, 8, Repetition::KERNELS - 1] {
        client.done(program.begin(&module, changed, 5));
        assert_eq!(client.read(program.words + 4 * u64::from(changed), 1), [5], "kernel {changed} has another parameter");
        program.repeat(&module);
    }
    // The same image by another number: the old number is nobody's.
    let again = load();
    program.repeat(&again);
    client.device().unload_module(client.id, module.id);
    program.repeat(&again);
    client.fault(program.begin(&module, u32::MAX, 0), result::INVALID_HANDLE);
    eprintln!("{}", super::PASSED);
}

#[test]
fn a_set_that_repeats_is_checked_each_time() {
    if std::env::var(super::CARD).is_err() {
        let run = |engines| run_nested("chains::a_set_that_repeats_is_checked_each_time", &[("CUMUX_DISPATCHERS", engines)]);
        return ["1", "2"].into_iter().for_each(run);
    }
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.load(PUT, &mut Variables { actor: &client, restored: HashMap::new() }).expect("loads");
    let program = Repetition::new(&client);
    program.repeat(&module);
    client.device().revoke(client.id, program.set);
    client.fault(program.begin(&module, u32::MAX, 0), result::ILLEGAL_ADDRESS);
    eprintln!("{}", super::PASSED);
}

#[test]
fn a_copy_that_repeats_is_checked_each_time() {
    if std::env::var(super::CARD).is_err() {
        let run = |engines| run_nested("chains::a_copy_that_repeats_is_checked_each_time", &[("CUMUX_DISPATCHERS", engines)]);
        return ["1", "2"].into_iter().for_each(run);
    }
    for end in [0, 1] {
        let setup = Setup::new(open);
        let client = setup.client(1);
        let module = client.load(PUT, &mut Variables { actor: &client, restored: HashMap::new() }).expect("loads");
        let mut program = Repetition::new(&client);
        program.repeat(&module);
        // From another place.
        program.copy[0] = client.allocate(4);
        client.write(program.copy[0], &[7]);
        client.done(program.begin(&module, u32::MAX, 0));
        assert_eq!(client.read(program.copy[1], 1), [7]);
        client.write(program.copy[0], &[Repetition::COPIED]);
        program.repeat(&module);
        client.device().revoke(client.id, program.copy[end]);
        client.fault(program.begin(&module, u32::MAX, 0), result::ILLEGAL_ADDRESS);
    }
    eprintln!("{}", super::PASSED);
}

/// Each kernel notes its number behind those that ran before it.
const NOTE: &[u8] = b"
.version 7.0
.target sm_70
.address_size 64
.visible .entry note(.param .u64 list, .param .u32 value)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [list];
    ld.param.u32 %r1, [value];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r3, %r2, 1;
    st.global.u32 [%rd1], %r3;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
";

/// Equal kernels of which more is expected are cut into few lengths, and what is left over goes
/// back into its queue. However many come, and whatever the client waits for between: each runs
/// once, in order.
#[test]
fn equal_kernels_that_come_in_parts_run_once_and_in_order() {
    if std::env::var(super::CARD).is_err() {
        let run = |engines| run_nested("chains::equal_kernels_that_come_in_parts_run_once_and_in_order", &[("CUMUX_DISPATCHERS", engines)]);
        return ["1", "2"].into_iter().for_each(run);
    }
    const MOST: usize = 100;
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.load(NOTE, &mut Variables { actor: &client, restored: HashMap::new() }).expect("loads");
    let mut streams = [0; 3].map(|_| (client.stream(), client.allocate(4 * (MOST as u64 + 1))));
    let mut random = 1_u32;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % below
    };
    for round in 0..150 {
        if round == 75 {
            // The same work in others, which have the chains of those before.
            for (stream, _) in &mut streams {
                client.device().destroy_stream(*stream);
                *stream = client.stream();
            }
        }
        // Mostly as many as the last time, so that the rest is expected.
        let counts = streams.map(|_| if round % 5 == 4 { 1 + next(MOST) } else { MOST });
        streams.iter().for_each(|(_, list)| client.write(*list, &[0]));
        let mut last = [None; 3];
        while (0..3).any(|at| last[at].map_or(0, |(_, done)| done) < counts[at]) {
            let at = next(3);
            let done = last[at].map_or(0, |(_, done): (u64, usize)| done);
            let (stream, list) = streams[at];
            for number in done..(done + 1 + next(40)).min(counts[at]) {
                let token = client.launch(stream, &module, "note", 1, 1, Args::new().u64(list).u32(number as u32));
                last[at] = Some((token, number + 1));
            }
            if let Some((token, _)) = last[at].filter(|_| next(8) == 0) {
                client.done(token);
            }
        }
        for (at, (_, list)) in streams.iter().enumerate() {
            if let Some((token, count)) = last[at] {
                client.done(token);
                let expected: Vec<u32> = std::iter::once(count as u32).chain(0..count as u32).collect();
                assert_eq!(client.read(*list, count + 1), expected, "stream {at} in round {round}");
            }
        }
    }
    let submitted = opened().counters().submitted();
    assert!(submitted.coalesced > submitted.kernels / 4 && submitted.returned > 0, "{submitted:?}");
    assert!(opened().counters().chains_inherited.load(Ordering::Relaxed) > 0, "{:?}", opened().counters());
    eprintln!("{}", super::PASSED);
}
