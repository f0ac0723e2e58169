//! `cumux exporter`: metrics and health of the daemon over HTTP, on a port of its own.
//!
//! - `/metrics`: what the status says, for Prometheus.
//! - `/healthz`: whether the daemon answers. A server in FAULT does not count: a supervisor that
//!   restarts the daemon would end the clients that go on.
//! - `/readyz`: whether a program that comes now is served, found out by one.
//!
//! The daemon is asked at most once a second, however many ask here.

mod names;
pub mod trial;

use crate::{say, supervisor};
use anyhow::{Context as _, bail};
use cumux_control::directory::pipe_directory;
use cumux_control::{Frontend, PipeDirectory};
use cumux_exporter::families::{self, Group, Snapshot};
use cumux_exporter::history::History;
use cumux_exporter::http::{self, Handler, Response};
use cumux_exporter::pods::{LogLinks, Names, PodPlace};
use cumux_exporter::request::Request;
use cumux_exporter::text::{Format, render};
use cumux_exporter::users::Users;
use cumux_wire::message::{ClientStatus, ServerStatus};
use names::Kubelet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trial::Trials;

/// How long an answer of the daemon is used again.
const FRESH: Duration = Duration::from_secs(1);
const OK: (u16, &str) = (200, "OK");
const UNAVAILABLE: (u16, &str) = (503, "Service Unavailable");

#[derive(clap::Args)]
pub struct ExporterArguments {
    /// Where it listens; with a port alone, on the loopback address. There is no TLS and no
    /// password: whoever reaches another address may read everything
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:9456", value_parser = address)]
    listen: SocketAddr,
    /// How long a trial for /readyz may take
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=300))]
    trial_timeout: u64,
    /// How long the outcome of a trial answers /readyz before the next one is made
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u64).range(0..=3600))]
    trial_age: u64,
    /// Kubelet's links to the logs of containers, which give their pods' names
    #[arg(long, value_name = "DIR", default_value = "/var/log/containers")]
    pod_logs: PathBuf,
    /// Kubelet's pod-resources socket, which gives the names of the device plugin's pods
    #[arg(long, env = "POD_RESOURCES_SOCKET", default_value = "/var/lib/kubelet/pod-resources/kubelet.sock", value_name = "SOCKET")]
    pod_resources: PathBuf,
    /// What the device plugin remembers: which group has which parts
    #[arg(long, default_value = "/var/lib/cumux/device-plugin.json", value_name = "FILE")]
    plugin_state: PathBuf,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().or_else(|_| text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port))));
    address.map_err(|_| "write a port (9456), or an address with a port: 127.0.0.1:9456, [::1]:9456, 0.0.0.0:9456".to_owned())
}

/// Serves until a signal ends it.
pub fn main(arguments: &ExporterArguments) -> anyhow::Result<u8> {
    let listen = arguments.listen;
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen} (--listen names another address)"))?;
    let bound = listener.local_addr().context("cannot find the own address")?;
    let trials = Trials::new(Duration::from_secs(arguments.trial_timeout), Duration::from_secs(arguments.trial_age));
    let kubelet = Kubelet::of(&arguments.pod_resources, &arguments.plugin_state, LogLinks::of(&arguments.pod_logs));
    let exporter = Exporter { pipe: pipe_directory(), seen: Mutex::default(), trials, names: Box::new(kubelet) };
    // The first look is the beginning of all counts.
    let _ = exporter.read_status().servers();
    if !bound.ip().is_loopback() {
        say::complain(format_args!("cumux: {bound} can be read by everybody who reaches it: there is no TLS and no password"));
    }
    say::line(format_args!("listening on http://{bound}/metrics"))?;
    supervisor::tell_listening();
    http::serve(&listener, &Arc::new(exporter)).context("cannot serve HTTP")?;
    bail!("all threads that serve HTTP have ended: start the exporter again")
}

/// What is known of the daemon.
#[derive(Default)]
struct Seen {
    looked: Option<Instant>,
    seconds: f64,
    status: Option<Result<Vec<ServerStatus>, String>>,
    groups: Vec<Group>,
    history: History,
}

impl Seen {
    fn servers(&self) -> Result<&[ServerStatus], &str> {
        match &self.status {
            Some(Ok(servers)) => Ok(servers),
            Some(Err(why)) => Err(why),
            None => Err("the daemon was not asked yet"),
        }
    }
}

struct Exporter {
    pipe: PathBuf,
    seen: Mutex<Seen>,
    trials: Trials,
    names: Box<dyn Names>,
}

