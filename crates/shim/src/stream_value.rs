//! Values in memory that a stream writes or waits for.

use crate::connection::Connection;
use crate::context;
use crate::ffi::{Try, error, list};
use crate::log::unsupported;
use crate::memory;
use crate::process;
use crate::stream::Stream;
use core::ffi::c_uint;
use cumux_abi::{CUdeviceptr, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType as Type, CUstreamWaitValue_flags, CUstreamWriteValue_flags};
use cumux_wire::record::Op;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: order remote writes; there are none.
const FLUSH: c_uint = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH.0;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`: allows less order than is kept.
const NO_BARRIER: c_uint = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER.0;

/// The address by which the executor knows a word of the program.
fn word(address: CUdeviceptr, bytes: u32) -> Try<u64> {
    if !address.is_multiple_of(u64::from(bytes)) {
        return Err(error::INVALID_VALUE);
    }
    let allocations = memory::read_allocations();
    let known = allocations.find(address).ok_or(error::INVALID_VALUE)?;
    Ok(known.wire_address(address))
}

fn wait_op(address: CUdeviceptr, value: u64, bytes: u32, flags: c_uint) -> Try<Op> {
    let condition = flags & !FLUSH;
    if condition > CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR.0 {
        return Err(error::INVALID_VALUE);
    }
    Ok(Op::ValueWait { address: word(address, bytes)?, value, bytes, condition })
}

fn write_op(address: CUdeviceptr, value: u64, bytes: u32, flags: c_uint) -> Try<Op> {
    if flags & !NO_BARRIER != 0 {
        return Err(error::INVALID_VALUE);
    }
    Ok(Op::ValueWrite { address: word(address, bytes)?, value, bytes })
}

fn send(session: &Connection, stream: &Stream, op: &Op) -> Try {
    if crate::capture::capture_op(stream, op)? {
        return Ok(());
    }
    session.push(stream.timeline, op).map(drop)
}

pub unsafe fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    send(session, &stream, &wait_op(address, u64::from(value), 4, flags)?)
}

pub unsafe fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    send(session, &stream, &wait_op(address, value, 8, flags)?)
}

pub unsafe fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    send(session, &stream, &write_op(address, u64::from(value), 4, flags)?)
}

pub unsafe fn cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    send(session, &stream, &write_op(address, value, 8, flags)?)
}

pub unsafe fn cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams, flags: c_uint) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    // Checked as a whole before the first one is sent.
    plan(params, count)?.iter().try_for_each(|op| send(session, &stream, op))
}

/// The operations of a batch, checked.
pub(crate) fn plan(params: *mut CUstreamBatchMemOpParams, count: c_uint) -> Try<Vec<Op>> {
    if count > 256 {
        return Err(error::INVALID_VALUE);
    }
    let mut ops = Vec::with_capacity(count as usize);
    for entry in list!(params.cast_const(), count as usize) {
        // SAFETY: every member of the union starts with the operation, which says which member is
        // set.
        let op = unsafe {
            match entry.operation {
                Type::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
                    let wait = entry.waitValue;
                    wait_op(wait.address, u64::from(wait.__bindgen_anon_1.value), 4, wait.flags)?
                }
                Type::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    let wait = entry.waitValue;
                    wait_op(wait.address, wait.__bindgen_anon_1.value64, 8, wait.flags)?
                }
                Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
                    let write = entry.writeValue;
                    write_op(write.address, u64::from(write.__bindgen_anon_1.value), 4, write.flags)?
                }
                Type::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    let write = entry.writeValue;
                    write_op(write.address, write.__bindgen_anon_1.value64, 8, write.flags)?
                }
                Type::CU_STREAM_MEM_OP_BARRIER | Type::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => Op::Nop,
                other => return Err(unsupported(format!("operations of type {} in a batch", other.0))),
            }
        };
        ops.push(op);
    }
    Ok(ops)
}
