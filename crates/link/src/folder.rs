//! Directories and files with which other users of the machine might tamper.
//!
//! A [`Folder`] is checked when it is opened and held by its descriptor from then on. It must
//! belong to root, to our own user or to a trusted user ([`crate::trust`]), and so must every
//! directory and every link on the way to it: nobody else can then exchange it. Everything in it is
//! opened relative to the descriptor, without following links and without waiting for the other end
//! of a pipe. An opened file must be a plain file of ours with one name. Ownership is changed by
//! descriptor only.
//!
//! A directory *above* may be writable by a group: its owner has trusted that group with it
//! (`/var/log` is the group syslog's on some systems).
//!
//! One file, although long: each operation relies on the checks of the one that opened the folder.

use crate::trust;
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RawMode, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

/// Links on one path at most, as in the kernel.
const MOST_LINKS: u32 = 40;
/// Flags for everything that is opened in a folder: follow no link, wait for nobody, adopt no
/// terminal.
const CAREFULLY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const WRITABLE_BY_GROUP: RawMode = 0o020;
const WRITABLE_BY_ALL: RawMode = 0o002;
const STICKY: RawMode = 0o1000;

/// Why a directory or a file in it is not used. Each text is a sentence without its full stop, so
/// that a remedy can follow.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A directory on the way, or the file, belongs to an untrusted user.
    #[error("{} belongs to user {owner}, who could put something else in its place", path.display())]
    Foreign {
        /// What was refused.
        path: PathBuf,
        /// The number of the owner.
        owner: u32,
    },
    /// A directory on the way is writable by others.
    #[error("{} may be written by {}, so that another user could put something else in its place", path.display(), if *everybody { "everybody" } else { "its group" })]
    Open {
        /// What was refused.
        path: PathBuf,
        /// True if all users may write it, false if its group may.
        everybody: bool,
    },
    /// A link on the way belongs to an untrusted user.
    #[error("{} is a link that user {owner} has made", path.display())]
    ForeignLink {
        /// What was refused.
        path: PathBuf,
        /// The number of the owner.
        owner: u32,
    },
    /// Something else than a directory is on the way.
    #[error("{} is not a directory", path.display())]
    NoDirectory {
        /// What was refused.
        path: PathBuf,
    },
    /// The file is something else than a plain file.
    #[error("{} is {what}, and must be a plain file", path.display())]
    NotPlain {
        /// What was refused.
        path: PathBuf,
        /// What it is: `a link`, for example.
        what: &'static str,
    },
    /// The file has several names, so that it may be another user's file, too.
    #[error("{} has {links} names (hard links), and must have one", path.display())]
    Linked {
        /// What was refused.
        path: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// A folder for one user is something else.
    #[error("{} should be a directory of user {uid} with mode 700, and is {found}", path.display())]
    NotTheirs {
        /// What was refused.
        path: PathBuf,
        /// The user it is for.
        uid: u32,
        /// What it is instead.
        found: String,
    },
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    System {
        /// What was refused.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
}

impl FolderError {
    fn system(path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::System { path: path.to_owned(), cause: cause.into() }
    }

    /// Whether another user could do harm here, in contrast to a system that refuses (a full disk,
    /// a missing right).
    #[must_use]
    pub fn is_danger(&self) -> bool {
        !matches!(self, Self::System { .. } | Self::NoDirectory { .. })
    }

    /// Whether there is nothing of that name.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }

    /// What to do about it, beside choosing another directory. Empty where there is nothing else.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Foreign { path, owner } => {
                let trust = trust::VARIABLE;
                format!("look at it (ls -ld {}), then remove it or chown it; or set {trust}={owner} if you trust that user", path.display())
            }
            Self::Open { path, everybody } => format!("chmod {} {}", if *everybody { "go-w" } else { "g-w" }, path.display()),
            Self::ForeignLink { path, .. } | Self::NotPlain { path, .. } | Self::Linked { path, .. } | Self::NotTheirs { path, .. } => {
                format!("look at it (ls -ld {0}) and remove it", path.display())
            }
            Self::NoDirectory { .. } | Self::System { .. } => String::new(),
        }
    }

    /// The same as an I/O error, for callers that report on files.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::System { cause, .. } => cause,
            other => io::Error::other(other.to_string()),
        }
    }
}

