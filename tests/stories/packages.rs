//! cumux as a part of a system: the files of an installation, the units, and what a supervisor of
//! services is told.

use cumux_testkit::{Node, cumux, example};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn install(root: &Path) -> String {
    let output = Command::new(cumux()).args(["install", "--system", "--root"]).arg(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_installation_into_a_system_works_and_keeps_its_settings() {
    let root = tempfile::tempdir().unwrap();
    let listed = install(root.path());
    for path in [
        "usr/bin/cumux",
        "usr/lib/cumux/libcuda.so.1",
        "usr/lib/cumux/libcumux_compilers.so",
        "usr/lib/cumux/bin/nvidia-cuda-mps-control",
        "usr/lib/cumux/software/bin/ptxas",
        "usr/lib/cumux/software/libnvidia-ml.so.1",
        "usr/lib/systemd/system/cumux.service",
        "usr/lib/systemd/system/cumux@.service",
        "usr/lib/systemd/system/cumux.socket",
        "usr/lib/systemd/system/cumux@.socket",
        "usr/lib/systemd/system/cumux-exporter.service",
        "usr/share/man/man1/cumux-exporter.1",
        "usr/share/bash-completion/completions/cumux",
        "usr/share/cumux/prometheus/alerts.yml",
        "usr/share/cumux/grafana/cumux.json",
        "etc/default/cumux",
    ] {
        assert!(root.path().join(path).exists() && listed.contains(path), "{path} is missing");
    }
    // NVIDIA's packages own these names there.
    assert!(!root.path().join("usr/bin/nvidia-cuda-mps-control").exists());
    let settings = root.path().join("etc/default/cumux");
    std::fs::write(&settings, "CUMUX_DEVICE=sim:l4\n").unwrap();
    assert!(install(root.path()).contains("etc/default/cumux (left as it is)"));
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), "CUMUX_DEVICE=sim:l4\n");
    let output =
        Command::new(root.path().join("usr/bin/cumux")).args(["run", "--device", "sim:h200", "--"]).arg(example("vector_add")).arg("1").output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("PASS"), "{output:?}");
    for (arguments, words) in [(["--system", "--prefix=/x"].as_slice(), "cannot be used with"), (&[], "--prefix"), (&["--prefix=/x", "--root=/y"], "--root")] {
        let output = Command::new(cumux()).arg("install").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(words), "{arguments:?}: {text}");
    }
}

/// Every unit is read by systemd's own reader, with the programs of the installation.
#[test]
fn units_are_what_systemd_reads() {
    if !Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("NOTE: not tested: there is no systemd-analyze");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    install(root.path());
    let units = root.path().join("usr/lib/systemd/system");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    for name in ["cumux.service", "cumux@.service", "cumux-exporter.service", "cumux.socket", "cumux@.socket"] {
        let text = std::fs::read_to_string(units.join(name)).unwrap();
        assert!(name.ends_with(".socket") || (text.contains("Type=notify\n") && text.contains("/usr/bin/cumux ")), "{name}");
        let own = text.replace("/usr/bin/cumux ", &format!("{} ", root.path().join("usr/bin/cumux").display()));
        let path = root.path().join(name.replace("@.", "@0."));
        std::fs::write(&path, own).unwrap();
        verify.arg(path);
    }
    let output = verify.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_ours: Vec<&str> = text.lines().filter(|line| line.contains("cumux") && !line.contains("nvidia-modprobe")).collect();
    assert_eq!(about_ours, Vec::<&str>::new(), "{text}");
}

