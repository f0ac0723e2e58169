//! Slurm's gres.conf, as far as it is about GPUs (Slurm 25, gres.shtml).

use crate::yaml::Refusal;

const NAMES: [&str; 3] = ["gpu", "mps", "shard"];
const KEYS: [&str; 10] = ["AutoDetect", "Cores", "Count", "File", "Flags", "Links", "MultipleFiles", "Name", "NodeName", "Type"];
const DETECT: [&str; 6] = ["nvidia", "nvml", "off", "oneapi", "rsmi", "nrt"];

pub(super) fn check(text: &str) -> Result<(), Refusal> {
    let mut shared = Vec::new();
    let mut entries = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        entries += 1;
        let mut name = None;
        let mut counted = false;
        let mut keys = Vec::new();
        for word in line.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else { return Err(Refusal::new(number, format!("\"{word}\" is no Key=Value"))) };
            let Some(known) = KEYS.iter().find(|known| known.eq_ignore_ascii_case(key)) else {
                return Err(Refusal::new(number, format!("unknown key \"{key}\": gres.conf has {}", KEYS.join(", "))));
            };
            if keys.contains(known) {
                return Err(Refusal::new(number, format!("{known} is there twice")));
            }
            keys.push(*known);
            match *known {
                "Name" if !NAMES.contains(&value) => return Err(Refusal::new(number, format!("\"{value}\" is no resource of GPUs: gpu, mps or shard"))),
                "Name" => name = Some(value),
                "Count" => {
                    counted = true;
                    let count = value.trim_end_matches(['K', 'M', 'G', 'k', 'm', 'g']).parse::<u64>();
                    if count.is_ok_and(|count| count > 0) {
                        continue;
                    }
                    return Err(Refusal::new(number, format!("Count={value} is no number above 0")));
                }
                "AutoDetect" if !DETECT.contains(&value) => return Err(Refusal::new(number, format!("AutoDetect={value} is none of {}", DETECT.join(", ")))),
                "File" if !value.starts_with("/dev/") => return Err(Refusal::new(number, format!("File={value} is no device: /dev/nvidia0"))),
                _ => {}
            }
        }
        match name {
            None if keys == ["AutoDetect"] => {}
            None => return Err(Refusal::new(number, "a line needs Name=gpu, Name=mps or Name=shard")),
            Some("gpu") => {}
            Some(sharing) if !counted => return Err(Refusal::new(number, format!("Name={sharing} needs Count"))),
            Some(sharing) => shared.push((number, sharing)),
        }
    }
    if let Some((line, _)) = shared.iter().find(|(_, name)| shared.iter().any(|(_, other)| other != name)) {
        return Err(Refusal::new(*line, "mps and shard do not go together on a node"));
    }
    if entries == 0 { Err(Refusal::new(1, "the file has no entry")) } else { Ok(()) }
}
