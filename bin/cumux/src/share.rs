//! `cumux set-share`: changes the share of a running client.

use crate::{order, say};
use anyhow::bail;

/// Changes the share and returns the exit status.
pub fn main(client: u32, percent: &str, json: bool) -> anyhow::Result<u8> {
    if percent.parse::<f64>().is_err() {
        bail!("\"{percent}\" is no percentage: give a number above 0 and at most 100, like 12.5");
    }
    let answer = order::send(&format!("set_share {client} {percent}"))?;
    if json {
        say::line(answer)?;
    } else {
        let ms = answer["milliseconds"].as_f64().unwrap_or_default();
        let (now, before) = (&answer["now"], &answer["before"]);
        say::line(format_args!("client {client}: {now} multiprocessors, {before} before; in force after {ms:.1} ms"))?;
    }
    Ok(0)
}
