//! Latency and throughput of the device alone, without rings and other processes. Clients launch N
//! kernels and wait, again and again; one row is a number of clients and an N. Before that, one
//! client launches and waits beside a neighbour that does something slow. Prints tables.
//!
//! Usage: `card-bench [cuda:0] [seconds a row] [CLIENTS N]`: the last two for one row alone. Tables
//! go to standard error: the driver has the standard output, because it prints there what kernels
//! print.
#![expect(clippy::disallowed_types, reason = "threads of the benchmark tell each other how far they are")]

use cumux_device::{
    Channel, ClientId, ClientSpec, Clients, Device, DeviceError, GlobalsAllocator, Image, Kernel, Launch, Memory, Modules, Outcome, Queues, Sink, StreamId,
    Work,
};
use cumux_device_cuda::{Card, Settings};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

const KERNELS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry tiny(.param .u64 p, .param .u32 v)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [v];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry other(.param .u64 p, .param .u32 v)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [v];
    cvta.to.global.u64 %rd2, %rd1;
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd2+4], %r2;
    ret;
}
";

/// The status page of a client, in cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct StatusPage {
    /// The last token that was reported.
    done: AtomicU64,
    /// The token for which the client's thread sleeps; 0 if it does not sleep.
    wanted: AtomicU64,
    /// The thread that sleeps.
    sleeper: Mutex<Option<Thread>>,
}

/// The status pages of all clients, by client.
struct StatusPages(Vec<StatusPage>);

impl Sink for StatusPages {
    fn retired(&self, client: ClientId, _: StreamId, token: u64, outcome: Outcome) {
        if let Outcome::Fault(fault) = outcome {
            eprintln!("client {client}: {fault:?}");
        }
        let page = &self.0[client as usize];
        page.done.store(token, Ordering::SeqCst);
        let wanted = page.wanted.load(Ordering::SeqCst);
        if wanted != 0
            && token >= wanted
            && let Some(thread) = page.sleeper.lock().expect("nobody panics").take()
        {
            page.wanted.store(0, Ordering::SeqCst);
            thread.unpark();
        }
    }
    fn text(&self, _: ClientId, _: Channel, _: &[u8]) {}
}

impl StatusPage {
    /// Waits for a token: polls briefly, then sleeps, as clients do.
    fn wait(&self, token: u64) {
        let begun = Instant::now();
        let done = || self.done.load(Ordering::SeqCst) >= token;
        while begun.elapsed() < Duration::from_micros(100) {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        *self.sleeper.lock().expect("nobody panics") = Some(std::thread::current());
        self.wanted.store(token, Ordering::SeqCst);
        while !done() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.wanted.store(0, Ordering::SeqCst);
    }
}

struct Nowhere;

impl GlobalsAllocator for Nowhere {
    fn variable(&mut self, _: &str, _: u64, _: u64, _: bool) -> Result<(u64, bool), DeviceError> {
        Err(DeviceError::NotSupported("no variables here".into()))
    }
}

/// Runs one client until the time is over: it launches `burst` kernels and waits for them, again
/// and again. Returns the number of kernels, and the nanoseconds of each burst.
fn client(card: &Card, pages: &StatusPages, id: ClientId, memory: u64, burst: u64, mixed: bool, seconds: f64) -> (u64, Vec<u64>) {
    card.open_client(id, &ClientSpec::default(), None).expect("opens");
    card.allow(id, memory, 4096, true);
    let info = card.load_module(id, 1, Image::of(KERNELS.as_bytes()), &mut Nowhere).expect("loads");
    let number = |name: &str| info.functions.iter().position(|f| f.name == name).expect("the kernel") as u32;
    let functions = [number("tiny"), number("other")];
    let stream = card.create_stream(id, 0).expect("a stream");
    let page = &pages.0[id as usize];
    page.done.store(0, Ordering::SeqCst);
    let (mut token, mut times) = (0_u64, Vec::new());
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < seconds {
        let started = Instant::now();
        for i in 0..burst {
            token += 1;
            let mut parameters = memory.to_le_bytes().to_vec();
            parameters.extend((token as u32).to_le_bytes());
            let which = if mixed { (token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & 1 } else { 0 };
            let launch = Launch { module: 1, function: functions[which], grid: [1; 3], block: [32, 1, 1], parameters: parameters.into(), ..Launch::default() };
            card.submit(stream, token, Work::Kernel(Kernel { launch, resume: None })).expect("accepted");
            let _ = i;
        }
        page.wait(token);
        times.push(started.elapsed().as_nanos() as u64);
    }
    card.close_client(id);
    (token, times)
}

/// The time, in microseconds, below which this fraction of the times (nanoseconds) lies.
fn percentile(times: &mut [u64], fraction: f64) -> f64 {
    times.sort_unstable();
    times.get(((times.len() as f64 * fraction) as usize).min(times.len().saturating_sub(1))).map_or(0.0, |ns| *ns as f64 / 1000.0)
}

/// A sealed file of zeros, like a client's pinned window.
fn window_file(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("window", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::fs::ftruncate(&file, bytes).expect("its size");
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL).expect("sealed");
    file
}

/// Measures one client that launches and waits, while a neighbour calls `act` all the time.
fn neighbour(card: &Card, pages: &StatusPages, memory: u64, seconds: f64, name: &str, act: &(dyn Fn(u64) + Sync)) {
    let stop = AtomicBool::new(false);
    let (operations, mut times) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                act(n);
                n += 1;
            }
            n
        });
        let (_, times) = client(card, pages, 40, memory, 1, false, seconds);
        stop.store(true, Ordering::Relaxed);
        (other.join().expect("the neighbour"), times)
    });
    let most = times.iter().max().copied().unwrap_or(0);
    eprintln!("{name:44} | {operations:6} | {:8.1} | {:8.1} | {:8.1}", percentile(&mut times, 0.5), percentile(&mut times, 0.99), most as f64 / 1000.0);
}