/// A socket unit makes what its daemon takes over: other sockets are refused (`activation.rs`).
#[test]
fn socket_units_make_the_sockets_of_their_daemons() {
    for name in ["cumux", "cumux@"] {
        let [service, socket] = ["service", "socket"].map(|kind| of_repository(&format!("packaging/systemd/{name}.{kind}")));
        let values =
            |unit: &str, option: &str| unit.lines().filter_map(|line| line.strip_prefix(option)?.strip_prefix('=')).map(str::to_owned).collect::<Vec<_>>();
        let pipe = service.lines().find_map(|line| line.strip_prefix("Environment=CUDA_MPS_PIPE_DIRECTORY=")).unwrap();
        assert_eq!(values(&socket, "ListenStream"), [format!("{pipe}/control")]);
        assert_eq!(values(&socket, "ListenSequentialPacket"), [format!("{pipe}/cumux")]);
        assert_eq!(values(&socket, "SocketMode"), ["0666"]);
        // Else the end of the daemon takes the files of sockets that systemd keeps.
        assert_eq!(values(&service, "RuntimeDirectoryPreserve"), ["yes"]);
        assert_eq!(format!("/run/{}", values(&service, "RuntimeDirectory")[0]), pipe);
        for unit in [&service, &socket] {
            assert!(["User", "SocketUser", "Accept", "RemoveOnStop"].iter().all(|option| values(unit, option).is_empty()));
        }
    }
}

/// What systemd would hear of a daemon in the foreground: that it is ready, signs of life, and that
/// it ends because it was told to.
#[test]
fn a_supervisor_hears_of_the_daemon() {
    let node = Node::start();
    let heard = node.folder().join("notify");
    let socket = UnixDatagram::bind(&heard).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut bytes = [0; 512];
        let count = socket.recv(&mut bytes).expect("a word of the daemon");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let pipe = node.folder().join("other");
    let mut daemon = node
        .cumux(&["control", "-f", "--device", "sim:h200"])
        .env("CUDA_MPS_PIPE_DIRECTORY", &pipe)
        .env("CUDA_MPS_LOG_DIRECTORY", node.folder().join("other-log"))
        .env("NOTIFY_SOCKET", &heard)
        .env("WATCHDOG_USEC", "100000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(hear().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1\n");
    }
    let quit = node.cumux(&["control", "quit"]).env("CUDA_MPS_PIPE_DIRECTORY", &pipe).status().unwrap();
    assert!(quit.success() && daemon.wait().unwrap().success());
    while hear() != "STOPPING=1\n" {}
    // The last beat may have come beside its end.
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 16];
    while socket.recv(&mut bytes).is_ok() {}
    // A daemon in the background is not the process that a supervisor has started.
    let background = node.cumux(&["control", "-d", "--device", "sim:h200"]).env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("NOTIFY_SOCKET", &heard).status();
    let quit = node.cumux(&["control", "quit"]).env("CUDA_MPS_PIPE_DIRECTORY", &pipe).status().unwrap();
    assert!(background.unwrap().success() && quit.success());
    assert!(socket.recv(&mut bytes).is_err(), "it said {:?}", String::from_utf8_lossy(&bytes));
}

/// A file of the repository.
fn of_repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The instructions of the recipe of the image: a word, and what follows it.
fn recipe() -> Vec<(String, String)> {
    let text = of_repository("packaging/Containerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}"))).map(|(word, rest)| (word.to_owned(), rest.to_owned())).collect()
}

