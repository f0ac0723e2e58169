//! The ways in which the lab's programs share the card, each with its daemon. A daemon that was
//! started here ends with its value; no setting of the card is changed.

use super::card;
use crate::device::{self, DeviceName};
use crate::library;
use crate::private::PrivateDaemon;
use crate::record::LAB_VARIABLE;
use crate::visible;
use anyhow::{Context as _, bail};
use cumux_control::directory::{LOG_VARIABLE, PIPE_VARIABLE};
use cumux_control::settings::VISIBLE_VARIABLE;
use cumux_lab::report::{Mig, MigInstance, NO_MIG};
use cumux_link::Process;
use cumux_wire::message::ServerStatus;
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The percentage that MPS clients read.
const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// A pipe directory that nobody has: it keeps both NVIDIA's MPS and cumux away.
const NOWHERE: &str = "/nowhere/cumux-lab";
/// How long NVIDIA's daemon and its server may take to end after `quit -t 2`.
const MPS_END: Duration = Duration::from_secs(20);
/// How long the memory of a crowd is asked for until all of it is known, and how often.
const LONGEST_COUNT: Duration = Duration::from_secs(1);
const BETWEEN_COUNTS: Duration = Duration::from_millis(20);
/// The longest directory for its folder: paths of sockets have at most 107 characters.
const LONGEST_PLACE: usize = 40;
/// Where NVIDIA's daemon leaves its process number, in its pipe directory.
const MPS_PID: &str = "nvidia-cuda-mps-control.pid";

/// NVIDIA's MPS in directories of its own.
pub struct Mps {
    control: PathBuf,
    folder: TempDir,
}

impl Mps {
    /// Starts the daemon for one card, which its clients then see as their only one.
    fn start(control: PathBuf, card: &str) -> anyhow::Result<Self> {
        let make = |place: PathBuf| tempfile::Builder::new().prefix("cumux-mps-").tempdir_in(place);
        let usual = Some(std::env::temp_dir()).filter(|usual| usual.as_os_str().len() <= LONGEST_PLACE);
        let folder = make(usual.unwrap_or_else(|| PathBuf::from("/tmp"))).context("cannot make a folder for NVIDIA's MPS")?;
        let mps = Self { control, folder };
        // Into a file: the daemon goes into the background and may keep what it was given.
        let said = mps.folder.path().join("start.txt");
        let file = File::create(&said).context("cannot write into the folder of NVIDIA's MPS")?;
        let twice = file.try_clone().context("cannot write into the folder of NVIDIA's MPS")?;
        let mut command = mps.command();
        command.arg("-d").env(VISIBLE_VARIABLE, card).stdin(Stdio::null()).stdout(file).stderr(twice);
        let status = command.status().context("cannot start NVIDIA's MPS")?;
        if !status.success() {
            bail!("NVIDIA's MPS does not start ({status}): {}", fs::read_to_string(said).unwrap_or_default().trim());
        }
        Ok(mps)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.control);
        command.env(PIPE_VARIABLE, self.folder.path()).env(LOG_VARIABLE, self.folder.path());
        command
    }

    /// Gives the daemon a command. Its answer; nothing where there is no daemon.
    fn ask(&self, words: &str) -> String {
        let child = self.command().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let answer = child.and_then(|mut child| {
            let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(words.as_bytes()));
            if told.is_err() || !Process::open(child.id()).is_ok_and(|process| process.ended(Some(MPS_END))) {
                child.kill()?;
            }
            child.wait_with_output()
        });
        answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
    }
}

impl Drop for Mps {
    /// The next part is to have the card without a server of MPS on it.
    fn drop(&mut self) {
        let daemon = fs::read_to_string(self.folder.path().join(MPS_PID)).unwrap_or_default();
        let servers = self.ask("get_server_list\n");
        let numbers = daemon.split_whitespace().chain(servers.split_whitespace()).filter_map(|word| word.parse::<u32>().ok());
        // Opened before they end: their numbers may be others' afterwards.
        let processes: Vec<Process> = numbers.filter(|number| is_of_mps(*number)).filter_map(|number| Process::open(number).ok()).collect();
        self.ask("quit -t 2\n");
        for process in processes {
            if !process.ended(Some(MPS_END)) {
                let _ = process.signal(Signal::KILL);
            }
        }
    }
}

