use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

const OTHER: u32 = 65534;

fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        eprintln!("NOTE: not tested: files of another user need root");
    }
    is
}

fn base() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn made(path: PathBuf, mode: u32) -> PathBuf {
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_directory_of_ours_is_made_and_opened() {
    let base = base();
    let path = base.path().join("a/b/c");
    assert!(Folder::open(&path).unwrap_err().is_missing());
    let folder = Folder::make(&path, 0o755, Rule::Service).unwrap();
    assert_eq!(folder.path(), path);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
    drop(Folder::open(&base.path().join("a/../a/./b/c")).unwrap());
    fs::write(base.path().join("file"), "").unwrap();
    assert!(matches!(Folder::open(&base.path().join("file")), Err(FolderError::NoDirectory { .. })));
}

#[test]
fn who_may_write_it_decides() {
    let base = base();
    for (mode, service, programs) in
        [(0o755, true, true), (0o700, true, true), (0o775, false, true), (0o777, false, false), (0o1777, true, true), (0o1775, true, true)]
    {
        let path = made(base.path().join(format!("{mode:o}")), mode);
        assert_eq!(Folder::open(&path).is_ok(), service, "{mode:o}");
        assert_eq!(Folder::make(&path, 0o755, Rule::Programs).is_ok(), programs, "{mode:o}");
        // A group that may write a directory above is trusted by its owner; everybody is not.
        let inner = made(path.join("inner"), 0o755);
        assert_eq!(Folder::open(&inner).is_ok(), mode != 0o777, "inside {mode:o}");
    }
    let error = Folder::open(&base.path().join("777/inner")).unwrap_err();
    assert!(error.to_string().contains("/777 may be written by everybody") && error.remedy().starts_with("chmod go-w"), "{error}: {}", error.remedy());
}

#[test]
fn what_belongs_to_somebody_else_is_refused_wherever_it_is_on_the_way() {
    if !is_root() {
        return;
    }
    let base = base();
    let theirs = made(base.path().join("theirs"), 0o755);
    let ours = made(theirs.join("ours"), 0o755);
    chown(&theirs, Some(OTHER), None).unwrap();
    for path in [&theirs, &ours] {
        let error = Folder::open(path).unwrap_err();
        assert!(matches!(&error, FolderError::Foreign { path, owner: OTHER } if *path == theirs), "{error}");
        assert!(error.is_danger());
    }
    // A link is as trustworthy as its owner.
    let (good, bad) = (base.path().join("good"), base.path().join("bad"));
    let target = made(base.path().join("target"), 0o755);
    symlink("target", &good).unwrap();
    symlink(&target, &bad).unwrap();
    std::os::unix::fs::lchown(&bad, Some(OTHER), None).unwrap();
    drop(Folder::open(&good).unwrap());
    assert!(matches!(Folder::open(&bad), Err(FolderError::ForeignLink { owner: OTHER, .. })));
    assert!(matches!(Folder::open(&bad.join("x")), Err(FolderError::ForeignLink { owner: OTHER, .. })), "also on the way");
    symlink("around", base.path().join("around")).unwrap();
    assert!(matches!(Folder::open(&base.path().join("around")), Err(FolderError::System { .. })), "a circle has an end");
}

#[test]
fn a_file_is_plain_or_it_is_not_used() {
    let base = base();
    let folder = Folder::open(base.path()).unwrap();
    let victim = base.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink("victim", base.path().join("link")).unwrap();
    fs::hard_link(&victim, base.path().join("second")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, base.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(base.path().join("socket")).unwrap();
    fs::create_dir(base.path().join("folder")).unwrap();
    symlink("nowhere", base.path().join("dangling")).unwrap();
    for name in ["link", "second", "pipe", "socket", "folder", "dangling"] {
        let error = folder.append(name, 0o644).unwrap_err();
        assert!(error.is_danger() && error.to_string().contains(name), "{name}: {error}");
        assert!(folder.lock(name).is_err() && folder.read(name, 100).is_err() && folder.check(name).is_err(), "{name}");
    }
    assert!(!base.path().join("nowhere").exists(), "no link was followed");
    // A pipe with a reader is no file either.
    let _reader = rustix::fs::open(base.path().join("pipe"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    assert!(matches!(folder.append("pipe", 0o644), Err(FolderError::NotPlain { what: "a pipe", .. })));
    fs::remove_file(base.path().join("second")).unwrap();
    folder.append("victim", 0o644).unwrap().write_all(b", still").unwrap();
    assert_eq!(folder.read("victim", 100).unwrap(), b"mine, still");
    assert!(folder.read("victim", 10).is_err(), "it is longer");
    folder.append("fresh", 0o640).unwrap().write_all(b"x").unwrap();
    assert!(folder.check("fresh").is_ok() && folder.check("missing").is_ok());
}

#[test]
fn a_file_of_somebody_else_is_not_used() {
    if !is_root() {
        return;
    }
    let base = base();
    let folder = Folder::open(base.path()).unwrap();
    fs::write(base.path().join("log"), "").unwrap();
    chown(base.path().join("log"), Some(OTHER), None).unwrap();
    assert!(matches!(folder.append("log", 0o644), Err(FolderError::Foreign { owner: OTHER, .. })));
    folder.replace("log", b"ours", 0o644).unwrap();
    assert_eq!(fs::metadata(base.path().join("log")).unwrap().uid(), 0, "another file has its name");
}

#[test]
fn what_is_replaced_is_gone_and_nothing_is_written_through_it() {
    let base = base();
    let folder = Folder::open(base.path()).unwrap();
    fs::write(base.path().join("victim"), "mine").unwrap();
    symlink("victim", base.path().join("state")).unwrap();
    // Left over from a process that died.
    symlink("victim", base.path().join(beside(OsStr::new("state"), "new"))).unwrap();
    folder.replace("state", b"new", 0o600).unwrap();
    assert_eq!(fs::read_to_string(base.path().join("victim")).unwrap(), "mine");
    let state = fs::symlink_metadata(base.path().join("state")).unwrap();
    assert!(state.is_file() && state.mode() & 0o777 == 0o600);
    folder.install_link("state", Path::new("victim")).unwrap();
    assert!(fs::symlink_metadata(base.path().join("state")).unwrap().is_symlink());
    folder.install("state", b"newer", 0o755).unwrap();
    assert_eq!((folder.read("state", 100).unwrap(), fs::read(base.path().join("victim")).unwrap()), (b"newer".to_vec(), b"mine".to_vec()));
    folder.remove("state").unwrap();
    folder.remove("state").unwrap();
    assert_eq!(folder.names(10).unwrap(), ["victim"]);
}

#[test]
fn a_lock_that_others_could_hold_is_made_anew() {
    let base = base();
    let folder = Folder::open(base.path()).unwrap();
    fs::write(base.path().join("lock"), "").unwrap();
    fs::set_permissions(base.path().join("lock"), fs::Permissions::from_mode(0o666)).unwrap();
    let strange = File::open(base.path().join("lock")).unwrap();
    rustix::fs::flock(&strange, FlockOperation::NonBlockingLockExclusive).unwrap();
    let held = folder.lock("lock").unwrap().unwrap();
    assert_eq!(held.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(folder.lock("lock").unwrap().is_none() && !folder.is_unlocked("lock"), "it is held");
    drop(held);
    assert!(folder.is_unlocked("lock"));
}

#[test]
fn a_folder_is_given_to_a_user_and_to_nobody_by_a_link() {
    if !is_root() {
        return;
    }
    let base = base();
    let folder = Folder::open(base.path()).unwrap();
    let give = || folder.make_private("user-65534", OTHER, OTHER, ("cumux", "../cumux"));
    let path = base.path().join("user-65534");
    for _ in 0..2 {
        let given = give().unwrap();
        let about = fs::metadata(&path).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o7777), (OTHER, 0o700), "new, and again");
        assert_eq!(given.names(9).unwrap(), ["cumux"]);
    }
    // A daemon that died before it passed the ownership on.
    chown(&path, Some(0), Some(0)).unwrap();
    give().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().uid(), OTHER);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(give(), Err(FolderError::NotTheirs { .. })), "another mode");
    fs::remove_dir_all(&path).unwrap();
    // A folder of root's stays root's.
    made(path.clone(), 0o700);
    fs::write(path.join("secret"), "").unwrap();
    assert!(matches!(give(), Err(FolderError::NotTheirs { .. })));
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
    fs::rename(&path, base.path().join("roots")).unwrap();
    symlink("roots", &path).unwrap();
    assert!(matches!(give(), Err(FolderError::NotTheirs { .. })), "a link");
    assert_eq!(fs::metadata(base.path().join("roots")).unwrap().uid(), 0);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert!(matches!(give(), Err(FolderError::NotTheirs { .. })), "a file");
    fs::remove_file(&path).unwrap();
    made(path.clone(), 0o700);
    chown(&path, Some(1), None).unwrap();
    assert!(matches!(give(), Err(FolderError::NotTheirs { .. })), "a third user's");
}

#[test]
fn a_socket_is_opened_to_all_and_nothing_else_is() {
    let base = base();
    let folder = Folder::open(base.path()).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(base.path().join("socket")).unwrap();
    fs::write(base.path().join("file"), "").unwrap();
    symlink("file", base.path().join("link")).unwrap();
    folder.open_socket_to_all("socket").unwrap();
    assert_eq!(fs::metadata(base.path().join("socket")).unwrap().mode() & 0o777, 0o666);
    assert!(folder.open_socket_to_all("file").is_err() && folder.open_socket_to_all("link").is_err());
    assert_eq!(fs::metadata(base.path().join("file")).unwrap().mode() & 0o022, 0);
}
