//! The display while the demo runs: one moving line a program on a terminal, plain lines elsewhere.
//! All of it on standard error.

use super::client::DemoProgram;
use crate::say;
use crate::status::{bytes, duration};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

pub struct Progress {
    terminal: bool,
    /// With `--json`: only news, no table rows.
    quiet: bool,
    bars: MultiProgress,
    rows: Vec<ProgressBar>,
    /// The last plain line of each program.
    told: Vec<String>,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        Self { terminal: std::io::stderr().is_terminal() && !quiet, quiet, bars: MultiProgress::new(), rows: Vec::new(), told: Vec::new() }
    }

    /// Prints a line about the whole demo.
    pub fn say(&mut self, text: &str) {
        say::complain(format_args!("cumux: {text}"));
    }

    pub fn begin(&mut self, clients: &[DemoProgram]) {
        self.told = vec![String::new(); clients.len()];
        if !self.terminal {
            return;
        }
        for client in clients {
            let row = self.bars.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:<16} {wide_msg}") {
                row.set_style(style);
            }
            row.set_prefix(client.role.name);
            row.enable_steady_tick(Duration::from_millis(100));
            self.rows.push(row);
        }
    }

    pub fn show(&mut self, clients: &[DemoProgram]) {
        for (at, client) in clients.iter().enumerate() {
            let (kernels, time) = (client.status.kernels, duration(client.status.gpu_ns));
            match self.rows.get(at) {
                Some(row) => {
                    let text = format!("{kernels:>7} kernels  {time:>9} GPU  {:>10}  {}", bytes(client.status.memory), client.outcome());
                    if client.end().is_some() && !row.is_finished() {
                        row.finish_with_message(text);
                    } else if client.end().is_none() {
                        row.set_message(text);
                    }
                }
                None => {
                    let outcome = client.outcome();
                    let running = client.end().is_none() && client.status.kernels == 0;
                    if self.told.get(at).is_some_and(|told| *told != outcome) && !running {
                        let noun = if kernels == 1 { "kernel" } else { "kernels" };
                        say::complain(format_args!("cumux: {:<16} {outcome} ({kernels} {noun}, {time} GPU)", client.role.name));
                        self.told[at] = outcome;
                    }
                }
            }
        }
    }

    pub fn end(&mut self) {
        for row in &self.rows {
            row.finish();
        }
        if !self.quiet {
            say::complain("");
        }
    }
}
