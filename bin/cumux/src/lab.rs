//! `cumux lab`: measures every way of sharing this card that this machine can, predicts the others
//! from recorded profiles, judges the gates, asks the planner, and writes a report with the files
//! that an administrator applies.
//!
//! - [`parts`]: the parts, how long they take, and what each adds to the report.
//! - [`own`]: the user's program among the workloads.
//! - [`output`]: the report's folder.
//! - [`program`]: the lab's own program.
//! - [`ways`], [`crowd`], [`card`]: daemons, programs, the machine.
//!
//! A part that goes wrong is in the report as failed, and the others go on. A signal ends the lab;
//! its programs and daemons go with their values.
//!
//! Exit status: 0, or 1 with `--grade` if a gate fails.

mod card;
mod crowd;
mod output;
mod own;
mod parts;
mod program;
mod recordings;
mod ways;

use crate::demo::interrupt::Interrupt;
use crate::device::{self, DeviceName, with_fallback};
use crate::{library, say};
use anyhow::Context as _;
use clap::Args;
use cumux_lab::report::{LabPart, Outcome, Verdict};
use cumux_lab::summary;
use indicatif::{ProgressBar, ProgressStyle};
use output::Folder;
use parts::Lab;
use program::LabProgram;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The command line of `cumux lab`.
#[derive(Args, Debug)]
pub struct LabArguments {
    #[arg(long, help = format!("One of {}", device::names()))]
    device: Option<String>,
    /// Fewer workloads, fewer programs, shorter
    #[arg(long)]
    quick: bool,
    /// The folder of the report
    #[arg(long, value_name = "DIR", default_value = "cumux-lab")]
    out: PathBuf,
    /// Exit status 1 if a gate fails
    #[arg(long)]
    grade: bool,
    /// Prints report.json in place of the summary
    #[arg(long)]
    json: bool,
    /// A program of yours, measured beside the lab's own: one that tells of its requests
    /// (docs/lab.md), prints a rate (120 images/s), or is timed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the lab.
pub fn main(arguments: &LabArguments) -> anyhow::Result<u8> {
    let (devices, notice) = with_fallback(arguments.device.as_deref())?;
    let devices = vec![take_only_device(devices)?];
    own::Own::check(&arguments.command)?;
    let folder = Folder::open(&arguments.out)?;
    let interrupt = Interrupt::watch().context("cannot watch for signals")?;
    let quiet = arguments.json;
    let progress = Progress::new(quiet);
    if let Some(notice) = &notice {
        progress.say(notice);
    }
    let program = LabProgram::prepare(&progress, &interrupt)?;
    let mut lab = Lab::new(&devices, program.path.clone(), library::folder()?, &arguments.command, arguments.quick, &interrupt);
    if let Some(notice) = busy(&lab.report.device.others) {
        progress.say(&notice);
    }
    let begun = Instant::now();
    run(&mut lab, &progress, &folder)?;
    progress.end();
    folder.write_profiles(lab.profiles())?;
    let mut report = lab.report;
    report.made.seconds = begun.elapsed().as_secs_f64();
    folder.write(&mut report)?;
    if quiet {
        say::line(serde_json::to_string_pretty(&report).context("cannot write JSON")?)?;
    } else {
        say::text(&summary::text(&report))?;
    }
    say::complain(format_args!("cumux: the report is {}", folder.path().join("report.html").display()));
    if arguments.grade {
        for gate in report.gates.iter().filter(|gate| gate.verdict == Verdict::Failed) {
            say::complain(format_args!("cumux: a gate fails: {}: {} (wanted: {}): {}", gate.name, gate.figure, gate.wanted, gate.why));
        }
    }
    Ok(u8::from(arguments.grade && !report.passes()))
}

/// The lab is about one card.
fn take_only_device(devices: Vec<DeviceName>) -> anyhow::Result<DeviceName> {
    match <[DeviceName; 1]>::try_from(devices) {
        Ok([device]) => Ok(device),
        Err(several) => anyhow::bail!("{} are {} devices: the lab is about one card, name it with --device", device::list(&several), several.len()),
    }
}

/// What is said of a card that others use.
fn busy(others: &[u32]) -> Option<String> {
    let list: Vec<String> = others.iter().map(u32::to_string).collect();
    let list = list.join(", ");
    (!others.is_empty()).then(|| format!("other processes use this card ({list}): the figures include what they do; end them for figures of the card alone"))
}

/// Does the parts in their order.
fn run(lab: &mut Lab<'_>, progress: &Progress, folder: &Folder) -> anyhow::Result<()> {
    let parts = lab.plan();
    progress.begin(parts.iter().map(|part| part.seconds).sum());
    for part in parts {
        lab.interrupt.check()?;
        progress.next(&part.name);
        let begun = Instant::now();
        let before = lab.report.parts.len();
        let done = (part.run)(lab);
        // What the part itself did not say.
        lab.interrupt.check()?;
        let seconds = begun.elapsed().as_secs_f64();
        match done {
            Ok((outcome, why)) => lab.report.parts.push(LabPart { name: part.name, outcome, why, seconds }),
            Err(error) => {
                let why = format!("{error:#}");
                progress.say(&format!("{}: {why}", part.name));
                lab.report.parts.truncate(before);
                lab.report.parts.push(LabPart { name: part.name, outcome: Outcome::Failed, why, seconds });
            }
        }
        folder.write_so_far(&lab.report)?;
        progress.done(part.seconds);
    }
    Ok(())
}

/// The display: a bar with the time that is left in a terminal, lines elsewhere; on standard error.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

/// Steps of the bar for a second.
const STEPS: f64 = 10.0;

impl Progress {
    fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        Self { bar: terminal.then(ProgressBar::hidden), quiet }
    }

    /// Prints a line.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) if !bar.is_hidden() => bar.suspend(|| say::complain(format_args!("cumux: {text}"))),
            _ => say::complain(format_args!("cumux: {text}")),
        }
    }

    fn begin(&self, seconds: f64) {
        if !self.quiet {
            self.say(&format!("the lab takes about {seconds:.0} seconds"));
        }
        let Some(bar) = &self.bar else { return };
        bar.set_length((seconds * STEPS) as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %, about {eta} left: {msg}") {
            bar.set_style(style);
        }
        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn next(&self, name: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(name.to_owned()),
            None if !self.quiet => say::complain(format_args!("cumux: {name}")),
            None => {}
        }
    }

    fn done(&self, seconds: f64) {
        if let Some(bar) = &self.bar {
            bar.inc((seconds * STEPS) as u64);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::busy;

    #[test]
    fn a_busy_card_is_told_with_the_processes_that_use_it() {
        assert_eq!(busy(&[]), None);
        let said = busy(&[17, 4711]).expect("a notice");
        assert!(said.contains("(17, 4711)") && said.contains("end them"), "{said}");
    }
}
