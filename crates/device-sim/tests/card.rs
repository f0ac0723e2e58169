//! What only the software GPU has: a watchdog, several cards of a kind, shares of cards that are
//! smaller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cumux_device::conformance::{Actor, Args, Loaded, Setup};
use cumux_device::{ClientSpec, Device, Launch, Sink, StreamId, Work};
use cumux_device_sim::{FaultTiming, Memory, Settings, open, open_with};
use cumux_wire::result;

fn watched(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_with(
        "sim:h200",
        sink,
        Settings { threads: 2, watchdog: Some(Duration::from_millis(50)), marks: true, memory: Memory::Own(u64::MAX), faults: FaultTiming::default() },
    )
    .expect("opens")
}

fn one_thread(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_with("sim:a100", sink, Settings { threads: 1, watchdog: None, marks: true, memory: Memory::Own(u64::MAX), faults: FaultTiming::default() })
        .expect("opens")
}

#[test]
fn the_watchdog_ends_a_kernel_and_only_its_client() {
    let setup = Setup::new(watched);
    let (bad, good) = (setup.client(1), setup.client(2));
    let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
    let p = bad.allocate(4);
    let token = bad.launch(bad.stream(), &bad_kernels, "endless", 300, 256, Args::new().u64(p));
    let text = bad.fault(token, result::LAUNCH_TIMEOUT);
    assert!(text.contains("endless") && text.contains("CUMUX_SIM_WATCHDOG_MS"), "{text}");
    let q = good.allocate(4 * 64);
    good.done(good.launch(good.stream(), &good_kernels, "add_one", 1, 64, Args::new().u64(q).u32(64)));
    assert_eq!(good.read(q, 64), vec![1; 64]);
}

fn rounded(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    let settings = Settings { threads: 2, watchdog: None, marks: true, memory: Memory::Own(u64::MAX), faults: FaultTiming::default() };
    open_with("sim:h200:granule", sink, settings).expect("opens")
}

/// A kernel that goes on a little behind its buffer: a fault that says how a real card is had, and
/// no fault there. Behind the granule it is one on both.
#[test]
fn bounds_are_exact_unless_the_card_rounds_them() {
    for (open, passes) in [(watched_not as fn(Arc<dyn Sink>) -> Arc<dyn Device>, false), (rounded, true)] {
        let setup = Setup::new(open);
        let client = setup.client(1);
        let module = client.kernels();
        let buffer = client.allocate(4 * 64);
        let launch = |from: u64| client.launch(client.stream(), &module, "add_one", 1, 128, Args::new().u64(from).u32(128));
        let token = launch(buffer);
        if passes {
            client.done(token);
            assert_eq!(client.read(buffer, 64), vec![1; 64]);
            let text = client.fault(launch(buffer + (2 << 20)), result::ILLEGAL_ADDRESS);
            assert!(text.contains("outside any allocation") && !text.contains("granule"), "{text}");
        } else {
            let text = client.fault(token, result::ILLEGAL_ADDRESS);
            assert!(text.contains("outside any allocation") && text.contains("a device such as sim:h200:granule"), "{text}");
        }
    }
}

