//! Faults as a client gets them: a result code and a sentence.

use cumux_device::Fault;
use cumux_wire::result;

use crate::exec::interface::{self, FaultKind, MemoryFault};

/// The result code for what a thread did wrong.
fn result_code(kind: FaultKind) -> u32 {
    match kind {
        FaultKind::Global(_) | FaultKind::SharedOutOfBounds | FaultKind::LocalOutOfBounds | FaultKind::ParamOutOfBounds => result::ILLEGAL_ADDRESS,
        FaultKind::SurfaceOutOfBounds | FaultKind::BadTexture => result::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => result::MISALIGNED_ADDRESS,
        FaultKind::Assertion => result::ASSERT,
        FaultKind::IllegalInstruction => result::ILLEGAL_INSTRUCTION,
        FaultKind::StackOverflow => result::HARDWARE_STACK_ERROR,
        FaultKind::BadCall => result::INVALID_PC,
        FaultKind::Trap | FaultKind::Breakpoint | FaultKind::BadFree | FaultKind::Deadlock => result::LAUNCH_FAILED,
    }
}

/// What a fault's text says where a real card would not have noticed.
const HINT: &str = "; a real card checks whole granules only and goes on with whatever is there: a device such as sim:h200:granule does so, too";

/// A fault of a kernel's thread. `hidden`: a real card would not have noticed it.
pub(crate) fn thread_fault(fault: &interface::Fault, hidden: bool) -> Fault {
    let hint = if hidden { HINT } else { "" };
    Fault { result: result_code(fault.kind), text: format!("{fault}{hint}") }
}

/// A copy, a set or a value write was refused an address.
pub(crate) fn transfer_fault(address: u64, fault: MemoryFault) -> Fault {
    Fault { result: result::ILLEGAL_ADDRESS, text: format!("illegal address {address:#x} of a copy or set: {}", FaultKind::Global(fault).describe()) }
}

/// The address of a set or of a value write is not aligned.
pub(crate) fn misaligned_transfer_fault(address: u64) -> Fault {
    Fault { result: result::MISALIGNED_ADDRESS, text: format!("misaligned address {address:#x} of a set or value write") }
}
