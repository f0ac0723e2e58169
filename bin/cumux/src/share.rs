//! `cumux set-share`: changes the share of a running client.

use crate::say;
use anyhow::{Context as _, bail};
use cumux_control::directory::pipe_directory;
use cumux_control::{Frontend, PipeDirectory};
use cumux_link::escape_foreign;
use std::time::Instant;

/// Changes the share and returns the exit status.
pub fn main(client: u32, percent: &str, json: bool) -> anyhow::Result<u8> {
    if percent.parse::<f64>().is_err() {
        bail!("\"{percent}\" is no percentage: give a number above 0 and at most 100, like 12.5");
    }
    let pipe = pipe_directory();
    let mut daemon = Frontend::connect(&PipeDirectory::at(&pipe))?;
    let asked = Instant::now();
    let (text, _) = daemon.ask(&format!("set_share {client} {percent}"))?;
    let ms = asked.elapsed().as_secs_f64() * 1e3;
    if text.starts_with("Permission denied") {
        bail!("{}", text.trim());
    }
    let mut answer: serde_json::Value = serde_json::from_str(&text).context("the daemon is of another version of cumux: start it again")?;
    if let Some(error) = answer["error"].as_str() {
        bail!("{}", escape_foreign(error, 1024));
    }
    if json {
        answer["milliseconds"] = ms.into();
        say::line(answer)?;
    } else {
        let (now, before) = (&answer["now"], &answer["before"]);
        say::line(format_args!("client {client}: {now} multiprocessors, {before} before; in force after {ms:.1} ms"))?;
    }
    Ok(0)
}
