//! What must hold. On a software GPU times say nothing of a card, so there the gates are judged by
//! the model of the card, and say so.

use crate::report::{Gate, Outcome, Report, Source, Verdict, title};

/// Two streams are at least so many times faster than one.
const STREAMS: f64 = 1.05;
/// Two processes by time-slicing are each slower than alone, by a factor in this range.
const CONTENTION: std::ops::RangeInclusive<f64> = 1.2..=3.5;
/// Errors of the model, in percent.
const MEDIAN_ERROR: f64 = 15.0;
const WORST_ERROR: f64 = 35.0;

fn gate(name: &str, figure: String, wanted: &str, holds: bool, why: &str) -> Gate {
    let verdict = if holds { Verdict::Passed } else { Verdict::Failed };
    Gate { name: name.to_owned(), figure, wanted: wanted.to_owned(), verdict, why: if holds { String::new() } else { why.to_owned() } }
}

fn not_judged(name: &str, wanted: &str, why: &str) -> Gate {
    Gate { name: name.to_owned(), figure: "-".to_owned(), wanted: wanted.to_owned(), verdict: Verdict::NotJudged, why: why.to_owned() }
}

/// A gate for which there is no figure: it fails if one of the parts failed that would have given
/// it, and is not judged otherwise.
fn without_figure(report: &Report, parts: &[&str], name: &str, wanted: &str, why: &str) -> Gate {
    let failed = parts.iter().filter_map(|part| report.part(part)).find(|part| part.outcome == Outcome::Failed);
    match failed {
        Some(part) => gate(name, "-".to_owned(), wanted, false, &format!("the part \"{}\" failed: {}", part.name, part.why)),
        None => not_judged(name, wanted, why),
    }
}

/// Judges a report. `texts` are the artifacts: name and text.
#[must_use]
pub fn judge(report: &Report, texts: &[(String, String)]) -> Vec<Gate> {
    let mut gates = vec![streams(report), contention(report)];
    gates.extend(faults(report));
    gates.push(strings(texts));
    gates.push(geometry(report, texts));
    gates.push(match &report.decision {
        Some(decision) => gate("a decision with its reasons", decision.recommended.clone(), "one", !decision.reasons.is_empty(), "the planner gave no reason"),
        None => {
            let why = report.part("decision").map_or("the part \"decision\" did not run", |part| &part.why);
            without_figure(report, &["decision", "profiles", "predictions"], "a decision with its reasons", "one", why)
        }
    });
    gates.extend(model(report));
    gates
}

