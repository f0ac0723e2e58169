//! Plans: properties of every plan, and sentences for wishes that cannot be.

use cumux_planner::card::{self, CardModel};
use cumux_planner::mig::Geometry;
use cumux_planner::mode::{CONTEXT_MIB, Isolation, Mode};
use cumux_planner::plan::{Answer, Plan, Program, Wishes, make, make_with};
use cumux_planner::profile::by_hand::ByHand;
use cumux_planner::work::Machine;
use cumux_wire::share::Share;
use proptest::prelude::*;
use std::cmp::Reverse;

fn program(card: &CardModel, name: &str, count: u32, mib: u64, busy_ms: f64, rate: Option<f64>) -> Program {
    let hand = ByHand { name: name.to_owned(), memory: mib << 20, busy_ns: busy_ms * 1e6, kernels: 5, ..ByHand::default() };
    Program { name: name.to_owned(), profile: hand.profile(card), count, rate, share: None }
}

const NO_WISHES: Wishes = Wishes { p99_ns: None, isolation: Isolation::None, most_cards: None };

fn refusal(card: &str, programs: &[(u64, f64, Option<f64>, u32)], wishes: Wishes) -> String {
    let card = card::find(card).unwrap();
    let programs: Vec<Program> = programs.iter().map(|(mib, busy, rate, count)| program(card, "model", *count, *mib, *busy, *rate)).collect();
    match make(card, &programs, wishes) {
        Ok(plan) => panic!("planned: {:?}", plan.reasons),
        Err(error) => error.to_string(),
    }
}

#[test]
fn wishes_that_contradict_themselves_are_answered_with_a_sentence() {
    assert!(refusal("l4", &[], NO_WISHES).contains("no program"));
    assert!(refusal("l4", &[(100, 1.0, None, 513)], NO_WISHES).contains("512"));
    assert!(refusal("l4", &[(100, 1.0, None, 1)], Wishes { most_cards: Some(0), ..NO_WISHES }).contains("no card"));
    assert!(refusal("l4", &[(30_000, 1.0, None, 1)], NO_WISHES).contains("has 22491"));
    let soon = refusal("l4", &[(100, 8.0, None, 1)], Wishes { p99_ns: Some(2e6), ..NO_WISHES });
    assert!(soon.contains("alone on a l4") && soon.contains("2.0 ms"), "{soon}");
    assert!(refusal("l4", &[(100, 8.0, Some(200.0), 1)], NO_WISHES).contains("at most"), "8 ms is 125 a second");
    let hard = Wishes { isolation: Isolation::Hard, most_cards: Some(1), ..NO_WISHES };
    assert!(refusal("a100-80", &[(100, 1.0, None, 8)], hard).contains("at least 2"));
    assert!(refusal("l4", &[(100, 1.0, None, 2)], hard).contains("cannot be divided"));
}

#[test]
fn hard_isolation_is_an_instance_or_a_card_for_each() {
    let card = card::find("a100-80").unwrap();
    let wishes = Wishes { isolation: Isolation::Hard, ..NO_WISHES };
    let plan = make(card, &[program(card, "small", 7, 2000, 3.0, Some(20.0))], wishes).unwrap();
    let best = &plan.answers[0];
    assert!(
        plan.met && best.geometry.as_deref().is_some_and(|geometry| geometry.contains("6x 1g.10gb") || geometry == "7x 1g.10gb") && best.cards == 1,
        "{best:?}"
    );
    // A larger one does not fit into 10 GB: the geometry follows.
    let plan = make(card, &[program(card, "large", 1, 30_000, 3.0, Some(20.0)), program(card, "small", 2, 2000, 3.0, Some(20.0))], wishes).unwrap();
    let best = &plan.answers[0];
    assert!(plan.met && best.cards == 1 && best.geometry.as_deref().is_some_and(|geometry| geometry.contains("g.40gb")), "{best:?}");
}

#[test]
fn programs_that_keep_the_card_busy_get_several_cards() {
    let card = card::find("l4").unwrap();
    let wishes = Wishes { p99_ns: Some(60e6), ..NO_WISHES };
    let busy = ByHand { name: "busy".to_owned(), memory: 1 << 30, busy_ns: 8e6, kernels: 20, fill: 1.0, ..ByHand::default() };
    let programs = [Program { name: "busy".to_owned(), profile: busy.profile(card), count: 4, rate: Some(60.0), share: None }];
    let plan = make(card, &programs, wishes).unwrap();
    assert!(plan.met && plan.answers[0].cards > 1, "{:?}", plan.answers[0]);
    let one = make(card, &programs, Wishes { most_cards: Some(1), ..wishes }).unwrap();
    assert!(!one.met && one.reasons[0].contains("Nothing meets all wishes"), "{:?}", one.reasons);
}

