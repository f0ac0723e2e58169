//! Programs that compile while they run: on a software GPU they get PTX where they ask for machine
//! code, and nothing else changes for them.
//!
//! The compilers here are stand-ins (`tests/compilers`), built with the C compiler: NVIDIA's are
//! not among what a checkout installs.

use cumux_testkit::{Node, cumux};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The stand-ins, and programs that use them.
fn built() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("compilers");
    let cc = |source: &str, output: &str, options: &[&str]| {
        let mut command = Command::new("cc");
        command.current_dir(&folder).args(["-O1", "-Wall", "-Werror", "-o", output]).arg(sources.join(source)).args(options).arg("-ldl");
        assert!(command.status().unwrap().success(), "{source}");
    };
    let library = ["-shared", "-fPIC"];
    cc("nvrtc.c", "libnvrtc.so.13", &[&library[..], &["-Wl,-soname,libnvrtc.so.13"]].concat());
    cc("nvjitlink.c", "libnvJitLink.so.13", &[&library[..], &["-Wl,-soname,libnvJitLink.so.13"]].concat());
    cc("nvjitlink.c", "libnvJitLink.so.12", &[&library[..], &["-DOLDER", "-Wl,-soname,libnvJitLink.so.12"]].concat());
    let with_nvrtc = ["-DLINKED", "-L.", "-l:libnvrtc.so.13", "-Wl,-rpath,$ORIGIN"];
    cc("program.c", "program", &[]);
    cc("nvml.c", "nvml", &[]);
    cc("program.c", "linked", &with_nvrtc);
    let with_linker = ["-DLINKED_BY_PLAIN_NAMES", "-L.", "-l:libnvJitLink.so.13", "-Wl,-rpath,$ORIGIN"];
    cc("program.c", "linker", &with_linker);
    cc("program.c", "libnewer.so", &[&library[..], &with_linker].concat());
    let with_older = with_linker.map(|option| if option == "-l:libnvJitLink.so.13" { "-l:libnvJitLink.so.12" } else { option });
    cc("program.c", "libolder.so", &[&library[..], &with_older].concat());
    cc("program.c", "libplugin.so", &[&library[..], &with_nvrtc, &["-DPLUGIN"]].concat());
    cc("next.c", "libsecond.so", &[&library[..], &["-DSECOND"]].concat());
    cc("next.c", "libfirst.so", &[&library[..], &["-DFIRST"]].concat());
    cc("next.c", "next", &["-Wl,--no-as-needed", "-L.", "-lfirst", "-lsecond", "-Wl,-rpath,$ORIGIN"]);
    folder
}

