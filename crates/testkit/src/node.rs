//! A machine's worth of service: one daemon and what it starts.

use crate::files;
use crate::processes::{belongs, end_processes_of, is_alive, kill_quietly, processes_of};
use crate::watchdog::{Watchdog, logs};
use cumux_link::Process;
use cumux_link::pulse::{self, Motion};
use cumux_wire::message::{ClientStatus, ServerStatus};
use rustix::process::Signal;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Limit of every wait in a test: a longer one hangs. Long, because CI machines are slow and busy.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// Time between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The software H200, and one that breaks like a card.
pub(crate) const SOFTWARE: &str = "sim:h200";
const CARD: &str = "sim:h200:card";

/// The devices on which a story is told: both kinds of software GPU, or the device that
/// `CUMUX_TEST_DEVICE` names.
#[must_use]
pub fn devices() -> Vec<String> {
    std::env::var("CUMUX_TEST_DEVICE").map_or_else(|_| vec![SOFTWARE.into(), CARD.into()], |device| vec![device])
}

/// The card's name as programs see it, and about how much memory it has, in MiB: the software
/// H200's, or what `CUMUX_TEST_CARD` says (`NAME, MIB`, as nvidia-smi prints it, which counts a
/// little more than programs get).
#[must_use]
pub fn card() -> (String, std::ops::RangeInclusive<u64>) {
    let Ok(card) = std::env::var("CUMUX_TEST_CARD") else { return ("NVIDIA H200".into(), 143_155..=143_155) };
    let (name, memory) = card.rsplit_once(", ").expect("CUMUX_TEST_CARD is NAME, MIB");
    let memory: u64 = memory.parse().expect("MiB");
    (name.to_owned(), memory - memory / 50..=memory)
}

/// The threads that take in clients' work.
const LANES: &str = "CUMUX_INTAKE_LANES";

/// One for half of the tests, two for the others, always the same for each: large machines have
/// two, and those that run these tests mostly one.
fn lanes_of_test() -> u64 {
    let mut hash = DefaultHasher::new();
    std::thread::current().name().hash(&mut hash);
    1 + hash.finish() % 2
}

/// A private daemon with everything it starts.
#[derive(Debug)]
pub struct Node {
    folder: TempDir,
    device: String,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    _watchdog: Watchdog,
}

/// How a node differs from the usual one.
#[derive(Debug)]
pub struct NodeBuilder {
    device: String,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    /// Variables that name folders in the node's own.
    folders: Vec<(String, String)>,
    patience: Duration,
    prepare: fn(&Path),
    keep: bool,
}

impl NodeBuilder {
    /// The daemon's `--device`.
    #[must_use]
    pub fn device(mut self, name: &str) -> Self {
        name.clone_into(&mut self.device);
        self
    }

    /// An option of the daemon.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// A variable of the daemon and all it starts (not of clients).
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A variable of the daemon and all it starts that names a new folder in the node's own.
    #[must_use]
    pub fn folder_in(mut self, variable: &str, name: &str) -> Self {
        self.folders.push((variable.to_owned(), name.to_owned()));
        self
    }

    /// How long the test may take before the watchdog ends it.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Called with the node's folder before the daemon starts.
    #[must_use]
    pub fn prepare(mut self, prepare: fn(&Path)) -> Self {
        self.prepare = prepare;
        self
    }

    /// The folder outlives the node; the caller removes it.
    #[must_use]
    pub fn keep_folder(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Starts the daemon.
    ///
    /// # Panics
    /// The daemon does not start.
    #[must_use]
    pub fn start(self) -> Node {
        // A short path, because socket paths are limited.
        let mut folder = tempfile::Builder::new().prefix("cx").tempdir_in("/tmp").expect("a temporary folder");
        folder.disable_cleanup(self.keep);
        for name in ["lib", "log"] {
            // Whatever the umask: a log directory that a group may write is refused.
            fs::DirBuilder::new().mode(0o755).create(folder.path().join(name)).expect("a folder in it");
        }
        std::os::unix::fs::symlink(files::library(), folder.path().join("lib/libcuda.so.1")).expect("a link to the library");
        let mut environment = self.environment;
        if self.device.starts_with("sim:") && environment.iter().all(|(name, _)| name != LANES) {
            environment.insert(0, (LANES.to_owned(), lanes_of_test().to_string()));
        }
        for (variable, name) in self.folders {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("a folder in it");
            environment.push((variable, path.to_string_lossy().into_owned()));
        }
        (self.prepare)(folder.path());
        let watchdog = Watchdog::new(self.patience, folder.path());
        let node = Node { folder, device: self.device, options: self.options, environment, _watchdog: watchdog };
        node.start_daemon();
        node
    }
}

impl Node {
    /// A daemon on `sim:h200` without any server yet.
    #[must_use]
    pub fn start() -> Self {
        Self::with().start()
    }

