//! Peers: devices that reach each other's memory.
//!
//! - Kernels reach what a program has opened: allocations by [`cuCtxEnablePeerAccess`] or the
//!   access of a pool, what it has mapped itself by `cuMemSetAccess`.
//! - A copy that involves another device runs in its stream like any other where the stream's
//!   device reaches that memory. Where it does not, the copy travels through the window, in streams
//!   of both devices that wait for one another. Cards whose kernels nobody confines are opened to
//!   each other for that.

use crate::bands::{Side, bands};
use crate::connection::Connection;
use crate::connection::pipe::{Role, TimelineId};
use crate::ffi::{Try, error, put};
use crate::memory::Sort;
use crate::stream::Stream;
use crate::sync::lock;
use crate::transfer::{Transfer, part, staged};
use crate::{context, device, memory, process, vmm};
use core::ffi::{c_int, c_uint};
use cumux_abi::{CUatomicOperation, CUcontext, CUdevice, CUdevice_P2PAttribute, CUresult};
use cumux_wire::facts::Peer;
use cumux_wire::layout::in_arena;
use cumux_wire::record::{CopyExtent, Op};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Who reaches whose allocations.
#[derive(Debug, Default)]
struct Links {
    /// Contexts that were opened to others: id of who reaches, id of whose memory.
    contexts: BTreeSet<(u64, u64)>,
    /// Pools that were opened to other devices, with the access: handle and device.
    pools: BTreeMap<(u64, u32), u32>,
    /// Devices that are opened for copies: who reaches, and whose memory.
    copies: BTreeSet<(u32, u32)>,
    /// How many of these need that a device reaches another.
    uses: BTreeMap<(u32, u32), u32>,
}

static LINKS: Mutex<Links> = Mutex::new(Links { contexts: BTreeSet::new(), pools: BTreeMap::new(), copies: BTreeSet::new(), uses: BTreeMap::new() });

/// A stream of each device for copies through the window.
static CARRIERS: Mutex<Vec<(u32, TimelineId)>> = Mutex::new(Vec::new());

impl Links {
    /// One more reason for a device to reach another.
    fn begin_use(&mut self, session: &Connection, own: u32, owner: u32) -> Try {
        let uses = self.uses.entry((own, owner)).or_default();
        if *uses == 0 {
            session.call(&Op::PeerAccess { device: own, peer: owner, on: 1 })?;
        }
        *uses += 1;
        Ok(())
    }

    fn end_use(&mut self, session: &Connection, own: u32, owner: u32) -> Try {
        let Some(uses) = self.uses.get_mut(&(own, owner)) else { return Ok(()) };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return Ok(());
        }
        self.uses.remove(&(own, owner));
        // What still runs may use the memory.
        session.drain_all()?;
        session.call(&Op::PeerAccess { device: own, peer: owner, on: 0 }).map(drop)
    }

    fn reach(&self, own: u32, owner: u32) -> bool {
        self.uses.contains_key(&(own, owner))
    }
}

/// How a device reaches the memory of another; `None` if it does not.
fn way(session: &Connection, own: u32, owner: u32) -> Option<&'static Peer> {
    let all = device::all(session);
    let owner = all.get(owner as usize)?.facts.uuid;
    all.get(own as usize)?.facts.capabilities.peers.iter().find(|peer| peer.uuid == owner)
}

/// The device whose memory a side of a copy is; none for host memory.
fn device_of(side: &Side) -> Option<u32> {
    if let Some(array) = &side.array {
        return Some(array.device);
    }
    if side.private || !in_arena(side.address) {
        return None;
    }
    memory::read_allocations().find(side.address).map(|known| known.device)
}

/// Whether work of a device reaches this memory, which is another device's.
fn reaches(session: &Connection, own: u32, owner: u32, address: u64) -> bool {
    let known = memory::read_allocations().find(address).map(|known| known.sort);
    match known {
        Some(Sort::Mapped) => vmm::is_open_to(address, own),
        Some(Sort::Graph) => false,
        _ => {
            let mut links = lock(&LINKS);
            if links.reach(own, owner) {
                return true;
            }
            // Where kernels are confined, opening the memory for a copy would open it for them.
            let confined = device::all(session).get(own as usize).is_none_or(|device| device.facts.capabilities.contains_faults);
            if confined || way(session, own, owner).is_none() || links.begin_use(session, own, owner).is_err() {
                return false;
            }
            links.copies.insert((own, owner));
            true
        }
    }
}

