//! Launches from the device: what kernels ask of the device's runtime.
//!
//! A kernel that has launched others stays a task until these are over. What it has launched are
//! tasks of its client like those of streams, but nobody is told of their ends, and they have no
//! record in the progress log: if the executor dies, the client gets an error
//! ([`crate::progress::layout::LAUNCHES`]).

use std::sync::Arc;
use std::time::Instant;

use cumux_device::{ClientId, Fault, Kernel, Work};
use cumux_wire::result;

use super::super::client::{ClientEnd, Lineage, Reporting, RunningTask, Task};
use super::super::family::Line;
use super::super::kernel::{Child, RunningKernel};
use super::super::launch::{self, Launcher, Prepared, Unfit};
use super::super::partitions::SHARE;
use super::Scheduler;
use crate::exec::request::{self, Answer, Configuration, FunctionNumbers, Request, errors};
use crate::memory::launches::MOST_PARAMETERS;
use crate::memory::transfer::Transfer;
use crate::program::{self, window};

/// Grids and copies that kernels of one client have launched, at work at a time: as many as a card
/// runs grids (CUDA C++ Programming Guide, *Technical specifications per compute capability*).
const MOST_ACTIVE: u32 = 128;
/// What kernels of one client may have launched that has not begun, wherever: it is memory of the
/// service.
const MOST_WAITING: u64 = 1 << 20;
/// Begins the numbers that grids launched from the device answer to `%gridid`.
const GRID_IDS: u64 = 1 << 63;

/// Why the runtime does not do what it was asked.
pub(in super::super) enum Denied {
    /// The call returns this `cudaError_t`.
    Error(u32),
    /// The client ends: what it asked for cannot be done, and it need not look at an error.
    Fault(Fault),
}

impl From<u32> for Denied {
    fn from(error: u32) -> Self {
        Denied::Error(error)
    }
}

impl From<Unfit> for Denied {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Fault(fault) => Denied::Fault(fault),
            Unfit::Limit(_, wrong) if wrong.result() == result::INVALID_VALUE => Denied::Error(errors::INVALID_CONFIGURATION),
            Unfit::Limit(_, wrong) => Denied::Error(wrong.result()),
            Unfit::TooLarge(_) => Denied::Error(result::LAUNCH_OUT_OF_RESOURCES),
        }
    }
}

/// A card faults where what it is given is no kernel, or no buffer that waits for its launch.
fn no_such(what: &str, address: u64) -> Denied {
    Denied::Fault(Fault { result: result::ILLEGAL_ADDRESS, text: format!("a kernel launches with {address:#x}, which is no {what}") })
}

/// The kernel of a running kernel's module that an address means, and its index.
fn find_code(kernel: &RunningKernel, function: u64) -> Result<(u32, &program::Kernel), Denied> {
    let kernels = (0..).zip(&kernel.launch.linked.program().kernels);
    let number = window::function_at(function);
    let mut found = kernels.filter(|(_, kernel)| number == Some(kernel.function.into()));
    found.next().ok_or_else(|| no_such("kernel", function))
}

