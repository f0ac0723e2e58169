//! The report as one HTML file: nothing is loaded, light and dark, for screens, phones and paper.

use crate::report::{Basis, NO_MIG, Outcome, Report, Row, Source, Verdict, title};
use crate::svg::{Scale, Series, escape, lines, number, scatter, timeline};
use std::fmt::Write as _;

const STYLE: &str = r"
:root{color-scheme:light dark;--ink:#1c2024;--soft:#5b6570;--paper:#fff;--panel:#f4f6f8;--edge:#d5dbe1;--good:#157347;--bad:#b42318;
--c0:#1f6feb;--c1:#c2410c;--c2:#15803d;--c3:#7c3aed;--c4:#b91c5c;--c5:#0e7490}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5b1;--paper:#14171a;--panel:#1d2226;--edge:#343c44;--good:#4ade80;--bad:#ff8a80;
--c0:#6cb0ff;--c1:#ffa266;--c2:#5fd38a;--c3:#b79bff;--c4:#ff85b3;--c5:#56cfe1}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:16px;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);overflow-wrap:break-word}
h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.2rem;margin:1.6em 0 .4em;border-bottom:1px solid var(--edge)}h3{font-size:1rem;margin:1.2em 0 .3em}
p{margin:.4em 0}.soft{color:var(--soft)}
.decision{background:var(--panel);border:1px solid var(--edge);border-left:6px solid var(--c0);border-radius:6px;padding:12px 16px}
.decision strong{font-size:1.2rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--edge);vertical-align:top}
td .passed,td .failed,td .soft{white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.passed{color:var(--good);font-weight:600}.failed{color:var(--bad);font-weight:600}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}
figure{margin:0;background:var(--panel);border:1px solid var(--edge);border-radius:6px;padding:8px}
figcaption{font-size:.85rem}svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}
.end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:var(--edge)}.axis{stroke:var(--soft);stroke-dasharray:4 4}
polyline{fill:none;stroke-width:2}polyline.dashed{stroke-dasharray:6 4}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}
circle{fill:var(--panel)}.dot{fill-opacity:.5;stroke-width:2}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}
.key{white-space:nowrap;margin-right:12px}.key:before{content:'';display:inline-block;width:18px;border-top:3px solid;margin-right:5px;vertical-align:middle}
.key.dashed:before{border-top-style:dashed}
.k0:before{color:var(--c0)}.k1:before{color:var(--c1)}.k2:before{color:var(--c2)}.k3:before{color:var(--c3)}.k4:before{color:var(--c4)}.k5:before{color:var(--c5)}
@media(max-width:600px){svg text{font-size:18px}}
@media print{body{max-width:none;padding:0}h2{break-after:avoid}figure,tr{break-inside:avoid}.wide{overflow:visible}details{display:none}}
";

/// The page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut out = String::new();
    let heading = format!("Sharing {}", report.device.name);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{}</title><style>{STYLE}</style></head><body>",
        escape(&heading)
    );
    let _ = write!(out, "<h1>{}</h1><p class=\"soft\">{}</p>", escape(&heading), escape(&machine(report)));
    decision(&mut out, report);
    gates(&mut out, report);
    sharing(&mut out, report);
    timelines(&mut out, report);
    faults(&mut out, report);
    streams(&mut out, report);
    mig(&mut out, report);
    model(&mut out, report);
    parts(&mut out, report);
    // `<` would end the element in the middle of the document.
    let data = serde_json::to_string(report).unwrap_or_default().replace('<', "\\u003c");
    let _ = writeln!(
        out,
        "<details><summary>All of it as JSON</summary><p class=\"soft\">The same document is in report.json.</p></details>\
         <script type=\"application/json\" id=\"report\">{data}</script></body></html>"
    );
    out
}

/// Card, machine and versions in one line.
pub(crate) fn machine(report: &Report) -> String {
    let (made, device) = (&report.made, &report.device);
    let driver = if device.software { "software GPU".to_owned() } else { format!("driver {}", device.driver) };
    format!(
        "{}: {} multiprocessors, {} MiB, {driver}; {}, {} processors; cumux {}; {}; {:.0} s{}",
        device.id,
        device.multiprocessors,
        device.memory_mib,
        made.system,
        made.processors,
        made.cumux,
        made.date,
        made.seconds,
        if made.quick { ", quick" } else { "" }
    )
}

