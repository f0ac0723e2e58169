//! Documents for administrators: every command line of cumux in them is one that cumux takes, and
//! every file in them is one that its reader takes.

use cumux_testkit::kubelet::Kubelet;
use cumux_testkit::{Node, example, test_program};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Pages whose commands are for administrators and users of a cluster.
const PAGES: [&str; 6] = ["kubernetes.md", "slurm.md", "groups.md", "metrics.md", "packages.md", "serving.md"];

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).expect("a page")
}

/// The blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let mark = format!("```{language}\n");
    page.split(&mark).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// All blocks, whatever their language.
fn all_blocks(page: &str) -> Vec<&str> {
    let parts: Vec<&str> = page.split("```").collect();
    parts.into_iter().skip(1).step_by(2).map(|block| block.split_once('\n').map_or("", |(_, text)| text)).collect()
}

/// The words of a call of cumux in a line of a shell, without what stands before and behind it.
fn call_in(line: &str) -> Option<Vec<&str>> {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.split(" #").next().unwrap_or_default();
    // Also behind `kubectl exec … --`, in a pipe, and as the command of an image of that name.
    let begins = |at: &usize| *at == 0 || ["-- ", "| ", "cumux "].iter().any(|before| line[..*at].ends_with(before));
    let at = line.match_indices("cumux ").map(|(at, _)| at).filter(begins).last()?;
    Some(line[at..].split_whitespace().skip(1).collect())
}

fn help(words: &[&str]) -> String {
    let output = Command::new(cumux_testkit::cumux()).args(words).arg("--help").stdin(Stdio::null()).output().expect("cumux starts");
    assert!(output.status.success(), "cumux {words:?} is no command: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_command_in_them_is_one() {
    let mut lines = 0;
    for name in PAGES {
        let text = page(name);
        for line in all_blocks(&text).iter().flat_map(|block| block.lines()) {
            let Some(words) = call_in(line) else { continue };
            lines += 1;
            let count = words.iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')).count();
            // `control` has NVIDIA's options; others' are in their own help.
            let commands = &words[..if ["slurm", "group"].contains(&words[0]) { count.min(2) } else { 1 }];
            let help = help(commands);
            // What follows `--` is another program's.
            for option in words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with('-')) {
                let option = option.split('=').next().expect("a word");
                assert!(help.contains(option), "{name}: \"{line}\": cumux {commands:?} has no {option}");
            }
        }
    }
    assert!(lines >= 20, "only {lines} lines were found");
}

/// The names of our variables in a text, whatever else is there.
fn variables(text: &str, begin: &str, end: char) -> BTreeSet<String> {
    let names = text.split(begin).skip(1).filter_map(|rest| rest.split(end).next());
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    names.filter(is_name).map(|name| format!("CUMUX_{name}")).collect()
}

/// All sources below a folder, without what is for tests alone.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") && !path.to_string_lossy().ends_with("_tests.rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            into.push_str(text.split("#[cfg(test)]").next().unwrap_or_default());
        }
    }
}

#[test]
fn every_variable_that_is_read_is_documented_and_the_other_way_round() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for part in ["crates", "bin"] {
        for package in std::fs::read_dir(root.join(part)).expect("a folder").flatten().filter(|package| package.file_name() != "testkit") {
            sources(&package.path().join("src"), &mut text);
        }
    }
    let (read, documented) = (variables(&text, "\"CUMUX_", '"'), variables(&page("drop-in.md"), "`CUMUX_", '`'));
    assert!(read.len() > 30, "{read:?}");
    assert_eq!(&read - &documented, BTreeSet::new(), "docs/drop-in.md does not say what they do");
    assert_eq!(&documented - &read, BTreeSet::new(), "docs/drop-in.md has them, and nobody reads them");
}

#[test]
fn every_file_in_them_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = page("kubernetes.md");
    for (number, block) in blocks(&text, "yaml").iter().enumerate() {
        if block.contains("GroupConfig") {
            // Read by the driver alone; its fields are tested there.
            continue;
        }
        let kind = if block.contains("sharing:") { "plugin" } else { "pod" };
        let file = folder.path().join(format!("{number}-{kind}.yaml"));
        std::fs::write(&file, block).expect("a file");
        let output = Command::new(cumux_testkit::cumux()).args(["artifacts", "check"]).arg(&file).output().expect("cumux starts");
        assert!(output.status.success(), "{block}: {output:?}");
    }
}

/// A shell on a node, with cumux in its search path as an administrator has it.
struct Shell<'a> {
    node: &'a Node,
    /// What the page says, and what it is here.
    places: Vec<(&'static str, String)>,
}