/// Whether this process is one of NVIDIA's MPS.
fn is_of_mps(number: u32) -> bool {
    fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.starts_with("nvidia-cuda-mps"))
}

/// The real card of a lab that is about one.
fn driver_name(devices: &[DeviceName]) -> Option<String> {
    devices.iter().find_map(|device| match device {
        DeviceName::Cuda(ordinal) => Some(card::name_for_driver(*ordinal)),
        _ => None,
    })
}

/// A way that is ready.
pub enum Way {
    /// Without a daemon: the driver takes turns on the card of this name.
    Native(String),
    /// Through NVIDIA's MPS; each program with a part of the multiprocessors, if one is said.
    Mps(Mps, MultiprocessorSplit),
    /// Each program on a MIG instance of its own, by their names. The lab has made none of them.
    Instances(Vec<String>),
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

impl MultiprocessorSplit {
    /// The percentage of one of so many programs; `None` for all.
    fn part(self, clients: u32) -> Option<String> {
        (self == Self::Equal && clients > 1).then(|| format!("{:.1}", 100.0 / f64::from(clients)))
    }
}

/// Finds out how much memory of the card programs take, with what their way takes.
pub struct MemoryMeter {
    /// The card in the driver's words, and what was in use before; `None` on a software GPU.
    card: Option<(String, f64)>,
}

impl MemoryMeter {
    /// Before the way is opened.
    pub fn begin(devices: &[DeviceName]) -> Self {
        let card = driver_name(devices).and_then(|name| card::memory_in_use(&name).map(|before| (name, before)));
        Self { card }
    }

