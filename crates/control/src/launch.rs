//! Starting a server: as which user, in which folder, with which settings.

use crate::daemon::Daemon;
use crate::event::Event;
use crate::settings::Settings;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;

impl Daemon {
    pub(crate) fn launch(self: &Arc<Self>, uid: u32, settings: &Settings, devices: &[String]) -> Event {
        let own = rustix::process::geteuid().as_raw();
        if uid != own && own != 0 {
            let why = format!(
                "the control daemon runs as user {own} and can only serve that user; start a daemon as root, or one of user {uid} with its own CUDA_MPS_PIPE_DIRECTORY"
            );
            return Event::LaunchFailed { uid, why, again: false };
        }
        let pipe = match self.prepare_for(uid) {
            Ok(pipe) => pipe,
            Err(error) => {
                let why = format!("cannot give user {uid} a folder in {}: {error}", self.options.pipe.display());
                return Event::LaunchFailed { uid, why, again: false };
            }
        };
        let mut command = Command::new(&self.options.program);
        command.arg("server").arg("--pipe").arg(&pipe).arg("--log").arg(&self.options.log);
        command.args(devices.iter().flat_map(|name| ["--device", name])).arg("--uid").arg(uid.to_string());
        let usual = self.options.device.split(',').eq(devices);
        command.env("CUMUX_SERVER_SETTINGS", settings.lines(if usual { &self.options.devices } else { &[] }).join("\n"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.server_errors());
        if self.options.echo {
            command.env("CUMUX_ECHO_LOG", "1").stdout(Stdio::inherit());
        }
        // A group of its own: Ctrl-C in the daemon's terminal is for the daemon.
        command.process_group(0);
        if uid != own {
            command.uid(uid).gid(primary_group(uid));
        }
        match command.spawn() {
            Ok(mut child) => {
                let pid = child.id();
                let daemon = Arc::clone(self);
                thread::spawn(move || {
                    let status = child.wait().map_or(-1, exit_number);
                    daemon.forget(pid, Some(status));
                });
                Event::Launched { pid, uid }
            }
            Err(error) => Event::LaunchFailed { uid, why: format!("cannot start {}: {error}", self.options.program.display()), again: true },
        }
    }

    /// The pipe directory of a user's server. The daemon's own user works in the daemon's; another gets a folder in it that nobody else may enter,
    /// with a link to the daemon's socket, and may write the servers' log.
    fn prepare_for(&self, uid: u32) -> io::Result<PathBuf> {
        if uid == rustix::process::geteuid().as_raw() {
            return Ok(self.options.pipe.clone());
        }
        let folder = self.options.pipe.join(format!("user-{uid}"));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        match symlink("../cumux", folder.join("cumux")) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        chown(&folder, Some(uid), Some(primary_group(uid)))?;
        let log = self.options.log.join("server.log");
        // A log that cannot be given away costs lines, not service.
        let _ = fs::OpenOptions::new().append(true).create(true).open(&log).and_then(|_| chown(&log, Some(uid), None));
        Ok(folder)
    }

    /// What a server writes to standard error (a panic, mostly) belongs into its log.
    fn server_errors(&self) -> Stdio {
        let path = self.options.log.join("server.log");
        fs::OpenOptions::new().append(true).create(true).open(path).map_or_else(|_| Stdio::null(), Stdio::from)
    }
}

fn exit_number(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The group of a user in `/etc/passwd`, or the one with the same number: a server needs no group, but must not keep root's.
fn primary_group(uid: u32) -> u32 {
    let fields = |line: &str| -> Option<(u32, u32)> {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    text.lines().filter_map(fields).find(|(user, _)| *user == uid).map_or(uid, |(_, group)| group)
}
