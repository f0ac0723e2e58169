//! Runs the command that a command line names.

use crate::cli::{self, Cli, Command};
use crate::say::{self, SayError};
use crate::{
    artifacts, cluster, control, demo, doctor, exporter, faults, group, install, lab, plan, processes, ptxas, record, relocate, run, share, status, top,
    upgrade,
};
use clap::Parser as _;
use std::ffi::OsString;
use std::io::{self, Write as _};

/// Carries out a command line and returns the exit status.
pub fn main(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => dispatch(cli.command),
        // Help and version are output like any other.
        Err(asked) if !asked.use_stderr() => {
            asked.print().and_then(|()| io::stdout().flush()).map_err(SayError::from)?;
            Ok(0)
        }
        Err(error) => {
            let _ = error.print();
            Ok(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Control { arguments } => control::main(arguments),
        Command::Run { device, command } => run::main(device.as_deref(), &command),
        Command::Status { json } => status::main(json),
        Command::Top { once, interval, sort } => top::main(once, interval, sort),
        Command::SetShare { client, percent, json } => share::main(client, &percent, json),
        Command::Move { client, own: _, back, json } => relocate::main(client, back, json),
        Command::Upgrade { program, json } => upgrade::main(program, json),
        Command::Group { command } => group::main(&command),
        Command::Faults { json, export, file } => faults::main(json, export, file.as_deref()),
        Command::Exporter(arguments) => exporter::main(&arguments),
        Command::Doctor { json, device, program } => doctor::main(json, device.as_deref(), program.as_deref()),
        Command::Demo { json, device } => demo::main(json, device.as_deref()),
        Command::Record(arguments) => record::main(&arguments),
        Command::Lab(arguments) => lab::main(&arguments),
        Command::Plan(arguments) => plan::main(&arguments),
        Command::Artifacts(arguments) => artifacts::main(arguments),
        Command::DevicePlugin(arguments) => cluster::device_plugin(arguments),
        Command::Dra(arguments) => cluster::dra(arguments),
        Command::Install(arguments) => install::main(&arguments),
        Command::Slurm { command } => cluster::slurm(&command),
        Command::Completions { shell } => {
            say::bytes(&cli::completions(shell))?;
            Ok(0)
        }
        Command::Man { command } => {
            say::bytes(&cli::man_page(command.as_deref())?)?;
            Ok(0)
        }
        Command::Server { arguments } => processes::server(arguments),
        Command::WireVersion => {
            say::line(cumux_wire::VERSION)?;
            Ok(0)
        }
        Command::Survey { arguments } => processes::survey(arguments),
        Command::Trial { library } => exporter::trial::main(&library),
        Command::Ptxas { arguments } => ptxas::main(arguments),
        Command::Keeper { arguments } => processes::keeper(arguments),
        Command::Executor { arguments } => processes::executor(arguments),
    }
}
