//! What nodes do: adding them, telling and changing their parameters. A node's parameters become
//! [`Work`] in one place each, which graph nodes and nodes of executables share.
//!
//! One file, although long: a list of calls by kind of node, each some lines over those places.

use super::condition::Condition;
use super::structure::{Conditional, plain_edges};
use super::{Graph, Kernel, Node, Values, Work, find_graph, find_node};
use crate::bands::Side;
use crate::connection::Connection;
use crate::ffi::{Try, error, get, list, put};
use crate::limits::Config;
use crate::log::unsupported;
use crate::memory::Sort;
use crate::memory::of_graphs::{self, Owned};
use crate::sync::lock;
use crate::{callback, context, copy, device, library, process};
use core::ffi::{c_uint, c_void};
use cumux_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph,
    CUgraphChildGraphNodeOwnership as Ownership, CUgraphConditionalHandle, CUgraphConditionalNodeType as ConditionalKind, CUgraphEdgeData,
    CUgraphMem_attribute, CUgraphNode, CUgraphNodeParams, CUgraphNodeType as Type, CUhostFn, CUkernelNodeAttrID, CUkernelNodeAttrValue, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemorytype, CUstreamBatchMemOpParams,
};
use cumux_wire::layout::in_arena;
use cumux_wire::record::Op;
use std::sync::Arc;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: c_uint = 1;
/// Bodies of a switch.
const MOST_BODIES: u32 = 4096;

/// The nodes in an argument list.
fn after(dependencies: *const CUgraphNode, count: usize) -> Try<Vec<u64>> {
    Ok(list!(dependencies, count).iter().map(|node| node.addr() as u64).collect())
}

fn add(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, work: impl FnOnce(&'static Connection) -> Try<Work>) -> Try {
    let session = process::enter()?;
    let graph = find_graph(handle)?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let after = after(dependencies, count)?;
    // First: work that is made may be a copy of a graph, which nobody would end.
    graph.check_nodes(&after)?;
    put!(out, graph.add(work(session)?, after)?.as_c());
    Ok(())
}

// ---- parameters to work

/// The newest form of kernel parameters, which older ones fill in part.
pub(super) fn newest(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: core::ptr::null_mut(),
        ctx: core::ptr::null_mut(),
    }
}

/// The work of a kernel node.
pub(super) fn kernel_work(session: &'static Connection, params: &CUDA_KERNEL_NODE_PARAMS) -> Try<Work> {
    let name = if params.func.is_null() { params.kern.cast() } else { params.func };
    let function = library::find_function(session, name)?;
    let config = Config {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
        ..Config::default()
    };
    // SAFETY: the program vouches for the parameters in its structure.
    let launch = unsafe { crate::launch::prepare(session, &function, &config, params.kernelParams, params.extra)? };
    Ok(Work::Kernel(Kernel::new(function, name.addr() as u64, launch)))
}

/// The work of a copy node.
pub(super) fn copy_work(params: &CUDA_MEMCPY3D) -> Try<Work> {
    Ok(Work::Copy(copy::plan(params)?))
}

/// The work of a memset node.
pub(super) fn set_work(params: &CUDA_MEMSET_NODE_PARAMS) -> Try<Work> {
    let op = crate::set::plan(params.dst, params.pitch, params.value, params.elementSize, params.width, params.height)?;
    Ok(op.map_or(Work::Empty, Work::Set))
}

/// The work of a host function node.
pub(super) fn host_work(function: CUhostFn, data: *mut c_void) -> Try<Work> {
    let function = function.ok_or(error::INVALID_VALUE)?;
    Ok(Work::Host(callback::Work::Host { function, data: data.expose_provenance() }))
}

/// The work of a child graph node: a copy of the graph as it is now.
fn child_work(child: CUgraph) -> Try<Work> {
    Ok(Work::Graph(find_graph(child)?.copy(true)?))
}