fn run(command: &[&str]) -> Command {
    let mut run = Command::new(cumux());
    run.args(["run", "--device", "sim:h200", "--"]).args(command).stdin(Stdio::null());
    run.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux");
    for variable in [
        "CUMUX_QUIET",
        "CUMUX_VERBOSE",
        "CUMUX_LOG",
        "CUMUX_DEVICE",
        "CUMUX_COMPILERS",
        "LD_PRELOAD",
        "CUPY_CACHE_DIR",
        "CUPY_ACCELERATORS",
        "TRITON_PTXAS_PATH",
        "TRITON_PTXAS_BLACKWELL_PATH",
        "TORCHINDUCTOR_CACHE_DIR",
    ] {
        run.env_remove(variable);
    }
    run
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_a_program_compiles_runs_on_a_software_gpu() {
    let folder = built();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let here = folder.path().to_str().unwrap();
    let output = run(&[&at("program"), "opened", here]).env("LD_LIBRARY_PATH", here).output().unwrap();
    assert_eq!(out(&output), "by path: 0, limited PTX, 42\nby name: 0, limited PTX, 42\nby default: 0, limited PTX, 42\n", "{output:?}");
    assert_eq!(out(&run(&[&at("linked"), "linked"]).output().unwrap()), "linked: 0, limited PTX, 42\n");
    assert_eq!(out(&run(&[&at("program"), "plugin", here]).output().unwrap()), "plugin: 0, limited PTX, 42\n");
    // A child of the program, which starts it as any program starts another.
    let output = run(&["sh", "-c", &format!("{} opened {here} | head -1; true", at("program"))]).output().unwrap();
    assert!(out(&output).starts_with("by path: 0, limited PTX, 42\n"), "{output:?}");
}

#[test]
fn what_a_program_links_runs_on_a_software_gpu() {
    let folder = built();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let expected =
        "texts: 0, PTX, 43\ntext as machine code: 0, PTX, 43\nintermediate: 0, PTX, 43\nmissing: 6, error   : Undefined reference to 'f' in 'text0'\n";
    for command in [[&at("program"), "jitlink", folder.path().to_str().unwrap()].as_slice(), &[&at("linker"), "plain"]] {
        let output = run(command).output().unwrap();
        assert_eq!(out(&output), expected, "{output:?}");
    }
    // Two libraries of a program, each with a version of its own.
    let output = run(&[&at("program"), "plugins", folder.path().to_str().unwrap()]).output().unwrap();
    let of_older = expected.replace("intermediate: 0, PTX, 43", "intermediate: 0, PTX, 44");
    assert_eq!(out(&output), of_older + expected, "{output:?}");
}

/// Triton starts `ptxas` as a program of its own, and loads what that has written.
#[test]
fn what_another_program_assembles_runs_on_a_software_gpu() {
    let folder = built();
    let program = folder.path().join("program").to_str().unwrap().to_owned();
    let (text, image) = (folder.path().join("k.ptx"), folder.path().join("k.cubin"));
    std::fs::write(&text, Command::new(&program).arg("text").output().unwrap().stdout).unwrap();
    let line = format!(
        "$TRITON_PTXAS_PATH -lineinfo -v --fmad=false --gpu-name=sm_90a {} -o {} && {program} file {}",
        text.display(),
        image.display(),
        image.display()
    );
    assert_eq!(out(&run(&["sh", "-c", &line]).output().unwrap()), "file: 42\n");
    // Triton keeps what it has compiled apart by this text, and takes the version of PTX from it.
    let version = out(&run(&["sh", "-c", "$TRITON_PTXAS_BLACKWELL_PATH --version"]).output().unwrap());
    assert!(version.contains("cumux") && version.contains("release 13.0, V13.0."), "{version}");
    // What is wrong is told as by ptxas, with the same exit status.
    std::fs::write(&text, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n  mov.u32 %r1, 1;\n}\n").unwrap();
    let output = run(&["sh", "-c", &line]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(255) && told.contains("line 5") && told.contains("%r1"), "{told}");
    // Not for who has chosen another one, nor for who wants nothing of this.
    let shown = |command: &mut Command| out(&command.output().unwrap());
    assert_eq!(shown(run(&["sh", "-c", "echo $TRITON_PTXAS_PATH"]).env("TRITON_PTXAS_PATH", "/mine/ptxas")), "/mine/ptxas\n");
    let ours = shown(&mut run(&["sh", "-c", "echo $TRITON_PTXAS_PATH"]));
    let off = run(&["sh", "-c", "echo $TRITON_PTXAS_PATH"]).env("CUMUX_COMPILERS", "0").env("TRITON_PTXAS_PATH", ours.trim()).output().unwrap();
    assert_eq!(out(&off), "\n");
}

/// JAX asks for device files and opens NVML before it opens the driver.
#[test]
fn software_gpus_are_found_by_who_looks_for_cards() {
    let folder = built();
    let program = folder.path().join("nvml").to_str().unwrap().to_owned();
    let mut command = Command::new(cumux());
    command.args(["run", "--device", "sim:h200,sim:l4", "--", &program]).env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux");
    // On a machine with a card its file is there in truth.
    let opened = if std::fs::File::options().read(true).write(true).open("/dev/nvidiactl").is_ok() { "yes" } else { "no" };
    let expected = "NVML: 0 0 0, 2 devices, CUDA 13000\n\
                    0: NVIDIA H200, 9.0, found again\n1: NVIDIA L4, 8.9, found again\ntoo short: 7, too many: 2, no such: 6, refused: 3\n\
                    a child of who has looked: 0 0, 2 devices\nwho has looked: 0 0, 2 devices\na child of who uses them: 3 3, -1 devices\n";
    assert_eq!(out(&command.output().unwrap()), format!("device files: there, another: -1, opened: {opened}\n{expected}"));
    // NVML takes no notice of which ones CUDA is to see.
    let told = out(&command.env("CUDA_VISIBLE_DEVICES", "1").output().unwrap());
    assert_eq!(told, format!("device files: there, another: -1, opened: {opened}\n{}", expected.replace(": 0 0, 2 devices", ": 0 0, 1 devices")));
    // A library that the user preloads has its say about other files.
    let second = folder.path().join("libsecond.so");
    let told = out(&run(&[&program]).env("LD_PRELOAD", &second).output().unwrap());
    assert!(told.starts_with(&format!("device files: there, another: 0, opened: {opened}\n")), "{told}");
    // JAX looks for the assembler below this folder.
    let line = "test -x $CUDA_ROOT/bin/ptxas && case $LD_LIBRARY_PATH in $CUDA_ROOT:*) echo found;; esac";
    assert_eq!(out(&run(&["sh", "-c", line]).env_remove("CUDA_ROOT").output().unwrap()), "found\n");
    assert_eq!(out(&run(&["sh", "-c", "echo $CUDA_ROOT"]).env("CUDA_ROOT", "/mine").output().unwrap()), "/mine\n");
    // Nothing of it stays for who wants none, though the outer one had it.
    let inner = format!("CUMUX_COMPILERS=0 {} run --device sim:h200 -- sh -c 'echo $LD_LIBRARY_PATH $CUDA_ROOT; exec {program}'", cumux().display());
    let told = out(&run(&["sh", "-c", &inner]).env_remove("CUDA_ROOT").env_remove("LD_LIBRARY_PATH").output().unwrap());
    let there = Path::new("/dev/nvidiactl").exists();
    assert!(!told.contains("software") && (there || told.contains("device files: none")), "{told}");
}

#[test]
fn without_it_machine_code_is_refused_with_the_way_out() {
    let folder = built();
    let (program, here) = (folder.path().join("program"), folder.path().to_str().unwrap());
    let output = run(&[program.to_str().unwrap(), "opened", here]).env("CUMUX_COMPILERS", "0").env("LD_LIBRARY_PATH", here).output().unwrap();
    // CUDA_ERROR_NO_BINARY_FOR_GPU
    assert_eq!(out(&output), "by path: 0, machine code, -209\nby name: 0, machine code, -209\nby default: 0, machine code, -209\n");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("only machine code for sm_90") && told.contains("cumux run makes these compile to PTX"), "{told}");
    assert_eq!(out(&run(&["sh", "-c", "echo $LD_PRELOAD$CUPY_CACHE_DIR"]).env("CUMUX_COMPILERS", "0").output().unwrap()), "\n");
}

