//! Whatever programs do: a simulation ends with the requests of all of them.

use cumux_planner::card::Capacity;
use cumux_planner::mode::{Mode, ServedHost};
use cumux_planner::profile::Way;
use cumux_planner::simulate::{Arrival, Effort, Load, run};
use cumux_planner::work::{CopyWork, Do, KernelWork, Machine, Work};
use proptest::prelude::*;

const MULTIPROCESSORS: u32 = 4;
const STREAMS: u32 = 2;
const KINDS: u32 = 3;

fn machine() -> Machine {
    let each = Capacity { threads: 2048, blocks: 32, registers: 65536, shared: 228 << 10 };
    Machine { multiprocessors: MULTIPROCESSORS, each, clock_khz: 1_500_000, bandwidth: 100.0, cache: 1 << 20, memory_mib: 1 << 14, major: 9 }
}

fn kernel() -> impl Strategy<Value = KernelWork> {
    let sizes = (1_u32..40, 1_u32..=32, 0.0..2e4_f64, 1.0..60.0_f64);
    (sizes, 0.0..50.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64).prop_map(|((blocks, fit, block_ns, worst), bandwidth, bound, issue)| KernelWork {
        blocks,
        footprint: 1.0 / f64::from(fit),
        block_ns,
        worst,
        bandwidth,
        bound,
        issue,
    })
}

fn copy() -> impl Strategy<Value = CopyWork> {
    let way = prop_oneof![Just(Way::ToDevice), Just(Way::ToHost), Just(Way::OnDevice)];
    (way, 0.0..2e4_f64).prop_map(|(way, ns)| CopyWork { way, ns })
}

fn step() -> impl Strategy<Value = Do> {
    // Not on time by a fraction of a nanosecond, and by far.
    let gap = || prop_oneof![Just(0.0), 0.0..1.0_f64, 0.0..2e4_f64];
    prop_oneof![
        4 => (0..KINDS, 0..STREAMS, gap()).prop_map(|(kernel, stream, gap_ns)| Do::Launch { kernel, stream, gap_ns }),
        1 => (0..KINDS, 0..STREAMS, gap()).prop_map(|(copy, stream, gap_ns)| Do::Copy { copy, stream, gap_ns }),
        1 => (proptest::option::of(0..STREAMS), gap()).prop_map(|(stream, gap_ns)| Do::Wait { stream, gap_ns }),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    let kinds = KINDS as usize;
    let lists = (proptest::collection::vec(kernel(), kinds), proptest::collection::vec(copy(), kinds), proptest::collection::vec(step(), 0..12));
    // Of requests that take no time there is no end, and others have none.
    (lists, 500.0..2e4_f64, 1.0..3.0_f64).prop_map(|((kernels, copies, mut steps), gap_ns, unsteady)| {
        steps.push(Do::Wait { stream: None, gap_ns });
        Work { kernels, copies, steps, streams: STREAMS, unsteady }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn everybody_has_all_requests(
        works in proptest::collection::vec(work(), 1..6),
        caps in proptest::collection::vec(1..=MULTIPROCESSORS, 6),
        mode in prop_oneof![Just(Mode::TimeSliced), Just(Mode::Streams), Just(Mode::Mps), Just(Mode::Cumux), Just(Mode::CumuxOwn)],
        (engines, lanes) in (1..4_u32, 1..4_u32),
        host in 0.2..30.0_f64,
    ) {
        const REQUESTS: u32 = 12;
        let is_alone = matches!(mode, Mode::TimeSliced | Mode::CumuxOwn);
        let load = |(number, (work, cap))| Load { work, arrival: Arrival::Closed, context: if is_alone { number } else { 0 }, cap };
        let loads: Vec<Load<'_>> = works.iter().zip(caps).enumerate().map(load).collect();
        let submission = mode.submission(ServedHost { processors: 16, engines, lanes }).on_host(host);
        let outcome = run(&machine(), &loads, mode.turns(), submission, Effort { requests: REQUESTS, events: 4_000_000 });
        prop_assert!(!outcome.cut);
        for fared in &outcome.clients {
            prop_assert!(fared.latencies.len() >= REQUESTS as usize && fared.latencies.iter().all(|ns| ns.is_finite() && *ns >= 0.0), "{:?}", fared);
        }
    }
}
