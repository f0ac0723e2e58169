//! Where our libraries are: beside an installed program, or in the build folder of a checkout.

use crate::say;
use anyhow::{Context as _, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const LIBRARY: &str = "libcuda.so.1";
pub const VARIABLE: &str = "LD_LIBRARY_PATH";

/// What makes run-time compilers make PTX, for programs on software GPUs alone.
pub const COMPILERS: &str = "libcumux_compilers.so";
const PRELOAD: &str = "LD_PRELOAD";
/// The folder in which CuPy keeps what it has compiled.
const CUPY_CACHE: &str = "CUPY_CACHE_DIR";
/// What CuPy uses in place of kernels that it compiles itself.
const CUPY_ACCELERATORS: &str = "CUPY_ACCELERATORS";
/// The assembler that Triton starts, and the one for cards since Blackwell.
const TRITON_PTXAS: [&str; 2] = ["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"];
/// The folder in which PyTorch keeps what Triton has compiled for it.
const TORCH_CACHE: &str = "TORCHINDUCTOR_CACHE_DIR";

/// The folder in which JAX looks for `bin/ptxas` first.
const CUDA_ROOT: &str = "CUDA_ROOT";

/// What only programs on software GPUs may find, below our folder.
const SOFTWARE: &str = "software";
/// The stand-in for NVIDIA's assembler.
pub const ASSEMBLER: &str = "software/bin/ptxas";
/// The stand-in for NVIDIA's management library.
pub const MANAGEMENT: &str = "software/libnvidia-ml.so.1";

/// The checkout from which this program was built, if it is still there.
pub fn checkout() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("crates/shim/Cargo.toml").exists().then(|| root.canonicalize().ok()).flatten()
}

/// Why there is no [`checkout`], as a sentence for a command that needs one.
pub fn no_checkout() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match fs::metadata(root.join("crates/shim/Cargo.toml")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!("the demo needs the source folder this program was built from, and user {user} may not enter it: build cumux in a folder of your own")
        }
        _ => "the demo needs the source folder this program was built from: run it there with cargo run --release -- demo".to_owned(),
    }
}

/// The folder to put first into the library path.
pub fn folder() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
    let program = program.canonicalize().unwrap_or(program);
    let here = program.parent().context("the own program file is in no folder")?;
    if let Some(installed) = here.parent().map(|prefix| prefix.join("lib/cumux")).filter(|folder| folder.join(LIBRARY).exists()) {
        return Ok(installed);
    }
    if let Some(folder) = of_build(here)? {
        return Ok(folder);
    }
    // A copy of this program elsewhere must not build anything there.
    if let (Some(root), Some(target), true) = (checkout(), here.parent(), is_build_folder(here)) {
        build(&root, target, here)?;
        if let Some(folder) = of_build(here)? {
            return Ok(folder);
        }
    }
    bail!("{LIBRARY} of cumux is not beside {}: install with cumux install --prefix, or build with cargo build --release", program.display())
}

/// Whether this is a folder in which cargo builds.
fn is_build_folder(folder: &Path) -> bool {
    folder.join("deps").is_dir()
}

/// Whether this program lies where cargo has built it, and is no copy elsewhere.
pub fn is_in_build_folder() -> bool {
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    program.is_ok_and(|program| program.parent().is_some_and(is_build_folder))
}

/// A build folder holds the library as `libcuda.so`; programs look for `libcuda.so.1`.
fn of_build(profile: &Path) -> anyhow::Result<Option<PathBuf>> {
    let folder = profile.join("cumux-lib");
    // The library in deps is rebuilt with every build of this program; the other only when the
    // library itself is built.
    let library = |built: &str, name: &str| link_into(&folder.join(name), profile, &[&format!("deps/{built}"), built]);
    let libraries = library("libcuda.so", LIBRARY)? && library(COMPILERS, COMPILERS)? && library("libcumux_nvml.so", MANAGEMENT)?;
    let found = libraries && link_into(&folder.join(ASSEMBLER), profile, &["cumux"])?;
    Ok(found.then_some(folder))
}

/// Makes a link to the newest of these files of a build folder; `false` if none is built.
fn link_into(link: &Path, profile: &Path, candidates: &[&str]) -> anyhow::Result<bool> {
    let newest = candidates.iter().filter_map(|name| Some((fs::metadata(profile.join(name)).and_then(|m| m.modified()).ok()?, name))).max();
    let Some((_, newest)) = newest else { return Ok(false) };
    let (folder, name) = (link.parent().unwrap_or(profile), link.file_name().unwrap_or_default().to_string_lossy());
    let up = folder.strip_prefix(profile).map_or(0, |below| below.components().count());
    let target = Path::new(&"../".repeat(up)).join(newest);
    if fs::read_link(link).ok().as_deref() == Some(&target) {
        return Ok(true);
    }
    let make = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        // Made beside its place and moved there: another cumux may do the same at the same time.
        let fresh = folder.join(format!("{name}.{}", std::process::id()));
        std::os::unix::fs::symlink(&target, &fresh)?;
        fs::rename(&fresh, link)
    };
    make().with_context(|| format!("cannot make {}", link.display()))?;
    Ok(true)
}

