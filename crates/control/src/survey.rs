//! Properties of the cards before any server has reported them: the daemon starts its own program
//! as `survey`, which asks the driver and ends. So no driver is ever loaded into the daemon, and a
//! driver that hangs or crashes costs one answer.
//!
//! Software cards need no survey (`Options::devices`).

use crate::daemon::Daemon;
use cumux_link::Process;
use cumux_wire::message::DeviceFacts;
use rustix::process::Signal;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a survey may take. A driver that no process keeps loaded takes seconds for its first
/// caller.
pub(crate) const SURVEY_LIMIT: Duration = Duration::from_secs(20);

impl Daemon {
    /// The devices; a survey asks for them if they are not known yet.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn known_devices(&self) -> Result<Vec<DeviceFacts>, String> {
        let known = self.devices();
        if !known.is_empty() {
            return Ok(known);
        }
        match ask_driver(&self.options.program.path(), &self.options.device, SURVEY_LIMIT) {
            Ok(devices) => {
                self.core().learn_devices(&devices);
                Ok(self.devices())
            }
            Err(why) => {
                self.complain(&format!("The devices ({}) are not known: {why}", self.options.device));
                Err(why)
            }
        }
    }
}

/// The properties of `devices` (names with commas), in their order.
///
/// # Errors
/// A sentence: what the child wrote to its standard error, or how it ended.
pub(crate) fn ask_driver(program: &Path, devices: &str, limit: Duration) -> Result<Vec<DeviceFacts>, String> {
    let names: Vec<&str> = devices.split(',').collect();
    let mut command = Command::new(program);
    command.arg("survey").args(names.iter().flat_map(|name| ["--device", name]));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    // Nobody needs to read while the child runs: its answer fits into a pipe, and a child that
    // writes more is ended at the timeout.
    let process = Process::open(child.id());
    if !process.as_ref().is_ok_and(|process| process.ended(Some(limit))) {
        if let Ok(process) = process {
            let _ = process.signal(Signal::KILL);
        }
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("the driver does not answer within {} s; check `nvidia-smi`", limit.as_secs()));
    }
    let (mut out, mut err) = (String::new(), String::new());
    // Output that cannot be read is missing from the answer, and the answer's error says so.
    let _ = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut out));
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut err));
    let well = child.wait().is_ok_and(|status| status.success());
    read(&names, well, &out, &err)
}

