//! Calls of the device runtime: reads their arguments, asks the device around ([`Services::ask`]),
//! and writes their results.
//!
//! Each thread has an error of its own, the last that one of its calls returned (CUDA C++
//! Programming Guide, *Device-side errors and launch failures*).

use super::access::{NearMemory, near_bytes, split_by_space};
use super::fault::{LaneFault, LaneResult};
use super::interface::{Access, FaultKind, GlobalMemory, Services};
use super::raw::DeviceBytes;
use super::request::{Answer, Configuration, FunctionNumbers, Request, errors};
use crate::program::code::{Intrinsic, Order, RuntimeCall, Space};
use crate::program::window;
use crate::simd::lanes::{PerLane32, PerLane64};
use cumux_device::{CopyExtent, Rows};

/// What `cudaRuntimeGetVersion` answers on a card, under driver 580 with CUDA 13.
const VERSION: u64 = 6000;
/// `cudaFuncCachePreferNone`: what devices answer whose cache and shared memory have fixed sizes
/// (CUDA Runtime API, `cudaDeviceGetCacheConfig`).
const PREFER_NONE: u64 = 0;
/// `cudaSharedMemBankSizeFourByte`: the only size since compute capability 5.
const BANKS_OF_FOUR_BYTES: u64 = 1;
/// `cudaEventDisableTiming`: the only flags with which a kernel may create an event.
const DISABLE_TIMING: u64 = 2;
/// `cudaMemcpyDeviceToDevice`.
const DEVICE_TO_DEVICE: u32 = 3;
/// `cudaMemcpyDefault`.
const ANY_DIRECTION: u32 = 4;

/// Whether an address is of memory that a grid does not share with others.
fn is_near(address: u64) -> bool {
    window::SHARED.contains(address) || window::LOCAL.contains(address) || window::PARAM.contains(address)
}

/// One thread that calls.
pub(super) struct Caller<'a, 'b, M, S> {
    pub near: &'a mut NearMemory<'b>,
    pub memory: &'a mut M,
    pub services: &'a mut S,
    pub errors: &'a mut PerLane32,
    /// The block's number in the grid.
    pub block: u64,
    pub lane: usize,
}

/// How a call ended: with a result, or an error.
type Outcome = Result<u64, u32>;

impl<M: GlobalMemory, S: Services> Caller<'_, '_, M, S> {
    /// Bytes of argument `n` from `at` on, at most 8.
    fn argument(&mut self, call: &Intrinsic, n: usize, at: u32, bytes: u64) -> LaneResult<u64> {
        let Some(offset) = call.arguments.get(n) else { return Ok(0) };
        let offset = u64::from(self.near.frame + offset + at);
        let mut all = [0; 8];
        all[..bytes as usize].copy_from_slice(near_bytes(self.near, Space::Local, offset, bytes, self.lane)?);
        Ok(u64::from_le_bytes(all))
    }

    fn wide(&mut self, call: &Intrinsic, n: usize) -> LaneResult<u64> {
        self.argument(call, n, 0, 8)
    }

    fn narrow(&mut self, call: &Intrinsic, n: usize) -> LaneResult<u32> {
        Ok(self.argument(call, n, 0, 4)? as u32)
    }

    /// An argument of the type `dim3`.
    fn size(&mut self, call: &Intrinsic, n: usize) -> LaneResult<[u32; 3]> {
        let mut size = [0; 3];
        for (at, axis) in (0..).zip(&mut size) {
            *axis = self.argument(call, n, 4 * at, 4)? as u32;
        }
        Ok(size)
    }

    /// Writes bytes where a pointer of the thread points.
    fn write(&mut self, address: u64, bytes: &[u8]) -> LaneResult<()> {
        for (n, byte) in (0u64..).zip(bytes) {
            let at = address.wrapping_add(n);
            let mut offset = PerLane64::splat(at);
            let mask = 1 << self.lane;
            let space = split_by_space(&mut offset, mask).into_iter().find(|(_, part)| *part != 0).map_or(Space::Global, |(space, _)| space);
            match space {
                Space::Shared | Space::Local => near_bytes(self.near, space, offset.0[self.lane], 1, self.lane)?[0] = *byte,
                Space::Param => return Err(LaneFault::access(FaultKind::ParamOutOfBounds, self.lane, at, 1)),
                _ => match DeviceBytes::find(self.memory, at, 1, Access::Store) {
                    Ok(range) => range.store8(0, *byte, Order::Weak),
                    Err(fault) => return Err(LaneFault::memory(fault, self.lane, at, 1)),
                },
            }
        }
        Ok(())
    }

    fn ask(&mut self, request: Request) -> Outcome {
        match self.services.ask(self.block, request)? {
            Answer::Number(number) => Ok(number),
            Answer::Done | Answer::Function(_) => Ok(0),
        }
    }

