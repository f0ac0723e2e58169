//! What the lab has measured on three cards, predicted once more from what it has recorded there.

use cumux_lab::replay::pairs;
use cumux_lab::report::{Pair, median_and_worst};
use cumux_planner::profile;
use serde_json::Value;
use std::path::Path;

const OWN: [&str; 4] = ["matmul", "spin", "tiny", "memory"];

/// The pairs of a report for which `wanted` is true of the workload.
fn replay(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<Pair> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results").join(folder);
    let mut report: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("report.json")).expect("a report")).expect("its form");
    let rows = report["sharing"].as_array_mut().expect("rows");
    rows.retain(|row| wanted(row["workload"].as_str().expect("a name")));
    pairs(&report, |workload| {
        let text = std::fs::read_to_string(folder.join(format!("profiles/{workload}.json"))).expect("a profile");
        Some(profile::read(&text).expect("its form"))
    })
}

fn require_within(median: f64, worst: f64, found: &[Pair]) {
    let errors = median_and_worst(found).expect("pairs");
    let worst_pair = found.iter().max_by(|one, other| one.error().total_cmp(&other.error()));
    assert!(errors.0 <= median && errors.1 <= worst, "median {}, worst {worst_pair:?}", errors.0);
}

/// The lab's own workloads on an H200 and on an H100: each of 2 times 120 figures within 28 %, half
/// of those of each card within 5 %. Some parameters of the model come from the H200's report
/// (docs/planning.md), so there this keeps what the model can say, and does not show that it
/// foresees anything.
#[test]
fn the_model_still_says_what_the_lab_has_measured() {
    for folder in ["lab", "lab-h200"] {
        let found = replay(folder, |workload| OWN.contains(&workload));
        assert_eq!(found.len(), 120, "{folder}");
        require_within(5.0, 28.0, &found);
    }
}

/// The same and ResNet-50 on an H200 with three engines and a lane for each: within 35 %, but for
/// two. Of sixteen programs on sixteen processors 99 of 100 requests took up to 24 times the mean,
/// where kernels are tiny: a thread of an executor had no processor for that long. No model of the
/// mean says that. Clients in such a crowd sleep sooner since (docs/performance.md).
#[test]
fn a_lane_for_each_engine_is_foreseen() {
    let mut found = replay("lab-three-lanes", |_| true);
    let is_crowd = |pair: &Pair| (pair.mode.as_str(), pair.clients, pair.figure) == ("cumux", 16, "p99_us");
    let is_known = |pair: &Pair| is_crowd(pair) && ["tiny", "yours"].contains(&pair.workload.as_str());
    let (before, left_out) = (found.len(), found.iter().filter(|pair| is_known(pair)).count());
    assert_eq!((before, left_out), (150, 2));
    found.retain(|pair| !is_known(pair));
    require_within(5.0, 35.0, &found);
}

/// ResNet-50 with up to sixteen copies: each figure within 35 %, half of them within 20 %.
fn require_resnet(folder: &str) {
    let found = replay(folder, |workload| workload == "yours");
    assert_eq!(found.len(), 30, "{folder}");
    require_within(20.0, 35.0, &found);
}

#[test]
fn resnet_is_predicted_on_an_h200() {
    require_resnet("lab-h200");
}

#[test]
fn resnet_is_predicted_on_an_h100() {
    require_resnet("lab");
}
