//! Profiles: what is written is read again, and what is no profile is refused with a sentence.

use cumux_planner::card;
use cumux_planner::profile::by_hand::ByHand;
use cumux_planner::profile::{Profile, read};
use cumux_planner::work::{Machine, Work};
use proptest::prelude::*;

fn example() -> Profile {
    let card = card::find("h200").unwrap();
    ByHand { name: "model".to_owned(), memory: 1 << 30, busy_ns: 4e6, host_ns: 1e6, kernels: 40, ..ByHand::default() }.profile(card)
}

fn changed(change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut value = serde_json::to_value(example()).unwrap();
    change(&mut value);
    match read(&value.to_string()) {
        Ok(profile) => panic!("{profile:?} was read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(read(&serde_json::to_string(&example()).unwrap()).unwrap(), example());
}

#[test]
fn the_example_in_the_documentation_is_read() {
    let page = include_str!("../../../docs/planning.md");
    let text = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("docs/planning.md shows a profile");
    let profile = read(text).unwrap();
    let work = Work::on(&profile, &Machine::whole(card::find("a100-80").unwrap())).unwrap();
    assert!(work.steps.len() > 10 && work.streams == 2);
}

#[test]
fn what_is_no_profile_is_refused_with_a_sentence() {
    assert!(read("{").unwrap_err().to_string().contains("cumux record"));
    assert!(changed(|v| v["version"] = 2.into()).contains("version 2"));
    assert!(changed(|v| v["format"] = "cumux-plan".into()).contains("cumux-plan"));
    assert!(changed(|v| v["extra"] = 1.into()).contains("extra"));
    assert!(changed(|v| v["kernels"][0]["blocks"] = 0.into()).contains("by hand"));
    assert!(changed(|v| v["kernels"][0]["duration"]["mean_ns"] = (-1).into()).contains("duration"));
    assert!(changed(|v| v["request"][0]["launch"]["kernel"] = 7.into()).contains("kernel number 7"));
    assert!(changed(|v| v["request"] = serde_json::json!([])).contains("no steps"));
    assert!(changed(|v| v["request"] = serde_json::json!([{ "wait": {} }])).contains("launches and copies nothing"));
    assert!(changed(|v| v["request"][1]["repeat"]["times"] = u64::MAX.into()).contains("more than"));
    assert!(changed(|v| v["request"][1]["repeat"]["steps"] = serde_json::json!([])).contains("no steps"));
    assert!(changed(|v| v["card"]["multiprocessors"] = 0.into()).contains("zero"));
}

#[test]
fn a_smaller_card_takes_longer() {
    let work = |id: &str| {
        let machine = Machine::whole(card::find(id).unwrap());
        Work::on(&example(), &machine).unwrap().busy_ns(&machine)
    };
    assert!((work("h200") / 4e6 - 1.0).abs() < 1e-6, "at home a profile takes what it took");
    assert!(work("a100-80") > work("h200") && work("t4") > work("a100-80"), "{} {}", work("a100-80"), work("t4"));
}

proptest! {
    /// Whatever the text is, reading it ends with a profile that can be used, or with a sentence.
    #[test]
    fn no_text_breaks_the_reader(at in 0usize..2000, byte in any::<u8>()) {
        let mut text = serde_json::to_string(&example()).unwrap().into_bytes();
        let place = at % text.len();
        text[place] = byte;
        if let Ok(profile) = read(&String::from_utf8_lossy(&text)) {
            let machine = Machine::whole(card::find("l4").unwrap());
            if let Ok(work) = Work::on(&profile, &machine) {
                prop_assert!(work.busy_ns(&machine) >= 0.0);
            }
        }
    }
}
