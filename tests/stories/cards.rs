//! Real cards that cannot be served: a stand-in for NVIDIA's library says what its drivers say, and
//! everybody hears what to do.

use cumux_testkit::Node;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the stand-in answers.
struct Card {
    /// Of `cuDriverGetVersion`.
    version: i32,
    /// Of `cuInit`.
    init: u32,
    name: &'static str,
    /// Compute mode: 0 default, 2 prohibited, 3 one process alone.
    mode: i32,
    /// Of `cuDevicePrimaryCtxRetain`.
    retain: u32,
    /// How many there are, all alike.
    cards: u32,
    /// One of them that nobody may use; none for one that is not there.
    prohibited: i32,
}

const FINE: Card = Card { version: 13_000, init: 0, name: "NVIDIA H200", mode: 0, retain: 801, cards: 1, prohibited: -1 };

/// Functions of the driver that do what the card says; all others refuse.
const BODIES: [(&str, &str); 9] = [
    ("cuInit", "(unsigned f) { (void)f; return INIT; }"),
    ("cuDriverGetVersion", "(int *v) { *v = VERSION; return 0; }"),
    ("cuDeviceGetCount", "(int *n) { *n = CARDS; return 0; }"),
    ("cuDeviceGet", "(int *d, int n) { *d = n; return 0; }"),
    ("cuDeviceGetName", "(char *t, int n, int d) { (void)d; snprintf(t, (size_t)n, \"%s\", NAME); return 0; }"),
    ("cuDeviceGetAttribute", "(int *v, int a, int d) { *v = a == 20 ? (d == PROHIBITED ? 2 : MODE) : a == 16 ? 132 : a == 75 ? 9 : 1; return 0; }"),
    ("cuDeviceTotalMem_v2", "(size_t *b, int d) { (void)d; *b = (size_t)140 << 30; return 0; }"),
    ("cuDeviceGetUuid_v2", "(char *u, int d) { memset(u, 7, 16); if (CARDS > 1) u[15] = (char)d; return 0; }"),
    ("cuDevicePrimaryCtxRetain", "(void **c, int d) { (void)d; *c = 0; return RETAIN; }"),
];

impl Card {
    /// Builds the stand-in in this folder.
    fn build(&self, folder: &Path) -> PathBuf {
        let names = include_str!("../../crates/abi/src/generated/functions.rs");
        let names = names.lines().filter_map(|line| line.strip_prefix("pub type ")?.split_once(' ')).map(|(name, _)| name);
        let mut source = String::from("#include <stdio.h>\n#include <string.h>\n");
        let _ = writeln!(source, "#define INIT {}\n#define VERSION {}\n#define NAME \"{}\"", self.init, self.version, self.name);
        let _ = writeln!(source, "#define MODE {}\n#define RETAIN {}", self.mode, self.retain);
        let _ = writeln!(source, "#define CARDS {}\n#define PROHIBITED {}", self.cards, self.prohibited);
        for name in names {
            let body = BODIES.iter().find(|(known, _)| *known == name).map_or("(void) { return 801; }", |(_, body)| body);
            let _ = writeln!(source, "int {name}{body}");
        }
        let (from, to) = (folder.join("driver.c"), folder.join("driver.so"));
        std::fs::write(&from, source).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(&to).arg(&from).status().expect("a C compiler, as Rust needs one to link");
        assert!(built.success());
        to
    }
}