/// How strict the check of the directory itself is. The directories above it are always checked in
/// the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Its owner alone may write it, or it is sticky: for the service's own files.
    Service,
    /// Its group may write it, too: for installed programs (`/usr/local`).
    Programs,
}

/// A checked directory that no untrusted user can exchange.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Folder {
    /// Opens a directory that is there.
    ///
    /// # Errors
    /// [`FolderError`]: it is missing, or not safe.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Self::reach(path, None, Rule::Service)
    }

    /// Opens a directory and makes the missing parts of it with these permission bits, whatever the
    /// umask.
    ///
    /// # Errors
    /// As [`Folder::open`], or the directory cannot be made.
    pub fn make(path: &Path, mode: u32, rule: Rule) -> Result<Self, FolderError> {
        Self::reach(path, Some(Mode::from_raw_mode(mode)), rule)
    }

    /// The folder of a file, and the file's name in it.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn of(file: &Path) -> Result<(Self, &OsStr), FolderError> {
        match (file.parent(), file.file_name()) {
            (Some(parent), Some(name)) => Ok((Self::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?, name)),
            _ => Err(FolderError::NotPlain { path: file.to_owned(), what: "no name of a file" }),
        }
    }

    /// Walks from `/` to the directory, one name at a time, and checks everything on the way.
    fn reach(path: &Path, make: Option<Mode>, rule: Rule) -> Result<Self, FolderError> {
        let absolute = std::path::absolute(path).map_err(|cause| FolderError::system(path, cause))?;
        let mut rest = names(&absolute);
        let mut at = root()?;
        let mut shown = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let next_shown = if name == ".." { parent_of(&shown) } else { shown.join(&name) };
            let failed = |errno: Errno| FolderError::system(&next_shown, errno);
            let next = match (step(&at, &name), make) {
                (Err(Errno::NOENT), Some(mode)) => make_directory(&at, &name, mode).map_err(failed)?,
                (outcome, _) => outcome.map_err(failed)?,
            };
            let stat = rustix::fs::fstat(&next).map_err(failed)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    if !is_trusted_above(stat.st_uid) {
                        return Err(FolderError::ForeignLink { path: next_shown, owner: stat.st_uid });
                    }
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(failed(Errno::LOOP));
                    }
                    let target = rustix::fs::readlinkat(&next, c"", Vec::new()).map_err(failed)?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        (at, shown) = (root()?, PathBuf::from("/"));
                    }
                    let mut onward = names(&target);
                    onward.append(&mut rest);
                    rest = onward;
                }
                FileType::Directory => {
                    if !rest.is_empty() {
                        check_above(&stat, &next_shown)?;
                    } else if !trust::is_trusted(stat.st_uid) {
                        return Err(FolderError::Foreign { path: next_shown, owner: stat.st_uid });
                    } else {
                        check_writers(&stat, &next_shown, rule == Rule::Service)?;
                    }
                    (at, shown) = (next, next_shown);
                }
                _ => return Err(FolderError::NoDirectory { path: next_shown }),
            }
        }
        Ok(Self { handle: at, path: absolute })
    }

    /// The absolute path under which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn shown(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    fn open_plain(&self, name: &OsStr, how: OFlags, mode: u32) -> Result<File, FolderError> {
        let shown = self.shown(name);
        let file = rustix::fs::openat(&self.handle, name, how | CAREFULLY, Mode::from_raw_mode(mode)).map_err(|errno| match errno {
            Errno::LOOP => FolderError::NotPlain { path: shown.clone(), what: "a link" },
            // A pipe without a reader, or a socket.
            Errno::NXIO => FolderError::NotPlain { path: shown.clone(), what: "a pipe or a socket" },
            Errno::ISDIR => FolderError::NotPlain { path: shown.clone(), what: "a directory" },
            errno => FolderError::system(&shown, errno),
        })?;
        check_plain(&rustix::fs::fstat(&file).map_err(|errno| FolderError::system(&shown, errno))?, &shown)?;
        Ok(file.into())
    }

    /// Opens a file, or makes it if there is none; never through a link and never another user's.
    fn open_or_make(&self, name: &OsStr, how: OFlags, mode: u32) -> Result<File, FolderError> {
        // Other processes with the same right can make or remove the file in between, a few times.
        let mut last = FolderError::system(&self.shown(name), Errno::AGAIN);
        for _ in 0..8 {
            match self.open_plain(name, how, 0) {
                Err(error) if error.is_missing() => last = error,
                other => return other,
            }
            match self.open_plain(name, how | OFlags::CREATE | OFlags::EXCL, mode) {
                Err(FolderError::System { cause, .. }) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Err(last)
    }

    /// Opens a file to write at its end, and makes it with `mode` if there is none.
    ///
    /// # Errors
    /// [`FolderError`]: the file is not a plain one of ours, or the system refuses.
    pub fn append(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, FolderError> {
        self.open_or_make(name.as_ref(), OFlags::WRONLY | OFlags::APPEND, mode)
    }

    /// Opens a file that only its owner may open, for use as a lock.
    ///
    /// # Errors
    /// As [`Folder::append`].
    pub fn lock_file(&self, name: impl AsRef<OsStr>) -> Result<File, FolderError> {
        let name = name.as_ref();
        let file = self.open_or_make(name, OFlags::RDWR, 0o600)?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| FolderError::system(&self.shown(name), errno))?;
        if stat.st_mode & 0o077 == 0 {
            return Ok(file);
        }
        // Other users may have opened the file and could hold its lock: a new one replaces it.
        drop(file);
        self.remove(name).map_err(|cause| FolderError::system(&self.shown(name), cause))?;
        self.open_or_make(name, OFlags::RDWR, 0o600)
    }

    /// Takes the lock of such a file; `None` if another process holds it.
    ///
    /// # Errors
    /// As [`Folder::append`].
    pub fn lock(&self, name: impl AsRef<OsStr>) -> Result<Option<File>, FolderError> {
        let file = self.lock_file(name)?;
        Ok(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
    }

    /// Opens a file of ours to read.
    ///
    /// # Errors
    /// As [`Folder::append`].
    pub fn open_to_read(&self, name: impl AsRef<OsStr>) -> Result<File, FolderError> {
        self.open_plain(name.as_ref(), OFlags::RDONLY, 0)
    }

    /// Reads a file of ours that has at most `most` bytes.
    ///
    /// # Errors
    /// As [`Folder::append`], also for a longer file.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> Result<Vec<u8>, FolderError> {
        let name = name.as_ref();
        let file = self.open_to_read(name)?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(|cause| FolderError::system(&self.shown(name), cause))?;
        if bytes.len() as u64 > most {
            return Err(FolderError::system(&self.shown(name), io::Error::other(format!("has more than {most} bytes"))));
        }
        Ok(bytes)
    }

    /// Puts a file in place in one step; whatever had that name, even a link, is gone afterwards.
    /// Only one process at a time may do this for a name.
    ///
    /// # Errors
    /// [`FolderError::System`]; the old file is then still there.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
        self.replace_with(name, mode, |file| file.write_all(bytes))
    }

    /// As [`Folder::replace`], with the contents that `write` writes.
    ///
    /// # Errors
    /// As [`Folder::replace`].
    pub fn replace_with(&self, name: impl AsRef<OsStr>, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), FolderError> {
        // The temporary name is always the same: a process that dies in between leaves one file at
        // most.
        self.put_in_place(name.as_ref(), "new", |fresh| self.write_fresh(fresh, mode, write))
    }

    /// As [`Folder::replace`], where several processes may do it at the same time: the last one
    /// wins.
    ///
    /// # Errors
    /// As [`Folder::replace`].
    pub fn install(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
        self.put_in_place(name.as_ref(), &std::process::id().to_string(), |fresh| self.write_fresh(fresh, mode, |file| file.write_all(bytes)))
    }

    /// As [`Folder::install`], with a link to `target`.
    ///
    /// # Errors
    /// As [`Folder::replace`].
    pub fn install_link(&self, name: impl AsRef<OsStr>, target: &Path) -> Result<(), FolderError> {
        self.put_in_place(name.as_ref(), &std::process::id().to_string(), |fresh| Ok(rustix::fs::symlinkat(target, &self.handle, fresh)?))
    }

    fn write_fresh(&self, fresh: &OsStr, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let mut file = self.open_plain(fresh, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600).map_err(FolderError::into_io)?;
        write(&mut file)?;
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Makes an entry under a temporary name and moves it into place.
    fn put_in_place(&self, name: &OsStr, ending: &str, make: impl FnOnce(&OsStr) -> io::Result<()>) -> Result<(), FolderError> {
        let fresh = beside(name, ending);
        // A process that died in between may have left one.
        let made = self.remove(&fresh).and_then(|()| make(&fresh));
        let outcome = made.and_then(|()| Ok(rustix::fs::renameat(&self.handle, &fresh, &self.handle, name)?));
        if outcome.is_err() {
            let _ = self.remove(&fresh);
        }
        outcome.map_err(|cause| FolderError::system(&self.shown(name), cause))
    }

    /// Removes a name, whatever it names except a directory. A missing name is no error.
    ///
    /// # Errors
    /// The system's, for a directory among others.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.handle, name.as_ref(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name.as_ref(), AtFlags::REMOVEDIR)?)
    }

    /// The metadata of a name in it, without following a link.
    ///
    /// # Errors
    /// The system's.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.handle, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Checks that a file is a plain one of ours.
    ///
    /// # Errors
    /// [`FolderError`] says what it is instead; a missing file is no error.
    pub fn check(&self, name: impl AsRef<OsStr>) -> Result<(), FolderError> {
        match self.stat(name.as_ref()) {
            Ok(stat) => check_plain(&stat, &self.shown(name.as_ref())),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(FolderError::system(&self.shown(name.as_ref()), cause)),
        }
    }

    /// The names in it, at most `most`.
    ///
    /// # Errors
    /// The system's.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let listing = rustix::fs::openat(&self.handle, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut all = Vec::new();
        for entry in rustix::fs::Dir::new(listing)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                all.push(name);
            }
            if all.len() >= most {
                break;
            }
        }
        Ok(all)
    }

    /// Lets every user connect to a socket of ours.
    ///
    /// # Errors
    /// It is no socket of ours, or the system refuses.
    pub fn open_socket_to_all(&self, name: impl AsRef<OsStr>) -> Result<(), FolderError> {
        let (name, mode) = (name.as_ref(), Mode::from_raw_mode(0o666));
        let shown = self.shown(name);
        let failed = |errno: Errno| FolderError::system(&shown, errno);
        let socket = rustix::fs::openat(&self.handle, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&socket).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_uid != trust::own() {
            return Err(FolderError::NotPlain { path: shown, what: "not the socket that was just made there" });
        }
        match rustix::fs::chmod(by_descriptor(&socket), mode) {
            // Without /proc, by its name: no other user can have changed what the name means in
            // this directory.
            Err(Errno::NOENT) => rustix::fs::chmodat(&self.handle, name, mode, AtFlags::empty()).map_err(failed),
            other => other.map_err(failed),
        }
    }

    // Folders of other users ----------------------------------------------------------------------

    /// A folder in this one that belongs to `uid` alone. It is made, gets one link (name and
    /// target), and its ownership is passed to the user. A folder that exists must belong to the
    /// user already.
    ///
    /// # Errors
    /// [`FolderError::NotTheirs`] for anything else under that name, or the system refuses.
    pub fn make_private(&self, name: &str, uid: u32, gid: u32, link: (&str, &str)) -> Result<Self, FolderError> {
        let shown = self.shown(name);
        let failed = |errno: Errno| FolderError::system(&shown, errno);
        let (handle, is_new) = match self.enter(name) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&self.handle, name, Mode::from_raw_mode(0o700)).map_err(failed)?;
                (self.enter(name).map_err(failed)?, true)
            }
            Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
                let found = "a link, a file or a mount of something else".to_owned();
                return Err(FolderError::NotTheirs { path: shown, uid, found });
            }
            other => (other.map_err(failed)?, false),
        };
        let stat = rustix::fs::fstat(&handle).map_err(failed)?;
        let folder = Self { handle, path: shown.clone() };
        if !is_new && stat.st_uid == uid && stat.st_mode & 0o7777 == 0o700 {
            return Ok(folder);
        }
        // It is still ours and has nothing but the link: a daemon died before it passed the
        // ownership on.
        let unfinished = || folder.names(2).is_ok_and(|names| names.iter().all(|name| name == link.0));
        if stat.st_uid != trust::own() || stat.st_mode & 0o7777 != 0o700 || !unfinished() {
            let found = format!("of user {} with mode {:o}", stat.st_uid, stat.st_mode & 0o7777);
            return Err(FolderError::NotTheirs { path: shown, uid, found });
        }
        match rustix::fs::symlinkat(link.1, &folder.handle, link.0) {
            Err(Errno::EXIST) => {}
            outcome => outcome.map_err(failed)?,
        }
        rustix::fs::fchown(&folder.handle, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(failed)?;
        Ok(folder)
    }

    /// A real directory in this one, on the same file system. The caller checks its owner.
    ///
    /// # Errors
    /// ENOENT, ELOOP or ENOTDIR for anything but a directory, EXDEV for a mount.
    fn enter(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<OwnedFd> {
        let (name, how) = (name.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY | CAREFULLY);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.handle, name, how, Mode::empty(), resolve) {
            // Kernels and sandboxes without that call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return other,
        }
        if rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?.st_dev != rustix::fs::fstat(&self.handle)?.st_dev {
            return Err(Errno::XDEV);
        }
        rustix::fs::openat(&self.handle, name, how, Mode::empty())
    }

    /// Opens a folder that [`Folder::make_private`] made: its contents are that user's and must not
    /// be believed.
    ///
    /// # Errors
    /// The system's; [`std::io::ErrorKind::CrossesDevices`] for a mount.
    pub fn given(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        Ok(Self { handle: self.enter(name.as_ref())?, path: self.shown(name.as_ref()) })
    }

    /// Whether no process holds a lock file. The folder may belong to another user.
    #[must_use]
    pub fn is_unlocked(&self, name: impl AsRef<OsStr>) -> bool {
        let file = rustix::fs::openat(&self.handle, name.as_ref(), OFlags::WRONLY | CAREFULLY, Mode::empty());
        file.is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
    }
}