/// A program that fills the card runs slower with a part of it, where the mode can limit it.
#[test]
fn a_percentage_is_a_ceiling_for_mps_and_cumux() {
    let card = card::find("h200").unwrap();
    let busy = ByHand { name: "busy".to_owned(), memory: 1 << 30, busy_ns: 8e6, kernels: 20, fill: 1.0, bandwidth: 0.01, ..ByHand::default() };
    let with = |share: Option<&str>| {
        let programs = [Program { name: "busy".to_owned(), profile: busy.profile(card), count: 1, rate: None, share: share.and_then(Share::parse) }];
        make(card, &programs, Wishes { most_cards: Some(1), ..NO_WISHES }).unwrap()
    };
    let (whole, half) = (with(None), with(Some("50")));
    let throughput = |plan: &Plan, mode: Mode| plan.answers.iter().find(|answer| answer.mode == mode && answer.geometry.is_none()).unwrap().throughput;
    for mode in [Mode::Mps, Mode::Cumux] {
        let ratio = throughput(&half, mode) / throughput(&whole, mode);
        assert!((0.45..0.6).contains(&ratio), "{mode:?}: {ratio}");
    }
    assert!((throughput(&half, Mode::TimeSliced) / throughput(&whole, Mode::TimeSliced) - 1.0).abs() < 1e-9);
}

/// Memory of each copy, in KiB, the largest first.
fn sizes(programs: &[Program]) -> Vec<u64> {
    let of = |program: &Program| std::iter::repeat_n(program.profile.peak_memory().div_ceil(1024), program.count as usize);
    let mut sizes: Vec<u64> = programs.iter().flat_map(of).collect();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    sizes
}

/// Memory of each machine of so many cards, in KiB, the largest first.
fn machines(card: &'static CardModel, geometry: Option<&Geometry>, cards: u32) -> Vec<u64> {
    let table = card.mig.as_ref();
    let each = match geometry.zip(table) {
        Some((geometry, table)) => geometry.instances.iter().map(|it| Machine::instance(card, table, it).memory_mib).collect(),
        None => vec![card.memory_mib],
    };
    let mut all: Vec<u64> = (0..cards).flat_map(|_| each.iter().map(|mib| u64::from(*mib) * 1024)).collect();
    all.sort_unstable_by_key(|size| Reverse(*size));
    all
}

/// Whether each program has a machine of its own with room for it and its context: if any
/// assignment does it, the one from the largest to the smallest does.
fn fits_one_by_one(sizes: &[u64], machines: &[u64]) -> bool {
    let context = u64::from(CONTEXT_MIB) * 1024;
    sizes.len() <= machines.len() && sizes.iter().zip(machines).all(|(size, machine)| size + context <= *machine)
}

/// Whether the programs can have the memory that they ask for, as far as that can be told without
/// the planner's own assignment.
fn has_room(card: &'static CardModel, programs: &[Program], answer: &Answer) -> bool {
    let geometry = answer.geometry.as_deref().map(|geometry| card.mig.as_ref().unwrap().place(names(geometry)).unwrap());
    let (sizes, machines) = (sizes(programs), machines(card, geometry.as_ref(), answer.cards));
    match answer.mode {
        Mode::Exclusive => fits_one_by_one(&sizes, &machines),
        _ => sizes.iter().sum::<u64>() <= machines.iter().sum() && sizes.first() <= machines.first(),
    }
}

/// The names of the instances of a geometry.
fn names(geometry: &str) -> Vec<&str> {
    geometry
        .split(" + ")
        .flat_map(|word| match word.split_once("x ") {
            Some((count, name)) => vec![name; count.parse().unwrap()],
            None => vec![word],
        })
        .collect()
}

/// With instances of their own and no wish for times, only room decides: then the planner's answer
/// takes as few cards as any full geometry does.
fn takes_as_few_cards_as_possible(card: &'static CardModel, programs: &[Program], wishes: Wishes, plan: &Plan) -> Result<(), TestCaseError> {
    let Some(table) = &card.mig else { return Ok(()) };
    if wishes.p99_ns.is_some() || programs.iter().any(|program| program.rate.is_some()) {
        return Ok(());
    }
    let sizes = sizes(programs);
    let geometries = table.full_geometries();
    let most = wishes.most_cards.unwrap_or(u32::MAX).min(sizes.len() as u32);
    let least = (1..=most).find(|cards| geometries.iter().any(|geometry| fits_one_by_one(&sizes, &machines(card, Some(geometry), *cards))));
    let answer = plan.answers.iter().find(|answer| answer.mode == Mode::Exclusive && answer.geometry.is_some()).unwrap();
    prop_assert_eq!(answer.does_not_fit.is_none().then_some(answer.cards), least, "{:?}", answer);
    Ok(())
}

