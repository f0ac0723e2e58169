//! A worker: one thread that stands for whatever SM its current block was placed on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use cumux_abi::CUdevice_attribute;
use cumux_device::{ClientId, Fault};
use cumux_wire::result;

use super::card::Card;
use super::client::{Client, ClientEnd, Task};
use super::kernel::{ActiveBlock, Piece, PlacedBlock, coordinates_of};
use super::placement::Placement;
use super::report::Report;
use super::state::Job;
use crate::exec::Block;
use crate::exec::interface::{Launch, Services, Status};
use crate::faults;
use crate::memory::client::ClientMemory;
use crate::memory::transfer::StepEnd;
use crate::memory::worker::WorkerMemory;
use crate::progress::KernelProgress;
use crate::progress::undo::UndoLog;

/// Warp instructions of a slice: some tenths of a millisecond.
const BUDGET: u64 = 4096;
/// The same for a block that waits for others.
const WAITING_BUDGET: u64 = 192;
/// A batch of short blocks ends after this.
const BATCH_TIME: Duration = Duration::from_micros(200);
/// Text is passed on when this much has gathered, at the latest when the slice ends.
const TEXT: usize = 16 << 10;
/// Finished blocks whose buffers are kept for the next ones.
const SPARE: usize = 4;

/// How much nicer workers are than the threads that talk to the device: they are always busy, and whoever has just been woken by a push or a report
/// must not wait for a processor's next turn (each such wait is milliseconds where all cores are the device's).
const NICER: i32 = 5;
const NICEST: i32 = 19;

/// Runs until the device closes.
pub(crate) fn run(card: &Card, number: usize) {
    // Without it everything is only slower. The calling thread is meant, not the process: so Linux has it.
    if let Ok(now) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, (now + NICER).min(NICEST));
    }
    let mut worker = Worker { card, number, memory: WorkerMemory::default(), reports: 0, spare: Vec::new(), spare_logs: Vec::new() };
    while let Some(job) = worker.next_job() {
        match job {
            Job::Report(report) => worker.deliver_report(report),
            Job::Transfer { client, task, memory, mut transfer, log } => {
                let begun = Instant::now();
                worker.memory.begin_slice(&memory, false);
                let step = transfer.step(&mut worker.memory, log.as_ref());
                let mut state = card.state.lock();
                state.end_slice(number, client, task, nanoseconds(begun));
                let fault = match step {
                    StepEnd::More | StepEnd::Done => None,
                    StepEnd::Refused(address, fault) => Some(faults::of_transfer(address, fault)),
                    StepEnd::Misaligned(address) => Some(faults::misaligned_transfer(address)),
                };
                if let Some(fault) = fault {
                    card.end_client(&mut state, client, ClientEnd::Fault(fault));
                }
                let ended = state.clients.get(&client).is_some_and(|c| c.ended.is_some());
                if step == StepEnd::More && !ended {
                    let running = state.clients.get_mut(&client).and_then(|c| c.tasks.get_mut(&task));
                    if let Some(Task::Transfer(place)) = running.map(|r| &mut r.task) {
                        *place = Some(transfer);
                    }
                } else {
                    state.finish_task(client, task, transfer.progress.take());
                }
                if state.waiting > 0 {
                    card.settled.notify_all();
                }
            }
            Job::Piece { client, task, memory, piece, launch, progress, repeatable } => {
                worker.memory.begin_slice(&memory, !repeatable);
                let slice = SliceContext { client, task, launch, progress, repeatable, memory };
                worker.run_piece(&slice, piece);
            }
        }
    }
}

struct Worker<'a> {
    card: &'a Card,
    number: usize,
    memory: WorkerMemory,
    /// Those it has made way for.
    reports: u64,
    spare: Vec<Block>,
    #[expect(clippy::vec_box, reason = "they move in and out of blocks by pointer")]
    spare_logs: Vec<Box<UndoLog>>,
}

/// What a worker runs pieces of.
struct SliceContext {
    client: ClientId,
    task: u64,
    launch: Arc<Launch>,
    progress: Option<Arc<KernelProgress>>,
    repeatable: bool,
    memory: Arc<ClientMemory>,
}

