//! Stream-ordered memory pools, kept here: a freed block stays with its pool and may be given out
//! again in stream order without asking anybody.
//!
//! A block that was freed in a stream may be taken again in the same stream at once, in another
//! when that point has been reached, or, if nothing else is to be had, by making the other stream
//! wait for it. What a pool holds beyond its release threshold goes back to the device at the next
//! synchronisation.

mod calls;

pub use calls::*;

use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error};
use crate::handle::{Kind, Table};
use crate::log::because;
use crate::shortage;
use crate::sync::lock;
use core::ffi::c_int;
use cumux_abi::CUmemoryPool;
use cumux_wire::record::Op;
use std::sync::{Arc, Mutex};

/// All pools.
pub(crate) static POOLS: Table<Pool> = Table::new(Kind::Pool);

/// Default pools and those in force, by ordinal of the device.
static DEVICE_POOLS: Mutex<Vec<OfDevice>> = Mutex::new(Vec::new());

/// Blocks are multiples of this.
const GRAIN: u64 = 512;
const ALIGN: u64 = 512;

/// A block that nobody has now.
#[derive(Debug, Clone, Copy)]
struct Cached {
    address: u64,
    bytes: u64,
    /// Where it was freed; `None` when that point is certainly behind.
    freed: Option<(TimelineId, u64)>,
}

#[derive(Debug, Default)]
struct State {
    cached: Vec<Cached>,
    /// Given out: address and bytes of the block.
    used: Vec<(u64, u64)>,
    /// Follow event dependencies, opportunistic, internal dependencies: 0 or 1 each.
    reuse: [c_int; 3],
    threshold: u64,
    reserved_now: u64,
    reserved_high: u64,
    used_now: u64,
    used_high: u64,
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// The word that the program holds.
    pub handle: u64,
    device: u32,
    /// Most bytes it may hold; 0 = no limit of its own.
    most: u64,
    origin: Origin,
    state: Mutex<State>,
}

/// Whose a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A device's default pool, which cannot be destroyed.
    Default,
    /// The program has made it.
    Made,
    /// The program has made it, and may export it under this name.
    Exportable([u64; 2]),
    /// Another program has exported it under this name; nothing can be allocated from it here.
    Imported([u64; 2]),
}

/// A device's default pool and the one in force.
#[derive(Debug, Default)]
pub struct OfDevice {
    default: Option<Arc<Pool>>,
    current: Option<Arc<Pool>>,
}

impl Pool {
    fn new(device: u32, most: u64, origin: Origin) -> Try<Arc<Self>> {
        let state = Mutex::new(State { reuse: [1; 3], ..State::default() });
        let make = |handle| Arc::new(Self { handle, device, most, origin, state });
        POOLS.insert(make).map(|(_, pool)| pool).ok_or(error::OUT_OF_MEMORY)
    }

