//! The parts of the lab. Each adds to the report and says what became of it.
//!
//! More than 600 lines, because each part is a short method of the same laboratory.

use super::card;
use super::crowd::{Crowd, End, Finding, rate_of};
use super::output;
use super::own::{self, Own, Setting, Shown};
use super::recordings;
use super::ways::{self, MemoryMeter, Way};
use crate::demo::interrupt::Interrupt;
use crate::device::DeviceName;
use anyhow::{Context as _, bail};
use cumux_lab::predict::{self, Question, REQUESTS, Trial};
use cumux_lab::report::{
    Basis, CrowdRow, Decision, FaultRow, Launches, Mig, MigInstance, Outcome, Overlap, OverlapSize, Pace, Report, Row, Slices, Source, StreamsRow, Timeline,
};
use cumux_planner::card as cards;
use cumux_planner::mode::{Isolation, Mode};
use cumux_planner::plan::{Program, Wishes, make_with};
use cumux_planner::profile::Profile;
use cumux_planner::simulate::quantile;
use serde::Deserialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest that one measurement may take, beyond what it is meant to.
const SLACK: Duration = Duration::from_secs(120);
/// Seconds after the lab's beginning until which small crowds of the user's program are started
/// again. Without them the whole lab takes up to 400 s, and it is to take less than eight minutes.
const AGAIN_UNTIL: [(&str, u64); 3] = [("time_sliced", 140), ("mps", 280), ("cumux", 400)];
/// About how long a crowd of the user's program takes on a card: it starts, and has its rounds.
const OWN_SECONDS: f64 = 15.0;
/// Failures after which a way is given up.
const MOST_FAILURES: usize = 2;
/// Programs beside the one that faults.
const INNOCENTS: u32 = 3;
/// Copies of which the planner is asked.
const ASKED: u32 = 8;
/// No decision rests on predictions of throughput that are off by more, in percent.
const TRUSTED_ERROR: f64 = 100.0;
/// Programs in a prediction.
const CROWDS: [u32; 5] = [1, 2, 4, 8, 16];

/// What became of a part, and how it was done or why not.
pub type Done = (Outcome, String);

/// Carries out a part.
pub type Run = Box<dyn Fn(&mut Lab<'_>) -> anyhow::Result<Done>>;

/// A part that is to be done.
pub struct Planned {
    pub name: String,
    /// About how long it takes.
    pub seconds: f64,
    pub run: Run,
}

/// The lab while it runs.
pub struct Lab<'a> {
    pub report: Report,
    pub interrupt: &'a Interrupt,
    begun: Instant,
    devices: Vec<DeviceName>,
    program: PathBuf,
    libraries: PathBuf,
    /// The user's program.
    own: Option<Own>,
    quick: bool,
    software: bool,
    profiles: Vec<(String, Profile)>,
}

impl<'a> Lab<'a> {
    pub fn new(devices: &[DeviceName], program: PathBuf, libraries: PathBuf, own: &[OsString], quick: bool, interrupt: &'a Interrupt) -> Self {
        let mut report = Report::new(output::made(quick));
        report.device = card::describe(devices);
        report.mig = Some(card::mig(&report.device));
        let software = ways::is_software(devices);
        Self {
            report,
            interrupt,
            begun: Instant::now(),
            devices: devices.to_vec(),
            program,
            libraries,
            own: Some(Own::new(own)).filter(|_| !own.is_empty()),
            quick,
            software,
            profiles: Vec::new(),
        }
    }

