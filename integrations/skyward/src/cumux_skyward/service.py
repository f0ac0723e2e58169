"""The daemon on a node: started once, found by every CUDA program of the worker, ended with it. Knows nothing of Skyward."""

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess

PIPE_DIRECTORY = "/tmp/nvidia-mps"
LOG_DIRECTORY = "/tmp/nvidia-mps-log"

# As NVIDIA's daemon reads it: 0=2G,1=512M.
_LIMIT = re.compile(r"\d+=\d+[KMG]?(,\d+=\d+[KMG]?)*")
_SIZE = re.compile(r"\d+[KMG]?")


class ServiceError(RuntimeError):
    """The service cannot be had; the text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What each client of the node may have, and where the daemon is.

    memory: most device memory of one client: "2G" on every card of the node's first, or "0=2G,1=512M".
    percentage: part of the multiprocessors of one client, above 0 and at most 100.
    isolation: "own" gives each client an executor of its own, which shares neither address space nor faults with others; "shared" is the default.
    device: the daemon's device, such as "cuda:0" or "sim:h200"; without it the first GPU.
    pipe, log: the directories.
    """

    memory: str | None = None
    percentage: float | None = None
    isolation: str | None = None
    device: str | None = None
    pipe: str = PIPE_DIRECTORY
    log: str = LOG_DIRECTORY

    def check(self):
        """Raises ValueError for what the daemon would refuse, or take and not keep to."""
        if self.memory is not None and not (_LIMIT.fullmatch(self.memory) or _SIZE.fullmatch(self.memory)):
            raise ValueError(f'memory="{self.memory}": write a size (2G, 512M), or sizes of devices (0=2G,1=512M)')
        if self.percentage is not None and not 0 < self.percentage <= 100:
            raise ValueError(f"percentage={self.percentage}: write a number above 0 and at most 100")
        if self.isolation not in (None, "own", "shared"):
            raise ValueError(f'isolation="{self.isolation}": write "own" or "shared"')
        for name in ("pipe", "log"):
            if not os.path.isabs(getattr(self, name)):
                raise ValueError(f'{name}="{getattr(self, name)}": write an absolute path')

    def environment(self):
        """The variables of the programs that are to be served."""
        variables = {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "CUDA_MPS_LOG_DIRECTORY": self.log}
        if self.percentage is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{self.percentage:g}"
        if self.memory is not None:
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = self.memory if "=" in self.memory else f"0={self.memory}"
        if self.isolation is not None:
            variables["CUMUX_ISOLATION"] = self.isolation
        return variables

    def daemon_environment(self):
        """The variables of the daemon. It must not take a client's share for the ceiling of all."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_MPS_", "CUMUX_"))}
        variables.update({"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "CUDA_MPS_LOG_DIRECTORY": self.log})
        if self.device is not None:
            variables["CUMUX_DEVICE"] = self.device
        return variables


def _run(settings, program, *words):
    return subprocess.run([program, "control", *words], env=settings.daemon_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def start(settings):
    """Starts a daemon, unless one of ours listens already; tells whether it has. Raises ServiceError if there is none then."""
    settings.check()
    program = shutil.which("cumux")
    if program is None:
        raise ServiceError("cumux is not installed on this node: add it to the image (pip=[\"cumux\"])")
    for folder in (settings.pipe, settings.log):
        os.makedirs(folder, mode=0o755, exist_ok=True)
    # A daemon of NVIDIA's in that directory does not know this command.
    there = _run(settings, program, "get_default_isolation")
    if there.returncode == 0:
        return False
    begun = _run(settings, program, "-d")
    if begun.returncode != 0:
        # Another worker of the node may have been faster.
        if _run(settings, program, "get_default_isolation").returncode == 0:
            return False
        raise ServiceError(f"the cumux daemon does not start: {(begun.stderr or begun.stdout).strip()}")
    return True


def stop(settings):
    """Ends the daemon and its clients."""
    program = shutil.which("cumux")
    if program is not None:
        _run(settings, program, "quit", "-t", "5")


def library_folder():
    """The folder with our libcuda.so.1 of the installation that `cumux` on the path belongs to."""
    program = shutil.which("cumux")
    if program is None:
        raise ServiceError("cumux is not installed on this node: add it to the image (pip=[\"cumux\"])")
    return os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "lib", "cumux")


@contextlib.contextmanager
def serving(settings):
    """A daemon, and the variables by which this process's children find it, for as long as the block lasts.

    This process itself must not have loaded CUDA yet. The library path counts for processes that are started from now on: Skyward's process executor
    starts one for each slot. Threads of this process are served if `cumux run` or the image has set the library path before.
    """
    ours = start(settings)
    variables = settings.environment()
    path = os.environ.get("LD_LIBRARY_PATH")
    variables["LD_LIBRARY_PATH"] = library_folder() + (f":{path}" if path else "")
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if ours:
            stop(settings)