impl Scheduler {
    /// What a thread of block number `block` of a kernel asks.
    ///
    /// # Errors
    /// What the call returns, or why the client ends.
    pub(in super::super) fn ask(&mut self, client_id: ClientId, task: u64, block: u64, request: Request) -> Result<Answer, Denied> {
        let client = self.clients.get_mut(&client_id).ok_or(errors::NOT_SUPPORTED)?;
        if client.end.is_some() {
            return Err(errors::NOT_SUPPORTED.into());
        }
        let memory = client.memory.clone();
        let Some(Task::Kernel(kernel)) = client.tasks.get_mut(&task).map(|running| &mut running.task) else { return Err(errors::NOT_SUPPORTED.into()) };
        match request {
            Request::Buffer { configuration, bytes } => {
                let bytes = match configuration {
                    Some(Configuration { function, .. }) => find_code(kernel, function)?.1.parameter_bytes.into(),
                    None => bytes,
                };
                if bytes > MOST_PARAMETERS {
                    return Err(errors::INVALID_VALUE.into());
                }
                let opened = memory.launches.lock().open_buffer(task, bytes, configuration, &memory.table);
                Ok(Answer::Number(opened.ok_or(errors::TOO_MANY_PENDING)?))
            }
            Request::Launch { buffer, configuration, stream } => self.launch_from_device(client_id, task, (block, stream), buffer, configuration),
            Request::CreateStream => Ok(Answer::Number(kernel.family.create_stream()?)),
            Request::DestroyStream(stream) => Ok(kernel.family.destroy_stream(stream).map(|()| Answer::Done)?),
            Request::CreateEvent => Ok(Answer::Number(kernel.family.create_event()?)),
            Request::DestroyEvent(event) => Ok(kernel.family.destroy_event(event).map(|()| Answer::Done)?),
            Request::Record { event, stream } => {
                let line = kernel.family.line(block, stream)?;
                kernel.family.record(line, event)?;
                self.begin_launched(client_id, task);
                Ok(Answer::Done)
            }
            Request::Await { stream, event } => {
                let line = kernel.family.line(block, stream)?;
                kernel.family.wait_for(line, event)?;
                self.begin_launched(client_id, task);
                Ok(Answer::Done)
            }
            Request::Copy { target, source, extent, stream } => {
                self.transfer_from_device(client_id, task, (block, stream), &Work::Copy { target, source, extent })
            }
            Request::Set { target, value, extent, stream } => {
                let (width, height) = (extent.width, extent.height);
                let work = Work::Set { target: target.address, pitch: target.pitch, value: value.into(), element: 1, width, height };
                self.transfer_from_device(client_id, task, (block, stream), &work)
            }
            Request::Limit(limit) => match limit {
                0 => Ok(Answer::Number(client.stack_bytes.into())),
                2 => Ok(Answer::Number(memory.heap.lock().limit())),
                4 => Ok(Answer::Number(client.most_pending)),
                _ => Err(errors::UNSUPPORTED_LIMIT.into()),
            },
            Request::Function(function) => {
                let (_, code) = find_code(kernel, function)?;
                let needed = launch::needs_of(&self.limits, code);
                let threads = needed.max_threads.min(self.limits.launch.threads_per_block);
                let bytes = [code.static_shared, code.constant_bytes, code.local_bytes].map(u64::from);
                let numbers = [threads, needed.registers, kernel.launch.linked.program().target, self.limits.capability];
                Ok(Answer::Function(FunctionNumbers { bytes, numbers }))
            }
            Request::Occupancy { function, threads, shared } => {
                let (_, code) = find_code(kernel, function)?;
                Ok(Answer::Number(self.limits.launch.blocks_per_sm(launch::needs_of(&self.limits, code), threads, shared).into()))
            }
            Request::Text { code, name } => {
                let (short, long) = request::describe(code);
                let address = memory.launches.lock().text(if name { short } else { long }, &memory.table);
                Ok(Answer::Number(address))
            }
            Request::OwnDevice => Ok(Answer::Number(client.ordinal.into())),
            Request::DeviceCount => Ok(Answer::Number(client.visible.into())),
            // The card's own attributes are known before it comes here.
            Request::Attribute { device, .. } if device >= client.visible => Err(errors::INVALID_DEVICE.into()),
            Request::Attribute { .. } => Err(errors::NOT_SUPPORTED.into()),
        }
    }

    /// Launches a grid from a buffer of parameters, which is closed in any case.
    fn launch_from_device(
        &mut self,
        client_id: ClientId,
        task: u64,
        (block, stream): (u64, u64),
        address: u64,
        configuration: Option<Configuration>,
    ) -> Result<Answer, Denied> {
        let client = self.clients.get_mut(&client_id).ok_or(errors::NOT_SUPPORTED)?;
        let memory = client.memory.clone();
        let mut launches = memory.launches.lock();
        let buffer = launches.buffer(address).ok_or_else(|| no_such("buffer of parameters", address))?;
        let contents = launches.close_buffer(address, MOST_PARAMETERS);
        drop(launches);
        let asked = configuration.or(buffer.configuration).ok_or(errors::INVALID_CONFIGURATION)?;
        let partition = client.tasks.get(&task).and_then(|running| self.streams.get(&running.stream)).map_or(SHARE, |stream| stream.partition);
        let Some(Task::Kernel(kernel)) = client.tasks.get(&task).map(|running| &running.task) else { return Err(errors::NOT_SUPPORTED.into()) };
        let (function, _) = find_code(kernel, asked.function)?;
        let linked = &kernel.launch.linked;
        let module = client.modules.iter().find(|(_, module)| Arc::ptr_eq(&module.linked, linked)).map(|(module, _)| *module);
        let module = module.ok_or(errors::NOT_SUPPORTED)?;
        let Configuration { grid, block: threads, shared, .. } = asked;
        let launch = cumux_device::Launch { module, function, grid, block: threads, cluster: [0; 3], shared, cooperative: false, parameters: contents };
        launch::examine(&self.limits, client, client_id, partition, &launch)?;
        self.add_child(client_id, task, (block, stream), Child::Kernel(Box::new(Kernel { launch, resume: None })))
    }

    fn transfer_from_device(&mut self, client_id: ClientId, task: u64, place: (u64, u64), work: &Work) -> Result<Answer, Denied> {
        let transfer = Transfer::new(work, 0).ok_or(errors::INVALID_VALUE)?;
        self.add_child(client_id, task, place, Child::Transfer(Box::new(transfer)))
    }

    /// Puts work in the line that a block means by a stream.
    fn add_child(&mut self, client_id: ClientId, task: u64, (block, stream): (u64, u64), child: Child) -> Result<Answer, Denied> {
        let client = self.clients.get_mut(&client_id).ok_or(errors::NOT_SUPPORTED)?;
        let Some(Task::Kernel(kernel)) = client.tasks.get_mut(&task).map(|running| &mut running.task) else { return Err(errors::NOT_SUPPORTED.into()) };
        let line = kernel.family.line(block, stream)?;
        let is_tail = line == Line::Tail;
        if client.pending >= MOST_WAITING || (is_tail && client.pending_tails >= client.most_pending) {
            return Err(errors::TOO_MANY_PENDING.into());
        }
        kernel.family.push(line, child);
        client.pending += 1;
        client.pending_tails += u64::from(is_tail);
        self.begin_launched(client_id, task);
        Ok(Answer::Done)
    }