/// A vector of shared memory whose end is behind what the launch asked for: compilers load more
/// than a program reads.
#[test]
fn bounds_of_shared_memory_are_exact_unless_the_card_rounds_them() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];
        .visible .entry vector(.param .u64 out, .param .u32 at) {
            .reg .u32 %at, %shared, %r<4>; .reg .u64 %out;
            ld.param.u64 %out, [out]; ld.param.u32 %at, [at];
            mov.u32 %shared, dynamic; add.u32 %shared, %shared, %at;
            st.shared.u32 [%shared], 7;
            ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%shared];
            st.global.u32 [%out], %r0;
            ret;
        }";
    for (open, passes) in [(watched_not as fn(Arc<dyn Sink>) -> Arc<dyn Device>, false), (rounded, true)] {
        let setup = Setup::new(open);
        let client = setup.client(1);
        let module = client.load(text.as_bytes(), &mut NoVariables).expect("loads");
        let out = client.allocate(4);
        let shape = Launch { grid: [1; 3], block: [1; 3], shared: 28, ..Launch::default() };
        let launch = |at: u32| client.launch_with(client.stream(), &module, "vector", shape.clone(), Args::new().u64(out).u32(at));
        client.done(launch(0));
        let token = launch(16);
        if passes {
            client.done(token);
            assert_eq!(client.read(out, 1), [7]);
            let text = client.fault(launch(128), result::ILLEGAL_ADDRESS);
            assert!(text.contains("shared memory") && !text.contains("granule"), "{text}");
        } else {
            let text = client.fault(token, result::ILLEGAL_ADDRESS);
            assert!(text.contains("shared memory") && text.contains("a device such as sim:h200:granule"), "{text}");
        }
    }
}

#[test]
fn one_worker_is_enough_for_blocks_that_wait_for_each_other() {
    let setup = Setup::new(one_thread);
    let client = setup.client(1);
    let module = client.kernels();
    let (values, out, arrived) = (client.allocate(4 * 108), client.allocate(4 * 512), client.allocate(4));
    let stream = client.stream();
    client.launch(stream, &module, "meet", 512, 32, Args::new().u64(arrived).u64(out));
    let shape = Launch { grid: [108, 1, 1], block: [64, 1, 1], cooperative: true, ..Launch::default() };
    client.launch_with(stream, &module, "sync_grid", shape, Args::new().u64(values).u64(out).u32(3));
    client.drain(stream);
    assert_eq!(client.read(values, 108), vec![3; 108]);
    assert_eq!(client.read(out, 512), vec![512; 512]);
}

#[test]
fn two_cooperative_grids_that_do_not_fit_together_run_one_after_the_other() {
    let setup = Setup::new(watched_not);
    let client = setup.client_with(1, &ClientSpec { multiprocessors: 4, ..ClientSpec::default() });
    let module = client.kernels();
    let shape = Launch { grid: [4, 1, 1], block: [1024, 1, 1], cooperative: true, ..Launch::default() };
    let tokens: Vec<u64> = (0..4)
        .map(|_| {
            let (values, out) = (client.allocate(64), client.allocate(64));
            client.launch_with(client.stream(), &module, "sync_grid", shape.clone(), Args::new().u64(values).u64(out).u32(2))
        })
        .collect();
    for token in tokens {
        client.done(token);
    }
}

fn watched_not(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_with("sim:h200", sink, Settings { threads: 3, watchdog: None, marks: true, memory: Memory::Own(u64::MAX), faults: FaultTiming::default() })
        .expect("opens")
}

#[test]
fn more_kernels_in_flight_than_the_marks_have_slots() {
    let setup = Setup::new(watched_not);
    let client = setup.client(1);
    let module = client.kernels();
    let (flag, p) = (client.allocate(4), client.allocate(4 * 600));
    // Each waits for the flag; the kernel that sets it comes last.
    let tokens: Vec<u64> = (0..511).map(|_| client.launch(client.stream(), &module, "until", 1, 1, Args::new().u64(flag))).collect();
    let more: Vec<u64> = (0..89u64).map(|i| client.launch(client.stream(), &module, "fill", 1, 1, Args::new().u64(p + 4 * i).u32(1).u32(1))).collect();
    for token in more {
        client.done(token);
    }
    client.done(client.launch(client.stream(), &module, "fill", 1, 1, Args::new().u64(flag).u32(1).u32(1)));
    for token in tokens {
        client.done(token);
    }
    assert_eq!(client.read(p, 89), vec![1; 89]);
}

