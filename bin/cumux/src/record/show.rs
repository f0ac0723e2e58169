//! A profile as people read it.

use crate::plan::words::time;
use crate::status::bytes;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use cumux_link::escape_foreign;
use cumux_planner::profile::{Profile, Step, Way};

/// Kernels and copies that are shown: those with the most time.
const MOST_ROWS: usize = 40;
/// Moments at which its memory is shown.
const MOST_MOMENTS: usize = 12;
/// Characters of a kernel's name.
const LONGEST_NAME: usize = 60;

/// A stranger may have recorded it: names are escaped.
fn name(text: &str, longest: usize) -> String {
    escape_foreign(text, longest)
}

/// The whole profile.
pub fn page(profile: &Profile) -> String {
    let mut text = format!("{} on {}\n", name(&profile.program, 120), name(&profile.card.name, 60));
    let launches: u64 = profile.kernels.iter().map(|kernel| kernel.count).sum();
    let busy: f64 = profile.kernels.iter().map(|kernel| kernel.count as f64 * kernel.duration.mean_ns).sum();
    text.push_str(&format!(
        "{} requests, {launches} launches, {} of the card's time, {} of memory\n",
        profile.requests,
        time(busy),
        bytes(profile.peak_memory())
    ));
    if let Some(recorded) = &profile.recorded {
        let driver = if recorded.driver.is_empty() { "software GPU".to_owned() } else { format!("driver {}", name(&recorded.driver, 40)) };
        let lasted = recorded.lasted_ns as f64;
        text.push_str(&format!("recorded for {} by cumux {}, {driver}\n", time(lasted), name(&recorded.cumux, 20)));
    }
    for note in &profile.notes {
        text.push_str(&format!("note: {}\n", name(note, 400)));
    }
    text.push_str(&format!("\n{}", kernels(profile, busy)));
    if !profile.copies.is_empty() {
        text.push_str(&format!("\n{}", copies(profile)));
    }
    text.push_str(&format!("\n{}", host(profile)));
    text.push_str(&memory(profile));
    text
}

/// Memory over time: so many moments, evenly spread over the changes, and the last one.
fn memory(profile: &Profile) -> String {
    let changes = &profile.memory;
    if changes.len() < 2 {
        return String::new();
    }
    let mut table = table(&["at", "memory"], 0..2);
    let step = changes.len().div_ceil(MOST_MOMENTS);
    let last = changes.len() - 1;
    for (_, change) in changes.iter().enumerate().filter(|(number, _)| *number == last || number % step == 0) {
        table.add_row([time(change.at_ns as f64), bytes(change.bytes)]);
    }
    format!("\n{}", lines(&table))
}

fn table(header: &[&str], numbers: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn lines(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn kernels(profile: &Profile, busy: f64) -> String {
    let mut sorted: Vec<_> = profile.kernels.iter().collect();
    let total = |kernel: &cumux_planner::profile::Kernel| kernel.count as f64 * kernel.duration.mean_ns;
    sorted.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let mut table = table(&["launches", "mean", "p99", "of all", "blocks", "threads", "regs", "shared", "kernel"], 0..8);
    for kernel in sorted.iter().take(MOST_ROWS) {
        let (mean, p99) = (time(kernel.duration.mean_ns), time(kernel.duration.p99_ns));
        let part = format!("{:.0} %", 100.0 * total(kernel) / busy.max(1.0));
        let [count, blocks, threads, registers, shared] =
            [kernel.count, kernel.blocks.into(), kernel.threads.into(), kernel.registers.into(), kernel.shared.into()].map(|number: u64| number.to_string());
        table.add_row([count, mean, p99, part, blocks, threads, registers, shared, name(&kernel.name, LONGEST_NAME)]);
    }
    let rest = sorted.len().saturating_sub(MOST_ROWS);
    let more = if rest == 0 { String::new() } else { format!("and {rest} kernels with less time\n") };
    lines(&table) + &more
}

fn copies(profile: &Profile) -> String {
    let mut sorted: Vec<_> = profile.copies.iter().collect();
    sorted.sort_by_key(|copy| std::cmp::Reverse(copy.count.saturating_mul(copy.bytes)));
    let mut table = table(&["copies", "bytes", "mean", "p99", "way"], 0..4);
    for copy in sorted.into_iter().take(MOST_ROWS) {
        let way = match copy.way {
            Way::ToDevice => "to the device",
            Way::ToHost => "to the host",
            Way::OnDevice => "on the device",
        };
        table.add_row([copy.count.to_string(), copy.bytes.to_string(), time(copy.duration.mean_ns), time(copy.duration.p99_ns), way.to_owned()]);
    }
    lines(&table)
}

/// Steps once all repetitions are written out.
fn count(steps: &[Step]) -> u64 {
    let of = |step: &Step| match step {
        Step::Repeat { times, steps } => times.saturating_mul(count(steps)),
        _ => 1,
    };
    steps.iter().map(of).fold(0, u64::saturating_add)
}

fn host(profile: &Profile) -> String {
    let mut text = format!("one request: {} steps of the host\n", count(&profile.request));
    let Some(host) = &profile.host else { return text };
    let gap = host.launch_gap;
    text.push_str(&format!("between launches the host has {} (99 of 100 at most {})\n", time(gap.mean_ns), time(gap.p99_ns)));
    text.push_str(&format!("it waits {} times, {} together\n", host.waits, time(host.waiting_ns as f64)));
    for wait in host.waits_after.iter().take(8) {
        let after = wait
            .after
            .and_then(|kernel| profile.kernels.get(kernel))
            .map_or("before any launch".to_owned(), |kernel| format!("behind {}", name(&kernel.name, LONGEST_NAME)));
        text.push_str(&format!("  {after}: {} times, {}\n", wait.count, time(wait.total_ns as f64)));
    }
    text
}
