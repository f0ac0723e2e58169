//! Checks a launch against the card and makes it something that runs.
//!
//! The shim has checked the launch before. What is wrong here is a false statement of the client,
//! so it ends as a fault.

use std::sync::Arc;

use cumux_device::{ClientId, Fault, Kernel};
use cumux_wire::limits::{KernelNeeds, LaunchError, LaunchShape, volume};
use cumux_wire::result;

use super::client::{CardClient, GridBarriers};
use super::kernel::{Coupling, RunningKernel};
use super::placement;
use crate::exec::interface::Launch;
use crate::mapping::Mapping;
use crate::models::{Capacity, Limits, WARP};
use crate::program::{self, LinkedProgram};
use crate::progress::layout::LAUNCHES;
use cumux_ranges::AllowedRange;

/// What became of a launch.
pub(super) enum Prepared {
    Run(Box<RunningKernel>),
    /// The client has as many kernels in flight as its progress log has records.
    AwaitsRecord(Kernel),
    Fault(Fault),
}

/// Bytes of device memory that the barrier of one cooperative grid gets
/// ([`Launch::grid_workspace`]).
const WORKSPACE_BYTES: u64 = 64;
/// Bytes for the barriers of all cooperative grids of a client. The workspaces are used in
/// rotation. There are 1,024 of them, and a progress log admits 512 kernels of a client at a time.
const WORKSPACES_BYTES: u64 = 64 << 10;

/// Why a launch cannot be.
pub(super) enum Unfit {
    /// A client cannot have meant it: it ends.
    Fault(Fault),
    /// A limit of the card, the kernel's name, and the error.
    Limit(String, LaunchError),
    /// A block or a cluster does not fit, by the kernel's name.
    TooLarge(String),
}

impl Unfit {
    fn into_fault(self) -> Fault {
        let (result, text) = match self {
            Unfit::Fault(fault) => return fault,
            Unfit::Limit(name, wrong @ (LaunchError::NoClusters | LaunchError::Cooperative { .. })) => (wrong.result(), format!("kernel {name}: {wrong}")),
            Unfit::Limit(name, wrong) => (result::LAUNCH_OUT_OF_RESOURCES, format!("kernel {name} cannot be launched: {wrong}")),
            Unfit::TooLarge(name) => {
                (result::LAUNCH_OUT_OF_RESOURCES, format!("kernel {name} cannot be launched: a block or a cluster does not fit on the SMs"))
            }
        };
        Fault { result, text }
    }
}

/// A launch that is possible.
pub(super) struct Examined {
    linked: Arc<LinkedProgram>,
    sm_set: u32,
    needs: Capacity,
    cluster: [u32; 3],
    explicit_cluster: bool,
    blocks: u64,
    coupling: Coupling,
    starts_work: bool,
}

/// Checks a launch. `partition`: where in the client's share.
pub(super) fn examine(limits: &Limits, client: &CardClient, client_id: ClientId, partition: u32, asked: &cumux_device::Launch) -> Result<Examined, Unfit> {
    let fault = |result, text: String| Unfit::Fault(Fault { result, text });
    let Some(module) = client.modules.get(&asked.module) else {
        return Err(fault(result::INVALID_HANDLE, format!("module {} is not loaded", asked.module)));
    };
    let index = asked.function as usize;
    let linked = module.linked.clone();
    let (Some(code), Some(function)) = (linked.program().kernels.get(index), module.functions.get(index)) else {
        return Err(fault(result::INVALID_HANDLE, format!("module {} has no function {index}", asked.module)));
    };
    if let Some(refused) = &code.refused {
        return Err(fault(result::NOT_SUPPORTED, format!("kernel {}: {refused}", code.name)));
    }
    let Some((sm_set, sms)) = client.partitions.current_set(partition) else {
        return Err(fault(result::UNKNOWN, format!("client {client_id} has no SMs")));
    };
    let needed = needs_of(limits, code);
    let shape = LaunchShape { grid: asked.grid, block: asked.block, cluster: asked.cluster, shared: asked.shared, cooperative: asked.cooperative };
    let multiprocessors = u32::try_from(sms.ids().len()).unwrap_or(u32::MAX);
    if let Err(wrong) = limits.launch.check(needed, function.max_dynamic_shared, multiprocessors, &shape) {
        return Err(Unfit::Limit(code.name.clone(), wrong));
    }
    let explicit_cluster = asked.cluster != [0; 3] || code.cluster != [0; 3];
    let cluster = if asked.cluster == [0; 3] { code.cluster } else { asked.cluster }.map(|d| d.max(1));
    let cluster_blocks = volume(cluster);
    let threads = volume(asked.block) as u32;
    let needs = placement::block_needs(limits, threads, needed.registers, code.static_shared.saturating_add(asked.shared));
    let blocks = volume(asked.grid) / cluster_blocks;
    if sms.capacity(needs) < cluster_blocks {
        return Err(Unfit::TooLarge(code.name.clone()));
    }
    let coupling = match (asked.cooperative, code.repeatable) {
        (true, _) => Coupling::Cooperative,
        (false, true) => Coupling::Independent,
        (false, false) => Coupling::MayWait,
    };
    let starts_work = code.starts_work;
    Ok(Examined { linked, sm_set, needs, cluster, explicit_cluster, blocks, coupling, starts_work })
}

