//! The tools of the tests: a device with a sink that records, clients that allocate and launch, and
//! a time limit on every wait.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cumux_wire::layout::{ARENA_BASE, ARENA_BYTES, WINDOWS, window_address};

use super::{KERNELS, Opener};
use crate::{
    Begun, Channel, ClientId, ClientSpec, CopyExtent, Device, DeviceError, Fault, GlobalsAllocator, Image, ImageHash, Kernel, Launch, ModuleId, ModuleInfo,
    Outcome, Rows, Sink, StreamId, Work,
};

/// A wait that takes longer is a failure: a watchdog, not a measurement.
const WATCHDOG: Duration = Duration::from_secs(120);
/// Address space of one setup, in the arena and among the windows.
const AREA: u64 = 64 << 30;

/// A sink that records every report.
#[derive(Debug, Default)]
pub struct Recorder {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    reports: Vec<(ClientId, StreamId, u64, Outcome)>,
    text: HashMap<(ClientId, Channel), Vec<u8>>,
    faulted: Vec<(ClientId, Fault)>,
    /// Why the device was lost, and what is known of its work, for each time it said so.
    lost: Vec<(String, Begun)>,
}

impl Recorder {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the client's submission `token` is reported.
    ///
    /// # Panics
    /// If that takes forever.
    pub fn wait(&self, client: ClientId, token: u64) -> Outcome {
        let begun = Instant::now();
        let mut seen = self.seen();
        loop {
            if let Some((.., outcome)) = seen.reports.iter().find(|(c, _, t, _)| (*c, *t) == (client, token)) {
                return outcome.clone();
            }
            assert!(begun.elapsed() < WATCHDOG, "submission {token} of client {client} was never reported; seen: {:?}", seen.reports);
            (seen, _) = self.changed.wait_timeout(seen, Duration::from_millis(500)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reports of a client so far, in the order they came.
    pub fn reports(&self, client: ClientId) -> Vec<(StreamId, u64, Outcome)> {
        self.seen().reports.iter().filter(|(c, ..)| *c == client).map(|(_, s, t, o)| (*s, *t, o.clone())).collect()
    }

    /// What the client's kernels have printed so far in one channel.
    pub fn text(&self, client: ClientId, channel: Channel) -> String {
        String::from_utf8_lossy(self.seen().text.get(&(client, channel)).map_or(&[][..], Vec::as_slice)).into_owned()
    }

    /// The clients of which [`Sink::faulted`] has been told, with their faults.
    pub fn faulted(&self) -> Vec<(ClientId, Fault)> {
        self.seen().faulted.clone()
    }

    /// What [`Sink::lost`] has been told so far: why, and what is known of work without a report.
    pub fn losses(&self) -> Vec<(String, Begun)> {
        self.seen().lost.clone()
    }

    /// Waits until the device has said that it is lost, and returns what it said.
    ///
    /// # Panics
    /// If that takes forever.
    pub fn wait_for_loss(&self) -> (String, Begun) {
        let begun = Instant::now();
        let mut seen = self.seen();
        loop {
            if let Some(loss) = seen.lost.first() {
                return loss.clone();
            }
            assert!(begun.elapsed() < WATCHDOG, "the device was never lost; seen: {:?}", seen.reports);
            (seen, _) = self.changed.wait_timeout(seen, Duration::from_millis(500)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Sink for Recorder {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        self.seen().reports.push((client, stream, token, outcome));
        self.changed.notify_all();
    }

    fn text(&self, client: ClientId, channel: Channel, text: &[u8]) {
        self.seen().text.entry((client, channel)).or_default().extend_from_slice(text);
        self.changed.notify_all();
    }

    fn faulted(&self, client: ClientId, fault: &Fault) {
        self.seen().faulted.push((client, fault.clone()));
        self.changed.notify_all();
    }

    fn lost(&self, why: &str, begun: Begun) {
        self.seen().lost.push((why.to_owned(), begun));
        self.changed.notify_all();
    }
}

/// A device under test, with address space of its own.
pub struct Setup {
    /// The device under test.
    pub device: Arc<dyn Device>,
    /// Its sink.
    pub recorder: Arc<Recorder>,
    arena: Counter,
    window: Counter,
    tokens: Counter,
    modules: Counter,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("device", &self.device.facts().id).finish_non_exhaustive()
    }
}

/// A source of numbers.
#[derive(Debug, Default)]
struct Counter(Mutex<u64>);

impl Counter {
    /// Returns the present number and raises it by `step`.
    fn advance(&self, step: u64) -> u64 {
        let mut number = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *number;
        *number += step;
        before
    }
}

fn area() -> u64 {
    static NEXT: Counter = Counter(Mutex::new(0));
    NEXT.advance(AREA)
}

/// Where the suite's memory begins: in the upper half of the arena, because a device that is a
/// client of another one has its own memory in the lower.
const FIRST_ADDRESS: u64 = ARENA_BASE + ARENA_BYTES / 2;
/// Where its windows begin, for the same reason.
const FIRST_WINDOW: u64 = window_address(WINDOWS / 2);

impl Setup {
    /// Opens a device that reports to a new recorder.
    pub fn new(open: Opener) -> Setup {
        let recorder = Arc::new(Recorder::default());
        let area = area();
        let device = open(recorder.clone());
        let counter = |first| Counter(Mutex::new(first));
        Setup { device, recorder, arena: counter(FIRST_ADDRESS + area), window: counter(FIRST_WINDOW + area), tokens: counter(1), modules: counter(1) }
    }

    /// Whether a fault of one client leaves the device usable for the others. Where it does not, a
    /// test ends with its first fault.
    pub fn contains_faults(&self) -> bool {
        self.device.capabilities().contains_faults
    }

    /// Waits for the end of a device that does not contain faults, and checks it: the loss is said
    /// once, and every call is refused from then on. On other devices nothing happens.
    ///
    /// # Panics
    /// If that is not so.
    pub fn expect_loss_by_fault(&self) {
        if self.contains_faults() {
            return;
        }
        let (why, begun) = self.recorder.wait_for_loss();
        assert!(!why.is_empty() && matches!(begun, Begun::Only(_)) && self.recorder.losses().len() == 1, "{why}, {begun:?}");
        assert!(matches!(self.device.create_extent(self.device.granule()), Err(DeviceError::Lost(_))));
    }

    /// Free addresses for this many bytes, in whole granules, with one granule left free behind
    /// them.
    pub fn addresses(&self, bytes: u64) -> u64 {
        let granule = self.device.granule();
        self.arena.advance(bytes.next_multiple_of(granule) + granule)
    }

    /// A free address for a window of this many bytes.
    pub fn window_address(&self, bytes: u64) -> u64 {
        self.window.advance(bytes.next_multiple_of(1 << 21))
    }

    /// Adds a client without limits.
    pub fn client(&self, id: ClientId) -> Actor<'_> {
        self.client_with(id, &ClientSpec::default())
    }

    /// Adds a client with these settings.
    pub fn client_with(&self, id: ClientId, spec: &ClientSpec) -> Actor<'_> {
        let marks = match self.device.marks_bytes() {
            0 => None,
            bytes => Some(memory_file(bytes as u64)),
        };
        self.device.open_client(id, spec, marks.as_ref().map(AsFd::as_fd)).expect("a client opens");
        Actor { setup: self, id, extents: Mutex::new(Vec::new()), placed: Mutex::default() }
    }
}

/// A sealed file of zeroes.
///
/// # Panics
/// If the system has no memory files.
pub fn memory_file(bytes: u64) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags};
    let file = rustix::fs::memfd_create("conformance", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file");
    rustix::fs::ftruncate(&file, bytes).expect("a memory file's size");
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL).expect("a sealed memory file");
    file
}

/// A client under test; dropping it closes the client.
#[derive(Debug)]
pub struct Actor<'a> {
    setup: &'a Setup,
    /// Its number.
    pub id: ClientId,
    extents: Mutex<Vec<(u64, u64, OwnedFd)>>,
    /// Where the memory of variables is, by name.
    placed: Mutex<HashMap<String, u64>>,
}

