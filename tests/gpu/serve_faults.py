"""Workers that serve ResNet-50 beside a stranger's illegal write every two seconds: none fails, all outputs are equal, and how much is lost.

tests/gpu/serve_faults.py FOLDER [WORKERS] [SECONDS] [GAP]      FOLDER as tests/gpu/faults.sh packs it; needs PyTorch and torchvision

What COMPARED names is passed on from the environment: CUMUX_KERNELS_ON_DEMAND=0 loads images as a whole, CUMUX_CHAINS_AHEAD=0 makes no chains ahead. For each fault it prints after how many
milliseconds the driver announced it, the core dump was written, the verdict was there, the successor served, and the process with the broken context was gone;
and what memory and load the machine had. With CUMUX_LOG=debug it also says how kernels went to the card in each quarter of a second after a takeover.
For each second of each run it prints passes, and what the processors and the card did meanwhile. SERVE_LOGS=FOLDER
keeps the logs. SERVE_CALM=0 leaves out the runs without faults, before and after. SERVE_TURNS=N has N times with faults and N without in turn instead, in one run
of twice SECONDS: a host is fast and slow for minutes.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

NUMBERS = [] if sys.argv[1:2] == ["--worker"] else [float(word) for word in sys.argv[2:]]
FOLDER = Path(sys.argv[1]).resolve()
WORKERS, SECONDS, GAP = (NUMBERS + [8, 30.0, 2.0][len(NUMBERS):])[:3]
WORKERS = int(WORKERS)
TURNS = int(os.environ.get("SERVE_TURNS", "0"))
COMPARED = ("CUMUX_CHAINS_AHEAD", "CUMUX_CONNECTIONS", "CUMUX_ENGINE_CONTEXTS", "CUMUX_KERNELS_ON_DEMAND", "CUMUX_STANDBYS")


def work(number, seconds, start):
    import torch
    import torchvision
    torch.manual_seed(1)
    model = torchvision.models.resnet50(weights=None).cuda().eval()
    x = torch.ones(1, 3, 224, 224, device="cuda")
    with torch.no_grad():
        for _ in range(20):
            expected = model(x)
        torch.cuda.synchronize()
        expected = expected.cpu()
        print("ready", flush=True)
        while not os.path.exists(start):
            time.sleep(0.01)
        begun, ends, wrong, longest, last = time.time(), [], 0, 0.0, time.time()
        while time.time() - begun < seconds:
            y = model(x).cpu()
            wrong += not torch.equal(y, expected)
            ends.append(time.time())
            longest, last = max(longest, ends[-1] - last), ends[-1]
        Path(f"{start}.ends{number}").write_text(" ".join(f"{end:.4f}" for end in ends))
        passes = len(ends)
    print(f"done {passes / seconds:.1f} passes/s wrong {wrong} longest {longest * 1e3:.0f} ms", flush=True)


class Watch(threading.Thread):
    """Once a second: how many processors' time the workers, cumux's processes and everything together took, what other machines on the host took of it, and the
    card's clock."""

    def __init__(self, workers):
        super().__init__(daemon=True)
        self.workers, self.over, self.rows = {worker.pid for worker in workers}, threading.Event(), []
        self.clocks = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-l", "1"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        self.clock = "-"
        threading.Thread(target=self.read_clocks, daemon=True).start()

    def read_clocks(self):
        for line in self.clocks.stdout:
            self.clock = line.strip().replace(", ", " MHz ") + " W"

    def count(self):
        """Seconds of processors so far: of workers, of cumux, of all, and stolen."""
        ticks = os.sysconf("SC_CLK_TCK")
        words = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        each = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
            except (OSError, IndexError):
                continue
            fields = rest.split()
            kind = "workers" if int(path.parent.name) in self.workers else "cumux" if name.startswith("cumux") else None
            # What has ended meanwhile is missing: an executor that was lost.
            if kind:
                each[path.parent.name, kind] = (int(fields[11]) + int(fields[12])) / ticks
        return each, (sum(words[:8]) - words[3] - words[4]) / ticks, words[7] / ticks

    def run(self):
        before, at = self.count(), time.time()
        while not self.over.wait(1.0):
            now, until = self.count(), time.time()
            took = {kind: sum(used - before[0].get((pid, one), 0) for (pid, one), used in now[0].items() if one == kind) for kind in ("workers", "cumux")}
            self.rows.append((at, until, took["workers"], took["cumux"], now[1] - before[1], now[2] - before[2], self.clock))
            before, at = now, until
        self.clocks.kill()

    def tell(self, room):
        ends = [float(word) for path in room.glob("start.ends*") for word in path.read_text().split()]
        for at, until, workers, cumux, all_of_it, stolen, clock in self.rows:
            seconds = until - at
            print(f"    {at % 1000:7.1f}: {sum(at <= end < until for end in ends) / seconds:6.0f} passes/s; processors: workers {workers / seconds:.1f}, "
                  f"cumux {cumux / seconds:.1f}, all {all_of_it / seconds:.1f}, stolen {stolen / seconds:.2f}; {clock}")


