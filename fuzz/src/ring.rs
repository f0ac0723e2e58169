//! A client that may do anything with its ring and its window, beside one that does what it should,
//! on an executor with two software GPUs.
//!
//! Whatever the first one does: nobody panics or hangs, the second one gets right results, and
//! nothing of the first is left when it has gone. Its executor may be killed in between, which is
//! played by closing the session and opening it again from its files.

mod guest;
mod ops;

use crate::bytes::Bytes;
use cumux_device::{Device, DeviceError, Open, Sink};
use cumux_device_sim::Settings;
use cumux_executor::fuzzing::Bench;
use cumux_ring::memory::{Memory as _, Ordering};
use cumux_wire::layout::{STREAMS, page, ring};
use cumux_wire::record::{self, Launch, NO_ANSWER, NO_STREAM, Op};
use cumux_wire::result;
use guest::Guest;
use ops::Known;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Steps in one run.
const MOST: usize = 64;
/// Looks at a session that has work, before the run goes on without waiting for it.
const LOOKS: u32 = 40;
/// A kernel that runs longer is ended.
const WATCHDOG: Duration = Duration::from_millis(20);
/// Whoever waits longer for its neighbour's sake, and after so many looks, is not served any more.
/// (A clock goes on while this process is stopped.)
const LONGEST_NEIGHBOUR_WAIT: Duration = Duration::from_secs(20);
const LONGEST_NEIGHBOUR_LOOKS: u32 = 100_000;

const KERNELS: &str = include_str!("ring/kernels.ptx");
/// Numbers of the neighbour's elements.
const COUNT: usize = 64;
/// Where in a window the neighbour's numbers go, and where they come back.
const NUMBERS: u64 = 0x20_0000;
const RESULTS: u64 = 0x21_0000;

/// Software GPUs with one thread each.
struct Cards;

impl Open for Cards {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(cumux_device_sim::open_with(
            id,
            sink,
            Settings {
                threads: 1,
                watchdog: Some(WATCHDOG),
                marks: true,
                memory: cumux_device_sim::Memory::Own(1 << 30),
                faults: cumux_device_sim::FaultTiming::default(),
            },
        )?)
    }
}

/// What stays from run to run: devices cost too much time to open.
struct Scene {
    bench: Bench,
    neighbour: Guest,
    /// Where the neighbour's numbers are on its device.
    memory: u64,
    seq: u64,
    round: u32,
    /// Free addresses and what is kept, while nobody but the neighbour is there.
    untouched: String,
}

fn scene() -> &'static Mutex<Scene> {
    static SCENE: OnceLock<Mutex<Scene>> = OnceLock::new();
    SCENE.get_or_init(|| Mutex::new(Scene::new()))
}

/// # Panics
/// The executor does not do what it should.
pub fn run(bytes: &mut Bytes<'_>) {
    let mut scene = scene().lock().unwrap_or_else(PoisonError::into_inner);
    let Scene { bench, memory, .. } = &*scene;
    Hostile::new(bytes, bench, *memory).play();
    scene.expect_untouched();
}

impl Scene {
    fn new() -> Self {
        let bench = Bench::new(&Cards, &["sim:l4".to_owned(), "sim:t4".to_owned()]);
        let neighbour = Guest::new(1);
        neighbour.open(&bench, 1).expect("a neighbour");
        let mut scene = Self { bench, neighbour, memory: 0, seq: 0, round: 0, untouched: String::new() };
        scene.neighbour.write_window(0, KERNELS.as_bytes());
        let window = scene.neighbour.window();
        scene.tell(NO_STREAM, &Op::StreamCreate { index: 0, device: 0, priority: 0, partition: 0 });
        let load = Op::ModuleLoad { module: 1, device: 0, image: window, image_bytes: KERNELS.len() as u64, info: window + (1 << 20), info_bytes: 65_536 };
        scene.ask(&load);
        scene.memory = scene.ask(&Op::MemAlloc { device: 0, bytes: 4096, align: 256 });
        scene.work();
        scene.untouched = scene.bench.belongings();
        scene
    }

