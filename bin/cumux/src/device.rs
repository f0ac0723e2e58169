//! Device names, and the default where no device is named.

use crate::processes::{self, ALL};
use cumux_wire::message::DeviceFacts;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// The variable that stands for `--device`.
pub const VARIABLE: &str = "CUMUX_DEVICE";

/// A device as users name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceName {
    Cuda(u32),
    Sim(String),
}

/// A name that names no device, or a device that does not exist here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DeviceError {
    #[error("unknown device \"{0}\": write one of {names}, the number of another GPU after cuda:, or all for all GPUs", names = names())]
    Unknown(String),
    #[error("{0} cannot be used: this machine has no NVIDIA GPU (no /dev/nvidia*). For the software GPU say --device sim:h200 or set {VARIABLE}=sim:h200")]
    NoGpu(DeviceName),
    #[error("{0}: real and software GPUs cannot be in one daemon; start a daemon with its own CUDA_MPS_PIPE_DIRECTORY for each kind")]
    Mixed(String),
    #[error("{0} is named twice: name each real GPU once, and a software GPU with a number, too")]
    Twice(DeviceName),
    #[error("--device {ALL} means all NVIDIA GPUs of this machine, and they cannot be counted: {0}. Name them: --device cuda:0,cuda:1")]
    Uncounted(String),
    #[error("{0} devices in one daemon: at most {MOST} are possible")]
    TooMany(usize),
}

/// The devices there are, for help and errors.
pub fn names() -> String {
    ["cuda:0"].into_iter().chain(cumux_device_sim::names()).collect::<Vec<_>>().join(", ")
}

/// Devices of one daemon.
const MOST: usize = cumux_wire::layout::DEVICES;

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceName::Sim(card) => write!(f, "sim:{card}"),
        }
    }
}

impl DeviceName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(text.to_owned());
        match text.split_once(':') {
            Some(("cuda", ordinal)) => ordinal.parse().map(DeviceName::Cuda).map_err(|_| unknown()),
            Some(("sim", card)) if !processes::facts(text).is_empty() => Ok(DeviceName::Sim(card.to_owned())),
            _ => Err(unknown()),
        }
    }

    /// Checks that the device exists here; the error says why not.
    pub fn check(self) -> Result<Self, DeviceError> {
        match &self {
            DeviceName::Sim(_) => Ok(self),
            DeviceName::Cuda(_) if !has_gpu() => Err(DeviceError::NoGpu(self)),
            DeviceName::Cuda(_) => Ok(self),
        }
    }
}

/// The device where none is named: the first GPU. Never replaced by another.
pub fn default_device() -> Result<DeviceName, DeviceError> {
    DeviceName::Cuda(0).check()
}

/// The devices for `control`: names with commas between them, seen by programs in this order.
pub fn list_for_control(asked: Option<&str>) -> Result<Vec<DeviceName>, DeviceError> {
    match wish(asked) {
        Some(text) => parse_list(&text),
        None => Ok(vec![default_device()?]),
    }
}

/// Reads names with commas between them, and checks that the devices exist here.
pub fn parse_list(text: &str) -> Result<Vec<DeviceName>, DeviceError> {
    if text.trim() == ALL {
        return all_cards();
    }
    let names: Vec<DeviceName> = text.split(',').map(|name| DeviceName::parse(name.trim())).collect::<Result<_, _>>()?;
    if names.len() > MOST {
        return Err(DeviceError::TooMany(names.len()));
    }
    let is_real = |name: &DeviceName| matches!(name, DeviceName::Cuda(_));
    if names.iter().any(is_real) && !names.iter().all(is_real) {
        return Err(DeviceError::Mixed(list(&names)));
    }
    let is_certain = |name: &DeviceName| is_real(name) || matches!(name, DeviceName::Sim(card) if card.contains('@'));
    if let Some((_, twice)) = names.iter().enumerate().find(|(place, name)| is_certain(name) && names[..*place].contains(name)) {
        return Err(DeviceError::Twice(twice.clone()));
    }
    names.into_iter().map(DeviceName::check).collect()
}