/// Turns the output of a survey into devices. Pure.
fn read(names: &[&str], well: bool, out: &str, err: &str) -> Result<Vec<DeviceFacts>, String> {
    let last = err.lines().rev().map(str::trim).find(|line| !line.is_empty());
    if !well {
        return Err(last
            .map_or_else(|| "asking the driver ended without an answer; check `nvidia-smi`".to_owned(), |line| line.trim_start_matches("cumux: ").to_owned()));
    }
    let facts: Vec<DeviceFacts> = serde_json::from_str(out).map_err(|error| format!("the answer about the devices cannot be read: {error}"))?;
    if facts.len() == names.len() && facts.iter().zip(names).all(|(facts, name)| facts.id == *name) {
        return Ok(facts);
    }
    let told: Vec<&str> = facts.iter().map(|facts| facts.id.as_str()).collect();
    Err(format!("asked about {}, the driver told of {}", names.join(", "), if told.is_empty() { "none".to_owned() } else { told.join(", ") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn facts(id: &str) -> DeviceFacts {
        DeviceFacts {
            id: id.into(),
            name: "NVIDIA H200".into(),
            uuid: [7; 16],
            pci: [0, 0, 6],
            memory: 1 << 37,
            attributes: [(cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132)].into(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        }
    }

    #[test]
    fn an_answer_is_believed_only_if_it_is_one() {
        let one = serde_json::to_string(&[facts("cuda:0")]).unwrap();
        assert_eq!(read(&["cuda:0"], true, &one, ""), Ok(vec![facts("cuda:0")]));
        assert!(read(&["cuda:1"], true, &one, "").unwrap_err().contains("asked about cuda:1, the driver told of cuda:0"));
        assert!(read(&["cuda:0"], true, "[]", "").unwrap_err().contains("told of none"));
        for rubbish in ["", "null", "{}", "[1]", "\u{0}\u{0}"] {
            assert!(read(&["cuda:0"], true, rubbish, "").unwrap_err().contains("cannot be read"), "{rubbish}");
        }
        let said = read(&["cuda:0"], false, "", "warning\ncumux: no NVIDIA driver here: install one\n\n").unwrap_err();
        assert_eq!(said, "no NVIDIA driver here: install one");
        assert!(read(&["cuda:0"], false, &one, "").unwrap_err().contains("without an answer"), "a crash is no answer, whatever was printed before");
    }

    /// A program of a few lines in place of ours.
    fn fake(body: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fake");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_child_is_asked_in_the_right_words() {
        let json = serde_json::to_string(&[facts("cuda:0"), facts("cuda:1")]).unwrap();
        let (_folder, path) = fake(&format!("[ \"$*\" = \"survey --device cuda:0 --device cuda:1\" ] && echo '{json}'"));
        assert_eq!(ask_driver(&path, "cuda:0,cuda:1", SURVEY_LIMIT).map(|all| all.len()), Ok(2));
        assert!(ask_driver(&path, "cuda:0", SURVEY_LIMIT).is_err());
        let (_folder, path) = fake("echo the driver is too old >&2; exit 3");
        assert_eq!(ask_driver(&path, "cuda:0", SURVEY_LIMIT), Err("the driver is too old".to_owned()));
        assert!(ask_driver(Path::new("/nowhere/at/all"), "cuda:0", SURVEY_LIMIT).unwrap_err().contains("cannot start"));
    }

    /// The answers of a daemon whose card only the driver knows.
    fn said(program: &Path, static_partitions: bool, commands: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, log) = (folder.path().to_owned(), folder.path().to_owned());
        let options = crate::Options {
            pipe,
            log,
            device: "cuda:0".into(),
            devices: Vec::new(),
            ready_devices: false,
            settings: crate::settings::Settings::from_environment(|_| None),
            program: program.to_owned().into(),
            echo: false,
            multiuser: false,
            static_partitions,
            cards: Vec::new(),
            localities: Vec::new(),
        };
        let daemon = Daemon::new(options).unwrap();
        commands.iter().map(|text| crate::answer::answer(&daemon, crate::command::Command::parse(text), true).text).collect()
    }

    #[test]
    fn commands_know_the_card_before_any_server() {
        let json = serde_json::to_string(&[DeviceFacts {
            attributes: [
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
            ]
            .into(),
            ..facts("cuda:0")
        }])
        .unwrap();
        // It answers once: the answer is kept.
        let (_folder, path) = fake(&format!("[ -e \"$0.asked\" ] && exit 1; : > \"$0.asked\"; echo '{json}'"));
        let [list, part, table] = said(&path, true, &["device_query --csv", "sm_partition add GPU-0707 3", "lspart"]).try_into().unwrap();
        assert!(list.ends_with("\n0,0000:00.06.00,GPU-07070707-0707-0707-0707-070707070707,NVIDIA H200,N/A\n"), "{list}");
        assert!(part.starts_with("GPU-07070707-0707-0707-0707-070707070707/") && part.len() == 78, "{part}");
        assert!(table.contains(part.trim().split_once('/').unwrap().1), "{table}");
        let (_folder, path) = fake("echo 'cumux: the driver is too old' >&2; exit 3");
        for text in said(&path, true, &["device_query", "sm_partition add GPU-0707 3", "lspart"]) {
            assert!(text.ends_with("The devices are not known: the driver is too old\n"), "{text}");
        }
        let [complaints] = <[String; 1]>::try_from(said(&path, false, &["device_query", "complaints"]).split_off(1)).unwrap();
        assert!(complaints.contains("cuda:0") && complaints.contains("too old"), "the doctor tells: {complaints}");
    }

    #[test]
    fn a_child_that_hangs_is_ended() {
        let (folder, path) = fake("echo $$ > \"$0.pid\"; exec sleep 1000");
        assert!(ask_driver(&path, "cuda:0", Duration::from_millis(300)).unwrap_err().contains("does not answer"));
        let pid = std::fs::read_to_string(folder.path().join("fake.pid")).unwrap_or_default();
        let gone = pid.trim().parse().ok().is_none_or(|pid| Process::open(pid).is_err());
        assert!(gone, "process {pid} is left");
    }
}