/// Why a figure may be off on this machine, besides what the gate itself says.
fn beside(report: &Report, why: &str) -> String {
    match report.device.others.is_empty() {
        true => why.to_owned(),
        false => format!("{why}; other processes use the card: {}", report.device.others.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn streams(report: &Report) -> Gate {
    let (name, wanted) = ("a small matrix product in two streams", "at least 1.05 times faster than in one");
    let best = if report.device.software {
        // Two streams of one process, as the model of the card has them.
        let predicted = |clients| report.row("streams", "matmul", clients, Source::Predicted).map(|row| row.throughput);
        predicted(2).zip(predicted(1)).map(|(two, one)| two / one)
    } else {
        report.streams.iter().find(|row| row.kernel == "matmul").map(|row| row.speedup)
    };
    let by = if report.device.software { " (model)" } else { "" };
    match best {
        Some(best) => gate(
            name,
            format!("{best:.2} times{by}"),
            wanted,
            best >= STREAMS,
            &beside(report, "kernels that fill every multiprocessor leave no room for a second stream; launches may come slower than such kernels end"),
        ),
        None => without_figure(report, &["streams", "profiles", "predictions"], name, wanted, "the streams part did not run"),
    }
}

fn contention(report: &Report) -> Gate {
    let (name, wanted) = ("two processes by time-slicing", "each 1.2 to 3.5 times slower than alone");
    let source = if report.device.software { Source::Predicted } else { Source::Measured };
    let by = if report.device.software { " (model)" } else { "" };
    let workload = if report.workloads().contains(&"matmul") { "matmul" } else { report.workloads().first().copied().unwrap_or_default() };
    let Some(row) = report.row("time_sliced", workload, 2, source) else {
        let parts = [title("time_sliced", report.device.software), "profiles".to_owned(), "predictions".to_owned()];
        let parts = if report.device.software { &parts[1..] } else { &parts[..1] };
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        return without_figure(report, &parts, name, wanted, "time-slicing with two processes did not run");
    };
    // Each of them, where that is known.
    let crowd = report.crowd("time_sliced", workload, 2, source);
    let each = crowd.and_then(|crowd| crowd.least_slowdown.zip(crowd.most_slowdown));
    let (least, most) = each.unwrap_or((row.slowdown, row.slowdown));
    let figure = if each.is_some() { format!("{least:.2} and {most:.2} times{by}") } else { format!("{:.2} times{by}", row.slowdown) };
    let why = "a program that leaves the card idle most of the time is hardly slowed down, and one that others slow down as well is slowed down more";
    gate(name, figure, wanted, CONTENTION.contains(&least) && CONTENTION.contains(&most), &beside(report, why))
}

fn faults(report: &Report) -> Vec<Gate> {
    let (name, wanted) = ("a fault through cumux", "all other programs finish");
    match report.faults.iter().find(|row| row.mode == "cumux") {
        Some(row) => {
            let figure = format!("{} of {} finish", row.survivors, row.others);
            vec![gate(name, figure, wanted, row.survivors == row.others, &format!("the others were told: {}", row.told))]
        }
        None => {
            let part = format!("a fault, {}", title("cumux", report.device.software));
            vec![without_figure(report, &[&part], name, wanted, "the part with the fault did not run")]
        }
    }
}

/// The strings that a start script for MPS must have.
const STRINGS: [&str; 5] = [
    "nvidia-cuda-mps-control -d",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "echo quit | nvidia-cuda-mps-control",
];

fn strings(texts: &[(String, String)]) -> Gate {
    let (name, wanted) = ("files for MPS", "start, stop, directories and percentage in them");
    let missing: Vec<&str> = STRINGS.into_iter().filter(|string| !texts.iter().any(|(_, text)| text.contains(string))).collect();
    match texts.is_empty() {
        true => not_judged(name, wanted, "no files were written"),
        false => gate(name, format!("{} of 5", 5 - missing.len()), wanted, missing.is_empty(), &format!("missing: {}", missing.join(", "))),
    }
}

fn geometry(report: &Report, texts: &[(String, String)]) -> Gate {
    let (name, wanted) = ("MIG geometries", "at least one that the card can have");
    match texts.iter().find(|(name, _)| name.contains("mig-parted")) {
        Some((_, text)) => {
            let count = text.matches("g.").count();
            gate(name, format!("{count} profiles named"), wanted, count > 0, "the file names no profile")
        }
        None => not_judged(name, wanted, &format!("{} has no MIG, or the planner does not know it", report.device.name)),
    }
}

fn model(report: &Report) -> Vec<Gate> {
    let rows = [("median error of the model", report.model.median_error, MEDIAN_ERROR), ("worst error of the model", report.model.worst_error, WORST_ERROR)];
    let judge = |(name, error, most): (&str, Option<f64>, f64)| {
        let wanted = format!("at most {most:.0} %");
        match error {
            Some(_) if report.device.software => {
                not_judged(name, &wanted, "a software GPU computes on the processors of this machine, and the model is one of cards")
            }
            Some(error) => {
                let why = beside(report, "the profile was recorded at another clock, or the program depends on what the model leaves out (docs/planning.md)");
                gate(name, format!("{error:.0} %"), &wanted, error <= most, &why)
            }
            None => without_figure(report, &["profiles", "predictions"], name, &wanted, "nothing was both measured and predicted"),
        }
    };
    rows.into_iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Basis, CrowdRow, FaultRow, LabPart, Made, Row};

    fn row(mode: &str, clients: u32, source: Source, throughput: f64, slowdown: f64) -> Row {
        let workload = "matmul".to_owned();
        Row {
            mode: mode.into(),
            workload,
            clients,
            source,
            basis: Basis::Requests,
            throughput,
            slowdown,
            p50_us: 1.0,
            p99_us: 2.0,
            start_ms: None,
            latencies_us: vec![],
        }
    }

    fn verdict(gates: &[Gate], name: &str) -> Verdict {
        gates.iter().find(|gate| gate.name.contains(name)).unwrap().verdict
    }

    #[test]
    fn each_gate_can_fail() {
        let mut report = Report::new(Made::default());
        assert!(judge(&report, &[]).iter().all(|gate| gate.verdict == Verdict::NotJudged && !gate.why.is_empty()));
        report.sharing = vec![row("time_sliced", 2, Source::Measured, 10.0, 2.0)];
        report.streams = vec![crate::report::StreamsRow { kernel: "matmul", blocks: 1, one_ms: 2.0, two_ms: 1.0, speedup: 2.0 }];
        report.faults = vec![FaultRow { mode: "cumux".into(), others: 3, survivors: 3, told: String::new() }];
        report.model.median_error = Some(3.0);
        report.model.worst_error = Some(30.0);
        let texts = [("start.sh".to_owned(), STRINGS.join("\n")), ("mig-parted.yaml".to_owned(), "1g.10gb".to_owned())];
        let gates = judge(&report, &texts);
        for name in ["two streams", "processes", "fault", "files", "geometries", "median", "worst"] {
            assert_eq!(verdict(&gates, name), Verdict::Passed, "{name}");
        }
        report.sharing[0].slowdown = 4.0;
        report.streams[0].speedup = 1.0;
        report.faults[0].survivors = 2;
        report.model.median_error = Some(16.0);
        report.model.worst_error = Some(36.0);
        report.device.others = vec![4711];
        let gates = judge(&report, &[("start.sh".to_owned(), "nothing".to_owned())]);
        for name in ["two streams", "processes", "fault", "files", "median", "worst"] {
            assert_eq!(verdict(&gates, name), Verdict::Failed, "{name}");
            assert!(gates.iter().filter(|gate| gate.verdict == Verdict::Failed).all(|gate| !gate.why.is_empty()));
        }
        assert!(gates[1].why.contains("4711"), "who else uses the card is said: {}", gates[1].why);
        report.gates = gates;
        assert!(!report.passes());
    }

    /// A lab in which everything goes wrong does not pass.
    #[test]
    fn a_gate_fails_with_the_part_that_would_have_given_its_figure() {
        let failed = |name: &str| LabPart { name: name.into(), outcome: Outcome::Failed, why: "the card is busy".into(), seconds: 1.0 };
        let mut report = Report::new(Made::default());
        for (part, gates) in [
            ("streams", vec!["two streams"]),
            ("time-slicing", vec!["processes"]),
            ("a fault, cumux", vec!["fault"]),
            ("profiles", vec!["two streams", "decision", "median", "worst"]),
            ("predictions", vec!["two streams", "decision", "median", "worst"]),
            ("decision", vec!["decision"]),
        ] {
            report.parts = vec![failed(part)];
            let found = judge(&report, &[]);
            let failing: Vec<&Gate> = found.iter().filter(|gate| gate.verdict == Verdict::Failed).collect();
            assert_eq!(failing.len(), gates.len(), "{part}: {failing:?}");
            assert!(gates.iter().all(|name| failing.iter().any(|gate| gate.name.contains(name) && gate.why.contains("the card is busy"))), "{failing:?}");
        }
        report.parts = vec![LabPart { outcome: Outcome::Skipped, ..failed("decision") }];
        let decision = judge(&report, &[]).into_iter().find(|gate| gate.name.contains("decision")).unwrap();
        assert!(decision.verdict == Verdict::NotJudged && decision.why == "the card is busy", "{decision:?}");
    }

    #[test]
    fn each_of_two_processes_is_held_against_the_gate() {
        let mut report = Report::new(Made::default());
        report.sharing = vec![row("time_sliced", 2, Source::Measured, 10.0, 2.0)];
        let crowd = |least, most| CrowdRow {
            mode: "time_sliced".into(),
            workload: "matmul".into(),
            clients: 2,
            source: Source::Measured,
            memory_mib: None,
            least_slowdown: Some(least),
            most_slowdown: Some(most),
        };
        for (least, most, wanted) in [(1.9, 2.1, Verdict::Passed), (1.1, 3.0, Verdict::Failed), (1.4, 3.6, Verdict::Failed)] {
            report.crowds = vec![crowd(least, most)];
            assert_eq!(verdict(&judge(&report, &[]), "processes"), wanted, "{least} {most}");
        }
    }

    #[test]
    fn a_software_gpu_is_judged_by_its_model() {
        let mut report = Report::new(Made::default());
        report.device.software = true;
        report.sharing = vec![
            row("streams", 1, Source::Predicted, 10.0, 1.0),
            row("streams", 2, Source::Predicted, 18.0, 1.0),
            row("time_sliced", 2, Source::Measured, 10.0, 90.0),
            row("time_sliced", 2, Source::Predicted, 10.0, 2.1),
        ];
        report.model.median_error = Some(500.0);
        let gates = judge(&report, &[]);
        assert_eq!(verdict(&gates, "two streams"), Verdict::Passed);
        assert!(gates[1].figure.contains("model") && gates[1].verdict == Verdict::Passed, "{:?}", gates[1]);
        assert_eq!(verdict(&gates, "median"), Verdict::NotJudged);
    }
}
