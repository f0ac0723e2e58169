//! What stands in a program's way is said by its true name: kernels that a device does not run,
//! device code that nobody links, functions that are refused.

use cumux_abi::surface::{self, Answer};
use cumux_testkit::{Client, Node, cumux, example, test_program};
use cumux_wire::result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Every kind of software GPU.
const MODELS: [&str; 8] = ["sim:h200", "sim:a100-80", "sim:a100", "sim:l4", "sim:t4", "sim:b300", "sim:rtx-pro-6000", "sim:gb10"];

/// `cumux run` without any daemon around.
fn run(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(cumux());
    command.args(["run", "--device", "sim:h200", "--"]).arg(program).args(arguments).stdin(Stdio::null());
    command.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux");
    for variable in ["CUMUX_QUIET", "CUMUX_VERBOSE", "CUMUX_LOG", "CUMUX_DEVICE"] {
        command.env_remove(variable);
    }
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Lines of cumux on the program's standard error.
fn told(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.starts_with("cumux")).map(str::to_owned).collect()
}

#[test]
fn a_kernel_that_the_device_does_not_run_is_refused_by_its_launch_alone() {
    let output = run(&test_program("failures"), &["instruction"]).output().unwrap();
    let said = out(&output);
    assert!(output.status.success() && said.contains("instruction: PASS"), "the context and the other kernels go on: {output:?}");
    let count = |line: &str| said.lines().filter(|said| *said == line).count();
    assert_eq!((count("launch: cudaErrorNotSupported"), count("wait: cudaSuccess")), (20, 20), "{said}");
    for line in ["attributes: cudaSuccess", "occupancy: cudaSuccess", "capture: cudaErrorNotSupported", "node: cudaErrorNotSupported"] {
        assert_eq!(count(line), 1, "{line}: {said}");
    }
    let [line] = told(&output).try_into().expect("one line");
    assert!(line.starts_with("cumux: kernel video: the software GPU does not execute vmad.") && line.contains("(PTX line "), "{line}");
}

#[test]
fn the_fault_of_a_kernel_is_told_in_one_line() {
    let output = run(&test_program("failures"), &["address"]).output().unwrap();
    assert_eq!(out(&output), "launch: cudaSuccess\nwait: cudaErrorIllegalAddress\nagain: cudaErrorIllegalAddress\n");
    let [line] = told(&output).try_into().expect("one line");
    assert!(line.starts_with("cumux: kernel saxpy: illegal address 0xdead0000 (block 3,0,0 thread 5,0,0): access outside any allocation, 4 bytes"), "{line}");
    assert!(line.contains("PTX line ") && line.contains("st.u32"), "{line}");

    let quiet = run(&test_program("failures"), &["address"]).env("CUMUX_QUIET", "1").output().unwrap();
    assert_eq!((out(&quiet), told(&quiet)), (out(&output), Vec::new()));
}

#[test]
fn a_memory_limit_is_told_with_its_numbers() {
    let output = run(&test_program("failures"), &["memory"]).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=256M").output().unwrap();
    assert_eq!(out(&output), "first: cudaSuccess\nsecond: cudaErrorMemoryAllocation\nthird: cudaErrorMemoryAllocation\nfree: cudaSuccess\n");
    let [line] = told(&output).try_into().expect("one line, however often it is asked");
    assert!(line.contains("300.0 MiB were asked for") && line.contains("of the 256.0 MiB that this program may have"), "{line}");
}

#[test]
fn modules_and_functions_are_refused_with_their_reasons() {
    let output = run(&test_program("failures"), &["module"]).output().unwrap();
    let said = out(&output);
    assert_eq!(said, "module: CUDA_ERROR_INVALID_PTX\nhandle: CUDA_ERROR_NOT_SUPPORTED\npool: CUDA_ERROR_NOT_SUPPORTED\n");
    let [module, handle, pool] = told(&output).try_into().expect("a line each");
    assert!(
        module.starts_with("cumux: a module was not loaded: ") && module.contains("frobnicate") && module.matches("line 3, column").count() == 1,
        "{module}"
    );
    assert!(handle.contains("cuMemGetHandleForAddressRange") && handle.contains("only drivers of other devices read such a handle"), "{handle}");
    assert!(pool.starts_with("cumux: cuMemPoolCreate: not supported: pools of host memory"), "{pool}");
}

