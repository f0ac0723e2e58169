//! `cumux install --prefix DIR`: the program, the library, man pages and completions, and with `--drop-in` NVIDIA's names.

use crate::{cli, library, say};
use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// Names of the drop-in.
const DROP_IN: [&str; 2] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];

/// The exit status.
pub fn main(prefix: &Path, drop_in: bool) -> anyhow::Result<u8> {
    let program = std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?;
    let library = library::folder()?.join(library::LIBRARY);
    let library = fs::read(&library).with_context(|| format!("cannot read {}", library.display()))?;
    let program = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut files = vec![("bin/cumux".to_owned(), program, 0o755), ("lib/cumux/libcuda.so.1".to_owned(), library, 0o755)];
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
        let path = prefix.join(path);
        put(&path, &bytes, mode)?;
        installed.push_str(&format!("{}\n", path.display()));
    }
    if drop_in {
        for name in DROP_IN {
            let path = prefix.join("bin").join(name);
            replace(&path, |fresh| symlink("cumux", fresh))?;
            installed.push_str(&format!("{}\n", path.display()));
        }
    }
    // Only now: a reader that has seen enough (`| head`) must not leave half an installation.
    say::text(&installed)?;
    Ok(0)
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}: choose a --prefix you may write", folder.display()))?;
    }
    replace(path, |fresh| {
        fs::write(fresh, bytes)?;
        fs::set_permissions(fresh, fs::Permissions::from_mode(mode))
    })
}

/// Made beside and moved into place: a running cumux or a program that uses the old library is not disturbed.
fn replace(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> anyhow::Result<()> {
    let fresh = path.with_extension(format!("new{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    let made = make(&fresh).and_then(|()| fs::rename(&fresh, path));
    if made.is_err() {
        // A full disk, mostly: what is half written is of no use.
        let _ = fs::remove_file(&fresh);
    }
    made.with_context(|| format!("cannot write {}: choose a --prefix you may write", path.display()))
}
