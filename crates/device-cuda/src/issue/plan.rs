//! Planning a piece of work: the client's addresses are checked and translated, and the calls of
//! the driver are decided. Nothing here calls the driver.

use super::arrays::{End, Uncut, cut_array_copy};
use super::constants::{follow_pointers, forward};
use super::pieces::{Contiguity, CopyPiece, MOST_PIECES, count_pieces, cut_rectangle, cut_row};
use crate::context::{ClientModule, ContextClient, Kernel, KernelCode, Spans};
use crate::driver::{CardAddress, GraphKernel, LaunchShape, MemorySet};
use cumux_device::{CopyEnd, CopyExtent, Fault, Launch, Parameters, Rows, Work};
use cumux_ranges::Access;
use cumux_wire::limits::LaunchLimits;
use cumux_wire::record::span;
use cumux_wire::result;
use std::ops::Range;
use std::sync::Arc;

/// How much of a window is registered if a kernel's parameter points to memory in it that the
/// client has not announced: this many bytes from that address.
const UNANNOUNCED_BYTES: u64 = 64 << 20;

/// A kernel, and everything that its launch needs.
#[derive(Clone)]
pub(crate) struct PlannedKernel {
    /// The kernel's module. The reference keeps the module loaded.
    pub module: Arc<ClientModule>,
    /// The index of the kernel in its module.
    pub function: usize,
    /// Where its code is.
    pub code: KernelCode,
    /// The grid, the blocks, and so on.
    pub shape: LaunchShape,
    /// The packed parameter block.
    pub parameters: Parameters,
    /// What follows the kernel: it may write to these copies of `__constant__` variables.
    pub constants: Vec<CopyPiece>,
    /// The client's work from which it was planned.
    pub asked: Asked,
}

/// The client's work for which a kernel was planned, without what the plan says already.
#[derive(Clone)]
pub(crate) enum Asked {
    /// A launch from the module with this number.
    Launch {
        /// The client's number of the module.
        module: u32,
    },
    /// Other work, which the kernel does instead of a call of the driver.
    Other(Box<Work>),
}

impl PlannedKernel {
    /// The kernel.
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.module.kernels[self.function]
    }

    /// The kernel as a node of a chain.
    pub(crate) fn graph_kernel(&self) -> GraphKernel<'_> {
        GraphKernel { function: self.code.handle, shape: self.shape, parameters: &self.parameters }
    }

    /// The work from which this was planned.
    pub(super) fn into_work(self) -> Work {
        let function = u32::try_from(self.function).unwrap_or(u32::MAX);
        self.asked.into_work(function, self.shape, self.parameters)
    }
}

impl Asked {
    /// The work, whose plan has this function, shape and parameters.
    fn into_work(self, function: u32, shape: LaunchShape, parameters: Parameters) -> Work {
        let module = match self {
            Asked::Launch { module } => module,
            Asked::Other(work) => return *work,
        };
        let LaunchShape { grid, block, cluster, shared, cooperative } = shape;
        let launch = Launch { module, function, grid, block, cluster, shared, cooperative, parameters };
        Work::Kernel(cumux_device::Kernel { launch, resume: None })
    }
}

/// The calls of the driver for a piece of work.
pub(crate) enum Plan {
    /// No call. The work is reported in the order of its stream.
    Nothing,
    /// A kernel launch.
    Kernel(PlannedKernel),
    /// Copies, in this order.
    Copies(Vec<CopyPiece>),
    /// Setting memory.
    Set(MemorySet),
    /// One of the other plans, and then copies: `__constant__` variables follow what was written.
    Followed(Box<Plan>, Vec<CopyPiece>),
    /// Storing the low `bytes` (4 or 8) bytes of a value.
    Value {
        /// Where the value is stored.
        address: CardAddress,
        /// The value.
        value: u64,
        /// How many of its bytes are stored.
        bytes: u32,
    },
}

