//! Everything the scheduler knows, behind one lock held for short moments.

mod children;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use cumux_device::sm_allocator::SmAllocator;
use cumux_device::{ClientId, ClientSpec, DeviceError, Fault, Outcome, StreamId, Work};
use cumux_wire::positions::SmPositions;
use cumux_wire::result;

use super::breakage::Breakage;
use super::client::{CardClient, ClientEnd, ClientPriority, Lineage, Reporting, RunningTask, Task, not_open};
use super::kernel::{Coupling, Piece};
use super::launch::{self, Launcher, Prepared};
use super::partitions::{ClientPartitions, PartitionSize};
use super::report::{Report, outcome_of};
use super::stream::{Lifetime, Stream, StreamState};
use crate::exec::interface::Launch;
use crate::memory::client::ClientMemory;
use crate::memory::transfer::Transfer;
use crate::models::Limits;
use crate::progress::{KernelProgress, ProgressLog};

pub(super) use children::Denied;

/// Streams that all clients together may have.
const MAX_STREAMS: usize = 1 << 20;
/// Nanoseconds that a worker is expected to use for a slice. The charge is corrected when the
/// worker comes back.
const EXPECTED_SLICE_NS: u64 = 300_000;
/// Most steps of stream priority that count (`cuCtxGetStreamPriorityRange` answers 0 to -5).
const MAX_URGENCY: i32 = 5;

/// What a worker does next.
pub(super) enum Job {
    Report(Report),
    Piece(PieceJob),
    Transfer(TransferJob),
}

/// A piece of a kernel, and what a worker needs to run it.
pub(super) struct PieceJob {
    pub(super) client: ClientId,
    pub(super) task: u64,
    pub(super) memory: Arc<ClientMemory>,
    pub(super) piece: Piece,
    pub(super) launch: Arc<Launch>,
    pub(super) progress: Option<Arc<KernelProgress>>,
    pub(super) coupling: Coupling,
}

/// A step of a transfer, and what a worker needs to do it.
pub(super) struct TransferJob {
    pub(super) client: ClientId,
    pub(super) task: u64,
    pub(super) memory: Arc<ClientMemory>,
    pub(super) transfer: Box<Transfer>,
    pub(super) log: Option<Arc<ProgressLog>>,
}

/// A slice that a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunningSlice {
    pub(super) client: ClientId,
    /// Slices are counted: no two have the same number.
    pub(super) number: u64,
}

/// Whether the device is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DevicePhase {
    Open,
    /// Workers end as soon as they look for work.
    ShuttingDown,
}

/// Clients, streams and workers of one card.
pub(crate) struct Scheduler {
    limits: Limits,
    pub(crate) clients: HashMap<ClientId, CardClient>,
    pub(super) streams: HashMap<StreamId, Stream>,
    next_stream: u32,
    next_task: u64,
    pub(super) reports: VecDeque<Report>,
    /// Reports that workers are giving to the sink.
    pub(super) delivering: usize,
    /// What each worker runs.
    pub(super) workers: Vec<Option<RunningSlice>>,
    slices: u64,
    /// Workers that sleep on [`super::card::SoftwareCard::work`].
    pub(super) idle_workers: usize,
    /// Threads that sleep on [`super::card::SoftwareCard::settled`].
    pub(super) waiting_threads: usize,
    pub(crate) phase: DevicePhase,
    /// How far the card's end has come, for a card that breaks at a fault.
    pub(super) breakage: Option<Breakage>,
    /// Virtual time of the client that ran last, by priority: a client that comes back starts with
    /// it.
    virtual_clocks: [u64; ClientPriority::COUNT],
    pub(super) sm_allocator: SmAllocator,
}

impl Scheduler {
    /// A card without clients.
    pub(crate) fn new(limits: Limits, workers: usize, breakage: Option<Breakage>) -> Self {
        Scheduler {
            limits,
            clients: HashMap::new(),
            streams: HashMap::new(),
            next_stream: 1,
            next_task: 1,
            reports: VecDeque::new(),
            delivering: 0,
            workers: vec![None; workers],
            slices: 0,
            idle_workers: 0,
            waiting_threads: 0,
            phase: DevicePhase::Open,
            breakage,
            virtual_clocks: [0; ClientPriority::COUNT],
            sm_allocator: SmAllocator::new(limits.launch.multiprocessors),
        }
    }

