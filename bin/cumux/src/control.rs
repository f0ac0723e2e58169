//! `cumux control`: the daemon with `-d` or `-f`, otherwise the front end that sends commands.
//! Options are NVIDIA's, so they are read by hand.

use crate::private::{PROTOCOL_VARIABLE, READY};
use crate::say::SayError;
use crate::{device, private, processes, say, supervisor};
use anyhow::{Context as _, bail};
use cumux_control::directory::{LOG_VARIABLE, log_directory, named_directory, pipe_directory};
use cumux_control::settings::{Isolation, Settings, VISIBLE_VARIABLE, visible};
use cumux_control::{Frontend, FrontendError, HELP, Inherited, Options, PipeDirectory};
use cumux_signals::sockets::Passed;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    help: bool,
    version: bool,
    daemon: bool,
    foreground: bool,
    /// Hidden: the second half of `-d`. Prints [`READY`], then nothing more.
    background: bool,
    /// Hidden: a daemon of one command. It ends when its standard input does, and takes its pipe
    /// directory with it.
    private: bool,
    device: Option<String>,
    multiuser: bool,
    /// A server for each card.
    per_card: bool,
    static_partitions: bool,
    ready_devices: bool,
    protocol: Option<String>,
    isolation: Option<Isolation>,
    /// A command in place of standard input.
    command: Vec<String>,
}

impl Arguments {
    fn parse(arguments: Vec<OsString>) -> anyhow::Result<Self> {
        let mut parsed = Self::default();
        let mut words = arguments.into_iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            if !parsed.command.is_empty() {
                parsed.command.push(word);
                continue;
            }
            match word.as_str() {
                "-h" | "--help" => parsed.help = true,
                "-v" | "-V" | "--version" => parsed.version = true,
                "-d" | "--daemon" => parsed.daemon = true,
                // NVIDIA's program spells it so.
                "-f" | "--foreground" | "--forground" => parsed.foreground = true,
                "--background" => parsed.background = true,
                "--private" => parsed.private = true,
                "--device" => parsed.device = Some(words.next().with_context(|| format!("--device needs a name, one of {}", device::names()))?),
                "--isolation" => parsed.isolation = Some(isolation(&words.next().unwrap_or_default())?),
                "-p" | "--protocol" => parsed.protocol = Some(words.next().context("-p needs a protocol version: 2")?),
                "-S" | "--static-partitioning" => parsed.static_partitions = true,
                // The documents write it with one dash.
                "-M" | "--multiuser-server" | "-multiuser-server" => parsed.multiuser = true,
                "-q" | "--ready-devices" => parsed.ready_devices = true,
                "--per-card" => parsed.per_card = true,
                option if option.starts_with('-') => match option.split_once('=') {
                    Some(("--device", name)) => parsed.device = Some(name.to_owned()),
                    Some(("--isolation", word)) => parsed.isolation = Some(isolation(word)?),
                    Some(("--protocol", version)) => parsed.protocol = Some(version.to_owned()),
                    _ => bail!("unknown option {option}: see --help"),
                },
                _ => parsed.command.push(word),
            }
        }
        Ok(parsed)
    }
}

/// Runs `cumux control` and returns its exit status.
pub fn main(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    let arguments = Arguments::parse(arguments)?;
    // First of all: their numbers are known, and no file of ours may get one of them.
    let inherited = if arguments.foreground || arguments.daemon { cumux_signals::sockets::passed()? } else { Vec::new() };
    if arguments.help {
        say::text(HELP)?;
        return Ok(0);
    }
    if arguments.version {
        say::line(format_args!("CUDA MPS Control binary version: 13000 (cumux {})", env!("CARGO_PKG_VERSION")))?;
        return Ok(0);
    }
    let pipe = pipe_directory();
    if arguments.daemon || arguments.foreground || arguments.background {
        // The front end speaks the daemon's protocol, whatever it is.
        check_protocol(arguments.protocol.as_deref(), std::env::var(PROTOCOL_VARIABLE).ok().as_deref())?;
    }
    if arguments.daemon {
        if !inherited.is_empty() {
            bail!("a daemon in the background (-d) cannot have the sockets of its supervisor: start it with -f, as cumux.service does, or without sockets");
        }
        return daemonize(&pipe, &arguments);
    }
    if arguments.foreground || arguments.background {
        return serve(&pipe, &arguments, inherited);
    }
    front_end(&pipe, &arguments.command)
}

fn isolation(word: &str) -> anyhow::Result<Isolation> {
    Isolation::parse(word).with_context(|| format!("--isolation {word}: write own (an executor for each program) or shared (one for all)"))
}

