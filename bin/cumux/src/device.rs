//! Device names, and the default where no device is named.

use crate::processes;
use std::fmt;
use std::path::Path;

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
    #[error("unknown device \"{0}\": write one of {names}, or the number of another GPU after cuda:", names = names())]
    Unknown(String),
    #[error("{0} cannot be used: this machine has no NVIDIA GPU (no /dev/nvidia*). For the software GPU say --device sim:h200 or set {VARIABLE}=sim:h200")]
    NoGpu(DeviceName),
    #[error(
        "{0} devices in one daemon: several are possible with the software GPU only (sim:h200,sim:h200); start a daemon with its own CUDA_MPS_PIPE_DIRECTORY for each real GPU"
    )]
    SeveralGpus(usize),
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

/// The device for `control`: the wished one, else the first GPU. Never replaced by another.
pub fn for_control(asked: Option<&str>) -> Result<DeviceName, DeviceError> {
    match wish(asked) {
        Some(text) => DeviceName::parse(&text)?.check(),
        None => DeviceName::Cuda(0).check(),
    }
}

/// The devices for `control`: names with commas between them, seen by programs in this order.
pub fn list_for_control(asked: Option<&str>) -> Result<Vec<DeviceName>, DeviceError> {
    match wish(asked) {
        Some(text) => parse_list(&text),
        None => Ok(vec![for_control(None)?]),
    }
}

/// Reads names with commas between them, and checks that the devices exist here.
pub fn parse_list(text: &str) -> Result<Vec<DeviceName>, DeviceError> {
    let names: Vec<DeviceName> = text.split(',').map(|name| DeviceName::parse(name.trim())).collect::<Result<_, _>>()?;
    match names.as_slice() {
        [one] => Ok(vec![one.clone().check()?]),
        many if many.len() > MOST => Err(DeviceError::TooMany(many.len())),
        // One process with several real cards has not been tried.
        many if many.iter().any(|name| matches!(name, DeviceName::Cuda(_))) => Err(DeviceError::SeveralGpus(many.len())),
        _ => Ok(names),
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
        assert_eq!(names("cuda:0,cuda:1"), Err(DeviceError::SeveralGpus(2)));
        assert_eq!(names("sim:h200,"), Err(DeviceError::Unknown(String::new())));
        assert_eq!(names(&vec!["sim:l4"; 17].join(",")), Err(DeviceError::TooMany(17)));
    }

    #[test]
    fn only_run_and_demo_fall_back() {
        assert!(with_fallback(Some("sim:nothing")).is_err());
        let two = with_fallback(Some("sim:h200,sim:l4")).unwrap();
        assert_eq!((list(&two.0), two.1), ("sim:h200,sim:l4".to_owned(), None), "what the daemon takes");
        if !has_gpu() {
            assert!(matches!(for_control(Some("cuda:0")), Err(DeviceError::NoGpu(_))));
            assert!(with_fallback(Some("cuda:0")).is_err(), "what is asked for by name is not replaced");
        }
    }
}