/// Whether a copy involves memory of another device than this.
pub(crate) fn is_foreign(session: &Connection, device: u32, sides: &[&Side]) -> bool {
    device::all(session).len() > 1 && sides.iter().any(|side| device_of(side).is_some_and(|own| own != device))
}

/// Whether a copy in a stream of this device touches memory that the device does not reach.
pub(crate) fn crosses(session: &Connection, device: u32, sides: &[&Side]) -> bool {
    let far = |side: &Side| {
        device_of(side).filter(|owner| *owner != device).is_some_and(|owner| side.array.is_some() || !reaches(session, device, owner, side.address))
    };
    device::all(session).len() > 1 && sides.iter().any(|side| far(side))
}

/// Waits for all work of the contexts whose memory a copy involves: a copy between devices that has
/// no stream comes after it.
///
/// # Errors
/// As [`Connection::wait`].
pub(crate) fn drain_owners(session: &Connection, sides: &[&Side]) -> Try {
    let of = |side: &&Side| match &side.array {
        Some(array) => Some(array.context),
        None => memory::read_allocations().find(side.address).map(|known| known.context),
    };
    let owners: BTreeSet<u64> = sides.iter().filter(|side| !side.private).filter_map(of).collect();
    owners.into_iter().try_for_each(|context| context::drain_by_id(session, context))
}

/// The stream of a device for copies through the window.
fn carrier(session: &'static Connection, device: u32) -> Try<TimelineId> {
    let mut carriers = lock(&CARRIERS);
    if let Some((_, timeline)) = carriers.iter().find(|(of, _)| *of == device) {
        return Ok(*timeline);
    }
    let home = context::primary(session, device.cast_signed())?.home();
    let timeline = session.new_timeline(home.group, Role::Independent, device, 0)?;
    carriers.push((device, timeline));
    Ok(timeline)
}

/// A stream of a device, for the service's own copies.
pub(crate) fn stream_of(session: &'static Connection, device: u32) -> Try<Arc<Stream>> {
    let ordinal = device.cast_signed();
    context::primary(session, ordinal)?.legacy(session)
}

/// A copy that involves memory which the stream's device does not reach: through the window, in
/// streams of the memory's devices. It is ordered in its stream, and nobody waits for it but who
/// needs a staging slice.
///
/// # Safety
/// A private side is readable (source) or writable (target) memory of the program.
///
/// # Errors
/// As [`Connection::wait`].
pub(crate) unsafe fn copy(session: &'static Connection, stream: &Stream, transfer: &Transfer) -> Try {
    let on = |device: u32| if device == stream.device { Ok(stream.timeline) } else { carrier(session, device) };
    let begin = |timeline: TimelineId| session.hold_timeline(timeline, stream.timeline, session.point(stream.timeline)?);
    let end = |timeline: TimelineId| session.hold_timeline(stream.timeline, timeline, session.point(timeline)?);
    let (source, target) = (device_of(&transfer.source), device_of(&transfer.target));
    let (Some(from), Some(to)) = (source, target) else {
        let timeline = on(source.or(target).unwrap_or(stream.device))?;
        begin(timeline)?;
        // SAFETY: the caller vouches for private sides.
        unsafe { transfer.run(session, timeline)? };
        return end(timeline);
    };
    let (from, to) = (on(from)?, on(to)?);
    begin(from)?;
    begin(to)?;
    for band in bands(transfer.extent) {
        let slice = session.take_slice(band.bytes())?;
        let (between, extent) = (staged(slice, band), CopyExtent { width: band.width, height: band.rows, depth: 1 });
        let sent = session.push(from, &Transfer::record(between, part(&transfer.source, band), extent)).and_then(|filled| {
            session.hold_timeline(to, from, filled)?;
            session.push(to, &Transfer::record(part(&transfer.target, band), between, extent))
        });
        match sent {
            Ok(seq) => session.hold_slice_until(slice, Some((to, seq))),
            Err(code) => {
                session.hold_slice_until(slice, None);
                return Err(code);
            }
        }
    }
    end(from)?;
    end(to)
}

