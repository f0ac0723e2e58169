//! A stand-in for the executor, for tests: takes records from a real ring, keeps streams apart,
//! answers, and runs three kernels of its own.
//!
//! Device memory is ordinary memory mapped at the arena's address in this same process. Kernels:
//! `add` (two arrays into a third), `gate` (stops its stream until the test opens it), `fault` (the
//! client's sticky error).

use crate::connection::{Connection, Files};
use cumux_ring::queue::Next;
use cumux_ring::{create, page::Answer, service::Service};
use cumux_wire::cuda::DeviceAttribute as A;
use cumux_wire::facts::Attributes;
use cumux_wire::layout::{ARENA_BASE, WINDOW_BYTES, page, ring};
use cumux_wire::message::DeviceFacts;
use cumux_wire::module::{FunctionInfo, GlobalInfo, ModuleInfo, Parameter};
use cumux_wire::record::{self, Launch, NO_ANSWER, Op, Record};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const ARENA: usize = 1 << 30;
/// Images with this text are refused.
pub(crate) const BROKEN: &str = "broken";

static OPEN: Mutex<Option<HashSet<u64>>> = Mutex::new(None);
static IMAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SEEN: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// Lets streams pass the gate with this number.
pub(crate) fn open_gate(number: u64) {
    OPEN.lock().unwrap().get_or_insert_default().insert(number);
}

fn is_open(number: u64) -> bool {
    OPEN.lock().unwrap().as_ref().is_some_and(|open| open.contains(&number))
}

/// Texts of modules loaded since the last call.
pub(crate) fn images() -> Vec<String> {
    std::mem::take(&mut IMAGES.lock().unwrap())
}

/// Records taken since the last call.
pub(crate) fn seen() -> Vec<Record> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

/// Tests that look at records or at the one session's state run one after the other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn facts() -> DeviceFacts {
    let attributes = Attributes::from([
        (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152),
        (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232_448),
    ]);
    DeviceFacts {
        id: "sim:test".into(),
        name: "Test Device".into(),
        uuid: [7; 16],
        pci: [0, 1, 0],
        memory: 1 << 30,
        attributes,
        capabilities: cumux_wire::facts::Capabilities::default(),
    }
}

fn own_process() -> OwnedFd {
    rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).unwrap()
}

/// Files of a session with nobody behind them, and the service end.
pub(crate) fn files(window_slot: u32) -> (Files, Service) {
    let ring = create("ring", ring::BYTES as u64).unwrap();
    let page = create("page", page::BYTES as u64).unwrap();
    let window = create("window", WINDOW_BYTES).unwrap();
    let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let service = Service::map(&ring, &page).unwrap();
    service.set_server(std::process::id());
    let files = Files {
        session: 1,
        window_slot,
        devices: vec![facts()],
        fixed: false,
        limits: vec![0],
        ring,
        page,
        window,
        doorbell,
        server: own_process(),
        keeper: own_process(),
    };
    (files, service)
}

/// The session of this test process, served by a thread.
pub(crate) fn session() -> &'static Connection {
    static STARTED: OnceLock<&'static Connection> = OnceLock::new();
    STARTED.get_or_init(|| {
        // SAFETY: replaces nothing; the address is the arena's.
        let arena = unsafe {
            let rights = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
            let kind = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE | rustix::mm::MapFlags::FIXED_NOREPLACE;
            rustix::mm::mmap_anonymous(core::ptr::with_exposed_provenance_mut(ARENA_BASE as usize), ARENA, rights, kind)
        };
        assert_eq!(arena.unwrap().expose_provenance() as u64, ARENA_BASE);
        let (files, service) = files(7);
        let session = crate::connection::adopt(Connection::new(files).unwrap());
        crate::objects::hand_down_hooks(session);
        crate::process::mark_initialized();
        std::thread::spawn(move || Fake { service, streams: BTreeMap::new(), next: ARENA_BASE, sizes: BTreeMap::new(), barriers: Vec::new() }.run());
        session
    })
}

struct Timeline {
    queue: VecDeque<(u64, Op)>,
    done: u64,
}

/// Memory that is freed when these streams have come to these sequences.
struct Barrier {
    record: Record,
    address: u64,
    waits: Vec<(u32, u64)>,
}

struct Fake {
    service: Service,
    streams: BTreeMap<u32, Timeline>,
    next: u64,
    sizes: BTreeMap<u64, u64>,
    /// Addresses to free when the streams have come this far.
    barriers: Vec<Barrier>,
}