    fn tell(&mut self, stream: u32, op: &Op) {
        if stream != NO_STREAM {
            self.seq += 1;
        }
        let record = self.neighbour.record(stream, self.seq, NO_ANSWER, op);
        assert!(self.neighbour.push(&record), "the neighbour's ring is empty");
    }

    /// The first word of the answer.
    fn ask(&mut self, op: &Op) -> u64 {
        let record = self.neighbour.record(NO_STREAM, 0, 0, op);
        assert!(self.neighbour.push(&record), "the neighbour's ring is empty");
        let answer = self.wait(|scene| scene.neighbour.answer(0));
        assert_eq!(answer.result, result::SUCCESS, "the neighbour's {op:?}");
        answer.words[0]
    }

    fn wait<T>(&mut self, mut come: impl FnMut(&Self) -> Option<T>) -> T {
        let (begun, mut looks) = (Instant::now(), 0_u32);
        loop {
            self.bench.intake(1);
            if let Some(value) = come(self) {
                return value;
            }
            looks = looks.saturating_add(1);
            assert!(
                looks < LONGEST_NEIGHBOUR_LOOKS || begun.elapsed() < LONGEST_NEIGHBOUR_WAIT,
                "the neighbour is not served any more, its error is {}",
                self.neighbour.client.sticky()
            );
            std::thread::yield_now();
        }
    }

    /// The neighbour adds one to its numbers.
    fn work(&mut self) {
        self.round = self.round.wrapping_add(1);
        let numbers: Vec<u8> = (0..COUNT as u32).flat_map(|n| (n ^ self.round).to_le_bytes()).collect();
        self.neighbour.write_window(NUMBERS, &numbers);
        let (window, memory) = (self.neighbour.window(), self.memory);
        let copy = |target, source| Op::linear_copy(target, source, numbers.len() as u64);
        let mut parameters = memory.to_le_bytes().to_vec();
        parameters.extend((COUNT as u32).to_le_bytes());
        let add = Launch { module: 1, function: 0, grid: [1; 3], block: [COUNT as u32, 1, 1], parameters: parameters.into(), ..Launch::default() };
        self.tell(0, &copy(memory, window + NUMBERS));
        self.tell(0, &Op::Launch(add));
        self.tell(0, &copy(window + RESULTS, memory));
        let seq = self.seq;
        self.wait(|scene| (scene.neighbour.client.completed(0) >= seq).then_some(()));
        assert_eq!(self.neighbour.client.sticky(), 0, "the neighbour has an error");
        let expected: Vec<u8> = (0..COUNT as u32).flat_map(|n| (n ^ self.round).wrapping_add(1).to_le_bytes()).collect();
        assert_eq!(self.neighbour.read_window(RESULTS, expected.len()), expected, "the neighbour's results");
    }

    fn expect_untouched(&mut self) {
        assert_eq!(self.bench.belongings(), self.untouched, "something of a client that has gone is left");
        self.work();
    }
}

/// The client under test.
struct Hostile<'b, 'd, 's> {
    bytes: &'b mut Bytes<'d>,
    bench: &'s Bench,
    guest: Guest,
    known: Known,
    /// Sequence numbers of its streams, and whether each is there.
    seqs: BTreeMap<u32, (u64, bool)>,
    generation: u32,
    /// It keeps to the form of records and to the order of its streams: what it asks for is wrong
    /// enough.
    formal: bool,
}

impl<'b, 'd, 's> Hostile<'b, 'd, 's> {
    fn new(bytes: &'b mut Bytes<'d>, bench: &'s Bench, neighbours: u64) -> Self {
        let guest = Guest::new(2);
        guest.open(bench, 1).expect("a session");
        let window = guest.window();
        guest.write_window(0, KERNELS.as_bytes());
        let images = vec![(window, KERNELS.len() as u64), (window + 0x1_0000, 4096)];
        let known = Known { window, addresses: vec![neighbours], images };
        let formal = !bytes.one_in(4);
        let mut hostile = Self { bytes, bench, guest, known, seqs: BTreeMap::new(), generation: 1, formal };
        if formal || !hostile.bytes.one_in(4) {
            // As every honest client begins.
            hostile.push(&Op::StreamCreate { index: 0, device: 0, priority: 0, partition: 0 });
            let load = Op::ModuleLoad { module: 1, device: 0, image: window, image_bytes: KERNELS.len() as u64, info: window + (1 << 20), info_bytes: 65_536 };
            hostile.push(&load);
            hostile.settle();
            hostile.allocate(4096);
        }
        hostile
    }