/// Refuses a protocol that the daemon does not speak. The variable comes before the option, as in
/// NVIDIA's daemon.
fn check_protocol(option: Option<&str>, variable: Option<&str>) -> anyhow::Result<()> {
    let lacks = "this version of cumux has protocol version 2 only (no named servers, namespaces or TOML files)";
    match (variable.filter(|text| !text.is_empty()), option) {
        (Some("2"), _) | (None, None | Some("2")) => Ok(()),
        (Some(version), _) => bail!("{PROTOCOL_VARIABLE}={version}: {lacks}: unset the variable, or set it to 2"),
        (None, Some(version)) => bail!("-p {version}: {lacks}: leave out -p"),
    }
}

fn front_end(pipe: &Path, command: &[String]) -> anyhow::Result<u8> {
    let mut daemon = Frontend::connect(&PipeDirectory::at(pipe))?;
    let stdout = std::io::stdout().lock();
    let status = if command.is_empty() { daemon.converse(std::io::stdin().lock(), stdout) } else { daemon.converse(command.join(" ").as_bytes(), stdout) };
    status.map_err(|error| match error {
        FrontendError::Output(cause) => SayError::from(cause).into(),
        other => other.into(),
    })
}

fn serve(pipe: &Path, arguments: &Arguments, inherited: Vec<Passed>) -> anyhow::Result<u8> {
    cumux_signals::survive_file_limit();
    let outcome = serve_until_the_end(pipe, arguments, inherited);
    if arguments.private {
        private::remove_own(pipe);
    }
    outcome
}

fn serve_until_the_end(pipe: &Path, arguments: &Arguments, inherited: Vec<Passed>) -> anyhow::Result<u8> {
    let parent = if arguments.private { Some(private::Parent::watch().context("cannot watch for the end of the command")?) } else { None };
    if arguments.background {
        // A session of its own: closing the terminal must not end the daemon. It fails only if we
        // lead one already.
        let _ = rustix::process::setsid();
    }
    cumux_link::logfile::limit(std::env::var(cumux_link::logfile::VARIABLE).ok().as_deref())?;
    let devices: Vec<String> = device::list_for_control(arguments.device.as_deref())?.iter().map(ToString::to_string).collect();
    // The environment of a private daemon is its program's, which applies the variable itself.
    let chosen = if arguments.private { None } else { std::env::var(VISIBLE_VARIABLE).ok() };
    let devices = visible_devices(devices, chosen.as_deref())?;
    let mut settings = Settings::from_environment(|name| std::env::var(name).ok());
    settings.isolation = arguments.isolation.unwrap_or(settings.isolation);
    let options = Options {
        pipe: absolute(pipe)?,
        log: log_directory(named_directory(LOG_VARIABLE), pipe).map_err(cumux_control::DaemonError::from)?,
        devices: processes::facts_of_all(&devices),
        localities: processes::localities(&devices),
        cards: if arguments.per_card { processes::single_names(&devices) } else { Vec::new() },
        device: devices.join(","),
        settings,
        program: std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?.into(),
        echo: arguments.foreground,
        multiuser: arguments.multiuser,
        static_partitions: arguments.static_partitions,
        ready_devices: arguments.ready_devices,
    };
    let (background, foreground) = (arguments.background, arguments.foreground);
    let inherited = inherited.into_iter().map(|Passed { socket, name }| Inherited { socket, name }).collect();
    let clean = cumux_control::run(options, inherited, move |alive| {
        if let Some(parent) = parent {
            parent.begin();
        }
        if background {
            let mut out = std::io::stdout();
            // The starter may have gone already; the daemon stays.
            let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        }
        if foreground {
            supervisor::tell_ready(alive);
        }
    })?;
    if foreground {
        supervisor::tell_end();
    }
    Ok(u8::from(!clean))
}

/// The software GPUs that the daemon's own `CUDA_VISIBLE_DEVICES` leaves, in its order. Real ones
/// are left to their driver, which reads the variable, too.
fn visible_devices(devices: Vec<String>, variable: Option<&str>) -> anyhow::Result<Vec<String>> {
    let facts = processes::facts_of_all(&devices);
    let Some(list) = variable.filter(|_| facts.len() == devices.len()) else { return Ok(devices) };
    let places = visible(Some(list), &facts);
    let chosen: Vec<String> = places.iter().map(|place| devices[*place].clone()).collect();
    if chosen.is_empty() {
        bail!("Invalid {VISIBLE_VARIABLE}: \"{list}\" names none of the {} devices of this daemon ({})", devices.len(), devices.join(","));
    }
    // Without the others, the second of a kind would be the first.
    let is_same = processes::facts_of_all(&chosen).iter().zip(&places).all(|(now, place)| now.uuid == facts[*place].uuid);
    if is_same {
        return Ok(chosen);
    }
    let names = processes::single_names(&devices);
    Ok(places.into_iter().map(|place| names[place].clone()).collect())
}