#[test]
fn who_is_closed_takes_its_own_streams_and_no_others() {
    let setup = Setup::new(watched_not);
    let (first, last) = (setup.client(1), setup.client(3));
    let (of_first, of_last) = (first.stream(), last.stream());
    let gone = setup.client(2);
    let of_gone = gone.stream();
    gone.done(gone.submit(of_gone, Work::Nop));
    drop(gone);
    for (client, stream) in [(&first, of_first), (&last, of_last)] {
        client.done(client.submit(stream, Work::Nop));
    }
    assert!(setup.device.submit(of_gone, 1, Work::Nop).is_err(), "nobody has it any more");
}

/// Even blocks write vectors whose parts agree, odd blocks read them and count those that do not.
const PAIRS: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry pairs(.param .u64 values, .param .u64 wrong, .param .u32 stride, .param .u32 rounds)
{
    .reg .b32 %r<16>;
    .reg .b64 %rd<6>;
    .reg .pred %p<6>;
    ld.param.u64 %rd1, [values];
    ld.param.u64 %rd2, [wrong];
    ld.param.u32 %r1, [stride];
    ld.param.u32 %r2, [rounds];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    and.b32 %r5, %r4, 1;
    setp.ne.u32 %p1, %r5, 0;
    mul.lo.u32 %r6, %r3, %r1;
    cvt.u64.u32 %rd3, %r6;
    add.u64 %rd3, %rd1, %rd3;
AGAIN:
    @%p1 bra READ;
    st.volatile.global.v2.u32 [%rd3], {%r2, %r2};
    st.volatile.global.v4.u32 [%rd3+16], {%r2, %r2, %r2, %r2};
    bra NEXT;
READ:
    ld.volatile.global.v2.u32 {%r7, %r8}, [%rd3];
    ld.volatile.global.v4.u32 {%r9, %r10, %r11, %r12}, [%rd3+16];
    setp.ne.u32 %p2, %r7, %r8;
    @%p2 red.global.add.u32 [%rd2], 1;
NEXT:
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p3, %r2, 0;
    @%p3 bra AGAIN;
    ret;
}
";

#[test]
fn a_pair_of_words_is_read_and_written_at_once() {
    // A status and a value in one vector: how the scans of CUB hand their sums from block to block.
    // PTX promises it of no vector; here 8 bytes are never torn, 16 bytes rarely are (seen in one
    // of five runs of this test).
    let setup = Setup::new(watched_not);
    let client = setup.client(1);
    let kernels = client.load(PAIRS.as_bytes(), &mut NoVariables).expect("loads");
    let (values, wrong) = (client.allocate(64 * 64), client.allocate(4));
    // Each lane alone, or in rows with gaps of all kinds.
    for stride in [32, 48, 64] {
        client.done(client.launch(client.stream(), &kernels, "pairs", 8, 32, Args::new().u64(values).u64(wrong).u32(stride).u32(8000)));
    }
    assert_eq!(client.read(wrong, 1), vec![0]);
}

struct NoVariables;

impl cumux_device::GlobalsAllocator for NoVariables {
    fn variable(&mut self, name: &str, _: u64, _: u64, _: bool) -> Result<(u64, bool), cumux_device::DeviceError> {
        Err(cumux_device::DeviceError::Invalid(format!("no variable {name} expected")))
    }
}

struct Deaf;

impl Sink for Deaf {
    fn retired(&self, _: u32, _: cumux_device::StreamId, _: u64, _: cumux_device::Outcome) {}
    fn text(&self, _: u32, _: cumux_device::Channel, _: &[u8]) {}
}

#[test]
fn cards_of_a_kind_have_uuids_of_their_own_and_give_them_back() {
    let open = || open("sim:l4", Arc::new(Deaf)).expect("opens");
    let (first, second) = (open(), open());
    let uuid = first.facts().uuid;
    assert_ne!(uuid, second.facts().uuid);
    drop(first);
    assert_eq!(open().facts().uuid, uuid);
    let unknown = cumux_device_sim::open("sim:v100", Arc::new(Deaf)).err().expect("refused").to_string();
    assert!(unknown.contains("sim:h200"), "{unknown}");
}

