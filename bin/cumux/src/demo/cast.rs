//! Finds or builds the programs of the demo: those built by nvcc, or the prebuilt PTX with a small
//! host program.

use super::CHECK_INTERVAL;
use super::interrupt::Interrupt;
use super::progress::Progress;
use super::role::{Fate, Role};
use crate::library::{self, checkout};
use anyhow::Context as _;
use cumux_link::Process;
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;

pub struct Cast {
    pub roles: Vec<Role>,
    pub note: Option<String>,
}

/// Examples by name, and the arguments that make each take a few seconds among the others.
const ROLES: [(&str, Fate, &[&str]); 10] = [
    ("vector_add", Fate::Innocent, &["24"]),
    ("long_kernel", Fate::Killed, &[]),
    ("matrix_multiply", Fate::Innocent, &["8"]),
    ("reduction", Fate::Innocent, &["24"]),
    ("illegal_access", Fate::Faulty, &[]),
    ("histogram", Fate::Innocent, &["24"]),
    ("nbody", Fate::Innocent, &["30"]),
    ("monte_carlo_pi", Fate::Innocent, &["12"]),
    ("mandelbrot", Fate::Innocent, &["12"]),
    ("scan", Fate::Innocent, &["12"]),
];

/// Kernels of `examples/ptx`, for machines without the compiler.
const PTX_ROLES: [(&str, Fate); 9] = [
    ("vector_add", Fate::Innocent),
    ("long_kernel", Fate::Killed),
    ("matrix_multiply", Fate::Innocent),
    ("reduction", Fate::Innocent),
    ("illegal_access", Fate::Faulty),
    ("histogram", Fate::Innocent),
    ("scan", Fate::Innocent),
    ("generator", Fate::Innocent),
    ("collatz", Fate::Innocent),
];

/// Where the programs are built, below the checkout.
pub const PROGRAMS: &str = ".build/examples";
/// The small host program of the PTX examples.
const PTX_HOST: &str = "ptx_host";

/// Builds what is missing. A program that cannot be built now but was built before is used as it
/// is.
pub fn prepare(progress: &mut Progress, interrupt: &Interrupt) -> anyhow::Result<Cast> {
    let root = checkout().with_context(library::no_checkout)?;
    progress.say("preparing the CUDA compiler (pip, once) and the example programs");
    let folder = root.join(PROGRAMS);
    let Err(error) = build(&root, "examples", interrupt)? else { return Ok(cuda(&folder, None)) };
    if ROLES.iter().all(|(name, ..)| folder.join(name).exists()) {
        let note = format!("the example programs run as they were built last: {error:#}");
        progress.say(&note);
        return Ok(cuda(&folder, Some(note)));
    }
    let note = format!("the example programs cannot be built ({error:#}): prebuilt PTX examples run in place of nvcc's programs");
    progress.say(&note);
    let host = folder.join(PTX_HOST);
    if let Err(error) = build(&root, "ptx-host", interrupt)?
        && !host.exists()
    {
        return Err(error.context("the demo cannot build its programs"));
    }
    let ptx = root.join("examples/ptx/kernels.ptx").display().to_string();
    let role = |(name, fate): &(&'static str, Fate)| Role { name, fate: *fate, program: host.clone(), arguments: vec![ptx.clone(), (*name).to_owned()] };
    Ok(Cast { roles: PTX_ROLES.iter().map(role).collect(), note: Some(note) })
}

fn cuda(folder: &Path, note: Option<String>) -> Cast {
    let role = |(name, fate, arguments): &(&'static str, Fate, &[&str])| Role {
        name,
        fate: *fate,
        program: folder.join(name),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
    };
    Cast { roles: ROLES.iter().map(role).collect(), note }
}

/// Runs a task of the developer's tools. The outer error ends the demo (a signal asked for that);
/// the inner one says why the task failed.
pub fn build(root: &Path, task: &str, interrupt: &Interrupt) -> anyhow::Result<anyhow::Result<()>> {
    if let Some(why) = cannot_write(root) {
        return Ok(Err(why));
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["run", "--quiet", "--package", "xtask", "--", task]);
    let done = run_to_end(command, "cargo", "install Rust, or put cargo into PATH", interrupt)?;
    Ok(done.with_context(|| format!("cargo xtask {task}")))
}

/// Runs a build tool. The outer error ends this program (a signal asked for that); the inner one
/// says why the tool failed. `remedy`: what to do if it cannot be started.
pub fn run_to_end(mut command: Command, tool: &str, remedy: &str, interrupt: &Interrupt) -> anyhow::Result<anyhow::Result<()>> {
    // A group of its own, so that all that the tool starts can be ended together.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let (sender, outputs) = channel::<ChildStderr>();
    let read = move || {
        let mut text = Vec::new();
        let _ = outputs.recv().map(|mut stderr| stderr.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    };
    // Before the tool: its output is short, but a pipe without a reader would stop it.
    let reader = std::thread::Builder::new().name("reader".into()).spawn(read).context("cannot start a thread")?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(anyhow::anyhow!("cannot start {tool} ({error}): {remedy}"))),
    };
    if let Some(stderr) = child.stderr.take() {
        let _ = sender.send(stderr);
    }
    drop(sender);
    let status = wait(&mut child, interrupt)?;
    if status.success() {
        return Ok(Ok(()));
    }
    let said = reader.join().unwrap_or_default();
    Ok(Err(anyhow::anyhow!("{}", reason(&said))))
}

