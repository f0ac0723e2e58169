"""What benches/h200-python.sh runs: PyTorch workers alone, through NVIDIA's MPS and through cumux, in turn, in one run. Standard library only; the workers use PyTorch.

h200_python.py FOLDER OUT.json [--only PART,PART] [--seconds S] [--repeats N] [--limit S]

Parts: resnet (with a variant captured in a graph), gpt2, ready, priority, kill, start; vllm, if it is named, which needs that (tests/gpu/programs_inference.py says how to bring it along). They are measured in rounds; each round measures every part once (priority
and kill in the first round only), the modes in turn, and every second round in the other order. OUT.json is written after each step, so that a run that is cut off keeps
what it has. Every process has a time limit: one that hangs is killed and counted. DEVICE=sim:h200 and WORKER=PROGRAM in the environment try the script where
there is no card and no PyTorch: modes other than cumux are then the programs without any library of ours, and PROGRAM stands in for the workers.
"""

import argparse
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import date
from pathlib import Path

import h200  # it takes FOLDER and OUT.json from the command line when it is loaded

PARTS = ["resnet", "gpt2", "ready", "priority", "kill", "start"]
IF_NAMED = ["vllm"]
DEVICE = os.environ.get("DEVICE", "cuda:0")
SIMULATED = DEVICE.startswith("sim:")
WORKER = os.environ.get("WORKER", str(Path(__file__).with_name("h200_python_worker.py")))
EIGHT = 8
TURNS, TURN_S = 10, 1.0  # of one worker with cumux and one without
READY_LIMIT = {"vllm": 150}
USUAL_READY_LIMIT = 75
GAP = [0.008, 0.012]

arguments = argparse.ArgumentParser()
arguments.add_argument("folder", type=Path)
arguments.add_argument("out", type=Path)
arguments.add_argument("--only", default=",".join(PARTS))
arguments.add_argument("--seconds", type=float, default=4.0, help="how long each measurement of workers lasts")
arguments.add_argument("--repeats", type=int, default=3)
arguments.add_argument("--limit", type=float, default=485, help="seconds for everything")
options = arguments.parse_args()
ONLY = options.only.split(",")
if unknown := set(ONLY) - set(PARTS + IF_NAMED):
    arguments.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS + IF_NAMED)}")
BEGUN = time.monotonic()
END = BEGUN + options.limit

RUNS = {}  # what was measured -> mode -> one dictionary a repetition
TROUBLE = []  # what failed, in words
STARTED = []  # every process of ours, each the leader of its own group


def left():
    return END - time.monotonic()


