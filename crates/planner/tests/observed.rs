//! Profiles out of recordings: whatever is heard, what comes out can be read; and it says what
//! happened.

use cumux_abi::CUdevice_attribute as A;
use cumux_planner::card;
use cumux_planner::observe::{Circumstances, Observed, Recording, Speaker};
use cumux_planner::profile::{self, Step};
use cumux_planner::work::{Machine, Work};
use cumux_wire::facts::DeviceFacts;
use cumux_wire::recording::{Fact, Moment, Packet, Shape, Way};
use proptest::prelude::*;

/// Largest profile of whatever program.
const LARGEST: usize = 10 << 20;

fn device() -> DeviceFacts {
    cumux_device_sim::facts("sim:h200").unwrap()
}

fn program(session: u32) -> Packet {
    let device = Box::new(device());
    Packet::Fact(Fact::Program { session, pid: 40 + session, name: "/opt/model".into(), device, multiprocessors: 0 })
}

fn function(function: u32, name: &str) -> Packet {
    Packet::Fact(Fact::Function { module: 1, function, name: name.into(), registers: 40, shared: 1024 })
}

fn shape(function: u32, blocks: u32) -> Shape {
    Shape { module: 1, function, blocks, threads: 256, shared: 512 }
}

fn finish(recording: Recording) -> Vec<Observed> {
    recording.finish(&Circumstances { at: 1, cumux: "0".into(), driver: String::new() })
}

#[test]
fn a_model_that_answers_requests_is_recorded_as_one_request() {
    let (mut recording, mut host, mut card) = (Recording::default(), Speaker::Unknown, Speaker::Unknown);
    recording.hear(&mut host, program(3));
    recording.hear(&mut card, Packet::Fact(Fact::Executor));
    recording.hear(&mut host, function(0, "conv"));
    recording.hear(&mut host, function(1, "relu"));
    let mut now = 1_000_000;
    let mut call = |gap: u64, took: u64| {
        now += gap + took;
        (now - took, took)
    };
    for _ in 0..2000 {
        let (from, took) = call(400_000, 3000);
        let mut moments = vec![Moment::Copy { from, took, stream: 9, way: Way::ToDevice, bytes: 602_112 }];
        for layer in 0..50 {
            let (from, took) = call(2000, 500);
            moments.push(Moment::Launch { from, took, stream: 9, shape: shape(layer % 2, 196) });
        }
        let (from, took) = call(1000, 700_000);
        moments.push(Moment::Wait { from, took, stream: Some(9) });
        recording.hear(&mut host, Packet::Moments(moments));
        let mut ends: Vec<Moment> = (0..50)
            .map(|layer| Moment::Ran { session: 3, shape: shape(layer % 2, 196), ns: if layer % 2 == 0 { 14_000 } else { 3000 }, alone: true })
            .collect();
        // Beside others it takes longer: that does not count where it is known alone.
        ends.push(Moment::Ran { session: 3, shape: shape(0, 196), ns: 90_000, alone: false });
        ends.push(Moment::Copied { session: 3, way: Way::ToDevice, bytes: 602_112, ns: 25_000 });
        recording.hear(&mut card, Packet::Moments(ends));
    }
    recording.hear(&mut card, Packet::Moments(vec![Moment::Memory { session: 3, at: 2_000_000, bytes: 300 << 20 }]));
    let mut observed = finish(recording);
    assert_eq!((observed.len(), observed[0].pid), (1, 43));
    let profile = observed.remove(0).profile.unwrap();
    let text = serde_json::to_string(&profile).unwrap();
    assert!(text.len() < 3000, "{} bytes for one hundred thousand launches: {text}", text.len());
    assert_eq!(profile::read(&text).unwrap(), profile);
    assert_eq!(profile.requests, 2000);
    let [copy, Step::Repeat { times: 25, steps }, wait] = profile.request.as_slice() else { panic!("{:?}", profile.request) };
    assert!(matches!(copy, Step::Copy { copy: 0, stream: 0, gap_ns: 400_000 }) && matches!(wait, Step::Wait { stream: Some(0), gap_ns: 1000 }));
    assert_eq!(steps.as_slice(), [0, 1].map(|kernel| Step::Launch { kernel, stream: 0, gap_ns: 2000 }));
    let conv = &profile.kernels[0];
    assert_eq!((conv.name.as_str(), conv.count, conv.blocks, conv.threads, conv.registers, conv.shared), ("conv", 50_000, 196, 256, 40, 1536));
    assert!((conv.duration.mean_ns - 14_000.0).abs() < 1.0, "{:?}", conv.duration);
    assert!(profile.peak_memory() == 300 << 20 && profile.notes.is_empty(), "{:?}", profile.notes);
    let host = profile.host.as_ref().unwrap();
    assert_eq!((host.launches, host.waits, host.waiting_ns), (100_000, 2000, 1_400_000_000));
    assert_eq!(host.waits_after[0].after, Some(1), "it waits behind relu");
    let facts = &profile.card;
    let h200 = card::find("h200").unwrap();
    assert_eq!((facts.multiprocessors, facts.bandwidth, facts.shared), (h200.multiprocessors, h200.bandwidth, h200.each.shared));
    assert!(Work::on(&profile, &Machine::whole(h200)).is_ok());
}

