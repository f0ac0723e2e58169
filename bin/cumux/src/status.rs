//! `cumux status`: servers and clients, as a table or as JSON.

use crate::{order, say};
use comfy_table::{CellAlignment, Table, presets};
use cumux_control::directory::pipe_directory;
use cumux_control::report::place;
use cumux_wire::message::{ClientStatus, ServerStatus};
use std::path::Path;

/// Prints the status and returns the exit status: 0 if a daemon answered.
pub fn main(json: bool) -> anyhow::Result<u8> {
    let mut daemon = order::connect()?;
    if json {
        say::text(&daemon.ask("status --json")?.0)?;
        return Ok(0);
    }
    say::text(&page(&pipe_directory(), &daemon.servers()?))?;
    Ok(0)
}

fn page(pipe: &Path, servers: &[ServerStatus]) -> String {
    let mut text = format!("Daemon in {}: ", pipe.display());
    if servers.is_empty() {
        text.push_str("no server is running; the first CUDA program starts one.\n");
        return text;
    }
    text.push_str(&format!("{} server{}\n", servers.len(), if servers.len() == 1 { "" } else { "s" }));
    for server in servers {
        text.push_str(&format!(
            "\nServer {} of user {}: {} on {}; executor {} (generation {}), standby {}, keeper {}; takeovers {}\n",
            server.pid,
            server.uid,
            server.state,
            server.devices.join(", "),
            server.executor,
            server.generation,
            server.standby,
            server.keeper,
            server.takeovers
        ));
        if !server.no_standby.is_empty() {
            text.push_str(&format!("No standby: {}. A takeover starts from cold.\n", server.no_standby));
        }
        if !server.leaving.is_empty() {
            text.push_str(&format!("It goes when its clients have gone: {}.\n", server.leaving));
        }
        text.push_str(&clients(server.clients.iter().chain(&server.gone)));
    }
    text
}

/// A table of clients.
pub fn clients<'a>(clients: impl Iterator<Item = &'a ClientStatus>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let clients: Vec<&ClientStatus> = clients.collect();
    // Shown where there are groups.
    let groups = clients.iter().any(|client| !client.group.is_empty());
    let mut titles = vec![
        "PID",
        "program",
        "state",
        "SMs",
        "prio",
        "kernels",
        "coalesced",
        "GPU time",
        "memory",
        "peak",
        "limit",
        "in flight",
        "waits",
        "held",
        "stalls",
        "takeovers",
        "moves",
        "executor",
        "fault",
    ];
    if groups {
        titles.push("group");
    }
    table.set_header(titles);
    for column in 3..17 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut any = false;
    for client in clients {
        any = true;
        let mut row = vec![
            client.pid.to_string(),
            client.program.clone(),
            client.state.clone(),
            if client.multiprocessors == 0 { "all".to_owned() } else { client.multiprocessors.to_string() },
            if client.priority == 0 { "normal".to_owned() } else { "below".to_owned() },
            client.kernels.to_string(),
            percent(client.coalesced, client.kernels),
            duration(client.gpu_ns),
            bytes(client.memory),
            bytes(client.memory_peak),
            if client.memory_limit == 0 { "-".to_owned() } else { bytes(client.memory_limit) },
            client.in_flight.to_string(),
            times(client.waits, client.wait_ns),
            times(client.held, client.held_ns),
            times(client.stalls + client.quiets, client.stall_ns.saturating_add(client.quiet_ns)),
            client.takeovers.to_string(),
            client.moves.to_string(),
            if client.state == "running" { place(client) } else { "-".to_owned() },
            client.fault.clone(),
        ];
        if groups {
            row.push(client.group.clone());
        }
        table.add_row(row);
    }
    if any { format!("{table}\n") } else { "No clients.\n".into() }
}

/// A part of a whole in percent, for people. A part that was counted a little ahead of the whole is
/// shown as all of it.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{} %", u128::from(part.min(whole)) * 100 / u128::from(whole)),
    }
}

/// A count with its total time.
fn times(count: u64, ns: u64) -> String {
    if count == 0 { "0".to_owned() } else { format!("{count} ({})", duration(ns)) }
}

/// Nanoseconds for people.
#[allow(clippy::cast_precision_loss)] // Three digits are shown.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} µs", ns / 1000),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Bytes for people.
#[allow(clippy::cast_precision_loss)] // Three digits are shown.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(duration(12_000), "12 µs");
        assert_eq!(duration(1_500_000), "1.5 ms");
        assert_eq!(duration(2_000_000_000), "2.00 s");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(3 << 20), "3.0 MiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
        assert_eq!([percent(0, 0), percent(1, 3), percent(5, 4)], ["-", "33 %", "100 %"]);
        assert_eq!([times(0, 0), times(3, 1_500_000)], ["0", "3 (1.5 ms)"]);
    }

    #[test]
    fn the_page_names_every_process_and_client() {
        let client = ClientStatus { pid: 4242, program: "./bench".into(), state: "running".into(), kernels: 12, ..ClientStatus::default() };
        let server = ServerStatus {
            no_standby: "the card is taken".into(),
            leaving: "another user waits".into(),
            pid: 690,
            executor: 691,
            keeper: 692,
            state: "ACTIVE".into(),
            clients: vec![client],
            ..ServerStatus::default()
        };
        let text = page(Path::new("/p"), &[server]);
        for word in
            ["690", "691", "692", "ACTIVE", "4242", "./bench", "running", "No standby: the card is taken", "when its clients have gone: another user waits."]
        {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
        assert!(page(Path::new("/p"), &[]).contains("no server"));
    }
}
