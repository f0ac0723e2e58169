//! What a context makes when a kernel first needs it, beside a kernel that does not end; and
//! streams that would share a queue with it. The driver's part is played as a card's driver does
//! it: whoever launches waits until all kernels have ended.

use super::{NESTED_ONLY, open, run_nested};
use cumux_device::conformance::{Actor, Args, Loaded, Setup};
use cumux_device::{DeviceError, GlobalsAllocator, StreamId};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// Images without variables ask for none.
struct NoVariables;

impl GlobalsAllocator for NoVariables {
    fn variable(&mut self, name: &str, _: u64, _: u64, _: bool) -> Result<(u64, bool), DeviceError> {
        Err(DeviceError::Invalid(format!("{name} has no place")))
    }

    fn is_restoring(&self) -> bool {
        false
    }

    fn not_resumable(&mut self, _: &str) {}
}

/// A kernel with so many bytes of local memory, which writes 7 to its parameter's address.
fn with_local(bytes: u32) -> String {
    format!(
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry large(.param .u64 out, .param .u32 at)\n{{\n\
         .local .align 16 .b8 room[{bytes}];\n.reg .b64 %d<5>;\n.reg .b32 %r<4>;\n\
         ld.param.u64 %d1, [out];\nld.param.u32 %r1, [at];\nmov.u64 %d2, room;\ncvt.u64.u32 %d3, %r1;\nadd.u64 %d4, %d2, %d3;\n\
         mov.u32 %r2, 7;\nst.local.u32 [%d4], %r2;\nld.local.u32 %r3, [%d4];\nst.global.u32 [%d1], %r3;\nret;\n}}\n"
    )
}

/// True if the test runs here; else it has run over a software GPU, or is left out.
fn runs_here(test: &str, settings: &[(&str, &str)]) -> bool {
    if std::env::var(super::CARD).is_err() {
        for engines in ["1", "2"] {
            run_nested(test, &[settings, &[("CUMUX_DISPATCHERS", engines), (NESTED_ONLY, "1")]].concat());
        }
        return false;
    }
    let is_nested = std::env::var(NESTED_ONLY).is_ok();
    if !is_nested {
        println!("left out: a card may run other kernels late beside one that polls memory");
    }
    is_nested
}

/// A kernel that polls a word until it is not 0. It is running when this returns.
struct Endless<'a, 'b> {
    client: &'a Actor<'b>,
    flag: u64,
    token: u64,
}

impl<'a, 'b> Endless<'a, 'b> {
    fn begin(client: &'a Actor<'b>, module: &Loaded) -> Self {
        let (stream, flag) = (client.stream(), client.allocate(8));
        client.done(client.launch(stream, module, "fill", 1, 1, Args::new().u64(flag).u32(1).u32(0)));
        client.launch(stream, module, "fill", 1, 1, Args::new().u64(flag + 4).u32(1).u32(1));
        let token = client.launch(stream, module, "until", 1, 1, Args::new().u64(flag));
        client.wait_for_change(flag + 4, 0);
        Endless { client, flag, token }
    }

    fn end(self) {
        self.client.write(self.flag, &[1]);
        self.client.done(self.token);
    }
}

/// Another client's work. Its memory and module are there from the beginning.
struct Work<'a, 'b> {
    client: &'a Actor<'b>,
    stream: StreamId,
    module: Loaded,
    out: u64,
}

impl<'a, 'b> Work<'a, 'b> {
    fn of(client: &'a Actor<'b>) -> Self {
        Work { client, stream: client.stream(), module: client.kernels(), out: client.allocate(8) }
    }

    /// It goes on.
    fn goes_on(&self) {
        for round in 0..50 {
            self.client.done(self.client.launch(self.stream, &self.module, "fill", 1, 1, Args::new().u64(self.out).u32(1).u32(round)));
            assert_eq!(self.client.read(self.out, 1), [round]);
        }
    }
}

