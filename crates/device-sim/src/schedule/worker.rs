//! A worker: one thread that stands for the SM on which its current block was placed.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use cumux_abi::CUdevice_attribute;
use cumux_device::{Channel, ClientId, Fault};
use cumux_wire::result;

use super::card::SoftwareCard;
use super::client::{CardClient, ClientEnd, Task};
use super::kernel::{ActiveBlock, Activity, Coupling, Piece, PlacedBlock, locate_blocks};
use super::placement::Placement;
use super::report::Report;
use super::scheduler::{Denied, DevicePhase, Job, PieceJob, TransferJob};
use crate::exec::Block;
use crate::exec::interface::{BlockCoordinates, FaultKind, Launch, MemoryFault, Services, Status};
use crate::exec::request::{Answer, Request, errors};
use crate::faults;
use crate::memory::client::ClientMemory;
use crate::memory::transfer::StepEnd;
use crate::memory::worker::{Bounds, WorkerMemory};
use crate::models;
use crate::progress::KernelProgress;
use crate::progress::undo::UndoLog;

/// Warp instructions of a slice: some tenths of a millisecond.
const SLICE_BUDGET: u64 = 4096;
/// Warp instructions of a slice of a block that waits for others.
const WAITING_SLICE_BUDGET: u64 = 192;
/// A piece of short blocks ends after this time.
const MAX_BATCH_TIME: Duration = Duration::from_micros(200);
/// Text is passed on when this many bytes have gathered, at the latest when the slice ends.
const MAX_GATHERED_TEXT_BYTES: usize = 16 << 10;
/// Finished blocks whose buffers are kept for the next ones.
const MAX_SPARE_BLOCKS: usize = 4;

/// What is added to the nice value of workers. They are always busy. A thread that a push or a
/// report has just woken must run before them: where all cores are the device's, each wait for a
/// processor would take milliseconds.
const NICE_STEP: i32 = 5;
/// The highest nice value that Linux has.
const MAX_NICE: i32 = 19;

/// Runs until the device closes.
pub(crate) fn run(card: &SoftwareCard, number: usize) {
    // On Linux this concerns the calling thread alone. If it fails everything is only slower.
    if let Ok(now) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, (now + NICE_STEP).min(MAX_NICE));
    }
    let bounds = if models::rounds_bounds(&card.facts.id) { Bounds::Granule } else { Bounds::Exact };
    let mut worker =
        Worker { card, number, memory: WorkerMemory::new(bounds), reports_seen: 0, spare: Vec::new(), coordinates: Vec::new(), spare_logs: Vec::new() };
    while let Some(job) = worker.next_job() {
        match job {
            Job::Report(report) => worker.deliver_report(report),
            Job::Transfer(job) => worker.run_transfer(job),
            Job::Piece(job) => worker.run_piece(job),
        }
    }
}

struct Worker<'a> {
    card: &'a SoftwareCard,
    number: usize,
    memory: WorkerMemory,
    /// [`SoftwareCard::delivered_reports`] when the worker last yielded to the threads that reports
    /// woke.
    reports_seen: u64,
    spare: Vec<Block>,
    /// Where the blocks that begin are; kept for its buffer.
    coordinates: Vec<BlockCoordinates>,
    #[expect(clippy::vec_box, reason = "they move in and out of blocks by pointer")]
    spare_logs: Vec<Box<UndoLog>>,
}

/// What all blocks of a piece have in common.
struct SliceContext {
    client: ClientId,
    task: u64,
    launch: Arc<Launch>,
    progress: Option<Arc<KernelProgress>>,
    coupling: Coupling,
    memory: Arc<ClientMemory>,
}

/// What came of a piece.
#[derive(Default)]
struct PieceResult {
    /// Placements of the blocks that are over.
    done: Vec<Placement>,
    /// How many are over; with clusters, how many clusters.
    blocks: u64,
    /// The block that goes on later.
    running: Option<Box<ActiveBlock>>,
    /// Blocks that were not begun.
    left: VecDeque<PlacedBlock>,
    fault: Option<Fault>,
}