#[test]
fn programs_are_kept_apart_and_the_busiest_comes_first() {
    let (mut recording, mut a, mut b, mut card) = (Recording::default(), Speaker::Unknown, Speaker::Unknown, Speaker::Unknown);
    recording.hear(&mut card, Packet::Fact(Fact::Executor));
    // The executor may be heard before the programs.
    for (session, ns) in [(1, 10), (2, 9000)] {
        recording.hear(&mut card, Packet::Moments(vec![Moment::Ran { session, shape: shape(0, 1), ns, alone: true }]));
    }
    for (speaker, session) in [(&mut a, 1), (&mut b, 2)] {
        recording.hear(speaker, program(session));
        recording.hear(speaker, Packet::Moments(vec![Moment::Launch { from: 5, took: 1, stream: 0, shape: shape(0, 1) }]));
        // No program speaks for the card.
        recording.hear(speaker, Packet::Moments(vec![Moment::Ran { session: 1, shape: shape(0, 1), ns: 1 << 40, alone: true }]));
    }
    let mut silent = Speaker::Unknown;
    recording.hear(&mut silent, program(7));
    let observed = finish(recording);
    assert_eq!(observed.iter().map(|program| program.pid).collect::<Vec<_>>(), [42, 41, 47]);
    assert!((observed[0].profile.as_ref().unwrap().kernels[0].duration.mean_ns - 9000.0).abs() < 1.0);
    assert!(observed[2].profile.as_ref().unwrap_err().contains("nothing"));
}

#[test]
fn a_program_of_endless_variety_stays_below_ten_megabytes() {
    let (mut recording, mut host) = (Recording::default(), Speaker::Unknown);
    recording.hear(&mut host, program(1));
    let name = "n".repeat(cumux_wire::recording::LONGEST_NAME);
    for number in 0..6000 {
        recording.hear(&mut host, function(number, &format!("{number}{name}")));
    }
    for number in 0..200_000_u32 {
        let from = u64::from(number) * 100;
        let mut moments = vec![Moment::Launch { from, took: 1, stream: number, shape: shape(number % 6000, number) }];
        moments.push(Moment::Copy { from, took: 1, stream: number / 7, way: Way::ToHost, bytes: u64::from(number) });
        if number % 3 == 0 {
            moments.push(Moment::Wait { from, took: 1, stream: None });
        }
        recording.hear(&mut host, Packet::Moments(moments));
    }
    let profile = finish(recording).remove(0).profile.unwrap();
    let text = serde_json::to_string(&profile).unwrap();
    assert!(text.len() < LARGEST, "{} bytes", text.len());
    profile::read(&text).unwrap();
    assert!(profile.notes.iter().any(|note| note.contains("shapes")), "{:?}", profile.notes);
}

#[test]
fn a_card_that_says_little_of_itself_gives_a_profile_all_the_same() {
    let mut device = device();
    device.attributes = [(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4)].into();
    let (mut recording, mut host) = (Recording::default(), Speaker::Unknown);
    recording.hear(&mut host, Packet::Fact(Fact::Program { session: 1, pid: 2, name: "x".into(), device: Box::new(device), multiprocessors: 2 }));
    recording.hear(&mut host, Packet::Moments(vec![Moment::Launch { from: 5, took: 1, stream: 0, shape: shape(0, 3) }]));
    let profile = finish(recording).remove(0).profile.unwrap();
    profile::read(&serde_json::to_string(&profile).unwrap()).unwrap();
    assert_eq!(profile.card.multiprocessors, 2);
}

fn moment() -> impl Strategy<Value = Moment> {
    let ways = prop_oneof![Just(Way::ToDevice), Just(Way::ToHost), Just(Way::OnDevice)];
    (0_u8..6, any::<u64>(), any::<u64>(), 0_u32..300, any::<[u32; 3]>(), ways).prop_map(|(kind, a, b, small, [blocks, threads, shared], way)| {
        let shape = Shape { module: small % 2, function: small % 5, blocks, threads: threads % 2048, shared };
        match kind {
            0 => Moment::Launch { from: a, took: b, stream: small, shape },
            1 => Moment::Copy { from: a, took: b, stream: small, way, bytes: b },
            2 => Moment::Wait { from: a, took: b, stream: (small % 2 == 0).then_some(small) },
            3 => Moment::Ran { session: small % 3, shape, ns: a, alone: small % 2 == 0 },
            4 => Moment::Copied { session: small % 3, way, bytes: b, ns: a },
            _ => Moment::Memory { session: small % 3, at: a, bytes: b },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// What anybody says, in whatever order, is a profile that can be read, or a sentence.
    #[test]
    fn whatever_is_heard_can_be_read(moments in proptest::collection::vec((0_usize..3, moment()), 1..300)) {
        let mut recording = Recording::default();
        let mut speakers = [Speaker::Unknown; 3];
        recording.hear(&mut speakers[0], program(0));
        recording.hear(&mut speakers[1], program(1));
        recording.hear(&mut speakers[2], Packet::Fact(Fact::Executor));
        recording.hear(&mut speakers[0], function(0, "known"));
        for (speaker, moment) in moments {
            recording.hear(&mut speakers[speaker], Packet::Moments(vec![moment]));
        }
        for program in finish(recording) {
            if let Ok(profile) = program.profile {
                let text = serde_json::to_string(&profile).unwrap();
                if let Err(error) = profile::read(&text) {
                    // Nothing but copies of nothing, and waits, is no work.
                    prop_assert!(false, "{error}: {text}");
                }
            }
        }
    }
}
