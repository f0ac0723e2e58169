//! Starts the other processes: server, keeper, executor, standby. Each is one function of its own
//! crate.
//!
//! The daemon and these processes start each other; people do not. Their options are not part of
//! what we promise.

use crate::say;
use clap::Parser;
use cumux_device::{Device, DeviceError, Open, Sink};
use cumux_device_cuda::Cuda;
use cumux_device_sim::Simulator;
use cumux_link::flood::{SHAPE, shape};
use cumux_link::logfile::{self, Log, own_limit};
use cumux_wire::message::{DeviceFacts, Scope};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tracing_subscriber::EnvFilter;

/// Stands for all real GPUs that the driver shows, in its order.
pub const ALL: &str = "all";

/// Opens devices of all kinds, by the prefix of their names.
struct Devices;

impl Open for Devices {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        if id.starts_with("cuda:") { Cuda.open(id, sink) } else { Simulator.open(id, sink) }
    }

    fn look_at_all(&self, ids: &[&str]) -> Vec<Option<DeviceFacts>> {
        if ids.iter().all(|id| id.starts_with("cuda:")) {
            return ids.iter().map(|id| cumux_device_cuda::shown(id)).collect();
        }
        let names: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let known = facts_of_all(&names);
        if known.len() == names.len() { known.into_iter().map(Some).collect() } else { names.iter().map(|_| None).collect() }
    }

    fn open_all(&self, wanted: Vec<(&str, Arc<dyn Sink>)>) -> Vec<Result<Arc<dyn Device>, DeviceError>> {
        // A daemon has devices of one kind.
        if wanted.iter().all(|(id, _)| id.starts_with("cuda:")) { Cuda.open_all(wanted) } else { Simulator.open_all(wanted) }
    }
}

/// Properties of a device without opening it, for `device_query` before any server runs; empty if
/// they are unknown.
pub fn facts(device: &str) -> Vec<DeviceFacts> {
    // The server of a real card asks the card; opening it here would create a context in the
    // daemon.
    if device.starts_with("sim:") { cumux_device_sim::facts(device).into_iter().collect() } else { Vec::new() }
}

/// [`facts`] of a list of devices: the same name twice means two cards.
pub fn facts_of_all(devices: &[String]) -> Vec<DeviceFacts> {
    let names: Vec<&str> = devices.iter().map(String::as_str).filter(|name| name.starts_with("sim:")).collect();
    let numbers = cumux_device_sim::numbers(&names);
    names.iter().zip(numbers).filter_map(|(name, number)| cumux_device_sim::facts_of(name, number).ok()).collect()
}

/// The names of these devices by which each is found without the others.
pub fn single_names(devices: &[String]) -> Vec<String> {
    let names: Vec<&str> = devices.iter().map(String::as_str).collect();
    if names.iter().all(|name| name.starts_with("sim:")) { cumux_device_sim::single_names(&names) } else { devices.to_vec() }
}

/// Names of memory-locality partitions for a server, in place of these devices; empty if no device
/// has such partitions.
pub fn localities(devices: &[String]) -> Vec<String> {
    let names: Vec<(Vec<String>, &String)> = devices.iter().map(|device| (cumux_device_sim::localities(device), device)).collect();
    if names.iter().all(|(parts, _)| parts.is_empty()) {
        return Vec::new();
    }
    // A device without such partitions is listed whole, as the document says.
    names.into_iter().flat_map(|(parts, whole)| if parts.is_empty() { vec![whole.clone()] } else { parts }).collect()
}

/// `nvidia-cuda-mps-server`: prints the version with `-v`, otherwise runs the server.
pub fn drop_in_server(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    if arguments.first().is_some_and(|argument| argument == "-v" || argument == "--version") {
        say::line(format_args!("cumux {}", env!("CARGO_PKG_VERSION")))?;
        return Ok(0);
    }
    server(arguments)
}

#[derive(Parser)]
#[command(name = "cumux server", no_binary_name = true)]
struct ServerOptions {
    #[arg(long)]
    pipe: PathBuf,
    /// Absent for a server that has no right to the log: its lines go to standard error.
    #[arg(long)]
    log: Option<PathBuf>,
    #[arg(long, required = true)]
    device: Vec<String>,
    #[arg(long)]
    uid: u32,
}

