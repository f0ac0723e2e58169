//! `cumux device-plugin`, `cumux dra` and `cumux slurm`: what orchestrators call on a node.

mod theirs;

use self::theirs::Theirs;
use crate::{library, say};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use cumux_artifacts::plugin::{self, Policy};
use cumux_cluster::checkpoint::Checkpoint;
use cumux_cluster::dra::api::Api;
use cumux_cluster::dra::driver::Driver;
use cumux_cluster::dra::node as dra;
use cumux_cluster::groups::{Groups as _, Node, RESTART};
use cumux_cluster::plugin::ledger::{Ledger, Rules};
use cumux_cluster::plugin::node::{Options, Plugin};
use cumux_cluster::plugin::parts::{WHOLE, resources};
use cumux_cluster::slurm::{self, Counting, Job, scope};
use cumux_control::directory::pipe_directory;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing_subscriber::EnvFilter;

/// Time between two attempts to reach a daemon that is not there yet.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the plugin waits at its start for one of several daemons, before it goes on without.
const MISSING_DAEMON: Duration = Duration::from_secs(60);

/// Logs of a service go to standard error, where the container's log is.
pub fn log() {
    cumux_signals::survive_file_limit();
    let filter = EnvFilter::try_from_env("CUMUX_LOG").unwrap_or_else(|_| EnvFilter::new("info,h2=warn,hyper=warn,tonic=warn,rustls=warn,ureq=warn"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
}

/// The folder with the library that containers and jobs get.
fn library_folder(named: Option<PathBuf>, none: bool) -> anyhow::Result<Option<PathBuf>> {
    match (none, named) {
        (true, _) => Ok(None),
        (false, Some(folder)) => Ok(Some(folder)),
        (false, None) => library::folder().map(Some),
    }
}

/// The pipe directories of the node's daemons.
fn pipes(named: &[PathBuf]) -> Vec<PathBuf> {
    if named.is_empty() { vec![pipe_directory()] } else { named.to_vec() }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyWord {
    Distributed,
    Packed,
}

/// The command line of `cumux device-plugin`. Options and variables that NVIDIA's plugin has, too,
/// have its names.
#[derive(Args, Debug)]
pub struct PluginArguments {
    /// The configuration, as NVIDIA's plugin reads it (version: v1)
    #[arg(long, env = "CONFIG_FILE", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Kubelet's socket for device plugins
    #[arg(long, env = "KUBELET_SOCKET", default_value = "/var/lib/kubelet/device-plugins/kubelet.sock", value_name = "SOCKET")]
    kubelet_socket: PathBuf,
    /// Kubelet's pod-resources socket: groups of pods that have gone are removed by what it says
    #[arg(long, env = "POD_RESOURCES_SOCKET", default_value = "/var/lib/kubelet/pod-resources/kubelet.sock", value_name = "SOCKET")]
    pod_resources: PathBuf,
    /// Ends with an error if a daemon is missing at the start; false: waits for it, for one of
    /// several at most a minute
    #[arg(long, env = "FAIL_ON_INIT_ERROR", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    fail_on_init_error: Option<bool>,
    /// On which card a further container goes: with the most free parts, or with the fewest
    #[arg(long, env = "SHARED_DEVICES_ALLOCATION_POLICY")]
    shared_devices_allocation_policy: Option<PolicyWord>,
    /// none: cumux shares whole cards
    #[arg(long, env = "MIG_STRATEGY", value_name = "STRATEGY")]
    mig_strategy: Option<String>,
    /// The daemon's pipe directory, a path of the node; several times for several daemons
    #[arg(long, value_name = "DIR")]
    pipe: Vec<PathBuf>,
    /// Remembers allocations across restarts
    #[arg(long, default_value = "/var/lib/cumux/device-plugin.json", value_name = "FILE")]
    state: PathBuf,
    /// The folder of the node with libcuda.so.1 that containers get; by default this program's own
    #[arg(long, value_name = "DIR")]
    library: Option<PathBuf>,
    /// Containers get no library: their images have it
    #[arg(long)]
    no_library: bool,
    /// Seconds that a pod must be missing before its group is removed
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    grace: u64,
    /// Seconds between two looks at the cards
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    health_interval: f64,
    /// Seconds between two looks at the pods
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    reconcile_interval: f64,
    /// Says what is wrong in the configuration, or what the node would offer, and ends
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    theirs: Box<Theirs>,
}

fn seconds(name: &str, value: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => bail!("{name} {value}: a number of seconds above 0 is needed"),
    }
}

/// What a node offers by this configuration, a line for each resource.
fn offered(config: &plugin::Config) -> String {
    let equal = config.replicated.iter().map(|resource| format!("{}: each card in {} parts\n", resource.advertised, resource.replicas));
    let memory = config.units.iter().map(|units| format!("{}: units of {} MiB\n", units.memory.name, units.memory.size));
    let percent = config.units.iter().filter_map(|units| units.percent.as_ref()).map(|unit| format!("{}: units of {} %\n", unit.name, unit.size));
    let text: String = equal.chain(memory).chain(percent).collect();
    // As NVIDIA's plugin without sharing.
    if text.is_empty() { format!("{WHOLE}: whole cards\n") } else { text }
}

/// Runs the plugin until a signal ends it, and returns the exit status.
pub fn device_plugin(arguments: PluginArguments) -> anyhow::Result<u8> {
    log();
    let health = seconds("--health-interval", arguments.health_interval)?;
    let reconcile = seconds("--reconcile-interval", arguments.reconcile_interval)?;
    // Before anything that takes time: a signal is to end that, too.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch for signals")?;
    arguments.theirs.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    let config = match &arguments.config_file {
        None => plugin::read("version: v1\n").map_err(|refusal| anyhow::anyhow!("{refusal}"))?,
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))?;
            plugin::read(&text).map_err(|refusal| anyhow::anyhow!("{}: {refusal}", path.display()))?
        }
    };
    for warning in &config.warnings {
        tracing::warn!("{}", warning);
    }
    if let Some(strategy) = arguments.mig_strategy.as_deref().filter(|strategy| *strategy != "none") {
        bail!("--mig-strategy {strategy}: cumux shares whole cards and serves no MIG devices; write none");
    }
    let policy = match arguments.shared_devices_allocation_policy {
        Some(PolicyWord::Distributed) => Policy::Distributed,
        Some(PolicyWord::Packed) => Policy::Packed,
        None => config.flags.policy.unwrap_or_default(),
    };
    let Some(folder) = arguments.kubelet_socket.parent().map(Path::to_owned) else { bail!("--kubelet-socket / is no socket") };
    if arguments.check {
        say::text(&offered(&config))?;
        return Ok(0);
    }
    let library = library_folder(arguments.library, arguments.no_library)?;
    let daemon = Node::of(pipes(&arguments.pipe), RESTART);
    let fail = arguments.fail_on_init_error.or(config.flags.fail_on_init_error).unwrap_or(true);
    let patience = Instant::now() + MISSING_DAEMON;
    let cards = loop {
        // A card whose daemon comes later would not be offered: what a node has is counted once.
        match daemon.every_card() {
            Ok(cards) => break cards,
            Err(missing) if fail => return Err(missing.error.into()),
            Err(missing) if Instant::now() > patience && !missing.cards.is_empty() => {
                tracing::warn!("{missing}. The node offers its other cards; start the plugin again when that daemon is there");
                break missing.cards;
            }
            Err(missing) => tracing::warn!("{missing}. It is tried again"),
        }
        if signals.pending().next().is_some() {
            return Ok(0);
        }
        std::thread::sleep(AGAIN);
    };
    let resources = resources(&config, &cards)?;
    let rules = Rules { fail_above_one: config.fail_above_one, grace: Duration::from_secs(arguments.grace), library };
    let ledger = Arc::new(Ledger::open(rules, resources, Box::new(daemon), Checkpoint::at(arguments.state))?);
    let options = Options { folder, kubelet: arguments.kubelet_socket, pods: Some(arguments.pod_resources), policy, health, reconcile: Some(reconcile) };
    let plugin = Plugin::start(options, ledger).context("cannot start")?;
    // HUP reads the configuration again: the supervisor starts us anew, and groups stay.
    let _ = signals.forever().next();
    plugin.stop();
    Ok(0)
}