fn absolute(pipe: &Path) -> anyhow::Result<std::path::PathBuf> {
    std::path::absolute(pipe).with_context(|| format!("cannot use the pipe directory {}", pipe.display()))
}

/// Starts this program again as the daemon and returns when it is ready.
fn daemonize(pipe: &Path, arguments: &Arguments) -> anyhow::Result<u8> {
    // Reported before any process starts, so that the text is ours and not that of a process that
    // ended.
    if PipeDirectory::at(pipe).is_served() {
        return Err(cumux_control::DaemonError::from(cumux_control::directory::DirectoryError::AlreadyRunning).into());
    }
    let mut command = Command::new(std::env::current_exe().context("cannot find the own program file: is /proc mounted?")?);
    command.args(["control", "--background"]);
    command.args(
        [(arguments.multiuser, "-M"), (arguments.static_partitions, "-S"), (arguments.ready_devices, "-q"), (arguments.per_card, "--per-card")]
            .iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, option)| option),
    );
    if let Some(device) = &arguments.device {
        command.args(["--device", device]);
    }
    if let Some(isolation) = arguments.isolation {
        command.args(["--isolation", isolation.text()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the daemon")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("cannot hear from the daemon")?;
    }
    if line.trim() == READY {
        return Ok(0);
    }
    let mut why = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut why);
    }
    let status = child.wait().context("cannot hear from the daemon")?;
    say::complain_text(&why);
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Arguments> {
        Arguments::parse(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn options_as_nvidia_spells_them() {
        assert!(parse(&["-d"]).unwrap().daemon);
        assert!(parse(&["--forground"]).unwrap().foreground);
        assert_eq!(parse(&["-d", "--device", "sim:l4"]).unwrap().device.as_deref(), Some("sim:l4"));
        assert_eq!(parse(&["--device=sim:l4", "-f"]).unwrap().device.as_deref(), Some("sim:l4"));
        for option in ["-M", "--multiuser-server", "-multiuser-server"] {
            assert!(parse(&["-d", option]).unwrap().multiuser);
        }
        assert!(parse(&["-d", "-S"]).unwrap().static_partitions && parse(&["-f", "--static-partitioning"]).unwrap().static_partitions);
        assert!(parse(&["-d", "-q"]).unwrap().ready_devices && parse(&["-f", "--ready-devices"]).unwrap().ready_devices);
        for words in [["-d", "--isolation", "own"].as_slice(), &["-f", "--isolation=own"]] {
            assert_eq!(parse(words).unwrap().isolation, Some(Isolation::Own));
        }
        assert_eq!(parse(&["ps", "-p", "7"]).unwrap().command, ["ps", "-p", "7"]);
    }

    #[test]
    fn protocol_three_is_refused_by_name() {
        let check = |option, variable| check_protocol(option, variable).map_err(|error| error.to_string());
        for (option, variable) in [(None, None), (Some("2"), None), (None, Some("")), (None, Some("2")), (Some("3"), Some("2"))] {
            assert_eq!(check(option, variable), Ok(()));
        }
        assert!(check(Some("3"), None).unwrap_err().starts_with("-p 3: "));
        for option in [None, Some("2")] {
            let text = check(option, Some("3")).unwrap_err();
            assert!(text.starts_with("CUDA_MPS_PROTOCOL_VERSION=3: ") && text.ends_with("set it to 2"), "{text}");
        }
        assert_eq!(parse(&["-d", "-p", "3"]).unwrap().protocol.as_deref(), Some("3"));
        assert_eq!(parse(&["-d", "--protocol=2"]).unwrap().protocol.as_deref(), Some("2"));
        assert!(parse(&["-p"]).is_err());
    }

    #[test]
    fn the_daemons_own_visible_devices() {
        let devices = || vec!["sim:h200".to_owned(), "sim:l4".to_owned()];
        let see = |variable| visible_devices(devices(), variable).map_err(|error| error.to_string());
        assert_eq!(see(None), Ok(devices()));
        assert_eq!(see(Some("1")), Ok(vec!["sim:l4".to_owned()]));
        assert_eq!(see(Some("1,0")), Ok(vec!["sim:l4".to_owned(), "sim:h200".to_owned()]));
        assert!(see(Some("7")).unwrap_err().contains("Invalid CUDA_VISIBLE_DEVICES"));
        assert_eq!(visible_devices(vec!["sim:l4".into(), "sim:l4".into()], Some("1")).unwrap(), ["sim:l4@1"], "not the first one");
        assert_eq!(visible_devices(vec!["cuda:0".into()], Some("3")).unwrap(), ["cuda:0"]);
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (option, word) in [("--what", "--what"), ("--device", "needs a name"), ("--isolation", "write own")] {
            let text = parse(&[option]).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }
}
