//! The card and the machine: what is on it, who else uses it, and which programs of NVIDIA's there
//! are.

use crate::device::DeviceName;
use crate::{library, processes, record};
use cumux_control::settings::VISIBLE_VARIABLE;
use cumux_lab::report::{Device, Mig, MigInstance, MigProfile, NO_MIG, Report};
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

/// Memory of a card that is in use, in MiB, as the driver counts it: contexts are in it.
pub fn memory_in_use(in_driver: &str) -> Option<f64> {
    ask(&["--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", in_driver]).first()?.parse().ok()
}

/// What the card offers by MIG, and which instances it has. Nothing is changed.
pub fn mig(report: &Device) -> Mig {
    let table = report.card.as_deref().and_then(|id| cards::find(id).ok());
    if report.software {
        let profiles = table.map_or_else(Vec::new, offered_by_table);
        let mode = if profiles.is_empty() { NO_MIG } else { "off" };
        return Mig { mode: mode.to_owned(), source: "by the planner's table".to_owned(), profiles, ..Mig::default() };
    }
    let in_driver = report.id.trim_start_matches("cuda:").parse().map_or_else(|_| report.id.clone(), name_for_driver);
    let current = ask(&["--query-gpu=mig.mode.current", "--format=csv,noheader", "-i", &in_driver]);
    let mode = match current.first().map(String::as_str) {
        Some("Enabled") => "on",
        Some("Disabled") => "off",
        Some(_) => NO_MIG,
        None => "unknown",
    };
    let uuid = ask(&["--query-gpu=uuid", "--format=csv,noheader", "-i", &in_driver]).first().cloned().unwrap_or_default();
    let instances = instances_of(&ask(&["-L"]), &uuid);
    let profiles = offered_in(&ask(&["mig", "-lgip", "-i", &in_driver]));
    let differences = table.map_or_else(Vec::new, |table| differences(&profiles, &offered_by_table(table)));
    let by_driver = !profiles.is_empty();
    let profiles = if by_driver || mode == NO_MIG { profiles } else { table.map_or_else(Vec::new, offered_by_table) };
    let source = if by_driver { "by the driver" } else { "by the planner's table; the driver lists no profiles" };
    Mig { mode: mode.to_owned(), source: source.to_owned(), profiles, instances, differences }
}

fn offered_by_table(card: &cards::CardModel) -> Vec<MigProfile> {
    let Some(table) = &card.mig else { return Vec::new() };
    let of = |profile: &cumux_planner::mig::Profile| MigProfile {
        name: profile.name.to_owned(),
        most: profile.most,
        multiprocessors: profile.multiprocessors(table, card.multiprocessors),
        memory_mib: u64::from(profile.memory_mib(table, card.memory_mib)),
    };
    table.profiles.iter().map(of).collect()
}

/// The profiles in the table that `nvidia-smi mig -lgip` prints:
/// `|   0  MIG 1g.10gb       19     7/7        9.75       No     16     1     0   |`.
fn offered_in(lines: &[String]) -> Vec<MigProfile> {
    let row = |line: &String| {
        let words: Vec<&str> = line.trim_matches('|').split_whitespace().collect();
        let at = words.iter().position(|word| *word == "MIG")?;
        let [name, _id, instances, memory, _p2p, multiprocessors, ..] = words.get(at + 1..)? else { return None };
        Some(MigProfile {
            name: (*name).to_owned(),
            most: instances.split_once('/')?.1.parse().ok()?,
            multiprocessors: multiprocessors.parse().ok()?,
            memory_mib: (memory.parse::<f64>().ok()? * 1024.0) as u64,
        })
    };
    lines.iter().filter_map(row).collect()
}

