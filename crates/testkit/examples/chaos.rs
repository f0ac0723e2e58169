//! The crash matrix from the command line: `cargo xtask chaos`.
#![forbid(unsafe_code)]

use clap::Parser;
use cumux_testkit::chaos::{Options, Scenario, rules, run};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Parser)]
#[command(name = "cargo xtask chaos", about = "Kills and stops everybody in every combination and checks what is promised afterwards", after_help = rules())]
struct Arguments {
    /// How many rounds
    #[arg(long, default_value_t = 500)]
    rounds: usize,
    /// Seed of the first round; each next one has the next seed. By the clock if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Only this scenario: server+keeper, kill:server, stop:executor, all-five, two-takeovers …
    #[arg(long)]
    only: Option<Scenario>,
    /// Gives every round the same seed: the same plan again and again, with different timing
    #[arg(long)]
    same: bool,
    /// Rounds at the same time; twice the processors if not given
    #[arg(long)]
    lanes: Option<usize>,
    /// Failed rounds after which no further round begins
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Writes the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let mut options = Options::rounds(arguments.rounds, arguments.seed.unwrap_or_else(clock));
    options.only = arguments.only;
    options.same = arguments.same;
    options.lanes = arguments.lanes.unwrap_or(options.lanes);
    options.most_failures = arguments.failures.max(1);
    println!("{} rounds from seed {}, {} at a time", options.rounds, options.seed, options.lanes);
    let figures = run(&options);
    println!("\n{}\n{} rounds from seed {} in {} s: {} failed", figures.table(), figures.rounds, figures.seed, figures.seconds, figures.failed);
    for failure in &figures.failures {
        println!("FAILED seed {} {}: {} ({})", failure.seed, failure.scenario, failure.complaints[0].lines().next().unwrap_or(""), failure.folder);
    }
    if let Some(path) = arguments.json {
        let text = serde_json::to_string_pretty(&figures).expect("plain figures");
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if figures.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
