//! Everything the scheduler knows, behind one lock held for short moments.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use cumux_device::floor::Floor;
use cumux_device::{ClientId, ClientSpec, DeviceError, Fault, Outcome, StreamId, Work};

use super::client::{Client, ClientEnd, LEVELS, RunningTask, Task, not_open};
use super::kernel::Piece;
use super::launch::{self, Prepared};
use super::parts::ClientPartitions;
use super::report::{Report, outcome_of};
use crate::exec::interface::Launch;
use crate::memory::client::ClientMemory;
use crate::memory::transfer::Transfer;
use crate::models::Limits;
use crate::progress::{KernelProgress, ProgressLog};

/// Streams that all clients together may have.
const STREAMS: usize = 1 << 20;
/// What a worker is expected to use, in nanoseconds; corrected when it comes back.
pub(crate) const SLICE_NS: u64 = 300_000;

pub(crate) struct Stream {
    pub(crate) client: ClientId,
    pub(crate) priority: i32,
    /// The part of the client's share on which its kernels run.
    part: u32,
    queue: VecDeque<(u64, Work)>,
    /// A task or a report of it is in flight.
    busy: bool,
    pub(crate) destroyed: bool,
}

/// What a worker does next.
pub(crate) enum Job {
    Report(Report),
    Piece { client: ClientId, task: u64, memory: Arc<ClientMemory>, piece: Piece, launch: Arc<Launch>, progress: Option<Arc<KernelProgress>>, repeatable: bool },
    Transfer { client: ClientId, task: u64, memory: Arc<ClientMemory>, transfer: Box<Transfer>, log: Option<Arc<ProgressLog>> },
}