/// The instances of one card in what `nvidia-smi -L` prints.
fn instances_of(lines: &[String], card: &str) -> Vec<MigInstance> {
    let mut is_of_card = false;
    let mut found = Vec::new();
    for line in lines {
        let uuid = line.rsplit_once("UUID: ").map_or("", |(_, rest)| rest.trim_end_matches(')'));
        if line.starts_with("GPU ") {
            is_of_card = !card.is_empty() && uuid == card;
        } else if let Some(profile) = line.strip_prefix("MIG ").and_then(|rest| rest.split_whitespace().next())
            && is_of_card
            && uuid.starts_with("MIG-")
        {
            found.push(MigInstance { profile: profile.to_owned(), uuid: uuid.to_owned() });
        }
    }
    found
}

/// Where the driver and the planner's table say different things of a profile.
fn differences(driver: &[MigProfile], table: &[MigProfile]) -> Vec<String> {
    let of = |found: &MigProfile| match table.iter().find(|known| known.name == found.name) {
        None => Some(format!("The card offers {}, which the planner's table does not have.", found.name)),
        Some(known) if (known.most, known.multiprocessors) != (found.most, found.multiprocessors) => Some(format!(
            "The card has at most {} instances of {} with {} multiprocessors, and the planner's table {} with {}.",
            found.most, found.name, found.multiprocessors, known.most, known.multiprocessors
        )),
        Some(_) => None,
    };
    driver.iter().filter_map(of).collect()
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

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    }

    #[test]
    fn what_the_driver_says_of_mig_is_read() {
        let table = lines(
            "+-------------------------------------------------------------------------------+
             | GPU instance profiles:                                                        |
             | GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
             |                                Free/Total   GiB              CE    JPEG  OFA  |
             |===============================================================================|
             |   0  MIG 1g.10gb         19     5/7        9.75       No     16     1     0   |
             |                                                               1     1     0   |
             +-------------------------------------------------------------------------------+
             |   0  MIG 1g.10gb+me      20     1/1        9.75       No     16     1     0   |
             |                                                               1     1     1   |
             +-------------------------------------------------------------------------------+
             |   0  MIG 3g.40gb          9     1/2        39.50      No     60     3     0   |
             |                                                               3     3     0   |",
        );
        let found = offered_in(&table);
        let profile = |name: &str, most, multiprocessors, memory_mib| MigProfile { name: name.into(), most, multiprocessors, memory_mib };
        assert_eq!(found, [profile("1g.10gb", 7, 16, 9984), profile("1g.10gb+me", 1, 16, 9984), profile("3g.40gb", 2, 60, 40_448)]);
        assert_eq!(differences(&found, &offered_by_table(cards::find("h100-80").unwrap())), Vec::<String>::new());
        let other = [profile("1g.10gb", 7, 14, 9984), profile("9g.90gb", 1, 1, 1)];
        let said = differences(&other, &offered_by_table(cards::find("h100-80").unwrap()));
        assert!(said.len() == 2 && said[0].contains("with 14 multiprocessors") && said[1].contains("9g.90gb"), "{said:?}");
        assert!(offered_in(&lines("No MIG-supported devices found.")).is_empty());
    }

    #[test]
    fn instances_are_those_of_the_card() {
        let text = lines(
            "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11)
               MIG 3g.40gb     Device  0: (UUID: MIG-a1)
               MIG 1g.10gb     Device  1: (UUID: MIG-a2)
             GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-22)
               MIG 7g.80gb     Device  0: (UUID: MIG-b1)",
        );
        let names = |card: &str| instances_of(&text, card).into_iter().map(|it| format!("{} {}", it.profile, it.uuid)).collect::<Vec<_>>();
        assert_eq!(names("GPU-11"), ["3g.40gb MIG-a1", "1g.10gb MIG-a2"]);
        assert_eq!(names("GPU-22"), ["7g.80gb MIG-b1"]);
        assert!(names("GPU-33").is_empty() && names("").is_empty());
    }

    #[test]
    fn the_driver_is_told_of_a_card_what_the_user_calls_it() {
        assert_eq!([name_among(None, 0), name_among(None, 3), name_among(Some(""), 0)], ["0", "3", "0"]);
        assert_eq!([name_among(Some("5, GPU-1a"), 0), name_among(Some("5, GPU-1a"), 1), name_among(Some("5"), 2)], ["5", "GPU-1a", "2"]);
    }
}
