//! Start and stop scripts and systemd units of the daemons.

use super::{Artifact, Options};
use crate::check::Kind;

/// The commands that set the clients' limits.
fn limit_commands(options: &Options) -> impl Iterator<Item = String> {
    let percentage = options.percentage.map(|percentage| format!("set_default_active_thread_percentage {percentage}"));
    let memory = options.memory_mib.map(|memory| format!("set_default_device_pinned_mem_limit 0 {memory}M"));
    percentage.into_iter().chain(memory)
}

/// They in a script, a line each.
fn limits(options: &Options) -> String {
    limit_commands(options).map(|command| format!("echo {command} | nvidia-cuda-mps-control\n")).collect()
}

/// They in a unit, a line each, for this front end.
fn unit_limits(options: &Options, front_end: &str) -> String {
    limit_commands(options).map(|command| format!("ExecStartPost=/bin/sh -c 'echo {command} | {front_end}'\n")).collect()
}

/// What clients are told at the end of a start script.
fn advice(options: &Options, more: &str) -> String {
    let percentage = options.percentage.map_or(100, |percentage| percentage);
    format!(
        "cat <<'END'\nClients need:\n  export CUDA_MPS_PIPE_DIRECTORY={}\n{more}One client can take a smaller part than the default:\n  export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}\nEND\n",
        options.pipe
    )
}

pub(super) fn start_mps(options: &Options) -> Artifact {
    let Options { gpu, pipe, log, .. } = options;
    let text = format!(
        r#"#!/bin/sh
# Starts NVIDIA's MPS on GPU {gpu}. Run as root, before the clients.
set -eu

export CUDA_VISIBLE_DEVICES={gpu}
export CUDA_MPS_PIPE_DIRECTORY={pipe}
export CUDA_MPS_LOG_DIRECTORY={log}
# The daemon would take it for the ceiling of all clients.
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"

# NVIDIA recommends it: then nobody gets past the daemon to the GPU.
nvidia-smi -i {gpu} -c EXCLUSIVE_PROCESS
nvidia-cuda-mps-control -d
{limits}
{advice}"#,
        limits = limits(options),
        advice = advice(options, "")
    );
    Artifact { name: "start-mps.sh", kind: Kind::Script, text }
}

pub(super) fn stop_mps(options: &Options) -> Artifact {
    let Options { gpu, pipe, log, .. } = options;
    let text = format!(
        r#"#!/bin/sh
# Ends NVIDIA's MPS on GPU {gpu}. Its clients should have ended: quit waits for them.
set -eu

export CUDA_MPS_PIPE_DIRECTORY={pipe}
export CUDA_MPS_LOG_DIRECTORY={log}
echo quit | nvidia-cuda-mps-control
nvidia-smi -i {gpu} -c DEFAULT
"#
    );
    Artifact { name: "stop-mps.sh", kind: Kind::Script, text }
}

pub(super) fn mps_unit(options: &Options) -> Artifact {
    let Options { gpu, pipe, log, .. } = options;
    let limits = unit_limits(options, "/usr/bin/nvidia-cuda-mps-control");
    let text = format!(
        "[Unit]
Description=NVIDIA MPS on GPU {gpu}
After=nvidia-persistenced.service
Wants=nvidia-persistenced.service

[Service]
Type=forking
Environment=CUDA_VISIBLE_DEVICES={gpu}
Environment=CUDA_MPS_PIPE_DIRECTORY={pipe}
Environment=CUDA_MPS_LOG_DIRECTORY={log}
UnsetEnvironment=CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
ExecStartPre=/bin/mkdir -p {pipe} {log}
ExecStartPre=/usr/bin/nvidia-smi -i {gpu} -c EXCLUSIVE_PROCESS
ExecStart=/usr/bin/nvidia-cuda-mps-control -d
{limits}ExecStop=/bin/sh -c 'echo quit | /usr/bin/nvidia-cuda-mps-control'
ExecStopPost=/usr/bin/nvidia-smi -i {gpu} -c DEFAULT
Restart=on-failure

[Install]
WantedBy=multi-user.target
"
    );
    Artifact { name: "nvidia-mps.service", kind: Kind::Unit, text }
}

/// Folders that cumux takes: of root, and writable by nobody else.
pub(super) fn start_cumux(options: &Options) -> Artifact {
    let Options { gpu, pipe, log, prefix, .. } = options;
    let library = format!("  export LD_LIBRARY_PATH={prefix}/lib/cumux\n");
    let text = format!(
        r#"#!/bin/sh
# Starts cumux on GPU {gpu} under NVIDIA's names (cumux install --prefix {prefix} --drop-in).
set -eu

export PATH={prefix}/bin:/usr/bin:/bin
export CUMUX_DEVICE=cuda:{gpu}
export CUDA_MPS_PIPE_DIRECTORY={pipe}
export CUDA_MPS_LOG_DIRECTORY={log}
# The daemon would take it for the ceiling of all clients.
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
# Nobody else may write there; others need to enter.
umask 022
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"

# The GPU stays in compute mode DEFAULT: the warm standby has a context of its own.
nvidia-cuda-mps-control -d
{limits}
{advice}"#,
        limits = limits(options),
        advice = advice(options, &library)
    );
    Artifact { name: "start-cumux.sh", kind: Kind::Script, text }
}

pub(super) fn stop_cumux(options: &Options) -> Artifact {
    let Options { pipe, log, prefix, .. } = options;
    let text = format!(
        r#"#!/bin/sh
# Ends cumux. Its clients should have ended: quit waits for them.
set -eu

export PATH={prefix}/bin:/usr/bin:/bin
export CUDA_MPS_PIPE_DIRECTORY={pipe}
export CUDA_MPS_LOG_DIRECTORY={log}
echo quit | nvidia-cuda-mps-control
"#
    );
    Artifact { name: "stop-cumux.sh", kind: Kind::Script, text }
}

pub(super) fn cumux_unit(options: &Options) -> Artifact {
    let Options { gpu, pipe, log, prefix, .. } = options;
    let limits = unit_limits(options, &format!("{prefix}/bin/cumux control"));
    let text = format!(
        "[Unit]
Description=cumux on GPU {gpu}
After=nvidia-persistenced.service
Wants=nvidia-persistenced.service

[Service]
Type=forking
Environment=CUMUX_DEVICE=cuda:{gpu}
Environment=CUDA_MPS_PIPE_DIRECTORY={pipe}
Environment=CUDA_MPS_LOG_DIRECTORY={log}
UnsetEnvironment=CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
ExecStartPre=/bin/mkdir -p -m 755 {pipe} {log}
ExecStart={prefix}/bin/cumux control -d
{limits}ExecStop=/bin/sh -c 'echo quit | {prefix}/bin/cumux control'
Restart=on-failure

[Install]
WantedBy=multi-user.target
"
    );
    Artifact { name: "cumux.service", kind: Kind::Unit, text }
}
