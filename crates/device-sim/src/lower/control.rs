//! Branches, calls, and the ends of threads.

use super::body::Lowerer;
use super::error::{Lowered, Trouble, reject};
use super::plan;
use super::registers::Class;
use crate::program::code::{Base, Intrinsic, IntrinsicKind, MemoryOp, Op, Order, RuntimeCall, Space};
use crate::simd::alu::{self, Alu};
use crate::simd::lanes::NO_SLOT;
use crate::simd::ops::integer;
use cumux_ptx::ast::{Call, CallTarget, Function, FunctionKind, Instruction, Opcode as O, Operand, Param, RegId, ScalarType as T};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let op = match (i.opcode, i.operands.as_slice()) {
        (O::Bra, [Operand::Label(label)]) => {
            let at = lowerer.emit(Op::Branch(u32::MAX));
            lowerer.fixups.push((at, *label));
            return Ok(());
        }
        (O::Brx, [index, Operand::BranchTable(table)]) => {
            let index = lowerer.lower_source32(index, T::U32)?;
            let at = lowerer.emit(Op::BranchTable { index, table: u32::MAX });
            lowerer.table_fixups.push((at, lowerer.tree.branch_tables[table.index()].targets.clone()));
            return Ok(());
        }
        (O::Call, [Operand::Call(target)]) => return lower_call(lowerer, target),
        (O::Ret, _) => {
            epilogue(lowerer)?;
            Op::Return
        }
        (O::Exit, _) => Op::Exit,
        (O::Trap, _) => Op::Trap,
        (O::Brkpt, _) => Op::Breakpoint,
        (O::Nanosleep, _) => Op::Pause,
        (O::Pmevent | O::Griddepcontrol | O::Setmaxnreg, _) => Op::Nothing,
        _ => return reject("this is not a branch"),
    };
    lowerer.emit(op);
    Ok(())
}

/// An access of one value in the frame.
fn frame_access(slot: u16, wide: bool, ty: T, offset: u32) -> Box<MemoryOp> {
    let mut data = [NO_SLOT; 8];
    data[0] = slot;
    let bytes = ty.bytes() as u8;
    Box::new(MemoryOp { space: Space::Frame, base: Base::None, offset: offset.into(), bytes, count: 1, data, wide, sign: 0, order: Order::Weak })
}

/// Stores a value in the frame. A predicate is a byte there, 0 or 1.
fn store_in_frame(lowerer: &mut Lowerer<'_>, operand: &Operand, ty: T, offset: u32) -> Lowered {
    let slot = if ty == T::Pred {
        let (p, negated) = lowerer.lower_predicate(operand)?;
        let (d, zero, one) = (lowerer.new_temporary32(), lowerer.intern_constant32(0), lowerer.intern_constant32(1));
        let (a, b) = if negated { (zero, one) } else { (one, zero) };
        lowerer.emit_always(Op::Alu(Alu { d, a, b, c: p, ..Alu::new(alu::select::<u32>()) }));
        d
    } else {
        lowerer.lower_source(operand, ty)?
    };
    lowerer.emit(Op::Store(frame_access(slot, ty.bits() > 32, ty, offset)));
    Ok(())
}

/// Loads a register from the frame, as [`store_in_frame`] has stored it.
fn load_from_frame(lowerer: &mut Lowerer<'_>, register: RegId, ty: T, offset: u32) -> Lowered {
    if ty != T::Pred {
        let wide = ty.bits() > 32;
        let slot = lowerer.lower_target(&Operand::Reg(register), ty)?;
        lowerer.emit(Op::Load(frame_access(slot, wide, ty, offset)));
        return Ok(());
    }
    let d = lowerer.expect_register(register, Class::Predicate)?;
    let (a, zero) = (lowerer.new_temporary32(), lowerer.intern_constant32(0));
    lowerer.emit(Op::Load(frame_access(a, false, ty, offset)));
    lowerer.emit_alu(Alu { d, a, b: zero, ..Alu::new(alu::test2::<integer::Ne<u32>>()) });
    Ok(())
}