#[test]
fn a_launch_that_cannot_be_is_told_with_its_numbers() {
    let output = run(&test_program("failures"), &["launch"]).output().unwrap();
    assert!(output.status.success() && out(&output).starts_with("launch: cudaErrorInvalidValue\n"), "{output:?}");
    let [line] = told(&output).try_into().expect("one line");
    assert!(line.contains("grid of [1, 1, 1] blocks of [2048, 1, 1] threads") && line.contains("[1024, 1024, 64]"), "{line}");
}

#[test]
fn a_program_that_is_not_served_is_told_why() {
    let node = Node::with().env("CUMUX_MAX_CLIENTS", "1").start();
    let first = node.test_client("idle").start();
    first.wait_for_line("ready");
    let outcome = node.test_client("failures").env("CUMUX_VERBOSE", "1").start().wait();
    assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "first call: cudaErrorMpsMaxClientsReached"), "{outcome:?}");
    let told: Vec<&str> = outcome.err.lines().collect();
    assert!(matches!(told[..], [line] if line.starts_with("cumux: this program is not served: ") && line.contains('1')), "{outcome:?}");
    // Who did not ask prints what it would print on any card.
    let outcome = node.test_client("failures").start().wait();
    assert_eq!((outcome.status.code(), outcome.err.as_str()), (Some(3), ""), "{outcome:?}");
    first.expect_ok();
}

#[test]
fn what_an_administrator_ends_is_told_who_did_it() {
    let node = Node::start();
    let mut client = node.test_client("idle").env("CUMUX_VERBOSE", "1").start();
    client.wait_for_line("ready");
    let (server, pid) = (node.server().pid, client.pid());
    let _ = node.control(&format!("terminate_client {server} {pid}"));
    client.tell("");
    let outcome = client.wait();
    assert!(outcome.err.lines().any(|line| line == "cumux: the client was terminated by the administrator"), "{outcome:?}");
}

#[test]
fn a_fault_is_told_after_a_takeover_too() {
    let node = Node::start();
    if node.breaks_at_faults() {
        // There the fault itself ends the executor.
        return;
    }
    // It learns of its fault late: the executor that made it is gone by then.
    let mut client = node.test_client("failures").args(&["late"]).env("CUMUX_VERBOSE", "1").start();
    client.wait_for_line("faulted");
    node.wait_for("the fault to be known", |node| node.client_status(client.pid()).filter(|status| status.error == result::ILLEGAL_ADDRESS));
    let before = node.server();
    node.kill(before.executor);
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    client.tell("");
    let outcome = client.wait();
    assert_eq!(outcome.out.lines().last(), Some("wait: cudaErrorIllegalAddress"), "{outcome:?}");
    assert!(outcome.err.starts_with("cumux: kernel saxpy: illegal address 0xdead0000"), "{outcome:?}");
}

/// Copies of boxes, also out of arrays and into them, in one call; managed memory that is
/// discarded.
#[test]
fn batches_of_copies_are_copies() {
    let said = Node::start().test_client("batches").start().expect_ok();
    assert!(said.starts_with("boxes: right\n") && said.ends_with("discarded: right") && !said.contains("WRONG"), "{said}");
}

/// Launches as PyCUDA makes them, and an allocation of no bytes.
#[test]
fn launches_may_be_made_as_cuda_3_had_them() {
    let said = Node::start().test_client("early").start().expect_ok();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.len() == 7 && lines[..6].iter().all(|line| line.ends_with(": right")) && lines[6] == "no bytes: 0 0 0", "{said}");
}

// ---- graphs

#[test]
fn captured_nodes_tell_what_they_are() {
    let said = Node::start().test_client("captured").start().expect_ok();
    assert!(said.lines().count() == 18 && said.lines().all(|line| line.ends_with(": right")), "{said}");
}

/// What `conditions` says.
pub const CONDITIONS: &str = "type: conditional\nleft 0 rounds 10 inner 80 chosen 2 after 1200 either 4\nleft 0 rounds 20 inner 160 chosen 2 after 2400 either 8\n\
                    a host function in a body: cudaErrorNotSupported\nlong: 20000\nchanged in the graph: 1 7\nchanged in the executable: 3 9\nnot enabled: 3\nupdated: 23";

