//! A CUDA program that runs on a node.

use crate::files;
use crate::node::{Node, SOFTWARE};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

impl Node {
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

    /// So many programs that work all the time for this many rounds and check their results, each
    /// past its first round: one half does always the same, the other half a bit of everything.
    #[must_use]
    pub fn workers(&self, rounds: u32, count: u32) -> Vec<Client<'_>> {
        let name = |seed: u32| if seed.is_multiple_of(2) { "busy" } else { "mixed" };
        let start = |seed: u32| self.test_client(name(seed)).args(&[&rounds.to_string(), &seed.to_string()]).start();
        let clients: Vec<Client<'_>> = (0..count).map(start).collect();
        clients.iter().for_each(|client| client.wait_for_line("ready"));
        clients
    }

    /// What such programs print when nothing happens beside them.
    #[must_use]
    pub fn workers_alone(rounds: u32, count: u32) -> Vec<String> {
        Self::with().device(SOFTWARE).start().workers(rounds, count).into_iter().map(Client::expect_ok).collect()
    }

    /// Any program as a client, not yet started.
    #[must_use]
    pub fn program(&self, path: &Path) -> ClientBuilder<'_> {
        ClientBuilder::new(self, path.to_owned())
    }
}

/// A program before it is started.
#[derive(Debug)]
pub struct ClientBuilder<'a> {
    node: &'a Node,
    command: Command,
    name: String,
}

impl<'a> ClientBuilder<'a> {
    fn new(node: &'a Node, program: PathBuf) -> Self {
        let mut command = Command::new(&program);
        command.env("CUDA_MPS_PIPE_DIRECTORY", node.pipe()).env("LD_LIBRARY_PATH", node.folder().join("lib"));
        Self { node, command, name: program.file_name().unwrap_or_default().to_string_lossy().into_owned() }
    }

    /// Adds command-line arguments.
    #[must_use]
    pub fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable for the program.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it as another user; only root can.
    #[must_use]
    pub fn user(mut self, uid: u32) -> Self {
        self.command.uid(uid).gid(uid);
        self
    }

    /// Starts the program.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn start(mut self) -> Client<'a> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let said = Arc::new(Said::default());
        let readers = vec![
            read_into(child.stdout.take().expect("a piped output"), &said, |lines| &mut lines.out),
            read_into(child.stderr.take().expect("a piped output"), &said, |lines| &mut lines.err),
        ];
        Client { node: self.node, name: self.name, child: Some(child), said, readers }
    }
}

#[derive(Debug, Default)]
struct Said {
    lines: Mutex<Lines>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    out: Vec<String>,
    err: Vec<String>,
    /// Streams (standard output and error) that have ended.
    ended: u32,
}

fn read_into(stream: impl Read + Send + 'static, said: &Arc<Said>, which: fn(&mut Lines) -> &mut Vec<String>) -> JoinHandle<()> {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            which(&mut said.lines.lock().expect("no panic in here")).push(line);
            said.more.notify_all();
        }
        said.lines.lock().expect("no panic in here").ended += 1;
        said.more.notify_all();
    })
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Client<'a> {
    node: &'a Node,
    name: String,
    child: Option<Child>,
    said: Arc<Said>,
    readers: Vec<JoinHandle<()>>,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Client<'_> {
    fn child(&self) -> &Child {
        self.child.as_ref().expect("not waited for yet")
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Waits until the program has printed exactly this line.
    ///
    /// # Panics
    /// The program ends without it.
    pub fn wait_for_line(&self, line: &str) {
        let mut lines = self.said.lines.lock().expect("no panic in here");
        while !lines.out.iter().any(|said| said == line) {
            assert!(lines.ended < 2, "{} ended without the line \"{line}\": {lines:?}\n{}", self.name, self.node.logs());
            // With a timeout, so that a lost wake-up cannot hang a test; the watchdog is the limit.
            lines = self.said.more.wait_timeout(lines, Duration::from_millis(200)).expect("no panic in here").0;
        }
    }

    /// Writes a line to the program's standard input.
    ///
    /// # Panics
    /// The program does not read any more.
    pub fn tell(&mut self, line: &str) {
        let child = self.child.as_mut().expect("not waited for yet");
        let stdin = child.stdin.as_mut().expect("a piped input");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// As [`Client::tell`]; returns false when the program does not read any more.
    pub fn try_tell(&mut self, line: &str) -> bool {
        let stdin = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        stdin.is_some_and(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()).is_ok())
    }

    /// Ends its standard input.
    pub fn close_input(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
        }
    }

    /// The lines that the program has printed so far.
    ///
    /// # Panics
    /// A reader has panicked.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        self.said.lines.lock().expect("no panic in here").out.clone()
    }

    /// How the program ended, once it has; only the first such call returns it.
    ///
    /// # Panics
    /// The system loses the process.
    pub fn try_wait(&mut self) -> Option<Outcome> {
        let status = self.child.as_mut()?.try_wait().expect("our child")?;
        self.child = None;
        Some(self.outcome(status))
    }

    /// Kills the program with SIGKILL and waits for its end.
    ///
    /// # Panics
    /// It has ended before.
    pub fn kill(mut self) {
        let mut child = self.child.take().expect("not waited for yet");
        assert!(child.try_wait().expect("our child").is_none(), "{} has ended before it could be killed: {:?}", self.name, self.said);
        child.kill().expect("our child");
        let status = child.wait().expect("our child");
        assert_eq!(status.signal(), Some(9), "{}: {status}", self.name);
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// The system loses the process.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        let mut child = self.child.take().expect("not waited for yet");
        drop(child.stdin.take());
        let status = child.wait().expect("our child");
        self.outcome(status)
    }

    /// Collects the complete output of a program that has ended.
    fn outcome(&mut self, status: ExitStatus) -> Outcome {
        for reader in self.readers.drain(..) {
            reader.join().expect("no panic in here");
        }
        let lines = self.said.lines.lock().expect("no panic in here");
        Outcome { status, out: lines.out.join("\n"), err: lines.err.join("\n") }
    }

    /// Waits for the program's end, which must be a success, and returns what it printed.
    ///
    /// # Panics
    /// It was no success.
    pub fn expect_ok(self) -> String {
        let (name, node) = (self.name.clone(), self.node);
        let outcome = self.wait();
        assert!(outcome.status.success(), "{name}: {}\n{}\n{}\n{:#?}\n{}", outcome.status, outcome.out, outcome.err, node.servers(), node.logs());
        outcome.out
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
