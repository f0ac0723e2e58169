//! Executors that are really killed in the middle of kernels, and successors that continue.
//!
//! The "executor" is this test program, started again (`executor` below; an environment variable
//! tells it). The test holds what a keeper would hold: an extent of data, an extent of variables,
//! the progress log, and a journal with the last token that was reported. The test does not sleep:
//! it watches the data until it has changed a given number of times, and then kills.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use cumux_device::conformance::{Args, KERNELS, memory_file};
use cumux_device::{
    ClientId, ClientSpec, CopyExtent, Device, DeviceError, GlobalsAllocator, Image, Interrupted, Kernel, Launch, Outcome, Rows, Sink, StreamId, Work,
};
use cumux_wire::layout::ARENA_BASE;

const CLIENT: ClientId = 1;
const EXTENT: u64 = 2 << 20;
/// Addresses that the conformance suite does not use.
const DATA: u64 = ARENA_BASE + (31 << 40);
const VARIABLES: u64 = DATA + 4 * EXTENT;

const BLOCKS: u32 = 96;
const THREADS: u32 = 64;
const WORDS: u32 = BLOCKS * THREADS;
/// Submissions of a session: kernels, and for `mixed` a copy after each but the last.
const SUBMISSIONS: u64 = 9;
/// Where copies go to, and the same as a word of the extent.
const COPY: u64 = DATA + (1 << 20);
const COPY_WORD: u32 = 1 << 18;
const ROUNDS: u32 = 400;

/// The files of a session.
struct Keeper {
    data: OwnedFd,
    variables: OwnedFd,
    progress: OwnedFd,
    /// u64: last token reported as done. From byte 8: a text.
    journal: OwnedFd,
}

impl Keeper {
    fn new() -> Keeper {
        let progress = cumux_device_sim::open("sim:t4", Arc::new(Journal { file: None, seen: channel().0 })).unwrap().marks_bytes();
        Keeper { data: memory_file(EXTENT), variables: memory_file(EXTENT), progress: memory_file(progress as u64), journal: memory_file(4096) }
    }

    /// Starts an executor for this session.
    fn executor(&self, workload: &str) -> Child {
        let path = |file: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "executor", "--nocapture", "--test-threads=1"])
            .env("TAKEOVER_WORKLOAD", workload)
            .env("TAKEOVER_FILES", [path(&self.data), path(&self.variables), path(&self.progress), path(&self.journal)].join(" "))
            .env("CUMUX_SIM_THREADS", "3")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    }

    fn word(&self, index: u32) -> u32 {
        let mut word = [0; 4];
        rustix::io::pread(&self.data, &mut word, u64::from(index) * 4).unwrap();
        u32::from_le_bytes(word)
    }

    fn text(&self) -> String {
        let mut text = vec![0; 1000];
        rustix::io::pread(&self.journal, &mut text, 8).unwrap();
        String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()
    }

    /// Kills the executor when word `index` has changed `changes` times (or lets it end). Whether
    /// it was killed.
    fn kill_after(&self, executor: &mut Child, index: u32, changes: u32) -> bool {
        let (mut last, mut seen) = (self.word(index), 0);
        while seen < changes {
            if let Some(status) = executor.try_wait().unwrap() {
                assert!(status.success(), "an executor failed: {status}");
                return false;
            }
            let now = self.word(index);
            seen += u32::from(now != last);
            last = now;
        }
        executor.kill().unwrap();
        executor.wait().unwrap().signal() == Some(9)
    }
}

/// Writes down what is done, as an executor's journal does, before it lets the next work begin.
struct Journal {
    file: Option<File>,
    seen: Sender<(u64, Outcome)>,
}

impl Sink for Journal {
    fn retired(&self, _: ClientId, _: StreamId, token: u64, outcome: Outcome) {
        if let (Some(file), Outcome::Done { .. }) = (&self.file, &outcome) {
            file.write_all_at(&token.to_le_bytes(), 0).unwrap();
        }
        // The receiver is gone when the test has seen enough.
        let _ = self.seen.send((token, outcome));
    }

    fn text(&self, _: ClientId, _: cumux_device::Channel, _: &[u8]) {}
}

/// Variables one after the other in their extent; a successor finds them filled.
struct Variables {
    next: u64,
    restored: bool,
    device: Arc<dyn Device>,
}

impl GlobalsAllocator for Variables {
    fn variable(&mut self, _: &str, bytes: u64, _: u64, _: bool) -> Result<(u64, bool), DeviceError> {
        let address = self.next;
        self.next += bytes.next_multiple_of(256);
        self.device.allow(CLIENT, address, bytes, true);
        Ok((address, self.restored))
    }
}