#[derive(Parser)]
#[command(name = "cumux survey", no_binary_name = true)]
struct SurveyOptions {
    #[arg(long, required = true)]
    device: Vec<String>,
}

/// Prints properties of devices as JSON, for a daemon that has no server yet. Opens no device, but
/// loads the driver: hence a process of its own.
pub fn survey(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    let SurveyOptions { device: mut devices } = SurveyOptions::try_parse_from(arguments)?;
    if devices == [ALL] {
        devices = cumux_device_cuda::survey::cards()?.iter().map(|card| format!("cuda:{}", card.ordinal)).collect();
    }
    let mut all = facts_of_all(&devices);
    if all.is_empty() {
        let facts: Vec<Result<DeviceFacts, DeviceError>> = devices.iter().map(|device| cumux_device_cuda::facts(device)).collect();
        let any = facts.iter().any(Result::is_ok);
        // Beside others, one that cannot be used is known all the same.
        let known =
            |(device, facts): (&String, Result<DeviceFacts, DeviceError>)| facts.or_else(|error| cumux_device_cuda::shown(device).filter(|_| any).ok_or(error));
        all = devices.iter().zip(facts).map(known).collect::<Result<_, _>>()?;
    }
    say::line(serde_json::to_string(&all)?)?;
    Ok(0)
}

#[derive(Parser)]
#[command(name = "cumux keeper", no_binary_name = true)]
struct KeeperOptions {
    #[arg(long)]
    server: PathBuf,
}

#[derive(Parser)]
#[command(name = "cumux executor", no_binary_name = true)]
struct ExecutorOptions {
    #[arg(long)]
    server: PathBuf,
    #[arg(long, required = true)]
    device: Vec<String>,
    /// The one session that it is to serve; absent for one that serves all.
    #[arg(long)]
    own: Option<u32>,
}

/// Sends the log of these processes to standard error, which the daemon has directed into the log.
/// `CUMUX_LOG` chooses how much is logged.
fn log() {
    cumux_signals::survive_file_limit();
    cumux_signals::crashes::report_crashes();
    let filter = EnvFilter::try_from_env("CUMUX_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let words = Mutex::new(Words(Log::new(logfile::Sink::StandardError, SHAPE, false)));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(words).with_ansi(false).try_init();
}

/// Log lines of a process that clients can cause: each shape has a limit, and the log has one for
/// all together. The process that writes the log file puts it aside.
struct Words(Log<String>);

impl Write for Words {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let full = rustix::fs::fstat(std::io::stderr()).is_ok_and(|stat| u64::try_from(stat.st_size).unwrap_or(0) > own_limit().saturating_mul(2));
        if !full {
            let text = String::from_utf8_lossy(line);
            let kind = format!("like \"{}…\"", shape(&text));
            self.0.line("Other", std::process::id(), text.trim_end(), Some(&kind));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn server(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    // A session away from the terminal of a foreground daemon, which may be another user's. It
    // fails if we lead a process group already: that one is then our own.
    let _ = rustix::process::setsid();
    log();
    let ServerOptions { pipe, log, device: devices, uid } = ServerOptions::try_parse_from(arguments)?;
    cumux_server::run(cumux_server::Options { pipe, log, devices, uid })?;
    Ok(0)
}

pub fn keeper(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    cumux_link::limit::raise();
    log();
    let options = KeeperOptions::try_parse_from(arguments)?;
    cumux_keeper::run(&options.server)?;
    Ok(0)
}

/// Runs an executor: active or standby, as the server decides.
pub fn executor(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    cumux_link::limit::raise();
    log();
    let ExecutorOptions { server, device: devices, own } = ExecutorOptions::try_parse_from(arguments)?;
    let scope = own.map_or(Scope::Shared, |session| Scope::Own { session });
    cumux_executor::run(&cumux_executor::Options { server, devices, scope }, &Devices)?;
    Ok(0)
}
