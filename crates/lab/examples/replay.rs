//! Predicts once more what a report of the lab has measured, from the profiles beside it: for work
//! on the planner without a card.
//!
//! `cargo run --release -p cumux-lab --example replay -- FOLDER [WORKLOAD]`

use cumux_lab::predict::{Trial, machine, share};
use cumux_planner::mode::Mode;
use cumux_planner::profile;
use serde_json::Value;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder? It is one that `cumux lab --out` has written")?;
    let wanted = arguments.next();
    let folder = Path::new(&folder);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("report.json"))?)?;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let host = report["launches"]["factor"].as_f64().unwrap_or(1.0);
    let processors = report["made"]["processors"].as_u64().unwrap_or(1) as u32;
    let memory = report["device"]["memory_mib"].as_u64().unwrap_or(0) as u32;
    let mut errors: Vec<f64> = Vec::new();
    for row in report["sharing"].as_array().into_iter().flatten().filter(|row| row["source"] == "measured" && row["basis"] == "requests") {
        let (Some(mode), Some(workload)) = (row["mode"].as_str(), row["workload"].as_str()) else { continue };
        let Some(mode) = [Mode::TimeSliced, Mode::Mps, Mode::Cumux].into_iter().find(|known| known.name() == mode) else { continue };
        if wanted.as_deref().is_some_and(|wanted| wanted != workload) {
            continue;
        }
        let profile = profile::read(&std::fs::read_to_string(folder.join(format!("profiles/{workload}.json")))?)?;
        let clients = row["clients"].as_u64().unwrap_or(1) as u32;
        let trial = Trial { requests: 100, host, processors };
        let Some(predicted) = share(&machine(&profile.card, memory), &profile, workload, mode, clients, trial) else { continue };
        for (figure, measured, predicted) in
            [("throughput", number(&row["throughput"]), predicted.throughput), ("p99", number(&row["p99_us"]), predicted.p99_us)]
        {
            let error = 100.0 * (predicted - measured).abs() / measured.max(1e-9);
            errors.push(error);
            println!("{workload:8} {:12} {clients:3} {figure:10} measured {measured:10.1} predicted {predicted:10.1}  {error:6.1} %", mode.name());
        }
    }
    errors.sort_by(f64::total_cmp);
    println!("median {:.1} %, worst {:.1} %, of {}", errors.get(errors.len() / 2).unwrap_or(&0.0), errors.last().unwrap_or(&0.0), errors.len());
    Ok(())
}