pub unsafe fn cuDeviceCanAccessPeer(out: *mut c_int, device: CUdevice, peer: CUdevice) -> Try {
    let session = process::find_connection()?;
    device::named(session, device)?;
    device::named(session, peer)?;
    put!(out, c_int::from(way(session, device.cast_unsigned(), peer.cast_unsigned()).is_some()));
    Ok(())
}

pub unsafe fn cuDeviceGetP2PAttribute(out: *mut c_int, attribute: CUdevice_P2PAttribute, source: CUdevice, target: CUdevice) -> Try {
    let session = process::find_connection()?;
    device::named(session, source)?;
    device::named(session, target)?;
    if source == target {
        return Err(error::INVALID_DEVICE);
    }
    let way = way(session, source.cast_unsigned(), target.cast_unsigned());
    let value = match attribute {
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => way.map_or(0, |way| way.rank),
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED => c_int::from(way.is_some()),
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => c_int::from(way.is_some_and(|way| way.atomics)),
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => c_int::from(way.is_some_and(|way| way.arrays)),
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
        _ => return Err(error::INVALID_VALUE),
    };
    put!(out, value);
    Ok(())
}

pub unsafe fn cuDeviceGetP2PAtomicCapabilities(
    capabilities: *mut c_uint,
    _operations: *const CUatomicOperation,
    count: c_uint,
    source: CUdevice,
    target: CUdevice,
) -> Try {
    let session = process::find_connection()?;
    device::named(session, source)?;
    device::named(session, target)?;
    if source == target {
        return Err(error::INVALID_DEVICE);
    }
    for index in 0..count as usize {
        put!(capabilities.wrapping_add(index), 0);
    }
    Ok(())
}

pub unsafe fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Try {
    let session = process::enter()?;
    let (own, peer) = (context::current()?, context::find(peer.addr() as u64)?);
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    if Arc::ptr_eq(&own, &peer) || !peer.is_active() {
        return Err(error::INVALID_CONTEXT);
    }
    if way(session, own.device, peer.device).is_none() {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    let mut links = lock(&LINKS);
    if links.contexts.contains(&(own.id, peer.id)) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    links.begin_use(session, own.device, peer.device)?;
    links.contexts.insert((own.id, peer.id));
    Ok(())
}

pub unsafe fn cuCtxDisablePeerAccess(peer: CUcontext) -> Try {
    let session = process::enter()?;
    let (own, peer) = (context::current()?, context::find(peer.addr() as u64)?);
    let mut links = lock(&LINKS);
    if !links.contexts.remove(&(own.id, peer.id)) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    links.end_use(session, own.device, peer.device)
}

/// The objects of a context end: nobody reaches its memory any more, and it reaches nobody's.
pub(crate) fn end_context(session: &'static Connection, ended: &context::Context) {
    let mut links = lock(&LINKS);
    let gone: Vec<(u64, u64)> = links.contexts.iter().filter(|(own, peer)| *own == ended.id || *peer == ended.id).copied().collect();
    for pair in gone {
        links.contexts.remove(&pair);
        let other = if pair.0 == ended.id { pair.1 } else { pair.0 };
        let Some(other) = context::find_by_id(other) else { continue };
        let (own, owner) = if pair.0 == ended.id { (ended.device, other.device) } else { (other.device, ended.device) };
        // A session that is lost has no links.
        let _ = links.end_use(session, own, owner);
    }
}

/// Sets the access of a device to a pool of another one.
///
/// # Errors
/// PEER_ACCESS_UNSUPPORTED where it reaches none.
pub(crate) fn set_pool_access(session: &Connection, pool: u64, owner: u32, own: u32, access: u32) -> Try {
    if way(session, own, owner).is_none() {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    let mut links = lock(&LINKS);
    let had = links.pools.contains_key(&(pool, own));
    if access == 0 {
        links.pools.remove(&(pool, own));
        return if had { links.end_use(session, own, owner) } else { Ok(()) };
    }
    if !had {
        links.begin_use(session, own, owner)?;
    }
    links.pools.insert((pool, own), access);
    Ok(())
}

/// The access of a device to a pool of another one.
pub(crate) fn pool_access(pool: u64, own: u32) -> u32 {
    lock(&LINKS).pools.get(&(pool, own)).copied().unwrap_or(0)
}