/// Multiprocessors on which blocks of one kernel were placed.
fn seen(client: &Actor<'_>, module: &Loaded, stream: StreamId) -> BTreeSet<u32> {
    let (sms, threads) = (client.allocate(4 * 600), client.allocate(4 * 600));
    client.launch(stream, module, "where", 600, 1024, Args::new().u64(sms).u64(threads));
    client.drain(stream);
    client.read(sms, 600).into_iter().collect()
}

#[test]
fn shares_partitions_and_a_share_that_changes_under_a_running_kernel() {
    let setup = Setup::new(watched_not);
    let client = setup.client_with(1, &ClientSpec { multiprocessors: 64, ..ClientSpec::default() });
    let other = setup.client_with(2, &ClientSpec { multiprocessors: 66, ..ClientSpec::default() });
    let (module, others) = (client.kernels(), other.kernels());
    let whole = seen(&client, &module, client.stream());
    let beside = seen(&other, &others, other.stream());
    assert_eq!((whole.len(), beside.len(), whole.intersection(&beside).count()), (64, 66, 0));

    setup.device.open_partition(1, 9, 16).unwrap();
    assert!(setup.device.open_partition(1, 9, 8).is_err() && setup.device.create_stream_in(1, 3, 0).is_err());
    let part = setup.device.create_stream_in(1, 9, 0).unwrap();
    let inside = seen(&client, &module, part);
    assert!(inside.len() == 16 && inside.is_subset(&whole), "{inside:?}");

    // What has begun ends where it is; the next kernel runs on the new share.
    let flag = client.allocate(4);
    let waits = client.launch(client.stream(), &module, "until", 1, 32, Args::new().u64(flag));
    setup.device.set_share(1, 8).unwrap();
    let small = seen(&client, &module, client.stream());
    assert_eq!((small.len(), seen(&client, &module, part).len()), (8, 8), "partitions shrink with it");
    client.write(flag, &[1]);
    client.done(waits);
    setup.device.close_partition(1, 9);
    setup.device.set_share(1, 0).unwrap();
    assert_eq!(seen(&client, &module, client.stream()).len(), 132);
    assert!(setup.device.set_share(77, 8).is_err());
}

#[test]
fn a_client_below_normal_gets_what_normal_ones_leave() {
    let setup = Setup::new(one_thread);
    let (low, normal) = (setup.client_with(1, &ClientSpec { priority: 1, ..ClientSpec::default() }), setup.client(2));
    let (low_kernels, normal_kernels) = (low.kernels(), normal.kernels());
    let (flag, p, q) = (normal.allocate(4), low.allocate(4 * 64), normal.allocate(4 * 64));
    // The normal client has work for the only worker all the time.
    let spins = normal.launch(normal.stream(), &normal_kernels, "until", 1, 32, Args::new().u64(flag));
    let waits = low.launch(low.stream_with(-5), &low_kernels, "add_one", 1, 64, Args::new().u64(p).u32(64));
    for _ in 0..20 {
        normal.done(normal.launch(normal.stream(), &normal_kernels, "add_one", 1, 64, Args::new().u64(q).u32(64)));
    }
    assert_eq!(low.reports(), []);
    normal.write(flag, &[1]);
    normal.done(spins);
    low.done(waits);
}