/// Also with a new executor in the middle of a loop.
#[test]
fn graphs_run_as_their_kernels_say() {
    let node = Node::start();
    assert_eq!(node.test_client("conditions").start().expect_ok(), CONDITIONS);
    if !node.is_software() {
        return;
    }
    let client = node.test_client("conditions").start();
    client.wait_for_line("a host function in a body: cudaErrorNotSupported");
    for takeovers in 1..=2 {
        node.kill(node.server().executor);
        node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == takeovers && server.state == "ACTIVE"));
    }
    assert_eq!(client.expect_ok(), CONDITIONS);
}

/// Shared memory and barriers of several blocks, on every software GPU that has clusters; the
/// others say that they have none.
#[test]
fn thread_block_clusters_share_memory() {
    for device in ["sim:h200", "sim:b300", "sim:rtx-pro-6000"] {
        let node = Node::with().device(device).start();
        assert_eq!(node.test_client("block_clusters").start().expect_ok(), "block clusters: PASS", "{device}");
    }
    let node = Node::with().device("sim:l4").start();
    assert_eq!(node.test_client("block_clusters").start().expect_ok(), "block clusters: NONE");
}

// ---- tensor cores, textures and surfaces

#[test]
fn matrices_are_multiplied_as_on_a_card() {
    let output = run(&test_program("matrices"), &[]).output().unwrap();
    assert!(output.status.success() && out(&output).contains("matrices: PASS"), "{output:?}");
    assert_eq!(told(&output), Vec::<String>::new());
}

#[test]
fn textures_are_sampled_as_the_programming_guide_says() {
    let output = run(&test_program("textures"), &[]).output().unwrap();
    assert!(output.status.success() && out(&output).contains("textures: PASS"), "{output:?}");
    assert_eq!(told(&output), Vec::<String>::new());
    // What is outside of a surface is the kernel's fault.
    let output = run(&test_program("textures"), &["beyond"]).output().unwrap();
    assert_eq!(out(&output), "beyond: cudaErrorIllegalAddress\n");
    let [line] = told(&output).try_into().expect("one line");
    assert!(line.contains("kernel _Z6beyondy: illegal address") && line.contains("access outside a surface") && line.contains("sust.b.2d.b32.trap"), "{line}");
}

#[test]
fn arrays_textures_and_surfaces_outlive_executors() {
    let node = Node::start();
    if !node.is_software() {
        // They are the driver's there, and its program is told (`textures`).
        return;
    }
    let mut client = node.test_client("textures").args(&["across"]).start();
    for takeovers in 1..=2 {
        client.wait_for_line(&format!("ready {takeovers}"));
        node.kill(node.server().executor);
        node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == takeovers && server.state == "ACTIVE"));
        client.tell("");
    }
    let outcome = client.wait();
    assert!(outcome.out.contains("textures: PASS"), "{outcome:?}");
}

// ---- relocatable device code

#[test]
fn relocatable_device_code_is_linked_when_the_program_starts() {
    let output = run(&test_program("separate"), &[]).output().unwrap();
    assert_eq!((out(&output).as_str(), told(&output)), ("OK\n", Vec::<String>::new()), "{output:?}");
    // Whether the compiler has linked it for another device or for none.
    for program in ["relocatable", "relocatable_linked"] {
        let output = run(&test_program(program), &[]).output().unwrap();
        assert_eq!((out(&output).as_str(), told(&output)), ("launch: cudaSuccess\n", Vec::<String>::new()), "{program}");
    }
}

#[test]
fn a_kernel_knows_which_of_the_program_s_devices_it_runs_on() {
    let of_two = "its own multiprocessors, cudaErrorNotSupported, cudaErrorInvalidDevice";
    let of_one = "its own multiprocessors, cudaErrorInvalidDevice, cudaErrorInvalidDevice";
    for (visible, expected) in [
        ("0,1", format!("NVIDIA H200 0 of 2, {of_two}\nNVIDIA L4 1 of 2, {of_two}\n")),
        ("1,0", format!("NVIDIA L4 0 of 2, {of_two}\nNVIDIA H200 1 of 2, {of_two}\n")),
        ("1", format!("NVIDIA L4 0 of 1, {of_one}\n")),
    ] {
        let mut command = Command::new(cumux());
        command.args(["run", "--device", "sim:h200,sim:l4", "--"]).arg(test_program("own_device")).stdin(Stdio::null());
        command.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux").env("CUDA_VISIBLE_DEVICES", visible).env_remove("CUMUX_DEVICE");
        let output = command.output().unwrap();
        assert_eq!(out(&output), expected, "{output:?}");
    }
}