    fn workloads(&self) -> &'static [&'static str] {
        match (self.software, self.quick) {
            (_, true) => &["matmul", "spin"],
            (_, false) => &["matmul", "spin", "tiny", "memory"],
        }
    }

    /// What runs by one way. A part of the multiprocessors for each program matters where one
    /// program fills them all.
    fn workloads_of(&self, mode: &str) -> &'static [&'static str] {
        if mode.ends_with("_parts") { &self.workloads()[..1] } else { self.workloads() }
    }

    /// How many programs share the card.
    fn crowds(&self) -> &'static [u32] {
        match (self.software, self.quick) {
            (true, true) => &[1, 2],
            (false, true) => &[1, 2, 4],
            (_, false) => &CROWDS,
        }
    }

    /// The same by one way, which may have no place for more: then as many as there are places.
    fn crowds_of(&self, way: &Way) -> Vec<u32> {
        let fits = |clients: &u32| way.most().is_none_or(|most| *clients < most);
        let places = way.most().filter(|most| self.crowds().last().is_some_and(|last| most <= last));
        self.crowds().iter().copied().filter(fits).chain(places).collect()
    }

    /// The MIG instances that the card has.
    fn instances(&self) -> &[MigInstance] {
        self.report.mig.as_ref().map_or(&[], |mig| &mig.instances)
    }

    fn open(&self, mode: &str) -> anyhow::Result<Way> {
        Way::open(mode, &self.devices, self.instances())
    }

    /// How long a workload is measured.
    fn seconds(&self) -> f64 {
        match (self.software, self.quick) {
            (_, true) => 0.3,
            (true, false) => 0.5,
            (false, false) => 1.2,
        }
    }

    /// How large a workload is. A matrix product on a card takes milliseconds, as the layers of
    /// large models do; the others are small.
    fn size(&self, workload: &str) -> &'static str {
        match (self.software, workload) {
            (true, _) => "0",
            (false, "matmul") => "4",
            (false, _) => "1",
        }
    }

    /// What was recorded of each workload, by its name.
    pub fn profiles(&self) -> &[(String, Profile)] {
        &self.profiles
    }

    /// All parts, in their order.
    pub fn plan(&self) -> Vec<Planned> {
        let mut parts = Vec::new();
        let mut add = |name: String, seconds: f64, run: Run| parts.push(Planned { name, seconds, run });
        let each = self.seconds() + 0.6;
        let own_seconds = if self.software { each } else { OWN_SECONDS };
        add("streams".into(), 2.0, Box::new(|lab| lab.streams()));
        add("launches".into(), if self.software { 0.0 } else { 1.0 }, Box::new(|lab| lab.launches()));
        for (mode, offered) in ways::offered(&self.devices, self.report.mig.as_ref().unwrap_or(&Mig::default())) {
            let title = cumux_lab::report::title(mode, self.software);
            match offered {
                Err(why) => add(title, 0.0, Box::new(move |_| Ok((Outcome::Skipped, why.clone())))),
                Ok(()) => {
                    let rounds = self.workloads_of(mode).len() * self.crowds().len();
                    let own = if self.own.is_none() || mode.ends_with("_parts") { 0.0 } else { own_seconds * self.crowds().len() as f64 };
                    add(title, each * rounds as f64 + own, Box::new(move |lab| lab.share(mode)));
                    // A model of instances can tell nothing of a fault; parts change nothing.
                    let tells_nothing = mode.ends_with("_parts") || (mode == "mig" && self.instances().len() < 2);
                    if !tells_nothing {
                        let title = format!("a fault, {}", cumux_lab::report::title(mode, self.software));
                        add(title, 2.0, Box::new(move |lab| lab.fault(mode)));
                    }
                }
            }
        }
        add("slices".into(), if self.software { 0.0 } else { 3.0 }, Box::new(|lab| lab.slices()));
        add("profiles".into(), each * self.workloads().len() as f64, Box::new(|lab| lab.record()));
        add("predictions".into(), 4.0, Box::new(|lab| lab.predict()));
        add("decision".into(), 4.0, Box::new(|lab| lab.decide()));
        parts
    }

    fn work(&self, arguments: &[&str]) -> Vec<OsString> {
        std::iter::once(self.program.clone().into_os_string()).chain(arguments.iter().map(OsString::from)).collect()
    }

    fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds()) + if self.software { SLACK } else { SLACK / 2 }
    }

    /// Runs one program in the way that is the card's own: natively, or through cumux on a software
    /// GPU.
    fn alone(&self, arguments: &[&str]) -> anyhow::Result<End> {
        let way = self.open(if self.software { "cumux" } else { "time_sliced" })?;
        let command = way.command(&self.work(arguments), (0, 1), &self.libraries, self.software)?;
        let end = Crowd::start(vec![command], self.interrupt, SLACK)?.finish()?.pop().context("no program ran")?;
        if !end.status.success() {
            bail!("{}", end.last_line());
        }
        Ok(end)
    }

    fn streams(&mut self) -> anyhow::Result<Done> {
        #[derive(Deserialize)]
        struct Found {
            streams: Vec<Pair>,
            matmul: Pair,
            overlap: Vec<Copies>,
        }
        #[derive(Deserialize)]
        struct Pair {
            blocks: u32,
            one_ms: f64,
            two_ms: f64,
        }
        #[derive(Deserialize)]
        struct Copies {
            kernels_ms: f64,
            serial_ms: f64,
            overlapped_ms: f64,
        }
        let end = self.alone(&["streams", self.size("streams")])?;
        let found: Found = end.result()?;
        let row =
            |kernel: &'static str, Pair { blocks, one_ms, two_ms }: Pair| StreamsRow { kernel, blocks, one_ms, two_ms, speedup: one_ms / two_ms.max(1e-9) };
        self.report.streams = std::iter::once(row("matmul", found.matmul)).chain(found.streams.into_iter().map(|pair| row("spin", pair))).collect();
        let of = |Copies { kernels_ms, serial_ms, overlapped_ms }| OverlapSize {
            kernels_ms,
            serial_ms,
            overlapped_ms,
            recovered: 1.0 - overlapped_ms / f64::max(serial_ms, 1e-9),
        };
        let sizes: Vec<OverlapSize> = found.overlap.into_iter().map(of).collect();
        let OverlapSize { serial_ms, overlapped_ms, recovered, .. } = sizes.first().context("no copies beside kernels")?.clone();
        self.report.overlap = Some(Overlap { serial_ms, overlapped_ms, recovered, sizes });
        Ok((
            Outcome::Ran,
            "a small matrix product and kernels of several sizes in two streams against one; copies beside kernels of several sizes in three against one"
                .into(),
        ))
    }

    /// What a launch costs this machine's processors.
    fn launches(&mut self) -> anyhow::Result<Done> {
        if self.software {
            return Ok((
                Outcome::Skipped,
                "launches of a software GPU are not those of a card: the predictions are of a card beside the planner's host".into(),
            ));
        }
        self.measure_launches()?;
        Ok((Outcome::Ran, "launches of small kernels by one program, without a daemon: the predictions are made for a host where they take so long".into()))
    }

    /// Measures what a launch costs now.
    fn measure_launches(&mut self) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Found {
            launch_ns: f64,
        }
        let Found { launch_ns } = self.alone(&["launches"])?.result()?;
        self.report.launches = Some(Launches::note(self.report.launches, launch_ns));
        Ok(())
    }

    /// Every workload with every number of programs by one way. What goes wrong with one workload
    /// costs the larger crowds of it; the others go on, and the part has failed in the end.
    fn share(&mut self, mode: &'static str) -> anyhow::Result<Done> {
        let memory = MemoryMeter::begin(&self.devices);
        let way = self.open(mode)?;
        let mut failures = Vec::new();
        for workload in self.workloads_of(mode) {
            if let Err(why) = self.share_workload(mode, &way, &memory, workload) {
                self.interrupt.check()?;
                failures.push(format!("{why:#}"));
                if failures.len() == MOST_FAILURES {
                    break;
                }
            }
        }
        let mut remark = String::new();
        if failures.len() < MOST_FAILURES && !mode.ends_with("_parts") {
            match self.share_own(mode, &way, &memory) {
                Ok(said) => remark = said,
                Err(why) => {
                    self.interrupt.check()?;
                    failures.push(format!("{why:#}"));
                }
            }
        }
        self.report.find_slowdowns();
        let how = match (mode, self.software) {
            ("time_sliced", true) => "a model: each program has an executor of its own, and the executors take turns on the processors of this machine",
            ("mig", true) => "a model: each program has multiprocessors of its own, as in instances of equal size",
            ("cumux", true) => "one executor for all programs, as on a card",
            ("time_sliced", false) => "without a daemon: the driver gives each process its turn",
            ("mps", false) => "NVIDIA's MPS in directories of its own, ended afterwards",
            ("mps_parts", false) => "NVIDIA's MPS; each of N programs may use 100/N percent of the multiprocessors",
            ("cumux_parts", false) => "a private daemon of cumux; each of N programs may use 100/N percent of the multiprocessors",
            ("mig", false) => "a MIG instance for each program, of those that the card has",
            _ => "a private daemon of cumux",
        };
        if !failures.is_empty() {
            bail!("{}", failures.join("; "));
        }
        Ok((Outcome::Ran, format!("{how}{remark}")))
    }

    /// The user's program, if there is one, with every number of copies. Rows of the crowds before
    /// one that fails are in the report. Returns what is to be said of it besides.
    fn share_own(&mut self, mode: &'static str, way: &Way, memory: &MemoryMeter) -> anyhow::Result<String> {
        let Some(mut own) = self.own.take() else { return Ok(String::new()) };
        let libraries = self.libraries.clone();
        let again = AGAIN_UNTIL.iter().find(|(of, _)| *of == mode && !(self.software || self.quick));
        let again_until = again.map(|(_, seconds)| self.begun + Duration::from_secs(*seconds));
        let setting = Setting { way, memory, libraries: &libraries, software: self.software, again_until, interrupt: self.interrupt };
        let crowds = self.crowds_of(way);
        let remark = own.share(setting, &crowds, |shown, memory| match shown {
            Shown::Requests(findings) => {
                self.add_measured(mode, own::NAME, findings, memory);
                self.add_timeline(mode, own::NAME, findings);
            }
            Shown::Programs(ends, _) => self.report.sharing.push(own::timed(mode, ends)),
        });
        self.own = Some(own);
        remark
    }

    /// One workload with every number of programs.
    fn share_workload(&mut self, mode: &'static str, way: &Way, memory: &MemoryMeter, workload: &str) -> anyhow::Result<()> {
        let seconds = self.seconds().to_string();
        for clients in self.crowds_of(way) {
            let (findings, memory) = self.crowd_of(way, memory, workload, &seconds, clients).with_context(|| format!("{workload} with {clients} programs"))?;
            self.add_measured(mode, workload, &findings, memory);
            if workload == self.workloads()[0] {
                self.add_timeline(mode, workload, &findings);
            }
        }
        Ok(())
    }

    /// So many copies of a workload: what they have found, and the memory that was in use. On a
    /// card that is asked of the first workload only: the driver takes its time for the answer.
    fn crowd_of(&self, way: &Way, memory: &MemoryMeter, workload: &str, seconds: &str, clients: u32) -> anyhow::Result<(Vec<Finding>, Option<f64>)> {
        let arguments = self.work(&["load", workload, seconds, self.size(workload)]);
        let commands = (0..clients).map(|number| way.command(&arguments, (number, clients), &self.libraries, self.software)).collect::<Result<_, _>>()?;
        let mut crowd = Crowd::start(commands, self.interrupt, self.limit())?;
        crowd.wait_until_ready()?;
        let memory = (self.software || workload == self.workloads()[0]).then(|| memory.in_use(way, clients)).flatten();
        crowd.go();
        let findings = crowd.finish()?.iter().map(End::finding).collect::<Result<Vec<Finding>, _>>()?;
        if findings.iter().any(|finding| !finding.right) {
            bail!("the results are wrong");
        }
        Ok((findings, memory))
    }

    /// What a crowd has shown, and how each of it fares beside one alone.
    fn add_measured(&mut self, mode: &str, workload: &str, findings: &[Finding], memory: Option<f64>) {
        let row = measured(mode, workload, findings);
        let alone = if findings.len() == 1 { Some(row.throughput) } else { self.report.row(mode, workload, 1, Source::Measured).map(|row| row.throughput) };
        let slowdowns = || findings.iter().filter_map(|finding| Some(alone? * finding.seconds.max(1e-9) / finding.requests));
        let clients = row.clients;
        self.report.sharing.push(row);
        self.report.crowds.push(CrowdRow {
            mode: mode.to_owned(),
            workload: workload.to_owned(),
            clients,
            source: Source::Measured,
            memory_mib: memory.map(|mib| mib / f64::from(clients.max(1))),
            least_slowdown: slowdowns().reduce(f64::min),
            most_slowdown: slowdowns().reduce(f64::max),
        });
    }

    /// Memory by the planner's tables, for what is predicted.
    fn add_predicted_memory(&mut self) {
        for (workload, profile) in &self.profiles {
            let asked = profile.peak_memory() as f64 / (1 << 20) as f64;
            for mode in [Mode::TimeSliced, Mode::Mps, Mode::Cumux, Mode::Streams] {
                for row in self.report.sharing.iter().filter(|row| row.source == Source::Predicted && row.mode == mode.name() && row.workload == *workload) {
                    let overhead = mode.overhead_mib(row.clients) as f64 / f64::from(row.clients.max(1));
                    self.report.crowds.push(CrowdRow {
                        mode: row.mode.clone(),
                        workload: workload.clone(),
                        clients: row.clients,
                        source: Source::Predicted,
                        memory_mib: Some(asked + overhead),
                        least_slowdown: None,
                        most_slowdown: None,
                    });
                }
            }
        }
    }

    /// Who ran when, for one number of programs.
    fn add_timeline(&mut self, mode: &str, workload: &str, findings: &[Finding]) {
        let wanted = if self.quick { 2 } else { 4 };
        if findings.len() == wanted && findings.iter().all(|finding| !finding.spans_us.is_empty()) {
            self.report.timelines.push(timeline(mode, workload, findings));
        }
    }

    /// One program faults beside others.
    fn fault(&mut self, mode: &'static str) -> anyhow::Result<Done> {
        let way = self.open(mode)?;
        let seconds = (self.seconds() + 0.5).to_string();
        let innocents = way.most().map_or(INNOCENTS, |most| INNOCENTS.min(most.saturating_sub(1)));
        let command = |arguments: &[&str], number| way.command(&self.work(arguments), (number, innocents + 1), &self.libraries, self.software);
        let others = (0..innocents).map(|number| command(&["load", "spin", &seconds, self.size("spin")], number)).collect::<Result<_, _>>()?;
        let mut crowd = Crowd::start(others, self.interrupt, self.limit())?;
        crowd.wait_until_ready()?;
        crowd.go();
        crowd.add(command(&["fault"], innocents)?)?;
        let mut ends = crowd.finish()?;
        let faulty = ends.pop().context("no program ran")?;
        // MPS may tell the culprit what it tells the others.
        let tells = |line: &String| line.contains("ILLEGAL_ADDRESS") || line.contains("IllegalAddress") || (mode == "mps" && line.contains("cudaError"));
        if !faulty.said.iter().any(tells) {
            bail!("the program with the fault was not told of it: {}", faulty.last_line());
        }
        let survives = |end: &&End| end.finding().is_ok_and(|finding| finding.right);
        let survivors = ends.iter().filter(survives).count() as u32;
        let told = ends.iter().find(|end| !survives(end)).map(End::last_line).unwrap_or_default();
        self.report.faults.push(FaultRow { mode: mode.to_owned(), others: innocents, survivors, told });
        Ok((Outcome::Ran, format!("one program makes an illegal access beside {innocents} others")))
    }

    fn slices(&mut self) -> anyhow::Result<Done> {
        if self.software {
            return Ok((Outcome::Skipped, "a software GPU has no context switches: its clock shows only those of the processors".into()));
        }
        #[derive(Deserialize)]
        struct Found {
            gaps: Vec<(f64, f64)>,
        }
        let way = self.open("time_sliced")?;
        let command = |number| way.command(&self.work(&["slices", "1"]), (number, 2), &self.libraries, false);
        let mut crowd = Crowd::start(vec![command(0)?, command(1)?], self.interrupt, SLACK)?;
        crowd.wait_until_ready()?;
        crowd.go();
        let (mut slices, mut gaps) = (Vec::new(), Vec::new());
        for end in crowd.finish()? {
            let found: Found = end.result()?;
            slices.extend(found.gaps.windows(2).map(|two| (two[1].0 - two[0].1) / 1e3));
            gaps.extend(found.gaps.iter().map(|gap| (gap.1 - gap.0) / 1e3));
        }
        slices.sort_by(f64::total_cmp);
        gaps.sort_by(f64::total_cmp);
        let (slice_us, away_us) = (quantile(&slices, 0.5), quantile(&gaps, 0.5));
        // Away is the other's slice with a switch on both sides.
        let switch_us = ((away_us - slice_us) / 2.0).max(0.0);
        self.report.slices = Some(Slices { slice_us, away_us, switch_us, turns: gaps.len() as u64 });
        Ok((Outcome::Ran, "two programs watch the card's own clock".into()))
    }

    /// Records every workload alone, through cumux.
    fn record(&mut self) -> anyhow::Result<Done> {
        let seconds = self.seconds().to_string();
        let mut commands: Vec<(String, Vec<OsString>)> = Vec::new();
        for workload in self.workloads() {
            commands.push(((*workload).to_owned(), self.work(&["load", workload, &seconds, self.size(workload), "now"])));
        }
        if let Some(own) = &self.own {
            commands.push((own::NAME.to_owned(), own.command.clone()));
        }
        let mut failures = Vec::new();
        for (workload, command) in commands {
            self.interrupt.check()?;
            let limit = self.own.as_ref().filter(|_| workload == own::NAME).map_or_else(|| self.limit(), Own::limit);
            let known = self.report.row("cumux", &workload, 1, Source::Measured).filter(|row| !self.software && row.basis == Basis::Requests);
            let known_ns = known.map(|row| row.p99_us * 1000.0);
            match recordings::undisturbed(known_ns, || recordings::profile_of(&self.devices, &command, limit)) {
                Ok(profile) => {
                    card::complete(&mut self.report, &profile.card);
                    self.profiles.push((workload, profile));
                }
                Err(why) => {
                    let name = if workload == own::NAME { "your program" } else { &workload };
                    failures.push(format!("{name}: {why:#}"));
                }
            }
        }
        if !self.software {
            self.measure_launches()?;
        }
        if !failures.is_empty() {
            bail!("{}", failures.join("; "));
        }
        Ok((Outcome::Ran, "each workload alone, as `cumux record` does it".into()))
    }

    fn predict(&mut self) -> anyhow::Result<Done> {
        if self.profiles.is_empty() {
            return Ok((Outcome::Skipped, "no workload was recorded".into()));
        }
        let memory = u32::try_from(self.report.device.memory_mib).unwrap_or(u32::MAX);
        let known = self.report.device.card.as_deref().and_then(|id| cards::find(id).ok());
        let crowds: &[u32] = if self.quick { &CROWDS[..3] } else { &CROWDS };
        let (threads, on) = (self.report.made.processors, self.report.made.host());
        let host = self.report.launches.map_or(1.0, |launches| launches.factor);
        let trial = Trial { requests: REQUESTS, host, on };
        // What was measured on instances is compared with a prediction of the same ones.
        let there: Vec<&str> = self.instances().iter().map(|instance| instance.profile.as_str()).collect();
        let geometries = if there.is_empty() { known.map_or_else(Vec::new, geometries) } else { vec![there.join(",")] };
        let (mut questions, mut paces) = (Vec::new(), Vec::new());
        for (name, profile) in &self.profiles {
            let machine = predict::machine(&profile.card, memory);
            // A software GPU's times are those of this machine, which no prediction is about.
            let alone = if self.software { Vec::new() } else { self.report.alone(name) };
            let program = predict::Program { name, profile, pace: predict::pace(&machine, profile, trial, &alone) };
            paces.push(Pace { workload: name.clone(), factor: program.pace });
            for mode in [Mode::TimeSliced, Mode::Mps, Mode::Cumux, Mode::Streams] {
                questions.extend(crowds.iter().map(|clients| (Question::Share(machine.clone(), mode, *clients), program)));
            }
            let of_card = known.into_iter().flat_map(|card| geometries.iter().map(move |geometry| Question::Instances(card, geometry)));
            questions.extend(of_card.map(|question| (question, program)));
        }
        let rows = predict::ask_all(&questions, trial, threads, || self.interrupt.check().is_ok());
        self.report.model.paces = paces;
        self.interrupt.check()?;
        self.report.sharing.extend(rows);
        self.report.find_slowdowns();
        self.add_predicted_memory();
        self.report.compare();
        Ok((Outcome::Predicted, "the planner's simulation of the recorded profiles on this card; docs/planning.md says what it rests on".into()))
    }

    fn decide(&mut self) -> anyhow::Result<Done> {
        let Some(card) = self.report.device.card.as_deref().and_then(|id| cards::find(id).ok()) else {
            return Ok((Outcome::Skipped, format!("the planner does not know this card; it knows {}", cards::names())));
        };
        // The user's program, if there is one, else the matrix product.
        let found = if self.own.is_some() { self.profiles.iter().find(|(name, _)| name == own::NAME) } else { self.profiles.first() };
        let Some((workload, profile)) = found else {
            let what = if self.own.is_some() { "your program was not recorded, so there is nothing to decide for it" } else { "no workload was recorded" };
            return Ok((Outcome::Skipped, what.into()));
        };
        let name = if workload == own::NAME { "your program" } else { workload };
        let off = self.report.worst_throughput_error(workload);
        // The times of a software GPU are those of this machine, and say nothing of a prediction.
        if !self.software && off > TRUSTED_ERROR {
            return Ok((
                Outcome::Skipped,
                format!("predictions of {name} are off by up to {off:.0} % of what was measured: its recording does not tell what it does"),
            ));
        }
        let program = Program { name: workload.clone(), profile: profile.clone(), count: ASKED, rate: None, share: None };
        let wishes = Wishes { p99_ns: None, isolation: Isolation::Faults, most_cards: Some(1) };
        let plan = make_with(card, &[program], wishes, 160)?;
        let recommended = plan.answers.first().filter(|_| plan.met).map_or("none of the ways meets the wishes".to_owned(), |best| best.title.clone());
        let against = plan.answers.iter().skip(usize::from(plan.met)).map(|answer| (answer.title.clone(), answer.against.clone())).collect();
        self.report.decision = Some(Decision {
            question: format!("{ASKED} copies of {name} on one {}, and a fault of one is to end no other", card.name),
            recommended,
            reasons: plan.reasons.clone(),
            against,
            plan: serde_json::to_value(&plan).context("cannot write JSON")?,
        });
        Ok((Outcome::Predicted, "the planner's answer for the recorded profile, as `cumux plan` gives it".into()))
    }
}

