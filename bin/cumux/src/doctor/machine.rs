//! What the machine and this shell's limits allow.

use super::{Finding, container};
use crate::device::{self, DeviceName};
use cumux_device_cuda::survey::{self, Verdict};
use cumux_wire::cuda::{ComputeMode, DeviceAttribute};
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Address ranges that every client reserves: 32 TiB of device memory and its window.
const RESERVED: u64 = 33 << 40;
/// Descriptors that a served program needs besides its own.
const DESCRIPTORS: u64 = 64;

pub fn findings() -> Vec<Finding> {
    vec![
        gpu(container::is_in_group()),
        other_mps(),
        address_space(),
        descriptors(),
        overcommit(fs::read_to_string("/proc/sys/vm/overcommit_memory").ok().as_deref()),
        mappings(),
        proc(),
    ]
}

/// `group`: programs are in a group, whose daemon has the devices. A container or a job has none,
/// or has files of devices without a driver.
fn gpu(group: bool) -> Finding {
    let check = "device";
    if group {
        return Finding::ok(check, "the daemon's: a program of a group needs none of its own");
    }
    let asked = std::env::var(device::VARIABLE).ok().filter(|text| !text.is_empty());
    match (asked.as_deref().map(device::parse_list), device::has_gpu()) {
        (Some(Err(error)), _) => Finding::problem(check, format!("{}: {error}", device::VARIABLE), "set it to a device of this machine, or unset it"),
        (Some(Ok(devices)), _) => match devices.as_slice() {
            [DeviceName::Cuda(ordinal)] => card(*ordinal),
            [DeviceName::Cuda(_), ..] => all_cards(&devices),
            devices => all_software(devices),
        },
        (None, false) => {
            Finding::warning(check, "no NVIDIA GPU (no /dev/nvidia*)", "cumux run and demo use the software GPU; for the daemon say --device sim:h200")
        }
        (None, true) => match device::default_device() {
            Ok(DeviceName::Cuda(ordinal)) => card(ordinal),
            Ok(device) => Finding::ok(check, device.to_string()),
            Err(error) => Finding::warning(check, error.to_string(), "cumux run and demo use the software GPU; for the daemon say --device sim:h200"),
        },
    }
}

/// For several software GPUs: the finding of the first that is not usual.
fn all_software(devices: &[DeviceName]) -> Finding {
    let unusual = devices.iter().map(|device| software(&device.to_string())).find(|finding| finding.outcome != super::Outcome::Ok);
    unusual.unwrap_or_else(|| Finding::ok("device", format!("{}, by {}", device::list(devices), device::VARIABLE)))
}

/// A software GPU; its environment may set a compute mode.
fn software(name: &str) -> Finding {
    let check = "device";
    let (shown, plain) = (format!("{name}, by {}", device::VARIABLE), cumux_device_sim::kind(name));
    let mode = crate::processes::facts(name).first().map_or(0, |facts| facts.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
    match ComputeMode(mode.cast_unsigned()) {
        ComputeMode::CU_COMPUTEMODE_PROHIBITED => {
            Finding::problem(check, format!("{shown}: in PROHIBITED compute mode nobody may use it"), format!("{}={plain}", device::VARIABLE))
        }
        ComputeMode::CU_COMPUTEMODE_EXCLUSIVE_PROCESS => Finding::warning(
            check,
            format!("{shown}: there will be no standby, a takeover starts from cold"),
            format!("in EXCLUSIVE_PROCESS mode one process alone may use it; {}={plain} lets a standby be kept ready", device::VARIABLE),
        ),
        _ => Finding::ok(check, shown),
    }
}

/// For several real cards: the finding of the first that is not usual.
fn all_cards(devices: &[DeviceName]) -> Finding {
    let cards = devices.iter().filter_map(|device| match device {
        DeviceName::Cuda(ordinal) => Some(card(*ordinal)),
        DeviceName::Sim(_) => None,
    });
    let unusual = cards.into_iter().find(|finding| finding.outcome != super::Outcome::Ok);
    unusual.unwrap_or_else(|| Finding::ok("device", format!("{}, by {}", device::list(devices), device::VARIABLE)))
}

/// A real card, as far as it can be judged without using it.
fn card(ordinal: u32) -> Finding {
    let check = "device";
    match survey::judge(ordinal, &survey::cards()) {
        Verdict::Good(found) => Finding::ok(check, found),
        Verdict::Limited(found, remedy) => Finding::warning(check, found, remedy),
        Verdict::Unusable(found, remedy) => Finding::problem(check, found, remedy),
    }
}

/// NVIDIA's own MPS on the same machine: harmless in another directory, but a card in a mode for
/// one process belongs to it alone.
fn other_mps() -> Finding {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found: Vec<u32> = processes.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_nvidias_server(&line))).collect();
    other_mps_of(&found)
}

fn other_mps_of(found: &[u32]) -> Finding {
    let check = "other MPS";
    match found {
        [] => Finding::ok(check, "none runs"),
        [pid, ..] => Finding::warning(
            check,
            format!("NVIDIA's own MPS server runs (pid {pid}): programs that find its daemon go there, and a card in EXCLUSIVE_PROCESS mode is its alone"),
            "end it: echo quit | nvidia-cuda-mps-control, with NVIDIA's program and its CUDA_MPS_PIPE_DIRECTORY",
        ),
    }
}

