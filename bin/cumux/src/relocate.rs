//! `cumux move`: moves a running client from one executor to another.

use crate::say;
use anyhow::{Context as _, bail};
use cumux_control::directory::pipe_directory;
use cumux_control::{Frontend, PipeDirectory};
use cumux_link::escape_foreign;
use std::time::Instant;

/// Moves the client and returns the exit status.
pub fn main(client: u32, back: bool, json: bool) -> anyhow::Result<u8> {
    let mut daemon = Frontend::connect(&PipeDirectory::at(&pipe_directory()))?;
    let asked = Instant::now();
    let place = if back { "shared" } else { "own" };
    let (text, _) = daemon.ask(&format!("move_client {client} {place}"))?;
    let ms = asked.elapsed().as_secs_f64() * 1e3;
    if text.starts_with("Permission denied") || text.starts_with("It is written") {
        bail!("{}", text.trim());
    }
    let mut answer: serde_json::Value = serde_json::from_str(&text).context("the daemon is of another version of cumux: start it again")?;
    if let Some(error) = answer["error"].as_str() {
        bail!("{}", escape_foreign(error, 2048));
    }
    if json {
        answer["milliseconds"] = ms.into();
        say::line(answer)?;
    } else {
        let which = if back { "the shared executor" } else { "an executor of its own" };
        say::line(format_args!("client {client}: in {which} ({}) after {ms:.1} ms", answer["executor"]))?;
    }
    Ok(0)
}