    /// MiB that so many programs and their way have in use now. On a software GPU, what the
    /// programs have asked for: it has no contexts.
    pub fn in_use(&self, way: &Way, clients: u32) -> Option<f64> {
        match (&self.card, way) {
            (Some((name, before)), _) => card::memory_in_use(name).map(|now| (now - before).max(0.0)),
            (None, Way::Cumux(daemon, _)) => {
                // A program that moves to an executor of its own is not counted meanwhile.
                let until = Instant::now() + LONGEST_COUNT;
                loop {
                    let found = memory_of_clients(daemon).filter(|(counted, _)| *counted >= clients);
                    if found.is_some() || Instant::now() > until {
                        return found.map(|(_, bytes)| bytes as f64 / (1 << 20) as f64);
                    }
                    std::thread::sleep(BETWEEN_COUNTS);
                }
            }
            (None, _) => None,
        }
    }
}

/// How many clients of a daemon have memory, and how much together.
fn memory_of_clients(daemon: &PrivateDaemon) -> Option<(u32, u64)> {
    let servers: Vec<ServerStatus> = serde_json::from_str(&daemon.ask("status --json").ok()?).ok()?;
    let with_memory = servers.iter().flat_map(|server| &server.clients).map(|client| client.memory).filter(|memory| *memory > 0);
    Some(with_memory.fold((0, 0), |(count, sum), memory| (count + 1, sum + memory)))
}

/// The ways of this machine: the mode's name and, where it cannot be used, why. `mig` is what the
/// card offers.
pub fn offered(devices: &[DeviceName], mig: &Mig) -> Vec<(&'static str, Result<(), String>)> {
    let no_mig = || Err("the card has no MIG".to_owned());
    if is_software(devices) {
        return vec![
            ("cumux", Ok(())),
            ("time_sliced", Ok(())),
            ("mig", if mig.mode == NO_MIG { no_mig() } else { Ok(()) }),
            ("mps", Err("a software GPU is served by cumux alone: NVIDIA's MPS needs NVIDIA's driver and a card".to_owned())),
        ];
    }
    let mps = card::mps_control().map(drop);
    let mig = match mig.instances.is_empty() {
        false => Ok(()),
        true if mig.mode == NO_MIG => no_mig(),
        true => Err("the card has no MIG instances, and the lab changes no card: they are predicted. To measure them, make some with \
                     artifacts/mig/apply-mig.sh and run the lab once more"
            .to_owned()),
    };
    vec![("time_sliced", Ok(())), ("mps", mps.clone()), ("mps_parts", mps), ("cumux", Ok(())), ("cumux_parts", Ok(())), ("mig", mig)]
}

pub fn is_software(devices: &[DeviceName]) -> bool {
    devices.iter().all(|device| matches!(device, DeviceName::Sim(_)))
}

impl Way {
    /// Starts what a mode needs.
    pub fn open(mode: &str, devices: &[DeviceName], instances: &[MigInstance]) -> anyhow::Result<Self> {
        let software = is_software(devices);
        let mps = |split| match card::mps_control() {
            Ok(control) => Ok(Way::Mps(Mps::start(control, &driver_name(devices).unwrap_or_default())?, split)),
            Err(why) => bail!("{why}"),
        };
        match mode {
            "cumux" => Ok(Way::Cumux(PrivateDaemon::start(devices)?, MultiprocessorSplit::Shared)),
            // On a software GPU turns are those of executors, one for each program.
            "time_sliced" if software => {
                let daemon = PrivateDaemon::start(devices)?;
                daemon.ask("set_default_isolation own").context("the daemon gives no program an executor of its own")?;
                Ok(Way::Cumux(daemon, MultiprocessorSplit::Shared))
            }
            "mig" if software => Ok(Way::Cumux(PrivateDaemon::start(devices)?, MultiprocessorSplit::Equal)),
            "cumux_parts" => Ok(Way::Cumux(PrivateDaemon::start(devices)?, MultiprocessorSplit::Equal)),
            "mig" if !instances.is_empty() => Ok(Way::Instances(instances.iter().map(|instance| instance.uuid.clone()).collect())),
            "time_sliced" => Ok(Way::Native(driver_name(devices).unwrap_or_default())),
            "mps" => mps(MultiprocessorSplit::Shared),
            "mps_parts" => mps(MultiprocessorSplit::Equal),
            other => bail!("{} has no way {other}", device::list(devices)),
        }
    }

    /// Most programs at a time, if there is a bound.
    pub fn most(&self) -> Option<u32> {
        match self {
            Way::Instances(names) => u32::try_from(names.len()).ok(),
            _ => None,
        }
    }

