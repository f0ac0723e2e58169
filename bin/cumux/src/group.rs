//! `cumux group`: limits for several processes together.

use crate::status::bytes;
use crate::{order, say};
use anyhow::bail;
use clap::Subcommand;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

/// What settings there are.
const SETTINGS: &str = "Settings, for all programs of the group together:
  memory=2G            device memory of each device; memory=0=2G,GPU-uuid=512M for one or the other
  percentage=25        the multiprocessors that all of them run on
  clients=8            how many there may be at the same time
  priority=1           below normal
  uid=1000             the user whose programs they are (otherwise that of the first one)
  cgroup=/PATH         every process below this control group is in the group, and nobody else
  devices=0,GPU-uuid   the devices that they see
none takes a setting back: memory=none.";

#[derive(Subcommand)]
pub enum GroupCommand {
    /// Makes a group and prints the directory that its programs have as their
    /// CUDA_MPS_PIPE_DIRECTORY
    #[command(after_help = SETTINGS)]
    Create {
        /// Letters, digits, `.`, `_`, `-`
        name: String,
        #[arg(value_name = "SETTING=VALUE")]
        settings: Vec<String>,
    },
    /// Changes settings: percentage and memory hold for programs that run, too; no memory is taken
    /// away
    #[command(after_help = SETTINGS)]
    Set {
        name: String,
        #[arg(value_name = "SETTING=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Removes a group that has no programs
    Rm {
        name: String,
        /// One that has programs, too: their work is terminated
        #[arg(long)]
        force: bool,
    },
    /// Shows all groups, their limits, and what they use
    List {
        #[arg(long)]
        json: bool,
    },
}

/// Carries out the command and returns the exit status.
pub fn main(command: &GroupCommand) -> anyhow::Result<u8> {
    match command {
        GroupCommand::Create { name, settings } => {
            let answer = send(&["create", name], settings)?;
            say::line(answer["directory"].as_str().unwrap_or_default())?;
        }
        GroupCommand::Set { name, settings } => {
            let answer = send(&["set", name], settings)?;
            if let Some(note) = answer["note"].as_str() {
                say::complain(note);
            }
        }
        GroupCommand::Rm { name, force } => {
            let words: &[&str] = if *force { &["rm", name, "force"] } else { &["rm", name] };
            send(words, &[])?;
        }
        GroupCommand::List { json } => {
            let mut answer = order::send("group list")?;
            if *json {
                if let Some(fields) = answer.as_object_mut() {
                    fields.remove("milliseconds");
                }
                say::line(answer)?;
            } else {
                say::text(&page(&answer))?;
            }
        }
    }
    Ok(0)
}

fn send(words: &[&str], settings: &[String]) -> anyhow::Result<Value> {
    let all: Vec<&str> = words.iter().copied().chain(settings.iter().map(String::as_str)).collect();
    if let Some(word) = all.iter().find(|word| word.is_empty() || word.contains(char::is_whitespace)) {
        bail!("\"{word}\" is empty or has spaces: a name or a setting is one word, as in memory=2G");
    }
    order::send(&format!("group {}", all.join(" ")))
}

fn page(answer: &Value) -> String {
    let groups = answer["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    if groups.is_empty() {
        return "There are no groups; cumux group create NAME makes one.\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["group", "clients", "memory", "SMs", "prio", "user", "control group", "directory"]);
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for group in groups {
        let number = |field: &str| group[field].as_u64();
        let most = number("most_clients").filter(|most| *most != 0).map_or_else(String::new, |most| format!(" of {most}"));
        let memory = group["memory"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(|device| {
            let (used, limit) = (device["used"].as_u64().unwrap_or(0), device["limit"].as_u64().unwrap_or(0));
            if limit == 0 { bytes(used) } else { format!("{} of {}", bytes(used), bytes(limit)) }
        });
        table.add_row([
            group["name"].as_str().unwrap_or_default().to_owned(),
            format!("{}{most}", number("clients").unwrap_or(0)),
            memory.collect::<Vec<_>>().join(", "),
            group["percentage"].as_f64().map_or_else(|| "each".to_owned(), |percentage| format!("{percentage} %")),
            if number("priority") == Some(1) { "below".to_owned() } else { "normal".to_owned() },
            number("uid").map_or_else(|| "-".to_owned(), |uid| uid.to_string()),
            group["cgroup"].as_str().unwrap_or("-").to_owned(),
            group["directory"].as_str().unwrap_or_default().to_owned(),
        ]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_shows_what_is_used_of_what() {
        let memory = json!([{ "device": "GPU-1", "limit": 2u64 << 30, "used": 1 << 20 }, { "device": "GPU-2", "limit": 0, "used": 0 }]);
        let group =
            json!({ "name": "pod", "clients": 2, "most_clients": 8, "memory": memory, "percentage": 12.5, "priority": 1, "uid": 5, "directory": "/run/x" });
        let text = page(&json!({ "groups": [group] }));
        assert!(["pod", "2 of 8", "1.0 MiB of 2.00 GiB, 0 B", "12.5 %", "below", "/run/x"].iter().all(|word| text.contains(word)), "{text}");
        assert!(page(&json!({ "groups": [] })).contains("cumux group create"));
    }

    #[test]
    fn a_word_with_spaces_never_leaves() {
        assert!(send(&["create", "a b"], &[]).unwrap_err().to_string().contains("one word"));
    }
}