/// The graph in parameters of a child graph node, and whose it is to be; `None` for other nodes.
fn given_child(params: *const CUgraphNodeParams) -> Try<Option<(CUgraph, Ownership)>> {
    let given = get!(params);
    if given.type_ != Type::CU_GRAPH_NODE_TYPE_GRAPH {
        return Ok(None);
    }
    // SAFETY: the type says that this member of the union is set; it is plain data.
    let child = unsafe { given.__bindgen_anon_1.graph };
    Ok(Some((child.graph, child.ownership)))
}

/// The graph whose parameters a child graph node of an executable gets, if these are parameters of
/// such a node.
pub(super) fn child_of(params: *const CUgraphNodeParams) -> Try<Option<CUgraph>> {
    match given_child(params)? {
        Some((child, Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)) => Ok(Some(child)),
        Some(_) => Err(error::INVALID_VALUE),
        None => Ok(None),
    }
}

/// The graph that becomes the one of its node, if these are parameters of such a node.
fn moved_child(params: *const CUgraphNodeParams) -> Try<Option<Arc<Graph>>> {
    match given_child(params)? {
        Some((child, Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)) => find_graph(child).map(Some),
        _ => Ok(None),
    }
}

/// The work of a node that records an event or waits for one.
pub(super) fn event_work(event: CUevent, record: bool) -> Try<Work> {
    let event = crate::event::named(event)?;
    Ok(if record { Work::Record(event.handle) } else { Work::Wait(event.handle) })
}

/// The work of a node that writes values or waits for them.
pub(super) fn values_work(params: *mut CUstreamBatchMemOpParams, count: c_uint) -> Try<Work> {
    let ops = crate::stream_value::plan(params, count)?;
    let given = list!(params.cast_const(), count as usize).to_vec();
    Ok(Work::Values(Arc::new(Values { ops, given })))
}

fn alloc_work(session: &'static Connection, properties: &CUmemPoolProps, bytes: usize) -> Try<Work> {
    if properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE || bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    device::named(session, properties.location.id)?;
    let context = context::current()?;
    Ok(Work::Alloc(Owned::new(session, context.id, context.device, bytes as u64)?))
}

fn free_work(address: CUdeviceptr) -> Try<Work> {
    crate::memory::read_allocations().at(address).filter(|known| known.sort == Sort::Graph).ok_or(error::INVALID_VALUE)?;
    Ok(Work::Free(address))
}

/// The work of a conditional node. Writes where its bodies are.
fn conditional_work(params: &mut CUDA_CONDITIONAL_NODE_PARAMS) -> Try<Work> {
    let condition = Condition::find(params.handle).ok_or(error::INVALID_VALUE)?;
    let most = match params.type_ {
        ConditionalKind::CU_GRAPH_COND_TYPE_IF => 2,
        ConditionalKind::CU_GRAPH_COND_TYPE_WHILE => 1,
        ConditionalKind::CU_GRAPH_COND_TYPE_SWITCH => MOST_BODIES,
        _ => return Err(error::INVALID_VALUE),
    };
    if params.size == 0 || params.size > most {
        return Err(error::INVALID_VALUE);
    }
    let bodies = (0..params.size).map(|_| Graph::new(true)).collect::<Try<_>>()?;
    let conditional = Conditional::new(condition, params.type_, bodies);
    params.phGraph_out = conditional.handles();
    Ok(Work::Conditional(conditional))
}