#[test]
fn other_programs_notice_nothing() {
    let folder = built();
    let next = folder.path().join("next");
    assert_eq!(out(&run(&[next.to_str().unwrap()]).output().unwrap()), "42 1 1 1\n");
    // What the user preloads stays, behind ours.
    let second = folder.path().join("libsecond.so");
    let shown = |command: &mut Command| out(&command.output().unwrap()).trim().to_owned();
    let preloaded = shown(run(&["sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", &second));
    assert!(preloaded.contains("libcumux_compilers.so:") && preloaded.ends_with("/libsecond.so"), "{preloaded}");
    // One inside the other has it once.
    let nested = format!("{} run --device sim:h200 -- sh -c 'echo $LD_PRELOAD'", cumux().display());
    let preloaded = shown(&mut run(&["sh", "-c", &nested]));
    assert_eq!(preloaded.matches("libcumux_compilers.so").count(), 1, "{preloaded}");
    // A daemon of software GPUs that is there already counts as well.
    let node = Node::start();
    let preloaded = out(&node.cumux(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).env_remove("LD_PRELOAD").output().unwrap());
    assert_eq!(preloaded.contains("libcumux_compilers.so"), node.is_software(), "{preloaded}");
    // CuPy keeps what it compiles for a software GPU apart from what it compiles for cards.
    assert_eq!(shown(run(&["sh", "-c", "echo $CUPY_CACHE_DIR"]).env("HOME", "/home/me")), "/home/me/.cupy/kernel_cache_cumux");
    assert_eq!(shown(run(&["sh", "-c", "echo $CUPY_CACHE_DIR"]).env("CUPY_CACHE_DIR", "/mine")), "/mine");
    assert_eq!(shown(&mut run(&["sh", "-c", "echo ${CUPY_ACCELERATORS-unset}"])), "");
    assert_eq!(shown(run(&["sh", "-c", "echo $CUPY_ACCELERATORS"]).env("CUPY_ACCELERATORS", "cub")), "cub");
}

/// What one process has compiled the next one finds, as with NVIDIA's library and by its variables;
/// what another user could have put there is not taken.
#[test]
fn what_was_compiled_is_found_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("compilers/kept.c");
    assert!(Command::new("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&kept).arg(source).arg("-ldl").status().unwrap().success());
    let cache = folder.path().join("cache");
    let run = |source: &str, variables: &[(&str, &str)]| {
        let mut command = run(&[kept.to_str().unwrap(), source]);
        command.env("CUDA_CACHE_PATH", &cache).env_remove("CUDA_CACHE_DISABLE").env_remove("CUDA_CACHE_MAXSIZE").envs(variables.iter().copied());
        out(&command.output().unwrap())
    };
    assert_eq!(run("one", &[]), "500, made the code of one, kept: 0\n");
    assert_eq!(run("one", &[]), "found the code of one\n");
    assert_eq!(run("another", &[]), "500, made the code of another, kept: 0\n");
    // NOT_SUPPORTED: it is not wanted.
    assert_eq!(run("one", &[("CUDA_CACHE_DISABLE", "1")]), "500, made the code of one, kept: 801\n");
    let ours = cache.join("cumux");
    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(run("one", &[]), "500, made the code of one, kept: 304\n");
    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o700)).unwrap();
    for file in std::fs::read_dir(&ours).unwrap() {
        std::fs::write(file.unwrap().path(), "something else").unwrap();
    }
    assert_eq!(run("one", &[]), "500, made the code of one, kept: 0\n", "a damaged file is no result");
    assert_eq!(run("one", &[]), "found the code of one\n");
}