/// Programs that ask the device runtime for the grid of a cooperative launch, as Numba's do: blocks
/// meet in every round, and each thread knows its number. A kernel that was launched otherwise has
/// no such group.
const GRID: &str = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 out) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 out) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 out) cudaCGSynchronizeGrid(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 out) cudaCGGetSize(.param .b64 threads, .param .b64 grids, .param .b64 handle);
.extern .func (.param .b32 out) cudaCGGetRank(.param .b64 thread, .param .b64 grid, .param .b64 handle);
.visible .entry rounds(.param .u64 values, .param .u64 sums, .param .u32 count)
{
    .reg .pred %p, %one;
    .reg .u32 %b, %n, %next, %i, %count, %v, %sum, %e, %t;
    .reg .u64 %values, %sums, %own, %other, %handle;
    ld.param.u64 %values, [values];
    ld.param.u64 %sums, [sums];
    ld.param.u32 %count, [count];
    mov.u32 %t, %tid.x;
    setp.eq.u32 %one, %t, 0;
    mov.u32 %b, %ctaid.x;
    mov.u32 %n, %nctaid.x;
    add.u32 %next, %b, 1;
    rem.u32 %next, %next, %n;
    mad.wide.u32 %own, %b, 4, %values;
    mad.wide.u32 %other, %next, 4, %values;
    mov.u32 %i, 0;
    mov.u32 %sum, 0;
    call (%handle), cudaCGGetIntrinsicHandle, (1);
AGAIN:
    add.u32 %v, %i, %b;
    @%one st.global.u32 [%own], %v;
    call (%e), cudaCGSynchronize, (%handle, 0);
    add.u32 %sum, %sum, %e;
    ld.volatile.global.u32 %v, [%other];
    add.u32 %sum, %sum, %v;
    call (%e), cudaCGSynchronizeGrid, (%handle, 0);
    add.u32 %sum, %sum, %e;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, %count;
    @%p bra AGAIN;
    mad.wide.u32 %sums, %b, 4, %sums;
    @%one st.global.u32 [%sums], %sum;
    ret;
}
.visible .entry ranks(.param .u64 out)
{
    .reg .u32 %e, %at, %b;
    .reg .u64 %out, %handle, %rank;
    .local .align 4 .b32 own[1];
    ld.param.u64 %out, [out];
    call (%handle), cudaCGGetIntrinsicHandle, (1);
    call (%e), cudaCGGetSize, (%out, 0, %handle);
    mov.u64 %rank, own;
    cvta.local.u64 %rank, %rank;
    call (%e), cudaCGGetRank, (%rank, 0, %handle);
    ld.u32 %at, [%rank];
    mad.wide.u32 %rank, %at, 4, %out;
    st.global.u32 [%rank+4], %at;
    ret;
}
.visible .entry alone(.param .u64 out)
{
    .reg .u32 %e;
    .reg .u64 %out, %handle;
    ld.param.u64 %out, [out];
    call (%handle), cudaCGGetIntrinsicHandle, (1);
    call (%e), cudaCGSynchronize, (%handle, 0);
    st.global.u32 [%out], %e;
    ret;
}
";

#[test]
fn kernels_ask_the_runtime_for_their_grid() {
    let setup = Setup::new(watched_not);
    let client = setup.client(1);
    let module = client.load(GRID.as_bytes(), &mut NoVariables).expect("loads");
    let stream = client.stream();
    let (blocks, rounds) = (13, 5);
    let (values, sums) = (client.allocate(4 * blocks), client.allocate(4 * blocks));
    let shape = Launch { grid: [blocks as u32, 1, 1], block: [64, 1, 1], cooperative: true, ..Launch::default() };
    for _ in 0..3 {
        client.done(client.launch_with(stream, &module, "rounds", shape.clone(), Args::new().u64(values).u64(sums).u32(rounds)));
        let expected: Vec<u32> = (0..blocks as u32).map(|block| (0..rounds).map(|round| round + (block + 1) % blocks as u32).sum()).collect();
        assert_eq!(client.read(sums, blocks as usize), expected);
    }
    let out = client.allocate(4 * 241);
    let shape = Launch { grid: [2, 5, 2], block: [3, 2, 2], cooperative: true, ..Launch::default() };
    client.done(client.launch_with(stream, &module, "ranks", shape, Args::new().u64(out)));
    assert_eq!(client.read(out, 241), [240].into_iter().chain(0..240).collect::<Vec<u32>>());
    client.done(client.launch(stream, &module, "alone", 1, 32, Args::new().u64(out)));
    assert_eq!(client.read(out, 1), [1], "cudaErrorInvalidValue");
}
