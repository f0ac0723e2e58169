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
/// `devices` are those of the daemon as far as they are known before it has opened them.
pub fn name_served_cards(child: &mut Command, pipe: &Path, devices: &[DeviceName]) {
    let named = child.get_envs().find(|(name, _)| *name == OsStr::new(VISIBLE_VARIABLE)).map_or_else(
        || std::env::var_os(VISIBLE_VARIABLE).is_some(),
        // None where it is taken away.
        |(_, value)| value.is_some(),
    );
    let has_software = devices.iter().any(|device| matches!(device, DeviceName::Sim(_)));
    let cards = cards_of_machine(Path::new(DEVICES));
    if named || has_software || cards < 2 {
        return;
    }
    match Frontend::connect(&PipeDirectory::at(pipe)).and_then(|mut daemon| daemon.ask("device_query --csv")) {
        Ok((answer, _)) => {
            if let Some(list) = uuids_of_fewer(&answer, cards) {
                child.env(VISIBLE_VARIABLE, list);
            }
        }
        Err(error) => tracing::debug!("the daemon does not say which cards it serves: {error}"),
    }
}

/// How many cards have a device file.
fn cards_of_machine(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_card = |name: &str| name.strip_prefix(CARD).is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_card)).count()
}

/// The UUIDs of a list of devices, with commas; `None` if there are none, or one for each of the
/// machine's cards.
fn uuids_of_fewer(answer: &str, cards: usize) -> Option<String> {
    let mut uuids: Vec<String> = Vec::new();
    for line in answer.lines() {
        let mut fields = line.split(',').map(str::trim);
        // Parts of a card, and headings, have no number.
        let (Some(ordinal), Some(uuid), Some(name)) = (fields.next(), fields.nth(1), fields.next()) else { continue };
        let Some(uuid) = uuid.strip_prefix("GPU-").filter(|_| ordinal.parse::<u32>().is_ok()) else { continue };
        // Of an instance CUDA says the same as of a card, and NVML calls it by another name.
        let uuid = format!("{}-{uuid}", if name.contains(" MIG ") { "MIG" } else { "GPU" });
        // Each server of the daemon lists the same ones.
        if !uuids.contains(&uuid) {
            uuids.push(uuid);
        }
    }
    (!uuids.is_empty() && uuids.len() < cards).then(|| uuids.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "Default\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n0,0000:06.00,GPU-a-1,NVIDIA H200,N/A\n1,0000:07.00,GPU-b-2,NVIDIA H200,N/A\n\
                       Server 7\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n0,0000:06.00,GPU-a-1,NVIDIA H200,N/A\n";

    #[test]
    fn the_served_cards_are_named_once_where_there_are_more() {
        assert_eq!(uuids_of_fewer(TWO, 3).as_deref(), Some("GPU-a-1,GPU-b-2"));
        assert_eq!(uuids_of_fewer(TWO, 2), None, "all are served");
        assert_eq!(uuids_of_fewer("No devices\n", 2), None);
        assert_eq!(uuids_of_fewer("M,0000:06.00,GPU-part,NVIDIA B300,N/A\n", 2), None, "a part is no card");
        assert_eq!(uuids_of_fewer("0,0000:06.00,GPU-i-1,NVIDIA H200 MIG 1g.18gb,N/A\n", 2).as_deref(), Some("MIG-i-1"));
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
}