/// Where the components of a parameter lie that begins at `offset`; one if it is no vector.
fn component_offsets(param: &Param, offset: u32) -> impl Iterator<Item = u32> {
    let (components, bytes) = (u32::from(param.vector), param.ty.bytes());
    (0..components).map(move |n| offset + n * bytes)
}

/// Loads parameters that are declared as registers out of the frame, at a function's beginning.
pub(super) fn prologue(lowerer: &mut Lowerer<'_>, function: &Function) -> Lowered {
    if function.kind == FunctionKind::Entry {
        return Ok(());
    }
    for (param, at) in function.params.iter().zip(&lowerer.own.params) {
        for (register, at) in param.registers().zip(component_offsets(param, *at)) {
            load_from_frame(lowerer, register, param.ty, at)?;
        }
    }
    Ok(())
}

/// Stores results that are declared as registers in the frame, at a function's end.
fn epilogue(lowerer: &mut Lowerer<'_>) -> Lowered {
    let function = lowerer.plan.module.function(lowerer.function);
    if function.kind == FunctionKind::Entry {
        return Ok(());
    }
    for (param, at) in function.returns.iter().zip(&lowerer.own.returns) {
        for (register, at) in param.registers().zip(component_offsets(param, *at)) {
            store_in_frame(lowerer, &Operand::Reg(register), param.ty, at)?;
        }
    }
    Ok(())
}

/// The function of the device runtime with a name. Its functions have had a prefix since CUDA 12,
/// and a suffix where a program asks for a default stream for each thread.
pub(super) fn runtime_call(name: &str) -> Option<RuntimeCall> {
    use RuntimeCall as C;
    let plain = name.strip_prefix("__cudaCDP2").or_else(|| name.strip_prefix("cuda"))?;
    Some(match plain.strip_suffix("_ptsz").unwrap_or(plain) {
        "GetParameterBuffer" => C::GetParameterBuffer,
        "GetParameterBufferV2" => C::GetParameterBufferV2,
        "LaunchDevice" => C::LaunchDevice,
        "LaunchDeviceV2" => C::LaunchDeviceV2,
        "StreamCreateWithFlags" => C::StreamCreate,
        "StreamDestroy" => C::StreamDestroy,
        "StreamWaitEvent" => C::StreamWaitEvent,
        "EventCreateWithFlags" => C::EventCreate,
        "EventRecord" | "EventRecordWithFlags" => C::EventRecord,
        "EventDestroy" => C::EventDestroy,
        "GetLastError" => C::GetLastError,
        "PeekAtLastError" => C::PeekAtLastError,
        "GetErrorName" => C::ErrorText { name: true },
        "GetErrorString" => C::ErrorText { name: false },
        "Malloc" => C::Malloc,
        "Free" => C::Free,
        "MemcpyAsync" => C::Memcpy,
        "Memcpy2DAsync" => C::Memcpy2D,
        "MemsetAsync" => C::Memset,
        "Memset2DAsync" => C::Memset2D,
        "GetDevice" => C::GetDevice,
        "GetDeviceCount" => C::GetDeviceCount,
        "DeviceGetAttribute" => C::DeviceGetAttribute,
        "DeviceGetLimit" => C::DeviceGetLimit,
        "FuncGetAttributes" => C::FuncGetAttributes,
        "RuntimeGetVersion" => C::RuntimeGetVersion,
        "OccupancyMaxActiveBlocksPerMultiprocessor" | "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags" => C::Occupancy,
        "DeviceGetCacheConfig" => C::CacheConfig,
        "DeviceGetSharedMemConfig" => C::SharedMemoryConfig,
        _ => return None,
    })
}

/// With which a kernel says how a graph goes on.
pub(super) const SETS_CONDITION: &str = "cudaGraphSetConditional";