#[test]
fn relocatable_device_code_without_ptx_says_how_to_build_it() {
    let output = run(&test_program("relocatable_machine"), &[]).output().unwrap();
    assert_eq!(out(&output), "launch: cudaErrorNoKernelImageForDevice\n");
    let [line] = told(&output).try_into().expect("one line");
    assert!(line.contains("nvcc -rdc=true") && line.contains("(1 part: sm_90)") && line.contains("not all of it is there as PTX"), "{line}");
    assert!(line.contains("nvcc has linked it for sm_90 alone") && line.contains("-rdc=true -gencode arch=compute_75,code=compute_75"), "{line}");
    // Kernels that call what no software GPU does are refused when they are launched.
    let output = run(&test_program("nested"), &[]).output().unwrap();
    assert_eq!(out(&output), "launch: cudaErrorNotSupported\n");
    let lines = told(&output);
    assert!(lines.iter().any(|line| line.contains("cudaGraphLaunch: this function of the device runtime")), "{lines:?}");
    // Without relocatable code the usual advice is the right one.
    let output = run(&test_program("machine_code"), &[]).output().unwrap();
    let [line] = told(&output).try_into().expect("one line");
    assert!(line.contains("only machine code for sm_90") && line.contains("arch=compute_75,code=compute_75") && !line.contains("rdc"), "{line}");
}

#[test]
fn device_code_is_linked_while_a_program_runs() {
    let output = run(&test_program("linking"), &[]).output().unwrap();
    let said = out(&output);
    let line = |what: &str| said.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no line about {what}: {output:?}")).to_owned();
    // (steps[1] + hidden of the caller) * 7 + hidden of the weigher + the strong total
    let value = (20 + 3) * 7 + 100 + 1000;
    assert_eq!((line("module"), line("library"), line("object")), (format!("module: {value}"), format!("library: {value}"), "object: 42".to_owned()));
    assert_eq!(line("linked"), "linked: CUDA_SUCCESS, 0 bytes: ");
    let text = "error   : Undefined reference to 'weigh' in 'caller.ptx'";
    assert_eq!(line("undefined"), format!("undefined: CUDA_ERROR_NO_BINARY_FOR_GPU, {} bytes: {text}", text.len()));
    let text = "error   : Multiple definition of 'helper' in 'two.ptx', first defined in 'one.ptx'";
    assert_eq!(line("twice"), format!("twice: CUDA_ERROR_NO_BINARY_FOR_GPU, {} bytes: {text}", text.len()));
    assert!(
        line("no PTX").starts_with("no PTX: CUDA_ERROR_INVALID_PTX") && line("no PTX").contains("bad.ptx, line 6") && line("no PTX").contains("frobnicate"),
        "{said}"
    );
    assert!(line("LTO").starts_with("LTO: CUDA_ERROR_NOT_SUPPORTED"), "{said}");
    assert!(told(&output).iter().any(|line| line.contains("device code was not linked") && line.contains("'weigh'")), "{output:?}");
}

// ---- the doctor

/// What the doctor finds in a program's device code for a device: outcome and all its text.
fn diagnosis(program: &Path, device: &str) -> (String, String) {
    let mut command = Command::new(cumux());
    command.args(["doctor", "--json", "--device", device]).arg(program).env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux").env_remove("CUMUX_DEVICE");
    let output = command.output().unwrap();
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let code: Vec<&serde_json::Value> = findings.iter().filter(|finding| finding["check"] == "device code").collect();
    let [finding] = code[..] else { panic!("not one finding: {findings:#?}") };
    (finding["outcome"].as_str().unwrap().to_owned(), finding.to_string())
}

