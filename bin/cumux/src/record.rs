//! `cumux record`: what an unmodified program does on the card, as a profile that `cumux plan`
//! reads; and such a profile as a table.
//!
//! The program runs through a private daemon, so that nothing else of ours is on the card. Its
//! library says what the host does, the executor how long the card took ([`listen`]).
//!
//! Exit status: that of the program; 1 if it succeeded and there is no profile.

mod listen;
mod show;

use crate::device::{self, DeviceName, with_fallback};
use crate::private::PrivateDaemon;
use crate::{library, run, say};
use anyhow::{Context as _, bail};
use clap::Args;
use cumux_planner::observe::{Circumstances, Observed};
use cumux_planner::profile::{self, Profile};
use cumux_wire::recording::VARIABLE;
use listen::Listening;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::NamedTempFile;

/// Tells a program that it runs in the lab.
pub const LAB_VARIABLE: &str = "CUMUX_LAB";
/// Characters of a program's name in its profile.
const LONGEST_NAME: usize = 120;
/// Profiles of one recording that are written: a program may start others.
const MOST_PROFILES: usize = 32;

/// The command line of `cumux record`.
#[derive(Args, Debug)]
pub struct RecordArguments {
    /// The profile to write; CMD.profile.json without it. Further processes that use the card get
    /// files beside it, with their process numbers
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints a profile as a table
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "device", "command"])]
    show: Option<PathBuf>,
    #[arg(long, help = format!("One of {}", device::names()))]
    device: Option<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "show", value_name = "CMD")]
    command: Vec<OsString>,
}

/// Records or shows.
pub fn main(arguments: &RecordArguments) -> anyhow::Result<u8> {
    if let Some(path) = &arguments.show {
        say::text(&show::page(&read(path)?))?;
        return Ok(0);
    }
    record(arguments)
}

/// Reads a profile from a file.
pub fn read(path: &Path) -> anyhow::Result<Profile> {
    let cannot = || format!("the profile {} cannot be read", path.display());
    let mut text = String::new();
    File::open(path).with_context(cannot)?.take(profile::LONGEST as u64 + 1).read_to_string(&mut text).with_context(cannot)?;
    profile::read(&text).with_context(|| format!("the profile {}", path.display()))
}

fn record(arguments: &RecordArguments) -> anyhow::Result<u8> {
    let target = target(arguments)?;
    // Before the program runs: a recording of hours must not be lost for want of a folder.
    let mut file = Some(unfinished(&target)?);
    let (devices, notice) = with_fallback(arguments.device.as_deref())?;
    if let Some(notice) = notice {
        say::complain(format_args!("cumux: {notice}"));
    }
    let (end, observed) = observe(&devices, &arguments.command, Audience::User)?;
    for program in observed.into_iter().take(MOST_PROFILES) {
        let profile = match program.profile {
            Ok(profile) => profile,
            Err(why) => {
                say::complain(format_args!("cumux: process {} has no profile: {why}", program.pid));
                continue;
            }
        };
        let (unfinished, place) = match file.take() {
            Some(first) => (first, target.clone()),
            None => {
                let place = beside(&target, program.pid);
                (unfinished(&place)?, place)
            }
        };
        write(unfinished, &place, &profile)?;
        tell(&profile, &place);
    }
    let nothing = file.is_some();
    if nothing {
        say::complain(format_args!(
            "cumux: there is no profile: no process of this program worked on the card; `cumux doctor {}` tells whether it would be served",
            arguments.command.first().map(|program| program.to_string_lossy()).unwrap_or_default()
        ));
    }
    drop(file);
    match run::end_as(end)? {
        0 => Ok(u8::from(nothing)),
        status => Ok(status),
    }
}

/// For whom a program is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// For the user: input and output are ours.
    User,
    /// For the lab: nobody sees its output, its input is at its end, and it ends within this time.
    Lab(Duration),
}