/// What a launch of a kernel is checked by.
pub(super) fn needs_of(limits: &Limits, code: &program::Kernel) -> KernelNeeds {
    KernelNeeds {
        registers: limits.registers_of_thread(code.registers, code.max_threads),
        max_threads: code.max_threads,
        static_shared: code.static_shared,
        required_block: code.required_block,
        cluster: code.cluster,
        carveout: None,
    }
}

/// Who launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    /// The client: a successor goes on with it.
    Host,
    /// A kernel, whose grid is not over before this one.
    Device,
}

/// Checks a launch and makes a running kernel out of it. `partition`: where in the client's share.
pub(super) fn prepare(
    limits: &Limits,
    client: &mut CardClient,
    client_id: ClientId,
    partition: u32,
    token: u64,
    kernel: Kernel,
    launcher: Launcher,
) -> Prepared {
    let examined = match examine(limits, client, client_id, partition, &kernel.launch) {
        Ok(examined) => examined,
        Err(unfit) => return Prepared::Fault(unfit.into_fault()),
    };
    let Examined { linked, sm_set, needs, cluster, explicit_cluster, blocks, coupling, starts_work } = examined;
    let fault = |result, text: String| Prepared::Fault(Fault { result, text });
    let (asked, index) = (&kernel.launch, kernel.launch.function as usize);
    let flags = coupling.flags() | if starts_work { LAUNCHES } else { 0 };
    let progress = match client.log.as_ref().filter(|_| launcher == Launcher::Host) {
        Some(log) => match log.start_kernel(token, blocks, flags, kernel.resume.as_ref()) {
            Some(progress) => Some(progress),
            None => return Prepared::AwaitsRecord(kernel),
        },
        None => None,
    };
    let grid_workspace = if asked.cooperative {
        match grid_workspace(client, client_id) {
            Ok(address) => address,
            Err(text) => return fault(result::OUT_OF_MEMORY, text),
        }
    } else {
        0
    };
    let Kernel { launch: asked, resume } = kernel;
    let launch = Launch {
        linked,
        kernel: index,
        grid: asked.grid,
        block: asked.block,
        cluster,
        explicit_cluster,
        dynamic_shared: asked.shared,
        parameters: asked.parameters,
        grid_id: token,
        stack_bytes: client.stack_bytes,
        multiprocessors: limits.launch.multiprocessors,
        warps_per_multiprocessor: limits.sm.threads / WARP,
        grid_workspace,
    };
    client.partitions.begin_kernel(sm_set);
    Prepared::Run(Box::new(RunningKernel::new(launch, sm_set, needs, coupling, progress, resume)))
}

/// The address of zeroed words for the barrier of one cooperative grid.
///
/// # Errors
/// A sentence, if there is no memory for them.
fn grid_workspace(client: &mut CardClient, id: ClientId) -> Result<u64, String> {
    let barriers = match &mut client.grid_barriers {
        Some(barriers) => barriers,
        none => {
            let failed = |error: &dyn std::fmt::Display| format!("no memory for the grid barriers of client {id}: {error}");
            let mapping = Mapping::private(WORKSPACES_BYTES).map_err(|error| failed(&error))?;
            let range = AllowedRange { start: mapping.address(), end: mapping.address() + WORKSPACES_BYTES, writable: true, shift: 0 };
            client.memory.table.write().allow(range).map_err(|error| failed(&error))?;
            none.insert(GridBarriers { mapping, next: 0 })
        }
    };
    let offset = barriers.next;
    barriers.next = (offset + WORKSPACE_BYTES) % WORKSPACES_BYTES;
    barriers.mapping.write(offset, &[0; WORKSPACE_BYTES as usize]);
    Ok(barriers.mapping.address() + offset)
}
