//! `cumux plan`: which way of sharing a card pays for these programs, and what breaks with each
//! other one. The predictions are those of `cumux_planner`; this file reads the command line and
//! the profiles, and prints.
//!
//! Exit status 0 if something meets every wish, 1 if nothing does or the wishes contradict
//! themselves.

pub mod words;

use crate::{record, say};
use anyhow::{Context as _, bail};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use cumux_link::escape_foreign;
use cumux_planner::card::{self, CardModel};
use cumux_planner::mode::Isolation;
use cumux_planner::plan::{Answer, Plan, Program, Wishes, make};
use std::path::Path;

/// The command line of `cumux plan`.
#[derive(Args, Debug)]
pub struct PlanArguments {
    #[arg(long, help = format!("The card: one of {}", card::names()))]
    card: String,
    /// A recorded program and its copies, each with a rate if it has one: resnet.json*8,rate=25
    #[arg(long, value_name = "FILE[*COPIES][,rate=R][,percentage=P]")]
    profile: Vec<String>,
    /// A program by hand: NAME*COPIES,memory=1.2G,time=8ms and, if known, rate=25 (requests a
    /// second; without it the next one follows at once), host=2ms, kernels=50, fill=25%
    /// (multiprocessors that a kernel fills), bandwidth=10%, percentage=25 (of the multiprocessors,
    /// for MPS and cumux)
    #[arg(long, value_name = "NAME[*COPIES],memory=…,time=…")]
    program: Vec<String>,
    /// 99 of 100 requests are to take at most so long: 50ms
    #[arg(long, value_name = "TIME")]
    p99: Option<String>,
    /// What may not reach another program: faults, or with hard also time, memory and bandwidth
    #[arg(long, value_enum, default_value_t = IsolationWish::None)]
    isolation: IsolationWish,
    /// Cards there are; as many as needed without it
    #[arg(long, value_name = "COUNT")]
    cards: Option<u32>,
    #[arg(long)]
    json: bool,
}

/// The words of `--isolation`.
#[derive(clap::ValueEnum, Debug, Clone, Copy)]
enum IsolationWish {
    None,
    Faults,
    Hard,
}

/// Plans, prints, and returns the exit status.
pub fn main(arguments: &PlanArguments) -> anyhow::Result<u8> {
    let (card, plan) = answer(arguments)?;
    if arguments.json {
        say::line(serde_json::to_string_pretty(&plan).context("cannot write JSON")?)?;
    } else {
        say::text(&page(card, &plan))?;
    }
    Ok(u8::from(!plan.met))
}

fn answer(arguments: &PlanArguments) -> anyhow::Result<(&'static CardModel, Plan)> {
    let card = card::find(&arguments.card)?;
    let mut programs = Vec::new();
    for spec in &arguments.profile {
        programs.push(recorded(spec)?);
    }
    for spec in &arguments.program {
        programs.push(words::program(card, spec).with_context(|| format!("--program {spec}"))?);
    }
    let isolation = match arguments.isolation {
        IsolationWish::None => Isolation::None,
        IsolationWish::Faults => Isolation::Faults,
        IsolationWish::Hard => Isolation::Hard,
    };
    let p99_ns = arguments.p99.as_deref().map(words::time_ns).transpose().context("--p99")?;
    let plan = make(card, &programs, Wishes { p99_ns, isolation, most_cards: arguments.cards })?;
    Ok((card, plan))
}

/// A program from a file.
fn recorded(spec: &str) -> anyhow::Result<Program> {
    let (file, options) = spec.split_once(',').unwrap_or((spec, ""));
    let (path, count) = words::copies(file)?;
    let (mut rate, mut share) = (None, None);
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("rate", value)) => rate = Some(words::rate(value)?),
            Some(("percentage", value)) => share = Some(words::percentage(value)?),
            _ => bail!("--profile {spec}: \"{option}\" is unknown; a profile may have rate=R and percentage=P behind it"),
        }
    }
    let profile = record::read(Path::new(path))?;
    let name = match profile.program.is_empty() {
        true => Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        // A stranger may have recorded it.
        false => escape_foreign(&profile.program, 60).to_string(),
    };
    Ok(Program { name, profile, count, rate, share })
}

