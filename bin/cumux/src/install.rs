//! `cumux install --prefix DIR`: the program, the library, man pages and completions, and with
//! `--drop-in` NVIDIA's names. `cumux install --system`: the same in `/usr`, with units of systemd;
//! packages are made of it.

use crate::cli::InstallArguments;
use crate::{cli, library, say};
use anyhow::{Context as _, anyhow, bail};
use cumux_link::folder::Rule;
use cumux_link::{Folder, FolderError};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Names of the drop-in.
const DROP_IN: [&str; 2] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];

/// Files of an installation into the system, beside those of every installation.
const SYSTEM: [(&str, &str); 8] = [
    ("usr/lib/systemd/system/cumux.service", include_str!("../../../packaging/systemd/cumux.service")),
    ("usr/lib/systemd/system/cumux@.service", include_str!("../../../packaging/systemd/cumux@.service")),
    ("usr/lib/systemd/system/cumux.socket", include_str!("../../../packaging/systemd/cumux.socket")),
    ("usr/lib/systemd/system/cumux@.socket", include_str!("../../../packaging/systemd/cumux@.socket")),
    ("usr/lib/systemd/system/cumux-exporter.service", include_str!("../../../packaging/systemd/cumux-exporter.service")),
    ("usr/share/cumux/prometheus/alerts.yml", include_str!("../../../integrations/prometheus/alerts.yml")),
    ("usr/share/cumux/prometheus/scrape.yml", include_str!("../../../integrations/prometheus/scrape.yml")),
    ("usr/share/cumux/grafana/cumux.json", include_str!("../../../integrations/grafana/cumux.json")),
];

/// Settings of the units: written once, and never over what an administrator has written.
const SETTINGS: (&str, &str) = ("etc/default/cumux", include_str!("../../../packaging/systemd/cumux.default"));

/// NVIDIA's names, in a folder of their own: the driver's packages own them in `/usr/bin`.
const SYSTEM_DROP_IN: &str = "usr/lib/cumux/bin";

/// A file to install: its path, its contents, its mode.
type Item = (String, Vec<u8>, u32);

/// Installs and returns the exit status.
pub fn main(arguments: &InstallArguments) -> anyhow::Result<u8> {
    let prefix = arguments.prefix.clone().unwrap_or_else(|| arguments.root.join("usr"));
    let mut installed = String::new();
    for (path, bytes, mode) in files()? {
        put(&prefix.join(path), &bytes, mode, &mut installed)?;
    }
    link(&prefix.join("lib/cumux").join(library::ASSEMBLER), Path::new("../../../../bin/cumux"), &mut installed)?;
    if arguments.system {
        install_system(&arguments.root, &mut installed)?;
    } else if arguments.drop_in {
        for name in DROP_IN {
            link(&prefix.join("bin").join(name), Path::new("cumux"), &mut installed)?;
        }
    }
    // Printed last: a reader that stops early (`| head`) must not leave half an installation.
    say::text(&installed)?;
    Ok(0)
}

/// The files of every installation, below its prefix.
fn files() -> anyhow::Result<Vec<Item>> {
    let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
    let folder = library::folder()?;
    let read = |name: &str| fs::read(folder.join(name)).with_context(|| format!("cannot read {}", folder.join(name).display()));
    let (library, compilers, management) = (read(library::LIBRARY)?, read(library::COMPILERS)?, read(library::MANAGEMENT)?);
    let program = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut files = vec![("bin/cumux".to_owned(), program, 0o755), ("lib/cumux/libcuda.so.1".to_owned(), library, 0o755)];
    files.push((format!("lib/cumux/{}", library::COMPILERS), compilers, 0o755));
    files.push((format!("lib/cumux/{}", library::MANAGEMENT), management, 0o755));
    files.extend(cli::man_pages()?.into_iter().map(|(name, page)| (format!("share/man/man1/{name}"), page, 0o644)));
    for (path, shell) in [
        ("share/bash-completion/completions/cumux", clap_complete::Shell::Bash),
        ("share/zsh/site-functions/_cumux", clap_complete::Shell::Zsh),
        ("share/fish/vendor_completions.d/cumux.fish", clap_complete::Shell::Fish),
    ] {
        files.push((path.to_owned(), cli::completions(shell), 0o644));
    }
    Ok(files)
}

fn install_system(root: &Path, installed: &mut String) -> anyhow::Result<()> {
    for (path, text) in SYSTEM {
        put(&root.join(path), text.as_bytes(), 0o644, installed)?;
    }
    for name in DROP_IN {
        link(&root.join(SYSTEM_DROP_IN).join(name), Path::new("../../../bin/cumux"), installed)?;
    }
    let (path, text) = SETTINGS;
    let settings = root.join(path);
    if settings.symlink_metadata().is_ok() {
        installed.push_str(&format!("{} (left as it is)\n", settings.display()));
    } else {
        put(&settings, text.as_bytes(), 0o644, installed)?;
    }
    if root == Path::new("/") && Path::new("/run/systemd/system").is_dir() {
        say::complain("cumux: choose the device in /etc/default/cumux, then: systemctl daemon-reload && systemctl enable --now cumux cumux-exporter");
    }
    Ok(())
}

fn put(path: &Path, bytes: &[u8], mode: u32, installed: &mut String) -> anyhow::Result<()> {
    into(path, |folder, name| folder.install(name, bytes, mode))?;
    installed.push_str(&format!("{}\n", path.display()));
    Ok(())
}

fn link(path: &Path, target: &Path, installed: &mut String) -> anyhow::Result<()> {
    into(path, |folder, name| folder.install_link(name, target))?;
    installed.push_str(&format!("{}\n", path.display()));
    Ok(())
}

/// Makes a file beside its place and moves it there: a running cumux, or a program that uses the
/// old library, is not disturbed. No link is followed that another user could have made: root's
/// programs would otherwise be that user's.
fn into(path: &Path, make: impl FnOnce(&Folder, &OsStr) -> Result<(), FolderError>) -> anyhow::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { bail!("{} is no name of a file", path.display()) };
    let outcome = Folder::make(parent, 0o755, Rule::Programs).and_then(|folder| make(&folder, name));
    outcome.map_err(|cause| match cause {
        FolderError::Foreign { owner, .. } => {
            let trust = cumux_link::trust::VARIABLE;
            anyhow!("cannot write {}: {cause}; install as that user, choose another place, or set {trust}={owner} if you trust that user", path.display())
        }
        cause if cause.is_danger() => anyhow!("cannot write {}: {cause}; {}, or choose another place", path.display(), cause.remedy()),
        cause => anyhow!("cannot write {} ({cause}): choose a --prefix you may write, or be root for --system", path.display()),
    })
}