impl Worker<'_> {
    /// The next job; sleeps while there is none. `None` when the device closes.
    fn next_job(&mut self) -> Option<Job> {
        let reports = self.card.delivered_reports.load(Ordering::Relaxed);
        if reports != self.reports_seen {
            // A report has woken a thread. On a full machine the system may leave that thread
            // behind this one until its next tick, milliseconds away.
            self.reports_seen = reports;
            rustix::thread::sched_yield();
        }
        let mut scheduler = self.card.scheduler.lock();
        loop {
            if scheduler.phase == DevicePhase::ShuttingDown {
                return None;
            }
            if let Some(job) = scheduler.next_job(self.number) {
                self.card.wake_worker(&scheduler);
                return Some(job);
            }
            scheduler.idle_workers += 1;
            self.card.work.wait(&mut scheduler);
            scheduler.idle_workers -= 1;
        }
    }

    fn deliver_report(&mut self, report: Report) {
        self.card.sink.retired(report.client, report.stream, report.token, report.outcome);
        self.card.delivered_reports.fetch_add(1, Ordering::Relaxed);
        if let Some(progress) = report.progress {
            progress.release();
        }
        let mut scheduler = self.card.scheduler.lock();
        scheduler.report_delivered(report.client, report.stream);
        self.card.notify_waiting(&scheduler);
    }

    /// Does one step of a transfer.
    fn run_transfer(&mut self, job: TransferJob) {
        let TransferJob { client, task, memory, mut transfer, log } = job;
        let begun = Instant::now();
        self.memory.begin_slice(&memory, false);
        let step = transfer.step(&mut self.memory, log.as_ref());
        let mut scheduler = self.card.scheduler.lock();
        scheduler.end_slice(self.number, client, task, nanoseconds(begun));
        let fault = match step {
            StepEnd::More | StepEnd::Done => None,
            StepEnd::Refused(address, fault) => Some(faults::transfer_fault(address, fault)),
            StepEnd::Misaligned(address) => Some(faults::misaligned_transfer_fault(address)),
        };
        if let Some(fault) = fault {
            self.card.end_client(&mut scheduler, client, ClientEnd::Fault(fault));
        }
        let ended = scheduler.clients.get(&client).is_some_and(|client| client.end.is_some());
        if step == StepEnd::More && !ended {
            let running = scheduler.clients.get_mut(&client).and_then(|client| client.tasks.get_mut(&task));
            if let Some(Task::Transfer(at_home)) = running.map(|running| &mut running.task) {
                *at_home = Some(transfer);
            }
        } else {
            scheduler.finish_task(client, task, transfer.progress.take());
        }
        self.card.notify_waiting(&scheduler);
    }

    fn run_piece(&mut self, job: PieceJob) {
        let PieceJob { client, task, memory, piece, launch, progress, coupling } = job;
        self.memory.begin_slice(&memory, coupling != Coupling::Independent);
        let slice = SliceContext { client, task, launch, progress, coupling, memory };
        let begun = Instant::now();
        let mut services = SliceServices { card: self.card, client: slice.client, task: slice.task, memory: &slice.memory, text: Default::default() };
        let mut result = PieceResult::default();
        match piece {
            Piece::Continue(active) => self.run_block(&slice, active, &mut services, &mut result),
            Piece::Begin(mut placed) => {
                while let Some(next) = placed.pop_front() {
                    let active = self.begin_block(&slice, next);
                    self.run_block(&slice, active, &mut services, &mut result);
                    if result.running.is_some() || result.fault.is_some() || begun.elapsed() > MAX_BATCH_TIME {
                        break;
                    }
                }
                result.left = placed;
            }
        }
        services.flush_text();
        self.return_piece(&slice, result, nanoseconds(begun));
    }

    /// Makes a block out of its placement, with old buffers if there are any.
    fn begin_block(&mut self, slice: &SliceContext, placed: PlacedBlock) -> Box<ActiveBlock> {
        locate_blocks(&slice.launch, &placed, &mut self.coordinates);
        let mut block = match self.spare.pop() {
            Some(mut block) => {
                block.restart(slice.launch.clone(), &self.coordinates);
                block
            }
            None => Block::new(slice.launch.clone(), &self.coordinates),
        };
        if self.memory.rounds_bounds() {
            block.round_shared();
        }
        let log = slice.progress.as_ref().filter(|_| slice.coupling.is_undoable()).map(|progress| match self.spare_logs.pop() {
            Some(mut log) => {
                log.restart(progress.clone(), placed.index);
                log
            }
            None => Box::new(UndoLog::new(progress.clone(), placed.index)),
        });
        if let Some(progress) = &slice.progress {
            progress.mark_begun(placed.index);
        }
        Box::new(ActiveBlock { index: placed.index, placements: placed.placements, block, log, activity: Activity::Working })
    }

    /// Runs a block for one slice.
    fn run_block(&mut self, slice: &SliceContext, mut active: Box<ActiveBlock>, services: &mut SliceServices<'_>, result: &mut PieceResult) {
        let budget = match active.activity {
            Activity::Working => SLICE_BUDGET,
            Activity::Waiting => WAITING_SLICE_BUDGET,
        };
        self.memory.log = active.log.take();
        let memory = &mut self.memory;
        let block = &mut active.block;
        // A panic of the execution core must not end the worker and with it every client: it ends
        // the client whose block it was.
        let status = catch_unwind(AssertUnwindSafe(|| block.run(budget, memory, services)));
        active.log = self.memory.log.take();
        match status {
            Ok(Status::Running) => {
                active.activity = if self.memory.looks_like_waiting() { Activity::Waiting } else { Activity::Working };
                result.running = Some(active);
                return;
            }
            Ok(Status::Done) => {
                if let Some(progress) = &slice.progress {
                    progress.mark_done(active.index);
                }
            }
            Ok(Status::Fault(fault)) => {
                let hidden = match fault.kind {
                    FaultKind::Global(MemoryFault::OutOfBounds) => self.memory.is_within_granule(fault.address, fault.bytes.into()),
                    FaultKind::SharedOutOfBounds => !self.memory.rounds_bounds() && block.is_within_shared_unit(fault.address, fault.bytes.into()),
                    _ => false,
                };
                result.fault = Some(faults::thread_fault(&fault, hidden));
            }
            Err(_) => {
                let kernel = &slice.launch.linked.program().kernels[slice.launch.kernel].name;
                let text = format!("the software GPU failed in kernel {kernel}, block {}; this is a bug of cumux, please report it", active.index);
                tracing::error!("{text}");
                result.fault = Some(Fault { result: result::LAUNCH_FAILED, text });
            }
        }
        result.done.extend(active.placements.iter());
        result.blocks += 1;
        let ActiveBlock { block, log, .. } = *active;
        if let Some(mut log) = log {
            log.discard();
            if self.spare_logs.len() < MAX_SPARE_BLOCKS {
                self.spare_logs.push(log);
            }
        }
        if self.spare.len() < MAX_SPARE_BLOCKS && result.fault.is_none() {
            self.spare.push(block);
        }
    }

    /// Hands the result of a piece back to the scheduler.
    fn return_piece(&mut self, slice: &SliceContext, mut result: PieceResult, ns: u64) {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.end_slice(self.number, slice.client, slice.task, ns);
        let fault = result.fault.take();
        let is_held = fault.is_some() && self.card.breaks;
        if let Some(fault) = fault {
            self.card.fault_client(&mut scheduler, slice.client, fault);
        }
        if let Some(client) = scheduler.clients.get_mut(&slice.client)
            && let Some(late) = settle_piece(client, slice, result, ns, self.card)
        {
            self.card.fault_client(&mut scheduler, slice.client, late);
        }
        if is_held {
            scheduler.hold_piece(slice.client, slice.task);
        }
        scheduler.finish_if_done(slice.client, slice.task);
        self.card.notify_waiting(&scheduler);
    }
}

