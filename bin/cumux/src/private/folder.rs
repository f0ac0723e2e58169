//! Folders of single commands: `cumux-run-XXXXXX` in the temporary directory, with the sockets and
//! logs of a private daemon.
//!
//! A folder goes with its command, or with its daemon where the command was killed. Where both were
//! killed it stays until the next command makes one of its own and sweeps ([`sweep`]).
//!
//! Invariants:
//! - A command holds a lock on its folder as long as it lives; a daemon and its servers hold locks
//!   on files in it.
//! - Only a real folder of this very user is ever removed, and only while all of these locks are
//!   ours.

use anyhow::Context as _;
use cumux_control::PipeDirectory;
use cumux_control::directory::LOCK;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The beginning of the names of such folders.
const PREFIX: &str = "cumux-run-";
/// Another command may sweep a folder between its making and its locking; then a new one is made.
const TRIES: u32 = 16;

/// A folder of this command. Dropping it removes it with everything in it.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    _lock: OwnedFd,
}

impl Folder {
    /// Makes an empty folder that no other user may write, whatever the umask. Programs started by
    /// root may run as other users, which have to enter it.
    pub fn make() -> anyhow::Result<Self> {
        let mut why = None;
        for temporary in temporary_directories() {
            sweep(&temporary);
            match Self::make_in(&temporary) {
                Ok(folder) => return Ok(folder),
                Err(error) => why = why.or(Some(error)),
            }
        }
        Err(why.unwrap_or_else(|| anyhow::anyhow!("there is no directory for temporary files: set TMPDIR to one")))
    }

    fn make_in(temporary: &Path) -> anyhow::Result<Self> {
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(PREFIX).permissions(fs::Permissions::from_mode(0o755)).tempdir_in(temporary);
            let folder = folder.with_context(|| format!("cannot make a folder in {}: set TMPDIR to a directory you may write", temporary.display()))?;
            // No other user may be able to exchange it.
            let checked = cumux_link::Folder::open(folder.path());
            checked.with_context(|| format!("{} is no safe place: set TMPDIR to a directory that only you can write", temporary.display()))?;
            if let Some(lock) = lock_folder(folder.path()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
        anyhow::bail!("cannot keep a folder in {}: set TMPDIR to a local directory, where files can be locked", temporary.display())
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Directories for the folder, best first: the usual one for temporary files, then others where
/// that is not safe or its name is too long for sockets.
fn temporary_directories() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let places = [Some(std::env::temp_dir()), runtime, Some(PathBuf::from("/tmp")), Some(PathBuf::from("/dev/shm"))];
    places.into_iter().flatten().filter(|place| PipeDirectory::at(&place.join(format!("{PREFIX}XXXXXX"))).check_length().is_ok())
}

/// Whether this is a folder of a command of this user; checked before it is removed.
fn is_ours(path: &Path, opened: &OwnedFd) -> bool {
    let named = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    named && fstat(opened).is_ok_and(|found| found.st_uid == rustix::process::geteuid().as_raw())
}

/// The lock of a folder; `None` if another process holds it, or if the folder has gone meanwhile.
fn lock_folder(path: &Path) -> Option<OwnedFd> {
    let opened = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    flock(&opened, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (here, locked) = (stat(path).ok()?, fstat(&opened).ok()?);
    (here.st_dev == locked.st_dev && here.st_ino == locked.st_ino).then_some(opened)
}

/// Removes the folders of commands that were killed together with their daemons.
fn sweep(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let path = entry.path();
            if let Some(folder) = lock_folder(&path).filter(|folder| is_ours(&path, folder))
                && let Some(_locks) = locks_inside(&path)
            {
                remove(&path);
                drop(folder);
            }
        }
    }
}

/// The locks of daemon and servers in a folder; `None` if one of those processes lives.
fn locks_inside(folder: &Path) -> Option<Vec<OwnedFd>> {
    let mut locks = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == LOCK || (name.starts_with("server-") && name.ends_with(".lock")) {
            let file = open(&path, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
            locks.push(file);
        }
    }
    Some(locks)
}

/// In a daemon that ends: removes its folder, if it is such a folder.
pub fn remove_own(path: &Path) {
    let opened = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    if opened.is_ok_and(|opened| is_ours(path, &opened)) {
        remove(path);
    }
}

/// An ending process may still write into the folder: the removal is repeated.
fn remove(path: &Path) {
    for _ in 0..3 {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    fn leftover(temporary: &Path, name: &str) -> PathBuf {
        let path = temporary.join(name);
        fs::create_dir_all(path.join("log")).unwrap();
        fs::write(path.join("log/control.log"), "lines").unwrap();
        path
    }

    fn lock(path: &Path) -> OwnedFd {
        fs::write(path, "").unwrap();
        let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    }

    #[test]
    fn only_what_nobody_uses_is_swept() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| leftover(temporary.path(), name);
        let (dead, after_a_daemon) = (at("cumux-run-dead"), at("cumux-run-after"));
        drop(lock(&after_a_daemon.join("control_lock")));
        let (running, serving, daemon, other_name) = (at("cumux-run-running"), at("cumux-run-serving"), at("cumux-run-daemon"), at("cumux-other"));
        let _running = lock_folder(&running).unwrap();
        let _serving = lock(&serving.join("server-0.lock"));
        let _daemon = lock(&daemon.join("control_lock"));
        let elsewhere = at("elsewhere");
        symlink(&elsewhere, temporary.path().join("cumux-run-link")).unwrap();
        sweep(temporary.path());
        assert!(!dead.exists() && !after_a_daemon.exists(), "their processes have ended");
        for path in [running, serving, daemon, other_name, elsewhere.join("log")] {
            assert!(path.exists(), "{} is somebody's", path.display());
        }
    }

    #[test]
    fn folders_of_other_users_are_not_swept() {
        if !rustix::process::geteuid().is_root() {
            crate::say::complain("NOTE: not tested: another user's folder needs root");
            return;
        }
        let temporary = tempfile::tempdir().unwrap();
        let theirs = leftover(temporary.path(), "cumux-run-theirs");
        chown(&theirs, Some(65534), None).unwrap();
        sweep(temporary.path());
        remove_own(&theirs);
        assert!(theirs.exists());
    }

    #[test]
    fn a_folder_goes_with_its_command() {
        let folder = Folder::make().unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o022, 0, "nobody else may write");
        assert!(lock_folder(&path).is_none(), "it is held");
        drop(folder);
        assert!(!path.exists());
    }
}
