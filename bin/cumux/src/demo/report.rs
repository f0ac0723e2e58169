//! The demo's results: a table, or the same as one JSON document.

use super::client::DemoProgram;
use super::role::Fate;
use crate::status::{bytes, duration};
use comfy_table::{CellAlignment, Table, presets};
use cumux_wire::message::ServerStatus;
use serde::Serialize;
use std::fmt;

#[derive(Debug, Serialize)]
pub struct Report {
    pub device: String,
    pub notes: Vec<String>,
    pub clients: Vec<Line>,
    /// Executors that were replaced while the programs ran.
    pub takeovers: u32,
    pub seconds: f64,
    pub passed: bool,
}

#[derive(Debug, Serialize)]
pub struct Line {
    pub client: String,
    pub pid: u32,
    pub innocent: bool,
    pub kernels: u64,
    pub gpu_ns: u64,
    /// Most device memory it held, in bytes.
    pub memory: u64,
    pub outcome: String,
    pub verified: bool,
    pub as_expected: bool,
    /// The service's description of its fault.
    pub fault: String,
    pub said: String,
}

impl Report {
    pub fn new(device: &str, notes: Vec<String>, clients: &[DemoProgram], servers: &[ServerStatus], seconds: f64) -> Self {
        let line = |client: &DemoProgram| Line {
            client: client.role.name.to_owned(),
            pid: client.pid(),
            innocent: client.role.fate == Fate::Innocent,
            kernels: client.status.kernels,
            gpu_ns: client.status.gpu_ns,
            memory: client.status.memory_peak.max(client.status.memory),
            outcome: client.outcome(),
            verified: client.verified(),
            as_expected: client.as_expected(),
            fault: client.status.fault.clone(),
            said: client.last_line(),
        };
        let clients: Vec<Line> = clients.iter().map(line).collect();
        let takeovers = servers.iter().map(|server| server.takeovers).sum();
        let passed = clients.iter().all(|line| line.as_expected);
        Self { device: device.to_owned(), notes, clients, takeovers, seconds, passed }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["client", "kernels", "GPU time", "memory", "outcome", "results verified"]);
        for column in 1..4 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in &self.clients {
            let verified = match (line.innocent, line.verified) {
                (true, true) => "yes",
                (true, false) => "NO",
                (false, _) => "-",
            };
            table.add_row([&line.client, &line.kernels.to_string(), &duration(line.gpu_ns), &bytes(line.memory), &line.outcome, verified]);
        }
        writeln!(f, "{table}")?;
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        let innocents = self.clients.iter().filter(|line| line.innocent);
        let (right, all) = (innocents.clone().filter(|line| line.verified).count(), innocents.count());
        write!(f, "{right} of {all} innocent programs finished with verified results on {} in {:.1} s", self.device, self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_is_shown_and_fails() {
        let line = |client: &str, innocent, verified| Line {
            client: client.into(),
            pid: 1,
            innocent,
            kernels: 3,
            gpu_ns: 5_000_000,
            memory: 1 << 20,
            outcome: "finished".into(),
            verified,
            as_expected: verified,
            fault: String::new(),
            said: String::new(),
        };
        let clients = vec![line("scan", true, true), line("nbody", true, false), line("illegal_access", false, false)];
        let report = Report { device: "sim:h200".into(), notes: vec!["n".into()], clients, takeovers: 0, seconds: 1.5, passed: false };
        let text = report.to_string();
        assert!(text.contains("NO") && text.contains("1 of 2 innocent programs"), "{text}");
        assert!(serde_json::to_string(&report).unwrap().contains("\"passed\":false"));
    }
}