#[test]
fn the_doctor_looks_into_a_program_s_images() {
    let (outcome, text) = diagnosis(&example("vector_add"), "sim:h200");
    assert!(outcome == "ok" && text.contains("1 kernel for sim:h200") && text.contains("compute_75") && text.contains("machine code for sm_90"), "{text}");

    let (outcome, text) = diagnosis(&test_program("failures"), "sim:t4");
    assert!(outcome == "warning" && text.contains("2 of 3 kernels") && text.contains("kernel video: the software GPU does not execute vmad."), "{text}");

    let (outcome, text) = diagnosis(&test_program("machine_code"), "sim:h200");
    assert!(outcome == "problem" && text.contains("nothing of it runs") && text.contains("only machine code for sm_90"), "{text}");
    for (program, kernels) in [("relocatable", "1 kernel"), ("relocatable_linked", "1 kernel"), ("separate", "2 kernels")] {
        let (outcome, text) = diagnosis(&test_program(program), "sim:h200");
        assert!(outcome == "ok" && text.contains("nvcc -rdc=true and linked from") && text.contains(&format!("{kernels} for sim:h200")), "{text}");
    }
    let (outcome, text) = diagnosis(&test_program("relocatable_linked"), "sim:t4");
    assert!(outcome == "problem" && text.contains("(1 part: compute_90, sm_90)") && text.contains("this device takes none of its PTX"), "{text}");
    let (outcome, text) = diagnosis(&test_program("relocatable_machine"), "sim:h200");
    assert!(outcome == "problem" && text.contains("not all of it is there as PTX") && text.contains("-rdc=true -gencode arch=compute_75"), "{text}");
    let (outcome, text) = diagnosis(&test_program("nested"), "sim:h200");
    assert!(outcome == "problem" && text.contains("cudaGraphLaunch: this function of the device runtime"), "{text}");
    let (outcome, text) = diagnosis(&test_program("launches"), "sim:h200");
    assert!(outcome == "ok" && text.contains("nvcc -rdc=true and linked from"), "{text}");

    // As a page, with the exit status that says that something stands in the way.
    let node = Node::start();
    let output = node.cumux(&["doctor", test_program("relocatable_machine").to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        out(&output).contains("PROBLEM  device code") && out(&output).contains("-rdc=true") && !out(&output).contains("Nothing stands"),
        "{}",
        out(&output)
    );
}

#[test]
fn the_doctor_judges_for_the_daemon_s_device_and_in_linked_libraries() {
    // A library of its own that the program is linked with: found by its RUNPATH.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(test_program("machine_code"), folder.path().join("libkernels.so")).unwrap();
    std::fs::write(folder.path().join("main.c"), "int main(void) { return 0; }\n").unwrap();
    let program = folder.path().join("main");
    let soname = Command::new("cc").current_dir(&folder).args(["-shared", "-fPIC", "-o", "libempty.so", "-x", "c", "/dev/null"]).status().unwrap();
    assert!(soname.success());
    std::fs::rename(folder.path().join("libkernels.so"), folder.path().join("kernels")).unwrap();
    std::fs::rename(folder.path().join("libempty.so"), folder.path().join("libkernels.so")).unwrap();
    let linked =
        Command::new("cc").current_dir(&folder).args(["-o", "main", "main.c", "-Wl,--no-as-needed", "-L.", "-lkernels", "-Wl,-rpath,$ORIGIN"]).status();
    assert!(linked.unwrap().success());
    let (outcome, text) = diagnosis(&program, "sim:l4");
    assert!(outcome == "ok" && text.contains("carries none"), "{text}");
    std::fs::rename(folder.path().join("kernels"), folder.path().join("libkernels.so")).unwrap();
    let (outcome, text) = diagnosis(&program, "sim:l4");
    assert!(outcome == "problem" && text.contains("libkernels.so") && text.contains("on sim:l4"), "{text}");

    let node = Node::with().device("sim:t4").start();
    let output = node.cumux(&["doctor", test_program("failures").to_str().unwrap()]).output().unwrap();
    assert!(out(&output).contains("run on sim:t4"), "{}", out(&output));
}

// ---- the demo's programs

#[test]
fn the_demo_s_programs_run_on_every_software_gpu() {
    for model in MODELS {
        let node = Node::with().device(model).start();
        let programs = ["vector_add", "matrix_multiply", "reduction", "histogram", "nbody", "monte_carlo_pi", "mandelbrot", "scan"];
        let long = node.client("long_kernel").start();
        let clients: Vec<Client<'_>> = programs.iter().map(|program| node.client(program).args(&["1"]).start()).collect();
        let faulty = node.client("illegal_access").start();
        long.wait_for_line("kernel running");
        long.kill();
        for client in clients {
            let said = client.expect_ok();
            assert!(said.contains("PASS"), "{model}: {said}");
        }
        assert!(faulty.expect_ok().contains("told of the illegal address"), "{model}");
    }
}

// ---- the list of functions

/// Names and answers, as they are listed.
type List = Vec<(&'static str, Answer)>;

/// What a served program has seen of the functions.
#[derive(Default)]
struct Seen {
    /// What each answered to nothing but zeros.
    zeros: BTreeMap<String, u32>,
    /// What some answered to arguments that are listed as not supported.
    parts: BTreeMap<String, u32>,
    /// Names that cuGetProcAddress knows, and whether it gives the exported function.
    doors: BTreeMap<String, bool>,
    /// Reasons in the log: of functions that are refused, and of parts.
    refusals: BTreeMap<String, Vec<String>>,
    reasons: BTreeSet<String>,
}

impl Seen {
    fn read(said: &str, log: &str) -> Self {
        let mut seen = Self::default();
        for line in said.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["zeros", name, code] => drop(seen.zeros.insert(name.to_owned(), code.parse().unwrap())),
                ["part", name, code] => drop(seen.parts.insert(name.to_owned(), code.parse().unwrap())),
                ["door", name, same] => *seen.doors.entry(name.to_owned()).or_insert(true) &= same == "same",
                _ => {}
            }
        }
        for line in log.lines().filter_map(|line| Some(line.strip_prefix("cumux[")?.split_once("]: ")?.1)) {
            if let Some((name, why)) = line.split_once(" is not supported: ") {
                seen.refusals.entry(name.to_owned()).or_default().push(why.to_owned());
            } else if let Some((name, _)) = line.split_once(": not supported: ") {
                seen.reasons.insert(name.to_owned());
            }
        }
        seen
    }

    /// Where the list is not what was seen. Each complaint begins with a name.
    fn complaints(&self, list: &List) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, answer) in list {
            let code = self.zeros.get(*name).copied();
            let told = self.refusals.get(*name).map(Vec::as_slice).unwrap_or_default();
            match answer {
                Answer::Refused { .. } if code != Some(801) => wrong.push(format!("{name} is listed as refused and answers {code:?}")),
                Answer::Refused { why } if told != [*why] => wrong.push(format!("{name} is refused because {why}, and the log says {told:?}")),
                Answer::Function { .. } if code == Some(801) || code.is_none() => wrong.push(format!("{name} is listed as answered and answers {code:?}")),
                Answer::Function { .. } if !told.is_empty() => wrong.push(format!("{name} is listed as answered, and the log says {told:?}")),
                _ => {}
            }
            if self.doors.get(*name) == Some(&false) {
                wrong.push(format!("{name} is another function when it comes from cuGetProcAddress"));
            }
            let Answer::Function { name: own, but_not } = answer else { continue };
            let part = self.parts.get(*name).copied().filter(|_| own == name);
            if but_not.starts_with(ON_CARDS) {
                continue;
            }
            match (but_not.is_empty() || own != name, part) {
                (true, Some(_)) => wrong.push(format!("{name} was asked for what it does not support, and is not listed with it")),
                (false, None) => wrong.push(format!("{name} is listed with `but not {but_not}`, and nobody has asked it for that")),
                (false, Some(code)) if code != result::NOT_SUPPORTED => wrong.push(format!("{name} answers {code} to `but not {but_not}`")),
                _ => {}
            }
        }
        let names: BTreeSet<&str> = list.iter().map(|(name, _)| *name).collect();
        let asked = self.zeros.keys().chain(self.parts.keys()).chain(self.doors.keys()).chain(self.refusals.keys());
        wrong.extend(asked.filter(|name| !names.contains(name.as_str())).map(|name| format!("{name} is not listed")));
        wrong
    }
}

