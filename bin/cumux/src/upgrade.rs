//! `cumux upgrade`: replaces the processes of the service while clients work.

use crate::{order, say};
use anyhow::Context as _;
use cumux_link::escape_foreign;
use std::path::PathBuf;

/// Replaces the processes and returns the exit status.
pub fn main(program: Option<PathBuf>, json: bool) -> anyhow::Result<u8> {
    let program = match program {
        Some(path) => std::path::absolute(&path).with_context(|| format!("cannot use {}", path.display()))?,
        None => std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?,
    };
    let answer = order::send(&format!("upgrade {}", program.display()))?;
    if json {
        say::line(answer)?;
        return Ok(0);
    }
    for server in answer["servers"].as_array().into_iter().flatten() {
        say::line(format_args!(
            "user {}: server {} has taken over from {}, with executors and keeper of {}",
            server["uid"],
            server["now"],
            server["before"],
            program.display()
        ))?;
        for stays in server["staying"].as_array().into_iter().flatten() {
            let why = escape_foreign(stays["why"].as_str().unwrap_or_default(), 512);
            say::line(format_args!("  client {} stays in its old executor for now, and leaves it later: {why}", stays["client"]))?;
        }
    }
    let ms = answer["milliseconds"].as_f64().unwrap_or_default();
    say::line(format_args!(
        "done after {ms:.0} ms. The daemon (process {}) goes on with its own program: start it again when it suits, clients go on meanwhile",
        answer["daemon"]
    ))?;
    Ok(0)
}