def run(with_faults):
    seconds = (2 if TURNS else 1) * SECONDS if with_faults else min(SECONDS, 15.0)
    room = Path(tempfile.mkdtemp(prefix="serve"))
    for name in ("pipe", "log"):
        (room / name).mkdir(mode=0o700)
    env = {k: v for k, v in os.environ.items() if k in COMPARED or not k.startswith(("CUDA_", "CUMUX_"))} | {
        "CUDA_MPS_PIPE_DIRECTORY": str(room / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(room / "log"), "LD_LIBRARY_PATH": str(FOLDER / "lib")}
    # Clients would take it for the name of a file.
    service = env | {"CUMUX_LOG": os.environ.get("CUMUX_LOG", "info")}
    subprocess.run([str(FOLDER / "cumux"), "control", "--device", "cuda:0", "-d"], env=service, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    start, outputs, workers, begun = room / "start", [], [], time.time()
    for number in range(WORKERS):
        outputs.append(open(room / f"out{number}", "w+"))
        workers.append(subprocess.Popen([sys.executable, __file__, "--worker", str(number), str(seconds), str(start)], env=env, stdout=outputs[-1], stderr=subprocess.STDOUT))
    until = time.time() + 90
    while time.time() < until and any("ready" not in (room / f"out{n}").read_text() for n in range(WORKERS)) and all(w.poll() is None for w in workers):
        time.sleep(0.1)
    ready, used = time.time() - begun, subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    start.touch()
    watch = Watch(workers)
    watch.start()
    faults, told, began, machine = 0, 0, [], []
    begun = time.time()
    end = begun + seconds
    turn = seconds / (2 * TURNS) if TURNS else seconds
    while with_faults and time.time() < end - 1:
        next_fault = time.time() + GAP
        if not TURNS:
            time.sleep(GAP)
        elif int((time.time() - begun) / turn) % 2 == 0 or int((next_fault - begun) / turn) % 2 == 0:
            # The time without faults, or too near to it: a fault's costs belong to its own turn.
            time.sleep(0.01)
            continue
        culprit = subprocess.Popen([str(FOLDER / "culprit"), "store"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        culprit.stdout.readline()
        began.append(time.time())
        machine.append((int(re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())[1]) >> 20, os.getloadavg()[0]))
        told += culprit.communicate(timeout=60)[0].startswith("told")
        faults += 1
        time.sleep(max(0.0, next_fault - time.time()))
    watch.over.wait(max(0.0, end - time.time()))
    watch.over.set()
    failed, rates, longest = 0, [], []
    for number, worker in enumerate(workers):
        try:
            worker.wait(timeout=max(5, end + 30 - time.time()))
        except subprocess.TimeoutExpired:
            worker.kill()
        text = (room / f"out{number}").read_text().strip().splitlines()[-1:]
        words = text[0].split() if text else []
        if words[:1] == ["done"] and words[4] == "0":
            rates.append(float(words[1]))
            longest.append(int(words[6]))
        else:
            failed += 1
            print("   ", text[0][-250:] if text else "no output")
    watch.tell(room)
    if TURNS and with_faults:
        tell_turns(room, begun, turn)
    if with_faults:
        tell_steps(room / "log" / "server.log", began, machine)
        tell_ramp(room, began)
        tell_pace(room / "log" / "server.log")
    if os.environ.get("SERVE_LOGS") and with_faults:
        subprocess.run(["cp", "-r", str(room / "log"), os.environ["SERVE_LOGS"]])
    log = "".join(path.read_text(errors="replace") for path in (room / "log").glob("*.log"))
    takeovers = [line.split("after ")[1].split(" ms")[0] for line in log.splitlines() if "has taken over" in line and "Control" in line]
    for line in [line for line in log.splitlines() if "could not go on" in line or "would end with an error" in line][:4]:
        print("   ", line[-300:])
    print(f"{faults} faults, {told} culprits told: {failed} of {WORKERS} failed; {sum(rates):.1f} passes/s together, longest pass {max(longest, default=0)} ms; takeovers after {takeovers} ms; ready after {ready:.1f} s, {used} of the card used", flush=True)
    try:
        subprocess.run([str(FOLDER / "cumux"), "control"], input="quit -t 2\n", text=True, env=env, timeout=30, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pass
    return sum(rates)


STEPS = {"announced": "nothing more is given to the card", "dump": "the core dump is written", "verdict": "has broken the context", "successor": "has taken over", "gone": "has ended (signal"}


def tell_steps(log, began, machine):
    """When each step came after each fault, by the log, whose times are local."""
    events = []
    for line in log.read_text(errors="replace").splitlines():
        stamp = re.match(r"\[(\d+-\d+-\d+ \d+:\d+:\d+)\.(\d+) ", line)
        step = next((step for step, words in STEPS.items() if words in line), None)
        if stamp and step:
            events.append((time.mktime(time.strptime(stamp[1], "%Y-%m-%d %H:%M:%S")) + int(stamp[2]) / 1000, step))
    for number, at in enumerate(began):
        until = began[number + 1] if number + 1 < len(began) else at + 10
        found = [f"{step} {(when - at) * 1e3:.0f}" for when, step in events if at <= when < until]
        print(f"    fault {number + 1}: {', '.join(found) or 'nothing in the log'} ms; {machine[number][0]} GiB free, load {machine[number][1]:.1f}")


def tell_pace(log):
    """What the engines of each executor say of its quarters of a second, by the quarter's number, over all that took over."""
    quarters = {}
    for line in log.read_text(errors="replace").splitlines():
        if "a quarter of a second" in line:
            process = line.split("]")[0].split()[-1]
            quarters.setdefault(process, []).append({name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)})
    # The first one was there before the first fault.
    later = list(quarters.values())[1:]
    for number in range(min(8, max(map(len, later), default=0))):
        at = [rows[number] for rows in later if number < len(rows)]
        mean = {name: sum(row[name] for row in at) / len(at) for name in at[0]}
        print(f"    quarter {number + 1} of {len(at)} executors:", ", ".join(f"{name} {value:.0f}" for name, value in mean.items()))


def tell_turns(room, begun, turn):
    """Passes a second in the turns with faults and in those without."""
    ends = [float(word) for path in room.glob("start.ends*") for word in path.read_text().split()]
    rates = [sum(begun + number * turn <= at < begun + (number + 1) * turn for at in ends) / turn for number in range(2 * TURNS)]
    without, faulty = rates[0::2], rates[1::2]
    tell = lambda each: f"{sum(each) / TURNS:.1f} passes/s ({' '.join(f'{rate:.0f}' for rate in each)})"
    print(f"in turns: with faults {tell(faulty)}, without {tell(without)}: {sum(faulty) / sum(without):.3f} (wanted: at least 0.8)")


def tell_ramp(room, began):
    """How many passes a second there are in each tenth of a second after a fault, over all faults but the first."""
    ends = [float(word) for path in room.glob("start.ends*") for word in path.read_text().split()]
    windows = [0] * int(GAP * 10)
    for at in began[1:]:
        for end in ends:
            window = int((end - at) * 10)
            if 0 <= end - at and window < len(windows):
                windows[window] += 1
    print("    passes/s in each tenth of a second after a fault:", *[round(10 * count / max(1, len(began) - 1)) for count in windows])


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
    else:
        measures_calm = os.environ.get("SERVE_CALM") != "0" and not TURNS
        before = run(False) if measures_calm else 0
        beside = run(True)
        if measures_calm:
            # A host is not equally fast all the time: by the mean of before and after.
            after = run(False)
            print(f"with faults / without: {2 * beside / (before + after):.3f} (wanted: at least 0.8); without: {before:.1f} before and {after:.1f} after")
