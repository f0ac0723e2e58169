//! Every file that is written is read back; what its reader would refuse or ignore is refused with
//! the line.

use cumux_artifacts::check::{Kind, file};
use cumux_artifacts::make::{Artifact, MakeError, Mode, Options, files};
use cumux_planner::card;
use proptest::prelude::*;
use std::fs;
use std::process::Command;

const MODES: [Mode; 4] = [Mode::Mps, Mode::Cumux, Mode::TimeSlicing, Mode::Mig];

fn options(mode: Mode) -> Options {
    Options { percentage: Some(25), memory_mib: Some(8192), card: Some(card::find("a100-80").unwrap()), ..Options::of(mode) }
}

fn text(made: &[Artifact], name: &str) -> String {
    made.iter().find(|artifact| artifact.name == name).unwrap_or_else(|| panic!("no {name}")).text.clone()
}

fn refusal(kind: Kind, text: &str) -> String {
    file(kind, text).expect_err(text).to_string()
}

#[test]
fn every_mode_has_files_that_are_read_back() {
    for mode in MODES {
        let made = files(mode, &options(mode)).unwrap();
        assert!(made.len() >= 3, "{mode:?}");
        for artifact in &made {
            assert_eq!(Kind::of(artifact.name, &artifact.text), Some(artifact.kind), "{}", artifact.name);
            file(artifact.kind, &artifact.text).unwrap();
        }
    }
}

/// The five strings that document 003 looks for.
#[test]
fn the_scripts_of_mps_and_cumux_have_the_five_strings() {
    for (mode, start, stop) in [(Mode::Mps, "start-mps.sh", "stop-mps.sh"), (Mode::Cumux, "start-cumux.sh", "stop-cumux.sh")] {
        let made = files(mode, &options(mode)).unwrap();
        let both = text(&made, start) + &text(&made, stop);
        for wanted in [
            "nvidia-cuda-mps-control -d",
            "CUDA_MPS_PIPE_DIRECTORY",
            "CUDA_MPS_LOG_DIRECTORY",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "echo quit | nvidia-cuda-mps-control",
        ] {
            assert!(both.contains(wanted), "{mode:?} lacks {wanted}");
        }
        assert!(both.contains("set_default_active_thread_percentage 25") && both.contains("set_default_device_pinned_mem_limit 0 8192M"));
    }
}

/// The shell reads them, and shellcheck has nothing to say where it is installed.
#[test]
fn the_shell_reads_every_script() {
    let folder = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for artifact in MODES.iter().flat_map(|mode| files(*mode, &options(*mode)).unwrap()).filter(Artifact::is_executable) {
        let path = folder.path().join(artifact.name);
        fs::write(&path, &artifact.text).unwrap();
        assert!(Command::new("/bin/sh").arg("-n").arg(&path).status().unwrap().success(), "{}", artifact.name);
        match Command::new("shellcheck").arg(&path).output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(_) => println!("NOTE: shellcheck is not installed: {} was read by sh -n only", artifact.name),
        }
        checked += 1;
    }
    assert_eq!(checked, 5);
}