/// All real GPUs that the driver shows (it reads `CUDA_VISIBLE_DEVICES`), in its order. The driver
/// is loaded into another process.
fn all_cards() -> Result<Vec<DeviceName>, DeviceError> {
    DeviceName::Cuda(0).check()?;
    let uncounted = |why: String| DeviceError::Uncounted(why.trim().trim_start_matches("cumux: ").to_owned());
    let program = std::env::current_exe().map_err(|error| uncounted(error.to_string()))?;
    let output = Command::new(program).args(["survey", "--device", ALL]).output().map_err(|error| uncounted(error.to_string()))?;
    if !output.status.success() {
        return Err(uncounted(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let facts: Vec<DeviceFacts> = serde_json::from_slice(&output.stdout).map_err(|error| uncounted(error.to_string()))?;
    match facts.len() {
        0 => Err(uncounted("the driver shows none".to_owned())),
        count if count > MOST => Err(DeviceError::TooMany(count)),
        _ => facts.iter().map(|facts| DeviceName::parse(&facts.id)).collect(),
    }
}

/// The names with commas between them.
pub fn list(devices: &[DeviceName]) -> String {
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The devices for `run` and `demo`, and a notice if the software GPU replaces a missing one.
pub fn with_fallback(asked: Option<&str>) -> Result<(Vec<DeviceName>, Option<String>), DeviceError> {
    if let Some(text) = wish(asked) {
        return Ok((parse_list(&text)?, None));
    }
    match DeviceName::Cuda(0).check() {
        Ok(device) => Ok((vec![device], None)),
        Err(_) => Ok((vec![software()], Some("no NVIDIA GPU found: using the software GPU sim:h200".into()))),
    }
}

pub fn software() -> DeviceName {
    DeviceName::Sim("h200".into())
}

fn wish(asked: Option<&str>) -> Option<String> {
    asked.map(str::to_owned).or_else(|| std::env::var(VARIABLE).ok()).filter(|text| !text.is_empty())
}

/// Whether the kernel driver shows a card, or the environment names a driver to use.
pub fn has_gpu() -> bool {
    std::env::var_os(cumux_abi::locate::VARIABLE).is_some_and(|path| !path.is_empty()) || (0..16).any(|n| Path::new(&format!("/dev/nvidia{n}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_or_refused_with_the_list() {
        for name in names().split(", ").chain(["cuda:3"]) {
            assert_eq!(DeviceName::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "h200", "sim:h2000", "sim:", "cuda:", "cuda:x", "cuda:-1", "SIM:h200"] {
            let text = DeviceName::parse(name).unwrap_err().to_string();
            assert!(text.contains("sim:h200") && text.contains(&format!("\"{name}\"")), "{text}");
        }
    }

    #[test]
    fn help_and_readme_name_every_device() {
        let readme = include_str!("../../../README.md");
        for name in names().split(", ") {
            assert!(cumux_control::HELP.split([' ', ',', '\n']).any(|word| word == name), "cumux control --help lacks {name}");
            assert!(readme.contains(&format!("`{name}`")), "the list of devices in README.md lacks {name}");
        }
    }

    #[test]
    fn lists_of_devices() {
        let names = |text: &str| list_for_control(Some(text)).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names("sim:l4").unwrap(), ["sim:l4"]);
        assert_eq!(names("sim:h200,sim:l4, sim:h200").unwrap(), ["sim:h200", "sim:l4", "sim:h200"]);
        assert_eq!(names("cuda:0,sim:h200"), Err(DeviceError::Mixed("cuda:0,sim:h200".into())));
        assert_eq!(names("cuda:1,cuda:0,cuda:1"), Err(DeviceError::Twice(DeviceName::Cuda(1))));
        match has_gpu() {
            true => assert_eq!(names("cuda:1,cuda:0").unwrap(), ["cuda:1", "cuda:0"]),
            false => assert_eq!(names("cuda:1,cuda:0"), Err(DeviceError::NoGpu(DeviceName::Cuda(1)))),
        }
        assert_eq!(names("sim:h200@1,sim:h200").unwrap(), ["sim:h200@1", "sim:h200"]);
        assert_eq!(names("sim:h200@1,sim:h200@1"), Err(DeviceError::Twice(DeviceName::Sim("h200@1".into()))));
        assert_eq!(names("sim:h200,"), Err(DeviceError::Unknown(String::new())));
        assert_eq!(names(&vec!["sim:l4"; 17].join(",")), Err(DeviceError::TooMany(17)));
    }

    #[test]
    fn only_run_and_demo_fall_back() {
        assert!(with_fallback(Some("sim:nothing")).is_err());
        let two = with_fallback(Some("sim:h200,sim:l4")).unwrap();
        assert_eq!((list(&two.0), two.1), ("sim:h200,sim:l4".to_owned(), None), "what the daemon takes");
        if !has_gpu() {
            assert_eq!(list_for_control(Some("all")), Err(DeviceError::NoGpu(DeviceName::Cuda(0))));
            assert!(matches!(list_for_control(Some("cuda:0")), Err(DeviceError::NoGpu(_))));
            assert!(with_fallback(Some("cuda:0")).is_err(), "what is asked for by name is not replaced");
        }
    }
}