/// Whether this is a command line of NVIDIA's server. Ours under that name has `--pipe` or one of
/// our own commands behind it.
fn is_nvidias_server(command_line: &[u8]) -> bool {
    let mut words = command_line.split(|byte| *byte == 0);
    let name = words.next().and_then(|path| path.rsplit(|byte| *byte == b'/').next());
    name == Some(b"nvidia-cuda-mps-server") && !words.any(|word| word == b"--pipe" || word == b"server")
}

fn address_space() -> Finding {
    let check = "address space";
    match getrlimit(Resource::As).current {
        Some(limit) if limit < RESERVED => Finding::problem(
            check,
            format!("limited to {} GiB, and a client reserves {} TiB of addresses (no memory)", limit >> 30, RESERVED >> 40),
            "ulimit -v unlimited; limit memory with a cgroup instead",
        ),
        _ => Finding::ok(check, "not limited"),
    }
}

fn descriptors() -> Finding {
    let check = "open files";
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < DESCRIPTORS => Finding::problem(check, format!("at most {limit}"), "ulimit -n 1024"),
        Some(limit) => Finding::ok(check, format!("at most {limit}")),
        None => Finding::ok(check, "not limited"),
    }
}

fn overcommit(setting: Option<&str>) -> Finding {
    let check = "overcommit";
    match setting.map(str::trim) {
        Some("2") => Finding::warning(
            check,
            "vm.overcommit_memory is 2: memory that is only reserved may be refused",
            "if programs fail with out of memory: sysctl vm.overcommit_memory=0",
        ),
        Some(value) => Finding::ok(check, format!("vm.overcommit_memory is {value}")),
        None => Finding::not_tested(check, "cannot be read"),
    }
}

fn mappings() -> Finding {
    let check = "mappings";
    match fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(count) if count < 16_384 => {
            Finding::warning(check, format!("vm.max_map_count is {count}"), "for programs with many allocations: sysctl vm.max_map_count=65530")
        }
        Some(count) => Finding::ok(check, format!("vm.max_map_count is {count}")),
        None => Finding::not_tested(check, "cannot be read"),
    }
}

/// Whether `/proc` is mounted: the service finds its own program and its clients' names there.
fn proc() -> Finding {
    match fs::read_link("/proc/self/exe") {
        Ok(_) => Finding::ok("/proc", "mounted"),
        Err(error) => Finding::problem("/proc", format!("cannot be read: {error}"), "mount -t proc proc /proc (in a container: do not hide it)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Outcome;

    #[test]
    fn nvidias_server_is_told_from_ours() {
        assert!(is_nvidias_server(b"nvidia-cuda-mps-server\0"));
        assert!(is_nvidias_server(b"/usr/bin/nvidia-cuda-mps-server\0-force-tegra\0"));
        assert!(!is_nvidias_server(b"/opt/bin/nvidia-cuda-mps-server\0--pipe\0/p\0"));
        assert!(!is_nvidias_server(b"/opt/bin/nvidia-cuda-mps-control\0server\0--pipe\0/p\0"));
        assert!(!is_nvidias_server(b""));
        assert_eq!(other_mps_of(&[]).outcome, Outcome::Ok);
        assert!(other_mps_of(&[77]).found.contains("77"));
    }

    #[test]
    fn the_compute_mode_of_a_software_gpu_has_its_sentence() {
        let of = |name| software(name);
        assert_eq!((of("sim:l4").outcome, of("sim:l4:default").outcome), (Outcome::Ok, Outcome::Ok));
        let exclusive = of("sim:l4:exclusive_process");
        assert!(exclusive.outcome == Outcome::Warning && exclusive.found.contains("no standby"), "{}", exclusive.found);
        let prohibited = of("sim:l4:prohibited");
        assert!(prohibited.outcome == Outcome::Problem && prohibited.found.contains("PROHIBITED"), "{}", prohibited.found);
    }

    #[test]
    fn several_software_gpus_are_no_problem() {
        let of = |names| all_software(&device::parse_list(names).unwrap());
        assert_eq!((of("sim:l4").found, of("sim:l4, sim:h200").found), ("sim:l4, by CUMUX_DEVICE".into(), "sim:l4,sim:h200, by CUMUX_DEVICE".into()));
        assert_eq!((of("sim:l4,sim:h200").outcome, of("sim:l4,sim:l4:prohibited").outcome), (Outcome::Ok, Outcome::Problem));
    }

    /// A container has no card, and a job the files of one: neither is the daemon's.
    #[test]
    fn a_group_needs_no_device_of_its_own() {
        assert_eq!(gpu(true).outcome, Outcome::Ok);
    }

    #[test]
    fn strict_overcommit_is_pointed_out() {
        assert_eq!(overcommit(Some("2\n")).outcome, Outcome::Warning);
        assert_eq!(overcommit(Some("0\n")).outcome, Outcome::Ok);
        assert_eq!(overcommit(None).outcome, Outcome::NotTested);
    }
}
