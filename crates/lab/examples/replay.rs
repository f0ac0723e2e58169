//! Predicts once more what a report of the lab has measured, from the profiles beside it: for work
//! on the planner without a card.
//!
//! `cargo run --release -p cumux-lab --example replay -- FOLDER [WORKLOAD]`

use cumux_lab::replay;
use cumux_lab::report::median_and_worst;
use cumux_planner::profile;
use serde_json::Value;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.first().ok_or("which folder? It is one that `cumux lab --out` has written")?;
    let folder = Path::new(folder);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("report.json"))?)?;
    let wanted = |workload: &str| arguments.get(1).is_none_or(|wanted| wanted == workload);
    let pairs = replay::pairs(&report, |workload| {
        let text = std::fs::read_to_string(folder.join(format!("profiles/{workload}.json"))).ok().filter(|_| wanted(workload))?;
        profile::read(&text).ok()
    });
    for pair in &pairs {
        println!(
            "{:8} {:12} {:3} {:10} measured {:10.1} predicted {:10.1}  {:6.1} %",
            pair.workload,
            pair.mode,
            pair.clients,
            pair.figure,
            pair.measured,
            pair.predicted,
            pair.error()
        );
    }
    let mut workloads: Vec<&str> = pairs.iter().map(|pair| pair.workload.as_str()).collect();
    workloads.sort_unstable();
    workloads.dedup();
    for workload in workloads {
        let (median, worst) = median_and_worst(pairs.iter().filter(|pair| pair.workload == workload)).unwrap_or_default();
        println!("{workload:8} median {median:.1} %, worst {worst:.1} %");
    }
    let (median, worst) = median_and_worst(&pairs).ok_or("the report has nothing that was measured by requests and has a profile")?;
    println!("median {median:.1} %, worst {worst:.1} %, of {}", pairs.len());
    Ok(())
}