    /// A node that differs from the usual. `CUMUX_TEST_DEVICE` names another device than the
    /// software H200 (`tests/gpu`).
    #[must_use]
    pub fn with() -> NodeBuilder {
        let device = std::env::var("CUMUX_TEST_DEVICE").unwrap_or_else(|_| SOFTWARE.into());
        NodeBuilder { device, options: Vec::new(), environment: Vec::new(), folders: Vec::new(), patience: WAIT_LIMIT, prepare: |_| (), keep: false }
    }

    /// The daemon's `--device`.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Whether the device is a software GPU.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.device.starts_with("sim:")
    }

    /// Whether a fault of one client breaks the device for all, as on real cards and on a software
    /// GPU that breaks like one.
    #[must_use]
    pub fn breaks_at_faults(&self) -> bool {
        !self.is_software() || self.device.ends_with(":card")
    }

    /// Whether the device keeps marks, by which kernels go on in the middle after a takeover.
    /// Devices that break at faults keep none.
    #[must_use]
    pub fn keeps_marks(&self) -> bool {
        !self.breaks_at_faults()
    }

    /// Its folder: pipe directory `pipe`, logs `log`, library `lib`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its pipe directory.
    #[must_use]
    pub fn pipe(&self) -> PathBuf {
        self.folder().join("pipe")
    }

    /// The logs' last lines.
    #[must_use]
    pub fn logs(&self) -> String {
        logs(self.folder())
    }

    /// `cumux` with this node's directories.
    #[must_use]
    pub fn cumux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(files::cumux());
        command.args(arguments).env("CUDA_MPS_PIPE_DIRECTORY", self.pipe()).env("CUDA_MPS_LOG_DIRECTORY", self.folder().join("log"));
        command.env_remove("CUMUX_DEVICE").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    // Daemon --------------------------------------------------------------------------------------

    /// Starts the daemon of this node (again, after it was killed).
    ///
    /// # Panics
    /// It does not become ready.
    pub fn start_daemon(&self) {
        let output = self.daemon_command().output().expect("cumux starts");
        assert!(output.status.success(), "the daemon did not start: {}\n{}", String::from_utf8_lossy(&output.stderr), self.logs());
    }