/// Runs a program to its end, and returns how it ended with what was seen of it and of the
/// processes that it started.
pub fn observe(devices: &[DeviceName], command: &[OsString], audience: Audience) -> anyhow::Result<(ExitStatus, Vec<Observed>)> {
    let library = library::folder()?;
    let listening = Listening::begin()?;
    let daemon = PrivateDaemon::start_with(devices, &[(VARIABLE, listening.path().as_os_str())])?;
    let mut child = run::prepare(command, &library, devices)?;
    run::lead_to(&mut child, &daemon, devices);
    child.env(VARIABLE, listening.path());
    let limit = match audience {
        Audience::User => None,
        Audience::Lab(limit) => {
            child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env(LAB_VARIABLE, "1");
            Some(limit)
        }
    };
    let (pid, end) = run::forward(&mut child, limit).map_err(|cause| run::cannot_run(command, cause))?;
    // What its executors have gathered comes when they end.
    drop(daemon);
    let circumstances = Circumstances { at: seconds_since_1970(), cumux: env!("CARGO_PKG_VERSION").to_owned(), driver: driver(devices) };
    let mut observed = listening.end()?.finish(&circumstances);
    for program in &mut observed {
        if let Ok(profile) = &mut program.profile {
            profile.program = match program.pid == pid {
                true => shown(command),
                false => Path::new(&profile.program).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            };
        }
    }
    Ok((end, observed))
}

/// A command as a name.
fn shown(command: &[OsString]) -> String {
    let mut words = command.iter().map(|word| word.to_string_lossy());
    let first = words.next().map(|program| Path::new(&*program).file_name().unwrap_or_default().to_string_lossy().into_owned());
    let text = first.into_iter().chain(words.map(|word| word.into_owned())).collect::<Vec<_>>().join(" ");
    text.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect()
}

pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The version of the driver, as its kernel module says it; empty on a software GPU.
pub fn driver(devices: &[DeviceName]) -> String {
    if !devices.iter().any(|device| matches!(device, DeviceName::Cuda(_))) {
        return String::new();
    }
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next().and_then(|line| line.split_whitespace().find(is_version)).unwrap_or_default().to_owned()
}

/// Where the profile goes.
fn target(arguments: &RecordArguments) -> anyhow::Result<PathBuf> {
    if let Some(output) = &arguments.output {
        return Ok(output.clone());
    }
    let program = arguments.command.first().context("no program to record")?;
    let name = Path::new(program).file_name().context("the program has no name: say -o FILE")?;
    let path = PathBuf::from(format!("{}.profile.json", name.to_string_lossy()));
    // Nobody has named this file: another document there is not ours to replace.
    if path.exists() && read(&path).is_err() {
        bail!("{} exists and is no profile: say -o FILE", path.display());
    }
    Ok(path)
}

/// The profile of a further process.
fn beside(target: &Path, pid: u32) -> PathBuf {
    let stem = target.file_stem().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!("{stem}.{pid}.json"))
}

fn unfinished(target: &Path) -> anyhow::Result<NamedTempFile> {
    if target.is_dir() {
        bail!("{} is a folder: name a file in it", target.display());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o644)).tempfile_in(folder);
    made.with_context(|| format!("the profile cannot be written in {}", folder.display()))
}

fn write(mut file: NamedTempFile, target: &Path, profile: &Profile) -> anyhow::Result<()> {
    let cannot = || format!("the profile {} cannot be written", target.display());
    let text = serde_json::to_string(profile).context("cannot write JSON")?;
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).with_context(cannot)?;
    file.persist(target).map(drop).map_err(|error| error.error).with_context(cannot)
}

fn tell(profile: &Profile, place: &Path) {
    let launches: u64 = profile.kernels.iter().map(|kernel| kernel.count).sum();
    let (kernels, requests) = (profile.kernels.len(), profile.requests);
    let size = fs::metadata(place).map_or(0, |metadata| metadata.len());
    say::complain(format_args!(
        "cumux: {} has {launches} launches of {kernels} kernels, {requests} requests ({}); look at it with cumux record --show, plan with cumux plan --profile",
        place.display(),
        crate::status::bytes(size)
    ));
}
