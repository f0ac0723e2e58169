//! The `cuDevice…` calls.

use super::{all, named};
use crate::ffi::{Try, error, fill_text, name, put};
use crate::{context, process};
use core::ffi::{c_char, c_int, c_uint};
use cumux_abi::{CUarray_format, CUdevice, CUdevice_attribute, CUdevprop, CUexecAffinityType, CUuuid};
use cumux_wire::message::DeviceFacts;

pub unsafe fn cuDeviceGetCount(count: *mut c_int) -> Try {
    let session = process::find_connection()?;
    put!(count, c_int::try_from(all(session).len()).unwrap_or(c_int::MAX));
    Ok(())
}

pub unsafe fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> Try {
    named(process::find_connection()?, ordinal)?;
    put!(device, ordinal);
    Ok(())
}

pub unsafe fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) -> Try {
    let session = process::find_connection()?;
    let known = named(session, device)?.attribute(attribute).ok_or(error::INVALID_VALUE)?;
    // Of the multiprocessors a program sees its share.
    put!(
        value,
        if attribute == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT {
            context::seen_multiprocessors(session, device.cast_unsigned()).cast_signed()
        } else {
            known
        }
    );
    Ok(())
}

pub unsafe fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice) -> Try {
    let device = named(process::find_connection()?, device)?;
    let bytes = usize::try_from(bytes).map_err(|_| error::INVALID_VALUE)?;
    // SAFETY: the program vouches for its buffer.
    unsafe { fill_text(name, bytes, device.facts.name.as_bytes()) }
}

pub unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> Try {
    let bytes = named(process::find_connection()?, device)?.facts.uuid;
    put!(uuid.cast::<[u8; 16]>(), bytes);
    Ok(())
}

pub unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> Try {
    let total = named(process::find_connection()?, device)?.facts.memory;
    put!(bytes, usize::try_from(total).unwrap_or(usize::MAX));
    Ok(())
}

pub unsafe fn cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) -> Try {
    let total = named(process::find_connection()?, device)?.facts.memory;
    put!(bytes, c_uint::try_from(total).unwrap_or(c_uint::MAX));
    Ok(())
}

pub unsafe fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) -> Try {
    let device = named(process::find_connection()?, device)?;
    let of = |attribute: CUdevice_attribute| device.attribute(attribute).ok_or(error::INVALID_VALUE);
    put!(major, of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?);
    put!(minor, of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?);
    Ok(())
}

pub unsafe fn cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice) -> Try {
    let device = named(process::find_connection()?, device)?;
    let of = |attribute: CUdevice_attribute| device.attribute(attribute).unwrap_or(0);
    let limit = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let limits = &device.limits;
    put!(
        properties,
        CUdevprop {
            maxThreadsPerBlock: limit(limits.threads_per_block),
            maxThreadsDim: limits.block.map(limit),
            maxGridSize: limits.grid.map(limit),
            sharedMemPerBlock: limit(limits.shared_per_block),
            totalConstantMemory: of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
            SIMDWidth: limit(limits.warp),
            memPitch: of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
            regsPerBlock: limit(limits.registers_per_block),
            clockRate: of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
            textureAlign: of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
        }
    );
    Ok(())
}

fn bus_id(facts: &DeviceFacts) -> String {
    let [domain, bus, device] = facts.pci;
    format!("{domain:04X}:{bus:02X}:{device:02X}.0")
}

pub unsafe fn cuDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: CUdevice) -> Try {
    let device = named(process::find_connection()?, device)?;
    let bytes = usize::try_from(bytes).map_err(|_| error::INVALID_VALUE)?;
    // SAFETY: the program vouches for its buffer.
    unsafe { fill_text(text, bytes, bus_id(&device.facts).as_bytes()) }
}

/// `[domain]:[bus]:[device].[function]`, where domain and function may be missing; hexadecimal.
fn parse_bus_id(text: &str) -> Option<[u32; 3]> {
    let text = text.split('.').next()?;
    let parts: Vec<u32> = text.split(':').map(|part| u32::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    match parts[..] {
        [domain, bus, device] => Some([domain, bus, device]),
        [bus, device] => Some([0, bus, device]),
        _ => None,
    }
}

pub unsafe fn cuDeviceGetByPCIBusId(device: *mut CUdevice, text: *const c_char) -> Try {
    let session = process::find_connection()?;
    let wanted = parse_bus_id(name!(text)).ok_or(error::INVALID_VALUE)?;
    let index = all(session).iter().position(|device| device.facts.pci == wanted).ok_or(error::INVALID_DEVICE)?;
    put!(device, CUdevice::try_from(index).map_err(|_| error::INVALID_DEVICE)?);
    Ok(())
}

pub unsafe fn cuDeviceGetExecAffinitySupport(supported: *mut c_int, kind: CUexecAffinityType, device: CUdevice) -> Try {
    named(process::find_connection()?, device)?;
    put!(supported, c_int::from(kind == CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT));
    Ok(())
}

pub unsafe fn cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, _format: CUarray_format, _channels: c_uint, device: CUdevice) -> Try {
    let device = named(process::find_connection()?, device)?;
    let value = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH).unwrap_or(0);
    put!(width, usize::try_from(value).unwrap_or(0));
    Ok(())
}

pub unsafe fn cuDeviceGetHostAtomicCapabilities(
    capabilities: *mut c_uint,
    _operations: *const cumux_abi::CUatomicOperation,
    count: c_uint,
    device: CUdevice,
) -> Try {
    named(process::find_connection()?, device)?;
    if capabilities.is_null() || count == 0 {
        return Err(error::INVALID_VALUE);
    }
    for index in 0..count as usize {
        // No atomic of the device is promised to be one for the host as well.
        put!(capabilities.wrapping_add(index), 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids_are_read_as_written() {
        let facts = DeviceFacts {
            id: "sim:test".into(),
            name: "Test".into(),
            uuid: [1; 16],
            pci: [0, 0x3B, 0],
            memory: 1 << 30,
            attributes: cumux_wire::facts::Attributes::default(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        };
        assert_eq!(bus_id(&facts), "0000:3B:00.0");
        assert_eq!(parse_bus_id("0000:3B:00.0"), Some([0, 0x3B, 0]));
        assert_eq!(parse_bus_id("3b:00"), Some([0, 0x3B, 0]));
        assert_eq!(parse_bus_id("nonsense"), None);
    }
}