    fn play(mut self) {
        for _ in 0..MOST {
            if self.bytes.is_empty() {
                break;
            }
            self.step();
        }
        self.settle();
        self.bench.forget(2);
    }

    fn step(&mut self) {
        match self.bytes.below(25) {
            // All of these break the protocol, and nothing is read any more.
            12..=14 if self.formal => self.settle(),
            0..=11 => {
                let op = ops::op(self.bytes, &self.known);
                self.push(&op);
            }
            12 => {
                let length = usize::from(self.bytes.short() % 512).next_multiple_of(8);
                let mut raw = self.bytes.take(length).to_vec();
                raw.resize(length, 0);
                self.guest.push(&raw);
            }
            13 => {
                // Anywhere in the header, or in what was pushed last.
                let near = ring::DATA as u64 + self.guest.head.wrapping_sub(64) % ring::DATA_BYTES as u64;
                let at = if self.bytes.one_in(2) { near } else { 0 } + u64::from(self.bytes.byte());
                let value = [self.bytes.byte()];
                if at < ring::BYTES as u64 {
                    self.guest.ring.write(at as usize, &value);
                }
            }
            14 => {
                let head = if self.bytes.one_in(4) { self.bytes.long() } else { self.guest.head.wrapping_add(u64::from(self.bytes.byte())).wrapping_sub(64) };
                self.guest.set_head(head);
            }
            15..=17 => self.settle(),
            18 => {
                let (stream, seq) = (self.bytes.mostly(&[0, 1, 2]) % STREAMS as u32, self.bytes.mostly(&[1, 2, 3, 9]));
                self.guest.client.set_host_done(stream, u64::from(seq));
            }
            19 => {
                let offset = if self.bytes.one_in(2) { 0x1_0000 } else { u64::from(self.bytes.short()) };
                let length = usize::from(self.bytes.short() % 4096);
                let bytes = self.bytes.take(length);
                self.guest.write_window(offset, bytes);
            }
            20 | 21 => {
                let bytes = self.bytes.pick(&[4096, 256, 1 << 20, 3 << 20]);
                self.allocate(bytes);
            }
            22 => self.take_over(),
            23 => self.write_page(),
            _ => self.look(),
        }
    }

    /// Writes into the page, which is the executor's to write. Not over `TAKEN`:
    /// `leave_out_what_is_heavy` goes by it.
    fn write_page(&mut self) {
        let cell = match self.bytes.below(4) {
            0 => self.bytes.pick(&[page::STICKY, page::TEXT_HEAD, page::MEMORY_USED, page::GENERATION, page::SLEEPING]) / 8,
            1 => 1 + self.bytes.below(255),
            2 => page::COMPLETED / 8 + self.bytes.below(8),
            _ => (1 + self.bytes.word() as usize % (page::BYTES / 8)).min(page::BYTES / 8 - 1),
        };
        let value = if self.bytes.one_in(2) { self.bytes.pick(&[0, 1, u64::MAX, u64::MAX - 1, 1 << 63]) } else { self.bytes.long() };
        self.guest.page.store64(cell * 8, value, Ordering::Release);
    }