/// The items of the JSON list with which an instruction or a field of a manifest ends.
fn list(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// There is no engine here to build the image. What its recipe relies on is checked: its compiler,
/// what reaches the build, the files and libraries of an installation, and the image's command.
#[test]
fn the_recipe_of_the_image_fits_what_is_built() {
    let recipe = recipe();
    let all = |word: &str| recipe.iter().filter(|(known, _)| known == word).map(|(_, rest)| rest.as_str()).collect::<Vec<_>>();
    let stages = all("FROM");
    let rust = of_repository("Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version").trim_matches('"').to_owned();
    assert!(stages[0].contains(&format!("/rust:{rust}-")) && stages[0].ends_with(" AS build"), "{stages:?}");
    // Both on one Debian: what is built on a newer one may need a newer glibc.
    assert!(stages[0].contains("bookworm") && stages[1].ends_with("/cc-debian12"), "{stages:?}");

    // What is kept from the build is in no commit.
    let kept = of_repository(".gitignore");
    for line in of_repository(".dockerignore").lines().filter(|line| !line.starts_with('#')) {
        let is_built = kept.lines().any(|other| other.trim_matches('/') == line) || line.ends_with("target");
        assert!(line == ".git" || is_built, "the build needs {line}, which .dockerignore keeps from it");
    }

    let root = tempfile::tempdir().unwrap();
    install(root.path());
    let built = all("RUN").join(" ");
    assert!(built.contains("--locked") && built.contains("install --system --root /staged"), "{built}");
    for word in built.split_whitespace().filter_map(|word| word.strip_prefix("/staged/")) {
        let (folder, pattern) = word.rsplit_once('/').unwrap();
        let begin = pattern.trim_start_matches('*').split('*').next().unwrap();
        let names = std::fs::read_dir(root.path().join(folder)).unwrap_or_else(|error| panic!("{word}: {error}"));
        assert!(names.flatten().any(|entry| entry.file_name().to_string_lossy().contains(begin)), "{word} is not installed");
    }
    assert!(all("COPY").contains(&"--from=build /staged/usr /usr"), "{recipe:?}");

    let program = list(all("ENTRYPOINT")[0]);
    let installed = root.path().join(program[0].trim_start_matches('/'));
    assert!(installed.exists(), "{program:?}");
    let mut words = list(all("CMD")[0]);
    let flags: Vec<String> = words.drain(1..).collect();
    knows(&installed, &words[0], &flags);
    // The chart's first container takes the library out of the image.
    let node = root.path().join("node");
    let output = Command::new(&installed).args(["install", "--prefix"]).arg(&node).output().unwrap();
    assert!(output.status.success() && node.join("lib/cumux/libcuda.so.1").exists(), "{output:?}");
    assert_eq!(needs(&installed), Vec::<String>::new(), "the last stage has not these libraries");
    for library in ["libcuda.so.1", "libcumux_compilers.so", "software/libnvidia-ml.so.1"] {
        assert_eq!(needs(&root.path().join("usr/lib/cumux").join(library)), Vec::<String>::new(), "the last stage has not these libraries");
    }
}

/// A program's command has these options.
fn knows(program: &Path, command: &str, flags: &[String]) {
    let output = Command::new(program).args([command, "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}: {output:?}");
    for flag in flags.iter().filter(|flag| flag.starts_with('-')) {
        let name = flag.split('=').next().unwrap();
        let has = help.split([' ', '\n', ',', '[', ']']).any(|word| word == name);
        assert!(has, "cumux {command} does not know {name}:\n{help}");
    }
}

/// The libraries that a file needs and that are not in Debian's packages of C and C++.
fn needs(file: &Path) -> Vec<String> {
    let output = Command::new("ldd").arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("libc.so.6"), "{}: {text}", file.display());
    let there = ["libc.so", "libm.so", "libgcc_s.so", "libstdc++.so", "libpthread.so", "libdl.so", "librt.so", "linux-vdso.so", "ld-linux", "libcuda.so"];
    let name = |line: &str| line.split_whitespace().next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
    text.lines().map(|line| name(line.trim())).filter(|name| !there.iter().any(|known| name.starts_with(known))).collect()
}

/// Every command of the manifests is one of the program's, with options that it has.
#[test]
fn the_manifests_call_commands_that_the_program_has() {
    let mut calls = 0;
    for manifest in ["device-plugin.yaml", "device-plugin-per-card.yaml", "dra.yaml"] {
        let text = of_repository(&format!("deploy/kubernetes/{manifest}"));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(words) = line.strip_prefix("command: ").or_else(|| line.split_once("{command: ").map(|(_, rest)| rest.trim_end_matches('}'))) else {
                continue;
            };
            let mut words = list(words);
            assert_eq!(words.remove(0), "cumux", "{manifest}: {line}");
            // Arguments on lines of their own.
            let more = lines[number + 1..].iter().skip_while(|line| **line == "args:").map_while(|line| line.strip_prefix("- "));
            words.extend(more.filter_map(|item| serde_json::from_str::<String>(item).ok()));
            let command = words.remove(0);
            knows(&cumux(), &command, &words);
            calls += 1;
        }
    }
    assert!(calls >= 11, "only {calls} commands were found");
}