/// Work of a generic parameter structure. What an allocation gets is written back.
pub(super) fn any_work(session: &'static Connection, params: *mut CUgraphNodeParams) -> Try<Work> {
    let given = get!(params.cast_const());
    let union = given.__bindgen_anon_1;
    // SAFETY: the type says which member of the union is set; all of them are plain data.
    unsafe {
        match given.type_ {
            Type::CU_GRAPH_NODE_TYPE_KERNEL => {
                let k = union.kernel;
                let old = CUDA_KERNEL_NODE_PARAMS_v1 {
                    func: k.func,
                    gridDimX: k.gridDimX,
                    gridDimY: k.gridDimY,
                    gridDimZ: k.gridDimZ,
                    blockDimX: k.blockDimX,
                    blockDimY: k.blockDimY,
                    blockDimZ: k.blockDimZ,
                    sharedMemBytes: k.sharedMemBytes,
                    kernelParams: k.kernelParams,
                    extra: k.extra,
                };
                kernel_work(session, &CUDA_KERNEL_NODE_PARAMS { kern: k.kern, ctx: k.ctx, ..newest(&old) })
            }
            Type::CU_GRAPH_NODE_TYPE_MEMCPY => copy_work(&union.memcpy.copyParams),
            Type::CU_GRAPH_NODE_TYPE_MEMSET => {
                let m = union.memset;
                let (dst, pitch, value, width, height) = (m.dst, m.pitch, m.value, m.width, m.height);
                set_work(&CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize: m.elementSize, width, height })
            }
            Type::CU_GRAPH_NODE_TYPE_HOST => host_work(union.host.fn_, union.host.userData),
            // Where a node is added, one that is moved does not come here.
            Type::CU_GRAPH_NODE_TYPE_GRAPH if union.graph.ownership != Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => Err(error::INVALID_VALUE),
            Type::CU_GRAPH_NODE_TYPE_GRAPH => child_work(union.graph.graph),
            Type::CU_GRAPH_NODE_TYPE_EMPTY => Ok(Work::Empty),
            Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => event_work(union.eventWait.event, false),
            Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => event_work(union.eventRecord.event, true),
            Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => values_work(union.memOp.paramArray, union.memOp.count),
            Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let work = alloc_work(session, &union.alloc.poolProps, union.alloc.bytesize)?;
                if let Work::Alloc(owned) = &work {
                    (*params).__bindgen_anon_1.alloc.dptr = owned.address;
                }
                Ok(work)
            }
            Type::CU_GRAPH_NODE_TYPE_MEM_FREE => free_work(union.free.dptr),
            Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => conditional_work(&mut (*params).__bindgen_anon_1.conditional),
            other => Err(unsupported(format!("graph nodes of type {}", other.0))),
        }
    }
}

// ---- adding