#[test]
fn the_first_kernel_that_prints_keeps_nobody_waiting() {
    if !runs_here("first_uses::the_first_kernel_that_prints_keeps_nobody_waiting", &[]) {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let [long, printing, other] = [1, 2, 3].map(|id| ManuallyDrop::new(setup.client(id)));
    let (long_module, module, others) = (long.kernels(), printing.kernels(), Work::of(&other));
    assert_eq!(printing.text(), "", "what the card printed by itself is nobody's");
    let endless = Endless::begin(&long, &long_module);
    printing.done(printing.launch(printing.stream(), &module, "say", 1, 1, Args::new().u32(5)));
    others.goes_on();
    endless.end();
    eprintln!("{}: the card stays open", super::PASSED);
}

/// A kernel that calls a function which calls itself as often as its parameter says, and writes how
/// often that was.
const DEEP: &str = "
.version 7.0
.target sm_75
.address_size 64
.func (.param .b32 result) down(.param .b32 count)
{
    .reg .b32 %r<5>;
    .reg .pred %p;
    ld.param.u32 %r1, [count];
    mov.u32 %r4, 0;
    setp.eq.u32 %p, %r1, 0;
    @%p bra over;
    sub.u32 %r2, %r1, 1;
    {
        .param .b32 argument;
        .param .b32 returned;
        st.param.b32 [argument], %r2;
        call.uni (returned), down, (argument);
        ld.param.b32 %r3, [returned];
    }
    add.u32 %r4, %r3, 1;
over:
    st.param.b32 [result], %r4;
    ret;
}
.visible .entry deep(.param .u64 out, .param .u32 count)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r1, [count];
    {
        .param .b32 argument;
        .param .b32 returned;
        st.param.b32 [argument], %r1;
        call.uni (returned), down, (argument);
        ld.param.b32 %r2, [returned];
    }
    st.global.u32 [%d1], %r2;
    ret;
}
";