impl Plan {
    /// True if this is a kernel that may call device printf.
    pub(super) fn prints(&self) -> bool {
        matches!(self, Plan::Kernel(planned) if planned.kernel().prints)
    }

    /// The plan, and then these copies.
    fn followed_by(self, copies: Vec<CopyPiece>) -> Plan {
        if copies.is_empty() { self } else { Plan::Followed(Box::new(self), copies) }
    }
}

/// Why a piece of work cannot be submitted now.
pub(crate) enum Refusal {
    /// It is invalid. The client is stopped with this fault.
    Fault(Fault),
    /// These bytes of the client's pinned window must be registered first.
    Unregistered {
        /// The address of the first byte.
        address: CardAddress,
        /// The number of bytes.
        bytes: u64,
    },
    /// The code of this kernel must be loaded first.
    NotLoaded {
        /// Its module.
        module: Arc<ClientModule>,
        /// Its index in the module.
        function: u32,
    },
}

fn fault(result: u32, text: String) -> Refusal {
    Refusal::Fault(Fault { result, text })
}

/// Plans the work in one client's queue. What it has found for one piece it remembers for the next
/// ones: so it lives no longer than the queue is served, and all of the work was there before.
pub(crate) struct Planner<'a> {
    client: &'a ContextClient,
    limits: &'a LaunchLimits,
    /// The module of the last launch, by the client's number.
    module: Option<(u32, Arc<ClientModule>)>,
    /// Where the client's pinned window is, if it has one.
    window: Range<CardAddress>,
    /// Where the copies of the client's `__constant__` variables are.
    constants: Spans,
}

impl<'a> Planner<'a> {
    /// A planner that has planned nothing yet.
    pub(crate) fn new(client: &'a ContextClient, limits: &'a LaunchLimits) -> Planner<'a> {
        let window = client.window.read().as_ref().map_or(0..0, |window| window.address()..window.address() + window.bytes());
        let constants = client.constants.read().spans();
        Planner { client, limits, module: None, window, constants }
    }

    /// Plans a piece of work. The parameters of a kernel move from `work` into the plan.
    pub(crate) fn plan(&mut self, work: &mut Work) -> Result<Plan, Refusal> {
        let client = self.client;
        match work {
            Work::Nop => Ok(Plan::Nothing),
            Work::Kernel(kernel) => plan_launch(self, &mut kernel.launch),
            Work::Copy { target, source, extent } => plan_copy(client, target, source, *extent).map(Plan::Copies),
            Work::ArrayCopy { target, source, extent } => plan_array_copy(client, target, source, *extent).map(Plan::Copies),
            Work::Set { target, pitch, value, element, width, height } => {
                let row = width.saturating_mul(u64::from(*element));
                if row == 0 || *height == 0 {
                    return Ok(Plan::Nothing);
                }
                let rows = Rows { address: *target, pitch: *pitch, slice: 0 };
                let extent = CopyExtent { width: row, height: *height, depth: 1 };
                let target = translate(client, &rows, extent, Access::Write, "a set")?;
                let set = MemorySet { target, pitch: *pitch, value: *value, element: *element, width: *width, height: *height };
                let constants = write_constants(client, &Rows { address: target, ..rows }, extent, "a set")?;
                Ok(Plan::Set(set).followed_by(constants))
            }
            Work::WriteValue { address, value, bytes } => {
                let rows = Rows { address: *address, pitch: 0, slice: 0 };
                let extent = CopyExtent { width: u64::from(*bytes), height: 1, depth: 1 };
                let address = translate(client, &rows, extent, Access::Write, "a value write")?;
                let constants = write_constants(client, &Rows { address, ..rows }, extent, "a value write")?;
                Ok(Plan::Value { address, value: *value, bytes: *bytes }.followed_by(constants))
            }
        }
    }

    /// True if this is the client's module of that number.
    pub(super) fn has_module(&mut self, number: u32, module: &Arc<ClientModule>) -> bool {
        if self.module.as_ref().is_none_or(|(last, _)| *last != number) && self.module(number).is_none() {
            return false;
        }
        self.module.as_ref().is_some_and(|(last, own)| *last == number && Arc::ptr_eq(own, module))
    }

    /// True if this address is in the client's pinned window.
    pub(super) fn is_in_window(&self, address: CardAddress) -> bool {
        self.window.contains(&address)
    }

    /// True if a word of these parameters may point to the client's pinned window.
    pub(super) fn names_window(&self, parameters: &[u8]) -> bool {
        words_of(parameters).any(|word| self.window.contains(&word))
    }

    /// True if a word of these parameters points to the copy of a `__constant__` variable.
    pub(super) fn names_constant(&self, parameters: &[u8]) -> bool {
        !named_constants(self.client, &self.constants, parameters).is_empty()
    }

    /// The client's module of this number.
    fn module(&mut self, number: u32) -> Option<Arc<ClientModule>> {
        if let Some((last, module)) = &self.module
            && *last == number
        {
            return Some(module.clone());
        }
        let module = self.client.modules.read().get(&number).cloned()?;
        self.module = Some((number, module.clone()));
        Some(module)
    }
}

