//! Checks a launch against the card and makes it something that runs.
//!
//! The shim has checked the launch before. What is wrong here is a false statement of the client,
//! so it ends as a fault.

use cumux_device::{ClientId, Fault, Kernel};
use cumux_wire::result;

use super::client::{CardClient, GridBarriers};
use super::kernel::{Coupling, RunningKernel};
use super::placement;
use crate::exec::interface::Launch;
use crate::mapping::Mapping;
use crate::memory::permissions::AllowedRange;
use crate::models::{Limits, WARP};

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

/// Checks a launch and makes a running kernel out of it. `partition`: where in the client's share.
pub(super) fn prepare(limits: &Limits, client: &mut CardClient, client_id: ClientId, partition: u32, token: u64, kernel: Kernel) -> Prepared {
    let fault = |result, text: String| Prepared::Fault(Fault { result, text });
    let asked = &kernel.launch;
    let Some(module) = client.modules.get(&asked.module) else {
        return fault(result::INVALID_HANDLE, format!("module {} is not loaded", asked.module));
    };
    let index = asked.function as usize;
    let linked = module.linked.clone();
    let (Some(code), Some(function)) = (linked.program().kernels.get(index), module.functions.get(index)) else {
        return fault(result::INVALID_HANDLE, format!("module {} has no function {index}", asked.module));
    };
    if let Some(refused) = &code.refused {
        return fault(result::NOT_SUPPORTED, format!("kernel {}: {refused}", code.name));
    }
    let threads = asked.block.iter().map(|d| u64::from(*d)).product::<u64>();
    let registers = limits.registers_of_thread(code.registers, code.max_threads);
    let wrong = if asked.grid.contains(&0) || threads == 0 {
        Some("an empty grid or block".to_owned())
    } else if (0..3).any(|d| asked.grid[d] > limits.grid[d] || asked.block[d] > limits.block[d]) {
        Some(format!("grid {:?} of blocks {:?}: larger than the card's {:?} and {:?}", asked.grid, asked.block, limits.grid, limits.block))
    } else if threads > u64::from(limits.threads_per_block.min(code.max_threads)) {
        Some(format!("{threads} threads a block, {} are possible", limits.threads_per_block.min(code.max_threads)))
    } else if code.required_block != [0; 3] && code.required_block != asked.block {
        Some(format!("blocks of {:?} threads where the kernel requires {:?}", asked.block, code.required_block))
    } else if asked.shared > function.max_dynamic_shared {
        Some(format!("{} bytes of dynamic shared memory, the function may use {}", asked.shared, function.max_dynamic_shared))
    } else if u64::from(registers) * threads > u64::from(limits.registers_per_block) {
        Some(format!("{registers} registers for each of {threads} threads"))
    } else {
        None
    };
    if let Some(why) = wrong {
        return fault(result::LAUNCH_OUT_OF_RESOURCES, format!("kernel {} cannot be launched: {why}", code.name));
    }
    if asked.cluster.iter().any(|d| *d > 1) || code.cluster.iter().any(|d| *d > 1) {
        return fault(result::NOT_SUPPORTED, format!("kernel {}: the software GPU has no thread block clusters", code.name));
    }
    let needs = placement::block_needs(limits, threads as u32, registers, code.static_shared.saturating_add(asked.shared));
    let blocks = asked.grid.iter().map(|d| u64::from(*d)).fold(1, u64::saturating_mul);
    let Some((sm_set, sms)) = client.partitions.current_set(partition) else {
        return fault(result::UNKNOWN, format!("client {client_id} has no SMs"));
    };
    let most = sms.capacity(needs);
    if most == 0 {
        return fault(result::LAUNCH_OUT_OF_RESOURCES, format!("kernel {} cannot be launched: a block does not fit on an SM", code.name));
    }
    if asked.cooperative && blocks > most {
        return fault(result::COOPERATIVE_LAUNCH_TOO_LARGE, format!("cooperative kernel {}: {blocks} blocks, {most} can be resident at once", code.name));
    }
    let coupling = match (asked.cooperative, code.repeatable) {
        (true, _) => Coupling::Cooperative,
        (false, true) => Coupling::Independent,
        (false, false) => Coupling::MayWait,
    };
    let progress = match &client.log {
        Some(log) => match log.start_kernel(token, blocks, coupling.flags(), kernel.resume.as_ref()) {
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
        cluster: [1; 3],
        dynamic_shared: asked.shared,
        parameters: asked.parameters,
        grid_id: token,
        stack_bytes: client.stack_bytes,
        multiprocessors: limits.multiprocessors,
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
