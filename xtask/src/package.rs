//! Packages of what `cumux install --system` installs: a .deb, an .rpm and a Python wheel.
//!
//! The recipes are in `packaging`. The tools are those of the system (dpkg-deb, rpmbuild, python3,
//! strip): a package is made where they are.

use crate::process::{cargo_command, has_program, run};
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// For Debian and Ubuntu, by dpkg-deb.
    Deb,
    /// For Fedora, RHEL and SUSE, by rpmbuild.
    Rpm,
    /// For pip, by python3.
    Wheel,
}

/// Pages that every package carries.
const PAGES: [&str; 7] = ["README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "docs/metrics.md", "docs/drop-in.md"];

/// Builds the program and makes packages; prints their paths.
pub fn make(root: &Path, kinds: &[Kind], out: &Path, revision: u32) -> anyhow::Result<()> {
    for (kind, program, package) in [(Kind::Deb, "dpkg-deb", "dpkg"), (Kind::Rpm, "rpmbuild", "rpm"), (Kind::Wheel, "python3", "python3")] {
        if kinds.contains(&kind) && !has_program(program, &["--version"]) {
            bail!("{program} is needed for that package: install {package}, or leave the package out");
        }
    }
    run(cargo_command(root, &["build", "--release", "--workspace"]), "the compiler's messages are above")?;
    let folder = root.join("target/package");
    let staged = stage(root, &folder)?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let version = env!("CARGO_PKG_VERSION");
    let needs = needed_glibc(&[
        staged.join("usr/bin/cumux"),
        staged.join("usr/lib/cumux/libcuda.so.1"),
        staged.join("usr/lib/cumux/libcumux_compilers.so"),
        staged.join("usr/lib/cumux/software/libnvidia-ml.so.1"),
    ])?;
    for kind in kinds {
        let package = match kind {
            Kind::Deb => deb(root, &folder, &staged, out, &format!("{version}-{revision}"), needs)?,
            Kind::Rpm => rpm(root, &folder, &staged, out, version, revision)?,
            Kind::Wheel => wheel(root, &staged, out, version, needs)?,
        };
        println!("{}", package.display());
    }
    Ok(())
}

/// The installation of which packages are made, without debug information.
fn stage(root: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let staged = folder.join("staged");
    if staged.exists() {
        fs::remove_dir_all(&staged).with_context(|| format!("cannot remove {}", staged.display()))?;
    }
    let mut install = Command::new(root.join("target/release/cumux"));
    install.args(["install", "--system", "--root"]).arg(&staged).stdout(std::process::Stdio::null());
    run(install, "the installation is not whole")?;
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").args(
        ["usr/bin/cumux", "usr/lib/cumux/libcuda.so.1", "usr/lib/cumux/libcumux_compilers.so", "usr/lib/cumux/software/libnvidia-ml.so.1"]
            .map(|file| staged.join(file)),
    );
    run(strip, "strip is part of binutils")?;
    let pages = staged.join("usr/share/doc/cumux");
    fs::create_dir_all(&pages)?;
    for page in PAGES {
        let name = Path::new(page).file_name().unwrap_or_default();
        fs::copy(root.join(page), pages.join(name)).with_context(|| format!("cannot copy {page}"))?;
    }
    Ok(staged)
}

/// The newest glibc of which these files need a symbol, as `2.NUMBER`.
fn needed_glibc(files: &[PathBuf]) -> anyhow::Result<u32> {
    let mut newest = 0;
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        newest = newest.max(newest_glibc(&bytes));
    }
    ensure!(newest > 0, "the programs name no version of glibc: are they linked statically?");
    Ok(newest)
}

fn newest_glibc(bytes: &[u8]) -> u32 {
    const NAME: &[u8] = b"GLIBC_2.";
    let number = |at: usize| {
        let digits: String = bytes[at + NAME.len()..].iter().take_while(|byte| byte.is_ascii_digit()).take(4).map(|byte| char::from(*byte)).collect();
        digits.parse().unwrap_or(0)
    };
    bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).map(|(at, _)| number(at)).max().unwrap_or(0)
}