fn plan_launch(planner: &mut Planner<'_>, launch: &mut Launch) -> Result<Plan, Refusal> {
    let module = planner.module(launch.module);
    let index = launch.function as usize;
    let Some(module) = module.filter(|module| index < module.kernels.len()) else {
        return Err(fault(result::INVALID_HANDLE, format!("no kernel {} in module {}: was it unloaded?", launch.function, launch.module)));
    };
    let (kernel, info) = (&module.kernels[index], &module.info.functions[index]);
    // The driver checks the rest against the kernel's machine code.
    let fits = planner.limits.check_dimensions(launch.grid, launch.block).and_then(|_| planner.limits.check_shared(info.static_shared, launch.shared, None));
    fits.map_err(|why| fault(result::LAUNCH_OUT_OF_RESOURCES, format!("{}: {why}", kernel.name)))?;
    let Some(code) = kernel.code() else {
        return Err(Refusal::NotLoaded { module, function: launch.function });
    };
    if let Some((address, bytes)) = find_unregistered_pointer(planner, &launch.parameters) {
        return Err(Refusal::Unregistered { address, bytes });
    }
    let mut parameters = std::mem::take(&mut launch.parameters);
    parameters.resize(kernel.parameter_bytes as usize, 0);
    let constants = named_constants(planner.client, &planner.constants, &parameters);
    let shape = LaunchShape { grid: launch.grid, block: launch.block, cluster: launch.cluster, shared: launch.shared, cooperative: launch.cooperative };
    let asked = Asked::Launch { module: launch.module };
    Ok(Plan::Kernel(PlannedKernel { function: index, code, shape, parameters, constants, module, asked }))
}

/// What follows a kernel that may write to `__constant__` variables.
fn named_constants(client: &ContextClient, spans: &Spans, parameters: &[u8]) -> Vec<CopyPiece> {
    let mut pointers = words_of(parameters).filter(|word| spans.may_have(*word)).peekable();
    if pointers.peek().is_none() { Vec::new() } else { follow_pointers(&client.constants.read(), pointers) }
}

/// The words of a parameter block.
fn words_of(parameters: &[u8]) -> impl Iterator<Item = u64> {
    parameters.chunks_exact(size_of::<u64>()).map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
}

/// Finds the first word of a parameter block that points to memory of the client's window that is
/// not registered. Returns the address, and how many bytes to register there. Any word may be a
/// pointer.
fn find_unregistered_pointer(planner: &Planner<'_>, parameters: &[u8]) -> Option<(CardAddress, u64)> {
    if !planner.names_window(parameters) {
        return None;
    }
    let window = planner.client.window.read();
    let window = window.as_ref()?;
    let address = words_of(parameters).find(|address| window.contains(*address, 1) && !window.is_registered(*address, 1))?;
    Some((address, UNANNOUNCED_BYTES.min(window.address() + window.bytes() - address)))
}