/// What came of a piece.
#[derive(Default)]
struct PieceResult {
    done: Vec<Placement>,
    /// The block goes on later.
    running: Option<Box<ActiveBlock>>,
    /// Not begun.
    left: VecDeque<PlacedBlock>,
    fault: Option<Fault>,
}

impl Worker<'_> {
    /// The next job; sleeps while there is none. `None` when the device closes.
    fn next_job(&mut self) -> Option<Job> {
        let reports = self.card.reports.load(Ordering::Relaxed);
        if reports != self.reports {
            // Somebody has been woken by a report. On a full machine the system may leave them behind us until its next tick, milliseconds away.
            self.reports = reports;
            rustix::thread::sched_yield();
        }
        let mut state = self.card.state.lock();
        loop {
            if state.shutdown {
                return None;
            }
            if let Some(job) = state.next_job(self.number) {
                self.card.wake_worker(&state);
                return Some(job);
            }
            state.idle += 1;
            self.card.work.wait(&mut state);
            state.idle -= 1;
        }
    }

    fn deliver_report(&mut self, report: Report) {
        self.card.sink.retired(report.client, report.stream, report.token, report.outcome);
        self.card.reports.fetch_add(1, Ordering::Relaxed);
        if let Some(progress) = report.progress {
            progress.release();
        }
        let mut state = self.card.state.lock();
        state.report_delivered(report.client, report.stream);
        if state.waiting > 0 {
            self.card.settled.notify_all();
        }
    }

    fn run_piece(&mut self, slice: &SliceContext, piece: Piece) {
        let begun = Instant::now();
        let mut services = SliceServices { card: self.card, client: slice.client, memory: &slice.memory, text: Vec::new() };
        let mut result = PieceResult::default();
        match piece {
            Piece::Continue(active) => self.run_block(slice, active, &mut services, &mut result),
            Piece::Begin(mut fresh) => {
                while let Some(next) = fresh.pop_front() {
                    let active = self.begin_block(slice, next);
                    self.run_block(slice, active, &mut services, &mut result);
                    if result.running.is_some() || result.fault.is_some() || begun.elapsed() > BATCH_TIME {
                        break;
                    }
                }
                result.left = fresh;
            }
        }
        services.flush();
        self.return_piece(slice, result, nanoseconds(begun));
    }

    /// Makes a block out of a place, with old buffers if there are any.
    fn begin_block(&mut self, slice: &SliceContext, fresh: PlacedBlock) -> Box<ActiveBlock> {
        let place = coordinates_of(&slice.launch, fresh);
        let block = match self.spare.pop() {
            Some(mut block) => {
                block.restart(slice.launch.clone(), place);
                block
            }
            None => Block::new(slice.launch.clone(), place),
        };
        let log = slice.progress.as_ref().filter(|_| slice.repeatable).map(|progress| match self.spare_logs.pop() {
            Some(mut log) => {
                log.restart(progress.clone(), fresh.index);
                log
            }
            None => Box::new(UndoLog::new(progress.clone(), fresh.index)),
        });
        if let Some(progress) = &slice.progress {
            progress.mark_begun(fresh.index);
        }
        Box::new(ActiveBlock { index: fresh.index, seat: fresh.seat, block, log, waits: false })
    }

    /// Runs a block for one slice.
    fn run_block(&mut self, slice: &SliceContext, mut active: Box<ActiveBlock>, services: &mut SliceServices<'_>, result: &mut PieceResult) {
        let budget = if active.waits { WAITING_BUDGET } else { BUDGET };
        self.memory.log = active.log.take();
        let memory = &mut self.memory;
        let block = &mut active.block;
        // A panic of the execution core must not take the worker and with it every client: it ends the client whose block it was.
        let status = catch_unwind(AssertUnwindSafe(|| block.run(budget, memory, services)));
        active.log = self.memory.log.take();
        match status {
            Ok(Status::Running) => {
                active.waits = !slice.repeatable && self.memory.trace.looks_like_waiting();
                result.running = Some(active);
                return;
            }
            Ok(Status::Done) => {
                if let Some(progress) = &slice.progress {
                    progress.mark_done(active.index);
                }
            }
            Ok(Status::Fault(fault)) => result.fault = Some(faults::of_thread(&fault)),
            Err(_) => {
                let kernel = &slice.launch.image.program().kernels[slice.launch.kernel].name;
                let text = format!("the software GPU failed in kernel {kernel}, block {}; this is a bug of cumux, please report it", active.index);
                tracing::error!("{text}");
                result.fault = Some(Fault { result: result::LAUNCH_FAILED, text });
            }
        }
        result.done.push(active.seat);
        let ActiveBlock { block, log, .. } = *active;
        if let Some(mut log) = log {
            log.discard();
            if self.spare_logs.len() < SPARE {
                self.spare_logs.push(log);
            }
        }
        if self.spare.len() < SPARE && result.fault.is_none() {
            self.spare.push(block);
        }
    }

    /// Hands the result back to the scheduler.
    fn return_piece(&mut self, slice: &SliceContext, result: PieceResult, ns: u64) {
        let mut state = self.card.state.lock();
        state.end_slice(self.number, slice.client, slice.task, ns);
        if let Some(fault) = result.fault.clone() {
            self.card.end_client(&mut state, slice.client, ClientEnd::Fault(fault));
        }
        if let Some(client) = state.clients.get_mut(&slice.client)
            && let Some(late) = settle_piece(client, slice, result, ns, self.card.watchdog)
        {
            self.card.end_client(&mut state, slice.client, ClientEnd::Fault(late));
        }
        state.finish_if_done(slice.client, slice.task);
        if state.waiting > 0 {
            self.card.settled.notify_all();
        }
    }
}

