//! Functions that the device provides: `printf`, failed assertions, `malloc` and `free`; those of
//! the device runtime are [`super::runtime`]'s.
//!
//! A kernel calls them as ordinary functions. Their arguments lie in the caller's frame of local
//! memory, as the call sequence of PTX puts them there (PTX ISA, *Function declarations*); `printf`
//! and the heap follow the CUDA C++ Programming Guide (*Formatted output*, *Dynamic global memory
//! allocation*).

use super::access::{NearMemory, near_bytes, split_by_space};
use super::fault::{LaneFault, LaneResult, try_for_each_lane};
use super::interface::{Access, FaultKind, GlobalMemory, Services};
use super::printf::{self, ArgumentSource};
use super::raw::DeviceBytes;
use super::runtime::Caller;
use crate::program::code::{Intrinsic, IntrinsicKind, Order, Space};
use crate::simd::lanes::{PerLane32, PerLane64};
use cumux_device::Channel;

/// Which threads call.
pub(super) struct CallingThreads<'a> {
    pub block: [u32; 3],
    /// The block's number in the grid, x first.
    pub block_number: u64,
    pub tid: &'a [PerLane32; 3],
}

/// Longest string that is read from device memory, in bytes.
const MAX_STRING_BYTES: usize = 1 << 16;

/// Reads generic memory for one lane, byte by byte.
struct GenericReader<'a, 'b, M> {
    near: &'a mut NearMemory<'b>,
    memory: &'a mut M,
    lane: usize,
}

impl<M: GlobalMemory> GenericReader<'_, '_, M> {
    fn read_byte(&mut self, address: u64) -> LaneResult<u8> {
        let mut at = PerLane64::splat(address);
        let mask = 1 << self.lane;
        let space = split_by_space(&mut at, mask).into_iter().find(|(_, part)| *part != 0).map_or(Space::Global, |(space, _)| space);
        let offset = at.0[self.lane];
        match space {
            Space::Shared | Space::Local => Ok(near_bytes(self.near, space, offset, 1, self.lane)?[0]),
            Space::Param => {
                let byte = self.near.parameters.get(offset as usize).copied();
                byte.ok_or_else(|| LaneFault::access(FaultKind::ParamOutOfBounds, self.lane, address, 1))
            }
            _ => match DeviceBytes::find(self.memory, address, 1, Access::Load) {
                Ok(range) => Ok(range.load8(0, Order::Weak)),
                Err(fault) => Err(LaneFault::memory(fault, self.lane, address, 1)),
            },
        }
    }

    /// A string up to its zero byte; "(null)" for a null pointer.
    fn read_string(&mut self, address: u64) -> LaneResult<Vec<u8>> {
        let mut text = Vec::new();
        if address == 0 {
            return Ok(b"(null)".to_vec());
        }
        while text.len() < MAX_STRING_BYTES {
            match self.read_byte(address + text.len() as u64)? {
                0 => break,
                byte => text.push(byte),
            }
        }
        Ok(text)
    }
}

/// The arguments of one `printf`: a buffer in which each lies at a multiple of its size.
struct Arguments<'a, 'b, 'c, M> {
    reader: &'c mut GenericReader<'a, 'b, M>,
    next: u64,
    wrong: Option<LaneFault>,
}

impl<M: GlobalMemory> ArgumentSource for Arguments<'_, '_, '_, M> {
    fn next_integer(&mut self, bytes: u32) -> u64 {
        self.next = self.next.next_multiple_of(bytes.into());
        let mut value = 0;
        for n in 0..u64::from(bytes) {
            match self.reader.read_byte(self.next + n) {
                Ok(byte) => value |= u64::from(byte) << (8 * n),
                Err(wrong) => self.wrong = self.wrong.or(Some(wrong)),
            }
        }
        self.next += u64::from(bytes);
        value
    }

    fn next_string(&mut self) -> Vec<u8> {
        let address = self.next_integer(8);
        self.reader.read_string(address).unwrap_or_else(|wrong| {
            self.wrong = self.wrong.or(Some(wrong));
            Vec::new()
        })
    }
}