/// Checks a rectangle and returns the card's address of its first byte. The client may access each
/// row, and rows in the client's window are registered. `what` names the work in the text of a
/// fault.
fn translate(client: &ContextClient, rows: &Rows, extent: CopyExtent, access: Access, what: &str) -> Result<CardAddress, Refusal> {
    let forbidden = |at: u64| {
        let verb = if access == Access::Write { "write" } else { "read" };
        fault(result::ILLEGAL_ADDRESS, format!("{what} touches {at:#x}, which is no memory of this client that it may {verb}"))
    };
    let whole = span(rows.address, rows.pitch, rows.slice, extent).ok_or_else(|| forbidden(rows.address))?;
    let found = {
        let permissions = client.permissions.read();
        match permissions.translate(rows.address, whole, access) {
            Ok(found) => found,
            Err(_) => {
                if extent.height.saturating_mul(extent.depth) > MOST_PIECES {
                    return Err(too_many_pieces(what));
                }
                // The memory between the rows may belong to another client: check row by row.
                let first = permissions.translate(rows.address, extent.width, access).map_err(forbidden)?;
                for z in 0..extent.depth {
                    for y in 0..extent.height {
                        let row = rows.address + z * rows.slice + y * rows.pitch;
                        let at = permissions.translate(row, extent.width, access).map_err(forbidden)?;
                        if at.wrapping_sub(row) != first.wrapping_sub(rows.address) {
                            return Err(forbidden(row));
                        }
                    }
                }
                first
            }
        }
    };
    if let Some(window) = &*client.window.read()
        && window.contains(found, whole)
        && !window.is_registered(found, whole)
    {
        return Err(Refusal::Unregistered { address: found, bytes: whole });
    }
    Ok(found)
}

/// The copies by which `__constant__` variables follow a write to these bytes.
fn write_constants(client: &ContextClient, target: &Rows, extent: CopyExtent, what: &str) -> Result<Vec<CopyPiece>, Refusal> {
    forward(&client.constants.read(), target, extent).ok_or_else(|| too_many_pieces(what))
}

fn too_many_pieces(what: &str) -> Refusal {
    fault(
        result::INVALID_VALUE,
        format!("{what} falls into more than {MOST_PIECES} pieces (rows apart from one another, or sides that overlap): copy less at once"),
    )
}

fn plan_copy(client: &ContextClient, target: &Rows, source: &Rows, extent: CopyExtent) -> Result<Vec<CopyPiece>, Refusal> {
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(Vec::new());
    }
    let from = translate(client, source, extent, Access::Read, "a copy")?;
    let to = translate(client, target, extent, Access::Write, "a copy")?;
    let mut constants = write_constants(client, &Rows { address: to, ..*target }, extent, "a copy")?;
    let mut pieces = Vec::new();
    let window = client.window.read();
    let reach = |at: CardAddress| window.as_ref().filter(|w| w.contains(at, 1)).and_then(|w| w.bytes_to_piece_end(at)).unwrap_or(u64::MAX);
    let (target, source) = (Rows { address: to, ..*target }, Rows { address: from, ..*source });
    let count = count_pieces(extent, to.abs_diff(from));
    if extent.height == 1 && extent.depth == 1 {
        if count > MOST_PIECES {
            return Err(too_many_pieces("a copy"));
        }
        cut_row(to, from, extent.width, &reach, &mut pieces);
        pieces.append(&mut constants);
        return Ok(pieces);
    }
    let bytes_of = |rows: &Rows| span(rows.address, rows.pitch, rows.slice, extent).unwrap_or(u64::MAX);
    let is_whole = bytes_of(&target) <= reach(to) && bytes_of(&source) <= reach(from);
    if (!is_whole || target.pitch < extent.width || source.pitch < extent.width) && count > MOST_PIECES {
        return Err(too_many_pieces("a copy"));
    }
    let contiguity = if is_whole { Contiguity::Whole } else { Contiguity::Cut };
    cut_rectangle(&target, &source, extent, contiguity, &reach, &mut pieces);
    pieces.append(&mut constants);
    Ok(pieces)
}

