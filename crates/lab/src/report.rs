//! The lab's results. docs/lab.md explains each field.
//!
//! One file, although long: a list of what the document has.

use cumux_planner::mode::{LAUNCH_NS, Mode, ServedHost};
use serde::Serialize;

/// The ways whose predictions are compared with what the lab measures.
pub const COMPARED: [Mode; 3] = [Mode::TimeSliced, Mode::Mps, Mode::Cumux];

/// The word in `format`.
pub const FORMAT: &str = "cumux-lab";
/// The version of the document.
pub const VERSION: u32 = 1;

/// [`Mig::mode`] of a card without MIG.
pub const NO_MIG: &str = "none";

/// Everything.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// When and where.
    pub made: Made,
    /// On what.
    pub device: Device,
    /// What ran, what was skipped, and why.
    pub parts: Vec<LabPart>,
    /// What programs share the card by each way.
    pub sharing: Vec<Row>,
    /// Two streams of one process against one.
    pub streams: Vec<StreamsRow>,
    /// Copies beside computing against one after the other.
    pub overlap: Option<Overlap>,
    /// How contexts take turns.
    pub slices: Option<Slices>,
    /// What is known of a crowd besides its requests.
    pub crowds: Vec<CrowdRow>,
    /// What the card offers by MIG.
    pub mig: Option<Mig>,
    /// What a launch costs this machine's processors.
    pub launches: Option<Launches>,
    /// What a fault takes down.
    pub faults: Vec<FaultRow>,
    /// Who ran when.
    pub timelines: Vec<Timeline>,
    /// Predicted beside measured.
    pub model: Model,
    /// What must hold.
    pub gates: Vec<Gate>,
    /// What to do.
    pub decision: Option<Decision>,
    /// The files that were written for administrators, below the report's folder.
    pub artifacts: Vec<String>,
}

/// When and where.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Made {
    /// Seconds since 1970.
    pub at: u64,
    /// The same for people.
    pub date: String,
    /// Version of cumux.
    pub cumux: String,
    /// Operating system.
    pub system: String,
    /// Processors of the machine.
    pub processors: usize,
    /// Engine threads of an executor of one card there.
    pub engines: u32,
    /// Its intake threads.
    pub lanes: u32,
    /// With `--quick`.
    pub quick: bool,
    /// How long it took.
    pub seconds: f64,
}

impl Made {
    /// The machine, with what serves clients there.
    #[must_use]
    pub fn host(&self) -> ServedHost {
        ServedHost { processors: u32::try_from(self.processors).unwrap_or(u32::MAX), engines: self.engines, lanes: self.lanes }
    }
}

/// The card.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Device {
    /// As `--device` names it.
    pub id: String,
    /// The driver's name for it.
    pub name: String,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Memory.
    pub memory_mib: u64,
    /// True if it is a software GPU: then times show behaviour, not speed.
    pub software: bool,
    /// Version of the driver; empty on a software GPU.
    pub driver: String,
    /// The planner's name for it, if it knows the card.
    pub card: Option<String>,
    /// Processes of others that use the card, as far as the driver says.
    pub others: Vec<u32>,
}

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran.
    Ran,
    /// It was predicted by the planner's simulation.
    Predicted,
    /// It could not run here.
    Skipped,
    /// It ran and went wrong.
    Failed,
}

/// A part of the lab.
#[derive(Debug, Clone, Serialize)]
pub struct LabPart {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// How it was done, or why it was not: sentences.
    pub why: String,
    /// How long it took.
    pub seconds: f64,
}

/// Where a figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// From programs that ran.
    Measured,
    /// From the planner's simulation of a recorded profile.
    Predicted,
}

/// What the figures of a row are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Requests: throughput and times.
    Requests,
    /// The throughput is the rate that the program names, the times are those of whole programs.
    Rate,
    /// Whole programs: they name no rate.
    Programs,
}

