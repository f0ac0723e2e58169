//! One client: its memory, modules, tasks and share of the card.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use cumux_device::{ClientId, ClientSpec, DeviceError, Fault, ModuleId, StreamId};

use super::family::Line;
use super::kernel::RunningKernel;
use super::partitions::ClientPartitions;
use crate::exec::interface::shorten_name;
use crate::mapping::Mapping;
use crate::memory::client::ClientMemory;
use crate::memory::transfer::Transfer;
use crate::modules::LoadedModule;
use crate::progress::ProgressLog;

/// Bytes of stack of a thread until the client sets `cudaLimitStackSize`.
const DEFAULT_STACK_BYTES: u32 = 1024;
/// Tail launches that may wait for their turn until the client sets
/// `cudaLimitDevRuntimePendingLaunchCount`: a card counts no others.
const DEFAULT_PENDING: u64 = 2048;

/// How urgent a client's work is, whatever the priorities of its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientPriority {
    Normal,
    /// Gets what normal clients leave.
    BelowNormal,
}

impl ClientPriority {
    /// Number of priorities.
    pub(super) const COUNT: usize = 2;

    /// As the device contract numbers it: 0 is normal, more is less urgent.
    fn of_number(number: u32) -> Self {
        if number == 0 { ClientPriority::Normal } else { ClientPriority::BelowNormal }
    }

    /// As an index into arrays of [`ClientPriority::COUNT`] entries.
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// Why a client's work is over.
#[derive(Debug, Clone)]
pub(crate) enum ClientEnd {
    Fault(Fault),
    Cancelled,
}

/// What the head of a stream does.
pub(super) enum Task {
    Kernel(Box<RunningKernel>),
    /// `None` while a worker has it.
    Transfer(Option<Box<Transfer>>),
}

/// Whether the end of a task is still to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reporting {
    Due,
    /// Its client was stopped, and has had the report; or a kernel has launched it.
    Done,
}

/// A task and whose it is.
pub(super) struct RunningTask {
    pub(super) task: Task,
    pub(super) reporting: Reporting,
    pub(super) stream: StreamId,
    pub(super) token: u64,
    pub(super) begun: Instant,
    /// Nanoseconds used, divided by `4^urgency`: the client's task with the least goes next.
    pub(super) virtual_time: u64,
    /// Steps of stream priority. Each step quarters what a slice counts.
    pub(super) urgency: u32,
    /// For what a kernel has launched.
    pub(super) lineage: Lineage,
}

/// From which kernel a task comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lineage {
    /// The kernel's task, and the line of it in which this one is.
    pub(super) parent: Option<(u64, Line)>,
    /// A kernel has launched it, though it may have handed its place to another since.
    pub(super) is_launched: bool,
    /// It is among the [`CardClient::active`].
    pub(super) counts: bool,
}

impl RunningTask {
    /// Whether anything of it was done.
    pub(super) fn has_begun(&self) -> bool {
        // What a kernel has launched is a part of it.
        if self.lineage.is_launched {
            return true;
        }
        match &self.task {
            Task::Kernel(kernel) => kernel.started.is_some(),
            Task::Transfer(transfer) => transfer.as_ref().is_none_or(|transfer| transfer.has_begun()),
        }
    }

    /// What it is, as part of a sentence.
    pub(super) fn describe(&self) -> String {
        match &self.task {
            Task::Kernel(kernel) => format!("kernel {}", shorten_name(kernel.name())),
            Task::Transfer(_) => "a copy or a set".to_owned(),
        }
    }
}

/// The client's window (host memory shared with it) as it is mapped here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostWindow {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl HostWindow {
    /// Whether `[address, address + bytes)` lies in it.
    pub(crate) fn contains(self, address: u64, bytes: u64) -> bool {
        address >= self.address && bytes <= self.bytes && address - self.address <= self.bytes - bytes
    }
}

/// Device memory for the barriers of cooperative grids. Only this process has it.
pub(super) struct GridBarriers {
    pub(super) mapping: Mapping,
    /// Offset of the words that the next grid gets.
    pub(super) next: u64,
}