/// A call of [`SETS_CONDITION`], whose arguments lie in the frame: the handle of a condition is the
/// address of its value.
fn set_condition(lowerer: &mut Lowerer<'_>, frame: u32, params: &[u32]) -> Lowered {
    let &[handle, value] = params else { return reject("cudaGraphSetConditional has two parameters") };
    let (address, written) = (lowerer.new_temporary64(), lowerer.new_temporary32());
    lowerer.emit(Op::Load(frame_access(address, true, T::U64, frame + handle)));
    lowerer.emit(Op::Load(frame_access(written, false, T::U32, frame + value)));
    let mut data = [NO_SLOT; 8];
    data[0] = written;
    let (space, base) = (Space::Global, Base::Wide(address));
    lowerer.emit(Op::Store(Box::new(MemoryOp { space, base, offset: 0, bytes: 4, count: 1, data, wide: false, sign: 0, order: Order::Weak })));
    Ok(())
}

/// The function that the device provides under a name.
fn intrinsic(name: &str) -> Option<IntrinsicKind> {
    Some(match name {
        "vprintf" => IntrinsicKind::Printf,
        "__assertfail" => IntrinsicKind::AssertFail,
        "malloc" => IntrinsicKind::Malloc,
        "free" => IntrinsicKind::Free,
        _ => IntrinsicKind::Runtime(runtime_call(name)?),
    })
}

/// `call` (PTX ISA, *call*).
fn lower_call(lowerer: &mut Lowerer<'_>, call: &Call) -> Lowered {
    let module = lowerer.plan.module;
    let (params, returns, _) = plan::callee_offsets(module, lowerer.tree, call);
    let (param_list, return_list) = plan::callee_signature(module, lowerer.tree, call);
    if call.args.len() > param_list.len() || call.returns.len() > return_list.len() {
        return reject("more arguments or results than what is called declares");
    }
    let frame = lowerer.own.frame;
    // Arguments in registers and literals are written where the callee expects them.
    for ((operand, param), at) in call.args.iter().zip(param_list).zip(&params) {
        match operand {
            Operand::Symbol { .. } => {}
            Operand::Vector(parts) => {
                for (part, at) in parts.iter().zip(component_offsets(param, frame + at)) {
                    store_in_frame(lowerer, part, param.ty, at)?;
                }
            }
            _ => store_in_frame(lowerer, operand, param.ty, frame + at)?,
        }
    }
    match call.target {
        CallTarget::Function(id) => {
            let id = lowerer.plan.target(id);
            let function = module.function(id);
            if function.body.is_some() {
                lowerer.emit(Op::Call(id.0));
            } else {
                if &*function.name == SETS_CONDITION {
                    return set_condition(lowerer, frame, &params);
                }
                let Some(kind) = intrinsic(&function.name) else {
                    if function.name.starts_with("cuda") || function.name.starts_with("__cuda") {
                        return Err(Trouble::Named(format!("{}: this function of the device runtime", function.name)));
                    }
                    return Err(Trouble::Named(format!("a call of {}, which is in another module: device code is not linked (nvcc -rdc=true)", function.name)));
                };
                let call = Intrinsic {
                    kind,
                    arguments: params.iter().map(|at| frame + at).collect(),
                    result: frame + returns.first().copied().unwrap_or(0),
                    result_bytes: return_list.first().map_or(0, |r| r.size as u32),
                };
                lowerer.emit(Op::Intrinsic(Box::new(call)));
            }
        }
        CallTarget::Register(register) => {
            let target = lowerer.expect_register(register, Class::Wide)?;
            let at = lowerer.emit(Op::CallIndirect { target, returns_to: 0 });
            let next = at as u32 + 1;
            if let Op::CallIndirect { returns_to, .. } = &mut lowerer.insts[at].op {
                *returns_to = next;
            }
        }
    }
    for ((operand, param), at) in call.returns.iter().zip(return_list).zip(&returns) {
        let parts = if let Operand::Vector(parts) = operand { parts.as_slice() } else { std::slice::from_ref(operand) };
        for (part, at) in parts.iter().zip(component_offsets(param, frame + at)) {
            if let Operand::Reg(register) = part {
                load_from_frame(lowerer, *register, param.ty, at)?;
            }
        }
    }
    Ok(())
}
