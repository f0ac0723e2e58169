//! `cumux record` and `cumux lab` as people use them.

use cumux_lab::replay::predictions;
use cumux_link::Process;
use cumux_planner::profile;
use cumux_testkit::{Watchdog, cuda_compilers, cumux, example, processes_of};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any of these stories takes.
const STORY_TIMEOUT: Duration = Duration::from_secs(240);

/// A folder for one story, and no daemon around.
struct Place {
    folder: TempDir,
    _watchdog: Watchdog,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("cx").tempdir_in("/tmp").unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        let watchdog = Watchdog::new(STORY_TIMEOUT, folder.path());
        Self { folder, _watchdog: watchdog }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cumux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cumux());
        command.args(arguments).current_dir(self.folder.path()).env("TMPDIR", self.path("tmp"));
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.path("none")).env("CUMUX_DEVICE", "sim:h200").stdin(Stdio::null());
        command
    }

    /// What it said on standard error, and its exit status.
    fn refusal(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let output = self.cumux(arguments).output().unwrap();
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
    }

    /// Waits until neither processes nor temporary files of it are left.
    fn expect_nothing_left(&self) {
        let left = || fs::read_dir(self.path("tmp")).unwrap().count();
        // The watchdog is the limit.
        while !processes_of(&self.path("tmp")).is_empty() || left() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_program_is_recorded_shown_and_planned_with() {
    let place = Place::new();
    let program = example("lab_work");
    let load = [program.to_str().unwrap(), "load", "matmul", "0.3", "0", "now"];
    let output = place.cumux(&[&["record", "-o", "matmul.json", "--"], load.as_slice()].concat()).output().unwrap();
    assert!(output.status.success() && out(&output).contains("\"right\":true"), "the program's own output stays: {output:?}");
    let profile = json(&place.path("matmul.json"));
    let kernel = profile["kernels"].as_array().unwrap().iter().find(|kernel| kernel["name"].as_str().unwrap().contains("multiply")).expect("the kernel");
    let (count, requests) = (kernel["count"].as_u64().unwrap(), profile["requests"].as_u64().unwrap());
    assert_eq!((kernel["blocks"].as_u64(), kernel["threads"].as_u64(), kernel["shared"].as_u64()), (Some(16), Some(256), Some(2048)));
    assert!(kernel["duration"]["mean_ns"].as_f64().unwrap() > 1000.0, "{kernel}");
    // One request is one product and the wait for it.
    let steps = profile["request"].as_array().unwrap();
    assert!(steps.len() == 2 && steps[0]["launch"].is_object() && steps[1]["wait"].is_object(), "{steps:?}");
    assert!(requests >= 3 && requests.abs_diff(count) <= 1, "{requests} requests of {count} products");
    assert!(profile["memory"].as_array().unwrap().iter().any(|at| at["bytes"].as_u64().unwrap() >= 3 * 64 * 64 * 4), "{}", profile["memory"]);
    assert!(profile["host"]["waiting_ns"].as_u64().unwrap() > 0 && profile["card"]["multiprocessors"] == 132, "{profile}");
    assert!(profile["program"].as_str().unwrap().starts_with("lab_work load matmul"), "{}", profile["program"]);

    let shown = out(&place.cumux(&["record", "--show", "matmul.json"]).output().unwrap());
    assert!(shown.contains("multiply") && shown.contains("one request: 2 steps") && shown.contains("it waits"), "{shown}");
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["at", "memory"])), "memory over time: {shown}");
    let plan = place.cumux(&["plan", "--card", "a100-80", "--profile", "matmul.json*8", "--json"]).output().unwrap();
    let plan: Value = serde_json::from_str(&out(&plan)).unwrap();
    assert_eq!((&plan["programs"][0]["count"], &plan["met"]), (&8.into(), &true.into()));
    place.expect_nothing_left();
}