pub unsafe fn cuGraphAddKernelNode(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Try {
    let params = newest(&get!(params));
    add(out, handle, dependencies, count, |session| kernel_work(session, &params))
}

pub unsafe fn cuGraphAddKernelNode_v2(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Try {
    let params = get!(params);
    add(out, handle, dependencies, count, |session| kernel_work(session, &params))
}

pub unsafe fn cuGraphAddMemcpyNode(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMCPY3D,
    _context: CUcontext,
) -> Try {
    let params = get!(params);
    add(out, handle, dependencies, count, |_| copy_work(&params))
}

pub unsafe fn cuGraphAddMemsetNode(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMSET_NODE_PARAMS,
    _context: CUcontext,
) -> Try {
    let params = get!(params);
    add(out, handle, dependencies, count, |_| set_work(&params))
}

pub unsafe fn cuGraphAddHostNode(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> Try {
    let params = get!(params);
    add(out, handle, dependencies, count, |_| host_work(params.fn_, params.userData))
}

pub unsafe fn cuGraphAddChildGraphNode(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph) -> Try {
    add(out, handle, dependencies, count, |_| child_work(child))
}

pub unsafe fn cuGraphAddEmptyNode(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize) -> Try {
    add(out, handle, dependencies, count, |_| Ok(Work::Empty))
}

pub unsafe fn cuGraphAddEventRecordNode(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent) -> Try {
    add(out, handle, dependencies, count, |_| event_work(event, true))
}

pub unsafe fn cuGraphAddEventWaitNode(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent) -> Try {
    add(out, handle, dependencies, count, |_| event_work(event, false))
}

pub unsafe fn cuGraphAddBatchMemOpNode(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Try {
    let params = get!(params);
    add(out, handle, dependencies, count, |_| values_work(params.paramArray, params.count))
}

pub unsafe fn cuGraphAddMemAllocNode(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Try {
    let mut given = get!(params.cast_const());
    add(out, handle, dependencies, count, |session| {
        let work = alloc_work(session, &given.poolProps, given.bytesize)?;
        if let Work::Alloc(owned) = &work {
            given.dptr = owned.address;
        }
        Ok(work)
    })?;
    put!(params, given);
    Ok(())
}

pub unsafe fn cuGraphAddMemFreeNode(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, address: CUdeviceptr) -> Try {
    add(out, handle, dependencies, count, |_| free_work(address))
}

fn add_any(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams) -> Try {
    process::enter()?;
    let Some(child) = moved_child(params)? else {
        return add(out, handle, dependencies, count, |session| any_work(session, params));
    };
    child.move_into(&*find_graph(handle)?)?;
    let added = add(out, handle, dependencies, count, |_| Ok(Work::Graph(Arc::clone(&child))));
    added.inspect_err(|_| child.move_back())
}

pub unsafe fn cuGraphAddNode(out: *mut CUgraphNode, handle: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams) -> Try {
    add_any(out, handle, dependencies, count, params)
}

pub unsafe fn cuGraphAddNode_v2(
    out: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> Try {
    plain_edges(data, count)?;
    add_any(out, handle, dependencies, count, params)
}

// ---- conditions

pub unsafe fn cuGraphConditionalHandleCreate(out: *mut CUgraphConditionalHandle, handle: CUgraph, wanted: CUcontext, default: c_uint, flags: c_uint) -> Try {
    let session = process::enter()?;
    let graph = find_graph(handle)?;
    if out.is_null() || flags & !ASSIGN_DEFAULT != 0 {
        return Err(error::INVALID_VALUE);
    }
    let context = context::named(wanted)?;
    require(session, context.device)?;
    let condition = Condition::new(session, context.device, (flags & ASSIGN_DEFAULT != 0).then_some(default))?;
    put!(out, condition.address);
    lock(&graph.conditions).push(condition);
    Ok(())
}

/// Whether the device tells what its kernels say of conditions.
fn require(session: &Connection, ordinal: u32) -> Try {
    let able = device::all(session).get(ordinal as usize).is_some_and(|device| device.facts.capabilities.sets_conditions);
    if able { Ok(()) } else { Err(unsupported("conditional nodes on this device: what its kernels say of conditions only its driver knows")) }
}

// ---- changing

/// Replaces a node's work by work of the same kind.
fn change(handle: CUgraphNode, work: impl FnOnce(&'static Connection) -> Try<Work>) -> Try {
    let session = process::enter()?;
    let node = find_node(handle)?;
    let work = work(session)?;
    let mut body = lock(&node.body);
    if body.work.kind() != work.kind() || matches!(work, Work::Conditional(_)) {
        drop(body);
        work.graphs().iter().for_each(|graph| graph.end());
        return Err(error::INVALID_VALUE);
    }
    lock(&node.told).change(&work);
    let before = std::mem::replace(&mut body.work, work);
    drop(body);
    before.graphs().iter().for_each(|graph| graph.end());
    Ok(())
}

pub unsafe fn cuGraphKernelNodeSetParams(handle: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Try {
    let params = newest(&get!(params));
    change(handle, |session| kernel_work(session, &params))
}

pub unsafe fn cuGraphKernelNodeSetParams_v2(handle: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, |session| kernel_work(session, &params))
}

pub unsafe fn cuGraphMemcpyNodeSetParams(handle: CUgraphNode, params: *const CUDA_MEMCPY3D) -> Try {
    let params = get!(params);
    change(handle, |_| copy_work(&params))
}

pub unsafe fn cuGraphMemsetNodeSetParams(handle: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, |_| set_work(&params))
}

pub unsafe fn cuGraphHostNodeSetParams(handle: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, |_| host_work(params.fn_, params.userData))
}

pub unsafe fn cuGraphEventRecordNodeSetEvent(handle: CUgraphNode, event: CUevent) -> Try {
    change(handle, |_| event_work(event, true))
}

pub unsafe fn cuGraphEventWaitNodeSetEvent(handle: CUgraphNode, event: CUevent) -> Try {
    change(handle, |_| event_work(event, false))
}

pub unsafe fn cuGraphBatchMemOpNodeSetParams(handle: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, |_| values_work(params.paramArray, params.count))
}

pub unsafe fn cuGraphNodeSetParams(handle: CUgraphNode, params: *mut CUgraphNodeParams) -> Try {
    change(handle, |session| any_work(session, params))
}

// ---- telling

fn work_of(handle: CUgraphNode) -> Try<Work> {
    process::enter()?;
    Ok(lock(&find_node(handle)?.body).work.clone())
}

/// Kernel parameters as the program gave them; the pointers lead into the node.
fn tell_kernel(handle: CUgraphNode) -> Try<CUDA_KERNEL_NODE_PARAMS> {
    let Work::Kernel(kernel) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    let told = lock(&find_node(handle)?.told).kernel.tell(&kernel);
    let (launch, name) = (&kernel.launch, core::ptr::without_provenance_mut::<c_void>(kernel.name as usize));
    let is_kernel = crate::handle::Kind::of(kernel.name) == Some(crate::handle::Kind::Kernel as u8);
    // The runtime knows its kernels by these, however they were launched.
    let of_library = || library::kernel_of(&kernel.function).map_or(core::ptr::null_mut(), |kernel| kernel.as_c());
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: if is_kernel { core::ptr::null_mut() } else { name.cast() },
        gridDimX: launch.grid[0],
        gridDimY: launch.grid[1],
        gridDimZ: launch.grid[2],
        blockDimX: launch.block[0],
        blockDimY: launch.block[1],
        blockDimZ: launch.block[2],
        sharedMemBytes: launch.shared,
        kernelParams: core::ptr::with_exposed_provenance_mut(told),
        extra: core::ptr::null_mut(),
        kern: if is_kernel { name.cast() } else { of_library() },
        ctx: core::ptr::null_mut(),
    })
}

pub unsafe fn cuGraphKernelNodeGetParams(handle: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> Try {
    let p = tell_kernel(handle)?;
    put!(
        out,
        CUDA_KERNEL_NODE_PARAMS_v1 {
            func: if p.func.is_null() { p.kern.cast() } else { p.func },
            gridDimX: p.gridDimX,
            gridDimY: p.gridDimY,
            gridDimZ: p.gridDimZ,
            blockDimX: p.blockDimX,
            blockDimY: p.blockDimY,
            blockDimZ: p.blockDimZ,
            sharedMemBytes: p.sharedMemBytes,
            kernelParams: p.kernelParams,
            extra: p.extra,
        }
    );
    Ok(())
}

pub unsafe fn cuGraphKernelNodeGetParams_v2(handle: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS) -> Try {
    put!(out, tell_kernel(handle)?);
    Ok(())
}

pub unsafe fn cuGraphMemcpyNodeGetParams(handle: CUgraphNode, out: *mut CUDA_MEMCPY3D) -> Try {
    let Work::Copy(transfer) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    let kind = |side: &Side| match side.array {
        Some(_) => CUmemorytype::CU_MEMORYTYPE_ARRAY,
        None if !side.private && in_arena(side.address) => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        None => CUmemorytype::CU_MEMORYTYPE_HOST,
    };
    let height = |side: &Side| side.slice.checked_div(side.pitch).unwrap_or(0) as usize;
    let array = |side: &Side| core::ptr::without_provenance_mut(side.array.map_or(0, |array| array.handle as usize));
    let place = |side: &Side| side.array.map_or([0; 3], |array| side.place(&array).map(|count| count as usize));
    // What describes memory means nothing where an array is meant.
    let memory = |side: &Side| if side.array.is_some() { Side::known(0, 0, 0) } else { *side };
    let ([source_x, source_y, source_z], [target_x, target_y, target_z]) = (place(&transfer.source), place(&transfer.target));
    let (source_array, target_array) = (array(&transfer.source), array(&transfer.target));
    let (source_kind, target_kind) = (kind(&transfer.source), kind(&transfer.target));
    let (source, target) = (&memory(&transfer.source), &memory(&transfer.target));
    put!(
        out,
        CUDA_MEMCPY3D {
            srcXInBytes: source_x,
            srcY: source_y,
            srcZ: source_z,
            srcMemoryType: source_kind,
            srcArray: source_array,
            srcHost: core::ptr::with_exposed_provenance(source.address as usize),
            srcDevice: source.address,
            srcPitch: source.pitch as usize,
            srcHeight: height(source),
            dstXInBytes: target_x,
            dstY: target_y,
            dstZ: target_z,
            dstMemoryType: target_kind,
            dstArray: target_array,
            dstHost: core::ptr::with_exposed_provenance_mut(target.address as usize),
            dstDevice: target.address,
            dstPitch: target.pitch as usize,
            dstHeight: height(target),
            WidthInBytes: transfer.extent.width as usize,
            Height: transfer.extent.height as usize,
            Depth: transfer.extent.depth as usize,
            ..CUDA_MEMCPY3D::default()
        }
    );
    Ok(())
}

pub unsafe fn cuGraphMemsetNodeGetParams(handle: CUgraphNode, out: *mut CUDA_MEMSET_NODE_PARAMS) -> Try {
    let Work::Set(Op::Set { target, value, element, width, height, pitch }) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    let (pitch, width, height) = (pitch as usize, width as usize, height as usize);
    put!(out, CUDA_MEMSET_NODE_PARAMS { dst: target, pitch, value, elementSize: element, width, height });
    Ok(())
}

pub unsafe fn cuGraphHostNodeGetParams(handle: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) -> Try {
    let Work::Host(callback::Work::Host { function, data }) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    put!(out, CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: core::ptr::with_exposed_provenance_mut(data) });
    Ok(())
}

pub unsafe fn cuGraphEventRecordNodeGetEvent(handle: CUgraphNode, out: *mut CUevent) -> Try {
    let Work::Record(event) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    put!(out, core::ptr::without_provenance_mut(event as usize));
    Ok(())
}

pub unsafe fn cuGraphEventWaitNodeGetEvent(handle: CUgraphNode, out: *mut CUevent) -> Try {
    let Work::Wait(event) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    put!(out, core::ptr::without_provenance_mut(event as usize));
    Ok(())
}

pub unsafe fn cuGraphBatchMemOpNodeGetParams(handle: CUgraphNode, out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Try {
    let Work::Values(values) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    let count = c_uint::try_from(values.given.len()).unwrap_or(c_uint::MAX);
    // It leads into the node, as the driver's does.
    let paramArray = core::ptr::with_exposed_provenance_mut(lock(&find_node(handle)?.told).values.tell(&values));
    let ctx = context::top().map_or(core::ptr::null_mut(), |context| context.as_c());
    put!(out, CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx, count, paramArray, flags: 0 });
    Ok(())
}

pub unsafe fn cuGraphMemAllocNodeGetParams(handle: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Try {
    let Work::Alloc(owned) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: owned.device.cast_signed() };
    let properties = CUmemPoolProps { allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, location, ..CUmemPoolProps::default() };
    let params =
        CUDA_MEM_ALLOC_NODE_PARAMS { poolProps: properties, bytesize: owned.bytes as usize, dptr: owned.address, ..CUDA_MEM_ALLOC_NODE_PARAMS::default() };
    put!(out, params);
    Ok(())
}

pub unsafe fn cuGraphMemFreeNodeGetParams(handle: CUgraphNode, out: *mut CUdeviceptr) -> Try {
    let Work::Free(address) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    put!(out, address);
    Ok(())
}

// ---- launch attributes of kernel nodes

/// A kernel with another attribute.
fn with_attribute(kernel: &Kernel, attribute: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue) -> Try<Option<Arc<Kernel>>> {
    let mut launch = kernel.launch.clone();
    let value = get!(value);
    // SAFETY: the id says which member of the union is set.
    unsafe {
        match attribute {
            CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => launch.cooperative = value.cooperative != 0,
            CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                let cluster = value.clusterDim;
                launch.cluster = [cluster.x, cluster.y, cluster.z];
                crate::launch::check_cluster(&kernel.function, &launch)?;
            }
            // Hints.
            CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
            | CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => return Ok(None),
            _ => return Err(error::INVALID_VALUE),
        }
    }
    Ok(Some(Kernel::new(Arc::clone(&kernel.function), kernel.name, launch)))
}

pub unsafe fn cuGraphKernelNodeSetAttribute(handle: CUgraphNode, attribute: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue) -> Try {
    process::enter()?;
    let node: Arc<Node> = find_node(handle)?;
    let mut body = lock(&node.body);
    let Work::Kernel(kernel) = &body.work else { return Err(error::INVALID_VALUE) };
    if let Some(kernel) = with_attribute(kernel, attribute, value)? {
        body.work = Work::Kernel(kernel);
    }
    Ok(())
}

pub unsafe fn cuGraphKernelNodeGetAttribute(handle: CUgraphNode, attribute: CUkernelNodeAttrID, out: *mut CUkernelNodeAttrValue) -> Try {
    let Work::Kernel(kernel) = work_of(handle)? else { return Err(error::INVALID_VALUE) };
    let mut words = [0_u64; 8];
    if attribute == CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE {
        words[0] = u64::from(kernel.launch.cooperative);
    }
    if attribute == CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION {
        let [x, y, z] = kernel.launch.cluster.map(u64::from);
        words = [x | y << 32, z, 0, 0, 0, 0, 0, 0];
    }
    put!(out.cast::<[u64; 8]>(), words);
    Ok(())
}

pub unsafe fn cuGraphKernelNodeCopyAttributes(target: CUgraphNode, source: CUgraphNode) -> Try {
    let Work::Kernel(from) = work_of(source)? else { return Err(error::INVALID_VALUE) };
    process::enter()?;
    let node: Arc<Node> = find_node(target)?;
    let mut body = lock(&node.body);
    let Work::Kernel(kernel) = &body.work else { return Err(error::INVALID_VALUE) };
    let mut launch = kernel.launch.clone();
    launch.cooperative = from.launch.cooperative;
    launch.cluster = from.launch.cluster;
    crate::launch::check_cluster(&kernel.function, &launch)?;
    body.work = Work::Kernel(Kernel::new(Arc::clone(&kernel.function), kernel.name, launch));
    Ok(())
}

// ---- memory that graphs hold on a device

pub unsafe fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, out: *mut c_void) -> Try {
    device::named(process::enter()?, device)?;
    let [used, used_high, reserved, reserved_high] = of_graphs::footprint(device.cast_unsigned());
    let value = match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => used,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => used_high,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => reserved,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => reserved_high,
        _ => return Err(error::INVALID_VALUE),
    };
    put!(out.cast::<u64>(), value);
    Ok(())
}

pub unsafe fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) -> Try {
    device::named(process::enter()?, device)?;
    let reserved = match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => false,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => true,
        _ => return Err(error::INVALID_VALUE),
    };
    // Only high marks can be set, and only to 0: they begin anew.
    if get!(value.cast_const().cast::<u64>()) != 0 {
        return Err(error::INVALID_VALUE);
    }
    of_graphs::reset_mark(device.cast_unsigned(), reserved);
    Ok(())
}

pub unsafe fn cuDeviceGraphMemTrim(device: CUdevice) -> Try {
    // Nothing is kept beyond what graphs that are still there use or may use again.
    device::named(process::enter()?, device).map(drop)
}