// Slurm -------------------------------------------------------------------------------------------

/// The command line of `cumux slurm`.
#[derive(Subcommand, Debug)]
pub enum SlurmCommand {
    /// Prolog of slurm.conf: makes the job's group; on failure drains the node with the reason
    Prolog(SlurmArguments),
    /// Epilog of slurm.conf: removes the job's group and ends its processes on the card
    Epilog(SlurmArguments),
    /// TaskProlog of slurm.conf: prints the variables by which a task finds its group
    TaskProlog(SlurmArguments),
    /// Prints gres.conf for the daemon's cards
    Gres {
        #[command(flatten)]
        arguments: SlurmArguments,
        /// So many mps of each card
        #[arg(long, value_name = "COUNT", conflicts_with = "shard")]
        mps: Option<u32>,
        /// So many shards of each card
        #[arg(long, value_name = "COUNT")]
        shard: Option<u32>,
    },
}

/// Options of all hooks.
#[derive(Args, Debug)]
pub struct SlurmArguments {
    /// The daemon's pipe directory; several times for several daemons
    #[arg(long, value_name = "DIR")]
    pipe: Vec<PathBuf>,
    /// The folder with libcuda.so.1 that tasks get; by default this program's own
    #[arg(long, value_name = "DIR")]
    library: Option<PathBuf>,
    /// Tasks get no library: they have it
    #[arg(long)]
    no_library: bool,
    /// A part of a card limits multiprocessors alone, not memory
    #[arg(long)]
    no_memory_limit: bool,
    /// The job's control group below /sys/fs/cgroup, %j for its number and %u for its user: only
    /// processes in it use the group; auto: the one that Slurm makes with cgroup/v2
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Where --cgroup auto looks for Slurm's control groups
    #[arg(long, default_value = scope::MOUNT, value_name = "DIR")]
    cgroup_root: PathBuf,
    /// Most processes of a job at a time
    #[arg(long, value_name = "COUNT")]
    clients: Option<u32>,
    /// Slurm's scontrol; hooks have no search path
    #[arg(long, default_value = "/usr/bin/scontrol", value_name = "FILE")]
    scontrol: PathBuf,
    /// Seconds to wait for a daemon that is being started again
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    wait: u64,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl SlurmArguments {
    fn daemon(&self) -> Node {
        Node::of(pipes(&self.pipe), Duration::from_secs(self.wait))
    }

    /// The pattern of a job's control group.
    fn cgroup(&self) -> anyhow::Result<Option<String>> {
        match self.cgroup.as_deref() {
            Some(scope::AUTO) => Ok(Some(scope::find(&self.cgroup_root, variable("SLURMD_NODENAME").as_deref())?)),
            named => Ok(named.map(str::to_owned)),
        }
    }

    fn scontrol(&self, words: &[&str]) -> Option<String> {
        let output = Command::new(&self.scontrol).args(words).stdin(std::process::Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The shards of the job that this hook is for. Slurm tells a prolog of `mps`, not of `shard`.
    fn shards(&self) -> Option<(u32, u32)> {
        if variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").is_some() || (variable("SLURM_JOB_GPUS").is_none() && variable("CUDA_VISIBLE_DEVICES").is_none()) {
            return None;
        }
        let node = variable("SLURMD_NODENAME")?;
        let job = self.scontrol(&["show", "job", "-d", &variable("SLURM_JOB_ID")?])?;
        slurm::shards(&job, &self.scontrol(&["show", "node", &node])?)
    }

    /// Drains this node, so that no further job fails on it.
    fn drain(&self, error: &anyhow::Error) {
        let Some(node) = variable("SLURMD_NODENAME") else { return };
        let (name, reason) = (format!("NodeName={node}"), format!("Reason={}", slurm::reason(&format!("{error:#}"))));
        if self.scontrol(&["update", &name, "State=DRAIN", &reason]).is_none() {
            say::complain(format_args!("cumux: {} could not drain {node}; Slurm does it, because this hook fails", self.scontrol.display()));
        }
    }
}

/// Runs a hook and returns the exit status.
pub fn slurm(command: &SlurmCommand) -> anyhow::Result<u8> {
    match command {
        SlurmCommand::Prolog(arguments) => prolog(arguments).inspect_err(|error| arguments.drain(error)),
        SlurmCommand::Epilog(arguments) => epilog(arguments).inspect_err(|error| arguments.drain(error)),
        SlurmCommand::TaskProlog(arguments) => {
            let library = library_folder(arguments.library.clone(), arguments.no_library)?;
            let mut text = slurm::task_prolog(variable, &pipes(&arguments.pipe), library.as_deref())?;
            // Where the job has a group, and says so here, not by a program's error.
            if let Some(pattern) = arguments.cgroup()?.filter(|_| text.contains("export ")) {
                let own = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
                text.insert_str(0, &slurm::misplaced(variable, &pattern, &own)?.unwrap_or_default());
            }
            say::text(&text)?;
            Ok(0)
        }
        SlurmCommand::Gres { arguments, mps, shard } => {
            let counting = match (mps, shard) {
                (_, Some(each)) => Counting::Shard(*each),
                (each, None) => Counting::Mps(each.unwrap_or(100)),
            };
            say::text(&slurm::gres(&arguments.daemon().cards()?, counting)?)?;
            Ok(0)
        }
    }
}

fn prolog(arguments: &SlurmArguments) -> anyhow::Result<u8> {
    let Some(job) = Job::from_environment(variable, arguments.shards())? else { return Ok(0) };
    let rules = slurm::Rules { limit_memory: !arguments.no_memory_limit, cgroup: arguments.cgroup()?, clients: arguments.clients };
    slurm::prolog(&job, &rules, &arguments.daemon())?;
    Ok(0)
}

fn epilog(arguments: &SlurmArguments) -> anyhow::Result<u8> {
    let text = variable("SLURM_JOB_ID").context("SLURM_JOB_ID is not set: this is called by slurmd, as Epilog in slurm.conf")?;
    let job = text.trim().parse().with_context(|| format!("SLURM_JOB_ID={text} is no number"))?;
    slurm::epilog(job, &arguments.daemon())?;
    Ok(0)
}

// DRA ---------------------------------------------------------------------------------------------

/// The command line of `cumux dra`.
#[derive(Args, Debug)]
pub struct DraArguments {
    /// The node's name in the cluster
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Kubelet's folder for plugin registrations
    #[arg(long, default_value = "/var/lib/kubelet/plugins_registry", value_name = "DIR")]
    registry: PathBuf,
    /// The driver's own folder, which kubelet reaches under the same path
    #[arg(long, default_value = "/var/lib/kubelet/plugins/gpu.cumux.dev", value_name = "DIR")]
    plugin: PathBuf,
    /// The folder of CDI files that the container runtime reads
    #[arg(long, default_value = "/var/run/cdi", value_name = "DIR")]
    cdi: PathBuf,
    /// The daemon's pipe directory, a path of the node; several times for several daemons
    #[arg(long, value_name = "DIR")]
    pipe: Vec<PathBuf>,
    /// Remembers prepared claims across restarts
    #[arg(long, default_value = "/var/lib/cumux/dra.json", value_name = "FILE")]
    state: PathBuf,
    /// The folder of the node with libcuda.so.1 that containers get; by default this program's own
    #[arg(long, value_name = "DIR")]
    library: Option<PathBuf>,
    /// Containers get no library: their images have it
    #[arg(long)]
    no_library: bool,
    /// The API server, https://host:port; by default that of the cluster in which this pod runs
    #[arg(long, value_name = "URL")]
    api_server: Option<String>,
    /// The file with the token for --api-server
    #[arg(long, value_name = "FILE", requires = "api_server")]
    token_file: Option<PathBuf>,
    /// The file with the certificates of --api-server
    #[arg(long, value_name = "FILE", requires = "api_server")]
    ca_file: Option<PathBuf>,
    /// Seconds between two looks at the cards
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    interval: f64,
}

/// Runs the driver until a signal ends it, and returns the exit status.
pub fn dra(arguments: DraArguments) -> anyhow::Result<u8> {
    log();
    let interval = seconds("--interval", arguments.interval)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch for signals")?;
    let api = match &arguments.api_server {
        Some(server) => Api::at(server, arguments.token_file, arguments.ca_file.as_deref())?,
        None => Api::of_pod(variable)?,
    };
    let library = library_folder(arguments.library, arguments.no_library)?;
    let daemon = Node::of(pipes(&arguments.pipe), RESTART);
    let driver = Arc::new(Driver::open(Box::new(daemon), api, arguments.cdi, library, Checkpoint::at(arguments.state))?);
    let options = dra::Options { node: arguments.node_name, registry: arguments.registry, plugin: arguments.plugin, interval };
    let running = dra::Running::start(options, driver).context("cannot listen for kubelet")?;
    let _ = signals.forever().next();
    running.stop();
    Ok(0)
}
