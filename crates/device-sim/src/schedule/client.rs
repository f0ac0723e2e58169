//! One client: its memory, modules, streams' heads and share of the card.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cumux_device::{ClientId, DeviceError, Fault, ModuleId, StreamId};

use super::kernel::RunningKernel;
use super::parts::ClientPartitions;
use crate::mapping::Mapping;
use crate::memory::client::ClientMemory;
use crate::memory::transfer::Transfer;
use crate::modules::LoadedModule;
use crate::progress::ProgressLog;

/// Levels of client priority.
pub(super) const LEVELS: usize = 2;

/// Why a client's work is over.
#[derive(Debug, Clone)]
pub(crate) enum ClientEnd {
    Fault(Fault),
    Cancelled,
}

pub(crate) enum Task {
    Kernel(Box<RunningKernel>),
    /// `None` while a worker has it.
    Transfer(Option<Box<Transfer>>),
}

pub(crate) struct RunningTask {
    pub(crate) task: Task,
    pub(crate) stream: StreamId,
    pub(crate) token: u64,
    pub(crate) begun: std::time::Instant,
    pub(super) vtime: u64,
    /// Each step halves what a slice counts twice: more urgent streams run more.
    pub(super) urgency: u32,
}

pub(crate) struct Client {
    pub(crate) memory: Arc<ClientMemory>,
    pub(crate) log: Option<Arc<ProgressLog>>,
    pub(crate) modules: HashMap<ModuleId, LoadedModule>,
    pub(crate) parts: ClientPartitions,
    /// 0 normal, 1 below normal.
    pub(super) priority: usize,
    pub(crate) stack_bytes: u32,
    pub(crate) ended: Option<ClientEnd>,
    pub(crate) tasks: BTreeMap<u64, RunningTask>,
    /// Submissions not reported yet.
    pub(crate) outstanding: u64,
    /// Times that a place on an SM became free.
    pub(crate) freed: u64,
    /// A stream waits for a free slot in the marks.
    pub(super) waiting_for_record: bool,
    /// A cooperative kernel that waits for room: later kernels place no blocks meanwhile.
    pub(super) gathering: Option<u64>,
    pub(super) vtime: u64,
    pub(super) vclock: u64,
    pub(crate) window: Option<(u64, u64)>,
    /// Device memory of the client that only this process has: barrier words of cooperative grids.
    pub(crate) scratch: Option<Mapping>,
    pub(crate) scratch_next: u64,
}

impl Client {
    pub(super) fn new(parts: ClientPartitions, priority: u32, log: Option<Arc<ProgressLog>>) -> Self {
        Client {
            memory: Arc::default(),
            log,
            modules: HashMap::new(),
            parts,
            priority: (priority as usize).min(LEVELS - 1),
            stack_bytes: 1024,
            ended: None,
            tasks: BTreeMap::new(),
            outstanding: 0,
            freed: 0,
            waiting_for_record: false,
            gathering: None,
            vtime: 0,
            vclock: 0,
            window: None,
            scratch: None,
            scratch_next: 0,
        }
    }

    pub(super) fn is_runnable(&self, running: &RunningTask) -> bool {
        match &running.task {
            Task::Kernel(kernel) => kernel.is_runnable(self.freed),
            Task::Transfer(transfer) => transfer.is_some(),
        }
    }

    /// The runnable task with the least time.
    pub(super) fn task_to_run(&self) -> Option<u64> {
        self.tasks.iter().filter(|(_, r)| self.is_runnable(r)).min_by_key(|(id, r)| (r.vtime, **id)).map(|(id, _)| *id)
    }
}

pub(super) fn not_open(client: ClientId) -> DeviceError {
    DeviceError::Invalid(format!("client {client} is not open"))
}
