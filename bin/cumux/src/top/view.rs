//! Computes what is shown: rates and sums from two answers of the daemon. Pure.

use crate::status::bytes;
use cumux_wire::message::{ClientStatus, ServedDevice, ServerStatus};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// An answer of the daemon, or why there is none.
pub struct Sample {
    pub at: Instant,
    pub servers: Result<Vec<ServerStatus>, String>,
}

/// The column by which clients are sorted, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Time on the GPU (key g)
    Gpu,
    /// Kernels a second (key k)
    Kernels,
    /// Memory (key m)
    Memory,
    /// Part of the kernels that were coalesced (key c)
    Coalesced,
}

impl Sort {
    pub fn word(self) -> &'static str {
        match self {
            Sort::Gpu => "GPU",
            Sort::Kernels => "kernels",
            Sort::Memory => "memory",
            Sort::Coalesced => "coalesced",
        }
    }
}

/// Emphasis of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Usual,
    /// The client does nothing now.
    Quiet,
    /// The client's context is in error.
    Bad,
}

/// One client. Rates are `None` for a client that was not in the earlier answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub pid: u32,
    pub program: String,
    pub state: String,
    pub tone: Tone,
    pub kernels: u64,
    pub kernels_rate: Option<f64>,
    /// Percent of one card's time; more than 100 where several kernels run side by side.
    pub gpu: Option<f64>,
    pub memory: u64,
    pub memory_limit: u64,
    /// Coalesced kernels in percent, since the last answer, or of all if there were none since.
    pub coalesced: Option<f64>,
    pub waits_rate: Option<f64>,
    pub in_flight: u64,
    pub multiprocessors: u32,
    pub below_normal: bool,
}

/// All that screen and table show.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Devices, servers and their executors.
    pub header: Vec<String>,
    /// Shown in place of clients, or in addition to them.
    pub message: Option<String>,
    pub rows: Vec<Row>,
    pub sort: Sort,
}

impl View {
    pub fn of(pipe: &Path, before: Option<&Sample>, now: &Sample, sort: Sort) -> View {
        let servers = match &now.servers {
            Err(why) => return View { header: vec![format!("cumux  {}", pipe.display())], message: Some(why.clone()), rows: Vec::new(), sort },
            Ok(servers) if servers.is_empty() => {
                let message = "No server is running; the first CUDA program starts one.".to_owned();
                return View { header: vec![format!("cumux  {}", pipe.display())], message: Some(message), rows: Vec::new(), sort };
            }
            Ok(servers) => servers,
        };
        let earlier = before.and_then(|sample| sample.servers.as_ref().ok());
        let known: HashMap<(u32, u32), &ClientStatus> =
            earlier.into_iter().flatten().flat_map(|server| server.clients.iter().map(|client| ((server.pid, client.session), client))).collect();
        let seconds = before.map_or(0.0, |sample| now.at.saturating_duration_since(sample.at).as_secs_f64());
        let mut header = cards(servers);
        let mut rows = Vec::new();
        for server in servers {
            let of_server: Vec<Row> = server.clients.iter().map(|client| row(client, known.get(&(server.pid, client.session)).copied(), seconds)).collect();
            // Not `sum`: for an empty list it returns -0.
            let rate = of_server.iter().filter_map(|row| row.kernels_rate).fold(0.0, |all, rate| all + rate);
            header.push(line(server, rate));
            rows.extend(of_server);
        }
        sort_rows(&mut rows, sort);
        let message = if rows.is_empty() { Some("No clients.".to_owned()) } else { None };
        View { header, message, rows, sort }
    }
}

/// One line for each device. Servers may have the same devices, or one each (`--per-card`).
fn cards(servers: &[ServerStatus]) -> Vec<String> {
    let mut cards: Vec<&ServedDevice> = Vec::new();
    for card in servers.iter().flat_map(|server| &server.cards) {
        if !cards.iter().any(|known| (&known.uuid, &known.name) == (&card.uuid, &card.name)) {
            cards.push(card);
        }
    }
    if cards.is_empty() {
        return servers.iter().take(1).map(|server| server.devices.join(", ")).collect();
    }
    let used: u64 = servers.iter().flat_map(|server| &server.clients).map(|client| client.memory).sum();
    let total: u64 = cards.iter().map(|card| card.memory).sum();
    let mut lines: Vec<String> = cards.iter().map(|card| format!("{}  {}  {} SMs", card.id, card.name, card.multiprocessors)).collect();
    if let Some(last) = lines.last_mut() {
        last.push_str(&format!("  memory {} of {}", bytes(used), bytes(total)));
    }
    lines
}