/// Not a test of its own: the process that the others start and kill.
#[test]
fn executor() {
    let (Ok(workload), Ok(files)) = (std::env::var("TAKEOVER_WORKLOAD"), std::env::var("TAKEOVER_FILES")) else { return };
    let files: Vec<File> = files.split(' ').map(|path| File::options().read(true).write(true).open(path).unwrap()).collect();
    let [data, variables, progress, journal] = files.try_into().unwrap();
    let mut last = [0; 8];
    journal.read_exact_at(&mut last, 0).unwrap();
    let done = u64::from_le_bytes(last);

    let (seen, reports) = channel();
    let device = cumux_device_sim::open("sim:h200", Arc::new(Journal { file: Some(journal.try_clone().unwrap()), seen })).unwrap();
    device.open_client(CLIENT, &ClientSpec::default(), Some(progress.as_fd())).unwrap();
    device.map(DATA, data.as_fd(), 0, EXTENT).unwrap();
    device.map(VARIABLES, variables.as_fd(), 0, EXTENT).unwrap();
    device.allow(CLIENT, DATA, u64::from(4 * WORDS), true);
    device.allow(CLIENT, COPY, u64::from(4 * WORDS), true);
    let mut place = Variables { next: VARIABLES, restored: done > 0, device: device.clone() };
    let info = device.load_module(CLIENT, 1, Image::of(KERNELS.as_bytes()), &mut place).unwrap();

    let mut resumes = HashMap::new();
    for interrupted in device.recover(CLIENT) {
        match interrupted {
            Interrupted::Resume { stream_token, resume } => {
                resumes.insert(stream_token, resume);
            }
            Interrupted::Lost { why, .. } => {
                journal.write_all_at(why.as_bytes(), 8).unwrap();
                return;
            }
        }
    }
    let function = |name: &str| info.functions.iter().position(|f| f.name == name).unwrap() as u32;
    let launch = match workload.as_str() {
        "mixed" => Launch { function: function("grind"), parameters: Args::new().u64(DATA).u32(WORDS).u32(ROUNDS).bytes().into(), ..shape(BLOCKS) },
        "atomics" => Launch { function: function("add_atomically"), parameters: Args::new().u64(DATA).u32(u32::MAX).bytes().into(), ..shape(4) },
        other => panic!("no workload {other}"),
    };
    let stream = device.create_stream(CLIENT, 0).unwrap();
    for token in done + 1..=SUBMISSIONS {
        let work = if workload == "mixed" && token % 2 == 0 {
            let rows = |address| Rows { address, pitch: 0, slice: 0 };
            Work::Copy { target: rows(COPY), source: rows(DATA), extent: CopyExtent { width: u64::from(4 * WORDS), height: 1, depth: 1 } }
        } else {
            // Some of the kernels run in clusters, each of which is undone or done as a whole.
            let cluster = if workload == "mixed" && token % 4 == 3 { [4, 1, 1] } else { [0; 3] };
            Work::Kernel(Kernel { launch: Launch { cluster, ..launch.clone() }, resume: resumes.remove(&token) })
        };
        device.submit(stream, token, work).unwrap();
    }
    for _ in done + 1..=SUBMISSIONS {
        let (token, outcome) = reports.recv().unwrap();
        assert!(matches!(outcome, Outcome::Done { .. }), "{token}: {outcome:?}");
    }
}

fn shape(blocks: u32) -> Launch {
    Launch { module: 1, grid: [blocks, 1, 1], block: [THREADS, 1, 1], ..Launch::default() }
}

/// Small numbers that look random.
fn mix(seed: u32) -> u32 {
    let x = seed.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    (x ^ (x >> 15)).wrapping_mul(0x2c1b_3c6d) >> 8
}

#[test]
fn killed_again_and_again_and_every_word_right() {
    let mut killed = 0;
    for seed in 0..6u32 {
        let keeper = Keeper::new();
        for index in 0..WORDS {
            rustix::io::pwrite(&keeper.data, &index.to_le_bytes(), u64::from(index) * 4).unwrap();
        }
        for generation in 0..4 {
            let random = mix(seed * 16 + generation);
            let mut executor = keeper.executor("mixed");
            killed += u32::from(keeper.kill_after(&mut executor, random % WORDS, 1 + random / 7 % 6));
        }
        let status = keeper.executor("mixed").wait().unwrap();
        assert!(status.success(), "the last executor: {status}");
        for index in 0..WORDS {
            let after = |kernels: u32| (0..kernels * ROUNDS).fold(index, |x, _| x.wrapping_mul(3).wrapping_add(1));
            assert_eq!(keeper.word(index), after(5), "seed {seed}, word {index}");
            assert_eq!(keeper.word(COPY_WORD + index), after(4), "seed {seed}, copy of word {index}");
        }
    }
    assert!(killed >= 6, "only {killed} of 24 executors were caught at work");
}

#[test]
fn a_kernel_with_atomics_is_lost_and_says_why() {
    let keeper = Keeper::new();
    let mut executor = keeper.executor("atomics");
    assert!(keeper.kill_after(&mut executor, 0, 3));
    let sum = keeper.word(0);
    assert!(keeper.executor("atomics").wait().unwrap().success());
    assert!(keeper.text().contains("atomics"), "{:?}", keeper.text());
    assert_eq!(keeper.word(0), sum, "nothing was run and nothing undone");
}