#[test]
fn a_wrong_plugin_configuration_is_refused_with_its_line() {
    let made = files(Mode::TimeSlicing, &options(Mode::TimeSlicing)).unwrap();
    let good = text(&made, "device-plugin-time-slicing.yaml");
    let line = |word: &str| (1..).zip(good.lines()).find(|(_, line)| line.contains(word)).unwrap().0;
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} is not in {good}");
        refusal(Kind::ConfigMap, &good.replace(from, to))
    };
    let wrong = with("replicas: 4", "replicas: 1");
    assert!(wrong.starts_with(&format!("line {}:", line("replicas"))) && wrong.contains("at least 2"), "{wrong}");
    assert!(with("replicas: 4", "replicas: four").contains("whole number"));
    assert!(with("replicas: 4", "replica: 4").contains("unknown field \"replica\""));
    assert!(with("failRequestsGreaterThanOne: true", "failRequestsGreaterThanOne: 1").starts_with(&format!("line {}:", line("failRequests"))));
    let long = format!("name: nvidia.com/{}", "g".repeat(53));
    assert!(with("name: nvidia.com/gpu", &long).contains("at most 63"));
    assert!(with("name: nvidia.com/gpu", "name: nvidia.com/GPU").contains("small letters"));
    assert!(with("name: nvidia.com/gpu", "rename: gpu").contains("ignores it"));
    assert!(with("version: v1", "version: v2").contains("unknown version"));
    assert!(with("migStrategy: none", "migStrategy: all").contains("none, single, mixed"));
    assert!(with("timeSlicing:", "timeslicing:").contains("timeslicing"));

    let mps = text(&files(Mode::Mps, &options(Mode::Mps)).unwrap(), "device-plugin-mps.yaml");
    let wrong = refusal(Kind::ConfigMap, &mps.replace("failRequestsGreaterThanOne: true", "failRequestsGreaterThanOne: false"));
    assert!(wrong.contains("does not go with MPS"), "{wrong}");
    assert!(refusal(Kind::ConfigMap, &mps.replace("replicas: 4", "replicas: 49")).contains("at most 48"));
    let both = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: gpu, replicas: 2}]\n  mps:\n    resources: [{name: gpu, replicas: 2}]\n";
    assert!(refusal(Kind::Plugin, both).starts_with("line 5:"));
    assert!(refusal(Kind::Plugin, "version: v1\nsharing:\n  mps:\n    resources: []\n").contains("empty"));
    assert!(refusal(Kind::Plugin, "version: v1\nversion: v1\n").starts_with("line 2:"));
    assert!(refusal(Kind::Plugin, "a: [").contains("no YAML"));
    file(Kind::Plugin, "sharing:\n  timeSlicing:\n    resources: [{name: gpu, replicas: 2}]\n").unwrap();
}

#[test]
fn an_impossible_geometry_is_refused_with_its_line() {
    let config = |devices: &str| {
        format!(
            "version: v1\nmig-configs:\n  mine:\n  - device-filter: [\"0x20B210DE\"]\n    devices: all\n    mig-enabled: true\n    mig-devices: {devices}\n"
        )
    };
    file(Kind::MigParted, &config("{\"3g.40gb\": 1, \"2g.20gb\": 2}")).unwrap();
    let wrong = refusal(Kind::MigParted, &config("{\"4g.40gb\": 2}"));
    assert!(wrong.starts_with("line 7:") && wrong.contains("impossible geometry") && wrong.contains("once"), "{wrong}");
    assert!(refusal(Kind::MigParted, &config("{\"3g.40gb\": 2, \"1g.10gb\": 1}")).contains("memory slices"));
    assert!(refusal(Kind::MigParted, &config("{\"1g.5gb\": 1}")).contains("1g.10gb"), "those of the other A100");
    assert!(refusal(Kind::MigParted, &config("{\"small\": 1}")).contains("no MIG profile"));
    let text = config("{}").replace("mig-enabled: true\n    mig-devices: {}", "mig-enabled: true");
    assert!(refusal(Kind::MigParted, &text).contains("\"mig-devices\" is needed"));
    assert!(refusal(Kind::MigParted, &config("{}").replace("devices: all", "devices: some")).contains("one of all"));
    assert!(refusal(Kind::MigParted, &config("{}").replace("0x20B210DE", "0x20B2")).contains("device and vendor"));
    assert!(refusal(Kind::MigParted, &config("{}\n    x: 1")).contains("unknown field \"x\""));
    let listed = text_of_profiles().replace("1g.10gb\",\n", "4g.40gb\",\n");
    assert!(refusal(Kind::Profiles, &listed).contains("impossible geometry"));
}

fn text_of_profiles() -> String {
    let profiles = Options { geometry: vec!["1g.10gb".to_owned(), "1g.10gb".to_owned(), "3g.40gb".to_owned()], ..options(Mode::Mig) };
    text(&files(Mode::Mig, &profiles).unwrap(), "mig-profiles.json")
}

