use super::*;
use crate::flood::SHAPE;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

fn log(path: PathBuf, limit: u64) -> Log<String> {
    Log::new(Sink::File(LogFile::at(path, limit)), SHAPE, false)
}

#[test]
fn sizes_are_read_or_refused() {
    for (text, bytes) in [("", 16 << 20), ("4096", 4096), ("16M", 16 << 20), (" 1k ", 1024), ("2G", 2 << 30)] {
        assert_eq!(limit(Some(text)).unwrap(), bytes, "{text}");
    }
    assert_eq!(limit(None).unwrap(), 16 << 20);
    for text in ["0", "0M", "-1", "16MB", "M", "much", "99999999999999G"] {
        assert!(limit(Some(text)).unwrap_err().to_string().contains("as in 16M"), "{text}");
    }
}

#[test]
fn a_full_disk_is_survived_and_admitted() {
    let folder = tempfile::tempdir().unwrap();
    let full = File::options().append(true).open("/dev/full").unwrap();
    let mut log = Log::<String>::new(Sink::Plain(full), SHAPE, false);
    log.line("Server", 1, "lost", None);
    log.line("Server", 1, "lost too", None);
    assert_eq!(log.dropped, 2);
    let path = folder.path().join("server.log");
    log.sink = Sink::File(LogFile::at(path.clone(), 1000));
    log.line("Server", 1, "kept", None);
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains("2 lines could not be written") && text.ends_with("kept\n"), "{text}");
}

#[test]
fn a_long_file_is_put_aside_and_who_reads_its_end_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    let mut log = log(path.clone(), 1000);
    log.line("Server", 1, "first", None);
    let mut tail = File::open(&path).unwrap();
    let inode = tail.metadata().unwrap().ino();
    let mut seen = String::new();
    for number in 0..100 {
        log.line("Server", 1, &format!("line {number}"), None);
        // As `tail -f` does: a file that has become shorter is read from its beginning.
        if tail.metadata().unwrap().len() < tail.stream_position().unwrap() {
            tail.seek(SeekFrom::Start(0)).unwrap();
        }
        tail.read_to_string(&mut seen).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= 1000);
    }
    assert_eq!(seen.lines().count(), 101);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    let aside = fs::read_to_string(folder.path().join("server.log.1")).unwrap();
    assert!(aside.len() <= 1000 && aside.len() > 900, "{}", aside.len());
    let all = aside + &fs::read_to_string(&path).unwrap();
    let last: Vec<&str> = all.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(last.last(), Some(&"99"));
    assert!(last.windows(2).all(|pair| pair[0].parse::<u32>().unwrap() + 1 == pair[1].parse::<u32>().unwrap()), "no line is missing between both");
    let lock = fs::metadata(folder.path().join(LOCK)).unwrap();
    assert_eq!(lock.mode() & 0o777, 0o600, "readers cannot hold it");
}

#[test]
fn several_writers_lose_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    // So large that no line is put aside twice.
    let limit = 40_000;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = path.clone();
            scope.spawn(move || {
                let mut log = log(path, limit);
                for number in 0..250 {
                    log.line("Server", writer, &format!("line {number}"), None);
                }
                assert_eq!(log.dropped, 0);
            });
        }
    });
    let all = fs::read_to_string(folder.path().join("server.log.1")).unwrap() + &fs::read_to_string(&path).unwrap();
    assert_eq!(all.lines().count(), 1000);
    assert!(all.lines().all(|line| line.starts_with('[') && line.contains("] line ")), "whole lines");
}

#[test]
fn a_file_that_was_moved_away_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    let mut log = log(path.clone(), 1000);
    log.line("Server", 1, "old", None);
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    log.line("Server", 1, "new", None);
    assert!(fs::read_to_string(&path).unwrap().ends_with("new\n"));
}

#[test]
fn nothing_is_written_through_links_or_into_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, folder.path().join("server.log")).unwrap();
    symlink(&victim, folder.path().join("control.log.1")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("pipe.log"), rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o666), 0).unwrap();
    for name in ["server.log", "pipe.log"] {
        assert!(LogFile::at(folder.path().join(name), 1000).prepare().is_err_and(|error| error.is_danger()));
        let mut log = log(folder.path().join(name), 1000);
        log.line("Server", 1, "forged", None);
        assert_eq!(log.dropped, 1);
    }
    let mut log = log(folder.path().join("control.log"), 100);
    for _ in 0..10 {
        log.line("Control", 1, "a line that is long enough to have the file put aside", None);
    }
    assert!(fs::symlink_metadata(folder.path().join("control.log.1")).unwrap().is_file());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}

/// The file cannot be put aside: there is a limit all the same, and a line that says so.
#[test]
fn what_cannot_be_kept_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    fs::create_dir(folder.path().join("server.log.1")).unwrap();
    let mut log = log(path.clone(), 1000);
    for number in 0..100 {
        log.line("Server", 1, &format!("line {number}"), None);
        assert!(fs::metadata(&path).unwrap().len() <= 2200);
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("Older lines could not be kept") && text.ends_with("line 99\n"), "{text}");
}

#[test]
fn masses_of_lines_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    let mut log = log(path.clone(), 16 << 20);
    let noisy = "such as noise".to_owned();
    for number in 0..20_000 {
        log.line("Server", 1, &format!("noise {number}"), Some(&noisy));
    }
    log.line("Server", 1, "something else", Some(&"other".to_owned()));
    log.finish("Server", 1);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.len() < 100_000, "{}", text.len());
    let written = text.lines().filter(|line| line.contains("] noise ")).count();
    let told: usize = text.lines().filter_map(|line| line.split_once("] ")?.1.split_once(" more lines such as noise")?.0.parse::<usize>().ok()).sum();
    assert_eq!(written + told, 20_000);
    assert!(text.contains("something else"));
}

#[test]
fn a_reader_who_locks_the_file_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    let mut log = log(path.clone(), 1000);
    log.line("Server", 1, "first", None);
    let reader = File::open(&path).unwrap();
    rustix::fs::flock(&reader, FlockOperation::NonBlockingLockExclusive).unwrap();
    for number in 0..50 {
        log.line("Server", 1, &format!("line {number}"), None);
    }
    assert!(fs::metadata(&path).unwrap().len() <= 1000);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
}