/// A loaded module.
#[derive(Debug)]
pub struct Loaded {
    /// Its number.
    pub id: ModuleId,
    /// The device's description of it.
    pub info: ModuleInfo,
}

impl Loaded {
    /// Index of a kernel in the module.
    ///
    /// # Panics
    /// If the module has no such kernel.
    pub fn function(&self, name: &str) -> u32 {
        self.info.functions.iter().position(|f| f.name == name).unwrap_or_else(|| panic!("no kernel {name}")) as u32
    }

    /// Address of a variable.
    ///
    /// # Panics
    /// If the module has no such variable.
    pub fn global(&self, name: &str) -> u64 {
        self.info.globals.iter().find(|g| g.name == name).unwrap_or_else(|| panic!("no variable {name}")).address
    }
}

/// Kernel parameters, each aligned to its size.
#[derive(Debug, Clone, Default)]
pub struct Args(Vec<u8>);

impl Args {
    /// An empty parameter block.
    pub fn new() -> Self {
        Args::default()
    }

    /// The parameter block.
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends an 8-byte parameter.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a 4-byte parameter.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}

/// Places each variable in an allocation of its own.
#[derive(Debug)]
pub struct Variables<'a, 'b> {
    /// The client to which the variables belong.
    pub actor: &'a Actor<'b>,
    /// Variables that exist already: name and address.
    pub restored: HashMap<String, u64>,
}

