//! An order for the daemon that changes something and is answered in JSON.

use anyhow::{Context as _, bail};
use cumux_control::directory::pipe_directory;
use cumux_control::{Frontend, PipeDirectory};
use cumux_link::escape_foreign;
use serde_json::Value;
use std::time::Instant;

/// Characters of a refusal that are shown.
const LONGEST_REFUSAL: usize = 2048;

/// Sends the order, and returns the daemon's answer with `milliseconds` added: how long it took.
///
/// # Errors
/// The daemon's refusal in its words, or that there is no daemon that understands the order.
pub fn send(order: &str) -> anyhow::Result<Value> {
    let mut daemon = Frontend::connect(&PipeDirectory::at(&pipe_directory()))?;
    let asked = Instant::now();
    let (text, _) = daemon.ask(order)?;
    let ms = asked.elapsed().as_secs_f64() * 1e3;
    if ["Permission denied", "It is written"].iter().any(|refusal| text.starts_with(refusal)) {
        bail!("{}", text.trim());
    }
    let mut answer: Value = serde_json::from_str(&text).context("the daemon is of another version of cumux: start it again")?;
    if let Some(error) = answer["error"].as_str() {
        bail!("{}", escape_foreign(error, LONGEST_REFUSAL));
    }
    answer["milliseconds"] = ms.into();
    Ok(answer)
}