impl Exporter {
    /// What is known, asked anew if it is older than [`FRESH`].
    fn read_status(&self) -> MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.looked.is_none_or(|looked| looked.elapsed() >= FRESH) {
            let begun = Instant::now();
            let (status, groups) = match everything(&self.pipe) {
                Ok((servers, groups)) => (Ok(servers), groups),
                Err(why) => (Err(why), Vec::new()),
            };
            seen.groups = groups;
            seen.seconds = begun.elapsed().as_secs_f64();
            if let Ok(servers) = &status {
                seen.history.observe(servers);
            }
            seen.status = Some(status);
            seen.looked = Some(Instant::now());
        }
        seen
    }

    fn metrics(&self, format: Format) -> Response {
        let (trial, users) = (self.trials.last(), Users::read());
        let seen = self.read_status();
        let servers = seen.servers();
        let snapshot = Snapshot { servers: servers.ok(), groups: &seen.groups, history: &seen.history, users: &users, trial, seconds: seen.seconds };
        let families = families::of(&snapshot, |server, client| {
            let place = place(server, client);
            let name = self.names.name(&place, &client.group).unwrap_or_default();
            (place, name)
        });
        Response { status: OK, content_type: format.content_type(), body: render(&families, format) }
    }

    fn health(&self) -> Response {
        match self.read_status().servers() {
            Ok(servers) => Response::text(OK, &format!("the daemon answers; servers: {}", servers.len())),
            Err(why) => Response::text(UNAVAILABLE, why),
        }
    }

    fn readiness(&self) -> Response {
        let uids = match self.read_status().servers() {
            Ok(servers) => servers.iter().map(|server| server.uid).collect(),
            Err(why) => return Response::text(UNAVAILABLE, why),
        };
        match self.trials.outcome(&self.pipe, uids) {
            Ok(words) => Response::text(OK, &words),
            Err(why) => Response::text(UNAVAILABLE, &why),
        }
    }
}

impl Handler for Exporter {
    fn answer(&self, request: &Request) -> Response {
        match request.path.as_str() {
            "/metrics" => self.metrics(Format::of(&request.accept)),
            "/healthz" | "/livez" => self.health(),
            "/readyz" => self.readiness(),
            "/" => Response::text(OK, "cumux exporter: /metrics, /healthz, /readyz"),
            _ => Response::text((404, "Not Found"), "there is /metrics, /healthz and /readyz"),
        }
    }
}

/// What `group list` answers.
#[derive(serde::Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

/// The daemon's status and its groups, or why there is neither.
fn everything(pipe: &Path) -> Result<(Vec<ServerStatus>, Vec<Group>), String> {
    let mut daemon = connect(pipe)?;
    let servers = daemon.servers().map_err(|error| error.to_string())?;
    let (text, _) = daemon.ask("group list").map_err(|error| error.to_string())?;
    // A daemon of a version before groups has none.
    Ok((servers, serde_json::from_str(&text).map_or_else(|_| Vec::new(), |Groups { groups }| groups)))
}

/// The daemon's status alone.
fn status(pipe: &Path) -> Result<Vec<ServerStatus>, String> {
    connect(pipe)?.servers().map_err(|error| error.to_string())
}

fn connect(pipe: &Path) -> Result<Frontend, String> {
    Frontend::connect(&PipeDirectory::at(pipe)).map_err(|error| format!("{error} (pipe directory {})", pipe.display()))
}

/// Where a client runs. In another PID namespace than the daemon's, its numbers name other
/// processes: then its server is none of ours, and nothing is said.
fn place(server: &ServerStatus, client: &ClientStatus) -> PodPlace {
    let command = std::fs::read(format!("/proc/{}/cmdline", server.pid)).unwrap_or_default();
    let is_server = command.split(|byte| *byte == 0).any(|word| word == b"server");
    if is_server { PodPlace::of(client.pid, server.uid) } else { PodPlace::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every metric that the dashboard and the rules name is exported.
    #[test]
    fn dashboard_and_alerts_name_what_is_there() {
        let known: Vec<String> = families::DEFINITIONS.iter().map(|definition| definition.sample()).collect();
        for text in [include_str!("../../../integrations/grafana/cumux.json"), include_str!("../../../integrations/prometheus/alerts.yml")] {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("cumux_"));
            let mut count = 0;
            for word in words {
                assert!(known.iter().any(|name| name == word), "{word} is no metric");
                count += 1;
            }
            assert!(count > 5);
        }
        let dashboard: serde_json::Value = serde_json::from_str(include_str!("../../../integrations/grafana/cumux.json")).unwrap();
        assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    }

    #[test]
    fn addresses() {
        assert_eq!(address("9000"), Ok(SocketAddr::from(([127, 0, 0, 1], 9000))));
        assert_eq!(address("0.0.0.0:1"), Ok(SocketAddr::from(([0, 0, 0, 0], 1))));
        for wrong in ["", "localhost", "127.0.0.1", "127.0.0.1:99999", "-1"] {
            assert!(address(wrong).unwrap_err().contains("[::1]:9456"), "{wrong}");
        }
    }
}