/// A client of the card.
pub(crate) struct CardClient {
    pub(crate) memory: Arc<ClientMemory>,
    pub(crate) log: Option<Arc<ProgressLog>>,
    pub(crate) modules: HashMap<ModuleId, LoadedModule>,
    pub(super) partitions: ClientPartitions,
    pub(super) priority: ClientPriority,
    /// The card's number among those that the client sees, and how many these are.
    pub(super) ordinal: u32,
    pub(super) visible: u32,
    /// `cudaLimitStackSize`.
    pub(crate) stack_bytes: u32,
    /// Set once the client's work is over.
    pub(super) end: Option<ClientEnd>,
    /// It goes on in another process: nothing of it is begun any more.
    pub(super) has_left: bool,
    /// By number; older tasks have lower numbers.
    pub(super) tasks: BTreeMap<u64, RunningTask>,
    /// Submissions that are not reported yet.
    pub(super) unreported: u64,
    /// How often capacity of an SM became free. A kernel that found no capacity tries again when
    /// this has changed.
    pub(super) freed: u64,
    /// Work that had its turn, had not begun when a fault was announced, and never will.
    pub(super) unbegun: Vec<(StreamId, u64)>,
    /// Streams whose head waits for a free record in the progress log, in the order of waiting.
    pub(super) awaiting_record: Vec<StreamId>,
    /// A cooperative kernel that waits until all its blocks fit: later kernels place no blocks
    /// meanwhile.
    pub(super) gathering: Option<u64>,
    /// `cudaLimitDevRuntimePendingLaunchCount`.
    pub(crate) most_pending: u64,
    /// What kernels have launched and has not begun, and how much of it is for the tails of grids.
    pub(super) pending: u64,
    pub(super) pending_tails: u64,
    /// What kernels have launched and is at work.
    pub(super) active: u32,
    /// Kernels whose launches wait until there are less [`CardClient::active`].
    pub(super) held: VecDeque<u64>,
    /// Nanoseconds used: the client with the least goes next.
    pub(super) virtual_time: u64,
    /// Virtual time of the task that ran last: a new task starts with it.
    pub(super) virtual_clock: u64,
    pub(crate) window: Option<HostWindow>,
    pub(super) grid_barriers: Option<GridBarriers>,
}

impl CardClient {
    pub(super) fn new(partitions: ClientPartitions, spec: &ClientSpec, log: Option<Arc<ProgressLog>>) -> Self {
        CardClient {
            memory: Arc::default(),
            log,
            modules: HashMap::new(),
            partitions,
            priority: ClientPriority::of_number(spec.priority),
            ordinal: spec.ordinal,
            visible: spec.visible.max(1),
            stack_bytes: DEFAULT_STACK_BYTES,
            end: None,
            has_left: false,
            tasks: BTreeMap::new(),
            unreported: 0,
            freed: 0,
            unbegun: Vec::new(),
            awaiting_record: Vec::new(),
            gathering: None,
            most_pending: DEFAULT_PENDING,
            pending: 0,
            pending_tails: 0,
            active: 0,
            held: VecDeque::new(),
            virtual_time: 0,
            virtual_clock: 0,
            window: None,
            grid_barriers: None,
        }
    }

    fn is_runnable(&self, running: &RunningTask) -> bool {
        match &running.task {
            Task::Kernel(kernel) => kernel.is_runnable(self.freed),
            Task::Transfer(transfer) => transfer.is_some(),
        }
    }

    /// The runnable task with the least virtual time; the oldest of several.
    pub(super) fn task_to_run(&self) -> Option<u64> {
        let runnable = self.tasks.iter().filter(|(_, running)| self.is_runnable(running) && (!self.has_left || running.has_begun()));
        runnable.min_by_key(|(number, running)| (running.virtual_time, **number)).map(|(number, _)| *number)
    }

    /// Takes the blocks that no worker has out of a kernel and frees their capacity, and gives up
    /// what it has launched and has not begun. Without effect on transfers.
    pub(super) fn abandon_blocks(&mut self, task: u64) {
        if let Some(Task::Kernel(kernel)) = self.tasks.get_mut(&task).map(|running| &mut running.task) {
            for placement in kernel.abandon_blocks() {
                if let Some(sms) = self.partitions.set(kernel.sm_set) {
                    sms.release_block(placement, kernel.needs);
                }
            }
            self.freed += 1;
        }
        self.abandon_launches(task);
    }

    /// Gives up what a kernel has launched and has not begun.
    pub(super) fn abandon_launches(&mut self, task: u64) {
        if let Some(Task::Kernel(kernel)) = self.tasks.get_mut(&task).map(|running| &mut running.task) {
            let (all, tails) = kernel.family.abandon();
            self.pending -= all as u64;
            self.pending_tails -= tails as u64;
        }
    }
}

/// The error for a client that is not open.
pub(crate) fn not_open(client: ClientId) -> DeviceError {
    DeviceError::Invalid(format!("client {client} is not open"))
}