fn function(name: &str, sizes: &[u32]) -> FunctionInfo {
    let mut parameters = Vec::new();
    let mut offset = 0_u32;
    for bytes in sizes {
        offset = offset.next_multiple_of(*bytes);
        parameters.push(Parameter { offset, bytes: *bytes });
        offset += bytes;
    }
    FunctionInfo { name: name.into(), parameters, parameter_bytes: offset, registers: 16, max_threads: 1024, ..FunctionInfo::default() }
}

impl Fake {
    fn run(mut self) {
        let mut consumer = Service::consumer(0);
        let mut buffer = Vec::new();
        loop {
            let mut moved = false;
            while let Next::Record { end } = self.service.peek(&mut consumer, &mut buffer).unwrap() {
                let record = record::decode(&buffer).unwrap();
                SEEN.lock().unwrap().push(record.clone());
                self.intake(record);
                self.service.release(&mut consumer, end);
                moved = true;
            }
            while self.step() {
                moved = true;
            }
            if moved {
                self.service.notify();
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn answer(&self, record: &Record, result: u32, words: [u64; 2]) {
        assert_ne!(record.header.answer, NO_ANSWER, "{record:?} wants an answer");
        self.service.answer(record.header.answer, record.header.seq, &Answer { result, words: [words[0], words[1], 0, 0, 0, 0] });
    }

    fn intake(&mut self, record: Record) {
        match record.op {
            Op::StreamCreate { index, .. } => {
                let done = self.service.completed(index);
                let before = self.streams.insert(index, Timeline { queue: VecDeque::new(), done });
                assert!(before.is_none_or(|timeline| timeline.queue.is_empty()), "stream {index} minted while in use");
            }
            Op::MemAlloc { bytes, align, .. } => {
                let address = self.next.next_multiple_of(align);
                if address + bytes > ARENA_BASE + ARENA as u64 {
                    return self.answer(&record, 2, [0, 0]);
                }
                self.next = address + bytes;
                self.sizes.insert(address, bytes);
                self.answer(&record, 0, [address, 0]);
            }
            Op::MemFree { address } => {
                let waits = self.streams.iter().filter_map(|(index, timeline)| timeline.queue.back().map(|(seq, _)| (*index, *seq))).collect();
                self.barriers.push(Barrier { record, address, waits });
            }
            Op::MemInfo { .. } => {
                let used: u64 = self.sizes.values().sum();
                self.answer(&record, 0, [(1 << 30) - used, 1 << 30]);
            }
            Op::ModuleLoad { image, image_bytes, info, info_bytes, .. } => self.load(&record, image, image_bytes, info, info_bytes),
            Op::VmmReserve { bytes, align, .. } => {
                let address = self.next.next_multiple_of(align.max(1 << 21));
                self.next = address + bytes;
                self.answer(&record, 0, [address, 0]);
            }
            // An event for other processes that nobody has recorded.
            Op::EventCell { .. } => self.answer(&record, 0, [0, 1]),
            Op::Charge { .. }
            | Op::PartitionOpen { .. }
            | Op::PartitionPlace { .. }
            | Op::VmmCreate { .. }
            | Op::VmmMap { .. }
            | Op::VmmUnmap { .. }
            | Op::VmmAccess { .. } => self.answer(&record, 0, [0, 0]),
            ref op if op.in_stream() => {
                let timeline = self.streams.get_mut(&record.header.stream).expect("a stream that was created");
                let last = timeline.queue.back().map_or(timeline.done, |(seq, _)| *seq);
                assert_eq!(record.header.seq, last + 1, "sequences grow by one");
                timeline.queue.push_back((record.header.seq, record.op));
            }
            _ => {}
        }
    }

    fn load(&mut self, record: &Record, image: u64, bytes: u64, info: u64, room: u64) {
        // SAFETY: addresses in the window, which is mapped in this process.
        let text = unsafe { std::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(image as usize), bytes as usize) };
        IMAGES.lock().unwrap().push(String::from_utf8_lossy(text).into_owned());
        let (result, out) = if text.windows(BROKEN.len()).any(|part| part == BROKEN.as_bytes()) {
            (218, b"line 3: unknown instruction".to_vec())
        } else {
            let variable = self.next.next_multiple_of(256);
            self.next = variable + 64;
            let functions = vec![function("add", &[8, 8, 8, 4]), function("gate", &[8]), function("fault", &[])];
            let globals = vec![GlobalInfo { name: "counter".into(), address: variable, bytes: 64, constant: false, managed: false }];
            (0, ModuleInfo { functions, globals, on_demand: false }.encode())
        };
        if out.len() as u64 > room {
            return self.answer(record, 1, [0, out.len() as u64]);
        }
        // SAFETY: an address in the arena or the window, both mapped in this process.
        unsafe { core::ptr::copy_nonoverlapping(out.as_ptr(), core::ptr::with_exposed_provenance_mut::<u8>(info as usize), out.len()) };
        self.answer(record, result, [out.len() as u64, 0]);
    }

    /// Runs one piece of work; false when nothing can run.
    fn step(&mut self) -> bool {
        let ready = self.barriers.iter().position(|barrier| barrier.waits.iter().all(|(index, seq)| self.done(*index) >= *seq));
        if let Some(position) = ready {
            let Barrier { record, address, .. } = self.barriers.remove(position);
            assert!(self.sizes.remove(&address).is_some(), "{address:#x} is freed once");
            if record.header.answer != NO_ANSWER {
                self.answer(&record, 0, [0, 0]);
            }
            return true;
        }
        let indices: Vec<u32> = self.streams.keys().copied().collect();
        for index in indices {
            let Some((seq, op)) = self.streams.get(&index).and_then(|timeline| timeline.queue.front().cloned()) else { continue };
            if !self.perform(index, seq, &op) {
                continue;
            }
            if let Some(timeline) = self.streams.get_mut(&index) {
                timeline.queue.pop_front();
                timeline.done = seq;
            }
            self.service.set_completed(index, seq);
            return true;
        }
        false
    }

    fn done(&self, index: u32) -> u64 {
        self.streams.get(&index).map_or(0, |timeline| timeline.done)
    }

    fn perform(&mut self, index: u32, seq: u64, op: &Op) -> bool {
        match op {
            Op::Wait { stream, seq } => return self.done(*stream) >= *seq,
            Op::HostCall => return self.service.host_done(index) >= seq,
            Op::EventTime { event } => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                self.service.set_event_ns(*event, now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
            }
            Op::Copy { target, target_pitch, target_slice, source, source_pitch, source_slice, extent } => {
                for (z, y) in (0..extent.depth).flat_map(|z| (0..extent.height).map(move |y| (z, y))) {
                    let (from, to) = (source + z * source_slice + y * source_pitch, target + z * target_slice + y * target_pitch);
                    // SAFETY: addresses in the arena or the window, both mapped in this process.
                    unsafe { core::ptr::copy(at(from).cast_const(), at(to), extent.width as usize) };
                }
            }
            Op::Set { target, value, element, width, height, pitch } => {
                for (y, x) in (0..*height).flat_map(|y| (0..*width).map(move |x| (y, x))) {
                    let bytes = value.to_le_bytes();
                    // SAFETY: an address in the arena or the window, both mapped in this process.
                    unsafe { core::ptr::copy(bytes.as_ptr(), at(target + y * pitch + x * u64::from(*element)), *element as usize) };
                }
            }
            Op::ValueWrite { address, value, bytes } => {
                // SAFETY: an address in the arena or the window, both mapped in this process.
                unsafe { core::ptr::copy(value.to_le_bytes().as_ptr(), at(*address), *bytes as usize) };
            }
            Op::ValueWait { address, value, bytes, .. } => {
                let mut found = [0; 8];
                // SAFETY: an address in the arena or the window, both mapped in this process.
                unsafe { core::ptr::copy(at(*address).cast_const(), found.as_mut_ptr(), *bytes as usize) };
                return u64::from_le_bytes(found) >= *value;
            }
            Op::FreeInStream { address } => assert!(self.sizes.remove(address).is_some(), "{address:#x} is freed once"),
            Op::Launch(launch) => return self.launch(launch),
            _ => {}
        }
        true
    }

    fn launch(&self, launch: &Launch) -> bool {
        let word = |offset: usize| u64::from_le_bytes(launch.parameters[offset..offset + 8].try_into().unwrap());
        match launch.function {
            0 => {
                let count = u32::from_le_bytes(launch.parameters[24..28].try_into().unwrap());
                for n in 0..u64::from(count) {
                    // SAFETY: arrays in the arena or the window, as the test passes them.
                    unsafe {
                        let (a, b) = (at(word(0) + n * 4).cast::<f32>().read(), at(word(8) + n * 4).cast::<f32>().read());
                        at(word(16) + n * 4).cast::<f32>().write(a + b);
                    }
                }
                true
            }
            1 => is_open(word(0)),
            _ => {
                self.service.set_fault(700, "kernel fault: illegal address");
                true
            }
        }
    }
}

fn at(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}