/// Measures one client beside several kinds of neighbours.
fn neighbours(card: &Card, pages: &StatusPages, memory: u64, seconds: f64) {
    eprintln!("beside it                                    | done   | p50 us   | p99 us   | max us");
    let far = cumux_wire::layout::ARENA_BASE + (11 << 40);
    neighbour(card, pages, memory, seconds, "nothing", &|_| std::thread::sleep(Duration::from_millis(1)));
    neighbour(card, pages, memory, seconds, "extent of 64 MiB: create, scrub, map, unmap", &|_| {
        let extent = card.create_extent(64 << 20).expect("an extent");
        card.map(far, extent.as_fd(), 0, 64 << 20).expect("mapped");
        card.unmap(far, 64 << 20).expect("unmapped");
    });
    neighbour(card, pages, memory, seconds, "client: open, window (16 MiB pinned), close", &|_| {
        card.open_client(41, &ClientSpec::default(), None).expect("opens");
        let bytes = 64 << 20;
        card.map_window(41, window_file(bytes).as_fd(), cumux_wire::layout::window_address(41), bytes).expect("a window");
        card.close_client(41);
    });
    neighbour(card, pages, memory, seconds, "module of PTX, new each time: load, unload", &|n| {
        card.open_client(41, &ClientSpec::default(), None).expect("opens");
        let fresh = KERNELS.replace("add.u32 %r2, %r1, 1;", &format!("add.u32 %r2, %r1, {};", n + 2));
        card.load_module(41, 1, Image::of(fresh.as_bytes()), &mut Nowhere).expect("loads");
        card.close_client(41);
    });
    neighbour(card, pages, memory, seconds, "the same module again: load, unload", &|_| {
        card.open_client(41, &ClientSpec::default(), None).expect("opens");
        card.load_module(41, 1, Image::of(KERNELS.as_bytes()), &mut Nowhere).expect("loads");
        card.close_client(41);
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let ordinal = arguments.next().and_then(|id| id.strip_prefix("cuda:").and_then(|n| n.parse().ok())).unwrap_or(0);
    let seconds: f64 = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(0.5);
    let pages = Arc::new(StatusPages((0..64).map(|_| StatusPage::default()).collect()));
    let begun = Instant::now();
    let settings = Settings::from_environment(1).expect("settings");
    let card = Card::open(ordinal, pages.clone(), settings).expect("the card opens");
    eprintln!(
        "# {} · engines {} · coalescing {} · opened in {:.0} ms",
        card.facts().name,
        settings.engines,
        settings.coalesce,
        begun.elapsed().as_secs_f64() * 1e3
    );
    let base = cumux_wire::layout::ARENA_BASE + (9 << 40);
    let bytes = 64 << 20;
    let begun = Instant::now();
    let extent = card.create_extent(bytes).expect("an extent");
    let created = begun.elapsed();
    card.map(base, extent.as_fd(), 0, bytes).expect("mapped");
    eprintln!(
        "# extent of 64 MiB: created and scrubbed {} us, address space reserved and mapped {} us",
        created.as_micros(),
        (begun.elapsed() - created).as_micros()
    );
    let row: Vec<u64> = arguments.map(|number| number.parse().expect("a number")).collect();
    if row.is_empty() {
        neighbours(&card, &pages, base + 40 * 4096, seconds.max(0.5));
    }
    eprintln!("clients |   N | functions | kernels/s | burst p50 us | burst p99 us | in chains | nodes set a kernel");
    for mixed in [false, true] {
        for clients in [1_u32, 8, 16] {
            for burst in [1_u64, 4, 16, 100] {
                let is_wanted = if row.is_empty() { !mixed || burst > 1 } else { !mixed && row == [u64::from(clients), burst] };
                if !is_wanted {
                    continue;
                }
                let before = card.counters().submitted();
                let begun = Instant::now();
                let results: Vec<(u64, Vec<u64>)> = std::thread::scope(|scope| {
                    let threads: Vec<_> = (1..=clients)
                        .map(|id| {
                            let (card, pages) = (&card, &pages);
                            scope.spawn(move || client(card, pages, id, base + u64::from(id) * 4096, burst, mixed, seconds))
                        })
                        .collect();
                    threads.into_iter().map(|t| t.join().expect("a client")).collect()
                });
                let spent = begun.elapsed().as_secs_f64();
                let kernels: u64 = results.iter().map(|(k, _)| k).sum();
                let mut times: Vec<u64> = results.into_iter().flat_map(|(_, t)| t).collect();
                let now = card.counters().submitted();
                let (all, chained, set) = (now.kernels - before.kernels, now.coalesced - before.coalesced, now.nodes_set - before.nodes_set);
                eprintln!(
                    "{clients:7} | {burst:3} | {:9} | {:9.0} | {:12.1} | {:12.1} | {:8.0}% | {:.2}",
                    if mixed { "2, random" } else { "1" },
                    kernels as f64 / spent,
                    percentile(&mut times, 0.5),
                    percentile(&mut times, 0.99),
                    100.0 * chained as f64 / all.max(1) as f64,
                    set as f64 / all.max(1) as f64
                );
            }
        }
    }
}
