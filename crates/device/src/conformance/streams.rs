//! Order, concurrency, and reports.

use cumux_wire::record::Launch;

use super::{Args, Opener, Setup};
use crate::{Carried, ClientSpec, Lane, Outcome, StreamId, Work};

pub fn work_of_a_stream_runs_in_order(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let n = 10_000;
    let (a, b) = (client.allocate(4 * n), client.allocate(4 * n));
    client.submit(stream, Work::Set { target: a, pitch: 0, value: 5, element: 4, width: n, height: 1 });
    for _ in 0..10 {
        client.launch(stream, &module, "add_one", n.div_ceil(256) as u32, 256, Args::new().u64(a).u32(n as u32));
        client.copy(stream, b, a, 4 * n);
        client.launch(stream, &module, "add_one", n.div_ceil(256) as u32, 256, Args::new().u64(b).u32(n as u32));
        client.copy(stream, a, b, 4 * n);
    }
    client.drain(stream);
    assert_eq!(client.read(a, n as usize), vec![25; n as usize]);
}

pub fn streams_run_at_the_same_time(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let flag = client.allocate(4);
    let (waiting, releasing) = (client.stream(), client.stream());
    let held = client.launch(waiting, &module, "until", 1, 32, Args::new().u64(flag));
    let release = client.launch(releasing, &module, "fill", 1, 1, Args::new().u64(flag).u32(1).u32(1));
    client.done(release);
    client.done(held);
}

pub fn each_submission_is_reported_once_and_in_order(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let p = client.allocate(4 * 64);
    let streams: Vec<StreamId> = (0..4).map(|_| client.stream()).collect();
    let mut expected = vec![Vec::new(); streams.len()];
    for round in 0..200u32 {
        let at = (round * 7 % 4) as usize;
        let stream = streams[at];
        let token = match round % 4 {
            0 => client.submit(stream, Work::Nop),
            1 => client.launch(stream, &module, "empty", 1 + round % 5, 32, Args::new()),
            2 => client.submit(stream, Work::Set { target: p, pitch: 0, value: round, element: 1, width: 64, height: 1 }),
            _ => client.copy(stream, p + 128, p, 64),
        };
        expected[at].push(token);
    }
    for stream in &streams {
        client.drain(*stream);
    }
    let reports = client.reports();
    assert!(reports.iter().all(|(.., outcome)| matches!(outcome, Outcome::Done { .. })));
    for (stream, expected) in streams.iter().zip(&expected) {
        let mut seen: Vec<u64> = reports.iter().filter(|(s, ..)| s == stream).map(|(_, token, _)| *token).collect();
        seen.pop();
        assert_eq!(&seen, expected);
    }
}

pub fn many_blocks_all_run(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let n = 300_000u32;
    let p = client.allocate(u64::from(4 * n));
    client.launch(stream, &module, "add_one", n.div_ceil(32), 32, Args::new().u64(p).u32(n));
    client.launch_with(
        stream,
        &module,
        "add_one",
        Launch { grid: [n.div_ceil(64), 2, 1], block: [64, 1, 1], ..Launch::default() },
        Args::new().u64(p + 4 * 150_000).u32(0),
    );
    client.drain(stream);
    assert!(client.read(p, n as usize).iter().all(|word| *word == 1));
}

pub fn blocks_that_wait_for_each_other_meet(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let (arrived, out) = (client.allocate(4), client.allocate(4 * 64));
    client.launch(stream, &module, "meet", 64, 64, Args::new().u64(arrived).u64(out));
    client.drain(stream);
    assert_eq!(client.read(out, 64), vec![64; 64]);
}

pub fn blocks_that_wait_for_earlier_ones_go_on(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let blocks = 3000;
    let sums = client.allocate(4 * u64::from(blocks));
    client.launch(stream, &module, "chain", blocks, 32, Args::new().u64(sums));
    client.drain(stream);
    assert_eq!(client.read(sums, blocks as usize), (1..=blocks).collect::<Vec<u32>>());
}

pub fn an_endless_kernel_does_not_stop_other_streams(open: Opener) {
    let setup = Setup::new(open);
    let (bad, good) = (setup.client(1), setup.client(2));
    let (bad_kernels, good_kernels) = (bad.kernels(), good.kernels());
    let everything = 132 * 32;
    let out = bad.allocate(4);
    // More endless blocks than any card has room for.
    let endless = bad.launch(bad.stream(), &bad_kernels, "endless", everything, 1024, Args::new().u64(out));
    let p = good.allocate(4 * 1000);
    let stream = good.stream();
    for _ in 0..20 {
        good.launch(stream, &good_kernels, "add_one", 4, 256, Args::new().u64(p).u32(1000));
    }
    good.drain(stream);
    assert_eq!(good.read(p, 1000), vec![20; 1000]);
    assert!(bad.reports().iter().all(|(_, token, _)| *token != endless));
}

