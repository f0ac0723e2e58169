//! `cumux faults`: which clients' kernels have faulted, where, and how that was found out.
//!
//! Servers write this down in the pipe directory, or in their user's folder there, so it is there
//! after the daemon has ended, too. Nobody else's folder is believed: it must belong to root or to
//! the user who asks.

use crate::say;
use anyhow::{Context as _, bail};
use comfy_table::{Table, presets};
use cumux_control::directory::{PIPE_VARIABLE, pipe_directory};
use cumux_link::{Folder, FolderError, escape_foreign};
use cumux_wire::message::FaultRecord;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Longest file of faults, as servers write it.
const LONGEST: u64 = 1 << 20;
/// Most files in a pipe directory that are looked at.
const MOST_FILES: usize = 10_000;
/// Longest text of a fault that is shown.
const LONGEST_TEXT: usize = 1024;

/// A fault with its number in the list and the folder in which it is written down.
#[derive(Debug, Serialize)]
struct Listed {
    number: usize,
    uid: u32,
    #[serde(flatten)]
    record: FaultRecord,
    #[serde(skip)]
    folder: PathBuf,
}

/// Lists the faults, or copies the core dump of one of them. Returns the exit status: 0 if there is
/// nothing to complain about.
pub fn main(json: bool, export: Option<usize>, to: Option<&Path>) -> anyhow::Result<u8> {
    let pipe = pipe_directory();
    let faults = list(&pipe)?;
    if let Some(number) = export {
        let to = to.context("--export needs the name of the file to write")?;
        return copy_dump(&faults, number, to);
    }
    if json {
        say::line(serde_json::to_string_pretty(&faults)?)?;
    } else if faults.is_empty() {
        say::line(format_args!("No faults are written down in {}.", pipe.display()))?;
    } else {
        say::text(&table(&faults))?;
    }
    Ok(0)
}

/// All faults that this user may read, oldest first.
fn list(pipe: &Path) -> anyhow::Result<Vec<Listed>> {
    let mut faults = Vec::new();
    for path in folders(pipe)? {
        // A folder of somebody else is not ours to read, and not to be believed.
        let Ok(folder) = Folder::open(&path) else { continue };
        for name in folder.names(MOST_FILES)? {
            let Some(uid) = name.to_str().and_then(|name| name.strip_prefix("faults-")?.strip_suffix(".json")?.parse().ok()) else { continue };
            let Ok(bytes) = folder.read(&name, LONGEST) else { continue };
            let records: Vec<FaultRecord> = serde_json::from_slice(&bytes).unwrap_or_default();
            faults.extend(records.into_iter().map(|record| Listed { number: 0, uid, record, folder: path.clone() }));
        }
    }
    faults.sort_by_key(|fault| fault.record.at_ms);
    for (number, fault) in (1..).zip(&mut faults) {
        fault.number = number;
    }
    Ok(faults)
}

/// The pipe directory, and the folders of servers of other users and of one card in it.
fn folders(pipe: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = match Folder::open(pipe) {
        Ok(folder) => folder,
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        Err(error @ FolderError::NoDirectory { .. }) => bail!("{error}; set {PIPE_VARIABLE} to the directory of a daemon"),
        Err(error) if error.remedy().is_empty() => bail!("{error}"),
        Err(error) => bail!("{error}: {}", error.remedy()),
    };
    let is_folder = |name: &str| name.starts_with("user-") || name.starts_with("gpu-");
    let servers = folder.names(MOST_FILES)?.into_iter().filter(|name| name.to_str().is_some_and(is_folder));
    Ok(std::iter::once(pipe.to_path_buf()).chain(servers.map(|name| pipe.join(name))).collect())
}

fn copy_dump(faults: &[Listed], number: usize, to: &Path) -> anyhow::Result<u8> {
    let fault = faults.iter().find(|fault| fault.number == number).with_context(|| format!("there is no fault {number}; `cumux faults` lists them"))?;
    if fault.record.dump.is_empty() {
        bail!("fault {number} has no core dump: only real cards write one, and the newest few are kept");
    }
    let folder = Folder::open(&fault.folder)?;
    let mut source = folder.open_to_read(&fault.record.dump).map_err(FolderError::into_io).with_context(|| format!("the dump of fault {number} is gone"))?;
    let mut target = File::create_new(to).with_context(|| format!("cannot make {}", to.display()))?;
    let bytes = io::copy(&mut source, &mut target).with_context(|| {
        // Half a dump is none, and would be in the way of the next attempt.
        let _ = std::fs::remove_file(to);
        format!("{} cannot be written", to.display())
    })?;
    let (program, pid) = (escape_foreign(&fault.record.program, LONGEST_TEXT), fault.record.pid);
    say::line(format_args!("{}: {bytes} bytes, of {program} (PID {pid}); cuda-gdb opens it with `target cudacore {}`", to.display(), to.display()))?;
    Ok(0)
}

fn table(faults: &[Listed]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["#", "time", "user", "PID", "program", "error", "dump", "what is known"]);
    for Listed { number, uid, record, .. } in faults {
        table.add_row([
            number.to_string(),
            local(record.at_ms),
            uid.to_string(),
            record.pid.to_string(),
            escape_foreign(&record.program, LONGEST_TEXT).to_string(),
            record.result.to_string(),
            if record.dump.is_empty() { "no" } else { "yes" }.to_owned(),
            escape_foreign(&record.text, LONGEST_TEXT).to_string(),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

/// Local time, as `2026-11-22 06:32:10`.
fn local(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_all_folders_are_listed_in_order_and_dumps_are_copied() {
        let pipe = tempfile::tempdir().expect("a folder");
        let write = |folder: &Path, uid: u32, at_ms: u64, dump: &str| {
            let record = FaultRecord { at_ms, pid: uid, program: "a.out\u{1b}[2J".into(), result: 700, text: "kernel k".into(), dump: dump.into(), session: 1 };
            std::fs::write(folder.join(format!("faults-{uid}.json")), serde_json::to_vec(&[record]).expect("text")).expect("written");
        };
        let other = pipe.path().join("user-9");
        std::fs::create_dir(&other).expect("made");
        write(pipe.path(), 0, 2_000, "faults-0-2000.cudump");
        write(&other, 9, 1_000, "");
        std::fs::write(pipe.path().join("faults-0-2000.cudump"), "the dump").expect("written");
        std::fs::write(pipe.path().join("faults-1.json"), "nonsense").expect("written");
        let faults = list(pipe.path()).expect("listed");
        assert_eq!(faults.iter().map(|fault| (fault.number, fault.uid)).collect::<Vec<_>>(), [(1, 9), (2, 0)]);
        let shown = table(&faults);
        assert!(shown.contains(&local(1_000)) && local(1_000).contains("1970-01-01") && !shown.contains('\u{1b}'), "{shown}");
        let to = pipe.path().join("copy");
        assert!(copy_dump(&faults, 1, &to).is_err() && copy_dump(&faults, 3, &to).is_err());
        assert_eq!(copy_dump(&faults, 2, &to).expect("copied"), 0);
        assert_eq!(std::fs::read_to_string(&to).expect("there"), "the dump");
        assert!(copy_dump(&faults, 2, &to).is_err(), "nothing is overwritten");
    }
}