/// The answer as people read it.
pub fn page(card: &CardModel, plan: &Plan) -> String {
    let mut text = String::new();
    for program in &plan.programs {
        let rate = program.rate.map_or("one request after the other".to_owned(), |rate| format!("{rate} requests a second each"));
        let (name, count, memory) = (&program.name, program.count, program.memory_mib);
        text.push_str(&format!("{count} x {name}: {memory} MiB, {} a request alone, {rate}\n", words::time(program.alone_ns)));
    }
    text.push_str(&format!("on {} ({} multiprocessors, {} MiB)\n\n", card.name, card.multiprocessors, card.memory_mib));
    text.push_str(&table(&plan.answers));
    let best = plan.answers.first().filter(|_| plan.met);
    if let Some(best) = best {
        let on = if best.cards == 1 { "1 card".to_owned() } else { format!("{} cards", best.cards) };
        text.push_str(&format!("\nRecommended: {}, on {on}\n", best.title));
    } else {
        text.push('\n');
    }
    for reason in &plan.reasons {
        text.push_str(&format!("  {reason}\n"));
    }
    text.push_str("\nWhat speaks against the others:\n");
    for answer in plan.answers.iter().skip(usize::from(best.is_some())) {
        text.push_str(&format!("  {}: {}\n", answer.title, answer.against));
    }
    if plan.answers.iter().any(|answer| answer.estimated && answer.does_not_fit.is_none()) {
        text.push_str("\n~ sizes of these instances are estimates: nobody has read them from a card\n");
    }
    text.push_str("\nThese are predictions. docs/planning.md says what they rest on, and what has not been compared with a card yet.\n");
    text
}

fn table(answers: &[Answer]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["", "way", "cards", "requests/s", "p99", "occupied", "MiB of a card", "a fault takes down", "restart to change"]);
    for answer in answers {
        let mark = match (&answer.does_not_fit, answer.unmet.is_empty()) {
            (Some(_), _) => "no room",
            (None, true) => "ok",
            (None, false) => "misses",
        };
        let title = format!("{}{}", answer.title, if answer.estimated { " ~" } else { "" });
        let mut cells = vec![mark.to_owned(), title, answer.cards.to_string()];
        if answer.does_not_fit.is_some() {
            cells.extend(["-", "-", "-", "-"].map(str::to_owned));
        } else {
            let p99 = if answer.fares.iter().any(|fares| fares.overloaded) { "grows".to_owned() } else { words::time(answer.p99_ns) };
            cells.extend([format!("{:.0}", answer.throughput), p99, format!("{:.0} %", 100.0 * answer.occupied), answer.memory_mib.to_string()]);
        }
        cells.extend([answer.fault.clone(), answer.change.clone()]);
        table.add_row(cells);
    }
    let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: PlanArguments,
    }

    fn parse(words: &[&str]) -> PlanArguments {
        Line::try_parse_from([&["plan"], words].concat()).unwrap().arguments
    }

    fn refusal(words: &[&str]) -> String {
        match answer(&parse(words)) {
            Ok((_, plan)) => panic!("planned: {:?}", plan.reasons),
            Err(error) => format!("{error:#}"),
        }
    }

    /// The words of a command line; what stands in single quotes is one word.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (number, part) in line.split('\'').enumerate() {
            if number % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    #[test]
    fn the_example_has_the_answer_of_the_documentation() {
        let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/forty-small-models.md")).unwrap();
        let blocks: Vec<&str> = document.split("```\n").skip(1).step_by(2).collect();
        let command = words(blocks[0].trim());
        assert_eq!(command[..2], ["cumux", "plan"]);
        let line: Vec<&str> = command[2..].iter().map(String::as_str).collect();
        let (card, plan) = answer(&parse(&line)).unwrap();
        let page = page(card, &plan);
        assert!(page == blocks[1], "docs/forty-small-models.md has another answer than this:\n{page}");
    }

    #[test]
    fn what_cannot_be_planned_is_answered_with_a_sentence() {
        let small = "small*4,memory=1G,time=4ms";
        assert!(refusal(&["--card", "a200", "--program", small]).contains("it knows a30, a100-40"));
        assert!(refusal(&["--card", "l4"]).contains("no program"));
        assert!(refusal(&["--card", "l4", "--program", small, "--p99", "soon"]).contains("--p99"));
        assert!(refusal(&["--card", "l4", "--program", small, "--p99", "1ms"]).contains("alone"));
        assert!(refusal(&["--card", "l4", "--program", small, "--isolation", "hard", "--cards", "1"]).contains("hard isolation"));
        assert!(refusal(&["--card", "l4", "--profile", "/nowhere/a.json*2"]).contains("/nowhere/a.json cannot be read"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.json");
        std::fs::write(&path, "{\"format\": \"cumux-profile\", \"version\": 9}").unwrap();
        let error = refusal(&["--card", "l4", "--profile", &format!("{}*3,rate=2", path.display())]);
        assert!(error.contains("version 9") && error.contains("new.json"), "{error}");
        assert!(refusal(&["--card", "l4", "--profile", &format!("{},size=2", path.display())]).contains("\"size=2\" is unknown"));
    }
}