/// Puts what a worker returns back into the kernel. Gives the watchdog's fault if the kernel has
/// run for too long.
fn settle_piece(client: &mut CardClient, slice: &SliceContext, result: PieceResult, ns: u64, card: &SoftwareCard) -> Option<Fault> {
    let running = client.tasks.get_mut(&slice.task)?;
    let Task::Kernel(kernel) = &mut running.task else { return None };
    kernel.running -= 1;
    kernel.note_block_time(result.blocks, ns);
    if !result.done.is_empty() {
        client.freed += 1;
    }
    for placement in result.done {
        if let Some(sms) = client.partitions.set(kernel.sm_set) {
            sms.release_block(placement, kernel.needs);
        }
    }
    for placed in result.left.into_iter().rev() {
        kernel.placed.push_front(placed);
    }
    if let Some(active) = result.running {
        // Blocks that may wait for others take turns; of independent ones the earliest goes on.
        match kernel.coupling {
            Coupling::Independent => kernel.ready.push_front(active),
            Coupling::MayWait | Coupling::Cooperative => kernel.ready.push_back(active),
        }
    }
    let overdue = kernel.started.map(|started| started.elapsed()).zip(card.watchdog).filter(|(ran, limit)| ran > limit && !kernel.is_finished());
    let fault = overdue.map(|(ran, limit)| Fault {
        result: result::LAUNCH_TIMEOUT,
        text: format!("kernel {} ran for {} ms; CUMUX_SIM_WATCHDOG_MS allows {}", kernel.name(), ran.as_millis(), limit.as_millis()),
    });
    if client.end.is_some() && !card.breaks {
        client.abandon_blocks(slice.task);
        return None;
    }
    fault
}