fn build(root: &Path, target: &Path, profile: &Path) -> anyhow::Result<()> {
    say::complain(format_args!("cumux: building {LIBRARY} (once) …"));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(root)
        .args(["build", "--quiet", "--package", "cumux-shim", "--package", "cumux-compilers", "--package", "cumux-nvml"])
        .arg("--target-dir")
        .arg(target);
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    let status = command.status().context("cannot start cargo to build libcuda.so.1")?;
    if !status.success() {
        bail!("cargo could not build {LIBRARY} ({status}); its messages are above");
    }
    Ok(())
}

/// The library path with our folder in front.
pub fn path_with(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    let old = std::env::var_os(VARIABLE).unwrap_or_default();
    // An empty entry is the current folder, but an empty variable is none.
    for entry in old.as_bytes().split(|byte| *byte == b':').filter(|_| !old.is_empty()).map(OsStr::from_bytes) {
        if !is_for_software(Path::new(entry)) {
            path.push(":");
            path.push(entry);
        }
    }
    path
}

/// Whether this is a folder of ours for programs on software GPUs, of this installation or another.
fn is_for_software(folder: &Path) -> bool {
    ["cumux", "cumux-lib"].iter().any(|ours| folder.ends_with(Path::new(ours).join(SOFTWARE)))
}

/// Gives a program what it needs in its environment for the compilers that it uses while it runs.
/// On software GPUs they have to make PTX; elsewhere nothing of ours stays in the environment,
/// though the program that starts this one may have run on a software GPU.
pub fn lead_to_compilers(command: &mut Command, folder: &Path, software: bool) {
    let file = folder.join(COMPILERS);
    let mut list: Vec<OsString> = preloaded(std::env::var_os(PRELOAD).as_deref());
    let was = list.len();
    list.retain(|entry| Path::new(entry).file_name() != Some(OsStr::new(COMPILERS)));
    // The variable has no way to write a blank or a colon.
    let can_be_named = !file.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n'));
    let is_off = std::env::var_os("CUMUX_COMPILERS").is_some_and(|value| value == "0" || value == "off");
    if software && !is_off && !can_be_named {
        let file = file.display();
        say::complain(format_args!(
            "cumux: {PRELOAD} cannot name {file}: what the program compiles while it runs does not run on a software GPU; install cumux in a folder without blanks and colons"
        ));
    }
    let used = software && can_be_named && !is_off && file.exists();
    if used {
        list.insert(0, file.into_os_string());
    }
    if used || list.len() != was {
        command.env(PRELOAD, list.join(OsStr::new(":")));
    }
    lead_to_assembler(command, &folder.join(ASSEMBLER), software && !is_off);
    if software && !is_off {
        let mut path = folder.join(SOFTWARE).into_os_string();
        path.push(":");
        path.push(path_with(folder));
        command.env(VARIABLE, path);
    }
    if !used {
        return;
    }
    // What CuPy and PyTorch keep under the name of machine code would be PTX, and what they kept
    // before on a card would be none.
    for (variable, place) in [(CUPY_CACHE, ".cupy/kernel_cache_cumux"), (TORCH_CACHE, ".cache/cumux/torchinductor")] {
        if let (None, Some(home)) = (std::env::var_os(variable), std::env::var_os("HOME").filter(|home| !home.is_empty())) {
            command.env(variable, Path::new(&home).join(place));
        }
    }
    // By default CuPy sums and scans with kernels that are machine code, and does not look whether
    // they have run: the results would be wrong. Without them it compiles kernels of its own.
    if std::env::var_os(CUPY_ACCELERATORS).is_none() {
        command.env(CUPY_ACCELERATORS, "");
    }
}

/// Names the stand-in for NVIDIA's assembler to Triton and JAX, unless the user has named one.
fn lead_to_assembler(command: &mut Command, assembler: &Path, used: bool) {
    let root = assembler.ancestors().nth(2).unwrap_or(assembler);
    match (std::env::var_os(CUDA_ROOT).filter(|chosen| !is_for_software(Path::new(chosen))), used) {
        (Some(_), _) => {}
        (None, true) => drop(command.env(CUDA_ROOT, root)),
        (None, false) => drop(command.env_remove(CUDA_ROOT)),
    }
    for variable in TRITON_PTXAS {
        let chosen = std::env::var_os(variable).filter(|chosen| !Path::new(chosen).ends_with(ASSEMBLER));
        match (chosen, used && assembler.exists()) {
            (Some(_), _) => {}
            (None, true) => drop(command.env(variable, assembler)),
            (None, false) => drop(command.env_remove(variable)),
        }
    }
}

fn preloaded(value: Option<&OsStr>) -> Vec<OsString> {
    let bytes = value.map(OsStr::as_bytes).unwrap_or_default();
    bytes.split(|byte| matches!(byte, b' ' | b':')).filter(|part| !part.is_empty()).map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

/// Whether a file is a `libcuda.so.1` of ours: it carries our name.
pub fn is_ours(file: &Path) -> bool {
    let Ok(bytes) = fs::read(file) else { return false };
    bytes.windows(5).any(|window| window == b"cumux")
}
