//! Too little device memory: what the user is told, once.

use crate::connection::Connection;
use crate::ffi::error;
use cumux_abi::CUresult;
use cumux_wire::record::Op;
use std::sync::OnceLock;

/// Says, the first time that there is too little memory, how much there is and whose limit it is.
/// Many programs ask for as much as they can get.
pub(crate) fn tell_shortage(session: &Connection, op: &Op, code: CUresult) {
    static TOLD: OnceLock<()> = OnceLock::new();
    let (device, wanted) = match *op {
        Op::MemAlloc { device, bytes, .. } | Op::VmmCreate { device, bytes, .. } | Op::Charge { device, bytes, .. } => (device, bytes),
        _ => return,
    };
    if code != error::OUT_OF_MEMORY || !crate::log::anybody() || TOLD.set(()).is_err() {
        return;
    }
    let Ok([free, total, behind, ..]) = session.call(&Op::MemInfo { device }) else { return };
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    match session.memory_limit(device) {
        limit if limit != 0 && limit < total => crate::log::tell(format_args!(
            "out of device memory: {} were asked for, and {} are free of the {} that this program may have (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, here or in the daemon)",
            mib(wanted),
            mib(free),
            mib(limit)
        )),
        _ if (1..total).contains(&behind) => crate::log::tell(format_args!(
            "out of device memory: {} were asked for, and {} are free of the {} that the machine has for its software GPUs (CUMUX_SIM_MEMORY_BYTES for the daemon sets another number)",
            mib(wanted),
            mib(free),
            mib(behind)
        )),
        _ => crate::log::tell(format_args!("out of device memory: {} were asked for, and {} are free of the device's {}", mib(wanted), mib(free), mib(total))),
    }
}