/// So many copies of a program by one way.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The way: `time_sliced`, `mps`, `mps_parts`, `cumux`, `cumux_parts`, `streams`, `mig`.
    pub mode: String,
    /// The workload.
    pub workload: String,
    /// Copies.
    pub clients: u32,
    /// Measured or predicted.
    pub source: Source,
    /// What the figures are about. Predictions are of requests.
    pub basis: Basis,
    /// Requests a second of all.
    pub throughput: f64,
    /// How many times slower each is than one alone by the same way.
    pub slowdown: f64,
    /// Half of the requests take at most this.
    pub p50_us: f64,
    /// 99 of 100 take at most this: the worst program's.
    pub p99_us: f64,
    /// From the program's start to its first result, the worst one's. Measured only.
    pub start_ms: Option<f64>,
    /// Times at every twentieth part of the requests, shortest first.
    pub latencies_us: Vec<f64>,
}

/// Kernels of one size in two streams against one.
#[derive(Debug, Clone, Serialize)]
pub struct StreamsRow {
    /// Which kernel: `matmul` or `spin`.
    pub kernel: &'static str,
    /// Blocks of a kernel.
    pub blocks: u32,
    /// All of them in one stream.
    pub one_ms: f64,
    /// In two.
    pub two_ms: f64,
    /// How many times faster two are.
    pub speedup: f64,
}

/// Copies in, kernels, copies out: with the smallest kernels, and with each size.
#[derive(Debug, Clone, Serialize)]
pub struct Overlap {
    /// One after the other.
    pub serial_ms: f64,
    /// In three streams.
    pub overlapped_ms: f64,
    /// Part of the time that is gained.
    pub recovered: f64,
    /// The same for each size of the kernels.
    pub sizes: Vec<OverlapSize>,
}

/// Copies in, kernels of one size, copies out.
#[derive(Debug, Clone, Serialize)]
pub struct OverlapSize {
    /// All kernels without the copies.
    pub kernels_ms: f64,
    /// One after the other.
    pub serial_ms: f64,
    /// In three streams.
    pub overlapped_ms: f64,
    /// Part of the time that is gained.
    pub recovered: f64,
}

/// What is known of so many copies of a program by one way, besides their requests ([`Row`]).
#[derive(Debug, Clone, Serialize)]
pub struct CrowdRow {
    /// The way.
    pub mode: String,
    /// The workload.
    pub workload: String,
    /// Copies.
    pub clients: u32,
    /// Measured, or taken from the planner's tables.
    pub source: Source,
    /// Memory of the card for each of them in MiB: what they and the way take, divided.
    pub memory_mib: Option<f64>,
    /// How many times slower than one alone the one is that is slowed down the least.
    pub least_slowdown: Option<f64>,
    /// The same for the one that is slowed down the most.
    pub most_slowdown: Option<f64>,
}

/// MIG on this card.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Mig {
    /// `on`, `off`, [`NO_MIG`], or `unknown` where the driver does not say it.
    pub mode: String,
    /// Who says so: the driver, or the planner's table.
    pub source: String,
    /// What can be made.
    pub profiles: Vec<MigProfile>,
    /// What is there.
    pub instances: Vec<MigInstance>,
    /// Where the driver and the planner's table differ, a sentence each.
    pub differences: Vec<String>,
}

/// A size of instances that a card offers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigProfile {
    /// Its name, `1g.10gb`.
    pub name: String,
    /// Most instances of it.
    pub most: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Memory.
    pub memory_mib: u64,
}

/// An instance that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigInstance {
    /// Its profile.
    pub profile: String,
    /// As the driver and `CUDA_VISIBLE_DEVICES` name it.
    pub uuid: String,
}

/// How contexts take turns, by the card's own clock.
#[derive(Debug, Clone, Serialize)]
pub struct Slices {
    /// How long a context keeps the card.
    pub slice_us: f64,
    /// How long it is away.
    pub away_us: f64,
    /// From one context to the other.
    pub switch_us: f64,
    /// Turns that were seen.
    pub turns: u64,
}

