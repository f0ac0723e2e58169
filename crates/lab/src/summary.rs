//! The report in a terminal: the same order as the page, without the plots.

use crate::page::{machine, memory};
use crate::report::{Basis, Outcome, Report, Source, Verdict, title};
use crate::svg::number;
use std::fmt::Write as _;

/// The summary.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = format!("{}\n{}\n\n", report.device.name, machine(report));
    if let Some(decision) = &report.decision {
        let _ = writeln!(out, "{}\nRecommended: {}", decision.question, decision.recommended);
        for reason in &decision.reasons {
            let _ = writeln!(out, "  {reason}");
        }
        out.push('\n');
    }
    for gate in &report.gates {
        let word = match gate.verdict {
            Verdict::Passed => "pass",
            Verdict::Failed => "FAIL",
            Verdict::NotJudged => "-   ",
        };
        let why = if gate.why.is_empty() { String::new() } else { format!(": {}", gate.why) };
        let _ = writeln!(out, "{word}  {}: {} (wanted: {}){why}", gate.name, gate.figure, gate.wanted);
    }
    let measured: Vec<_> = report.sharing.iter().filter(|row| row.source == Source::Measured).collect();
    if !measured.is_empty() {
        let behaviour = if report.device.software { " (behaviour, not speed)" } else { "" };
        let _ = writeln!(out, "\nmeasured{behaviour}");
        for row in measured {
            // Whole programs a second are few.
            let digits = if row.basis == Basis::Requests { 0 } else { 2 };
            let (rate, time) = match row.basis {
                Basis::Requests => ("requests/s", "us p99"),
                Basis::Rate => ("a second, as it says,", "us the slowest program"),
                Basis::Programs => ("programs/s", "us the slowest program"),
            };
            let start = row.start_ms.map_or(String::new(), |ms| format!(", {ms:.0} ms to start"));
            let memory = memory(report, row).map_or(String::new(), |mib| format!(", {} MiB each", number(mib)));
            let _ = writeln!(
                out,
                "  {:<23} {:<10} {:>3} programs {:>11.digits$} {rate} {:>7.2} times slower {:>10.0} {time}{start}{memory}",
                title(&row.mode, report.device.software),
                row.workload,
                row.clients,
                row.throughput,
                row.slowdown,
                row.p99_us
            );
        }
    }
    let left_out: Vec<_> = report.parts.iter().filter(|part| part.outcome != Outcome::Ran).collect();
    if !left_out.is_empty() {
        out.push_str("\nnot measured\n");
        for part in left_out {
            let _ = writeln!(out, "  {}: {}", part.name, part.why);
        }
    }
    out
}