#[test]
fn options_that_cannot_be_are_answered_with_a_sentence() {
    let wrong = |mode: Mode, change: &dyn Fn(&mut Options)| {
        let mut options = options(mode);
        change(&mut options);
        match files(mode, &options) {
            Err(MakeError::Option(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    assert!(wrong(Mode::Mps, &|o| o.replicas = 1).contains("at least 2"));
    assert!(wrong(Mode::Mps, &|o| o.percentage = Some(0)).contains("at most 100"));
    assert!(wrong(Mode::Mps, &|o| o.pipe = "/tmp/a b; rm".to_owned()).contains("absolute path"));
    assert!(wrong(Mode::Mps, &|o| o.log = "/tmp/../etc".to_owned()).contains("--log"));
    assert!(wrong(Mode::Mig, &|o| o.card = None).contains("--card"));
    assert!(wrong(Mode::Mig, &|o| o.card = Some(card::find("l40s").unwrap())).contains("has no MIG"));
    assert!(wrong(Mode::Mig, &|o| o.geometry = vec!["4g.40gb".to_owned(); 2]).contains("once"));
    // Too many for the plugin: refused by the check of what was made.
    let many = Options { replicas: 60, ..options(Mode::Mps) };
    assert!(matches!(files(Mode::Mps, &many), Err(MakeError::Refused { name: "device-plugin-mps.yaml", .. })));
}

#[test]
fn gres_and_units_and_scripts_and_pods_are_checked() {
    assert!(refusal(Kind::Gres, "Name=mps\n").contains("needs Count"));
    assert!(refusal(Kind::Gres, "# x\nName=mps Count=0\n").starts_with("line 2:"));
    assert!(refusal(Kind::Gres, "Name=mps Count=1 Color=red\n").contains("unknown key"));
    assert!(refusal(Kind::Gres, "Name=mps Count=1\nName=shard Count=2\n").contains("do not go together"));
    assert!(refusal(Kind::Unit, "[Service]\nExecStart=cumux\n").contains("absolute path"));
    assert!(refusal(Kind::Unit, "[Service]\nExecstart=/bin/x\n").contains("unknown key"));
    assert!(refusal(Kind::Unit, "[Service]\nExecStart=/x/nvidia-cuda-mps-control -d\n").contains("forking"));
    assert!(refusal(Kind::Script, "#!/bin/sh\necho\n").contains("set -eu"));
    assert!(refusal(Kind::Script, "#!/bin/sh\nset -eu\n[[ a ]]\n").starts_with("line 3:"));
    assert!(refusal(Kind::Script, "#!/bin/sh\nset -eu\nnvidia-cuda-mps-control -d\n").contains("unset"));
    let pod = text(&files(Mode::TimeSlicing, &options(Mode::TimeSlicing)).unwrap(), "pod.yaml");
    assert!(refusal(Kind::Pod, &pod.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 0")).contains("at least 1"));
    assert!(refusal(Kind::Pod, &pod.replace("nvidia.com/gpu: 1", "nvidia.com/gpu.shared: 2")).contains("may have one"));
    assert!(refusal(Kind::Pod, &pod.replace("image:", "img:")).contains("unknown field \"img\""));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is asked for: files that their readers take, or a sentence.
    #[test]
    fn what_is_made_is_good_or_refused(
        mode in prop::sample::select(MODES.to_vec()),
        replicas in 0u32..70,
        percentage in prop::option::of(0u32..120),
        memory_mib in prop::option::of(0u64..100_000),
        folder in "(/[a-z ]{1,9}){1,3}",
        id in prop::sample::select(card::all().iter().map(|card| card.id).collect::<Vec<_>>()),
        geometry in prop::collection::vec(prop::sample::select(vec!["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "1g.10gb+me"]), 0..5),
    ) {
        let card = Some(card::find(id).unwrap());
        let geometry = geometry.into_iter().map(str::to_owned).collect();
        let options = Options { replicas, percentage, memory_mib, pipe: folder, card, geometry, ..Options::of(mode) };
        if let Ok(made) = files(mode, &options) {
            for artifact in made {
                prop_assert!(file(artifact.kind, &artifact.text).is_ok());
            }
        }
    }

    /// A damaged file is read to its end, or refused; nothing breaks.
    #[test]
    fn no_text_breaks_the_checks(at in 0usize..4000, byte in any::<u8>(), number in 0usize..20) {
        let made: Vec<Artifact> = MODES.iter().flat_map(|mode| files(*mode, &options(*mode)).unwrap()).collect();
        let artifact = &made[number % made.len()];
        let mut bytes = artifact.text.clone().into_bytes();
        let place = at % bytes.len();
        bytes[place] = byte;
        let _ = file(artifact.kind, &String::from_utf8_lossy(&bytes));
    }
}