    fn as_c(&self) -> CUmemoryPool {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// A block for work on a timeline.
    fn take_block(&self, session: &Connection, target: TimelineId, bytes: u64) -> Try<u64> {
        if let Origin::Imported(_) = self.origin {
            return Err(because(error::INVALID_VALUE, "the pool is another program's, and memory of it is imported with cuMemPoolImportPointer"));
        }
        let wanted = bytes.checked_next_multiple_of(GRAIN).ok_or(error::OUT_OF_MEMORY)?;
        let mut state = lock(&self.state);
        let ready = |block: &Cached| match block.freed {
            None => true,
            Some((timeline, seq)) => timeline.index == target.index || session.is_done(timeline, seq),
        };
        if let Some(block) = state.take_best(wanted, ready) {
            return Ok(state.hand_out(block));
        }
        if self.most != 0 && state.reserved_now + wanted > self.most {
            state.release(session, self.most.saturating_sub(wanted), |_| true)?;
            if state.reserved_now + wanted > self.most {
                return Err(error::OUT_OF_MEMORY);
            }
        }
        let op = Op::MemAlloc { device: self.device, bytes: wanted, align: ALIGN };
        let fresh = |session: &Connection| session.call(&op);
        let answer = match fresh(session) {
            Err(error::OUT_OF_MEMORY) => {
                if let Some(block) = state.take_best(wanted, |_| true).filter(|_| state.reuse[2] != 0) {
                    if let Some((timeline, seq)) = block.freed {
                        session.hold_timeline(target, timeline, seq)?;
                    }
                    return Ok(state.hand_out(block));
                }
                state.release(session, 0, |_| true)?;
                // A free takes effect when everything before it is done.
                session.drain_all()?;
                match fresh(session) {
                    Err(error::OUT_OF_MEMORY) => {
                        drop(state);
                        let others = forget_cached(session);
                        state = lock(&self.state);
                        if others {
                            session.drain_all()?;
                            fresh(session)
                        } else {
                            Err(error::OUT_OF_MEMORY)
                        }
                    }
                    other => other,
                }
            }
            other => other,
        };
        let [address, ..] = answer.inspect_err(|code| shortage::tell_shortage(session, &op, *code))?;
        state.reserved_now += wanted;
        state.reserved_high = state.reserved_high.max(state.reserved_now);
        Ok(state.hand_out(Cached { address, bytes: wanted, freed: None }))
    }

    fn put_back(&self, address: u64, freed: Option<(TimelineId, u64)>) {
        let mut state = lock(&self.state);
        if let Some(position) = state.used.iter().position(|(start, _)| *start == address) {
            let (address, bytes) = state.used.swap_remove(position);
            state.used_now -= bytes;
            state.cached.push(Cached { address, bytes, freed });
        }
    }

    /// Gives cached blocks back to the device until at most `keep` bytes are held.
    fn trim(&self, session: &Connection, keep: u64, which: impl Fn(&Cached) -> bool) -> Try {
        lock(&self.state).release(session, keep, which)
    }
}

impl State {
    /// The smallest cached block that is not much too large; it is taken out.
    fn take_best(&mut self, wanted: u64, which: impl Fn(&Cached) -> bool) -> Option<Cached> {
        let fits = |block: &Cached| block.bytes >= wanted && block.bytes <= wanted.saturating_mul(2).max(64 << 10) && which(block);
        let (position, _) = self.cached.iter().enumerate().filter(|(_, block)| fits(block)).min_by_key(|(_, block)| block.bytes)?;
        Some(self.cached.swap_remove(position))
    }

    fn hand_out(&mut self, block: Cached) -> u64 {
        self.used.push((block.address, block.bytes));
        self.used_now += block.bytes;
        self.used_high = self.used_high.max(self.used_now);
        block.address
    }

    fn release(&mut self, session: &Connection, keep: u64, which: impl Fn(&Cached) -> bool) -> Try {
        let mut position = self.cached.len();
        while position > 0 && self.reserved_now > keep {
            position -= 1;
            let Some(block) = self.cached.get(position).copied().filter(|block| which(block)) else { continue };
            self.cached.swap_remove(position);
            self.reserved_now -= block.bytes;
            // Takes effect after everything pushed so far, so also after its last use.
            session.control(&Op::MemFree { address: block.address })?;
        }
        Ok(())
    }
}

/// Whether memory of a pool may be exported.
pub(crate) fn is_exportable(pool: u64) -> bool {
    POOLS.get(pool).is_some_and(|pool| matches!(pool.origin, Origin::Exportable(_)))
}

/// At a synchronisation: what exceeds the release thresholds goes back.
pub(crate) fn settle(session: &Connection) {
    for pool in POOLS.all(|_| true) {
        let mut state = lock(&pool.state);
        let keep = state.threshold;
        if state.reserved_now > keep && !state.cached.is_empty() {
            // A session in trouble reports it by itself.
            let _ = state.release(session, keep, |block| block.freed.is_none_or(|(timeline, seq)| session.is_done(timeline, seq)));
        }
    }
}

/// Takes a block back that its holder has certainly done with.
pub(crate) fn put_back(pool: u64, address: u64) {
    if let Some(pool) = POOLS.get(pool) {
        pool.put_back(address, None);
    }
}

/// A context ended with pool memory in use: the block goes back to the device.
pub(crate) fn forget(session: &Connection, pool: u64, address: u64) {
    if let Some(pool) = POOLS.get(pool) {
        pool.put_back(address, None);
        // A session that is lost has nothing left to give back.
        let _ = pool.trim(session, 0, |block| block.address == address);
    }
}

/// Gives all cached blocks back to the device; whether there were any.
pub(crate) fn forget_cached(session: &Connection) -> bool {
    let mut any = false;
    for pool in POOLS.all(|_| true) {
        let mut state = lock(&pool.state);
        any |= !state.cached.is_empty();
        // A session in trouble reports it by itself.
        let _ = state.release(session, 0, |_| true);
    }
    any
}