/// What the doctor says of the card, in words and as its exit status.
fn doctor(node: &Node, driver: &Path) -> (String, Option<i32>) {
    let output = node.cumux(&["doctor"]).env("CUMUX_DEVICE", "cuda:0").env("CUMUX_REAL_LIBCUDA", driver).output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn cards_that_cannot_be_served_come_with_a_remedy() {
    // What is wrong; what the doctor says before; what the daemon's logs say when somebody wants to
    // be served.
    let unseen = "";
    let cases = [
        (Card { version: 12_080, ..FINE }, "the driver is for CUDA 12.8; 13.0 is needed: install driver 580 or newer", "install driver 580 or newer"),
        (Card { init: 100, ..FINE }, "the driver finds no GPU it may use: check `nvidia-smi`", "the driver finds no GPU it may use"),
        (Card { init: 803, ..FINE }, "reboot, or reload the module", "reboot, or reload the module"),
        (Card { mode: 2, ..FINE }, "PROHIBITED compute mode: run `nvidia-smi -i 0 -c DEFAULT`", "PROHIBITED compute mode"),
        (Card { name: "NVIDIA H200 MIG 1g.18gb", ..FINE }, "disable MIG with `nvidia-smi -i 0 -mig 0`", "is a MIG instance"),
        (Card { mode: 3, retain: 46, ..FINE }, "there will be no standby", "is in EXCLUSIVE_PROCESS mode and another process has it: end that process"),
        (Card { retain: 46, ..FINE }, unseen, "another process holds cuda:0 for itself"),
        (Card { retain: 2, ..FINE }, unseen, "cuda:0 has no memory left for a context (about 0.5 GiB): end a process that `nvidia-smi` shows on it"),
        (Card { retain: 719, ..FINE }, unseen, "no context can be made on cuda:0 (CUDA error 719): check `nvidia-smi`"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (card, before, later) in cases {
        let driver = card.build(folder.path());
        let node = Node::with().device("cuda:0").env("CUMUX_REAL_LIBCUDA", driver.to_str().unwrap()).start();
        let (said, status) = doctor(&node, &driver);
        assert!(said.contains(before), "{before}: {said}");
        assert_eq!(status == Some(0), before.is_empty() || card.mode == 3, "only what cannot be served is a problem: {said}");
        let outcome = node.client("vector_add").args(&["1"]).start().wait();
        assert_ne!(outcome.status.code(), Some(0), "{later}");
        let logs = node.logs();
        assert!(logs.contains(later), "{later}:\n{logs}");
        // The daemon is unharmed.
        assert_eq!(node.control("get_default_active_thread_percentage"), "100.0\n");
    }
}

#[test]
fn a_driver_that_is_none_is_refused_by_name() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no library").unwrap();
    for (driver, word) in
        [(PathBuf::from("relative.so"), "absolute path"), (folder.path().join("gone.so"), "which is not there"), (text, "no usable NVIDIA driver")]
    {
        let (said, status) = doctor(&node, &driver);
        assert!(said.contains(word) && status == Some(1), "{word}: {said}");
    }
    let ours = node.folder().join("lib/libcuda.so.1");
    let (said, _) = doctor(&node, &ours);
    assert!(said.contains("is cumux itself, not NVIDIA's driver"), "{said}");
}

/// The driver shows two cards, of which one may not be used. `all` means both, and neither the
/// daemon's lists nor the doctor lose one for the other.
#[test]
fn all_cards_of_a_machine_are_named_by_one_word() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Card { cards: 2, ..FINE }.build(folder.path());
    let node = Node::with().device("all").env("CUMUX_REAL_LIBCUDA", driver.to_str().unwrap()).start();
    let listed = node.control("device_query --csv");
    assert_eq!(listed.lines().skip(2).filter(|line| line.contains("NVIDIA H200")).count(), 2, "{listed}");
    assert!(listed.contains("GPU-07070707-0707-0707-0707-070707070700") && listed.contains("GPU-07070707-0707-0707-0707-070707070701"), "{listed}");
    let doctor = |devices: &str, driver: &Path| {
        let output = node.cumux(&["doctor"]).env("CUMUX_DEVICE", devices).env("CUMUX_REAL_LIBCUDA", driver).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = doctor("all", &driver);
    assert!(said.contains("cuda:0,cuda:1, by CUMUX_DEVICE"), "{said}");
    // One of them is prohibited: it is listed, and the doctor says what to do about it.
    let folder = tempfile::tempdir().unwrap();
    let driver = Card { cards: 2, prohibited: 1, ..FINE }.build(folder.path());
    let node = Node::with().device("cuda:0,cuda:1").env("CUMUX_REAL_LIBCUDA", driver.to_str().unwrap()).start();
    let listed = node.control("device_query --csv");
    assert_eq!(listed.lines().skip(2).filter(|line| line.contains("NVIDIA H200")).count(), 2, "{listed}");
    let said = doctor("cuda:0,cuda:1", &driver);
    assert!(said.contains("PROHIBITED compute mode: run `nvidia-smi -i 1 -c DEFAULT`"), "{said}");
    // A card that the driver does not show.
    let said = doctor("cuda:0,cuda:5", &driver);
    assert!(said.contains("there is no card cuda:5; there are cuda:0 to cuda:1"), "{said}");
}