/// The full geometries of equal instances.
fn geometries(card: &'static cards::CardModel) -> Vec<String> {
    let Some(table) = &card.mig else { return Vec::new() };
    let mut found: Vec<(usize, String)> = Vec::new();
    for geometry in table.full_geometries() {
        let names: Vec<&str> = geometry.instances.iter().map(|instance| instance.profile.name).collect();
        let equal = names.iter().all(|name| name == &names[0]) && names[0].chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        if equal && !found.iter().any(|(count, _)| *count == names.len()) {
            found.push((names.len(), names.join(",")));
        }
    }
    found.into_iter().map(|(_, names)| names).collect()
}

/// What a crowd of programs that have told of their requests has shown.
fn measured(mode: &str, workload: &str, findings: &[Finding]) -> Row {
    let mut points: Vec<f64> = findings.iter().flat_map(|finding| finding.points_us.iter().copied()).collect();
    points.sort_by(f64::total_cmp);
    let worst = |of: fn(&Finding) -> f64| findings.iter().map(of).fold(0.0, f64::max);
    Row {
        mode: mode.to_owned(),
        workload: workload.to_owned(),
        clients: findings.len() as u32,
        source: Source::Measured,
        basis: Basis::Requests,
        throughput: rate_of(findings),
        slowdown: 1.0,
        p50_us: worst(|finding| finding.p50_us),
        p99_us: worst(|finding| finding.p99_us),
        start_ms: findings.iter().map(|finding| finding.start_ms).collect::<Option<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max)),
        latencies_us: predict::points(&points),
    }
}

fn timeline(mode: &str, workload: &str, findings: &[Finding]) -> Timeline {
    let first = findings.iter().flat_map(|finding| finding.spans_us.first()).map(|span| span.0).fold(f64::INFINITY, f64::min);
    let spans = |finding: &Finding| finding.spans_us.iter().map(|(from, to)| (from - first, to - first)).collect();
    Timeline { mode: mode.to_owned(), workload: workload.to_owned(), spans_us: findings.iter().map(spans).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometries_of_equal_instances_are_found() {
        let found = geometries(cards::find("h200").unwrap());
        assert!(found.iter().any(|names| names.split(',').count() == 7), "{found:?}");
        assert!(geometries(cards::find("l4").unwrap()).is_empty());
    }
}