/// What a launch costs the host, without MPS or cumux.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Launches {
    /// A processor's time for one.
    pub launch_ns: f64,
    /// How many times the planner's host takes: the predictions are made for this one.
    pub factor: f64,
}

/// Hosts that are believed to be so many times slower than the planner's.
const FACTORS: (f64, f64) = (0.25, 4.0);

impl Launches {
    /// What counts once a launch has taken so long: what else a machine does makes launches longer
    /// and never shorter, so the shortest.
    #[must_use]
    pub fn note(before: Option<Self>, launch_ns: f64) -> Self {
        let launch_ns = before.map_or(launch_ns, |before| before.launch_ns.min(launch_ns));
        Self { launch_ns, factor: (launch_ns / LAUNCH_NS).clamp(FACTORS.0, FACTORS.1) }
    }
}

/// A program faults beside others.
#[derive(Debug, Clone, Serialize)]
pub struct FaultRow {
    /// The way.
    pub mode: String,
    /// Others that ran.
    pub others: u32,
    /// Others that finished with right results.
    pub survivors: u32,
    /// What the others were told, if they did not.
    pub told: String,
}

/// Who ran when: requests of each program.
#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// The way.
    pub mode: String,
    /// The workload.
    pub workload: String,
    /// For each program beginning and end of its requests, in microseconds since the first.
    pub spans_us: Vec<Vec<(f64, f64)>>,
}

/// Predicted beside measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Model {
    /// Each figure that is known both ways.
    pub pairs: Vec<Pair>,
    /// Half of the errors of throughput are at most this, in percent.
    pub median_error: Option<f64>,
    /// The largest.
    pub worst_error: Option<f64>,
    /// What the predictions take each program's host to be.
    pub paces: Vec<Pace>,
}

/// How fast a program's host was where it was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Pace {
    /// The workload.
    pub workload: String,
    /// How many times as long as in its recording its host takes ([`crate::predict::pace`]).
    pub factor: f64,
}

/// A figure that is known both ways.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// The way.
    pub mode: String,
    /// The workload.
    pub workload: String,
    /// Copies.
    pub clients: u32,
    /// `throughput` or `p99_us`.
    pub figure: &'static str,
    /// As it was measured.
    pub measured: f64,
    /// As it was predicted.
    pub predicted: f64,
}

impl Pair {
    /// How far the prediction is off, in percent of what was measured.
    #[must_use]
    pub fn error(&self) -> f64 {
        100.0 * (self.predicted - self.measured).abs() / self.measured.abs().max(1e-9)
    }
}

/// The middle error and the largest one, in percent; `None` where nothing is compared.
#[must_use]
pub fn median_and_worst<'p>(pairs: impl IntoIterator<Item = &'p Pair>) -> Option<(f64, f64)> {
    let mut errors: Vec<f64> = pairs.into_iter().map(Pair::error).collect();
    errors.sort_by(f64::total_cmp);
    Some((*errors.get(errors.len() / 2)?, *errors.last()?))
}

/// What became of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// There is no figure for it.
    NotJudged,
}

/// Something that must hold.
#[derive(Debug, Clone, Serialize)]
pub struct Gate {
    /// In words.
    pub name: String,
    /// What was found.
    pub figure: String,
    /// What is wanted.
    pub wanted: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why it may not, or why it was not judged.
    pub why: String,
}

/// What to do.
#[derive(Debug, Clone, Serialize)]
pub struct Decision {
    /// What was asked of the planner.
    pub question: String,
    /// Its answer.
    pub recommended: String,
    /// Why.
    pub reasons: Vec<String>,
    /// The other answers, and what breaks with each.
    pub against: Vec<(String, String)>,
    /// The planner's whole answer, as `cumux plan --json` prints it.
    pub plan: serde_json::Value,
}

