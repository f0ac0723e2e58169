//! Which of the machine's cards a program is to count.
//!
//! A daemon may serve some of them only. Programs that ask CUDA see those; PyTorch asks NVML how
//! many there are, finds all, and fails when CUDA has fewer. `CUDA_VISIBLE_DEVICES` with the served
//! cards' UUIDs gives both the same answer: NVML's users read it, and so does cumux.

use crate::device::DeviceName;
use cumux_control::settings::VISIBLE_VARIABLE;
use cumux_control::{Frontend, PipeDirectory};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where a machine's cards are files, and the beginning of their names.
const DEVICES: &str = "/dev";
const CARD: &str = "nvidia";

/// Names the served cards to a program where the machine has more, and nobody has named any.
pub fn name_served_cards(child: &mut Command, pipe: &Path, devices: &[DeviceName]) {
    let real = devices.iter().filter(|device| matches!(device, DeviceName::Cuda(_))).count();
    let named = child.get_envs().find(|(name, _)| *name == OsStr::new(VISIBLE_VARIABLE)).map_or_else(
        || std::env::var_os(VISIBLE_VARIABLE).is_some(),
        // None where it is taken away.
        |(_, value)| value.is_some(),
    );
    if named || real == 0 || cards_of_machine(Path::new(DEVICES)) <= real {
        return;
    }
    let answer = Frontend::connect(&PipeDirectory::at(pipe)).and_then(|mut daemon| daemon.ask("device_query --csv"));
    if let Ok((answer, _)) = answer
        && let Some(list) = uuids_in(&answer)
    {
        child.env(VISIBLE_VARIABLE, list);
    }
}

/// How many cards have a device file.
fn cards_of_machine(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_card = |name: &str| name.strip_prefix(CARD).is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_card)).count()
}

/// The UUIDs of a list of devices, with commas; `None` if there are none.
fn uuids_in(answer: &str) -> Option<String> {
    let of_line = |line: &str| line.split(',').map(str::trim).find(|field| field.starts_with("GPU-") || field.starts_with("MIG-")).map(str::to_owned);
    let mut uuids: Vec<String> = Vec::new();
    for uuid in answer.lines().filter_map(of_line) {
        // Each server of the daemon lists the same ones.
        if !uuids.contains(&uuid) {
            uuids.push(uuid);
        }
    }
    (!uuids.is_empty()).then(|| uuids.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_served_cards_are_named_once() {
        let answer = "Default\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n0,0000:06.00,GPU-a-1,NVIDIA H200,N/A\n1,0000:07.00,GPU-b-2,NVIDIA H200,N/A\n\
                      Server 7\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n0,0000:06.00,GPU-a-1,NVIDIA H200,N/A\n";
        assert_eq!(uuids_in(answer).as_deref(), Some("GPU-a-1,GPU-b-2"));
        assert_eq!(uuids_in("No devices\n"), None);
    }

    #[test]
    fn cards_are_counted_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia", "null"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(cards_of_machine(folder.path()), 2);
        assert_eq!(cards_of_machine(Path::new("/nowhere")), 0);
    }

    /// Who has named cards has decided.
    #[test]
    fn what_a_user_has_named_stays() {
        let mut child = Command::new("true");
        child.env(VISIBLE_VARIABLE, "1");
        name_served_cards(&mut child, Path::new("/nowhere"), &[DeviceName::Cuda(0)]);
        let value = child.get_envs().find(|(name, _)| *name == OsStr::new(VISIBLE_VARIABLE)).and_then(|(_, value)| value);
        assert_eq!(value, Some(OsStr::new("1")));
    }
}