    /// Program number `number` of `clients` that share the card in this way.
    pub fn command(&self, program: &[OsString], (number, clients): (u32, u32), libraries: &Path, software: bool) -> anyhow::Result<Command> {
        let (name, arguments) = program.split_first().context("no program")?;
        let mut command = Command::new(name);
        command.args(arguments).env_remove(PERCENTAGE).env(LAB_VARIABLE, "1");
        match self {
            Way::Native(card) => command.env(PIPE_VARIABLE, NOWHERE).env(VISIBLE_VARIABLE, card),
            Way::Instances(names) => {
                let name = names.get(number as usize).context("there are fewer MIG instances than programs")?;
                command.env(PIPE_VARIABLE, NOWHERE).env(VISIBLE_VARIABLE, name)
            }
            // Daemons have chosen the card already: a client that chose once more would find none.
            Way::Mps(mps, split) => {
                if let Some(part) = split.part(clients) {
                    command.env(PERCENTAGE, part);
                }
                command.env(PIPE_VARIABLE, mps.folder.path()).env(LOG_VARIABLE, mps.folder.path()).env_remove(VISIBLE_VARIABLE)
            }
            Way::Cumux(daemon, parts) => {
                if !software {
                    command.env_remove(VISIBLE_VARIABLE);
                }
                command.env(PIPE_VARIABLE, daemon.pipe()).env(library::VARIABLE, library::path_with(libraries));
                if !software {
                    visible::name_served_cards(&mut command, daemon.pipe(), &[]);
                }
                library::lead_to_compilers(&mut command, libraries, software);
                if let Some(part) = parts.part(clients) {
                    command.env(PERCENTAGE, part);
                }
                &mut command
            }
        };
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn variable_of(way: &Way, place: (u32, u32), name: &str) -> Option<String> {
        let command = way.command(&["true".into()], place, Path::new("/lib"), false).expect("a command");
        let (_, value) = command.get_envs().find(|(its, _)| *its == name)?;
        value.map(|value| value.to_string_lossy().into_owned())
    }

    fn percentage_of(way: &Way, clients: u32) -> Option<String> {
        variable_of(way, (0, clients), PERCENTAGE)
    }

    #[test]
    fn each_program_has_an_instance_of_its_own() {
        let instances = ["MIG-a", "MIG-b"].map(|uuid| MigInstance { profile: "3g.40gb".into(), uuid: uuid.into() });
        let cards = [DeviceName::Cuda(0)];
        let way = Way::open("mig", &cards, &instances).expect("instances need no daemon");
        assert_eq!([0, 1].map(|number| variable_of(&way, (number, 2), VISIBLE_VARIABLE)), ["MIG-a", "MIG-b"].map(|name| Some(name.to_owned())));
        assert_eq!(way.most(), Some(2));
        assert!(way.command(&["true".into()], (2, 3), Path::new("/lib"), false).is_err());
        let mig = |mode: &str, instances: &[MigInstance]| {
            let mig = Mig { mode: mode.into(), instances: instances.to_vec(), ..Mig::default() };
            offered(&cards, &mig).into_iter().find(|(mode, _)| *mode == "mig").expect("it is named").1
        };
        assert!(mig("on", &instances).is_ok() && mig("off", &[]).is_err_and(|why| why.contains("apply-mig.sh")));
        assert!(mig(NO_MIG, &[]).is_err_and(|why| why == "the card has no MIG"));
    }

    /// A control program whose daemon keeps the output that it was given, and ends when it is told.
    #[test]
    fn nothing_of_mps_is_left_for_the_next_way() {
        let room = tempfile::tempdir().expect("a folder");
        let (control, daemon) = (room.path().join("control"), room.path().join("nvidia-cuda-mps-server"));
        fs::copy("/bin/sleep", &daemon).expect("a program that sleeps");
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = -d ]; then\n  [ \"$CUDA_VISIBLE_DEVICES\" = 5 ] || exit 4\n  {} 600 &\n  echo $! > \"$CUDA_MPS_PIPE_DIRECTORY/server\"\nelse\n  \
             read -r word\n  pid=$(cat \"$CUDA_MPS_PIPE_DIRECTORY/server\")\n  case $word in get_server_list) echo $pid;; 'quit -t 2') kill $pid;; esac\nfi\n",
            daemon.display()
        );
        fs::write(&control, text).expect("a file");
        fs::set_permissions(&control, fs::Permissions::from_mode(0o755)).expect("its rights");
        let why = Mps::start(control.clone(), "0").err().expect("it ends with 4");
        assert!(why.to_string().contains("exit status: 4"), "{why}");
        let mps = Mps::start(control, "5").expect("it starts, and nobody waits for its daemon");
        let number: u32 = fs::read_to_string(mps.folder.path().join("server")).expect("a number").trim().parse().expect("a number");
        let server = Process::open(number).expect("it runs");
        assert!(server.is_alive());
        // The shell's child has its name a moment later.
        let begun = Instant::now();
        while !is_of_mps(number) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is another program");
            std::thread::yield_now();
        }
        let way = Way::Mps(mps, MultiprocessorSplit::Equal);
        assert_eq!(percentage_of(&way, 4).as_deref(), Some("25.0"));
        assert_eq!(percentage_of(&way, 1), None, "one alone has all of them");
        drop(way);
        assert!(!server.is_alive(), "it has ended before the next way begins");
    }
}