impl GlobalsAllocator for Variables<'_, '_> {
    fn variable(&mut self, name: &str, bytes: u64, _align: u64, _managed: bool) -> Result<(u64, bool), DeviceError> {
        match self.restored.get(name) {
            Some(address) => Ok((*address, true)),
            None => {
                let address = self.actor.allocate(bytes);
                self.actor.placed.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), address);
                Ok((address, false))
            }
        }
    }

    fn is_restoring(&self) -> bool {
        !self.restored.is_empty()
    }
}

impl Actor<'_> {
    /// The device under test.
    pub fn device(&self) -> &dyn Device {
        &*self.setup.device
    }

    /// An allocation of exactly `bytes` bytes, alone in its extent.
    ///
    /// # Panics
    /// If the device refuses.
    pub fn allocate(&self, bytes: u64) -> u64 {
        let address = self.reserve(bytes);
        self.device().allow(self.id, address, bytes, true);
        address
    }

    /// Mapped memory without permissions.
    ///
    /// # Panics
    /// If the device refuses.
    pub fn reserve(&self, bytes: u64) -> u64 {
        let whole = bytes.next_multiple_of(self.device().granule());
        let address = self.setup.addresses(whole);
        let extent = self.device().create_extent(whole).expect("an extent");
        self.device().map(address, extent.as_fd(), 0, whole).expect("a mapping");
        self.extents.lock().unwrap_or_else(PoisonError::into_inner).push((address, whole, extent));
        address
    }

    /// Unmaps the extent at this address and returns its descriptor.
    ///
    /// # Panics
    /// If there is none.
    pub fn take_extent(&self, address: u64) -> OwnedFd {
        let mut extents = self.extents.lock().unwrap_or_else(PoisonError::into_inner);
        let at = extents.iter().position(|(a, ..)| *a == address).expect("an extent at this address");
        let (address, bytes, file) = extents.swap_remove(at);
        self.device().revoke(self.id, address);
        self.device().unmap(address, bytes).expect("unmapped");
        file
    }

    /// A stream of normal priority.
    pub fn stream(&self) -> StreamId {
        self.stream_with(0)
    }

    /// A stream with this priority.
    ///
    /// # Panics
    /// If the device refuses.
    pub fn stream_with(&self, priority: i32) -> StreamId {
        self.device().create_stream(self.id, priority).expect("a stream")
    }

    /// The suite's kernels.
    pub fn kernels(&self) -> Loaded {
        self.load(KERNELS.as_bytes(), &mut Variables { actor: self, restored: HashMap::new() }).expect("the suite's kernels load")
    }

    /// Loads an image as a new module.
    ///
    /// # Errors
    /// The device's.
    pub fn load(&self, image: &[u8], place: &mut dyn GlobalsAllocator) -> Result<Loaded, DeviceError> {
        let id = self.setup.modules.advance(1) as ModuleId;
        let info = self.device().load_module(self.id, id, Image::of(image), place)?;
        Ok(Loaded { id, info })
    }

    /// Adds a module that the device has already.
    ///
    /// # Errors
    /// The device's.
    pub fn adopt(&self, image: ImageHash, place: &mut dyn GlobalsAllocator) -> Result<Option<Loaded>, DeviceError> {
        let id = self.setup.modules.advance(1) as ModuleId;
        let info = self.device().adopt_module(self.id, id, image, place)?;
        Ok(info.map(|info| Loaded { id, info }))
    }

    /// Where the memory of variables is that modules of this client have asked for, by name.
    pub fn placed(&self) -> HashMap<String, u64> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Submits work and returns its token.
    ///
    /// # Panics
    /// If the device refuses.
    pub fn submit(&self, stream: StreamId, work: Work) -> u64 {
        let token = self.setup.tokens.advance(1);
        self.device().submit(stream, token, work).expect("work is accepted");
        token
    }

    /// Launches a kernel by its name with one-dimensional grid and block; returns the token.
    pub fn launch(&self, stream: StreamId, module: &Loaded, name: &str, grid: u32, block: u32, args: Args) -> u64 {
        self.launch_with(stream, module, name, Launch { grid: [grid, 1, 1], block: [block, 1, 1], ..Launch::default() }, args)
    }

    /// Launches a kernel by its name. `shape` says everything but module, function and parameters.
    pub fn launch_with(&self, stream: StreamId, module: &Loaded, name: &str, shape: Launch, args: Args) -> u64 {
        let launch = Launch { module: module.id, function: module.function(name), parameters: args.0.into(), ..shape };
        self.submit(stream, Work::Kernel(Kernel { launch, resume: None }))
    }

    /// A launch by a kernel's name with one-dimensional grid and block, as work.
    pub fn kernel(&self, module: &Loaded, name: &str, grid: u32, block: u32, args: Args) -> Work {
        let (grid, block) = ([grid, 1, 1], [block, 1, 1]);
        let launch = Launch { module: module.id, function: module.function(name), parameters: args.0.into(), grid, block, ..Launch::default() };
        Work::Kernel(Kernel { launch, resume: None })
    }

    /// Copies a row of bytes; returns the token.
    pub fn copy(&self, stream: StreamId, target: u64, source: u64, bytes: u64) -> u64 {
        let rows = |address| Rows { address, pitch: 0, slice: 0 };
        self.submit(stream, Work::Copy { target: rows(target), source: rows(source), extent: CopyExtent { width: bytes, height: 1, depth: 1 } })
    }

    /// Waits until the submission is reported.
    pub fn wait(&self, token: u64) -> Outcome {
        self.setup.recorder.wait(self.id, token)
    }

    /// Waits for a submission that must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn done(&self, token: u64) {
        let outcome = self.wait(token);
        assert!(matches!(outcome, Outcome::Done { .. }), "submission {token} of client {}: {outcome:?}", self.id);
    }

    /// Waits for a submission that must end with this result; returns the text of the fault.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub fn fault(&self, token: u64, result: u32) -> String {
        match self.wait(token) {
            Outcome::Fault(fault) if fault.result == result => fault.text,
            other => panic!("submission {token} of client {}: fault {result} expected, {other:?} seen", self.id),
        }
    }

    /// Waits until all work of the stream is done.
    pub fn drain(&self, stream: StreamId) {
        self.done(self.submit(stream, Work::Nop));
    }

    /// Writes words into device memory.
    ///
    /// # Panics
    /// If the memory is not mapped.
    pub fn write(&self, address: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.device().write(address, &bytes).expect("written");
    }

    /// Reads words of device memory.
    ///
    /// # Panics
    /// If the memory is not mapped.
    pub fn read(&self, address: u64, words: usize) -> Vec<u32> {
        let mut bytes = vec![0; words * 4];
        self.device().read(address, &mut bytes).expect("read");
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// Waits until a word of device memory has another value than this.
    ///
    /// # Panics
    /// If that takes forever.
    pub fn wait_for_change(&self, address: u64, from: u32) {
        let begun = Instant::now();
        while self.read(address, 1) == [from] {
            assert!(begun.elapsed() < WATCHDOG, "the word at {address:#x} never changed");
            std::thread::yield_now();
        }
    }

    /// The client's reports so far, in the order they came.
    pub fn reports(&self) -> Vec<(StreamId, u64, Outcome)> {
        self.setup.recorder.reports(self.id)
    }

    /// What the client's kernels have printed so far.
    pub fn text(&self) -> String {
        self.setup.recorder.text(self.id, Channel::Output)
    }

    /// What the client's kernels have printed so far for standard error.
    pub fn error_text(&self) -> String {
        self.setup.recorder.text(self.id, Channel::Error)
    }

    /// The setup to which the client belongs.
    pub fn setup(&self) -> &Setup {
        self.setup
    }
}

impl Drop for Actor<'_> {
    fn drop(&mut self) {
        self.device().close_client(self.id);
        let extents = std::mem::take(self.extents.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (address, bytes, _) in extents {
            match self.device().unmap(address, bytes) {
                Ok(()) | Err(DeviceError::Lost(_)) => {}
                Err(error) => assert!(std::thread::panicking(), "memory of a closed client cannot be unmapped: {error}"),
            }
        }
    }
}