impl Report {
    /// An empty one that is made there. Predictions are for that host.
    #[must_use]
    pub fn new(made: Made) -> Self {
        Self { format: FORMAT, version: VERSION, made, ..Self::default() }
    }

    /// The row of so many copies, if there is one.
    #[must_use]
    pub fn row(&self, mode: &str, workload: &str, clients: u32, source: Source) -> Option<&Row> {
        self.sharing.iter().find(|row| row.mode == mode && row.workload == workload && row.clients == clients && row.source == source)
    }

    /// What is known besides of so many copies.
    #[must_use]
    pub fn crowd(&self, mode: &str, workload: &str, clients: u32, source: Source) -> Option<&CrowdRow> {
        self.crowds.iter().find(|row| row.mode == mode && row.workload == workload && row.clients == clients && row.source == source)
    }

    /// The part of this name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&LabPart> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// Fills in how much slower each program is than one alone, where that is known.
    pub fn find_slowdowns(&mut self) {
        let alone: Vec<(String, String, Source, f64)> =
            (self.sharing.iter().filter(|row| row.clients == 1)).map(|row| (row.mode.clone(), row.workload.clone(), row.source, row.throughput)).collect();
        for row in &mut self.sharing {
            let one = alone.iter().find(|(mode, workload, source, _)| *mode == row.mode && *workload == row.workload && *source == row.source);
            if let Some((.., one)) = one
                && row.throughput > 0.0
            {
                row.slowdown = one * f64::from(row.clients) / row.throughput;
            }
        }
    }

    /// Puts predictions beside measurements. A prediction is one of requests: times of whole
    /// programs are not compared with it, and what is no rate is not, either.
    pub fn compare(&mut self) {
        let mut pairs = Vec::new();
        for measured in self.sharing.iter().filter(|row| row.source == Source::Measured) {
            let Some(predicted) = self.row(&measured.mode, &measured.workload, measured.clients, Source::Predicted) else { continue };
            let pair = |figure, measured_value, predicted_value| Pair {
                mode: measured.mode.clone(),
                workload: measured.workload.clone(),
                clients: measured.clients,
                figure,
                measured: measured_value,
                predicted: predicted_value,
            };
            if measured.basis != Basis::Programs {
                pairs.push(pair("throughput", measured.throughput, predicted.throughput));
            }
            if measured.basis == Basis::Requests {
                pairs.push(pair("p99_us", measured.p99_us, predicted.p99_us));
            }
        }
        let errors = median_and_worst(&pairs);
        (self.model.median_error, self.model.worst_error) = (errors.map(|(median, _)| median), errors.map(|(_, worst)| worst));
        self.model.pairs = pairs;
    }

    /// Requests a second of one copy of a workload, by each way that was measured and that the
    /// planner can predict.
    #[must_use]
    pub fn alone(&self, workload: &str) -> Vec<(Mode, f64)> {
        let row = |mode: Mode| self.row(mode.name(), workload, 1, Source::Measured).filter(|row| row.basis == Basis::Requests);
        COMPARED.into_iter().filter_map(|mode| Some((mode, row(mode)?.throughput))).collect()
    }

    /// How far predictions of a workload's throughput are off, in percent; 0 where nothing was
    /// compared.
    #[must_use]
    pub fn worst_throughput_error(&self, workload: &str) -> f64 {
        let pairs = self.model.pairs.iter().filter(|pair| pair.workload == workload && pair.figure == "throughput");
        pairs.map(Pair::error).fold(0.0, f64::max)
    }

    /// Workloads in the order in which they came.
    #[must_use]
    pub fn workloads(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for row in &self.sharing {
            if !names.contains(&row.workload.as_str()) {
                names.push(&row.workload);
            }
        }
        names
    }

