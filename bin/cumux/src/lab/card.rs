//! The card and the machine: what is on it, who else uses it, and which programs of NVIDIA's there
//! are.

use crate::device::DeviceName;
use crate::{library, processes, record};
use cumux_control::settings::VISIBLE_VARIABLE;
use cumux_lab::report::{Device, Report};
use cumux_planner::card as cards;
use cumux_planner::profile::CardFacts;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What is known before anything has run.
pub fn describe(devices: &[DeviceName]) -> Device {
    let id = devices.first().map(ToString::to_string).unwrap_or_default();
    let driver = record::driver(devices);
    match devices.first() {
        Some(DeviceName::Cuda(ordinal)) => {
            let in_driver = name_for_driver(*ordinal);
            let line = ask(&["--query-gpu=name,memory.total", "--format=csv,noheader,nounits", "-i", &in_driver]);
            let line = line.first().cloned().unwrap_or_default();
            let (name, memory) = line.rsplit_once(", ").unwrap_or(("a card of which nvidia-smi says nothing", "0"));
            let card = known(name);
            let others = ask(&["--query-compute-apps=pid", "--format=csv,noheader", "-i", &in_driver]);
            let others = others.iter().filter_map(|pid| pid.trim().parse().ok()).collect();
            Device { id, name: name.to_owned(), memory_mib: memory.parse().unwrap_or(0), driver, card, others, ..Device::default() }
        }
        _ => {
            let facts = processes::facts(&id).into_iter().next();
            let card = cards::find(&id).ok().map(|card| card.id.to_owned());
            let (name, memory) = facts.as_ref().map_or((id.clone(), 0), |facts| (facts.name.clone(), facts.memory >> 20));
            let multiprocessors = facts.map_or(0, |facts| facts.multiprocessors());
            Device { id, name, multiprocessors, memory_mib: memory, software: true, driver, card, others: Vec::new() }
        }
    }
}

/// The card as `CUDA_VISIBLE_DEVICES` and nvidia-smi name it: what the variable of this process has
/// at that place, or the number itself.
pub fn name_for_driver(ordinal: u32) -> String {
    name_among(std::env::var(VISIBLE_VARIABLE).ok().as_deref(), ordinal)
}

fn name_among(visible: Option<&str>, ordinal: u32) -> String {
    let named = visible.and_then(|visible| visible.split(',').nth(ordinal as usize)).map(str::trim).filter(|name| !name.is_empty());
    named.map_or_else(|| ordinal.to_string(), str::to_owned)
}

/// The planner's name for a card that the driver calls so.
fn known(name: &str) -> Option<String> {
    cards::all().iter().find(|card| card.name == name).map(|card| card.id.to_owned())
}

/// Adds what only a program on the card could tell. Where there is no nvidia-smi, that is its name.
pub fn complete(report: &mut Report, facts: &CardFacts) {
    let device = &mut report.device;
    if device.multiprocessors == 0 {
        device.multiprocessors = facts.multiprocessors;
    }
    if device.card.is_none()
        && let Some(card) = known(&facts.name)
    {
        device.name.clone_from(&facts.name);
        device.card = Some(card);
    }
}

/// Lines of nvidia-smi; none where it is not there.
fn ask(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("nvidia-smi").args(arguments).stdin(Stdio::null()).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// NVIDIA's control program of MPS, and not ours under its name.
pub fn mps_control() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("nvidia-cuda-mps-control")).find(|file| file.exists());
    match found {
        None => Err("NVIDIA's MPS is not installed (no nvidia-cuda-mps-control in PATH)".to_owned()),
        Some(file) if library::is_ours(&file) => Err(format!("{} is cumux under NVIDIA's name: NVIDIA's own MPS is not in PATH", file.display())),
        Some(file) => Ok(file),
    }
}

/// The operating system in a few words.
pub fn system() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default().trim().to_owned();
    format!("{} {}", read("ostype"), read("osrelease"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_known_as_the_driver_names_them() {
        for (name, id) in [("NVIDIA H100 80GB HBM3", "h100-80"), ("NVIDIA H200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100-80"), ("NVIDIA L4", "l4")] {
            assert_eq!(known(name).as_deref(), Some(id));
        }
        assert_eq!(known("NVIDIA H1000"), None);
    }

    #[test]
    fn the_driver_is_told_of_a_card_what_the_user_calls_it() {
        assert_eq!([name_among(None, 0), name_among(None, 3), name_among(Some(""), 0)], ["0", "3", "0"]);
        assert_eq!([name_among(Some("5, GPU-1a"), 0), name_among(Some("5, GPU-1a"), 1), name_among(Some("5"), 2)], ["5", "GPU-1a", "2"]);
    }
}
