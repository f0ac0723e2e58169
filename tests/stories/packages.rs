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
        "usr/lib/systemd/system/cumux.service",
        "usr/lib/systemd/system/cumux@.service",
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
    for name in ["cumux.service", "cumux@.service", "cumux-exporter.service"] {
        let text = std::fs::read_to_string(units.join(name)).unwrap();
        assert!(text.contains("Type=notify\n") && text.contains("/usr/bin/cumux "), "{name}");
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
    // A daemon in the background is not the process that a supervisor has started.
    let background = node.cumux(&["control", "-d", "--device", "sim:h200"]).env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("NOTIFY_SOCKET", &heard).status();
    let quit = node.cumux(&["control", "quit"]).env("CUDA_MPS_PIPE_DIRECTORY", &pipe).status().unwrap();
    assert!(background.unwrap().success() && quit.success());
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 16];
    assert!(socket.recv(&mut bytes).is_err(), "it said {:?}", String::from_utf8_lossy(&bytes));
}