/// What kernels ask for besides memory. Text is gathered for a slice.
struct SliceServices<'a> {
    card: &'a SoftwareCard,
    client: ClientId,
    task: u64,
    memory: &'a ClientMemory,
    /// By channel.
    text: [Vec<u8>; Channel::ALL.len()],
}

impl SliceServices<'_> {
    fn flush_text(&mut self) {
        for channel in Channel::ALL {
            let text = &mut self.text[channel.index()];
            if !text.is_empty() {
                self.card.sink.text(self.client, channel, text);
                text.clear();
            }
        }
    }
}

impl Services for SliceServices<'_> {
    fn print(&mut self, channel: Channel, text: &[u8]) {
        let gathered = &mut self.text[channel.index()];
        gathered.extend_from_slice(text);
        if gathered.len() > MAX_GATHERED_TEXT_BYTES {
            self.flush_text();
        }
    }

    fn malloc(&mut self, bytes: u64) -> u64 {
        self.memory.heap.lock().allocate(bytes, &self.memory.table)
    }

    fn free(&mut self, address: u64) -> bool {
        let freed = self.memory.heap.lock().free(address, &self.memory.table);
        self.memory.note_change();
        freed
    }

    fn globaltimer(&mut self) -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn clock(&mut self) -> u64 {
        let khz = u128::from(self.card.facts.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).max(1).cast_unsigned());
        u64::try_from(self.card.opened.elapsed().as_nanos() * khz / 1_000_000).unwrap_or(u64::MAX)
    }

    fn ask(&mut self, block: u64, request: Request) -> Result<Answer, u32> {
        if let Request::Attribute { attribute, device } = request
            && self.ask(block, Request::OwnDevice)? == Answer::Number(device.into())
        {
            let known = self.card.facts.attributes.get(CUdevice_attribute(attribute.cast_unsigned()));
            return known.map(|value| Answer::Number(u64::from(value.cast_unsigned()))).ok_or(errors::INVALID_VALUE);
        }
        if matches!(request, Request::Launch { .. }) {
            // What was printed before a launch stands before what the launched grid prints.
            self.flush_text();
        }
        let mut scheduler = self.card.scheduler.lock();
        let answer = scheduler.ask(self.client, self.task, block, request);
        self.card.wake_worker(&scheduler);
        match answer {
            Ok(answer) => Ok(answer),
            Err(Denied::Error(error)) => Err(error),
            Err(Denied::Fault(fault)) => {
                self.card.fault_client(&mut scheduler, self.client, fault);
                Err(errors::NOT_SUPPORTED)
            }
        }
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