fn line(server: &ServerStatus, rate: f64) -> String {
    let standby = match (server.standby, server.no_standby.is_empty()) {
        (0, false) => ", no standby possible",
        (0, true) => ", no standby yet",
        _ => "",
    };
    format!(
        "server {} {}  executor {} generation {}{standby}  clients {}  kernels/s {}",
        server.pid,
        server.state,
        server.executor,
        server.generation,
        server.clients.len(),
        number(rate)
    )
}

#[allow(clippy::cast_precision_loss)] // Three digits are shown.
/// The program, with its group.
fn named(client: &ClientStatus) -> String {
    let program = client.program.rsplit('/').next().unwrap_or_default();
    if client.group.is_empty() { program.to_owned() } else { format!("{program} [{}]", client.group) }
}

fn row(client: &ClientStatus, before: Option<&ClientStatus>, seconds: f64) -> Row {
    let grown = |what: fn(&ClientStatus) -> u64| before.map(|old| what(client).saturating_sub(what(old)));
    let rate = |what| grown(what).filter(|_| seconds > 0.0).map(|n| n as f64 / seconds);
    let (kernels, coalesced) = match (grown(|c| c.kernels), grown(|c| c.coalesced)) {
        (Some(kernels), Some(coalesced)) if kernels > 0 => (kernels, coalesced),
        _ => (client.kernels, client.coalesced),
    };
    let held = grown(|c| c.held_ns + c.stall_ns).unwrap_or(0) > 0;
    let (state, tone) = match client {
        ClientStatus { error: 1.., .. } => (format!("error {}", client.error), Tone::Bad),
        ClientStatus { state, .. } if state != "running" => (state.clone(), Tone::Bad),
        _ if held => ("held back".to_owned(), Tone::Usual),
        ClientStatus { in_flight: 1.., .. } => ("running".to_owned(), Tone::Usual),
        _ if grown(|c| c.kernels + c.copies).unwrap_or(0) > 0 => ("running".to_owned(), Tone::Usual),
        _ => ("idle".to_owned(), Tone::Quiet),
    };
    Row {
        pid: client.pid,
        // Its folder is in `cumux status`.
        program: named(client),
        state,
        tone,
        kernels: client.kernels,
        kernels_rate: rate(|c| c.kernels),
        gpu: rate(|c| c.gpu_ns).map(|ns| ns / 1e7),
        memory: client.memory,
        memory_limit: client.memory_limit,
        // Launches are counted a little before their ends.
        coalesced: (kernels > 0).then(|| coalesced.min(kernels) as f64 * 100.0 / kernels as f64),
        waits_rate: rate(|c| c.waits),
        in_flight: client.in_flight,
        multiprocessors: client.multiprocessors,
        below_normal: client.priority > 0,
    }
}

/// Largest first. Equal rows keep their order, so that lines do not jump.
fn sort_rows(rows: &mut [Row], sort: Sort) {
    let thousandths = |value: Option<f64>| value.map(|value| (value * 1000.0) as u64);
    rows.sort_by_key(|row| {
        let key = match sort {
            Sort::Gpu => thousandths(row.gpu),
            Sort::Kernels => thousandths(row.kernels_rate),
            Sort::Memory => Some(row.memory),
            Sort::Coalesced => thousandths(row.coalesced),
        };
        (Reverse(key), row.pid)
    });
}