impl<'a> Shell<'a> {
    fn new(node: &'a Node, places: &[(&'static str, &Path)]) -> Self {
        let tools = node.folder().join("tools");
        std::fs::create_dir(&tools).expect("a folder");
        symlink(cumux_testkit::cumux(), tools.join("cumux")).expect("a link");
        Self { node, places: places.iter().map(|(name, path)| (*name, path.to_string_lossy().into_owned())).collect() }
    }

    /// A text of the page with this node's places.
    fn here(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, path))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &self.here(line)]).current_dir(self.node.folder()).stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.node.folder().join("tools").display()));
        for (name, value) in self.node.cumux(&[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Runs a line, which must be a success, and returns what it prints.
    fn run(&self, line: &str) -> String {
        let output = self.command(line).output().expect("a shell");
        assert!(output.status.success(), "{line}: {output:?}\n{}", self.node.logs());
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A process that the page leaves running. It is killed when it is dropped.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is typed on the page of groups is typed here, and what the page shows is shown.
#[test]
fn the_commands_of_groups_do_what_the_page_shows() {
    let node = Node::start();
    let shell =
        Shell::new(&node, &[("/run/cumux", &node.pipe()), ("/usr/local/lib/cumux", &node.folder().join("lib")), ("python train.py", &test_program("idle"))]);
    let text = page("groups.md");
    let block = blocks(&text, "").into_iter().find(|block| block.starts_with("$ cumux group create")).expect("the block");
    let (mut said, mut running) = (Vec::<String>::new(), None);
    for line in block.lines() {
        if let Some(line) = line.strip_prefix("$ ") {
            assert!(said.is_empty(), "the page does not show {said:?}");
            if let Some(line) = line.strip_suffix(" &") {
                let mut command = shell.command(&format!("exec env {line}"));
                running = Some(Background(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell")));
                node.wait_for("the program in its group", |node| node.control("group list\n").contains("\"clients\":1").then_some(()));
            } else {
                // The last command: a group with programs stays.
                if line.contains("group rm") {
                    drop(running.take());
                    node.wait_for("the program to go", |node| node.control("group list\n").contains("\"clients\":0").then_some(()));
                }
                said = shell.run(line).lines().map(str::to_owned).collect();
            }
            continue;
        }
        let (shown, found) = (shell.here(line), said.remove(0));
        // Memory in use, and whose programs they are, differ.
        let of = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (shown, found) = (of(&shown), of(&found));
        let is_same = |(number, (shown, found)): (usize, (&String, &String))| shown == found || (4..=5).contains(&number) || shown == "1000";
        assert!(shown.len() == found.len() && shown.iter().zip(&found).enumerate().all(is_same), "the page shows {shown:?}, and here is {found:?}");
    }
    assert!(said.is_empty() && node.control("group list\n") == "{\"groups\":[]}\n");
}

/// `gres.conf` is what the page shows, and the hooks are what it says of them.
#[test]
fn the_commands_of_slurm_do_what_the_page_shows() {
    let node = Node::start();
    let installed = node.folder().join("usr");
    let shell = Shell::new(&node, &[("/run/cumux", &node.pipe()), ("/usr/local", &installed)]);
    let text = page("slurm.md");
    let lines: Vec<&str> = blocks(&text, "sh").into_iter().flat_map(str::lines).collect();
    let find = |part: &str| *lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} on the page"));
    shell.run(find("cumux install"));
    assert!(installed.join("bin/cumux").exists() && installed.join("lib/cumux/libcuda.so.1").exists());
    let gres = shell.run(find("cumux slurm gres"));
    let settings: Vec<&str> = gres.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let shown = blocks(&text, "").into_iter().find(|block| block.starts_with("GresTypes=")).expect("the block");
    assert_eq!(settings.join("\n").replace("NodeName=...", "NodeName=node1"), shown.trim_end());
    let uid = rustix::process::geteuid().as_raw();
    let hook = |name: &str| {
        let line = find(&format!("cumux slurm {name} "));
        shell.run(&format!("SLURM_JOB_ID=7 SLURM_JOB_UID={uid} SLURM_JOB_GPUS=0 CUDA_VISIBLE_DEVICES=0 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 {line}"))
    };
    assert_eq!(hook("prolog"), "");
    let exports = hook("task-prolog");
    let pipe = exports.lines().find_map(|line| line.strip_prefix("export CUDA_MPS_PIPE_DIRECTORY=")).expect("the job's directory");
    assert!(node.client("vector_add").args(&["1"]).env("CUDA_MPS_PIPE_DIRECTORY", pipe).start().expect_ok().contains("PASS"));
    assert_eq!(hook("epilog"), "");
    assert_eq!(node.control("group list\n"), "{\"groups\":[]}\n");
}

/// The configurations of the page are checked, and served, by the commands of the page.
#[test]
fn the_commands_of_kubernetes_do_what_the_page_says() {
    let node = Node::start();
    let kubelet = Kubelet::start(&node.folder().join("kubelet"));
    let shell = Shell::new(&node, &[]);
    let text = page("kubernetes.md");
    let config = blocks(&text, "yaml").into_iter().find(|block| block.contains("sharing:")).expect("a configuration");
    std::fs::write(node.folder().join("config.yaml"), config).expect("a file");
    let lines: Vec<&str> = blocks(&text, "sh").into_iter().flat_map(str::lines).filter(|line| line.contains("config.yaml")).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        if line.contains("check") {
            shell.run(line);
            continue;
        }
        let state = node.folder().join("state.json");
        let rest = format!("--kubelet-socket {} --pod-resources {} --state {}", kubelet.socket().display(), kubelet.pods().display(), state.display());
        let _plugin = Background(shell.command(&format!("exec {line} {rest}")).stderr(Stdio::null()).spawn().expect("a shell"));
        kubelet.wait_for("cumux.dev/gpu-percent", 20);
        kubelet.wait_for_any("cumux.dev/gpu-memory");
        // The pod of the page, and what the page says that it gets.
        let pod = blocks(&text, "yaml").into_iter().find(|block| block.contains("kind: Pod")).expect("a pod");
        let wish = |name: &str| pod.split(name).nth(1).and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse().ok()).expect("a number");
        let wishes = [("cumux.dev/gpu-memory", wish("cumux.dev/gpu-memory")), ("cumux.dev/gpu-percent", wish("cumux.dev/gpu-percent"))];
        kubelet.run_pod("small-model", &wishes).expect("it is admitted");
        let list = shell.run("cumux group list");
        assert!(list.contains("8.00 GiB") && list.contains("25 %"), "{list}");
    }
}

/// The exporter's commands listen where the page says, but for the port, which is free here.
#[test]
fn the_commands_of_metrics_do_what_the_page_says() {
    let node = Node::start();
    let shell = Shell::new(&node, &[]);
    let text = page("metrics.md");
    let block = blocks(&text, "").into_iter().find(|block| block.starts_with("cumux exporter")).expect("the block");
    for line in block.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let (line, address) = match line.contains("--listen") {
            true => (line.replace(":9456", ":0"), "0.0.0.0"),
            false => (format!("{line} --listen 0"), "127.0.0.1"),
        };
        let mut exporter = shell.command(&format!("exec {line}")).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut said = String::new();
        BufReader::new(exporter.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
        drop(Background(exporter));
        assert!(said.starts_with(&format!("listening on http://{address}:")) && said.ends_with("/metrics\n"), "{line}: {said}");
    }
    // Every metric that is exported is on the page, and the other way round.
    let scraped = crate::exporter::Exporter::start(&node, &[]);
    let client = node.client("vector_add").args(&["1"]).start();
    client.expect_ok();
    let (_, metrics) = scraped.get_older("/metrics");
    let on_page: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("cumux_")).collect();
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(on_page.contains(name), "docs/metrics.md does not say what {name} is");
    }
}

/// The service of the page of services is what a client of the groups of that page gets.
#[test]
fn the_groups_of_serving_are_made_as_the_page_says() {
    let node = Node::start();
    let shell = Shell::new(&node, &[("/run/cumux", &node.pipe())]);
    let text = page("serving.md");
    let lines: Vec<&str> = blocks(&text, "").into_iter().flat_map(str::lines).filter(|line| line.starts_with("cumux group create")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    lines.iter().for_each(|line| drop(shell.run(line)));
    for line in blocks(&text, "").into_iter().flat_map(str::lines).filter(|line| line.starts_with("CUDA_MPS_PIPE_DIRECTORY=/run/cumux/groups/")) {
        let directory =
            line.strip_prefix("CUDA_MPS_PIPE_DIRECTORY=").and_then(|rest| rest.split(' ').next()).map(|path| shell.here(path)).expect("a directory");
        let program = node.program(&example("vector_add")).args(&["1"]).env("CUDA_MPS_PIPE_DIRECTORY", &directory);
        assert!(program.start().expect_ok().contains("PASS"));
    }
}