    // ---- clients

    pub(crate) fn add_client(&mut self, id: ClientId, spec: &ClientSpec, log: Option<Arc<ProgressLog>>) {
        let beside = spec.beside.and_then(|other| self.clients.get(&other)).map(|other| other.partitions.share());
        let sms = beside.as_ref().unwrap_or(&spec.sms);
        let partitions = if sms.is_empty() {
            ClientPartitions::new(&self.limits, &mut self.sm_allocator, spec.multiprocessors)
        } else {
            ClientPartitions::with_sms(&self.limits, &mut self.sm_allocator, sms)
        };
        self.clients.insert(id, CardClient::new(partitions, spec, log));
    }

    /// Whether a worker or an unreported submission still needs the client.
    pub(super) fn is_client_busy(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.unreported > 0) || self.workers.iter().flatten().any(|slice| slice.client == id)
    }

    /// Removes a client and its streams. Nothing of it runs any more.
    pub(crate) fn remove_client(&mut self, id: ClientId) -> Option<CardClient> {
        self.streams.retain(|_, stream| stream.client != id);
        let mut gone = self.clients.remove(&id)?;
        gone.partitions.release_all(&mut self.sm_allocator);
        Some(gone)
    }

    /// Changes a client's share (SMs, 0 = all).
    pub(crate) fn set_share(&mut self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let owner = self.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        owner.partitions.set_share(&self.limits, &mut self.sm_allocator, multiprocessors);
        // Kernels that found no capacity on the old SMs may find it on the new ones.
        owner.freed += 1;
        Ok(())
    }

    /// Changes a client's share to the SMs of another client.
    pub(crate) fn set_share_beside(&mut self, client: ClientId, other: ClientId) -> Result<(), DeviceError> {
        let sms = self.clients.get(&other).ok_or_else(|| not_open(other))?.partitions.share();
        let owner = self.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        owner.partitions.set_sms(&self.limits, &mut self.sm_allocator, &sms);
        owner.freed += 1;
        Ok(())
    }

    pub(crate) fn open_partition(&mut self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        self.add_partition(client, partition, PartitionSize::Count(multiprocessors))
    }

    pub(crate) fn place_partition(&mut self, client: ClientId, partition: u32, positions: SmPositions) -> Result<(), DeviceError> {
        if positions.is_empty() {
            return Err(DeviceError::Invalid(format!("partition {partition} of client {client} has no SM")));
        }
        self.add_partition(client, partition, PartitionSize::Positions(positions))
    }

    fn add_partition(&mut self, client: ClientId, partition: u32, size: PartitionSize) -> Result<(), DeviceError> {
        let owner = self.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        if owner.partitions.open_partition(&self.limits, &mut self.sm_allocator, partition, size) {
            Ok(())
        } else {
            Err(DeviceError::Invalid(format!("client {client} has a partition {partition} already")))
        }
    }

    pub(crate) fn close_partition(&mut self, client: ClientId, partition: u32) {
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.partitions.close_partition(&mut self.sm_allocator, partition);
        }
    }

    /// Ends all work of a client. What no worker has is reported now, the rest when its slice is
    /// over.
    pub(super) fn end_client(&mut self, client_id: ClientId, end: ClientEnd) {
        if self.breaks() {
            return self.end_unstoppable_client(client_id, end);
        }
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        if client.end.is_some() {
            return;
        }
        client.end = Some(end);
        let numbers: Vec<u64> = client.tasks.keys().copied().collect();
        let mut over = Vec::new();
        for number in numbers {
            client.abandon_blocks(number);
            match client.tasks.get_mut(&number).map(|running| &mut running.task) {
                Some(Task::Kernel(kernel)) if kernel.is_finished() => over.push((number, None)),
                Some(Task::Transfer(transfer)) => over.extend(transfer.take().map(|transfer| (number, transfer.progress))),
                _ => {}
            }
        }
        for (number, progress) in over {
            self.finish_task(client_id, number, progress);
        }
        self.retry_waiting_streams(client_id);
    }

    // ---- a card that breaks

    /// Whether the card breaks at a fault, and cannot stop the kernels of one client alone.
    pub(crate) fn breaks(&self) -> bool {
        self.breakage.is_some()
    }

    /// Whether nothing begins any more.
    pub(super) fn is_halted(&self) -> bool {
        self.breakage.as_ref().is_some_and(|breakage| breakage.is_halted())
    }

    /// Whether workers may take nothing at all.
    pub(super) fn is_over(&self) -> bool {
        self.breakage.as_ref().is_some_and(|breakage| breakage.is_over())
    }

    /// Ends a client whose running blocks cannot be stopped: reports all its work now, and takes
    /// back what has not begun. While nothing begins any more, the reports are left to the
    /// settling.
    fn end_unstoppable_client(&mut self, id: ClientId, end: ClientEnd) {
        let halted = self.is_halted();
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.end.is_some() {
            return;
        }
        let outcome = outcome_of(&end);
        client.end = Some(end);
        if halted {
            return;
        }
        let mut over = Vec::new();
        for number in client.tasks.keys().copied().collect::<Vec<u64>>() {
            client.abandon_launches(number);
        }
        for (number, running) in &mut client.tasks {
            match &mut running.task {
                // Goes on, as a part of the kernel that has launched it.
                Task::Kernel(kernel) if running.lineage.is_launched && kernel.started.is_some() => {}
                Task::Kernel(kernel) if kernel.started.is_some() => {
                    running.reporting = Reporting::Done;
                    let (stream, token) = (running.stream, running.token);
                    self.reports.push_back(Report { client: id, stream, token, outcome: outcome.clone(), progress: None });
                }
                Task::Kernel(_) => over.push(*number),
                Task::Transfer(transfer) if transfer.is_some() => over.push(*number),
                // Reported when its worker brings it back, after one step.
                Task::Transfer(_) => {}
            }
        }
        for number in over {
            self.finish_task(id, number, None);
        }
    }

    // ---- streams

    pub(crate) fn create_stream(&mut self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let owner = self.clients.get(&client).ok_or_else(|| not_open(client))?;
        if !owner.partitions.has_partition(partition) {
            return Err(DeviceError::Invalid(format!("client {client} has no partition {partition}")));
        }
        if self.streams.len() >= MAX_STREAMS {
            return Err(DeviceError::OutOfMemory(format!("the device has {MAX_STREAMS} streams already")));
        }
        while self.streams.contains_key(&StreamId(self.next_stream)) {
            self.next_stream = self.next_stream.wrapping_add(1);
        }
        let id = StreamId(self.next_stream);
        self.next_stream = self.next_stream.wrapping_add(1);
        self.streams.insert(id, Stream::new(client, partition, priority));
        Ok(id)
    }

    pub(crate) fn destroy_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.lifetime = Lifetime::Destroyed;
            if stream.state == StreamState::Idle && stream.queue.is_empty() {
                self.streams.remove(&id);
            }
        }
    }

    pub(crate) fn submit(&mut self, id: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        let unknown = || DeviceError::Invalid(format!("stream {} does not exist", id.0));
        let stream = self.streams.get_mut(&id).filter(|stream| stream.lifetime == Lifetime::Open).ok_or_else(unknown)?;
        let client = self.clients.get_mut(&stream.client).ok_or_else(unknown)?;
        client.unreported += 1;
        stream.queue.push_back((token, work));
        if stream.state == StreamState::Idle {
            self.start_next_work(id);
        }
        Ok(())
    }

    /// Makes the first work of an idle stream a task, or reports it.
    fn start_next_work(&mut self, id: StreamId) {
        if self.is_halted() {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if self.clients.get(&stream.client).is_some_and(|client| client.has_left) {
            return;
        }
        let Some((token, work)) = stream.queue.pop_front() else {
            if stream.lifetime == Lifetime::Destroyed {
                self.streams.remove(&id);
            }
            return;
        };
        stream.state = StreamState::Busy;
        let (client_id, priority, partition) = (stream.client, stream.priority, stream.partition);
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        let report = |outcome| Report { client: client_id, stream: id, token, outcome, progress: None };
        if let Some(end) = &client.end {
            self.reports.push_back(report(outcome_of(end)));
            return;
        }
        let prepared = match work {
            Work::Nop => {
                self.reports.push_back(report(Outcome::Done { device_ns: 0 }));
                return;
            }
            Work::Kernel(kernel) => match launch::prepare(&self.limits, client, client_id, partition, token, kernel, Launcher::Host) {
                Prepared::Run(run) => Ok(Task::Kernel(run)),
                Prepared::AwaitsRecord(kernel) => {
                    // The next report of the client releases a record, and the stream tries again.
                    client.awaiting_record.push(id);
                    stream.queue.push_front((token, Work::Kernel(kernel)));
                    stream.state = StreamState::AwaitsRecord;
                    return;
                }
                Prepared::Fault(fault) => Err(fault),
            },
            Work::ArrayCopy { .. } => {
                Err(Fault { result: result::INVALID_HANDLE, text: "a copy names an array of a card, and a software GPU has none".into() })
            }
            transfer => match Transfer::new(&transfer, token) {
                Some(transfer) => Ok(Task::Transfer(Some(Box::new(transfer)))),
                None => Err(Fault { result: result::INVALID_VALUE, text: "the extent of a set does not fit in 64 bits".into() }),
            },
        };
        let task = match prepared {
            Ok(task) => task,
            Err(fault) => {
                self.reports.push_back(report(Outcome::Fault(fault.clone())));
                self.end_client(client_id, ClientEnd::Fault(fault));
                return;
            }
        };
        if client.task_to_run().is_none() {
            client.virtual_time = client.virtual_time.max(self.virtual_clocks[client.priority.index()]);
        }
        let number = self.next_task;
        self.next_task += 1;
        let urgency = priority.saturating_neg().clamp(0, MAX_URGENCY).cast_unsigned();
        let virtual_time = client.virtual_clock;
        let lineage = Lineage::default();
        client.tasks.insert(number, RunningTask { task, reporting: Reporting::Due, stream: id, token, begun: Instant::now(), virtual_time, urgency, lineage });
    }

    /// The sink has taken a report: the stream goes on, and so do streams that waited for a record.
    pub(super) fn report_delivered(&mut self, client_id: ClientId, stream_id: StreamId) {
        self.delivering -= 1;
        if let Some(stream) = self.streams.get_mut(&stream_id) {
            stream.state = StreamState::Idle;
        }
        self.start_next_work(stream_id);
        if let Some(client) = self.clients.get_mut(&client_id) {
            client.unreported -= 1;
            self.retry_waiting_streams(client_id);
        }
    }

    /// Lets all streams of a client try again that wait for a free record in the progress log.
    fn retry_waiting_streams(&mut self, client: ClientId) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        for id in std::mem::take(&mut client.awaiting_record) {
            if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.state == StreamState::AwaitsRecord) {
                stream.state = StreamState::Idle;
                self.start_next_work(id);
            }
        }
    }

    // ---- workers

    /// Whether [`Scheduler::next_job`] may have something.
    pub(super) fn has_work(&self) -> bool {
        !self.reports.is_empty() || self.clients.values().any(|client| client.task_to_run().is_some())
    }

    /// The next job for a worker, noted as its slice.
    pub(super) fn next_job(&mut self, worker: usize) -> Option<Job> {
        if self.is_over() {
            return None;
        }
        loop {
            if !self.is_halted()
                && let Some(report) = self.reports.pop_front()
            {
                self.delivering += 1;
                return Some(Job::Report(report));
            }
            let entitled = |(id, client): (&ClientId, &CardClient)| client.task_to_run().map(|task| (client.priority, client.virtual_time, *id, task));
            let (.., client, task) = self.clients.iter().filter_map(entitled).min()?;
            if let Some(job) = self.take_piece(client, task) {
                self.slices += 1;
                self.workers[worker] = Some(RunningSlice { client, number: self.slices });
                return Some(job);
            }
        }
    }

    /// A piece of this task. `None` if it had none after all: no SM had capacity, or it is
    /// finished.
    fn take_piece(&mut self, client_id: ClientId, number: u64) -> Option<Job> {
        let workers = self.workers.len() as u64;
        let client = self.clients.get_mut(&client_id)?;
        let clock = &mut self.virtual_clocks[client.priority.index()];
        *clock = (*clock).max(client.virtual_time);
        let may_place = client.gathering.is_none_or(|gathering| number <= gathering);
        let freed = client.freed;
        let running = client.tasks.get_mut(&number)?;
        client.virtual_clock = client.virtual_clock.max(running.virtual_time);
        let memory = client.memory.clone();
        let job = match &mut running.task {
            Task::Transfer(transfer) => {
                // Of what a kernel has launched there are no records.
                let log = client.log.clone().filter(|_| !running.lineage.is_launched);
                Job::Transfer(TransferJob { client: client_id, task: number, memory, transfer: transfer.take()?, log })
            }
            Task::Kernel(kernel) => match kernel.next_piece(client.partitions.set(kernel.sm_set)?, freed, workers, may_place) {
                Some(piece) => {
                    if client.gathering == Some(number) {
                        client.gathering = None;
                    }
                    let (launch, progress) = (kernel.launch.clone(), kernel.progress.clone());
                    Job::Piece(PieceJob { client: client_id, task: number, memory, piece, launch, progress, coupling: kernel.coupling })
                }
                None => {
                    if !may_place {
                        kernel.wait_for_freed(freed);
                    } else if kernel.waits_for_all() {
                        client.gathering = Some(number);
                    }
                    self.finish_if_done(client_id, number);
                    return None;
                }
            },
        };
        running.virtual_time += EXPECTED_SLICE_NS >> (2 * running.urgency);
        client.virtual_time += EXPECTED_SLICE_NS;
        Some(job)
    }

    /// A worker's slice for a client is over and used this many nanoseconds.
    pub(super) fn end_slice(&mut self, worker: usize, client_id: ClientId, task: u64, ns: u64) {
        self.workers[worker] = None;
        if let Some(client) = self.clients.get_mut(&client_id) {
            client.virtual_time = (client.virtual_time + ns).saturating_sub(EXPECTED_SLICE_NS);
            if let Some(running) = client.tasks.get_mut(&task) {
                let shift = 2 * running.urgency;
                running.virtual_time = (running.virtual_time + (ns >> shift)).saturating_sub(EXPECTED_SLICE_NS >> shift);
            }
        }
    }

    /// Ends a kernel all of whose blocks are done, and all that it has launched; and its parent, if
    /// nothing else kept that.
    pub(super) fn finish_if_done(&mut self, client_id: ClientId, number: u64) {
        let mut next = Some(number);
        while let Some(number) = next.take() {
            self.blocks_may_be_done(client_id, number);
            let Some(client) = self.clients.get(&client_id) else { return };
            if client.tasks.get(&number).is_some_and(|running| matches!(&running.task, Task::Kernel(kernel) if kernel.is_finished())) {
                next = self.end_task(client_id, number, None);
            }
        }
    }

    /// Ends a task. `progress`: the record of a transfer; a kernel has its own.
    pub(super) fn finish_task(&mut self, client_id: ClientId, number: u64, progress: Option<Arc<KernelProgress>>) {
        if let Some(parent) = self.end_task(client_id, number, progress) {
            self.finish_if_done(client_id, parent);
        }
    }

    /// Ends a task. Its outcome is the client's end if there is one. Returns the kernel that has
    /// launched it.
    fn end_task(&mut self, client_id: ClientId, number: u64, progress: Option<Arc<KernelProgress>>) -> Option<u64> {
        let client = self.clients.get_mut(&client_id)?;
        let running = client.tasks.remove(&number)?;
        if client.gathering == Some(number) {
            client.gathering = None;
        }
        let (progress, took) = match running.task {
            Task::Kernel(kernel) => {
                client.partitions.end_kernel(&mut self.sm_allocator, kernel.sm_set);
                client.memory.launches.lock().end_task(number);
                if let Some(progress) = &kernel.progress {
                    progress.mark_settled();
                }
                (kernel.progress, kernel.started.map(|started| started.elapsed_by_clock()))
            }
            Task::Transfer(_) => (progress, Some(running.begun.elapsed())),
        };
        if running.lineage.is_launched {
            return self.end_launched(client_id, running.lineage);
        }
        if running.reporting == Reporting::Done {
            return None;
        }
        let outcome = match &client.end {
            Some(end) => outcome_of(end),
            None => Outcome::Done { device_ns: took.map_or(0, |took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)) },
        };
        self.reports.push_back(Report { client: client_id, stream: running.stream, token: running.token, outcome, progress });
        None
    }
}