/// Argument `n` of the call, 0 if the call has fewer. `bytes` is at most 8.
fn load_argument(near_memory: &mut NearMemory<'_>, call: &Intrinsic, n: usize, bytes: u64, lane: usize) -> LaneResult<u64> {
    let Some(offset) = call.arguments.get(n) else { return Ok(0) };
    let offset = u64::from(near_memory.frame + offset);
    let mut all = [0; 8];
    all[..bytes as usize].copy_from_slice(near_bytes(near_memory, Space::Local, offset, bytes, lane)?);
    Ok(u64::from_le_bytes(all))
}

/// Stores what the function returns.
fn store_result(near_memory: &mut NearMemory<'_>, call: &Intrinsic, value: u64, lane: usize) -> LaneResult<()> {
    let offset = u64::from(near_memory.frame + call.result);
    let count = call.result_bytes.min(8) as usize;
    near_bytes(near_memory, Space::Local, offset, count as u64, lane)?.copy_from_slice(&value.to_le_bytes()[..count]);
    Ok(())
}

/// Performs the call for each lane of `mask`, lowest lane first.
pub(super) fn perform<M: GlobalMemory, S: Services>(
    call: &Intrinsic,
    mask: u32,
    near_memory: &mut NearMemory<'_>,
    memory: &mut M,
    services: &mut S,
    context: &CallingThreads<'_>,
    errors: &mut PerLane32,
) -> LaneResult<()> {
    try_for_each_lane(mask, |lane| match call.kind {
        IntrinsicKind::Printf => {
            let format = load_argument(near_memory, call, 0, 8, lane)?;
            let arguments = load_argument(near_memory, call, 1, 8, lane)?;
            let mut reader = GenericReader { near: &mut *near_memory, memory: &mut *memory, lane };
            let format = reader.read_string(format)?;
            let mut source = Arguments { reader: &mut reader, next: arguments, wrong: None };
            let (text, used) = printf::format(&format, &mut source);
            if let Some(wrong) = source.wrong {
                return Err(wrong);
            }
            services.print(Channel::Output, &text);
            store_result(near_memory, call, used.into(), lane)
        }
        IntrinsicKind::AssertFail => {
            let [message, file, line, function] = [(0, 8), (1, 8), (2, 4), (3, 8)].map(|(n, bytes)| load_argument(near_memory, call, n, bytes, lane));
            let (message, file, line, function) = (message?, file?, line?, function?);
            let mut reader = GenericReader { near: &mut *near_memory, memory: &mut *memory, lane };
            let mut text = |address| reader.read_string(address).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let [bx, by, bz] = context.block;
            let [tx, ty, tz] = [0, 1, 2].map(|axis| context.tid[axis].0[lane]);
            let line = format!(
                "{}:{}: {}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{}` failed.\n",
                text(file)?,
                line as u32,
                text(function)?,
                text(message)?,
            );
            services.print(Channel::Error, line.as_bytes());
            Ok(())
        }
        IntrinsicKind::Malloc => {
            let bytes = load_argument(near_memory, call, 0, 8, lane)?;
            let address = services.malloc(bytes);
            store_result(near_memory, call, address, lane)
        }
        IntrinsicKind::Free => {
            let address = load_argument(near_memory, call, 0, 8, lane)?;
            if address == 0 || services.free(address) { Ok(()) } else { Err(LaneFault::access(FaultKind::BadFree, lane, address, 0)) }
        }
        IntrinsicKind::Runtime(kind) => {
            let mut caller =
                Caller { near: &mut *near_memory, memory: &mut *memory, services: &mut *services, errors: &mut *errors, block: context.block_number, lane };
            let value = caller.perform(call, kind)?;
            store_result(near_memory, call, value, lane)
        }
    })?;
    if call.kind == IntrinsicKind::AssertFail { Err(LaneFault::plain(FaultKind::Assertion, mask)) } else { Ok(()) }
}