/// Checks one end of a copy that an array takes part in.
fn find_end(client: &ContextClient, end: &CopyEnd, extent: CopyExtent, access: Access) -> Result<End, Refusal> {
    match *end {
        CopyEnd::Memory { address, pitch, slice } => {
            let rows = Rows { address, pitch, slice };
            let address = translate(client, &rows, extent, access, "a copy")?;
            Ok(End::Memory(Rows { address, ..rows }))
        }
        CopyEnd::Array { array: number, level, at } => {
            let array = client.textures.read().arrays.get(&number).cloned();
            let array = array.ok_or_else(|| fault(result::INVALID_HANDLE, format!("a copy names array {number}, which this client does not have")))?;
            let handle = array.levels.get(level as usize).copied().filter(|_| array.wish.holds(level, at, extent));
            let handle =
                handle.ok_or_else(|| fault(result::INVALID_VALUE, format!("a copy reaches beyond level {level} of array {number}, or cuts a texel")))?;
            Ok(End::Array { array: handle, texel: array.wish.texel(), at })
        }
    }
}

/// Plans a copy that an array takes part in.
fn plan_array_copy(client: &ContextClient, target: &CopyEnd, source: &CopyEnd, extent: CopyExtent) -> Result<Vec<CopyPiece>, Refusal> {
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(Vec::new());
    }
    let from = find_end(client, source, extent, Access::Read)?;
    let to = find_end(client, target, extent, Access::Write)?;
    if count_pieces(extent, u64::MAX) > MOST_PIECES {
        return Err(too_many_pieces("a copy"));
    }
    let mut constants = match &to {
        End::Memory(rows) => write_constants(client, rows, extent, "a copy")?,
        End::Array { .. } => Vec::new(),
    };
    let window = client.window.read();
    let reach = |at: CardAddress| window.as_ref().filter(|w| w.contains(at, 1)).and_then(|w| w.bytes_to_piece_end(at)).unwrap_or(u64::MAX);
    let cut = cut_array_copy(&to, &from, extent, &reach).map_err(|why| match why {
        Uncut::Overlaps => fault(result::INVALID_VALUE, "a copy of an array over itself".into()),
        Uncut::SplitTexel => {
            fault(result::INVALID_VALUE, "a copy between an array and pinned memory whose texels are not aligned, across two pieces of that memory".into())
        }
    });
    let mut pieces = cut?;
    pieces.append(&mut constants);
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_waits_is_the_clients_work_again() {
        let shape = LaunchShape { grid: [3, 4, 5], block: [32, 2, 1], cluster: [2, 1, 1], shared: 48, cooperative: true };
        let parameters: Parameters = [7_u8; 24].into_iter().collect();
        let launch = Launch {
            module: 9,
            function: 2,
            grid: [3, 4, 5],
            block: [32, 2, 1],
            cluster: [2, 1, 1],
            shared: 48,
            cooperative: true,
            parameters: parameters.clone(),
        };
        let again = Asked::Launch { module: 9 }.into_work(2, shape, parameters.clone());
        assert_eq!(again, Work::Kernel(cumux_device::Kernel { launch, resume: None }));
        let set = Work::Set { target: 0x100, pitch: 0, value: 5, element: 1, width: 64, height: 1 };
        assert_eq!(Asked::Other(Box::new(set.clone())).into_work(0, shape, parameters), set, "what does a small set is no launch of the client's");
    }
}
