//! The report's folder: `report.json`, `report.html`, and the files for administrators.

use super::card;
use crate::record::seconds_since_1970;
use anyhow::{Context as _, bail};
use cumux_artifacts::make::{Mode, Options, files};
use cumux_lab::report::{Made, Report};
use cumux_lab::{gates, page};
use cumux_planner::card as cards;
use cumux_planner::mode::ServedHost;
use cumux_planner::profile::Profile;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Programs for which the files are written, and their part of the multiprocessors.
const REPLICAS: u32 = 4;
const PERCENTAGE: u32 = 25;

/// What has been measured so far, while the lab runs: all that is left of one that is killed.
const SO_FAR: &str = "report.part.json";

/// A folder that can be written.
pub struct Folder {
    path: PathBuf,
    /// Made by this lab; an interrupted one takes it away again.
    made: bool,
    kept: std::cell::Cell<bool>,
    /// Whether this lab has written what it has measured so far.
    so_far: std::cell::Cell<bool>,
}

impl Folder {
    /// Makes the folder, or checks that one that is there can be written.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path.exists() && !path.is_dir() {
            bail!("{} is no folder: choose another with --out", path.display());
        }
        let made = !path.exists();
        let cannot = || format!("the report's folder {} cannot be written: choose another with --out", path.display());
        fs::create_dir_all(path).with_context(cannot)?;
        let folder = Self { path: path.to_owned(), made, kept: std::cell::Cell::new(false), so_far: std::cell::Cell::new(false) };
        tempfile::tempfile_in(path).with_context(cannot)?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what has been measured so far.
    pub fn write_so_far(&self, report: &Report) -> anyhow::Result<()> {
        self.so_far.set(true);
        self.put(SO_FAR, &(serde_json::to_string(report).context("cannot write JSON")? + "\n"), 0o644)
    }

    /// Writes what was recorded, so that predictions can be made again without the card.
    pub fn write_profiles(&self, profiles: &[(String, Profile)]) -> anyhow::Result<()> {
        for (workload, profile) in profiles {
            let text = serde_json::to_string(profile).context("cannot write JSON")?;
            self.put(&format!("profiles/{workload}.json"), &(text + "\n"), 0o644)?;
        }
        Ok(())
    }

    /// Judges the report and writes it with all files.
    pub fn write(&self, report: &mut Report) -> anyhow::Result<()> {
        self.kept.set(true);
        let mut texts = Vec::new();
        for (folder, mode) in [("mps", Mode::Mps), ("cumux", Mode::Cumux), ("time-slicing", Mode::TimeSlicing), ("mig", Mode::Mig)] {
            let card = report.device.card.as_deref().and_then(|id| cards::find(id).ok()).filter(|card| mode != Mode::Mig || card.mig.is_some());
            if mode == Mode::Mig && card.is_none() {
                continue;
            }
            let percentage = matches!(mode, Mode::Mps | Mode::Cumux).then_some(PERCENTAGE);
            let options = Options { replicas: REPLICAS, percentage, card, ..Options::of(mode) };
            for artifact in files(mode, &options).context("the files for administrators cannot be made")? {
                let name = format!("artifacts/{folder}/{}", artifact.name);
                let mode = if artifact.is_executable() { 0o755 } else { 0o644 };
                self.put(&name, &artifact.text, mode)?;
                texts.push((name, artifact.text));
            }
        }
        report.artifacts = texts.iter().map(|(name, _)| name.clone()).collect();
        report.gates = gates::judge(report, &texts);
        self.put("report.json", &(serde_json::to_string_pretty(report).context("cannot write JSON")? + "\n"), 0o644)?;
        self.put("report.html", &page::html(report), 0o644)
    }

    /// Writes a file whole, or not at all. A link of somebody else's is replaced, not followed.
    fn put(&self, name: &str, text: &str, mode: u32) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let cannot = || format!("{} cannot be written", path.display());
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).with_context(cannot)?;
        let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(mode)).tempfile_in(folder).with_context(cannot)?;
        file.write_all(text.as_bytes()).with_context(cannot)?;
        file.persist(&path).map(drop).map_err(|error| error.error).with_context(cannot)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.so_far.get() {
            let _ = fs::remove_file(self.path.join(SO_FAR));
        }
        if self.made && !self.kept.get() {
            // Only if nobody has put anything into it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// When and where the report was made.
pub fn made(quick: bool) -> Made {
    let at = seconds_since_1970();
    let date = jiff::Timestamp::from_second(i64::try_from(at).unwrap_or(0)).map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let ServedHost { engines, lanes, .. } = ServedHost::with(u32::try_from(processors).unwrap_or(u32::MAX));
    Made { at, date, cumux: env!("CARGO_PKG_VERSION").to_owned(), system: card::system(), processors, engines, lanes, quick, seconds: 0.0 }
}