pub(crate) struct Scheduler {
    pub(crate) limits: Limits,
    pub(crate) clients: HashMap<ClientId, Client>,
    pub(crate) streams: HashMap<StreamId, Stream>,
    next_stream: u32,
    next_task: u64,
    pub(crate) reports: VecDeque<Report>,
    /// What each worker runs: the client and the number of the slice.
    pub(crate) workers: Vec<Option<(ClientId, u64)>>,
    slices: u64,
    pub(crate) idle: usize,
    /// How many wait on [`super::card::Card::settled`].
    pub(crate) waiting: usize,
    pub(crate) shutdown: bool,
    /// By client priority.
    vclock: [u64; LEVELS],
    pub(crate) floor: Floor,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, workers: usize) -> Self {
        Scheduler {
            limits,
            clients: HashMap::new(),
            streams: HashMap::new(),
            next_stream: 1,
            next_task: 1,
            reports: VecDeque::new(),
            workers: vec![None; workers],
            slices: 0,
            idle: 0,
            waiting: 0,
            shutdown: false,
            vclock: [0; LEVELS],
            floor: Floor::new(limits.multiprocessors),
        }
    }

    pub(crate) fn add_client(&mut self, id: ClientId, spec: &ClientSpec, log: Option<Arc<ProgressLog>>) {
        let parts = if spec.sms.is_empty() {
            ClientPartitions::new(&self.limits, &mut self.floor, spec.multiprocessors)
        } else {
            ClientPartitions::with_sms(&self.limits, &mut self.floor, &spec.sms)
        };
        self.clients.insert(id, Client::new(parts, spec.priority, log));
    }

    pub(crate) fn remove_client(&mut self, id: ClientId) -> Option<Client> {
        let mut gone = self.clients.remove(&id)?;
        gone.parts.release_all(&mut self.floor);
        Some(gone)
    }

    pub(crate) fn set_share(&mut self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let owner = self.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        owner.parts.set_share(&self.limits, &mut self.floor, multiprocessors);
        // What waited for room on the old SMs may find it on the new ones.
        owner.freed += 1;
        Ok(())
    }

    pub(crate) fn open_part(&mut self, client: ClientId, part: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        let owner = self.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        if owner.parts.open_partition(&self.limits, &mut self.floor, part, multiprocessors) {
            Ok(())
        } else {
            Err(DeviceError::Invalid(format!("client {client} has a partition {part} already")))
        }
    }

    pub(crate) fn close_part(&mut self, client: ClientId, part: u32) {
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.parts.close_partition(&mut self.floor, part);
        }
    }

    pub(crate) fn create_stream(&mut self, client: ClientId, part: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let owner = self.clients.get(&client).ok_or_else(|| not_open(client))?;
        if !owner.parts.has_partition(part) {
            return Err(DeviceError::Invalid(format!("client {client} has no partition {part}")));
        }
        if self.streams.len() >= STREAMS {
            return Err(DeviceError::OutOfMemory(format!("the device has {STREAMS} streams already")));
        }
        while self.streams.contains_key(&StreamId(self.next_stream)) {
            self.next_stream = self.next_stream.wrapping_add(1);
        }
        let id = StreamId(self.next_stream);
        self.next_stream = self.next_stream.wrapping_add(1);
        self.streams.insert(id, Stream { client, priority, part, queue: VecDeque::new(), busy: false, destroyed: false });
        Ok(id)
    }

    pub(crate) fn destroy_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.destroyed = true;
            if !stream.busy && stream.queue.is_empty() {
                self.streams.remove(&id);
            }
        }
    }

    pub(crate) fn submit(&mut self, id: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        let unknown = || DeviceError::Invalid(format!("stream {} does not exist", id.0));
        let stream = self.streams.get_mut(&id).filter(|s| !s.destroyed).ok_or_else(unknown)?;
        let client = self.clients.get_mut(&stream.client).ok_or_else(unknown)?;
        client.outstanding += 1;
        stream.queue.push_back((token, work));
        if !stream.busy {
            self.start_next_work(id);
        }
        Ok(())
    }

    /// Makes the first work of an idle stream a task, or reports it.
    fn start_next_work(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some((token, work)) = stream.queue.pop_front() else {
            if stream.destroyed {
                self.streams.remove(&id);
            }
            return;
        };
        stream.busy = true;
        let (client_id, priority, part) = (stream.client, stream.priority, stream.part);
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        let report = |outcome| Report { client: client_id, stream: id, token, outcome, progress: None };
        if let Some(ended) = &client.ended {
            self.reports.push_back(report(outcome_of(ended)));
            return;
        }
        let task = match work {
            Work::Mark => {
                self.reports.push_back(report(Outcome::Done { device_ns: 0 }));
                return;
            }
            Work::Kernel(kernel) => match launch::prepare(&self.limits, client, client_id, part, token, kernel) {
                Prepared::Run(run) => Some(Task::Kernel(run)),
                Prepared::Later(kernel) => {
                    // Too many kernels in flight: the next report of the client tries again.
                    client.waiting_for_record = true;
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.queue.push_front((token, Work::Kernel(kernel)));
                        stream.busy = false;
                    }
                    return;
                }
                Prepared::Fault(fault) => {
                    self.reports.push_back(report(Outcome::Fault(fault.clone())));
                    self.end_client(client_id, ClientEnd::Fault(fault));
                    return;
                }
            },
            ref transfer => Transfer::new(transfer, token).map(|t| Task::Transfer(Some(Box::new(t)))),
        };
        let Some(task) = task else {
            let fault = Fault { result: cumux_wire::result::INVALID_VALUE, text: "the extent of a set does not fit in 64 bits".into() };
            self.reports.push_back(report(Outcome::Fault(fault.clone())));
            self.end_client(client_id, ClientEnd::Fault(fault));
            return;
        };
        if client.task_to_run().is_none() {
            client.vtime = client.vtime.max(self.vclock[client.priority]);
        }
        let number = self.next_task;
        self.next_task += 1;
        let urgency = priority.saturating_neg().clamp(0, 5).cast_unsigned();
        client.tasks.insert(number, RunningTask { task, stream: id, token, begun: std::time::Instant::now(), vtime: client.vclock, urgency });
    }

    /// The sink has taken a report: the stream goes on.
    pub(crate) fn report_delivered(&mut self, client_id: ClientId, stream: StreamId) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.busy = false;
        }
        self.start_next_work(stream);
        if let Some(client) = self.clients.get_mut(&client_id) {
            client.outstanding -= 1;
            if std::mem::take(&mut client.waiting_for_record) {
                self.retry_waiting_streams(client_id);
            }
        }
    }

    /// Streams of a client that have work and neither a task nor a report.
    fn retry_waiting_streams(&mut self, client: ClientId) {
        let waiting: Vec<StreamId> = self.streams.iter().filter(|(_, s)| s.client == client && !s.busy && !s.queue.is_empty()).map(|(id, _)| *id).collect();
        for id in waiting {
            self.start_next_work(id);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.reports.is_empty() || self.clients.values().any(|client| client.task_to_run().is_some())
    }

    /// The next job for a worker, noted as its slice.
    pub(crate) fn next_job(&mut self, worker: usize) -> Option<Job> {
        loop {
            if let Some(report) = self.reports.pop_front() {
                return Some(Job::Report(report));
            }
            let best = |(id, c): (&ClientId, &Client)| c.task_to_run().map(|task| (c.priority, c.vtime, *id, task));
            let (.., client_id, number) = self.clients.iter().filter_map(best).min()?;
            if let Some(job) = self.take_piece(client_id, number) {
                self.slices += 1;
                self.workers[worker] = Some((client_id, self.slices));
                return Some(job);
            }
        }
    }

    /// A piece of this task, or `None` if it had none after all (there was no room, or it is finished).
    fn take_piece(&mut self, client_id: ClientId, number: u64) -> Option<Job> {
        let workers = self.workers.len() as u64;
        let client = self.clients.get_mut(&client_id)?;
        let clock = &mut self.vclock[client.priority];
        *clock = (*clock).max(client.vtime);
        let may_place = client.gathering.is_none_or(|gathering| number <= gathering);
        let freed = client.freed;
        let running = client.tasks.get_mut(&number)?;
        client.vclock = client.vclock.max(running.vtime);
        let memory = client.memory.clone();
        let job = match &mut running.task {
            Task::Transfer(transfer) => Job::Transfer { client: client_id, task: number, memory, transfer: transfer.take()?, log: client.log.clone() },
            Task::Kernel(kernel) => match kernel.next_piece(client.parts.set(kernel.sm_set)?, freed, workers, may_place) {
                Some(piece) => {
                    if client.gathering == Some(number) {
                        client.gathering = None;
                    }
                    let (launch, progress) = (kernel.launch.clone(), kernel.progress.clone());
                    Job::Piece { client: client_id, task: number, memory, piece, launch, progress, repeatable: kernel.repeatable }
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
        running.vtime += SLICE_NS >> (2 * running.urgency);
        client.vtime += SLICE_NS;
        Some(job)
    }

    /// A worker's slice for a client is over and used this time.
    pub(crate) fn end_slice(&mut self, worker: usize, client_id: ClientId, task: u64, ns: u64) {
        self.workers[worker] = None;
        if let Some(client) = self.clients.get_mut(&client_id) {
            client.vtime = (client.vtime + ns).saturating_sub(SLICE_NS);
            if let Some(running) = client.tasks.get_mut(&task) {
                let shift = 2 * running.urgency;
                running.vtime = (running.vtime + (ns >> shift)).saturating_sub(SLICE_NS >> shift);
            }
        }
    }

    /// Reports a task all of whose pieces are over.
    pub(crate) fn finish_if_done(&mut self, client_id: ClientId, number: u64) {
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        let over = client.tasks.get(&number).is_some_and(|running| matches!(&running.task, Task::Kernel(kernel) if kernel.is_finished()));
        if over {
            self.finish_task(client_id, number, None);
        }
    }

    /// Ends a task: its outcome is the client's end if there is one.
    pub(crate) fn finish_task(&mut self, client_id: ClientId, number: u64, progress: Option<Arc<KernelProgress>>) {
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        let Some(running) = client.tasks.remove(&number) else { return };
        if client.gathering == Some(number) {
            client.gathering = None;
        }
        let (progress, started) = match running.task {
            Task::Kernel(kernel) => {
                client.parts.end_kernel(&mut self.floor, kernel.sm_set);
                (kernel.progress, kernel.started)
            }
            Task::Transfer(_) => (progress, Some(running.begun)),
        };
        let outcome = match &client.ended {
            Some(ended) => outcome_of(ended),
            None => Outcome::Done { device_ns: started.map_or(0, |s| u64::try_from(s.elapsed().as_nanos()).unwrap_or(u64::MAX)) },
        };
        self.reports.push_back(Report { client: client_id, stream: running.stream, token: running.token, outcome, progress });
    }

    /// Ends all work of a client: what no worker has is reported now, the rest when its slice is over.
    pub(crate) fn end_client(&mut self, client_id: ClientId, ended: ClientEnd) {
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        if client.ended.is_some() {
            return;
        }
        client.ended = Some(ended);
        let mut over = Vec::new();
        for (number, running) in &mut client.tasks {
            match &mut running.task {
                Task::Kernel(kernel) => {
                    for seat in kernel.abandon_blocks() {
                        if let Some(sms) = client.parts.set(kernel.sm_set) {
                            sms.release_block(seat, kernel.need);
                        }
                    }
                    if kernel.is_finished() {
                        over.push((*number, None));
                    }
                }
                Task::Transfer(transfer) => {
                    if let Some(transfer) = transfer.take() {
                        over.push((*number, transfer.progress));
                    }
                }
            }
        }
        client.freed += 1;
        for (number, progress) in over {
            self.finish_task(client_id, number, progress);
        }
        self.retry_waiting_streams(client_id);
    }
}
