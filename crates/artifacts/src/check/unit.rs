//! systemd units of services: sections, keys that we use, absolute programs.

use crate::yaml::Refusal;

const UNIT: [&str; 8] = ["After", "Before", "Conflicts", "ConditionPathExists", "Description", "Documentation", "Requires", "Wants"];
const SERVICE: [&str; 20] = [
    "Environment",
    "EnvironmentFile",
    "ExecReload",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
    "Group",
    "LimitNOFILE",
    "LogsDirectory",
    "LogsDirectoryMode",
    "PIDFile",
    "RemainAfterExit",
    "Restart",
    "RestartSec",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "Type",
    "UnsetEnvironment",
];
const INSTALL: [&str; 3] = ["Alias", "RequiredBy", "WantedBy"];
const TYPES: [&str; 5] = ["exec", "forking", "notify", "oneshot", "simple"];

pub(super) fn check(text: &str) -> Result<(), Refusal> {
    let mut section = "";
    let (mut starts, mut kind) = (false, "simple");
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = match name {
                "Unit" | "Service" | "Install" => name,
                _ => return Err(Refusal::new(number, format!("unknown section [{name}]"))),
            };
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { return Err(Refusal::new(number, format!("\"{line}\" is no Key=Value"))) };
        let known: &[&str] = match section {
            "Unit" => &UNIT,
            "Service" => &SERVICE,
            "Install" => &INSTALL,
            _ => return Err(Refusal::new(number, "a line before the first section")),
        };
        if !known.contains(&key) {
            return Err(Refusal::new(number, format!("unknown key \"{key}\" in [{section}]")));
        }
        if key.starts_with("Exec") && !value.trim_start_matches(['-', '+']).starts_with('/') {
            return Err(Refusal::new(number, format!("{key} is to begin with the absolute path of a program")));
        }
        match key {
            "ExecStart" => starts = true,
            "Type" if !TYPES.contains(&value) => return Err(Refusal::new(number, format!("Type={value} is none of {}", TYPES.join(", ")))),
            "Type" => kind = value,
            "Environment" if !value.contains('=') => return Err(Refusal::new(number, "Environment is to be NAME=VALUE")),
            _ => {}
        }
    }
    if !starts {
        return Err(Refusal::new(1, "[Service] needs ExecStart"));
    }
    if kind == "simple" && text.contains("-control -d") {
        return Err(Refusal::new(1, "a daemon that goes to the background (-d) needs Type=forking"));
    }
    Ok(())
}