/// How a part is listed that a software GPU has: nobody can ask for its refusal here.
const ON_CARDS: &str = "on real cards";

/// Every other thing that the list could say of one function.
fn falsehoods((name, answer): (&'static str, Answer)) -> Vec<(&'static str, Answer)> {
    let refused = (name, Answer::Refused { why: "it is not so" });
    match answer {
        Answer::Refused { .. } => vec![refused, (name, Answer::Function { name, but_not: "" })],
        Answer::Function { name: own, .. } if own != name => vec![refused],
        Answer::Function { but_not: "", .. } => vec![refused, (name, Answer::Function { name, but_not: "on Sundays" })],
        Answer::Function { but_not, .. } if but_not.starts_with(ON_CARDS) => vec![refused],
        Answer::Function { .. } => vec![refused, (name, Answer::Function { name, but_not: "" })],
    }
}

/// A program that calls every function, in a process that logs.
fn ask_every_function(node: &Node) -> Seen {
    let log = node.folder().join("surface.log");
    let mut client = node.test_client("surface").env("CUMUX_LOG", log.to_str().unwrap()).start();
    for (name, _) in surface::functions() {
        client.tell(name);
    }
    for line in surface::PROC_ADDRESS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, answers) = line.split_once(' ').unwrap();
        let (common, per_thread) = answers.split_once(" | ").unwrap_or((answers, answers));
        for (flags, steps) in [(0, common), (1, common), (2, per_thread)] {
            for step in steps.split(' ').collect::<Vec<_>>().chunks(2) {
                client.tell(&format!("? {name} {} {flags} {}", step[0], step[1]));
            }
        }
    }
    let said = client.expect_ok();
    assert_eq!(said.lines().last(), Some("all asked"), "{said}");
    Seen::read(&said, &std::fs::read_to_string(log).unwrap())
}