pub fn value_writes_and_marks_keep_the_order(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let (flag, p) = (client.allocate(16), client.allocate(4));
    let held = client.launch(stream, &module, "until", 1, 1, Args::new().u64(flag));
    client.submit(stream, Work::WriteValue { address: p, value: 0xffff_ffff_0000_0007, bytes: 4 });
    client.submit(stream, Work::WriteValue { address: flag + 8, value: 0x1_0000_0002, bytes: 8 });
    let mark = client.submit(stream, Work::Nop);
    assert!(client.reports().is_empty());
    assert_eq!(client.read(p, 1), [0]);
    let other = client.stream();
    client.submit(other, Work::WriteValue { address: flag, value: 1, bytes: 4 });
    client.done(held);
    client.done(mark);
    assert_eq!(client.read(p, 1), [7]);
    assert_eq!(client.read(flag, 4), [1, 0, 2, 1]);
}

pub fn priorities_do_not_starve(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let (flag, p) = (client.allocate(4), client.allocate(4));
    // An urgent kernel waits for what a less urgent one does.
    let urgent = client.launch(client.stream_with(-5), &module, "until", 132, 1024, Args::new().u64(flag));
    let low = client.stream_with(0);
    client.launch(low, &module, "fill", 1, 32, Args::new().u64(p).u32(1).u32(3));
    client.launch(low, &module, "fill", 1, 32, Args::new().u64(flag).u32(1).u32(1));
    client.done(urgent);
    assert_eq!(client.read(p, 1), [3]);
}

pub fn an_unknown_stream_is_an_error(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let stream = client.stream();
    client.drain(stream);
    client.device().destroy_stream(stream);
    assert!(client.device().submit(stream, 99, Work::Nop).is_err());
    assert!(client.device().submit(StreamId(0x7fff_ffff), 100, Work::Nop).is_err());
    assert!(client.device().create_stream(77, 0).is_err(), "no such client");
}

pub fn who_resumes_kernels_keeps_marks_and_waits_for_reports(open: Opener) {
    let setup = Setup::new(open);
    let capabilities = setup.device.capabilities();
    assert_eq!(capabilities.resumes_kernels, setup.device.marks_bytes() > 0);
    assert_eq!(capabilities, &setup.device.facts().capabilities, "one value, wherever it is asked");
    // Else a successor would repeat what was done and not recorded.
    assert!(!capabilities.resumes_kernels || capabilities.waits_for_reports);
}

/// A thread carries what the device would do for a client, for some pieces; puts it down in their
/// middle and waits, as if it were in a long call; or does not carry anything. All is done and
/// reported once, in order. Returns whether the device was carried.
pub fn work_is_done_whoever_carries_it(open: Opener) -> bool {
    let setup = Setup::new(open);
    let spec = ClientSpec { lane: Some(Lane { number: 0, of: 1 }), ..ClientSpec::default() };
    let client = setup.client_with(1, &spec);
    let module = client.kernels();
    let (p, streams) = (client.allocate(4), [client.stream(), client.stream()]);
    client.submit(streams[0], Work::Set { target: p, pitch: 0, value: 0, element: 4, width: 1, height: 1 });
    client.drain(streams[0]);
    let mut expected = [const { Vec::new() }; 2];
    let mut progress = 0;
    for round in 0..300_u32 {
        let at = (round % 2) as usize;
        let token = client.launch(streams[at], &module, "add_atomically", 1, 32, Args::new().u64(p).u32(1));
        expected[at].push(token);
        let is_over = || setup.recorder.reports(1).iter().any(|(_, reported, _)| *reported == token);
        match round % 3 {
            // Nobody else may do it meanwhile, so it ends here, unless the device keeps it.
            0 => {
                let mut moved = true;
                while !is_over() {
                    progress += u32::from(client.device().carry(0, moved) == Carried::Progress);
                    moved = false;
                }
            }
            1 => {
                for _ in 0..round % 7 {
                    client.device().carry(0, true);
                }
                client.device().put_down();
                client.done(token);
            }
            _ => {
                client.device().put_down();
            }
        }
    }
    client.device().put_down();
    streams.iter().for_each(|stream| client.drain(*stream));
    assert_eq!(client.read(p, 1), [300 * 32]);
    let reports = client.reports();
    for (stream, expected) in streams.iter().zip(&expected) {
        let own: Vec<u64> = reports.iter().filter(|(s, ..)| s == stream).map(|(_, token, _)| *token).filter(|token| expected.contains(token)).collect();
        assert_eq!(own, *expected);
    }
    // What is carried must not stay with a thread that ends.
    std::thread::scope(|scope| {
        scope.spawn(|| client.device().carry(0, true));
    });
    client.drain(streams[0]);
    progress > 0
}