#[test]
fn what_cannot_be_recorded_or_shown_is_answered_with_a_sentence() {
    let place = Place::new();
    let (said, status) = place.refusal(&["record", "--", "true"]);
    assert!(said.contains("there is no profile") && said.contains("cumux doctor true") && status == Some(1), "{said}");
    assert!(!place.path("true.profile.json").exists());
    // The program's own failure comes first.
    assert_eq!(place.refusal(&["record", "--", "sh", "-c", "exit 7"]).1, Some(7));
    assert_eq!(place.refusal(&["record", "--", "/no/such/program"]).1, Some(127));
    let (said, status) = place.refusal(&["record", "-o", "/proc/nowhere/x.json", "--", "true"]);
    assert!(said.contains("cannot be written in /proc/nowhere") && status == Some(1), "{said}");
    fs::write(place.path("true.profile.json"), "{\"mine\": 1}").unwrap();
    assert!(place.refusal(&["record", "--", "true"]).0.contains("is no profile: say -o FILE"));
    fs::write(place.path("new.json"), "{\"format\": \"cumux-profile\", \"version\": 2}").unwrap();
    let (said, status) = place.refusal(&["record", "--show", "new.json"]);
    assert!(said.contains("version 2") && said.contains("new.json") && status == Some(1), "{said}");
    assert!(place.refusal(&["record", "--show", "none.json"]).0.contains("none.json cannot be read"));
    place.expect_nothing_left();
}

#[test]
fn the_lab_decides_judges_and_writes_its_report() {
    let place = Place::new();
    let output = place.cumux(&["lab", "--quick", "--grade", "--out", "report"]).output().unwrap();
    let said = out(&output);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("Recommended: ") && said.contains("behaviour, not speed") && said.contains("pass  a fault through cumux: 3 of 3"), "{said}");
    let report = json(&place.path("report/report.json"));
    assert_eq!((report["format"].as_str(), report["device"]["card"].as_str()), (Some("cumux-lab"), Some("h200")));
    let outcome = |name: &str| report["parts"].as_array().unwrap().iter().find(|part| part["name"] == name).map(|part| part["outcome"].clone());
    assert_eq!(outcome("shared (cumux)"), Some("ran".into()), "{}", report["parts"]);
    assert_eq!((outcome("NVIDIA MPS"), outcome("predictions")), (Some("skipped".into()), Some("predicted".into())));
    for mode in ["cumux", "time_sliced", "mig", "mps", "streams"] {
        assert!(
            report["sharing"].as_array().unwrap().iter().any(|row| row["mode"] == mode && row["throughput"].as_f64().unwrap() > 0.0),
            "no figure of {mode}"
        );
    }
    // Memory and slowdown of each program, copies beside kernels of each size, what MIG offers.
    let crowd = |mode: &str, source: &str| {
        let crowds = report["crowds"].as_array().unwrap();
        let is = |row: &&Value| row["mode"] == mode && row["source"] == source && row["workload"] == "matmul" && row["clients"] == 2;
        crowds.iter().find(is).unwrap_or_else(|| panic!("no crowd of {mode}")).clone()
    };
    let asked = 3.0 * 64.0 * 64.0 * 4.0 / f64::from(1 << 20);
    for mode in ["cumux", "time_sliced", "mig"] {
        let row = crowd(mode, "measured");
        assert!((row["memory_mib"].as_f64().unwrap() - asked).abs() < 1.0 / 1024.0, "{row}");
        assert!(row["least_slowdown"].as_f64().unwrap() <= row["most_slowdown"].as_f64().unwrap(), "{row}");
    }
    assert!(crowd("time_sliced", "predicted")["memory_mib"].as_f64().unwrap() > 500.0, "a context for each");
    let sizes = report["overlap"]["sizes"].as_array().unwrap();
    assert!(sizes.len() == 4 && sizes[3]["kernels_ms"].as_f64() > sizes[0]["kernels_ms"].as_f64(), "{}", report["overlap"]);
    assert_eq!(report["mig"]["profiles"].as_array().unwrap().len(), 7, "{}", report["mig"]);
    assert!(!report["timelines"].as_array().unwrap().is_empty() && !report["model"]["pairs"].as_array().unwrap().is_empty());
    // Predictions are for the host on which the lab runs: from the report and its profiles they
    // come again.
    let again = predictions(&report, |workload| profile::read(&fs::read_to_string(place.path(&format!("report/profiles/{workload}.json"))).ok()?).ok());
    assert!(again.iter().any(|pair| pair.mode == "mps" && pair.clients == 4), "{again:?}");
    assert!(again.iter().all(|pair| pair.error() < 5.0), "{again:?}");
    let page = fs::read_to_string(place.path("report/report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n") && page.contains("class=\"decision\"") && !page.contains("://"));
    // What is written for administrators is what the programs take that read it.
    let files: Vec<String> = report["artifacts"].as_array().unwrap().iter().map(|file| format!("report/{}", file.as_str().unwrap())).collect();
    let words: Vec<&str> = ["artifacts", "check"].into_iter().chain(files.iter().map(String::as_str)).collect();
    assert!(files.len() > 10 && place.cumux(&words).status().unwrap().success(), "{files:?}");
    place.expect_nothing_left();
}

