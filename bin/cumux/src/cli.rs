//! The command line: one definition gives parsing, help, man page and completions.

use crate::artifacts::ArtifactArguments;
use crate::cluster::{DraArguments, PluginArguments, SlurmCommand};
use crate::exporter::ExporterArguments;
use crate::group::GroupCommand;
use crate::lab::LabArguments;
use crate::plan::PlanArguments;
use crate::record::RecordArguments;
use crate::{device, order, top};
use anyhow::bail;
use clap::{CommandFactory as _, Parser, Subcommand};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Many CUDA programs share one GPU, and one that crashes takes nobody with it.
#[derive(Parser)]
#[command(name = "cumux", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Starts the daemon (-d, -f), or sends commands from standard input to it, as
    /// nvidia-cuda-mps-control does
    #[command(disable_help_flag = true, after_help = cumux_control::HELP)]
    Control {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        arguments: Vec<OsString>,
    },
    /// Runs a CUDA program through cumux; starts a private daemon if none serves the pipe directory
    Run {
        #[arg(long, help = format!("Device of a private daemon of this run: {}; several software GPUs with commas between them", device::names()))]
        device: Option<String>,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Shows servers and clients
    Status {
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Shows what the clients do at the moment: a screen in a terminal, a table per interval
    /// anywhere else
    Top {
        /// One table after one interval, then ends; exit status 1 if there is no daemon
        #[arg(long)]
        once: bool,
        /// Seconds between two updates
        #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
        interval: f64,
        /// The column to sort by
        #[arg(long, value_enum, default_value_t = top::Sort::Gpu)]
        sort: top::Sort,
    },
    /// Gives a running client another share of the multiprocessors; what it launches from then on
    /// runs on the new part
    SetShare {
        /// Its process number, as `cumux status` and `ps` show it
        #[arg(value_parser = order::read_process)]
        client: u32,
        /// Above 0 and at most 100: 12.5, 50
        percent: String,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Makes, changes and shows groups: limits for several programs together, such as those of a
    /// pod or of a job
    Group {
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// Moves a running client to an executor of its own, where it shares neither an address space
    /// nor a fault with others, or back to the one that all others share
    Move {
        /// Its process number, as `cumux status` and `ps` show it
        #[arg(value_parser = order::read_process)]
        client: u32,
        /// To an executor of its own (the default)
        #[arg(long)]
        own: bool,
        /// Back to the shared executor
        #[arg(long, alias = "shared", conflicts_with = "own")]
        back: bool,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Replaces executors, standbys, keepers and servers by this program (or the one that --program
    /// names) while clients work; they notice a pause
    Upgrade {
        /// Another cumux than this one
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Shows whose kernels have faulted, where, and how that was found out
    Faults {
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        /// Copies the core dump of this fault to FILE, for cuda-gdb
        #[arg(long, value_name = "NUMBER", requires = "file")]
        export: Option<usize>,
        /// The file to write
        file: Option<PathBuf>,
    },
    /// Tells why a program would not be served, and what to do
    Doctor {
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        #[arg(long, help = format!("Judge the program's device code for this device: {}", device::names()))]
        device: Option<String>,
        /// A program to check as well, or a file of PTX, a fatbin or a cubin: will it be served,
        /// and what of its device code will run?
        program: Option<PathBuf>,
    },
    /// Runs ordinary CUDA programs together, lets two of them fail, and shows that the others
    /// finish
    Demo {
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        #[arg(long, help = format!("One of {}; several software GPUs with commas between them", device::names()))]
        device: Option<String>,
    },
    /// Runs a program through a private daemon and writes a profile of what it does on the card,
    /// for `cumux plan --profile`
    Record(RecordArguments),
    /// Measures every way of sharing this card that this machine can, predicts the others, and
    /// writes a report that says which to take
    Lab(LabArguments),
    /// Predicts how programs would share a card in each way (time-slicing, MPS, cumux, MIG), and
    /// says which to take and what breaks with the others
    Plan(PlanArguments),
    /// Writes what an administrator applies for a way of sharing: scripts, systemd units,
    /// configurations for Kubernetes, mig-parted and Slurm; or checks such files
    Artifacts(ArtifactArguments),
    /// Serves metrics and health of the daemon over HTTP: /metrics for Prometheus, /healthz,
    /// /readyz
    Exporter(ExporterArguments),
    /// Serves kubelet as a device plugin: pods ask for parts of cards, and each gets a group
    DevicePlugin(PluginArguments),
    /// Serves kubelet as a driver for Dynamic Resource Allocation: claims ask for memory and
    /// multiprocessors, and each gets a group
    Dra(DraArguments),
    /// Hooks for slurmd: each job gets a group
    Slurm {
        #[command(subcommand)]
        command: SlurmCommand,
    },
    /// Copies cumux and its libraries to a folder of programs, or with --system into the system,
    /// with units for systemd
    Install(InstallArguments),
    /// Prints shell completions
    Completions { shell: clap_complete::Shell },
    /// Prints the man page, or that of one command
    Man { command: Option<String> },
    #[command(hide = true)]
    Server {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    WireVersion,
    #[command(hide = true)]
    Survey {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    Trial { library: PathBuf },
    #[command(hide = true)]
    Ptxas {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    Keeper {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    Executor {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// What `cumux install` is told.
#[derive(clap::Args)]
pub struct InstallArguments {
    /// The folder that gets bin, lib and share
    #[arg(long, required_unless_present = "system", conflicts_with_all = ["system", "root"])]
    pub prefix: Option<PathBuf>,
    /// Also as nvidia-cuda-mps-control and nvidia-cuda-mps-server in the folder's bin; with
    /// --system they are in /usr/lib/cumux/bin anyway
    #[arg(long)]
    pub drop_in: bool,
    /// Into /usr, with units for systemd and their settings in /etc/default/cumux
    #[arg(long)]
    pub system: bool,
    /// Stands for / with --system: the root of an image or of a package
    #[arg(long, value_name = "DIR", requires = "system", default_value = "/")]
    pub root: PathBuf,
}

/// Completions of one shell.
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cumux", &mut out);
    out
}

/// Every man page in roff, with the name of its file. The program's own page comes first; it names
/// the others.
pub fn man_pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    // `help` has no page of its own.
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let mut all = vec![whole];
    let mut read = 0;
    while let Some(command) = all.get(read) {
        let inner: Vec<_> = command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help").cloned().collect();
        all.extend(inner);
        read += 1;
    }
    let pages = all.into_iter().map(|command| {
        let page = clap_mangen::Man::new(command);
        let mut out = Vec::new();
        page.render(&mut out)?;
        Ok((page.get_filename(), out))
    });
    pages.collect()
}

/// The page of the program, or of one command.
pub fn man_page(command: Option<&str>) -> anyhow::Result<Vec<u8>> {
    let pages = man_pages()?;
    let wanted = command.map_or_else(|| "cumux.1".to_owned(), |command| format!("cumux-{command}.1"));
    let Some((_, page)) = pages.iter().find(|(name, _)| *name == wanted) else {
        let known: Vec<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("cumux-")?.strip_suffix(".1")).collect();
        bail!("there is no command \"{}\": write one of {}", command.unwrap_or_default(), known.join(", "));
    };
    Ok(page.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every page that a page names (`cumux-run(1)`) exists.
    #[test]
    fn every_page_that_is_named_is_there() {
        let pages = man_pages().unwrap();
        for (name, page) in &pages {
            let text = String::from_utf8(page.clone()).unwrap().replace('\\', "");
            for named in text.split_whitespace().filter_map(|word| word.strip_suffix("(1)")) {
                assert!(pages.iter().any(|(file, _)| *file == format!("{named}.1")), "{name} names {named}(1), which is no page");
            }
        }
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"cumux.1") && names.contains(&"cumux-run.1") && !names.contains(&"cumux-keeper.1"), "{names:?}");
        let main = String::from_utf8(pages[0].1.clone()).unwrap();
        assert!(main.contains("run(1)"), "the test above would find nothing: {main}");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_keeps_its_own_options() {
        let cli = Cli::try_parse_from(["cumux", "run", "--device", "sim:l4", "--", "./a", "--device", "x", "-h"]).unwrap();
        let Command::Run { device, command } = cli.command else { panic!("not run") };
        assert_eq!(device.as_deref(), Some("sim:l4"));
        assert_eq!(command, ["./a", "--device", "x", "-h"]);
        let cli = Cli::try_parse_from(["cumux", "run", "./a", "-x"]).unwrap();
        let Command::Run { device: None, command } = cli.command else { panic!("not run") };
        assert_eq!(command, ["./a", "-x"]);
    }

    #[test]
    fn control_takes_options_as_they_are() {
        let cli = Cli::try_parse_from(["cumux", "control", "-d", "--device", "sim:h200"]).unwrap();
        let Command::Control { arguments } = cli.command else { panic!("not control") };
        assert_eq!(arguments, ["-d", "--device", "sim:h200"]);
    }

    #[test]
    fn man_page_and_completions_name_every_command() {
        let page = String::from_utf8(man_page(None).unwrap()).unwrap().replace("\\-", "-");
        for name in
            ["run", "status", "top", "set-share", "group", "move", "upgrade", "doctor", "demo", "record", "lab", "plan", "artifacts", "install", "exporter"]
        {
            assert!(page.contains(name), "{name} is not in the man page");
        }
        let page = String::from_utf8(man_page(Some("set-share")).unwrap()).unwrap();
        assert!(page.contains("above 0") || page.contains("Above 0"), "{page}");
        let error = man_page(Some("keeper")).unwrap_err().to_string();
        assert!(error.contains("\"keeper\"") && error.contains("set-share"), "{error}");
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let text = String::from_utf8(completions(shell)).unwrap();
            assert!(text.contains("doctor") && text.contains("top") && text.contains("interval"), "{shell}");
        }
    }
}