    /// Modes in the order in which they came.
    #[must_use]
    pub fn modes(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for row in &self.sharing {
            if !names.contains(&row.mode.as_str()) {
                names.push(&row.mode);
            }
        }
        names
    }

    /// Whether every gate that was judged holds.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.gates.iter().all(|gate| gate.verdict != Verdict::Failed)
    }
}

/// A mode as people name it.
#[must_use]
pub fn title(mode: &str, software: bool) -> String {
    let title = match mode {
        "time_sliced" => "time-slicing",
        "mps" => "NVIDIA MPS",
        "mps_parts" => "NVIDIA MPS, a part each",
        "cumux_parts" => "cumux, a part each",
        "cumux" => "cumux",
        "cumux_own" => "cumux, own executors",
        "streams" => "streams of one process",
        "mig" => "MIG instances",
        "exclusive" => "alone",
        other => other,
    };
    match (software, mode) {
        (true, "time_sliced") => "time-sliced model".to_owned(),
        (true, "mig") => "instances model".to_owned(),
        (true, "cumux") => "shared (cumux)".to_owned(),
        _ => title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mode: &str, clients: u32, source: Source, basis: Basis) -> Row {
        Row {
            mode: mode.into(),
            workload: "yours".into(),
            clients,
            source,
            basis,
            throughput: 10.0,
            slowdown: 1.0,
            p50_us: 1.0,
            p99_us: 2.0,
            start_ms: None,
            latencies_us: vec![],
        }
    }

    #[test]
    fn only_figures_of_requests_are_compared_with_predictions() {
        for (basis, wanted) in [(Basis::Requests, vec!["throughput", "p99_us"]), (Basis::Rate, vec!["throughput"]), (Basis::Programs, vec![])] {
            let mut report = Report::new(Made::default());
            report.sharing = vec![row("cumux", 2, Source::Measured, basis), row("cumux", 2, Source::Predicted, Basis::Requests)];
            report.compare();
            assert_eq!(report.model.pairs.iter().map(|pair| pair.figure).collect::<Vec<_>>(), wanted, "{basis:?}");
            assert_eq!(report.model.worst_error, (!wanted.is_empty()).then_some(0.0));
        }
    }

    #[test]
    fn the_shortest_launch_counts() {
        let first = Launches::note(None, 2.0 * LAUNCH_NS);
        assert_eq!(first.factor, 2.0);
        let factor = |launch_ns| Launches::note(Some(first), launch_ns).factor;
        assert_eq!((factor(3.0 * LAUNCH_NS), factor(1.5 * LAUNCH_NS), factor(0.0)), (2.0, 1.5, FACTORS.0));
        assert_eq!(Launches::note(None, 9.0 * LAUNCH_NS).factor, FACTORS.1);
    }

    #[test]
    fn one_copy_by_each_measured_way_is_alone() {
        let mut report = Report::new(Made::default());
        report.sharing = vec![
            row("cumux", 1, Source::Measured, Basis::Requests),
            row("cumux", 2, Source::Measured, Basis::Requests),
            row("mps", 1, Source::Predicted, Basis::Requests),
            row("time_sliced", 1, Source::Measured, Basis::Programs),
        ];
        assert_eq!(report.alone("yours"), [(Mode::Cumux, 10.0)]);
        assert!(report.alone("tiny").is_empty());
    }

    #[test]
    fn the_worst_prediction_of_a_workload_is_known() {
        let mut report = Report::new(Made::default());
        let pair = |workload: &str, figure, predicted| Pair { mode: "mps".into(), workload: workload.into(), clients: 1, figure, measured: 10.0, predicted };
        report.model.pairs =
            vec![pair("yours", "throughput", 12.0), pair("yours", "throughput", 40.0), pair("yours", "p99_us", 900.0), pair("tiny", "throughput", 90.0)];
        assert_eq!((report.worst_throughput_error("yours"), report.worst_throughput_error("spin")), (300.0, 0.0));
    }
}
