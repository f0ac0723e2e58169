//! Which programs appear, in which role, and where their files come from: built by nvcc, or the prebuilt PTX with a small host program.

use super::progress::Progress;
use crate::library::checkout;
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is expected of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Finishes with verified results.
    Innocent,
    /// Gets SIGKILL while its kernel runs.
    Killed,
    /// Makes an illegal access and is told so.
    Faulty,
}

#[derive(Debug, Clone)]
pub struct Role {
    pub name: &'static str,
    pub fate: Fate,
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

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

/// Builds what is missing.
pub fn prepare(progress: &mut Progress) -> anyhow::Result<Cast> {
    let root = checkout().context("the demo needs the source folder this program was built from: run it there with cargo run --release -- demo")?;
    progress.say("preparing the CUDA compiler (pip, once) and the example programs");
    match xtask(&root, "examples") {
        Ok(()) => {
            let folder = root.join(".build/examples");
            let role = |(name, fate, arguments): &(&'static str, Fate, &[&str])| Role {
                name,
                fate: *fate,
                program: folder.join(name),
                arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            };
            Ok(Cast { roles: ROLES.iter().map(role).collect(), note: None })
        }
        Err(error) => {
            let note = format!("the CUDA compiler wheels cannot be had ({error:#}): prebuilt PTX examples run in place of nvcc's programs");
            progress.say(&note);
            xtask(&root, "ptx-host").context("cannot build the host program of the PTX examples (is gcc installed?)")?;
            let program = root.join(".build/examples/ptx_host");
            let ptx = root.join("examples/ptx/kernels.ptx").display().to_string();
            let role =
                |(name, fate): &(&'static str, Fate)| Role { name, fate: *fate, program: program.clone(), arguments: vec![ptx.clone(), (*name).to_owned()] };
            Ok(Cast { roles: PTX_ROLES.iter().map(role).collect(), note: Some(note) })
        }
    }
}

fn xtask(root: &Path, task: &str) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["run", "--quiet", "--package", "xtask", "--", task]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().context("cannot start cargo")?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut said = text.lines().filter(|line| !line.trim().is_empty());
    // The error itself if there is one, and not what is below it.
    let line = said.clone().rfind(|line| line.starts_with("Error: ")).or_else(|| said.next_back()).unwrap_or("no message");
    bail!("cargo xtask {task}: {}", line.trim_start_matches("Error: "))
}