/// What stands in every heading about times of a software GPU.
fn behaviour(report: &Report) -> &'static str {
    if report.device.software { ": behaviour, not speed" } else { "" }
}

fn decision(out: &mut String, report: &Report) {
    let Some(decision) = &report.decision else {
        out.push_str("<div class=\"decision\"><strong>No decision</strong><p>The planner does not know this card, or nothing was recorded: the figures below are all there is.</p></div>");
        return;
    };
    let _ = write!(
        out,
        "<div class=\"decision\"><p class=\"soft\">{}</p><strong>{}</strong><ul>{}</ul></div>",
        escape(&decision.question),
        escape(&decision.recommended),
        decision.reasons.iter().map(|reason| format!("<li>{}</li>", escape(reason))).collect::<String>()
    );
    out.push_str("<h3>What breaks with the others</h3>");
    let rows = decision.against.iter().map(|(title, against)| vec![escape(title), escape(against)]).collect();
    table(out, &["way", "against it"], &[], rows);
}

/// A table; the cells are escaped already. `numbers` are the columns of numbers.
fn table(out: &mut String, header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) {
    let class = |column: usize| if numbers.contains(&column) { " class=\"n\"" } else { "" };
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    for (column, name) in header.iter().enumerate() {
        let _ = write!(out, "<th{}>{}</th>", class(column), escape(name));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{cell}</td>", class(column));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn gates(out: &mut String, report: &Report) {
    out.push_str("<h2>Gates</h2>");
    let word = |verdict| match verdict {
        Verdict::Passed => "<span class=\"passed\">pass</span>",
        Verdict::Failed => "<span class=\"failed\">FAIL</span>",
        Verdict::NotJudged => "<span class=\"soft\">not judged</span>",
    };
    let rows =
        report.gates.iter().map(|gate| vec![word(gate.verdict).to_owned(), escape(&gate.name), escape(&gate.figure), escape(&gate.wanted), escape(&gate.why)]);
    table(out, &["", "gate", "found", "wanted", "why"], &[], rows.collect());
}

/// A line for each mode, dashed where it is predicted.
fn series(report: &Report, workload: &str, of: impl Fn(&Row) -> Option<f64>) -> Vec<Series> {
    let modes = report.modes();
    let mut all = Vec::new();
    for (colour, mode) in modes.iter().enumerate() {
        for (source, dashed) in [(Source::Measured, false), (Source::Predicted, true)] {
            let rows = report.sharing.iter().filter(|row| row.mode == *mode && row.workload == workload && row.source == source);
            let mut points: Vec<(f64, f64)> = rows.filter_map(|row| Some((f64::from(row.clients), of(row)?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if !points.is_empty() {
                let name = format!("{}{}", title(mode, report.device.software && !dashed), if dashed { ", predicted" } else { "" });
                all.push(Series { name, colour, dashed, points });
            }
        }
    }
    all
}

fn sharing(out: &mut String, report: &Report) {
    for workload in report.workloads() {
        let _ = write!(out, "<h2>{}: programs that share the card{}</h2><div class=\"plots\">", escape(workload), behaviour(report));
        // A software GPU's own times and those of the model of a card are different things.
        let throughput = series(report, workload, |row| (row.basis != Basis::Programs).then_some(row.throughput));
        out.push_str(&lines(&format!("{workload}, throughput"), "programs", "requests a second", (Scale::Log, Scale::Log), &throughput));
        let p99 = series(report, workload, |row| (row.basis == Basis::Requests).then_some(row.p99_us));
        out.push_str(&lines(&format!("{workload}, p99"), "programs", "p99 in us", (Scale::Log, Scale::Log), &p99));
        out.push_str(&distribution(report, workload));
        out.push_str("</div>");
        let rows = report.sharing.iter().filter(|row| row.workload == workload).map(|row| {
            let predicted = row.source == Source::Predicted;
            vec![
                escape(&title(&row.mode, report.device.software && !predicted)),
                row.clients.to_string(),
                match (predicted, row.basis) {
                    (true, _) => "predicted",
                    (false, Basis::Requests) => "measured",
                    (false, Basis::Rate) => "measured: the program's rate, times of whole programs",
                    (false, Basis::Programs) => "measured: whole programs",
                }
                .to_owned(),
                number(row.throughput),
                slowdown(report, row),
                number(row.p50_us),
                number(row.p99_us),
                row.start_ms.map_or("-".to_owned(), |ms| format!("{ms:.0}")),
                memory(report, row).map_or("-".to_owned(), number),
            ]
        });
        let header = ["way", "programs", "", "requests/s", "slower than alone", "p50 us", "p99 us", "start ms", "MiB each"];
        table(out, &header, &[1, 3, 4, 5, 6, 7, 8], rows.collect());
    }
}

/// How many times slower the programs are than one alone: all of them, and the least and the most.
fn slowdown(report: &Report, row: &Row) -> String {
    let range = report.crowd(&row.mode, &row.workload, row.clients, row.source).and_then(|crowd| crowd.least_slowdown.zip(crowd.most_slowdown));
    match range {
        Some((least, most)) if row.clients > 1 => format!("{:.2} ({least:.2} to {most:.2})", row.slowdown),
        _ => format!("{:.2}", row.slowdown),
    }
}

/// Memory of the card for each program, where it is known.
pub(crate) fn memory(report: &Report, row: &Row) -> Option<f64> {
    report.crowd(&row.mode, &row.workload, row.clients, row.source)?.memory_mib
}

/// How long requests take, with as many programs as every mode has.
fn distribution(report: &Report, workload: &str) -> String {
    let clients = report.sharing.iter().filter(|row| row.workload == workload && row.source == Source::Measured).map(|row| row.clients).max().unwrap_or(1);
    let modes = report.modes();
    let rows =
        report.sharing.iter().filter(|row| row.workload == workload && row.clients == clients && row.basis == Basis::Requests && !row.latencies_us.is_empty());
    let of = |row: &Row| {
        let dashed = row.source == Source::Predicted;
        let count = row.latencies_us.len() as f64;
        let points = row.latencies_us.iter().enumerate().map(|(at, us)| (*us, 100.0 * (at as f64 + 1.0) / count)).collect();
        let name = format!("{}{}", title(&row.mode, report.device.software && !dashed), if dashed { ", predicted" } else { "" });
        Series { name, colour: modes.iter().position(|mode| *mode == row.mode).unwrap_or(0), dashed, points }
    };
    let series: Vec<Series> = rows.map(of).collect();
    lines(&format!("{workload}, distribution"), &format!("us for a request, {clients} programs"), "% of the requests", (Scale::Log, Scale::Linear), &series)
}

fn timelines(out: &mut String, report: &Report) {
    if report.timelines.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>Who ran when{}</h2><div class=\"plots\">", behaviour(report));
    for line in &report.timelines {
        let label = format!("{}, {}", title(&line.mode, report.device.software), line.workload);
        let _ = write!(out, "<div><h3>{}</h3>{}</div>", escape(&label), timeline(&label, &line.spans_us));
    }
    out.push_str("</div>");
}

fn faults(out: &mut String, report: &Report) {
    if report.faults.is_empty() {
        return;
    }
    out.push_str("<h2>One program makes an illegal access</h2>");
    let rows = report.faults.iter().map(|row| {
        let all = row.survivors == row.others;
        let class = if all { "passed" } else { "failed" };
        vec![
            escape(&title(&row.mode, report.device.software)),
            format!("<span class=\"{class}\">{} of {} others finish</span>", row.survivors, row.others),
            escape(&row.told),
        ]
    });
    table(out, &["way", "", "what the others were told"], &[], rows.collect());
}

fn streams(out: &mut String, report: &Report) {
    if report.streams.is_empty() && report.overlap.is_none() && report.slices.is_none() {
        return;
    }
    let _ = write!(out, "<h2>Streams of one process{}</h2>", behaviour(report));
    let rows = report.streams.iter().map(|row| {
        vec![row.kernel.to_owned(), row.blocks.to_string(), format!("{:.2}", row.one_ms), format!("{:.2}", row.two_ms), format!("{:.2}", row.speedup)]
    });
    table(out, &["kernel", "its blocks", "one stream ms", "two streams ms", "times faster"], &[1, 2, 3, 4], rows.collect());
    if let Some(overlap) = &report.overlap {
        let _ = write!(
            out,
            "<p>Copies in, kernels and copies out: {:.2} ms one after the other, {:.2} ms in three streams; {:.0} % of the time is recovered.</p>",
            overlap.serial_ms,
            overlap.overlapped_ms,
            100.0 * overlap.recovered
        );
        if !overlap.sizes.is_empty() {
            let rows = overlap.sizes.iter().map(|size| {
                let ms = [size.kernels_ms, size.serial_ms, size.overlapped_ms].map(|ms| format!("{ms:.2}"));
                ms.into_iter().chain([format!("{:.0} %", 100.0 * size.recovered)]).collect()
            });
            table(out, &["kernels alone ms", "with copies, one stream ms", "three streams ms", "recovered"], &[0, 1, 2, 3], rows.collect());
        }
    }
    if let Some(slices) = &report.slices {
        let _ = write!(
            out,
            "<p>By the card's own clock a context keeps the card for {} us, is away for {} us, and a switch takes {} us ({} turns).</p>",
            number(slices.slice_us),
            number(slices.away_us),
            number(slices.switch_us),
            slices.turns
        );
    }
}

/// What the card offers by MIG, and which instances there are.
fn mig(out: &mut String, report: &Report) {
    let Some(mig) = &report.mig else { return };
    let _ = match mig.mode.as_str() {
        NO_MIG => write!(out, "<h2>MIG</h2><p>The card has no MIG.</p>"),
        _ if report.device.software => write!(out, "<h2>MIG</h2><p>What the card offers that this is a model of ({}).</p>", escape(&mig.source)),
        mode => write!(out, "<h2>MIG</h2><p>MIG is {}. What the card offers ({}):</p>", escape(mode), escape(&mig.source)),
    };
    if !mig.profiles.is_empty() {
        let rows =
            mig.profiles.iter().map(|it| vec![escape(&it.name), it.most.to_string(), it.multiprocessors.to_string(), it.memory_mib.to_string()]).collect();
        table(out, &["profile", "at most", "multiprocessors", "MiB"], &[1, 2, 3], rows);
    }
    for instance in &mig.instances {
        let _ = write!(out, "<p>There is an instance {}: {}</p>", escape(&instance.profile), escape(&instance.uuid));
    }
    for difference in &mig.differences {
        let _ = write!(out, "<p class=\"failed\">{}</p>", escape(difference));
    }
}

fn model(out: &mut String, report: &Report) {
    if report.model.pairs.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>Predicted beside measured{}</h2>", behaviour(report));
    if let (Some(median), Some(worst)) = (report.model.median_error, report.model.worst_error) {
        let _ = write!(out, "<p>Half of {} figures are off by at most {median:.0} %, the worst by {worst:.0} %.", report.model.pairs.len());
        if report.device.software {
            out.push_str(" The model is one of cards, whose multiprocessors do not wait for each other; a software GPU has the processors of this machine.");
        }
        out.push_str("</p>");
    }
    out.push_str("<div class=\"plots\">");
    let modes = report.modes();
    for (figure, name) in [("throughput", "requests a second"), ("p99_us", "p99 in us")] {
        let of = |(colour, mode): (usize, &&str)| {
            let pairs = report.model.pairs.iter().filter(|pair| pair.mode == **mode && pair.figure == figure);
            Series { name: title(mode, false), colour, dashed: false, points: pairs.map(|pair| (pair.measured, pair.predicted)).collect() }
        };
        let series: Vec<Series> = modes.iter().enumerate().map(of).filter(|series| !series.points.is_empty()).collect();
        out.push_str(&scatter(&format!("predicted and measured {name}"), &format!("measured {name}"), "predicted", &series));
    }
    out.push_str("</div>");
}

fn parts(out: &mut String, report: &Report) {
    out.push_str("<h2>What was done</h2>");
    let word = |outcome| match outcome {
        Outcome::Ran => "ran",
        Outcome::Predicted => "predicted",
        Outcome::Skipped => "skipped",
        Outcome::Failed => "<span class=\"failed\">failed</span>",
    };
    let rows = report.parts.iter().map(|part| vec![escape(&part.name), word(part.outcome).to_owned(), format!("{:.1} s", part.seconds), escape(&part.why)]);
    table(out, &["part", "", "time", "how, or why not"], &[2], rows.collect());
    if !report.artifacts.is_empty() {
        let files: String = report.artifacts.iter().map(|file| format!("<li>{}</li>", escape(file))).collect();
        let _ = write!(out, "<h3>Files for administrators, beside this report</h3><ul>{files}</ul>");
    }
}
