//! A machine's worth of service: one daemon and what it starts.

use crate::client::ClientBuilder;
use crate::files;
use crate::watchdog::{Watchdog, logs};
use cumux_link::Process;
use cumux_wire::message::{ClientStatus, ServerStatus};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A test that waits longer hangs. Long, because CI machines are slow and busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at a condition.
const GLANCE: Duration = Duration::from_millis(5);

/// A private daemon with everything it starts.
#[derive(Debug)]
pub struct Node {
    folder: TempDir,
    device: String,
    environment: Vec<(String, String)>,
    _watchdog: Watchdog,
}

/// How a node differs from the usual one.
#[derive(Debug)]
pub struct NodeBuilder {
    device: String,
    environment: Vec<(String, String)>,
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

    /// A variable of the daemon and all it starts (not of clients).
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// How long the test may take.
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

    /// The folder outlives the node; who started it removes it.
    #[must_use]
    pub fn keep_folder(mut self) -> Self {
        self.keep = true;
        self
    }

    /// # Panics
    /// The daemon does not start.
    #[must_use]
    pub fn start(self) -> Node {
        // Short, because socket paths are.
        let mut folder = tempfile::Builder::new().prefix("cx").tempdir_in("/tmp").expect("a temporary folder");
        folder.disable_cleanup(self.keep);
        for name in ["lib", "log"] {
            // Whatever the umask: a log directory that a group may write is refused.
            fs::DirBuilder::new().mode(0o755).create(folder.path().join(name)).expect("a folder in it");
        }
        std::os::unix::fs::symlink(files::library(), folder.path().join("lib/libcuda.so.1")).expect("a link to the library");
        (self.prepare)(folder.path());
        let watchdog = Watchdog::new(self.patience, folder.path());
        let node = Node { folder, device: self.device, environment: self.environment, _watchdog: watchdog };
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

    /// A node that differs from the usual. `CUMUX_TEST_DEVICE` names another device than the software H200 (`tests/gpu`).
    #[must_use]
    pub fn with() -> NodeBuilder {
        let device = std::env::var("CUMUX_TEST_DEVICE").unwrap_or_else(|_| "sim:h200".into());
        NodeBuilder { device, environment: Vec::new(), patience: PATIENCE, prepare: |_| (), keep: false }
    }

    /// The daemon's `--device`.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Whether a fault of one client is its own alone, and what runs can be seen into: not so on a real card.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.device.starts_with("sim:")
    }

    /// Its folder: pipe directory `pipe`, logs `log`, library `lib`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[must_use]
    pub fn pipe(&self) -> PathBuf {
        self.folder().join("pipe")
    }

    /// The logs' last lines.
    #[must_use]
    pub fn logs(&self) -> String {
        logs(self.folder())
    }

    // Programs -------------------------------------------------------------------------------------------------------

