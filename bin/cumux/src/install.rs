//! `cumux install --prefix DIR`: the program, the library, man pages and completions, and with
//! `--drop-in` NVIDIA's names.

use crate::{cli, library, say};
use anyhow::{Context as _, anyhow, bail};
use cumux_link::folder::Rule;
use cumux_link::{Folder, FolderError};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Names of the drop-in.
const DROP_IN: [&str; 2] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];

/// Installs and returns the exit status.
pub fn main(prefix: &Path, drop_in: bool) -> anyhow::Result<u8> {
    let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
    let folder = library::folder()?;
    let read = |name: &str| fs::read(folder.join(name)).with_context(|| format!("cannot read {}", folder.join(name).display()));
    let (library, compilers) = (read(library::LIBRARY)?, read(library::COMPILERS)?);
    let program = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut files = vec![("bin/cumux".to_owned(), program, 0o755), ("lib/cumux/libcuda.so.1".to_owned(), library, 0o755)];
    files.push((format!("lib/cumux/{}", library::COMPILERS), compilers, 0o755));
    files.extend(cli::man_pages()?.into_iter().map(|(name, page)| (format!("share/man/man1/{name}"), page, 0o644)));
    for (path, shell) in [
        ("share/bash-completion/completions/cumux", clap_complete::Shell::Bash),
        ("share/zsh/site-functions/_cumux", clap_complete::Shell::Zsh),
        ("share/fish/vendor_completions.d/cumux.fish", clap_complete::Shell::Fish),
    ] {
        files.push((path.to_owned(), cli::completions(shell), 0o644));
    }
    let mut installed = String::new();
    for (path, bytes, mode) in files {
        into(&prefix.join(&path), |folder, name| folder.install(name, &bytes, mode))?;
        installed.push_str(&format!("{}\n", prefix.join(path).display()));
    }
    if drop_in {
        for name in DROP_IN {
            let path = prefix.join("bin").join(name);
            into(&path, |folder, name| folder.install_link(name, Path::new("cumux")))?;
            installed.push_str(&format!("{}\n", path.display()));
        }
    }
    // Printed last: a reader that stops early (`| head`) must not leave half an installation.
    say::text(&installed)?;
    Ok(0)
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
            anyhow!("cannot write {}: {cause}; install as that user, choose another --prefix, or set {trust}={owner} if you trust that user", path.display())
        }
        cause if cause.is_danger() => anyhow!("cannot write {}: {cause}; {}, or choose another --prefix", path.display(), cause.remedy()),
        cause => anyhow!("cannot write {} ({cause}): choose a --prefix you may write", path.display()),
    })
}