/// A path by which the system finds an open file of this process.
#[must_use]
pub fn by_descriptor(handle: &impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd()))
}

/// A temporary name beside another.
fn beside(name: &OsStr, ending: &str) -> OsString {
    let mut fresh = OsString::from(".");
    fresh.push(name);
    fresh.push(".");
    fresh.push(ending);
    fresh
}

fn root() -> Result<OwnedFd, FolderError> {
    rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| FolderError::system(Path::new("/"), errno))
}

/// Opens an entry without following it if it is a link.
fn step(at: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a directory. The caller then checks it as if it had been there before.
fn make_directory(at: &OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {
            let made = rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | CAREFULLY, Mode::empty())?;
            if rustix::fs::fstat(&made)?.st_uid == trust::own() {
                rustix::fs::fchmod(&made, mode)?;
            }
        }
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    step(at, name)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// Whether a user may own a directory above. In a user namespace, root's directories outside of it
/// appear as those of the overflow user.
fn is_trusted_above(uid: u32) -> bool {
    trust::is_trusted(uid) || trust::is_unmapped(uid)
}

fn check_above(stat: &Stat, path: &Path) -> Result<(), FolderError> {
    if !is_trusted_above(stat.st_uid) {
        return Err(FolderError::Foreign { path: path.to_owned(), owner: stat.st_uid });
    }
    check_writers(stat, path, false)
}

fn check_writers(stat: &Stat, path: &Path, also_group: bool) -> Result<(), FolderError> {
    let everybody = stat.st_mode & WRITABLE_BY_ALL != 0;
    let group = also_group && stat.st_mode & WRITABLE_BY_GROUP != 0;
    if (everybody || group) && stat.st_mode & STICKY == 0 {
        return Err(FolderError::Open { path: path.to_owned(), everybody });
    }
    Ok(())
}

/// Checks for a plain file with one name that belongs to us or to a trusted user.
fn check_plain(stat: &Stat, path: &Path) -> Result<(), FolderError> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "",
        FileType::Symlink => "a link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::Directory => "a directory",
        _ => "a device",
    };
    if !what.is_empty() {
        return Err(FolderError::NotPlain { path: path.to_owned(), what });
    }
    if !trust::is_trusted(stat.st_uid) {
        return Err(FolderError::Foreign { path: path.to_owned(), owner: stat.st_uid });
    }
    if stat.st_nlink > 1 {
        return Err(FolderError::Linked { path: path.to_owned(), links: stat.st_nlink });
    }
    Ok(())
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
