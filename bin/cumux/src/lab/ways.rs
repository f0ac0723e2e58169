//! The ways in which the lab's programs share the card, each with its daemon. A daemon that was
//! started here ends with its value; no setting of the card is changed.

use super::card;
use crate::device::{self, DeviceName};
use crate::library;
use crate::private::PrivateDaemon;
use anyhow::{Context as _, bail};
use cumux_control::directory::{LOG_VARIABLE, PIPE_VARIABLE};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The percentage that MPS clients read.
const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// NVIDIA's MPS in directories of its own.
pub struct Mps {
    control: PathBuf,
    folder: TempDir,
}

impl Mps {
    fn start(control: PathBuf) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cumux-lab-mps-").tempdir().context("cannot make a folder for NVIDIA's MPS")?;
        let mps = Self { control, folder };
        let output = mps.command().arg("-d").stdin(Stdio::null()).output().context("cannot start NVIDIA's MPS")?;
        if !output.status.success() {
            bail!("NVIDIA's MPS does not start: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(mps)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.control);
        command.env(PIPE_VARIABLE, self.folder.path()).env(LOG_VARIABLE, self.folder.path());
        command
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        let child = self.command().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Ok(mut child) = child {
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(b"quit -t 2\n"));
            let _ = child.wait();
        }
    }
}

/// A way that is ready.
pub enum Way {
    /// Without a daemon: the driver takes turns.
    Native,
    /// Through NVIDIA's MPS.
    Mps(Mps),
    /// Through cumux; each program with a part of the multiprocessors, if one is said.
    Cumux(PrivateDaemon, MultiprocessorSplit),
}

/// How the multiprocessors are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiprocessorSplit {
    /// All programs use all.
    Shared,
    /// Each program has a part of its own.
    Equal,
}

/// The ways of this machine: the mode's name and, where it cannot be used, why.
pub fn offered(devices: &[DeviceName]) -> Vec<(&'static str, Result<(), String>)> {
    if is_software(devices) {
        return vec![
            ("cumux", Ok(())),
            ("time_sliced", Ok(())),
            ("mig", Ok(())),
            ("mps", Err("a software GPU is served by cumux alone: NVIDIA's MPS needs NVIDIA's driver and a card".to_owned())),
        ];
    }
    let mps = card::mps_control().map(drop);
    let mig =
        Err("the lab changes no card: instances are predicted. To measure them, make instances with artifacts/mig/apply-mig.sh and run the lab in each"
            .to_owned());
    vec![("time_sliced", Ok(())), ("mps", mps), ("cumux", Ok(())), ("mig", mig)]
}

pub fn is_software(devices: &[DeviceName]) -> bool {
    devices.iter().all(|device| matches!(device, DeviceName::Sim(_)))
}

impl Way {
    /// Starts what a mode needs.
    pub fn open(mode: &str, devices: &[DeviceName]) -> anyhow::Result<Self> {
        let software = is_software(devices);
        match mode {
            "cumux" => Ok(Way::Cumux(PrivateDaemon::start(devices)?, MultiprocessorSplit::Shared)),
            // On a software GPU turns are those of executors, one for each program.
            "time_sliced" if software => {
                let daemon = PrivateDaemon::start(devices)?;
                daemon.ask("set_default_isolation own").context("the daemon gives no program an executor of its own")?;
                Ok(Way::Cumux(daemon, MultiprocessorSplit::Shared))
            }
            "mig" if software => Ok(Way::Cumux(PrivateDaemon::start(devices)?, MultiprocessorSplit::Equal)),
            "time_sliced" => Ok(Way::Native),
            "mps" => match card::mps_control() {
                Ok(control) => Ok(Way::Mps(Mps::start(control)?)),
                Err(why) => bail!("{why}"),
            },
            other => bail!("{} has no way {other}", device::list(devices)),
        }
    }

    /// A program that shares the card in this way with `clients - 1` others.
    pub fn command(&self, program: &[OsString], clients: u32, libraries: &Path, software: bool) -> anyhow::Result<Command> {
        let (name, arguments) = program.split_first().context("no program")?;
        let mut command = Command::new(name);
        command.args(arguments).env_remove(PERCENTAGE);
        match self {
            // An empty name keeps both NVIDIA's MPS and cumux away.
            Way::Native => command.env(PIPE_VARIABLE, "/nowhere/cumux-lab"),
            Way::Mps(mps) => command.env(PIPE_VARIABLE, mps.folder.path()).env(LOG_VARIABLE, mps.folder.path()),
            Way::Cumux(daemon, parts) => {
                command.env(PIPE_VARIABLE, daemon.pipe()).env(library::VARIABLE, library::path_with(libraries));
                command.envs(library::compilers_environment(libraries, software));
                if *parts == MultiprocessorSplit::Equal && clients > 1 {
                    command.env(PERCENTAGE, format!("{:.1}", 100.0 / f64::from(clients)));
                }
                &mut command
            }
        };
        Ok(command)
    }
}
