//! Debian's Prometheus scrapes the exporter and reads our rules.

use super::{folder, repository, run, script};
use crate::exporter::Exporter;
use cumux_testkit::{Node, Watchdog};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer to a query, as JSON.
fn query(port: u16, expression: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET /api/v1/query?query={expression} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

#[test]
#[ignore = "cargo xtask test clusters: fetches Debian's Prometheus"]
fn prometheus_scrapes_and_reads_the_rules() {
    let folder = folder();
    let _watchdog = Watchdog::new(Duration::from_secs(300), folder.path());
    run(Command::new(script("prometheus.sh")).arg(folder.path()));
    let rules = repository().join("integrations/prometheus/alerts.yml");
    let promtool = folder.path().join("usr/bin/promtool");
    run(Command::new(&promtool).args(["check", "rules"]).arg(&rules));
    run(Command::new(&promtool).args(["test", "rules"]).arg(repository().join("tests/clusters/alerts.yml")));
    let node = Node::start();
    let exporter = Exporter::start(&node, &[]);
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    assert_eq!(exporter.get("/readyz").0, 200);
    // Its own reader, which knows the older format, finds nothing to complain about.
    let (_, metrics) = exporter.get_older("/metrics");
    let file = folder.path().join("metrics");
    std::fs::write(&file, metrics).unwrap();
    let lint = Command::new(&promtool).args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    let complaints = String::from_utf8_lossy(&[lint.stdout, lint.stderr].concat()).into_owned();
    // `modelName` is DCGM's spelling, by which both join.
    let known = "cumux_gpu_info label names should be written in 'snake_case' not 'camelCase'";
    assert!(complaints.lines().all(|line| line.is_empty() || line == known), "{complaints}");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let configuration = std::fs::read_to_string(repository().join("integrations/prometheus/scrape.yml")).unwrap();
    let configuration = configuration.replace("127.0.0.1:9456", &exporter.address);
    let text = format!("global:\n  scrape_interval: 200ms\n  evaluation_interval: 200ms\nrule_files: [\"{}\"]\n{configuration}", rules.display());
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, text).unwrap();
    let mut prometheus = Command::new(folder.path().join("usr/bin/prometheus"));
    prometheus.arg(format!("--config.file={}", file.display())).arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let log = std::fs::File::create(folder.path().join("prometheus.log")).unwrap();
    let _prometheus = Ended(prometheus.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let kernels = format!("cumux_client_kernels_total%7Bpid%3D%22{}%22%7D", client.pid());
    let found = node.wait_for("the client in Prometheus", |_| query(port, &kernels).filter(|answer| !answer["data"]["result"][0].is_null()));
    assert_eq!(found["data"]["result"][0]["value"][1], "1", "{found}");
    let labels = &found["data"]["result"][0]["metric"];
    assert!(labels["UUID"].as_str().is_some_and(|uuid| uuid.starts_with("GPU-")) && labels["gpu"] == "0" && labels["job"] == "cumux", "{labels}");
    node.kill(node.daemon_pid());
    // The rules are evaluated on what is scraped.
    node.wait_for("an alert", |_| {
        let alerts = query(port, "ALERTS%7Balertname%3D%22CumuxDaemonDown%22%7D")?;
        alerts["data"]["result"][0]["metric"]["alertstate"].as_str().map(str::to_owned)
    });
}