/// Waits for the end of a process group, or ends it when a signal ends this program.
fn wait(child: &mut Child, interrupt: &Interrupt) -> anyhow::Result<ExitStatus> {
    let process = Process::open(child.id()).context("cannot watch a build")?;
    while !process.ended(Some(CHECK_INTERVAL)) {
        if let Err(interrupted) = interrupt.check() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::TERM);
            }
            let _ = child.wait();
            return Err(interrupted.into());
        }
    }
    child.wait().context("cannot watch a build")
}

/// Why this user can build nothing in a checkout: it belongs to another user, or is read-only.
fn cannot_write(root: &Path) -> Option<anyhow::Error> {
    let mut folders = vec![root.join(PROGRAMS)];
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        folders.push(root.join("target"));
    }
    folders.into_iter().find_map(|folder| {
        let nearest = folder.ancestors().find(|folder| folder.exists())?;
        let error = access(nearest, Access::WRITE_OK | Access::EXEC_OK).err()?;
        let user = rustix::process::geteuid().as_raw();
        Some(anyhow::anyhow!(
            "user {user} may not write {} ({error}): let its owner run cargo xtask examples there, or build a copy of {} that is yours",
            nearest.display(),
            root.display()
        ))
    })
}

/// The line that says why a task failed.
fn reason(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // The task's own error; the lines below it are a backtrace.
    if let Some(at) = lines.iter().rposition(|line| line.starts_with("Error: ")) {
        let cause = lines.get(at + 1).filter(|_| lines[at].ends_with(':')).map_or_else(String::new, |cause| format!(" {cause}"));
        return format!("{}{cause}", lines[at].trim_start_matches("Error: "));
    }
    // Cargo prints its intention first, and the cause of the failure last.
    match (lines.iter().find_map(|line| line.strip_prefix("error: ")), lines.last()) {
        (Some(what), Some(why)) if !why.starts_with("error: ") => format!("{what}: {why}"),
        (Some(what), _) => what.to_owned(),
        (None, Some(last)) => (*last).to_owned(),
        (None, None) => "it said nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_in_what_was_said() {
        assert_eq!(reason("nvcc a.cu\nError: cannot start gcc: install it\n\nCaused by:\n  no such file\n"), "cannot start gcc: install it");
        assert_eq!(reason("Error: a.cu does not build:\na.cu(3): error: what?\nmore\n"), "a.cu does not build: a.cu(3): error: what?");
        let cargo = "error: failed to open: /x/target/release/.cargo-lock\n\nCaused by:\n  Permission denied (os error 13)\n";
        assert_eq!(reason(cargo), "failed to open: /x/target/release/.cargo-lock: Permission denied (os error 13)");
        assert_eq!(reason("error: no such command\n"), "no such command");
        assert_eq!(reason("\n"), "it said nothing");
    }

    #[test]
    fn a_folder_of_ours_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        assert!(cannot_write(folder.path()).is_none());
        if !rustix::process::geteuid().is_root() {
            std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
            let why = cannot_write(folder.path()).unwrap().to_string();
            assert!(why.contains("may not write") && why.contains("cargo xtask examples"), "{why}");
        }
    }
}