/// Formats a number with three digits and a unit.
pub fn number(value: f64) -> String {
    match value {
        v if v < 9.95 => format!("{v:.1}").trim_end_matches(".0").to_owned(),
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 9_950.0 => format!("{:.1}k", v / 1e3),
        v if v < 999_500.0 => format!("{:.0}k", v / 1e3),
        v if v < 9_950_000.0 => format!("{:.1}M", v / 1e6),
        v => format!("{:.0}M", v / 1e6),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use cumux_wire::result;
    use std::time::Duration;

    /// A server with three clients, and the same server half a second later.
    pub fn two_looks() -> (Sample, Sample) {
        let client = |pid, program: &str| ClientStatus { session: pid, pid, program: program.into(), state: "running".into(), ..ClientStatus::default() };
        let train = ClientStatus { kernels: 1000, coalesced: 500, gpu_ns: 100_000_000, memory: 3 << 30, waits: 10, ..client(4242, "train") };
        let infer = ClientStatus { kernels: 7, memory: 64 << 20, memory_limit: 1 << 30, multiprocessors: 66, priority: 1, ..client(4300, "infer") };
        let broken = ClientStatus { error: result::ILLEGAL_ADDRESS, fault: "illegal address".into(), ..client(4400, "/opt/x/broken") };
        let card = ServedDevice { id: "cuda:0".into(), name: "NVIDIA H200".into(), multiprocessors: 132, memory: 140 << 30, ..ServedDevice::default() };
        let server = ServerStatus {
            pid: 690,
            state: "ACTIVE".into(),
            executor: 691,
            standby: 692,
            generation: 2,
            cards: vec![card],
            clients: vec![train.clone(), infer.clone(), broken.clone()],
            ..ServerStatus::default()
        };
        let at = Instant::now();
        let later = ClientStatus { kernels: 13_000, coalesced: 9500, gpu_ns: 400_000_000, waits: 60, in_flight: 128, held_ns: 5, ..train };
        let fresh = ClientStatus { kernels: 3, memory: 1 << 20, ..client(5000, "fresh") };
        let after = ServerStatus { clients: vec![later, infer, broken, fresh], ..server.clone() };
        (Sample { at, servers: Ok(vec![server]) }, Sample { at: at + Duration::from_millis(500), servers: Ok(vec![after]) })
    }

    #[test]
    fn each_card_has_a_line_whichever_servers_have_it() {
        let card = |id: &str, uuid: &str| ServedDevice { id: id.into(), name: "NVIDIA H200".into(), uuid: uuid.into(), ..ServedDevice::default() };
        let server = |cards: &[ServedDevice]| ServerStatus { cards: cards.to_vec(), ..ServerStatus::default() };
        let (zero, one, two) = (card("cuda:0", "GPU-0"), card("cuda:1", "GPU-1"), card("cuda:2", "GPU-2"));
        let lines = cards(&[server(std::slice::from_ref(&one)), server(&[zero, one.clone()]), server(&[two])]);
        let ids: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(ids, ["cuda:1", "cuda:0", "cuda:2"]);
    }

    #[test]
    fn rates_come_from_two_looks() {
        let (before, now) = two_looks();
        let view = View::of(Path::new("/p"), Some(&before), &now, Sort::Gpu);
        let [train, infer, broken, fresh] = view.rows.as_slice() else { panic!("{view:?}") };
        assert_eq!((train.pid, train.kernels_rate, train.gpu, train.waits_rate), (4242, Some(24_000.0), Some(60.0), Some(100.0)));
        assert_eq!((train.coalesced, train.state.as_str()), (Some(75.0), "held back"));
        assert_eq!((infer.kernels_rate, infer.tone, infer.coalesced), (Some(0.0), Tone::Quiet, Some(0.0)));
        assert_eq!((broken.state.as_str(), broken.tone, broken.coalesced), ("error 700", Tone::Bad, None));
        assert_eq!((fresh.pid, fresh.kernels_rate), (5000, None), "nothing to compare with: at the end");
        assert!(view.header[1].contains("generation 2") && view.header[1].contains("kernels/s 24k"), "{:?}", view.header);
    }

    #[test]
    fn the_user_chooses_the_order() {
        let (before, now) = two_looks();
        let first = |sort| View::of(Path::new("/p"), Some(&before), &now, sort).rows.iter().map(|row| row.pid).collect::<Vec<_>>();
        assert_eq!(first(Sort::Memory), [4242, 4300, 5000, 4400]);
        assert_eq!(first(Sort::Kernels), [4242, 4300, 4400, 5000]);
        assert_eq!(first(Sort::Coalesced), [4242, 4300, 5000, 4400]);
    }

    #[test]
    fn nobody_there_is_said_in_a_sentence() {
        let at = Instant::now();
        let view = View::of(Path::new("/p"), None, &Sample { at, servers: Ok(Vec::new()) }, Sort::Gpu);
        assert!(view.message.unwrap().starts_with("No server is running"));
        let view = View::of(Path::new("/p"), None, &Sample { at, servers: Err("No daemon.".into()) }, Sort::Gpu);
        assert_eq!((view.message.as_deref(), view.header.len()), (Some("No daemon."), 1));
        let idle = ServerStatus { pid: 1, no_standby: "x".into(), ..ServerStatus::default() };
        let view = View::of(Path::new("/p"), None, &Sample { at, servers: Ok(vec![idle]) }, Sort::Gpu);
        assert_eq!(view.message.as_deref(), Some("No clients."));
        assert!(view.header.iter().any(|line| line.contains("no standby possible")));
    }

    #[test]
    fn a_successor_that_counts_from_zero_gives_no_negative_rates() {
        let (before, now) = two_looks();
        let swapped = Sample { at: before.at + Duration::from_secs(2), servers: before.servers };
        let view = View::of(Path::new("/p"), Some(&now), &swapped, Sort::Gpu);
        assert!(view.rows.iter().all(|row| row.kernels_rate.is_none_or(|rate| rate == 0.0)));
    }

    #[test]
    fn numbers_have_three_digits() {
        let all: Vec<String> = [0.0, 0.54, 9.9, 10.0, 999.0, 1000.0, 12_345.0, 999_499.0, 1_234_567.0, 56_000_000.0].map(number).into();
        assert_eq!(all, ["0", "0.5", "9.9", "10", "999", "1.0k", "12k", "999k", "1.2M", "56M"]);
    }
}
