//! An order for the daemon that changes something and is answered in JSON.

use anyhow::{Context as _, anyhow, bail};
use cumux_control::directory::{PIPE_VARIABLE, pipe_directory};
use cumux_control::{Frontend, FrontendError, PipeDirectory};
use cumux_link::escape_foreign;
use serde_json::Value;
use std::time::Instant;

/// Characters of a refusal that are shown.
const LONGEST_REFUSAL: usize = 2048;

/// A conversation with the daemon of the pipe directory.
///
/// # Errors
/// None listens there, or none that is to be trusted.
pub fn connect() -> anyhow::Result<Frontend> {
    let pipe = pipe_directory();
    Frontend::connect(&PipeDirectory::at(&pipe)).map_err(|error| match error {
        // NVIDIA's sentence, which scripts look for at the front end, names no directory.
        FrontendError::NoDaemon => anyhow!("no daemon in {}: start one (cumux control -d), or set {PIPE_VARIABLE} to the directory of one", pipe.display()),
        other => other.into(),
    })
}

/// Reads the process number of a client.
///
/// # Errors
/// It is none.
pub fn read_process(word: &str) -> Result<u32, String> {
    word.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| "not a process number; `cumux status` lists the clients with theirs".to_owned())
}

/// Sends the order, and returns the daemon's answer with `milliseconds` added: how long it took.
///
/// # Errors
/// The daemon's refusal in its words, or that there is no daemon that understands the order.
pub fn send(order: &str) -> anyhow::Result<Value> {
    let mut daemon = connect()?;
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
