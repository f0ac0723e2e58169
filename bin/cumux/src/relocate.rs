//! `cumux move`: moves a running client from one executor to another.

use crate::{order, say};

/// Moves the client and returns the exit status.
pub fn main(client: u32, back: bool, json: bool) -> anyhow::Result<u8> {
    let answer = order::send(&format!("move_client {client} {}", if back { "shared" } else { "own" }))?;
    if json {
        say::line(answer)?;
    } else {
        let which = if back { "the shared executor" } else { "an executor of its own" };
        let ms = answer["milliseconds"].as_f64().unwrap_or_default();
        say::line(format_args!("client {client}: in {which} ({}) after {ms:.1} ms", answer["executor"]))?;
    }
    Ok(0)
}
