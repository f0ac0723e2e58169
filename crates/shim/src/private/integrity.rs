//! INTEGRITY_CHECK: the runtime asks the driver for a keyed hash of what both can see, and
//! compares.
//!
//! The hash is HMAC-MD2 (RFC 2104, RFC 1319) over 48 bytes about the process and 28 bytes about
//! each device in order. Everything in it must be what the program itself is told: version, number,
//! order, identity and place of the devices.

use super::{TableWord, driver, function, unknown_slots};
use core::ffi::c_int;
use cumux_abi::{CUdevice, CUdevice_attribute, CUresult, CUuuid};
use hmac::{Hmac, Mac as _};
use md2::Md2;

const UNKNOWN: [TableWord; 3] = unknown_slots!(IntegrityCheck; 0 1 2);

/// The table of the integrity check.
pub(super) static TABLE: [TableWord; 3] = [TableWord::size(3), function!(check), UNKNOWN[2]];

const KEY: [u8; 16] = [0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f];

/// What is hashed about the process.
struct Process {
    driver_version: u32,
    pid: u32,
    thread: u32,
    interface_table: u64,
    integrity_table: u64,
    check_function: u64,
}

/// What is hashed about a device.
struct Device {
    uuid: [u8; 16],
    /// Domain, bus, device.
    pci: [i32; 3],
}

/// Versions ending in 0 and 1 stand for fixed answers; all others are hashed.
fn answer(version: u32, seconds: u64, process: &Process, devices: &[Device]) -> [u8; 16] {
    let fixed = |first: u64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&0x8ed3_83aa_1f4c_d1e8_u64.to_le_bytes());
        bytes
    };
    match version % 10 {
        0 => return fixed(0x3341_181c_03cb_675c),
        1 => return fixed(0x1841_181c_03cb_675c),
        _ => {}
    }
    let Ok(mut hash) = Hmac::<Md2>::new_from_slice(&KEY) else {
        return [0; 16];
    };
    for word in [process.driver_version, version, process.pid, process.thread] {
        hash.update(&word.to_le_bytes());
    }
    for word in [process.interface_table, process.integrity_table, process.check_function, seconds] {
        hash.update(&word.to_le_bytes());
    }
    for device in devices {
        hash.update(&device.uuid);
        for word in device.pci {
            hash.update(&word.to_le_bytes());
        }
    }
    hash.finalize().into_bytes().into()
}

extern "C" fn check(version: u32, seconds: u64, out: *mut [u8; 16]) -> CUresult {
    crate::border::call("integrity check", || {
        if out.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let answer = answer(version, seconds, &this_process(), &visible_devices()?);
        // SAFETY: not null; the table's contract makes it writable.
        unsafe { out.cast::<[u8; 16]>().write_unaligned(answer) };
        Ok(())
    })
}

fn this_process() -> Process {
    // SAFETY: has no preconditions.
    let thread = unsafe { libc::pthread_self() };
    Process {
        driver_version: cumux_abi::DRIVER_VERSION as u32,
        pid: std::process::id(),
        // The low half, as the real one.
        thread: thread as u32,
        interface_table: super::cudart::INTERFACE.as_ptr().addr() as u64,
        integrity_table: TABLE.as_ptr().addr() as u64,
        check_function: TABLE[1].0.addr() as u64,
    }
}

fn visible_devices() -> Result<Vec<Device>, CUresult> {
    let ok = |code: CUresult| {
        if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code) }
    };
    let mut count: c_int = 0;
    ok(driver!(cuDeviceGetCount(&mut count)))?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device: CUdevice = 0;
        ok(driver!(cuDeviceGet(&mut device, ordinal)))?;
        let mut uuid = CUuuid::default();
        ok(driver!(cuDeviceGetUuid_v2(&mut uuid, device)))?;
        let mut pci = [0; 3];
        let attributes = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        ];
        for (place, attribute) in pci.iter_mut().zip(attributes) {
            ok(driver!(cuDeviceGetAttribute(place, attribute, device)))?;
        }
        devices.push(Device { uuid: uuid.bytes.map(|byte| byte as u8), pci });
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        Process {
            driver_version: 13000,
            pid: 4711,
            thread: 0x89ab_cdef,
            interface_table: 0x7f00_0000_1000,
            integrity_table: 0x7f00_0000_2000,
            check_function: 0x7f00_0000_3000,
        }
    }

    #[test]
    fn two_endings_have_fixed_answers() {
        let zero = answer(13000, 1, &process(), &[]);
        let one = answer(13001, 2, &process(), &[]);
        assert_eq!(zero[..8], 0x3341_181c_03cb_675c_u64.to_le_bytes());
        assert_eq!(one[..8], 0x1841_181c_03cb_675c_u64.to_le_bytes());
        assert_eq!(zero[8..], one[8..]);
        assert_eq!(zero[8..], 0x8ed3_83aa_1f4c_d1e8_u64.to_le_bytes());
    }

    /// The message is put together here by hand and hashed with the definition of HMAC, not with
    /// the crate's.
    #[test]
    fn other_endings_are_a_keyed_hash_of_process_and_devices() {
        use md2::Digest as _;
        let device = || Device { uuid: *b"0123456789abcdef", pci: [0, 0x41, 7] };
        let mut message = Vec::new();
        message.extend([13000_u32, 13002, 4711, 0x89ab_cdef].iter().flat_map(|word| word.to_le_bytes()));
        message.extend([0x7f00_0000_1000_u64, 0x7f00_0000_2000, 0x7f00_0000_3000, 99].iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(message.len(), 48);
        for _ in 0..2 {
            message.extend(b"0123456789abcdef");
            message.extend([0_i32, 0x41, 7].iter().flat_map(|word| word.to_le_bytes()));
        }
        assert_eq!(message.len(), 48 + 2 * 28);
        let inner = Md2::new().chain_update(KEY.map(|byte| byte ^ 0x36)).chain_update(&message).finalize();
        let outer = Md2::new().chain_update(KEY.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
        assert_eq!(answer(13002, 99, &process(), &[device(), device()])[..], outer[..]);
        assert_ne!(answer(13002, 98, &process(), &[device(), device()])[..], outer[..]);
    }

    /// Recorded from driver 580 with one device.
    #[test]
    fn the_real_driver_agrees() {
        let process = Process {
            driver_version: 13000,
            pid: 407,
            thread: 1_803_188_032,
            interface_table: 139_721_378_678_400,
            integrity_table: 139_721_378_678_368,
            check_function: 139_721_287_840_592,
        };
        let uuid = 0xe3cb_56fb_e015_265e_f6a9_6eba_52e6_e400_u128.to_be_bytes();
        let device = || [Device { uuid, pci: [0, 0, 6] }];
        let recorded = [
            (13000, 0x5c67_cb03_1c18_4133_e8d1_4c1f_aa83_d38e_u128),
            (13001, 0x5c67_cb03_1c18_4118_e8d1_4c1f_aa83_d38e),
            (13002, 0x31eb_881d_5a8e_dd4b_e898_d9b1_c290_cd9c),
            (13003, 0x6576_5162_f252_847c_bcb2_cb88_9530_2031),
        ];
        for (version, expected) in recorded {
            let seconds = 1_700_000_000 + u64::from(version);
            assert_eq!(answer(version, seconds, &process, &device()), expected.to_be_bytes(), "{version}");
        }
    }
}