/// A context begins without a stack.
#[test]
fn a_kernel_whose_stack_nobody_knows_has_the_usual_one() {
    if !runs_here("first_uses::a_kernel_whose_stack_nobody_knows_has_the_usual_one", &[]) {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let client = ManuallyDrop::new(setup.client(1));
    let module = client.load(DEEP.as_bytes(), &mut NoVariables).expect("it is loaded");
    let (stream, out) = (client.stream(), client.allocate(8));
    client.done(client.launch(stream, &module, "deep", 1, 1, Args::new().u64(out).u32(9)));
    assert_eq!(client.read(out, 1), [9]);
    eprintln!("{}: the card stays open", super::PASSED);
}

/// The memory is made while the card is quiet, which it is not yet.
#[test]
fn a_kernel_that_needs_more_local_memory_keeps_nobody_waiting() {
    if !runs_here("first_uses::a_kernel_that_needs_more_local_memory_keeps_nobody_waiting", &[]) {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let [long, large, other] = [1, 2, 3].map(|id| ManuallyDrop::new(setup.client(id)));
    let (long_module, others) = (long.kernels(), Work::of(&other));
    let [little, much] = [512, 40_000].map(|bytes| large.load(with_local(bytes).as_bytes(), &mut NoVariables).expect("it is loaded"));
    let (stream, out) = (large.stream(), large.allocate(8));
    let launch = |module: &Loaded| large.launch(stream, module, "large", 1, 1, Args::new().u64(out).u32(16));
    // Little is made at once.
    large.done(launch(&little));
    let endless = Endless::begin(&long, &long_module);
    large.done(launch(&little));
    let waits = launch(&much);
    others.goes_on();
    endless.end();
    large.done(waits);
    assert_eq!(large.read(out, 1), [7]);
    // It is there now, also beside a kernel that does not end.
    let endless = Endless::begin(&long, &long_module);
    large.done(launch(&much));
    others.goes_on();
    endless.end();
    eprintln!("{}: the card stays open", super::PASSED);
}

/// Says that it has begun, and ends when the word behind that is set.
const BEGINS_AND_WAITS: &[u8] = b"
.version 7.0
.target sm_70
.address_size 64
.visible .entry waits(.param .u64 words)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [words];
    st.volatile.global.u32 [%rd1], 1;
$again:
    ld.volatile.global.u32 %r1, [%rd1+4];
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra $again;
    ret;
}
";

/// With six queues four streams are busy at a time, or three and one more where two engines take
/// the last place together: the next one's work would be queued behind a kernel that does not end.
#[test]
fn no_more_streams_are_busy_than_there_are_queues() {
    let settings = [("CUMUX_CONNECTIONS", "6"), ("CUMUX_LONG_KERNEL_MS", "60000")];
    if !runs_here("first_uses::no_more_streams_are_busy_than_there_are_queues", &settings) {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let clients: Vec<_> = (1..=6).map(|id| ManuallyDrop::new(setup.client(id))).collect();
    let modules: Vec<_> = clients.iter().map(|client| client.load(BEGINS_AND_WAITS, &mut NoVariables).expect("it is loaded")).collect();
    let cells: Vec<u64> = clients.iter().map(|client| client.allocate(8)).collect();
    cells.iter().zip(&clients).for_each(|(cell, client)| client.write(*cell, &[0, 0]));
    let launch = |at: usize| clients[at].launch(clients[at].stream(), &modules[at], "waits", 1, 1, Args::new().u64(cells[at]));
    let tokens: Vec<_> = (0..clients.len()).map(launch).collect();
    let begun = || (0..clients.len()).filter(|at| clients[*at].read(cells[*at], 1) == [1]).collect::<Vec<_>>();
    let mut ended = Vec::new();
    while ended.len() < clients.len() {
        let running = loop {
            let running: Vec<_> = begun().into_iter().filter(|at| !ended.contains(at)).collect();
            assert!(running.len() <= 4, "{running:?} are busy");
            if running.len() >= 3.min(clients.len() - ended.len()) {
                break running;
            }
        };
        // More would have begun by now.
        for _ in 0..20 {
            assert!(begun().len() <= ended.len() + 4);
        }
        clients[running[0]].write(cells[running[0]] + 4, &[1]);
        clients[running[0]].done(tokens[running[0]]);
        ended.push(running[0]);
    }
    eprintln!("{}: the card stays open", super::PASSED);
}

/// With four queues one stream or two are busy at a time. A kernel that waits for what other
/// streams do waits for ever, unless the limit is lifted.
#[test]
fn kernels_that_wait_for_one_another_all_begin() {
    if !runs_here("first_uses::kernels_that_wait_for_one_another_all_begin", &[("CUMUX_CONNECTIONS", "4")]) {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let [first, second] = [1, 2].map(|id| ManuallyDrop::new(setup.client(id)));
    let clients = [&first, &second];
    let modules = clients.map(|client| client.kernels());
    let cells = clients.map(|client| client.allocate(8));
    for _ in 0..3 {
        clients.iter().zip(cells).for_each(|(client, cell)| client.write(cell, &[0, 0]));
        let mut tokens = Vec::new();
        for at in 0..2 {
            // Two kernels that wait, and one that lets them go.
            let (client, module, cell) = (clients[at], &modules[at], cells[at]);
            tokens.push((client, client.launch(client.stream(), module, "until", 1, 1, Args::new().u64(cell))));
            tokens.push((client, client.launch(client.stream(), module, "until", 1, 1, Args::new().u64(cell))));
            tokens.push((client, client.launch(client.stream(), module, "fill", 1, 1, Args::new().u64(cell).u32(1).u32(1))));
        }
        tokens.into_iter().for_each(|(client, token)| client.done(token));
    }
    eprintln!("{}: the card stays open", super::PASSED);
}

/// Work of a stream with a place ends again and again: whoever waits for a place will have one, and
/// no more streams than there are queues become busy, however long it takes.
#[test]
fn a_crowd_that_moves_is_left_alone() {
    const PATIENCE: Duration = Duration::from_millis(2500);
    let settings = [("CUMUX_CONNECTIONS", "4"), ("CUMUX_LONG_KERNEL_MS", "2500")];
    if !runs_here("first_uses::a_crowd_that_moves_is_left_alone", &settings) {
        return;
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let clients: Vec<_> = (1..=3).map(|id| ManuallyDrop::new(setup.client(id))).collect();
    let [first, second, waits] = [&clients[0], &clients[1], &clients[2]];
    // Each kernel of the first two ends when its word is set.
    let kernels = 24;
    let prepare = |client: &Actor<'_>| {
        let (module, words) = (client.kernels(), client.allocate(8 * u64::from(kernels)));
        client.write(words, &vec![0; 2 * kernels as usize]);
        (module, words)
    };
    let begin = |client: &Actor<'_>, (module, words): (Loaded, u64)| -> (u64, Vec<u64>) {
        let stream = client.stream();
        let tokens = (0..u64::from(kernels)).map(|at| client.launch(stream, &module, "until", 1, 1, Args::new().u64(words + 8 * at))).collect();
        (words, tokens)
    };
    let others = Work::of(waits);
    waits.write(others.out, &[0]);
    let prepared = [first, second].map(|client| prepare(client));
    let [of_first, of_second] = prepared;
    let busy = [(first, begin(first, of_first)), (second, begin(second, of_second))];
    let last = waits.launch(others.stream, &others.module, "fill", 1, 1, Args::new().u64(others.out).u32(1).u32(1));
    let (begun, step) = (Instant::now(), 2 * PATIENCE / (kernels - 4));
    for at in 0..kernels {
        let due = step * at;
        while begun.elapsed() < due {
            std::thread::yield_now();
        }
        // The last ones of each are still there.
        if at + 4 < kernels {
            assert_eq!(waits.read(others.out, 1), [0], "it has begun beside {at} of {kernels} kernels that have ended");
        }
        busy.iter().for_each(|(client, (words, _))| client.write(words + 8 * u64::from(at), &[1]));
    }
    busy.iter().for_each(|(client, (_, tokens))| tokens.iter().for_each(|token| client.done(*token)));
    waits.done(last);
    eprintln!("{}: the card stays open", super::PASSED);
}