/// Puts back into the kernel what a worker returns. The fault if it has run for too long.
fn settle_piece(client: &mut Client, slice: &SliceContext, result: PieceResult, ns: u64, watchdog: Option<Duration>) -> Option<Fault> {
    let running = client.tasks.get_mut(&slice.task)?;
    let Task::Kernel(kernel) = &mut running.task else { return None };
    kernel.running -= 1;
    kernel.note_block_time(result.done.len() as u64, ns);
    if !result.done.is_empty() {
        client.freed += 1;
    }
    for seat in result.done {
        if let Some(sms) = client.parts.set(kernel.sm_set) {
            sms.release_block(seat, kernel.need);
        }
    }
    for fresh in result.left.into_iter().rev() {
        kernel.placed.push_front(fresh);
    }
    if let Some(active) = result.running {
        // Blocks that may wait for others take turns; of the others the earliest goes on.
        if kernel.repeatable {
            kernel.ready.push_front(active);
        } else {
            kernel.ready.push_back(active);
        }
    }
    if client.ended.is_some() {
        for seat in kernel.abandon_blocks() {
            if let Some(sms) = client.parts.set(kernel.sm_set) {
                sms.release_block(seat, kernel.need);
            }
        }
        client.freed += 1;
        return None;
    }
    let ran = kernel.started?.elapsed();
    watchdog.filter(|limit| ran > *limit && !kernel.is_finished()).map(|limit| Fault {
        result: result::LAUNCH_TIMEOUT,
        text: format!(
            "kernel {} ran for {} ms; CUMUX_SIM_WATCHDOG_MS allows {}",
            kernel.launch.image.program().kernels[kernel.launch.kernel].name,
            ran.as_millis(),
            limit.as_millis()
        ),
    })
}

/// What kernels ask for besides memory; text is gathered for a slice.
struct SliceServices<'a> {
    card: &'a Card,
    client: ClientId,
    memory: &'a ClientMemory,
    text: Vec<u8>,
}

impl SliceServices<'_> {
    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.card.sink.text(self.client, &self.text);
            self.text.clear();
        }
    }
}

impl Services for SliceServices<'_> {
    fn print(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        if self.text.len() > TEXT {
            self.flush();
        }
    }

    fn malloc(&mut self, bytes: u64) -> u64 {
        self.memory.heap.lock().allocate(bytes, &self.memory.table)
    }

    fn free(&mut self, address: u64) -> bool {
        let freed = self.memory.heap.lock().free(address, &self.memory.table);
        self.memory.version.fetch_add(1, std::sync::atomic::Ordering::Release);
        freed
    }

    fn globaltimer(&mut self) -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn clock(&mut self) -> u64 {
        let khz = u128::from(self.card.facts.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE.0).max(1).cast_unsigned());
        u64::try_from(self.card.started.elapsed().as_nanos() * khz / 1_000_000).unwrap_or(u64::MAX)
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