fn keeps_its_promises(card: &'static CardModel, programs: &[Program], plan: &Plan) -> Result<(), TestCaseError> {
    let copies: u32 = programs.iter().map(|program| program.count).sum();
    let asked: u64 = programs.iter().map(|program| u64::from(program.count) * (program.profile.peak_memory() >> 20)).sum();
    for answer in plan.answers.iter().filter(|answer| answer.does_not_fit.is_none()) {
        // NVML rounds up the memory of the largest instance.
        let rounding = if answer.geometry.is_some() { 256 } else { 0 };
        prop_assert!(answer.memory_mib <= u64::from(card.memory_mib) + rounding, "{answer:?}");
        prop_assert!(has_room(card, programs, answer), "{answer:?}");
        prop_assert!(asked <= u64::from(answer.cards) * u64::from(card.memory_mib), "{answer:?}");
        prop_assert!((1..=copies.max(1)).contains(&answer.cards) && answer.most_sharers <= copies);
        if let Some(geometry) = &answer.geometry {
            let placed = card.mig.as_ref().unwrap().place(names(geometry));
            prop_assert!(placed.is_ok(), "{geometry}: {placed:?}");
        }
    }
    // No good answer is nowhere worse and somewhere better than the first.
    let best = &plan.answers[0];
    let better = |answer: &Answer| {
        let worse = answer.cards > best.cards || answer.throughput < best.throughput || answer.isolation < best.isolation || answer.p99_ns > best.p99_ns;
        // By more than what counts as equal.
        let faster = answer.throughput > best.throughput * 1.021 || answer.p99_ns * 1.11 < best.p99_ns;
        let better = answer.cards < best.cards || answer.isolation > best.isolation || faster;
        answer.is_good() && !worse && better
    };
    prop_assert!(plan.met == plan.answers.iter().any(Answer::is_good), "a good answer is hidden");
    prop_assert!(!plan.met || !plan.answers.iter().any(better), "{:#?}", plan.answers);
    prop_assert!(plan.met == best.is_good());
    Ok(())
}

/// A step of the scale of throughputs lies between two answers of MIG, of which the slower one by
/// 0.02 % isolates more.
#[test]
fn more_isolation_at_the_same_throughput_comes_first() {
    let card = card::find("h200").unwrap();
    let programs = [program(card, "p0", 1, 8845, 2.836_290_392_573_429, None), program(card, "p1", 2, 50, 0.2, Some(11.063_289_298_583_225))];
    let plan = make_with(card, &programs, Wishes { p99_ns: None, isolation: Isolation::None, most_cards: None }, 50).unwrap();
    keeps_its_promises(card, &programs, &plan).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_keeps_its_promises(
        id in prop::sample::select(vec!["a30", "a100-80", "h200", "rtx-pro-6000", "l4"]),
        kinds in prop::collection::vec((1u32..5, 50u64..30_000, 0.2f64..6.0, prop::option::of(1.0f64..40.0)), 1..3),
        p99 in prop::option::of(10e6..200e6),
        isolation in prop::sample::select(vec![Isolation::None, Isolation::Faults, Isolation::Hard]),
        most_cards in prop::option::of(1u32..4),
    ) {
        let card = card::find(id).unwrap();
        let programs: Vec<Program> = kinds.iter().enumerate()
            .map(|(number, (count, mib, busy, rate))| program(card, &format!("p{number}"), *count, *mib, *busy, *rate)).collect();
        let wishes = Wishes { p99_ns: p99, isolation, most_cards };
        let plan = make_with(card, &programs, wishes, 50);
        // Wishes that contradict themselves are refused; such a case is drawn anew, so that the
        // cases are as many plans.
        prop_assume!(plan.is_ok());
        let plan = plan.unwrap();
        keeps_its_promises(card, &programs, &plan)?;
        takes_as_few_cards_as_possible(card, &programs, wishes, &plan)?;
        let again = make_with(card, &programs, wishes, 50).unwrap();
        prop_assert_eq!(plan, again, "the same input gives the same answer");
    }
}
