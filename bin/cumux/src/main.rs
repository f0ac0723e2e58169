//! `cumux`: one binary with many names. This file only chooses the command; each command is a
//! module.
//!
//! Called as `nvidia-cuda-mps-control` it is `cumux control`, called as `nvidia-cuda-mps-server` it
//! is the server. Compilers on software GPUs call it as `ptxas`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod artifacts;
mod cli;
mod cluster;
mod control;
mod demo;
mod device;
mod dispatch;
mod doctor;
mod error;
mod exporter;
mod faults;
mod group;
mod install;
mod lab;
mod library;
mod order;
mod plan;
mod private;
mod processes;
mod ptxas;
mod record;
mod relocate;
mod run;
mod say;
mod share;
mod status;
mod supervisor;
mod top;
mod upgrade;
mod visible;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    cumux_signals::settle();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let result = match called_as(&arguments).as_deref() {
        // The daemon starts this same file again, with one of our own commands in front.
        Some("nvidia-cuda-mps-control") if !is_own_word(&arguments) => control::main(rest(&arguments)),
        Some(ptxas::NAME) => ptxas::main(rest(&arguments)),
        Some("nvidia-cuda-mps-server") => processes::drop_in_server(rest(&arguments)),
        _ => dispatch::main(arguments),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            if let Some(signal) = error::signal(&error) {
                // Does not return: the signal ends the process.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            say::complain(error::sentence(&error));
            ExitCode::from(error::exit_status(&error))
        }
    }
}

/// `control`, `server` and the like are not commands of NVIDIA's program.
fn is_own_word(arguments: &[OsString]) -> bool {
    arguments
        .get(1)
        .and_then(|word| word.to_str())
        .is_some_and(|word| ["control", "server", "keeper", "executor", "standby", "survey", "wire-version"].contains(&word))
}

fn called_as(arguments: &[OsString]) -> Option<String> {
    Some(Path::new(arguments.first()?).file_name()?.to_string_lossy().into_owned())
}

fn rest(arguments: &[OsString]) -> Vec<OsString> {
    arguments.iter().skip(1).cloned().collect()
}
