//! The processes of a story: this test program, started again under another name. Servers and
//! keepers are the real ones, executors are pretended.

pub mod executor;
pub mod world;

use cumux_link::pulse::Motion;
use cumux_link::{Connection, Process};
use cumux_server::host::{Fate, Host, Role, System};
use cumux_server::{Limits, Options, run_on};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PART: &str = "CUMUX_STORY_PART";
const SOCKET: &str = "CUMUX_STORY_SOCKET";
const FOLDER: &str = "CUMUX_STORY_FOLDER";
/// The file in it that lets executors speak which serve nobody.
const SPEAK: &str = "speak";
/// The executor that serves was told to spare the driver, and to spare it no more.
const SPARED: &str = "spared";
const SPARED_NO_MORE: &str = "spared-no-more";
/// One that stands by was told to begin nothing, and to go on.
pub const RESTS: &str = "rests";
pub const RESTS_NO_MORE: &str = "rests-no-more";
/// Nobody knew why the executor before this generation had ended.
const UNEXPLAINED: &str = "unexplained-";
/// The file in it that has the executor that serves say that its device looks at a fault.
const NOTICE: &str = "notice";
/// The file in it that has the executor that serves lose its device.
const LOSE: &str = "lose";
/// The file in it that has an executor that was left to one of two clients name both once more.
const NAME_AGAIN: &str = "name-again";
/// How executors misbehave, and which limits are small.
pub const MODE: &str = "CUMUX_STORY_MODE";

/// This program again, as `part`. The socket among the arguments is how a server knows its own
/// processes.
fn again(part: &str, socket: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["part", "--exact", "--nocapture"]).arg(socket).env(PART, part).env(SOCKET, socket);
    command
}

/// Plays the part that the environment names, if any, and never returns then.
pub fn play() {
    let Ok(part) = std::env::var(PART) else { return };
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    let outcome = match part.as_str() {
        "keeper" => cumux_keeper::run(&socket).map_err(|error| error.to_string()),
        "executor" => executor::play(&socket),
        _ => serve(),
    };
    if let Err(error) = outcome {
        eprintln!("{part}: {error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

fn serve() -> Result<(), String> {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let mode = std::env::var(MODE).unwrap_or_default();
    let options = Options { pipe: folder.clone(), log: Some(folder), devices: vec!["sim:h200".into()], uid: 7 };
    let mut limits = Limits { metrics: Duration::from_millis(200), heartbeat: None, ..Limits::default() };
    match mode.as_str() {
        "crowded" => limits.clients = 2,
        "lonely" => limits.lonely = Duration::from_millis(20),
        "dies" | "dies again" | "accuses" => limits.storm_time = Duration::from_secs(600),
        "impatient" => limits.terminate = Duration::from_millis(50),
        "fourth is slow" | "second is slow" => limits.calm = Duration::from_secs(600),
        "second is slow, calm is short" => limits.calm = Duration::from_millis(20),
        "queues fall" => limits.prepares = Duration::ZERO,
        "queues fall, nobody is prepared" => limits.prepares = Duration::from_secs(600),
        "watched" | "stuck" => limits.heartbeat = Some(Duration::from_millis(300)),
        _ => {}
    }
    let socket = options.socket();
    let system = System::starting(socket.clone(), move |role| match role {
        Role::Keeper => again("keeper", &socket),
        Role::Executor | Role::Own { .. } => again("executor", &socket),
    });
    run_on(options, limits, StoryHost(system), |_| Ok(())).map_err(|error| error.to_string())
}

/// The real system, except that clients' sockets are made by the story and not by the clients.
#[derive(Clone)]
struct StoryHost(System);

impl Host for StoryHost {
    fn start(&self, role: Role) -> std::io::Result<u32> {
        self.0.start(role)
    }
    fn use_program(&self, program: &std::path::Path) -> std::path::PathBuf {
        self.0.use_program(program)
    }
    fn open(&self, pid: u32) -> rustix::io::Result<Process> {
        self.0.open(pid)
    }
    fn kill(&self, pid: u32, process: &Process) {
        self.0.kill(pid, process);
    }
    fn motion(&self, pid: u32) -> Motion {
        self.0.motion(pid)
    }
    fn stop(&self, process: &Process) {
        self.0.stop(process);
    }
    fn set_going(&self, process: &Process) {
        self.0.set_going(process);
    }
    fn reap(&self, pid: u32) -> Option<String> {
        self.0.reap(pid)
    }
    fn fate(&self, pid: u32) -> Option<Fate> {
        self.0.fate(pid)
    }
    fn admits(&self, connection: &Connection) -> bool {
        self.0.admits(connection)
    }
    fn vouches(&self, _: &Connection, _: u32) -> bool {
        true
    }
    fn is_ours(&self, pid: u32) -> bool {
        self.0.is_ours(pid)
    }
    fn is_current(&self, pid: u32) -> bool {
        self.0.is_current(pid)
    }
}
