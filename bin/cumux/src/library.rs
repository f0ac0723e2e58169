//! Where our `libcuda.so.1` is: beside an installed program, or in the build folder of a checkout.

use crate::say;
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const LIBRARY: &str = "libcuda.so.1";
pub const VARIABLE: &str = "LD_LIBRARY_PATH";

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
    // Only in a build folder: a copy of this program elsewhere must not build anything there.
    if let (Some(root), Some(target), true) = (checkout(), here.parent(), here.join("deps").is_dir()) {
        build(&root, target, here)?;
        if let Some(folder) = of_build(here)? {
            return Ok(folder);
        }
    }
    bail!("{LIBRARY} of cumux is not beside {}: install with cumux install --prefix, or build with cargo build --release", program.display())
}

/// A build folder holds the library as `libcuda.so`; programs look for `libcuda.so.1`.
fn of_build(profile: &Path) -> anyhow::Result<Option<PathBuf>> {
    // The library in deps is rebuilt with every build of this program; the other only when the
    // library itself is built.
    let candidates = ["deps/libcuda.so", "libcuda.so"];
    let newest = candidates.iter().filter_map(|name| Some((fs::metadata(profile.join(name)).and_then(|m| m.modified()).ok()?, *name))).max();
    let Some((_, name)) = newest else { return Ok(None) };
    let folder = profile.join("cumux-lib");
    let link = folder.join(LIBRARY);
    let target = Path::new("..").join(name);
    if fs::read_link(&link).ok().as_deref() == Some(&target) {
        return Ok(Some(folder));
    }
    let make = || -> std::io::Result<()> {
        fs::create_dir_all(&folder)?;
        // Made beside its place and moved there: another cumux may do the same at the same time.
        let fresh = folder.join(format!("{LIBRARY}.{}", std::process::id()));
        std::os::unix::fs::symlink(&target, &fresh)?;
        fs::rename(&fresh, &link)
    };
    make().with_context(|| format!("cannot make {}", link.display()))?;
    Ok(Some(folder))
}

fn build(root: &Path, target: &Path, profile: &Path) -> anyhow::Result<()> {
    say::complain(format_args!("cumux: building {LIBRARY} (once) …"));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["build", "--quiet", "--package", "cumux-shim"]).arg("--target-dir").arg(target);
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
    if let Some(old) = std::env::var_os(VARIABLE).filter(|old| !old.is_empty()) {
        path.push(":");
        path.push(old);
    }
    path
}

/// Whether a file is a `libcuda.so.1` of ours: it carries our name.
pub fn is_ours(file: &Path) -> bool {
    let Ok(bytes) = fs::read(file) else { return false };
    bytes.windows(5).any(|window| window == b"cumux")
}