    /// Makes tasks of what a kernel has launched, as far as it may begin.
    fn begin_launched(&mut self, client_id: ClientId, task: u64) {
        loop {
            let Some(client) = self.clients.get_mut(&client_id).filter(|client| client.end.is_none()) else { return };
            let Some(running) = client.tasks.get_mut(&task) else { return };
            let Task::Kernel(kernel) = &mut running.task else { return };
            let blocks_done = kernel.blocks_done();
            if client.active >= MOST_ACTIVE {
                if kernel.family.is_due(blocks_done) && !kernel.is_held {
                    kernel.is_held = true;
                    client.held.push_back(task);
                }
                return;
            }
            let Some((line, child)) = kernel.family.take(blocks_done) else { return };
            client.pending -= 1;
            client.pending_tails -= u64::from(line == Line::Tail);
            let (stream, token, urgency, virtual_time) = (running.stream, running.token, running.urgency, running.virtual_time);
            let mut parent = Some((task, line));
            if line == Line::Tail && running.lineage.is_launched && kernel.family.is_last_tail() {
                // The grid itself is over: the last that it has launched takes its place, so that
                // grids which go on like this for ever need no more than one place.
                parent = running.lineage.parent.take();
                kernel.family.ended(line);
            }
            let hands_over = parent != Some((task, line));
            let partition = self.streams.get(&stream).map_or(SHARE, |stream| stream.partition);
            let number = self.next_task;
            self.next_task += 1;
            let made = match child {
                Child::Transfer(transfer) => Ok(Task::Transfer(Some(transfer))),
                Child::Kernel(kernel) => match launch::prepare(&self.limits, client, client_id, partition, GRID_IDS | number, *kernel, Launcher::Device) {
                    Prepared::Run(run) => Ok(Task::Kernel(run)),
                    Prepared::Fault(fault) => Err(fault),
                    Prepared::AwaitsRecord(_) => Err(Fault { result: result::UNKNOWN, text: "a launch from the device has no record to wait for".into() }),
                },
            };
            match made {
                Ok(made) => {
                    client.active += 1;
                    let lineage = Lineage { parent, is_launched: true, counts: true };
                    let begun = Instant::now();
                    let running = RunningTask { task: made, reporting: Reporting::Done, stream, token, begun, virtual_time, urgency, lineage };
                    client.tasks.insert(number, running);
                    if hands_over {
                        self.end_task(client_id, task, None);
                        return;
                    }
                }
                Err(fault) => {
                    let of = parent.and_then(|(of, line)| client.tasks.get_mut(&of).map(|running| (running, line)));
                    if let Some((RunningTask { task: Task::Kernel(kernel), .. }, line)) = of {
                        kernel.family.ended(line);
                    }
                    self.end_client(client_id, ClientEnd::Fault(fault));
                    return;
                }
            }
        }
    }

    /// Begins what was held back, as far as there is room for it now.
    fn begin_held(&mut self, client_id: ClientId) {
        while let Some(client) = self.clients.get_mut(&client_id).filter(|client| client.active < MOST_ACTIVE) {
            let Some(task) = client.held.pop_front() else { return };
            if let Some(RunningTask { task: Task::Kernel(kernel), .. }) = client.tasks.get_mut(&task) {
                kernel.is_held = false;
            }
            self.begin_launched(client_id, task);
        }
    }

    /// A kernel has done some of its blocks: if these were the last, its tail may begin, and it
    /// makes room for others.
    pub(super) fn blocks_may_be_done(&mut self, client_id: ClientId, number: u64) {
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        let Some(running) = client.tasks.get_mut(&number) else { return };
        let Task::Kernel(kernel) = &mut running.task else { return };
        if !kernel.blocks_done() {
            return;
        }
        let is_due = kernel.family.is_due(true);
        if std::mem::take(&mut running.lineage.counts) {
            client.active -= 1;
            self.begin_held(client_id);
        }
        if is_due {
            self.begin_launched(client_id, number);
        }
    }

    /// A task that a kernel had launched is over. Returns that kernel.
    pub(super) fn end_launched(&mut self, client_id: ClientId, lineage: Lineage) -> Option<u64> {
        let client = self.clients.get_mut(&client_id)?;
        if lineage.counts {
            client.active -= 1;
        }
        let parent = lineage.parent.map(|(parent, line)| {
            if let Some(RunningTask { task: Task::Kernel(kernel), .. }) = client.tasks.get_mut(&parent) {
                kernel.family.ended(line);
            }
            parent
        });
        if let Some(parent) = parent {
            self.begin_launched(client_id, parent);
        }
        self.begin_held(client_id);
        parent
    }
}