#[test]
fn every_exported_function_answers_as_it_is_listed() {
    let node = Node::start();
    if !node.is_software() {
        // What a real card refuses is another list.
        return;
    }
    let seen = ask_every_function(&node);
    let list: List = surface::functions().collect();
    let wrong = seen.complaints(&list);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Whoever is asked for a part that is not supported says what it is; of a kernel that is said
    // by the kernel's name.
    let is_of_kernel = |name: &str| name.contains("Kernel") || name.starts_with("cuLaunch");
    let silent: Vec<&String> = seen.parts.keys().filter(|name| !seen.reasons.contains(*name) && !is_of_kernel(name)).collect();
    assert!(silent.is_empty(), "refused without a reason: {silent:?}");

    // The same with one falsehood in the list, whichever it is.
    for (index, entry) in list.iter().enumerate() {
        for false_entry in falsehoods(*entry) {
            let mut false_list = list.clone();
            false_list[index] = false_entry;
            let wrong = seen.complaints(&false_list);
            assert!(wrong.iter().any(|line| line.starts_with(&format!("{} ", entry.0))), "nobody notices {false_entry:?}: {wrong:?}");
        }
        let mut short = list.clone();
        short.remove(index);
        assert!(seen.complaints(&short).contains(&format!("{} is not listed", entry.0)), "{} can be left out", entry.0);
    }
}

#[test]
fn the_page_is_the_list() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../COMPATIBILITY.md")).unwrap();
    // `- served, but not …: `a`, `b``, `- local: …`, `- refused (why): …`.
    let mut said: BTreeMap<&str, (bool, &str)> = BTreeMap::new();
    for line in page.lines() {
        let Some((head, names)) = line.strip_prefix("- ").and_then(|line| line.split_once(": `")) else { continue };
        let status = match head {
            "served" | "local" => (true, ""),
            _ => match (head.strip_prefix("refused ("), head.split_once(", but not ")) {
                (Some(why), _) => (false, why.strip_suffix(')').unwrap()),
                (None, Some(("served" | "local", but_not))) => (true, but_not),
                _ => panic!("{line}"),
            },
        };
        for name in names.split("`, `").map(|name| name.trim_end_matches('`')) {
            assert_eq!(said.insert(name, status), None, "{name} stands twice in the page");
        }
    }
    let mut refused = 0;
    for (name, answer) in surface::functions() {
        refused += usize::from(matches!(answer, Answer::Refused { .. }));
        let Some(status) = said.remove(name) else {
            // Older names and variants are counted.
            let is_other = surface::SURFACE.lines().filter_map(|line| line.strip_prefix(name)).any(|rest| {
                let rest = rest.trim_start();
                rest.starts_with("alias ") || rest.starts_with("variant ")
            });
            assert!(is_other, "{name} is missing in the page");
            continue;
        };
        let expected = match answer {
            Answer::Function { but_not, .. } => (true, but_not),
            Answer::Refused { why } => (false, why),
        };
        assert_eq!(status, expected, "{name}");
    }
    assert!(said.is_empty(), "in the page and not in the list: {said:?}");
    let total = page.lines().find_map(|line| line.strip_prefix("| **all functions** | ")).unwrap();
    let total: Vec<usize> = total.split(" | ").map(|cell| cell.trim_matches(['*', ' ', '|']).parse().unwrap()).collect();
    assert_eq!((total[0] + total[1] + total[2], total[2]), (surface::functions().count(), refused));
}