    /// A program of `examples/`, not yet started.
    #[must_use]
    pub fn client(&self, example: &str) -> ClientBuilder<'_> {
        ClientBuilder::new(self, files::example(example))
    }

    /// A program of `tests/cu/`, not yet started.
    #[must_use]
    pub fn test_client(&self, name: &str) -> ClientBuilder<'_> {
        ClientBuilder::new(self, files::test_program(name))
    }

    /// Any program as a client, not yet started.
    #[must_use]
    pub fn program(&self, path: &Path) -> ClientBuilder<'_> {
        ClientBuilder::new(self, path.to_owned())
    }

    /// `cumux` with this node's directories.
    #[must_use]
    pub fn cumux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(files::cumux());
        command.args(arguments).env("CUDA_MPS_PIPE_DIRECTORY", self.pipe()).env("CUDA_MPS_LOG_DIRECTORY", self.folder().join("log"));
        command.env_remove("CUMUX_DEVICE").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    // Daemon ---------------------------------------------------------------------------------------------------------

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
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The daemon's process id, as its file says.
    ///
    /// # Panics
    /// There is no such file.
    #[must_use]
    pub fn daemon_pid(&self) -> u32 {
        let text = fs::read_to_string(self.pipe().join("nvidia-cuda-mps-control.pid")).expect("the daemon's pid file");
        text.trim().parse().expect("a pid in it")
    }

    /// Commands on standard input, as they are; what came out and the exit status.
    ///
    /// # Panics
    /// The front end cannot be run.
    #[must_use]
    pub fn control_output(&self, input: &str) -> Output {
        let mut child = self.cumux(&["control"]).stdin(Stdio::piped()).spawn().expect("cumux starts");
        let mut stdin = child.stdin.take().expect("a piped input");
        // A front end that found no daemon has closed it already.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("cumux ends")
    }

    /// What commands print, all accepted by the front end.
    ///
    /// # Panics
    /// The front end fails.
    #[must_use]
    pub fn control(&self, input: &str) -> String {
        let output = self.control_output(input);
        assert!(output.status.success(), "{input}: {}{}\n{}", output.status, String::from_utf8_lossy(&output.stderr), self.logs());
        String::from_utf8(output.stdout).expect("text")
    }

    // What is going on -----------------------------------------------------------------------------------------------

    /// All servers; none while the daemon is away.
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

    /// What the server knows of a client, running or gone.
    #[must_use]
    pub fn client_status(&self, pid: u32) -> Option<ClientStatus> {
        self.servers().iter().flat_map(|server| server.clients.iter().chain(&server.gone)).rfind(|client| client.pid == pid).cloned()
    }

    /// Waits for a condition; `what` it is says the failure.
    ///
    /// # Panics
    /// It does not come true before the watchdog.
    pub fn wait_for<T>(&self, what: &str, mut condition: impl FnMut(&Self) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            assert!(Instant::now() < until, "waited in vain for {what}\n{:#?}\n{}", self.servers(), self.logs());
            std::thread::sleep(GLANCE);
        }
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Panics
    /// There is no such process.
    pub fn kill(&self, pid: u32) {
        let process = Process::open(pid).unwrap_or_else(|error| panic!("process {pid}: {error}\n{}", self.logs()));
        process.signal(Signal::KILL).expect("our own process");
        assert!(process.ended(Some(PATIENCE)), "process {pid} does not end");
    }

    /// Processes that belong to this node (daemon, servers, keepers, executors), by their command lines.
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
        // The daemon first, so that it starts nobody again. Its number may be one of another PID namespace, and somebody else's here.
        let told = fs::read_to_string(self.pipe().join("nvidia-cuda-mps-control.pid")).unwrap_or_default().trim().parse::<u32>();
        if let Some(pid) = told.ok().filter(|pid| self.processes().contains(pid)) {
            kill_quietly(pid);
        }
        end_processes_of(self.folder());
    }
}

/// Kills until nobody is left: a process may have started another just before it died.
pub(crate) fn end_processes_of(folder: &Path) {
    for _ in 0..100 {
        let left = processes_of(folder);
        if left.is_empty() {
            return;
        }
        for pid in left {
            kill_quietly(pid);
        }
    }
}

fn kill_quietly(pid: u32) {
    if let Ok(process) = Process::open(pid) {
        let _ = process.signal(Signal::KILL);
        let _ = process.ended(Some(Duration::from_secs(5)));
    }
}

/// Processes whose command line or environment names the folder.
#[must_use]
pub fn processes_of(folder: &Path) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| *pid != own && belongs(*pid, folder) && is_alive(*pid)).collect()
}

/// Whether a process's command line or environment names the folder.
fn belongs(pid: u32, folder: &Path) -> bool {
    let needle = folder.as_os_str().as_encoded_bytes();
    ["cmdline", "environ"].iter().any(|file| {
        let mut bytes = Vec::new();
        let read = fs::File::open(format!("/proc/{pid}/{file}")).and_then(|mut file| file.read_to_end(&mut bytes));
        read.is_ok() && bytes.windows(needle.len()).any(|window| window == needle)
    })
}

/// A zombie is nobody any more; its parent has only not looked yet.
fn is_alive(pid: u32) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/status")) else { return false };
    BufReader::new(file).lines().map_while(Result::ok).find(|line| line.starts_with("State:")).is_some_and(|line| !line.contains('Z'))
}