def kill(process):
    """The process and what it has started; waits for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        TROUBLE.append(f"process {process.pid} does not end by SIGKILL")


def begin(command, env, limit, **pipes):
    process = subprocess.Popen(list(map(str, command)), env=env, text=True, start_new_session=True, **pipes)
    STARTED.append(process)

    def too_late():
        if process.poll() is None:
            TROUBLE.append(f"killed after {limit:.0f} s: {' '.join(map(str, command[-3:]))}")
            kill(process)

    watchdog = threading.Timer(limit, too_late)
    watchdog.daemon = True
    watchdog.start()
    return process


class Service(h200.Service):
    """That of benches/h200.py with a time limit for everything, and with PyTorch workers."""

    def __init__(self, mode):
        super().__init__(mode)
        old = os.environ.get("LD_LIBRARY_PATH")
        if mode == "cumux" and old:
            self.env["LD_LIBRARY_PATH"] += ":" + old
        self.env |= {"OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}

    def __enter__(self):
        self.memory_before = settled_memory()
        try:
            self.begin_daemon()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin_daemon(self):
        if self.exists():
            device = ["--device", DEVICE] if self.mode == "cumux" else []
            # A daemon keeps what it inherits: it gets no pipe of ours.
            with open(self.room / "start", "w") as said:
                done = subprocess.run([*self.command(), *device, "-d"], env=self.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=60, check=False)
            if done.returncode:
                raise RuntimeError(f"{self.mode}: the daemon does not start: {(self.room / 'start').read_text()[-500:]}")
            self.settle()

    def exists(self):
        return self.mode == "cumux" or self.mode == "mps" and not SIMULATED

    def settle(self):
        """The server starts with its first client; a standby that is being made would take time from everybody."""
        self.run("first_kernel")
        until = time.monotonic() + 20
        while self.mode == "cumux" and time.monotonic() < until:
            done = subprocess.run([str(h200.FOLDER / "cumux"), "status", "--json"], env=self.env, text=True, capture_output=True, timeout=30, check=False)
            if any(server["standby"] for server in json.loads(done.stdout or "[]")):
                return
            time.sleep(0.1)

    def __exit__(self, *_):
        for process in STARTED:
            if process.poll() is None:
                kill(process)
        STARTED.clear()
        if self.exists():
            try:
                subprocess.run(self.command(), input="quit -t 3\n", text=True, env=self.env, check=False, timeout=25, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                TROUBLE.append(f"{self.mode}: the daemon does not quit")
                end_daemon(self.room / "pipe" / "nvidia-cuda-mps-control.pid")
            if self.mode == "cumux":
                note_log(self.room / "log")

    def start(self, program, *words, **pipes):
        limit = max(5.0, min(60.0, left()))
        return begin([h200.FOLDER / program, *words], self.env, limit, **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | pipes)

    def run(self, program, *words):
        # The watchdog of the process ends the wait: it kills the children as well, which hold the pipe.
        process = self.start(program, *words)
        text = process.communicate()[0]
        return text + ("\nTIMEOUT" if process.returncode == -signal.SIGKILL else "")


def end_daemon(file):
    try:
        os.kill(int(file.read_text()), signal.SIGKILL)
    except (OSError, ValueError):
        pass


def note_log(folder):
    said = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log*")))
    bad = [line for line in said.splitlines() if re.search(r"\bERROR\b|could not go on|has broken the context|has taken over", line)]
    if bad:
        TROUBLE.append("log of cumux: " + " | ".join(line[-300:] for line in bad[:4]))


def settled_memory():
    """MiB of the card in use: what an ended service gives back comes with a delay."""
    if SIMULATED:
        return 0.0
    before = h200.card_memory()
    for _ in range(12):
        time.sleep(0.25)
        now = h200.card_memory()
        if now == before:
            break
        before = now
    return before


class Worker:
    """A PyTorch process. What it answers comes through a queue, so that waiting for it has an end."""

    def __init__(self, service, what, **variables):
        self.errors = tempfile.TemporaryFile("w+")
        program = [WORKER] if os.access(WORKER, os.X_OK) else [sys.executable, WORKER]
        self.process = begin([*program, what], service.env | variables, max(5.0, min(240.0, left())), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self.answers = queue.Queue()
        self.failed = None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                try:
                    self.answers.put(json.loads(line[1:]))
                except ValueError:
                    break
        self.answers.put(None)

    def order(self, **words):
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            pass  # the next answer tells

    def answer(self, until):
        """What the worker says next, or None, with the reason in `failed`; then it is dead."""
        if self.failed:
            return None
        try:
            found = self.answers.get(timeout=max(0.01, min(until, END) - time.monotonic()))
            why = "it ended"
        except queue.Empty:
            found, why = None, "no answer in time"
        if found is None:
            kill(self.process)
            self.errors.seek(0)
            self.failed = f"{why}, status {self.process.returncode}: " + " | ".join(self.errors.read().strip().splitlines()[-4:])[-600:]
            TROUBLE.append(f"worker: {self.failed}")
        return found

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=8)
        except (OSError, subprocess.TimeoutExpired):
            kill(self.process)


def gather(service, what, count, counts_memory=True, **variables):
    """Workers, warm, and a dictionary that says after how many seconds the last one was ready and how much of the card all of them use."""
    begun, limit = time.monotonic(), READY_LIMIT.get(what, USUAL_READY_LIMIT)
    workers = [Worker(service, what, **variables) for _ in range(count)]
    ready = []
    for worker in workers:
        found = worker.answer(begun + limit)
        # The workers' own times: by now the answer may have waited for a while.
        ready.append(found)
    facts = {"workers": count}
    if all(ready):
        facts |= {key: max(found[key] for found in ready) for key in ("ready_s", "ready_from_start_s", "ready_from_imports_s")}
    for worker in workers:
        worker.answer(begun + limit + 15)
    if counts_memory:
        facts["memory_mib"] = None if SIMULATED else h200.card_memory() - service.memory_before
    facts["failed"] = sum(worker.failed is not None for worker in workers)
    return [worker for worker in workers if not worker.failed], facts


def together(workers, seconds, **order):
    """All run at once; their rates are added."""
    for worker in workers:
        worker.order(seconds=seconds, **order)
    until = time.monotonic() + seconds + 30
    return [answer for answer in (worker.answer(until) for worker in workers) if answer]


def summary(answers, facts):
    found = dict(facts)
    found["failed"] = facts["workers"] - len(answers)
    if answers:
        found |= {
            "rate": sum(a["rate"] for a in answers), "p50_ms": statistics.mean(a["p50_ms"] for a in answers), "p99_ms": max(a["p99_ms"] for a in answers),
            "wrong": sum(a["wrong"] for a in answers), "digests": sorted({a["digest"] for a in answers}), "sums": [a["sums"] for a in answers]}
    return found


def record(what, mode, found):
    RUNS.setdefault(what, {}).setdefault(mode, []).append(found)
    if isinstance(found.get("failed"), str):
        TROUBLE.append(f"{what}, {mode}: {found['failed'][-200:]}")
    short = {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items() if k in ("rate", "p50_ms", "p99_ms", "ready_s", "memory_mib", "failed", "wrong", "last_s", "ratio")}
    print(f"{time.monotonic() - BEGUN:5.0f} s  {what:<34} {mode:<7} {short}", file=sys.stderr, flush=True)
    write()


def measured(service, what, count, name, seconds=None, **variables):
    """Starts workers, measures them once and ends them. Skipped where the time that is left would not do."""
    seconds = options.seconds if seconds is None else seconds
    if left() < 25 + seconds:
        return
    workers, facts = gather(service, what, count, **variables)
    answers = together(workers, seconds) if seconds and workers else []
    found = summary(answers, facts) if seconds else facts
    for worker in workers:
        worker.end()
    # What the end of the run cuts off is no failure of a worker.
    if left() > 0:
        record(name, service.mode, found)


def in_turns(service, what):
    """One worker through cumux and one without, in turns of a second. The processors of a virtual
    machine may have half their speed from one second to the next."""
    if left() < 25 + 2 * TURNS * TURN_S:
        return
    (through, its_facts), (without, bare) = gather(service, what, 1), gather(Service("native"), what, 1, counts_memory=False)
    answers = {"native": [], "cumux": []}
    for _ in range(TURNS):
        for mode, worker in (("native", without), ("cumux", through)):
            answers[mode] += together(worker, TURN_S)
    for worker in (*through, *without):
        worker.end()
    for mode, facts in (("native", bare), ("cumux", its_facts)):
        turns = answers[mode]
        if left() > 0 and (turns or facts["failed"]):
            found = summary(turns, facts | {"workers": max(1, len(turns))})
            found |= {"failed": facts["failed"], "turns": [turn["rate"] for turn in turns]}
            if turns:
                # All turns are equally long.
                found |= {"rate": statistics.mean(found["turns"]), "p99_ms": statistics.median(turn["p99_ms"] for turn in turns)}
            record(f"{what}, 1 worker", mode, found)


def one_and_eight(service, what):
    """One worker, which through MPS is no news, and eight beside each other, which need a service."""
    if service.mode == "cumux":
        in_turns(service, what)
    if service.mode != "native":
        measured(service, what, EIGHT, f"{what}, 8 workers")


# ---- the parts: each is called for one mode, with the number of the round


def resnet(mode, turn):
    with Service(mode) as service:
        one_and_eight(service, "resnet")
        if mode != "native":
            measured(service, "resnet", EIGHT, "resnet, 8 workers of 12 %", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="12")
            if turn == 0:
                measured(service, "graph", EIGHT, "resnet in a graph, 8 workers")
        elif turn == 0:
            measured(service, "graph", 1, "resnet in a graph, 1 worker")


def gpt2(mode, _):
    if mode != "native":
        with Service(mode) as service:
            one_and_eight(service, "gpt2")


def vllm(mode, _):
    if mode != "native":
        with Service(mode) as service:
            one_and_eight(service, "vllm")


def ready(mode, _):
    """resnet measures it as well: where that part runs, nothing more is needed."""
    if mode != "native" and "resnet" not in ONLY:
        with Service(mode) as service:
            measured(service, "resnet", EIGHT, "resnet, 8 workers", seconds=0)


def priority(mode, turn):
    """A server with a request each 8 to 12 ms, and training: each alone and both together, five times."""
    if turn or left() < 60:
        return
    with Service(mode) as service:
        servers, _ = gather(service, "resnet", 1)
        if mode == "native":
            for alone in together(servers, 2 * options.seconds, every=GAP):
                record("server alone", mode, {key: alone[key] for key in ("p50_ms", "p99_ms", "longest_ms", "wrong")})
            return
        trainers, _ = gather(service, "train", 1, CUDA_MPS_CLIENT_PRIORITY="1")
        if not servers or not trainers:
            record("priority", mode, {"failed": 2 - len(servers) - len(trainers)})
            return
        server, trainer = servers[0], trainers[0]
        part = max(1.0, options.seconds * 0.75)
        for _ in range(5):
            if left() < 4 * part + 5 or server.failed or trainer.failed:
                break
            alone = together([server], part, every=GAP)
            training = together([trainer], part / 2)
            # Training begins before the requests and ends after them; its rate is taken over its own time.
            trainer.order(seconds=part + 0.6)
            time.sleep(0.3)
            beside = together([server], part, every=GAP)
            slowed = trainer.answer(time.monotonic() + 30)
            if not (alone and training and beside and slowed):
                break
            record("priority", mode, {
                "p99_alone_ms": alone[0]["p99_ms"], "p99_beside_ms": beside[0]["p99_ms"], "ratio": beside[0]["p99_ms"] / alone[0]["p99_ms"], "p50_alone_ms": alone[0]["p50_ms"],
                "p50_beside_ms": beside[0]["p50_ms"], "training_alone": training[0]["rate"], "training_beside": slowed["rate"], "training_kept": slowed["rate"] / training[0]["rate"],
                "wrong": alone[0]["wrong"] + beside[0]["wrong"]})
        for worker in (server, trainer):
            worker.end()


def kill_one(mode, turn):
    """Eight serve; one is killed in the middle. The passes of the seven others in the half before and in the half after, each without its first 0.3 s."""
    if turn or mode == "native" or left() < 45:
        return
    with Service(mode) as service:
        workers, facts = gather(service, "resnet", EIGHT)
        if len(workers) < EIGHT:
            record("kill", mode, facts)
            return
        half = max(3.0, options.seconds)
        begun = time.monotonic()
        for worker in workers:
            worker.order(seconds=2 * half, ends=True)
        time.sleep(half)
        victim, others = workers[EIGHT // 2], [w for i, w in enumerate(workers) if i != EIGHT // 2]
        at = time.monotonic()
        kill(victim.process)
        answers = [answer for answer in (worker.answer(begun + 2 * half + 30) for worker in others) if answer]
        found = {"failed": len(others) - len(answers)}
        if answers:
            ends = [end for answer in answers for end in answer["ends"]]
            windows = [(begun + 0.3, at), (at + 0.3, begun + 2 * half - 0.1)]
            before, after = (sum(low <= end < high for end in ends) / (high - low) for low, high in windows)
            pauses = [max((b - a for a, b in zip(one, one[1:]) if a <= at + 1.0 and b >= at), default=0) for one in (answer["ends"] for answer in answers)]
            found |= {"before": before, "after": after, "ratio": after / before if before else None, "wrong": sum(a["wrong"] for a in answers),
                      "longest_pause_ms": max(pauses) * 1e3, "digests": sorted({a["digest"] for a in answers}), "sums": [a["sums"] for a in answers]}
        for worker in others:
            worker.end()
        record("kill", mode, found)


def start(mode, turn):
    """Tiny kernels and starts, by the programs and functions of benches/h200.py."""
    with Service(mode) as service:
        def one(name, function, *words):
            if left() > 15:
                record(name, mode, function(service, *words))

        # Under MPS each takes five seconds.
        for _ in range(3 if mode == "cumux" else int(turn == 0)):
            one("start of 32 clients", h200.starts, 32)
        one("W2, 1 client, N=1", h200.share, *h200.W2["W2 n=1 N=1"])
        if mode != "native":
            for batch in (1, 100):
                one(f"W2, 8 clients, N={batch}", h200.share, *h200.W2[f"W2 n=8 N={batch}"])
        if mode == "cumux":
            one("W1, 16 clients", h200.share, *h200.W1["W1 n=16"])
            one("W1, 256 clients", h200.share, 256, *h200.W1["W1 n=16"][1:])


MEASURE = {"resnet": resnet, "gpt2": gpt2, "vllm": vllm, "ready": ready, "priority": priority, "kill": kill_one, "start": start}


# ---- the result


def figure(what, mode, key):
    """The median of the repetitions in which no worker failed."""
    values = [run[key] for run in RUNS.get(what, {}).get(mode, []) if isinstance(run.get(key), (int, float)) and not run.get("failed")]
    return statistics.median(values) if values else None


def ratio(top, bottom):
    return top / bottom if top is not None and bottom else None


def same_outputs(*names):
    """Whether every worker of every mode computed the same: exactly, but for rounding, or not."""
    found = {mode: [run for name in names for run in RUNS.get(name, {}).get(mode, []) if run.get("digests")] for mode in ("cumux", "mps", "native")}
    runs = [run for those in found.values() for run in those]
    if not found["cumux"] or len(runs) == len(found["cumux"]):
        return None  # nothing to compare
    if any(run.get("wrong") for run in runs):
        return "a worker's own passes differ"
    if len({digest for run in runs for digest in run["digests"]}) == 1:
        return "equal"
    sums = [pair for run in runs for pair in run["sums"]]
    room = 2e-3 * max(abs(value) for _, value in sums)
    close = all(abs(one - two) <= room for pair in sums for one, two in zip(pair, sums[0]))
    return "equal but for rounding" if close else "DIFFERENT"


def targets():
    rows = []

    def row(part, name, measured, wanted, met):
        if part in ONLY:
            rows.append({"name": name, "wanted": wanted, "measured": round(measured, 3) if isinstance(measured, float) else measured, "met": bool(met)})

    def least(part, name, measured, wanted):
        row(part, name, measured, f"at least {wanted}", measured is not None and measured >= wanted)

    def most(part, name, measured, wanted):
        row(part, name, measured, f"at most {wanted}", measured is not None and measured <= wanted)

    def against(what, mode="mps", key="rate"):
        return ratio(figure(what, "cumux", key), figure(what, mode, key))

    least("resnet", "ResNet-50, 8 workers / MPS", against("resnet, 8 workers"), 1.0)
    least("resnet", "ResNet-50, 1 worker / alone", against("resnet, 1 worker", "native"), 1.25)
    least("resnet", "ResNet-50, 8 workers of 12 % / MPS", against("resnet, 8 workers of 12 %"), 1.0)
    for name, whats in (("", ["resnet, 1 worker", "resnet, 8 workers"]), (" of 12 %", ["resnet, 8 workers of 12 %"]), (" in a graph", ["resnet in a graph, 1 worker", "resnet in a graph, 8 workers"])):
        same = same_outputs(*whats)
        row("resnet", f"ResNet-50{name}, outputs of all workers and modes", same, "equal", same in ("equal", "equal but for rounding"))
    least("gpt2", "GPT-2 fp16 generate, 8 workers / MPS", against("gpt2, 8 workers"), 1.0)
    least("gpt2", "GPT-2 fp16 generate, 1 worker / alone", against("gpt2, 1 worker", "native"), 1.0)
    same = same_outputs("gpt2, 1 worker", "gpt2, 8 workers")
    row("gpt2", "GPT-2, tokens of all workers and modes", same, "equal", same == "equal")
    least("vllm", "vLLM, 8 engines / MPS", against("vllm, 8 workers"), 1.0)
    least("vllm", "vLLM, 1 engine / alone", against("vllm, 1 worker", "native"), 1.0)
    same = same_outputs("vllm, 1 worker", "vllm, 8 workers")
    row("vllm", "vLLM, tokens of all engines and modes", same, "equal", same == "equal")
    most("ready", "seconds until eight are ready, after import torch / MPS", against("resnet, 8 workers", key="ready_s"), 0.7)
    most("ready", "seconds until eight are ready, from their start / MPS", against("resnet, 8 workers", key="ready_from_start_s"), 0.7)
    most("ready", "seconds until eight are ready, after all imports / MPS", against("resnet, 8 workers", key="ready_from_imports_s"), 0.7)
    most("ready", "memory of the card for eight / MPS", against("resnet, 8 workers", key="memory_mib"), 0.4)
    most("priority", "p99 of a server beside training / alone, median of five", figure("priority", "cumux", "ratio"), 1.05)
    most("priority", "p99 of a server beside training / without cumux", ratio(figure("priority", "cumux", "p99_beside_ms"), figure("server alone", "native", "p99_ms")), 1.05)
    least("priority", "training beside the server / alone, median of five", figure("priority", "cumux", "training_kept"), 0.9)
    least("kill", "seven beside a killed one, after / before", figure("kill", "cumux", "ratio"), 1.0)
    same = same_outputs("kill", "resnet, 8 workers")
    row("kill", "outputs of the seven", same, "equal", same == "equal")
    most("start", "start of 32 clients, s", figure("start of 32 clients", "cumux", "last_s"), 0.1)
    least("start", "W2 N=1, 8 clients / MPS", against("W2, 8 clients, N=1"), 0.8)
    least("start", "W2 N=100, 8 clients / MPS", against("W2, 8 clients, N=100"), 4.0)
    waits = [figure("W2, 1 client, N=1", mode, "p50_us") for mode in ("cumux", "native")]
    most("start", "launch and wait of one client, us over alone", None if None in waits else waits[0] - waits[1], 0.5)
    least("start", "256 clients, rate / that of 16", ratio(figure("W1, 256 clients", "cumux", "rate"), figure("W1, 16 clients", "cumux", "rate")), 0.9)
    failed = sum(run.get("failed", 0) if isinstance(run.get("failed", 0), int) else 1 for modes in RUNS.values() for run in modes.get("cumux", []))
    rows.append({"name": "workers that failed through cumux", "wanted": "0", "measured": failed, "met": failed == 0 and bool(RUNS)})
    return rows


def figures():
    table = {}
    for what, modes in RUNS.items():
        for mode, runs in modes.items():
            keys = {key for run in runs for key, value in run.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
            cells = {}
            for key in sorted(keys):
                values = [run[key] for run in runs if isinstance(run.get(key), (int, float))]
                cells[key] = {"median": round(statistics.median(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}
            table.setdefault(what, {})[mode] = {"repetitions": len(runs)} | cells
    return table


ABOUT = {}


def write():
    result = ABOUT | {"seconds": options.seconds, "parts": ONLY, "took_s": round(time.monotonic() - BEGUN), "figures": figures(), "targets": targets(), "trouble": TROUBLE[:40], "runs": RUNS}
    new = options.out.with_suffix(".new")
    new.write_text(json.dumps(result, indent=1))
    new.replace(options.out)


def about():
    card = "NVIDIA, none"
    if not SIMULATED:
        card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=False).stdout.strip().splitlines()[0]
    name, _, driver = card.partition(", ")
    file = h200.FOLDER / "commit"
    return {"date": str(date.today()), "commit": file.read_text().strip() if file.exists() else "unknown", "device": DEVICE if SIMULATED else name, "driver": driver}


def table():
    print(f"{ABOUT['device']}, {ABOUT['driver']}, commit {ABOUT['commit']}, {ABOUT['date']}, {time.monotonic() - BEGUN:.0f} s\n")
    print(f"{'median':<34}{'mode':<8}{'times':>6}{'rate':>12}{'p50 ms':>10}{'p99 ms':>10}{'ready s':>9}{'MiB':>8}{'failed':>8}")
    for what, modes in figures().items():
        for mode, cells in modes.items():
            cell = lambda key, scale=1.0: f"{cells[key]['median'] * scale:.2f}" if key in cells else ""
            p50, p99 = (cell(f"{p}_ms") or cell(f"{p}_us", 1e-3) for p in ("p50", "p99"))
            print(f"{what:<34}{mode:<8}{cells['repetitions']:>6}{cell('rate'):>12}{p50:>10}{p99:>10}{cell('ready_s'):>9}{cell('memory_mib'):>8}{cell('failed'):>8}")
    for what in ("priority", "kill"):
        for mode, cells in figures().get(what, {}).items():
            print(f"{what}, {mode}: " + ", ".join(f"{key} {value['median']:.3g} ({value['least']:.3g} to {value['most']:.3g})" for key, value in cells.items() if isinstance(value, dict)))
    for text in TROUBLE[:12]:
        print(f"trouble: {text}")
    print()
    for t in targets():
        print(f"{'met ' if t['met'] else 'OPEN'} {t['name']:<58} {t['measured']} ({t['wanted']})")


def give_up():
    """A step did not come back although everything it waits for has a limit."""
    TROUBLE.append("the run was cut off by its last watchdog")
    for process in list(STARTED):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
    write()
    table()
    sys.stdout.flush()
    os._exit(1)


def main():
    ABOUT.update(about())
    last = threading.Timer(options.limit + 45, give_up)
    last.daemon = True
    last.start()
    for turn in range(options.repeats):
        for part in PARTS + IF_NAMED:
            if part not in ONLY:
                continue
            modes = ["native", "mps", "cumux"]
            for mode in modes if turn % 2 == 0 else reversed(modes):
                if left() < 20:
                    break
                try:
                    MEASURE[part](mode, turn)
                except Exception as error:  # the next step has to be measured whatever happens in this one
                    TROUBLE.append(f"{part}, {mode}: {type(error).__name__}: {error}; {traceback.format_exc(limit=-2).splitlines()[-2].strip()}")
                write()
    table()


if __name__ == "__main__":
    main()