    /// `cumux control -d` as this node starts it.
    #[must_use]
    pub fn daemon_command(&self) -> Command {
        let mut command = self.cumux(&["control", "-d", "--device", &self.device]);
        command.args(&self.options);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The daemon's process id, as its pid file says.
    ///
    /// # Panics
    /// There is no such file.
    #[must_use]
    pub fn daemon_pid(&self) -> u32 {
        let text = fs::read_to_string(self.pipe().join("nvidia-cuda-mps-control.pid")).expect("the daemon's pid file");
        text.trim().parse().expect("a pid in it")
    }

    /// Sends commands to the front end's standard input, exactly as given. Returns its output and
    /// exit status.
    ///
    /// # Panics
    /// The front end cannot be run.
    #[must_use]
    pub fn control_output(&self, input: &str) -> Output {
        let mut child = self.cumux(&["control"]).stdin(Stdio::piped()).spawn().expect("cumux starts");
        let mut stdin = child.stdin.take().expect("a piped input");
        // A front end that has found no daemon has closed the pipe already.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("cumux ends")
    }

    /// The output of commands that the front end must accept.
    ///
    /// # Panics
    /// The front end fails.
    #[must_use]
    pub fn control(&self, input: &str) -> String {
        let output = self.control_output(input);
        assert!(output.status.success(), "{input}: {}{}\n{}", output.status, String::from_utf8_lossy(&output.stderr), self.logs());
        String::from_utf8(output.stdout).expect("text")
    }

    // State ---------------------------------------------------------------------------------------

    /// Status of all servers; empty while no daemon runs.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        let output = self.control_output("status --json");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The one server, as soon as it is ACTIVE with keeper, executor and standby in place.
    ///
    /// # Panics
    /// It does not come up before the watchdog.
    #[must_use]
    pub fn server(&self) -> ServerStatus {
        self.wait_for("a complete server", |node| {
            node.servers().into_iter().find(|s| s.state == "ACTIVE" && s.executor != 0 && s.keeper != 0 && s.standby != 0)
        })
    }

    /// The server's status of a client, running or gone.
    #[must_use]
    pub fn client_status(&self, pid: u32) -> Option<ClientStatus> {
        self.servers().iter().flat_map(|server| server.clients.iter().chain(&server.gone)).rfind(|client| client.pid == pid).cloned()
    }

    /// Waits until `condition` returns a value. `what` names the condition in the failure.
    ///
    /// # Panics
    /// It returns none before the watchdog's limit.
    pub fn wait_for<T>(&self, what: &str, mut condition: impl FnMut(&Self) -> Option<T>) -> T {
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            assert!(Instant::now() < until, "waited in vain for {what}\n{:#?}\n{}", self.servers(), self.logs());
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Kills a process with SIGKILL and waits until it is gone.
    ///
    /// # Panics
    /// There is no such process.
    pub fn kill(&self, pid: u32) {
        let process = Process::open(pid).unwrap_or_else(|error| panic!("process {pid}: {error}\n{}", self.logs()));
        process.signal(Signal::KILL).expect("our own process");
        assert!(process.ended(Some(WAIT_LIMIT)), "process {pid} does not end");
    }

    /// SIGKILL, if there still is such a process, and waits until it is gone.
    pub fn kill_if_alive(&self, pid: u32) {
        kill_quietly(pid);
    }

    /// SIGSEGV, as if the process had crashed, and waits until it is gone.
    ///
    /// # Panics
    /// There is no such process.
    pub fn crash(&self, pid: u32) {
        let process = Process::open(pid).unwrap_or_else(|error| panic!("process {pid}: {error}\n{}", self.logs()));
        process.signal(Signal::SEGV).expect("our own process");
        assert!(process.ended(Some(WAIT_LIMIT)), "process {pid} does not end");
    }

    /// SIGSTOP, and waits until the process stands still.
    ///
    /// # Panics
    /// There is no such process.
    pub fn stop(&self, pid: u32) {
        self.signal(pid, Signal::STOP);
        self.wait_for("a process to stand still", |_| (pulse::motion(pid) == Motion::Stopped).then_some(()));
    }

    /// SIGCONT.
    ///
    /// # Panics
    /// There is no such process.
    pub fn set_going(&self, pid: u32) {
        self.signal(pid, Signal::CONT);
    }

    fn signal(&self, pid: u32, signal: Signal) {
        let sent = Process::open(pid).and_then(|process| process.signal(signal));
        sent.unwrap_or_else(|error| panic!("process {pid}: {error}\n{}", self.logs()));
    }

    /// Processes that belong to this node (daemon, servers, keepers, executors), by their command
    /// lines.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        processes_of(self.folder())
    }

    /// Whether a process is one of this node.
    #[must_use]
    pub fn owns(&self, pid: u32) -> bool {
        belongs(pid, self.folder()) && is_alive(pid)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        // The daemon first, so that it starts no further process. The pid in its file may be from
        // another PID namespace, and another process's here.
        let told = fs::read_to_string(self.pipe().join("nvidia-cuda-mps-control.pid")).unwrap_or_default().trim().parse::<u32>();
        if let Some(pid) = told.ok().filter(|pid| self.processes().contains(pid)) {
            kill_quietly(pid);
        }
        end_processes_of(self.folder());
    }
}
