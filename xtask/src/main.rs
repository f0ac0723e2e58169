//! The developer's tools that need code: `cargo xtask test` from a fresh clone, `cargo xtask check`
//! as CI does it.
#![forbid(unsafe_code)]

mod chaos;
mod columns;
mod compatibility;
mod deny;
mod examples;
mod fuzz;
mod layers;
mod mutants;
mod package;
mod process;
mod rooms;
mod settings;
mod suite;
mod surface;
mod tools;
mod wheels;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tools of the cumux workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs the compiler wheels if missing, builds the CUDA programs and the binaries, and runs
    /// the whole suite
    Test {
        /// Only tests whose name contains this; "clusters" runs those that need more than this
        /// repository: packages of the system, the network, root
        filter: Option<String>,
        /// Runs the tests so many times after one build, and says at the end how many rounds failed
        #[arg(long, default_value_t = 1, value_name = "ROUNDS")]
        repeat: u32,
    },
    /// Kills and stops processes in every combination; `cargo xtask chaos --help` lists the options
    #[command(disable_help_flag = true)]
    Chaos {
        /// For the harness, crates/testkit/examples/chaos.rs
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Everything CI does: format, lints, layers, rooms, licences and advisories, then `test`
    Check,
    /// Format, lints, layers, rooms, comments, generated pages; no tests
    Lint,
    /// Checks the dependencies between crates against ARCHITECTURE.md
    Layers,
    /// Checks that the files of each crate use each other downward only
    Rooms,
    /// Licences, sources, duplicate crates and advisories, by a pinned cargo-deny that is installed
    /// into target/tools if missing
    Deny {
        /// Only if dependencies or rules have changed since the check last passed
        #[arg(long)]
        if_changed: bool,
    },
    /// Fuzzes all targets of fuzz/ in turn, with inputs kept from run to run; fails if one finds
    /// something
    Fuzz {
        /// For all targets together
        #[arg(required_unless_present = "pack")]
        minutes: Option<f64>,
        /// Only these targets
        targets: Vec<String>,
        /// Runs nothing: puts the targets and their inputs into a file that can be taken to a
        /// machine with many processors
        #[arg(long, value_name = "FILE.tar.gz", conflicts_with = "minutes")]
        pack: Option<PathBuf>,
    },
    /// Changes the pure crates in one of forty possible places each time and checks that their
    /// tests notice, by a pinned cargo-mutants that is installed into target/tools if missing; an
    /// hour or two, not part of CI
    Mutants {
        /// Only these crates: cumux-ptx, cumux-wire …
        crates: Vec<String>,
    },
    /// Makes packages of the release build
    Package {
        /// Which; all if none is named
        kinds: Vec<package::Kind>,
        /// The folder that gets them
        #[arg(long, default_value = "target/packages")]
        out: PathBuf,
        /// Which package of this version it is
        #[arg(long, default_value_t = 1)]
        revision: u32,
    },
    /// Installs the pinned CUDA compiler wheels into .cuda if missing
    Wheels,
    /// Builds examples/*.cu and tests/cu/*.cu into .build
    Examples,
    /// Builds the host program of the prebuilt PTX examples (needs only gcc)
    PtxHost,
    /// Makes examples/ptx/kernels.ptx anew from kernels.cu
    PtxExamples,
    /// Writes the driver's types and functions anew from its header
    Surface,
    /// Writes COMPATIBILITY.md anew
    Compatibility,
}

fn main() -> anyhow::Result<()> {
    let root = root();
    match Cli::parse().task {
        Task::Test { filter, repeat } => suite::test(&root, filter.as_deref(), repeat),
        Task::Chaos { arguments } => chaos::run(&root, &arguments),
        Task::Check => suite::check(&root),
        Task::Lint => suite::lint(&root),
        Task::Layers => layers::check(&root),
        Task::Rooms => rooms::check(&root),
        Task::Deny { if_changed: true } => deny::check_if_changed(&root),
        Task::Deny { if_changed: false } => deny::check(&root),
        Task::Fuzz { pack: Some(file), .. } => fuzz::pack::pack(&root, &file),
        Task::Fuzz { minutes, targets, .. } => fuzz::run(&root, minutes.unwrap_or_default(), &targets),
        Task::Mutants { crates } => mutants::check(&root, &crates),
        Task::Package { kinds, out, revision } => {
            let kinds = if kinds.is_empty() { vec![package::Kind::Deb, package::Kind::Rpm, package::Kind::Wheel] } else { kinds };
            package::make(&root, &kinds, &root.join(out), revision)
        }
        Task::Wheels => wheels::install(&root).map(|cuda| println!("{}", cuda.bin().display())),
        Task::Examples => examples::build(&root),
        Task::PtxHost => examples::build_ptx_host(&root),
        Task::PtxExamples => examples::make_ptx(&root),
        Task::Surface => surface::run(),
        Task::Compatibility => compatibility::run(),
    }
}

/// The workspace this program was built from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}