    /// Asks, and writes the answer where argument 0 points.
    fn ask_into(&mut self, call: &Intrinsic, bytes: usize, request: Request) -> LaneResult<Outcome> {
        let outcome = self.ask(request);
        self.put(call, bytes, outcome)
    }

    /// Writes a result where argument 0 points. What is left of it is success.
    fn put(&mut self, call: &Intrinsic, bytes: usize, outcome: Outcome) -> LaneResult<Outcome> {
        let address = self.wide(call, 0)?;
        match outcome {
            Ok(_) if address == 0 => Ok(Err(errors::INVALID_VALUE)),
            Ok(value) => {
                self.write(address, &value.to_le_bytes()[..bytes])?;
                Ok(Ok(0))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Performs a call. The answer is what it returns.
    pub(super) fn perform(&mut self, call: &Intrinsic, kind: RuntimeCall) -> LaneResult<u64> {
        let outcome = match kind {
            RuntimeCall::GetLastError => return Ok(u64::from(std::mem::take(&mut self.errors.0[self.lane]))),
            RuntimeCall::PeekAtLastError => return Ok(u64::from(self.errors.0[self.lane])),
            RuntimeCall::ErrorText { name } => {
                let code = self.narrow(call, 0)?;
                return Ok(self.ask(Request::Text { code, name }).unwrap_or(0));
            }
            RuntimeCall::GetParameterBuffer | RuntimeCall::GetParameterBufferV2 => {
                // Its result is an address: what went wrong is only in the thread's error.
                let answer = self.parameter_buffer(call, kind)?;
                return Ok(answer.unwrap_or_else(|error| {
                    self.errors.0[self.lane] = error;
                    0
                }));
            }
            RuntimeCall::LaunchDevice => {
                let (function, buffer) = (self.wide(call, 0)?, self.wide(call, 1)?);
                let (grid, block, shared, stream) = (self.size(call, 2)?, self.size(call, 3)?, self.narrow(call, 4)?, self.wide(call, 5)?);
                self.ask(Request::Launch { buffer, configuration: Some(Configuration { function, grid, block, shared }), stream })
            }
            RuntimeCall::LaunchDeviceV2 => {
                let (buffer, stream) = (self.wide(call, 0)?, self.wide(call, 1)?);
                self.ask(Request::Launch { buffer, configuration: None, stream })
            }
            // A card takes any flags; its streams wait for no other in any case.
            RuntimeCall::StreamCreate => self.ask_into(call, 8, Request::CreateStream)?,
            RuntimeCall::EventCreate => match self.argument(call, 1, 0, 4)? {
                DISABLE_TIMING => self.ask_into(call, 8, Request::CreateEvent)?,
                _ => Err(errors::INVALID_VALUE),
            },
            RuntimeCall::StreamDestroy => {
                let stream = self.wide(call, 0)?;
                self.ask(Request::DestroyStream(stream))
            }
            RuntimeCall::EventDestroy => {
                let event = self.wide(call, 0)?;
                self.ask(Request::DestroyEvent(event))
            }
            RuntimeCall::EventRecord => {
                let (event, stream) = (self.wide(call, 0)?, self.wide(call, 1)?);
                self.ask(Request::Record { event, stream })
            }
            RuntimeCall::StreamWaitEvent => {
                let (stream, event) = (self.wide(call, 0)?, self.wide(call, 1)?);
                self.ask(Request::Await { stream, event })
            }
            RuntimeCall::Malloc => match self.wide(call, 1)? {
                0 => Err(errors::INVALID_VALUE),
                bytes => {
                    let address = self.services.malloc(bytes);
                    self.put(call, 8, if address == 0 { Err(errors::MEMORY_ALLOCATION) } else { Ok(address) })?
                }
            },
            RuntimeCall::Free => {
                let address = self.wide(call, 0)?;
                if address != 0 && !self.services.free(address) {
                    return Err(LaneFault::access(FaultKind::BadFree, self.lane, address, 0));
                }
                Ok(0)
            }
            RuntimeCall::Memcpy | RuntimeCall::Memcpy2D => self.copy(call, kind)?,
            RuntimeCall::Memset | RuntimeCall::Memset2D => self.set(call, kind)?,
            RuntimeCall::DeviceGetAttribute => {
                let (attribute, device) = (self.narrow(call, 1)?.cast_signed(), self.narrow(call, 2)?);
                self.ask_into(call, 4, Request::Attribute { attribute, device })?
            }
            RuntimeCall::GetDevice => self.ask_into(call, 4, Request::OwnDevice)?,
            RuntimeCall::GetDeviceCount => self.ask_into(call, 4, Request::DeviceCount)?,
            RuntimeCall::DeviceGetLimit => {
                let limit = self.narrow(call, 1)?;
                self.ask_into(call, 8, Request::Limit(limit))?
            }
            RuntimeCall::RuntimeGetVersion => self.put(call, 4, Ok(VERSION))?,
            RuntimeCall::FuncGetAttributes => self.attributes(call)?,
            RuntimeCall::Occupancy => {
                let (function, threads, shared) = (self.wide(call, 1)?, self.narrow(call, 2)?, self.wide(call, 3)?);
                match u32::try_from(shared) {
                    Ok(shared) => self.ask_into(call, 4, Request::Occupancy { function, threads, shared })?,
                    Err(_) => Err(errors::INVALID_VALUE),
                }
            }
            RuntimeCall::CacheConfig => self.put(call, 4, Ok(PREFER_NONE))?,
            RuntimeCall::SharedMemoryConfig => self.put(call, 4, Ok(BANKS_OF_FOUR_BYTES))?,
        };
        Ok(match outcome {
            Ok(_) => 0,
            Err(error) => {
                self.errors.0[self.lane] = error;
                error.into()
            }
        })
    }

    fn parameter_buffer(&mut self, call: &Intrinsic, kind: RuntimeCall) -> LaneResult<Outcome> {
        if kind == RuntimeCall::GetParameterBuffer {
            let bytes = self.wide(call, 1)?;
            return Ok(self.ask(Request::Buffer { configuration: None, bytes }));
        }
        let function = self.wide(call, 0)?;
        let (grid, block, shared) = (self.size(call, 1)?, self.size(call, 2)?, self.narrow(call, 3)?);
        Ok(self.ask(Request::Buffer { configuration: Some(Configuration { function, grid, block, shared }), bytes: 0 }))
    }

    fn copy(&mut self, call: &Intrinsic, kind: RuntimeCall) -> LaneResult<Outcome> {
        let direction = self.narrow(call, if kind == RuntimeCall::Memcpy { 3 } else { 6 })?;
        if direction != DEVICE_TO_DEVICE && direction != ANY_DIRECTION {
            return Ok(Err(errors::INVALID_DIRECTION));
        }
        let (target, source, extent, stream) = if kind == RuntimeCall::Memcpy {
            let (target, source, width) = (self.wide(call, 0)?, self.wide(call, 1)?, self.wide(call, 2)?);
            let rows = |address| Rows { address, pitch: 0, slice: 0 };
            (rows(target), rows(source), CopyExtent { width, height: 1, depth: 1 }, self.wide(call, 4)?)
        } else {
            let target = Rows { address: self.wide(call, 0)?, pitch: self.wide(call, 1)?, slice: 0 };
            let source = Rows { address: self.wide(call, 2)?, pitch: self.wide(call, 3)?, slice: 0 };
            let extent = CopyExtent { width: self.wide(call, 4)?, height: self.wide(call, 5)?, depth: 1 };
            if extent.width > target.pitch || extent.width > source.pitch {
                return Ok(Err(errors::INVALID_PITCH));
            }
            (target, source, extent, self.wide(call, 7)?)
        };
        if is_near(target.address) || is_near(source.address) {
            return Ok(Err(errors::INVALID_VALUE));
        }
        Ok(self.ask(Request::Copy { target, source, extent, stream }))
    }

    fn set(&mut self, call: &Intrinsic, kind: RuntimeCall) -> LaneResult<Outcome> {
        let address = self.wide(call, 0)?;
        let (pitch, value, extent, stream) = if kind == RuntimeCall::Memset {
            let (value, width) = (self.narrow(call, 1)?, self.wide(call, 2)?);
            (0, value, CopyExtent { width, height: 1, depth: 1 }, self.wide(call, 3)?)
        } else {
            let (pitch, value) = (self.wide(call, 1)?, self.narrow(call, 2)?);
            let extent = CopyExtent { width: self.wide(call, 3)?, height: self.wide(call, 4)?, depth: 1 };
            if extent.width > pitch {
                return Ok(Err(errors::INVALID_PITCH));
            }
            (pitch, value, extent, self.wide(call, 5)?)
        };
        if is_near(address) {
            return Ok(Err(errors::INVALID_VALUE));
        }
        Ok(self.ask(Request::Set { target: Rows { address, pitch, slice: 0 }, value: value as u8, extent, stream }))
    }

    fn attributes(&mut self, call: &Intrinsic) -> LaneResult<Outcome> {
        let (address, function) = (self.wide(call, 0)?, self.wide(call, 1)?);
        match self.services.ask(self.block, Request::Function(function)) {
            Ok(Answer::Function(FunctionNumbers { bytes, numbers })) => {
                let all = [bytes.map(u64::to_le_bytes).concat(), numbers.map(u32::to_le_bytes).concat()].concat();
                self.write(address, &all)?;
                Ok(Ok(0))
            }
            Ok(_) => Ok(Err(errors::NOT_SUPPORTED)),
            Err(error) => Ok(Err(error)),
        }
    }
}