    /// Puts an operation into the ring, sometimes with a lie in it.
    fn push(&mut self, op: &Op) {
        let there: Vec<u32> = self.seqs.iter().filter(|(_, (_, there))| *there).map(|(stream, _)| *stream).collect();
        let mut stream = NO_STREAM;
        let mut seq = 0;
        if op.in_stream() {
            stream = if self.formal && !there.is_empty() { self.bytes.pick(&there) } else { self.bytes.pick(&[0, 0, 0, 1, 2]) };
            seq = self.seqs.get(&stream).map_or(0, |(seq, _)| *seq) + 1;
        }
        let answer = self.bytes.pick(&[NO_ANSWER, 0, 1, 63]);
        let mut record = self.guest.record(stream, seq, answer, op);
        if !self.formal && self.bytes.one_in(16) {
            let at = usize::from(self.bytes.short()) % record.len();
            record[at] = self.bytes.byte();
        }
        if self.formal && (record::decode(&record).is_err() || self.breaks_the_order(op, stream)) {
            return;
        }
        if self.guest.push(&record) {
            self.note(op, stream, seq);
        }
    }

    /// Whether it names a stream that is not there, or makes one that is.
    fn breaks_the_order(&self, op: &Op, stream: u32) -> bool {
        let there = |stream| self.seqs.get(&stream).is_some_and(|(_, there)| *there);
        match op {
            Op::StreamCreate { index, device, partition, .. } => there(*index) || *device > 1 || *partition != 0,
            Op::StreamDestroy { index } => !there(*index),
            op => op.in_stream() && !there(stream),
        }
    }

    fn note(&mut self, op: &Op, stream: u32, seq: u64) {
        match op {
            Op::StreamCreate { index, .. } => {
                self.seqs.entry(*index).or_default().1 = true;
            }
            Op::StreamDestroy { index } => {
                self.seqs.entry(*index).or_default().1 = false;
            }
            Op::Reset => self.seqs.values_mut().for_each(|(_, there)| *there = false),
            _ if stream != NO_STREAM => self.seqs.entry(stream).or_default().0 = seq,
            _ => {}
        }
    }

    /// Memory, whose address is known afterwards.
    fn allocate(&mut self, bytes: u64) {
        let record = self.guest.record(NO_STREAM, 0, 5, &Op::MemAlloc { device: 0, bytes, align: 256 });
        if !self.guest.push(&record) {
            return;
        }
        for _ in 0..LOOKS {
            self.look();
            if let Some(answer) = self.guest.answer(5) {
                if answer.result == result::SUCCESS {
                    self.known.addresses.push(answer.words[0]);
                }
                return;
            }
        }
    }

    /// Lets the executor look at the ring once.
    fn look(&mut self) {
        self.leave_out_what_is_heavy();
        if !self.bench.intake(2) {
            std::thread::yield_now();
        }
    }

    /// Lets the executor go on as far as it can in a while.
    fn settle(&mut self) {
        for _ in 0..LOOKS {
            self.look();
            if self.bench.is_quiet(2) {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// What was pushed and not yet taken is forgotten, from the first record on that would only
    /// cost time.
    fn leave_out_what_is_heavy(&mut self) {
        let (mut at, head) = (self.guest.taken(), self.guest.ring.load64(ring::HEAD, Ordering::Relaxed));
        while head.wrapping_sub(at) as i64 >= 8 && head.wrapping_sub(at) <= ring::DATA_BYTES as u64 {
            let offset = (at % ring::DATA_BYTES as u64) as usize;
            let available = (head.wrapping_sub(at) as usize).min(ring::DATA_BYTES - offset);
            let mut first = [0; 8];
            if available < 8 {
                return;
            }
            self.guest.ring.read(ring::DATA + offset, &mut first);
            let Ok((length, pad)) = record::length(first, available) else { return };
            let mut bytes = vec![0; length];
            self.guest.ring.read(ring::DATA + offset, &mut bytes);
            if !pad && record::decode(&bytes).is_ok_and(|record| ops::is_heavy(&record.op)) {
                self.guest.set_head(at);
                return;
            }
            at = at.wrapping_add(length as u64);
        }
    }

    /// Its executor dies and another one goes on.
    fn take_over(&mut self) {
        self.leave_out_what_is_heavy();
        self.bench.close(2);
        self.generation += 1;
        if let Err(error) = self.guest.open(self.bench, self.generation) {
            panic!("a successor cannot go on with this client: {error}");
        }
        assert_eq!(self.guest.page.load32(page::GENERATION, Ordering::Relaxed), self.generation, "the successor says who it is");
    }
}