fn deb(root: &Path, folder: &Path, staged: &Path, out: &Path, version: &str, glibc: u32) -> anyhow::Result<PathBuf> {
    let tree = folder.join("deb");
    copy_tree(staged, &tree)?;
    for page in fs::read_dir(tree.join("usr/share/man/man1"))? {
        let mut gzip = Command::new("gzip");
        gzip.args(["-9n"]).arg(page?.path());
        ensure!(gzip.status().context("gzip is needed")?.success(), "gzip fails");
    }
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control)?;
    for name in ["postinst", "prerm", "postrm"] {
        let path = control.join(name);
        fs::copy(root.join("packaging/deb").join(name), &path).with_context(|| format!("cannot copy packaging/deb/{name}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let installed_kib = size_of(&tree)? / 1024;
    let text = format!(
        "Package: cumux\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The cumux project <cumux@cumux.invalid>\n\
         Installed-Size: {installed_kib}\nDepends: libc6 (>= 2.{glibc}), libgcc-s1\nSection: utils\nPriority: optional\n\
         Description: Multi-Process Service for GPUs\n Many CUDA programs share one GPU, and one that crashes takes nobody with it.\n \
         Unmodified programs use it by finding its libcuda.so.1 first; administrators\n use the commands and variables of NVIDIA's MPS.\n"
    );
    fs::write(control.join("control"), text)?;
    fs::write(control.join("conffiles"), "/etc/default/cumux\n")?;
    fs::write(tree.join("usr/share/doc/cumux/copyright"), "cumux is licensed under MIT or Apache-2.0, at your choice: LICENSE-MIT, LICENSE-APACHE here.\n")?;
    let package = out.join(format!("cumux_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&package);
    run(build, "dpkg-deb's message is above")?;
    Ok(package)
}

fn rpm(root: &Path, folder: &Path, staged: &Path, out: &Path, version: &str, revision: u32) -> anyhow::Result<PathBuf> {
    let mut build = Command::new("rpmbuild");
    build.arg("-bb").arg(root.join("packaging/rpm/cumux.spec"));
    let work = folder.join("rpm");
    for (name, value) in [
        ("cumux_version", version.to_owned()),
        ("cumux_release", revision.to_string()),
        ("staged", staged.display().to_string()),
        ("_topdir", work.display().to_string()),
        ("_rpmdir", work.join("out").display().to_string()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    run(build, "rpmbuild's message is above")?;
    let architecture = std::env::consts::ARCH;
    let name = format!("cumux-{version}-{revision}.{architecture}.rpm");
    let package = out.join(&name);
    fs::copy(work.join("out").join(architecture).join(&name), &package).with_context(|| format!("rpmbuild has made no {name}"))?;
    Ok(package)
}

fn wheel(root: &Path, staged: &Path, out: &Path, version: &str, glibc: u32) -> anyhow::Result<PathBuf> {
    let platform = format!("manylinux_2_{glibc}_{}", std::env::consts::ARCH);
    let mut python = Command::new("python3");
    python.arg(root.join("packaging/wheel.py")).arg(staged).args([version, &platform]).arg(out);
    run(python, "the script's message is above")?;
    Ok(out.join(format!("cumux-{version}-py3-none-{platform}.whl")))
}

/// A copy in place of what is there. Links stay links.
fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.symlink_metadata().is_ok() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    copy_below(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn copy_below(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, kind) = (to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy_below(&entry.path(), &path)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, path)?;
        } else {
            fs::copy(entry.path(), path)?;
        }
    }
    Ok(())
}

fn size_of(folder: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_counts() {
        assert_eq!(newest_glibc(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_2."), 34);
        assert_eq!(newest_glibc(b"GLIBC_PRIVATE"), 0);
    }
}
