//! The page of a report: well-formed, self-contained, and safe whatever others have named.

use cumux_lab::report::{
    Basis, CrowdRow, Decision, Device, FaultRow, Gate, LabPart, Launches, Made, Mig, MigInstance, MigProfile, Outcome, Overlap, OverlapSize, Report, Row,
    Slices, Source, StreamsRow, Timeline, Verdict,
};
use cumux_lab::{page, summary};
use proptest::prelude::*;

#[path = "page/browser.rs"]
mod browser;

/// Elements that have no end.
const VOID: [&str; 2] = ["meta", "br"];

/// Every tag is closed in its order; returns the names of all elements.
fn elements(page: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = page.strip_prefix("<!doctype html>\n").expect("a document type");
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap().to_owned();
        rest = &rest[end + 1..];
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "</{name}>");
            continue;
        }
        if name == "script" || name == "style" {
            let close = format!("</{name}>");
            rest = &rest[rest.find(&close).expect("it ends") + close.len()..];
        } else if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name.clone());
        }
        all.push(name);
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    all
}

fn report(name: &str, value: f64) -> Report {
    let text = || name.to_owned();
    let row = |mode: &str, source, clients| Row {
        mode: mode.to_owned(),
        workload: text(),
        clients,
        source,
        basis: Basis::Requests,
        throughput: value,
        slowdown: 2.0,
        p50_us: value / 2.0,
        p99_us: value,
        start_ms: Some(3.0),
        latencies_us: vec![1.0, value],
    };
    let mut report = Report {
        made: Made { system: text(), ..Made::default() },
        device: Device { name: text(), software: true, ..Device::default() },
        parts: vec![LabPart { name: text(), outcome: Outcome::Skipped, why: text(), seconds: 1.0 }],
        sharing: vec![row("cumux", Source::Measured, 1), row("cumux", Source::Predicted, 1), row("time_sliced", Source::Measured, 4)],
        streams: vec![StreamsRow { kernel: "matmul", blocks: 1, one_ms: value, two_ms: 1.0, speedup: value }],
        overlap: Some(Overlap {
            serial_ms: 2.0,
            overlapped_ms: 1.0,
            recovered: 0.5,
            sizes: vec![OverlapSize { kernels_ms: value, serial_ms: 2.0, overlapped_ms: 1.0, recovered: 0.5 }],
        }),
        crowds: vec![CrowdRow {
            mode: "cumux".into(),
            workload: text(),
            clients: 1,
            source: Source::Measured,
            memory_mib: Some(value),
            least_slowdown: Some(1.0),
            most_slowdown: Some(value),
        }],
        mig: Some(Mig {
            mode: "on".into(),
            source: text(),
            profiles: vec![MigProfile { name: text(), most: 7, multiprocessors: 16, memory_mib: 9984 }],
            instances: vec![MigInstance { profile: text(), uuid: text() }],
            differences: vec![text()],
        }),
        launches: Some(Launches { launch_ns: value, factor: 1.0 }),
        slices: Some(Slices { slice_us: value, away_us: 1.0, switch_us: 1.0, turns: 3 }),
        faults: vec![FaultRow { mode: "cumux".into(), others: 3, survivors: 2, told: text() }],
        timelines: vec![Timeline { mode: "cumux".into(), workload: text(), spans_us: vec![vec![(0.0, value)], vec![]] }],
        gates: vec![Gate { name: text(), figure: text(), wanted: text(), verdict: Verdict::Failed, why: text() }],
        decision: Some(Decision {
            question: text(),
            recommended: text(),
            reasons: vec![text()],
            against: vec![(text(), text())],
            plan: serde_json::json!({ "a": name }),
        }),
        artifacts: vec![text()],
        ..Report::new(Made::default())
    };
    report.compare();
    report
}

#[test]
fn the_page_is_whole_and_loads_nothing() {
    let page = page::html(&report("matmul", 1234.5));
    let elements = elements(&page);
    assert!(page.contains("<h2>MIG</h2>") && page.contains("MiB each"), "MIG and memory are missing");
    for wanted in ["svg", "polyline", "rect", "circle", "table", "details", "script"] {
        assert!(elements.iter().any(|element| element == wanted), "no <{wanted}>");
    }
    for forbidden in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden} loads something");
    }
    for part in ["prefers-color-scheme:dark", "@media print", "width=device-width", "behaviour, not speed"] {
        assert!(page.contains(part), "{part} is missing");
    }
    // The decision comes before anything else.
    assert!(page.find("class=\"decision\"") < page.find("<h2>"), "the decision is on top");
    let data = page.split("id=\"report\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!((data["format"].as_str(), data["version"].as_u64()), (Some("cumux-lab"), Some(1)));
}

/// The names of all fields of a value.
fn inner_fields(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Object(fields) => fields.iter().flat_map(|(name, value)| std::iter::once(name.clone()).chain(inner_fields(value))).collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(inner_fields).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_schema_in_the_documentation_is_the_document() {
    let document = include_str!("../../../docs/lab.md");
    let written = serde_json::to_value(report("x", 1.0)).unwrap();
    for (field, value) in written.as_object().unwrap() {
        let line = document.lines().find(|line| line.starts_with(&format!("| `{field}`"))).unwrap_or_else(|| panic!("docs/lab.md does not explain {field}"));
        // The planner's answer has its own page, and a figure of two words has no field.
        for inner in inner_fields(value).iter().filter(|_| field != "decision") {
            assert!(line.contains(&format!("`{inner}`")), "docs/lab.md does not explain {inner} of {field}");
        }
    }
}

#[test]
fn the_summary_says_decision_and_gates() {
    let text = summary::text(&report("matmul", 10.0));
    assert!(text.contains("Recommended: matmul") && text.contains("FAIL") && text.contains("behaviour, not speed"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Names of programs and cards are others' words, and numbers may be anything.
    #[test]
    fn no_word_and_no_number_breaks_the_page(name in "\\PC{0,40}|[<>&\"'/!a-z-]{0,40}", value in prop_oneof![any::<f64>(), 0.0..1e12_f64]) {
        let page = page::html(&report(&name, value));
        elements(&page);
        prop_assert!(!page.contains("NaN,") && !page.contains("=\"NaN\"") && !page.contains("=\"inf\""));
    }
}