/// A program of one's own, as a shell script around the lab's; `program` stands for that.
fn script(place: &Place, text: &str) -> String {
    let path = place.path("mine.sh");
    let text = text.replace("program", example("lab_work").to_str().unwrap()).replace("PLACE", place.folder.path().to_str().unwrap());
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The report of a lab with this program.
fn lab_with(place: &Place, command: &[&str]) -> Value {
    let output = place.cumux(&[&["lab", "--quick", "--json", "--out", "report", "--"], command].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.expect_nothing_left();
    serde_json::from_str(&out(&output)).unwrap()
}

/// Rows of the user's program: number of programs and basis of those that were measured.
fn own_rows(report: &Value, mode: &str) -> Vec<(u64, String)> {
    let rows = report["sharing"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["workload"] == "yours" && row["mode"] == mode && row["source"] == "measured");
    rows.map(|row| (row["clients"].as_u64().unwrap(), row["basis"].as_str().unwrap().to_owned())).collect()
}

/// The figures of the user's program that were compared with predictions.
fn own_figures(report: &Value, mode: &str) -> Vec<(u64, String)> {
    let pairs = report["model"]["pairs"].as_array().unwrap().iter().filter(|pair| pair["workload"] == "yours" && pair["mode"] == mode);
    pairs.map(|pair| (pair["clients"].as_u64().unwrap(), pair["figure"].as_str().unwrap().to_owned())).collect()
}

fn part<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["parts"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap()
}

#[test]
fn a_program_that_tells_of_its_requests_is_a_workload() {
    let place = Place::new();
    // The least that a result has. Who is recorded reads the end of its input.
    let program = script(
        &place,
        "[ \"$CUMUX_LAB\" = 1 ] || exit 9\necho loading\necho ready\nread -r word && [ \"$word\" != go ] && exit 8\n\
         program load tiny 0.3 0 now | sed 's/\"start_ms\":[^,]*,//; s/\"right\":[^,]*,//; s/,\"points_us\".*/}/'\necho '8 passes/s'\n",
    );
    let report = lab_with(&place, &[&program]);
    for mode in ["cumux", "time_sliced"] {
        assert_eq!(own_rows(&report, mode), [(1, "requests".into()), (2, "requests".into())], "{}", report["parts"]);
        let wanted = [(1, "throughput"), (1, "p99_us"), (2, "throughput"), (2, "p99_us")].map(|(clients, figure)| (clients, figure.to_owned()));
        assert_eq!(own_figures(&report, mode), wanted, "{mode}: {}", report["parts"]);
    }
    let row = report["sharing"].as_array().unwrap().iter().find(|row| row["workload"] == "yours" && row["clients"] == 2).unwrap();
    // Not the rate of the last line: requests of both.
    assert!(row["throughput"].as_f64().unwrap() > 20.0 && row["p99_us"].as_f64() >= row["p50_us"].as_f64() && row["start_ms"].is_null(), "{row}");
    assert_eq!(part(&report, "profiles")["outcome"], "ran", "{}", report["parts"]);
    assert!(report["decision"]["question"].as_str().unwrap().contains("your program"));
}

#[test]
fn the_best_round_of_a_program_counts() {
    let place = Place::new();
    // In its first round it is slowed down, in its second one some requests are. Who is recorded
    // reads the end of its input.
    let result = |requests: u32, p99: u32| format!(r#"echo '{{"requests": {requests}, "seconds": 1, "p50_us": 20000, "p99_us": {p99}}}'"#);
    let program = script(
        &place,
        &format!(
            "program load tiny 0.1 0 now > /dev/null\necho ready\nread -r word\n{}\necho ready\nread -r word || exit 0\n{}\necho ready\nread -r word || exit 0\n{}\n",
            result(10, 30_000),
            result(40, 50_000),
            result(90, 21_000)
        ),
    );
    let report = lab_with(&place, &[&program]);
    for mode in ["cumux", "time_sliced"] {
        let rows = report["sharing"].as_array().unwrap().iter().filter(|row| row["workload"] == "yours" && row["mode"] == mode && row["source"] == "measured");
        let figures: Vec<(f64, f64)> = rows.map(|row| (row["throughput"].as_f64().unwrap(), row["p99_us"].as_f64().unwrap())).collect();
        assert_eq!(figures, [(40.0, 30_000.0), (80.0, 30_000.0)], "there are two rounds: {}", report["parts"]);
    }
}

#[test]
fn a_program_that_says_nothing_is_timed_and_not_compared() {
    let place = Place::new();
    let program = example("lab_work");
    let report = lab_with(&place, &[program.to_str().unwrap()]);
    assert_eq!(own_rows(&report, "cumux"), [(1, "programs".into()), (2, "programs".into())], "{}", report["parts"]);
    assert_eq!(own_figures(&report, "cumux"), []);
    assert!(report["sharing"].as_array().unwrap().iter().any(|row| row["workload"] == "yours" && row["source"] == "predicted"), "it is predicted all the same");
}

#[test]
fn a_program_that_fails_beside_another_keeps_the_rows_before() {
    let place = Place::new();
    let program = script(
        &place,
        "mkdir PLACE/lock 2> /dev/null || { echo 'no room for two'; exit 3; }\ntrap 'rmdir PLACE/lock' EXIT\necho ready\nread -r word\nprogram load tiny 0.3 0 now\n",
    );
    let report = lab_with(&place, &[&program]);
    let shared = part(&report, "shared (cumux)");
    assert_eq!((&shared["outcome"], own_rows(&report, "cumux")), (&"failed".into(), vec![(1, "requests".into())]));
    assert_eq!(shared["why"], "your program, 2 at once: it ended with exit status: 3: no room for two");
    // The lab's own workloads have all theirs.
    let own = report["sharing"].as_array().unwrap().iter().filter(|row| row["mode"] == "cumux" && row["source"] == "measured" && row["workload"] != "yours");
    assert_eq!(own.count(), 4);
    assert_eq!(part(&report, "a fault, shared (cumux)")["outcome"], "ran", "the lab goes on");
}

#[test]
fn a_result_that_is_none_is_answered_with_a_sentence() {
    let place = Place::new();
    let program = script(&place, "echo ready\nread -r word\nprogram > /dev/null\necho '{\"requests\": 4, \"seconds\": 1}'\n");
    let why = part(&lab_with(&place, &[&program]), "shared (cumux)")["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("your program, 1 at once: it said ready, and docs/lab.md says") && why.contains("missing field `p50_us`"), "{why}");
}

#[test]
fn a_lab_is_graded_by_its_gates_and_says_which_fails_and_why() {
    let place = Place::new();
    let program = script(&place, "echo 'no model here'; exit 3\n");
    let output = place.cumux(&["lab", "--quick", "--grade", "--out", "report", "--", &program]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let wanted = "cumux: a gate fails: a decision with its reasons: - (wanted: one): the part \"profiles\" failed: your program: it ended with exit status: 3";
    assert!(output.status.code() == Some(1) && said.contains(wanted), "{said}");
    let report = json(&place.path("report/report.json"));
    let failed: Vec<&Value> = report["gates"].as_array().unwrap().iter().filter(|gate| gate["verdict"] == "failed").collect();
    assert!(failed.len() == 1 && report["decision"].is_null(), "nothing is decided for another program: {failed:?}");
    place.expect_nothing_left();
}

/// An installed cumux has no source folder: the user's nvcc makes the lab's program, for this run.
#[test]
fn an_installed_lab_compiles_its_program_or_says_how() {
    let place = Place::new();
    let prefix = place.path("installed");
    assert!(place.cumux(&["install", "--prefix"]).arg(&prefix).stdout(Stdio::null()).status().unwrap().success());
    let lab = |path: String| {
        let mut command = place.cumux(&[]);
        let mut installed = Command::new(prefix.join("bin/cumux"));
        installed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).args(["lab", "--quick", "--json", "--out", "report"]);
        installed.current_dir(place.folder.path()).stdin(Stdio::null()).env_remove("CUDA_HOME").env_remove("CUDA_PATH").env("PATH", path);
        command = installed;
        command.output().unwrap()
    };
    let without = std::env::var("PATH").unwrap().split(':').filter(|folder| !Path::new(folder).join("nvcc").exists()).collect::<Vec<_>>().join(":");
    if !Path::new("/usr/local/cuda/bin/nvcc").exists() {
        let refused = lab(without.clone());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.contains("there is no nvcc") && said.contains("pip install nvidia-cuda-nvcc"), "{said}");
    }
    let output = lab(format!("{}:{without}", cuda_compilers().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(report["sharing"].as_array().unwrap().iter().any(|row| row["mode"] == "cumux" && row["throughput"].as_f64().unwrap() > 0.0), "{report}");
    place.expect_nothing_left();
}

#[test]
fn a_lab_that_is_interrupted_leaves_nothing() {
    let place = Place::new();
    let mut child = place.cumux(&["lab", "--quick", "--out", "report"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // Its daemon and its programs run by then.
    assert!(lines.any(|line| line == "cumux: shared (cumux)"), "the lab names its parts");
    while processes_of(&place.path("tmp")).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Process::open(child.id()).unwrap().signal(Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2), "it ends as other tools do");
    place.expect_nothing_left();
    assert!(!place.path("report").exists(), "the folder that it made is gone");
}

#[test]
fn a_lab_that_cannot_begin_says_why() {
    let place = Place::new();
    let (said, status) = place.refusal(&["lab", "--quick", "--out", "/proc/nowhere"]);
    assert!(said.contains("the report's folder /proc/nowhere cannot be written: choose another with --out") && status == Some(1), "{said}");
    let (said, status) = place.refusal(&["lab", "--quick", "--", "/no/such/program"]);
    assert!(said.contains("there is no program /no/such/program") && status == Some(1), "{said}");
    assert!(place.refusal(&["lab", "--quick", "--", "no-such-program"]).0.contains("there is no program no-such-program"));
    assert!(place.refusal(&["lab", "--device", "sim:nothing"]).0.contains("unknown device"));
    assert!(place.refusal(&["lab", "--device", "sim:h200,sim:l4"]).0.contains("about one card"));
    assert!(!place.path("cumux-lab").exists());
}

#[test]
fn a_card_without_mig_has_no_model_of_instances() {
    let place = Place::new();
    let output = place.cumux(&["lab", "--quick", "--json", "--out", "report", "--device", "sim:l4"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    let instances = part(&report, "instances model");
    assert_eq!((&instances["outcome"], &instances["why"]), (&"skipped".into(), &"the card has no MIG".into()));
    assert!(report["sharing"].as_array().unwrap().iter().all(|row| row["mode"] != "mig"), "{}", report["sharing"]);
    assert_eq!(report["mig"]["mode"], "none");
    place.expect_nothing_left();
}
