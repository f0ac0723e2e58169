//! `cumux doctor`: why would a program not be served? Each cause is tested, and each has its
//! remedy.
//!
//! Exit status 0 if nothing stands in the way, 1 if something does. Warnings do not count.

mod container;
mod daemon;
mod images;
mod machine;
mod module;
mod program;

use crate::device::{self, DeviceName};
use crate::say;
use anyhow::Context as _;
use cumux_link::escape_foreign;
use serde::Serialize;
use std::path::Path;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    Warning,
    Problem,
    /// An earlier problem hides this one.
    NotTested,
}

/// One cause, tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub outcome: Outcome,
    pub found: String,
    /// What to do; empty if all is well.
    pub remedy: String,
    /// The single items, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

/// Items that a page shows; JSON has them all.
const SHOWN: usize = 8;

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Ok, found: found.into(), remedy: String::new(), details: Vec::new() }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Warning, found: found.into(), remedy: remedy.into(), details: Vec::new() }
    }

    pub fn problem(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Problem, found: found.into(), remedy: remedy.into(), details: Vec::new() }
    }

    /// The same finding with its items.
    pub fn with(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    pub fn not_tested(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::NotTested, found: why.into(), remedy: String::new(), details: Vec::new() }
    }
}

/// Runs the checks and returns the exit status.
pub fn main(json: bool, device: Option<&str>, program: Option<&Path>) -> anyhow::Result<u8> {
    let device = device.map(DeviceName::parse).transpose()?;
    let mut findings = daemon::findings();
    findings.extend(program::library_findings());
    if let Some(program) = program {
        findings.extend(program::findings(program, &device.map_or_else(chosen_device, |device| vec![device])));
    }
    findings.extend(machine::findings());
    if container::is_here() {
        findings.extend(container::findings());
    }
    for finding in &mut findings {
        // Names of programs and folders, and texts of a daemon: other users may have chosen them.
        finding.found = escape_foreign(&finding.found, usize::MAX);
        finding.remedy = escape_foreign(&finding.remedy, usize::MAX);
        for detail in &mut finding.details {
            *detail = escape_foreign(detail, usize::MAX);
        }
    }
    if json {
        say::line(serde_json::to_string_pretty(&findings).context("cannot write JSON")?)?;
    } else {
        say::text(&page(&findings))?;
    }
    Ok(u8::from(findings.iter().any(|finding| finding.outcome == Outcome::Problem)))
}

/// The devices for a program started here: the wished one, those of the daemon, else what
/// `cumux run` would use.
fn chosen_device() -> Vec<DeviceName> {
    let mut named = served_devices();
    named.dedup();
    match named.is_empty() {
        true => device::with_fallback(None).map_or_else(|_| vec![device::software()], |(devices, _)| devices),
        false => named,
    }
}

/// The devices of this shell's daemon; none without a daemon, or while it knows none.
pub fn served_devices() -> Vec<DeviceName> {
    daemon::devices().iter().filter_map(|name| DeviceName::parse(name).ok()).collect()
}

fn page(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = match finding.outcome {
            Outcome::Ok => "ok     ",
            Outcome::Warning => "warning",
            Outcome::Problem => "PROBLEM",
            Outcome::NotTested => "-      ",
        };
        text.push_str(&format!("{word}  {:<18} {}\n", finding.check, finding.found));
        for detail in finding.details.iter().take(SHOWN) {
            text.push_str(&format!("         {:<18}   {detail}\n", ""));
        }
        if finding.details.len() > SHOWN {
            text.push_str(&format!("         {:<18}   and {} more; --json lists all\n", "", finding.details.len() - SHOWN));
        }
        if !finding.remedy.is_empty() {
            text.push_str(&format!("         {:<18} → {}\n", "", finding.remedy));
        }
    }
    let problems = findings.iter().filter(|finding| finding.outcome == Outcome::Problem).count();
    let warnings = findings.iter().filter(|finding| finding.outcome == Outcome::Warning).count();
    text.push_str(&match problems {
        0 if warnings == 0 => "\nNothing stands in the way.\n".to_owned(),
        0 => format!("\nNothing stands in the way; {warnings} {} to know.\n", if warnings == 1 { "thing" } else { "things" }),
        1 => "\n1 problem stands in the way until it is solved.\n".to_owned(),
        n => format!("\n{n} problems stand in the way until they are solved.\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_shown_with_their_remedy() {
        let text = page(&[Finding::ok("a", "fine"), Finding::problem("b", "broken", "mend it")]);
        assert!(text.contains("PROBLEM  b") && text.contains("→ mend it") && text.contains("1 problem"), "{text}");
        assert!(page(&[Finding::ok("a", "fine")]).contains("Nothing stands in the way"));
    }
}
