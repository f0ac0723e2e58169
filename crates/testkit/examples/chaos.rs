//! The crash matrix from the command line: `cargo xtask chaos`.
#![forbid(unsafe_code)]

use clap::Parser;
use cumux_testkit::chaos::{Options, Scenario, rules, run};
use cumux_testkit::crashes;
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
    /// Instead: so many rounds with a crash at a named step of the fault path or of a move
    #[arg(long, default_value_t = 0)]
    steps: usize,
    /// Instead, or besides: so many rounds in which an executor with eight busy clients is killed
    /// from outside
    #[arg(long, default_value_t = 0)]
    killed: usize,
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
    if arguments.steps + arguments.killed > 0 {
        return crash(&arguments, options.seed, options.lanes);
    }
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

/// Crashes at named steps, and executors that are killed from outside.
fn crash(arguments: &Arguments, seed: u64, lanes: usize) -> ExitCode {
    let figures = crashes::run(&crashes::Options { steps: arguments.steps, killed: arguments.killed, seed, lanes });
    println!("\n{} rounds from seed {seed}: in {} somebody was struck, {} clients were told of an error", figures.rounds, figures.struck, figures.told);
    for complaint in &figures.complaints {
        println!("FAILED {complaint}");
    }
    if figures.complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
